"""Whatever is sent and done in whatever order, a crash changes nothing, and nothing fails."""

import asyncio
import contextlib
import json
import random
import time

import pytest
from test_state import crash, started

from onlad import persist
from onlad.errors import OnladError
from onlad.serve.alarm import LABELS
from onlad.serve.frames import Mark, digest
from onlad.serve.intake import Item

CONFIG = """
[service]
state = "state"
devices = 12
[http]
[[streams]]
name = "any"
warmup = 64
[[streams]]
name = "day"
warmup = 64
patterns = true
time = "t"
zone = "Europe/Berlin"
maintenance = ["daily 02:00-03:00"]
[[streams.sensors]]
name = "mode"
states = ["x", "y"]
[[streams]]
name = "two"
warmup = 64
columns = ["p", "q"]
alarms_per_day = 2
[[streams]]
name = "plain"
payload = "plain"
warmup = 64
"""
NAMES = ["p", "q", "r", "t", "time", "mode", "label", "", "\0", "n" * 199, "n" * 201, "mode=x", "0"]
NUMBERS = [None, True, 0, 1e308, -1e300, 5e-324, 2**70, 10**400, float("nan"), "x", "1.5", [], {}]
TIMES = [1.7e12, 1.7e18, -1e9, 0, 1e300, "2026-01-01T00:00:00Z", "never", None, "9999-12-31"]


class Someone:
    """Sends and does what comes to mind."""

    def __init__(self, seed, service):
        self.random, self.service = random.Random(seed), service

    def number(self):
        pick = self.random.random() < 0.6
        return self.random.gauss(0, 1) if pick else self.random.choice(NUMBERS)

    def object(self):
        usual = {name: self.random.gauss(0, 1) for name in "pqr"}
        if self.random.random() < 0.5:
            late = self.random.random() < 0.3
            usual["t"] = self.random.choice(TIMES) if late else 1.7e9 + 1e6 * self.random.random()
        for _ in range(self.random.choice([0, 0, 0, 1, 2])):
            usual[self.random.choice([*NAMES, f"z{self.random.randrange(50)}"])] = self.number()
        some = {self.random.choice(NAMES): self.number() for _ in range(self.random.randrange(6))}
        return usual if self.random.random() < 0.8 else some

    def payload(self):
        value = self.random.choice(
            [
                *[self.object() for _ in range(4)],
                [self.object() for _ in range(self.random.randrange(30))],
                [self.number() for _ in range(self.random.randrange(5))],
                self.number(),
            ]
        )
        deep = self.random.choice([b'{"p":', b"["]) * self.random.randrange(2000)
        numbers = " ".join(str(self.number()) for _ in range(3)).encode()
        likely = json.dumps(value).encode()
        return self.random.choice([likely] * 8 + [numbers, deep, self.random.randbytes(20)])

    async def send(self):
        for _ in range(self.random.randrange(1, 12)):
            data, stream = self.payload(), self.random.choice(list(self.service.streams.values()))
            mark = Mark(self.random.randrange(1, 60_000), digest(b"", data))
            device = self.random.choice(["", "1", "2", "x" * 300])
            again = self.random.random() < 0.2
            self.service.submit(Item(stream, device, data, time.perf_counter(), mark, again))
        await self.service.drain()

    async def do(self):
        orders, watchers = self.service.orders, list(self.service.watchers.values())
        if not watchers:
            return
        watcher = self.random.choice(watchers)
        alarms = [alarm.id for alarm in watcher.alarms] or ["none"]
        snapshots = self.service.store.snapshots(watcher.number) or ["none"]
        windows = self.random.choice([(), ("daily 02:00-02:15",), ("Mon 00:00-23:59",), ("?",)])
        told = [
            lambda: orders.pause(watcher, self.random.random() < 0.5),
            lambda: orders.label(watcher, self.random.choice(alarms), "normal"),
            lambda: orders.label(
                watcher, self.random.choice(alarms), self.random.choice([*LABELS, "?"])
            ),
            lambda: orders.snapshot(watcher),
            lambda: orders.revert(
                watcher, self.random.choice(snapshots), again=self.random.random() < 0.5
            ),
            lambda: orders.maintain(watcher, windows),
            lambda: orders.tried(watcher),
            lambda: self.forget(watcher),
        ]
        with contextlib.suppress(OnladError):  # refused, with a reason
            await self.random.choice(told)()

    async def forget(self, watcher):
        file = await self.service.orders.forget(watcher)
        if self.random.random() < 0.7:
            await self.service.orders.restore(file)


def seen(service):
    return {
        key: (w.monitor.n_seen, w.lost, w.paused, w.windows, [a.label for a in w.alarms])
        for key, w in service.watchers.items()
    }


def bytes_of(service):
    # Names without a row yet are in no file.
    return {
        key: persist.to_bytes(w.monitor) for key, w in service.watchers.items() if not w.unnamed
    }


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_sent_and_done_a_crash_changes_nothing(tmp_path, seed):
    service = started(tmp_path, CONFIG)
    someone = Someone(seed, service)
    for _ in range(150):
        asyncio.run(someone.send())
        if someone.random.random() < 0.3:
            asyncio.run(someone.do())
        if someone.random.random() < 0.05:
            asyncio.run(service.disk.checkpoint())
        assert [w.failed for w in service.watchers.values() if w.failed] == []
        if someone.random.random() < 0.03:
            before, models = seen(service), bytes_of(service)
            crash(service)
            service = someone.service = started(tmp_path, CONFIG)
            assert seen(service) == before
            assert bytes_of(service).items() >= models.items()
            assert service.quarantine.count == 0
    assert sum(w.monitor.n_seen for w in service.watchers.values()) > 300
    service.close()
