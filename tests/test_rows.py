import re
from collections import OrderedDict
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlad.rows import LARGEST, read_many, read_one

NAMES = ("flow", "power", "heat")
NAN = np.nan


class Frame:
    """What the readers use of a data frame, and no more."""

    def __init__(self, data):
        self.data = {name: np.asarray(column) for name, column in data.items()}
        self.columns = list(data)

    def __repr__(self):  # one name in all processes that run the tests
        return f"Frame({', '.join(map(str, self.columns))})"

    def to_numpy(self):
        return np.column_stack(list(self.data.values()))

    def __getitem__(self, name):
        return self.data[name]


ONE = {
    "dict": {"flow": 1.5, "power": 2, "heat": -3.0},
    "dict in another order": {"heat": -3, "flow": 1.5, "power": 2.0},
    "ordered dict": OrderedDict(power=2.0, flow=1.5, heat=-3.0),
    "mapping": MappingProxyType({"heat": -3.0, "power": 2.0, "flow": 1.5}),
    "dict of NumPy numbers": {
        "flow": np.float32(1.5),
        "power": np.int64(2),
        "heat": np.float64(-3),
    },
    "list": [1.5, 2, -3],
    "tuple": (1.5, 2.0, -3.0),
    "array": np.array([1.5, 2.0, -3.0]),
    "float32 array": np.array([1.5, 2.0, -3.0], "float32"),
    "half precision": np.array([1.5, 2.0, -3.0], "float16"),
    "every second of an array": np.array([1.5, 9, 2.0, 9, -3.0, 9])[::2],
}


@pytest.mark.parametrize("kind", ONE)
def test_every_kind_of_sample_is_the_same_row(kind):
    row, names = read_one(ONE[kind], NAMES)
    assert row.tolist() == [1.5, 2.0, -3.0]
    assert row.dtype == "float64"
    assert names == NAMES


@pytest.mark.parametrize(
    ("x", "names"),
    [
        ({"b": 1, "a": 2}, ("b", "a")),
        (MappingProxyType({"b": 1, 7: 2}), ("b", 7)),
        ([1, 2], (0, 1)),
        (np.array([1.0, 2.0]), (0, 1)),
    ],
)
def test_names_are_those_of_the_first_sample(x, names):
    row, found = read_one(x, ())
    assert found == names
    assert row.tolist() == [1.0, 2.0]
    many, found = read_many([x, x], ())
    assert found == names
    assert many.tolist() == [[1.0, 2.0]] * 2


@pytest.mark.parametrize(
    "x",
    [
        {"flow": 1.0, "power": None, "heat": 3.0},
        {"flow": 1.0, "power": NAN, "heat": 3.0},
        {"heat": 3.0, "flow": 1.0},
        MappingProxyType({"heat": 3.0, "flow": 1.0, "power": None}),
        MappingProxyType({"heat": 3.0, "flow": 1.0}),
        [1.0, None, 3.0],
        (1, None, 3),
        [1.0, NAN, 3.0],
        np.array([1.0, NAN, 3.0]),
    ],
    ids=str,
)
def test_none_nan_and_an_absent_name_are_a_missing_value(x):
    row, _ = read_one(x, NAMES)
    np.testing.assert_array_equal(row, [1.0, NAN, 3.0])
    many, _ = read_many([x], NAMES)
    np.testing.assert_array_equal(many, [[1.0, NAN, 3.0]])


def test_an_empty_mapping_is_a_sample_of_which_nothing_is_known():
    row, names = read_one({}, NAMES)
    assert names == NAMES
    np.testing.assert_array_equal(row, [NAN] * 3)


numbers = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(-1e100, 1e100),
    st.just(NAN),
)


@given(st.dictionaries(st.text(max_size=3), numbers, min_size=1, max_size=6), st.randoms())
def test_the_order_of_a_mapping_says_nothing(x, random):
    row, names = read_one(x, ())
    shuffled = list(x)
    random.shuffle(shuffled)
    again, same = read_one({name: x[name] for name in shuffled}, names)
    assert same == names == tuple(x)
    np.testing.assert_array_equal(again, row)
    slow, _ = read_one(MappingProxyType(x), names)
    np.testing.assert_array_equal(slow, row)
    listed, _ = read_one(list(x.values()), ())
    np.testing.assert_array_equal(listed, row)


