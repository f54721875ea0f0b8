"""Sensors that come later, and those that go: what was learned stays."""

import asyncio
import json
import time

import numpy as np
import pytest

from onlad import Monitor, persist

NAMES = ("flow", "power", "valve", "heat")


def machine(rows=4000, seed=0):
    rng = np.random.default_rng(seed)
    level = np.sin(np.arange(rows) / 20)[:, None]
    return level * [1.0, 2.0, -1.0, 0.5] + rng.normal(0, 0.1, (rows, 4))


def watched(X, cut, split=None):
    """Return the verdicts of a monitor to which the last sensor comes at row `cut`."""
    monitor = Monitor(names=NAMES[:3])
    monitor.observe_many(X[:cut, :3])
    monitor.widen(NAMES[3:])
    return monitor, monitor.observe_many(X[cut:])


def test_a_sensor_that_comes_later_is_watched_and_the_others_stay_as_they_are():
    X = machine()
    X[3000:3010, 3] += 5  # of the new one
    X[3500:3510, 0] += 5  # of an old one
    monitor, late = watched(X, 2000)
    plain = Monitor(names=NAMES[:3]).observe_many(X[:, :3])
    assert monitor.names == NAMES
    assert late.is_anomaly[1000:1010].any()
    assert next(iter(late[int(np.flatnonzero(late.is_anomaly[1000:1010])[0]) + 1000].causes)) == (
        "heat"
    )
    assert not plain.is_anomaly[3000:3010].any()
    quiet = np.r_[0:1000, 1100:2000]  # where the new one is as usual, nothing is different
    np.testing.assert_array_equal(late.is_anomaly[quiet], plain.is_anomaly[2000:][quiet])
    np.testing.assert_array_equal(late.expected[:, :3], plain.expected[2000:])
    inside = (late.low[1000:, 3] <= X[3000:, 3]) & (X[3000:, 3] <= late.high[1000:, 3])
    assert 0.9 < inside.mean() < 0.99


def test_blocks_and_files_change_nothing():
    X = machine()
    _, whole = watched(X, 2000)
    monitor, rng, scores, first = Monitor(names=NAMES[:3]), np.random.default_rng(1), [], 2000
    monitor.observe_many(X[:2000, :3])
    monitor.widen(NAMES[3:])
    while first < len(X):
        part = slice(first, first + int(rng.integers(1, 300)))
        scores.append(monitor.observe_many(X[part]).score)
        monitor = persist.from_bytes(persist.to_bytes(monitor))
        first = part.stop
    np.testing.assert_array_equal(np.concatenate(scores), whole.score)
    one = monitor.observe(dict(zip(NAMES, X[0].tolist(), strict=True)))
    assert len(one.expected) == 4


def test_names_are_new_and_not_without_end():
    X = machine(700)
    monitor = Monitor(names=["a"])
    monitor.widen(["b"])  # before the first sample it is as if it had always been there
    assert (monitor.names, monitor.widened) == (("a", "b"), 0)
    with pytest.raises(ValueError, match="names must be new"):
        monitor.widen(["a"])
    for k in range(4):
        monitor.observe_many(np.tile(X, (1, 2))[:, : 2 + k])
        monitor.widen([f"late{k}"])
    monitor.observe_many(np.tile(X, (1, 2))[:, :6])
    with pytest.raises(ValueError, match="came later 4 times"):
        monitor.widen(["more"])


def test_a_sensor_that_goes_is_a_missing_value():
    X = machine()
    X[2000:, 1] = np.nan
    told = Monitor(names=NAMES).observe_many(X)
    assert told.is_anomaly[2000:].mean() < 0.02


CONFIG = """
[service]
state = "state"
[http]
[[streams]]
name = "pump"
"""


@pytest.mark.parametrize("when", ["before", "after", "never"])
def test_the_service_takes_it_in_and_a_crash_changes_nothing(tmp_path, when):
    config = pytest.importorskip("onlad.serve.config")
    intake = pytest.importorskip("onlad.serve.intake")
    service_module = pytest.importorskip("onlad.serve.service")
    (tmp_path / "onlad.toml").write_text(CONFIG)

    def started():
        async def make():
            service = service_module.Service(config.load(tmp_path / "onlad.toml"))
            for _ in service.resume():
                pass
            return service

        return asyncio.run(make())

    def feed(service, rows, names, **more):
        samples = [dict(zip(names, row, strict=False)) | more for row in rows.tolist()]
        stream = service.streams["pump"]
        item = intake.Item(stream, "", json.dumps(samples).encode(), time.perf_counter())
        assert service.submit(item)

        async def drained():
            await service.drain()

        asyncio.run(drained())

    X = machine(2000)
    X[1800:1805, 3] += 8
    service = started()
    feed(service, X[:700, :3], NAMES[:3])
    if when == "before":
        asyncio.run(service.disk.checkpoint())
    feed(service, X[700:1300], NAMES, note="a text is no sensor")
    if when == "after":
        asyncio.run(service.disk.checkpoint())
    feed(service, X[1300:], NAMES)
    watcher = service.watchers["pump", ""]
    assert watcher.names == NAMES
    (alarm,) = [a for a in watcher.alarms if 1800 <= a.row < 1806]
    assert next(iter(alarm.causes)) == "heat"
    twin = Monitor(names=NAMES[:3])
    twin.observe_many(X[:700, :3])
    twin.widen(NAMES[3:])
    twin.observe_many(X[700:])
    assert persist.to_bytes(watcher.monitor) == persist.to_bytes(twin)
    service.close()
    service = started()
    again = service.watchers["pump", ""]
    assert persist.to_bytes(again.monitor) == persist.to_bytes(twin)
    asyncio.run(service.orders.label(again, alarm.id, "fault"))  # replayed, with both widths
    assert again.monitor.names == NAMES
    service.close()
