"""Normal data of every kind that a plant has: all alarms are false here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from experiments.benchmark.machines import autoregression
from experiments.benchmark.series import Collection, Series, series
from experiments.testbeds import Array

ROWS, HISTORY_SHARE = 30_000, 1 / 6
DAY, WEEK = 1_440, 10_080  # rows, at one per minute
SEEDS = 2

Generator = np.random.Generator


def _ar(rng: Generator, rows: int, n: int, a: float = 0.9) -> Array:
    return np.column_stack([autoregression(rng, rows, a) for _ in range(n)])


def _mixed(rng: Generator, factors: Array, n: int, noise: float = 0.5) -> Array:
    """Return sensors that see mixtures of the factors."""
    loadings = rng.normal(size=(factors.shape[1], n))
    return np.asarray(factors @ loadings + rng.normal(0, noise, (len(factors), n)))


def gaussian(rng: Generator, rows: int) -> Array:
    return rng.normal(size=(rows, 6)) @ rng.normal(size=(6, 6))


def ar(rng: Generator, rows: int) -> Array:
    return _mixed(rng, _ar(rng, rows, 3), 6)


def heavy_tails(rng: Generator, rows: int) -> Array:
    return rng.standard_t(3, (rows, 6)) + _mixed(rng, _ar(rng, rows, 2), 6)


def bursts(rng: Generator, rows: int) -> Array:
    """Volatility that comes in bursts, the same for all sensors: GARCH(1, 1)."""
    shocks, X = rng.normal(size=(rows, 4)), np.empty((rows, 4))
    variance = 1.0
    for t in range(rows):
        X[t] = np.sqrt(variance) * shocks[t]
        variance = 0.05 + 0.10 * float(np.mean(X[t] ** 2)) + 0.85 * variance
    return X


def poisson(rng: Generator, rows: int) -> Array:
    return rng.poisson(np.exp(0.4 * _ar(rng, rows, 6, 0.98) + rng.uniform(0, 3, 6))).astype(float)


def mostly_zero(rng: Generator, rows: int) -> Array:
    """Return counts that are 0 in 95 to 99 % of the rows."""
    counts = rng.binomial(1, rng.uniform(0.01, 0.05, 6), (rows, 6)) * rng.geometric(0.3, (rows, 6))
    return np.asarray(counts, float)


def quantised(rng: Generator, rows: int) -> Array:
    return np.round(_mixed(rng, _ar(rng, rows, 2, 0.95), 6), 0)


def _switches(rng: Generator, rows: int, n: int, on: float, off: float) -> Array:
    """Return switches that stay on and off for random times with the given means, in rows."""
    state = np.zeros((rows, n))
    for j in range(n):
        stays = rng.geometric(1 / np.where(np.arange(2 * rows) % 2, on, off))
        edges = np.cumsum(stays)
        state[:, j] = np.searchsorted(edges, np.arange(rows), side="right") % 2
    return state


def valves(rng: Generator, rows: int) -> Array:
    """On/off valves, and flows that follow them."""
    state = _switches(rng, rows, 4, 120, 180)
    flow = state @ rng.uniform(5, 20, (4, 3)) + rng.normal(0, 0.5, (rows, 3))
    return np.hstack([state, flow])


def rarely_on(rng: Generator, rows: int) -> Array:
    """Pumps that run for 30 rows in some 1,500, beside an analog sensor that sees them."""
    state = _switches(rng, rows, 3, 30, 1_500)
    return np.hstack([state, state @ np.full((3, 1), 4.0) + _mixed(rng, _ar(rng, rows, 2), 2)])


def counters(rng: Generator, rows: int) -> Array:
    """Counters that only rise, one of them reset each day, beside analog sensors."""
    analog = _mixed(rng, _ar(rng, rows, 2, 0.97), 3)
    energy = np.cumsum(np.abs(analog[:, 0] + 5))
    pieces = np.cumsum(rng.binomial(1, 0.2, rows)).astype(float)
    today = pieces - pieces[np.arange(rows) // DAY * DAY]
    return np.column_stack([analog, energy, pieces, today])


def _day(rng: Generator, rows: int) -> Array:
    t = 2 * np.pi * np.arange(rows) / DAY
    waves = np.column_stack([np.sin(k * t + rng.uniform(0, 6)) / k for k in (1, 2, 3)])
    return waves @ rng.normal(0, 3, (3, 6))


def day(rng: Generator, rows: int) -> Array:
    return _day(rng, rows) + _mixed(rng, _ar(rng, rows, 2), 6)


def week(rng: Generator, rows: int) -> Array:
    """Return a day pattern that is smaller on two days of seven."""
    weekend = (np.arange(rows) % WEEK) // DAY >= 5
    return _day(rng, rows) * np.where(weekend, 0.3, 1.0)[:, None] + _mixed(
        rng, _ar(rng, rows, 2), 6
    )


def walk(rng: Generator, rows: int) -> Array:
    """Sensors that wander together and never come back to a level."""
    factors = np.cumsum(rng.normal(0, 0.05, (rows, 2)), axis=0)
    return _mixed(rng, factors, 5)


def long_memory(rng: Generator, rows: int) -> Array:
    """Fractional noise, d = 0.4: correlations that fade over thousands of rows."""
    frequency = np.fft.rfftfreq(2 * rows)
    frequency[0] = frequency[1]
    spectrum = (2 * np.sin(np.pi * frequency)) ** -0.4
    noise = np.fft.rfft(rng.normal(size=(2 * rows, 4)), axis=0)
    X = np.fft.irfft(noise * spectrum[:, None], axis=0)[:rows]
    return np.asarray(X @ rng.normal(size=(4, 5)) + rng.normal(0, 0.3, (rows, 5)))


def held(rng: Generator, rows: int) -> Array:
    """Sample and hold: sensors that renew their value every 1, 5, 20 and 60 rows."""
    X = _mixed(rng, _ar(rng, rows, 2, 0.97), 6)
    for j, every in enumerate((1, 1, 5, 5, 20, 60)):
        X[:, j] = X[np.arange(rows) // every * every, j]
    return X


def rates(rng: Generator, rows: int) -> Array:
    """Sensors at different rates: missing in the rows between."""
    X = _mixed(rng, _ar(rng, rows, 2, 0.97), 6)
    for j, every in enumerate((1, 1, 2, 5, 10, 10)):
        X[np.arange(rows) % every != 0, j] = np.nan
    return X


def dropouts(rng: Generator, rows: int) -> Array:
    """Leave out a tenth of the values at random, and now and then a sensor for 50 rows."""
    X = _mixed(rng, _ar(rng, rows, 2), 6)
    X[rng.uniform(size=X.shape) < 0.1] = np.nan
    for start in rng.integers(0, rows - 50, rows // 1_000):
        X[start : start + 50, rng.integers(6)] = np.nan
    return X


def batches(rng: Generator, rows: int) -> Array:
    """Batch cycles of about 300 rows: fill, heat, hold, drain."""
    parts: list[Array] = []
    while sum(len(part) for part in parts) < rows:
        lengths = np.round(np.array([40, 80, 120, 60]) * rng.uniform(0.9, 1.1, 4)).astype(int)
        level, heat = rng.normal(80, 1), rng.normal(60, 0.5)
        phase = np.repeat(np.arange(4), lengths)
        within = np.concatenate([np.linspace(0, 1, n, endpoint=False) for n in lengths])
        fill = level * np.choose(phase, [within, 1, 1, 1 - within])
        temperature = 20 + heat * np.choose(phase, [0, within, 1, 1 - within])
        flow = np.choose(phase, [level / lengths[0], 0, 0, -level / lengths[3]])
        power = np.choose(phase, [0.0, 9.0, 2.0, 0.0])
        parts.append(np.column_stack([fill, temperature, flow, power]))
    X = np.concatenate(parts)[:rows]
    return np.asarray(X + rng.normal(0, [0.3, 0.2, 0.05, 0.1], X.shape))


NORMALS: dict[str, Callable[[Generator, int], Array]] = {
    "gaussian": gaussian,
    "autoregression": ar,
    "heavy tails": heavy_tails,
    "bursts of volatility": bursts,
    "counts": poisson,
    "counts, mostly zero": mostly_zero,
    "quantised": quantised,
    "on/off valves": valves,
    "rarely on": rarely_on,
    "counters beside analog": counters,
    "day pattern": day,
    "day and week pattern": week,
    "random walk": walk,
    "long memory": long_memory,
    "held values": held,
    "different rates": rates,
    "dropouts": dropouts,
    "batch cycles": batches,
}


def make(kind: str, seed: int, rows: int = ROWS) -> Series:
    """Return normal data of one kind, each sensor in a unit of its own; counts stay counts."""
    rng = np.random.default_rng([seed, list(NORMALS).index(kind)])
    X = NORMALS[kind](rng, rows)
    counts = np.all(np.isnan(X) | (np.round(X) == X), axis=0)
    X = X * np.where(counts, 1.0, 10.0 ** rng.uniform(-2, 3, X.shape[1]))
    history = int(HISTORY_SHARE * rows)
    return series("normals", f"{kind}, seed {seed}", X, history=history, first=0)


def load(name: str) -> Series:
    kind, seed = name.rsplit(", seed ", 1)
    return make(kind, int(seed))


COLLECTION = Collection(
    "normals",
    "normal data",
    lambda: [f"{kind}, seed {seed}" for kind in NORMALS for seed in range(SEEDS)],
    load,
)
