import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onlad import evidence, kernel, reference
from onlad.evidence import (
    CAP,
    FEW,
    FLOOR,
    RING,
    SMOOTHING,
    SPREAD,
    TINY,
    USUAL,
    Yardstick,
    weigh,
)
from onlad.threshold import ROBUST, Fixed, Quantile
from oracle import assert_near, tolerance
from test_kernel import P_of, memory

DTYPES = ["float64", "float32"]
NAN = np.nan
SLOPES = {
    "sigmoid": lambda h: h * (1 - h),
    "tanh": lambda h: 1 - h * h,
    "relu": lambda h: (h > 0) * 1.0,
    "identity": np.ones_like,
}


def make(n, N, dtype, activation="tanh", ridge=0.1):
    state = reference.init(n, N, weights="normal", ridge=ridge, seed=3)
    trace = N / ridge
    return kernel.make(
        state.alpha,
        state.b,
        state.beta,
        np.eye(N) / np.sqrt(ridge),
        activation=activation,
        score="combined",
        loss="squared",
        dtype=dtype,
        trace_start=trace,
        trace_limit=reference.trace_limit(trace, N, 0.99, activation),
    )


def state_of(model):
    arrays = (model.alpha, model.b[0], model.beta_t.T, P_of(model))
    return reference.State(*(np.array(array, "float64") for array in arrays))


def stream(rows, n, dtype, seed=0):
    """Return samples of unit size that two causes drive, with noise, spikes and gaps."""
    rng = np.random.default_rng(seed)
    X = rng.normal(0, 1, (rows, 2)) @ rng.normal(0, 0.6, (2, n)) + rng.normal(0, 0.5, (rows, n))
    X[rng.uniform(0, 1, rows) < 0.05] += rng.normal(0, 4, n)
    X[rng.uniform(0, 1, X.shape) < 0.05] = NAN
    if n > 1:
        X[10::40, : (n + 1) // 2] = NAN  # half of a row, or more
    X[7::50] = NAN
    return X.astype(dtype)


def expected_view(state, weight, x, a, activation):
    """Return values (errors, gaps), distance and presence of a sample by the definition."""
    present = ~np.isnan(x)
    x = np.where(present, x, 0.0)
    x = np.where(present, x, reference.predict(state, x, activation))
    h = reference.hidden(state, x, activation)
    # Half the gradient of h P h' with respect to x is alpha (G' * P h).
    gaps = weight * state.alpha @ (SLOPES[activation](h) * (state.P @ h))
    distance = reference.leverage(state, x, a, activation) * weight / len(h)
    return np.array([x - h @ state.beta, gaps]), distance, present, x


class Desk:
    """The arrays that a kernel's watch works on."""

    def __init__(self, n, seed=5):
        rng = np.random.default_rng(seed)
        self.n = n
        self.scales = rng.uniform(0.5, 2, (2, 2 * n))
        self.scales[:, n:] *= 0.1
        self.levels = np.array([[-0.5, -3.0, 0.5, -2.0, 0.0], [0.7, 0.8, 0.6, 0.9, 0.4]])
        self.means, self.sums = np.zeros((2, 2 * n)), np.zeros((3, 2 * n))
        self.trend = np.zeros(1)

    def watch(self, model, X, a, limit, constants=None):
        rows = len(X)
        score, shown, share = np.empty(rows), np.empty((rows, 5)), np.empty((rows, self.n))
        learned = np.zeros(rows, bool)
        model.watch(
            np.ascontiguousarray(X),
            a,
            limit,
            evidence.constants(1.0) if constants is None else constants,
            self.scales,
            self.levels,
            self.means,
            self.trend,
            self.sums,
            score,
            shown,
            share,
            learned,
        )
        return score, shown, share, learned


def look(model, x, a=1.0):
    """Return errors and gaps of one sample as the kernel sees them, and learn nothing."""
    desk = Desk(len(x))
    # with a smoothing of 1 the running means are the values
    desk.watch(model, x[None], a, -np.inf, np.array([1.0, np.inf, -3.0, 6.0, 1.0]))
    return desk.means[0].reshape(2, -1)


def started(X, activation, a):
    model = make(X.shape[1], 12, X.dtype.name, activation)
    for x in X:
        model.update(np.nan_to_num(x), a)
    return model


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 5, 19])
def test_rows_watched_in_one_call_are_those_of_single_calls_to_the_last_bit(n, dtype):
    X = stream(300, n, dtype)
    X[100:200] = 0.5  # a sensor is stuck: what is forgotten is put back
    X[150:200:20, 0] = NAN
    one, many = (started(X[:30], "identity", 0.8) for _ in range(2))
    desk, desk_of_many = Desk(n), Desk(n)
    single = [desk.watch(one, x[None], 0.8, 1e9) for x in X[30:]]
    block = desk_of_many.watch(many, X[30:], 0.8, 1e9)
    for column, part in enumerate(block):
        np.testing.assert_array_equal(part, np.concatenate([row[column] for row in single]))
    assert memory(many) == memory(one)
    assert desk_of_many.sums.tobytes() == desk.sums.tobytes()
    assert 0 < block[3].sum() < len(block[3])


