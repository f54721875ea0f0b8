"""A session as Telegraf's execd processor has it: line protocol in and out, answered promptly."""

import re
import signal
from collections import Counter

import numpy as np
import pytest
from piping import running

import onlad
from onlad.cli.models import file_name
from onlad.streams import influx

FAULT = 570
EXECD = ("watch", "-", "--input", "influx", "--output", "influx", "--all")


def metrics(host, rows, seed):
    """Return lines as Telegraf writes them: floats, integers, a text, escapes, nanoseconds."""
    rng = np.random.default_rng(seed)
    for t in range(rows):
        user, system = 20 + 5 * np.sin(t / 9) + rng.normal(), 5 + rng.normal()
        idle = 100 - user - system
        user += 20 * (t >= FAULT)
        yield (
            f"cpu,cpu=cpu-total,host={host} "
            f"usage_user={user},usage_system={system},usage_idle={idle},"
            f'procs={int(rng.integers(90, 110))}i,state="up, \\"ok\\"" {1700 * 10**15 + t}'
        )


def test_each_metric_is_answered_at_once_with_fields_added():
    """Two devices in turn, never a line ahead: what comes back is what went in, and more."""
    with running(*EXECD) as command:
        alarms, causes = Counter(), Counter()
        pairs = zip(metrics("a", 600, 1), metrics("pump\\ room", 600, 2), strict=True)
        for t, pair in enumerate(pairs):
            for line in pair:
                command.give(line + "\n")
                answer = command.line()
                asked, answered = influx.parse(line), influx.parse(answer)
                assert answer.startswith(line[: asked.end] + ",onlad_score=")
                assert (answered.series, answered.time) == (asked.series, asked.time)
                assert asked.fields.items() <= answered.fields.items()
                added = answered.fields.keys() - asked.fields.keys()
                ready = t >= 256
                names = {"onlad_score", "onlad_p_value", "onlad_is_anomaly"}
                if ready:  # and of the cause, a text, what was expected
                    band = {"onlad_expected", "onlad_low", "onlad_high"}
                    names |= {"onlad_threshold", "onlad_severity"} | (band & added)
                assert added == names
                if answered.fields["onlad_is_anomaly"] and t >= FAULT:
                    alarms[answered.series] += 1
                    cause = re.search(r',onlad_cause="(\w+)"', answer)[1]
                    causes[cause] += 1
                    low, high = (answered.fields[f"onlad_{side}"] for side in ("low", "high"))
                    side = re.search(r',onlad_direction="(\w+)"', answer)
                    value = asked.fields[cause]
                    assert (side[1] == "above" if value > high else value < low) == bool(side)
                    assert answered.fields["onlad_severity"] >= 40
        status, out, err = command.end()
        assert (status, out) == (0, "")
        assert min(alarms.values()) > 10
        assert len(alarms) == 2
        # The sum of these three is no longer 100; procs has nothing to do with it.
        assert causes.most_common(1)[0][0] in ("usage_user", "usage_system", "usage_idle")
        assert "1,200 samples" in err


def test_series_have_monitors_of_their_own():
    """Devices mixed in one pipe get the scores that each would get alone."""
    lines = {host: list(metrics(host, 300, seed)) for seed, host in enumerate("ab")}
    mixed = [line for pair in zip(*lines.values(), strict=True) for line in pair]
    with running(*EXECD) as command:
        command.give("\n".join(mixed) + "\n")
        _, out, _ = command.end()
    answers = [influx.parse(line) for line in out.splitlines()]
    assert len(answers) == 600
    for host, own in lines.items():
        monitor = onlad.Monitor()
        scores = [monitor.observe(influx.parse(line).fields).score for line in own]
        found = [p.fields["onlad_score"] for p in answers if p.series.endswith(f"host={host}")]
        assert found == scores


def test_nothing_stops_the_session_and_well_formed_lines_always_pass():
    good = list(metrics("a", 4, 0))
    with running(*EXECD) as command:
        command.give(good[0] + "\n")
        assert command.line().startswith(good[0].split(" ")[0])
        for line in ("nonsense", "cpu usage=", "# a comment", ""):  # answered by words, not data
            command.give(line + "\n")
        command.give('log,host=a message="no numbers" 17\n')
        assert command.line() == 'log,host=a message="no numbers" 17'
        command.give("cpu,host=b usage=1e300 17\n")
        assert command.line() == "cpu,host=b usage=1e300 17"
        command.give(good[1] + "\n")
        assert "onlad_score=" in command.line()
        status, out, err = command.end()
    assert (status, out) == (0, "")
    words = err.splitlines()
    assert words[0] == "onlad: bad row, line 2: no field=value at character 9"
    assert words[1] == "onlad: bad row, line 3: field 'usage' has no value"
    assert words[2].startswith("onlad: bad row, line 7: column 'usage' holds 1e+300")
    assert "2 samples, 0 anomalies, 3 bad rows" in words[3]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_models_of_all_series_are_kept_in_a_folder(tmp_path, number):
    folder = tmp_path / "models"
    args = (*EXECD, "--save", folder)
    first, second = (list(metrics(host, 300, 7)) for host in ("a", "b/../c"))
    with running(*args) as command:
        command.give("\n".join([*first[:200], *second[:200]]) + "\n")
        for _ in range(400):
            command.line()
        assert command.stop(number)[0] == 128 + number
    series = influx.parse(second[0]).series
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        file_name(influx.parse(lines[0]).series) for lines in (first, second)
    )
    assert onlad.load(folder / file_name(series)).n_seen == 200
    with running(*EXECD, "--load", folder) as command:
        command.give("\n".join(second[200:]) + "\n")
        _, out, _ = command.end()
    monitor = onlad.Monitor()
    scores = [monitor.observe(influx.parse(line).fields).score for line in second]
    assert [influx.parse(line).fields["onlad_score"] for line in out.splitlines()] == scores[200:]


def test_a_folder_is_needed_for_many_series(tmp_path):
    (tmp_path / "file").write_text("")
    with running(*EXECD, "--save", tmp_path / "file") as command:
        status, _, err = command.end()
    assert status == 1
    assert err == f"onlad: {tmp_path / 'file'} must be a folder, with one file per series\n"
