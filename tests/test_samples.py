import re

import numpy as np
import pytest

from onlad import samples


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, 3],
        (1.0, 2.0, 3.0),
        np.array([1, 2, 3], "int8"),
        np.array([1, 2, 3], "uint64"),
        np.array([1, 2, 3], "float16"),
        np.array([1, 2, 3], ">f8"),
        np.array([1, 2, 3], "longdouble"),
        np.arange(1.0, 7.0)[::2] / 2 + [0.5, 0.5, 0.5],
        np.array([3.0, 2.0, 1.0])[::-1],
        memoryview(np.array([1.0, 2.0, 3.0])),
    ],
    ids=lambda values: f"{type(values).__name__} {getattr(values, 'dtype', '')}",
)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_one_sample_of_any_real_kind_becomes_a_contiguous_vector(values, dtype):
    x = samples.vector(values, 3, dtype, 1e12)
    np.testing.assert_array_equal(x, [1, 2, 3])
    assert x.dtype == dtype
    assert x.dtype.isnative
    assert x.flags.c_contiguous


def test_booleans_are_zero_and_one():
    np.testing.assert_array_equal(samples.vector([True, False], 2, "float64", 1e100), [1, 0])


@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_of_any_layout_become_a_contiguous_matrix(order):
    X = np.asarray(np.arange(6).reshape(2, 3), order=order)
    found = samples.matrix(X, None, "float32", 1e12)
    np.testing.assert_array_equal(found, X)
    assert found.flags.c_contiguous


def test_no_rows_are_no_error():
    assert samples.matrix(np.empty((0, 3)), 3, "float64", 1e100).shape == (0, 3)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "longdouble"])
@pytest.mark.parametrize(("bad", "shown"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf")])
@pytest.mark.parametrize("largest", [1e12, 1e100])
def test_the_first_number_that_is_not_finite_is_named(dtype, bad, shown, largest):
    X = np.ones((3, 4), dtype)
    X[1, 2] = X[2, 0] = bad
    message = f"X[1, 2] is {shown}: not a finite number. The model is unchanged"
    with pytest.raises(ValueError, match=re.escape(message)):
        samples.matrix(X, 4, "float64", largest)
    with pytest.raises(ValueError, match=re.escape(f"x[2] is {shown}: not a finite number")):
        samples.vector(X[1], 4, "float64", largest)


@pytest.mark.parametrize("bad", [1.5e12, -2e12, 10**13, -(2**63)])
def test_a_number_out_of_range_is_named(bad):
    with pytest.raises(ValueError, match=re.escape(f"x[1] is {bad}: beyond 1e+12")):
        samples.vector(np.array([0, bad, bad]), 3, "float32", 1e12)


@pytest.mark.parametrize("edge", [1e12, -1e12])
def test_the_largest_number_is_taken(edge):
    assert samples.vector([edge], 1, "float64", 1e12) == edge


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1j, 2], "complex128"),
        (["a", "b"], "<U1"),
        ([None, 1.0], "object"),
        ([10**400, 1], "object"),
        (np.array(["2020-01-01", "2020-01-02"], "M8[D]"), "datetime64[D]"),
        (np.array([1, 2], "m8[s]"), "timedelta64[s]"),
        (b"12", "|S2"),
        ({"a": 1.0}, "object"),
    ],
    ids=str,
)
def test_what_is_not_a_real_number_is_named(values, dtype):
    message = f"x must hold real numbers, got dtype {dtype} ({values!r:.60})"
    with pytest.raises(TypeError, match=re.escape(message)):
        samples.vector(values, 2, "float64", 1e100)


def test_rows_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="X is not rectangular: "):
        samples.matrix([[1, 2], [3]], 2, "float64", 1e100)


@pytest.mark.parametrize("shape", [(), (1, 2), (2, 1, 1)])
def test_one_sample_has_one_axis(shape):
    message = f"x must be one sample of shape (n,), got shape {shape}"
    with pytest.raises(ValueError, match=re.escape(message)):
        samples.vector(np.ones(shape), 2, "float64", 1e100)


@pytest.mark.parametrize("shape", [(), (2,), (2, 2, 2)])
def test_many_samples_have_two_axes(shape):
    message = f"X must hold one sample per row, shape (rows, n), got shape {shape}"
    with pytest.raises(ValueError, match=re.escape(message)):
        samples.matrix(np.ones(shape), 2, "float64", 1e100)


def test_another_number_of_features_is_refused():
    for read, values, name in ((samples.vector, [1, 2], "x"), (samples.matrix, [[1, 2]], "X")):
        message = f"{name} has 2 features, but the model was started with 3"
        with pytest.raises(ValueError, match=re.escape(message)):
            read(values, 3, "float64", 1e100)
        np.testing.assert_array_equal(read(values, None, "float64", 1e100), values)


def test_no_features_are_refused():
    with pytest.raises(ValueError, match="x has no features"):
        samples.vector([], None, "float64", 1e100)
    with pytest.raises(ValueError, match="X has no features"):
        samples.matrix(np.empty((2, 0)), None, "float64", 1e100)
