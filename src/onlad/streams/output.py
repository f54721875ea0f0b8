"""Verdicts as lines: for people, as JSON, or as Influx line protocol."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from decimal import Decimal, InvalidOperation
from typing import TypeAlias

from onlad.streams import influx
from onlad.streams.block import Block, Time
from onlad.verdict import Verdicts, causes

#: Returns the lines, each with its end, on the samples `which` of a block.
Writer: TypeAlias = Callable[[Block, Verdicts, Sequence[int]], str]

SHOWN = 3  # causes in a line for people
COLUMNS = ("row", "time", "score", "threshold", "p_value", "is_anomaly", "cause", "drifting")


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
        time = _time(block, i)
        when = f"row {block.row[i]}" if time is None else f"{_readable(time)}  row {block.row[i]}"
        series = f"{block.series}  " if block.series else ""
        found = causes(verdicts.names, verdicts.shares[i])
        said = ", ".join(f"{name} {share:.0%}" for name, share in list(found.items())[:SHOWN])
        limit = float(verdicts.threshold[i])
        mark = ">" if verdicts.is_anomaly[i] else "<="
        against = f"{mark} {digits(limit)}" if math.isfinite(limit) else "(learning)"
        score = digits(float(verdicts.score[i]))
        lines.append(f"{series}{when}  score {score} {against}  {said}".rstrip())
    return "".join(line + "\n" for line in lines)


def jsonl(block: Block, verdicts: Verdicts, which: Sequence[int]) -> str:
    """Return JSON lines: row, time, score, threshold (null while learning), p_value, causes.

    And drifting: the feature that drifts slowly, or null.
    """
    lines = []
    for i in which:
        limit = float(verdicts.threshold[i])
        found = causes(verdicts.names, verdicts.shares[i])
        line = {
            "row": int(block.row[i]),
            "time": _time(block, i),
            "score": float(verdicts.score[i]),
            "threshold": limit if math.isfinite(limit) else None,
            "p_value": float(verdicts.p_value[i]),
            "causes": {str(name): round(share, 4) for name, share in found.items()},
            "drifting": _drifting(verdicts, i),
        }
        if block.series:
            line["series"] = block.series
        lines.append(json.dumps(line, ensure_ascii=False, allow_nan=False))
    return "".join(line + "\n" for line in lines)


class Table:
    """CSV with a header; a cell is empty where there is nothing to say."""

    def __init__(self) -> None:
        self._begun = False

    def __call__(self, block: Block, verdicts: Verdicts, which: Sequence[int]) -> str:
        """Return one line a sample."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not self._begun:
            self._begun = True
            writer.writerow(COLUMNS)
        for i in which:
            limit, ready = float(verdicts.threshold[i]), bool(verdicts.ready[i])
            writer.writerow(
                (
                    int(block.row[i]),
                    _time(block, i),
                    float(verdicts.score[i]),
                    limit if math.isfinite(limit) else "",
                    float(verdicts.p_value[i]) if ready else "",
                    int(verdicts.is_anomaly[i]) if ready else "",
                    next(iter(causes(verdicts.names, verdicts.shares[i])), ""),
                    _drifting(verdicts, i),
                )
            )
        return text.getvalue()


class InfluxLines:
    """Line protocol: a line that came so is passed on with fields added, others are made."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said = False

    def __call__(self, block: Block, verdicts: Verdicts, which: Sequence[int]) -> str:
        """Return one line a sample."""
        lines = []
        for i in which:
            fields: dict[str, float | bool | str] = {
                "score": float(verdicts.score[i]),
                "threshold": float(verdicts.threshold[i]),
                "p_value": float(verdicts.p_value[i]),
                "is_anomaly": bool(verdicts.is_anomaly[i]),
            }
            cause = next(iter(causes(verdicts.names, verdicts.shares[i])), None)
            if cause is not None:
                fields["cause"] = str(cause)
            drifting = _drifting(verdicts, i)
            if drifting is not None:
                fields["drifting"] = drifting
            if block.lines is not None:
                named = {f"onlad_{name}": value for name, value in fields.items()}
                lines.append(influx.added(block.lines[i], named))
            else:
                topic = re.sub(r"([,= \\])", r"\\\1", block.series)
                series = f"onlad,topic={topic}" if topic else "onlad"
                lines.append(f"{series} {influx.written(fields)}{self._stamp(block, i)}")
        return "".join(line + "\n" for line in lines)

    def _stamp(self, block: Block, i: int) -> str:
        time = _time(block, i)
        if time is None:
            return ""
        try:
            return f" {nanoseconds(time)}"
        except (ValueError, OverflowError):
            if not self._said:
                self._said = True
                self._say(f"time {time!r} is neither ISO 8601 nor a number: lines have no time")
            return ""


def _drifting(verdicts: Verdicts, i: int) -> str | None:
    feature = int(verdicts.drifting[i])
    return str(verdicts.names[feature]) if feature >= 0 else None


def _time(block: Block, i: int) -> Time:
    return None if block.times is None else block.times[i]


def _readable(time: Time) -> str:
    """Return a time for people; nanoseconds, as line protocol has them, as a date."""
    if isinstance(time, int) and abs(time) >= 10**17:
        when = datetime.fromtimestamp(time // 10**9, tz=timezone.utc)
        return f"{when:%Y-%m-%dT%H:%M:%S}.{time % 10**9 // 10**6:03}Z"
    return str(time)


def nanoseconds(time: str | float) -> int:
    """Return a time as nanoseconds since 1970: ISO 8601, or a number in s, ms, us or ns by size.

    Examples
    --------
    >>> nanoseconds("1970-01-01T00:00:02Z"), nanoseconds("1700000000"), nanoseconds(1700000000123)
    (2000000000, 1700000000000000000, 1700000000123000000)
    """
    text = str(time).strip()
    try:
        number = Decimal(text)
    except InvalidOperation:
        return _from_iso(text)
    return round(number * _unit(number))  # OverflowError or ValueError if it is not finite


def _unit(number: Decimal) -> int:
    """Return nanoseconds in the unit that a time of this size must have, to be of our days."""
    for digits, unit in ((11, 10**9), (14, 10**6), (17, 10**3)):
        if number.is_nan() or abs(number) < 10**digits:
            return unit
    return 1


def _from_iso(text: str) -> int:
    fraction = re.search(r"[.,](\d{1,9})", text)  # Python 3.10 knows 3 or 6 digits only, and no Z
    rest = re.sub(r"[zZ]$", "+00:00", re.sub(r"[.,]\d+", "", text))
    when = datetime.fromisoformat(rest)
    when = when if when.tzinfo else when.replace(tzinfo=timezone.utc)
    since = when - datetime(1970, 1, 1, tzinfo=timezone.utc)
    part = int(fraction.group(1).ljust(9, "0")) if fraction else 0
    return (since.days * 86400 + since.seconds) * 10**9 + part
