"""fit, score, info, merge, plot and evaluate, on files, against the library."""

import csv
import io
import json
import re
import shutil

import numpy as np
import pytest
from piping import NAMES, run, stream, table

import onlad
from onlad import cli
from onlad.monitor import FEWEST
from onlad.report.evaluation import auc
from onlad.report.lines import COLUMNS
from onlad.streams.times import seconds

ROWS, NORMAL = 900, 840


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a day's file, the next day's, and a model of the first."""
    path = tmp_path_factory.mktemp("pump")
    (path / "one.csv").write_text(table(history()))
    (path / "two.csv").write_text(table(stream(ROWS, seed=1)))
    assert cli.main(["fit", str(path / "one.csv"), "-o", str(path / "pump.onlad")]) == 0
    return path


def history():
    """Return a day without its fault."""
    return stream(ROWS)[:NORMAL]


def fitted(X, when=None, **settings):
    rows = [dict(zip(NAMES, row, strict=True)) for row in X.tolist()]
    return onlad.Monitor(**settings).fit(rows, when)


def times(X):
    """Return the times of the rows of a `table`."""
    return seconds("2026-01-01T00:00:00") + np.arange(len(X))


def main(capsys, *args):
    status = cli.main([str(arg) for arg in args])
    out, err = capsys.readouterr()
    return status, out, err


def test_fit_makes_the_model_that_the_library_makes(folder, tmp_path, capsys):
    onlad.save(fitted(history(), times(history())), tmp_path / "twin.onlad")
    assert (tmp_path / "twin.onlad").read_bytes() == (folder / "pump.onlad").read_bytes()
    status, out, err = main(capsys, "fit", folder / "one.csv", "-o", tmp_path / "two.onlad")
    assert (status, out) == (0, "")
    assert re.fullmatch(r"onlad: 840 samples, \d+\.\d s\nonlad: the model is in .*two.onlad\n", err)


def test_watch_goes_on_from_a_fit(folder, tmp_path, capsys):
    model = tmp_path / "pump.onlad"
    shutil.copy(folder / "pump.onlad", model)
    args = ("watch", folder / "two.csv", "--model", model, "--all", "--output", "jsonl")
    out = main(capsys, *args)[1]
    X = stream(ROWS, seed=1)
    verdicts = fitted(history(), times(history())).observe_many(X, times=times(X))
    assert [json.loads(line)["score"] for line in out.splitlines()] == verdicts.score.tolist()
    assert onlad.load(model).n_seen == NORMAL + ROWS


def test_fit_takes_the_settings_of_a_monitor(folder, tmp_path, capsys):
    model = tmp_path / "a.onlad"
    options = ["--false-alarms", "1/1000", "--window", "3", "--seed", "9"]
    assert main(capsys, "fit", folder / "one.csv", *options, "-o", model)[0] == 0
    settings = {"false_alarms": 1e-3, "window": 3, "seed": 9}
    assert onlad.load(model).settings() == onlad.Monitor(**settings).settings()


def test_fit_makes_a_model_of_each_series(tmp_path, capsys):
    X = {"a": stream(100), "b": stream(100, seed=1), "c": stream(FEWEST - 1)}
    lines = [
        f"pump,host={host} "
        + ",".join(f"{n}={v}" for n, v in zip(NAMES, row, strict=True) if v == v)
        for host, rows in X.items()
        for row in rows.tolist()
    ]
    (tmp_path / "a.lp").write_text("\n".join(lines) + "\n")
    status, _, err = main(capsys, "fit", tmp_path / "a.lp", "-o", tmp_path / "models")
    assert status == 1
    assert f"series 'pump,host=c' has {FEWEST - 1} samples with a value; a model needs at " in err
    made = sorted((tmp_path / "models").iterdir())
    assert [path.name for path in made] == [f"pump%2Chost%3D{host}.onlad" for host in "ab"]
    onlad.save(fitted(X["b"]), tmp_path / "b.onlad")
    assert (tmp_path / "b.onlad").read_bytes() == made[1].read_bytes()


def test_fit_refuses_a_history_that_is_too_short(tmp_path, capsys):
    (tmp_path / "few.csv").write_text(table(stream(FEWEST - 1)))
    status, _, err = main(capsys, "fit", tmp_path / "few.csv", "-o", tmp_path / "m.onlad")
    assert status == 1
    assert err.endswith(
        f"the source has {FEWEST - 1} samples with a value; a model needs at least {FEWEST}. "
        "onlad watch needs no history\n"
    )
    assert "the model is in" not in err
    assert not (tmp_path / "m.onlad").exists()


def test_false_alarms_take_effect_on_a_model_that_was_saved(folder, tmp_path, capsys):
    model = tmp_path / "pump.onlad"
    shutil.copy(folder / "pump.onlad", model)
    args = ("watch", folder / "two.csv", "--model", model, "--false-alarms", "0.01")
    status, _, err = main(capsys, *args)
    assert (status, onlad.load(model).false_alarms) == (0, 0.01)
    assert "stays" not in err
    main(capsys, "watch", folder / "two.csv", "--model", model)
    assert onlad.load(model).false_alarms == 0.01


def test_what_a_model_cannot_change_any_more_is_said(folder, tmp_path, capsys):
    model = tmp_path / "pump.onlad"
    shutil.copy(folder / "pump.onlad", model)
    args = ("watch", folder / "two.csv", "--model", model, "--window", "2", "--seed", "0")
    status, _, err = main(capsys, *args)
    assert status == 0
    assert f"onlad: {model}: window stays the default, not 2: the model keeps its own" in err
    assert "seed" not in err


def test_fit_refuses_a_source_without_samples(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("a,b\n")
    status, _, err = main(capsys, "fit", tmp_path / "a.csv", "-o", tmp_path / "m.onlad")
    assert status == 1
    assert err.endswith("onlad: there is nothing to learn: the source has no samples\n")
    assert not (tmp_path / "m.onlad").exists()


def test_score_learns_nothing(folder, capsys):
    """Each sample is scored by the model as it is; a second pass gives the same numbers."""
    before = (folder / "pump.onlad").read_bytes()
    args = ("score", folder / "pump.onlad", folder / "two.csv")
    status, out, _ = main(capsys, *args)
    rows = list(csv.DictReader(io.StringIO(out)))
    assert (status, len(rows)) == (0, ROWS)
    assert tuple(rows[0]) == COLUMNS
    assert len({row["threshold"] for row in rows}) == 2  # of single rows, and of others
    assert (folder / "pump.onlad").read_bytes() == before
    monitor = onlad.load(folder / "pump.onlad")
    learned = monitor.describe()["learned"]
    monitor.paused = True
    X = stream(ROWS, seed=1)
    verdicts = monitor.observe_many(X, times=times(X))
    assert [float(row["score"]) for row in rows] == verdicts.score.tolist()
    assert [row["is_anomaly"] == "1" for row in rows] == verdicts.is_anomaly.tolist()
    assert [float(row["severity"]) for row in rows] == verdicts.severity.tolist()
    at = int(verdicts.score.argmax())
    cause, row = next(iter(verdicts[at].causes)), rows[at]
    assert (row["cause"], row["direction"]) == (cause, verdicts[at].direction[cause])
    assert float(row["low"]) == pytest.approx(verdicts[at].low[cause], rel=1e-5)
    assert sum(verdicts.is_anomaly[-60:-50]) > 5
    assert monitor.describe()["learned"] == learned
    lines = main(capsys, *args, "--output", "jsonl")[1].splitlines()
    assert [json.loads(line)["score"] for line in lines] == verdicts.score.tolist()
    assert main(capsys, *args, "--output", "influx")[1].count("onlad score=") == ROWS


def test_score_refuses_a_model_that_is_not_ready(folder, tmp_path, capsys):
    (tmp_path / "few.csv").write_text(table(stream(100)))
    model = tmp_path / "few.onlad"
    main(capsys, "watch", tmp_path / "few.csv", "--save", model)
    status, out, err = main(capsys, "score", model, folder / "two.csv")
    assert (status, out) == (1, "")
    assert f"{model} is not ready: 156 more samples with a value are needed. Let it" in err


def test_info_says_what_the_file_holds(folder, capsys):
    model = folder / "pump.onlad"
    facts = json.loads(main(capsys, "info", model, "--json")[1])
    said = onlad.load(model).describe()
    data = model.read_bytes()
    assert facts["sha256"] == data[-32:].hex()
    assert facts["bytes"] == len(data)
    assert (facts["samples seen"], facts["ready"]) == (NORMAL, True)
    same = {"threshold": "threshold", "ordered": "ordered", "window": "window", "start":
            "samples at the start", "learned": "samples learned", "false_alarms": "false alarms",
            "quarantine": "samples in quarantine", "candidate": "new mode on trial", "drifting":
            "drifting", "never moved": "never moved"}  # fmt: skip
    for name, shown in same.items():
        assert facts[shown] == said[name], name
    assert facts["columns"] == list(NAMES)
    assert [mode["samples learned"] for mode in facts["modes"]] == said["modes"]
    (mode,) = facts["modes"]
    X = history()
    for j, name in enumerate(NAMES):
        assert mode["columns"][name]["centre"] == np.nanmedian(X[:, j])
        assert mode["columns"][name]["unit"] >= np.nanstd(X[:, j]) * (1 - 1e-12)  # rounding
    text = main(capsys, "info", model)[1]
    assert f"sha256                 {facts['sha256']}\n" in text
    assert "samples seen           840\n" in text
    assert "false alarms           1 in 10,000 normal samples\n" in text
    assert "mode 1 of 1: 840 samples learned\n  flow     centre " in text


def test_info_knows_a_model_at_every_age(tmp_path, capsys):
    monitor = onlad.Monitor()
    X = np.column_stack([stream(300), np.full(300, 7.0)])
    for n, rows in ((0, X[:0]), (20, X[:20]), (300, X[20:])):
        if len(rows):
            monitor.observe_many(rows)
        onlad.save(monitor, tmp_path / "m.onlad")
        facts = json.loads(main(capsys, "info", tmp_path / "m.onlad", "--json")[1])
        assert (facts["samples seen"], facts["ready"]) == (n, n == 300)
        assert facts.get("why") == monitor.describe().get("why")
        text = main(capsys, "info", tmp_path / "m.onlad")[1]
        assert ("\nwhy " in text) == (n < 300)
    assert facts["never moved"] == ["3"]
    assert facts["modes"][0]["columns"]["3"] == {"centre": 7.0, "unit": None}
    assert "never moved            3\n" in text


def test_info_names_features_that_came_later(tmp_path, capsys):
    monitor = onlad.Monitor(names=["flow", "power"])
    monitor.observe_many(stream(300)[:, :2])
    monitor.widen(["oil"])
    monitor.observe([1.0, 2.0, 3.0])
    onlad.save(monitor, tmp_path / "m.onlad")
    facts = json.loads(main(capsys, "info", tmp_path / "m.onlad", "--json")[1])
    assert (facts["columns"], facts["came later"]) == (["flow", "power", "oil"], ["oil"])
    assert list(facts["modes"][0]["columns"]) == ["flow", "power"]


def test_info_refuses_a_file_that_is_damaged(folder, tmp_path, capsys):
    data = bytearray((folder / "pump.onlad").read_bytes())
    data[-100] ^= 1
    (tmp_path / "bad.onlad").write_bytes(data)
    status, out, err = main(capsys, "info", tmp_path / "bad.onlad")
    assert (status, out) == (1, "")
    assert "is damaged: its checksum is not that of its bytes" in err


def unit(path, seed, rows=400):
    rng = np.random.default_rng(seed)
    load = rng.uniform(size=rows)
    X = np.column_stack([load, 1 - load, load**2])
    lines = [",".join("abc"), *(",".join(map(repr, row)) for row in X.tolist())]
    path.write_text("\n".join(lines))
    return X


def test_detectors_of_two_devices_are_merged(tmp_path, capsys):
    X = [unit(tmp_path / f"{k}.csv", k) for k in range(3)]
    for k in range(3):
        args = ("fit", tmp_path / f"{k}.csv", "--detector", "--hidden", "16", "--seed", "3")
        status, _, err = main(capsys, *args, "-o", tmp_path / f"{k}.onlad")
        assert status == 0, err
    models = [tmp_path / f"{k}.onlad" for k in range(3)]
    both = tmp_path / "both.onlad"
    status, out, err = main(capsys, "merge", *models, "-o", both)
    assert (status, out) == (0, "")
    assert err == f"onlad: {both} has learned 1,200 samples\n"
    once = onlad.Detector(n_hidden=16, forgetting=1.0, seed=3)
    once.learn_many(np.concatenate(X))
    merged = onlad.load(both)
    # Two solutions of one regularised system: they differ by its rounding.
    np.testing.assert_allclose(merged.score_many(X[0]), once.score_many(X[0]), rtol=1e-3, atol=1e-9)
    facts = json.loads(main(capsys, "info", both, "--json")[1])
    assert (facts["kind"], facts["samples learned"], facts["inputs"]) == ("Detector", 1200, 3)
    assert "effective samples" in main(capsys, "info", both)[1]
    status, out, _ = main(capsys, "score", both, tmp_path / "0.csv")
    scores = [float(row["score"]) for row in csv.DictReader(io.StringIO(out))]
    assert scores == merged.score_many(X[0]).tolist()


def test_what_cannot_be_merged_is_refused(folder, tmp_path, capsys):
    unit(tmp_path / "a.csv", 0)
    models = [tmp_path / "a.onlad", tmp_path / "b.onlad"]
    for model, hidden in zip(models, (8, 9), strict=True):
        main(capsys, "fit", tmp_path / "a.csv", "--detector", "--hidden", hidden, "-o", model)
    status, _, err = main(capsys, "merge", *models, "-o", tmp_path / "c.onlad")
    assert status == 1
    assert "only detectors with one random layer can be merged" in err
    status, _, err = main(
        capsys, "merge", models[0], folder / "pump.onlad", "-o", tmp_path / "c.onlad"
    )
    assert status == 1
    assert "holds a Monitor, which scales sensors by itself" in err
    assert not (tmp_path / "c.onlad").exists()


def test_a_bare_detector_takes_whole_rows_only(folder, tmp_path, capsys):
    status, _, err = main(capsys, "fit", folder / "one.csv", "--detector", "-o", tmp_path / "a")
    assert status == 1
    assert "row 50: column 'power' is missing or too large" in err
    unit(tmp_path / "a.csv", 0)
    main(capsys, "fit", tmp_path / "a.csv", "--detector", "-o", tmp_path / "a.onlad")
    (tmp_path / "b.csv").write_text("a,b\n0.1,0.2\n")
    status, _, err = main(capsys, "score", tmp_path / "a.onlad", tmp_path / "b.csv")
    assert status == 1
    assert err.endswith("onlad: the detector has 3 features, the source 2\n")
    status, _, err = main(capsys, "watch", folder / "one.csv", "--load", tmp_path / "a.onlad")
    assert status == 1
    assert "a.onlad holds a Detector; this needs a Monitor" in err


def test_evaluate_counts_what_labels_say(tmp_path, capsys):
    X = stream(ROWS)
    truth = np.zeros(ROWS, bool)
    truth[ROWS - 60 : ROWS - 50] = True
    lines = table(X).splitlines()
    lines = [
        f"{line},{word}"
        for line, word in zip(lines, ["class", *np.where(truth, "leak", "fine")], strict=True)
    ]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    args = ("evaluate", tmp_path / "a.csv", "--label", "class")
    status, out, err = main(capsys, *args)
    assert (status, out) == (1, "")
    assert "label 'fine' says neither normal nor anomalous" in err
    report = json.loads(main(capsys, *args, "--normal", "fine", "--json")[1])
    verdicts = onlad.Monitor().observe_many(X)
    ready = verdicts.ready
    score, alarm, truth = verdicts.score[ready], verdicts.is_anomaly[ready], truth[ready]
    assert report["auc"] == auc(score, truth)
    assert report["precision"] == (alarm & truth).sum() / alarm.sum()
    assert report["recall"] == (alarm & truth).sum() / 10
    assert (report["events"], report["found"], report["delay"]) == (1, 1, 0)
    text = main(capsys, *args, "--normal", "fine")[1]
    assert f"AUC              {report['auc']:.4f}" in text
    assert "events           1 of 1   have an alarm" in text


@pytest.mark.parametrize("suffix", ["png", "svg", "html"])
def test_plot_draws_what_watch_saw(folder, tmp_path, capsys, suffix):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"pump.{suffix}"
    args = ("plot", folder / "two.csv", "--load", folder / "pump.onlad", "-o", path)
    status, out, err = main(capsys, *args)
    assert (status, out) == (0, "")
    assert err.endswith(f"onlad: the picture is in {path}\n")
    data = path.read_bytes()
    assert len(data) > 10_000
    if suffix == "html":
        load = ("--load", folder / "pump.onlad", "--output", "jsonl")
        said = main(capsys, "watch", folder / "two.csv", *load)[1].splitlines()
        rows = [json.loads(line)[end] for line in said for end in ("begin", "end")]
        assert rows
        assert [row for row in rows if f"<td>{row}</td>".encode() not in data] == []


def test_plot_refuses_what_it_cannot_do(folder, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    (tmp_path / "a.csv").write_text("a,b\n")
    status, _, err = main(capsys, "plot", tmp_path / "a.csv", "-o", tmp_path / "a.png")
    assert status == 1
    assert err.endswith("onlad: there is nothing to draw: the source has no samples\n")
    missing = tmp_path / "no" / "a.png"
    status, _, err = main(capsys, "plot", folder / "one.csv", "-o", missing)
    assert status == 1
    assert err.endswith(f"onlad: cannot write {missing}: No such file or directory\n")


def test_commands_are_pipes_of_each_other(folder):
    """What score prints, watch can read: the scores of scores."""
    scores = run("score", folder / "pump.onlad", folder / "two.csv").stdout
    again = run("watch", "-", "--columns", "score", "--all", "--output", "jsonl", input=scores)
    assert len(again.stdout.splitlines()) == ROWS
