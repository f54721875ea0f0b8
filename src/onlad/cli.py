"""The command line: parse, call, print. Data goes to standard output, words to standard error."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from onlad.errors import OnladError

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 done, 1 refused; argparse exits with 2."""
    args = build_parser().parse_args(argv)
    try:
        status: int = args.run(args)
        sys.stdout.flush()
    except OnladError as error:
        print(f"onlad: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has gone. Python flushes once more at its end, so that must lead somewhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands. Each one is a function that adds itself."""
    parser = argparse.ArgumentParser(
        prog="onlad",
        description="Watch streams of numbers, learn what is normal, and say what is not.",
        epilog="example: onlad demo --seed 1 --output pump.png",
    )
    parser.add_argument("--version", action="version", version=f"onlad {version('onlad')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (add_demo,):
        add(commands)
    return parser


def add_demo(commands: Commands) -> None:
    """Add `onlad demo`."""
    parser = commands.add_parser(
        "demo",
        help="see the monitor at work on a pump with known faults",
        description="Watch a synthetic pump live, print each alarm with its causes, and compare "
        "the alarms with the faults that were put in.",
        epilog="example: onlad demo --seed 1 --output pump.png",
    )
    parser.add_argument(
        "--samples", type=_at_least(1000), default=8640, metavar="N",
        help="length of the stream, at least 1000 (default: 8640, a day)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=_at_least(0), default=0, metavar="N",
        help="of the pump, its faults and the monitor (default: 0)",
    )  # fmt: skip
    picture = parser.add_mutually_exclusive_group()
    picture.add_argument(
        "--output", type=Path, default=Path("demo.png"), metavar="PATH",
        help="where the picture goes, a PNG (default: demo.png)",
    )  # fmt: skip
    picture.add_argument("--no-plot", action="store_true", help="draw no picture")

    def run(args: argparse.Namespace) -> int:
        from onlad.demo import show  # noqa: PLC0415  (rich is slow to import, and only it needs it)

        show.run(args.samples, args.seed, None if args.no_plot else args.output)
        return 0

    parser.set_defaults(run=run)


def _at_least(least: int) -> Callable[[str], int]:
    """Return a type of argparse: a whole number that is not too small."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}") from None
        if number < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {number}")
        return number

    return parse


if __name__ == "__main__":
    sys.exit(main())
