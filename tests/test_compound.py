import pickle
import re

import numpy as np
import pytest

from onlad import Detector, OsElm, reference, variants
from onlad.compound import Directional, FpElm, Mixture, Stacked, Windowed
from onlad.errors import OnladError
from onlad.forgetting import Adaptive, Constant
from oracle import assert_near, tolerance

RIDGE = 0.1


def samples(rows, n=4, seed=0):
    return np.random.default_rng(seed).uniform(0, 1, (rows, n))


MAKE = {
    "windowed": lambda: Windowed(40, n_hidden=8),
    "directional": lambda: Directional(n_hidden=8),
    "fp-elm": lambda: FpElm(n_hidden=8),
    "stacked": lambda: Stacked([8, 6]),
    "mixture": lambda: Mixture(3, n_hidden=8),
}


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_scoring_does_not_learn(make):
    model, X = make().fit(samples(100)), samples(30, seed=1)
    first = model.score_many(X)
    np.testing.assert_array_equal(first, model.score_many(X))
    # A row alone and a row among others are summed in another order.
    np.testing.assert_allclose([model.score_one(x) for x in X], first, rtol=1e-9)


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_a_row_is_scored_before_it_is_learned(make):
    model, x = make().fit(samples(100)), samples(1, seed=1)[0]
    before = model.score_one(x)
    assert model.update_one(x) == pytest.approx(before, rel=1e-9)
    assert model.score_one(x) < before


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_it_works_from_the_first_sample(make):
    scores = make().update_many(samples(50))
    assert np.all(np.isfinite(scores))
    assert np.mean(scores[-10:]) < scores[0]


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
@pytest.mark.parametrize("bad", [[0.1, np.nan, 0.2, 0.3], [0.1, 0.2]])
def test_a_bad_sample_changes_nothing(make, bad):
    model, x = make().fit(samples(100)), samples(1, seed=1)[0]
    before = model.score_one(x)
    with pytest.raises(ValueError, match=r"x\[1\] is nan|x has 2 features"):
        model.update_one(bad)
    assert model.score_one(x) == before


@pytest.mark.parametrize("activation", reference.ACTIVATIONS)
def test_directional_forgetting_takes_the_step_of_the_equations(activation):
    settings = {"rho": 0.5, "ridge": RIDGE, "activation": activation, "seed": 3}
    model, rows = Directional(n_hidden=13, **settings), samples(300, 11)
    rows[150:] /= 2
    model.fit(rows[:20])
    state = reference.init(11, 13, ridge=RIDGE, seed=3)
    state = reference.fit(state, rows[:20], ridge=RIDGE, activation=activation)
    memory, worst = variants.Directional(), 0.0
    for x in rows[20:]:
        expected = reference.score(state, x, activation=activation)
        state, memory = variants.dff_update(state, memory, x, 0.5, activation)
        worst = max(worst, tolerance(state.P))
        assert model.update_one(x) == pytest.approx(expected, rel=worst)
    np.testing.assert_allclose(model.memory, memory, rtol=worst)
    assert memory.factor < 0.9


def test_directional_forgetting_skips_what_excites_no_unit():
    model, twin = (Directional(n_hidden=3, activation="relu").fit(samples(50)) for _ in range(2))
    alpha, _ = reference.draw(4, 3, "uniform", 0)
    dark = np.linalg.lstsq(alpha.T, np.full(3, -2.0), rcond=None)[0]  # h = G(b - 2), and b <= 1
    assert model.update_one(dark) == pytest.approx(np.mean(dark**2))
    assert model.memory == twin.memory
    np.testing.assert_array_equal(model.update_many(samples(9)), twin.update_many(samples(9)))


@pytest.mark.parametrize("forgetting", [1.0, 0.95, Adaptive(recent=4, long=32)], ids=str)
@pytest.mark.parametrize("activation", reference.ACTIVATIONS)
@pytest.mark.parametrize("n_hidden", [6, 13])  # rows of a factor that end within a vector
def test_fp_elm_is_the_recursion_of_the_paper(forgetting, activation, n_hidden):
    X, policy = samples(300, 11), forgetting
    X[150:] /= 2
    model = FpElm(n_hidden=n_hidden, activation=activation, forgetting=forgetting, seed=3)
    found = model.fit(X[:100]).update_many(X[100:])
    if isinstance(forgetting, float):
        policy = Constant(forgetting)
    state, memory = reference.init(11, n_hidden, seed=3), policy.start
    K, beta = reference.fp_elm_fit(state, X[:100], activation=activation)
    expected, worst = [], 0.0
    for x in X[100:]:
        state = state._replace(beta=beta)
        expected.append(reference.score(state, x, activation=activation))
        worst = max(worst, tolerance(K + 0.02 * np.eye(n_hidden)))
        memory = policy.step(memory, expected[-1])
        K, beta = reference.fp_elm_update(state, K, x[None], memory[0], activation=activation)
    # Both solve the same systems; the errors are differences of numbers below 1.
    np.testing.assert_allclose(found, expected, rtol=0, atol=worst)
    state = state._replace(beta=beta)
    expected = [reference.score(state, x, activation=activation) for x in X[:20]]
    np.testing.assert_allclose(model.score_many(X[:20]), expected, rtol=0, atol=worst)


