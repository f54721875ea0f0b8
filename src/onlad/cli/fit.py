"""`onlad fit`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onlad.cli.arguments import (
    Commands,
    add_command,
    add_monitor,
    add_source,
    at_least,
    monitor_settings,
)
from onlad.cli.models import BareDetector, Models, file_name, save_model
from onlad.cli.session import Session
from onlad.detector import Detector
from onlad.errors import OnladError
from onlad.monitor import FEWEST, Monitor
from onlad.reference import Array
from onlad.rows import Names
from onlad.streams.block import Block
from onlad.streams.times import moments
from onlad.verdict import Verdicts


def add(commands: Commands) -> None:
    """Add `onlad fit`."""
    parser = add_command(commands, "fit", run)
    add_source(parser)
    text = "file of the model"
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="MODEL", help=text)
    add_monitor(parser, loads=False)
    bare = parser.add_argument_group("a detector")
    bare.add_argument("--detector", action="store_true", help="fit a detector instead of a monitor")
    bare.add_argument("--hidden", type=at_least(1), metavar="N", help="hidden units (default: 64)")
    text = "forgetting factor, in (0, 1] (default: 1, nothing is forgotten)"
    bare.add_argument("--forgetting", type=float, metavar="A", help=text)


def run(args: argparse.Namespace) -> int:
    """Learn a history that is known to be normal, and save the model.

    Learn a history that is known to be normal and save the model to a file, for onlad watch
    --model, onlad score and onlad info. The history must fit into memory. With --detector the model
    is a detector without scaling and threshold, for features of about unit size without missing
    values; such models can be merged.

        onlad fit monday.csv -o pump.onlad
        onlad watch tuesday.csv --model pump.onlad
        onlad fit scaled.csv --detector --hidden 32 -o a.onlad
    """
    models = _detector(args) if args.detector else _history(args)
    session = Session(args, models, args.output)
    status = session.run(lambda block, verdicts: None)
    if not session.samples:
        raise OnladError("there is nothing to learn: the source has no samples")
    if isinstance(models, History):
        _refuse_few(models)
    return status


def _refuse_few(history: History) -> None:
    for series, count in history.few().items():
        name = f"series {series!r}" if series else "the source"
        raise OnladError(
            f"{name} has {count} samples with a value; a model needs at least {FEWEST}. "
            "onlad watch needs no history"
        )


class History(Models):
    """The samples of each series: collected during the run, and learned at its end."""

    judges = False

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        super().__init__(wanted)
        self._parts: dict[str, tuple[Names, list[Array]]] = {}
        self._times: dict[str, list[Array] | None] = {}  # None where a sample has none

    def names(self, series: str) -> Names:
        """Return the names of a series that has begun."""
        return self._parts[series][0] if series in self._parts else ()

    def observe(self, block: Block) -> Verdicts:
        """Keep the samples, and return empty verdicts."""
        _, parts = self._parts.setdefault(block.series, (block.names, []))
        parts.append(block.values)
        times = self._times.setdefault(block.series, [])
        try:
            if times is not None:
                times.append(moments(block.times or [None]))
        except ValueError:
            self._times[block.series] = None
        return Verdicts(block.names, len(block.values))

    def few(self) -> dict[str, int]:
        """Return the samples with a value of each series that is too short to be learned."""
        known = {series: sum(int((~np.isnan(X).all(axis=1)).sum()) for X in parts)
                 for series, (_, parts) in self._parts.items()}  # fmt: skip
        return {series: count for series, count in known.items() if count < FEWEST}

    def save(self, path: Path, many: bool) -> bool:
        """Learn the samples, and write the models."""
        few = self.few()
        for series, (names, parts) in self._parts.items():
            if series not in few:
                times = self._times[series]
                when = np.concatenate(times) if times else None
                monitor = Monitor(**self._wanted, names=names).fit(np.concatenate(parts), when)
                save_model(monitor, path / file_name(series) if many else path)
        return len(few) < len(self._parts)


def _history(args: argparse.Namespace) -> History:
    for name in ("hidden", "forgetting"):
        if getattr(args, name) is not None:
            args.usage(f"argument --{name}: needs argument --detector")
    return History(monitor_settings(args))


def _detector(args: argparse.Namespace) -> BareDetector:
    for name in ("false_alarms", "window"):
        if getattr(args, name) is not None:
            option = name.replace("_", "-")
            args.usage(f"argument --{option}: not allowed with argument --detector")
    forgetting = 1.0 if args.forgetting is None else args.forgetting
    if not 0 < forgetting <= 1:
        args.usage(f"argument --forgetting: must be in (0, 1], got {forgetting:g}")
    detector = Detector(n_hidden=args.hidden or 64, forgetting=forgetting, seed=args.seed or 0)
    return BareDetector(detector, learn=True)
