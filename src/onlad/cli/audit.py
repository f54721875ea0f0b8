"""`onlad audit`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from onlad.cli.arguments import Commands, Help, add_state
from onlad.cli.models import say
from onlad.cli.serve import extra
from onlad.errors import OnladError


def add(commands: Commands) -> None:
    """Add `onlad audit`."""
    parser = commands.add_parser(
        "audit",
        help="verify and print the audit trail of onlad serve",
        description="Print the audit trail of a state folder as JSON lines, and verify it: each "
        "line has the digest of the line before. The newest digest is printed last. Keep it "
        "elsewhere: with --head DIGEST the command proves that the trail was not rewritten. With "
        "--replay, the samples of the journal and what people did are replayed from the oldest "
        "snapshots, which must lead to the later snapshots and to the models, bit for bit.",
        formatter_class=Help,
        epilog="examples:\n"
        "  onlad audit /var/lib/onlad\n"
        "  onlad audit /var/lib/onlad --replay /etc/onlad.toml",
    )
    add_state(parser)
    parser.add_argument("--head", metavar="DIGEST", help="a digest that the trail must contain")
    parser.add_argument(
        "--replay", type=Path, metavar="CONFIG",
        help="prove the models, with the configuration of the service",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Verify, print, and say how many."""
    head, count = "", 0
    for digest, said in extra("audit").verify(args.state, args.head):
        del said["before"]
        print(json.dumps(said, ensure_ascii=False))
        head, count = digest, count + 1
    say(f"{count:,} entries, the chain is intact. The newest digest is {head or 'none'}")
    wrong = 0
    if args.replay is not None:
        for proved in extra("proof").prove(args.state, extra("config").load(args.replay)):
            say(proved.text)
            wrong += proved.wrong
    if wrong:
        raise OnladError(f"{wrong} devices are not what the log leads to")
    return 0
