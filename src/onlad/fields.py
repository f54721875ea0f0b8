"""Fields of a state: what each may contain, and how it is stored in a file.

A state is a frozen dataclass. The type of a field says what it is, and a rule beside the type,
`Within` or `Numbers`, which values are allowed. So a field is described once: `check` applies the
rules, `values` and `read` use the types to convert to a file and back. A field whose default is
None is omitted from a file while it is None.
"""

from __future__ import annotations

import functools
import math
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args, get_origin

import numpy as np

from onlad import samples
from onlad.forgetting import POLICIES, Forgetting
from onlad.modelfile import Values, need, short
from onlad.reference import Array

T = TypeVar("T")
Size: TypeAlias = int | tuple[int, ...]
Sizes: TypeAlias = Mapping[str, Size]

NONE: Sizes = {}

LARGEST_COUNT = 2**62  # no stream gets there, and the next count still fits in an int64
AT_ONCE = 1024  # rows of an array that are checked together: it may be a map of a large file


class Within(NamedTuple):
    """The rule of a number: from `low` to `high`, or to the size of that name."""

    low: float
    high: float | str = LARGEST_COUNT

    def check(self, name: str, value: float | None, sizes: Sizes = NONE, dtype: str = "") -> None:
        """Refuse a number outside."""
        high: Any = sizes[self.high] if isinstance(self.high, str) else self.high
        if value is not None and not self.low <= value <= high:
            raise ValueError(f"{name} must be in [{_end(self.low)}, {_end(high)}], got {value}")


class Numbers(NamedTuple):
    """The rule of an array: finite numbers from `low`, by default -high, to `high`.

    `shape` has lengths, ranges of lengths, and names of sizes that are known when a state is
    checked; such a size may be a whole shape. Without a `dtype` it is that of the state.
    """

    shape: tuple[int | range | str, ...]
    dtype: str | None = None
    low: float | None = None
    high: float | str = math.inf
    missing: bool = False  # whether NaN is allowed

    def check(
        self, name: str, array: Array | None, sizes: Sizes = NONE, dtype: str = "float64"
    ) -> None:
        """Refuse an array of another shape or type, or with another number."""
        if array is None:
            return
        high: Any = sizes[self.high] if isinstance(self.high, str) else self.high
        low = -high if self.low is None else self.low
        shape, dtype = _shape(self.shape, array, sizes), self.dtype or dtype
        need(array.shape == shape, f"{name} must have shape {shape}, got {array.shape}")
        need(array.dtype.name == dtype, f"{name} must be {dtype}, got {array.dtype}")
        for first in range(0, len(array), AT_ONCE):
            part = array[first : first + AT_ONCE]
            finite = np.isfinite(part) | (np.isnan(part) & self.missing)
            need(bool(finite.all()), f"{name} holds a number that is not finite")
            if high < math.inf or low > -math.inf:
                outside = (part < low) | (part > high)
                rule = f"{name} holds a number that is not in [{low:g}, {high:g}]"
                need(not outside.any(), rule)


def check(state: object, sizes: Sizes = NONE, dtype: str = "float64") -> None:
    """Refuse, with `ValueError`, a state with a field that its rule does not allow.

    `sizes` has the lengths and ends that rules name.
    """
    for name, hint in hints(type(state)).items():  # type: ignore[arg-type]
        value = getattr(state, name)
        origin: Any = get_origin(hint)
        if origin is Literal:
            samples.choice(name, value, get_args(hint))
        for rule in getattr(hint, "__metadata__", ()):
            rule.check(name, value, sizes, dtype)


# -- to a file and back -----------------------------------------------------------------------


def values(state: Any) -> Any:
    """Return a state as a file has it: a dict for each state, a list for each tuple."""
    if isinstance(state, tuple):
        return [values(item) for item in state]
    if not (is_dataclass(state) and hasattr(state, "check")):  # a policy is no state
        return state
    held = ((field, getattr(state, field.name)) for field in fields(state))
    return {f.name: values(v) for f, v in held if not (v is None and f.default is None)}


def read(kind: type[T], found: Any, what: str) -> T:
    """Return the state of this kind that a file has, or say what it lacks.

    This checks its types; ``check`` of the state checks its values.
    """
    need(type(found) is dict, f"{what} must be a dict, got {short(found)}")
    known = hints(kind)  # type: ignore[arg-type]
    absent = {field.name for field in fields(kind) if field.default is None}  # type: ignore[arg-type]
    strange = sorted((found.keys() ^ known.keys()) - (absent - found.keys()))
    need(not strange, f"missing in {what} or not known: {short(strange)}")
    return kind(**{name: _value(name, known[name], found[name], name in absent) for name in found})


def _value(name: str, hint: Any, value: Any, absent: bool) -> Any:
    hint = get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
    allowed = [kind for kind in _types(hint) if not (absent and kind is NoneType)]
    if type(value) not in allowed:  # a message costs time: it would print an array
        wanted = " or ".join(kind.__name__ for kind in allowed)
        raise ValueError(f"{name} must be {wanted}, got {short(value)}")
    if type(value) is list:
        return tuple(_item(name.removesuffix("s"), get_args(hint)[0], item) for item in value)
    return _item(name, hint, value)


def _item(name: str, hint: Any, value: Any) -> Any:
    """Return a value, a state made of its dict."""
    parts = _parts(hint)
    state = next((part for part in parts if is_dataclass(part)), None)
    if state is None or (value is None and NoneType in parts):
        return value
    return read(state, value, name)  # type: ignore[arg-type]


def _types(hint: Any) -> tuple[type, ...]:
    """Return the types that values of a field may have in a file."""
    if hint is Forgetting:
        return tuple(POLICIES)
    forms: dict[Any, type] = {tuple: list, Literal: str}
    origins = [get_origin(part) or part for part in _parts(hint)]
    return tuple(dict if is_dataclass(kind) else forms.get(kind, kind) for kind in origins)


def _parts(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if isinstance(hint, UnionType) else (hint,)


@functools.cache
def hints(kind: Any) -> Values:
    """Return the types of all fields, with their rules."""
    return typing.get_type_hints(kind, include_extras=True)


def _shape(wanted: tuple[int | range | str, ...], array: Array, sizes: Sizes) -> tuple[int, ...]:
    shape: list[int] = []
    for part, length in zip(wanted, (*array.shape, *[0] * len(wanted)), strict=False):
        if isinstance(part, range):
            shape.append(min(max(length, part[0]), part[-1]))
        else:
            size = sizes[part] if isinstance(part, str) else part
            shape += size if isinstance(size, tuple) else (size,)
    return tuple(shape)


def _end(number: float) -> str:
    if number == LARGEST_COUNT:
        return "2^62"
    return f"{number:g}" if isinstance(number, float) else str(number)
