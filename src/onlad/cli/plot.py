"""`onlad plot`."""

from __future__ import annotations

import argparse
from pathlib import Path

from onlad.cli.arguments import (
    Commands,
    add_command,
    add_load,
    add_monitor,
    add_source,
    monitor_settings,
)
from onlad.cli.models import Models, say
from onlad.cli.session import Session
from onlad.errors import OnladError
from onlad.report.track import Track

SUFFIXES = (".png", ".svg", ".html")


def add(commands: Commands) -> None:
    """Add `onlad plot`."""
    parser = add_command(commands, "plot", run)
    add_source(parser)
    text = "the picture: .png, .svg or .html"
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="PATH", help=text)
    add_load(parser)
    add_monitor(parser)


def run(args: argparse.Namespace) -> int:
    """Draw scores, threshold, alarms and causes over time.

    Monitor a source and draw scores, threshold, alarms, new modes, and the causes of alarms over
    time. An HTML page also lists the incidents and shows the values under the pointer; it is one
    file and needs no network. The memory needed does not grow with the source.

        onlad plot pump.csv -o pump.html
        onlad plot pump.csv --load pump.onlad -o pump.png
    """
    if args.output.suffix.lower() not in SUFFIXES:
        args.usage(f"argument -o/--output: must end in {', '.join(SUFFIXES)}; got {args.output}")
    try:
        from onlad.report import picture  # noqa: PLC0415  (its import needs the extra)
    except ImportError:
        raise OnladError("a picture needs matplotlib: pip install onlad[plot]") from None
    track = Track()
    session = Session(args, Models(monitor_settings(args), args.load, grows=True))
    status = session.run(track.add)
    if not session.samples:
        raise OnladError("there is nothing to draw: the source has no samples")
    title = "standard input" if args.source == "-" else Path(args.source).name
    try:
        picture.draw(args.output, track, title)
    except OSError as error:
        raise OnladError(f"cannot write {args.output}: {error.strerror}") from None
    say(f"the picture is in {args.output}")
    return status
