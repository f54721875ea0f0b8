"""A run over a source, in this process: checkpoints that fail, drift, and words that are said."""

import errno
import os

import numpy as np
from piping import stream, table

import onlad
from onlad import cli, persist
from onlad.cli import session


def main(capsys, *args):
    status = cli.main([str(arg) for arg in args])
    out, err = capsys.readouterr()
    return status, out, err


def test_a_checkpoint_that_fails_is_tried_again(tmp_path, monkeypatch, capsys):
    """The disk is full for a while: the run goes on, and the model is saved in the end."""
    X = stream(6000)
    (tmp_path / "a.csv").write_text(table(X))
    real, calls = persist.save, []

    def save(model, path):
        calls.append(model.n_seen)
        if len(calls) == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(model, path)

    monkeypatch.setattr(session, "CHECKPOINT", -1.0)
    monkeypatch.setattr(persist, "save", save)
    model = tmp_path / "pump.onlad"
    status, _, err = main(capsys, "watch", tmp_path / "a.csv", "--save", model)
    assert status == 0
    assert f"onlad: cannot write {model}: No space left on device. Trying again later\n" in err
    assert len(calls) >= 2
    assert calls[-1] == onlad.load(model).n_seen == 6000


def test_a_save_that_fails_at_the_end_is_a_refusal(tmp_path, monkeypatch, capsys):
    (tmp_path / "a.csv").write_text(table(stream()))

    def save(model, path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(persist, "save", save)
    status, _, err = main(capsys, "watch", tmp_path / "a.csv", "--save", tmp_path / "m.onlad")
    assert status == 1
    assert err.endswith("m.onlad: No space left on device\n")


def wandering(rows):
    """Return three sensors of one load that wanders."""
    rng = np.random.default_rng(0)
    load = np.sin(np.arange(rows) / 30) + np.sin(np.arange(rows) / 71)
    return np.outer(load, [9.0, 5.0, 3.0]) + rng.normal(size=(rows, 3))


def test_drift_is_said(tmp_path, capsys):
    X = wandering(3000)
    X[1000:, 1] *= -5
    (tmp_path / "a.csv").write_text(table(X))
    verdicts = onlad.Monitor().observe_many(X)
    rows = np.flatnonzero(verdicts.drift)
    assert len(rows)
    _, out, err = main(capsys, "watch", tmp_path / "a.csv", "--rows")
    for row in rows:
        assert f"onlad: row {row}: a new mode was confirmed, and is normal from now on" in err
    assert len(out.splitlines()) == np.count_nonzero(verdicts.is_anomaly)


def test_a_slow_drift_is_said_once(tmp_path, capsys):
    X = wandering(24_000)
    X[12_000:, 2] += np.linspace(0, 3, 12_000)
    (tmp_path / "a.csv").write_text(table(X))
    verdicts = onlad.Monitor().observe_many(X)
    first = np.flatnonzero(verdicts.drifting >= 0)[0]
    assert first > 12_000
    _, _, err = main(capsys, "watch", tmp_path / "a.csv")
    begins = np.diff(verdicts.drifting, prepend=-1) * (verdicts.drifting >= 0) != 0
    said = [line for line in err.splitlines() if "drifts slowly" in line]
    assert said[0].startswith(f"onlad: row {first}: bearing drifts slowly away from where it was")
    assert len(said) == np.count_nonzero(begins)


def test_parquet_and_line_protocol_cannot_be_what_they_are_not(tmp_path, capsys):
    (tmp_path / "a.csv").write_text(table(stream()))
    status, _, err = main(capsys, "watch", tmp_path / "a.csv", "--input", "parquet", "--follow")
    assert (status, err) == (1, "onlad: Parquet cannot be read from a pipe or a growing file\n")
    (tmp_path / "a.lp").write_text("a x=1\n")
    status, _, err = main(capsys, "watch", tmp_path / "a.lp", "--label", "x")
    assert (status, err) == (1, "onlad: line protocol has its own time, and no labels\n")


def test_one_model_cannot_judge_many_series(tmp_path, capsys):
    (tmp_path / "a.csv").write_text(table(stream()))
    (tmp_path / "a.lp").write_text("a x=1\n")
    model = tmp_path / "m.onlad"
    assert main(capsys, "fit", tmp_path / "a.csv", "-o", model)[0] == 0
    status, _, err = main(capsys, "score", model, tmp_path / "a.lp")
    assert (status, err) == (1, "onlad: a model of one series cannot score a source with several\n")
    assert main(capsys, "fit", tmp_path / "a.lp", "--detector", "-o", model)[0] == 1
