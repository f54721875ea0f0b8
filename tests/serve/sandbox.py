"""Run a command as deploy/onlad.service would have it, without systemd; needs root.

``unshare --mount python sandbox.py UNIT STATE -- COMMAND...`` makes the mounts, drops privileges
and comes back as ``python sandbox.py filter UNIT COMMAND...``, which filters calls of the system
and becomes the command. What the unit says is read from it; what is not tried is in NOT_TRIED.
"""

import ctypes
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

USER = 61_184  # the first of those that DynamicUser takes
ROOT = Path(__file__).parents[2]
TRIED = {
    "DynamicUser", "UMask", "NoNewPrivileges", "ProtectSystem", "ProtectHome", "PrivateTmp",
    "PrivateDevices", "ProtectKernelTunables", "ProtectControlGroups", "CapabilityBoundingSet",
    "ProtectKernelModules", "ProtectClock", "RestrictAddressFamilies", "SystemCallFilter",
    "StateDirectory", "StateDirectoryMode", "Environment", "ExecStart",
}  # fmt: skip
NOT_TRIED = {
    "Restart", "RestartSec", "TimeoutStopSec", "MemoryMax",  # systemd's own work
    "RestrictNamespaces", "RestrictRealtime", "LockPersonality", "SystemCallArchitectures",
}  # fmt: skip
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10}


def settings(unit):
    text = Path(unit).read_text().split("[Service]")[1].split("[Install]")[0]
    return dict(re.findall(r"(?m)^(\w+)=(.*)$", text))


def mount(*arguments):
    subprocess.run(["mount", *map(str, arguments)], check=True)


def hide(folder, keep):
    """Put an empty folder where one is, with only what is kept in it."""
    kept = [path for path in keep if path.is_relative_to(folder)]
    aside = [Path("/mnt") / f"kept-{folder.name}-{i}" for i in range(len(kept))]
    for path, place in zip(kept, aside, strict=True):
        place.mkdir(exist_ok=True)
        mount("--rbind", path, place)
    mount("-t", "tmpfs", "-o", "mode=1777" if folder.name == "tmp" else "mode=755", "none", folder)
    for path, place in zip(kept, aside, strict=True):
        path.mkdir(parents=True, exist_ok=True)
        mount("--move", place, path)


def isolate(unit, state):
    said = settings(unit)
    assert set(said) <= TRIED | NOT_TRIED, sorted(set(said) - TRIED - NOT_TRIED)
    mount("-t", "tmpfs", "none", "/mnt")
    keep = [ROOT, Path(sys.prefix), Path(sys.base_prefix), state]
    keep = [path for path in keep if not any(path != k and path.is_relative_to(k) for k in keep)]
    if said["ProtectHome"] == "yes":
        for folder in ("/home", "/root"):
            hide(Path(folder), keep)
    if said["PrivateTmp"] == "yes":
        hide(Path("/tmp"), keep)
    if said["PrivateDevices"] == "yes":
        devices = [Path("/dev") / name for name in ("null", "zero", "full", "random", "urandom")]
        mount("-t", "tmpfs", "none", "/mnt")
        for device in devices:
            (Path("/mnt") / device.name).touch()
            mount("--bind", device, Path("/mnt") / device.name)
        (Path("/mnt") / "shm").mkdir()
        mount("--bind", "/dev/shm", "/mnt/shm")
        mount("--move", "/mnt", "/dev")
    mount("--bind", state, state)
    os.chown(state, USER, USER)
    os.chmod(state, int(said["StateDirectoryMode"], 8))
    assert said["ProtectSystem"] == "strict"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        point = line.split()[1]
        if Path(point) != state and not point.startswith(("/proc", "/dev/shm")):
            # What the kernel keeps for itself cannot be remounted.
            subprocess.run(["mount", "-o", "remount,bind,ro", point], check=False, stderr=-3)
    os.umask(int(said["UMask"], 8))


def numbers(group):
    """Return the numbers of the system calls in a group of systemd's."""
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h").read_text()
    known = dict(re.findall(r"#define __NR_(\w+) (\d+)", header))
    command = ["systemd-analyze", "syscall-filter", group]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")
    names = [line.strip() for line in lines[1:] if line.strip() and "#" not in line]
    found = {int(known[name]) for name in names if name in known}  # others are of other machines
    return found.union(*(numbers(name) for name in names if name.startswith("@")))


def restrict(allowed, families):
    """Let no other system call and no other family of sockets through."""
    load, equal, give = 0x20, 0x15, 0x06
    allow, refuse = 0x7FFF0000, 0x00050001  # SECCOMP_RET_ERRNO with EPERM
    program = [(load, 0, 0, 0)]
    for number in sorted(allowed - {41}):
        program += [(equal, 0, 1, number), (give, 0, 0, allow)]
    program += [(equal, 1, 0, 41), (give, 0, 0, refuse), (load, 0, 0, 16)]  # socket: its family
    for family in families:
        program += [(equal, 0, 1, family), (give, 0, 0, allow)]
    program.append((give, 0, 0, refuse))
    code = b"".join(struct.pack("HBBI", *step) for step in program)
    buffer = ctypes.create_string_buffer(code)
    filters = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(22, 2, ctypes.create_string_buffer(filters), 0, 0):  # PR_SET_SECCOMP
        raise OSError(ctypes.get_errno(), "no filter")


if __name__ == "__main__":
    if sys.argv[1] == "filter":
        unit, calls, command = sys.argv[2], sys.argv[3], sys.argv[4:]
        said = settings(unit)
        families = [FAMILIES[name] for name in said["RestrictAddressFamilies"].split()]
        restrict({int(number) for number in calls.split(",")}, families)
        os.environ.update([said["Environment"].split("=", 1)])
        os.execv(command[0], command)
    unit, state, command = sys.argv[1], Path(sys.argv[2]), sys.argv[4:]
    calls = ",".join(map(str, numbers(settings(unit)["SystemCallFilter"])))
    isolate(unit, state)
    drop = [f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs"]
    drop += ["--bounding-set=-all", "--inh-caps=-all"]
    again = [sys.executable, __file__, "filter", unit, calls, *command]
    os.execvp("setpriv", ["setpriv", *drop, *again])
