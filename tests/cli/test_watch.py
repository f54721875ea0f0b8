"""`onlad watch`, as a process: the library's verdicts, promptly, whatever comes in."""

import gzip
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from piping import NAMES, ONLAD, PATIENCE, run, running, stream, table

import onlad
from onlad.report.lines import digits
from onlad.streams.lines import LONGEST

KEYS = ["row", "time", "score", "threshold", "p_value", "severity", "causes", "direction"]
KEYS += ["expected", "low", "high", "drifting"]

# What a command needs at most, in KiB, after its last line of standard error.
MEASURED = """
import re, sys
from onlad.cli import main
status = main(sys.argv[1:])
print(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1], file=sys.stderr)
sys.exit(status)
"""


def judged(X, monitor=None):
    """Return what --all --output jsonl must say of X, from one sample at a time."""
    monitor = monitor or onlad.Monitor()
    lines = []
    for t, row in enumerate(X.tolist()):
        verdict = monitor.observe(dict(zip(NAMES, row, strict=True)))
        lines.append(
            {
                "row": t,
                "time": f"2026-01-01T{t // 3600:02}:{t // 60 % 60:02}:{t % 60:02}",
                "score": verdict.score,
                "threshold": verdict.threshold if verdict.ready else None,
                "p_value": verdict.p_value,
                "severity": verdict.severity,
                "causes": {name: round(share, 4) for name, share in verdict.causes.items()},
                "direction": verdict.direction,
                "drifting": verdict.drifting,
                **{
                    name: {key: float(f"{value:.6g}") for key, value in found.items()}
                    for name, found in zip(
                        ("expected", "low", "high"),
                        (verdict.expected, verdict.low, verdict.high),
                        strict=True,
                    )
                },
            }
        )
    return lines


def objects(text):
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def X():
    return stream()


@pytest.fixture(scope="module")
def expected(X):
    return judged(X)


@pytest.fixture
def pump(tmp_path, X):
    path = tmp_path / "pump.csv"
    path.write_text(table(X))
    return path


def test_every_verdict_is_the_librarys_to_the_bit(pump, expected):
    done = run("watch", pump, "--all", "--output", "jsonl")
    assert (done.returncode, objects(done.stdout)) == (0, expected)
    assert list(objects(done.stdout)[0]) == KEYS
    assert re.fullmatch(r"onlad: 600 samples, \d+ anomalies, \d+\.\d s\n", done.stderr)


def test_alarms_close_in_time_are_one_line(pump, expected):
    at = [e["row"] for e in expected if e["threshold"] is not None and e["score"] > e["threshold"]]
    (line,) = run("watch", pump).stdout.splitlines()  # nothing is 64 rows from the next
    cause = next(iter(expected[at[0]]["causes"]))
    assert line.startswith("incident 1  2026-01-01T")
    assert f"rows {at[0]} to {at[-1]}  severity " in line
    assert re.search(rf"  {cause} \d+%: \S+, (above|below) the expected \S+ to \S+;", line)
    (found,) = objects(run("watch", pump, "--output", "jsonl").stdout)
    assert (found["state"], found["begin"], found["end"]) == ("ended", at[0], at[-1])
    assert found["anomalies"] == len(at)
    assert found["value"][cause] == pytest.approx(found["expected"][cause], rel=1)
    assert not found["low"][cause] <= found["value"][cause] <= found["high"][cause]


def test_a_live_source_says_where_an_incident_begins(pump, X):
    found = objects(run("watch", "-", "--output", "jsonl", input=pump.read_text()).stdout)
    assert [each["state"] for each in found] == ["begins", "ended"]
    with running("watch", "-") as command:
        command.give("".join(table(X).splitlines(keepends=True)[:546]))
        assert "incident 1 begins" in command.line()
        status, out, _ = command.end()
        assert (status, out.count("incident 1 ")) == (0, 1)


