"""A machine of its own for a unit: systemd boots in namespaces, on a root whose changes are lost.

It needs root, overlayfs, and a cgroup of version 2. The network is that of the machine.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from serving import until

SYSTEMD = Path("/lib/systemd/systemd")
ROOT = Path(__file__).parents[2]
PYTHON = Path(sys.executable).resolve().name
# What the unit waits for, empty: nothing of the machine's own is started.
TARGETS = ("sysinit", "basic", "network-online", "shutdown", "multi-user")

# Settings of deploy/onlad.service that its test sees at work, and those that it does not.
TRIED = {
    "ExecStart", "Environment", "Restart", "RestartSec", "DynamicUser", "StateDirectory",
    "StateDirectoryMode", "UMask", "NoNewPrivileges", "ProtectSystem", "ProtectHome", "PrivateTmp",
    "PrivateDevices", "ProtectKernelTunables", "ProtectKernelModules", "ProtectControlGroups",
    "ProtectClock", "RestrictAddressFamilies", "RestrictNamespaces", "RestrictRealtime",
    "LockPersonality", "SystemCallFilter", "SystemCallArchitectures", "CapabilityBoundingSet",
}  # fmt: skip
NOT_TRIED = {"TimeoutStopSec", "MemoryMax"}

# Python was moved, and the log is to be read.
HERE = """
[Service]
Environment=LD_LIBRARY_PATH=/opt/python/lib
StandardOutput=append:/run/NAME.log
StandardError=inherit
"""

BOOT = """
set -e
mount --make-rprivate /
mount -t tmpfs none {base}
mkdir {base}/up {base}/work {base}/root {base}/lib
mount -t overlay -o lowerdir=/,upperdir={base}/up,workdir={base}/work none {base}/root
cd {base}/root
mount -t tmpfs none run
mount -t tmpfs none tmp
mount -t proc none proc
mount --rbind /dev dev
mount -t sysfs none sys
mount -t cgroup2 none sys/fs/cgroup
mount -o bind,ro proc/sys proc/sys
mount -t tmpfs none opt
mkdir -p opt/python opt/onlad/bin opt/onlad/lib opt/home {keep} var/lib/private etc/onlad run/units
mount --bind {prefix} opt/python
mount --bind {libraries} opt/onlad/lib
mount --bind {root} {keep}
ln -s /opt/python/bin/{python} opt/onlad/bin/python
cp -r {given}/units/. run/units
cp {given}/pyvenv.cfg opt/onlad
cp {given}/onlad opt/onlad/bin
cp {given}/onlad.toml etc/onlad
mkdir run/old
pivot_root . run/old
umount -l /run/old
exec env -i container=onlad SYSTEMD_UNIT_PATH=/run/units PATH=/usr/bin:/bin \\
  {systemd} --system --unit=multi-user.target --log-target=null
