"""From alarms to precision, recall and delay, counted by episode.

Alarms less than `JOIN` samples apart are one episode. An episode is true if one of its alarms lies
in a fault or in the `GRACE` samples after it, in which a good detector may still report the fault.
Otherwise it is a false alarm. A fault is found if a true episode belongs to it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from onlad.demo.machine import Fault
from onlad.reference import Array
from onlad.report.evaluation import ratio
from onlad.verdict import Verdict

JOIN = 25
GRACE = 20


class Episode(NamedTuple):
    """Alarms close together: their times, and score, threshold and causes of the strongest.

    Causes stand in the order of a verdict, the largest first.
    """

    times: tuple[int, ...]
    score: float
    threshold: float
    causes: dict[Hashable, float]


class Episodes:
    """Joins the alarms of a running stream."""

    def __init__(self) -> None:
        self._open: Episode | None = None

    def add(self, t: int, verdict: Verdict) -> Episode | None:
        """Take the verdict on sample `t`, and return the episode that is over by now, if any."""
        over = None
        if self._open and t - self._open.times[-1] >= JOIN:
            over, self._open = self._open, None
        if verdict.is_anomaly:
            alarm = Episode((t,), verdict.score, verdict.threshold, verdict.causes)
            known = self._open or alarm._replace(times=())
            strongest = max(alarm, known, key=lambda each: each.score - each.threshold)
            self._open = strongest._replace(times=(*known.times, t))
        return over

    def close(self) -> Episode | None:
        """Return the episode that is under way, if any: the stream has ended."""
        over, self._open = self._open, None
        return over


class Watched(NamedTuple):
    """Result of the run: a score and a threshold per sample (NaN until ready), and alarms."""

    scores: Array
    thresholds: Array
    episodes: list[Episode]
    seconds: float


class Tally(NamedTuple):
    """How many faults were found, and how many episodes were true.

    A ratio of 0 to 0 is NaN, and so is the median of no delays.
    """

    faults: int
    found: int
    episodes: int
    true_episodes: int
    named: int  # found faults whose sensor is the top cause
    delays: tuple[int, ...]  # samples from the start of a found fault to its first alarm
    precision: float  # true episodes of all
    recall: float  # found faults of all
    naming: float  # named faults of those found
    median_delay: float


def first_alarm(episode: Episode, fault: Fault) -> int | None:
    """Return the first alarm in the fault or in the `GRACE` samples after it, or None."""
    return next((t for t in episode.times if fault.start <= t < fault.stop + GRACE), None)


def fault_of(episode: Episode, faults: Sequence[Fault]) -> Fault | None:
    """Return the first fault that the episode is about, or None for a false alarm."""
    return next((fault for fault in faults if first_alarm(episode, fault) is not None), None)


def tally(episodes: Sequence[Episode], faults: Sequence[Fault]) -> Tally:
    """Count episodes and faults."""
    named, delays = 0, list[int]()
    for fault in faults:
        about = [(each, t) for each in episodes if (t := first_alarm(each, fault)) is not None]
        if about:
            episode, alarm = about[0]
            named += next(iter(episode.causes), None) == fault.sensor
            delays.append(alarm - fault.start)
    found, true = len(delays), sum(fault_of(each, faults) is not None for each in episodes)
    return Tally(
        len(faults), found, len(episodes), true, named, tuple(delays),
        precision=ratio(true, len(episodes)), recall=ratio(found, len(faults)),
        naming=ratio(named, found), median_delay=float(np.median(delays)) if delays else math.nan,
    )  # fmt: skip
