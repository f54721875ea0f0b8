"""Commands over a history: `onlad score`, `onlad evaluate` and `onlad plot`."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np

from onlad.cli.arguments import (
    Commands,
    add_command,
    add_monitor,
    add_source,
    monitor_settings,
)
from onlad.cli.models import BareDetector, Models, load_model, refused, say
from onlad.cli.session import Session
from onlad.detector import Detector
from onlad.errors import OnladError
from onlad.incident import QUIET
from onlad.monitor import Monitor
from onlad.reference import Array
from onlad.report import evaluation
from onlad.report.evaluation import Report, truths
from onlad.report.lines import InfluxLines, Table, Writer, jsonl, lines
from onlad.report.track import Track
from onlad.streams.block import Block
from onlad.verdict import Verdicts

SUFFIXES = (".png", ".svg", ".html")  # of a picture


def add(commands: Commands) -> None:
    """Add `onlad score`, `onlad evaluate` and `onlad plot`."""
    parser = add_command(commands, "score", score)
    text = "a file of onlad fit or onlad watch --save"
    parser.add_argument("model", type=Path, metavar="MODEL", help=text)
    add_source(parser)
    text = "a table (the default), JSON lines, or Influx line protocol"
    parser.add_argument("--output", choices=("csv", "jsonl", "influx"), default="csv", help=text)
    parser = add_command(commands, "evaluate", evaluate, quiet=QUIET)
    add_source(parser)
    text = "the label of normal samples (default: 0, false, no, normal, ok and similar)"
    parser.add_argument("--normal", metavar="VALUE", help=text)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_monitor(parser)
    parser = add_command(commands, "plot", plot)
    add_source(parser)
    text = "the picture: .png, .svg or .html"
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="PATH", help=text)
    add_monitor(parser)


def score(args: argparse.Namespace) -> int:
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
        print(lines(write, block, verdicts, range(len(verdicts))), end="", flush=True)

    return session.run(take)


def _frozen(monitor: Monitor, args: argparse.Namespace) -> Models:
    facts = monitor.describe()
    if not facts["ready"]:
        raise OnladError(
            f"{args.model} is not ready: {facts['why']}. Let it learn more: onlad watch --model"
        )
    monitor.paused = True
    return Models({}, monitor=monitor)


def evaluate(args: argparse.Namespace) -> int:
    """Compare scores and alarms with labels.

    Monitor a source with labels, which the monitor does not see, and print how well scores and
    alarms agree with them. Samples without a label, and those of the warm-up, do not count. An
    event is a run of samples with an anomalous label; its delay is the number of samples before its
    first alarm. A false alarm is a run of alarms without an anomalous label. Alarms less than
    {quiet} samples apart are one incident, which is right if one of its alarms is.

        onlad evaluate pump.csv --label fault
        onlad evaluate kdd.csv --label class --normal normal. --json
    """
    if args.label is None:
        args.usage("the following arguments are required: --label")
    parts: list[tuple[Array, Array, Array]] = []

    def take(block: Block, verdicts: Verdicts) -> None:
        known, truth = truths(block.labels or (), args.normal)
        which = known & verdicts.ready
        parts.append((verdicts.score[which], verdicts.is_anomaly[which], truth[which]))

    session = Session(args, Models(monitor_settings(args), args.load, grows=True))
    status = session.run(take)
    if not sum(len(score) for score, _, _ in parts):
        raise OnladError("there is nothing to evaluate: no sample has a label and a verdict")
    report = evaluation.evaluate(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    print(json.dumps(report.as_dict()) if args.json else table(report))
    return status


def table(report: Report) -> str:
    """Return the report for people."""
    delay = "-" if math.isnan(report.delay) else f"{report.delay:g}"
    rows = {
        "AUC": (f"{report.auc:.4f}", "the chance that an anomalous sample scores above a normal"),
        "AUC-PR": (f"{report.auc_pr:.4f}", "mean precision; by chance it would be "
                   f"{report.anomalous / report.samples:.4f}"),
        "precision": (f"{report.precision:.1%}", f"of {report.alarms:,} alarms are right"),
        "recall": (f"{report.recall:.1%}", f"of {report.anomalous:,} anomalous samples are alarms"),
        "events": (f"{report.found} of {report.events}", "have an alarm"),
        "delay": (delay, "samples to the first alarm of a found event, in the median"),
        "false alarms": (f"{report.false_alarms:,}",
                         f"in {report.samples - report.anomalous:,} normal samples"),
        "incidents": (f"{report.right_incidents} of {report.incidents}", "are right"),
    }  # fmt: skip
    return "\n".join(
        f"{name:<13}{number.replace('nan%', '-').replace('nan', '-'):>10}   {words}"
        for name, (number, words) in rows.items()
    )


def plot(args: argparse.Namespace) -> int:
    """Draw scores, threshold, alarms and causes over time.

    Monitor a source and draw scores, threshold, alarms, new modes, and the causes of alarms over
    time. An HTML page also lists the incidents and shows the values under the pointer; it is one
    file and needs no network. The memory needed does not grow with the source.

        onlad plot pump.csv -o pump.html
        onlad plot pump.csv --load pump.onlad -o pump.png
    """
    if args.output.suffix.lower() not in SUFFIXES:
        args.usage(f"argument -o/--output: must end in {', '.join(SUFFIXES)}; got {args.output}")
    try:
        from onlad.report import picture  # noqa: PLC0415  (its import needs the extra)
    except ImportError:
        raise OnladError("a picture needs matplotlib: pip install onlad[plot]") from None
    track = Track()
    session = Session(args, Models(monitor_settings(args), args.load, grows=True))
    status = session.run(track.add)
    if not session.samples:
        raise OnladError("there is nothing to draw: the source has no samples")
    title = "standard input" if args.source == "-" else Path(args.source).name
    with refused(f"write {args.output}"):
        picture.draw(args.output, track, title)
    say(f"the picture is in {args.output}")
    return status
