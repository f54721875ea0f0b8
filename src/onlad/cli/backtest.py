"""`onlad backtest`."""

from __future__ import annotations

import argparse

import numpy as np

from onlad.cli.arguments import Commands, add_command, add_load, add_monitor, add_source
from onlad.cli.incidents import IncidentLog
from onlad.cli.models import Models, say
from onlad.cli.rules import add_rules, rules_and_settings
from onlad.cli.session import Session
from onlad.streams.block import Block
from onlad.verdict import Verdicts


def add(commands: Commands) -> None:
    """Add `onlad backtest`."""
    parser = add_command(commands, "backtest", run)
    add_source(parser)
    parser.add_argument("--json", action="store_true", help="print incidents as JSON lines")
    add_load(parser)
    add_monitor(parser)
    add_rules(parser, needed=True)


def run(args: argparse.Namespace) -> int:
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
