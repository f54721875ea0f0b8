"""Values of one kind as columns: the arrays of a field of many states, one after the other.

A thousand monitors become some dozen arrays, which are written and read at the speed of memory; as
a thousand model files they would take a hundred times as long. Types of fields say what a column
is, so that a new field of a state needs nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import is_dataclass
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

import numpy as np

from onlad.fields import hints
from onlad.modelfile import need

SCALARS = {bool: "bool", int: "int64", float: "float64"}


def column(hint: Any, values: Sequence[Any]) -> Any:
    """Return values of the type `hint` as a tree of arrays."""
    kind: Any
    kind, optional = _kind(hint)
    if optional:
        there = [value is not None for value in values]
        some = [value for value in values if value is not None]
        return {"there": np.array(there, bool), "of": column(kind, some)}
    if _is_state(kind):
        return {
            name: column(own, [getattr(value, name) for value in values])
            for name, own in hints(kind).items()
        }
    if get_origin(kind) is tuple:
        counts = np.array([len(value) for value in values], "int64")
        return {"rows": counts, "of": column(get_args(kind)[0], [v for vs in values for v in vs])}
    if kind in SCALARS:
        return np.array(values, SCALARS[kind])
    rows = np.array([len(value) for value in values], "int64")
    return {"rows": rows, "of": np.concatenate(values) if len(values) else np.zeros(0)}


def items(hint: Any, tree: Any, count: int) -> list[Any]:
    """Return the `count` values that `column` made a tree of; `ValueError` if it made another."""
    kind: Any
    kind, optional = _kind(hint)
    if optional:
        there, of = _parts(tree, "there", "of")
        _need_array(there, "bool", count)
        some = iter(items(kind, of, int(np.count_nonzero(there))))
        return [next(some) if is_there else None for is_there in there.tolist()]
    if _is_state(kind):
        own = hints(kind)
        parts = zip(own.values(), _parts(tree, *own), strict=True)
        columns = [items(hint, part, count) for hint, part in parts]
        return [kind(*fields) for fields in zip(*columns, strict=True)]
    if get_origin(kind) is tuple:
        rows, of = _parts(tree, "rows", "of")
        ends = _ends(rows, count)
        found = items(get_args(kind)[0], of, int(ends[-1]))
        return [tuple(found[a:b]) for a, b in pairwise(ends)]
    if kind in SCALARS:
        _need_array(tree, SCALARS[kind], count)
        values: list[Any] = tree.tolist()
        return values
    rows, of = _parts(tree, "rows", "of")
    ends = _ends(rows, count)
    fits = isinstance(of, np.ndarray) and of.ndim >= 1 and len(of) == ends[-1]
    need(fits, "an array does not have the rows that it should")
    if count and (rows == rows[0]).all():
        return list(of.reshape(count, int(rows[0]), *of.shape[1:]))
    return [of[a:b] for a, b in pairwise(ends)]


def _is_state(kind: Any) -> bool:
    return is_dataclass(kind)


def _kind(hint: Any) -> tuple[Any, bool]:
    """Return a type without its rules and without None, and whether None was allowed."""
    hint = get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
    parts = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    (kind,) = (part for part in parts if part is not NoneType)
    return kind, NoneType in parts


def _parts(tree: Any, *names: str) -> list[Any]:
    need(type(tree) is dict and tree.keys() == set(names), f"a column has {', '.join(names)}")
    return [tree[name] for name in names]


def _need_array(array: Any, dtype: str, count: int) -> None:
    fits = isinstance(array, np.ndarray) and array.shape == (count,) and array.dtype == dtype
    need(fits, f"a column must hold {count} values of {dtype}")


def _ends(rows: Any, count: int) -> list[int]:
    """Return where each value ends, after a first 0."""
    _need_array(rows, "int64", count)
    need(bool((rows >= 0).all()) and bool((rows < 2**40).all()), "a number of rows is wrong")
    ends: list[int] = np.concatenate(([0], np.cumsum(rows))).tolist()
    return ends
