"""Compare verdicts with labels.

Each sample counts for AUC, AUC-PR, precision and recall. An event is a run of samples with an
anomalous label: it is found if one of them is an alarm, and the delay is the number of samples
before the first. A false alarm is a run of alarms on samples that no label marks. An incident, as
`onlad.incident` has it, is right if one of its alarms is.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from onlad.incident import close
from onlad.reference import Array
from onlad.streams.block import MISSING, StreamError

NORMAL = ("0", "false", "f", "no", "n", "normal", "ok", "good", "inlier", "benign")
ANOMALOUS = ("1", "true", "t", "yes", "y", "anomaly", "anomalous", "abnormal", "outlier", "fault")


def is_anomalous(label: str, normal: str | None = None) -> bool | None:
    """Return what a label says, None if there is none; `normal` is the label of normal samples.

    Examples
    --------
    >>> is_anomalous("0.0"), is_anomalous("Anomaly"), is_anomalous("smurf", normal="normal.")
    (False, True, True)
    """
    word = label.strip().lower()
    if word in MISSING:
        return None
    if normal is not None:
        return label != normal
    with contextlib.suppress(ValueError):  # 0.0 and 1.00 too
        word = str(int(float(word))) if float(word) in (0.0, 1.0) else word
    if word in NORMAL or word in ANOMALOUS:
        return word in ANOMALOUS
    raise StreamError(
        f"label {label!r} says neither normal nor anomalous. --normal VALUE names the normal one"
    )


def truths(labels: Sequence[str], normal: str | None = None) -> tuple[Array, Array]:
    """Return which samples have a label, and which of them an anomalous one."""
    truth_of: dict[str, bool | None] = {}
    for label in labels:
        if label not in truth_of:
            truth_of[label] = is_anomalous(label, normal)
    known = np.array([truth_of[label] is not None for label in labels], bool)
    return known, np.array([bool(truth_of[label]) for label in labels], bool)


@dataclass(frozen=True)
class Report:
    """The result of `evaluate`. A number is NaN if there was nothing to count."""

    samples: int
    anomalous: int
    alarms: int
    auc: float
    auc_pr: float
    precision: float
    recall: float
    events: int
    found: int
    delay: float
    false_alarms: int
    incidents: int
    right_incidents: int

    def as_dict(self) -> dict[str, float | None]:
        """Return the numbers by name, None for NaN."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: None if math.isnan(value) else value for name, value in found.items()}


def evaluate(score: Array, alarm: Array, truth: Array) -> Report:
    """Compare scores and alarms with the truth, one entry per sample.

    Examples
    --------
    >>> score = np.array([0.1, 0.2, 3.0, 2.0, 0.3])
    >>> report = evaluate(score, score > 2.5, np.array([False, False, True, True, False]))
    >>> report.auc, report.precision, report.recall, report.found, report.delay
    (1.0, 1.0, 0.5, 1, 0.0)
    """
    hits = int(np.count_nonzero(alarm & truth))
    found = close(np.flatnonzero(alarm))
    starts, stops = runs(truth)
    delays = [
        int(np.argmax(alarm[start:stop]))
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
        if alarm[start:stop].any()
    ]
    return Report(
        samples=len(truth),
        anomalous=int(np.count_nonzero(truth)),
        alarms=int(np.count_nonzero(alarm)),
        auc=auc(score, truth),
        auc_pr=average_precision(score, truth),
        precision=ratio(hits, int(np.count_nonzero(alarm))),
        recall=ratio(hits, int(np.count_nonzero(truth))),
        events=len(starts),
        found=len(delays),
        delay=float(np.median(delays)) if delays else math.nan,
        false_alarms=len(runs(alarm & ~truth)[0]),
        incidents=len(found),
        right_incidents=sum(bool(truth[part].any()) for part in found),
    )


def runs(mask: Array) -> tuple[Array, Array]:
    """Return start and stop of each run of True."""
    edges = np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8))
    return np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)


def auc(score: Array, truth: Array) -> float:
    """Return the chance that an anomalous sample scores above a normal one; ties count half."""
    positive, negative = int(np.count_nonzero(truth)), int(np.count_nonzero(~truth))
    if not positive or not negative:
        return math.nan
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    above = float(rank[truth].sum()) - positive * (positive + 1) / 2
    return above / (positive * negative)


def average_precision(score: Array, truth: Array) -> float:
    """Return the mean precision at each anomalous sample; samples of one score come together."""
    if not truth.any():
        return math.nan
    order = np.argsort(-score, kind="stable")
    ordered = score[order]
    hits = np.cumsum(truth[order])
    last = np.append(np.flatnonzero(np.diff(ordered)), len(ordered) - 1)  # of each score
    precision = hits[last] / (last + 1)
    recall = hits[last] / hits[-1]
    return float(np.sum(np.diff(recall, prepend=0.0) * precision))


def ratio(part: int, whole: int) -> float:
    """Return a share; NaN if there is nothing to count."""
    return part / whole if whole else math.nan
