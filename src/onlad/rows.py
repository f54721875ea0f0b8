"""Read samples: sequences, arrays, mappings and data frames, with missing values."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from onlad import kernel, samples
from onlad._kernel import read_dict
from onlad.reference import Array

Names: TypeAlias = tuple[Hashable, ...]

LARGEST = kernel.LARGEST["float64"]  # a larger value is an error, not a measurement


def read_one(x: Any, names: Names) -> tuple[Array, Names]:
    """Return one sample as a vector in the order of `names`, NaN where a value is missing.

    Without `names` they are those of `x`: the keys of a mapping, or 0, 1, 2 ...
    """
    if isinstance(x, Mapping):
        names = names or tuple(x)
        row: Array = np.empty(len(names))
        if type(x) is dict and names and read_dict(x, names, row, LARGEST):
            return row, names
        row = _from_mapping(x, names)
    else:
        row = _from_sequence(x)
        names = names or tuple(range(len(row)))
        if len(row) != len(names):
            raise ValueError(f"x has {len(row)} features, but the stream has {len(names)}")
    if not names:
        raise ValueError("x has no features")
    _refuse_infinite(row[None, :], names)
    return row, names


def read_many(X: Any, names: Names) -> tuple[Array, Names]:
    """Return samples as a matrix, one per row; `X` is a matrix, a data frame or an iterable."""
    if hasattr(X, "columns") and hasattr(X, "to_numpy"):
        columns = tuple(X.columns)
        names = names or columns
        if strange := set(columns) ^ set(names):
            raise ValueError(f"the frame and the stream do not share {sorted(map(repr, strange))}")
        found = [_column(X[name], name) for name in names]
        matrix = np.column_stack(found) if found else np.empty((0, 0))
    elif isinstance(X, np.ndarray) and X.dtype != object:
        matrix = samples.numbers(X, "X").astype("float64")
        if matrix.ndim != 2:
            raise ValueError(f"X must hold one sample per row, got shape {matrix.shape}")
        names = names or tuple(range(matrix.shape[1]))
        if matrix.shape[1] != len(names):
            raise ValueError(f"X has {matrix.shape[1]} features, but the stream has {len(names)}")
    else:
        return _read_each(X, names)
    if not names:
        raise ValueError("X has no features")
    _refuse_infinite(matrix, names)
    return matrix, names


def _read_each(X: Iterable[Any], names: Names) -> tuple[Array, Names]:
    rows = []
    for t, x in enumerate(X):
        try:
            row, names = read_one(x, names)
        except (TypeError, ValueError) as error:
            raise type(error)(f"row {t}: {error}") from None
        rows.append(row)
    return np.array(rows).reshape(len(rows), len(names)), names


def _column(values: Any, name: Hashable) -> Array:
    array = np.asarray(values)
    if array.dtype == object:
        return np.array([_number(value, name) for value in array], dtype="float64")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"feature {name!r} must hold numbers, got dtype {array.dtype}")
    return array.astype("float64")


def _from_mapping(x: Mapping[Hashable, Any], names: Names) -> Array:
    unknown = [name for name in x if name not in names]
    if unknown:
        raise ValueError(f"x has a feature {unknown[0]!r} that the stream did not start with")
    return np.array([_number(x.get(name), name) for name in names], dtype="float64")


def _from_sequence(x: Any) -> Array:
    if isinstance(x, (str, bytes)):
        raise TypeError(f"x must be a sequence of numbers or a mapping, got {x!r:.60}")
    if isinstance(x, (list, tuple)) and any(value is None for value in x):
        return np.array([_number(value, i) for i, value in enumerate(x)], dtype="float64")
    array = samples.numbers(x, "x")
    if array.ndim != 1:
        raise ValueError(f"x must be one sample of shape (n,), got shape {array.shape}")
    return array.astype("float64")


def _number(value: Any, name: Hashable) -> float:
    if value is None:
        return math.nan
    if not isinstance(value, (str, bytes)):
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError):
            pass
    raise TypeError(f"feature {name!r} must be a number or missing, got {value!r:.60}")


def _refuse_infinite(X: Array, names: Names) -> None:
    bad = np.abs(X) > LARGEST  # never true of NaN
    if np.count_nonzero(bad):
        t, j = np.argwhere(bad)[0]
        where = f"feature {names[j]!r}" + (f" of row {t}" if len(X) > 1 else "")
        raise ValueError(f"{where} is {X[t, j]}: no measurement. The monitor is unchanged")
