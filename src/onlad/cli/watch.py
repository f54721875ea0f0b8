"""`onlad watch`, and `onlad backtest`, which prints the incidents of a history."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from onlad.cli.arguments import (
    Commands,
    add_command,
    add_monitor,
    add_rules,
    add_source,
    default,
    rules_and_settings,
)
from onlad.cli.models import Models, say
from onlad.cli.session import Session
from onlad.incident import QUIET
from onlad.monitor import Monitor
from onlad.report.incidents import described, line
from onlad.report.joined import Joined, Joiner
from onlad.report.lines import InfluxLines, Writer, jsonl, lines, people
from onlad.rules import Rules
from onlad.streams.block import Block
from onlad.verdict import Verdicts


def add(commands: Commands) -> None:
    """Add `onlad watch` and `onlad backtest`."""
    parser = add_command(commands, "watch", watch, quiet=QUIET, warmup=default(Monitor, "warmup"))
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
    add_monitor(parser)
    text = "save the model to this file: every minute, and at the end"
    parser.add_argument("--save", type=Path, metavar="MODEL", help=text)
    parser.add_argument(
        "--model", type=Path, metavar="MODEL",
        help="load the model if the file exists, and save it: for a command that is started "
        "repeatedly",
    )  # fmt: skip
    add_rules(parser)
    parser = add_command(commands, "backtest", backtest)
    add_source(parser)
    parser.add_argument("--json", action="store_true", help="print incidents as JSON lines")
    add_monitor(parser)
    add_rules(parser, needed=True)


def watch(args: argparse.Namespace) -> int:
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
    rows = args.rows or args.all or args.output == "influx"
    log = None if rows else IncidentLog(rules, args.output == "jsonl", live)

    def take(block: Block, verdicts: Verdicts) -> None:
        which = range(len(verdicts)) if args.all else np.flatnonzero(verdicts.is_anomaly).tolist()
        if log is not None:
            log.add(block, verdicts)
        elif which:
            print(lines(write, block, verdicts, which), end="", flush=True)

    def passed(block: Block) -> None:
        if args.output == "influx" and args.all and block.lines:
            print(*block.lines, sep="\n", flush=True)

    return session.run(take, passed, log.finish) if log else session.run(take, passed)


def backtest(args: argparse.Namespace) -> int:
    """Print which incidents a history would have raised with these settings.

    Run through a history with the settings and rules of a stream of the service, and print each
    incident that would have been reported. The last lines say how many anomalies the rules for
    sensors and maintenance removed, and how many incidents alarms_per_day suppressed. Nothing is
    saved.

        onlad backtest history.csv --config onlad.toml
        onlad backtest history.csv --config onlad.toml --false-alarms 1/1000
    """
    rules, settings = rules_and_settings(args)
    log = IncidentLog(rules, args.json, live=False)
    session = Session(args, Models(settings, args.load, rules=rules, grows=True))
    removed = 0

    def take(block: Block, verdicts: Verdicts) -> None:
        nonlocal removed
        above = verdicts.score > verdicts.threshold
        removed += int(np.count_nonzero(above & ~verdicts.is_anomaly))
        log.add(block, verdicts)

    status = session.run(take, ended=log.finish)
    say(f"{removed:,} anomalies were removed by the rules")
    return status


class IncidentLog:
    """Prints incidents; those of a `live` source as they begin, and again when they are over."""

    def __init__(self, rules: Rules, as_json: bool, live: bool) -> None:
        self._json, self._live = as_json, live
        self._joiner = Joiner(rules, live=live)

    def add(self, block: Block, verdicts: Verdicts) -> None:
        """Take a block; print what ended in it, and what begins."""
        self._print(self._joiner.add(block, verdicts), "ended")
        if self._live:
            self._print(self._joiner.begun(), "begins")

    def finish(self) -> int:
        """Print what was open when the run ended; return how many incidents there were."""
        self._print(self._joiner.finish(), "ended")
        count, suppressed = self._joiner.count, self._joiner.suppressed
        if suppressed:
            say(f"suppressed by alarms_per_day: {suppressed:,} of {count:,} incidents")
        return count

    def _print(self, joined: list[Joined], state: str) -> None:
        for each in joined:
            if self._json:
                found = {"series": each.series} if each.series else {}
                found |= {"state": state, **described(each.whole)}
                print(json.dumps(found, ensure_ascii=False, allow_nan=False), flush=True)
            else:
                print(line(each.whole, begins=state == "begins"), end="", flush=True)
