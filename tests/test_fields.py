"""Fields of a state: what each may hold, and its way to a file and back."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import pytest

from onlad.fields import Numbers, Within, check, read, values
from onlad.reference import Array


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    count: Annotated[int, Within(1, "most")]

    def check(self, most):
        check(self, {"most": most})


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """A state with a field of each kind."""

    size: Annotated[float, Within(0, 4.0)]
    kind: Literal["one", "other"]
    rows: Annotated[Array, Numbers((range(1, 4), "n"), low=0, high=9)]
    shaped: Annotated[Array, Numbers(("shape",), "int64")]
    parts: tuple[Part | None, ...]
    last: Part | None
    late: Annotated[Array | None, Numbers((2,), missing=True)] = None

    def check(self):
        check(self, {"n": 2, "shape": (1, 2)})


def whole(**changes):
    found = {
        "size": 1.0,
        "kind": "one",
        "rows": np.ones((3, 2)),
        "shaped": np.ones((1, 2), "int64"),
        "parts": [{"count": 1}, None],
        "last": None,
    }
    return found | changes


def test_a_state_comes_back_from_its_values():
    for found in (whole(), whole(last={"count": 3}, late=np.array([np.nan, 1.0]))):
        state = read(Whole, found, "state")
        state.check()
        assert state.parts[0].count == 1
        np.testing.assert_equal(values(state), found)


def test_a_field_that_is_none_by_default_is_left_out():
    assert "late" not in values(read(Whole, whole(), "state"))
    with pytest.raises(ValueError, match="late must be ndarray, got None"):
        read(Whole, whole(late=None), "state")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"size": 1}, "size must be float, got 1"),
        ({"size": 4.5}, "size must be in [0, 4], got 4.5"),
        ({"size": np.nan}, "size must be in [0, 4], got nan"),
        ({"kind": "third"}, "kind must be one of one, other; got 'third'"),
        ({"kind": 1}, "kind must be str, got 1"),
        ({"rows": np.ones((4, 2))}, "rows must have shape (3, 2), got (4, 2)"),
        ({"rows": np.ones((0, 2))}, "rows must have shape (1, 2), got (0, 2)"),
        ({"rows": np.ones(())}, "rows must have shape (1, 2), got ()"),
        ({"rows": np.ones((1, 2), "float32")}, "rows must be float64, got float32"),
        ({"rows": np.full((1, 2), np.nan)}, "rows holds a number that is not finite"),
        ({"rows": np.full((1, 2), 9.5)}, "rows holds a number that is not in [0, 9]"),
        ({"shaped": np.ones(2, "int64")}, "shaped must have shape (1, 2), got (2,)"),
        ({"late": np.full(2, np.inf)}, "late holds a number that is not finite"),
        ({"parts": {}}, "parts must be list, got {}"),
        ({"parts": [1]}, "part must be a dict, got 1"),
        ({"parts": [{}]}, "missing in part or not known: ['count']"),
        ({"last": {"more": 1}}, "missing in last or not known: ['count', 'more']"),
        ({"last": 1}, "last must be dict or NoneType, got 1"),
        ({"more": 1}, "missing in state or not known: ['more']"),
    ],
)
def test_a_state_that_cannot_be_is_refused_with_its_reason(changes, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        read(Whole, whole(**changes), "state").check()


def test_an_end_may_be_a_size():
    with pytest.raises(ValueError, match=re.escape("count must be in [1, 2], got 3")):
        Part(3).check(2)
    with pytest.raises(ValueError, match=re.escape("count must be in [1, 2^62], got 0")):
        Part(0).check(2**62)


def test_every_row_of_a_long_array_is_looked_at():
    rows = np.zeros((3000, 1))
    rows[2999] = np.inf
    with pytest.raises(ValueError, match="rows holds a number that is not finite"):
        Numbers((3000, 1)).check("rows", rows)
