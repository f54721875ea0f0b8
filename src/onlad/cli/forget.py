"""`onlad forget`."""

from __future__ import annotations

import argparse
from pathlib import Path

from onlad.cli.arguments import Commands, Help
from onlad.cli.serve import extra


def add(commands: Commands) -> None:
    """Add `onlad forget`."""
    parser = commands.add_parser(
        "forget",
        help="let onlad serve forget what it has learned of a device",
        description="Forget a device of a service that is stopped: its next sample begins a new "
        "one, with features of its own. In a service that runs, use its page, or DELETE "
        "/streams/STREAM/devices/DEVICE. What is forgotten is kept in a file, and can be put back.",
        formatter_class=Help,
        epilog="examples:\n"
        "  onlad forget --config onlad.toml plant pump\n"
        "  onlad forget --config onlad.toml --undo 000007.json",
    )
    parser.add_argument("stream", nargs="?", metavar="STREAM", help="its name in the configuration")
    parser.add_argument(
        "device", nargs="?", default="", metavar="DEVICE", help="leave it out if it has no name"
    )
    parser.add_argument(
        "--config", type=Path, required=True, metavar="PATH", help="the file of the service"
    )
    parser.add_argument("--undo", metavar="FILE", help="put the device of this file back")
    parser.set_defaults(run=run, usage=parser.error)


def run(args: argparse.Namespace) -> int:
    """Forget, and say how to undo it."""
    if (args.stream is None) == (args.undo is None):
        args.usage("give a STREAM, or --undo")
    config = extra("config").load(args.config)
    if args.undo is not None:
        print(f"{extra('run').undo(config, args.undo)} is watched again")
        return 0
    file = extra("run").forget(config, args.stream, args.device)
    print(f"forgotten. To undo it: onlad forget --config {args.config} --undo {file}")
    return 0
