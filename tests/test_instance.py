import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onlad import Detector
from onlad.instance import CONSTANT, GROUPS, HIDDEN, PROJECTED, RIDGE, WIDEST, Instance
from oracle import assert_near, tolerance

KINDS = ("tanh", "linear", "projected")


def rows(count, n, seed=0):
    """Return rows of unit size that two causes drive, with noise."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, 2)) @ rng.normal(size=(2, n)) + 0.3 * rng.normal(size=(count, n))


def make(kind, V, X, forgotten=1.0):
    instance = Instance(kind, V.shape[1], X.shape[1], seed=3)
    instance.learn(V, X, forgotten)
    return instance


def groups_of(instance):
    """Return the units of each group, and the features that it predicts."""
    groups, units, _ = instance.gram.shape
    return [(slice(k * units, (k + 1) * units), slice(k, None, groups)) for k in range(groups)]


def ridge_of(instance):
    """Return the diagonal of the ridge: that of the constant is nearly none."""
    ridge = np.full(instance.gram.shape[1], RIDGE)
    if instance.kind != "tanh":
        ridge[-1] = CONSTANT
    return ridge


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_beta_is_the_closed_form_of_weighted_ridge_regression(kind, seed):
    X = rows(300, 5, seed)
    instance = Instance(kind, 5, 5, seed)
    parts, factors = np.split(X, [100, 180]), [1.0, 0.7, 0.4]
    for part, factor in zip(parts, factors, strict=True):
        instance.learn(part, part, factor)
    weight = np.repeat([0.7 * 0.4, 0.4, 1.0], [len(part) for part in parts])
    H = instance.hidden(X)
    beta, bound = np.zeros_like(instance.beta), 0.0
    for units, predicted in groups_of(instance):
        part = H[:, units]
        gram = (part.T * weight) @ part + np.diag(ridge_of(instance))
        beta[:, predicted] = np.linalg.solve(gram, (part.T * weight) @ X[:, predicted])
        bound = max(bound, tolerance(gram))
    if kind == "linear":
        own = np.arange(5)
        rest = 1 - beta[own, own]
        beta[own, own] = 0.0
        beta /= rest
        bound /= rest.min()  # 1 - beta cancels: what was rounding of 1 is rounding of `rest`
    assert_near(instance.beta, beta, bound)


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("n", [1, 2, 6])
def test_a_linear_instance_is_a_regression_of_each_feature_on_all_others(n, width):
    V = np.hstack([rows(400, n, lag) for lag in range(width)])
    V = V + 0.5 * V[:, :1]
    instance = make("linear", V, V[:, :n])
    H, ridge = instance.hidden(V), ridge_of(instance)
    gram = H.T @ H + np.diag(ridge)
    rest = 1 / np.linalg.inv(gram).diagonal()[:n].max()  # the least square that is left
    for j in range(n):
        others = np.delete(np.arange(H.shape[1]), j)
        design = np.vstack([H[:, others], np.diag(np.sqrt(ridge[others]))])
        wanted = np.append(V[:, j], np.zeros(len(others)))
        weights = np.linalg.lstsq(design, wanted, rcond=None)[0]
        # The share of its own is 1 - RIDGE / rest: it cancels.
        bound = tolerance(gram) * max(1.0, rest / RIDGE)
        assert_near(instance.beta[others, j], weights, bound)
        assert instance.beta[j, j] == 0.0
        errors = instance.errors(V, V[:, :n])[:, j]
        assert_near(errors, V[:, j] - H[:, others] @ weights, bound)


def test_each_group_of_a_tanh_instance_is_a_detector_fitted_to_its_sums():
    X = rows(300, 6)
    instance = make("tanh", X, X)
    other = rows(50, 6, seed=9)
    errors = instance.errors(other, other)
    for k, (units, predicted) in enumerate(groups_of(instance)):
        alpha, b = instance.alpha[:, units], instance.b[units]
        np.testing.assert_array_equal(alpha[predicted], 0.0)  # it does not see what it predicts
        assert (np.delete(alpha, np.arange(6)[predicted], axis=0) != 0).all()
        detector = Detector(
            n_hidden=HIDDEN, activation="tanh", weights="normal", ridge=RIDGE, forgetting=1.0
        )
        moment = np.zeros((HIDDEN, 6))
        moment[:, predicted] = instance.moment[:, predicted]
        detector.fit_sums(instance.gram[k], moment, len(X))
        bound = tolerance(detector.state.P)
        assert_near(instance.beta[:, predicted], detector.state.beta[:, predicted], bound)
        made = np.tanh(other @ alpha + b) @ detector.state.beta[:, predicted]
        assert_near(errors[:, predicted], other[:, predicted] - made, bound)


@pytest.mark.parametrize("kind", ["tanh", "linear"])
@pytest.mark.parametrize("n", [1, 2, 3, 9])
def test_a_prediction_does_not_see_the_feature_itself(kind, n):
    X = rows(300, n)
    instance = make(kind, X, X)
    moved = X[:1].copy()
    for j in range(n):
        moved[:] = X[0]
        moved[0, j] += 100.0
        change = instance.errors(moved, moved) - instance.errors(X[:1], X[:1])
        assert change[0, j] == pytest.approx(100.0)
    assert instance.gram.shape[0] == (min(GROUPS, n) if kind == "tanh" else 1)


def test_a_projected_instance_is_linear_and_narrow():
    n = WIDEST + 44
    X = rows(500, n)
    instance = make("projected", X, X)
    assert instance.gram.shape == (1, PROJECTED + 1, PROJECTED + 1)
    # Linear with a constant: the prediction of a mean is the mean of predictions.
    predictions = X[:2] - instance.errors(X[:2], X[:2])
    middle = X[:2].mean(axis=0, keepdims=True)
    assert_near(
        (middle - instance.errors(middle, middle))[0],
        predictions.mean(axis=0),
        tolerance(instance.gram[0] + np.diag(ridge_of(instance))),
    )
    # Two causes drive all features, and random units keep two causes: only the noise is left.
    assert np.mean(instance.errors(X, X) ** 2) < 0.25 * np.mean(X**2)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10)
@given(cuts=st.lists(st.integers(0, 200), max_size=4))
def test_sums_of_parts_add_to_those_of_the_whole(kind, cuts):
    X = rows(200, 4)
    whole = make(kind, X, X)
    merged = Instance(kind, 4, 4, seed=3)
    for part in np.split(X, sorted(cuts)):
        own = make(kind, part, part)
        merged.gram, merged.moment = merged.gram + own.gram, merged.moment + own.moment
    merged.solve()
    gram = whole.gram + np.diag(ridge_of(whole))
    bound = max(map(tolerance, gram))
    assert_near(merged.gram, whole.gram, bound)
    # A linear instance divides by what its own coefficient leaves of 1, at least its ridge's share.
    assert_near(merged.beta, whole.beta, bound * np.abs(gram).max() / RIDGE)


@pytest.mark.parametrize("kind", KINDS)
def test_learning_returns_the_errors_before_it(kind):
    X = rows(120, 4)
    instance = make(kind, X[:100], X[:100])
    before = instance.errors(X[100:], X[100:])
    np.testing.assert_array_equal(instance.learn(X[100:], X[100:]), before)
    assert np.abs(instance.errors(X[100:], X[100:])).sum() < np.abs(before).sum()


@pytest.mark.parametrize("kind", KINDS)
def test_the_gram_matrix_is_exactly_symmetric(kind):
    instance = Instance(kind, 7, 7, seed=0)
    for seed in range(50):
        part = rows(64, 7, seed)
        instance.learn(part, part, 0.99)
    np.testing.assert_array_equal(instance.gram, instance.gram.swapaxes(1, 2))


def test_the_constant_takes_the_mean_up_whatever_it_is():
    X = rows(300, 3) + 50.0
    errors = make("linear", X, X).errors(X, X)
    # The ridge of the constant is a millionth of one row: the mean of the errors is nearly 0.
    assert (np.abs(errors.mean(axis=0)) < 1e-3 * errors.std(axis=0)).all()
