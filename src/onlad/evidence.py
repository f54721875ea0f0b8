"""From what the model makes of a sample to one number: how unusual it is for this stream.

One error tells too little: some features are hard to predict, a small fault hides in a large
error, and a fault that lasts may be small in each sample. So five evidences are weighed, each
the logarithm of squares in units of the feature's usual one:

0. the errors e = x - h beta, their mean square, times the distance of h from what was seen;
1. the running means of the signed errors, their mean square: a small error of one sign adds up;
2. the gaps r, the gradient of the distance, their largest square: how far a feature is from what
   the others make of it. An error is large where the data vary, a gap where they never do;
3. the running means of the signed gaps, their mean square;
4. the trend, a running mean of evidence 0 once it is standardised.

Each is standardised by centre and spread of what recent normal samples gave, and the score is
the highest: so many robust standard deviations. 0 and 2 answer at once, the others within about
1 / SMOOTHING samples. `weigh` is the definition; the kernel's ``watch`` does the same, and
learns. Each choice is measured in docs/decisions.md.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onlad import kernel
from onlad.reference import Array
from onlad.threshold import Threshold

N_EVIDENCES = 5
SMOOTHING = 0.1  # weight of the newest sample in a running mean
CAP = 1000.0  # no feature counts for more than this many times its usual square
FLOOR = 1e-9  # the least usual square: below it all is rounding
TINY = 1e-3  # what is below a thousandth of the usual is nothing
TREND = (-3.0, 6.0)  # what one sample may add to the trend
# The least spread of an evidence: on a log scale; of the trend, what its smoothing leaves of 1.
SPREAD = np.array([0.05, 0.05, 0.05, 0.05, 0.2])
RING = 2048  # recent normal samples
USUAL = 2048  # samples that a usual square weighs
FEW = 32  # samples that a median needs


class Weighed(NamedTuple):
    """What `weigh` makes of a sample."""

    score: float
    evidence: Array
    share: Array
    means: Array
    trend: float


def weigh(
    values: Array,
    distance: float,
    present: Array,
    *,
    scales: Array,
    levels: Array,
    means: Array,
    trend: float,
    distance_power: float = 1.0,
) -> Weighed:
    """Return the score of one sample, its evidences, shares, and the means and trend after it.

    ``values`` (2, n) are errors and gaps, ``means`` (2, n) their running means, ``scales``
    (2, 2, n) the inverse usual squares of values and of means, ``levels`` (2, 5) centre and
    spread of each evidence; ``present`` is False where a feature is missing.
    """
    means = np.where(present, means + SMOOTHING * (values - means), means)
    squares = np.minimum(np.array([values, means]) ** 2 * scales, CAP) * present
    mean = squares.sum(axis=-1) / max(present.sum(), 1)
    evidence = np.log(
        np.array([mean[0, 0], mean[1, 0], squares[0, 1].max(), mean[1, 1], 0.0]) + TINY
    )
    evidence[0] += distance_power * np.log(distance + TINY)
    z = (evidence - levels[0]) / levels[1]
    if not present.any():  # where nothing was seen, nothing is unusual
        z[:] = 0.0
    trend += SMOOTHING * (float(np.clip(z[0], *TREND)) - trend)
    evidence[4] = trend
    z[4] = (trend - levels[0, 4]) / levels[1, 4]
    # The gaps name the feature best; but an error beyond all measure names it too.
    share = squares[1, 1] if z[3] > z[2] else squares[0, 1]
    share = share + np.where(squares[0, 0] < CAP, 0.0, squares[0, 0])
    if share.any():
        share /= share.sum()
    return Weighed(float(z.max()), evidence, share, means, trend)


def constants(distance_power: float) -> Array:
    """Return the constants as the kernel takes them."""
    return np.array([SMOOTHING, CAP, *TREND, distance_power])


class Yardstick:
    """What is usual for this stream: squares of values, levels of evidences, recent scores."""

    def __init__(self, n_inputs: int) -> None:
        self.usual: Array = np.ones(
            (2, 2 * n_inputs)
        )  # squares of values (errors, gaps), of their means
        self.scales: Array = np.ones((2, 2 * n_inputs))
        self.weight = 0.0  # samples behind `usual`
        self.sums: Array = np.zeros((3, 2 * n_inputs))  # squares since the last tick, and how many
        self.means: Array = np.zeros((2, 2 * n_inputs))  # the second row is room for the kernel
        self.trend: Array = np.zeros(1)
        self.levels: Array = np.array([[0.0] * N_EVIDENCES, [1.0] * N_EVIDENCES])
        self.ring: Array = np.zeros((RING, N_EVIDENCES))
        self.n_ring = 0  # samples put into the ring since it was cleared
        self.n_fresh = 0  # of them, since the levels were taken
        self.scores: Array = np.zeros(1)  # of the ring when the levels were taken, sorted

    def take(self, evidence: Array) -> None:
        """Put the evidences of normal samples into the ring, and the sums into the scales."""
        at = self.n_ring % RING
        self.ring[at : at + len(evidence)] = evidence[: RING - at]
        self.ring[: max(0, at + len(evidence) - RING)] = evidence[RING - at :]
        self.n_ring += len(evidence)
        self.n_fresh += len(evidence)
        self.weight = kernel.take_sums(
            self.usual, self.scales, self.sums, self.weight, USUAL, FLOOR
        )

    def stale(self) -> bool:
        """Return whether there are enough new samples to take the levels again."""
        filled = min(self.n_ring, RING)
        return filled >= FEW and self.n_fresh >= max(FEW, filled // 16)

    def refresh(self) -> None:
        """Take the levels from the ring, and with them the recent scores."""
        recent = self.ring[: min(self.n_ring, RING)]
        levels, self.scores = np.empty_like(self.levels), np.empty(len(recent))
        kernel.take_levels(recent, self.levels, SPREAD, levels, self.scores)
        self.levels = levels
        self.scores.sort()
        self.n_fresh = 0

    def clear(self, weight: float) -> None:
        """Forget the recent samples, and let the usual squares weigh like `weight` samples."""
        self.n_ring = self.n_fresh = 0
        self.weight = min(self.weight, weight)

    def limit(self, threshold: Threshold) -> float:
        """Return the threshold for the recent scores."""
        return threshold.limit(self.scores)

    def p_values(self, score: Array) -> Array:
        """Return the share of recent normal samples that score as high, with the sample itself."""
        p = np.empty(len(score))
        kernel.p_values(self.scores, score, p)
        return p