def fleet_lines(by_series):
    """Return three hosts in line protocol. Two fail within a minute, one again later."""
    lines = {}
    for k, host in enumerate("abc"):
        X = stream(rows=900, seed=k)
        X[840:850, 0] -= 30  # `stream` has a fault there: taken back
        if host != "c":
            X[500 + 20 * k : 515 + 20 * k, 0] += 30
        if host == "a":
            X[700:715, 0] += 30
        lines[host] = [
            f"pump,host={host} flow={flow},power={700 if power != power else power},"
            f"bearing={bearing} {17 * 10**17 + t * 10**9}\n"
            for t, (flow, power, bearing) in enumerate(X.tolist())
        ]
    every = [lines[host] for host in "abc"]
    parts = every if by_series else zip(*every, strict=True)
    return [line for part in parts for line in part]


@pytest.mark.parametrize("by_series", [False, True])
def test_series_that_fail_within_a_minute_are_one_incident(tmp_path, by_series):
    path = tmp_path / "fleet.lp"
    path.write_text("".join(fleet_lines(by_series)))
    done = run("watch", path, "--input", "influx")
    first, second = done.stdout.splitlines()
    assert first.startswith("pump,host=a, pump,host=b  incident 1  2023-11-14T22:21:40.000Z to ")
    assert "row" not in first
    assert second.startswith("pump,host=a  incident 2  2023-11-14T22:25:00.000Z to ")
    assert re.search(r"  rows \d+ to \d+  severity \d+  flow .*  like 1$", second)
    assert " anomalies in 2 incidents, " in done.stderr
    found = objects(run("watch", path, "--input", "influx", "--output", "jsonl").stdout)
    assert [each["devices"] for each in found] == [["pump,host=a", "pump,host=b"], ["pump,host=a"]]
    assert found[0]["series"] in found[0]["devices"]
    assert [each["number"] for each in found] == [1, 2]
    rows = run("watch", path, "--input", "influx", "--rows").stdout.splitlines()
    assert len(rows) == sum(each["anomalies"] for each in found)


def test_series_of_a_live_source_that_fail_together_begin_once():
    text = "".join(fleet_lines(by_series=False))
    done = run("watch", "-", "--input", "influx", "--output", "jsonl", input=text)
    said = [(each["state"], each["number"], len(each["devices"])) for each in objects(done.stdout)]
    assert said == [("begins", 1, 1), ("ended", 1, 2), ("begins", 2, 1), ("ended", 2, 1)]


def test_alarms_are_lines_for_people(pump, expected):
    done = run("watch", pump, "--rows")
    alarms = [e for e in expected if e["threshold"] is not None and e["score"] > e["threshold"]]
    assert len(alarms) > 5
    lines = done.stdout.splitlines()
    assert len(lines) == len(alarms)
    for line, alarm in zip(lines, alarms, strict=True):
        cause = next(iter(alarm["causes"]))
        start = f"{alarm['time']}  row {alarm['row']}  score {digits(alarm['score'])} > "
        assert line.startswith(start)
        against = f"{digits(alarm['threshold'])}  severity {alarm['severity']:.0f}"
        assert f"{against}  {cause} " in line


def test_a_pipe_is_answered_before_the_next_row_comes(X, expected):
    """Rows one by one, and a block, and a row in two parts: the same verdicts as from a file."""
    with running("watch", "-", "--all", "--output", "jsonl") as command:
        lines = table(X).splitlines(keepends=True)
        command.give(lines[0])
        answers = []
        for line in lines[1:41]:
            command.give(line)
            answers.append(json.loads(command.line()))
        command.give("".join(lines[41:301]))
        answers += [json.loads(command.line()) for _ in range(260)]
        command.give(lines[301][:9])
        time.sleep(0.05)
        command.give(lines[301][9:])
        answers.append(json.loads(command.line()))
        command.give("".join(lines[302:]).rstrip("\n"))  # the last row has no end
        status, out, _ = command.end()
        assert (status, answers + objects(out)) == (0, expected)


