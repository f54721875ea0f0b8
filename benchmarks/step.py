"""What the service adds to the monitors' own time: `python -m benchmarks.step`.

Messages as the broker sends them go through the client, the intake, the journal, the monitors and
back out as verdicts and acknowledgements, in one process and without a network. The same rows in
the same blocks go through monitors alone. Both are counted in processor time, so what else the
machine does hardly matters.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import tempfile
import time
from pathlib import Path

import numpy as np

from onlad import Monitor
from onlad.kernel import BACKEND
from onlad.serve.config import load
from onlad.serve.mqtt import Mqtt
from onlad.serve.service import Service
from onlad.streams import wire
from onlad.streams.client import Calls, Client

CONFIG = """
[service]
state = "state"
[mqtt]
verdicts = "{verdicts}"
[[streams]]
name = "bench"
topic = "bench/{{device}}"
time = "at"
"""
WARMUP = 320  # rows of each device before anything is measured


class Sink(asyncio.Transport):
    """Takes all that is written."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def write(self, data: bytes) -> None:
        self.bytes += len(data)

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def messages(X: np.ndarray, devices: int, block: int, first: int) -> list[bytes]:
    """Return packets, each with a block of rows of one device, the devices in turn."""
    n = X.shape[1]
    names = [f"s{j}" for j in range(n)]
    found = []
    for i in range(0, len(X) // (devices * block)):
        for device in range(devices):
            at = (i * devices + device) * block
            rows = [
                {"at": first + i * block + k} | dict(zip(names, row, strict=True))
                for k, row in enumerate(X[at : at + block].tolist())
            ]
            body = json.dumps(rows if block > 1 else rows[0]).encode()
            topic = wire.text(f"bench/{device}")
            mid = (len(found) % 60000 + 1).to_bytes(2, "big")
            found.append(wire.packed(wire.PUBLISH | 2, topic, mid, body))
    return found


async def measure(args: argparse.Namespace, folder: Path) -> tuple[float, int]:
    """Return the processor time of the service a row, and the bytes that it publishes a row."""
    (folder / "onlad.toml").write_text(CONFIG.format(verdicts=args.verdicts))
    service = Service(load(folder / "onlad.toml"))
    for _ in service.resume():
        pass
    mqtt = Mqtt(service, service.config.mqtt)
    client = Client(Calls(mqtt._take, mqtt._oversized, mqtt._published, lambda: False), False)
    sink = Sink()
    client.connection_made(sink)
    client.open()
    mqtt._client = client
    X = rows(args)
    start = messages(X[: args.devices * WARMUP], args.devices, WARMUP, 0)
    new = messages(X[args.devices * WARMUP :], args.devices, args.block, WARMUP)
    for packets in (start, new):
        began, sent = time.process_time(), sink.bytes
        for i in range(0, len(packets), args.batch):
            client.data_received(b"".join(packets[i : i + args.batch]))
            await service.drain()
        took = time.process_time() - began
    count = len(new) * args.block
    assert sum(w.monitor.n_seen for w in service.watchers.values()) == len(start) * WARMUP + count
    service.close()
    return took / count, (sink.bytes - sent) // count


def rows(args: argparse.Namespace) -> np.ndarray:
    rng = np.random.default_rng(0)
    count = args.devices * (WARMUP + args.rows)
    return np.round(rng.normal(20, 3, (count, args.features)), 4)


def alone(args: argparse.Namespace) -> float:
    """Return the processor time of the monitors a row."""
    X = rows(args)
    monitors = [Monitor() for _ in range(args.devices)]
    for i, monitor in enumerate(monitors):
        monitor.observe_many(X[i * WARMUP : (i + 1) * WARMUP])
    new = X[args.devices * WARMUP :]
    began = time.process_time()
    for i in range(0, len(new) // args.block):
        monitors[i % args.devices].observe_many(new[i * args.block : (i + 1) * args.block])
    return (time.process_time() - began) / len(new)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=100)
    parser.add_argument("--features", type=int, default=16)
    parser.add_argument("--block", type=int, default=1, help="rows in a message")
    parser.add_argument("--batch", type=int, default=20, help="messages that come at once")
    parser.add_argument("--rows", type=int, default=200, help="rows of each device")
    parser.add_argument("--verdicts", default="all", choices=("all", "anomalies", "none"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        service, size = asyncio.run(measure(args, Path(folder)))
    monitors = alone(args)
    print(
        json.dumps(
            {
                "benchmark": "step",
                "machine": platform.machine(),
                "backend": BACKEND,
                **{name: getattr(args, name) for name in ("devices", "features", "block", "batch")},
                "verdicts": args.verdicts,
                "service_us": round(1e6 * service, 1),
                "monitors_us": round(1e6 * monitors, 1),
                "added_us": round(1e6 * (service - monitors), 1),
                "published_bytes": size,
            }
        )
    )


if __name__ == "__main__":
    main()
