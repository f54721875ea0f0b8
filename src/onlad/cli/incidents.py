"""The incidents of a run, one line each."""

from __future__ import annotations

import json
import sys

from onlad.cli.models import say
from onlad.report.incidents import described, line
from onlad.report.joined import Joined, Joiner
from onlad.rules import Rules
from onlad.streams.block import Block
from onlad.verdict import Verdicts


class IncidentLog:
    """Prints incidents; those of a `live` source as they begin, and again when they are over."""

    def __init__(self, rules: Rules, as_json: bool, live: bool) -> None:
        self._json, self._live = as_json, live
        self._joiner = Joiner(rules, live=live)

    def add(self, block: Block, verdicts: Verdicts) -> None:
        """Take a block; print what ended in it, and what begins."""
        self._print(self._joiner.add(block, verdicts), "ended")
        if self._live:
            self._print(self._joiner.begun(), "begins")

    def finish(self) -> int:
        """Print what was open when the run ended; return how many incidents there were."""
        self._print(self._joiner.finish(), "ended")
        count, suppressed = self._joiner.count, self._joiner.suppressed
        if suppressed:
            say(f"suppressed by alarms_per_day: {suppressed:,} of {count:,} incidents")
        return count

    def _print(self, joined: list[Joined], state: str) -> None:
        for each in joined:
            if self._json:
                found = {"series": each.series} if each.series else {}
                found |= {"state": state, **described(each.whole)}
                sys.stdout.write(json.dumps(found, ensure_ascii=False, allow_nan=False) + "\n")
            else:
                sys.stdout.write(line(each.whole, begins=state == "begins"))
            sys.stdout.flush()
