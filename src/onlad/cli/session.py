"""One run over a source: blocks in, verdicts to the caller, messages to standard error."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias, TypedDict

import numpy as np

from onlad import modelfile
from onlad.cli.arguments import reading
from onlad.cli.models import Models, refused, say
from onlad.errors import OnladError
from onlad.report.lines import counted
from onlad.streams.block import Block, Say, StreamError
from onlad.streams.lines import open_bytes
from onlad.streams.source import Source
from onlad.streams.stop import Stop
from onlad.verdict import Verdicts

Take: TypeAlias = Callable[[Block, Verdicts], None]

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
        self._place: Place | None = None
        self._position = 0
        self._is_kept = False
        self._drifting: dict[str, int] = {}  # by series: the feature that drifts, or -1
        if not sys.stdout.isatty() and hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8")  # data is the same in every locale

    def run(
        self,
        take: Take,
        passed: Callable[[Block], None] = lambda block: None,
        ended: Callable[[], int] = lambda: 0,
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
                place = self._place = Place(where, self._save, self._models, say)
            cut = place.start if place else 0
            where, grows = self._args.source, self._models.grows
            source = settings.open(where, self._models.names, stop, say, cut, grows=grows)
            self._source = source
            self._many = source.many
            self._models.check(source.many, self._save)
            try:
                with _bar(source.size) as show:
                    for block in source.blocks:
                        new = block if place is None else place.new(block)
                        if new is not None:
                            self._judge(new, take, passed)
                        self._position = block.position
                        show(block.position, self.alarms)
                        if self._save and time.monotonic() - saved > CHECKPOINT:
                            self._checkpoint()
                            saved = time.monotonic()
            except (StreamError, OSError):  # between two samples: the models are whole
                self._keep()
                ended()
                raise
            self._keep()
            incidents = ended()
            self.seconds = time.monotonic() - began
            if not self.samples and self.bad and not stop.signal:
                raise StreamError(
                    f"no row could be read: {self._first_bad}. --ignore leaves a column out"
                )
            self._summary(incidents)
            return 128 + stop.signal if stop.signal else 0

    def _judge(self, block: Block, take: Take, passed: Callable[[Block], None]) -> None:
        fatal = block.bad[0] if block.bad and self._args.on_bad == "stop" else None
        if fatal:
            before = int(np.searchsorted(block.row, fatal.row)) if block.names else 0
            block = block.part(slice(before))
        if block.names and len(block.values):
            verdicts = self._models.observe(block)
            self.samples += len(verdicts)
            self.alarms += int(np.count_nonzero(verdicts.is_anomaly))
            take(block, verdicts)
            self._report_drift(block, verdicts)
        elif block.lines and not fatal:
            passed(block)
        for bad in [fatal] if fatal else block.bad:
            self.bad += 1
            self._first_bad = self._first_bad or str(bad)
            self._last_bad = bad.where
            if not fatal and self.bad <= SHOWN:
                say(f"bad row, {bad}")
                if self.bad == SHOWN:
                    say("further bad rows are counted, but not shown")
        if fatal:
            raise StreamError(f"stopped at a bad row, {fatal}")

    def _report_drift(self, block: Block, verdicts: Verdicts) -> None:
        series = f"{block.series}: " if block.series else ""
        for i in np.flatnonzero(verdicts.drift).tolist():
            say(f"{series}row {block.row[i]}: a new mode was confirmed, and is normal from now on")
        before = self._drifting.get(block.series, -1)
        for i in np.flatnonzero(np.diff(verdicts.drifting, prepend=before)).tolist():
            feature = int(verdicts.drifting[i])
            if feature >= 0:
                where = f"{series}row {block.row[i]}: {verdicts.names[feature]}"
                say(f"{where} drifts slowly away from where it was. This is a notice, not an alarm")
        self._drifting[block.series] = int(verdicts.drifting[-1])

    def _checkpoint(self) -> None:
        """Save, and continue if that fails: the disk may have space again before the end."""
        try:
            self._keep()
        except OnladError as error:
            say(f"{error}. Trying again later")

    def _keep(self) -> None:
        if self._save:
            self._is_kept = self._models.save(self._save, self._many)
            if self._place is not None and self.samples:
                self._place.save(self._source, self._position)

    def _summary(self, incidents: int) -> None:
        parts = [counted(self.samples, "sample")]
        if self._models.judges:
            parts.append(counted(self.alarms, "anomaly"))
        if incidents:
            parts[-1] += f" in {counted(incidents, 'incident')}"
        if self.bad:
            last = f" (the last: {self._last_bad})" if self.bad > SHOWN else ""
            parts.append(counted(self.bad, "bad row") + last)
        say(f"{', '.join(parts)}, {self.seconds:.1f} s")
        if self._is_kept and self.samples:
            say(f"the model is in {self._save}")


@contextlib.contextmanager
def _bar(size: int | None) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on a terminal; yield what takes the position and the number of alarms."""
    if size is None or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda position, alarms: None
        return
    from rich import progress as bar  # noqa: PLC0415  (slow to import, and seldom needed)
    from rich.console import Console  # noqa: PLC0415

    columns = bar.BarColumn(), bar.TaskProgressColumn(), bar.TimeRemainingColumn()
    alarmed = bar.TextColumn("{task.fields[alarms]:,} anomalies")
    # Alarms on the same terminal go above the bar; in a pipe they are left alone.
    above = sys.stdout.isatty()
    console = Console(stderr=True)
    with bar.Progress(
        *columns, alarmed, console=console, transient=True, redirect_stdout=above
    ) as progress:
        task = progress.add_task("", total=size, alarms=0)
        yield lambda position, alarms: progress.update(task, completed=position, alarms=alarms)


