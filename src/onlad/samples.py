"""What a caller gives becomes an array, or an error that says what is wrong and where."""

from __future__ import annotations

from typing import Any

import numpy as np

from onlad.reference import Array


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
    # The sum is finite unless an entry is not, or is enormous: one pass for the usual case.
    if array.size and not abs(float(array.min())) <= largest >= abs(float(array.max())):
        at = tuple(int(i) for i in np.argwhere(~(np.abs(array) <= largest))[0])
        index = ", ".join(map(str, at))
        value = array[at]
        rule = f"beyond {largest:g}" if np.isfinite(value) else "not a finite number"
        raise ValueError(f"{name}[{index}] is {value}: {rule}. The model is unchanged")


def _refuse_other_length(found: int, n_features: int | None, name: str) -> None:
    if n_features is not None and found != n_features:
        raise ValueError(
            f"{name} has {found} features, but the model was started with {n_features}"
        )
    if found == 0:
        raise ValueError(f"{name} has no features")


def vector(x: Any, n_features: int | None, dtype: str, largest: float) -> Array:
    """Return one sample as a contiguous vector of `dtype`."""
    array = numbers(x, "x")
    if array.ndim != 1:
        raise ValueError(f"x must be one sample of shape (n,), got shape {array.shape}")
    _refuse_other_length(array.shape[0], n_features, "x")
    _refuse_bad(array, "x", largest)
    return np.ascontiguousarray(array, dtype)


def matrix(X: Any, n_features: int | None, dtype: str, largest: float) -> Array:
    """Return samples, one a row, as a contiguous matrix of `dtype`."""
    array = numbers(X, "X")
    if array.ndim != 2:
        raise ValueError(f"X must hold one sample a row, shape (rows, n), got shape {array.shape}")
    _refuse_other_length(array.shape[1], n_features, "X")
    _refuse_bad(array, "X", largest)
    return np.ascontiguousarray(array, dtype)
