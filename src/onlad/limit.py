"""`Limit`: from which score a row is an anomaly, so that false alarms stay within a budget.

Two parts make it. The tail of recent normal scores is fitted: a generalised Pareto distribution of
the roots of the scores. Normal rows exceed its edge with the probability at which a false alarm
may begin. High scores come in clusters, and a cluster is one alarm. So the limit lies below the
edge, by as much as clusters have rows (the extremal index of extreme value statistics). And a
factor follows the alarms themselves, as in adaptive conformal prediction: each weak episode raises
it, each row lowers it by as much as the budget allows. So the rate of false alarms comes down to
the budget whatever the distribution is. An episode that is strong does not raise it: that is a
fault. An alarm that has lasted for hundreds of rows is shelved, and comes back if scores rise. A
single row needs a score of SINGLE limits: in heavy tails most false alarms are single rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from onlad import fields, kernel
from onlad.fields import Numbers, Within
from onlad.modelfile import need
from onlad.reference import Array

LEAST = 0.1  # of a limit: 1 is twice as far out as the 0.999 quantile of the start
RECENT = 2_048  # normal scores
FRESH = 16  # the limit is fitted again when a share of 1 / FRESH of them is new
TAIL = 0.02  # share of the scores that is fitted
FEWEST = 8  # of them, if there are so few
LEAST_SPREAD = 1e-12  # of a tail, in units of its mean: scores may all be equal
EXPONENTIAL, HEAVIEST = 1e-6, 0.5  # shapes of a tail: below the first it is exponential
HIGH = 0.999  # quantile of the scores
FARTHEST = 1.4  # a fitted tail is followed at most so far beyond that quantile, in roots:
# less than the root of 2, since rows are refused at half the limit, and it must not raise itself
STEP = 0.3  # by which an episode raises the logarithm of the factor
LASTING = 512  # refused rows of an episode after which its alarm is shelved
TOLD = 128  # if at least this number of them were in alarm
HIGHEST = 4.0  # of that logarithm
GAP = 10  # usual rows end an episode of refused ones
SHORT = 4  # an episode of fewer refused rows is short
SINGLE = 1.25  # limits that a row has to exceed if the row before it did not exceed one
WEAK, STRONG = 2.0, 8.0  # peaks, in limits: what is weak raises the limit; if short, up to strong
YOUNG = 2_048.0  # rows learned at which a score counts for half
LARGEST_RECENT = 1e8  # the root of a score in a file


@dataclass(frozen=True, slots=True, eq=False)
class LimitState:
    """What the limit of a stream comes from."""

    recent: Annotated[Array, Numbers((range(1, RECENT + 1),), "float32", 0, LARGEST_RECENT)]
    fresh: Annotated[Array, Numbers((range(RECENT + 1),), "float32", 0, LARGEST_RECENT)]
    factor: Annotated[float, Within(0, HIGHEST)]
    episode: Annotated[Array, Numbers((4,), high=kernel.LARGEST["float64"])]

    def check(self) -> None:
        """Refuse, with `ValueError`, what no limit could have."""
        fields.check(self)
        since, rows, peak, alarms = self.episode.tolist()
        none = (since, rows, peak, alarms) == (-1, 0, 0, 0)
        some = 0 <= since <= GAP and rows >= 1 and peak > 0 and 0 <= alarms <= rows
        need(none or some, "episode must be of refused rows, or -1, 0, 0, 0")


class Limit:
    """The limit of a stream, with the recent normal scores and what its alarms did to it."""

    def __init__(self, rate: float, scores: Array) -> None:
        self.rate = rate
        self.recent: Array = np.sqrt(scores[-RECENT:]).astype("float32")  # roots, the newest last
        self.fresh: Array = self.recent[:0]  # more of them, not yet looked at
        self.factor = 0.0  # logarithm
        # Rows since its last, its rows, its peak, its rows in alarm.
        self.episode = np.array([-1.0, 0.0, 0.0, 0.0])
        self._refresh()

    def _refresh(self) -> None:
        self.sorted: Array = np.sort(self.recent.astype("float64"))
        self.edge = max(LEAST, tail(self.recent, self.rate, clustered=False) ** 2)
        self.base = max(LEAST, tail(self.recent, self.rate, clustered=True) ** 2)

    def allow(self, rate: float) -> None:
        """Change the share of rows that may be false alarms."""
        self.rate = rate
        self._refresh()

    def value(self, learned: int) -> float:
        """Return the limit of a stream that has learned this number of rows."""
        return float(self.base * np.exp(self.factor) * doubt(learned))

    def lasts(self) -> bool:
        """Return whether rows have been refused for long."""
        return bool(self.episode[0] >= 0 and self.episode[1] >= LASTING)

    def shelved(self) -> bool:
        """Return whether the alarm has gone on for so long that it is shelved."""
        return self.lasts() and bool(self.episode[3] >= TOLD)

    def take(self, scores: Array, most: float) -> None:
        """Put scores of normal rows among the recent ones; none counts for more than `most`."""
        roots = np.sqrt(np.minimum(scores, most)).astype("float32")
        self.fresh = np.concatenate((self.fresh, roots))
        if FRESH * len(self.fresh) >= len(self.recent):
            self.recent = np.concatenate((self.recent, self.fresh))[-RECENT:]
            self.fresh = self.fresh[:0]
            self._refresh()

    def follow(self, ratio: Array, refused: Array) -> None:
        """Let the factor follow rows with these scores, in units of the limit."""
        self.factor = max(0.0, self.factor - STEP * self.rate * len(ratio))
        since, rows, peak, alarms = self.episode
        if since < 0 and not refused.any():
            return
        for value, unusual in zip(ratio.tolist(), refused.tolist(), strict=True):
            if unusual:
                since, rows, peak, alarms = 0.0, rows + 1, max(peak, value), alarms + (value > 1)
            elif since >= 0:
                since += 1
                if since > GAP:
                    if 1 < peak < (STRONG if rows < SHORT else WEAK):
                        self.factor = min(self.factor + STEP, HIGHEST)
                    since, rows, peak, alarms = -1.0, 0.0, 0.0, 0.0
        self.episode = np.array([since, rows, peak, alarms])

    def p_values(self, scores: Array) -> Array:
        """Return the share of recent normal rows that score as high, with the row itself."""
        rank = np.searchsorted(self.sorted, np.sqrt(scores))
        return (1 + len(self.sorted) - rank) / (1 + len(self.sorted))

    def learned(self) -> LimitState:
        """Return all that follows the stream."""
        return LimitState(self.recent.copy(), self.fresh.copy(), self.factor, self.episode.copy())

    def resume(self, state: LimitState) -> Limit:
        """Take over what `learned` returned."""
        self.recent, self.fresh = state.recent.copy(), state.fresh.copy()
        self.factor, self.episode = state.factor, state.episode.copy()
        self._refresh()
        return self


def doubt(learned: int) -> float:
    """Return by what scores are divided when they are reported.

    A model that has learned little is often wrong, so that its scores are less evidence.

    Examples
    --------
    >>> doubt(256), doubt(2_048), doubt(20_480)
    (9.0, 2.0, 1.1)
    """
    return 1 + YOUNG / max(learned, 1)


def tail(recent: Array, rate: float, *, clustered: bool) -> float:
    """Return the root that a normal row exceeds with probability `rate`.

    If `clustered`, it is the probability that a cluster of rows begins to exceed it. `recent` are
    roots in the order of their rows. A generalised Pareto distribution is fitted to the largest by
    probability-weighted moments (Hosking and Wallis). Clusters of these are counted (the runs
    estimator of the extremal index).

    Examples
    --------
    >>> roots = np.random.default_rng(0).exponential(size=2000)
    >>> bool(abs(tail(roots, 1e-4, clustered=False) - np.log(1e4)) < 2)    # the truth: -log(rate)
    True
    >>> slow = np.repeat(roots[:200], 10)
    >>> tail(slow, 1e-4, clustered=True) < tail(slow, 1e-4, clustered=False)
    True
    """
    n = len(recent)
    roots = np.sort(recent.astype("float64"))
    k = min(max(int(n * TAIL), FEWEST), n - 1)
    if k < 2:
        return float(roots[-1])
    u = float(roots[-k - 1])
    excess = roots[-k:] - u
    b0, b1 = float(np.mean(excess)), float(np.mean(excess * np.arange(k - 1, -1, -1)) / (k - 1))
    high = np.flatnonzero(recent > u)
    clusters = 1 + np.count_nonzero(np.diff(high) > GAP + 1)
    ratio = rate * n / (clusters if clustered else k)
    if b0 <= 0 or ratio >= 1:
        return u
    shape = float(np.clip(2 - b0 / max(b0 - 2 * b1, LEAST_SPREAD * b0), 0.0, HEAVIEST))
    scale = b0 * (1 - shape)
    far = -np.log(ratio) if shape < EXPONENTIAL else (ratio**-shape - 1) / shape
    return float(min(u + scale * far, FARTHEST * roots[min(n - 1, int(HIGH * n))]))
