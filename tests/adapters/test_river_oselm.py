import doctest

import numpy as np
import pytest

pytest.importorskip("river")

from river import checks, datasets, metrics, preprocessing

import onlad.adapters.river_oselm as adapter
from onlad import OsElm
from onlad.adapters.river_oselm import OsElmClassifier, OsElmRegressor


def test_the_examples_run():
    assert doctest.testmod(adapter).failed == 0


@pytest.mark.parametrize("make", [OsElmRegressor, OsElmClassifier])
def test_river_accepts_it(make):
    for check in checks.yield_checks(make(seed=1)):
        check(make(seed=1))


def test_the_regressor_is_os_elm():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 3)), rng.normal(size=100)
    model, plain = OsElmRegressor(8, seed=2), OsElm(n_hidden=8, seed=2)
    for row, target in zip(X, y, strict=True):
        model.learn_one(dict(zip("abc", row.tolist(), strict=True)), target)
        plain.learn_one(row, target)
    found = model.predict_one(dict(zip("cba", X[0, ::-1].tolist(), strict=True)))
    assert found == plain.predict_one(X[0])[0]


def test_it_learns_what_river_brings():
    model, right = preprocessing.StandardScaler() | OsElmClassifier(seed=0), metrics.Accuracy()
    for x, y in datasets.ImageSegments().take(1500):
        right.update(y, model.predict_one(x))
        model.learn_one(x, y)
    assert right.get() > 0.85


def test_a_class_that_comes_late_and_a_value_that_is_missing():
    model = OsElmClassifier(8, seed=0)
    for t in range(100):
        model.learn_one({"a": t % 5, "b": 1.0}, t % 2)
    model.learn_one({"a": 3, "late": 2.0}, "new")
    shares = model.predict_proba_one({"a": None, "b": float("nan")})
    assert set(shares) == {0, 1, "new"}
    assert sum(shares.values()) == pytest.approx(1)
    assert OsElmClassifier().predict_proba_one({"a": 1}) == {}


@pytest.mark.parametrize(
    "value",
    [10**400, -(10**400), float("inf"), float("nan"), None, "text"],
    ids=lambda v: str(v)[:6],
)
def test_a_value_that_is_no_finite_number_counts_as_0(value):
    odd, zero = OsElmRegressor(8, seed=2), OsElmRegressor(8, seed=2)
    odd.learn_one({"a": 1.0, "b": value}, 3.0)
    zero.learn_one({"a": 1.0, "b": 0.0}, 3.0)
    assert odd.predict_one({"a": 2.0, "b": value}) == zero.predict_one({"a": 2.0, "b": 0.0})