def test_fp_elm_says_when_rounding_exceeds_its_ridge():
    # K has rank 5 of 8, and entries of some 1e14.
    model = FpElm(n_hidden=8, activation="identity", forgetting=0.99, ridge=1e-12)
    with pytest.raises(OnladError, match=r"rounding of K exceeds the ridge 1e-12.*larger ridge"):
        model.update_many(1e6 * samples(100))
    assert FpElm(n_hidden=8, activation="identity").update_many(samples(100))[-1] < 1e-3


STEPPED = pytest.mark.parametrize("name", ["directional", "fp-elm"])


@STEPPED
def test_before_the_first_sample_all_of_it_is_error(name):
    X = samples(3)
    np.testing.assert_allclose([MAKE[name]().score_one(x) for x in X], np.mean(X * X, axis=1))
    np.testing.assert_allclose(MAKE[name]().score_many(X), np.mean(X * X, axis=1))
    assert len(MAKE[name]().update_many(X[:0])) == 0


def test_a_window_scores_as_its_detector_does_before_and_after_it_is_full():
    settings = {"n_hidden": 6, "score": "combined", "loss": "absolute", "ridge": RIDGE}
    model, detector = Windowed(30, **settings), Detector(**settings, forgetting=1.0)
    for x in samples(30):
        assert model.score_one(x) == pytest.approx(detector.score_one(x), rel=1e-9)
        assert model.update_one(x) == pytest.approx(detector.update_one(x), rel=1e-9)
    again = Detector(**settings, forgetting=1.0).fit(samples(30)[1:])
    again.update_one(samples(1)[0])
    model.update_one(samples(1)[0])
    X = samples(9, seed=2)
    np.testing.assert_allclose(model.score_many(X), again.score_many(X), rtol=1e-6)


