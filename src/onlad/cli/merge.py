"""`onlad merge`."""

from __future__ import annotations

import argparse
import sys
from functools import reduce
from pathlib import Path

from onlad import detector, mcu
from onlad.cli.arguments import Commands, add_command
from onlad.cli.models import load_model, save_model
from onlad.detector import Detector
from onlad.errors import OnladError
from onlad.mcu import PortableMonitor


def add(commands: Commands) -> None:
    """Add `onlad merge`."""
    parser = add_command(commands, "merge", run)
    text = "two or more models of one kind"
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL", help=text)
    text = "file of the merged model"
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="MODEL", help=text)


def run(args: argparse.Namespace) -> int:
    """Merge what detectors or microcontrollers learned.

    Merge models into the model that would have learned all their samples: detectors with the same
    random layer (equal columns, hidden units and seed), or microcontrollers that started from one
    model, as dumps or as files. Monitors cannot be merged, because each scales the sensors by
    itself.

        onlad fit a.csv --detector -o a.onlad
        onlad fit b.csv --detector -o b.onlad
        onlad merge a.onlad b.onlad -o both.onlad
        onlad merge chip1.bin chip2.bin -o both.onlad
    """
    if len(args.models) < 2:
        args.usage("argument MODEL: two or more are needed")
    models = [load_model(path) for path in args.models]
    for path, model in zip(args.models, models, strict=True):
        if not isinstance(model, (Detector, PortableMonitor)):
            raise OnladError(
                f"{path} holds a {type(model).__name__}, which scales sensors by itself: only "
                "detectors and microcontrollers can be merged. onlad fit --detector makes one"
            )
        if type(model) is not type(models[0]):
            raise OnladError(f"{path} and {args.models[0]} are not of one kind")
    merge = mcu.merge if isinstance(models[0], PortableMonitor) else detector.merge
    try:
        merged = reduce(merge, models)
    except ValueError as error:
        raise OnladError(str(error)) from None
    save_model(merged, args.output)
    print(f"onlad: {args.output} has learned {merged.n_seen:,} samples", file=sys.stderr)
    return 0