def test_json_lines_and_line_protocol_give_the_same_scores(X, expected):
    rows = [
        {name: None if v != v else v for name, v in zip(NAMES, row, strict=True)}
        for row in X.tolist()
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    found = objects(run("watch", "-", "--all", "--output", "jsonl", input=text).stdout)
    assert [line["score"] for line in found] == [line["score"] for line in expected]
    assert {line["time"] for line in found} == {None}
    fields = [",".join(f"{k}={v}" for k, v in row.items() if v is not None) for row in rows]
    text = "".join(f"pump,host=a {each} {17 * 10**17 + t}\n" for t, each in enumerate(fields))
    found = objects(run("watch", "-", "--all", "--output", "jsonl", input=text).stdout)
    assert [line["score"] for line in found] == [line["score"] for line in expected]
    assert list(found[0]) == [*KEYS, "series"]
    assert (found[1]["time"], found[1]["series"]) == (17 * 10**17 + 1, "pump,host=a")


def test_a_table_can_go_out_as_line_protocol(pump, expected):
    done = run("watch", pump, "--output", "influx")
    alarms = [e for e in expected if e["threshold"] is not None and e["score"] > e["threshold"]]
    first = alarms[0]
    assert done.stdout.splitlines()[0].startswith(
        f"onlad score={first['score']!r},threshold={first['threshold']!r},"
    )
    seconds = int(first["time"][-5:-3]) * 60 + int(first["time"][-2:])
    stamp = (1_767_225_600 + seconds) * 10**9
    cause = next(iter(first["causes"]))
    band = ",".join(f"{name}={first[name][cause]!r}" for name in ("expected", "low", "high"))
    assert done.stdout.splitlines()[0].endswith(
        f',severity={first["severity"]!r},is_anomaly=true,cause="{cause}"'
        f',direction="{first["direction"][cause]}",{band} {stamp}'
    )


def test_a_time_that_is_none_is_said_once(tmp_path, X):
    path = tmp_path / "a.csv"
    path.write_text(re.sub(r"^2026", "early 2026", table(X), flags=re.MULTILINE))
    done = run("watch", path, "--output", "influx", "--all")
    assert done.stderr.count("is neither ISO 8601 nor a number") == 1
    assert len(done.stdout.splitlines()) == 600


def test_columns_are_chosen(tmp_path, X):
    path = tmp_path / "a.csv"
    path.write_text(table(X))
    done = run("watch", path, "--columns", "flow,pow*", "--all", "--output", "jsonl")
    monitor = onlad.Monitor()
    scores = [monitor.observe({"flow": row[0], "power": row[1]}).score for row in X.tolist()]
    assert [line["score"] for line in objects(done.stdout)] == scores
    done = run("watch", path, "--columns", "nothing")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "onlad: no column matches 'nothing'; there are 'time', 'flow', 'power', 'bearing'\n"
    )


def test_a_sensor_that_comes_later_is_watched_as_in_the_library(tmp_path, X):
    cut = len(X) // 2
    monitor = onlad.Monitor(names=NAMES[:2])
    scores = list(monitor.observe_many(X[:cut, :2]).score)
    monitor.widen(NAMES[2:3])
    scores += list(monitor.observe_many(X[cut:, :3]).score)
    path, model = tmp_path / "pump.jsonl", tmp_path / "pump.onlad"
    rows = [dict(zip(NAMES, row[: 2 if t < cut else 3])) for t, row in enumerate(X.tolist())]  # noqa: B905
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run("watch", path, "--all", "--output", "jsonl", "--save", model)
    assert [line["score"] for line in objects(done.stdout)] == scores
    assert f"onlad: {NAMES[2]} came later: watched from now on\n" in done.stderr
    assert onlad.load(model).names == tuple(NAMES[:3])
    config = tmp_path / "onlad.toml"
    config.write_text('[service]\nstate = "s"\n[http]\n[[streams]]\nname = "pump"\n')
    assert f"{NAMES[2]} came later: watched" in run("backtest", path, "--config", config).stderr
    again = run("watch", path, "--load", model)
    assert (again.returncode, "came later" in again.stderr) == (0, False)