class _Kept(TypedDict):
    source: str
    position: int
    head: str
    seen: dict[str, int]


class Place:
    """The position in a file up to which its samples are learned."""

    def __init__(self, source: Path, model: Path, models: Models, say: Say) -> None:
        self._source, self._path, self._models = source, Path(f"{model}.place"), models
        self.start = self._last = 0
        self._again: dict[str, int] = {}  # by series: samples after the position that are learned
        kept = self._load() if models.load else None
        if kept is None or kept["source"] != str(source.absolute()):
            return
        if not self._is_same(kept):
            say(f"{source} is not the file of the last run; reading it from its start")
            return
        self.start = kept["position"]
        self._again = {
            series: models.seen(series) - count for series, count in kept["seen"].items()
        }
        say(f"continuing at byte {self.start:,} of {source}")

    def _load(self) -> _Kept | None:
        try:
            kept: _Kept = json.loads(self._path.read_bytes())
            return kept
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is damaged"
            what = f"cannot read {self._path}, where {self._source} was left: {why}"
            raise OnladError(f"{what}. Remove it to read from the start") from None

    def _is_same(self, kept: _Kept) -> bool:
        file = open_bytes(self._source, follow=True)
        try:
            size = os.fstat(file.fd).st_size
            return size >= kept["position"] and file.head(kept["position"]) == kept["head"]
        finally:
            os.close(file.fd)

    def new(self, block: Block) -> Block | None:
        """Return the part of a block that is not learned yet."""
        if block.position < self._last:  # the file was replaced or truncated
            self.start = 0
        self._last = block.position
        if block.position <= self.start:
            return None
        count = self._again.get(block.series, 0)
        if count <= 0 or not block.names:
            return block
        self._again[block.series] = count - len(block.values)
        return block.part(slice(count, None))

    def save(self, source: Source, position: int) -> None:
        """Save the position after a block; the models are saved before it."""
        assert source.bytes is not None
        kept: _Kept = {
            "source": str(self._source.absolute()),
            "position": position,
            "head": source.bytes.head(position),
            "seen": self._models.all_seen(),
        }
        with refused(f"write {self._path}"):
            modelfile.replace(self._path, json.dumps(kept).encode())
