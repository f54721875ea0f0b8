import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE, SOURCE = ROOT / "docs" / "explanation" / "architecture.md", ROOT / "src" / "onlad"
NOT_NAMED = {"cli", "rtl", "boards"}  # folders of which the page names the idea alone

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the tests of a wheel stand alone")


def table():
    """Return first cell and text of each row of the table of modules."""
    text = PAGE.read_text().split("| module | what it does |\n|---|---|\n")[1].split("\n\n")[0]
    return [tuple(row.strip("| ").split(" | ", 1)) for row in text.splitlines()]


def test_each_module_of_the_table_is_there():
    for cell, _ in table():
        names = re.findall(r"`([\w.]+)`", cell)
        for name in names:
            whole = names[0].split(".")[0] + name if name.startswith(".") else name
            path = SOURCE.joinpath(*whole.split("."))
            assert path.is_dir() or path.with_suffix(".py").is_file(), whole


def test_each_module_is_in_the_table():
    named = set(re.findall(r"[`.](\w+)`", " ".join(" ".join(row) for row in table())))
    files = [path for path in SOURCE.rglob("*.py") if not path.stem.startswith("_")]
    parts = [path for path in files if not NOT_NAMED & set(path.relative_to(SOURCE).parts)]
    assert {path.stem for path in parts} <= named


def test_the_layers_are_those_that_lint_checks():
    shown = PAGE.read_text().split("## Who may import whom")[1].split("```")[1]
    rule = (ROOT / "pyproject.toml").read_text().split("\nlayers = [\n")[1].split("\n]")[0]
    layers = [set(re.findall(r"\w+", line)) for line in rule.splitlines()]
    assert [set(line.split("   (")[0].split()) for line in shown.strip().splitlines()] == layers


def test_each_file_that_the_page_names_is_there():
    named = set(re.findall(r"`([\w/]+\.(?:py|hpp|cpp|toml|md))`", PAGE.read_text()))
    assert len(named) > 10
    folders = (ROOT, SOURCE.parent, SOURCE, SOURCE / "hardware")
    assert not {name for name in named if not any((at / name).is_file() for at in folders)}