def test_sensors_that_come_later_too_often_are_named_once_and_left_out(tmp_path, X):
    wide = np.tile(X, (4, 3))
    rows = [dict(enumerate(row[: 2 + t // 400])) for t, row in enumerate(wide.tolist())]
    path = tmp_path / "pump.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run("watch", path)
    assert done.returncode == 0
    assert done.stderr.count("came later: watched") == 4
    assert done.stderr.count("cannot be watched: features came later 4 times") == 1


def test_labels_are_never_watched(tmp_path, X, expected):
    lines = table(X).splitlines()
    labelled = [lines[0] + ",fault"]
    labelled += [f"{line},{int(540 <= t < 550)}" for t, line in enumerate(lines[1:])]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(labelled))
    done = run("watch", path, "--label", "fault", "--all", "--output", "jsonl")
    assert objects(done.stdout) == expected


# -- models -----------------------------------------------------------------------------------


def test_a_model_that_is_saved_goes_on_to_the_bit(tmp_path, X, expected):
    model = tmp_path / "pump.onlad"
    first = run("watch", "-", "--all", "--output", "jsonl", "--save", model, input=table(X[:400]))
    rest = table(X[400:], 400)
    second = run("watch", "-", "--all", "--output", "jsonl", "--load", model, input=rest)
    scores = [line["score"] for line in objects(first.stdout) + objects(second.stdout)]
    assert scores == [line["score"] for line in expected]
    assert first.stderr.endswith(f"onlad: the model is in {model}\n")
    assert onlad.load(model).n_seen == 400  # without --save it is as it was
    wrong = run("watch", "-", "--load", model, input="flow,power\n1,2\n")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "the model watches 'bearing', which the source does not have" in wrong.stderr


def test_a_model_is_gone_on_with_if_it_is_there(tmp_path, X, expected):
    model = tmp_path / "pump.onlad"
    options = ("--all", "--output", "jsonl", "--model", model, "--warmup", "256")
    parts = [table(X[:400]), table(X[400:], 400)]
    found = [objects(run("watch", "-", *options, input=part).stdout) for part in parts]
    assert [line["score"] for line in found[0] + found[1]] == [line["score"] for line in expected]
    model.write_bytes(model.read_bytes()[:-1])
    damaged = run("watch", "-", *options, input=parts[0])
    assert (damaged.returncode, damaged.stdout) == (1, "")
    assert "is damaged" in damaged.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--save", "no/such/folder.onlad"], "cannot write no/such/folder.onlad: no/such is no"),
        (["--save", "."], ". must be a file"),
        (["--load", "nothing.onlad"], "cannot read nothing.onlad: No such file"),
        (["--load", "pump.csv"], "pump.csv is not an onlad model"),
    ],
)
def test_a_model_that_cannot_be_is_refused_before_work(pump, args, words):
    done = run("watch", pump, *args, cwd=pump.parent)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_live_pipe_and_the_model_is_saved(tmp_path, X, number, status):
    model = tmp_path / "pump.onlad"
    with running("watch", "-", "--all", "--output", "jsonl", "--save", model) as command:
        command.give(table(X[:300]) + "half a li")
        for _ in range(300):
            command.line()
        command.process.send_signal(number)
        assert command.process.wait(PATIENCE) == status
        assert "300 samples" in command.process.stderr.read().decode()
    assert onlad.load(model).n_seen == 300


def test_a_reader_that_leaves_does_not_lose_the_model(tmp_path, X):
    model = tmp_path / "pump.onlad"
    (tmp_path / "a.csv").write_text(table(np.tile(X, (40, 1))))
    with running("watch", tmp_path / "a.csv", "--all", "--save", model) as command:
        command.line()
        command.process.stdout.close()
        assert command.process.wait(PATIENCE) == 1
        assert command.process.stderr.read() == b""
    assert onlad.load(model).n_seen > 0


# -- files that grow --------------------------------------------------------------------------


def test_follow_reads_what_is_added_cut_and_replaced(tmp_path, X, expected):
    path, model = tmp_path / "pump.csv", tmp_path / "pump.onlad"
    lines = table(X).splitlines(keepends=True)
    path.write_text("".join(lines[:101]))
    scores = []
    with running(
        "watch", path, "--follow", "--all", "--output", "jsonl", "--save", model
    ) as command:
        scores += [json.loads(command.line())["score"] for _ in range(100)]
        with path.open("a") as file:
            file.write("".join(lines[101:201]) + lines[201][:5])
        scores += [json.loads(command.line())["score"] for _ in range(100)]
        with path.open("a") as file:
            file.write(lines[201][5:])
        scores.append(json.loads(command.line())["score"])
        other = tmp_path / "new.csv"
        other.write_text(lines[0] + "".join(lines[202:302]))
        other.rename(path)  # as a log is rotated
        scores += [json.loads(command.line())["score"] for _ in range(100)]
        path.write_text(lines[0] + lines[302])  # shorter than it was
        scores.append(json.loads(command.line())["score"])
        status, out, err = command.stop(signal.SIGTERM)
    assert (status, out) == (143, "")
    assert scores == [line["score"] for line in expected[:302]]
    assert err.count("was replaced or truncated") == 2
    assert "302 samples" in err
    assert onlad.load(model).n_seen == 302


@pytest.mark.parametrize("header", [True, False])
def test_a_file_that_is_followed_again_goes_on_where_it_was_left(tmp_path, X, header):
    path, model = tmp_path / "pump.csv", tmp_path / "pump.onlad"
    lines = table(X).splitlines(keepends=True)
    if not header:  # nor names, nor a time, which is not a number
        lines = [line.partition(",")[2] for line in lines[1:]]
    options = ("watch", path, "--follow", "--all", "--output", "jsonl", "--model", model)

    def follow(count, more=""):
        with running(*options) as command:
            with path.open("a") as file:
                file.write(more)
            rows = [json.loads(command.line())["row"] for _ in range(count)]
            status, out, err = command.stop(signal.SIGTERM)
        assert (status, out) == (143, "")
        return rows, err

    path.write_text("".join(lines[: 100 + header]))
    assert follow(100)[0] == list(range(100))
    rows, err = follow(50, "".join(lines[100 + header : 150 + header]) + lines[150 + header][:3])
    assert rows == list(range(100, 150))
    assert "continuing at byte" in err
    rest = lines[150 + header :]
    twin = Path(f"{model}.place").read_bytes()
    follow(len(rest), rest[0][3:] + "".join(rest[1:]))
    assert onlad.load(model).n_seen == len(X)
    # The model is saved, and then the place: a crash between leaves an older place.
    Path(f"{model}.place").write_bytes(twin)
    follow(1, lines[-1])
    assert onlad.load(model).n_seen == len(X) + 1
    # Another file under the name is read from its start.
    path.write_text("".join([*lines[:header], *lines[200:300]]))
    _, err = follow(100)
    assert "is not the file of the last run" in err
    # And without the model from its start, too.
    model.unlink()
    assert len(follow(100)[0]) == 100


def test_many_series_that_are_followed_go_on_where_they_were_left(tmp_path):
    path, models = tmp_path / "pump.lp", tmp_path / "models"
    models.mkdir()
    lines = [f"m,host={'ab'[i % 2]} x={i % 7},y={i % 5} {i}000000000\n" for i in range(200)]
    path.write_text("".join(lines[:120]))
    for count, more in [(120, ""), (80, "".join(lines[120:]))]:
        with running("watch", path, "--follow", "--all", "--model", models) as command:
            with path.open("a") as file:
                file.write(more)
            for _ in range(count):
                command.line()
            assert command.stop(signal.SIGTERM)[0] == 143
    assert sorted(onlad.load(file).n_seen for file in models.iterdir()) == [100, 100]


# -- files as people have them ----------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv.gz", ".csv.zst", ".gz"])
def test_a_compressed_file_is_read_as_what_is_in_it(tmp_path, X, suffix):
    text = table(X).encode()
    path = tmp_path / f"pump{suffix}"
    if suffix.endswith(".zst"):
        pyarrow = pytest.importorskip("pyarrow")
        with pyarrow.output_stream(path, compression="zstd") as file:
            file.write(text)
    else:
        path.write_bytes(gzip.compress(text))
    (tmp_path / "plain.csv").write_bytes(text)
    expected = run("watch", tmp_path / "plain.csv", "--all")
    found = run("watch", path, "--all")
    assert (found.returncode, found.stdout) == (0, expected.stdout)
    path.write_bytes(path.read_bytes()[:-20])
    cut = run("watch", path)
    assert cut.returncode == 1
    assert "is damaged, or cut off" in cut.stderr
    refused = run("watch", path, "--follow")
    assert "only a file that grows can be followed" in refused.stderr


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"PK\x03\x04", "is an Excel workbook, or a ZIP archive. Save the table as CSV"),
        (b"\xd0\xcf\x11\xe0", "is an old Excel workbook"),
        (b"BZh9", "Unpack it: bzip2 -dc "),
        (b"\xfd7zXZ\0", "Unpack it: xz -dc "),
        (b"PAR1", "is Parquet. Read it with --input parquet"),
    ],
)
def test_a_file_that_is_no_text_is_named(tmp_path, head, message):
    path = tmp_path / "pump.csv"
    path.write_bytes(head + bytes(100))
    done = run("watch", path)
    assert done.returncode == 1
    assert message in done.stderr


