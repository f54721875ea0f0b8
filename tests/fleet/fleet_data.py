"""Devices for the tests on Spark, and the plain loop that every way of watching must equal."""

import dataclasses
import math
import os

import numpy as np
import pandas as pd

from onlad import Monitor

# Tests compile little and allocate little: without these most of their time is the Java compiler's.
QUICK = {
    "spark__driver__extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark__sql__codegen__wholeStage": "false",
    "spark__sql__codegen__factoryMode": "NO_CODEGEN",
}
SLOW = "Python worker failed to connect back"  # what Spark says on a machine that is too busy
FEATURES = ["flow", "power", "heat"]
CAUSES = "causes"
FIELDS = ["ready", "score", "threshold", "p_value", "is_anomaly", CAUSES]
FIELDS += ["learned", "drift", "drifting"]


def small_monitor():
    """Return a monitor that is ready early."""
    return Monitor(warmup=64)


def devices(count, rows, seed=0):
    """Return a frame with `rows` samples of each of `count` devices, some of them odd."""
    rng = np.random.default_rng(seed)
    load = np.sin(np.arange(rows) / 9)[:, None] + 0.1 * rng.normal(size=(rows, count))
    frame = pd.DataFrame(
        {
            "device": np.tile([f"pump-{k}" for k in range(count)], rows),
            "time": np.repeat(np.arange(rows), count),
            "flow": (50 + 9 * load + rng.normal(size=load.shape)).ravel(),
            "power": (800 + 90 * load + 5 * rng.normal(size=load.shape)).ravel(),
            "heat": (41 + 3 * load + 0.2 * rng.normal(size=load.shape)).ravel(),
        }
    )
    odd = rng.uniform(size=len(frame))
    frame.loc[(odd < 0.02) & (frame["time"] >= 64), "heat"] += 90.0  # not in what is learned first
    frame.loc[odd > 0.99, "power"] = np.nan
    return frame


def plain_loop(frame, make=small_monitor, features=FEATURES):
    """Return what a loop says of each device, one sample at a time: (device, time) -> verdict."""
    said = {}
    for device, rows in frame.groupby("device"):
        monitor = make()
        for row in rows.sort_values("time").itertuples(index=False):
            sample = {name: getattr(row, name) for name in features}
            said[device, row.time] = dataclasses.asdict(monitor.observe(sample))
    return said


def write(frames, folder):
    """Write one file for each micro-batch to come, in the order in which Spark will take them."""
    os.makedirs(folder, exist_ok=True)
    for k, frame in enumerate(frames):
        path = os.path.join(folder, f"{k:04d}.parquet")
        frame.to_parquet(f"{path}.part", index=False)
        os.utime(f"{path}.part", (1_700_000_000 + 60 * k,) * 2)  # the order of the file source
        os.rename(f"{path}.part", path)


def assert_said(found, expected):
    """Assert that each (device, time) in the frame has its verdict once, to the last bit."""
    pairs = list(zip(found["device"], found["time"], strict=True))
    assert len(pairs) == len(set(pairs)), "a row has two verdicts"
    assert set(pairs) == set(expected), "a row has no verdict, or a verdict no row"
    for pair, row in zip(pairs, found[FIELDS].to_dict("records"), strict=True):
        for name in FIELDS:
            assert same(row[name], expected[pair][name]), (pair, name, row[name], expected[pair])


def same(found, expected):
    if isinstance(expected, dict):  # the largest first
        return [(cause["feature"], cause["share"]) for cause in found] == list(expected.items())
    if expected is None:
        return found is None
    return found == expected or (math.isnan(expected) and math.isnan(found))
