"""`onlad import`."""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from onlad.cli.arguments import Commands, add_command
from onlad.cli.models import refused, say
from onlad.errors import OnladError
from onlad.streams.times import seconds

NONE, UNKNOWN, FAULT = 0, 1, 2  # what a label says; where two overlap, the larger counts
RATINGS = {"NO_ANOMALY": NONE, "NEUTRAL": UNKNOWN, "ANOMALY": FAULT}
FAULTS = ("0", "", "1")  # and as a cell
CLOCKS = ("timestamp", "time", "date", "datetime")


def add(commands: Commands) -> None:
    """Add `onlad import`."""
    parser = add_command(commands, "import", run)
    text = "a CSV file, or a folder with one CSV file per component, also in subfolders"
    parser.add_argument("source", type=Path, metavar="SOURCE", help=text)
    parser.add_argument(
        "--labels", type=Path, metavar="FILE",
        help="the label file, with begin, end and optionally rating of each anomaly, or the JSON "
        "of aws lookoutequipment list-labels",
    )  # fmt: skip
    text = "file of the table (default: standard output)"
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=text)


def run(args: argparse.Namespace) -> int:
    """Convert the files of AWS Lookout for Equipment to one table.

    Read the input of Lookout for Equipment: one CSV file per component with a column Timestamp, and
    the label file. Write one table for the other commands: the time, one column per sensor, and a
    column fault. It is 1 within a label, empty within a label that is rated NEUTRAL, and otherwise
    0; a label that is rated NO_ANOMALY is ignored. If several components have a sensor of the same
    name, its columns are called component/sensor.

        onlad import lookout/ --labels labels.csv -o history.csv
        onlad evaluate history.csv --label fault
    """
    tables = dict(_tables(args.source))
    if not tables:
        raise OnladError(f"{args.source} has no CSV file with a column Timestamp")
    spans = list(_labels(args.labels)) if args.labels else []
    sensors = [name for names, _ in tables.values() for name in names]
    columns = [
        (f"{part}/{name}" if sensors.count(name) > 1 else name, part, i)
        for part, (names, _) in tables.items()
        for i, name in enumerate(names)
    ]
    times = {time for _, rows in tables.values() for time in rows}
    ordered = sorted((seconds(time), time) for time in times)
    with _opened(args.output) as file:
        writer = csv.writer(file)
        writer.writerow(["time", *(name for name, *_ in columns), *(["fault"] if spans else [])])
        for at, time in ordered:
            found = {part: rows.get(time) for part, (_, rows) in tables.items()}
            cells = [row[i] if (row := found[part]) else "" for _, part, i in columns]
            ratings = {rating for a, b, rating in spans if a <= at <= b}
            label = [FAULTS[max(ratings, default=NONE)]] if spans else []
            writer.writerow([time, *cells, *label])
    say(f"{len(ordered):,} samples, {len(columns):,} sensors, {len(spans):,} labels")
    return 0


def _opened(path: Path | None) -> contextlib.AbstractContextManager[TextIO]:
    if path is None:
        return contextlib.nullcontext(sys.stdout)
    with refused(f"write {path}"):
        return path.open("w", newline="", encoding="utf-8")


def _tables(source: Path) -> Iterator[tuple[str, tuple[list[str], dict[str, list[str]]]]]:
    """Yield each component: its sensors, and their values by time."""
    paths = sorted(source.rglob("*.csv")) if source.is_dir() else [source]
    for path in paths:
        rows = _rows(path)
        head = [name.strip() for name in next(rows, [])]
        clock = next((i for i, name in enumerate(head) if name.lower() in CLOCKS), None)
        if clock is None:
            continue
        width, table = len(head), dict[str, list[str]]()
        head.pop(clock)
        for number, row in enumerate(rows, 2):
            if len(row) != width:
                what = f"line {number} has {len(row)} fields; the first has {width}"
                raise OnladError(f"{path}: {what}")
            time = row.pop(clock).strip()
            try:
                seconds(time)
            except ValueError as error:
                raise OnladError(f"{path}: line {number}: {error}") from None
            table[time] = row
        part = path.stem if path.parent == source or not source.is_dir() else path.parent.name
        yield part, (head, table)


def _labels(path: Path) -> Iterator[tuple[float, float, int]]:
    """Yield begin, end and rating of each label; a first line of names is left out."""
    rows = _listed(path) if path.suffix.lower() == ".json" else _rows(path)
    for number, row in enumerate(rows, 1):
        if len(row) < 2:
            raise OnladError(f"{path}: line {number} has no begin and end")
        rating = next((RATINGS[cell] for text in row if (cell := text.strip()) in RATINGS), FAULT)
        try:
            yield seconds(row[0].strip()), seconds(row[1].strip()), rating
        except ValueError as error:
            if number > 1:
                raise OnladError(f"{path}: line {number}: {error}") from None


def _listed(path: Path) -> Iterator[list[str]]:
    """Yield begin, end and rating of each label that the service listed as JSON."""
    try:
        found = json.loads(path.read_text("utf-8"))["LabelSummaries"]
        yield from ([str(one[key]) for key in ("StartTime", "EndTime", "Rating")] for one in found)
    except OSError as error:
        raise OnladError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        what = "has no LabelSummaries with StartTime, EndTime and Rating"
        raise OnladError(f"{path} {what}: write it with aws lookoutequipment list-labels") from None


def _rows(path: Path) -> Iterator[list[str]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            yield from (row for row in csv.reader(file) if row)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise OnladError(f"{path} cannot be read: {why}") from None