def test_tables_as_spreadsheets_write_them(tmp_path):
    path = tmp_path / "pump.csv"
    path.write_text("sep=;\nflow;power\n1,5;2,5\n3;4\n")
    done = run("watch", path, "--decimal", ",", "--all", "--output", "jsonl")
    assert "2 samples" in done.stderr
    path.write_text('flow,power\n"1,5","2,5"\n3,"4,5"\n')
    done = run("watch", path, "--decimal", ",", "--all", "--output", "jsonl")
    assert "2 samples" in done.stderr
    done = run("watch", path)
    assert "column 'flow' holds '1,5', which is not a number. --decimal , reads it" in done.stderr


# -- rows that are bad ------------------------------------------------------------------------

BAD = {
    "short": b"2026,1,2",
    "long": b"2026,1,2,3,4",
    "text": b"2026,1,two,3",
    "bytes": b"2026,1,2,\xff",
    "quote": b'2026,1,2,"3',
    "infinite": b"2026,1,2,1e999",
    "endless": b"2026,1,2," + b"9" * (LONGEST + 1),
}


def test_bad_rows_are_named_and_no_verdict_changes(tmp_path, X, expected):
    lines = table(X).encode().splitlines(keepends=True)
    for k, row in enumerate(BAD.values()):
        lines.insert(100 + 50 * k, row + b"\n")
    path = tmp_path / "pump.csv"
    path.write_bytes(b"".join(lines))
    done = run("watch", path, "--all", "--output", "jsonl")
    assert done.returncode == 0
    found = objects(done.stdout)
    assert [line["score"] for line in found] == [line["score"] for line in expected]
    rows = set(range(607)) - {99 + 50 * k for k in range(len(BAD))}
    assert [line["row"] for line in found] == sorted(rows)
    words = done.stderr.splitlines()
    assert len(words) == len(BAD) + 1
    for k, line in enumerate(words[:-1]):
        assert line.startswith(f"onlad: bad row, line {101 + 50 * k}: ")
    assert "600 samples" in words[-1]
    assert "7 bad rows" in words[-1]


