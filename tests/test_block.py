import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onlad import block, reference
from oracle import assert_near, tolerance
from test_kernel import P_of, pair, stream

DTYPES = ["float64", "float32"]


def run_both(sizes, dtype, factors, X, *, n=9, N=13, activation="sigmoid", loss="squared"):
    """Learn X in the loop and, cut into `sizes`, in blocks; return the models and their numbers."""
    loop, _ = pair(n, N, dtype, activation=activation, loss=loss)
    blocks, _ = pair(n, N, dtype, activation=activation, loss=loss)
    X = X.astype(dtype)
    expected = np.empty((2, len(X)))
    loop.update_many(X=X, a=factors, loss=expected[0], leverage=expected[1])
    ends = np.cumsum(sizes)[:-1]
    found = [
        block.update_many(blocks, rows, a)
        for rows, a in zip(np.split(X, ends), np.split(factors, ends), strict=True)
    ]
    return loop, blocks, expected, np.hstack(found)


def assert_same(loop, blocks, expected, found, dtype):
    # Both do the same steps on S and solve the same triangular system, in another order of
    # sums: rounding times the condition number of the Gram matrix, as for any two solutions.
    P = P_of(loop)
    bound = tolerance(P, dtype)
    for mine, theirs in zip(found, expected, strict=True):
        assert_near(mine, theirs, bound)
    assert_near(blocks.beta_t, loop.beta_t, bound)
    assert_near(P_of(blocks), P, bound)
    assert (blocks.seen, blocks.skipped) == (loop.seen, loop.skipped)
    assert blocks.shrink == loop.shrink


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=30)
@given(sizes=st.lists(st.integers(0, 80), min_size=1, max_size=5), a=st.floats(0.9, 1))
def test_any_split_of_the_stream_is_the_loop(dtype, sizes, a):
    X = stream(sum(sizes), 9) if sum(sizes) else np.empty((0, 9))
    if len(X):
        assert_same(*run_both(sizes, dtype, np.full(len(X), a), X), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("loss", reference.LOSSES)
@pytest.mark.parametrize("activation", reference.ACTIVATIONS)
def test_every_activation_and_loss_is_the_loop(activation, loss, dtype):
    X = stream(block.ROWS + 5, 9) - 0.5
    factors = np.full(len(X), 0.98)
    assert_same(*run_both([len(X)], dtype, factors, X, activation=activation, loss=loss), dtype)


@pytest.mark.parametrize("rows", [1, block.ROWS - 1, block.ROWS, block.ROWS + 1, block.CHUNK + 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_number_of_rows_is_the_loop(dtype, rows):
    assert_same(*run_both([rows], dtype, np.full(rows, 0.99), stream(rows, 9)), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "N"), [(1, 1), (130, 3), (2, 65), (256, 40)])
def test_any_size_is_the_loop(n, N, dtype):
    X = stream(3 * block.ROWS + 1, n)
    assert_same(*run_both([len(X)], dtype, np.full(len(X), 0.99), X, n=n, N=N), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_factor_that_varies_acts_inside_the_block(dtype):
    X = stream(block.CHUNK + 100, 9)
    factors = np.random.default_rng(3).uniform(0.85, 1, len(X))
    loop, blocks, expected, found = run_both([len(X)], dtype, factors, X)
    assert_same(loop, blocks, expected, found, dtype)
    single, _ = pair(9, 13, dtype)
    for x, a in zip(X.astype(dtype), factors, strict=True):
        single.update(x, a)
    assert_near(blocks.beta_t, single.beta_t, tolerance(P_of(single), dtype))


def test_the_wind_up_guard_acts_inside_the_block():
    X = np.vstack([np.full((80, 9), 0.5), stream(50, 9)])  # all but one direction wind up at once
    factors = np.full(len(X), 0.7)
    loop, blocks, expected, found = run_both([len(X)], "float64", factors, X)
    assert loop.paused > 10
    # Pauses agree unless a rounding lies between a trace and its limit; none does here.
    assert blocks.paused == loop.paused
    assert_same(loop, blocks, expected, found, "float64")


def test_the_guard_in_a_float32_block_follows_float64():
    X = np.vstack([stream(50, 9), np.full((300, 9), 0.5), stream(200, 9, seed=1)])
    factors = np.full(len(X), 0.95)
    loop, _, _, _ = run_both([len(X)], "float64", factors, X)
    _, blocks, _, _ = run_both([len(X)], "float32", factors, X)
    # 200 samples at 0.95 forget what float32 rounded while P was wound up.
    assert_near(blocks.beta_t, loop.beta_t, tolerance(P_of(loop), "float32"))


def unexcited(rows):
    """Return samples of three sensors, which excite four of thirteen linear hidden units."""
    return stream(rows, 3)


def stuck_for_a_while(rows):
    part = rows // 3
    return np.vstack([stream(part, 3), np.full((part, 3), 0.5), stream(part, 3, seed=1)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ["identity", "tanh"])
@pytest.mark.parametrize("samples", [unexcited, stuck_for_a_while])
def test_a_guard_that_restores_ridges_all_the_time_is_the_loop(samples, activation, dtype):
    X = samples(1200)
    factors = np.full(len(X), 0.95)
    loop, blocks, expected, found = run_both(
        [len(X)], dtype, factors, X, n=3, N=13, activation=activation
    )
    # Without the guard, 1200 steps would divide what is not excited by 0.95^2400.
    assert loop.shrink < 1e-50
    assert loop.trace < 2 * loop.trace_limit
    # Both carry the root of P, whose condition number is the root of P's.
    P = P_of(loop)
    bound = 100 * np.finfo(dtype).eps * np.sqrt(np.linalg.cond(P))
    for mine, theirs in zip(found, expected, strict=True):
        assert_near(mine, theirs, bound)
    assert_near(blocks.beta_t, loop.beta_t, bound)
    assert_near(P_of(blocks), P, bound)
    assert (blocks.seen, blocks.paused, blocks.shrink) == (loop.seen, loop.paused, loop.shrink)


@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_saturated_units_are_the_loop(dtype, activation):
    X = np.vstack([stream(20, 9), stream(20, 9) * 1e6 - 5e5])
    factors = np.full(len(X), 0.99)
    assert_same(*run_both([len(X)], dtype, factors, X, activation=activation), dtype)


def test_blocks_pay_for_large_models_only():
    assert block.pays(512, 64)
    assert not block.pays(4, 16)
