"""What PyOD's own tests assert of each of its models, and the update that they lack."""

import doctest
import warnings

import numpy as np
import pytest

pytest.importorskip("pyod")

from pyod.utils.data import generate_data
from pyod.utils.utility import check_detector
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score

import onlad.adapters.pyod as adapter
from onlad.adapters.pyod import OnladDetector


@pytest.fixture(scope="module")
def data():
    return generate_data(n_train=200, n_test=100, n_features=5, contamination=0.1, random_state=42)


@pytest.fixture(scope="module")
def fitted(data):
    return OnladDetector(contamination=0.1, random_state=42).fit(data[0])


def test_parameters_are_there_after_fit(fitted):
    for name in ("decision_scores_", "labels_", "threshold_", "_mu", "_sigma", "_classes"):
        assert getattr(fitted, name) is not None
    check_detector(fitted)


def test_train_scores_have_one_entry_a_row(fitted, data):
    assert fitted.decision_scores_.shape == (len(data[0]),)
    np.testing.assert_array_equal(fitted.decision_scores_, fitted.decision_function(data[0]))


def test_prediction_scores_find_the_outliers(fitted, data):
    _, X, _, y = data
    scores = fitted.decision_function(X)
    assert scores.shape == (len(X),)
    assert roc_auc_score(y, scores) > 0.95


def test_labels_are_zero_and_one_by_the_threshold(fitted, data):
    labels = fitted.predict(data[1])
    assert labels.shape == (len(data[1]),)
    np.testing.assert_array_equal(labels, fitted.decision_function(data[1]) > fitted.threshold_)
    assert fitted.labels_.sum() == 0.1 * len(data[0])


@pytest.mark.parametrize("method", ["linear", "unify"])
def test_probabilities_are_within_zero_and_one(fitted, data, method):
    proba, confidence = fitted.predict_proba(data[1], method=method, return_confidence=True)
    assert proba.shape == (len(data[1]), 2)
    assert proba.min() >= 0
    assert proba.max() <= 1
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert confidence.shape == (len(data[1]),)


def test_an_unknown_probability_method_is_refused(fitted, data):
    with pytest.raises(ValueError, match="not a valid probability conversion method"):
        fitted.predict_proba(data[1], method="something")


def test_confidence_is_within_zero_and_one(fitted, data):
    labels, confidence = fitted.predict(data[1], return_confidence=True)
    assert labels.shape == confidence.shape == (len(data[1]),)
    assert confidence.min() >= 0
    assert confidence.max() <= 1


@pytest.mark.filterwarnings("ignore:Function fit_predict.*is deprecated:FutureWarning")
def test_fit_predict_returns_the_training_labels(fitted, data):
    labels = OnladDetector(contamination=0.1, random_state=42).fit_predict(data[0])
    np.testing.assert_array_equal(labels, fitted.labels_)


@pytest.mark.filterwarnings("ignore:Function fit_predict_score.*is deprecated:FutureWarning")
@pytest.mark.parametrize("scoring", ["roc_auc_score", "prc_n_score"])
def test_fit_predict_score_evaluates(data, scoring):
    X, _, y, _ = data
    assert OnladDetector(random_state=42).fit_predict_score(X, y, scoring=scoring) > 0.8


@pytest.mark.filterwarnings("ignore:The cost of rejection must be positive:UserWarning")
def test_rejection_gives_a_third_label(fitted, data):
    labels, stats = fitted.predict_with_rejection(data[1], return_stats=True)
    assert set(labels) <= {0, 1, -2}
    assert len(stats) == 3


def test_ranks_are_by_training_scores(fitted, data):
    ranks = fitted._predict_rank(data[1])
    assert ranks.min() >= 0
    assert ranks.max() <= len(data[0])
    assert fitted._predict_rank(data[1], normalized=True).max() == 1


def test_a_clone_has_the_parameters_and_nothing_learned(fitted, data):
    other = clone(fitted)
    assert other.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        other.decision_function(data[1])


def test_labels_given_to_fit_are_ignored_with_a_warning(fitted, data):
    with pytest.warns(UserWarning, match="y should not be presented"):
        other = OnladDetector(random_state=42).fit(data[0], data[2])
    np.testing.assert_array_equal(other.decision_scores_, fitted.decision_scores_)


@pytest.mark.parametrize("share", [0.0, 0.6])
def test_a_wrong_contamination_is_refused(share):
    with pytest.raises(ValueError, match="contamination must be in"):
        OnladDetector(contamination=share)


def test_preprocessing_makes_units_irrelevant_and_can_be_left_out(fitted, data):
    units = np.array([1e-3, 1e3, 1, 1e6, 5])
    model = OnladDetector(random_state=42)
    # Standardising twice differs by rounding; the fit adds a few digits.
    np.testing.assert_allclose(
        model.fit(data[0] * units).decision_scores_, fitted.decision_scores_, rtol=1e-8
    )
    bare = OnladDetector(preprocessing=False, random_state=42).fit(data[0])
    np.testing.assert_array_equal(
        bare.decision_function(data[1]), bare.detector_.score_many(data[1])
    )


def test_partial_fit_starts_like_fit_and_then_follows(data):
    X, later, *_ = data
    model = OnladDetector(forgetting=0.98, random_state=42).partial_fit(X)
    np.testing.assert_array_equal(
        model.decision_scores_,
        OnladDetector(forgetting=0.98, random_state=42).fit(X).decision_scores_,
    )
    rng = np.random.default_rng(0)
    drifted = later + 10
    before = np.median(model.decision_function(drifted))
    for _ in range(30):
        model.partial_fit(drifted[rng.permutation(100)])
    assert np.median(model.decision_function(drifted)) < before / 10
    assert len(model.decision_scores_) == len(model.labels_) == adapter.WINDOW
    assert model.threshold_ == np.percentile(model.decision_scores_, 90)


def test_partial_fit_forgets_as_fast_as_it_is_told(data):
    X, later, *_ = data
    left = []
    for a in (1.0, 0.95):
        model = OnladDetector(forgetting=a, random_state=42).fit(X)
        for _ in range(5):
            model.partial_fit(later + 10)
        left.append(np.median(model.decision_function(X)))
    assert left[1] > 2 * left[0]


def test_fitting_and_scoring_warn_of_nothing(data):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OnladDetector(random_state=0).fit(data[0]).predict(data[1])


def test_examples():
    assert doctest.testmod(adapter).failed == 0
