"""The neural search: only validation data, nothing twice, and the best setting in the tables."""

import numpy as np
import pytest

pytest.importorskip("jax")

from experiments.datasets import Dataset

from experiments import neural, records, testbeds


@pytest.fixture
def cell(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "RESULTS", tmp_path)
    rng = np.random.default_rng(0)
    data = Dataset("letter_recognition", rng.random((400, 3), "float32"), np.arange(400) % 4, "x")
    return neural.Cell("online", data, "dnn")


@pytest.fixture
def runs(monkeypatch):
    """Stand in for the networks (`test_baselines` has those): an AUC by setting, and a list."""
    seen = []

    def aucs(testbed, method, settings, trials):
        seen.extend(zip(settings, trials, strict=True))
        return [0.9 if s["hidden"] == [64, 8, 64] else 0.6 for s in settings]

    monkeypatch.setattr(neural, "aucs", aucs)
    return seen


def test_the_search_tries_each_candidate_on_validation_rows_alone(cell, runs):
    cell.search()
    candidates = neural.candidates("online", "letter_recognition", "dnn")
    assert len(runs) == len(candidates) * neural.RUNS["online"]
    test = set(testbeds.divide(400, "online")["test"])
    for _, trial in runs:
        assert not test & {*trial.parts[0].train_rows, *trial.parts[0].rows}
    runs.clear()
    cell.search()
    assert not runs  # all of it is stored


def test_the_paper_s_own_setting_is_a_candidate():
    for testbed in testbeds.TESTBEDS:
        for dataset in neural.paper()["datasets"]:
            for method in ("nn", "dnn"):
                own = neural.paper()["settings"][testbed][dataset][method]
                assert neural.candidates(testbed, dataset, method).count(own) == 1


def test_the_tables_have_the_best_setting_and_no_trial_runs_twice(cell, runs):
    cell.search()
    cell.trials("found", 3)
    stored = records.read("auc/online-dnn")
    assert [r["hyperparameters"]["hidden"] for r in stored] == [[64, 8, 64]] * 3
    assert [list(r) for r in stored] == [list(records.AUC_FIELDS)] * 3
    runs.clear()
    cell.trials("found", 4)
    assert [trial.seed for _, trial in runs] == [3]


def test_where_the_papers_setting_is_found_its_trials_are_taken(cell, runs, monkeypatch):
    cell.trials("paper", 3)
    own = neural.paper()["settings"]["online"]["letter_recognition"]["dnn"]
    monkeypatch.setattr(neural, "chosen", lambda *_: own)
    runs.clear()
    cell.trials("found", 3)
    assert not runs
    stored = records.read("auc/online-dnn")
    assert [(r["settings"], r["seed"]) for r in stored] == [
        (settings, seed) for settings in ("paper", "found") for seed in range(3)
    ]
    assert stored[0]["auc"] == stored[3]["auc"]
