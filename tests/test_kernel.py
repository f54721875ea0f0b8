import json
import os
import pickle
import platform
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from onlad import _kernel, kernel, reference
from onlad.state import DetectorState
from oracle import assert_near, assert_positive_definite, tolerance

DTYPES = ["float64", "float32"]
# n and N: one, off every vector width, whole vectors, and past one strip of eight.
SIZES = [(1, 1), (3, 5), (17, 33), (128, 64), (5, 130)]
RIDGE = 1.0  # keeps the condition number, and with it the tolerance of float32, small


def pair(n, N, dtype, *, ridge=RIDGE, activation="sigmoid", score="combined", loss="squared"):
    """Return a compiled model and the reference state that it must follow."""
    state = reference.init(n, N, weights="normal", ridge=ridge, seed=2)
    trace = N / ridge
    begun = DetectorState(
        S=np.eye(N) / np.sqrt(ridge),
        alpha=state.alpha,
        b=state.b,
        beta=state.beta,
        memory=np.ones(1),
        trace_start=trace,
    )
    model = kernel.make(
        begun,
        activation=activation,
        score=score,
        loss=loss,
        dtype=dtype,
        trace_limit=reference.trace_limit(trace, N, 0.9, activation),
    )
    return model, state


def stream(rows, n, dtype="float64", seed=0):
    X = np.random.default_rng(seed).uniform(0, 1, (rows, n))
    return X.astype(dtype).astype("float64")  # both sides read the same numbers


def P_of(model):
    S = model.S.astype("float64")
    return reference.symmetric(S @ S.T)


def memory(model):
    """Return every byte and count of what the model has learned."""
    arrays = [np.array(a).tobytes() for a in (model.alpha, model.b, model.beta_t, model.S)]
    return [*arrays, model.trace, model.shrink, model.seen, model.skipped, model.paused]


def follow(model, state, X, a, **score):
    """Update both on each row; return the scores of both and the state at the end."""
    found, expected = [], []
    for x in X:
        expected.append(reference.score(state, x, a, **score))
        found.append(model.update(x, a))
        state = reference.update(state, x, a, score.get("activation", "sigmoid"))
    return np.array(found), np.array(expected), state


def assert_follows(model, state, found, expected, dtype):
    bound = tolerance(state.P, dtype)
    assert_near(found, expected, bound)
    assert_near(model.beta_t.T, state.beta, bound)
    assert_near(P_of(model), state.P, bound)


def test_the_compiled_kernel_runs():
    assert kernel.BACKEND in {"x86-64-v2", "x86-64-v3", "x86-64-v4", "plain"}
    if platform.machine() in {"x86_64", "AMD64"}:
        assert kernel.BACKEND != "plain"


@pytest.mark.parametrize("a", [1.0, 0.97])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "N"), SIZES)
def test_updates_are_those_of_the_reference(n, N, dtype, a):
    model, state = pair(n, N, dtype)
    found, expected, state = follow(model, state, stream(60, n, dtype), a, kind="combined")
    assert_follows(model, state, found, expected, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("loss", reference.LOSSES)
@pytest.mark.parametrize("kind", reference.SCORES)
@pytest.mark.parametrize("activation", reference.ACTIVATIONS)
def test_every_activation_loss_and_score_is_that_of_the_reference(activation, kind, loss, dtype):
    model, state = pair(5, 9, dtype, activation=activation, score=kind, loss=loss)
    X = stream(40, 5, dtype) - 0.5
    choice = {"activation": activation, "kind": kind, "loss": loss}
    found, expected, state = follow(model, state, X, 0.97, **choice)
    assert_follows(model, state, found, expected, dtype)
    x = X[3]
    error = x - reference.predict(state, x, activation)
    bound = tolerance(state.P, dtype)
    # Each is a product with the solution: bound by it times the size of what is multiplied.
    largest = max(1.0, np.abs(expected).max())
    scored = reference.score(state, x, 0.97, **choice)
    assert model.score(x, 0.97) == pytest.approx(scored, rel=0, abs=bound * largest)
    np.testing.assert_allclose(model.error[0], error, rtol=0, atol=bound)
    leverage = reference.leverage(state, x, 0.97, activation)
    assert model.leverage == pytest.approx(leverage, rel=0, abs=bound * largest)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "N"), SIZES)
