"""Arguments that several commands take, and what they mean."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from onlad.errors import OnladError
from onlad.monitor import Monitor
from onlad.rules import Rules
from onlad.streams.block import Choice
from onlad.streams.delimited import Dialect
from onlad.streams.settings import FIXED, LIMITS, given
from onlad.streams.source import FORMATS, Reading
from onlad.watching import LONGEST_WINDOW

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


class Help(argparse.HelpFormatter):
    """Wraps the description, and leaves lines of examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:\n"):
            return text
        return super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    """A parser of `onlad`, and of each of its commands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, formatter_class=Help)
        self.register("action", None, Stored)


class Stored(argparse.Action):
    """Stores a value, as arguments do by default; a shell completes the names of files."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        if self.type is Path or self.dest == "source":
            self.complete = "file"  # for shtab

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        """Store a value."""
        setattr(namespace, self.dest, values)


def add_command(
    commands: Commands, name: str, run: Callable[[argparse.Namespace], int], **numbers: int
) -> argparse.ArgumentParser:
    """Add a command that does `run`, whose docstring is its help: a line, a text, and examples.

    `numbers` are those that the text has in braces.
    """
    doc = inspect.getdoc(run) or f"{name}\n\n-\n\n-"  # python -OO removes docstrings
    brief, text, examples = doc.split("\n\n")
    examples = inspect.cleandoc(examples)
    many = "\n" in examples
    parser = commands.add_parser(
        name,
        help=brief[0].lower() + brief[1:].rstrip("."),
        description=text.format(**numbers),
        epilog="examples:\n  " + examples.replace("\n", "\n  ") if many else f"example: {examples}",
    )
    parser.set_defaults(run=run, usage=parser.error)
    return parser


def default(kind: type[Any], name: str) -> Any:
    """Return the default of an argument of a class, for a text of help."""
    return inspect.signature(kind).parameters[name].default


def at_least(least: float, most: float = 2**63 - 1) -> Callable[[str], int]:
    """Return a type of argparse: a whole number within limits."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}") from None
        if number < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {number}")
        if number > most:
            raise argparse.ArgumentTypeError(f"must be at most {most}, got {text:.30}")
        return number

    return parse


def _one_character(text: str) -> str:
    text = "\t" if text in ("\\t", "tab") else text
    if len(text) != 1 or not text.isascii() or text in '\r\n"':
        raise argparse.ArgumentTypeError(f"must be one character, or tab; got {text!r}")
    return text


def _rate(text: str) -> float:
    """Return a share as people write it: 1e-4, 0.0001, 1/10000."""
    above, _, below = text.partition("/")
    try:
        rate = float(above) / float(below or 1)
    except (ValueError, ZeroDivisionError):
        rate = 0.0
    low, high = LIMITS["false_alarms"]
    if not low <= rate <= high:
        allowed = f"must be in [{low:g}, {high:g}], like 1/10000"
        raise argparse.ArgumentTypeError(f"{allowed}; got {text!r}")
    return rate


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _states(text: str) -> tuple[str, tuple[str, ...]]:
    name, _, states = text.partition("=")
    found = tuple(_names(states))
    if not name or not found or len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"must be like valve=open,shut; got {text!r}")
    return name, found


def add_source(parser: argparse.ArgumentParser, *, broker: bool = False) -> None:
    """Add SOURCE and how it is read."""
    live = ", or mqtt://HOST/TOPIC" if broker else ""
    parser.add_argument(
        "source", metavar="SOURCE",
        help="a file (CSV, JSON lines, Influx line protocol, also as .gz or .zst; Parquet), - for "
        f"standard input{live}",
    )  # fmt: skip
    group = parser.add_argument_group("source")
    text = "format of the source (default: by the file's suffix, else by its first line)"
    group.add_argument("--input", choices=FORMATS, help=text)
    text = "separator of CSV (default: comma, semicolon, tab or bar, by the first line)"
    group.add_argument("--delimiter", type=_one_character, metavar="CHAR", help=text)
    text = "decimal separator of CSV (default: .)"
    group.add_argument("--decimal", choices=(".", ","), default=".", help=text)
    group.add_argument(
        "--columns", type=_names, default=[], metavar="NAMES",
        help="columns to watch: names or patterns, separated by commas, such as 'temp_*,flow' "
        "(default: all)",
    )  # fmt: skip
    text = "columns not to watch"
    group.add_argument("--ignore", type=_names, default=[], metavar="NAMES", help=text)
    group.add_argument(
        "--states", type=_states, action="append", default=[], metavar="NAME=STATES",
        help="a column of text and its states, such as valve=open,shut; each state is watched as "
        "a column of 0 and 1, called valve=open and valve=shut (may be repeated)",
    )  # fmt: skip
    text = "the column with the time (default: one called time, timestamp, date, ...)"
    group.add_argument("--time", metavar="NAME", help=text)
    text = "the column that marks anomalies; it is never watched, only used by onlad evaluate"
    group.add_argument("--label", metavar="NAME", help=text)
    text = "what to do with a row that cannot be read (default: skip, count and report it)"
    group.add_argument("--on-bad", choices=("skip", "stop"), default="skip", help=text)


def add_monitor(parser: argparse.ArgumentParser, *, loads: bool = True) -> None:
    """Add --load, and the settings of a monitor; one that is fitted is not loaded, nor warms up."""
    if loads:
        text = "continue with a saved model; for a source with several series, a folder of models"
        parser.add_argument("--load", type=Path, metavar="MODEL", help=text)
    group = parser.add_argument_group("the monitor")
    group.add_argument(
        "--false-alarms", type=_rate, metavar="RATE",
        help="share of normal samples at which a false alarm may begin, such as "
        f"1/{1 / default(Monitor, 'false_alarms'):.0f} (the default); also changes a saved model",
    )  # fmt: skip
    texts = {
        "warmup": f"samples before the first alarm (default: {default(Monitor, 'warmup')})",
        "window": f"consecutive samples that are compared (default: up to {LONGEST_WINDOW}, fewer "
        "with many columns)",
        "seed": f"seed of the random layers (default: {default(Monitor, 'seed')})",
    }
    for name, text in texts.items():
        if loads or name != "warmup":
            kind, words = at_least(*LIMITS[name]), f"for a new model: {text}"
            group.add_argument(f"--{name}", type=kind, metavar="N", help=words)


def monitor_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of monitors that the arguments have."""
    found = given(args)
    if getattr(args, "load", None):
        for name in found.keys() & set(FIXED):
            args.usage(f"argument --{name}: not allowed with argument --load")
    return found


