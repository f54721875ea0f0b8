"""An alarm of a device: what is kept and what is published of it; and those that a device has."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from onlad.incident import ALIKE, cosine
from onlad.report.lines import SHOWN, cause
from onlad.report.record import figures
from onlad.verdict import Verdict

KEPT = 20  # alarms of a device
MOST_NAMED = 15  # of these that people have named, however old they are
SENSORS = 8  # causes whose values and bands an alarm keeps
SMALL = 0.01  # share below which a cause is not shown
LABELS = ("", "seen", "normal", "fault", "maintenance")
#: What is not published of an alarm.
INNER = ("rows", "times", "learned", "marked", "last", "highest", "before", "undo")
LONGEST = 128  # samples of an alarm that are kept, to be learned when it is marked as normal


@dataclass
class Alarm:
    """An alarm: from its first anomaly until `quiet` samples without one."""

    id: str
    stream: str
    device: str
    row: int  # of the first anomaly, counted from the watcher's start
    time: float  # of the first anomaly
    score: float
    threshold: float
    p_value: float
    causes: dict[str, float]  # the largest first
    last: int = 0  # row of the last anomaly
    highest: float = 0.0  # score
    marked: bool = False  # as normal
    before: int = 0  # rows of the window before the first anomaly
    rows: list[list[float]] = field(default_factory=list)  # those, and what followed
    learned: list[bool] = field(default_factory=list)  # one per row
    times: list[float] = field(default_factory=list)  # one per row
    severity: float = 0.0  # of its peak, as what follows
    sensors: dict[str, dict[str, Any]] = field(default_factory=dict)  # values and bands of causes
    reported: bool = True  # not if there were too many, that day or that hour
    label: str = ""  # what a person says that it was: one of LABELS
    comment: str = ""
    like: str = ""  # the comment on a similar alarm of the past, or its id
    undo: str = ""  # the snapshot from before its samples were learned as normal
    end: float = 0.0  # time of the last anomaly
    peak: float = 0.0  # time of the most severe one

    def message(self) -> dict[str, Any]:
        """Return the alarm as it is published, without its samples."""
        told = {"kind": "anomaly"} | asdict(self)
        for name in INNER:
            del told[name]
        causes = "; ".join(self.says(feature) for feature in self.large(SHOWN))
        like = f". Like {self.like}" if self.like else ""
        name = key(self.stream, self.device)
        told["text"] = f"{name}: severity {self.severity:.0f}. {causes}{like}"
        for name in ("score", "threshold"):
            told[name] = rounded(told[name])
        return told

    def large(self, most: int) -> list[str]:
        """Return the causes that are shown: the largest, and others that are not small."""
        causes = list(self.causes.items())[:most]
        return [name for i, (name, share) in enumerate(causes) if i == 0 or share >= SMALL]

    def says(self, feature: str) -> str:
        """Return the part of a feature in the score, its value, and its band if it left it."""
        return cause(feature, self.causes[feature], self.sensors.get(feature, {}))

    def take(self, row: list[float], *, learned: bool) -> None:
        """Keep a time with its sample, as far as there is room."""
        if len(self.rows) < LONGEST:
            self.times.append(row[0])
            self.rows.append(row[1:])
            self.learned.append(learned)

    def follow(self, verdict: Verdict, row: int, when: float) -> bool:
        """Take an anomaly; return whether it is the most severe so far: then causes are its own."""
        self.last, self.end = row, when
        self.highest = max(self.highest, verdict.score)
        if verdict.severity <= self.severity:
            return False
        self.severity, self.peak = verdict.severity, when
        self.causes = {str(name): share for name, share in verdict.causes.items()}
        values = verdict.around.named(verdict.around.values)
        numbers = (values, verdict.expected, verdict.low, verdict.high)
        self.sensors = {
            str(name): band(*(found.get(name, math.nan) for found in numbers))
            | ({"direction": verdict.direction[name]} if name in verdict.direction else {})
            for name in list(verdict.causes)[:SENSORS]
        }
        return True


class Alarms(deque[Alarm]):
    """The last alarms of a device, the oldest first."""

    def open_at(self, row: int, quiet: int) -> Alarm | None:
        """Return the newest alarm if it goes on at a row: `quiet` rows end it."""
        newest = self[-1] if self else None
        return newest if newest is not None and row - newest.last <= quiet else None

    def keep(self, alarm: Alarm) -> None:
        """Keep an alarm; those that people have named stay longest."""
        if len(self) == KEPT:
            unnamed = (past for past in self if not past.comment)
            named = sum(bool(past.comment) for past in self)
            self.remove(self[0] if named > MOST_NAMED else next(unnamed))
        self.append(alarm)

    def like(self, alarm: Alarm, others: Iterable[Alarm]) -> str:
        """Return what people call the most similar alarm of the past, or its id; or nothing.

        One that was named among `others`, on another device of the stream, is known here too.
        """
        own = [past for past in self if past is not alarm]
        named = [past for past in (*own, *others) if past.comment]
        for known in (named, own):
            scored = [(cosine(alarm.causes, past.causes), past) for past in known]
            near, best = max(scored, key=lambda pair: pair[0], default=(0.0, None))
            if best is not None and near >= ALIKE:
                return best.comment or best.id
        return ""


def band(value: float, expected: float, low: float, high: float) -> dict[str, Any]:
    """Return what is known of a sensor at a sample, as it is published."""
    numbers = {"value": value, "expected": expected, "low": low, "high": high}
    return {name: figures(number) for name, number in numbers.items() if not math.isnan(number)}


def key(stream: str, device: str) -> str:
    """Return stream and device as people write them."""
    return f"{stream}/{device}" if device else stream


def rounded(score: float) -> float:
    """Return a score or a threshold with three digits, as it is published.

    Examples
    --------
    >>> rounded(0.123456), rounded(123.456)
    (0.123, 123.0)
    """
    return float(f"{score:.3g}")
