"""Hard cases: returning modes, stops, slow faults, missing values, an attacker who knows the gate.

Each is a series with marks: the rows for which the share in alarm is asked. A probe is a row with a
fault of ten noise deviations in one sensor; a probe without an alarm is a blind row.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from experiments.benchmark.machines import MODES, SIGNAL, autoregression, mode_of_rows
from experiments.benchmark.series import Collection, Range, Series, series
from experiments.testbeds import Array

SENSORS, FACTORS = 8, 3
HISTORY, LONG = 5_000, 6_000
PROBE = 10.0  # noise deviations
SEEDS = 3
ASKED_SEEDS = {"poisoning": 3, "probes": 10}  # the share of 150 probes differs much between plants


@dataclass(frozen=True)
class Plant:
    """A machine with several modes. Values are in deviations of the sensors' noise."""

    loadings: Array  # (modes, factors, sensors)
    level: Array  # (modes, sensors)
    unit: Array
    rng: np.random.Generator

    def run(self, mode: Array) -> Array:
        """Return one row for each entry of `mode`; mode -1 is at rest."""
        rows, rng = len(mode), self.rng
        factors = np.column_stack([autoregression(rng, rows, 0.95) for _ in range(FACTORS)])
        values = np.einsum("tf,tfs->ts", factors, self.loadings[mode]) + self.level[mode]
        rest = mode < 0
        values[rest] = 0.0
        noise = rng.normal(size=values.shape) * np.where(rest, 0.1, 1.0)[:, None]
        return np.asarray(values + noise)


def plant(rng: np.random.Generator, sensors: int = SENSORS) -> Plant:
    loadings = rng.normal(0, SIGNAL / np.sqrt(FACTORS), (MODES, FACTORS, sensors))
    level = rng.normal(0, 3 * SIGNAL, (MODES, sensors)) + 5 * SIGNAL
    return Plant(loadings, level, 10.0 ** rng.uniform(-2, 3, sensors), rng)


def _modes(*parts: tuple[int, int]) -> Array:
    """Return the mode of each row, of pairs (mode, rows)."""
    return np.concatenate([np.full(rows, mode) for mode, rows in parts])


def _probe(p: Plant, values: Array, start: int, every: int) -> tuple[Array, list[Range]]:
    """Put a probe into rows at equal distances from `start` on; return labels and rows."""
    y = np.zeros(len(values), int)
    rows = np.arange(start + every, len(values), every)
    sensors = p.rng.integers(values.shape[1], size=len(rows))
    values[rows, sensors] += PROBE * p.rng.choice((-1.0, 1.0), len(rows))
    y[rows] = 1
    return y, [(int(t), int(t) + 1) for t in rows]


def _made(p: Plant, values: Array, y: Array | None = None, **known: Any) -> Series:
    return series("scenarios", "", values * p.unit, y, **({"history": HISTORY} | known))


def returning(p: Plant) -> Series:
    """Mode A, then B, then A and B again, each time for 6,000 rows."""
    values = p.run(_modes((0, LONG), (1, LONG), (0, LONG), (1, LONG)))
    marks = {
        "new mode": [(LONG, LONG + 1_000)],
        "return": [(2 * LONG, 2 * LONG + 1_000), (3 * LONG, 3 * LONG + 1_000)],
    }
    return _made(p, values, marks=marks)


def switching(p: Plant) -> Series:
    """Three modes at random, each for 200 to 600 rows, all of them in the history."""
    values = p.run(mode_of_rows(p.rng, 20_000, MODES))
    return _made(p, values, marks={"later": [(HISTORY, 20_000)]})


def switching_probed(p: Plant) -> Series:
    values = p.run(mode_of_rows(p.rng, 20_000, MODES))
    y, rows = _probe(p, values, HISTORY, 100)
    return _made(p, values, y, marks={"probes": rows})


def stop(p: Plant) -> Series:
    """Insert a stop of 3,000 rows, all sensors at rest, and the return."""
    values = p.run(_modes((0, LONG), (-1, 3_000), (0, LONG)))
    marks = {"stop": [(LONG, LONG + 3_000)], "after": [(LONG + 3_000, LONG + 5_000)]}
    return _made(p, values, marks=marks)


def stop_probed(p: Plant) -> Series:
    """Insert a stop, and probes after the return."""
    values = p.run(_modes((0, LONG), (-1, 3_000), (0, LONG)))
    y, rows = _probe(p, values, LONG + 3_000, 50)
    return _made(p, values, y, marks={"probes": [r for r in rows if r[0] < LONG + 6_000]})


def _ramp(p: Plant, size: float, rows: int) -> Series:
    values = p.run(np.zeros(HISTORY + rows + 5_000, int))
    sensor = int(p.rng.integers(SENSORS))
    values[HISTORY:, sensor] += size * np.minimum(1, np.arange(rows + 5_000) / rows)
    y = (np.arange(len(values)) >= HISTORY) & (size > 0)
    return _made(p, values, y, causes={(HISTORY, len(values)): (sensor,)})


def slow_ramp(p: Plant) -> Series:
    """One sensor moves by 5 deviations in 10,000 rows, and stays there."""
    return _ramp(p, 5.0, 10_000)


def no_ramp(p: Plant) -> Series:
    """Leave the ramp out: whoever notices one here notices it by chance."""
    return _ramp(p, 0.0, 10_000)


def fast_ramp(p: Plant) -> Series:
    """One sensor moves by 20 deviations in 2,000 rows, and stays there."""
    return _ramp(p, 20.0, 2_000)


