"""Run as a program, this prints the page of commands, docs/reference/cli.md."""

import argparse
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from onlad import cli
from onlad.errors import OnladError

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "cli.md"


def commands(name, parser):
    """Return a command and all below it, by name."""
    found = [(name, parser)]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below, command in action.choices.items():
                found += commands(f"{name} {below}", command)
    return found


def page():
    """Return docs/reference/cli.md as the parser would have it in a terminal of 88 columns."""
    parts = commands("onlad", cli.build_parser())
    sections = [f"## {name}\n\n```text\n{part.format_help()}```\n" for name, part in parts]
    return (
        "# Command line\n\n"
        "Data goes to standard output, messages to standard error. The exit status is 0 when the\n"
        "command is done, 1 when it was refused with one line that says why, 2 for wrong usage,\n"
        "130 after Ctrl-C and 143 after SIGTERM. A command with --save saves the model before it\n"
        "ends by a signal.\n\n" + "\n".join(sections)
    )


def run(*args, **kwargs):
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "onlad", *args],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
        **kwargs,
    )


@pytest.mark.skipif(not PAGE.parent.is_dir(), reason="the docs are not in the package")
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="argparse writes -o, --output there")
def test_the_page_of_commands_is_what_the_parser_says(monkeypatch):
    monkeypatch.setenv("COLUMNS", "88")
    monkeypatch.setenv("NO_COLOR", "1")
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "run python tests/test_cli.py > docs/reference/cli.md"
    )


def test_commands_work_where_python_removes_docstrings():
    done = subprocess.run(
        [sys.executable, "-OO", "-m", "onlad", "demo", "--help"], capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "--samples N" in done.stdout


def test_the_version_is_the_installed_one(capsys):
    with pytest.raises(SystemExit) as done:
        cli.main(["--version"])
    assert done.value.code == 0
    assert capsys.readouterr() == (f"onlad {version('onlad')}\n", "")


@pytest.mark.parametrize("name", [name for name, _ in commands("onlad", cli.build_parser())])
def test_help_has_an_example(name, capsys):
    with pytest.raises(SystemExit) as done:
        cli.main([*name.split()[1:], "--help"])
    assert done.value.code == 0
    out = capsys.readouterr().out
    assert re.search(rf"^ *(example: |examples:\n.*)(.*\n)*?.*{name}", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["dance"], "invalid choice: 'dance'"),
        (["demo", "--samples", "999"], "argument --samples: must be at least 1000, got 999"),
        (["demo", "--samples", "many"], "argument --samples: must be a whole number, got 'many'"),
        (["demo", "--seed", "-1"], "argument --seed: must be at least 0, got -1"),
        (["demo", "--no-plot", "--output", "a.png"], "not allowed with argument --no-plot"),
        (["watch", "a.csv", "--false-alarms", "few"], "like 1/10000; got 'few'"),
        (["watch", "a.csv", "--false-alarms", "1/0"], "must be in [1e-09, 0.5]"),
        (["watch", "a.csv", "--false-alarms", "2"], "must be in [1e-09, 0.5]"),
        (["watch", "a.csv", "--window", "1001"], "must be at most 1000, got 1001"),
        (["watch", "a.csv", "--delimiter", "ab"], "must be one character, or tab; got 'ab'"),
        (
            ["watch", "a.csv", "--load", "m", "--seed", "1"],
            "--seed: not allowed with argument --load",
        ),
        (["watch", "a.csv", "--model", "m", "--save", "m"], "--model: not allowed with argument"),
        (["watch", "-", "--follow"], "--follow: only a file can be followed"),
        (["evaluate", "a.csv"], "arguments are required: --label"),
        (["plot", "a.csv", "-o", "a.gif"], "must end in .png, .svg, .html; got a.gif"),
        (["merge", "a.onlad", "-o", "b.onlad"], "argument MODEL: two or more are needed"),
        (["fit", "a.csv", "-o", "m", "--hidden", "8"], "--hidden: needs argument --detector"),
        (["fit", "a.csv", "-o", "m", "--detector", "--window", "2"], "--window: not allowed with"),
        (
            ["fit", "a.csv", "-o", "m", "--detector", "--forgetting", "2"],
            "must be in (0, 1], got 2",
        ),
        (["completion", "cmd"], "invalid choice: 'cmd'"),
    ],
)
def test_wrong_usage_exits_with_2(args, words, capsys):
    with pytest.raises(SystemExit) as done:
        cli.main(args)
    assert done.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err


def command(monkeypatch, action):
    def build_parser():
        parser = argparse.ArgumentParser()
        parser.set_defaults(run=action)
        return parser

    monkeypatch.setattr(cli, "build_parser", build_parser)
    return cli.main([])


def test_a_refusal_is_one_line(monkeypatch, capsys):
    def refuse(args):
        raise OnladError("the sea is closed")

    assert command(monkeypatch, refuse) == 1
    assert capsys.readouterr() == ("", "onlad: the sea is closed\n")


def test_an_interrupt_is_quiet(monkeypatch, capsys):
    def interrupt(args):
        raise KeyboardInterrupt

    assert command(monkeypatch, interrupt) == 130
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_leaves_is_no_traceback():
    program = (
        "import sys, time; from onlad import cli; import argparse\n"
        "def talk(args):\n"
        "    for _ in range(100_000): print('words')\n"
        "    return 0\n"
        "def parser():\n"
        "    p = argparse.ArgumentParser(); p.set_defaults(run=talk); return p\n"
        "cli.build_parser = parser\n"
        "sys.exit(cli.main([]))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as talker:
        talker.stdout.readline()
        talker.stdout.close()
        assert talker.wait(60) == 1
        assert talker.stderr.read() == b""


def test_the_demo_runs_without_a_terminal(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "pump.png"
    done = run("demo", "--samples", "1500", "--output", str(path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == f"onlad: the picture is in {path}"
    assert path.read_bytes().startswith(b"\x89PNG")
    assert "\x1b" not in done.stdout
    assert "\r" not in done.stdout
    assert done.stdout.isascii()
    for word in ("precision", "recall", "delay", "causes", "speed"):
        assert f"\n{word}" in done.stdout


def test_the_demo_draws_nothing_when_told_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["demo", "--samples", "1000", "--no-plot"]) == 0
    out, err = capsys.readouterr()
    assert "\nrecall " in out
    assert err == ""
    assert list(tmp_path.iterdir()) == []


def test_the_demo_writes_its_picture_where_it_is_told(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["demo", "--samples", "1000"]) == 0
    assert capsys.readouterr().err == "onlad: the picture is in demo.png\n"
    assert [path.name for path in tmp_path.iterdir()] == ["demo.png"]


def test_one_seed_gives_one_demo(capsys):
    texts = []
    for _ in range(2):
        assert cli.main(["demo", "--samples", "2500", "--seed", "5", "--no-plot"]) == 0
        texts.append([x for x in capsys.readouterr().out.splitlines() if not x.startswith("speed")])
    assert texts[0] == texts[1]


def test_the_demo_refuses_a_picture_in_no_folder(tmp_path):
    pytest.importorskip("matplotlib")
    done = run("demo", "--samples", "1000", "--output", "no/pump.png", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("onlad: cannot write the picture: ")
    assert len(done.stderr.splitlines()) == 1


if __name__ == "__main__":
    os.environ |= {"COLUMNS": "88", "NO_COLOR": "1"}
    print(page(), end="")
