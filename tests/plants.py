"""Streams with a known truth, that the tests of the monitor and of its parts share."""

import numpy as np

UNITS = np.array([1.0, 10.0, 100.0, 0.1, 5.0, 1e4])
ZEROS = np.array([0.0, 50.0, -300.0, 1.0, 7.0, 1e5])


def plant(rows, seed=0, first=0):
    """Return six sensors in raw units that load and speed drive, and their deviations."""
    rng = np.random.default_rng(seed)
    t = np.arange(first, first + rows)
    causes = np.column_stack([np.sin(t / 50), np.cos(t / 173)]) + 0.3 * rng.normal(size=(rows, 2))
    weights = np.random.default_rng(99).uniform(0.4, 1, (2, 6))
    signs = np.random.default_rng(98).choice([-1, 1], (2, 6))
    X = causes @ (weights * signs) + 0.1 * rng.normal(size=(rows, 6))
    return X * UNITS + ZEROS, X.std(axis=0) * UNITS


def white(rows, n, seed=0):
    """Return independent normal values: records without an order."""
    return np.random.default_rng(seed).normal(0, 1, (rows, n))


def smooth(rows, n, seed=0):
    """Return sensors that a slow cause drives together, with noise: a stream with an order."""
    rng = np.random.default_rng(seed)
    cause = np.sin(np.arange(rows) / 25 + seed)[:, None] + 0.1 * rng.normal(size=(rows, 1))
    weights = np.random.default_rng(97).uniform(0.5, 1.5, n)
    return cause * weights + 0.2 * rng.normal(size=(rows, n))


def windows(X, width):
    """Return each row with the `width` - 1 before it, the newest first; the first row repeats."""
    held = np.concatenate((np.repeat(X[:1], width - 1, axis=0), X))
    return np.concatenate([held[width - 1 - lag :][: len(X)] for lag in range(width)], axis=1)