def test_scoring_changes_no_bit_of_the_model(n, N, dtype):
    model, _ = pair(n, N, dtype)
    X = stream(20, n, dtype)
    for x in X:
        model.update(x, 0.97)
    before = memory(model)
    loss, leverage = np.empty(20), np.empty(20)
    model.score_many(X=X.astype(dtype), a=0.97, loss=loss, leverage=leverage)
    scores = [model.score(x, 0.97) for x in X]
    assert memory(model) == before
    np.testing.assert_array_equal(reference.combine(loss, leverage, "combined"), scores)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_block_of_rows_is_the_loop_to_the_last_bit(dtype):
    one, many = (pair(7, 11, dtype)[0] for _ in range(2))
    X, a = stream(50, 7, dtype), np.random.default_rng(1).uniform(0.9, 1, 50)
    loss, leverage = np.empty(50), np.empty(50)
    many.update_many(X=X.astype(dtype), a=a, loss=loss, leverage=leverage)
    scores = [one.update(x, a_t) for x, a_t in zip(X, a, strict=True)]
    np.testing.assert_array_equal(reference.combine(loss, leverage, "combined"), scores)
    assert memory(one) == memory(many)


@pytest.mark.parametrize("a", [1.0, 0.99, 0.9])
@pytest.mark.parametrize("dtype", DTYPES)
def test_P_is_symmetric_and_positive_definite_on_a_long_stream(dtype, a):
    model, _ = pair(4, 24, dtype, ridge=1e-2)
    X = stream(20_000, 4).astype(dtype)
    for rows in np.split(X, 10):
        model.update_many(
            X=rows, a=np.full(len(rows), a), loss=np.empty(len(rows)), leverage=np.empty(len(rows))
        )
        P = P_of(model)
        assert_positive_definite(P)
        # The trace comes with each step. Its rounding grows by 1 / a^2 until it is measured again;
        # the guard needs it within a per cent.
        assert model.trace == pytest.approx(np.trace(P), rel=0.01)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ["identity", "tanh"])
def test_the_wind_up_guard_is_that_of_the_reference(activation, dtype):
    a, N = 0.8, 6
    model, state = pair(3, N, dtype, activation=activation)
    trace, paused = N / RIDGE, 0
    for x in np.vstack([np.full((80, 3), 0.5), stream(20, 3)]):  # a sensor is stuck, then free
        factor = reference.guarded(state, a, model.trace_limit)
        paused += factor == 1.0
        expected = reference.score(state, x, factor, activation=activation, kind="combined")
        state = reference.update(state, x, factor, activation)
        state = reference.restore(state, trace, model.trace_limit)
        found = model.update(x, a)
        bound = tolerance(state.P, dtype)
        assert found == pytest.approx(expected, rel=bound, abs=bound)
    assert model.paused == paused > 0
    assert_near(P_of(model), state.P, bound)
    assert_near(model.beta_t.T, state.beta, bound)


def test_a_step_that_would_not_be_finite_is_skipped_and_counted():
    model, _ = pair(2, 3, "float64", activation="identity")
    before = memory(model)[:6]
    model.update(np.full(2, 1e50), 0.9)
    assert memory(model)[:6] == before
    assert (model.seen, model.skipped) == (0, 1)


def hidden_unit(z, activation, dtype):
    """Return G(z) as the kernel computes it: with h alone, P = I and a = 1, d - 1 is h^2."""
    model, out = pair(1, 1, dtype, activation=activation)[0], []
    model.alpha[:], model.b[:] = 1, 0
    for value in np.asarray(z, dtype):
        model.score(value[None], 1.0)
        out.append(model.leverage)
    return np.sqrt(np.array(out))


