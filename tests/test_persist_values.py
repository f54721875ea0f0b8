"""Every kind of value in a file."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_files import described, names, numbers, put, refused, same, trained, written
from onlad.modelfile import Record, decode, encode

blocks = st.tuples(
    st.sampled_from(["float64", "float32", "int64", "bool", ">f8"]),
    st.lists(st.integers(0, 3), max_size=4),
    st.integers(0, 9),
).map(lambda t: np.random.default_rng(t[2]).integers(0, 2, t[1]).astype(t[0]))


values = st.recursive(
    numbers | names | blocks | st.just(Record("Policy", {"fields": {"a": -np.inf}})),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(names, inner, max_size=3)
    ),
    max_leaves=8,
)


@given(learned=st.dictionaries(names, values, max_size=4))
def test_every_kind_of_value_comes_back_as_it_was(learned):
    twin = decode(encode(Record("Box", {"learned": learned, "settings": {}})))
    assert same(Record("Box", {"learned": learned, "settings": {}}), twin)


def test_a_number_of_numpy_comes_back_as_one_of_python():
    assert decode(encode(np.bool_(True))) is True
    assert decode(encode((np.float64(0.5), np.int64(3)))) == (0.5, 3)


def test_arrays_that_are_read_can_be_written_to():
    a, b = decode(encode([np.zeros(2), np.array([True])]))
    a[0], b[0] = 1, False


def test_an_array_of_bools_holds_nothing_but_0_and_1():
    header = {"arrays": [{"dtype": "bool", "offset": 0, "shape": [2]}], "model": {"array": 0}}
    assert decode(written(header, bytes([0, 1]) + bytes(62))).tolist() == [False, True]
    with pytest.raises(ValueError, match="array 0 has a bool that is not 0 or 1"):
        decode(written(header, bytes([0, 2]) + bytes(62)))


def test_a_value_that_numpy_shows_in_two_lines_is_refused_in_one(tmp_path):
    header, _ = described(trained(start="nothing"))
    header["arrays"] = [{"dtype": "bool", "offset": 0, "shape": [2, 2]}]
    header = put(header, "model.settings.forgetting.fields.low", {"array": 0})
    refused(tmp_path, written(header, bytes(64)), "low must be int or float, got array([[False")


def test_an_array_that_is_not_used_is_refused(tmp_path):
    header, _ = described(trained(start="nothing"))
    header["arrays"] = [{"dtype": "bool", "offset": 0, "shape": [2]}]
    refused(tmp_path, written(header, bytes(64)), "arrays that belong to nothing")
