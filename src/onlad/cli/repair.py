"""`onlad repair`."""

from __future__ import annotations

import argparse

from onlad.cli.arguments import Commands, add_state
from onlad.cli.serve import extra


def add(commands: Commands) -> None:
    """Add `onlad repair`."""
    parser = commands.add_parser(
        "repair",
        help="salvage a damaged state folder of onlad serve",
        description="Salvage the state folder of a service that does not start because of damaged "
        "files: keep what can be read, and print how many rows of which devices are kept "
        "and lost. The service must be stopped. Damaged files are moved to the subfolder "
        "`damaged`.",
        epilog="example: onlad repair /var/lib/onlad",
    )
    add_state(parser)

    def run(args: argparse.Namespace) -> int:
        for line in extra("repair").repair(args.state):
            print(line)
        return 0

    parser.set_defaults(run=run)
