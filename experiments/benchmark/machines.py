"""Simulated machines, each with nine kinds of fault in one sensor.

A few factors (first-order autoregressions) drive all sensors; each sensor adds noise of its own and
has a unit and a zero of its own. A fault's size is in deviations of its sensor's noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from experiments.benchmark.series import Collection, Range, Series, series
from experiments.testbeds import Array

NORMAL, GAP, LONGEST = 4_000, 400, 100  # rows before the first fault, between faults, of a fault
SIGNAL = 3.0  # deviation of what the factors contribute to a sensor, in its noise deviations
SIZES = (3.0, 6.0, 12.0)
SEEDS = 6  # two runs of each size
MODES, MODE_ROWS = 3, (200, 600)


@dataclass(frozen=True)
class Machine:
    """What a simulated machine is made of."""

    sensors: int
    lags: int = 0  # a sensor sees each factor up to this number of rows late
    modes: int = 1
    nonlinear: bool = False


MACHINES = {
    "linear, 6 sensors": Machine(6),
    "linear, 12 sensors": Machine(12),
    "linear, 30 sensors": Machine(30),
    "lags, 12 sensors": Machine(12, lags=8),
    "modes, 12 sensors": Machine(12, modes=MODES),
    "nonlinear, 12 sensors": Machine(12, nonlinear=True),
}


def autoregression(rng: np.random.Generator, rows: int, a: float) -> Array:
    """Return a first-order autoregression of deviation 1."""
    from scipy.signal import lfilter  # noqa: PLC0415  (slow to load)

    shocks = rng.normal(size=rows) * np.sqrt(1 - a * a)
    shocks[0] = rng.normal()
    return np.asarray(lfilter([1.0], [1.0, -a], shocks))


def mode_of_rows(rng: np.random.Generator, rows: int, modes: int, stay: Range = MODE_ROWS) -> Array:
    """Return the mode of each row; a mode lasts for a random time, then any other follows."""
    mode = np.zeros(rows, int)
    start = int(rng.integers(*stay))
    while start < rows and modes > 1:
        stop = start + int(rng.integers(*stay))
        mode[start:stop] = (mode[start - 1] + rng.integers(1, modes)) % modes
        start = stop
    return mode


def clean(machine: Machine, rng: np.random.Generator, rows: int) -> Array:
    """Return what the factors contribute to each sensor, in deviations of its noise."""
    n, late = machine.sensors, machine.lags
    factors = np.column_stack(
        [autoregression(rng, rows + late, rng.uniform(0.9, 0.98)) for _ in range(max(2, n // 4))]
    )
    k = factors.shape[1]
    loadings = rng.normal(size=(machine.modes, k, n))
    level = rng.normal(0, 2 * SIGNAL, (machine.modes, n)) * (machine.modes > 1)
    delays = rng.integers(0, late + 1, (k, n))
    bend = rng.integers(0, 4, n)
    mode = mode_of_rows(rng, rows, machine.modes)
    signal = np.empty((rows, n))
    for j in range(n):
        seen = np.column_stack(
            [factors[late - delays[i, j] :, i][:rows] for i in range(k)]  # (rows, k)
        )
        part = np.sum(seen * loadings[mode, :, j], axis=1)
        if machine.nonlinear:
            part = _bent(part / np.sqrt(k), seen[:, j % k] * seen[:, (j + 1) % k], int(bend[j]))
        signal[:, j] = part * SIGNAL / np.std(part) + level[mode, j]
    return signal


def _bent(part: Array, product: Array, kind: int) -> Array:
    """Return a saturated, squared, one-sided or multiplied form of a sensor's input."""
    forms = (np.tanh(2 * part), part**2, np.maximum(part, 0), part + product)
    return np.asarray(forms[kind])


# A fault: signal and noise of one sensor in its rows, those of the whole run, size -> new values.
Fault = Callable[["Place"], Array]


