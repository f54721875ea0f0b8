"""A simulated pump with eight sensors and known faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from onlad.reference import Array

SENSORS = {
    "speed": "rpm",
    "flow": "m³/h",
    "pressure_in": "bar",
    "pressure_out": "bar",
    "motor_current": "A",
    "bearing_temp": "°C",
    "oil_temp": "°C",
    "vibration": "mm/s",
}
# Standard deviation of the noise of each sensor, in its unit.
NOISE = (4.0, 0.6, 0.012, 0.03, 0.2, 0.15, 0.12, 0.05)
# Speed in rpm and opening of the valve.
MODES = {"idle": (800, 0.45), "low": (1150, 0.60), "normal": (1480, 0.80), "peak": (1700, 0.95)}
DAY = 8640  # samples: one every ten seconds
QUIET = 1500  # samples without a fault, to learn from
SLOT = 350  # samples, with one fault in each


class Fault(NamedTuple):
    """What goes wrong in one sensor, from `start` up to but not including `stop`."""

    start: int
    stop: int
    kind: str
    sensor: str


class Recording(NamedTuple):
    """The true values (`truth`), the readings of the sensors, and their faults.

    `drift` is what they would read at the same pump under a steady load. Arrays are (n, 8).
    """

    truth: Array
    values: Array
    drift: Array
    faults: list[Fault]


def record(n_samples: int = DAY, seed: int = 0) -> Recording:
    """Run the pump. The same arguments give the same recording.

    There is no fault in the first `QUIET` samples (or the first half, if that is less); then one
    in every `SLOT` samples, of each kind in turn.
    """
    rng = np.random.default_rng(seed)
    steps, targets = _schedule(n_samples, rng)
    demand = 1 + _lag(rng.normal(0, 0.25, n_samples), 30, start=0)
    level = _lag(rng.normal(0, 0.3, n_samples), 60, start=0)
    truth = _pump(targets, demand, level) + rng.normal(0, NOISE, (n_samples, len(SENSORS)))
    values = truth.copy()
    steady = np.full_like(targets, MODES["normal"])
    drift = _pump(steady, np.ones(n_samples), np.zeros(n_samples))
    faults = []
    spread = truth.std(axis=0)
    kinds: list[str] = []
    for slot in range(min(QUIET, n_samples // 2), n_samples - SLOT + 1, SLOT):
        kinds = kinds or [str(name) for name in rng.permutation(list(KINDS))]
        kind = KINDS[name := kinds.pop()]
        start = slot + int(rng.integers(100, 200))  # the longest still fits
        if kind.at_a_step:
            start = int(steps[np.searchsorted(steps, start)]) - 2
        stop = start + int(rng.integers(kind.shortest, kind.longest + 1))
        sensor = str(rng.choice(kind.sensors))
        column = list(SENSORS).index(sensor)
        at, own = slice(start, stop), float(spread[column])
        values[at, column] = kind.reading(truth[:, column], at, own, rng)
        faults.append(Fault(start, stop, name, sensor))
    return Recording(truth, values, drift, faults)


# -- the pump -------------------------------------------------------------------------------


def _schedule(n_samples: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return where the mode changes, and the set points of speed and valve, shape (n, 2)."""
    steps, targets = [0], np.empty((n_samples, 2))
    modes: list[str] = []
    last = ""
    while steps[-1] < n_samples:
        if not modes:  # each mode once, then each again
            modes = [str(name) for name in rng.permutation(list(MODES))]
            if modes[-1] == last:  # that would be no step
                modes.reverse()
        last = modes.pop()
        end = steps[-1] + int(rng.integers(25, 70))
        targets[steps[-1] : end] = MODES[last]
        steps.append(end)
    return np.array(steps), targets


def _pump(targets: Array, demand: Array, level: Array) -> Array:
    """Return the readings of perfect sensors; `demand`, and `level` of the tank, wander."""
    n = len(targets)
    # Drift: the day warms the hall, and wear costs efficiency and shakes the bearing.
    ambient = 17 - 6 * np.cos(2 * np.pi * np.arange(n) / DAY)
    wear = np.arange(n) / DAY

    speed = _lag(targets[:, 0], 3) * demand
    s = speed / 1480
    q = s * _lag(targets[:, 1], 5)
    rise = 6.0 * s**2 - 1.6 * q**2  # the affinity laws, and a head that falls with the flow
    power = rise * q / (0.80 - 0.08 * wear) + 0.8 * s**3
    pressure_in = 1.8 + level - 0.35 * q**2
    heat = 0.5 * s**2 + 0.12 * power
    return np.column_stack(
        [
            speed,
            110 * q,
            pressure_in,
            pressure_in + rise,
            6 + 5 * power,
            _lag(ambient + 26 * heat + 4 * wear, 15),
            _lag(ambient + 16 * heat, 40),
            0.8 + 1.4 * s**2 + 0.8 * wear + 0.25 * q**2,
        ]
    )


def _lag(target: Array, time_constant: float, start: float | None = None) -> Array:
    """Follow `target` with inertia, from `start` or else from its first value."""
    followed = np.empty(len(target))
    y = float(target[0]) if start is None else start
    for t, wanted in enumerate(target.tolist()):
        y += (wanted - y) / time_constant
        followed[t] = y
    return followed


# -- the faults -----------------------------------------------------------------------------

# (true values of the sensor, when it fails, its standard deviation) -> its faulty readings
Reading = Callable[[Array, slice, float, np.random.Generator], Array]


def _offset(low: float, high: float) -> Reading:
    """Return readings that are off by this many standard deviations."""
    return lambda truth, at, spread, rng: (
        truth[at] + rng.choice([-1, 1]) * rng.uniform(low, high) * spread
    )


def _stuck(truth: Array, at: slice, spread: float, rng: np.random.Generator) -> Array:
    return np.full(at.stop - at.start, truth[at.start])


def _noise(truth: Array, at: slice, spread: float, rng: np.random.Generator) -> Array:
    noise = rng.normal(0, 0.6 * spread, at.stop - at.start)
    return np.asarray(truth[at] + noise)


def _decoupled(truth: Array, at: slice, spread: float, rng: np.random.Generator) -> Array:
    # Old readings of the sensor itself: only in relation to the other sensors are they unusual.
    lags = rng.integers(at.stop - at.start, at.start, 8)
    old = [truth[at.start - lag : at.stop - lag] for lag in lags]
    return max(old, key=lambda reading: float(np.abs(reading - truth[at]).sum()))


class Kind(NamedTuple):
    """How a sensor fails: its readings, for how many samples, and which sensors can fail so."""

    reading: Reading
    shortest: int
    longest: int
    sensors: tuple[str, ...] = tuple(SENSORS)
    at_a_step: bool = False


# Of a sensor that does not follow the load, neither a stuck value nor a lost correlation shows.
_MOVING = ("speed", "flow", "pressure_out", "motor_current", "vibration")

KINDS = {
    "spike": Kind(_offset(2, 3), 1, 3),
    "stuck": Kind(_stuck, 60, 75, _MOVING, at_a_step=True),
    "bias": Kind(_offset(0.8, 1.2), 40, 80),
    "noise": Kind(_noise, 40, 80),
    "lost correlation": Kind(_decoupled, 40, 80, _MOVING),
}