@pytest.mark.parametrize("dtype", DTYPES)
def test_sigmoid_is_exact_to_a_few_units_in_the_last_place(dtype):
    reach = 17.0 if dtype == "float32" else 300.0  # h^2, which is seen, must not underflow
    z = np.linspace(-reach, reach, 2001).astype(dtype)
    exact = 1 / (1 + np.exp(-z.astype("longdouble")))
    # exp to 2 units, a sum, a quotient, and the square root of a rounded square: within 4.
    found = hidden_unit(z, "sigmoid", dtype)
    np.testing.assert_allclose(found, exact.astype(float), rtol=4 * np.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tanh_is_exact_to_a_few_units_of_one(dtype):
    z = np.concatenate([np.linspace(-30, 30, 2001), np.linspace(-1e-3, 1e-3, 101)]).astype(dtype)
    # 1 - 2 / (1 + exp(2 z)) cancels near 0: its error is absolute, in units of 1.
    found, exact = hidden_unit(z, "tanh", dtype), np.abs(np.tanh(z.astype(float)))
    np.testing.assert_allclose(found, exact, rtol=0, atol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("activation", "low"), [("sigmoid", 0.0), ("tanh", 1.0)])
def test_activations_saturate_far_out(activation, low, dtype):
    far = [-1e12, -1000, -750, -100, 100, 750, 1000, 1e12]
    expected = [low] * 4 + [1.0] * 4
    found = hidden_unit(far, activation, dtype)
    np.testing.assert_allclose(found, expected, rtol=0, atol=np.finfo("float32").tiny * 2)


def test_a_model_is_made_only_of_arrays_that_fit():
    model, _ = pair(3, 5, "float64")
    good = DetectorState(**model.values(), memory=np.ones(1))
    kinds = {"activation": "relu", "score": "combined", "loss": "squared", "dtype": "float64"}
    with pytest.raises(ValueError, match="alpha, b, beta and S do not fit each other"):
        kernel.make(replace(good, S=np.eye(4)), **kinds, trace_limit=1.0)
    none = replace(good, alpha=np.empty((0, 5)), beta=np.empty((5, 0)))
    with pytest.raises(ValueError, match="alpha is empty"):
        kernel.make(none, **kinds, trace_limit=1.0)


def test_outputs_that_do_not_fit_are_refused():
    model, _ = pair(3, 5, "float64")
    X, a, out = stream(4, 3), np.ones(4), np.empty(4)
    with pytest.raises(ValueError, match="X, loss and leverage do not fit the model"):
        model.update_many(X=X, a=a, loss=np.empty(3), leverage=out)
    with pytest.raises(ValueError, match="one forgetting factor per row is needed"):
        model.update_many(X=X, a=np.ones(3), loss=out, leverage=out)
    beta, rest = (
        np.zeros((5, 3)),
        {"X": X, "XA": np.ones((4, 5)), "a": a, "loss": out, "leverage": out},
    )
    with pytest.raises(ValueError, match="X, XA, a, beta, loss and leverage do not fit the model"):
        model.update_blocks(**rest, beta=beta.T.copy(), block_rows=4)
    with pytest.raises(ValueError, match="too many rows per block"):
        model.update_blocks(**rest, beta=beta, block_rows=10**6)
    with pytest.raises(TypeError):  # a converted output would be lost
        model.update_many(X=X, a=a, loss=np.empty(4, "float32"), leverage=out)


LEVEL_PROGRAM = """
import json, sys
import numpy as np
from onlad import kernel
sys.path.insert(0, sys.argv[1])
from test_kernel import P_of, pair, stream
found = {"level": kernel.BACKEND}
for dtype in ("float64", "float32"):
    model, _ = pair(17, 33, dtype)
    scores = [model.update(x, 0.97) for x in stream(200, 17, dtype)]
    found[dtype] = [scores, model.beta_t.tolist(), P_of(model).tolist()]
print(json.dumps(found))
"""


@pytest.mark.skipif(kernel.BACKEND == "plain", reason="only x86-64 has several levels")
def test_all_instruction_levels_agree():
    found = {}
    for level in ("x86-64-v2", "x86-64-v3", "x86-64-v4"):
        command = [sys.executable, "-c", LEVEL_PROGRAM, os.path.dirname(__file__)]
        env = os.environ | {"ONLAD_LEVEL": level}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        result = json.loads(done.stdout)
        assert result["level"] <= level  # the processor may have less
        found[result["level"]] = result
    assert kernel.BACKEND in found
    lowest = found["x86-64-v2"]
    for result in found.values():
        for dtype in DTYPES:
            bound = tolerance(np.array(lowest[dtype][2]), dtype)
            for mine, theirs in zip(result[dtype], lowest[dtype], strict=True):
                assert_near(np.array(mine), np.array(theirs), bound)


NAMES = ("speed", "load", "heat")


def read(row, size=3):
    out = np.full(size, np.nan)
    return _kernel.read_dict(row, NAMES, out, 1e100), out.tolist()


@pytest.mark.parametrize(
    "row",
    [
        {"speed": 1.5, "load": 2, "heat": -1},
        {"heat": -1, "speed": 1.5, "load": 2},
        {"speed": np.float64(1.5), "".join(["lo", "ad"]): 2, "heat": -1.0},
    ],
    ids=["in order", "other order", "equal keys that are other objects"],
)
def test_read_dict_reads_numbers_by_name(row):
    assert read(row) == (True, [1.5, 2.0, -1.0])


@pytest.mark.parametrize(
    "row",
    [
        {"speed": 1.0, "load": 2.0},
        {"speed": 1.0, "load": 2.0, "heat": 3.0, "more": 4.0},
        {"speed": 1.0, "load": 2.0, "cold": 3.0},
        {"speed": 1.0, "load": "2", "heat": 3.0},
        {"speed": 1.0, "load": None, "heat": 3.0},
        {"heat": 1.0, "load": 10**400, "speed": 3.0},
        {"speed": 1.0, "load": -(10**400), "heat": 3.0},
    ],
    ids=["missing", "extra", "other", "string", "none", "huge", "huge and negative"],
)
def test_read_dict_leaves_other_rows_to_its_caller(row):
    assert read(row)[0] is False


@pytest.mark.parametrize("value", [1e101, -1e101, np.inf, -np.inf])
def test_read_dict_leaves_what_is_too_large_to_its_caller(value):
    assert read({"speed": 1.0, "load": value, "heat": 3.0})[0] is False


def test_read_dict_wants_a_place_for_each_name():
    assert read({"speed": 1.0, "load": 2.0, "heat": 3.0}, size=2)[0] is False


def test_a_reader_puts_numbers_where_it_is_told():
    read = _kernel.DictReader(("a", "b", "c"), np.array([2, 0, 1]))
    for row in ({"a": 1.0, "b": 2.0, "c": 3.0}, {"c": 3.0, "a": 1.0, "b": 2.0}):
        assert read(row).tolist() == [2.0, 3.0, 1.0]
    assert read({"a": 1.0, "b": 2.0}) is None
    with pytest.raises(TypeError):
        read([1.0, 2.0, 3.0])
    for wrong in ([0, 1, 3], [-1, 0, 1]):
        with pytest.raises(ValueError, match="a place lies outside"):
            _kernel.DictReader(("a", "b", "c"), np.array(wrong))
    with pytest.raises(ValueError, match="one place a name is needed"):
        _kernel.DictReader(("a", "b", "c"), np.array([0]))


def test_a_reader_sees_every_change_of_a_dict():
    names = tuple("abc")
    read = _kernel.DictReader(names, np.arange(3))
    row = dict.fromkeys(names, 1.0)
    assert read(row).tolist() == read(row).tolist() == [1.0, 1.0, 1.0]
    row["b"] = 2.0
    assert read(row).tolist() == [1.0, 2.0, 1.0]
    row.update(a=5)
    assert read(row).tolist() == [5.0, 2.0, 1.0]
    other = row.copy()
    other["c"] = 7.0
    assert read(other).tolist() == [5.0, 2.0, 7.0]
    assert read(row).tolist() == [5.0, 2.0, 1.0]
    row["b"] = "text"
    assert read(row) is None  # and a part of it is in the row now
    assert read(other).tolist() == [5.0, 2.0, 7.0]
    for t in range(1000):  # each may lie where the one before it lay
        assert read(dict.fromkeys(names, float(t))).tolist() == [t, t, t]


def test_a_copied_reader_has_a_row_of_its_own():
    read = _kernel.DictReader(("a", "b"), np.array([1, 0]))
    row = {"a": 1.0, "b": 2.0}
    mine = read(row)
    for copy in (deepcopy(read), pickle.loads(pickle.dumps(read))):
        assert copy(row).tolist() == [2.0, 1.0]
        copy({"a": 3.0, "b": 4.0})
        assert mine.tolist() == [2.0, 1.0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_constants_of_a_step_are_those_of_the_reference(dtype, monkeypatch):
    x = stream(1, 3)[0]
    monkeypatch.setattr(reference, "LEAST_LEVERAGE", 9.0)
    model = pair(3, 5, dtype, score="combined")[0]
    loss, leverage = np.empty(1), np.empty(1)
    model.score_many(X=x[None].astype(dtype), a=1.0, loss=loss, leverage=leverage)
    assert model.score(x, 1.0) == pytest.approx(float(loss[0]) * np.sqrt(float(leverage[0]) + 9.0))
    monkeypatch.setattr(reference, "LARGEST_LEVERAGE", 1e-30)
    model = pair(3, 5, dtype)[0]
    model.update(x, 1.0)
    assert (model.seen, model.skipped) == (0, 1)
