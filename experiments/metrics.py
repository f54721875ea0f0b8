"""How good scores and alarms are: AUC, precision and recall, delays, false alarms, intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata, wilcoxon
from scipy.stats import t as student

from experiments.testbeds import Array


def _checked(y: Array, score: Array) -> int:
    positive = int(np.sum(y))
    if not 0 < positive < len(y):
        raise ValueError(f"{positive} of {len(y)} rows are anomalous: no AUC")
    if not np.all(np.isfinite(score)):
        raise ValueError(f"score {int(np.argmin(np.isfinite(score)))} is not a finite number")
    return positive


def auc(y: Array, score: Array) -> float:
    """Return the area under the ROC curve; equal scores count half."""
    positive = _checked(y, score)
    ranks = rankdata(np.asarray(score, "float64"))  # of float32 it may make float32 ranks
    below = ranks[np.asarray(y, bool)].sum() - positive * (positive + 1) / 2
    return float(below / (positive * (len(y) - positive)))


def auc_pr(y: Array, score: Array) -> float:
    """Return the area under precision over recall, as average precision."""
    from sklearn.metrics import average_precision_score  # noqa: PLC0415  (slow to load)

    _checked(y, score)
    return float(average_precision_score(y, score))


class Mean(NamedTuple):
    """A mean over trials and half of its 95 % interval (Student's t)."""

    mean: float
    half: float
    n: int


def mean(values: Sequence[float]) -> Mean:
    """Return the mean of trials with its 95 % interval."""
    n = len(values)
    if n == 1:
        return Mean(float(values[0]), float("nan"), 1)
    half = student.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n)
    return Mean(float(np.mean(values)), float(half), n)


class Paired(NamedTuple):
    """A mean of differences, half of its 95 % interval, and p of Wilcoxon's signed-rank test."""

    mean: float
    half: float
    n: int
    p: float


def paired(differences: Sequence[float]) -> Paired:
    """Return the mean of paired differences, with its interval and its test."""
    p = float(wilcoxon(differences).pvalue) if np.any(differences) else 1.0
    return Paired(*mean(differences), p)


def intervals(flags: Array, gap: int = 0) -> list[tuple[int, int]]:
    """Return [start, stop) of the runs of True; runs less than `gap` apart are one."""
    edges = np.flatnonzero(np.diff(np.r_[0, flags.astype(int), 0]))
    runs: list[tuple[int, int]] = []
    for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        if runs and start - runs[-1][1] < gap:
            runs[-1] = (runs[-1][0], stop)
        else:
            runs.append((start, stop))
    return runs


def delays(y: Array, alarms: Array) -> tuple[int, list[int]]:
    """Return the number of faults, and for each fault that was found the rows until its alarm."""
    faults = intervals(y == 1)
    hits = [np.flatnonzero(alarms[start:stop]) for start, stop in faults]
    return len(faults), [int(hit[0]) for hit in hits if len(hit)]


def false_alarms(y: Array, alarms: Array) -> int:
    """Return how often an alarm was raised without a fault; alarms within ten rows are one."""
    return len(intervals(alarms & (y == 0), gap=10))
