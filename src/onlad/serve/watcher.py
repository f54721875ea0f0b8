"""A device of a stream: its monitor, its last scores, and its alarms."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import numpy as np

from onlad.monitor import MOST_LATE, Monitor
from onlad.reference import Array
from onlad.rows import Names
from onlad.rules import Budget
from onlad.serve import logs
from onlad.serve.alarm import LABELS, Alarm, Alarms, band, key, rounded
from onlad.serve.checkpoint import OnDisk, Said
from onlad.serve.frames import Fact
from onlad.serve.history import History
from onlad.serve.tables import StreamTable
from onlad.streams.settings import settle
from onlad.verdict import Verdict, Verdicts
from onlad.watching import default_window

MOST_BANDS = 32  # sensors whose bands are published with the state of a device


def padded(rows: Array, width: int) -> Array:
    """Return rows with missing values where sensors came later."""
    more = width - rows.shape[1]
    return np.pad(rows, ((0, 0), (0, more)), constant_values=np.nan) if more > 0 else rows


class Watcher:
    """One device: its monitor, its history and its alarms."""

    def __init__(
        self, number: int, stream: StreamTable, device: str, monitor: Monitor, history: int
    ) -> None:
        self.number, self.stream, self.device = number, stream, device
        self.monitor = monitor
        if not monitor.names:
            self.name(stream.columns)
        self.born = True  # the journal knows it
        self.gone = False  # it was forgotten
        self.on_disk = OnDisk()
        self.lost = 0  # rows of the journal that the model has never seen
        self.history = History(history)
        self.alarms = Alarms()
        self._budget = Budget(stream.rules.incidents_per_day)
        self.last: Said | None = None
        self.seen = 0.0  # when the last sample came, by the clock
        self.failed = ""  # why it is set aside until the next start, if it is
        self.kept: list[str] = []  # settings of the file that it cannot follow, in words
        self.silent = False  # an alarm of its own: no sample for `silent_after` seconds
        self._heard = time.monotonic()  # a clock may jump
        self.mode_row = -1  # of the sample that confirmed the newest mode
        self.unnamed: Names = ()  # names that came later, and the journal lacks
        self.serve_at(())
        self.begin_counts()
        self._changes = 0  # of the model, besides samples
        self.n_alarm_changes = 0  # of the alarms
        self.peers: Callable[[], Iterable[Watcher]] = tuple  # the devices of the stream
        self._before: Array | None = None  # times and rows of the window before the next sample
        self._kept = 0  # rows of a window that come before its last, at most

    def begin_counts(self) -> None:
        """Count from here on what came since the start of the process; replays do not."""
        self.late: set[str] = set()  # names that came later, and were reported
        self.samples = self.bad = self.anomalies = self.n_alarms = self.drifts = self.excluded = 0
        self.suppressed = 0  # alarms that were too many

    @property
    def where(self) -> dict[str, str]:
        """Return stream and device, as logs and messages have them."""
        return {"stream": self.stream.name, "device": self.device}

    @property
    def key(self) -> str:
        """Return stream and device as people write them."""
        return key(self.stream.name, self.device)

    @property
    def journaled(self) -> int:
        """Return the number of the device's next row in the journal."""
        return self.monitor.n_seen + self.lost

    @property
    def changes(self) -> int:
        """Return a number that differs when the model does."""
        return self.monitor.n_seen + self._changes

    @property
    def names(self) -> Names:
        """Return the names of the features; none before the first sample."""
        return self.monitor.names

    def fact(self, kind: str, **values: Any) -> Fact:
        """Return what happens to the device at its next row, for the journal."""
        return Fact(kind, {"number": self.number, "row": self.journaled, **values})

    def apply(self, fact: Fact, snapped: Callable[[str], Monitor]) -> int:
        """Let what a fact says happen, when it is done and when the journal is replayed.

        `snapped` returns the model of a snapshot. Return how many samples were learned.
        """
        values = fact.values
        if fact.kind == "paused":
            self.paused = values["paused"]
        elif fact.kind == "named":
            self.widen(tuple(values["names"]))
        elif fact.kind == "maintenance":
            self.serve_at(tuple(values["windows"]))
            self._changes += 1
        elif fact.kind == "reverted":
            self.revert(snapped(values["file"]))
        elif fact.kind == "false_alarms":
            self.settle({"false_alarms": values["rate"]})
        elif fact.kind == "label":
            for alarm in [each for each in self.alarms if each.id == values["alarm"]]:
                alarm.undo = values["undo"]
                alarm.marked &= values["label"] != ""  # that was taken back by a snapshot
                return self.put_label(alarm, values["label"], values["comment"])
        return 0

    def name(self, names: Names) -> None:
        """Name the features before the first sample is observed."""
        monitor = Monitor.resumed(self.monitor.settings(), names=names)
        monitor.paused, self.monitor = self.monitor.paused, monitor

    def twin(self) -> Monitor:
        """Return a copy of the monitor, which others may read while this one continues."""
        return Monitor.resumed(self.monitor.settings(), self.monitor.learned())

    @property
    def state(self) -> str:
        """Return the state of the device in one word."""
        if self.failed:
            return "failed"
        if self.silent:
            return "silent"
        if self.paused:
            return "paused"
        if self.last is None or not self.last.ready:
            return "learning"
        return "alarm" if self.alarm is not None else "normal"

    def status(self) -> dict[str, Any]:
        """Return the state of the device as it is published."""
        last, ready = self.last, self.last is not None and self.last.ready
        return {
            "state": self.state,
            "time": last and last.time,
            "score": rounded(last.score) if last and ready else None,
            "threshold": rounded(last.threshold) if last and ready else None,
            "drifting": last and last.drifting,
            "severity": self.severity,
            "maintenance": self.serviced,
            "suppressed": self.suppressed,
            "samples": self.monitor.n_seen,
            "seen": self.seen,
        }

    def bands(self) -> dict[str, dict[str, float]]:
        """Return value, expected value and band of the first sensors at the last sample."""
        around = self.history.around()[-1:]
        if not around.size:
            return {}
        value, expected, reach = around[0].astype(float)
        columns = np.stack((value, expected, expected - reach, expected + reach), axis=1)
        named = zip(map(str, self.names), columns.tolist(), strict=True)
        return {name: band(*numbers) for name, numbers in itertools.islice(named, MOST_BANDS)}

    def serve_at(self, windows: tuple[str, ...]) -> None:
        """Neither tell nor learn at these times, nor at those of the file."""
        rules, both = self.stream.rules, (*self.stream.maintenance, *windows)
        self.rules = replace(rules, maintenance=both) if windows else rules
        self.windows = windows

    @property
    def serviced(self) -> bool:
        """Whether the last sample came in a time of maintenance."""
        rules = self.rules
        if not rules.maintenance or self.last is None:
            return False
        return bool(rules.calendar.during([self.last.time])[0])

    def hear(self, seen: float) -> None:
        """Note that a sample came, and when by the clock."""
        self.seen, self._heard, self.silent = seen, time.monotonic(), False

    def falls_silent(self) -> bool:
        """Return whether the device has just become silent, by `silent_after`.

        One that is switched off to be serviced is not, until the time of maintenance is over.
        """
        after = self.stream.silent_after
        if after is None or self.silent or time.monotonic() - self._heard <= after:
            return False
        return not bool(self.rules.calendar.during([time.time()])[0])

    def silence(self) -> dict[str, Any]:
        """Note that the device is silent; return the alarm."""
        self.silent = True
        since = datetime.fromtimestamp(self.seen, timezone.utc)
        return self._notice_of("silent", f"no sample since {since.isoformat(' ', 'seconds')}")

    def fail(self, error: Exception) -> dict[str, Any]:
        """Set the device aside until the next start, since its monitor raised; return the alarm."""
        way = "Restart the service to leave out what it failed on, or forget the device"
        self.failed = f"the device is set aside: its monitor failed with {error!r:.200}. {way}"
        return self._notice_of("failed", self.failed)

    def _notice_of(self, kind: str, text: str) -> dict[str, Any]:
        """Return an alarm about the device itself, not about a sample."""
        row = self.monitor.n_seen
        return {
            "kind": kind,
            "id": f"{self.key}/{kind}/{row}",
            **self.where,
            "row": row,
            "time": self.seen,
            "score": None,
            "threshold": None,
            "p_value": None,
            "causes": {},
            "text": f"{self.key}: {text}",
        }

    @property
    def alarm(self) -> Alarm | None:
        """Return the alarm that has not ended."""
        return self.alarms.open_at(self.monitor.n_seen - 1, self.stream.quiet)

    @property
    def severity(self) -> float:
        """Return the severity of the open alarm, 0 without one."""
        return self.alarm.severity if self.alarm is not None else 0.0

    @property
    def paused(self) -> bool:
        """Whether samples are judged, but not learned."""
        return self.monitor.paused

    @paused.setter
    def paused(self, value: bool) -> None:
        self.monitor.paused = value

    def observe(self, X: Array, times: Array) -> tuple[Verdicts, list[Alarm]]:
        """Return the verdicts on samples, and the alarms that began."""
        verdicts = self.rules.judge(self.monitor, X, times, timed=self.stream.patterns)
        return verdicts, self.follow(X, times, verdicts)

    def follow(self, X: Array, times: Array, verdicts: Verdicts) -> list[Alarm]:
        """Apply the rules to verdicts on samples, note them, and return the alarms that began."""
        first, self.unnamed = self.monitor.n_seen - len(X), ()
        if self._before is None:
            self._kept, self._before = self._window - 1, np.empty((0, 1 + X.shape[1]))
        before = len(self._before)
        rows = np.empty((before + len(X), 1 + X.shape[1]))
        rows[:before], rows[before:, 0], rows[before:, 1:] = self._before, times, X
        self.rules.apply(verdicts, times)
        # As it was before these rows: the samples of an alarm are the same however they come.
        goes_on = self.alarms.open_at(first, self.stream.quiet) is not None
        matters = goes_on or verdicts.is_anomaly.any()
        began = self._notice(rows, first, verdicts) if matters else []
        self._before = rows[max(0, len(rows) - self._kept) :].copy()
        self.history.add(first, times, verdicts)
        self.samples += len(X)
        self.excluded += len(X) - int(np.count_nonzero(verdicts.learned))
        new = np.flatnonzero(verdicts.drift)
        self.drifts += len(new)
        self.mode_row = first + int(new[-1]) if len(new) else self.mode_row
        self._say(times, verdicts)
        return began

    def _say(self, times: Array, verdicts: Verdicts) -> None:
        """Note what is published of the last sample."""
        index = int(verdicts.drifting[-1])
        name = None if index < 0 else str(verdicts.names[index])
        if name is not None and (self.last is None or self.last.drifting != name):
            logs.info("drifting", **self.where, feature=name)
        score, threshold = float(verdicts.score[-1]), float(verdicts.threshold[-1])
        self.last = Said(float(times[-1]), bool(verdicts.ready[-1]), score, threshold, name)

    @property
    def _window(self) -> int:
        """Return how many samples are watched together, at most."""
        return self.monitor.window or default_window(len(self.names))

    def _notice(self, rows: Array, first: int, verdicts: Verdicts) -> list[Alarm]:
        """Begin alarms, and follow the open one; `rows` has times and samples, and those before."""
        self.n_alarm_changes += 1
        began: list[Alarm] = []
        for i in range(len(verdicts)):
            here = len(rows) - len(verdicts) + i
            alarm, when = self.alarms.open_at(first + i, self.stream.quiet), float(rows[here, 0])
            if verdicts.is_anomaly[i]:
                self.anomalies += 1
                if alarm is None:
                    alarm = self._begin(verdicts[i], first + i, when)
                    for before in rows[max(0, here - self._kept) : here].tolist():
                        alarm.take(before, learned=True)
                    alarm.before = len(alarm.rows)
                    began += [alarm] * alarm.reported
                elif alarm.follow(verdicts[i], first + i, when):
                    alarm.like = self.alarms.like(alarm, self._others)
            if alarm is not None:
                alarm.take(rows[here].tolist(), learned=bool(verdicts.learned[i]))
        return began

    def _begin(self, verdict: Verdict, row: int, when: float) -> Alarm:
        alarm = Alarm(
            f"{self.key}/{row}", self.stream.name, self.device, row, when, verdict.score,
            verdict.threshold, verdict.p_value, causes={},
        )  # fmt: skip
        alarm.follow(verdict, row, when)
        alarm.like = self.alarms.like(alarm, self._others)
        day_of = self.stream.rules.calendar.day
        day = day_of(when)
        before = sum(past.reported and day_of(past.time) == day for past in self.alarms)
        alarm.reported = self._budget.allows(day, before)
        self.suppressed += not alarm.reported
        self.alarms.keep(alarm)
        self.n_alarms += 1
        return alarm

    @property
    def _others(self) -> Iterator[Alarm]:
        """Return the alarms of the other devices of the stream."""
        return (alarm for peer in self.peers() if peer is not self for alarm in peer.alarms)

    def suppress(self, alarm: Alarm) -> None:
        """Note that an alarm is suppressed, since there were too many of all devices."""
        alarm.reported = False
        self.suppressed += 1
        self.n_alarm_changes += 1

    def revert(self, monitor: Monitor) -> None:
        """Go on with the model of a snapshot, as if it had seen the rows since without learning."""
        if later := self.names[len(monitor.names) :]:  # rows that are kept have these names too
            monitor.widen(later)
            # A file of the model has names that came later only when it has seen a row of them.
            self.unnamed = monitor.names[len(monitor.first_names) :]
        monitor.n_seen, monitor.paused = self.monitor.n_seen, self.paused
        self.monitor = monitor
        self._changes += 1

    def rows_of(self, alarm: Alarm) -> tuple[int, int]:
        """Return the rows of an alarm: to its last anomaly, or to now if a mode began with it."""
        goes_on = alarm is self.alarms[-1] and self.mode_row >= alarm.row
        return alarm.row, self.monitor.n_seen if goes_on else alarm.last + 1

    @property
    def grows(self) -> bool:
        """Whether names that come later are watched from then on."""
        return self.monitor.n_seen > 0 and self.monitor.widened < MOST_LATE

    def take(self, names: Names) -> None:
        """Watch names that came later, which the journal does not have yet."""
        self.widen(names)
        self.unnamed = self.names[len(self.monitor.first_names) :]

    def widen(self, names: Names) -> None:
        """Watch more sensors from here on; those that are watched already stay as they are."""
        if new := tuple(name for name in names if name not in self.names):
            self.monitor.widen(new)
            if self._before is not None:
                self._before = padded(self._before, 1 + len(self.names))
            self._changes += 1

    def put_label(self, alarm: Alarm, label: str, comment: str) -> int:
        """Note what a person says of an alarm; return how many samples were learned.

        What is excluded from learning while a fault is named never becomes a mode.
        """
        if label not in LABELS:
            raise ValueError(f"label must be one of {', '.join(LABELS[1:])}, or empty")
        if alarm.marked and label != "normal":
            raise ValueError("the samples of this alarm were learned as normal")
        alarm.label, alarm.comment = label, comment
        self.n_alarm_changes += 1
        self._changes += 1
        if label in ("fault", "maintenance"):
            self.monitor.reject()
        return self.mark_normal(alarm) if label == "normal" and not alarm.marked else 0

    def settle(self, wanted: Mapping[str, Any]) -> bool:
        """Let settings that can be changed take effect; return whether anything changed."""
        changed = settle(self.monitor, wanted)
        self._changes += changed
        return changed

    def mark_normal(self, alarm: Alarm) -> int:
        """Learn the samples of an alarm that were not learned; return how many."""
        n = len(self.names)
        rows = np.array([row[:n] + [np.nan] * (n - len(row)) for row in alarm.rows])
        end = min(len(rows), alarm.before + alarm.last - alarm.row + 1)
        new = [i for i in range(end) if not alarm.learned[i]]
        local = self.rules.calendar.local(np.array(alarm.times)) if self.monitor.timed else None
        for i in new:
            part = slice(max(0, i - self._window + 1), i + 1)
            self.monitor.accept(rows[part], local[part] if local is not None else None)
            alarm.learned[i] = True
        self._changes += 1
        self.n_alarm_changes += 1
        alarm.marked = True
        return len(new)