@pytest.mark.parametrize("kind", BAD)
def test_stop_ends_at_a_bad_row_with_a_model_that_is_whole(tmp_path, X, kind):
    lines = table(X).encode().splitlines(keepends=True)
    data = b"".join([*lines[:301], BAD[kind] + b"\n", *lines[301:]])
    (tmp_path / "a.csv").write_bytes(data)
    model = tmp_path / "pump.onlad"
    done = run("watch", tmp_path / "a.csv", "--on-bad", "stop", "--save", model)
    assert done.returncode == 1
    assert done.stderr.startswith("onlad: stopped at a bad row, line 302: ")
    assert len(done.stderr.splitlines()) == 1
    clean = onlad.Monitor()
    midnight = 1767225600  # 1 January 2026
    for t, row in enumerate(X[:300].tolist(), midnight):
        clean.observe(dict(zip(NAMES, row, strict=True)), time=t)
    onlad.save(clean, tmp_path / "clean.onlad")
    assert model.read_bytes() == (tmp_path / "clean.onlad").read_bytes()


def test_a_missing_header_is_a_bad_row_that_loses_nothing(tmp_path, X):
    text = re.sub(r"^[^,]*,", "", table(X, header=False), flags=re.MULTILINE)
    done = run("watch", "-", "--all", "--output", "jsonl", input=text)
    assert len(done.stdout.splitlines()) == 600
    assert done.stderr.startswith("onlad: bad row, line 1: it holds numbers, not names")
    stopped = run("watch", "-", "--on-bad", "stop", input=text)
    assert (stopped.returncode, stopped.stdout) == (1, "")


