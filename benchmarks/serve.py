"""The service under load: `python -m benchmarks.serve`.

A sensor publishes samples of 16 features at a fixed rate to mosquitto on loopback; `onlad serve`,
held to one core, watches them and publishes a verdict on each; a listener takes the time from
the sensor's `send` to the verdict's arrival. Sensor and listener write and read MQTT's bytes
without a client in between, so that they are not what is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from experiments.records import machine

from benchmarks.records import ROOT, commit
from onlad.kernel import BACKEND
from onlad.streams import wire

FEATURES = 16
EVERY = 0.002  # seconds between two groups of samples

CONFIG = """
[service]
state = "state"
checkpoint = {checkpoint}
[mqtt]
port = {port}
qos = {qos}
verdicts = "all"
[[streams]]
name = "bench"
topic = "bench/{{device}}"
time = "at"
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def connect(port: int, name: str) -> socket.socket:
    s = socket.create_connection(("127.0.0.1", port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.sendall(wire.connect(wire.Login("127.0.0.1", port, name, keepalive=0)))
    assert s.recv(4) == b"\x20\x02\x00\x00"
    return s


class Listener(threading.Thread):
    """Keeps each verdict with the moment of its arrival."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.socket = connect(port, "listener")
        self.socket.sendall(wire.subscribe(1, "onlad/+/+/verdict", 0, False, None))
        self.chunks: list[tuple[float, bytes]] = []

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while data := self.socket.recv(1 << 16):
                self.chunks.append((time.time(), data))

    def latencies(self) -> np.ndarray:
        """Return for each verdict how long after the sensor's `send` it was here whole."""
        ends = np.cumsum([len(data) for _, data in self.chunks])
        data = b"".join(data for _, data in self.chunks)
        times = [when for when, _ in self.chunks]
        at, found = 0, []
        while at < len(data):
            found_packet = wire.packet(data, at)
            assert found_packet is not None
            kind, start, at = found_packet
            if kind & 0xF0 == wire.PUBLISH:
                said = json.loads(wire.read(kind, data[start:at], False).payload)
                arrived = times[int(np.searchsorted(ends, at))]
                found.append(arrived - said["time"])
        return np.array(found)


def send(port: int, rate: float, seconds: float, qos: int, devices: int, *, block: int = 1) -> int:
    """Publish at a steady rate, in messages of one sample or of a block; return how many."""
    s = connect(port, "sensor")
    threading.Thread(target=_drain, args=(s,), daemon=True).start()
    rng = np.random.default_rng(0)
    rows = [", ".join(f'"s{j}": {v:.6f}' for j, v in enumerate(r))
            for r in rng.normal(20, 3, (4096, FEATURES))]  # fmt: skip
    start, sent, total = time.time(), 0, int(rate * seconds) // block * block
    while sent < total:
        due = min(total, int((time.time() - start + EVERY) * rate) // block * block)
        group = []
        for i in range(sent, due, block):
            at = time.time()
            samples = [f'{{"at": {at:.6f}, {rows[k % len(rows)]}}}' for k in range(i, i + block)]
            body = (samples[0] if block == 1 else f"[{', '.join(samples)}]").encode()
            number = i // block
            mid = number % 60000 + 1 if qos else 0
            group.append(wire.publication(b"bench/%d" % (number % devices), body, False, mid))
        s.sendall(b"".join(group))
        sent = due
        time.sleep(max(0.0, start + sent / rate - time.time()))
    return sent


def _drain(s: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while s.recv(1 << 16):
            pass


def cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _until_idle(pid: int) -> None:
    last = cpu(pid)
    for _ in range(600):
        time.sleep(0.5)
        if (now := cpu(pid)) - last < 0.03:
            return
        last = now


def run(args: argparse.Namespace, folder: Path) -> dict[str, object]:
    mosquitto = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    port = free_port()
    conf = (ROOT / "deploy/mosquitto.conf").read_text().replace("1883", str(port))
    conf = conf.replace("/var/lib/mosquitto/", f"{folder}/") + "user root\n"
    (folder / "mosquitto.conf").write_text(conf)
    config = CONFIG.format(port=port, qos=args.qos, checkpoint=args.checkpoint)
    (folder / "onlad.toml").write_text(config)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((folder / "log").open("wb"))

        def start(*command: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(command, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.send_signal, signal.SIGTERM)
            return process

        cores = sorted(os.sched_getaffinity(0))
        if len(cores) > 1:  # the service has the first to itself
            os.sched_setaffinity(0, cores[1:])
        start(mosquitto, "-c", str(folder / "mosquitto.conf"))
        time.sleep(0.5)
        onlad = Path(sys.executable).with_name("onlad")
        prefix = [sys.executable, "-m", "cProfile", "-o", args.profile] if args.profile else []
        service = start(*prefix, str(onlad), "serve", "--config", str(folder / "onlad.toml"))
        os.sched_setaffinity(service.pid, cores[:1])
        while b"connected" not in (folder / "log").read_bytes():
            time.sleep(0.1)
        # The warm-up: 320 samples of each device.
        send(port, 20_000, 0.016 * args.devices + 0.01, args.qos, args.devices, block=20)
        if args.stagger:  # the models of devices are not all updated at the same sample
            for more in range(64):
                few = args.devices * (63 - more) // 64
                send(port, 20_000, few / 20_000, args.qos, max(1, few))
        _until_idle(service.pid)
        listener = Listener(port)
        listener.start()
        time.sleep(0.2)
        before = cpu(service.pid)
        begin = time.time()
        sent = send(port, args.rate, args.seconds, args.qos, args.devices, block=args.block)
        took = time.time() - begin
        last, since = -1, time.time()
        while time.time() - since < 5:  # until no more verdicts come
            if last != (last := len(listener.chunks)):
                since = time.time()
            time.sleep(0.1)
        used = cpu(service.pid) - before
        listener.socket.close()
        late = np.sort(listener.latencies())
    return {
        "benchmark": "serve",
        "machine": machine(),
        "backend": BACKEND,
        "features": FEATURES,
        "devices": args.devices,
        "block": args.block,
        "stagger": args.stagger,
        "qos": args.qos,
        "command": " ".join(["python -m benchmarks.serve", *sys.argv[1:]]),
        "commit": commit(),
        "load": round(os.getloadavg()[0], 1),
        "real_time": os.sched_getscheduler(0) != os.SCHED_OTHER,  # what else runs has to wait
        "rate": round(sent / took),
        "sent": sent,
        "verdicts": len(late),
        "p50_ms": round(1e3 * float(np.quantile(late, 0.5)), 2),
        "p99_ms": round(1e3 * float(np.quantile(late, 0.99)), 2),
        "max_ms": round(1e3 * float(late[-1]), 2),
        "cpu_us": round(1e6 * used / sent, 1),  # of the service, a sample
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=5000, help="samples per second")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--block", type=int, default=1, help="samples in a message")
    parser.add_argument("--stagger", action="store_true", help="devices started at other times")
    parser.add_argument("--qos", type=int, default=1, choices=(0, 1))
    parser.add_argument("--checkpoint", type=float, default=5, help="seconds between checkpoints")
    parser.add_argument("--store", type=Path, help="append the record to this file")
    parser.add_argument("--profile", help="write the service's profile to this file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        record = run(args, Path(folder))
    print(json.dumps(record))
    if args.store:
        with args.store.open("a") as file:
            file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