@STEPPED
def test_a_pickled_step_continues_to_the_last_bit(name):
    model = MAKE[name]().fit(samples(100))
    model.update_many(samples(50, seed=1))
    twin = pickle.loads(pickle.dumps(model))
    rows = samples(50, seed=2)
    np.testing.assert_array_equal(model.update_many(rows), twin.update_many(rows))


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (Directional, {"rho": -0.1}, "rho must be finite and at least 0, got -0.1"),
        (Directional, {"ridge": 0.0}, "ridge must be finite and above 0, got 0.0"),
        (Directional, {"n_hidden": 0}, "n_hidden must be"),
        (FpElm, {"ridge": 0.0}, "ridge must be finite and above 0, got 0.0"),
        (FpElm, {"forgetting": 1.5}, "forgetting must be in (0, 1], got 1.5"),
    ],
)
def test_a_step_refuses_settings_that_cannot_be(kind, settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        kind(**settings)


def test_a_window_is_a_fit_of_its_rows_after_a_long_stream():
    X = samples(20_000)
    model = Windowed(60, n_hidden=8, ridge=RIDGE).fit(X[:100])
    model.update_many(X[100:])
    state = model.detector.state
    gram = reference.hidden(state, X[-60:]).T @ reference.hidden(state, X[-60:])
    gram += RIDGE * np.eye(len(gram))
    expected = np.linalg.solve(gram, reference.hidden(state, X[-60:]).T @ X[-60:])
    # The rounding of 20,000 steps adds up as a random walk does.
    assert_near(state.beta, expected, np.sqrt(len(X)) * tolerance(gram))


def test_the_stack_is_the_reference():
    X = samples(160)
    model = Stacked([8, 6], forgetting=0.98, ridge=RIDGE, seed=3).fit(X[:60])
    drawn = [reference.draw(4, 8, "uniform", 3), reference.draw(8, 6, "uniform", 4)]
    layers = [
        reference.State(alpha, b, np.zeros((len(b), 4)), np.eye(len(b))) for alpha, b in drawn
    ]
    layers = variants.ml_fit(layers, X[:60], ridge=RIDGE)
    for x in X[60:]:
        expected = np.mean((x - variants.ml_predict(layers, x)) ** 2)
        assert model.update_one(x) == pytest.approx(expected, rel=1e-6)
        layers = variants.ml_update(layers, x, 0.98)


def test_the_mixture_is_the_reference():
    X = samples(100)
    model = Mixture(2, n_hidden=6, forgetting=0.98, ridge=RIDGE)
    states = [reference.init(4, 6, ridge=RIDGE, seed=seed) for seed in (0, 1)]
    for x in X:
        expected = min(reference.score(state, x) for state in states)
        assert model.update_one(x) == pytest.approx(expected, rel=1e-6)
        states, _ = variants.mixture_update(states, x, 0.98)


def test_a_mixture_keeps_two_ways_apart_that_one_detector_mixes():
    rng = np.random.default_rng(0)
    level = rng.uniform(size=(600, 1))
    one, other = np.hstack([level, level + 1, 2 * level]), np.hstack([level, -level, 1 - level])
    X = rng.permutation(np.vstack([one, other]))
    between = (one + other) / 2
    gaps = {}
    for k in (1, 2):
        model = Mixture(k, n_hidden=3, activation="identity", forgetting=1.0).fit(X)
        gaps[k] = np.median(model.score_many(between)) / np.median(model.score_many(X))
    assert gaps[2] > 10 * gaps[1]


# -- OsElm --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_os_elm_is_the_reference(dtype):
    X, T = samples(300), samples(300, 2, seed=1)
    model = OsElm(n_hidden=6, forgetting=0.98, ridge=RIDGE, dtype=dtype, seed=2)
    alpha, b = reference.draw(4, 6, "uniform", 2)
    state = reference.State(alpha, b, np.zeros((6, 2)), np.eye(6) / RIDGE)
    for x, t in zip(X, T, strict=True):
        model.learn_one(x, t)
        state = reference.update(state, x, 0.98, t=t)
    bound = 10 * tolerance(state.P, dtype)  # the step is another form of the same system
    assert_near(model.state.beta, state.beta, bound)
    assert_near(model.predict_many(X), reference.predict(state, X), bound)
    assert model.n_seen == 300


def test_many_are_a_loop_over_one_and_fit_is_the_closed_form():
    X, T = samples(200), samples(200, 2, seed=1)
    one, many, fitted = (OsElm(n_hidden=6, ridge=RIDGE) for _ in range(3))
    for x, t in zip(X, T, strict=True):
        one.learn_one(x, t)
    many.learn_many(X, T)
    fitted.fit(X, T)
    np.testing.assert_array_equal(one.state.beta, many.state.beta)
    assert_near(fitted.state.beta, one.state.beta, tolerance(one.state.P))
    np.testing.assert_array_equal(one.predict_one(X[3]), one.predict_many(X[3:4])[0])


def test_a_pickle_continues_to_the_last_bit():
    X, T = samples(200), samples(200, 2, seed=1)
    model = OsElm(n_hidden=6, forgetting=0.98, dtype="float32")
    model.learn_many(X[:100], T[:100])
    twin = pickle.loads(pickle.dumps(model))
    for one in (model, twin):
        one.learn_many(X[100:], T[100:])
    np.testing.assert_array_equal(model.state.beta, twin.state.beta)
    assert twin.n_seen == 200
    assert pickle.loads(pickle.dumps(OsElm())).n_seen == 0


def test_a_target_that_comes_late_is_one_that_was_always_zero():
    X, T = samples(200), samples(200, 2, seed=1)
    T[:100, 1] = 0
    late, early = OsElm(n_hidden=6, forgetting=0.99), OsElm(n_hidden=6, forgetting=0.99)
    late.learn_many(X[:100], T[:100, :1])
    late.add_target()
    early.learn_many(X[:100], T[:100])
    for model in (late, early):
        model.learn_many(X[100:], T[100:])
    np.testing.assert_array_equal(late.state.beta, early.state.beta)
    with pytest.raises(OnladError, match="no targets before"):
        OsElm().add_target()


def test_the_error_of_an_update_is_that_of_the_prediction_before_it():
    X, T = samples(60), samples(60, 2, seed=1)
    model, twin = OsElm(n_hidden=6), OsElm(n_hidden=6)
    assert model.update_one(X[0], T[0]) == np.mean(T[0] ** 2)
    twin.learn_one(X[0], T[0])
    for x, t in zip(X[1:], T[1:], strict=True):
        expected = np.mean((t - twin.predict_one(x)) ** 2)
        assert model.update_one(x, t) == pytest.approx(expected, rel=1e-9)
        twin.learn_one(x, t)
    np.testing.assert_array_equal(model.state.beta, twin.state.beta)


def test_a_target_may_be_one_number():
    model = OsElm(n_hidden=6)
    for x in samples(50):
        model.learn_one(x, float(x.sum()))
    assert model.predict_one(samples(1)[0]).shape == (1,)
    assert OsElm().fit(samples(50), samples(50)[:, 0]).predict_many(samples(3)).shape == (3, 1)


def test_a_bad_target_changes_nothing():
    model = OsElm(n_hidden=6)
    model.learn_many(samples(20), samples(20, 2))
    before = model.state
    with pytest.raises(ValueError, match="t has 1 features"):
        model.learn_one(samples(1)[0], 0.5)
    with pytest.raises(ValueError, match=r"t\[1\] is nan"):
        model.learn_one(samples(1)[0], [0.5, np.nan])
    with pytest.raises(ValueError, match="X has 3 rows but T has 2"):
        model.learn_many(samples(3), samples(2, 2))
    for now, then in zip(model.state, before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_what_cannot_be_says_so():
    with pytest.raises(OnladError, match="no prediction is possible"):
        OsElm().predict_one([1.0])
    with pytest.raises(OnladError, match="no state"):
        OsElm().state  # noqa: B018
    with pytest.raises(ValueError, match=re.escape("ridge must be finite and above 0, got 0")):
        OsElm(ridge=0)
    with pytest.raises(ValueError, match=re.escape("forgetting must be in (0, 1], got 1.5")):
        OsElm(forgetting=1.5)
    with pytest.raises(ValueError, match="at least one layer"):
        Stacked([])
