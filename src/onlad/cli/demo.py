"""`onlad demo`."""

from __future__ import annotations

import argparse
from pathlib import Path

from onlad.cli.arguments import Commands, add_command, at_least


def add(commands: Commands) -> None:
    """Add `onlad demo`."""
    parser = add_command(commands, "demo", run)
    text = "length of the stream, at least 1000 (default: 8640, a day)"
    parser.add_argument("--samples", type=at_least(1000), default=8640, metavar="N", help=text)
    text = "seed of the pump, its faults and the monitor (default: 0)"
    parser.add_argument("--seed", type=at_least(0), default=0, metavar="N", help=text)
    picture = parser.add_mutually_exclusive_group()
    text = "file of the picture, a PNG (default: demo.png)"
    picture.add_argument("--output", type=Path, default=Path("demo.png"), metavar="PATH", help=text)
    picture.add_argument("--no-plot", action="store_true", help="draw no picture")


def run(args: argparse.Namespace) -> int:
    """Monitor a simulated pump with known faults.

    Monitor a simulated pump, print each incident with its causes, and compare the incidents with
    the simulated faults.

        onlad demo --seed 1 --output pump.png
    """
    from onlad.demo import show  # noqa: PLC0415  (only this needs it)

    show.run(args.samples, args.seed, None if args.no_plot else args.output)
    return 0
