"""`onlad revert`."""

from __future__ import annotations

import argparse

from onlad.cli.arguments import Commands, Help, add_device
from onlad.cli.serve import extra


def add(commands: Commands) -> None:
    """Add `onlad revert`."""
    parser = commands.add_parser(
        "revert",
        help="restore a snapshot of a device of onlad serve",
        description="List the snapshots of a device of a service that is stopped, or restore one. "
        "While the service runs, use its page, or POST /streams/STREAM/revert. By default a "
        "snapshot is taken every day; its name says how many samples the model had seen.",
        formatter_class=Help,
        epilog="examples:\n"
        "  onlad revert --config onlad.toml plant pump\n"
        "  onlad revert --config onlad.toml plant pump --to 000001-000000086400-000.onlad.gz\n"
        "  onlad revert --config onlad.toml plant pump "
        "--to 000001-000000086400-000.onlad.gz --replay",
    )
    add_device(parser)
    parser.add_argument("--to", metavar="SNAPSHOT", help="the snapshot to restore")
    parser.add_argument(
        "--replay", action="store_true", help="learn the samples since then again, from the journal"
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
