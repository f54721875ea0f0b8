"""Scale raw values to about unit size, for a `Detector`, and follow the stream.

A policy is a frozen value; what it has learned is an array with one column for each feature, its
memory. NaN is a missing value: it is not learned, and scales to NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onlad.reference import Array

LEAST_SHARE, SMALLEST = 1e-8, 1e-30  # of the mean, and at all: no deviation is smaller


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
    zero, one = unit
    return np.clip((X - zero) / one, -clip, clip)


@dataclass(frozen=True, kw_only=True)
class Standard:
    """Subtract the mean and divide by the standard deviation.

    Both weigh the past like at most ``memory`` rows, so they follow a slow drift. What is
    scaled lies in [-clip, clip].
    """

    memory: int = 8192
    clip: float = 20.0

    def __post_init__(self) -> None:
        if not self.memory >= 1:
            raise ValueError(f"memory must be at least 1 row, got {self.memory!r}")
        if not 0 < self.clip < np.inf:
            raise ValueError(f"clip must be finite and above 0, got {self.clip!r}")

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
        """Return the memory after more rows; a value counts as at most ``clip`` deviations."""
        counts, means, variances = memory
        reach = np.where(variances > 0, self.clip * np.sqrt(variances), np.inf)
        count, mean, variance = self.start(np.clip(X, means - reach, means + reach))
        total = np.minimum(counts + count, self.memory)
        weight = np.minimum(count / np.maximum(total, 1), 1.0)
        shift = mean - means
        spread = variance + (1 - weight) * shift * shift
        return np.array([total, means + weight * shift, variances + weight * (spread - variances)])

    def unit(self, memory: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation; at least a hundred-millionth of the mean."""
        floor: Array = LEAST_SHARE * np.abs(memory[1]) + SMALLEST
        return memory[1], np.maximum(np.sqrt(memory[2]), floor)
