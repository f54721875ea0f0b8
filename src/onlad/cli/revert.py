"""`onlad revert`."""

from __future__ import annotations

import argparse
from pathlib import Path

from onlad.cli.arguments import Commands, Help
from onlad.cli.serve import extra


def add(commands: Commands) -> None:
    """Add `onlad revert`."""
    parser = commands.add_parser(
        "revert",
        help="let a device of onlad serve go back to a snapshot of its model",
        description="List the snapshots of a device of a service that is stopped, or go back to "
        "one. A service that runs is told by its page, or by POST /streams/STREAM/revert. A "
        "snapshot is taken every day; its name says how many samples it has seen.",
        formatter_class=Help,
        epilog="examples:\n"
        "  onlad revert --config onlad.toml plant pump\n"
        "  onlad revert --config onlad.toml plant pump --to 000001-000000086400-000.onlad.gz\n"
        "  onlad revert --config onlad.toml plant pump "
        "--to 000001-000000086400-000.onlad.gz --replay",
    )
    parser.add_argument("stream", metavar="STREAM", help="its name in the configuration")
    parser.add_argument(
        "device", nargs="?", default="", metavar="DEVICE", help="leave it out if it has no name"
    )
    parser.add_argument(
        "--config", type=Path, required=True, metavar="PATH", help="the file of the service"
    )
    parser.add_argument("--to", metavar="SNAPSHOT", help="go back to this one")
    parser.add_argument(
        "--replay", action="store_true", help="learn the samples since then again, by the journal"
    )
    parser.set_defaults(run=run, usage=parser.error)


def run(args: argparse.Namespace) -> int:
    """List, or go back."""
    if args.replay and args.to is None:
        args.usage("argument --replay: needs argument --to")
    config = extra("config").load(args.config)
    for name in extra("run").revert(config, args.stream, args.device, args.to, args.replay):
        print(name)
    return 0
