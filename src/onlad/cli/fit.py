"""`onlad fit`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from onlad.cli.arguments import Help, add_load, add_monitor, add_source, at_least, monitor_maker
from onlad.cli.bare import BareDetector
from onlad.cli.models import Models
from onlad.cli.session import Session
from onlad.detector import Detector
from onlad.errors import OnladError
from onlad.monitor import Monitor

if TYPE_CHECKING:
    from onlad.cli.arguments import Commands


def add(commands: Commands) -> None:
    """Add `onlad fit`."""
    parser = commands.add_parser(
        "fit",
        help="learn a source and keep the model",
        description="Learn a source and write the model to a file, for onlad watch --load, "
        "onlad score and onlad info. With --detector the model is the bare detector, for numbers "
        "of about unit size without missing values; such models can be merged.",
        formatter_class=Help,
        epilog="examples:\n"
        "  onlad fit monday.csv -o pump.onlad\n"
        "  onlad fit tuesday.csv --load pump.onlad -o pump.onlad\n"
        "  onlad fit scaled.csv --detector --hidden 32 -o a.onlad",
    )
    add_source(parser)
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="MODEL", help="where the model goes"
    ).complete = "file"  # type: ignore[attr-defined]
    add_load(parser)
    add_monitor(parser)
    bare = parser.add_argument_group("a bare detector")
    bare.add_argument("--detector", action="store_true", help="fit one instead of a monitor")
    bare.add_argument("--hidden", type=at_least(1), metavar="N", help="hidden units (default: 64)")
    bare.add_argument(
        "--forgetting", type=float, metavar="A",
        help="weight of the past at each sample, in (0, 1] (default: 1, all is kept)",
    )  # fmt: skip
    parser.set_defaults(run=run, usage=parser.error)


def run(args: argparse.Namespace) -> int:
    """Learn, and save."""
    models = _detector(args) if args.detector else Models(_monitors(args), args.load)
    session = Session(args, models, args.output)
    status = session.run(lambda block, verdicts: None)
    if not session.samples:
        raise OnladError("there is nothing to learn: the source has no samples")
    return status


def _monitors(args: argparse.Namespace) -> Callable[[], Monitor]:
    for name in ("hidden", "forgetting"):
        if getattr(args, name) is not None:
            args.usage(f"argument --{name}: needs argument --detector")
    return monitor_maker(args)


def _detector(args: argparse.Namespace) -> BareDetector:
    for name in ("load", "threshold", "warmup", "window"):
        if getattr(args, name) is not None:
            args.usage(f"argument --{name}: not allowed with argument --detector")
    forgetting = 1.0 if args.forgetting is None else args.forgetting
    if not 0 < forgetting <= 1:
        args.usage(f"argument --forgetting: must be in (0, 1], got {forgetting:g}")
    detector = Detector(n_hidden=args.hidden or 64, forgetting=forgetting, seed=args.seed or 0)
    return BareDetector(detector, learn=True)
