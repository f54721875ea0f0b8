"""A bank of monitors as bytes, in a file or elsewhere: states of one shape as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import is_dataclass
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin

import numpy as np

from onlad import modelfile
from onlad.fields import hints, read, values
from onlad.modelfile import Record, Values, need, short
from onlad.monitor import MonitorSettings, MonitorState
from onlad.reference import Array
from onlad.rows import Names

LARGEST_BANK = 2**40  # bytes of a file
SCALARS = {bool: "bool", int: "int64", float: "float64"}
# Fields of a state that are columns, and all parts of devices of one shape.
FIELDS = {name: hint for name, hint in hints(MonitorState).items() if name not in ("names", "late")}
PARTS = ("names", "places", "late", *FIELDS)


class Saved(NamedTuple):
    """What a bank is made of; the first monitor is what new devices start as."""

    names: Names
    settings: list[MonitorSettings]
    states: list[MonitorState | None]
    features: list[Names]
    paused: Array  # one entry less: how new devices start is not paused


def tree(saved: Saved) -> Record:
    """Return a bank as the values of a file."""
    distinct = list(dict.fromkeys(saved.settings))
    number = {settings: k for k, settings in enumerate(distinct)}
    which = np.array([number[settings] for settings in saved.settings], "int64")
    shapes: dict[Any, list[int]] = {}
    for at, (names, state) in enumerate(zip(saved.features, saved.states, strict=True)):
        shapes.setdefault(_kind_of(state) or ((names, 0),), []).append(at)
    learned = {
        "names": list(saved.names),
        "settings": [values(settings) for settings in distinct],
        "which": which,
        "paused": saved.paused,
        "shapes": [
            _shape([names for names, _ in kind], places, [saved.states[at] for at in places])
            for kind, places in shapes.items()
        ],
    }
    return Record("MonitorBank", {"learned": learned})


def _kind_of(state: MonitorState | None) -> tuple[tuple[Names, int], ...]:
    """Return names and window of a monitor, and then of those for features that came later."""
    if state is None:
        return ()
    width = state.watching.width if state.watching else 0
    return ((state.names, width), *_kind_of(state.late))


def _shape(names: list[Names], places: list[int], states: list[MonitorState | None]) -> Values:
    """Return devices of one shape as columns."""
    own = [state or MonitorState(names[0], 0) for state in states]
    late = [state.late for state in own]
    return {
        "names": list(names[0]),
        "places": np.array(places, "int64"),
        "late": [_shape(names[1:], places, late)] if names[1:] else [],
        **{n: column(hint, [getattr(s, n) for s in own]) for n, hint in FIELDS.items()},
    }


def parse(data: bytes, *, trusted: bool = False) -> Saved:
    """Return what `tree` was given, or raise one of `modelfile.FAULTS`.

    Of data that is `trusted`, because its checksum is right and nobody else could write it, only
    the structure is checked.
    """
    found = modelfile.decode(data, largest=LARGEST_BANK)
    is_bank = isinstance(found, Record) and found.type == "MonitorBank"
    need(is_bank, f"it is {short(getattr(found, 'type', found))}, which is no MonitorBank")
    return _read(found.parts.get("learned", {}), trusted)


def _read(learned: Values, trusted: bool) -> Saved:
    kinds: dict[str, type] = {name: list for name in ("names", "settings", "shapes")}
    kinds |= {name: np.ndarray for name in ("which", "paused")}
    there = {name: type(value) for name, value in learned.items()}
    need(there == kinds, f"a bank has {short(sorted(kinds))}, got {short(sorted(there))}")
    which, paused = learned["which"], learned["paused"]
    fits = which.dtype == "int64" and which.ndim == 1 and len(which) > 0
    fits = fits and paused.dtype == "bool" and paused.shape == (len(which) - 1,)
    need(fits, "which or paused is wrong")
    distinct = [read(MonitorSettings, each, "settings") for each in learned["settings"]]
    for settings in distinct:
        settings.check()
    known = bool((which >= 0).all()) and bool((which < len(distinct)).all())
    need(known, "which names settings that are not there")
    count = len(which)
    states: list[MonitorState | None] = [None] * count
    features: list[Names | None] = [None] * count
    for shape in learned["shapes"]:
        names, found = _states(shape)
        places = shape["places"]
        inside = bool((places >= 0).all()) and bool((places < count).all())
        need(inside, "places are wrong")
        for at, state in zip(places.tolist(), found, strict=True):
            need(features[at] is None, "a device is there twice")
            features[at], states[at] = names, state
    need(None not in features, "a device is missing")
    settings_of = [distinct[k] for k in which.tolist()]
    if not trusted:
        for settings, state in zip(settings_of, states, strict=True):
            if state is not None:
                state.check(settings)
    whole: list[Any] = features
    return Saved(tuple(learned["names"]), settings_of, states, whole, paused.copy())


def _states(shape: Any) -> tuple[Names, list[MonitorState | None]]:
    """Return all features of devices of one shape, and what each has learned."""
    need(type(shape) is dict and shape.keys() == set(PARTS), f"a shape has {short(PARTS)}")
    places = shape["places"]
    is_array = type(places) is np.ndarray and places.dtype == "int64" and places.ndim == 1
    need(is_array, "places are wrong")
    names: Names = tuple(shape["names"])
    nothing: list[MonitorState | None] = [None] * len(places)
    later, late = _states(shape["late"][0]) if shape["late"] else (names, nothing)
    columns = {n: items(hint, shape[n], len(places)) for n, hint in FIELDS.items()}
    rows = zip(late, *columns.values(), strict=True)
    states = [
        MonitorState(names, late=own, **dict(zip(columns, row, strict=True))) for own, *row in rows
    ]
    return later, [state if state.n_seen else None for state in states]


# -- values of one kind as columns ------------------------------------------------------------

# A thousand monitors become some dozen arrays, which are written and read at the speed of memory;
# as a thousand model files they would take a hundred times as long. Types of fields say what a
# column is, so that a new field of a state needs nothing here.


def column(hint: Any, values: Sequence[Any]) -> Any:
    """Return values of the type `hint` as a tree of arrays."""
    kind: Any
    kind, optional = _kind(hint)
    if optional:
        there = [value is not None for value in values]
        some = [value for value in values if value is not None]
        return {"there": np.array(there, bool), "of": column(kind, some) if some else {}}
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
        some = iter(items(kind, of, int(np.count_nonzero(there))) if there.any() else ())
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