def test_what_is_watched_is_learned_as_by_update_even_while_P_is_wound_up():
    X = np.random.default_rng(0).normal(0, 1, (300, 5))
    X[100:250] = 0.5  # a sensor is stuck: what is forgotten is put back, again and again
    updated, watched = (started(X[:30], "identity", 0.8) for _ in range(2))
    for x in X[30:]:
        updated.update(x, 0.8)
    assert Desk(5).watch(watched, X[30:], 0.8, np.inf)[3].all()
    bound = tolerance(P_of(updated), "float64")
    assert bound < 1e-6
    assert_near(watched.beta_t, updated.beta_t, bound)
    assert_near(P_of(watched), P_of(updated), bound)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", reference.ACTIVATIONS)
@pytest.mark.parametrize(("n", "power", "a"), [(1, 1.0, 0.99), (5, 1.0, 0.99), (9, 0.0, 1.0)])
def test_the_compiled_watch_is_the_definition_sample_by_sample(n, power, a, activation, dtype):
    X = stream(250, n, dtype)
    model, desk = started(X[:30], activation, a), Desk(n)
    seen = {True: 0, False: 0}
    for t, x in enumerate(X[30:]):
        state, before = state_of(model), (model.weight, model.seen)
        means, trend, sums = desk.means[0].copy(), desk.trend[0], desk.sums.copy()
        factor = 1.0 if model.trace > model.trace_limit else a
        values, distance, present, filled = expected_view(
            state, model.weight, x.astype("float64"), factor, activation
        )
        scales = desk.scales.reshape(2, 2, n)
        expected = weigh(
            values,
            distance,
            present,
            scales=scales,
            levels=desk.levels,
            means=means.reshape(2, n),
            trend=trend,
            distance_power=power,
        )
        limit = expected.score + (-0.1 if t % 3 == 0 else 0.1)  # each third is held out
        constants = evidence.constants(power)
        score, shown, share, learned = desk.watch(model, x[None], a, limit, constants)

        # One step from one state: rounding times the condition number of the root S that the
        # kernel carries, on squares (twice) and their logarithms over the least spread, 0.4.
        bound = 500 * np.finfo(dtype).eps * np.sqrt(np.linalg.cond(state.P))
        size = max(1.0, np.abs(values).max())
        np.testing.assert_allclose(
            desk.means[0], expected.means.ravel(), rtol=bound, atol=bound * size
        )
        least = np.sqrt(np.exp(shown[0, :4].min()))  # a small mean square has a larger share of it
        logs = bound * max(1.0, size / least) if present.any() else bound
        if present.any():
            np.testing.assert_allclose(shown[0], expected.evidence, rtol=logs, atol=logs)
        assert score[0] == pytest.approx(expected.score, rel=logs / 0.4, abs=logs / 0.4)
        assert desk.trend[0] == pytest.approx(expected.trend, rel=logs, abs=logs)
        top = expected.share.max()
        np.testing.assert_allclose(share[0], expected.share, rtol=bound, atol=logs * max(top, 1))
        assert (share[0][~present] == 0).all()

        if abs(expected.score - limit) > logs / 0.4:
            assert learned[0] == (expected.score <= limit and 2 * present.sum() > n)
        seen[bool(learned[0])] += bool(2 * present.sum() > n)
        if learned[0]:
            assert model.seen == before[1] + 1
            after = reference.update(state, filled, factor, activation)
            assert_near(model.beta_t.T, after.beta, bound * size)
            kept = np.minimum(np.array([values, expected.means]) ** 2 * scales, CAP) / scales
            gain = np.where(np.tile(present, 2), kept.reshape(2, -1), 0.0)
            step = desk.sums[:2] - sums[:2]
            np.testing.assert_allclose(step, gain, rtol=bound, atol=bound * max(1, sums.max()))
            np.testing.assert_array_equal(desk.sums[2] - sums[2], np.tile(present, 2))
        else:
            assert (model.weight, model.seen) == before
            np.testing.assert_array_equal(model.beta_t.T, state.beta)
            np.testing.assert_array_equal(desk.sums, sums)
    assert min(seen.values()) > 10  # the gate was seen open and shut


