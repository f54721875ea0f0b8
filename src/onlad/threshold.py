"""Policies: above which score a sample is an anomaly, given the recent scores of normal ones.

A policy is a frozen value and a function of sorted scores, so it needs no state of its own and
follows the scores as they change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from onlad import kernel
from onlad.reference import Array

ROBUST = 1.4826  # median distances from the median are one standard deviation of normal values
LEAST = 0.5  # scores are in deviations already; those of a live stream spread by 0.7


class Threshold(Protocol):
    """Where the line is drawn."""

    def limit(self, scores: Array) -> float:
        """Return the threshold for recent `scores`, which are sorted and at least one."""
        ...


@dataclass(frozen=True)
class Fixed:
    """The same threshold always.

    Examples
    --------
    >>> Fixed(5.0).limit(np.array([1.0, 2.0]))
    5.0
    """

    value: float

    def __post_init__(self) -> None:
        if not np.isfinite(self.value):
            raise ValueError(f"value must be finite, got {self.value!r}")

    def limit(self, scores: Array) -> float:
        """Return the value."""
        return float(self.value)


@dataclass(frozen=True)
class Quantile:
    """The score that a share ``q`` of the recent normal samples stays below.

    Examples
    --------
    >>> Quantile(0.5).limit(np.array([1.0, 2.0, 9.0]))
    2.0
    """

    q: float = 0.999

    def __post_init__(self) -> None:
        if not 0 < self.q <= 1:
            raise ValueError(f"q must be in (0, 1], got {self.q!r}")

    def limit(self, scores: Array) -> float:
        """Return the quantile."""
        return float(np.quantile(scores, self.q))


@dataclass(frozen=True)
class Deviation:
    """``k`` robust standard deviations above the median of the recent normal samples.

    The scores of a stream at rest hardly differ; their deviation counts as at least LEAST.

    Examples
    --------
    >>> round(Deviation(2.0).limit(np.array([1.0, 2.0, 3.0])), 3)
    4.965
    """

    k: float = 6.5

    def __post_init__(self) -> None:
        if not 0 < self.k < np.inf:
            raise ValueError(f"k must be finite and above 0, got {self.k!r}")

    def limit(self, scores: Array) -> float:
        """Return median + k * spread."""
        centre = (scores[(len(scores) - 1) // 2] + scores[len(scores) // 2]) / 2  # they are sorted
        spread = ROBUST * kernel.median_distance(scores, centre)
        return float(centre + self.k * max(spread, LEAST))


@dataclass(frozen=True, kw_only=True)
class Tail:
    """The score that a normal sample exceeds with probability ``q``, however small (SPOT).

    A generalised Pareto distribution is fitted to the scores above their ``level`` quantile by
    probability-weighted moments (Hosking and Wallis) and followed beyond the largest of them.

    Examples
    --------
    >>> scores = np.sort(np.random.default_rng(0).exponential(size=2000))
    >>> bool(abs(Tail(q=1e-4).limit(scores) - np.log(1e4)) < 1.5)    # the truth: -log(q)
    True
    """

    q: float = 1e-4
    level: float = 0.98

    def __post_init__(self) -> None:
        if not 0 < self.q < 1:
            raise ValueError(f"q must be in (0, 1), got {self.q!r}")
        if not 0 < self.level < 1:
            raise ValueError(f"level must be in (0, 1), got {self.level!r}")

    def limit(self, scores: Array) -> float:
        """Return the fitted quantile."""
        n = len(scores)
        k = min(max(int(n * (1 - self.level)), 8), n - 1)
        if k < 2:
            return float(scores[-1])
        u = scores[-k - 1]
        excess = scores[-k:] - u
        b0 = float(np.mean(excess))
        b1 = float(np.mean(excess * np.arange(k - 1, -1, -1) / (k - 1)))
        if b0 <= 0:
            return float(u)
        # Heavier tails than shape 1/2 have no variance: with a few dozen excesses, noise.
        shape = float(np.clip(2 - b0 / max(b0 - 2 * b1, 1e-12 * b0), -0.5, 0.5))
        scale = b0 * (1 - shape)
        ratio = self.q * n / k
        if ratio >= 1:
            return float(u)
        if abs(shape) < 1e-6:
            return float(u - scale * np.log(ratio))
        return float(u + scale / shape * (ratio**-shape - 1))