@pytest.mark.parametrize(
    ("x", "kind", "message"),
    [
        (
            {"flow": 1, "power": 2, "speed": 3},
            ValueError,
            "x has a feature 'speed' that the stream did not start with",
        ),
        (
            {"flow": 1, "power": 2, "heat": 3, "speed": 3},
            ValueError,
            "x has a feature 'speed' that the stream did not start with",
        ),
        (
            {"flow": 1, "power": "2", "heat": 3},
            TypeError,
            "feature 'power' must be a number or missing, got '2'",
        ),
        (
            {"flow": 1, "power": b"2", "heat": 3},
            TypeError,
            "feature 'power' must be a number or missing, got b'2'",
        ),
        (
            {"flow": 1, "power": 2j, "heat": 3},
            TypeError,
            "feature 'power' must be a number or missing, got 2j",
        ),
        (
            {"flow": 1, "power": [2], "heat": 3},
            TypeError,
            "feature 'power' must be a number or missing, got [2]",
        ),
        (
            {"flow": 1, "power": 10**400, "heat": 3},
            TypeError,
            "feature 'power' must be a number or missing, got 1000",
        ),
        (
            [1, None, "3"],
            TypeError,
            "feature 2 must be a number or missing, got '3'",
        ),
        (
            {"flow": 1, "power": np.inf, "heat": 3},
            ValueError,
            "feature 'power' is inf: no measurement. The monitor is unchanged",
        ),
        (
            [1, 2, -np.inf],
            ValueError,
            "feature 'heat' is -inf: no measurement. The monitor is unchanged",
        ),
        (
            np.array([1, 1e101, 2]),
            ValueError,
            "feature 'power' is 1e+101: no measurement. The monitor is unchanged",
        ),
        ([1, 2], ValueError, "x has 2 features, but the stream has 3"),
        ([1, 2, 3, 4], ValueError, "x has 4 features, but the stream has 3"),
        ([1, None], ValueError, "x has 2 features, but the stream has 3"),
        ([], ValueError, "x has 0 features, but the stream has 3"),
        ([[1, 2, 3]], ValueError, "x must be one sample of shape (n,), got shape (1, 3)"),
        (5.0, ValueError, "x must be one sample of shape (n,), got shape ()"),
        ([1, [2, 3], 4], ValueError, "x is not rectangular: "),
        ("abc", TypeError, "x must be a sequence of numbers or a mapping, got 'abc'"),
        (b"abc", TypeError, "x must be a sequence of numbers or a mapping, got b'abc'"),
        (["1", "2", "3"], TypeError, "x must hold real numbers, got dtype <U1 (['1', '2', '3'])"),
        ([1j, 2, 3], TypeError, "x must hold real numbers, got dtype complex128 ([1j, 2, 3])"),
        (None, TypeError, "x must hold real numbers, got dtype object (None)"),
        ({1, 2, 3}, TypeError, "x must hold real numbers, got dtype object ({1, 2, 3})"),
        (
            np.array(["2024-01-01"] * 3, "datetime64[D]"),
            TypeError,
            "x must hold real numbers, got dtype datetime64[D]",
        ),
    ],
    ids=lambda value: f"{value!r:.30}",
)
def test_what_is_no_sample_is_refused(x, kind, message):
    with pytest.raises(kind, match="^" + re.escape(message)):
        read_one(x, NAMES)
    with pytest.raises(kind, match="^row 2: " + re.escape(message)):
        read_many([[1, 2, 3], [1, 2, 3], x], NAMES)


@pytest.mark.parametrize("x", [{}, [], (), np.empty(0)], ids=repr)
def test_a_first_sample_has_features(x):
    with pytest.raises(ValueError, match=r"^x has no features$"):
        read_one(x, ())


def test_the_largest_measurement_is_taken():
    row, _ = read_one([LARGEST, -LARGEST], ())
    assert row.tolist() == [1e100, -1e100]


MANY = {
    "matrix": np.array([[1.0, 2.0, 3.0], [4.0, NAN, 6.0]]),
    "float32 matrix": np.array([[1.0, 2.0, 3.0], [4.0, NAN, 6.0]], "float32"),
    "Fortran order": np.array([[1.0, 2.0, 3.0], [4.0, NAN, 6.0]], order="F"),
    "lists": [[1, 2, 3], [4, None, 6]],
    "object matrix": np.array([[1, 2, 3], [4, NAN, 6]], object).tolist(),
    "dicts": [{"power": 2, "flow": 1, "heat": 3}, {"flow": 4.0, "heat": 6.0}],
    "kinds mixed": [[1, 2, 3], {"heat": 6, "flow": 4, "power": None}],
    "frame": Frame({"flow": [1, 4], "power": [2, NAN], "heat": [3, 6]}),
    "frame in another order": Frame({"heat": [3, 6], "flow": [1, 4], "power": [2, NAN]}),
}


