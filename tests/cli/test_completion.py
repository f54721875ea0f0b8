"""Completion in the shells themselves: bash always, zsh and fish where they are installed."""

import contextlib
import re
import shutil
import subprocess

import pytest

from onlad import cli
from onlad.cli import completion

BASH = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
compopt() { :; }  # it works only while a person types
_shtab_onlad
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("completion")
    for shell in completion.SHELLS:
        with (folder / f"onlad.{shell}").open("w") as file, contextlib.redirect_stdout(file):
            assert cli.main(["completion", shell]) == 0
    return folder


@pytest.fixture
def bash(scripts, tmp_path):
    for name in ("pump.csv", "pump two.csv", "other.onlad"):
        (tmp_path / name).touch()

    def complete(*words):
        done = subprocess.run(
            ["bash", "-c", BASH, "bash", scripts / "onlad.bash", "onlad", *words],
            capture_output=True, text=True, cwd=tmp_path, timeout=60, check=True,
        )  # fmt: skip
        assert done.stderr == ""
        return sorted(done.stdout.split("\n")[:-1])

    return complete


def test_bash_completes_commands(bash):
    assert {"watch", "import", "serve", "audit"} <= set(bash(""))
    assert bash("--") == ["--help", "--version"]
    assert bash("me") == ["merge"]
    assert bash("core", "es") == ["estimate"]


def test_bash_completes_options_and_their_values(bash):
    assert bash("watch", "--in") == ["--input"]
    assert bash("watch", "a.csv", "--output", "") == ["influx", "jsonl", "people"]
    assert bash("score", "m", "a.csv", "--output", "c") == ["csv"]
    assert bash("watch", "--warmup", "") == [""]
    assert bash("completion", "") == ["bash", "fish", "zsh"]


def test_bash_completes_files(bash):
    assert bash("watch", "pu") == ["pump two.csv", "pump.csv"]
    assert bash("watch", "pump.csv", "--load", "o") == ["other.onlad"]
    assert bash("plot", "-o", "o") == ["other.onlad"]


def test_bash_loads_the_script_as_the_help_says(scripts):
    done = subprocess.run(
        ["bash", "-c", 'eval "$(cat "$1")"; complete -p onlad', "bash", scripts / "onlad.bash"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == "complete -o bashdefault -F _shtab_onlad onlad\n"


def test_zsh_reads_the_script(scripts):
    if not shutil.which("zsh"):
        pytest.skip("zsh is not installed")
    program = (
        'autoload -Uz compinit && compinit -u -D; eval "$(cat $1)"; print -r -- ${_comps[onlad]};'
        "print -rl -- $_shtab_onlad_watch_options"
    )
    done = subprocess.run(
        ["zsh", "-f", "-c", program, "zsh", scripts / "onlad.zsh"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.startswith("_shtab_onlad\n")
    assert ":output:(people jsonl influx)\n" in done.stdout
    assert re.search("^:a file .*:_files$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("onlad me", ["merge"]),
        ("onlad watch --outp", ["--output"]),
        ("onlad watch a.csv --output ", ["influx", "jsonl", "people"]),
        ("onlad completion f", ["fish"]),
    ],
)
def test_fish_completes(scripts, tmp_path, line, found):
    if not shutil.which("fish"):
        pytest.skip("fish is not installed")
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {scripts}/onlad.fish; complete -C '{line}'"],
        capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert sorted(word.split("\t")[0] for word in done.stdout.splitlines()) == found
