"""The incidents of a run, one line each, within the budget of its rules."""

from __future__ import annotations

import json
import sys

from onlad.errors import OnladError
from onlad.incident import Incident, Incidents
from onlad.report.incidents import described, line
from onlad.rules import Budget, Rules
from onlad.streams.block import Block, Say
from onlad.streams.times import seconds
from onlad.verdict import Verdicts


class IncidentLog:
    """Prints the incidents of each series; those of a `live` source also as they begin."""

    def __init__(self, rules: Rules, as_json: bool, live: bool) -> None:
        self._rules, self._json, self._live = rules, as_json, live
        self._series: dict[str, tuple[Incidents, Budget]] = {}

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(incidents.count for incidents, _ in self._series.values())

    def add(self, block: Block, verdicts: Verdicts) -> None:
        """Take a block; print what ended in it, and what goes on."""
        if block.series not in self._series:
            self._series[block.series] = (Incidents(), Budget(self._rules.incidents_per_day))
        own, budget = self._series[block.series]
        before = own.open.number if own.open else 0
        for ended in own.add(verdicts, block.row, block.times):
            self._print(ended, block.series, budget, begins=False)
        if self._live and own.open and own.open.number != before:
            self._print(own.open, block.series, budget, begins=True)

    def finish(self, say: Say) -> None:
        """Print what was open when the run ended, and say how many were suppressed."""
        for series, (own, budget) in self._series.items():
            for ended in own.finish():
                self._print(ended, series, budget, begins=False)
        suppressed = sum(budget.suppressed for _, budget in self._series.values())
        if suppressed:
            say(f"{suppressed:,} of them were suppressed by the budget per day")

    def _print(self, incident: Incident, series: str, budget: Budget, *, begins: bool) -> None:
        begin = incident.times[0]
        if budget.per_day is not None and begin is None:
            raise OnladError("alarms_per_day needs samples with a time")
        day = 0 if begin is None else self._rules.calendar.day(_seconds(begin))
        if not budget.allows(incident, day):
            budget.suppressed += not begins
            return
        if self._json:
            found = {"series": series} if series else {}
            found |= {"state": "begins" if begins else "ended", **described(incident)}
            sys.stdout.write(json.dumps(found, ensure_ascii=False, allow_nan=False) + "\n")
        else:
            sys.stdout.write(line(incident, series, begins=begins))
        sys.stdout.flush()


def _seconds(time: str | float) -> float:
    try:
        return seconds(time)
    except ValueError:
        return 0.0  # without a budget it does not matter, and with one it is all one day
