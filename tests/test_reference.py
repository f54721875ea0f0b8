import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlad import reference
from onlad.reference import State
from oracle import assert_near, assert_positive_definite, solve, tolerance

FACTORS = [1.0, 0.99, 0.95]
RIDGE = 0.1


def samples(rows, n=4, seed=0):
    return np.random.default_rng(seed).uniform(0, 1, (rows, n))


def start(n=4, N=6, ridge=RIDGE):
    return reference.init(n, N, ridge=ridge, seed=1)


def learn(state, X, a=1.0, activation="sigmoid"):
    for x in X:
        state = reference.update(state, x, a, activation)
    return state


def assert_solves(state, X, a=1.0, ridge=RIDGE, activation="sigmoid"):
    beta, P, gram = solve(reference.hidden(state, X, activation), X, a, ridge)
    assert_near(state.beta, beta, tolerance(gram))
    assert_near(state.P, P, tolerance(gram))


def test_elm_fit_is_the_least_squares_solution():
    X, state = samples(50), start()
    beta, _, gram = solve(reference.hidden(state, X), X)
    assert_near(reference.elm_fit(state, X), beta, tolerance(gram))


@pytest.mark.parametrize("ridge", [0.0, 1e-2, 1.0])
def test_fit_is_the_closed_form(ridge):
    X = samples(50)
    assert_solves(reference.fit(start(), X, ridge=ridge), X, ridge=ridge)


@pytest.mark.parametrize("activation", reference.ACTIVATIONS)
@pytest.mark.parametrize("a", FACTORS)
def test_updates_one_by_one_are_the_closed_form(a, activation):
    X = samples(40)
    assert_solves(learn(start(), X, a, activation), X, a, activation=activation)


def test_updates_continue_an_initial_fit():
    X = samples(60)
    state = learn(reference.fit(start(), X[:30], ridge=RIDGE), X[30:], 0.99)
    # The fit is one batch: its samples are all as old as its last.
    factors = np.repeat([1.0, 0.99], 30)
    assert_solves(state, X, factors)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=6))
def test_any_split_into_chunks_is_the_closed_form(sizes):
    X, state, row = samples(sum(sizes)), start(), 0
    for size in sizes:
        state = reference.update_chunk(state, X[row : row + size])
        row += size
    assert_solves(state, X)
    np.testing.assert_array_equal(state.P, state.P.T)


def test_a_chunk_is_forgotten_as_one():
    X, state = samples(30), start()
    for chunk in np.split(X, 3):
        state = reference.update_chunk(state, chunk, 0.95)
    factors = np.where(np.arange(30) % 10 == 0, 0.95, 1.0)  # the first row of each chunk forgets
    assert_solves(state, X, factors)


@pytest.mark.parametrize("a", FACTORS)
@pytest.mark.parametrize("ridge", [0.0, 0.02, 0.5])
def test_fp_elm_is_its_closed_form_with_a_ridge_that_is_never_forgotten(a, ridge):
    X, state = samples(60), start()
    K, beta = reference.fp_elm_fit(state, X[:30], ridge)
    for x in X[30:]:
        K, beta = reference.fp_elm_update(state._replace(beta=beta), K, x[None], a, ridge=ridge)
    factors = np.repeat([1.0, a], 30)
    _, _, gram = solve(reference.hidden(state, X), X, factors)
    weight = np.diag(np.append(np.cumprod(factors[:0:-1] ** 2)[::-1], 1.0))
    full = gram + ridge * np.eye(len(gram))
    expected = np.linalg.solve(full, reference.hidden(state, X).T @ weight @ X)
    assert_near(K, gram, tolerance(np.eye(1)))  # a sum of products: no system is solved
    assert_near(beta, expected, tolerance(full))


@pytest.mark.parametrize("a", FACTORS)
def test_fp_elm_without_ridge_is_the_chunk_update(a):
    X, state = samples(60), start()
    K, beta = reference.fp_elm_fit(state, X[:30], ridge=0.0)
    K, beta = reference.fp_elm_update(state._replace(beta=beta), K, X[30:], a, ridge=0.0)
    chunk = reference.update_chunk(reference.fit(state, X[:30]), X[30:], a)
    assert_near(beta, chunk.beta, tolerance(K))
    assert_near(np.linalg.inv(K), chunk.P, tolerance(K))


def test_unlearn_takes_back_an_update():
    X = samples(41)
    before = learn(start(), X[:40])
    after = reference.unlearn(reference.update(before, X[40]), X[40])
    gram = np.linalg.inv(before.P)
    assert_near(after.beta, before.beta, tolerance(gram))
    assert_near(after.P, before.P, tolerance(gram))


def test_unlearn_any_sample_is_never_having_seen_it():
    X = samples(40)
    assert_solves(reference.unlearn(learn(start(), X), X[7]), np.delete(X, 7, axis=0))


def test_merge_is_seeing_both_streams():
    X, Y = samples(40), samples(25, seed=5)
    merged = reference.merge(learn(start(), X), learn(start(), Y), ridge=RIDGE)
    assert_solves(merged, np.vstack([X, Y]))
    np.testing.assert_array_equal(merged.P, merged.P.T)


def test_a_sample_whose_d_is_below_epsilon_is_not_learned():
    # Only a P that is not positive definite can have d < 1, so it is made by hand.
    state = start()._replace(P=-np.eye(6))
    x = samples(1)[0]
    h = reference.hidden(state, x)
    scaled = state._replace(P=-np.eye(6) * (1 - reference.EPSILON / 2) / (h @ h))
    assert reference.update(scaled, x) is scaled
    scaled = state._replace(P=-np.eye(6) * (1 - reference.EPSILON * 2) / (h @ h))
    assert reference.update(scaled, x) is not scaled


