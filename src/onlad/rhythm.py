"""`Rhythm`: what the times of samples say: the pattern of a day and of a week, and gaps.

A pattern is what a feature usually is at a time of day, or of the week, beside its level. It is
taken out of a sample before the sample is judged, and added to what was expected. It changes once
per day, at midnight: the means of five minutes of the day that ended are mixed into it, unless they
were other the day before: a fault of one day is no pattern. How much of it is taken out is the
share of the variance that it foretold lately, but never all of it. So a feature without a pattern
stays as it is, and so do the first two days.

What a monitor finds usual while it does not know a pattern is wide. So when every day of the week
has come twice, and there is a pattern, the monitor starts anew from the last samples without it.

A gap is a time between two samples that is more than GAP times as long as three of four of those
before it. The samples after it fill a window, and only then samples are judged again: no window
reaches over a gap.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from onlad import fields
from onlad.fields import Numbers, Within
from onlad.modelfile import need
from onlad.reference import Array

DAY = 86_400.0  # seconds
BINS = 288  # parts of a day: five minutes
HOURS = 24
WEEKDAYS = 7
NEW_DAY = 0.3  # weight of the newest day in the pattern of a day
NEW_WEEK = 0.5  # and of the newest week
LEVEL = 1 / 28  # and of the newest day in the level
TRUST = 0.9  # by which errors of a pattern are forgotten in a day
LEAST = 0.3  # share of the variance that a pattern must foretell to be used
# Share of a pattern that is taken out, at most. Of a switch that follows the clock nothing would be
# left but the last digits of its pattern, and each of these moves would be unusual.
MOST = 0.95
FEWEST = 12  # parts of a day with a value that are enough to learn from it
RENEWED = 14  # days after which a monitor starts anew
GAP = 8.0  # usual times between samples that are a gap
STEPS = 16  # of which most are as long as is usual
MOST_KEPT = 4096  # samples that it then starts from
LARGEST = 1e101  # in a file
LATEST = 1e7  # days since 1970, in a file


@dataclass(frozen=True, slots=True, eq=False)
class RhythmState:
    """What was learned of times."""

    day: Annotated[Array, Numbers((BINS, "n"), high=LARGEST, missing=True)]
    week: Annotated[Array, Numbers((WEEKDAYS * HOURS, "n"), high=LARGEST, missing=True)]
    level: Annotated[Array, Numbers(("n",), high=LARGEST, missing=True)]
    errors: Annotated[Array, Numbers((2, 2, "n"), low=0, high=LARGEST**2)]
    sums: Annotated[Array, Numbers((BINS, "n"), high=LARGEST)]
    counts: Annotated[Array, Numbers((BINS, "n"), low=0, high=LARGEST)]
    date: Annotated[float, Within(-LATEST, LATEST)]
    last: Annotated[float, Within(-LATEST * DAY, LATEST * DAY)]
    steps: Annotated[Array, Numbers((range(STEPS + 1),), low=0, high=LARGEST)]
    begun: Annotated[float, Within(-LATEST, LATEST)]
    missing: Annotated[int, Within(0)]
    kept: Annotated[
        Array | None, Numbers((range(MOST_KEPT + 1), "row"), high=LARGEST, missing=True)
    ] = None
    day_before: Annotated[Array | None, Numbers((BINS, "n"), high=LARGEST, missing=True)] = None
    week_before: Annotated[
        Array | None, Numbers((WEEKDAYS * HOURS, "n"), high=LARGEST, missing=True)
    ] = None

    def check(self, n: int) -> None:
        """Refuse, with `ValueError`, what no times of `n` features could give."""
        fields.check(self, {"n": n, "row": n + 1})
        for name in ("date", "begun"):
            value = getattr(self, name)
            need(value == int(value), f"{name} must be a whole number")


class Rhythm:
    """Learns the patterns of `n` features from rows with their times, in seconds since 1970.

    Examples
    --------
    >>> hours = np.arange(0, 24 * 14, 0.25)                       # two weeks
    >>> load = 10.0 + 5.0 * ((hours % 24 >= 6) & (hours % 24 < 18))
    >>> rhythm = Rhythm(1)
    >>> for begin in range(0, len(hours), 96):
    ...     part = slice(begin, begin + 96)
    ...     pattern = rhythm.pattern(3600 * hours[part])
    ...     rhythm.take(3600 * hours[part], load[part, None])
    >>> (load[part] - pattern[:, 0]).round(1)[[0, 40]].tolist()   # night and day are nearly alike
    [12.4, 12.6]
    """

    def __init__(self, n: int) -> None:
        self._day: Array = np.full((BINS, n), np.nan)
        self._week: Array = np.full((WEEKDAYS * HOURS, n), np.nan)
        # How far the newest day was from the pattern, and the newest one of each weekday.
        self._day_before, self._week_before = self._day.copy(), self._week.copy()
        self._level: Array = np.full(n, np.nan)
        self._errors: Array = np.zeros((2, 2, n))  # of day and week: squares without it, and with
        self._sums: Array = np.zeros((BINS, n))  # of the day that has not ended
        self._counts: Array = np.zeros((BINS, n))
        self._date = 0.0  # that day
        self._last: float | None = None  # time of the last row
        self._steps: Array = np.empty(0)  # times between the last rows, 0 if it was not later
        self._begun = 0.0  # the first day
        self._missing = 0  # rows until a window is full after a gap
        self._kept: list[Array] | None = []  # times and rows, until the monitor starts anew
        self._shape: Array | None = None  # (BINS, n) what is taken out today, None: nothing

    @property
    def begun(self) -> bool:
        """Whether a row came."""
        return bool(self._counts.any() or not np.isnan(self._level).all())

    def days(self, seconds: Array) -> list[slice]:
        """Return the rows of each day, as parts in their order."""
        edges = np.flatnonzero(np.diff(np.floor(seconds / DAY))) + 1
        ends = [0, *edges.tolist(), len(seconds)]
        return [slice(a, b) for a, b in pairwise(ends)]

    def gaps(self, seconds: Array) -> Array:
        """Return which rows come after a gap, and learn how far rows are from each other."""
        steps = np.diff(seconds, prepend=seconds[0] if self._last is None else self._last)
        known = np.full(STEPS, np.inf)
        known[STEPS - len(self._steps) :] = np.where(self._steps > 0, self._steps, np.inf)
        series = np.concatenate((known, np.where(steps > 0, steps, np.inf)))
        before = np.sort(sliding_window_view(series, STEPS)[:-1], axis=1)
        count = np.isfinite(before).sum(axis=1)
        usual = np.take_along_axis(before, np.maximum(3 * count[:, None] // 4 - 1, 0), 1)[:, 0]
        self._steps = np.where(np.isfinite(series), series, 0.0)[-STEPS:]
        self._last = float(seconds[-1])
        return np.asarray((steps < 0) | ((count >= STEPS // 2) & (steps > GAP * usual)))

    def filling(self, gaps: Array, window: int) -> Array:
        """Return for which rows the window after a gap is not full yet."""
        fill = np.zeros(len(gaps), bool)
        fill[: self._missing] = True
        for i in np.flatnonzero(gaps).tolist():
            fill[i : i + window - 1] = True
        last = np.flatnonzero(gaps)[-1:] + window - 1
        self._missing = max(0, int(last[0]) if len(last) else self._missing, len(gaps)) - len(gaps)
        return fill

    def pattern(self, seconds: Array) -> Array:
        """Return what is taken out of rows of one day."""
        self._turn(float(np.floor(seconds[0] / DAY)))
        return self.at(seconds)

    def at(self, seconds: Array) -> Array:
        """Return what is taken out at these times, as far as it is known today."""
        dates = np.floor(seconds / DAY)
        if (dates == self._date).all():
            return self._between(self._shape, seconds)
        found = np.empty((len(seconds), len(self._level)))
        for date in np.unique(dates).tolist():  # days of the week have patterns of their own
            found[dates == date] = self._between(self._shaped(date), seconds[dates == date])
        return found

    def _between(self, shape: Array | None, seconds: Array) -> Array:
        """Return a pattern at these times of a day."""
        if shape is None:
            return np.zeros((len(seconds), len(self._level)))
        place = (seconds % DAY) * (BINS / DAY)
        at = np.minimum(place.astype(int), BINS - 1)
        # Between the middles of two parts it is a line; at a jump it stays one.
        before, after = shape - np.roll(shape, 1, axis=0), np.roll(shape, -1, axis=0) - shape
        slope = np.where(before * after > 0, np.sign(before), 0.0)
        slope *= np.minimum(np.abs(before), np.abs(after))
        return np.asarray(shape[at] + slope[at] * (place - at - 0.5)[:, None])

    def take(self, seconds: Array, X: Array) -> None:
        """Learn rows of one day."""
        date = float(np.floor(seconds[0] / DAY))
        self._turn(date)
        if date != self._date:  # of a day that has ended
            return
        at = np.minimum(((seconds % DAY) * (BINS / DAY)).astype(int), BINS - 1)
        known = ~np.isnan(X)
        np.add.at(self._sums, at, np.where(known, X, 0.0))
        np.add.at(self._counts, at, known)
        if self._kept is not None:
            self._kept.append(np.column_stack((seconds, X)))
            while sum(map(len, self._kept[1:])) >= self._most:
                del self._kept[0]

    def fresh(self, seconds: float) -> Array | None:
        """Return the rows that a monitor starts anew from without their pattern, if it is time."""
        date = float(np.floor(seconds / DAY))
        if self._kept is None or not self.begun or date < self._begun + RENEWED:
            return None
        self._turn(date)
        kept, self._kept = self._rows(), None
        assert kept is not None
        return None if self._shape is None else np.asarray(kept[:, 1:] - self.at(kept[:, 0]))

    @property
    def _most(self) -> int:
        return min(MOST_KEPT, 2**18 // max(len(self._level), 1))

    # -- a day ends ---------------------------------------------------------------------------

    def _turn(self, date: float) -> None:
        """Learn the day that has ended, if a later one begins."""
        if self.begun and date <= self._date:
            return
        if self._counts.any():
            self._end()
            self._sums[:], self._counts[:] = 0.0, 0.0
        if not self.begun:  # nothing is known of the days so far
            self._begun = date
        self._date = date
        self._shape = self._shaped(date)

    def _end(self) -> None:
        """Mix the means of a day into the patterns, and note how well they foretold it."""
        some = self._counts > 0
        enough = some.sum(axis=0) >= FEWEST
        means = np.where(some & enough, self._sums / np.maximum(self._counts, 1), np.nan)
        mean = _mean(means)
        self._level = np.where(np.isnan(self._level), mean, self._level)
        today = means - self._level
        self._errors *= np.where(enough, TRUST, 1.0)
        for which, foretold in enumerate(self._foretold(self._date)):
            known = ~np.isnan(foretold) & ~np.isnan(today)
            # A pattern of a day has no mean of its own: a level that moved is no error of it.
            whole = today - _mean(np.where(known, today, np.nan)) if which == 0 else today
            rest = whole - foretold
            if which == 0:
                rest = rest - _mean(np.where(known, rest, np.nan))
            for row, off in enumerate((whole, rest)):
                self._errors[which, row] += np.where(known, off**2, 0.0).sum(axis=0)
        _mix(self._day, self._day_before, self._day_before, today, NEW_DAY)
        week, before = (
            each.reshape(WEEKDAYS, HOURS, -1) for each in (self._week, self._week_before)
        )
        weekday = int(self._date) % WEEKDAYS
        _mix(week[weekday], before[weekday], before[weekday - 1], _by_hour(today), NEW_WEEK)
        self._level = self._level + LEVEL * np.where(np.isnan(mean), 0.0, mean - self._level)

    def _foretold(self, date: float) -> tuple[Array, Array]:
        """Return what the patterns of day and week foretell of a date, NaN where nothing."""
        hours = _by_hour(self._day)
        week = self._week.reshape(WEEKDAYS, HOURS, -1)[int(date) % WEEKDAYS]
        # Within an hour it goes as on other days, as far as its hours do.
        known = ~np.isnan(week) & ~np.isnan(hours)
        off, usual = (x - _mean(np.where(known, x, np.nan)) for x in (week, hours))
        both, own = (np.where(known, x * usual, 0.0).sum(axis=0) for x in (off, usual))
        alike = np.divide(both, own, out=np.zeros_like(own), where=own > 0)
        within = alike * (self._day - np.repeat(hours, BINS // HOURS, axis=0))
        return self._day, np.repeat(week, BINS // HOURS, axis=0) + within

    def _shaped(self, date: float) -> Array | None:
        """Return what is taken out on a date."""
        whole, rest = self._errors[:, 0], self._errors[:, 1]
        share = np.where(whole > 0, 1.0 - rest / np.where(whole > 0, whole, 1.0), 0.0)
        share = np.where(share >= LEAST, np.minimum(share, MOST), 0.0)
        day, week = self._foretold(date)
        weekly = (share[1] > share[0]) & ~np.isnan(week).all(axis=0)
        shape = np.where(weekly, share[1] * week, share[0] * (day - _mean(day)))
        if not np.nan_to_num(shape).any():
            return None
        return np.column_stack([_filled(column) for column in shape.T])

    # -- values in and out --------------------------------------------------------------------

    def learned(self) -> RhythmState:
        """Return all that was learned."""
        return RhythmState(
            day=self._day.copy(), week=self._week.copy(), level=self._level.copy(),
            errors=self._errors.copy(), sums=self._sums.copy(), counts=self._counts.copy(),
            date=self._date, last=self._last or 0.0, steps=self._steps.copy(), begun=self._begun,
            missing=self._missing,
            kept=self._rows(),
            day_before=self._day_before.copy(), week_before=self._week_before.copy(),
        )  # fmt: skip

    def _rows(self) -> Array | None:
        if self._kept is None:
            return None
        return np.concatenate([np.empty((0, 1 + len(self._level))), *self._kept])[-self._most :]

    @classmethod
    def resumed(cls, state: RhythmState) -> Rhythm:
        """Return what `learned` was returned by."""
        self = cls(len(state.level))
        self._day, self._week, self._level = state.day.copy(), state.week.copy(), state.level.copy()
        self._errors, self._sums = state.errors.copy(), state.sums.copy()
        self._counts, self._date = state.counts.copy(), state.date
        self._last, self._steps = state.last if len(state.steps) else None, state.steps.copy()
        self._begun, self._missing = state.begun, state.missing
        self._kept = None if state.kept is None else [state.kept.copy()]
        if state.day_before is not None and state.week_before is not None:
            self._day_before, self._week_before = state.day_before.copy(), state.week_before.copy()
        self._shape = None if np.isnan(self._level).all() else self._shaped(self._date)
        return self


def _mean(columns: Array) -> Array:
    """Return the mean of what is known of each column, NaN where nothing is."""
    known = ~np.isnan(columns)
    count = known.sum(axis=0)
    total = np.where(known, columns, 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _by_hour(parts: Array) -> Array:
    """Return the mean of each hour of a day."""
    hours = parts.reshape(HOURS, BINS // HOURS, -1)
    return np.array([_mean(hour) for hour in hours])


def _mix(pattern: Array, before: Array, other: Array, new: Array, weight: float) -> None:
    """Mix a day into a pattern, as far as it was off in the same way before: else it is a fault.

    That is on the last such day, whose errors are in `before`, or on an `other` one.
    """
    off = new - pattern
    again = np.where(np.isnan(before), off, _common(off, before))
    again = np.where(np.isnan(other), again, _larger(again, _common(off, other)))
    first, known = np.isnan(pattern), ~np.isnan(off)
    before[known] = off[known]
    pattern[:] = np.where(first, new, np.where(known, pattern + weight * again, pattern))


def _common(one: Array, other: Array) -> Array:
    """Return what two errors have in common: the smaller one, 0 if they are to different sides."""
    low, high = np.minimum(one, other), np.maximum(one, other)
    return np.maximum(low, 0.0) + np.minimum(high, 0.0)


def _larger(one: Array, other: Array) -> Array:
    return np.where(np.abs(one) >= np.abs(other), one, other)


def _filled(column: Array) -> Array:
    """Return a pattern with lines where nothing is known, around midnight too."""
    known = np.flatnonzero(~np.isnan(column))
    if not len(known):
        return np.zeros_like(column)
    return np.interp(np.arange(len(column)), known, column[known], period=len(column))
