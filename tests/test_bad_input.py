import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from checks import stream
from onlad import Monitor, kernel
from onlad.detector import Detector
from onlad.errors import NotInModelError
from onlad.fields import values
from onlad.forgetting import Adaptive

SETTINGS = {
    "float64": {},
    "float32": {"dtype": "float32"},
    "follows": {"forgetting": Adaptive()},
}
BAD_ONE = {
    "scalar": 1.0,
    "two rows": np.ones((2, 3)),
    "one row": np.ones((1, 3)),
    "too few": np.ones(2),
    "too many": [1.0, 2.0, 3.0, 4.0],
    "empty": [],
    "nan": [0.1, np.nan, 0.1],
    "nan in float32": np.array([0.1, np.nan, 0.1], "float32"),
    "nan in float16": np.array([0.1, np.nan, 0.1], "float16"),
    "inf": np.array([0.1, 0.1, np.inf]),
    "-inf": np.array([-np.inf, 0.1, 0.1]),
    "complex": np.array([1j, 1, 1]),
    "objects": np.array([1.0, object(), 1.0]),
    "strings": ["1", "2", "3"],
    "string": "abc",
    "bytes": b"abc",
    "ragged": [1.0, [2.0], 3.0],
    "none": None,
    "with none": [1.0, None, 1.0],
    "dates": np.array(["2020-01-01"] * 3, "M8[D]"),
    "dict": {"a": 1.0, "b": 2.0, "c": 3.0},
    "too large": [0.1, 1e200, 0.1],
    "too large and negative": np.array([0.1, -1e200, 0.1]),
    "an integer beyond": [1, 10**400, 1],
}
BAD_MANY = {
    "scalar": 1.0,
    "one sample": np.ones(3),
    "three axes": np.ones((2, 2, 3)),
    "too few": np.ones((4, 2)),
    "too many": np.ones((4, 4)),
    "none of other length": np.ones((0, 4)),
    "empty": [],
    "no features": np.ones((4, 0)),
    "nan last": np.vstack([np.ones((40, 3)), [[0.1, 0.1, np.nan]]]),
    "inf in float32": np.array([[0.1, np.inf, 0.1]], "float32"),
    "complex": np.ones((2, 3), "complex64"),
    "objects": np.full((2, 3), object()),
    "strings": [["1", "2", "3"]],
    "ragged": [[1.0, 2.0, 3.0], [1.0, 2.0]],
    "none": None,
    "too large": np.array([[0.1, 0.1, 0.1], [0.1, 1e200, 0.1]]),
}


def trained(name="float64"):
    detector = Detector(n_hidden=6, **SETTINGS[name])
    detector.learn_many(stream(30))
    return detector


def bits(detector):
    learned = values(detector.learned()) or {}
    return {name: np.asarray(value).tobytes() for name, value in learned.items()}


def assert_refused_and_unchanged(detector, methods, values):
    before = bits(detector)
    for method in methods:
        with pytest.raises((TypeError, ValueError), match=r"\b[xX]\b"):
            getattr(detector, method)(values)
        assert bits(detector) == before
    assert detector.update_one(stream(1)[0]) == trained_update(detector)


def trained_update(detector):
    """Return the score that a model which never saw bad input gives next."""
    name = {"float32": "float32"}.get(detector.dtype, "float64")
    return trained("follows" if detector._follows else name).update_one(stream(1)[0])


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("values", BAD_ONE.values(), ids=BAD_ONE)
def test_a_bad_sample_leaves_the_model_as_it_was(values, name):
    methods = ["update_one", "learn_one", "score_one", "unlearn"]
    assert_refused_and_unchanged(trained(name), methods, values)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("values", BAD_MANY.values(), ids=BAD_MANY)
def test_bad_rows_leave_the_model_as_it_was(values, name):
    methods = ["update_many", "learn_many", "score_many"]
    assert_refused_and_unchanged(trained(name), methods, values)


@pytest.mark.parametrize(
    "name", sorted(BAD_MANY.keys() - {"too few", "too many", "none of other length"})
)
def test_a_bad_fit_leaves_the_model_as_it_was(name):
    assert_refused_and_unchanged(trained(), ["fit"], BAD_MANY[name])


@pytest.mark.parametrize("name", sorted(BAD_ONE.keys() - {"too few", "too many"}))
def test_a_bad_first_sample_starts_nothing(name):
    detector = Detector(n_hidden=6)
    for method in ("update_one", "learn_one", "score_one", "unlearn"):
        with pytest.raises((TypeError, ValueError)):
            getattr(detector, method)(BAD_ONE[name])
    assert detector.n_features is None


@pytest.mark.parametrize("bad", [1e13, -1e13, -(2**63)])
def test_what_only_float32_cannot_square_is_refused_by_float32_only(bad):
    values = np.array([1, bad, 1])
    methods = ["update_one", "learn_one", "score_one", "unlearn"]
    assert_refused_and_unchanged(trained("float32"), methods, values)
    assert_refused_and_unchanged(trained("float32"), ["update_many", "score_many"], values[None])
    assert np.isfinite(trained().update_one(values))


