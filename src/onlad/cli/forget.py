"""`onlad forget`."""

from __future__ import annotations

import argparse

from onlad.cli.arguments import Commands, Help, add_device
from onlad.cli.serve import extra


def add(commands: Commands) -> None:
    """Add `onlad forget`."""
    parser = commands.add_parser(
        "forget",
        help="make onlad serve forget a device",
        description="Forget a device of a service that is stopped: the next sample of the device "
        "starts a new model. While the service runs, use its page, or DELETE "
        "/streams/STREAM/devices/DEVICE. The forgotten model is kept in a file, from which --undo "
        "restores it.",
        formatter_class=Help,
        epilog="examples:\n"
        "  onlad forget --config onlad.toml plant pump\n"
        "  onlad forget --config onlad.toml --undo 000007.json",
    )
    add_device(parser, nargs="?")
    parser.add_argument("--undo", metavar="FILE", help="restore the device of this file")
    parser.set_defaults(run=run, usage=parser.error)


def run(args: argparse.Namespace) -> int:
    """Forget, and say how to undo it."""
    if (args.stream is None) == (args.undo is None):
        args.usage("give a STREAM, or --undo")
    config = extra("config").load(args.config)
    if args.undo is not None:
        print(f"{extra('run').undo(config, args.undo)} is restored")
        return 0
    file = extra("run").forget(config, args.stream, args.device)
    print(f"forgotten. To undo it: onlad forget --config {args.config} --undo {file}")
    return 0
