"""The incidents of a run, one line each, within the budget of its rules."""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import dataclass, field, replace

from onlad.errors import OnladError
from onlad.incident import TOGETHER, Incident, Incidents
from onlad.report.incidents import described, line
from onlad.rules import Budget, Rules
from onlad.streams.block import Block, Say, Time
from onlad.streams.times import seconds
from onlad.verdict import Verdicts


@dataclass
class _Shared:
    """Incidents of one or more series that began within a minute: one for people."""

    number: int
    begin: float  # in seconds; NaN if there are no times
    told: bool = False  # the budget allows it
    shown: bool = False  # its begin was printed
    parts: dict[str, Incident] = field(default_factory=dict)  # by series, in order of their begin
    going: set[str] = field(default_factory=set)  # series in which it goes on

    def takes(self, series: str, begin: float) -> bool:
        """Return whether an incident of a series that begins now is a part of it."""
        return series not in self.parts and abs(begin - self.begin) <= TOGETHER


class IncidentLog:
    """Prints incidents; those of different series that begin within a minute are one.

    Those of a `live` source are printed as they begin, and again when they are over. Those of
    several series in a file are printed at its end, since it may have one series after the other.
    """

    def __init__(self, rules: Rules, as_json: bool, live: bool) -> None:
        self._rules, self._json, self._live = rules, as_json, live
        self._series: dict[str, tuple[Incidents, Budget]] = {}
        self._open: list[_Shared] = []
        self._later: list[tuple[float, str, Incident]] = []  # of a file with several series
        self._numbers: dict[tuple[str, int], int] = {}  # by series and number in it
        self._now = -math.inf  # the newest time
        self._count = self._suppressed = 0

    def add(self, block: Block, verdicts: Verdicts) -> None:
        """Take a block; print what ended in it, and what begins."""
        name = block.series
        if name not in self._series:
            self._series[name] = (Incidents(name), Budget(self._rules.incidents_per_day))
        own, _ = self._series[name]
        ended = own.add(verdicts, block.row, block.times)
        if name and not self._live:
            self._later += [(self._begin(each), name, each) for each in ended]
            return
        if name:
            last = None if block.times is None else block.times[-1]
            self._now = max(self._now, self._seconds(last))
        for each in ended:
            self._take(name, each, self._begin(each), goes_on=False)
        if self._live and own.open:
            self._take(name, own.open, self._begin(own.open), goes_on=True)
        self._print_ended(self._now - TOGETHER)

    def finish(self, say: Say) -> int:
        """Print what was open when the run ended; return how many incidents there were."""
        for name, (own, _) in self._series.items():
            self._later += [(self._begin(each), name, each) for each in own.finish()]
        for begin, name, each in sorted(self._later, key=lambda found: found[0]):
            self._take(name, each, begin, goes_on=False)
        self._print_ended(math.inf)
        if self._suppressed:
            of = f"{self._suppressed:,} of {self._count:,} incidents"
            say(f"suppressed by alarms_per_day: {of}")
        return self._count

    def _take(self, name: str, incident: Incident, begin: float, *, goes_on: bool) -> None:
        """Put an incident of a series among the others."""
        number = self._numbers.get((name, incident.number))
        known = (each for each in self._open if each.number == number)
        shared = next(known, None) or self._joined(name, incident, begin)
        similar = dict.fromkeys(self._numbers[name, number] for number in incident.similar)
        shared.parts[name] = replace(incident, similar=tuple(similar))
        (shared.going.add if goes_on else shared.going.discard)(name)
        if goes_on and shared.told and not shared.shown:
            shared.shown = True
            self._print(shared, "begins")

    def _joined(self, name: str, incident: Incident, begin: float) -> _Shared:
        """Return what an incident that is new belongs to."""
        shared = next((each for each in self._open if each.takes(name, begin)), None)
        if shared is None:
            self._count += 1
            shared = _Shared(self._count, begin)
            self._open.append(shared)
        self._numbers[name, incident.number] = shared.number
        budget = self._series[name][1]
        if budget.per_day is not None and incident.times[0] is None:
            raise OnladError("alarms_per_day needs samples with a time")
        day = 0 if math.isnan(begin) else self._rules.calendar.day(begin)
        shared.told |= budget.allows(incident, day)
        return shared

    def _print_ended(self, before: float) -> None:
        """Print what is over, if no other series can join what began before."""
        for shared in [each for each in self._open if not each.going]:
            if "" in shared.parts or not shared.begin >= before:
                self._open.remove(shared)
                self._suppressed += not shared.told
                if shared.told:
                    self._print(shared, "ended")

    def _print(self, shared: _Shared, state: str) -> None:
        parts = list(shared.parts.values())
        worst = max(parts, key=lambda each: each.severity)
        last = max(parts, key=lambda each: self._seconds(each.times[1]))
        whole = replace(
            worst,
            number=shared.number,
            times=(parts[0].times[0], last.times[1], worst.times[2]),
            anomalies=sum(each.anomalies for each in parts),
            devices=tuple(filter(None, shared.parts)),
        )
        if self._json:
            series = next(name for name, each in shared.parts.items() if each is worst)
            found = {"series": series} if series else {}
            found |= {"state": state, **described(whole)}
            sys.stdout.write(json.dumps(found, ensure_ascii=False, allow_nan=False) + "\n")
        else:
            sys.stdout.write(line(whole, begins=state == "begins"))
        sys.stdout.flush()

    def _begin(self, incident: Incident) -> float:
        return self._seconds(incident.times[0])

    def _seconds(self, when: Time) -> float:
        """Return a time in seconds; that of the clock if a live sample has none."""
        if when is None:
            return time.time() if self._live else math.nan
        try:
            return seconds(when)
        except ValueError:
            return math.nan
