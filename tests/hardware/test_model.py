"""The core on integers: against float64, and as a device that takes any word."""

import core_streams as streams
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onlad import reference
from onlad.hardware import fixed, model
from onlad.hardware.config import Config
from onlad.hardware.model import Model
from onlad.hardware.packets import REFUSED, Ff, Mode, Packet, Reason, Status, answered
from onlad.hardware.seeded import advance, lane_seeds, seeded_alpha

TINY = Config(n=5, hidden=3, lanes=1)


def loaded(config, state, factor, limit=None):
    core = Model(config)
    for word in streams.load(config, state, factor, limit):
        assert core.accept(int(word)) == []
    return core


def reference_step(state, x, factor, activation, trace):
    """Return the state after a step of the library's definition, guard included."""
    wound = np.trace(state.P) > streams.WIND_UP * trace
    state = reference.update(state, x, 1.0 if wound else factor, activation)
    if np.trace(state.P) <= streams.WIND_UP * trace:
        return state
    k, weight = int(np.argmax(np.diag(state.P))), len(state.P) / trace
    u = state.P[k]
    scale = weight / (1 + weight * u[k])
    beta = state.beta - np.outer(u * scale, state.beta[k])
    return state._replace(beta=beta, P=state.P - np.outer(u, u) * scale)


def follow(config, X, factor, learned=64):
    """Return score errors, and errors of beta and P, of a core that learns X beside float64."""
    state = streams.start(config, X[:learned])
    trace = float(np.trace(state.P))
    core = loaded(config, state, factor)
    errors = []
    for x in X[learned:]:
        core.x[:] = fixed.quantize(x, config.width, config.fraction)
        exact = reference.score(state, x, activation=config.activation)
        score = core.train(1) / 2**config.score_fraction
        errors.append(abs(score - exact) / exact)
        state = reference_step(state, x, factor, config.activation, trace)
    S = fixed.root_value(config, core.S, core.mantissa, core.exponent)
    P, beta = S @ S.T, fixed.value(core.beta, config.fraction)
    np.testing.assert_array_equal(P, P.T)
    assert core.status[Status.SINGULAR] == core.status[Status.SATURATED] == 0
    off = [np.abs(a - b).max() / np.abs(b).max() for a, b in ((beta, state.beta), (P, state.P))]
    return np.array(errors), *off


@pytest.mark.parametrize("activation", ["identity", "sigmoid"])
@pytest.mark.parametrize("factor", [0.95, 0.97, 0.99, 1.0])
def test_scores_and_beta_stay_close_to_float64(activation, factor):
    config = Config(n=32, hidden=8, activation=activation)
    errors, beta, _ = follow(config, streams.rows(32, 1200, seed=1), factor)
    assert np.median(errors) <= 1e-3
    assert beta <= 1e-3


@pytest.mark.parametrize("factor", [0.95, 0.99])
def test_a_stuck_sensor_and_exact_rank_harm_nothing(factor):
    config = Config(n=16, hidden=8)
    X = streams.rows(16, 900, seed=2, rank=2, noise=0)
    X[:, 3] = 0.5
    state = streams.start(config, X[:64])
    trace = float(np.trace(state.P))
    core = loaded(config, state, factor)
    for x in X[64:]:
        core.x[:] = fixed.quantize(x, 32, config.fraction)
        assert core.train() == 1
        state = reference_step(state, x, factor, "identity", trace)
    # P has wound up to the guard; a sample in a new direction is scored as float64 scores it.
    assert core.status[Status.SATURATED] == 0
    x = np.random.default_rng(0).uniform(0, 1, 16)
    core.x[:] = fixed.quantize(x, 32, config.fraction)
    exact = reference.score(state, x, activation="identity")
    assert core.predict() / 2**26 == pytest.approx(exact, rel=1e-3)