@pytest.mark.parametrize("dtype", DTYPES)
def test_watching_many_rows_is_watching_each(dtype):
    X = stream(200, 5, dtype)
    found = []
    for sizes in ([200], [1] * 200, [50, 3, 147]):
        model, desk = make(5, 12, dtype), Desk(5)
        parts = [desk.watch(model, x, 0.99, 2.5) for x in np.split(X, np.cumsum(sizes)[:-1])]
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        found.append([*columns, desk.means[0], desk.trend, desk.sums, np.array(model.beta_t)])
    for other in found[1:]:
        for mine, theirs in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_of_which_nothing_is_known_is_not_unusual_and_not_learned(dtype):
    model, desk = make(4, 8, dtype), Desk(4)
    desk.watch(model, np.nan_to_num(stream(100, 4, dtype)), 1.0, np.inf)
    desk.trend[0] = -1.0
    means, seen, sums = desk.means[0].copy(), model.seen, desk.sums.copy()
    score, _, share, learned = desk.watch(model, np.full((1, 4), NAN, dtype), 1.0, np.inf)
    assert (score[0], learned[0]) == (0.0, False)
    assert (share == 0).all()
    assert desk.trend[0] == -1.0 * (1 - SMOOTHING)  # on its way back to 0
    assert model.seen == seen
    np.testing.assert_array_equal(desk.means[0], means)
    np.testing.assert_array_equal(desk.sums, sums)


