"""`onlad evaluate`."""

from __future__ import annotations

import argparse
import json
import math

import numpy as np

from onlad.cli.arguments import (
    Commands,
    add_command,
    add_load,
    add_monitor,
    add_source,
    monitor_settings,
)
from onlad.cli.models import Models
from onlad.cli.session import Session
from onlad.errors import OnladError
from onlad.incident import QUIET
from onlad.reference import Array
from onlad.report.evaluation import Report, evaluate, truths
from onlad.streams.block import Block
from onlad.verdict import Verdicts


def add(commands: Commands) -> None:
    """Add `onlad evaluate`."""
    parser = add_command(commands, "evaluate", run, quiet=QUIET)
    add_source(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_load(parser)
    add_monitor(parser)


def run(args: argparse.Namespace) -> int:
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
    report = evaluate(*(np.concatenate(column) for column in zip(*parts, strict=True)))
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
