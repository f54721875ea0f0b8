"""`onlad watch`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from onlad.cli.arguments import Commands, add_command, add_load, add_monitor, add_source, default
from onlad.cli.incidents import IncidentLog
from onlad.cli.models import Models, say
from onlad.cli.rules import add_rules, rules_and_settings
from onlad.cli.session import Session
from onlad.incident import QUIET
from onlad.monitor import Monitor
from onlad.report.evaluation import truths
from onlad.report.lines import InfluxLines, Writer, jsonl, lines, people
from onlad.streams.block import Block
from onlad.verdict import Verdicts


def add(commands: Commands) -> None:
    """Add `onlad watch`."""
    parser = add_command(commands, "watch", run, quiet=QUIET, warmup=default(Monitor, "warmup"))
    add_source(parser, broker=True)
    parser.add_argument(
        "--follow", action="store_true",
        help="keep reading when the file grows, like tail -F; with --model, the next start "
        "continues where this one stopped",
    )  # fmt: skip
    parser.add_argument(
        "--output", choices=("people", "jsonl", "influx"), default="people",
        help="text (the default), JSON lines, or Influx line protocol; input in line protocol is "
        "printed with fields added",
    )  # fmt: skip
    text = "print one line per anomaly instead of incidents, as --output influx always does"
    parser.add_argument("--rows", action="store_true", help=text)
    parser.add_argument("--all", action="store_true", help="print every sample")
    add_load(parser)
    text = "save the model to this file: every minute, and at the end"
    parser.add_argument("--save", type=Path, metavar="MODEL", help=text)
    parser.add_argument(
        "--model", type=Path, metavar="MODEL",
        help="load the model if the file exists, and save it: for a command that is started "
        "repeatedly",
    )  # fmt: skip
    add_monitor(parser)
    add_rules(parser)


def run(args: argparse.Namespace) -> int:
    """Monitor a file, a pipe or a broker, and print each incident with its causes.

    Monitor a stream: learn what is normal from the stream itself, and print one line per incident
    with its severity, its causes and their expected values. Anomalies less than {quiet} samples
    apart are one incident, and so are incidents of several series that begin within a minute; for a
    live source a line is also printed when an incident begins. No labels and no training are
    needed; the first incident can come after {warmup} samples.

        onlad watch pump.csv
        onlad watch pump.csv --follow --model pump.onlad
        tail -n +1 -f pump.jsonl | onlad watch - --output jsonl | jq .causes
        onlad watch mqtt://broker/plant/+/sensors --model models/
        onlad watch - --input influx --output influx --all      (for Telegraf's execd)
    """
    if args.model and (args.load or args.save):
        args.usage("argument --model: not allowed with argument --load or --save")
    load = args.model if args.model and args.model.exists() else args.load
    rules, settings = rules_and_settings(args)
    models = Models(settings, load, rules=rules, grows=True)
    live = args.follow or "://" in args.source or args.source == "-"
    session = Session(args, models, args.model or args.save)
    writers: dict[str, Writer] = {"people": people, "jsonl": jsonl, "influx": InfluxLines(say)}
    write = writers[args.output]
    counts = np.zeros((2, 2), np.int64)  # by truth, by alarm
    rows = args.rows or args.all or args.output == "influx"
    log = None if rows else IncidentLog(rules, args.output == "jsonl", live)

    def take(block: Block, verdicts: Verdicts) -> None:
        which = range(len(verdicts)) if args.all else np.flatnonzero(verdicts.is_anomaly).tolist()
        if log is not None:
            log.add(block, verdicts)
        elif which:
            sys.stdout.write(lines(write, block, verdicts, which))
            sys.stdout.flush()
        if block.labels is not None:
            known, truth = truths(block.labels, args.normal)
            judged = known & verdicts.ready
            np.add.at(counts, (truth[judged] + 0, verdicts.is_anomaly[judged] + 0), 1)

    def passed(block: Block) -> None:
        if args.output == "influx" and args.all and block.lines:
            sys.stdout.write("".join(line + "\n" for line in block.lines))
            sys.stdout.flush()

    status = session.run(take, passed, log.finish) if log else session.run(take, passed)
    if args.label:
        (_, false), (missed, hits) = counts.tolist()
        say(
            f"of {hits + missed:,} samples labelled as anomalous {hits:,} were found; {false:,} "
            "other samples were anomalies too. onlad evaluate says more"
        )
    return status