def _faults(p: Plant, values: Array, sensors: list[int]) -> Series:
    y, causes = np.zeros(len(values), int), {}
    for i, sensor in enumerate(sensors):
        start = HISTORY + 2_000 * i + 1_000
        values[start : start + 300, sensor] += PROBE
        y[start : start + 300] = 1
        causes[start, start + 300] = (sensor,)
    return _made(p, values, y, causes=causes)


def sparse(p: Plant) -> Series:
    """90 % of the values are missing; three faults of 10 deviations, 300 rows each."""
    values = p.run(np.zeros(HISTORY + 6_000, int))
    values[p.rng.uniform(size=values.shape) < 0.9] = np.nan
    return _faults(p, values, [1, 4, 6])


def slow_sensors(p: Plant) -> Series:
    """Five of eight sensors come with every tenth row; a fault in a slow one and in a fast one."""
    values = p.run(np.zeros(HISTORY + 6_000, int))
    values[np.arange(len(values)) % 10 != 0, 3:] = np.nan
    return _faults(p, values, [5, 1])


def outage(p: Plant) -> Series:
    """Three of eight sensors are missing for 3,000 rows, and come back as they were."""
    values = p.run(np.zeros(2 * LONG + 3_000, int))
    values[LONG : LONG + 3_000, :3] = np.nan
    marks = {"outage": [(LONG, LONG + 3_000)], "after": [(LONG + 3_000, LONG + 5_000)]}
    return _made(p, values, marks=marks)


SCENARIOS: dict[str, Callable[[Plant], Series]] = {
    "modes return": returning,
    "three modes": switching,
    "three modes, probed": switching_probed,
    "a stop": stop,
    "a stop, probed": stop_probed,
    "slow ramp": slow_ramp,
    "fast ramp": fast_ramp,
    "no ramp": no_ramp,
    "90 % missing": sparse,
    "slow sensors": slow_sensors,
    "outage": outage,
}


def make(scenario: str, seed: int) -> Series:
    rng = np.random.default_rng([seed, list(SCENARIOS).index(scenario)])
    made = SCENARIOS[scenario](plant(rng))
    return Series(**(vars(made) | {"name": f"{scenario}, seed {seed}"}))


def load(name: str) -> Series:
    scenario, seed = name.rsplit(", seed ", 1)
    return make(scenario, int(seed))


class Watcher(Protocol):
    """What an attacker needs: the verdict on a row. A deep copy must behave alike."""

    def observe(self, x: Any) -> Any: ...


STEPS = (1.0, 0.3, 0.1, 0.03, 0.0, -0.1, -0.3, -1.0)  # deviations, boldest first
PACES = (1.0, 0.1)
PASSES: tuple[Callable[[Any], bool], ...] = (
    lambda verdict: not verdict.is_anomaly,
    lambda verdict: not verdict.is_anomaly and verdict.learned,
)


def poisoned(start: Callable[[Array], Watcher], seed: int, rows: int = 1_000) -> float:
    """Return by how many deviations an attacker moves one sensor in `rows` without an alarm.

    The attacker tries each step on a copy of the watcher and takes the boldest that passes. Where
    none does, the sensor shows its true value; an alarm then ends the attack. Attackers are bold or
    patient, and only avoid alarms or also insist that the row is learned; the largest shift counts.
    ``start(history)`` returns a watcher that has seen the history.
    """
    p = plant(np.random.default_rng([seed, len(SCENARIOS)]))
    values = p.run(np.zeros(HISTORY + rows, int))
    watcher = start(values[:HISTORY] * p.unit)
    reached = [
        _attack(copy.deepcopy(watcher), values[HISTORY:], p.unit, pace, passes)
        for pace in PACES
        for passes in PASSES
    ]
    return max(reached)


def _attack(
    watcher: Watcher, values: Array, unit: Array, pace: float, passes: Callable[[Any], bool]
) -> float:
    offset = 0.0
    for row in values:
        x = row * unit
        for step in STEPS:
            tried = max(0.0, offset + pace * step)
            moved = row.copy()
            moved[0] += tried
            if passes(copy.deepcopy(watcher).observe(moved * unit)):
                offset, x = tried, moved * unit
                break
        if watcher.observe(x).is_anomaly:  # nothing passed, and now the true value does not either
            break
    return offset


def blind(start: Callable[[Array], Watcher], seed: int, rows: int = 15_000) -> float:
    """Return the share of rows in which a probe causes no alarm, in a machine with three modes.

    Each probe is shown to a copy of the watcher, which itself sees none of them: probes in the
    stream would be alarms far above any budget, and raise the limit.
    """
    p = plant(np.random.default_rng([seed, len(SCENARIOS) + 1]))
    values = p.run(mode_of_rows(p.rng, HISTORY + rows, MODES))
    watcher, missed = start(values[:HISTORY] * p.unit), []
    for t, row in enumerate(values[HISTORY:]):
        if t % 100 == 99:
            probe = row.copy()
            probe[p.rng.integers(SENSORS)] += PROBE * p.rng.choice((-1.0, 1.0))
            missed.append(not copy.deepcopy(watcher).observe(probe * p.unit).is_anomaly)
        watcher.observe(row * p.unit)
    return float(np.mean(missed))


COLLECTION = Collection(
    "scenarios",
    "hard cases",
    lambda: [f"{scenario}, seed {seed}" for scenario in SCENARIOS for seed in range(SEEDS)],
    load,
)