@dataclass(frozen=True)
class Place:
    """Where a fault is. Values are in deviations of the sensors' noise, without their zeros."""

    values: Array  # (rows, sensors) of the run
    rows: Range
    sensor: int
    other: int
    size: float
    zero: float  # the value at which the sensor reads 0
    rng: np.random.Generator

    @property
    def own(self) -> Array:
        part: Array = self.values[slice(*self.rows), self.sensor]
        return part

    @property
    def sign(self) -> float:
        return float(self.rng.choice((-1.0, 1.0)))


def _delay(at: Place) -> Array:
    late = int(2 * at.size)
    part: Array = at.values[at.rows[0] - late : at.rows[1] - late, at.sensor]
    return part


FAULTS: dict[str, Fault] = {
    "spike": lambda at: at.own + at.sign * at.size,  # its rows are few
    "offset": lambda at: at.own + at.sign * at.size,
    "ramp": lambda at: at.own + at.sign * at.size * np.linspace(0, 1, len(at.own)),
    "stuck": lambda at: np.full(len(at.own), at.values[at.rows[0] - 1, at.sensor]),
    "noise": lambda at: at.own + at.rng.normal(0, at.size, len(at.own)),
    "gain": lambda at: at.own * (1 + at.size / SIGNAL),
    "delay": _delay,
    "swap": lambda at: at.values[slice(*at.rows), at.other],
    "dropout": lambda at: np.full(len(at.own), at.zero),
}
SPIKE_ROWS = 2


def places(rng: np.random.Generator, kinds: int) -> list[Range]:
    """Return the rows of the faults, 60 to 100 each, with 400 to 600 normal ones between."""
    found: list[Range] = []
    start = NORMAL
    for _ in range(kinds):
        start += int(rng.integers(GAP, GAP + 200)) * bool(found)
        found.append((start, start + int(rng.integers(60, LONGEST + 1))))
        start = found[-1][1]
    return found


def simulate(name: str, seed: int) -> tuple[Series, list[str]]:
    """Return one run, all its faults of one size, and the kind of each fault in order."""
    machine, size = MACHINES[name], SIZES[seed % len(SIZES)]
    rng = np.random.default_rng([seed, list(MACHINES).index(name)])
    kinds = rng.permutation(list(FAULTS)).tolist()
    ranges = places(rng, len(kinds))
    rows = ranges[-1][1] + GAP
    values = clean(machine, rng, rows) + rng.normal(size=(rows, machine.sensors))
    unit = 10.0 ** rng.uniform(-3, 3, machine.sensors)
    zero = rng.uniform(-1, 1, machine.sensors) * 4 * SIGNAL
    wrong, y, causes = values.copy(), np.zeros(rows, int), {}
    for kind, (start, last) in zip(kinds, ranges, strict=True):
        stop = start + SPIKE_ROWS if kind == "spike" else last
        sensor, other = (int(s) for s in rng.permutation(machine.sensors)[:2])
        at = Place(values, (start, stop), sensor, other, size, zero[sensor], rng)
        wrong[start:stop, sensor] = FAULTS[kind](at)
        if kind == "swap":
            wrong[start:stop, other] = values[start:stop, sensor]
        y[start:stop] = 1
        causes[start, stop] = (sensor, other) if kind == "swap" else (sensor,)
    X = (wrong - zero) * unit
    made = series("machines", f"{name}, run {seed}", X, y, history=NORMAL, causes=causes)
    return made, kinds


def load(name: str) -> Series:
    machine, seed = name.rsplit(", run ", 1)
    return simulate(machine, int(seed))[0]


def kinds(name: str) -> list[str]:
    """Return the kind of each fault of a run, in order."""
    machine, seed = name.rsplit(", run ", 1)
    rng = np.random.default_rng([int(seed), list(MACHINES).index(machine)])
    return [str(kind) for kind in rng.permutation(list(FAULTS))]


COLLECTION = Collection(
    "machines",
    "simulated machines",
    lambda: [f"{name}, run {seed}" for name in MACHINES for seed in range(SEEDS)],
    load,
)
