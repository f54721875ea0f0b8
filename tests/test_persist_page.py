"""The page on model files has the members of a monitor's file and their bounds from the code."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from onlad import instance, limit, mode, modelfile, state, watching
from onlad.anchor import AnchorState
from onlad.limit import LimitState
from onlad.mode import ModeState
from onlad.monitor import MonitorState
from onlad.rhythm import RhythmState
from onlad.state import DetectorState
from onlad.watching import WatchingState

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "model-files.md"


@pytest.fixture(scope="module")
def section():
    if not PAGE.exists():
        pytest.skip("not part of a wheel's tests")
    text = PAGE.read_text(encoding="utf-8")
    return text[text.index("## A monitor") : text.index("## A bank")]


def test_the_tables_name_the_members_of_the_file(section):
    tables = re.findall(r"\|---\|---\|---\|---\|\n((?:\|.*\n)+)", section)
    named = [
        {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}
        for table in tables
    ]
    kinds = (MonitorState, WatchingState, ModeState, AnchorState, LimitState, RhythmState)
    members = [{field.name for field in fields(kind)} for kind in kinds]
    assert named == [members[0] - {"watching"}, *members[1:]]


def test_the_table_of_a_detector_names_its_members():
    if not PAGE.exists():
        pytest.skip("not part of a wheel's tests")
    text = PAGE.read_text(encoding="utf-8")
    part = text[text.index("## A detector") : text.index("All numbers are finite. `n_hidden`")]
    rows = re.findall(r"^\| (`.*?) \|", part, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == {field.name for field in fields(DetectorState)}


def test_the_numbers_are_those_of_the_code(section):
    text = " ".join(section.split())
    tick = watching.TICK
    for words in (
        f"A tick is {tick} rows",
        f"of this one, {2 * tick} entries",
        f"rows of this tick, 0 to {tick - 1} |",
        f"| `kept` | `float64` | $w - 1 + {2 * tick}$, $n$ |",
        f"$w$, 1 to {watching.LARGEST_WINDOW};",
        f"| list | 1 to {watching.MODES} |",
        f"the newest first; fewer than {watching.CANDIDATE} |",
        f"| `means` | `float64` | {mode.STATISTICS} |",
        f"{instance.GROUPS} groups of $N = {instance.HIDDEN}$ tanh units",
        f"more than {instance.WIDEST} inputs a projected one with $M = {instance.PROJECTED + 1}$",
        f"unit of each feature: at least {mode.SMALLEST_UNIT:g},",
        f"rows that `usual` is the mean of, 0 to {mode.MEMORY} |",
        f"a reach is at least {mode.SMALLEST_REACH:g} |",
        f"| `recent` | `float32` | 1 to {limit.RECENT} |",
        f"weak alarms have raised the threshold, 0 to {limit.HIGHEST:g} |",
        f"rows since the last one (up to {limit.GAP})",
        f"A window of more than {watching.SHORT_WINDOW} rows has at most "
        f"$n w = {watching.LARGEST_INPUTS}$ inputs",
    ):
        assert words in text


def test_the_sizes_are_those_of_the_code():
    if not PAGE.exists():
        pytest.skip("not part of a wheel's tests")
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    line = modelfile.LINE
    for words in (
        f"version of the format, unsigned: {modelfile.VERSION} |",
        f"JSON in ASCII, at most {modelfile.LARGEST_HEADER >> 20} MiB |",
        f"zeros, up to the next multiple of {line}; called *d* below",
        f"| 0 to {line - 1} | zeros",
        f"A file has at most {modelfile.LARGEST_FILE >> 30} GiB.",
        f"number of at most {modelfile.LONGEST_INT} digits",
        f"`n_hidden` is at most {state.LARGEST_HIDDEN}.",
    ):
        assert words in text
    for dtype in modelfile.DTYPES:
        assert f"`{dtype}`" in text
