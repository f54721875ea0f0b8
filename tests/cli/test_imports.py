"""`onlad import`: the files of Lookout for Equipment become one table."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from onlad.cli import main

TIMES = [f"2026-01-01T{i // 60:02}:{i % 60:02}:00.000000" for i in range(900)]


@pytest.fixture
def lookout(tmp_path):
    """Two components in folders of their names, as in the service's bucket, and a label file."""
    rng = np.random.default_rng(0)
    level = np.sin(np.arange(900) / 20)
    pump = np.column_stack((50 + 9 * level, 800 + 90 * level)) + rng.normal(size=(900, 2))
    motor = np.column_stack((40 + 2 * level, 5 + level)) + rng.normal(0, 0.2, (900, 2))
    pump[700:720, 1] += 300
    for name, sensors, X in (("pump", "flow,heat", pump), ("motor", "heat,current", motor)):
        folder = tmp_path / "data" / name
        folder.mkdir(parents=True)
        lines = [f"{t},{a:.3f},{b:.3f}" for t, (a, b) in zip(TIMES, X.tolist(), strict=True)]
        (folder / "2026.csv").write_text(f"Timestamp,{sensors}\n" + "\n".join(lines) + "\n")
    (tmp_path / "labels.csv").write_text(f"{TIMES[700]},{TIMES[719]},F12,HIGH\n")
    return tmp_path


def test_components_and_labels_become_one_table(lookout, capsys):
    out = lookout / "history.csv"
    argv = ["import", str(lookout / "data"), "--labels", str(lookout / "labels.csv")]
    assert main([*argv, "-o", str(out)]) == 0
    assert "900 samples, 4 sensors, 1 labels" in capsys.readouterr().err
    with out.open() as file:
        head, *rows = csv.reader(file)
    assert head == ["time", "motor/heat", "current", "flow", "pump/heat", "fault"]
    assert [row[0] for row in rows] == TIMES
    assert [i for i, row in enumerate(rows) if row[-1] == "1"] == list(range(700, 720))
    assert main(["evaluate", str(out), "--label", "fault"]) == 0
    assert "20" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_ratings_of_labels_count(lookout, capsys, kind):
    """One that people called no anomaly is none, and a neutral one is no label at all."""
    said = [(100, 110, "NO_ANOMALY"), (300, 310, "NEUTRAL"), (700, 719, "ANOMALY")]
    labels = lookout / f"rated.{kind}"
    if kind == "json":
        keys = ("StartTime", "EndTime", "Rating", "FaultCode")
        found = [dict(zip(keys, (TIMES[a], TIMES[b], r, "F1"), strict=True)) for a, b, r in said]
        labels.write_text(json.dumps({"LabelSummaries": found}))
    else:
        labels.write_text("".join(f"{TIMES[a]},{TIMES[b]},F1,{r}\n" for a, b, r in said))
    assert main(["import", str(lookout / "data"), "--labels", str(labels)]) == 0
    cells = [row[-1] for row in csv.reader(capsys.readouterr().out.splitlines())][1:]
    assert [i for i, cell in enumerate(cells) if cell == "1"] == list(range(700, 720))
    assert [i for i, cell in enumerate(cells) if cell == ""] == list(range(300, 311))


def test_a_component_that_says_nothing_leaves_cells_empty(lookout, capsys):
    path = lookout / "data" / "motor" / "2026.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], *lines[11:]]))
    assert main(["import", str(lookout / "data")]) == 0
    rows = list(csv.reader(capsys.readouterr().out.splitlines()))
    assert rows[1][1:3] == ["", ""]
    assert all(rows[11])


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda folder: (folder / "labels.csv").write_text("a,b\nx,y\n"), "labels.csv: line 2"),
        (lambda folder: (folder / "labels.csv").write_text("2026\n"), "no begin and end"),
        (lambda folder: (folder / "data/pump/2026.csv").write_text("Timestamp,a\n1\n"), "1 fields"),
        (lambda folder: (folder / "data/pump/2026.csv").write_text("Time,a\nx,1\n"), "line 2: the"),
        (lambda folder: (folder / "labels.csv").unlink(), "cannot be read"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(lookout, capsys, spoil, why):
    spoil(lookout)
    argv = ["import", str(lookout / "data"), "--labels", str(lookout / "labels.csv")]
    assert main(argv) == 1
    assert why in capsys.readouterr().err


def test_json_that_is_no_list_of_labels_is_refused(lookout, capsys):
    (lookout / "labels.json").write_text("[]")
    argv = ["import", str(lookout / "data"), "--labels", str(lookout / "labels.json")]
    assert main(argv) == 1
    assert "labels.json has no LabelSummaries with StartTime" in capsys.readouterr().err


def test_a_folder_without_tables_is_refused(tmp_path, capsys):
    assert main(["import", str(tmp_path)]) == 1
    assert "has no CSV file with a column Timestamp" in capsys.readouterr().err


PAGE = Path(__file__).parents[2] / "docs" / "howto" / "coming-from.md"


@pytest.mark.skipif(not PAGE.exists(), reason="the docs are not in the package")
def test_the_commands_of_the_page_run(lookout):
    (lookout / "data").rename(lookout / "lookout")
    onlad = Path(sys.executable).with_name("onlad")
    (commands,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for line in commands.splitlines():
        argv = [str(onlad), *line.split()[1:]]
        done = subprocess.run(argv, cwd=lookout, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
