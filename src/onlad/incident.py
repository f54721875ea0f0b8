"""Incidents: anomalies that are close in time, as one event that a person can act on.

An incident begins with an anomaly and ends after QUIET samples without one. Its values, bands and
directions are those of its peak, the sample of the highest severity. Incidents whose causes have
nearly the same shares are called similar.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from onlad.reference import Array
from onlad.verdict import Verdicts, causes

QUIET = 64  # samples without an anomaly end an incident
ALIKE = 0.9  # least cosine between the cause shares of similar incidents
REMEMBERED = 256  # incidents of the past that new ones are compared with
TOGETHER = 60.0  # seconds within which devices that fail together begin


@dataclass(frozen=True)
class Incident:
    """Anomalies close in time.

    Attributes
    ----------
    number
        Counts the incidents of a stream, from 1.
    begin, end, peak
        The first, the last and the most severe anomaly, by their number in the stream.
    times
        The times of these three, or None.
    anomalies
        How many samples were anomalies.
    severity, score, threshold
        Of the peak.
    causes
        Mean share of each feature, the largest first.
    direction, value, expected, low, high
        Of the features, at the peak.
    similar
        Numbers of past incidents that are similar to this one, the most similar first.
    label
        The label that a person gave it, or the most similar labelled one.
    devices
        The devices that it occurred on.
    """

    number: int
    begin: int
    end: int
    peak: int
    times: tuple[Any, Any, Any]
    anomalies: int
    severity: float
    score: float
    threshold: float
    causes: dict[Hashable, float]
    direction: dict[Hashable, str]
    value: dict[Hashable, float]
    expected: dict[Hashable, float]
    low: dict[Hashable, float]
    high: dict[Hashable, float]
    similar: tuple[int, ...] = ()
    label: str | None = None
    devices: tuple[str, ...] = ()


@dataclass
class _Past:
    number: int
    shares: Array
    label: str | None = None


@dataclass
class Incidents:
    """Makes incidents of the verdicts on one stream, block by block.

    Examples
    --------
    >>> import numpy as np
    >>> from onlad import Monitor
    >>> X = np.random.default_rng(0).normal(size=(2000, 3))
    >>> X[1500:1520, 1] += 20
    >>> incidents = Incidents()
    >>> (found,) = incidents.add(Monitor().observe_many(X)) + incidents.finish()
    >>> found.begin, next(iter(found.causes)), found.direction[1]
    (1500, 1, 'above')
    """

    device: str = ""
    open: Incident | None = None
    count: int = 0
    _seen: int = 0
    _last: int = 0  # anomaly, among the samples seen
    _shares: Array = field(default_factory=lambda: np.empty(0))
    _past: deque[_Past] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def add(
        self, verdicts: Verdicts, rows: Array | None = None, times: Sequence[Any] | None = None
    ) -> list[Incident]:
        """Take verdicts in order; return the incidents that ended.

        `rows` are what the samples are called, by default 0, 1, 2 ... over all calls. The incident
        that goes on is ``open``.
        """
        first = self._seen
        self._seen += len(verdicts)
        number = np.arange(first, self._seen) if rows is None else rows
        ended = []
        for part in close(np.flatnonzero(verdicts.is_anomaly)):
            if first + part[0] - self._last > QUIET:
                ended += self.finish()
            self._take(verdicts, part, number, times)
            self._last = first + int(part[-1])
        if self._seen - 1 - self._last > QUIET:
            ended += self.finish()
        return ended

    def finish(self) -> list[Incident]:
        """End the incident that is open; return it."""
        ended = self.open
        if ended is None:
            return []
        self._past.append(_Past(ended.number, self._shares, ended.label))
        self.open = None
        return [ended]

    def label(self, number: int, label: str | None) -> None:
        """Remember what a person called an incident; the next one like it is called so."""
        for past in self._past:
            if past.number == number:
                past.label = label
        if self.open and self.open.number == number:
            self.open = replace(self.open, label=label)

    def _take(
        self,
        verdicts: Verdicts,
        part: Array,
        number: Array,
        times: Sequence[Any] | None,
    ) -> None:
        shares = verdicts.shares[part].sum(axis=0)
        severities = [verdicts[i].severity for i in part.tolist()]
        worst = max(severities)
        top = int(part[severities.index(worst)])
        first, last = int(part[0]), int(part[-1])
        when = [None if times is None else times[i] for i in (first, last, top)]
        told, before = verdicts[top], self.open
        if before is None:
            self.count += 1
            self._shares = shares
        else:
            later = len(shares) - len(self._shares)  # features that came later
            self._shares = np.pad(self._shares, (0, later)) + shares
        if before is None or worst > before.severity:
            around = told.around
            now = Incident(
                number=self.count, begin=int(number[first]), end=0, peak=int(number[top]),
                times=(when[0], None, when[2]), anomalies=0,
                severity=worst, score=told.score,
                threshold=told.threshold, causes={}, direction=told.direction,
                value=around.named(around.values), expected=told.expected, low=told.low,
                high=told.high, devices=(self.device,) if self.device else (),
            )  # fmt: skip
            if before is not None:
                now = replace(now, begin=before.begin, times=(before.times[0], None, when[2]))
        else:
            now = before
        alike = self._alike()
        self.open = replace(
            now,
            end=int(number[last]),
            times=(now.times[0], when[1], now.times[2]),
            anomalies=(before.anomalies if before else 0) + len(part),
            causes=causes(verdicts.names, self._shares / max(self._shares.sum(), 1e-300)),
            similar=tuple(past.number for past in alike),
            label=(before and before.label) or next((p.label for p in alike if p.label), None),
        )

    def _alike(self) -> list[_Past]:
        """Return the similar incidents of the past, the most similar first."""
        found = []
        names = range(len(self._shares))
        own = dict(zip(names, self._shares.tolist(), strict=True))
        for past in self._past:
            near = cosine(own, dict(enumerate(past.shares.tolist())))
            if near >= ALIKE:
                found.append((near, past))
        return [past for _, past in sorted(found, key=lambda each: -each[0])]


def cosine(one: Mapping[Any, float], other: Mapping[Any, float]) -> float:
    """Return the cosine between shares by name: 1 if they are in proportion, 0 if none is in both.

    Examples
    --------
    >>> cosine({"flow": 0.8, "power": 0.2}, {"flow": 0.4, "power": 0.1}), cosine({"a": 1}, {"b": 1})
    (1.0, 0.0)
    """
    product = sum(share * other.get(name, 0.0) for name, share in one.items())
    size = math.hypot(*one.values()) * math.hypot(*other.values())
    return round(product / size, 12) if size else 0.0


def close(at: Array) -> list[Array]:
    """Return the anomalies `at` in parts that are more than QUIET samples from each other.

    Examples
    --------
    >>> [part.tolist() for part in close(np.array([3, 5, 300]))]
    [[3, 5], [300]]
    """
    if not len(at):
        return []
    return np.split(at, np.flatnonzero(np.diff(at) > QUIET) + 1)


def together(begins: Sequence[float]) -> list[slice]:
    """Return the parts of sorted times, in seconds, that lie within a minute of their first.

    Incidents of different devices that began so are reported as one.

    Examples
    --------
    >>> together([0.0, 30.0, 61.0, 500.0])
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    firsts: list[int] = []
    for i, begin in enumerate(begins):
        if not firsts or begin - begins[firsts[-1]] > TOGETHER:
            firsts.append(i)
    return [slice(a, b) for a, b in pairwise([*firsts, len(begins)])]
