import copy
import pickle
import re

import numpy as np
import pytest

from checks import CHECKS, assert_same_state, stream
from onlad import block, reference
from onlad.detector import Detector
from onlad.errors import NotInModelError, OnladError
from onlad.fields import values
from onlad.forgetting import Adaptive, Constant, OnDrift
from oracle import assert_near, solve, tolerance

DTYPES = ["float64", "float32"]
DETECTORS = {
    "default": {},
    "float32": {"dtype": "float32"},
    "no forgetting": {"forgetting": 1.0, "score": "reconstruction"},
    "tanh": {"activation": "tanh", "weights": "normal", "loss": "absolute"},
    "relu": {"activation": "relu"},
    "adaptive": {"forgetting": Adaptive()},
    "on drift": {"forgetting": OnDrift(), "dtype": "float32"},
    "blocks": {"n_hidden": 128 * 64 // 3 // 16, "ridge": 1.0},
}


def make(name):
    return Detector(**{"n_hidden": 16, "ridge": 0.1, "seed": 4} | DETECTORS[name])


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", DETECTORS)
def test_contract(check, name, monkeypatch):
    if name == "blocks":  # three features are few: let the block form take them all the same
        monkeypatch.setattr(block, "pays", lambda n_features, n_hidden: True)
    check(lambda: make(name))


def test_large_models_take_the_block_form(monkeypatch):
    calls = []
    monkeypatch.setattr(block, "update_many", lambda *args: calls.append(1) or (np.zeros(2),) * 2)
    Detector(n_hidden=16).update_many(np.zeros((2, 4)))
    assert not calls
    Detector(n_hidden=64).update_many(np.zeros((2, 512)))
    assert calls


@pytest.mark.parametrize("a", [1.0, 0.99, 0.95])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_state_is_the_closed_form(dtype, a):
    X = stream(60).astype(dtype)
    detector = Detector(n_hidden=5, ridge=0.1, forgetting=a, dtype=dtype)
    detector.learn_many(X)
    state = detector.state
    beta, P, gram = solve(reference.hidden(state, X.astype(float)), X, a, 0.1)
    assert_near(state.beta, beta, tolerance(gram, dtype))
    assert_near(state.P, P, tolerance(gram, dtype))


@pytest.mark.parametrize("rows", [0, 1, 50, 9000])
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_fit_is_the_closed_form(rows, ridge):
    if rows <= 5 and ridge == 0:
        pytest.skip("without ridge there is no solution")
    X = stream(rows)
    detector = Detector(n_hidden=5, ridge=ridge).fit(X)
    state = detector.state
    beta, P, gram = solve(reference.hidden(state, X), X, 1.0, ridge)
    assert_near(state.beta, beta, tolerance(gram))
    assert_near(state.P, P, tolerance(gram))


def test_different_seeds_give_different_layers():
    one, other = (Detector(seed=seed).fit(stream(10)).state for seed in (0, 1))
    assert (one.alpha != other.alpha).all()


@pytest.mark.parametrize("again", [copy.deepcopy, lambda d: pickle.loads(pickle.dumps(d))])
@pytest.mark.parametrize("name", DETECTORS)
def test_a_copy_continues_to_the_last_bit(name, again):
    detector, X = make(name), np.vstack([stream(200), stream(50, seed=1) * 5])
    detector.learn_many(X)
    twin = again(detector)
    np.testing.assert_equal(values(twin.learned()), values(detector.learned()))
    np.testing.assert_array_equal(twin.update_many(X), detector.update_many(X))
    assert_same_state(twin, detector)


def test_a_copy_shares_nothing():
    detector = make("default").fit(stream(50))
    twin = copy.deepcopy(detector)
    before = detector.score_one(stream(1)[0])
    twin.learn_many(stream(50, seed=2) * 3)
    assert detector.score_one(stream(1)[0]) == before


def test_what_was_learned_is_a_copy():
    detector = make("default").fit(stream(50))
    learned, kept = detector.learned(), copy.deepcopy(detector.learned())
    detector.learn_many(stream(50, seed=2))
    np.testing.assert_equal(values(learned), values(kept))


def test_a_copy_of_a_wound_up_detector_continues_to_the_last_bit():
    detector = Detector(n_hidden=8, forgetting=0.9)
    detector.learn_many(np.full((500, 3), 0.5))
    assert detector.n_paused > 0
    twin = copy.deepcopy(detector)
    assert twin.n_paused == detector.n_paused
    np.testing.assert_array_equal(twin.update_many(stream(50)), detector.update_many(stream(50)))


def test_a_detector_that_saw_nothing_can_be_copied():
    twin = pickle.loads(pickle.dumps(make("adaptive")))
    np.testing.assert_array_equal(
        twin.update_many(stream(50)), make("adaptive").update_many(stream(50))
    )


def test_settings_make_an_equal_detector():
    settings = {
        "n_hidden": 7,
        "activation": "tanh",
        "weights": "normal",
        "forgetting": Adaptive(low=0.9),
        "score": "leverage",
        "loss": "absolute",
        "ridge": 0.5,
        "dtype": "float32",
        "seed": 3,
    }
    detector = Detector(**settings)
    assert values(detector.settings()) == settings
    assert repr(Detector.resumed(detector.settings())) == repr(detector)


def test_repr_is_the_call_that_makes_it():
    detector = Detector(n_hidden=7, forgetting=0.5)
    assert repr(detector) == (
        "Detector(n_hidden=7, activation='sigmoid', weights='uniform', "
        "forgetting=Constant(a=0.5), score='combined', loss='squared', ridge=0.01, "
        "dtype='float64', seed=0)"
    )
    again = eval(repr(detector), {"Detector": Detector, "Constant": Constant})
    assert again.settings() == detector.settings()


@pytest.mark.parametrize("factor", [1, 0.5, np.float64(0.5), np.float32(0.5), np.int64(1)])
def test_a_factor_is_any_real_number(factor):
    assert Detector(forgetting=factor).settings().forgetting == Constant(float(factor))


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"n_hidden": 0}, "n_hidden must be a whole number of at least 1, got 0"),
        ({"n_hidden": -3}, "n_hidden must be a whole number of at least 1, got -3"),
        ({"n_hidden": 2.5}, "n_hidden must be a whole number of at least 1, got 2.5"),
        ({"n_hidden": "8"}, "n_hidden must be a whole number of at least 1, got '8'"),
        (
            {"activation": "sin"},
            "activation must be one of sigmoid, identity, relu, tanh; got 'sin'",
        ),
        ({"weights": None}, "weights must be one of uniform, uniform01, normal; got None"),
        (
            {"score": "error"},
            "score must be one of reconstruction, leverage, combined; got 'error'",
        ),
        ({"loss": "huber"}, "loss must be one of squared, absolute; got 'huber'"),
        ({"dtype": "float16"}, "dtype must be one of float64, float32; got 'float16'"),
        ({"forgetting": 0}, "forgetting must be in (0, 1], got 0"),
        ({"forgetting": -0.5}, "forgetting must be in (0, 1], got -0.5"),
        ({"forgetting": 1.5}, "forgetting must be in (0, 1], got 1.5"),
        ({"forgetting": np.nan}, "forgetting must be in (0, 1], got nan"),
        ({"ridge": -1}, "ridge must be finite and not negative, got -1"),
        ({"ridge": np.inf}, "ridge must be finite and not negative, got inf"),
        ({"ridge": np.nan}, "ridge must be finite and not negative, got nan"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"seed": 0.5}, "seed must be a whole number of at least 0, got 0.5"),
        ({"seed": "x"}, "seed must be a whole number of at least 0, got 'x'"),
    ],
    ids=str,
)
def test_a_wrong_setting_is_refused(argument, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Detector(**argument)


@pytest.mark.parametrize("argument", [{"forgetting": "0.9"}, {"forgetting": None}, {"ridge": "1"}])
def test_a_setting_of_a_wrong_type_is_refused_by_its_name(argument):
    (name,) = argument
    with pytest.raises((TypeError, ValueError), match=name):
        Detector(**argument)


def test_fit_without_ridge_needs_more_samples_than_hidden_units():
    message = (
        "fit got 8 samples for 8 hidden units; without ridge it needs more samples than hidden "
        "units. Give more, or ridge > 0"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        Detector(n_hidden=8, ridge=0).fit(stream(8))
    assert Detector(n_hidden=8, ridge=0).fit(stream(9)).n_seen == 9


def test_fit_without_ridge_needs_samples_that_span_the_hidden_units():
    detector = Detector(n_hidden=8, ridge=0).fit(stream(50))
    before = detector.learned()
    message = (
        "the hidden activations of these samples do not span all hidden units, so P does not "
        "exist. Give ridge > 0, fewer hidden units, or other samples"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        detector.fit(np.full((50, 3), 0.3))
    np.testing.assert_array_equal(detector.learned().S, before.S)


@pytest.mark.parametrize("method", ["update_one", "learn_one", "score_one"])
def test_without_ridge_there_is_no_start_but_fit(method):
    message = "without ridge there is no start: call fit first, or give ridge > 0"
    detector = Detector(n_hidden=8, ridge=0)
    with pytest.raises(OnladError, match=re.escape(message)):
        getattr(detector, method)(stream(1)[0])
    with pytest.raises(OnladError, match=re.escape(message)):
        getattr(detector, method.replace("one", "many"))(stream(4))
    assert detector.fit(stream(50)).update_one(stream(1)[0]) > 0


def test_there_is_no_state_before_the_first_sample():
    with pytest.raises(OnladError, match="there is no state before the first sample"):
        _ = Detector().state
    assert Detector().learned() is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_unlearn_is_never_having_seen_the_sample(dtype):
    X = stream(60).astype(dtype)
    detector = Detector(n_hidden=5, ridge=0.1, forgetting=1.0, dtype=dtype)
    detector.learn_many(X)
    detector.unlearn(X[20])
    rest = np.delete(X, 20, axis=0).astype(float)
    state = detector.state
    beta, P, gram = solve(reference.hidden(state, rest), rest, 1.0, 0.1)
    assert_near(state.beta, beta, tolerance(gram, dtype))
    assert_near(state.P, P, tolerance(gram, dtype))
    assert detector.n_seen == 59


def test_unlearning_all_is_the_start():
    X = stream(10)
    detector = Detector(n_hidden=5, ridge=0.1, forgetting=1.0)
    detector.learn_many(X)
    for x in X:
        detector.unlearn(x)
    bound = tolerance(np.linalg.inv(detector.state.P) + len(X) * np.eye(5))
    assert_near(detector.state.P, np.eye(5) / 0.1, 10 * bound)  # each of ten steps rounds
    assert np.abs(detector.state.beta).max() < 10 * bound
    assert detector.n_seen == 0


@pytest.mark.parametrize("rows", [0, 1])
def test_unlearn_refuses_what_was_never_learned_and_changes_nothing(rows):
    detector = Detector(n_hidden=5)
    detector.learn_many(stream(rows))
    before = detector.learned()
    message = "x was not learned by this model, so it cannot be unlearned"
    with pytest.raises(NotInModelError, match=re.escape(message)):
        detector.unlearn([0.0, 50.0, -50.0])
    np.testing.assert_equal(values(detector.learned()), values(before))


class FailsOnce:
    """A kernel whose first call fails as a programming error would."""

    def __init__(self, error):
        self.error = error

    def update(self, x, a):
        self.update = self.score = lambda x, a: 0.0
        raise self.error("a bug")

    score = update


@pytest.mark.parametrize("error", [AttributeError, TypeError])
@pytest.mark.parametrize("method", ["update_one", "score_one"])
def test_an_error_inside_the_kernel_is_not_hidden(method, error):
    detector = Detector(n_hidden=4)
    detector.update_one(np.zeros(3))
    detector._kernel = FailsOnce(error)
    with pytest.raises(error, match="a bug"):
        getattr(detector, method)(np.zeros(3))