@pytest.mark.parametrize("a", FACTORS)
def test_P_is_exactly_symmetric_on_a_long_stream(a):
    state = learn(start(8, 16), samples(3000, 8), a)
    assert_positive_definite(state.P)


def test_update_changes_nothing_of_the_state_it_is_given():
    state = start()
    copies = State(*map(np.copy, state))
    reference.update(state, samples(1)[0], 0.95)
    for now, before in zip(state, copies, strict=True):
        np.testing.assert_array_equal(now, before)


def test_activations_are_their_formulas():
    z = np.linspace(-30, 30, 101)
    np.testing.assert_allclose(reference.activate(z, "sigmoid"), np.exp(z) / (1 + np.exp(z)))
    np.testing.assert_array_equal(reference.activate(z, "tanh"), np.tanh(z))
    np.testing.assert_array_equal(reference.activate(z, "relu"), np.where(z > 0, z, 0))
    np.testing.assert_array_equal(reference.activate(z, "identity"), z)


@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
def test_saturated_units_are_at_their_limits_without_a_warning(activation):
    low, high = reference.activate(np.array([-1e6, 1e6]), activation)
    assert abs(low - (0 if activation == "sigmoid" else -1)) < 1e-30
    assert high == 1


@pytest.mark.parametrize(("weights", "low"), [("uniform", -1), ("uniform01", 0)])
def test_uniform_weights_fill_their_range(weights, low):
    alpha, b = reference.draw(50, 400, weights, seed=3)
    for array, spread in ((alpha, 0.001), (b, 0.02)):
        assert low <= array.min() < low + spread
        assert 1 - spread < array.max() <= 1


def test_normal_weights_give_unit_activations_to_unit_inputs():
    alpha, b = reference.draw(100, 400, "normal", seed=3)
    # 40,000 draws: the deviation of a standard deviation is 1 / sqrt(2 draws).
    assert alpha.std() * 10 == pytest.approx(1, abs=4 / np.sqrt(2 * 40_000))
    assert -1 <= b.min() < -0.98 < 0.98 < b.max() <= 1


def test_the_layer_is_fixed_by_its_seed():
    for one, same, other in zip(
        *(reference.draw(3, 5, "uniform", seed) for seed in (7, 7, 8)), strict=True
    ):
        np.testing.assert_array_equal(one, same)
        assert (one != other).all()


def test_losses_are_means_over_the_features():
    E = np.array([[3.0, -1.0, 2.0], [0.0, 0.0, -6.0]])
    np.testing.assert_array_equal(reference.reduce_error(E, "squared"), [14 / 3, 12.0])
    np.testing.assert_array_equal(reference.reduce_error(E, "absolute"), [2.0, 2.0])


def test_scores_are_loss_leverage_and_loss_times_the_root_of_leverage():
    state, x = learn(start(), samples(20)), samples(1, seed=9)[0]
    h = reference.hidden(state, x)
    loss = np.mean((x - h @ state.beta) ** 2)
    leverage = h @ state.P @ h / 0.9**2
    combined = loss * np.sqrt(leverage + reference.LEAST_LEVERAGE)
    kinds = {"reconstruction": loss, "leverage": leverage, "combined": combined}
    for kind, expected in kinds.items():
        assert reference.score(state, x, 0.9, kind=kind) == pytest.approx(expected, rel=1e-12)


LIMIT = 1e4 * 6 / RIDGE


def wound_up(grow):
    """Return a state whose trace(P) is `grow` times the limit, and the trace at its start."""
    state = learn(start(), samples(20))
    return state._replace(P=state.P * (grow * LIMIT / np.trace(state.P))), 6 / RIDGE


@pytest.mark.parametrize(("grow", "expected"), [(0.99, 0.9), (1.01, 1.0)])
def test_forgetting_pauses_while_P_is_wound_up(grow, expected):
    assert reference.guarded(wound_up(grow)[0], 0.9, LIMIT) == expected


@pytest.mark.parametrize(
    ("activation", "a", "expected"),
    [
        ("identity", 0.95, 1e4),
        ("relu", 0.95, 1e4),
        ("sigmoid", 1.0, 1e4),
        ("tanh", 0.99, 1e4 / 0.99**192),
        ("tanh", 0.01, 1e8),  # the room has an end, and a^2N may be too small for a float
    ],
)
def test_P_may_grow_as_much_as_the_weight_of_the_oldest_of_N_samples_needs(activation, a, expected):
    assert reference.trace_limit(2.0, 64, a, activation) == pytest.approx(2 * expected)


def test_restore_does_nothing_below_the_limit():
    state, start_trace = wound_up(0.99)
    assert reference.restore(state, start_trace, LIMIT) is state


def test_restore_is_a_ridge_of_the_worst_unit_with_target_zero():
    state, start_trace = wound_up(1.01)
    restored = reference.restore(state, start_trace, LIMIT)
    k = np.argmax(np.diag(state.P))
    gram = np.linalg.inv(state.P)
    moment = gram @ state.beta  # the target of the ridge is 0: it adds to the Gram matrix alone
    gram[k, k] += RIDGE  # N / trace(I / r) = r
    assert_near(restored.P, np.linalg.inv(gram), tolerance(gram))
    assert_near(restored.beta, np.linalg.solve(gram, moment), tolerance(gram))
    np.testing.assert_array_equal(restored.P, restored.P.T)
    assert np.abs(restored.beta - state.beta).max() > 0.01 * np.abs(state.beta).max()


def test_restoring_for_ever_brings_P_below_the_limit():
    state, start_trace = wound_up(3.0)
    for _ in range(100):
        state = reference.restore(state, start_trace, LIMIT)
    assert np.trace(state.P) <= LIMIT
    assert reference.restore(state, start_trace, LIMIT) is state
