"""Check arguments and turn them into arrays; an error says what is wrong, and where.

Also what is written about them in words, and sequences whose items are made when they are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, TypeVar, overload

import numpy as np

from onlad.reference import Array

T = TypeVar("T")


class Made(Sequence[T]):
    """A sequence whose items are made by `_item` when they are read."""

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        places = range(len(self))[index]
        return self._item(places) if isinstance(places, int) else list(map(self._item, places))

    def _item(self, place: int) -> T:
        raise NotImplementedError


def choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Refuse an argument that is not one of the words allowed."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")


def whole(name: str, value: object, least: int) -> int:
    """Return an argument as an int of at least `least`, or raise an error."""
    if not (isinstance(value, Integral) and int(value) >= least):
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def is_real(value: object) -> bool:
    """Return whether a value is one real number, of Python's or of NumPy's."""
    return isinstance(value, Real)


def listed(items: Sequence[object], most: int) -> str:
    """Return the first items in words, and how many more there are.

    Examples
    --------
    >>> listed([1, 2, 3], 5), listed(["a", "b", "c"], 2)
    ('1, 2, 3', 'a, b and 1 more')
    """
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(map(str, items[:most])) + more


def numbers(values: Any, name: str) -> Array:
    """Return `values` as a real array, or say what they are instead."""
    try:
        array = np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"{name} is not rectangular: {error}") from None
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype} ({values!r:.60})")
    return array


def _refuse_bad(array: Array, name: str, largest: float) -> None:
    # Extremes first: one pass that makes no array, for the usual case. float() before abs(): a
    # half-precision infinity, or the lowest integer, has no absolute value of its own type.
    if array.size and not (
        abs(float(array.min())) <= largest and abs(float(array.max())) <= largest
    ):
        wide = array.astype("longdouble")
        at = tuple(int(i) for i in np.argwhere(~(np.abs(wide) <= largest))[0])
        index = ", ".join(map(str, at))
        value = array[at]
        rule = f"beyond {largest:g}" if np.isfinite(value) else "not a finite number"
        raise ValueError(f"{name}[{index}] is {value}: {rule}. The model is unchanged")


def vector(x: Any, n_features: int | None, dtype: str, largest: float, name: str = "x") -> Array:
    """Return one sample as a contiguous vector of `dtype`."""
    array = numbers(x, name)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one sample of shape (n,), got shape {array.shape}")
    return _checked(array, n_features, dtype, largest, name)


def matrix(X: Any, n_features: int | None, dtype: str, largest: float, name: str = "X") -> Array:
    """Return samples, one per row, as a contiguous matrix of `dtype`."""
    array = numbers(X, name)
    if array.ndim != 2:
        rule = f"{name} must hold one sample per row, shape (rows, n)"
        raise ValueError(f"{rule}, got shape {array.shape}")
    return _checked(array, n_features, dtype, largest, name)


def _checked(array: Array, n_features: int | None, dtype: str, largest: float, name: str) -> Array:
    found = array.shape[-1]
    if n_features is not None and found != n_features:
        what = f"{name} has {found} features"
        raise ValueError(f"{what}, but the model was started with {n_features}")
    if found == 0:
        raise ValueError(f"{name} has no features")
    _refuse_bad(array, name, largest)
    return np.ascontiguousarray(array, dtype)