@pytest.mark.parametrize("activation", ["sigmoid", "identity", "relu", "tanh"])
@pytest.mark.parametrize(("dtype", "largest"), kernel.LARGEST.items())
def test_the_largest_number_that_is_taken_gives_a_finite_score(dtype, largest, activation):
    detector = Detector(n_hidden=6, dtype=dtype, activation=activation)
    detector.learn_many(stream(30))
    for sign in (1, -1):
        assert np.isfinite(detector.update_one(np.full(3, sign * largest)))
        assert np.isfinite(detector.update_many(np.full((2, 3), sign * largest))).all()
    assert all(np.isfinite(array).all() for array in detector.state)


ANY_SAMPLE = st.one_of(
    arrays.arrays(
        arrays.scalar_dtypes(), arrays.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=4)
    ),
    st.lists(st.one_of(st.floats(), st.integers(), st.none(), st.text(max_size=2)), max_size=4),
)


@pytest.mark.parametrize("name", SETTINGS)
@given(values=ANY_SAMPLE)
def test_any_value_is_scored_or_refused_and_the_model_stays_finite(name, values):
    detector = trained(name)
    before = bits(detector)
    try:
        score = detector.update_one(values)
    except (TypeError, ValueError):
        assert bits(detector) == before
        return
    assert np.shape(values) == (3,)
    assert score >= 0
    assert all(np.isfinite(array).all() for array in detector.state)


@pytest.fixture(scope="module")
def monitor():
    return Monitor(warmup=64).fit(stream(200))


@given(values=ANY_SAMPLE)
def test_any_value_is_judged_by_a_monitor_or_refused_and_nothing_else_changes(monitor, values):
    before = pickle.dumps(monitor.learned())
    twin = copy.deepcopy(monitor)
    try:
        verdict = twin.observe(values)
    except (TypeError, ValueError):
        assert pickle.dumps(twin.learned()) == before
        with pytest.raises((TypeError, ValueError)):
            twin.observe_many([stream(1)[0], values])
        assert pickle.dumps(twin.learned()) == before
        return
    assert np.shape(values) == (3,)
    assert np.isfinite(verdict.score)
    assert twin.n_seen == monitor.n_seen + 1


def same_numbers():
    """Return one matrix in many layouts and types."""
    X = np.random.default_rng(0).integers(0, 2, (40, 3)).astype(float)
    wide, frozen = np.zeros((80, 6)), X.copy()
    wide[::2, ::2] = X
    frozen.flags.writeable = False
    kinds = ["float32", "float16", "longdouble", "int8", "uint64", "bool", ">f8", ">i2", "<f4"]
    return {
        "fortran": np.asfortranarray(X),
        "strided": wide[::2, ::2],
        "negative strides": X[::-1, ::-1].copy()[::-1, ::-1],
        "read-only": frozen,
        "lists": X.tolist(),
        "tuples": tuple(map(tuple, X)),
        "list of arrays": list(X),
        **{kind: X.astype(kind) for kind in kinds},
    }


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("layout", same_numbers())
def test_equal_numbers_in_any_layout_give_equal_scores(layout, dtype):
    X = same_numbers()[layout]
    plain = np.ascontiguousarray(X, "float64")
    one, other, many = (Detector(n_hidden=6, dtype=dtype) for _ in range(3))
    expected = [one.update_one(x) for x in plain]
    assert [other.update_one(x) for x in X] == expected
    np.testing.assert_array_equal(many.update_many(X), expected)
    np.testing.assert_array_equal(many.score_many(X), one.score_many(plain))
    assert [other.score_one(x) for x in X] == [one.score_one(x) for x in plain]
    other.unlearn(X[5])
    one.unlearn(plain[5])
    assert bits(other) == bits(one)
    assert bits(other.fit(X)) == bits(one.fit(plain))


def test_samples_are_read_and_not_kept():
    detector, x = trained(), stream(1)[0]
    kept = x.copy()
    detector.update_one(x)
    detector.update_many(x[None])
    np.testing.assert_array_equal(x, kept)
    before = bits(detector)
    x[:] = 9
    assert bits(detector) == before


@pytest.mark.parametrize("name", SETTINGS)
def test_no_rows_are_no_error_and_change_nothing(name):
    for detector in (trained(name), Detector(**SETTINGS[name])):
        before = bits(detector)
        assert detector.update_many(np.empty((0, 3))).shape == (0,)
        assert detector.score_many(np.empty((0, 3))).shape == (0,)
        detector.learn_many(np.empty((0, 3)))
        assert bits(detector) == before


def test_unlearning_before_the_first_sample_is_refused():
    detector = Detector()
    with pytest.raises(NotInModelError):
        detector.unlearn([1.0, 2.0])
    assert detector.n_features is None