def test_many_bad_rows_are_counted_not_shown():
    text = "a,b\n" + "1,2\n" + "x,y\n" * 100_000 + "3,4\n"
    done = run("watch", "-", input=text)
    assert done.returncode == 0
    words = done.stderr.splitlines()
    assert len(words) == 22
    assert words[20] == "onlad: further bad rows are counted, but not shown"
    assert "2 samples, 0 anomalies, 100,000 bad rows (the last: line 100002)" in words[21]


def test_nothing_but_bad_rows_is_refused():
    done = run("watch", "-", input="machine,flow\npump,1\npump,2\n")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "onlad: no row could be read: line 2: column 'machine' holds 'pump', which is not a "
        "number. --ignore leaves a column out"
    )


def test_a_line_of_100_megabytes_needs_no_memory():
    with subprocess.Popen(
        [sys.executable, "-c", MEASURED, "watch", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdin.write(b"a,b\n1,2\n")
        for _ in range(100):
            process.stdin.write(b"9" * 1_000_000)
        process.stdin.write(b"\n3,4\n")
        _, err = process.communicate(timeout=PATIENCE)
    words = err.decode().splitlines()
    assert words[0] == (
        f"onlad: bad row, line 3: it has 100000000 bytes; a line may have {LONGEST}"
    )
    assert "2 samples, 0 anomalies, 1 bad row," in words[1]
    assert int(words[2]) < 80 * 1024


def test_memory_does_not_grow_with_the_file(tmp_path):
    """Long rows with few numbers: many bytes for few samples."""
    peaks = []
    for n in (500, 20_000):
        path = tmp_path / f"{n}.csv"
        with path.open("w") as file:
            file.write("a,b,note\n")
            for t in range(n):
                file.write(f"{t % 7},{t % 5},{'x' * 2000}\n")
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, "watch", path, "--ignore", "note"],
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        )
        peaks.append(int(done.stderr.split()[-1]))
    assert peaks[1] - peaks[0] < 8 * 1024  # the larger file has 40 MB


# -- on a terminal ----------------------------------------------------------------------------


def test_a_bar_is_shown_on_a_terminal_and_nowhere_else(tmp_path, X):
    path = tmp_path / "pump.csv"
    path.write_text(table(np.tile(X, (10, 1))))
    terminal, its_end = pty.openpty()
    with subprocess.Popen(
        [*ONLAD, "watch", path], stdout=subprocess.PIPE, stderr=its_end,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
    ) as process:  # fmt: skip
        os.close(its_end)
        shown, out = b"", process.stdout.read()
        while select.select([terminal], [], [], 1)[0]:
            try:
                shown += os.read(terminal, 1 << 16)
            except OSError:  # the other end is closed
                break
    os.close(terminal)
    assert process.returncode == 0
    assert b"anomalies" in shown
    assert b"%" in shown
    assert b"\x1b" in shown
    assert b"\x1b" not in out
    assert out.decode() == run("watch", path).stdout


# -- where data goes --------------------------------------------------------------------------


def test_a_full_disk_is_one_line_and_the_model_is_kept(tmp_path, X):
    (tmp_path / "a.csv").write_text(table(X))
    model = tmp_path / "pump.onlad"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*ONLAD, "watch", tmp_path / "a.csv", "--all", "--save", model],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "onlad: cannot write the output: No space left on device\n"
    assert onlad.load(model).n_seen > 0


def test_output_is_utf_8_in_every_locale(X):
    text = table(X).replace("bearing", "Lager_Ω")
    options = ("--all", "--output", "jsonl")
    env = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = run("watch", "-", *options, input=text.encode(), env=env)
    assert done.returncode == 0
    assert "Lager_Ω" in objects(done.stdout.decode("utf-8"))[-1]["causes"]


def test_no_standard_input_is_one_line():
    done = subprocess.run(
        ["bash", "-c", '"$@" <&-', "bash", *ONLAD, "watch", "-"],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "onlad: cannot read standard input: it is closed\n"


def test_a_decimal_comma_is_read(X, expected):
    text = table(X).replace(",", ";").replace(".", ",")
    done = run("watch", "-", "--decimal", ",", "--all", "--output", "jsonl", input=text)
    assert objects(done.stdout) == expected
    refused = run("watch", "-", input=text)
    assert refused.returncode == 1
    assert "column 'flow' holds '50,06" in refused.stderr
