"""The service for an hour with a thousand devices, killed now and then: `make soak`.

Each device publishes some samples per second to mosquitto on loopback, and `onlad serve` watches
them. Every few minutes the service is killed with SIGKILL and started again. At the end each
sample must have been learned exactly once, and models must be equal to the bit to those that saw
the same samples in one go. What was counted goes to the record, after every minute: a run that was
interrupted continues where it stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.records import ROOT, commit
from benchmarks.serve import _drain, connect, cpu, free_port
from onlad import persist
from onlad.kernel import BACKEND
from onlad.serve.config import load
from onlad.serve.service import Service
from onlad.streams import wire

CONFIG = """
[service]
state = "state"
[mqtt]
port = {port}
state_every = 60
[http]
port = {http}
page = false
[[streams]]
name = "soak"
topic = "soak/{{device}}"
time = "at"
"""
EVERY = 0.01  # seconds between two groups of samples
TWINS = 10  # devices whose models are compared with models that saw all in one go
START = 1_700_000_000.0  # time of the first sample
TABLE = np.round(np.random.default_rng(0).normal(20, 3, (4096, 64)), 3)


def row(device: int, k: int, features: int) -> list[float]:
    """Return sample k of a device, the same at every call; one in 5,000 has a fault."""
    values: list[float] = TABLE[(device * 389 + k * 17) % 4096, :features].tolist()
    if k > 300 and (k + device * 7) % 5000 == 0:
        values[0] += 60.0
    return values


def message(i: int, args: argparse.Namespace) -> bytes:
    device, k = i % args.devices, i // args.devices
    values = ", ".join(f'"s{j}": {v}' for j, v in enumerate(row(device, k, args.features)))
    body = f'{{"at": {START + k / args.rate}, {values}}}'.encode()
    return wire.publication(b"soak/%d" % device, body, False, i % 60000 + 1)


class Sensor(threading.Thread):
    """Publishes until it is stopped. Sample i is of device i % devices."""

    def __init__(self, port: int, first: int, args: argparse.Namespace) -> None:
        super().__init__(daemon=True)
        self.sent, self.args, self.port = first, args, port
        self.ends, self.slow = threading.Event(), 0.0

    def run(self) -> None:
        s = connect(self.port, "sensor")
        threading.Thread(target=_drain, args=(s,), daemon=True).start()
        rate = self.args.devices * self.args.rate
        start, first = time.monotonic(), self.sent
        while not self.ends.is_set():
            due = first + int((time.monotonic() - start) * rate)
            due = min(due, self.sent + int(rate))  # a machine that was away does not catch up
            s.sendall(b"".join(message(i, self.args) for i in range(self.sent, due)))
            self.sent = due
            time.sleep(EVERY)
        s.close()


class Served:
    """`onlad serve` as a process, with what it has written and used over all its lives."""

    def __init__(self, folder: Path, http: int) -> None:
        self.folder, self.http = folder, http
        self.written = self.used = 0.0
        self.peak = 0
        self.popen: subprocess.Popen[bytes] | None = None

    def start(self) -> dict[str, float]:
        """Start it; return after how many seconds it lived and was ready."""
        onlad = Path(sys.executable).with_name("onlad")
        with (self.folder / "onlad.log").open("ab") as log:
            command = [str(onlad), "serve", "--config", str(self.folder / "onlad.toml")]
            self.popen = subprocess.Popen(command, stdout=log, stderr=log)
        began = time.monotonic()
        said: dict[str, float] = {}
        while len(said) < 2:
            assert self.popen.poll() is None, "it ended"
            assert time.monotonic() - began < 600, "it does not become ready"
            for path in ("healthz", "readyz"):
                if path not in said and self.ask(path) is not None:
                    said[path] = round(time.monotonic() - began, 2)
            time.sleep(0.05)
        return said

    def ask(self, path: str) -> bytes | None:
        """Return what an address answers, if all is well."""
        try:
            url = f"http://127.0.0.1:{self.http}/{path}"
            with urllib.request.urlopen(url, timeout=10) as answer:
                data: bytes = answer.read()
                return data
        except (OSError, urllib.error.URLError):
            return None

    def look(self) -> tuple[float, float]:
        """Return bytes written to the disk and seconds of the processor, of all lives."""
        assert self.popen is not None
        with contextlib.suppress(OSError):
            io = Path(f"/proc/{self.popen.pid}/io").read_text()
            self._now = (int(re.findall(r"(?m)^write_bytes: (\d+)", io)[0]), cpu(self.popen.pid))
            status = Path(f"/proc/{self.popen.pid}/status").read_text()
            self.peak = max(self.peak, int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) // 1024)
        return self.written + self._now[0], self.used + self._now[1]

    def end(self, number: int) -> tuple[int, float]:
        """End it by a signal; return its status and how long that took."""
        assert self.popen is not None
        self.written, self.used = self.look()
        began = time.monotonic()
        self.popen.send_signal(number)
        status = self.popen.wait(120)
        self._now = (0, 0.0)
        return status, round(time.monotonic() - began, 2)


def soak(args: argparse.Namespace) -> dict[str, Any]:
    folder = args.folder
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "progress.json"
    progress = json.loads(kept.read_text()) if kept.exists() else {"sent": 0, "minutes": []}
    progress.setdefault("kills", [])
    port, http = free_port(), free_port()
    broker = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    conf = (ROOT / "deploy/mosquitto.conf").read_text().replace("1883", str(port))
    conf = conf.replace("/var/lib/mosquitto/", f"{folder}/")
    (folder / "mosquitto.conf").write_text(conf + ("user root\n" if os.geteuid() == 0 else ""))
    (folder / "onlad.toml").write_text(CONFIG.format(port=port, http=http))
    with contextlib.ExitStack() as stack:
        command = [broker, "-c", str(folder / "mosquitto.conf")]
        mosquitto = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        stack.callback(mosquitto.wait)
        stack.callback(mosquitto.terminate)
        _until_open(port)
        service = Served(folder, http)
        starts = [service.start()]
        stack.callback(lambda: service.popen and service.popen.kill())
        sensor = Sensor(port, progress["sent"], args)
        sensor.start()
        try:
            _minutes(args, service, sensor, progress, kept)
        finally:
            sensor.ends.set()
            sensor.join(10)
            progress["sent"] = sensor.sent
            kept.write_text(json.dumps(progress))
        waited = _until_all(service, sensor.sent)
        status, stop = service.end(signal.SIGTERM)
    log = (folder / "onlad.log").read_text()
    found = check(folder, sensor.sent, args)
    minutes = progress["minutes"]
    return {
        "benchmark": "soak",
        "command": f"python -m benchmarks.soak --minutes {args.minutes} "
        f"--devices {args.devices} --kill-every {args.kill_every:g}",
        "commit": commit(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[2], 1),
        "backend": BACKEND,
        **{name: getattr(args, name) for name in ("devices", "rate", "features")},
        "minutes": round(sum(minute["seconds"] for minute in minutes) / 60),
        "first_start_s": starts[0],
        "kills": progress["kills"],
        "sent": sensor.sent,
        **found,
        "waited_s": waited,
        "stop_s": stop,
        "stop_status": status,
        # By /proc/PID/io: all that the process handed to the disk.
        "written_mb_per_minute": _spread(minutes, "written_mb"),
        "cpu_s_per_minute": _spread(minutes, "cpu_s"),
        "sent_per_minute": _spread(minutes, "sent"),
        "longest_journal_mb": max(m["journal_mb"] for m in minutes),
        "peak_mb": service.peak,
        "tracebacks": log.count("Traceback"),
        "skipped": len(re.findall("skipped a sample", log)),
    }


def _minutes(
    args: argparse.Namespace, service: Served, sensor: Sensor, progress: dict[str, Any], kept: Path
) -> None:
    killed, minutes = time.monotonic(), progress["minutes"]
    # By the clock: a minute with a start in it takes longer.
    while (left := 60 * args.minutes - sum(m["seconds"] for m in minutes)) > 0:
        written, used = service.look()
        sent, since = sensor.sent, time.monotonic()
        while time.monotonic() < since + 60:
            time.sleep(1)
            progress["sent"] = sensor.sent
            if time.monotonic() - killed > 60 * args.kill_every and left > 120:
                service.end(signal.SIGKILL)
                progress["kills"].append(service.start() | _replayed(service.folder))
                killed = time.monotonic()
                print(f"killed: {progress['kills'][-1]}", flush=True)
        now, busy = service.look()
        said = {
            "seconds": round(time.monotonic() - since, 1),
            "written_mb": round((now - written) / 1e6, 2),
            "cpu_s": round(busy - used, 1),
            "sent": sensor.sent - sent,
            "learned": _learned(service),
            "journal_mb": round(_size(service.folder / "state/journal") / 1e6, 1),
            "models_mb": round(_size(service.folder / "state/models") / 1e6, 1),
        }
        minutes.append(said)
        kept.write_text(json.dumps(progress))
        print(f"{left / 60:.0f} minutes are left: {said}", flush=True)


def _learned(service: Served) -> int:
    data = service.ask("streams")
    return sum(device["samples"] for device in json.loads(data)) if data else 0


def _replayed(folder: Path) -> dict[str, int]:
    found = re.findall(r"resumed .*replayed=(\d+)", (folder / "onlad.log").read_text())
    return {"replayed": int(found[-1])} if found else {}


def _until_open(port: int) -> None:
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError("the broker does not listen")


def _until_all(service: Served, sent: int) -> float:
    """Wait until all that was sent is learned; return the seconds."""
    began = time.monotonic()
    while time.monotonic() - began < 1800:
        data = service.ask("streams")
        if data and sum(device["samples"] for device in json.loads(data)) >= sent:
            break
        time.sleep(0.5)
    return round(time.monotonic() - began, 1)


def check(folder: Path, sent: int, args: argparse.Namespace) -> dict[str, Any]:
    """Return how many samples are in the models, and how many models are equal to the bit."""
    began = time.process_time()
    service = Service(load(folder / "onlad.toml"))
    try:
        for _ in service.resume():
            pass
        seen = {int(w.device): w.monitor.n_seen for w in service.watchers.values()}
        right = sum(
            seen.get(d, 0) == sent // args.devices + (d < sent % args.devices)
            for d in range(args.devices)
        )
        equal = 0
        chosen = list(range(0, args.devices, max(1, args.devices // TWINS)))
        for device in chosen:
            count = sent // args.devices + (device < sent % args.devices)
            names = [f"s{j}" for j in range(args.features)]
            twin = service.streams["soak"].monitor()
            rows = [dict(zip(names, row(device, k, args.features), strict=True))
                    for k in range(count)]  # fmt: skip
            twin.observe_many(rows)
            model = service.watchers["soak", str(device)].monitor
            equal += persist.to_bytes(twin) == persist.to_bytes(model)
    finally:
        service.close()
    return {
        "learned": sum(seen.values()),
        "devices_with_the_right_count": right,
        "models_compared": len(chosen),
        "models_equal_to_the_bit": equal,
        "check_cpu_s": round(time.process_time() - began, 1),
    }


def _size(folder: Path) -> int:
    total = 0
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def _spread(minutes: list[dict[str, float]], name: str) -> dict[str, float]:
    """Return mean and largest of what was counted, in 60 seconds: a start makes a minute longer."""
    seconds = [m["seconds"] for m in minutes]
    values = np.array([m[name] for m in minutes])
    most = (60 * values / seconds).max()
    return {"mean": round(60 * values.sum() / sum(seconds), 2), "most": round(float(most), 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=2.0, help="samples per second of each device")
    parser.add_argument("--features", type=int, default=8)
    parser.add_argument("--kill-every", type=float, default=5.0, help="minutes between two kills")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/soak", help="of the state")
    parser.add_argument("--record", type=Path, help="write the record to this file")
    args = parser.parse_args()
    record = soak(args)
    print(json.dumps(record, indent=1))
    if args.record:
        args.record.write_text(json.dumps(record, indent=1) + "\n")
    shutil.rmtree(args.folder)


if __name__ == "__main__":
    main()
