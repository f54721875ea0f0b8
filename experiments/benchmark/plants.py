"""Simulated plants with loops, cycles and switches, and faults inside of the process.

The machines of `machines` are mixtures of factors, and a fault there is in one sensor. Here a fault
acts where it would in a plant, so control loops hide it in one sensor and show it in others. These
plants were written after the monitor, to see how it does on what it was not made on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from experiments.benchmark.machines import autoregression
from experiments.benchmark.series import Collection, Range, Series, series
from experiments.testbeds import Array

HISTORY, GAP, LONGEST = 4_000, 500, 200  # rows before the first fault, between faults, of a fault
SIZES = (0.5, 1.0, 2.0)  # of faults: 1 is what a maintenance engineer would want to hear of
SEEDS = 2
DAY = 1_440

Generator = np.random.Generator
Faults = Mapping[str, Array]  # strength of each kind of fault in each row, 0 where it is absent


@dataclass(frozen=True)
class Plant:
    """A simulation of `rows`, and its kinds of fault with the sensors in which each may show."""

    simulate: Callable[[Generator, int, Faults], Array]
    faults: Mapping[str, tuple[int, ...]]


def _steps(rng: Generator, rows: int, levels: Array, stay: Range) -> Array:
    """Return a value that stays at one of the levels for a random time, then changes."""
    values, start = np.empty(rows), 0
    while start < rows:
        stop = start + int(rng.integers(*stay))
        values[start:stop] = rng.choice(levels)
        start = stop
    return values


def _lagged(values: Array, time: float) -> Array:
    """Return values behind a first-order lag of `time` rows."""
    from scipy.signal import lfilter, lfiltic  # noqa: PLC0415  (slow to load)

    a = np.exp(-1 / time)
    state = lfiltic([1 - a], [1, -a], [values[0]])
    return np.asarray(lfilter([1 - a], [1, -a], values, zi=state)[0])


def tank(rng: Generator, rows: int, fault: Faults) -> Array:
    """Return two tanks in a row; a valve holds the level of the second, its set point changes."""
    demand = 10 + 1.5 * autoregression(rng, rows, 0.98)
    target = _steps(rng, rows, np.array([40.0, 50.0, 60.0]), (600, 1_500))
    noise = rng.normal(size=(rows, 7))
    X = np.empty((rows, 7))
    first, second, valve, total = 50.0, target[0], 0.5, 0.5
    for t in range(rows):
        read = second + 0.2 * noise[t, 0] + 3 * fault["level reads high"][t]
        miss = target[t] - read
        total = np.clip(total + 0.0005 * miss, 0, 1)
        wanted = np.clip(total + 0.02 * miss, 0, 1)
        valve += (wanted - valve) * (0.3 if fault["valve sticks"][t] == 0 else 0.0)
        inflow = 25 * valve * (1 - 0.3 * fault["pipe clogs"][t] / 2)
        between = 1.4 * np.sqrt(max(first, 0))
        first = max(first + 0.1 * (inflow - between - 1.5 * fault["tank leaks"][t]), 0)
        second = max(second + 0.1 * (between - demand[t]), 0)
        power = 2 + 0.12 * inflow + 0.01 * inflow**2 / 2
        power *= 1 + 0.15 * fault["pump wears"][t]
        X[t] = read, first, inflow, demand[t], 100 * valve, target[t], power
        X[t, 1:5] += noise[t, 1:5] * (0.2, 0.15, 0.15, 0.5)
        X[t, 6] += 0.05 * noise[t, 6]
    return X


def motor(rng: Generator, rows: int, fault: Faults) -> Array:
    """Return a motor whose speed and load follow a program; its warmth lags behind."""
    speed = _lagged(_steps(rng, rows, np.array([600.0, 900, 1_200, 1_500]), (150, 500)), 8)
    load = _lagged(_steps(rng, rows, np.array([0.2, 0.5, 0.8]), (80, 300)), 5)
    load = load * (1 + 0.03 * autoregression(rng, rows, 0.9))
    friction = 1 + 0.5 * fault["bearing runs dry"]
    torque = 40 * load + 4 * friction * speed / 1_500
    current = np.sqrt(4 + (0.3 * torque) ** 2)
    warm = 25 + _lagged(0.35 * current**2 / 2 + 10 * (friction - 1), 150)
    shake = (0.5 + 2 * (speed / 1_500) ** 2) * (1 + 0.4 * fault["out of balance"])
    pressure = 2 + 1.5 * speed / 1_500 - 0.3 * fault["oil leaks"]
    X = np.column_stack([speed, torque, current, warm, shake, pressure])
    X[:, 4] *= np.exp(0.08 * rng.normal(size=rows))
    X[:, 3] += 4 * fault["thermometer drifts"]
    stuck = fault["torque sensor sticks"] > 0
    for t in np.flatnonzero(stuck):
        X[t, 1] = X[t - 1, 1]
    noise = rng.normal(size=X.shape) * (4, 0.4, 0.1, 0.2, 0.0, 0.04)
    noise[stuck, 1] = 0
    return X + noise


def cooling(rng: Generator, rows: int, fault: Faults) -> Array:
    """Return a cold room: a thermostat switches its compressor, hatches open, days are warmer."""
    outside = 15 + 6 * np.sin(2 * np.pi * np.arange(rows) / DAY) + autoregression(rng, rows, 0.99)
    hatch = rng.uniform(size=rows) < 0.01
    noise = rng.normal(size=(rows, 5))
    room, supply, on, open_for = 4.0, 4.0, False, 0
    X = np.empty((rows, 6))
    for t in range(rows):
        open_for = int(rng.integers(2, 10)) if hatch[t] else max(open_for - 1, 0)
        opened = open_for > 0 or fault["hatch left open"][t] > 0
        read = room + 0.05 * noise[t, 0] + 0.8 * fault["thermostat reads high"][t]
        on = read > 3.5 if on else read > 4.5
        capacity = 0.35 * (1 - 0.4 * min(fault["refrigerant is low"][t], 2))
        room += 0.004 * (outside[t] - room) * (3 if opened else 1) - capacity * on
        supply += 0.2 * ((room - 12 * capacity / 0.35 if on else room) - supply)
        power = (2 + 0.03 * outside[t]) * on * (1 + 0.1 * fault["condenser is dirty"][t])
        X[t] = read, supply, outside[t], power, on, opened * (fault["hatch left open"][t] == 0)
        X[t, 1:4] += noise[t, 1:4] * (0.1, 0.1, 0.03)
    return X


def service(rng: Generator, rows: int, fault: Faults) -> Array:
    """Return a web service: requests by time of day, rare errors, memory freed now and then."""
    day = 1 + 0.6 * np.sin(2 * np.pi * np.arange(rows) / DAY)
    rate = 200 * day * np.exp(0.1 * autoregression(rng, rows, 0.95))
    requests = rng.poisson(rate * (1 - 0.25 * np.minimum(fault["traffic falls"], 3))).astype(float)
    errors = rng.poisson(0.002 * requests + 4 * fault["errors rise"])
    cpu = 5 + 0.15 * requests * np.exp(0.05 * rng.normal(size=rows)) + 12 * fault["cpu is taken"]
    delay = 20 * np.exp(0.15 * rng.normal(size=rows)) / np.maximum(1 - cpu / 100, 0.2)
    delay *= 1 + 0.4 * fault["database is slow"]
    memory, used = np.empty(rows), 30.0
    for t in range(rows):
        used += 0.0004 * requests[t] + 0.1 * fault["memory leaks"][t]
        if used > 60 and fault["memory leaks"][t] == 0:
            used = 30.0
        memory[t] = used
    queue = rng.poisson(requests * delay / 2_000)
    return np.column_stack([requests, errors, cpu, delay, memory + rng.normal(0, 0.2, rows), queue])


def heart(rng: Generator, rows: int, fault: Faults) -> Array:
    """Return two leads of a heart beat of about 40 rows."""
    phase, beat = 0.0, 40.0
    X = np.empty((rows, 2))
    breath = 0.1 * autoregression(rng, rows, 0.995)
    odd = 0.0
    for t in range(rows):
        phase += (1 + 0.35 * fault["beats fast"][t]) / beat
        if phase >= 1:
            phase, beat = phase - 1, 40 * (1 + 0.04 * rng.normal())
            odd = fault["odd beats"][t]
        wide = 0.03 * (1 + odd)
        pulse = np.exp(-(((phase - 0.4) / wide) ** 2) / 2) * (1 - 0.4 * odd)
        wave = 0.25 * np.exp(-(((phase - 0.7) / 0.06) ** 2) / 2) * (1 - odd)
        X[t] = pulse + wave + breath[t], 0.6 * pulse - 0.5 * wave + 0.5 * breath[t]
    X += rng.normal(0, 0.02, X.shape) * (1 + 3 * fault["noise"][:, None])
    loose = fault["lead comes off"] > 0
    X[loose, 1] = rng.normal(0, 0.02, int(loose.sum()))
    return X


def robot(rng: Generator, rows: int, fault: Faults) -> Array:
    """Return an arm of three joints that repeats a program of about 300 rows."""
    knots = rng.uniform(-1, 1, (3, 8))
    knots[:, -1] = knots[:, 0]
    clock, pace = np.empty(rows), 1.0
    now = 0.0
    for t in range(rows):
        now += pace / 300
        if now >= 1:
            now, pace = now - 1, 1 + 0.02 * rng.normal()
        clock[t] = now
    smooth = 0.5 - 0.5 * np.cos(np.pi * ((clock * 7) % 1))  # from knot to knot
    index = np.minimum((clock * 7).astype(int), 6)
    angle = knots[:, index] + (knots[:, index + 1] - knots[:, index]) * smooth
    pace_of = np.gradient(angle, axis=1) * 40
    push = np.gradient(pace_of, axis=1) * 10
    friction = 1 + np.outer((0, 1, 0), 0.6 * fault["joint wears"])
    weight = 0.5 * np.cos(angle) * (1 + 0.4 * fault["load is heavier"])
    current = push + friction * np.tanh(20 * pace_of) * 0.5 + weight
    current[0] += 1.5 * fault["arm is hit"]
    angle = angle + np.outer((0, 0, 1), 0.1 * fault["encoder slips"])
    X = np.vstack([angle, current]).T
    return np.asarray(X + rng.normal(size=X.shape) * np.repeat((0.01, 0.08), 3))


def single(rng: Generator, rows: int, fault: Faults) -> Array:
    """Return one sensor alone: a wave of 96 rows and its noise."""
    t = np.arange(rows) + np.cumsum(0.5 * fault["wave is faster"])
    wave = np.sin(2 * np.pi * t / 96) + 0.3 * np.sin(4 * np.pi * t / 96 + 1)
    x = wave + 0.1 * autoregression(rng, rows, 0.8) + 0.5 * fault["level moves"]
    x *= 1 + 0.4 * fault["gain rises"]
    spikes = (fault["spikes"] > 0) & (rng.uniform(size=rows) < 0.1)
    return np.asarray(x + spikes * 0.8 * fault["spikes"])[:, None]


PLANTS = {
    "tank": Plant(
        tank,
        {
            "level reads high": (0,),
            "valve sticks": (4,),
            "pipe clogs": (2, 4),
            "tank leaks": (1, 2, 4),
            "pump wears": (6,),
        },
    ),
    "motor": Plant(
        motor,
        {
            "bearing runs dry": (1, 2, 3),
            "out of balance": (4,),
            "oil leaks": (5,),
            "thermometer drifts": (3,),
            "torque sensor sticks": (1,),
        },
    ),
    "cold room": Plant(
        cooling,
        {
            "hatch left open": (0, 3, 4, 5),
            "thermostat reads high": (0, 1),
            "refrigerant is low": (0, 1, 3, 4),
            "condenser is dirty": (3,),
        },
    ),
    "web service": Plant(
        service,
        {
            "traffic falls": (0,),
            "errors rise": (1,),
            "cpu is taken": (2, 3),
            "database is slow": (3, 5),
            "memory leaks": (4,),
        },
    ),
    "heart beat": Plant(
        heart,
        {"beats fast": (0, 1), "odd beats": (0, 1), "noise": (0, 1), "lead comes off": (1,)},
    ),
    "robot": Plant(
        robot,
        {
            "joint wears": (4,),
            "load is heavier": (3, 4, 5),
            "arm is hit": (3,),
            "encoder slips": (2,),
        },
    ),
    "one sensor": Plant(
        single,
        {"wave is faster": (0,), "level moves": (0,), "gain rises": (0,), "spikes": (0,)},
    ),
}
SUDDEN = {"arm is hit": 12}  # kinds that last for this number of rows


def make(name: str, seed: int) -> tuple[Series, list[str]]:
    """Return one run and the kind of each of its faults, in order."""
    plant = PLANTS[name]
    rng = np.random.default_rng([seed, list(PLANTS).index(name), 7])
    order = rng.permutation([(kind, size) for kind in plant.faults for size in SIZES]).tolist()
    start, causes, kinds = HISTORY, {}, []
    places: list[tuple[str, float, Range]] = []
    for kind, size in order:
        stop = start + SUDDEN.get(kind, int(rng.integers(80, LONGEST + 1)))
        places.append((kind, float(size), (start, stop)))
        causes[start, stop] = plant.faults[kind]
        kinds.append(kind)
        start = stop + int(rng.integers(GAP, 2 * GAP))
    fault = {kind: np.zeros(start) for kind in plant.faults}
    y = np.zeros(start, int)
    for kind, size, rows in places:
        fault[kind][slice(*rows)] = size
        y[slice(*rows)] = 1
    X = plant.simulate(rng, start, fault)
    return series("plants", f"{name}, run {seed}", X, y, history=HISTORY, causes=causes), kinds


def load(name: str) -> Series:
    plant, seed = name.rsplit(", run ", 1)
    return make(plant, int(seed))[0]


COLLECTION = Collection(
    "plants",
    "simulated plants",
    lambda: [f"{name}, run {seed}" for name in PLANTS for seed in range(SEEDS)],
    load,
)
