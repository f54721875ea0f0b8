"""One command a cell, records, search, and the quick comparison."""

import json
from dataclasses import replace

import numpy as np
import pytest
from experiments.datasets import Dataset
from experiments.methods import registry
from experiments.run import Cell
from experiments.testbeds import FOLDS

from experiments import core_accuracy, quick, records, reproduce, run, settings, tune

COMMAND = ["online", "--dataset", "digits", "--method", "onlad", "--settings", "paper"]


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "RESULTS", tmp_path)
    return tmp_path


def printed(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_cell_prints_a_record_a_trial(results, capsys):
    run.main([*COMMAND, "--trials", "2", "--seed", "5"])
    lines = printed(capsys)
    assert [r["seed"] for r in lines] == [5, 6]
    for r in lines:
        assert list(r) == list(records.AUC_FIELDS)
        assert 0.5 < r["auc"] < 1
        assert r["hyperparameters"] == {
            "activation": "identity",
            "n_hidden": 8,
            "forgetting": 0.95,
        }
    assert not list(results.iterdir())  # nothing is stored unasked


def test_running_a_stored_records_command_again_gives_its_auc(results, capsys):
    run.main([*COMMAND, "--trials", "2", "--store"])
    first = printed(capsys)
    assert records.read("auc/online-onlad") == first
    run.main([*COMMAND, "--trials", "3", "--store"])
    assert [r["seed"] for r in printed(capsys)] == [2]  # the others are there
    run.main([*COMMAND, "--trials", "2", "--store", "--again"])
    assert [r["auc"] for r in printed(capsys)] == [r["auc"] for r in first]


def test_a_cell_that_cannot_be_says_so():
    with pytest.raises(SystemExit, match="PCA does not run on the online testbed"):
        run.main(["online", "--dataset", "digits", "--method", "pca"])
    with pytest.raises(SystemExit, match="the paper has no settings for loda on digits"):
        run.main(["online", "--dataset", "digits", "--method", "loda", "--settings", "paper"])


def test_without_a_search_there_are_no_settings_found(results):
    with pytest.raises(SystemExit, match=r"run python -m experiments\.tune online --dataset mnist"):
        settings.hyperparameters("found", "online", "mnist", "onlad")


def test_the_commit_of_a_record_says_whether_the_code_has_changed():
    assert len(records.commit().removesuffix("+")) == 12


def test_the_grids_are_the_papers_ranges():
    for method in ("onlad", "fpelm"):
        online = tune.grid("online", method)
        assert len(online) == len({json.dumps(p) for p in online}) == 2 * 6 * 6
        assert len(tune.grid("offline", method)) == 2 * 6
        assert all(p["forgetting"] == 1 for p in tune.grid("offline", method))
    assert {p["n_hidden"] for p in tune.grid("online", "onlad")} == {8, 16, 32, 64, 128, 256}
    assert all(p["ridge"] == 0.02 for p in tune.grid("online", "fpelm"))
    assert max(p["n_hidden"] for p in tune.grid("online", "onlad-plus")) == 256


@pytest.fixture
def small(monkeypatch):
    """Three classes of 100 rows in place of a dataset."""
    rng = np.random.default_rng(0)
    y = np.arange(900) % 3
    X = np.clip(rng.normal(0.3 + 0.2 * y[:, None], 0.05, (900, 6)), 0, 1).astype("float32")
    data = Dataset("letter_recognition", X, y, "0" * 64)
    monkeypatch.setattr(tune, "dataset", lambda name: data)
    return data


def test_without_ridge_too_many_hidden_units_are_not_possible(small):
    def possible(n, activation="sigmoid", **more):
        parameters = {"n_hidden": n, "activation": activation} | more
        return tune.possible("online", small, "onlad", parameters)

    assert possible(16)
    assert not possible(32)  # 30 initial samples per class
    assert possible(32, ridge=0.02)
    assert possible(7, "identity")
    assert not possible(8, "identity")  # six inputs and a bias


def test_a_setting_is_one_line_with_all_its_folds(small):
    (record,) = tune.try_out(
        "online", "letter_recognition", "onlad", tune.grid("online", "onlad")[0], tune.FOLDS
    )
    assert record["folds"] == list(range(FOLDS))
    assert len(record["aucs"]) == FOLDS
    large = {"n_hidden": 256, "activation": "sigmoid", "forgetting": 1.0}
    (impossible,) = tune.try_out("online", "letter_recognition", "onlad", large, tune.FOLDS)
    assert impossible["folds"] == impossible["aucs"] == []


def test_ours_is_searched_in_two_stages_over_each_kind_of_score(small, results, monkeypatch):
    few = tune.grid("online", "onlad-plus")[:8]
    monkeypatch.setattr(tune, "grid", lambda *_: few)
    cell = ("online", "letter_recognition", "onlad-plus")
    first = tune.tasks(*cell)
    assert [folds for _, folds in first] == [[0, 1, 2]] * 8
    for task in first:
        tune._store(*cell, task)
    second = tune.tasks(*cell)
    assert second
    assert all(len(folds) == FOLDS for _, folds in second)
    for task in second:
        tune._store(*cell, task)
    assert tune.tasks(*cell) == []
    stored = [r for r in records.read("tune/online-onlad-plus") if len(r["folds"]) == FOLDS]
    assert {r["hyperparameters"]["score"] for r in stored} == {
        "reconstruction",
        "leverage",
        "combined",
    }
    best = max(stored, key=lambda r: sum(r["aucs"]))
    assert settings.chosen("online", "letter_recognition", "onlad-plus") == best["hyperparameters"]


def test_settings_tried_on_few_folds_are_never_chosen(results):
    def line(n, aucs):
        return {"dataset": "mnist", "hyperparameters": {"n_hidden": n}, "aucs": aucs}

    records.append("tune/online-onlad", [line(8, [0.9] * 3), line(16, [0.7] * 10)])
    assert settings.chosen("online", "mnist", "onlad") == {"n_hidden": 16}


def test_cells_wait_for_the_whole_search(results):
    found = reproduce.cells(("os-elm",), ["onlad", "onlad-plus"], ["mnist"])
    assert {cell.settings for cell in found} == {"paper"}


def test_reproduce_runs_what_is_missing_and_nothing_else(results):
    cell = Cell("online", "digits", "onlad", "paper")
    records.append(cell.file, cell.run([1]))
    assert cell.missing(range(3)) == [0, 2]
    reproduce.auc([cell], n_jobs=1, trials=3)
    assert [r["seed"] for r in records.read(cell.file)] == [1, 0, 2]
    reproduce.auc([cell], n_jobs=1, trials=3)
    assert len(records.read(cell.file)) == 3


def test_progress_says_how_long_it_takes_still(capsys, monkeypatch):
    now = iter([0.0, 60.0, 120.0])
    monkeypatch.setattr(reproduce.time, "monotonic", lambda: next(now))
    progress = reproduce.Progress("AUC", 2)
    progress.step("mnist")
    assert "AUC: 1 of 2, about 1 min left (mnist)" in capsys.readouterr().err
    progress.step("mnist")
    assert "2 of 2, about 0 min left" in capsys.readouterr().err


def test_the_quick_run_sees_a_core_that_is_less_accurate(monkeypatch):
    case = core_accuracy.Case(32, 8, "identity", "noise", 0.99, steps=300)
    stored = core_accuracy.measure(case)
    for times, good in ((1, True), (2, False)):
        worse = replace(stored, score_median=times * stored.score_median)
        monkeypatch.setattr(core_accuracy, "records", lambda worse=worse: [worse])
        assert quick._fixed_point()[1] == good


def test_the_quick_run_sees_an_auc_that_differs(results, monkeypatch):
    monkeypatch.setattr(quick, "BACKEND", quick.LEVEL)
    (now,) = Cell("online", "digits", "onlad", "paper").run([0])
    assert quick.compare(now)[1]  # no record, nothing to compare
    records.append("auc/online-onlad", [now])
    assert quick.compare(now)[1]
    line, good = quick.compare(now | {"auc": now["auc"] + 2e-6})
    assert not good
    assert "DIFFERS" in line


@pytest.mark.parametrize(("machine", "level"), [("another", quick.LEVEL), (None, "another")])
def test_on_another_processor_the_quick_run_allows_for_rounding(
    results, monkeypatch, machine, level
):
    monkeypatch.setattr(quick, "BACKEND", level)
    (now,) = Cell("online", "digits", "onlad", "paper").run([0])
    records.append("auc/online-onlad", [now])
    there = now | {"machine": machine or now["machine"]}
    assert quick.compare(there | {"auc": now["auc"] + 2e-6})[1]
    assert not quick.compare(there | {"auc": now["auc"] + 2e-3})[1]


def test_every_method_has_settings_on_digits():
    for name, entry in registry().items():
        if name != "onlad-plus" and entry.family in ("os-elm", "neural"):
            assert settings.hyperparameters("paper", "online", "digits", name)
