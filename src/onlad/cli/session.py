"""One run over a source: blocks in, verdicts to whoever takes them, words to standard error."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from onlad.cli.arguments import reading
from onlad.cli.models import Models, say
from onlad.cli.place import Place
from onlad.errors import OnladError
from onlad.streams.block import Block, Say, StreamError
from onlad.streams.stop import Stop
from onlad.verdict import Verdicts

SHOWN = 20  # bad rows; the others are only counted
CHECKPOINT = 60.0  # seconds between two saves


class Session:
    """Runs over the source of `args`, counts what it sees, and saves the models when it ends."""

    def __init__(self, args: argparse.Namespace, models: Models, save: Path | None = None) -> None:
        self._args, self._models, self._save = args, models, save
        self._many = False
        self.samples = self.alarms = self.bad = 0
        self.seconds = 0.0
        self._first_bad = self._last_bad = ""
        self._bar: _Bar | None = None
        self._place: Place | None = None
        self._position = 0
        self._is_kept = False
        self._drifting: dict[str, int] = {}  # by series: the feature that drifts, or -1
        if not sys.stdout.isatty() and hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8")  # data is the same in every locale

    def run(
        self,
        take: Callable[[Block, Verdicts], None],
        passed: Callable[[Block], None] = lambda block: None,
        ended: Callable[[Say], int] = lambda say: 0,
    ) -> int:
        """Give each block with its verdicts to `take`; return the exit status.

        A block whose lines are not watched goes to `passed`. A signal ends the run between two
        blocks, and the models are saved then too. However it ends, `ended` is called then, and
        returns how many incidents there were.
        """
        began = time.monotonic()
        saved = began
        with Stop() as stop:
            settings, place = reading(self._args), None
            if self._save and settings.follow and self._args.model:
                where = Path(self._args.source)
                place = self._place = Place(where, self._save, self._models, self.say)
            cut = place.start if place else 0
            where, grows = self._args.source, self._models.grows
            source = settings.open(where, self._models.names, stop, self.say, cut, grows=grows)
            self._source = source
            self._many = source.many
            self._models.check(source.many, self._save)
            try:
                with _bar(source.size) as self._bar:
                    for block in source.blocks:
                        new = block if place is None else place.new(block)
                        if new is not None:
                            self._judge(new, take, passed)
                        self._position = block.position
                        self._bar.show(block.position, self.alarms)
                        if self._save and time.monotonic() - saved > CHECKPOINT:
                            self._checkpoint()
                            saved = time.monotonic()
            except (StreamError, OSError):  # between two samples: the models are whole
                self._keep()
                ended(self.say)
                raise
            self._keep()
            incidents = ended(self.say)
            self.seconds = time.monotonic() - began
            if not self.samples and self.bad and not stop.signal:
                raise StreamError(
                    f"no row could be read: {self._first_bad}. --ignore leaves a column out"
                )
            self._summary(incidents)
            return 128 + stop.signal if stop.signal else 0

    def _judge(
        self,
        block: Block,
        take: Callable[[Block, Verdicts], None],
        passed: Callable[[Block], None],
    ) -> None:
        fatal = block.bad[0] if block.bad and self._args.on_bad == "stop" else None
        if fatal:
            block = _before(block, fatal.row)
        if block.names and len(block.values):
            verdicts = self._models.observe(block)
            self.samples += len(verdicts)
            self.alarms += int(np.count_nonzero(verdicts.is_anomaly))
            take(block, verdicts)
            self._tell(block, verdicts)
        elif block.lines and not fatal:
            passed(block)
        for bad in [fatal] if fatal else block.bad:
            self.bad += 1
            self._first_bad = self._first_bad or str(bad)
            self._last_bad = bad.where
            if not fatal and self.bad <= SHOWN:
                self.say(f"bad row, {bad}")
                if self.bad == SHOWN:
                    self.say("further bad rows are counted, but not shown")
        if fatal:
            raise StreamError(f"stopped at a bad row, {fatal}")

    def _tell(self, block: Block, verdicts: Verdicts) -> None:
        series = f"{block.series}: " if block.series else ""
        for i in np.flatnonzero(verdicts.drift).tolist():
            self.say(
                f"{series}row {block.row[i]}: a new mode was confirmed, and is normal from here on"
            )
        before = self._drifting.get(block.series, -1)
        for i in np.flatnonzero(np.diff(verdicts.drifting, prepend=before)).tolist():
            feature = int(verdicts.drifting[i])
            if feature >= 0:
                self.say(
                    f"{series}row {block.row[i]}: {verdicts.names[feature]} drifts slowly away "
                    "from where it was. This is a notice, not an alarm"
                )
        self._drifting[block.series] = int(verdicts.drifting[-1])

    def _checkpoint(self) -> None:
        """Save, and go on if that fails: the disk may have space again before the end."""
        try:
            self._keep()
        except OnladError as error:
            self.say(f"{error}. Trying again later")

    def _keep(self) -> None:
        if self._save:
            self._is_kept = self._models.save(self._save, self._many)
            if self._place is not None and self.samples:
                self._place.save(self._source, self._position)

    def _summary(self, incidents: int) -> None:
        said = [_counted(self.samples, "sample")]
        if self._models.judges:
            said.append(_counted(self.alarms, "anomaly"))
        if incidents:
            said[-1] += f" in {_counted(incidents, 'incident')}"
        if self.bad:
            last = f" (the last: {self._last_bad})" if self.bad > SHOWN else ""
            said.append(_counted(self.bad, "bad row") + last)
        self.say(f"{', '.join(said)}, {self.seconds:.1f} s")
        if self._is_kept and self.samples:
            self.say(f"the model is in {self._save}")

    def say(self, words: str) -> None:
        """Print words to standard error."""
        say(words)


def _counted(n: int, what: str) -> str:
    many = what[:-1] + "ies" if what.endswith("y") else what + "s"
    return f"{n:,} {what if n == 1 else many}"


def _before(block: Block, row: int) -> Block:
    """Return the part of a block before a row."""
    return block.part(slice(int(np.searchsorted(block.row, row)) if block.names else 0))


class _Bar:
    """Shows how far a run is; this one shows nothing."""

    def show(self, position: int, alarms: int) -> None:
        """Take the position."""


class _Live(_Bar):
    """A bar on a terminal, redrawn a few times per second."""

    def __init__(self, size: int) -> None:
        from rich.console import Console  # noqa: PLC0415  (slow to import, and seldom needed)
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        self._progress = Progress(
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[alarms]} anomalies"),
            console=Console(stderr=True),
            transient=True,
            # Alarms on the same terminal go above the bar; in a pipe they are left alone.
            redirect_stdout=sys.stdout.isatty(),
        )
        self._task = self._progress.add_task("", total=size, alarms="0")
        self._next = 0.0

    def __enter__(self) -> _Live:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def show(self, position: int, alarms: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + 0.1
            self._progress.update(self._task, completed=position, alarms=f"{alarms:,}")


@contextlib.contextmanager
def _bar(size: int | None) -> Iterator[_Bar]:
    if size is None or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield _Bar()
        return
    with _Live(size) as bar:
        yield bar
