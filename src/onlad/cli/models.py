"""The monitors of a run: create, load and save them. One series is a file, many are a folder."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from onlad import persist
from onlad.detector import Detector
from onlad.errors import OnladError
from onlad.kernel import LARGEST
from onlad.monitor import Monitor
from onlad.reference import Array
from onlad.rows import Names
from onlad.rules import Rules
from onlad.streams.block import Block
from onlad.streams.settings import kept, settle
from onlad.streams.times import moments, seconds_or_nan
from onlad.verdict import Verdicts

LONGEST_NAME = 200  # of a file, in bytes
NONE = Rules()


def say(words: str) -> None:
    """Print words to standard error."""
    print(f"onlad: {words}", file=sys.stderr, flush=True)


@contextmanager
def refused(what: str) -> Iterator[None]:
    """Say in one line why a file cannot be read or written."""
    try:
        yield
    except OSError as error:
        raise OnladError(f"cannot {what}: {error.strerror}") from None


def load_model(path: Path) -> Any:
    """Return the model in a file."""
    with refused(f"read {path}"):
        return persist.load(path)


def save_model(model: persist.Model, path: Path) -> None:
    """Save, or say why not."""
    with refused(f"write {path}"):
        persist.save(model, path)


def file_name(series: str) -> str:
    """Return the file name of a series: readable, safe, and unique for each series.

    Examples
    --------
    >>> file_name("pump,host=a/b")
    'pump%2Chost%3Da%2Fb.onlad'
    """
    name = quote(series, safe="").replace(".", "%2E")
    if len(name) > LONGEST_NAME:
        name = name[:100] + "~" + hashlib.sha256(series.encode()).hexdigest()
    return f"{name}.onlad"


class Models:
    """A monitor for each series, loaded or created with the first sample of the series.

    `wanted` has the settings of new monitors; loaded ones take those that can still be changed. If
    it `grows`, columns that come later are watched too.
    """

    judges = True  # whether there can be alarms

    def __init__(
        self,
        wanted: Mapping[str, Any],
        load: Path | None = None,
        monitor: Monitor | None = None,
        rules: Rules = NONE,
        *,
        grows: bool = False,
    ) -> None:
        self._wanted, self.load, self._rules, self.grows = wanted, load, rules, grows
        self._monitors: dict[str, Monitor] = {} if monitor is None else {"": monitor}
        self._refused: dict[str, list[Names]] = {}  # columns that came too late, by series
        self._last: dict[str, float] = {}  # time of the last sample, by series
        self._saved: dict[str, int] = {}  # samples that were seen when it was saved
        if load and not load.is_dir():
            self._monitors[""] = self._resumed(load)

    def names(self, series: str) -> Names:
        """Return the names that the model of a series has learned; none if it is new."""
        monitor = self._found(series)
        return monitor.names if monitor else ()

    def seen(self, series: str) -> int:
        """Return how many samples the model of a series has seen."""
        monitor = self._found(series)
        return monitor.n_seen if monitor else 0

    def all_seen(self) -> dict[str, int]:
        """Return how many samples each model has seen."""
        return {series: monitor.n_seen for series, monitor in self._monitors.items()}

    def observe(self, block: Block) -> Verdicts:
        """Return the verdicts on the samples of a block."""
        monitor = self._found(block.series) or Monitor(**self._wanted)
        first = monitor.n_seen == 0
        if first:
            monitor = Monitor.resumed(monitor.settings(), names=block.names)
            self._monitors[block.series] = monitor
        if new := block.names[len(monitor.names) :]:
            block = self._grown(monitor, block, new)
        when = None
        if block.times is not None and (self._rules.maintenance or monitor.timed or first):
            when = self._moments(block)
        if when is None and (self._rules.maintenance or monitor.timed):
            why = "the model has learned patterns of time" if monitor.timed else "maintenance"
            raise OnladError(f"samples need a time: {why}. --time names the column")
        return self._rules.observe(monitor, block.values, when)

    def _grown(self, monitor: Monitor, block: Block, new: Names) -> Block:
        """Let a monitor watch columns that came later, if it can; return what it watches."""
        shown = ", ".join(str(name) for name in new)
        try:
            monitor.widen(new)
        except ValueError as error:
            if new not in self._refused.setdefault(block.series, []):
                self._refused[block.series].append(new)
                say(f"{shown} came later and cannot be watched: {error}")
            return replace(block, names=monitor.names, values=block.values[:, : len(monitor.names)])
        series = f"{block.series}: " if block.series else ""
        say(f"{series}{shown} came later: watched from now on")
        return block

    def _moments(self, block: Block) -> Array | None:
        """Return the times of samples. One that cannot be read is that of the sample before it."""
        assert block.times is not None
        try:
            found = moments(block.times)
        except ValueError:
            found = np.array([seconds_or_nan(time) for time in block.times])
            if np.isnan(found).all():
                return None
        last = self._last.get(block.series, found[~np.isnan(found)][0])
        for i in np.flatnonzero(np.isnan(found)).tolist():
            found[i] = found[i - 1] if i else last
        self._last[block.series] = float(found[-1])
        return found

    def _found(self, series: str) -> Monitor | None:
        """Return the monitor of a series: the one in memory, or the one in its file."""
        if series not in self._monitors and self.load and series:
            path = self.load / file_name(series)
            if path.exists():
                self._monitors[series] = self._resumed(path)
        return self._monitors.get(series)

    def _resumed(self, path: Path) -> Monitor:
        """Return a monitor that was saved, with the settings that can still be changed."""
        monitor = load_model(path)
        if not isinstance(monitor, Monitor):
            raise OnladError(f"{path} holds a {type(monitor).__name__}; this needs a Monitor")
        settle(monitor, self._wanted)
        if unchanged := kept(monitor, replace(monitor.settings(), **self._wanted)):
            keeps = f"{path}: {'; '.join(unchanged)}: the model keeps its own"
            say(f"{keeps}. Remove the file to start again")
        return monitor

    def check(self, many: bool, save: Path | None) -> None:
        """Refuse a file where a folder is needed, or the other way round, before any work."""
        if many and "" in self._monitors:
            raise OnladError("a model of one series cannot score a source with several")
        for path in (self.load, save):
            if path is not None and path.exists() and path.is_dir() != many:
                need = "a folder, with one file per series" if many else "a file"
                raise OnladError(f"{path} must be {need}")
        if save is None:
            return
        folder = save if many else save.parent
        if many:
            with refused(f"make {folder}"):
                folder.mkdir(parents=True, exist_ok=True)
        if not (folder.is_dir() and os.access(folder, os.W_OK)):
            what = f"{folder} is not a folder that can be written to"
            raise OnladError(f"cannot write {save}: {what}")

    def save(self, path: Path, many: bool) -> bool:
        """Write the models that have learned since they were saved, each whole or not at all.

        Return whether there is any.
        """
        for series, monitor in self._monitors.items():
            if monitor.n_seen and self._saved.get(series) != monitor.n_seen:
                save_model(monitor, path / file_name(series) if many else path)
                self._saved[series] = monitor.n_seen
        return bool(self._saved)


class BareDetector(Models):
    """One detector; it learns what it scores, or only scores."""

    judges = False

    def __init__(self, detector: Detector, *, learn: bool) -> None:
        super().__init__({})
        self._detector, self._learn = detector, learn

    def names(self, series: str) -> Names:
        """Return no names: a detector knows only how many features there are."""
        return ()

    def observe(self, block: Block) -> Verdicts:
        """Return verdicts that have a score and nothing else."""
        verdicts = Verdicts(block.names, len(block.values))
        n = self._detector.n_features
        if n is not None and n != len(block.names):
            raise OnladError(f"the detector has {n} features, the source {len(block.names)}")
        strange = ~(np.abs(block.values) <= LARGEST[self._detector.dtype])
        if strange.any():
            i, j = (int(k) for k in np.argwhere(strange)[0])
            raise OnladError(
                f"row {block.row[i]}: column {block.names[j]!r} is missing or too large; a bare "
                "detector takes numbers of about unit size only. onlad fit without --detector "
                "scales them, and takes missing values"
            )
        update = self._detector.update_many if self._learn else self._detector.score_many
        verdicts.score[:] = update(block.values)
        return verdicts

    def save(self, path: Path, many: bool) -> bool:
        """Write the detector."""
        if self._detector.n_features is None:
            return False
        save_model(self._detector, path)
        return True

    def check(self, many: bool, save: Path | None) -> None:
        """Refuse many series, and a path that cannot be written."""
        if many:
            raise OnladError("a bare detector is fitted on one series; give a table of numbers")
        super().check(many, save)
