"""How good a method's scores, alarms and causes are on one series."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np

from experiments import metrics
from experiments.benchmark.series import Outcome, Range, Series
from experiments.records import Record
from experiments.testbeds import Array

GAP = 10  # alarms fewer rows apart than this are one episode
GRACE = 10  # rows before and after a fault in which an alarm is due to it


@lru_cache
def _tsb_ad(path: str) -> ModuleType:
    """Return a module of TSB-AD without its package, which imports gigabytes."""
    found = importlib.util.find_spec("TSB_AD")
    if found is None or found.origin is None:
        raise SystemExit("VUS-PR needs TSB-AD: run make benchmark, which installs it")
    file = Path(found.origin).parent / f"{path}.py"
    spec = importlib.util.spec_from_file_location(path.replace("/", "_"), file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def vus_pr(X: Array, y: Array, score: Array) -> float:
    """Return the volume under the precision-recall surface, by TSB-AD's own code."""
    curves = _tsb_ad("evaluation/basic_metrics")
    return float(curves.generate_curve(y, scaled(score), buffer(X), "opt", 250)[7])


def scaled(score: Array) -> Array:
    """Return scores in [0, 1]."""
    return np.asarray((score - score.min()) / (np.ptp(score) + 1e-12))


def buffer(X: Array) -> int:
    """Return the longest buffer around a fault that TSB-AD takes for a series."""
    return int(_tsb_ad("utils/slidingWindows").find_length_rank(X[:, :1], rank=1))


class Alarms(NamedTuple):
    """Which faults were found, and what else was in alarm."""

    delays: list[int | None]  # rows from the start of each fault to its alarm; None: not found
    false: int  # episodes that no fault explains
    share: float  # of the normal rows, in alarm


def alarms(y: Array, alarm: Array, ordered: bool = True) -> Alarms:
    """Return what alarms are worth.

    An episode belongs to a fault if it begins in it or at most ten rows before or after it. Each
    other episode is false, whatever it covers: an alarm that never ends finds nothing. Without
    order each row stands for itself.
    """
    normal = y == 0
    share = float(np.mean(alarm[normal])) if normal.any() else 0.0
    if not ordered:
        hits = [0 if hit else None for hit in alarm[~normal]]
        return Alarms(hits, int(np.sum(alarm[normal])), share)
    faults = metrics.intervals(~normal)
    episodes = metrics.intervals(alarm, gap=GAP)
    delays: list[int | None] = []
    explained: set[Range] = set()
    for start, stop in faults:
        mine = [e for e in episodes if start - GRACE <= e[0] < stop + GRACE]
        explained.update(mine)
        delays.append(max(0, mine[0][0] - start) if mine else None)
    return Alarms(delays, len(episodes) - len(explained), share)


def right_causes(series: Series, outcome: Outcome) -> list[bool | None]:
    """Return whether the first feature named was a cause, for each fault with known causes.

    The shares of all rows in alarm count, up to ten rows after the fault. None: no alarm.
    """
    assert outcome.alarm is not None
    assert outcome.shares is not None
    right: list[bool | None] = []
    for (start, stop), features in series.causes.items():
        rows = slice(start, stop + GRACE)
        total = np.nan_to_num(outcome.shares[rows][outcome.alarm[rows]]).sum(axis=0)
        right.append(int(np.argmax(total)) in features if total.any() else None)
    return right


def noticed(series: Series, outcome: Outcome) -> int | None:
    """Return how many rows of the first fault pass until its sensor is named, or None.

    It is named by an alarm of which it is the first cause, or as drifting.
    """
    (start, stop), features = next(iter(series.causes.items()))
    named = np.zeros(stop - start, bool)
    if outcome.alarm is not None and outcome.shares is not None:
        first = np.argmax(np.nan_to_num(outcome.shares[start:stop]), axis=1)
        named |= outcome.alarm[start:stop] & np.isin(first, features)
    if outcome.drifting is not None:
        named |= np.isin(outcome.drifting[start:stop], features)
    return int(np.argmax(named)) if named.any() else None


def shares(flags: Array, ranges: Sequence[Range]) -> float:
    """Return the share of the rows in these ranges that are True."""
    return float(np.mean(np.concatenate([flags[start:stop] for start, stop in ranges])))


def measure(series: Series, outcome: Outcome) -> Record:
    """Return all that can be said of a method on a series, rounded.

    A history that the method was given does not count, but for VUS-PR, which is of all rows.
    """
    rows = len(series.X)
    for name in ("score", "alarm", "ready", "drifting", "shares"):
        column = getattr(outcome, name)
        if column is not None and len(column) != rows:
            raise ValueError(f"{name} has {len(column)} rows, {series.name} has {rows}")
    counted = slice(max(series.first, outcome.told), None)
    y, score = series.y[counted], outcome.score[counted]
    found: Record = {"rows": rows, "features": series.X.shape[1]}
    if 0 < y.sum() < len(y):
        found["anomalous"] = round(float(np.mean(y)), 5)
        found["auc"] = round(metrics.auc(y, score), 5)
        found["average_precision"] = round(metrics.auc_pr(y, score), 5)
    if series.collection == "tsb_ad_m":
        found["vus_pr"] = round(vus_pr(series.X, series.y, outcome.score), 5)
    if outcome.ready is not None:
        found["not_ready"] = round(float(1 - np.mean(outcome.ready[counted])), 5)
    if outcome.drifting is not None:
        found["drifting"] = round(float(np.mean(outcome.drifting[counted] >= 0)), 5)
    if outcome.alarm is not None:
        found |= _of_alarms(series, outcome, outcome.alarm, counted)
    return found


def _of_alarms(series: Series, outcome: Outcome, alarm: Array, counted: slice) -> Record:
    y = series.y[counted]
    all_of = alarms(y, alarm[counted], series.ordered)
    found_delays = [delay for delay in all_of.delays if delay is not None]
    found: Record = {
        "normal_rows": int(np.sum(y == 0)),
        "false_episodes": all_of.false,
        "alarm_share": round(all_of.share, 5),
    }
    if all_of.delays:
        found |= {"faults": len(all_of.delays), "found": len(found_delays)}
    if found_delays and series.ordered:
        found["median_delay"] = float(np.median(found_delays))
    if series.collection in ("machines", "plants"):  # which kinds are found
        found["delays"] = all_of.delays
    if series.marks:
        found["marks"] = {k: round(shares(alarm, r), 5) for k, r in series.marks.items()}
    if series.causes and outcome.shares is not None:
        found["right_causes"] = right_causes(series, outcome)
        found["noticed"] = noticed(series, outcome)
    return found