def test_the_guard_acts_and_forgetting_goes_on():
    config = Config(n=16, hidden=8)
    X = streams.rows(16, 900, seed=2, rank=2, noise=0)
    core = loaded(config, streams.start(config, X[:64]), 0.9)
    traces = []
    for x in X[64:]:
        core.x[:] = fixed.quantize(x, 32, config.fraction)
        core.train()
        S = fixed.root_value(config, core.S, core.mantissa, core.exponent)
        traces.append((S**2).sum())
    limit = fixed.limit_value(core.limit)
    # A round over the rows takes N steps, in which the trace can grow by 1 / a^2 each.
    assert limit / 10 < max(traces) < limit / 0.9 ** (2 * 2 * config.hidden)
    falls = np.diff(np.log(traces)) < np.log(0.5)  # a restored ridge; data of rank 2 cannot do it
    assert falls.sum() > 10
    assert core.status[Status.PAUSED] < len(X) / 10


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_products_by_halves_are_exact(data):
    n, N = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 4))
    word = st.integers(-(2**31), 2**31 - 1)
    vector = np.array(data.draw(st.lists(word, min_size=n, max_size=n)))
    matrix = np.array(data.draw(st.lists(word, min_size=n * N, max_size=n * N))).reshape(n, N)
    found = model.whole(*model.product(vector, model.Halves.of(matrix)))
    exact = vector.astype(object) @ matrix.astype(object)
    assert found == exact.tolist()


def test_products_of_the_widest_words_are_exact():
    vector, matrix = np.full(4096, -(2**31)), np.full((4096, 2), 2**31 - 1)
    found = model.whole(*model.product(vector, model.Halves.of(matrix)))
    assert found == [-4096 * 2**31 * (2**31 - 1)] * 2


any_index = st.one_of(st.integers(0, 16), st.integers(0, 2**28 - 1))
any_value = st.one_of(st.integers(-100, 100), st.integers(-(2**31), 2**31 - 1))
any_packet = st.builds(Packet, st.sampled_from(Mode), st.booleans(), any_index, any_value)
any_writing = st.builds(
    Packet, st.sampled_from(list(Mode)[Mode.FF :]), st.just(False), any_index, any_value
)
any_word = st.one_of(any_packet.map(Packet.encode), st.integers(0, 2**64 - 1))


@settings(max_examples=200, deadline=None)
@given(st.lists(any_word, max_size=40), st.booleans())
def test_any_words_in_any_order_are_answered_as_promised(words, last):
    core = Model(TINY)
    for word in words:
        answers = core.accept(word, last)
        assert len(answers) == int(answered(np.array([word], np.uint64))[0])
        assert all(0 <= answer < 2**32 and carried is last for answer, carried in answers)
    for words in (core.beta, core.S, core.x):
        assert np.abs(words).max() <= 2**31


