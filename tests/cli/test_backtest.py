"""`onlad backtest`, and the rules of a stream on the command line."""

import json
import re
from pathlib import Path

import pytest
from piping import run, stream, table

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "alarms.md"

HEAD = """
[service]
state = "state"
[http]
[[streams]]
name = "pumps"
"""


@pytest.fixture
def folder(tmp_path):
    X = stream()
    (tmp_path / "history.csv").write_text(table(X))
    return tmp_path


def backtest(folder, rules, *args):
    (folder / "onlad.toml").write_text(HEAD + rules)
    return run("backtest", folder / "history.csv", "--config", folder / "onlad.toml", *args)


def found(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_without_rules_it_is_what_watch_says(folder):
    done = backtest(folder, "")
    assert done.returncode == 0
    assert done.stdout == run("watch", folder / "history.csv").stdout != ""
    assert "0 anomalies were removed by the rules" in done.stderr


def test_a_sensor_that_only_explains_raises_no_alarm(folder):
    cause = next(iter(found(backtest(folder, "", "--json"))[0]["causes"]))
    done = backtest(folder, f'[[streams.sensors]]\nname = "{cause}"\nrole = "explain"\n', "--json")
    assert len(found(done)) == 0 or found(done)[0]["anomalies"] < 11
    taken = int(re.search(r"(\d+) anomalies were removed", done.stderr)[1])
    assert taken > 5


def test_nothing_is_told_of_maintenance(folder):
    window = "2026-01-01T00:08/2026-01-01T00:12"
    done = backtest(folder, f'maintenance = ["{window}"]\n')
    assert (done.stdout, done.returncode) == ("", 0)
    watched = run("watch", folder / "history.csv", "--config", folder / "onlad.toml")
    assert watched.stdout == ""


def test_maintenance_needs_times(folder):
    lines = (folder / "history.csv").read_text().splitlines()
    (folder / "history.csv").write_text("\n".join(line.split(",", 1)[1] for line in lines))
    done = backtest(folder, 'maintenance = ["daily 02:00-03:00"]\n')
    assert done.returncode == 1
    assert "samples need a time: maintenance. --time names the column" in done.stderr


def test_what_is_too_much_for_a_day_is_counted(tmp_path):
    X = stream(1200)
    X[900:905, 0] += 60
    (tmp_path / "history.csv").write_text(table(X))
    told = len(found(backtest(tmp_path, "", "--json")))
    assert told >= 2
    done = backtest(tmp_path, "alarms_per_day = 1\n", "--json")
    assert len(found(done)) == 1
    assert f"suppressed by alarms_per_day: {told - 1} of {told} incidents" in done.stderr


def test_settings_of_the_stream_count_and_arguments_come_first(folder):
    strict = backtest(folder, "false_alarms = 1e-9\nwarmup = 128\n", "--json")
    loose = backtest(
        folder, "false_alarms = 1e-9\nwarmup = 128\n", "--json", "--false-alarms", "0.01"
    )
    assert sum(e["anomalies"] for e in found(loose)) >= sum(e["anomalies"] for e in found(strict))
    assert found(loose)[0]["threshold"] < found(strict)[0]["threshold"]


def test_columns_of_the_stream_count_and_arguments_come_first(tmp_path):
    head, *rows = table(stream()).splitlines()
    lines = [f"{head},mode", *(f"{row},{('on', 'off')[i % 2]}" for i, row in enumerate(rows))]
    (tmp_path / "history.csv").write_text("\n".join(lines))
    sensors = '[[streams.sensors]]\nname = "mode"\nstates = ["off", "on"]\n'
    ignored = backtest(tmp_path, f'ignore = ["power"]\ntime = "time"\n{sensors}', "--json")
    assert set(found(ignored)[0]["causes"]) == {"flow", "bearing", "mode=off", "mode=on"}
    given = backtest(tmp_path, 'ignore = ["power"]\n', "--ignore", "bearing,mode", "--json")
    assert set(found(given)[0]["causes"]) == {"flow", "power"}


def test_a_stream_has_to_be_named_if_there_are_several(folder):
    two = '[[streams]]\nname = "fans"\n'
    assert "has several streams. --stream takes one of pumps, fans" in backtest(folder, two).stderr
    assert "has no stream 'x'" in backtest(folder, two, "--stream", "x").stderr
    assert backtest(folder, two, "--stream", "fans").returncode == 0
    done = run("watch", folder / "history.csv", "--stream", "x")
    assert (done.returncode, "needs argument --config" in done.stderr) == (2, True)


def test_wrong_rules_are_shown_with_their_line(folder):
    done = backtest(
        folder, 'maintenance = ["soon"]\n[[streams.sensors]]\nname = "a"\nonly = "up"\n'
    )
    assert done.returncode == 1
    assert "line 10: streams.sensors.only: must be one of 'both', 'above', 'below'" in done.stderr
    done = backtest(folder, 'maintenance = ["soon"]\n')
    assert "line 7: streams.maintenance: 'soon' is not a maintenance period" in done.stderr


@pytest.mark.skipif(not PAGE.exists(), reason="the docs are not in the package")
def test_the_commands_of_the_page_run_with_its_file(folder):
    text = PAGE.read_text()
    (folder / "onlad.toml").write_text(re.search(r"```toml\n(.*?)```", text, re.DOTALL)[1])
    (commands,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    for command in commands.splitlines():
        done = run(*command.split()[1:], cwd=folder)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