@pytest.mark.parametrize(("n", "missing"), [(4, 1), (4, 2), (5, 2), (5, 3), (1, 1), (2, 1)])
def test_a_row_is_learned_when_more_than_half_is_known(n, missing):
    model, desk = make(n, 8, "float64"), Desk(n)
    x = np.full((1, n), 0.5)
    x[0, :missing] = NAN
    learned = desk.watch(model, x, 1.0, np.inf)[3]
    assert learned[0] == (2 * (n - missing) > n)
    assert model.seen == learned[0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_missing_is_filled_with_what_the_model_expects(dtype):
    model = make(3, 6, dtype)
    X = np.random.default_rng(2).normal(0, 1, (200, 2))
    X = np.column_stack([X, X.sum(axis=1) / 2]).astype(dtype)
    for row in X:
        model.update(row, 1.0)
    x = np.array([0.8, 0.4, NAN], dtype)
    state = state_of(model)
    guess = reference.predict(state, np.array([x[0], x[1], 0.0], "float64"), "tanh")[2]
    filled = np.array([x[0], x[1], guess], dtype)
    # the known features have the errors and gaps of the filled sample
    bound = 100 * np.finfo(dtype).eps * np.sqrt(np.linalg.cond(state.P))
    np.testing.assert_allclose(
        look(model, x)[:, :2], look(model, filled)[:, :2], rtol=0, atol=bound
    )
    assert np.abs(look(model, x)[0, :2] - look(model, np.nan_to_num(x))[0, :2]).max() > 100 * bound


@pytest.mark.parametrize("activation", reference.ACTIVATIONS)
def test_gaps_are_half_the_gradient_of_the_distance(activation):
    model = make(4, 9, "float64", activation)
    for x in np.random.default_rng(1).normal(0, 1, (100, 4)):
        model.update(x, 0.99)
    state, x = state_of(model), np.array([0.3, -0.2, 0.9, 0.1])

    def distance(x):
        h = reference.hidden(state, x, activation)
        return h @ state.P @ h * model.weight

    step = 1e-5  # a central difference errs by about step^2, and by eps / step of rounding
    slopes = [
        (distance(x + step * unit) - distance(x - step * unit)) / (2 * step) for unit in np.eye(4)
    ]
    np.testing.assert_allclose(look(model, x)[1], np.array(slopes) / 2, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("a", [1.0, 0.995])
def test_gaps_of_a_linear_layer_are_the_inverse_covariance_times_x(a):
    n, rows, ridge = 4, 1000, 1e-6
    rng = np.random.default_rng(4)
    X = rng.normal(0, 1, (rows, n)) @ rng.normal(0, 1, (n, n)) + rng.normal(0, 2, n)
    model = make(n, n + 1, "float64", "identity", ridge=ridge)  # the bias carries the mean
    for x in X:
        model.update(x, a)
    weight = a ** (2.0 * np.arange(rows)[::-1])
    mean = weight @ X / weight.sum()
    covariance = (X - mean).T * weight @ (X - mean) / weight.sum()
    x = X[17]
    # The ridge is a millionth against sums of hundreds over a layer of condition below 1e3.
    expected = np.linalg.solve(covariance, x - mean)
    assert model.weight == pytest.approx(weight.sum(), rel=1e-9)
    np.testing.assert_allclose(look(model, x)[1], expected, rtol=1e-4, atol=1e-4)


def weighed(values, present=None, **changes):
    values = np.array(values, "float64")
    n = values.shape[1]
    settings = {
        "scales": np.ones((2, 2, n)),
        "levels": np.array([[0.0] * 5, [1.0] * 5]),
        "means": np.zeros((2, n)),
        "trend": 0.0,
    } | changes
    return weigh(values, 1.0, np.ones(n, bool) if present is None else present, **settings)


def test_no_feature_counts_for_more_than_the_cap():
    found = weighed([[1e9, 1.0], [1e9, 0.0]])
    assert found.evidence[0] == pytest.approx(np.log((CAP + 1) / 2 + TINY) + np.log(1 + TINY))
    assert found.share.tolist() == [1.0, 0.0]


def test_shares_are_those_of_the_gaps_now_or_lately():
    now = weighed([[0.0, 0.0], [3.0, 1.0]])
    assert now.share == pytest.approx([0.9, 0.1])
    lately = weighed([[0.0, 0.0], [0.1, 0.1]], means=np.array([[0.0, 0.0], [5.0, 0.0]]))
    squares = np.array([(5 - 0.49) ** 2, 0.01**2])
    assert lately.share == pytest.approx(squares / squares.sum())


def test_one_sample_moves_the_trend_within_bounds():
    high = weighed([[1e3], [0.0]], levels=np.array([[0.0] * 5, [0.01] * 5]))
    assert high.trend == pytest.approx(SMOOTHING * 6.0)
    low = weighed([[1e-12], [0.0]])
    assert low.trend == pytest.approx(SMOOTHING * -3.0)


def test_the_score_is_the_highest_evidence():
    for k in range(5):
        levels = np.array([[1e3] * 5, [1.0] * 5])
        levels[0, k] = -2.0
        found = weighed([[1.0, 1.0], [1.0, 1.0]], levels=levels)
        assert found.score == found.evidence[k] + 2.0


def taken(y, evidences):
    y.take(np.asarray(evidences, "float64"))


def test_the_ring_wraps_and_holds_the_newest():
    y = Yardstick(2)
    numbers = np.arange(RING + 100.0)
    rows = np.repeat(numbers[:, None], 5, axis=1)
    for part in np.array_split(rows, 77):
        y.take(part)
    assert sorted(y.ring[:, 0]) == numbers[100:].tolist()
    assert y.n_ring == RING + 100
    y.refresh()
    np.testing.assert_allclose(y.levels[0], np.median(numbers[100:]))


def test_levels_are_taken_again_after_a_sixteenth_of_new_samples():
    y = Yardstick(1)
    one = np.zeros((1, 5))
    taken(y, np.repeat(one, FEW - 1, axis=0))
    assert not y.stale()
    y.take(one)
    assert y.stale()
    y.refresh()
    assert not y.stale()
    rounds = []
    while y.n_ring < 3 * RING:
        y.take(np.repeat(one, 1, axis=0))
        if y.stale():
            y.refresh()
            rounds.append(y.n_ring)
    gaps = np.diff(rounds)
    assert gaps[0] == FEW
    assert gaps[-1] == RING // 16
    assert (np.diff(gaps) >= 0).all()


def test_refresh_standardises_by_median_and_spread_and_sorts_the_scores():
    y = Yardstick(1)
    E = np.random.default_rng(0).normal([0, 1, 2, 3, 4], [1, 2, 3, 4, 1e-6], (500, 5))
    y.take(E)
    y.refresh()
    centre = np.median(E, axis=0)
    spread = np.maximum(1.4826 * np.median(np.abs(E - centre), axis=0), SPREAD)
    np.testing.assert_allclose(y.levels, [centre, spread])
    assert y.levels[1, 4] == SPREAD[4]
    np.testing.assert_allclose(y.scores, np.sort(((E - centre) / spread).max(axis=1)))


guesses = st.tuples(st.floats(-10, 10), st.floats(0, 10))


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=60), guesses)
@example([1.0, 2.0, 3.0, 4.0], (2.5, 0.0))
@example([1.0, 2.0, 3.0, 4.0], (2.0, 5.0))  # one of the two in the middle is out of reach
@example([1.0, 2.0, 3.0, 4.0], (3.0, 5.0))
@example([1.0] * 5, (1.0, 1.0))
def test_levels_are_medians_to_the_last_bit_whatever_they_were_before(values, guess):
    E = np.array(values)[:, None] * np.array([1.0, 1.5])
    levels, scores = np.empty((2, 2)), np.empty(len(E))
    before, least = np.array([[guess[0]] * 2, [guess[1]] * 2]), np.array([0.05, 1e-9])
    kernel.take_levels(E, before, least, levels, scores)
    centre = np.median(E, axis=0)
    spread = np.maximum(ROBUST * np.median(np.abs(E - centre), axis=0), least)
    np.testing.assert_array_equal(levels, [centre, spread])
    np.testing.assert_array_equal(scores, ((E - centre) / spread).max(axis=1))