"""


def cgroups():
    """Return where cgroups of version 2 are, or None."""
    mounts = Path("/proc/mounts").read_text()
    found = re.search(r"(?m)^\S+ (\S+) cgroup2 rw", mounts)
    return None if found is None else Path(found[1])


def can_boot():
    """Return whether this machine lets us boot another."""
    tools = ("unshare", "nsenter", "pivot_root", "systemctl")
    if os.geteuid() != 0 or not SYSTEMD.exists() or not all(map(shutil.which, tools)):
        return False
    hidden = any(ROOT.is_relative_to(path) for path in ("/root", "/home", "/tmp", "/var/tmp"))
    if hidden or cgroups() is None:  # the unit hides this code from the service
        return False
    try_it = "mkdir /tmp/u /tmp/w; mount -t overlay -o lowerdir=/etc,upperdir=/tmp/u,workdir=/tmp/w"
    command = ["unshare", "-m", "sh", "-c", f"mount -t tmpfs none /tmp; {try_it} none /mnt"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def settings(unit):
    """Return what a unit says of its service."""
    return dict(re.findall(r"(?m)^(\w+)=(.*)$", unit.split("[Service]")[1].split("[Install]")[0]))


class Machine:
    """systemd, with some units and a configuration of onlad."""

    def __init__(self, folder, units, config):
        self.folder = folder
        given = folder / "given"
        (given / "units").mkdir(parents=True)
        for target in TARGETS:
            wants = "Wants=onlad.service\n" if target == "multi-user" else ""
            text = f"[Unit]\nDefaultDependencies=no\n{wants}"
            (given / f"units/{target}.target").write_text(text)
        for name, text in units.items():
            (given / "units" / name).write_text(text)
            (given / f"units/{name}.d").mkdir()
            here = HERE.replace("NAME", name)
            (given / f"units/{name}.d/here.conf").write_text(here)
        (given / "onlad.toml").write_text(config)
        # What `python -m venv /opt/onlad` and pip would have made.
        (given / "pyvenv.cfg").write_text("home = /opt/python/bin\n")
        main = "#!/opt/onlad/bin/python\nfrom onlad.cli import main\nraise SystemExit(main())\n"
        (given / "onlad").write_text(main)
        (given / "onlad").chmod(0o755)
        (folder / "base").mkdir()
        boot = BOOT.format(
            base=folder / "base",
            given=given,
            keep=str(ROOT).lstrip("/"),
            root=ROOT,
            prefix=sys.base_prefix,
            libraries=Path(sys.prefix) / "lib",
            python=PYTHON,
            systemd=SYSTEMD,
        )
        (folder / "boot.sh").write_text(boot)
        self.cgroup = cgroups() / f"onlad-{os.getpid()}"

    def __enter__(self):
        self.cgroup.mkdir()
        kinds = "--mount --pid --ipc --uts --cgroup --fork --kill-child"
        join = f"echo $$ > {self.cgroup}/cgroup.procs"
        line = f"{join}; exec unshare {kinds} sh {self.folder}/boot.sh"
        with (self.folder / "boot.log").open("wb") as log:
            self.popen = subprocess.Popen(["sh", "-c", line], stdout=log, stderr=log)
        children = Path(f"/proc/{self.popen.pid}/task/{self.popen.pid}/children")
        self.pid = int(until(lambda: children.read_text().split(), "the first process")[0])
        until(self.runs, "systemd")
        return self

    def runs(self):
        """Whether systemd answers."""
        assert self.popen.poll() is None, (self.folder / "boot.log").read_text()
        return self.ctl("show", "-p", "Version", check=False).returncode == 0

    def ctl(self, *arguments, check=True):
        """Run systemctl there."""
        enter = ["nsenter", "-t", str(self.pid), "-m", "-p"]
        command = [*enter, "systemctl", *arguments]
        return subprocess.run(command, check=check, capture_output=True, text=True)

    def shows(self, unit, name):
        """Return a property of a unit."""
        return self.ctl("show", "-P", name, unit).stdout.strip()

    def pid_of(self, unit):
        """Return the main process of a unit, as this machine numbers it; 0 if there is none."""
        inner = int(self.shows(unit, "MainPID"))
        if inner:
            for path in Path("/proc").glob("[0-9]*/status"):
                with contextlib.suppress(OSError):
                    found = re.search(r"(?m)^NSpid:\t(\d+)\t(\d+)$", path.read_text())
                    if found and int(found[2]) == inner and self._is_here(path.parent):
                        return int(found[1])
        return 0

    def _is_here(self, process):
        return os.readlink(process / "ns/pid") == os.readlink(f"/proc/{self.pid}/ns/pid")

    @property
    def root(self):
        """Return its root folder."""
        return Path(f"/proc/{self.pid}/root")

    def __exit__(self, *_):
        self.popen.send_signal(signal.SIGKILL)
        self.popen.wait(30)
        deadline = time.monotonic() + 10
        for group in sorted(self.cgroup.rglob("*/"), reverse=True):
            with contextlib.suppress(FileNotFoundError):
                _remove(group, deadline)
        _remove(self.cgroup, deadline)


def _remove(group, deadline):
    """Remove a cgroup when its last process is gone."""
    while True:
        try:
            group.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
