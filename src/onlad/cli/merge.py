"""`onlad merge`."""

from __future__ import annotations

import argparse
import sys
from functools import reduce
from pathlib import Path

from onlad.cli.arguments import Commands, Help
from onlad.cli.models import load_model, save_model
from onlad.detector import Detector, merge
from onlad.errors import OnladError


def add(commands: Commands) -> None:
    """Add `onlad merge`."""
    parser = commands.add_parser(
        "merge",
        help="join what detectors on several devices learned",
        description="Write the detector that has seen what all of them have. They need the same "
        "random layer: equal columns, hidden units and seed. Monitors cannot be merged: each has "
        "its own scale of every sensor, so their models speak of different numbers.",
        formatter_class=Help,
        epilog="examples:\n"
        "  onlad fit a.csv --detector -o a.onlad\n"
        "  onlad fit b.csv --detector -o b.onlad\n"
        "  onlad merge a.onlad b.onlad -o both.onlad",
    )
    parser.add_argument(
        "models", type=Path, nargs="+", metavar="MODEL", help="two or more detectors"
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="MODEL", help="where the result goes"
    )
    parser.set_defaults(run=run, usage=parser.error)


def run(args: argparse.Namespace) -> int:
    """Load, merge, save."""
    if len(args.models) < 2:
        args.usage("argument MODEL: two or more are needed")
    detectors = []
    for path in args.models:
        model = load_model(path)
        if not isinstance(model, Detector):
            raise OnladError(
                f"{path} holds a {type(model).__name__}, whose scales are its own: only detectors "
                "can be merged. onlad fit --detector makes one"
            )
        detectors.append(model)
    try:
        merged = reduce(merge, detectors)
    except ValueError as error:
        raise OnladError(str(error)) from None
    save_model(merged, args.output)
    print(f"onlad: {args.output} has learned {merged.n_seen:,} samples", file=sys.stderr)
    return 0