def test_clear_forgets_the_ring_and_weakens_the_squares():
    y = Yardstick(1)
    y.sums[:] = 100.0
    taken(y, np.ones((100, 5)))
    usual = y.usual.copy()
    y.clear(32)
    assert (y.n_ring, y.n_fresh, y.weight) == (0, 0, 32.0)
    np.testing.assert_array_equal(y.usual, usual)
    assert not y.stale()
    y.clear(1e9)
    assert y.weight == 32.0


def test_usual_squares_are_means_and_scales_their_inverses():
    y = Yardstick(1)
    y.sums[:] = [[8.0, 0.0], [2.0, 4.0], [4.0, 4.0]]
    taken(y, np.zeros((4, 5)))
    np.testing.assert_allclose(y.usual, [[2.0, 0.0], [0.5, 1.0]])
    np.testing.assert_allclose(y.scales, [[0.5, 1 / FLOOR], [2.0, 1.0]])
    assert (y.sums == 0).all()
    y.sums[:] = [[40.0, 0.0], [0.0, 0.0], [4.0, 0.0]]  # the second feature was missing
    taken(y, np.zeros((4, 5)))
    np.testing.assert_allclose(y.usual, [[6.0, 0.0], [0.25, 1.0]])
    for _ in range(1000):
        y.sums[:] = [[4.0, 4.0], [4.0, 4.0], [4.0, 4.0]]
        y.take(np.zeros((4, 5)))
    assert y.weight == USUAL
    # 4000 samples of 1 into a mean that weighs 2048: exp(-(4000 - 2048) / 2048) = 0.4 is left of
    # the mean of 2048 / 8 ... at most 6 * 8 / 2048 away when the memory is full
    np.testing.assert_allclose(y.usual, 1.0, atol=6 * 8 / 2048)


def test_nothing_taken_changes_no_scale():
    y = Yardstick(2)
    y.take(np.empty((0, 5)))
    assert (y.usual == 1).all()
    assert (y.n_ring, y.weight) == (0, 0.0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.floats(-1e7, 1e7))
def test_a_p_value_is_a_share_of_the_scores(scores, score):
    y = Yardstick(1)
    y.scores = np.sort(np.array(scores))
    p = y.p_values(np.array([score, -np.inf, np.inf]))
    assert p[0] == (1 + sum(s >= score for s in scores)) / (1 + len(scores))
    assert (p > 0).all()
    assert p[1] == 1.0
    assert p[2] == 1 / (1 + len(scores))


def test_a_limit_is_that_of_the_recent_scores():
    y = Yardstick(1)
    y.scores = np.full(5, 3.0)
    assert y.limit(Fixed(7.0)) == 7.0
    assert y.limit(Quantile(1.0)) == 3.0
