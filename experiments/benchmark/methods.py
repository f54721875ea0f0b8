"""What is compared, all behind one seam: a series in, scores, alarms and causes out.

Each method sees the rows in order and each row once. Only `told` methods know which rows are
history; the others see the same rows. Where a method cannot have missing values,
the last one stands in.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from experiments import streams
from experiments.benchmark import mahalanobis
from experiments.benchmark.scenarios import Watcher
from experiments.benchmark.series import Outcome, Series
from experiments.methods import Method as Peer
from experiments.methods import peers
from experiments.testbeds import Array
from onlad import Detector, Monitor
from onlad.verdict import Verdicts


@dataclass(frozen=True)
class Method:
    """A method by its name in the tables."""

    name: str
    watch: Callable[[Series], Outcome]
    told: bool = False
    start: Callable[[Array], Watcher] | None = None  # after a history; for the attacker

    def __call__(self, series: Series) -> Outcome:
        begun = time.perf_counter()
        found = self.watch(series)
        told = series.history if self.told else 0
        return replace(found, told=told, seconds=time.perf_counter() - begun)


def filled(X: Array) -> Array:
    """Return X with each missing value replaced by the last one, or by the first that comes."""
    missing = np.isnan(X)
    if not missing.any():
        return X
    rows = np.arange(len(X))[:, None]
    last = np.maximum.accumulate(np.where(missing, -1, rows), axis=0)
    first = np.argmin(missing, axis=0)
    source = np.where(last < 0, first, last)
    return np.asarray(np.nan_to_num(np.take_along_axis(X, source, axis=0)))


# -- onlad's own ----------------------------------------------------------------------------------


def outcome(*parts: Verdicts) -> Outcome:
    return Outcome(
        score=np.concatenate([v.score for v in parts]),
        alarm=np.concatenate([v.is_anomaly for v in parts]),
        shares=np.concatenate([v.shares for v in parts]),
        ready=np.concatenate([v.ready for v in parts]),
        drifting=np.concatenate([v.drifting for v in parts]),
    )


def monitor(series: Series) -> Outcome:
    return outcome(Monitor().observe_many(series.X, times=series.times))


def monitor_told(series: Series) -> Outcome:
    """Score the history too, with a copy of what was learned from it: VUS-PR counts all rows."""
    times = [None, None] if series.times is None else np.split(series.times, [series.history])
    history, later = np.split(series.X, [series.history])
    fitted = Monitor().fit(history, times=times[0])
    return outcome(
        copy.deepcopy(fitted).observe_many(history, times=times[0]),
        fitted.observe_many(later, times=times[1]),
    )


def _watching(history: Array) -> Watcher:
    watcher = Monitor()
    watcher.observe_many(history)
    return watcher


def _fitted(history: Array) -> Watcher:
    watcher: Watcher = Monitor().fit(history)
    return watcher


def dozen_lines(
    series: Series, mean: int, scale: str, window: int = 1, learns: bool = True
) -> Outcome:
    """Watch with a tanh autoencoder of the history, a gate, and a running mean of its errors.

    Rows without order get no mean and no window.
    """
    X, first = filled(series.X), series.history
    start = X[:first]
    if scale == "range":
        low, span, clip = start.min(axis=0), np.ptp(start, axis=0), (-5.0, 6.0)
    else:
        low, span, clip = start.mean(axis=0), start.std(axis=0), (-20.0, 20.0)
    Z = np.clip((X - low) / np.where(span > 1e-9, span, 1), *clip)
    mean, window = (mean, window) if series.ordered else (1, 1)
    Z = mahalanobis.windows(Z, window)
    detector = Detector(
        n_hidden=64,
        activation="tanh",
        weights="normal",
        forgetting=1.0,
        ridge=0.1,
        score="reconstruction",
    ).fit(Z[:first])
    scores = np.array(detector.score_many(Z))
    gate = 3 * np.quantile(scores[first // 2 : first], 0.999)
    for t in range(first, len(X)) if learns else ():
        scores[t] = detector.score_one(Z[t])
        if scores[t] <= gate:
            detector.learn_one(Z[t])
    total = np.cumsum(np.r_[np.zeros(mean), scores])
    smooth = (total[mean:] - total[:-mean]) / mean
    limit = 3 * np.quantile(smooth[first // 2 : first], 0.999)
    return Outcome(score=smooth, alarm=smooth > limit)


def plain(series: Series) -> Outcome:
    score, alarm = streams.plain(0.999, 0, filled(series.X))
    return Outcome(score=score, alarm=alarm)


# -- others ---------------------------------------------------------------------------------------


def pca(series: Series) -> Outcome:
    width = 4 if series.ordered else 1
    score, shares = mahalanobis.watch(filled(series.X), series.history, width)
    return Outcome(score=score, alarm=score > 1, shares=shares)


def _peer(build: Callable[[int], Peer], scaled: bool = False) -> Callable[..., Outcome]:
    def watch(series: Series) -> Outcome:
        X = filled(series.X)
        score, alarm = streams.peer(
            build(X.shape[1]), streams.scaled(X).astype("float64") if scaled else X
        )
        return Outcome(score=score, alarm=alarm)

    return watch


METHODS = {
    method.name: method
    for method in (
        Method("Monitor()", monitor, start=_watching),
        Method("Monitor().fit", monitor_told, told=True, start=_fitted),
        Method("dozen lines, mean of 30", lambda s: dozen_lines(s, 30, "range"), told=True),
        Method("dozen lines, mean of 10", lambda s: dozen_lines(s, 10, "deviation"), told=True),
        Method(
            "dozen lines, frozen",
            lambda s: dozen_lines(s, 60, "range", window=5, learns=False),
            told=True,
        ),
        Method("plain ONLAD", plain),
        Method("batch PCA, T² and SPE", pca, told=True),
        Method("River HalfSpaceTrees", _peer(lambda n: streams.half_space_trees(0))),
        Method("River OneClassSVM", _peer(lambda n: peers.one_class_svm({}, n, 0))),
        Method("PySAD LODA", _peer(lambda n: peers.loda({}, n, 0), scaled=True)),
        Method("PySAD KitNet", _peer(lambda n: peers.kitnet({}, n, 0))),
    )
}
OURS = ("Monitor()", "Monitor().fit")