@pytest.mark.parametrize("kind", MANY)
def test_every_kind_of_many_is_the_same_matrix(kind):
    X, names = read_many(MANY[kind], NAMES)
    np.testing.assert_array_equal(X, [[1.0, 2.0, 3.0], [4.0, NAN, 6.0]])
    assert X.dtype == "float64"
    assert names == NAMES


def test_many_are_any_iterable():
    X, names = read_many(({"a": t} for t in range(3)), ())
    assert (X.tolist(), names) == ([[0.0], [1.0], [2.0]], ("a",))


def test_names_of_many_are_those_of_the_frame_or_numbers():
    assert read_many(Frame({"b": [1.0], "a": [2.0]}), ())[1] == ("b", "a")
    assert read_many(np.ones((2, 3)), ())[1] == (0, 1, 2)


def test_a_matrix_is_not_changed_by_its_reader():
    X = np.ones((2, 3))
    read_many(X, ())[0][:] = 5.0
    assert (X == 1.0).all()


@pytest.mark.parametrize(
    ("X", "kind", "message"),
    [
        (np.ones(3), ValueError, "X must hold one sample per row, got shape (3,)"),
        (np.ones((2, 3, 1)), ValueError, "X must hold one sample per row, got shape (2, 3, 1)"),
        (np.ones((2, 4)), ValueError, "X has 4 features, but the stream has 3"),
        (np.ones((2, 3), complex), TypeError, "X must hold real numbers, got dtype complex128"),
        (np.full((2, 3), "a"), TypeError, "X must hold real numbers, got dtype <U1"),
        (
            np.array([[1, 2, 3], [4, 5, np.inf]]),
            ValueError,
            "feature 'heat' of row 1 is inf: no measurement. The monitor is unchanged",
        ),
        (
            np.array([[1, 2, 3], [4, -2e100, 5], [np.inf] * 3]),
            ValueError,
            "feature 'power' of row 1 is -2e+100: no measurement. The monitor is unchanged",
        ),
        (
            Frame({"flow": [1.0], "power": [2.0]}),
            ValueError,
            "the frame and the stream do not share [\"'heat'\"]",
        ),
        (
            Frame({"flow": [1.0], "power": [2.0], "speed": [3.0]}),
            ValueError,
            "the frame and the stream do not share [\"'heat'\", \"'speed'\"]",
        ),
        (
            Frame({"flow": [1.0, np.inf], "power": [2.0, 1], "heat": [3.0, 4.0]}),
            ValueError,
            "feature 'flow' of row 1 is inf: no measurement. The monitor is unchanged",
        ),
    ],
    ids=lambda value: f"{value!r:.40}",
)
def test_what_is_not_many_samples_is_refused(X, kind, message):
    with pytest.raises(kind, match="^" + re.escape(message)):
        read_many(X, NAMES)


def test_a_matrix_without_features_is_refused():
    with pytest.raises(ValueError, match=r"^X has no features$"):
        read_many(np.empty((2, 0)), ())


@pytest.mark.parametrize("X", [np.empty((0, 3)), [], ()], ids=repr)
def test_no_rows_are_no_samples(X):
    found, names = read_many(X, NAMES)
    assert found.shape == (0, 3)
    assert names == NAMES


def test_a_frame_column_is_read_like_a_feature():
    matrix, _ = read_many(Frame({"flow": np.array([1.0, None], object), "power": [1, 2]}), ())
    np.testing.assert_array_equal(matrix, [[1.0, 1.0], [np.nan, 2.0]])
    with pytest.raises(TypeError, match="must be a number or missing, got 'high'"):
        read_many(Frame({"flow": np.array(["high"], object)}), ())
    with pytest.raises(TypeError, match="feature 'flow' must hold numbers, got dtype complex128"):
        read_many(Frame({"flow": [1j]}), ())
    with pytest.raises(ValueError, match="X has no features"):
        read_many(Frame({}), ())
