"""Policies: how raw units become numbers of about unit size, while the stream goes on.

A policy is a frozen value; what it has learned is an array with one column a feature, its
memory. NaN is a missing value: it is not learned, and scales to NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from onlad import kernel
from onlad.reference import Array

AT_REST = 1e-4  # of a deviation: rows that differ by less do not move
FEW = 8  # rows; fewer may be alike by chance


class Scaler(Protocol):
    """How samples are scaled, and how that follows the stream."""

    def start(self, X: Array) -> Array:
        """Return the memory after the first rows."""
        ...

    def update(self, memory: Array, X: Array) -> Array:
        """Return the memory after more rows."""
        ...

    def unit(self, memory: Array) -> tuple[Array, Array]:
        """Return what is 0 and what is 1 for each feature, the latter as a distance."""
        ...

    @property
    def clip(self) -> float:
        """The largest scaled value."""
        ...

    def hurry(self, memory: Array, count: int) -> Array:
        """Return a memory that weighs its past like `count` rows, to follow a drift."""
        ...


def scale(X: Array, unit: tuple[Array, Array], clip: float) -> Array:
    """Return the rows of `X` scaled by a scaler's unit, and clipped.

    Examples
    --------
    >>> policy = Standard()
    >>> memory = policy.start(np.array([[1.0, 500.0], [3.0, 700.0]]))
    >>> scale(np.array([[3.0, 600.0], [1e9, np.nan]]), policy.unit(memory), policy.clip)
    array([[ 1.,  0.],
           [20., nan]])
    """
    Z = np.empty(X.shape)
    # Rows are at most 1e100 and units at least 1e-30.
    kernel.scale_rows(np.ascontiguousarray(X), *unit, clip, Z)
    return Z


def _check(memory: int, clip: float) -> None:
    if not memory >= 1:
        raise ValueError(f"memory must be at least 1 row, got {memory!r}")
    if not 0 < clip < np.inf:
        raise ValueError(f"clip must be finite and above 0, got {clip!r}")


@dataclass(frozen=True, kw_only=True)
class Standard:
    """Subtract the mean and divide by the standard deviation.

    Both weigh the past like at most ``memory`` rows, so they follow a slow drift. What is
    scaled lies in [-clip, clip], and no row moves the memory far.
    """

    memory: int = 8192
    clip: float = 20.0

    def __post_init__(self) -> None:
        _check(self.memory, self.clip)

    def start(self, X: Array) -> Array:
        """Return rows counted, mean and variance of each feature."""
        known = ~np.isnan(X)
        count = np.add.reduce(known, axis=0, dtype=float)
        some = np.maximum(count, 1)
        mean = np.add.reduce(X, axis=0, where=known) / some
        deviation = X - mean
        variance = np.add.reduce(deviation * deviation, axis=0, where=known) / some
        return np.array([count, mean, variance])

    def update(self, memory: Array, X: Array) -> Array:
        """Return the memory after more rows."""
        # A feature that has not moved yet may start to; else no row may move the memory far. And a
        # feature at rest says nothing of its scale: else a machine that stands still over night
        # would wake up in units of its own rounding.
        after = np.empty_like(memory)
        X = np.ascontiguousarray(X)
        kernel.standard_update(memory, X, self.clip, self.memory, AT_REST, FEW, after)
        return after

    def unit(self, memory: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation."""
        return memory[1], np.maximum(np.sqrt(memory[2]), self._floor(memory))

    def hurry(self, memory: Array, count: int) -> Array:
        """Return the memory with its past weighed like `count` rows."""
        return np.array([np.minimum(memory[0], count), memory[1], memory[2]])

    @staticmethod
    def _floor(memory: Array) -> Array:
        # A feature that never moved has no unit of its own: a hundred-millionth of its size is one.
        floor: Array = 1e-8 * np.abs(memory[1]) + 1e-30
        return floor


@dataclass(frozen=True, kw_only=True)
class MinMax:
    """Map the range seen so far to [-1, 1].

    What lies outside is clipped at ``clip``, and widens the range no further than that.

    Examples
    --------
    >>> policy = MinMax()
    >>> memory = policy.start(np.array([[0.0], [10.0]]))
    >>> scale(np.array([[5.0], [7.5], [1e9]]), policy.unit(memory), policy.clip).tolist()
    [[0.0], [0.5], [3.0]]
    """

    clip: float = 3.0

    def __post_init__(self) -> None:
        _check(1, self.clip)

    def start(self, X: Array) -> Array:
        """Return lowest and highest value of each feature."""
        known = ~np.isnan(X)
        low = np.min(X, axis=0, where=known, initial=np.inf)
        high = np.max(X, axis=0, where=known, initial=-np.inf)
        seen = low <= high
        return np.array([np.where(seen, low, 0.0), np.where(seen, high, 0.0)])

    def update(self, memory: Array, X: Array) -> Array:
        """Return the memory after more rows."""
        middle, half = self.unit(memory)
        new = middle + scale(X, (middle, half), self.clip) * half
        return np.array(
            [
                np.fmin(memory[0], np.fmin.reduce(new, axis=0)),
                np.fmax(memory[1], np.fmax.reduce(new, axis=0)),
            ]
        )

    def unit(self, memory: Array) -> tuple[Array, Array]:
        """Return the middle of the range, and half of it."""
        middle = memory[0] / 2 + memory[1] / 2
        return middle, np.maximum(memory[1] / 2 - memory[0] / 2, 1e-8 * np.abs(middle) + 1e-30)

    def hurry(self, memory: Array, count: int) -> Array:
        """Return the memory as it is: a range has no weight."""
        return memory
