"""`onlad export`."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import get_args

from onlad.cli.arguments import Commands, add_command, at_least, default
from onlad.cli.models import load_model, refused
from onlad.errors import OnladError
from onlad.mcu import PortableMonitor, convert, export
from onlad.mcu.layout import LEAST_WARMUP, MOST_MODES, MOST_WARMUP, PARTS
from onlad.mcu.portable import Arithmetic, Drawn
from onlad.monitor import Monitor
from onlad.watching import LONGEST_WINDOW

NEW = (
    "features", "hidden", "window", "modes", "warmup", "false_alarms", "seed", "layer", "counters"
)  # fmt: skip


def add(commands: Commands) -> None:
    """Add `onlad export`."""
    parser = add_command(commands, "export", run)
    text = "a fitted Monitor or a PortableMonitor; without it a fresh one is written"
    parser.add_argument("model", type=Path, nargs="?", metavar="MODEL", help=text)
    parser.add_argument("--target", choices=["c"], default="c", help="c, the only one")
    text = "where the files go"
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help=text)
    text = "refuse a model that needs more, stack included: 32k is 32,768"
    parser.add_argument("--ram", type=_bytes, metavar="BYTES", help=text)
    text = "float, or fixed: matrices in fixed point, for a chip without an FPU (default: float)"
    parser.add_argument("--arithmetic", choices=get_args(Arithmetic), help=text)
    fresh = parser.add_argument_group("a fresh monitor")
    fresh.add_argument("--features", type=at_least(1), metavar="N", help="numbers of a row")
    text = f"rows that are compared (default: up to {LONGEST_WINDOW})"
    fresh.add_argument("--window", type=at_least(1), metavar="N", help=text)
    modes, warmup = at_least(1, MOST_MODES), at_least(LEAST_WARMUP, MOST_WARMUP)
    for name, kind, unit, text in (
        ("hidden", at_least(4), "N", "tanh units in all"),
        ("modes", modes, "N", "places for modes, one of them for a candidate"),
        ("warmup", warmup, "N", f"rows of the warm-up, a multiple of {PARTS}"),
        ("seed", at_least(0), "N", "seed of the random layer"),
        ("false_alarms", float, "SHARE", "share of normal rows at which a false alarm may begin"),
    ):
        words = f"{text} (default: {default(PortableMonitor, name)})"
        flag = f"--{name.replace('_', '-')}"
        fresh.add_argument(flag, type=kind, metavar=unit, help=words)
    fresh.add_argument(
        "--layer", choices=get_args(Drawn),
        help="stored in flash, or seeded: drawn from the seed at each row, which takes no flash "
        "and more instructions (default: stored)",
    )  # fmt: skip
    text = "features that only rise, such as energy: 0,4 are watched by their rate"
    fresh.add_argument("--counters", type=_features, metavar="LIST", help=text)


def run(args: argparse.Namespace) -> int:
    """Write a monitor as C source for a microcontroller.

    Write a monitor as C99 source that learns on a microcontroller: the monitor of a model file,
    which continues to learn, or a new one with --features. The RAM, flash and time that it needs
    are printed first.

        onlad export --features 8 --hidden 32 -o firmware
        onlad export pump.onlad --ram 64k -o firmware
    """
    monitor = _loaded(args) if args.model else _fresh(args)
    print(export.summary(monitor), file=sys.stderr)
    export.check_ram(monitor, args.ram)
    with refused(f"write {args.output}"):
        export.check_folder(args.output)
        names = export.write(monitor, args.output)
    print("\n".join(str(args.output / name) for name in names))
    return 0


def _fresh(args: argparse.Namespace) -> PortableMonitor:
    if args.features is None:
        args.usage("give a MODEL, or --features for a fresh monitor")
    given = {name: getattr(args, name) for name in (*NEW[1:], "arithmetic")}
    settings = {name: value for name, value in given.items() if value is not None}
    try:
        fresh, names = PortableMonitor(**settings).settings(), tuple(range(args.features))
        monitor = PortableMonitor.resumed(fresh, names=names)
        monitor.dump()
    except ValueError as error:
        raise OnladError(str(error)) from None
    return monitor


def _loaded(args: argparse.Namespace) -> PortableMonitor:
    given = [name for name in NEW if getattr(args, name) is not None and name != "modes"]
    if given:
        args.usage(
            f"--{given[0].replace('_', '-')} is for a fresh monitor; {args.model} has its own"
        )
    model = load_model(args.model)
    if isinstance(model, Monitor):
        modes = args.modes or default(PortableMonitor, "modes")
        return convert.from_monitor(model, modes, args.arithmetic or "float")
    if not isinstance(model, PortableMonitor):
        what = f"{args.model} holds a {type(model).__name__}"
        raise OnladError(f"{what}; this needs a Monitor or PortableMonitor")
    if args.modes not in (None, model.modes):
        raise OnladError(f"{args.model} has {model.modes} places, which --modes cannot change")
    if args.arithmetic not in (None, model.arithmetic):
        raise OnladError(
            f"{args.model} learned in {model.arithmetic} point, which --arithmetic cannot change"
        )
    if not model.names:
        raise OnladError(f"{args.model} has seen no sample: use --features for a fresh monitor")
    return model


def _features(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d{1,5}(,\d{1,5})*", text):
        raise argparse.ArgumentTypeError(f"must be numbers of features, such as 0,4, got {text!r}")
    return tuple(map(int, text.split(",")))


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d{1,9})(k?)", text.lower())
    if not found:
        raise argparse.ArgumentTypeError(f"must be bytes, such as 32768 or 32k, got {text!r}")
    return int(found[1]) * (1024 if found[2] else 1)
