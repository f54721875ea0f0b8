"""Rules of people: which deviations matter, when a machine is serviced, how much is reported.

They stand above the model: a sensor that is muted is learned as before. During maintenance samples
are judged, but neither learned nor reported.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone, tzinfo
from fnmatch import fnmatchcase
from functools import cached_property
from zoneinfo import ZoneInfo

import numpy as np

from onlad.monitor import Monitor
from onlad.reference import Array
from onlad.verdict import Verdicts

DAY, WEEK = 1440, 10_080  # minutes
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WEEKLY = re.compile(r"(\w+)(?:-(\w+))? +(\d\d):(\d\d)-(\d\d):(\d\d)")
ROLES = ("alarm", "explain", "watch")
SIDES = ("both", "above", "below")


@dataclass(frozen=True, kw_only=True)
class Sensor:
    """What matters of the sensors with a name, or whose names match a pattern such as ``temp_*``.

    Deviations from the expected value below `ignore_below`, in the sensor's unit, and those to the
    side that is not `only`, raise no alarm. With the role ``"explain"`` a sensor is a cause and
    never raises an alarm, with ``"watch"`` it is not even a cause.
    """

    name: str
    ignore_below: float = 0.0
    only: str = "both"
    role: str = "alarm"

    def __post_init__(self) -> None:
        for value, allowed in ((self.only, SIDES), (self.role, ROLES)):
            if value not in allowed:
                raise ValueError(f"{self.name}: must be one of {', '.join(allowed)}, got {value!r}")
        if not self.ignore_below >= 0:
            raise ValueError(f"{self.name}: ignore_below must be at least 0")

    def matters(self, off: Array) -> Array:
        """Return whether deviations from the expected value may raise an alarm."""
        if self.role != "alarm":
            return np.zeros(len(off), bool)
        wide = np.abs(off) >= self.ignore_below
        if self.only == "both":
            return np.asarray(wide)
        return np.asarray(wide & (off > 0 if self.only == "above" else off < 0))


class Calendar:
    """Times of maintenance, each a text.

    ``2026-11-20T08:00/2026-11-20T12:00`` is once, ``Sat 22:00-23:30``, ``Mon-Fri 22:00-06:00`` and
    ``daily 02:00-02:15`` come again. Times are those of `zone`.

    Examples
    --------
    >>> calendar = Calendar(["Mon 08:00-09:00"], "Europe/Berlin")
    >>> times = ["2026-11-16T07:30+00:00", "2026-11-16T08:30+00:00"]      # one hour behind Berlin
    >>> calendar.during([datetime.fromisoformat(time).timestamp() for time in times]).tolist()
    [True, False]
    """

    def __init__(self, times: Sequence[str], zone: str = "UTC") -> None:
        try:
            self._zone: tzinfo = timezone.utc if zone == "UTC" else ZoneInfo(zone)
        except (ValueError, OSError, KeyError) as error:
            raise ValueError(f"there is no time zone {zone!r}") from error
        self._once: list[tuple[float, float]] = []
        self._weekly: list[tuple[int, int]] = []  # minutes of the week
        for text in times:
            try:
                self._read(text)
            except ValueError:
                raise ValueError(
                    f"{text!r} is not a maintenance period. Write 'Sat 22:00-23:30', "
                    "'Mon-Fri 22:00-06:00', 'daily 02:00-02:15' or "
                    "'2026-11-20T08:00/2026-11-20T12:00'"
                ) from None

    def _read(self, text: str) -> None:
        if "/" in text:
            begin, end = (self._instant(part) for part in text.split("/"))
            if not begin < end:
                raise ValueError
            self._once.append((begin, end))
            return
        found = _WEEKLY.fullmatch(text.strip().lower())
        if found is None:
            raise ValueError
        first, last = found[1], found[2] or found[1]
        days = range(7) if first == "daily" else _days(first, last)
        begin, end = (60 * int(found[i]) + int(found[i + 1]) for i in (3, 5))
        if begin == end or max(begin, end) > DAY:
            raise ValueError
        for day in days:
            self._weekly.append((day * DAY + begin, day * DAY + end + DAY * (end < begin)))

    def _instant(self, text: str) -> float:
        when = datetime.fromisoformat(text.strip())
        return (when if when.tzinfo else when.replace(tzinfo=self._zone)).timestamp()

    def local(self, seconds: Array) -> Array:
        """Return times in seconds by the clock of the zone."""
        if self._zone is timezone.utc:
            return seconds
        hours, place = np.unique(seconds // 3600, return_inverse=True)
        offsets = [
            datetime.fromtimestamp(hour * 3600, timezone.utc).astimezone(self._zone).utcoffset()
            for hour in hours.tolist()
        ]
        shift = np.array([offset.total_seconds() if offset else 0.0 for offset in offsets])
        return np.asarray(seconds + shift[place])

    def day(self, seconds: float) -> int:
        """Return the day of a time, by the clock of the zone.

        Examples
        --------
        >>> late = datetime.fromisoformat("2026-11-16T23:30+00:00").timestamp()
        >>> Calendar([], "Europe/Berlin").day(late) - Calendar([]).day(late)
        1
        """
        return int(self.local(np.array([seconds]))[0] // 86_400)

    def during(self, seconds: Sequence[float] | Array) -> Array:
        """Return whether each time, in seconds since 1970, is one of maintenance."""
        at = np.asarray(seconds, float)
        found = np.zeros(len(at), bool)
        for begin, end in self._once:
            found |= (begin <= at) & (at < end)
        if self._weekly and len(at):
            minute = (self.local(at) / 60 + 3 * DAY) % WEEK  # 1970 began on a Thursday
            for first, last in self._weekly:
                found |= (first <= minute) & (minute < last) | (minute < last - WEEK)
        return found


def _days(first: str, last: str) -> list[int]:
    begin, end = DAYS.index(first[:3]), DAYS.index(last[:3])
    return [day % 7 for day in range(begin, (end if end >= begin else end + 7) + 1)]


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules of one stream.

    Examples
    --------
    >>> import numpy as np
    >>> from onlad import Monitor
    >>> X = np.random.default_rng(0).normal(size=(2000, 3))
    >>> X[1500:1505, 1] += 20
    >>> verdicts = Monitor().observe_many(X)
    >>> Rules(sensors=(Sensor(name="1", only="below"),)).mute(verdicts), verdicts.is_anomaly.any()
    (5, np.False_)
    """

    sensors: tuple[Sensor, ...] = ()
    maintenance: tuple[str, ...] = ()
    zone: str = "UTC"
    incidents_per_day: int | None = None

    def __post_init__(self) -> None:
        if self.incidents_per_day is not None and self.incidents_per_day < 1:
            raise ValueError("incidents_per_day must be at least 1")
        _ = self.calendar  # it says what is wrong with it

    @cached_property
    def calendar(self) -> Calendar:
        """The times of maintenance."""
        return Calendar(self.maintenance, self.zone)

    def sensor(self, name: Hashable) -> Sensor | None:
        """Return the first rule that is for the sensor."""
        return next((each for each in self.sensors if fnmatchcase(str(name), each.name)), None)

    def mute(self, verdicts: Verdicts) -> int:
        """Take back anomalies that do not matter; return how many.

        What matters is the largest cause. A sensor that is off also pulls at what is expected of
        the others, so that their parts of the score say little.
        """
        at = np.flatnonzero(verdicts.is_anomaly) if self.sensors else ()
        if not len(at):
            return 0
        rules = {j: rule for j, name in enumerate(verdicts.names) if (rule := self.sensor(name))}
        if not rules:
            return 0
        shares = verdicts.shares[at]
        off = verdicts.values[at] - verdicts.expected[at]
        counted = shares.copy()
        for j, rule in rules.items():
            counted[:, j] *= rule.matters(off[:, j])
            if rule.role == "watch":
                shares[:, j] = 0.0
        muted = counted.max(axis=1) < verdicts.shares[at].max(axis=1)
        if any(rule.role == "watch" for rule in rules.values()):
            total = shares.sum(axis=1, keepdims=True)
            verdicts.shares[at] = np.divide(shares, total, out=shares, where=total > 0)
        verdicts.is_anomaly[at[muted]] = False
        return int(np.count_nonzero(muted))

    def observe(
        self, monitor: Monitor, X: Array, seconds: Array | None, *, timed: bool = True
    ) -> Verdicts:
        """Return the verdicts of a monitor on rows, with the rules applied.

        `seconds` are the times of the rows since 1970, which maintenance needs. If they are
        `timed`, the monitor learns patterns of a day and a week, by the clock of the zone.
        """
        verdicts = self.judge(monitor, X, seconds, timed=timed)
        self.apply(verdicts, seconds)
        return verdicts

    def judge(
        self, monitor: Monitor, X: Array, seconds: Array | None, *, timed: bool = True
    ) -> Verdicts:
        """Return the verdicts of a monitor on rows; in maintenance it learns none."""
        timed = monitor.timed if monitor.n_seen else timed
        times = self.calendar.local(seconds) if timed and seconds is not None else None
        return monitor.observe_many(X, pause=self._pause(seconds), times=times)

    def apply(self, verdicts: Verdicts, seconds: Array | None) -> None:
        """Take back anomalies that the rules do not want."""
        pause = self._pause(seconds)
        if pause is not None:
            verdicts.is_anomaly &= ~pause
        self.mute(verdicts)

    def _pause(self, seconds: Array | None) -> Array | None:
        """Return in which rows there is maintenance."""
        if not self.maintenance:
            return None
        if seconds is None:
            raise ValueError("maintenance needs samples with a time")
        return self.calendar.during(seconds)


@dataclass
class Budget:
    """A number of incidents per day that are reported; the others are counted."""

    per_day: int | None = None
    _day: int = -1
    _count: int = 0  # of that day

    def allows(self, day: int, before: int = 0) -> bool:
        """Return whether an incident that begins on a day is reported; count it if so.

        At least `before` of the day were reported already.
        """
        count = max(before, self._count if day == self._day else 0)
        allowed = self.per_day is None or count < self.per_day
        self._day, self._count = day, count + allowed
        return allowed
