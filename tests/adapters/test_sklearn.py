import doctest
import re

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import onlad.adapters.sklearn as adapter
from onlad import Detector
from onlad.adapters.sklearn import OnladDetector
from onlad.forgetting import OnDrift


@parametrize_with_checks(
    [OnladDetector(), OnladDetector(contamination=0.1), OnladDetector(forgetting=0.99)]
)
def test_sklearn_check(estimator, check):
    check(estimator)


def blob(n=400, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)) @ rng.normal(size=(3, 8)) + 0.1 * rng.normal(size=(n, 8))


def model(**settings):
    return OnladDetector(**{"random_state": 1, **settings})


def split(data, usual):
    normal, other = data.data[data.target == usual], data.data[data.target != usual]
    X = np.vstack([normal[1::2], other])
    return normal[::2], X, np.arange(len(X)) < len(normal[1::2])


@pytest.mark.parametrize("front", [None, StandardScaler, MinMaxScaler])
@pytest.mark.parametrize(
    ("load", "usual", "least"),
    [(load_breast_cancer, 1, 0.95), (load_digits, 0, 0.98), (load_wine, 0, 0.97)],
)
def test_defaults_find_what_is_unusual_scaled_or_not(front, load, usual, least):
    train, test, is_usual = split(load(), usual)
    detector = model() if front is None else make_pipeline(front(), model())
    assert roc_auc_score(is_usual, detector.fit(train).score_samples(test)) > least


def test_units_do_not_matter():
    units = np.array([1e-6, 1e3, 1e6, 1, 1, 10, 1e-2, 5])
    scores = [model().fit(X).score_samples(X) for X in (blob(), blob() * units + 1000 * units)]
    # The offset costs the standardised values three digits of sixteen; the fit, a few more.
    np.testing.assert_allclose(*scores, rtol=1e-8)


def test_a_constant_feature_does_no_harm():
    X = np.column_stack([blob(), np.full(400, 7.0)])
    assert np.isfinite(model().fit(X).score_samples(X)).all()


def test_high_is_normal_and_signs_agree():
    X = blob()
    fitted = model().fit(X)
    rows = np.vstack([X[:1], X[:1] + 5])
    assert fitted.score_samples(rows)[0] > fitted.score_samples(rows)[1]
    np.testing.assert_array_equal(
        fitted.decision_function(rows), fitted.score_samples(rows) - fitted.offset_
    )
    assert fitted.predict(rows).tolist() == [1, -1]


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_contamination_is_the_share_of_outliers_among_training_rows(share):
    X = blob()
    assert np.sum(model(contamination=share).fit_predict(X) == -1) == share * len(X)


def test_fit_learns_by_the_detector_on_standardised_rows():
    X = blob()
    fitted = model(forgetting=0.9).fit(X)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    expected = Detector.resumed(fitted.detector_.settings()).fit(Z).score_many(Z)
    np.testing.assert_allclose(-fitted.score_samples(X), expected, rtol=1e-8)


def test_the_first_partial_fit_is_fit_and_fit_forgets():
    X = blob()
    scores = model().fit(X).score_samples(X)
    again = model().partial_fit(X)
    np.testing.assert_array_equal(again.score_samples(X), scores)
    again.partial_fit(blob(seed=3))
    assert not np.array_equal(again.score_samples(X), scores)
    np.testing.assert_array_equal(again.fit(X).score_samples(X), scores)


def test_partial_fit_without_forgetting_ends_where_fit_does():
    X = blob(2000)
    whole = model().fit(X)
    parts = model().fit(X[:1000]).partial_fit(X[1000:1300]).partial_fit(X[1300:])
    np.testing.assert_allclose(parts.scaler_.mean_, whole.scaler_.mean_, atol=1e-12)
    # Rows were learned at the scale known then, which a thousand rows fix to some percent.
    rank = np.corrcoef(np.log(-parts.score_samples(X)), np.log(-whole.score_samples(X)))
    assert rank[0, 1] > 0.99


@pytest.mark.parametrize("forgetting", [0.98, OnDrift()])
def test_partial_fit_follows_a_drift_and_so_does_the_offset(forgetting):
    old, new = blob(seed=0), blob(2000, seed=1)
    fitted = model(forgetting=forgetting, contamination=0.05).fit(old)
    before = np.mean(fitted.predict(new) == -1)
    fitted.partial_fit(new[:1500])
    assert np.mean(fitted.predict(new[1500:]) == -1) < 0.15 < 0.9 < before


def test_partial_fit_forgets_as_fast_as_it_is_told():
    old, new = blob(seed=0), blob(2000, seed=1)
    left = [
        -np.median(model(forgetting=a).fit(old).partial_fit(new).score_samples(old))
        for a in (1.0, 0.98)
    ]
    assert left[1] > 10 * left[0]


def test_auto_calls_few_training_rows_outliers():
    # Log scores are not normal, so it is more than the 0.1 % of three deviations. A tenth is the
    # share that the hosts assume when nothing is known.
    assert np.mean(model().fit_predict(blob()) == -1) < 0.1


def test_a_refused_partial_fit_leaves_the_model_as_it_was():
    X = blob()
    fitted = model().fit(X)
    scores = fitted.score_samples(X)
    with pytest.raises(ValueError, match="8 features"):
        fitted.partial_fit(X[:, :3])
    assert fitted.n_features_in_ == 8
    np.testing.assert_array_equal(fitted.score_samples(X), scores)


def test_rows_may_come_one_by_one_and_memory_stays():
    X = blob(1200)
    fitted = model(forgetting=0.99)
    for x in X:
        fitted.partial_fit(x[None])
    assert len(fitted._scores) == adapter.WINDOW
    assert fitted.predict(np.vstack([X[-50:], X[-1:] + 5]))[-1] == -1
    assert np.mean(fitted.predict(X[-50:]) == 1) > 0.8


def test_a_failed_fit_leaves_no_half_model():
    with pytest.raises(ValueError, match="ridge"):
        model(ridge=0, n_hidden=64).fit(blob(20))
    with pytest.raises(NotFittedError):
        model().score_samples(blob())


@pytest.mark.parametrize("share", [0, 0.6, "many", None])
def test_a_wrong_contamination_is_refused_in_fit(share):
    message = f"contamination must be 'auto' or in (0, 0.5], got {share!r}"
    with pytest.raises(ValueError, match=re.escape(message)):
        model(contamination=share).fit(blob())


def test_a_grid_search_can_use_it():
    search = GridSearchCV(
        model(), {"n_hidden": [8, 16]}, scoring=lambda m, X, y=None: m.score_samples(X).mean(), cv=2
    )
    assert search.fit(blob()).best_params_["n_hidden"] in (8, 16)


def test_examples():
    assert doctest.testmod(adapter, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0
