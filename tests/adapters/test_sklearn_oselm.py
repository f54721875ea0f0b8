import doctest
import re

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.datasets import load_diabetes, load_digits
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import onlad.adapters.sklearn_oselm as adapter
from onlad import OsElm
from onlad.adapters.sklearn_oselm import OsElmClassifier, OsElmRegressor


@parametrize_with_checks([OsElmRegressor(), OsElmClassifier(), OsElmRegressor(forgetting=0.99)])
def test_sklearn_check(estimator, check):
    check(estimator)


def test_the_examples_run():
    assert doctest.testmod(adapter).failed == 0


def test_the_regressor_is_os_elm_on_scaled_rows():
    X, y = load_diabetes(return_X_y=True)
    model = OsElmRegressor(20, forgetting=0.99, random_state=1).fit(X[:200], y[:200])
    model.partial_fit(X[200:], y[200:])
    plain = OsElm(n_hidden=20, weights="normal", forgetting=0.99, seed=model.model_.seed)
    plain.fit(model.scaler_.transform(X[:200]), y[:200])
    plain.learn_many(model.scaler_.transform(X[200:]), y[200:])
    expected = plain.predict_many(model.scaler_.transform(X))[:, 0]
    np.testing.assert_array_equal(model.predict(X), expected)


def test_partial_fit_without_forgetting_is_fit():
    X, y = load_diabetes(return_X_y=True)
    whole = OsElmRegressor(20, random_state=1).fit(X[:300], y[:300])
    parts = OsElmRegressor(20, random_state=1).fit(X[:300], y[:300])
    parts.partial_fit(X[300:], y[300:])
    whole.model_.fit(whole.scaler_.transform(X), y)  # with the scaler of the first rows
    np.testing.assert_allclose(parts.predict(X), whole.predict(X), rtol=1e-8)


def test_it_classifies_digits():
    X, y = load_digits(return_X_y=True)
    assert cross_val_score(OsElmClassifier(200, random_state=0), X, y, cv=3).mean() > 0.9


def test_a_class_that_was_not_named_is_refused():
    X, y = load_digits(return_X_y=True)
    model = OsElmClassifier(20).partial_fit(X[:50], y[:50] % 2, classes=[0, 1])
    with pytest.raises(ValueError, match=re.escape("which is not one of [0 1]")):
        model.partial_fit(X[50:60], np.full(10, 7))
    assert model.n_features_in_ == 64


def test_the_classifier_goes_on_from_what_it_learned():
    X, y = load_digits(return_X_y=True)
    first, rest = slice(0, 900), slice(900, None)
    model = OsElmClassifier(100, random_state=0).fit(X[first], y[first])
    model.partial_fit(X[rest], y[rest])
    assert model.model_.n_seen == len(X)
    few = OsElmClassifier(100, random_state=0).fit(X[first], y[first])
    few.partial_fit(X[rest][:10], y[rest][:10])
    assert few.score(X[first], y[first]) > 0.9  # ten rows have not replaced nine hundred
