"""kNN, LOF, PCA and an SVM that share work: scores of PyOD and scikit-learn, for all settings."""

from collections import OrderedDict

import numpy as np
import pytest

KNN = pytest.importorskip("pyod.models.knn").KNN

from experiments.methods import _once, peers  # noqa: E402
from sklearn.decomposition import PCA  # noqa: E402
from sklearn.ensemble import IsolationForest  # noqa: E402
from sklearn.neighbors import LocalOutlierFactor, NearestNeighbors  # noqa: E402
from sklearn.svm import OneClassSVM  # noqa: E402


@pytest.fixture
def rows(monkeypatch):
    """Return training rows and others, and forget the neighbours of other tests.

    No two distances are the same: LOF depends on which of two rows at one distance comes first.
    """
    monkeypatch.setattr(_once, "_found", OrderedDict())
    X = np.random.default_rng(0).normal(size=(900, 64)).astype("float32")
    return X[:400], X[400:]


# Both sides order the same distances. Blocks of another size may round a distance otherwise, by
# float32's 1e-7 of squares of up to 64 features; LOF divides means of them.
TOLERANCE = 1e-5


@pytest.mark.parametrize("settings", peers.GRIDS["knn"][::3])
def test_knn_has_pyods_scores(rows, settings):
    train, X = rows
    model = peers.nearest_neighbours(settings, 64, 0)
    model.fit(train)
    its = KNN(**settings).fit(train).decision_function(X)
    np.testing.assert_allclose(model.score(X), its, rtol=TOLERANCE)


@pytest.mark.parametrize("settings", peers.GRIDS["lof"][::4])
def test_lof_has_scikit_learns_scores(rows, settings):
    train, X = rows
    model = peers.local_outlier_factor(settings, 64, 0)
    model.fit(train)
    its = -LocalOutlierFactor(novelty=True, **settings).fit(train).score_samples(X)
    np.testing.assert_allclose(model.score(X), its, rtol=TOLERANCE)


@pytest.mark.parametrize("settings", peers.GRIDS["pca"][::4])
def test_pca_has_scikit_learns_reconstruction(rows, settings):
    train, X = (part * np.linspace(0.1, 3, 64, dtype="float32") for part in rows)
    model = peers.pca(settings, 64, 0)
    model.fit(train)
    its = PCA(**settings).fit(train)
    back = its.inverse_transform(its.transform(X))
    assert model.model.n_components == its.n_components_
    # Sums of 64 products in float32, of parts up to 10 for an error that is at least 1e-4.
    np.testing.assert_allclose(model.score(X), np.mean((X - back) ** 2, axis=1), rtol=1e-3)


@pytest.mark.parametrize("settings", peers.GRIDS["ocsvm-rbf"])
def test_one_class_svm_has_scikit_learns_scores(rows, settings):
    train, X = (part * np.float32(0.1) for part in rows)
    model = peers.one_class_svm_rbf(settings, 64, 0)
    model.fit(train)
    its = -OneClassSVM(**settings).fit(train).score_samples(X)
    # One problem, whose kernels differ by float64's rounding, and one solver.
    np.testing.assert_allclose(model.score(X), its, rtol=1e-9)


@pytest.mark.parametrize("settings", peers.GRIDS["iforest"][:12:3])
def test_an_isolation_forest_has_scikit_learns_scores(rows, settings):
    train, X = rows
    model = peers.isolation_forest(settings, 64, 3)
    model.fit(train)
    its = -IsolationForest(random_state=3, **settings).fit(train).score_samples(X)
    np.testing.assert_array_equal(model.score(X), its)  # the order in memory changes no number


def test_distances_are_found_once_for_all_settings(rows, monkeypatch):
    calls = []
    plain = _once._squares
    monkeypatch.setattr(_once, "_squares", lambda X: calls.append(1) or plain(X))
    for settings in peers.GRIDS["ocsvm-rbf"]:
        peers.one_class_svm_rbf(settings, 64, 0).fit(rows[0])
    assert len(calls) == 1


def test_what_is_kept_has_a_bound(rows, monkeypatch):
    train, _ = rows
    monkeypatch.setattr(_once, "KEPT", 3 * 400 * 399 // 2 * 8)
    for k in range(5):
        peers.one_class_svm_rbf({}, 64, 0).fit(train + k)
    assert len(_once._found) == 3


def test_components_are_found_once_for_all_settings(rows, monkeypatch):
    calls = []
    plain = PCA.fit
    monkeypatch.setattr(PCA, "fit", lambda *args: calls.append(1) or plain(*args))
    for settings in peers.GRIDS["pca"]:
        peers.pca(settings, 64, 0).fit(rows[0])
    assert len(calls) == 1


def test_neighbours_are_found_once_for_all_settings(rows, monkeypatch):
    train, X = rows
    calls = []
    plain = NearestNeighbors.kneighbors
    monkeypatch.setattr(
        NearestNeighbors, "kneighbors", lambda *args: calls.append(1) or plain(*args)
    )
    for settings in peers.GRIDS["knn"]:
        model = peers.nearest_neighbours(settings, 64, 0)
        model.fit(train)
        model.score(X)
    assert len(calls) == 2  # of the training rows, and of those that are scored


def test_a_small_training_set_has_as_many_neighbours_as_it_can(rows):
    train, X = rows[0][:30], rows[1]
    model = peers.nearest_neighbours({"n_neighbors": 29}, 64, 0)
    model.fit(train)
    its = KNN(n_neighbors=29).fit(train).decision_function(X)
    np.testing.assert_allclose(model.score(X), its, rtol=TOLERANCE)


def test_a_grid_asks_for_no_more_than_the_most():
    grids = peers.GRIDS["knn"] + peers.GRIDS["lof"]
    assert max(settings["n_neighbors"] for settings in grids) == _once.MOST