@settings(max_examples=60, deadline=None)
@given(st.lists(any_writing, max_size=30))
def test_whole_arrays_do_what_single_words_do(packets):
    one, other = Model(TINY), Model(TINY)
    for packet in packets:
        one.accept(packet.encode())
    k = 0
    while k < len(packets):
        run = [p for p in packets[k:] if p.mode is packets[k].mode][: _run(packets[k:])]
        indices, values = (np.array([getattr(p, name) for p in run]) for name in ("index", "value"))
        other.write(run[0].mode, indices, values)
        k += len(run)
    for name in ("alpha", "b", "beta", "S", "x"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert (one.reasons, one.over, one.near, one.factor) == (
        other.reasons, other.over, other.near, other.factor,
    )  # fmt: skip


def _run(packets):
    return next((k for k, p in enumerate(packets) if p.mode is not packets[0].mode), len(packets))


def word(mode, index=0, value=0, read=False):
    return Packet(mode, read, index, value).encode()


def test_nothing_is_computed_before_the_factor_is_written():
    core = Model(TINY)
    assert core.accept(word(Mode.TRAIN)) == [(REFUSED | Reason.NOT_READY, False)]
    assert core.accept(word(Mode.PREDICT)) == [(REFUSED | Reason.NOT_READY, False)]
    core.accept(word(Mode.FF, Ff.FACTOR, 1 << 30))
    assert core.accept(word(Mode.PREDICT)) == [(0, False)]
    assert core.accept(word(Mode.TRAIN)) == [(0, False)]  # S is zero: nothing can be learned
    assert core.status[Status.SINGULAR] == 1


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (word(Mode.X, 5, 1), Reason.BAD_INDEX),
        (word(Mode.P, 9, 1), Reason.BAD_INDEX),
        (word(Mode.FF, len(Ff), 1), Reason.BAD_INDEX),
        (word(Mode.FF, Ff.FACTOR, 0), Reason.BAD_FACTOR),
        (word(Mode.FF, Ff.FACTOR, (1 << 30) + 1), Reason.BAD_FACTOR),
        (word(Mode.FF, Ff.EXPONENT, 32), Reason.BAD_FACTOR),
        (word(Mode.FF, Ff.MANTISSA, 1), Reason.BAD_FACTOR),
    ],
)
def test_a_bad_word_changes_nothing_and_refuses_the_next_step_once(bad, reason):
    core = Model(TINY)
    core.accept(word(Mode.FF, Ff.FACTOR, 1 << 29))
    core.accept(bad)
    assert core.factor == 1 << 29
    assert core.accept(word(Mode.PREDICT)) == [(REFUSED | reason, False)]
    assert core.accept(word(Mode.PREDICT)) == [(0, False)]


def test_a_value_too_wide_for_the_core_is_refused():
    core = Model(Config(n=5, hidden=3, lanes=1, width=18))
    core.accept(word(Mode.FF, Ff.FACTOR, 1 << 30))
    core.accept(word(Mode.X, 0, 1 << 17))
    assert core.x[0] == 0
    assert core.accept(word(Mode.TRAIN)) == [(REFUSED | Reason.BAD_VALUE, False)]


def test_a_sample_out_of_range_is_not_learned():
    config = Config(n=4, hidden=2, lanes=1)
    core = loaded(config, streams.start(config, streams.rows(4, 40, seed=3)), 0.99)
    core.write(Mode.ALPHA, np.arange(8), np.full(8, 2**31 - 1))
    core.write(Mode.X, np.arange(4), np.full(4, 2**31 - 1))
    before = core.S.copy(), core.beta.copy(), core.mantissa
    assert core.train() == 0
    np.testing.assert_array_equal(core.S, before[0])
    np.testing.assert_array_equal(core.beta, before[1])
    assert core.mantissa == before[2]
    assert core.train(1) == REFUSED | Reason.SINGULAR


def test_a_seeded_alpha_is_the_lanes_generators_in_order():
    config = Config(n=3, hidden=5, lanes=2, alpha="seeded", seed=7)
    alpha = seeded_alpha(config)
    states = lane_seeds(config)
    for block in range(3):
        for i in range(3):
            for lane, state in enumerate(states):
                j = 2 * block + lane
                if j < 5:
                    top = state >> 14
                    assert alpha[i, j] == top - (top >> 17 << 18)
            states = [advance(state) for state in states]
    wide = seeded_alpha(Config(n=512, hidden=64, alpha="seeded")) / 2**17
    # Uniform on [-1, 1): mean 0 and variance 1/3, within five standard errors of 32,768 draws.
    assert abs(wide.mean()) < 5 / np.sqrt(3 * wide.size)
    assert abs((wide**2).mean() - 1 / 3) < 5 * np.sqrt(4 / 45 / wide.size)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.95, 0.97, 0.99, 1.0])
def test_ten_thousand_steps_stay_close_to_float64(factor):
    config = Config(n=128, hidden=16)
    errors, beta, P = follow(config, streams.rows(128, 10_064, seed=1, rank=6), factor)
    assert np.median(errors) <= 1e-3
    assert beta <= 1e-3
    assert P <= 1e-3
