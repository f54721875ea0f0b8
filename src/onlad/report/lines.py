"""Verdicts as lines: for people, as JSON, or as Influx line protocol."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, TypeAlias

from onlad.report.record import records
from onlad.streams import influx
from onlad.streams.block import Block, Time
from onlad.streams.times import nanoseconds
from onlad.verdict import Verdicts

#: Returns the line of a sample: its block, its place there, and its verdict as a record.
Writer: TypeAlias = Callable[[Block, int, dict[str, Any]], str]

SHOWN = 3  # causes in a line for people
#: Of the largest cause: its name, side of its band, what was expected, and the band.
CAUSE = ("cause", "direction", "expected", "low", "high")
#: Columns of a table, and what a line of JSON has of a record.
COLUMNS: tuple[Any, ...] = (
    "row", "time", "score", "threshold", "p_value", "severity", "is_anomaly", *CAUSE, "drifting",
)  # fmt: skip
JSON = (
    "score", "threshold", "p_value", "severity", "causes", "direction", "expected", "low", "high",
    "drifting",
)  # fmt: skip


def digits(score: float) -> str:
    """Return a score or a threshold as a person reads it.

    Examples
    --------
    >>> [digits(score) for score in (0.0, 0.123456, 7.891, 78.91, 12345.6)]
    ['0.00', '0.12', '7.89', '78.9', '12,346']
    """
    return f"{score:,.{2 if score < 10 else int(score < 100)}f}"


def counted(number: int, what: str) -> str:
    """Return a number of things in words.

    Examples
    --------
    >>> counted(1, "alarm"), counted(2000, "anomaly")
    ('1 alarm', '2,000 anomalies')
    """
    many = what[:-1] + "ies" if what.endswith("y") else what + "s"
    return f"{number:,} {what if number == 1 else many}"


def cause(name: Any, share: float, seen: Mapping[str, Any]) -> str:
    """Return a cause for people: its share in the score and, if it left its band, what it was.

    Examples
    --------
    >>> seen = {"value": 121.0, "direction": "below", "low": 146.5, "high": 150.25}
    >>> cause("flow", 0.67, seen), cause("flow", 0.67, {"value": 148.0})
    ('flow 67%: 121, below the expected 146.5 to 150.2', 'flow 67%')
    """
    said = f"{name} {share:.0%}"
    if seen.get("direction") is None:
        return said
    value = f"{seen['value']:.4g}, " if "value" in seen else ""
    return (
        f"{said}: {value}{seen['direction']} the expected {seen['low']:.4g} to {seen['high']:.4g}"
    )


def lines(write: Writer, block: Block, verdicts: Verdicts, which: Sequence[int]) -> str:
    """Return a line for each of the samples `which` of a block."""
    found = zip(which, records(verdicts, which), strict=True)
    return "".join(write(block, i, each) + "\n" for i, each in found)


def people(block: Block, i: int, found: dict[str, Any]) -> str:
    """Return a line that a person reads, with the largest causes."""
    time = _time(block, i)
    when = f"row {block.row[i]}" if time is None else f"{readable(time)}  row {block.row[i]}"
    series = f"{block.series}  " if block.series else ""
    shown = list(found["causes"].items())[:SHOWN]
    causes = "; ".join(
        cause(name, share, {kind: found[kind].get(name) for kind in ("direction", "low", "high")})
        for name, share in shown
    )
    mark, limit, against = ">" if found["is_anomaly"] else "<=", found["threshold"], "(learning)"
    if limit is not None:
        against = f"{mark} {digits(limit)}  severity {found['severity']:.0f}"
    return f"{series}{when}  score {digits(found['score'])} {against}  {causes}".rstrip()


def jsonl(block: Block, i: int, found: dict[str, Any]) -> str:
    """Return a line of JSON: row, time, and a part of the record."""
    line = {"row": int(block.row[i]), "time": _time(block, i)}
    line |= {name: found[name] for name in JSON}
    if block.series:
        line["series"] = block.series
    return json.dumps(line, ensure_ascii=False, allow_nan=False)


class Table:
    """CSV, with a header before the first line; a cell is empty if its value is not known."""

    def __init__(self) -> None:
        self._rows = [COLUMNS]  # that are due

    def __call__(self, block: Block, i: int, found: dict[str, Any]) -> str:
        """Return the line of a sample."""
        judged = (found["p_value"], found["severity"], int(found["is_anomaly"]))
        row = (
            int(block.row[i]), _time(block, i), found["score"], found["threshold"],
            *(judged if found["ready"] else ("",) * 3), *_cause(found), found["drifting"],
        )  # fmt: skip
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*self._rows, row])
        self._rows = []
        return text.getvalue().rstrip("\n")


class InfluxLines:
    """Line protocol: fields are added to a line in line protocol; other samples get new lines."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._warned = False

    def __call__(self, block: Block, i: int, found: dict[str, Any]) -> str:
        """Return the line of a sample."""
        names = ("score", "threshold", "p_value", "severity", "is_anomaly")
        fields = {name: found[name] for name in names if found["ready"] or name != "severity"}
        fields |= dict(zip(CAUSE, _cause(found), strict=True)) | {"drifting": found["drifting"]}
        fields = {name: value for name, value in fields.items() if value is not None}
        if block.lines is not None:
            named = {f"onlad_{name}": value for name, value in fields.items()}
            return influx.with_fields(block.lines[i], named)
        topic = re.sub(r"([,= \\])", r"\\\1", block.series)
        series = f"onlad,topic={topic}" if topic else "onlad"
        return f"{series} {influx.field_text(fields)}{self._stamp(block, i)}"

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


def _time(block: Block, i: int) -> Time:
    return None if block.times is None else block.times[i]


def readable(time: Time) -> str:
    """Return a time for people; nanoseconds, as line protocol has them, as a date."""
    if isinstance(time, int) and abs(time) >= 10**17:
        when = datetime.fromtimestamp(time // 10**9, tz=timezone.utc)
        return f"{when:%Y-%m-%dT%H:%M:%S}.{time % 10**9 // 10**6:03}Z"
    return str(time)
