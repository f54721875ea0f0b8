"""The page of recipes: its commands run as they stand, its Telegraf table as Telegraf runs it."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from piping import PATIENCE, stream, table

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "recipes.md"
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the docs are not in the package")


def sections():
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    found = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    return {name: found[name] for name in ("In a shell", "Telegraf") if name in found}


def blocks(language):
    return [
        block
        for section in sections().values()
        for block in re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    ]


@pytest.fixture
def folder(tmp_path):
    """Return a folder with the files that the page speaks of, and onlad on the path."""
    X = stream()
    (tmp_path / "pump.csv").write_text(table(X))
    lines = table(X).splitlines()
    labels = ["fault", *(int(540 <= t < 550) for t in range(600))]
    both = zip(lines, labels, strict=True)
    (tmp_path / "labelled.csv").write_text("\n".join(f"{line},{word}" for line, word in both))
    rng = np.random.default_rng(0)
    for name in "ab":
        rows = "\n".join(",".join(map(repr, row)) for row in rng.uniform(size=(200, 3)).tolist())
        (tmp_path / f"{name}.csv").write_text(f"x,y,z\n{rows}\n")
    return tmp_path


def environment():
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def test_the_page_has_commands():
    assert len(blocks("sh")) >= 9
    assert len(blocks("toml")) == 1


@pytest.mark.parametrize("block", [pytest.param(b, id=b.split("\n")[0]) for b in blocks("sh")])
def test_a_recipe_runs(folder, block):
    if "plot" in block:
        pytest.importorskip("matplotlib")
    endless = "--follow" in block
    command = ["bash", "-euo", "pipefail", "-c", f"exec {block}" if endless else block]
    with subprocess.Popen(
        command, cwd=folder, env=environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        if endless:
            process.stdout.readline()
            process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == (143 if endless else 0), err
    assert "Traceback" not in err
    made = re.findall(r"(?:-o|>>?|--model) ([\w.]+)", block)
    assert [name for name in made if not (folder / name).stat().st_size] == []
    if not made and "| tail" not in block:
        assert out


def test_telegraf_runs_the_command_of_its_table(folder):
    """Telegraf starts it, gives metrics, reads answers, and stops it: twice, with one memory."""
    (text,) = blocks("toml")
    command = re.findall(r'"([^"]*)"', text.split("command =")[1])
    command = [part.replace("/var/lib/telegraf", str(folder)) for part in command]
    for start in (0, 250):
        with subprocess.Popen(
            command, env=environment(), text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            for t in range(start, start + 250):
                line = f"cpu,host=a usage_user={t % 7}.5,usage_system={t % 5} {17 * 10**17 + t}"
                process.stdin.write(line + "\n")
                answer = process.stdout.readline()
                body, stamp = line.rsplit(" ", 1)
                assert answer.startswith(body + ",onlad_score=")
                assert answer.endswith(f" {stamp}\n")
            # A threshold comes after the warm-up: the second session is past it.
            assert ("onlad_threshold=" in answer) == (t >= 256)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 143, err
