"""Models in files: `save` writes one, `load` reads one and trusts nothing in it.

`onlad.modelfile` has the bytes; here is what a model is: which classes a file may name, and what
their values must be. `save` reads what it is about to write, so `load` never refuses what `save`
wrote.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable
from types import NoneType
from typing import Any, Protocol, TypeAlias

import numpy as np

from onlad import modelfile
from onlad.detector import Detector
from onlad.forgetting import Adaptive, Constant, OnDrift
from onlad.instance import HIDDEN, WIDEST
from onlad.limit import HIGHEST, RECENT
from onlad.mode import MEMORY, STATISTICS, Mode
from onlad.modelfile import Record, Values, need, refusal, short
from onlad.monitor import FEWEST, Monitor
from onlad.reference import Array
from onlad.rows import LARGEST
from onlad.watching import CANDIDATE, MODES, TICK

LARGEST_HIDDEN = 2**14  # S alone is 2 GiB; an unstarted model has no arrays that would bound it
LARGEST_COUNT = 2**62  # no stream gets there, and the next count still fits in an int64

Types: TypeAlias = dict[str, tuple[type, ...]]

# A field with one of these annotations holds just that; other fields are left to the class.
FIELDS: dict[Any, tuple[type, ...]] = {"float": (int, float), "int": (int,), "bool": (bool,)}

DETECTOR_SETTINGS: Types = {
    **dict.fromkeys(["n_hidden", "seed"], (int,)),
    **dict.fromkeys(["activation", "weights", "score", "loss", "dtype"], (str,)),
    "forgetting": (Constant, Adaptive, OnDrift),
    "ridge": (float,),
}
DETECTOR_LEARNED: Types = {
    **dict.fromkeys(["S", "alpha", "b", "beta", "memory"], (np.ndarray,)),
    **dict.fromkeys(["trace", "trace_start", "shrink", "weight"], (float,)),
    **dict.fromkeys(["seen", "skipped", "paused"], (int,)),
}
# In the memory of a policy: what it divides by or counts down.
COUNTS = {Constant: slice(0), Adaptive: slice(3, 4), OnDrift: slice(2, 5)}
MONITOR_SETTINGS: Types = {
    "window": (int, NoneType),
    **dict.fromkeys(["warmup", "seed"], (int,)),
    "false_alarms": (float,),
}
MONITOR_WARMING: Types = {"names": (list,), "n_seen": (int,), "warming": (np.ndarray,)}
MONITOR_LEARNED: Types = {"names": (list,), "n_seen": (int,), "watching": (dict,)}
WATCHING: Types = {
    **dict.fromkeys(["width", "begun", "explained", "foreign", "drifting", "at"], (int,)),
    "current": (int,),
    "ordered": (bool,),
    "now": (float,),
    **dict.fromkeys(["modes", "anchors"], (list,)),
    "limit": (dict,),
    "candidate": (dict, NoneType),
    **dict.fromkeys(["held", "age", "patience", "past", "means"], (np.ndarray,)),
    **dict.fromkeys(["kept", "present", "score", "mode", "refused", "open"], (np.ndarray,)),
    "quarantine": (np.ndarray,),
}
MODE: Types = {
    **dict.fromkeys(["centre", "scale", "usual", "levels"], (np.ndarray,)),
    **dict.fromkeys(["gram", "moment", "linear_gram", "linear_moment"], (np.ndarray,)),
    "weight": (float, int),
    "count": (int,),
}
ANCHOR: Types = {**dict.fromkeys(["beta", "unit", "lean"], (np.ndarray,)), "rows": (int,)}
LIMIT: Types = {**dict.fromkeys(["recent", "fresh", "episode"], (np.ndarray,)), "factor": (float,)}
LARGEST_WINDOW = 4_096
MODE_LARGEST = 1e60  # sums of scaled values: never near it
FILLED_LARGEST = 1e102  # what a mode makes up for a missing value may lie beyond what was seen


class Model(Protocol):
    """What a class must have to be saved; ``Model(**settings).resume(learned)`` is its inverse."""

    def settings(self) -> Values:
        """Return the arguments that make an equal model."""
        ...

    def learned(self) -> Values:
        """Return all that the model has beyond its settings."""
        ...


def save(model: Model, path: str | os.PathLike[str]) -> None:
    """Write `model`, a `Monitor` or a `Detector`, to the file `path`, whole or not at all.

    A file that is there is replaced and its permissions are kept. After a crash at any moment
    `path` is the old file or the new one. When `save` returns, the new one is on the disk.

    Raises
    ------
    TypeError
        The model or a part of it has no form in a file.
    ModelFileError
        `load` would refuse the file, for example because the model holds NaN.

    Examples
    --------
    >>> import tempfile
    >>> detector = Detector(n_hidden=4)
    >>> detector.learn_many([[0.1, 0.2], [0.3, 0.4]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(detector, f"{folder}/pump.onlad")
    ...     twin = load(f"{folder}/pump.onlad")
    >>> twin.update_one([0.5, 0.6]) == detector.update_one([0.5, 0.6])
    True
    """
    data = to_bytes(model)
    try:
        _made(modelfile.decode(data))
    except modelfile.FAULTS as error:
        raise refusal(path, f"was not written: {error}. The file is as it was") from None
    modelfile.replace(path, data)


def to_bytes(model: Model) -> bytes:
    """Return what `save` would write, for a place that is no file: a database, a message.

    `save` also makes sure that the model is one that can be loaded again; this does not.

    Examples
    --------
    >>> detector = Detector(n_hidden=4)
    >>> detector.learn_many([[0.1, 0.2], [0.3, 0.4]])
    >>> from_bytes(to_bytes(detector)).n_seen
    2
    """
    if type(model).__name__ not in CHECKS:
        raise TypeError(f"save takes a {' or a '.join(CHECKS)}, got {short(model)}")
    return modelfile.encode(_described(model))


def from_bytes(data: bytes, name: str | os.PathLike[str] = "the data") -> Any:
    """Return the model in `data`, as `load` does; `name` is what an error calls it."""
    return _model(modelfile.check(data, name), name)


def load(path: str | os.PathLike[str]) -> Any:
    """Return the model in the file `path`; it goes on to the last bit as the saved one would.

    No file makes `load` run code from it, look at another file, or take memory out of
    proportion to the file's size.

    Raises
    ------
    ModelFileError
        The file is not onlad's, is damaged, comes from a newer version, or describes a model
        that cannot be. The message says which.
    OSError
        The file cannot be read, for example because there is none.
    """
    return _model(modelfile.read(path), path)


def _model(data: bytes, path: str | os.PathLike[str]) -> Any:
    try:
        model = _made(modelfile.decode(data))
        need(type(model).__name__ in CHECKS, f"it is {short(model)}, which is no model")
    except modelfile.FAULTS as error:
        raise refusal(path, f"holds no valid model: {error}. Save the model again") from None
    return model


# -- what a model may be ----------------------------------------------------------------------


def check_detector(settings: Values, learned: Values) -> None:
    """Refuse, with `ValueError`, what no `Detector` could have returned."""
    _need_types("settings", settings, DETECTOR_SETTINGS)
    N, seed = settings["n_hidden"], settings["seed"]
    need(1 <= N <= LARGEST_HIDDEN, f"n_hidden must be in [1, {LARGEST_HIDDEN}], got {N}")
    need(seed >= 0, f"seed must not be negative, got {seed}")
    if not learned:
        return
    _need_types("learned", learned, DETECTOR_LEARNED)
    n = learned["alpha"].size // N  # if it is not, the shape below says so
    need(n >= 1, "alpha has no features")
    memory = (len(settings["forgetting"].start),)
    shapes = {"S": (N, N), "alpha": (n, N), "b": (N,), "beta": (N, n), "memory": memory}
    for name, shape in shapes.items():
        dtype = "float64" if name == "memory" else settings["dtype"]
        _need_array(name, learned[name], shape, dtype)
    for name in ("seen", "skipped", "paused"):
        _need_count(name, learned[name])
    trace, start, shrink = learned["trace"], learned["trace_start"], learned["shrink"]
    # The kernel follows the trace by differences, whose rounding may leave it just below zero.
    need(math.isfinite(trace), f"trace must be finite, got {trace}")
    need(0 < start < math.inf, f"trace_start must be finite and positive, got {start}")
    need(0 <= shrink <= 1, f"shrink must be in [0, 1], got {shrink}")
    weight = learned["weight"]
    need(0 <= weight < math.inf, f"weight must be finite and not negative, got {weight}")
    a = float(learned["memory"][0])
    need(0 < a <= 1, f"the forgetting factor in memory must be in (0, 1], got {a}")
    counts = learned["memory"][COUNTS[type(settings["forgetting"])]]
    need(bool((counts >= 0).all()), "counts in memory must not be negative")
    with np.errstate(all="ignore"):
        volume = float(np.linalg.slogdet(learned["S"].astype("float64"))[1])
    need(math.isfinite(volume), "S is singular, so P = S S' is not positive definite")


def check_monitor(settings: Values, learned: Values) -> None:
    """Refuse, with `ValueError`, what no `Monitor` could have returned."""
    _need_types("settings", settings, MONITOR_SETTINGS)
    window, warmup = settings["window"], settings["warmup"]
    need(window is None or 1 <= window <= LARGEST_WINDOW, f"window is {window}")
    _need_count("warmup", warmup, FEWEST)
    need(settings["seed"] >= 0, f"seed must not be negative, got {settings['seed']}")
    if not learned:
        return
    _need_types("learned", learned, MONITOR_WARMING if "warming" in learned else MONITOR_LEARNED)
    names = learned["names"]
    known = all(type(name) in (str, int) for name in names)
    rule = f"names must be strings or whole numbers, each once, got {short(names)}"
    need(known and 1 <= len(names) == len(set(names)), rule)
    _need_count("n_seen", learned["n_seen"], 1)
    n = len(names)
    if "warming" in learned:
        kept = learned["warming"]
        need(len(kept) < warmup, f"warming holds {len(kept)} rows, the start is at {warmup}")
        shape = (len(kept), n) if len(kept) else kept.shape
        _need_array("warming", kept, shape, high=LARGEST, missing=True)
    else:
        check_watching(learned["watching"], n, window)


def check_watching(learned: Values, n: int, window: int | None) -> None:
    """Refuse what no `Watching` of `n` features could have returned."""
    _need_types("watching", learned, WATCHING)
    width, ordered = learned["width"], learned["ordered"]
    need(1 <= width <= LARGEST_WINDOW, f"width must be in [1, {LARGEST_WINDOW}], got {width}")
    need(window is None or width == window, f"width must be {window}, got {width}")
    shapes = {
        **dict.fromkeys(["held", "age", "patience"], (n,)),
        "past": (width - 1, n),
        "means": (STATISTICS,),
        "kept": (width - 1 + 2 * TICK, n),
        "score": (2 * TICK,),
        "quarantine": (len(learned["quarantine"]), n * width),
    }
    missing = ("held", "past", "kept", "quarantine")
    low = {"age": 0.0, "patience": 0.0, "score": 0.0}
    high = dict.fromkeys(missing, FILLED_LARGEST)
    for name, shape in shapes.items():
        ends: dict[str, Any] = {"low": low.get(name), "high": high.get(name, math.inf)}
        _need_array(name, learned[name], shape, missing=name in missing, **ends)
    need(len(learned["quarantine"]) < CANDIDATE, "quarantine holds too many rows")
    _need_array("present", learned["present"], (2 * TICK, n), "bool")
    for name in ("refused", "open"):
        _need_array(name, learned[name], (2 * TICK,), "bool")
    modes, anchors = learned["modes"], learned["anchors"]
    need(1 <= len(modes) <= MODES, f"there must be 1 to {MODES} modes, got {len(modes)}")
    need(len(anchors) == len(modes), "there must be an anchor, or none, for each mode")
    _need_array("mode", learned["mode"], (2 * TICK,), "int64", low=0, high=len(modes) - 1)
    need(0 <= learned["current"] < len(modes), f"current is {learned['current']}")
    need(-1 <= learned["drifting"] < n, f"drifting is {learned['drifting']}")
    _need_count("at", learned["at"], 0, TICK - 1)
    for name in ("begun", "explained", "foreign"):
        _need_count(name, learned[name])
    need(learned["now"] > 0, f"now must be positive, got {learned['now']}")
    for values in modes:
        _check_mode(values, n, width, ordered)
    if learned["candidate"] is not None:
        _check_mode(learned["candidate"], n, width, ordered)
    for values in anchors:
        if values is not None:
            _check_anchor(values, n, width)
    limit = learned["limit"]
    _need_types("limit", limit, LIMIT)
    recent = limit["recent"]
    _need_array("recent", recent, (min(max(len(recent), 1), RECENT),), "float32", low=0)
    fresh = limit["fresh"]
    _need_array("fresh", fresh, (min(len(fresh), RECENT),), "float32", low=0)
    _need_array("episode", limit["episode"], (3,))
    need(0 <= limit["factor"] <= HIGHEST, f"factor must be in [0, {HIGHEST}]")


def _units(n: int, width: int) -> int:
    """Return the units of the second instance of a mode."""
    return n * width + 1 if n * width <= WIDEST else HIDDEN + 1


def _check_mode(values: Values, n: int, width: int, ordered: bool) -> None:
    _need_types("mode", values, MODE)
    units = _units(n, width)
    half = {"gram": HIDDEN * (HIDDEN + 1) // 2, "linear_gram": units * (units + 1) // 2}
    for name, size in half.items():
        _need_array(name, values[name], (size,), high=MODE_LARGEST)
    _need_array("moment", values["moment"], (HIDDEN, n), high=MODE_LARGEST)
    projected = (units, n) if n * width > WIDEST else (0,)
    _need_array("linear_moment", values["linear_moment"], projected, high=MODE_LARGEST)
    _need_array("centre", values["centre"], (n,), high=LARGEST, missing=True)
    _need_array("scale", values["scale"], (n,), low=0, high=2 * LARGEST)
    _need_array("usual", values["usual"], (2, n), low=0, high=MODE_LARGEST)
    _need_array("levels", values["levels"], (4, STATISTICS), high=MODE_LARGEST)
    need(bool((values["levels"][1::2] > 0).all()), "the reach of a level must be positive")
    need(0 <= values["weight"] <= MEMORY, f"weight must be in [0, {MEMORY}]")
    _need_count("count", values["count"], 1)
    # The sums must be those of rows: positive semidefinite, or beta means nothing.
    mode = Mode(n, width, ordered, 0).resume(values)
    for instance in mode.instances:
        least = float(np.linalg.eigvalsh(instance.gram)[0])
        largest = float(np.abs(instance.gram).max())
        need(least >= -1e-9 * (1 + largest), "the sums of a mode are not those of any rows")
        need(bool(np.isfinite(instance.beta).all()), "the sums of a mode have no solution")


def _check_anchor(values: Values, n: int, width: int) -> None:
    _need_types("anchor", values, ANCHOR)
    _need_array("beta", values["beta"], (_units(n, width), n))
    _need_array("unit", values["unit"], (3, n), high=2 * LARGEST, missing=True)
    need(bool((values["unit"][1:] >= 0).all()), "a unit must not be negative")
    _need_array("lean", values["lean"], (3, n))
    _need_count("rows", values["rows"])


def _need_types(what: str, values: Values, types: Types) -> None:
    strange = sorted(values.keys() ^ types.keys())
    need(not strange, f"missing in {what} or not known: {short(strange)}")
    for name, allowed in types.items():
        if type(values[name]) not in allowed:  # a message costs time: it would print an array
            wanted = " or ".join(kind.__name__ for kind in allowed)
            raise ValueError(f"{name} must be {wanted}, got {short(values[name])}")


def _need_count(name: str, value: int, low: int = 0, high: int = LARGEST_COUNT) -> None:
    ends = f"[{low}, {'2^62' if high == LARGEST_COUNT else high}]"
    need(low <= value <= high, f"{name} must be in {ends}, got {value}")


def _need_array(
    name: str,
    array: Array,
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


# A file can name these classes and no others. One with a check is a model, else a policy.
CLASSES: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(Monitor, Detector),
        *(Constant, Adaptive, OnDrift),
    )
}
CHECKS: dict[str, Callable[[Values, Values], None]] = {
    "Monitor": check_monitor,
    "Detector": check_detector,
}


# -- objects to values and back ---------------------------------------------------------------


def _described(value: Any) -> Any:
    """Return `value` with a `Record` in the place of each object of a class that is known."""
    kind = type(value)
    name = kind.__name__
    if CLASSES.get(name) is not kind:
        if kind is dict:
            return {key: _described(item) for key, item in value.items()}
        return kind(map(_described, value)) if kind in (list, tuple) else value
    if name in CHECKS:
        parts = {"learned": value.learned(), "settings": value.settings()}
    else:
        parts = {"fields": {f.name: getattr(value, f.name) for f in dataclasses.fields(kind)}}
    return Record(name, {part: _described(values) for part, values in parts.items()})


def _made(value: Any) -> Any:
    """Return `value` with each `Record` made the object that it describes, if there can be one."""
    kind = type(value)
    if kind is dict:
        return {key: _made(item) for key, item in value.items()}
    if kind in (list, tuple):
        return kind(map(_made, value))
    if kind is not Record:
        return value
    name, parts = value.type, {part: _made(values) for part, values in value.parts.items()}
    wanted = {"learned", "settings"} if name in CHECKS else {"fields"}
    need(name != "Bank", "a Bank is loaded by onlad.fleet.Bank.load")
    known = name in CLASSES and parts.keys() == wanted
    need(known, f"{short(name)} with {short(sorted(parts))} is not a known kind of value")
    if name not in CHECKS:
        return _policy(CLASSES[name], parts["fields"])
    CHECKS[name](parts["settings"], parts["learned"])
    return CLASSES[name](**parts["settings"]).resume(parts["learned"])


def _policy(kind: type[Any], values: Values) -> Any:
    fields = dataclasses.fields(kind)
    wanted = {
        field.name: FIELDS.get(field.type, (type(values.get(field.name)),)) for field in fields
    }
    _need_types(kind.__name__, values, wanted)
    for name, value in values.items():
        known = type(value) is not float or not math.isnan(value)
        need(known, f"{name} of {kind.__name__} is NaN")
        small = type(value) is not int or abs(value) <= LARGEST_COUNT  # beyond, NumPy may refuse it
        need(small, f"{name} of {kind.__name__} must be at most 2^62, got {value}")
    return kind(**values)
