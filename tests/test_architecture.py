import re
import sys
from pathlib import Path

import numpy as np
import pytest

from onlad import Monitor

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


def test_each_file_of_the_compiled_code_is_in_its_table():
    part = PAGE.read_text().split("| compiled code | what it does |\n|---|---|\n")[1]
    named = re.findall(r"`cpp/([\w.]+)`", part.split("\n\n")[0])
    assert sorted(named) == sorted(path.name for path in (ROOT / "cpp").iterdir())


def steps(title):
    """Return the numbered steps of a path that the page describes."""
    part = PAGE.read_text().split(f"## {title}\n")[1].split("\n## ")[0]
    found = re.findall(r"^\d+\. (.+(?:\n   .+)*)", part, re.MULTILINE)
    assert 5 <= len(found) <= 10
    return found


def test_a_sample_takes_the_path_that_the_page_describes():
    named = re.findall(r"`((?:monitor|rows)\.\w+)`", " ".join(steps("The path of a sample")))
    monitor = Monitor().fit(np.random.default_rng(0).normal(size=(300, 2)))
    called = []

    def note(frame, event, _):
        name = f"{frame.f_globals['__name__'].rpartition('.')[2]}.{frame.f_code.co_name}"
        if event == "call" and name in named:
            called.append(name)

    sys.setprofile(note)
    try:
        monitor.observe([0.5, 0.5])
    finally:
        sys.setprofile(None)
    assert called == named


def test_the_kernel_has_the_functions_of_the_path_of_a_sample():
    text = " ".join(steps("The path of a sample"))
    found = re.findall(r"((?:`\w+`(?: and )?)+)\s+\(`(cpp/[\w.]+)`\)", text)
    assert len(found) >= 4
    for names, file in found:
        for name in re.findall(r"\w+", names.replace(" and ", " ")):
            source = (ROOT / file).read_text()
            assert re.search(rf"^[^/\n]*\b{name}\([^;]*{{$", source, re.MULTILINE)


def test_a_tick_takes_the_path_that_the_page_describes():
    named = re.findall(r"`([a-z_]+)`", " ".join(steps("The path of a tick")))
    source = (ROOT / "cpp" / "watching.hpp").read_text()
    body = source.split("    bool tick(Workspace& scratch) {\n")[1].split("\n    }\n")[0]
    called = re.findall(r"(?<![.\w])(\w+)\(", body)
    assert [name for name in called if name in named] == named


def test_a_packet_takes_modules_that_the_core_has():
    named = set(re.findall(r"`rtl/(\w+)\.py`", " ".join(steps("The path of a packet"))))
    top = (SOURCE / "hardware" / "rtl" / "top.py").read_text()
    made = set(re.findall(r"from onlad\.hardware\.rtl\.(\w+) import", top))
    assert len(named) > 5
    assert named <= made


def test_the_layers_are_those_that_lint_checks():
    shown = PAGE.read_text().split("## Who may import whom")[1].split("```")[1]
    rule = (ROOT / "pyproject.toml").read_text().split("\nlayers = [\n")[1].split("\n]")[0]
    layers = [set(re.findall(r"\w+", line)) for line in rule.splitlines()]
    assert [set(line.split("   (")[0].split()) for line in shown.strip().splitlines()] == layers


def test_each_file_that_the_page_names_is_there():
    named = set(re.findall(r"`([\w/]+\.(?:py|hpp|cpp|md))`", PAGE.read_text()))
    assert len(named) > 10
    folders = (ROOT, SOURCE.parent, SOURCE, SOURCE / "hardware")
    assert not {name for name in named if not any((at / name).is_file() for at in folders)}
