"""Rules for the values in a model file: names, types, shapes and ranges.

Each raises `ValueError` with the rule that does not hold. None trusts the type of what it is given.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from onlad.modelfile import Values, need, short

LARGEST_COUNT = 2**62  # no stream gets there, and the next count still fits in an int64

Types: TypeAlias = dict[str, tuple[type, ...]]


def need_types(what: str, values: Any, types: Types) -> Values:
    """Insist on a dict with these names, each with a value of one of its types; return it."""
    need(type(values) is dict, f"{what} must be a dict, got {short(values)}")
    strange = sorted(values.keys() ^ types.keys())
    need(not strange, f"missing in {what} or not known: {short(strange)}")
    for name, allowed in types.items():
        if type(values[name]) not in allowed:  # a message costs time: it would print an array
            wanted = " or ".join(kind.__name__ for kind in allowed)
            raise ValueError(f"{name} must be {wanted}, got {short(values[name])}")
    return dict(values)


def need_count(name: str, value: int, low: int = 0, high: int = LARGEST_COUNT) -> None:
    """Insist on a whole number from `low` to `high`."""
    ends = f"[{low}, {'2^62' if high == LARGEST_COUNT else high}]"
    need(low <= value <= high, f"{name} must be in {ends}, got {value}")


def need_array(
    name: str,
    array: Any,
    shape: tuple[int, ...],
    dtype: str = "float64",
    *,
    low: float | None = None,
    high: float = math.inf,
    missing: bool = False,
) -> None:
    """Insist on finite numbers from `low`, by default -high, to `high`, or NaN if `missing`."""
    need(array.shape == shape, f"{name} must have shape {shape}, got {array.shape}")
    need(array.dtype.name == dtype, f"{name} must be {dtype}, got {array.dtype}")
    finite = np.isfinite(array) | (np.isnan(array) & missing)
    need(bool(finite.all()), f"{name} holds a number that is not finite")
    low = -high if low is None else low
    outside = (array < low) | (array > high)
    need(not outside.any(), f"{name} holds a number that is not in [{low:g}, {high:g}]")
