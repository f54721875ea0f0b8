"""`onlad serve`."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import Any

from onlad.cli.arguments import Commands
from onlad.cli.models import say
from onlad.errors import OnladError


def extra(name: str) -> Any:
    """Return a module of the service: it is an extra, and slow to import."""
    try:
        return import_module(f"onlad.serve.{name}")
    except ImportError as error:
        what = f"{error.name} is not installed"
        raise OnladError(f"{what}. Install it with: pip install 'onlad[serve]'") from None


def add(commands: Commands) -> None:
    """Add `onlad serve`."""
    parser = commands.add_parser(
        "serve",
        help="run a service that monitors streams from MQTT and HTTP",
        description="Monitor the streams of a configuration file. Samples arrive by MQTT or HTTP; "
        "verdicts and alarms are sent by MQTT, WebSocket and webhook. What was learned "
        "survives a crash at any moment. SIGTERM or Ctrl-C saves everything and stops.",
        epilog="example: onlad serve --config onlad.toml",
    )
    parser.add_argument(
        "--config",
        type=Path,
        required=True,
        metavar="PATH",
        help="a TOML file; see docs/reference/configuration.md",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="only check the configuration, and print settings that do not apply to devices "
        "which have already learned",
    )

    def run(args: argparse.Namespace) -> int:
        settings = extra("config").load(args.config)
        if args.check:
            for line in extra("devices").check(settings):
                say(line)
        else:
            try:
                extra("run").serve(settings)
            except OSError as error:
                raise OnladError(f"the service ended: {error}") from error
        return 0

    parser.set_defaults(run=run)
