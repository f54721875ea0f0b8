"""Verdicts as lines: for people, as JSON, or as Influx line protocol."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any, TypeAlias

from onlad.report.record import record
from onlad.streams import influx
from onlad.streams.block import Block, Time
from onlad.streams.times import nanoseconds
from onlad.verdict import Verdicts

#: Returns the lines, each with its end, on the samples `which` of a block.
Writer: TypeAlias = Callable[[Block, Verdicts, Sequence[int]], str]

SHOWN = 3  # causes in a line for people
#: Of the largest cause: its name, side of its band, what was expected, and the band.
CAUSE = ("cause", "direction", "expected", "low", "high")
COLUMNS = (
    "row", "time", "score", "threshold", "p_value", "severity", "is_anomaly", *CAUSE, "drifting",
)  # fmt: skip


def digits(score: float) -> str:
    """Return a score or a threshold as a person reads it.

    Examples
    --------
    >>> [digits(score) for score in (0.0, 0.123456, 7.891, 78.91, 12345.6)]
    ['0.00', '0.12', '7.89', '78.9', '12,346']
    """
    return f"{score:,.{2 if score < 10 else int(score < 100)}f}"


def people(block: Block, verdicts: Verdicts, which: Sequence[int]) -> str:
    """Return a line that a person reads, with the largest causes."""
    lines = []
    for i in which:
        time, found = _time(block, i), record(verdicts, i)
        when = f"row {block.row[i]}" if time is None else f"{readable(time)}  row {block.row[i]}"
        series = f"{block.series}  " if block.series else ""
        shown = list(found["causes"].items())[:SHOWN]
        causes = ", ".join(f"{name} {share:.0%}{_outside(found, name)}" for name, share in shown)
        mark, limit = ">" if found["is_anomaly"] else "<=", found["threshold"]
        against = "(learning)" if limit is None else f"{mark} {digits(limit)}"
        if limit is not None:
            against += f"  severity {found['severity']:.0f}"
        lines.append(f"{series}{when}  score {digits(found['score'])} {against}  {causes}".rstrip())
    return "".join(line + "\n" for line in lines)


def jsonl(block: Block, verdicts: Verdicts, which: Sequence[int]) -> str:
    """Return JSON lines: row, time, and of `record` what a sample's line needs."""
    names = (
        "score", "threshold", "p_value", "severity", "causes", "direction", "expected", "low",
        "high", "drifting",
    )  # fmt: skip
    lines = []
    for i in which:
        found = record(verdicts, i)
        line = {"row": int(block.row[i]), "time": _time(block, i)}
        line |= {name: found[name] for name in names}
        if block.series:
            line["series"] = block.series
        lines.append(json.dumps(line, ensure_ascii=False, allow_nan=False))
    return "".join(line + "\n" for line in lines)


class Table:
    """CSV with a header; a cell is empty if its value is not known."""

    def __init__(self) -> None:
        self._begun = False

    def __call__(self, block: Block, verdicts: Verdicts, which: Sequence[int]) -> str:
        """Return one line per sample."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not self._begun:
            self._begun = True
            writer.writerow(COLUMNS)
        for i in which:
            found = record(verdicts, i)
            judged = (found["p_value"], found["severity"], int(found["is_anomaly"]))
            writer.writerow(
                (int(block.row[i]), _time(block, i), found["score"], found["threshold"],
                 *(judged if found["ready"] else ("",) * 3), *_cause(found), found["drifting"])
            )  # fmt: skip
        return text.getvalue()


class InfluxLines:
    """Line protocol: a line that came so is passed on with fields added, others are made."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._warned = False

    def __call__(self, block: Block, verdicts: Verdicts, which: Sequence[int]) -> str:
        """Return one line per sample."""
        lines = []
        for i in which:
            found = record(verdicts, i)
            names = ("score", "threshold", "p_value", "severity", "is_anomaly")
            fields = {name: found[name] for name in names}
            if not found["ready"]:
                del fields["severity"]
            fields |= dict(zip(CAUSE, _cause(found), strict=True)) | {"drifting": found["drifting"]}
            fields = {name: value for name, value in fields.items() if value is not None}
            if block.lines is not None:
                named = {f"onlad_{name}": value for name, value in fields.items()}
                lines.append(influx.with_fields(block.lines[i], named))
            else:
                topic = re.sub(r"([,= \\])", r"\\\1", block.series)
                series = f"onlad,topic={topic}" if topic else "onlad"
                lines.append(f"{series} {influx.field_text(fields)}{self._stamp(block, i)}")
        return "".join(line + "\n" for line in lines)

    def _stamp(self, block: Block, i: int) -> str:
        time = _time(block, i)
        if time is None:
            return ""
        try:
            return f" {nanoseconds(time)}"
        except (ValueError, OverflowError):
            if not self._warned:
                self._warned = True
                self._say(f"time {time!r} is neither ISO 8601 nor a number: lines have no time")
            return ""


def _cause(found: dict[str, Any]) -> tuple[Any, ...]:
    """Return the largest cause, and what `CAUSE` says of it; None where nothing is known."""
    name = next(iter(found["causes"]), None)
    return (name, *(found[kind].get(name) for kind in CAUSE[1:]))


def _outside(found: dict[str, Any], name: str) -> str:
    """Return on which side of its band a feature is, and the band."""
    side = found["direction"].get(name)
    low, high = found["low"].get(name), found["high"].get(name)
    return f" {side} {low:g} to {high:g}" if side else ""


def _time(block: Block, i: int) -> Time:
    return None if block.times is None else block.times[i]


def readable(time: Time) -> str:
    """Return a time for people; nanoseconds, as line protocol has them, as a date."""
    if isinstance(time, int) and abs(time) >= 10**17:
        when = datetime.fromtimestamp(time // 10**9, tz=timezone.utc)
        return f"{when:%Y-%m-%dT%H:%M:%S}.{time % 10**9 // 10**6:03}Z"
    return str(time)