def reading(args: argparse.Namespace) -> Reading:
    """Return how the source is read."""
    if args.delimiter == args.decimal == ".":
        args.usage("argument --delimiter: cannot be the decimal sign '.'")
    follow = getattr(args, "follow", False)
    if follow and (args.source == "-" or "://" in args.source):
        args.usage(
            "argument --follow: only a file can be followed; other sources are followed anyway"
        )
    return Reading(
        choice=Choice(
            columns=tuple(args.columns),
            ignore=tuple(args.ignore),
            time=args.time,
            label=args.label,
            states=tuple(args.states),
        ),
        format=args.input,
        dialect=Dialect(args.delimiter, args.decimal),
        follow=follow,
    )


def add_rules(parser: argparse.ArgumentParser, *, needed: bool = False) -> None:
    """Add --config and --stream."""
    group = parser.add_argument_group("rules")
    group.add_argument(
        "--config", type=Path, metavar="FILE", required=needed,
        help="a configuration of onlad serve: use the columns, settings, sensors, maintenance and "
        "alarms_per_day of its stream; command-line arguments take precedence",
    )  # fmt: skip
    text = "which stream of that file (default: the only one)"
    group.add_argument("--stream", metavar="NAME", help=text)


def rules_and_settings(args: argparse.Namespace) -> tuple[Rules, dict[str, Any]]:
    """Return the rules, and the settings of monitors.

    What the stream says of columns becomes arguments too, where there are none.
    """
    settings = monitor_settings(args)
    if args.config is None:
        if args.stream is not None:
            args.usage("argument --stream: needs argument --config")
        return Rules(), settings
    streams = {stream.name: stream for stream in service("config").load(args.config).streams}
    name = args.stream or (next(iter(streams)) if len(streams) == 1 else None)
    if name not in streams:
        known = ", ".join(streams)
        what = f"has no stream {name!r}" if name else "has several streams"
        raise OnladError(f"{args.config} {what}. --stream takes one of {known}")
    for what in ("columns", "ignore", "time", "states"):
        setattr(args, what, getattr(args, what) or getattr(streams[name].choice, what))
    return streams[name].rules, given(streams[name]) | settings


def service(name: str) -> Any:
    """Return a module of the service: it is an extra, and slow to import."""
    try:
        return import_module(f"onlad.serve.{name}")
    except ImportError as error:
        what = f"{error.name} is not installed"
        raise OnladError(f"{what}. Install it with: pip install 'onlad[serve]'") from None
