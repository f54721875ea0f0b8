"""Equal budgets: as many settings for each method, one fixed draw, and no trial run twice."""

import numpy as np
import pytest
from experiments.methods import peers
from experiments.metrics import mean, paired
from experiments.settings import BUDGET, NoSettingsError, equal
from experiments.tables import Aucs
from experiments.testbeds import TESTBEDS

from experiments import records, reproduce, tune

WHERE = ("online", "mnist", "onlad")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "RESULTS", tmp_path)


def tried(n, folds=2):
    """Store a search in which setting k has the AUC k / n, on as many folds or more."""
    found = [
        {
            "dataset": "mnist",
            "hyperparameters": {"n_hidden": k},
            "aucs": [k / n] * folds + [0.0] * (k % 2),
        }
        for k in range(n)
    ]
    records.append("tune/online-onlad", found)


def test_the_best_of_a_few_is_seldom_the_best_of_all():
    tried(400)
    found = equal(*WHERE)["n_hidden"]
    assert found == equal(*WHERE)["n_hidden"]
    # The best of 20 among 400: above the 300th but for 0.3 % of the draws, and this one is fixed.
    assert 300 < found < 399


def test_a_short_search_keeps_its_best():
    tried(BUDGET)
    assert equal(*WHERE) == {"n_hidden": BUDGET - 1}


def test_without_a_search_there_is_no_setting():
    with pytest.raises(NoSettingsError, match="no settings were tried yet for onlad on mnist"):
        equal(*WHERE)


DEFAULTS = {  # of the libraries; of PCA, which has none that leaves anything over, ours
    "hst": {"n_trees": 10, "height": 8, "window_size": 250},
    "ocsvm": {"nu": 0.1, "intercept_lr": 0.01},
    "loda": {"num_bins": 10, "num_random_cuts": 100},
    "kitnet": {"learning_rate": 0.1, "hidden_ratio": 0.75},
    "iforest": {"max_samples": "auto", "max_features": 1.0},
    "pca": {"n_components": 0.9},
    "lof": {"n_neighbors": 20},
    "knn": {"n_neighbors": 5, "method": "largest"},
    "ocsvm-rbf": {"nu": 0.5, "gamma": "scale"},
    "vae": {"latent_dim": 2, "dropout_rate": 0.2, "lr": 1e-3},
    "deep-svdd": {"hidden_neurons": [64, 32], "lr": 1e-4},
}


@pytest.mark.parametrize("method", peers.GRIDS)
def test_a_peer_has_as_many_settings_with_its_defaults_among_them(method):
    (testbed,) = (bed for bed in TESTBEDS if tune.searched(bed, method))
    wanted = [settings for settings, _ in tune.tasks(testbed, "mnist", method)]
    assert len(wanted) == BUDGET
    assert DEFAULTS[method] in wanted
    cell = reproduce.Cell(testbed, "mnist", method, "equal")
    assert cell not in list(reproduce.cells(["peer"], [method], ["mnist"]))
    found = [
        {"dataset": "mnist", "hyperparameters": p, "folds": [0] * 3, "aucs": [0.5]} for p in wanted
    ]
    records.append(f"tune/{testbed}-{method}", found)
    assert cell in list(reproduce.cells(["peer"], [method], ["mnist"]))


def test_a_trial_that_another_column_has_is_borrowed_and_not_run():
    names = ("testbed", "dataset", "method", "settings", "hyperparameters", "seed")
    one = dict(zip(names, ("online", "mnist", "onlad", "found", {"n_hidden": 8}, 0), strict=True))
    records.append("auc/x", [one | {"auc": 0.9}])
    other = one | {"settings": "equal"}
    wanted = [other, other | {"seed": 1}, other | {"hyperparameters": {"n_hidden": 9}}]
    assert records.borrow("auc/x", wanted) == wanted[1:]
    assert records.borrow("auc/x", wanted) == wanted[1:]
    assert records.read("auc/x") == [one | {"auc": 0.9}, other | {"auc": 0.9}]


def test_paired_differences_are_tested():
    rng = np.random.default_rng(0)
    found = paired(list(rng.normal(0.01, 0.005, 50)))
    assert found[:3] == mean(list(np.random.default_rng(0).normal(0.01, 0.005, 50)))
    assert found.p < 1e-6
    assert paired(list(rng.normal(0, 0.01, 50))).p > 0.05
    assert paired([0.0, 0.0, 0.0]).p == 1


def test_the_page_says_which_searches_are_not_complete_and_how_long_they_take():
    settings = {"dataset": "mnist", "hyperparameters": {}, "aucs": []}
    records.append("tune/offline-lof", [settings | {"seconds": s} for s in (60, 90, 120)])
    told = Aucs("offline")._not_searched()
    assert "LOF (3 of 20, about 26 min left)" in told  # 17 settings of 90 s
    assert "LOF (0 of 20, about 30 min left)" in told  # as long as on MNIST
    assert "kNN (0 of 20)" in told
    assert "LOF" not in Aucs("online")._not_searched()  # it learns once
