"""`onlad score`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from onlad.cli.arguments import Commands, add_command, add_source
from onlad.cli.bare import BareDetector
from onlad.cli.models import Models, load_model, say
from onlad.cli.session import Session
from onlad.detector import Detector
from onlad.errors import OnladError
from onlad.monitor import Monitor
from onlad.report.lines import InfluxLines, Table, Writer, jsonl, lines
from onlad.streams.block import Block
from onlad.verdict import Verdicts


def add(commands: Commands) -> None:
    """Add `onlad score`."""
    parser = add_command(commands, "score", run)
    text = "a file of onlad fit or onlad watch --save"
    parser.add_argument("model", type=Path, metavar="MODEL", help=text)
    add_source(parser)
    text = "a table (the default), JSON lines, or Influx line protocol"
    parser.add_argument("--output", choices=("csv", "jsonl", "influx"), default="csv", help=text)


def run(args: argparse.Namespace) -> int:
    """Score a source with a model, without learning.

    Score each sample with a saved model. Nothing is learned, and the model file is not changed;
    onlad watch --load continues to learn.

        onlad score pump.onlad tuesday.csv > scores.csv
        onlad score pump.onlad tuesday.csv --output jsonl
    """
    model = load_model(args.model)
    models = (
        BareDetector(model, learn=False) if isinstance(model, Detector) else _frozen(model, args)
    )
    session = Session(args, models)
    writers: dict[str, Writer] = {"csv": Table(), "jsonl": jsonl, "influx": InfluxLines(say)}
    write = writers[args.output]

    def take(block: Block, verdicts: Verdicts) -> None:
        sys.stdout.write(lines(write, block, verdicts, range(len(verdicts))))
        sys.stdout.flush()

    return session.run(take)


def _frozen(monitor: Monitor, args: argparse.Namespace) -> Models:
    facts = monitor.describe()
    if not facts["ready"]:
        raise OnladError(
            f"{args.model} is not ready: {facts['why']}. Let it learn more: onlad watch --model"
        )
    monitor.paused = True
    return Models({}, monitor=monitor)
