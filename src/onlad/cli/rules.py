"""Rules and settings of a stream, from a configuration of the service."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from onlad.cli.arguments import monitor_settings
from onlad.cli.service import service
from onlad.errors import OnladError
from onlad.rules import Rules
from onlad.streams.settings import given


def add_rules(parser: argparse.ArgumentParser, *, needed: bool = False) -> None:
    """Add --config and --stream."""
    group = parser.add_argument_group("rules")
    group.add_argument(
        "--config", type=Path, metavar="FILE", required=needed,
        help="a configuration of onlad serve: use the settings, sensors, maintenance and "
        "alarms_per_day of its stream; command-line arguments take precedence",
    )  # fmt: skip
    text = "which stream of that file (default: the only one)"
    group.add_argument("--stream", metavar="NAME", help=text)


def rules_and_settings(args: argparse.Namespace) -> tuple[Rules, dict[str, Any]]:
    """Return the rules, and the settings of monitors."""
    settings = monitor_settings(args)
    if args.config is None:
        if args.stream is not None:
            args.usage("argument --stream: needs argument --config")
        return Rules(), settings
    streams = {stream.name: stream for stream in service("config").load(args.config).streams}
    name = args.stream or (next(iter(streams)) if len(streams) == 1 else None)
    if name not in streams:
        known = ", ".join(streams)
        what = f"has no stream {name!r}" if name else "has several streams"
        raise OnladError(f"{args.config} {what}. --stream takes one of {known}")
    return streams[name].rules, given(streams[name]) | settings
