"""`onlad audit`."""

from __future__ import annotations

import argparse
import json

from onlad.cli.arguments import Commands, add_state
from onlad.cli.models import say
from onlad.cli.serve import extra


def add(commands: Commands) -> None:
    """Add `onlad audit`."""
    parser = commands.add_parser(
        "audit",
        help="verify and print the audit trail of onlad serve",
        description="Print the audit trail of a state folder as JSON lines, and verify it: each "
        "line has the digest of the line before. The newest digest is printed last. Keep it "
        "elsewhere: with --head DIGEST the command proves that the trail was not rewritten.",
        epilog="example: onlad audit /var/lib/onlad",
    )
    add_state(parser)
    parser.add_argument("--head", metavar="DIGEST", help="a digest that the trail must contain")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Verify, print, and say how many."""
    head, count = "", 0
    for digest, said in extra("audit").verify(args.state, args.head):
        del said["before"]
        print(json.dumps(said, ensure_ascii=False))
        head, count = digest, count + 1
    say(f"{count:,} entries, the chain is intact. The newest digest is {head or 'none'}")
    return 0
