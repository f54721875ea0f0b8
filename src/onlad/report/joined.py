"""Incidents of a run over one or many series, as they are reported."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace

from onlad.errors import OnladError
from onlad.incident import TOGETHER, Incident, Incidents
from onlad.rules import Budget, Rules
from onlad.streams.block import Block, Time
from onlad.streams.times import seconds_or_nan
from onlad.verdict import Verdicts

NONE = Rules()


@dataclass
class Joined:
    """Incidents of one or more series that began within a minute, and are reported as one."""

    number: int
    begin: float  # in seconds; NaN if there are no times
    allowed: bool = False  # by the budget of alarms
    is_shown: bool = False  # its begin was reported
    parts: dict[str, Incident] = field(default_factory=dict)  # by series, in order of their begin
    ongoing: set[str] = field(default_factory=set)  # series in which it has not ended

    def takes(self, series: str, begin: float) -> bool:
        """Return whether an incident of a series that begins now is a part of it."""
        return series not in self.parts and abs(begin - self.begin) <= TOGETHER

    @property
    def series(self) -> str:
        """The series of the most severe part."""
        return max(self.parts, key=lambda name: self.parts[name].severity)

    @property
    def whole(self) -> Incident:
        """The most severe part, with the devices, the times and the anomalies of all."""
        parts, worst = list(self.parts.values()), self.parts[self.series]
        last = max(parts, key=lambda each: seconds_or_nan(each.times[1]))
        return replace(
            worst,
            number=self.number,
            times=(parts[0].times[0], last.times[1], worst.times[2]),
            anomalies=sum(each.anomalies for each in parts),
            devices=tuple(filter(None, self.parts)),
        )


class Joiner:
    """Joins incidents of different series that begin within a minute, within a budget of rules.

    Those of several series that are not `live` are joined at the end of the run: a file may have
    one series after the other.
    """

    def __init__(self, rules: Rules = NONE, *, live: bool = False) -> None:
        self._rules, self._live = rules, live
        self._series: dict[str, tuple[Incidents, Budget]] = {}
        self._open: list[Joined] = []
        self._later: list[tuple[float, str, Incident]] = []  # of a file with several series
        self._numbers: dict[tuple[str, int], int] = {}  # by series and number in it
        self._now = -math.inf  # the newest time
        self.count = self.suppressed = 0

    def add(self, block: Block, verdicts: Verdicts) -> list[Joined]:
        """Take a block; return what has ended. What has not is in `begun`."""
        name = block.series
        if name not in self._series:
            self._series[name] = (Incidents(name), Budget(self._rules.incidents_per_day))
        own, _ = self._series[name]
        ended = own.add(verdicts, block.row, block.times)
        if name and not self._live:
            self._later += [(self._begin(each), name, each) for each in ended]
            return []
        if name:
            last = None if block.times is None else block.times[-1]
            self._now = max(self._now, self._clock(last))
        for each in ended:
            self._take(name, each, self._begin(each), ongoing=False)
        if own.open:
            self._take(name, own.open, self._begin(own.open), ongoing=True)
        return self._ended(self._now - TOGETHER)

    def begun(self) -> list[Joined]:
        """Return what has not ended and was not returned before, if the budget allows it."""
        new = [each for each in self._open if each.ongoing and each.allowed and not each.is_shown]
        for each in new:
            each.is_shown = True
        return new

    def finish(self) -> list[Joined]:
        """Return what was open when the run ended."""
        for name, (own, _) in self._series.items():
            self._later += [(self._begin(each), name, each) for each in own.finish()]
        for begin, name, each in sorted(self._later, key=lambda found: found[0]):
            self._take(name, each, begin, ongoing=False)
        return self._ended(math.inf)

    def _take(self, name: str, incident: Incident, begin: float, *, ongoing: bool) -> None:
        """Put an incident of a series among the others."""
        number = self._numbers.get((name, incident.number))
        known = (each for each in self._open if each.number == number)
        joined = next(known, None) or self._joined(name, incident, begin)
        similar = dict.fromkeys(self._numbers[name, number] for number in incident.similar)
        joined.parts[name] = replace(incident, similar=tuple(similar))
        (joined.ongoing.add if ongoing else joined.ongoing.discard)(name)

    def _joined(self, name: str, incident: Incident, begin: float) -> Joined:
        """Return what an incident that is new belongs to."""
        joined = next((each for each in self._open if each.takes(name, begin)), None)
        if joined is None:
            self.count += 1
            joined = Joined(self.count, begin)
            self._open.append(joined)
        self._numbers[name, incident.number] = joined.number
        budget = self._series[name][1]
        if budget.per_day is not None and incident.times[0] is None:
            raise OnladError("alarms_per_day needs samples with a time")
        day = 0 if math.isnan(begin) else self._rules.calendar.day(begin)
        joined.allowed |= budget.allows(day)
        return joined

    def _ended(self, before: float) -> list[Joined]:
        """Return what is over, if no other series can join what began before."""
        over = [
            each
            for each in self._open
            if not each.ongoing and ("" in each.parts or not each.begin >= before)
        ]
        self._open = [each for each in self._open if each not in over]
        self.suppressed += sum(not each.allowed for each in over)
        return [each for each in over if each.allowed]

    def _begin(self, incident: Incident) -> float:
        return self._clock(incident.times[0])

    def _clock(self, when: Time) -> float:
        """Return a time in seconds; that of the clock if a live sample has none."""
        return time.time() if when is None and self._live else seconds_or_nan(when)
