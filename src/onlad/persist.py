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
from onlad.evidence import FLOOR, N_EVIDENCES, RING, SPREAD, TREND, USUAL, Yardstick
from onlad.forgetting import Adaptive, Constant, OnDrift
from onlad.modelfile import LARGEST_FILE, Record, Values, need, refusal, short
from onlad.monitor import FIRST, TICK, Gate, Monitor, default_window
from onlad.reference import Array
from onlad.rows import LARGEST
from onlad.scaler import MinMax, Standard
from onlad.threshold import Deviation, Fixed, Quantile, Tail

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
    "detector": (Detector,),
    "window": (int, NoneType),
    "scaler": (Standard, MinMax),
    "threshold": (Deviation, Tail, Quantile, Fixed),
    "gate": (Gate, NoneType),
    **dict.fromkeys(["warmup", "seed"], (int,)),
}
MONITOR_KEPT: Types = {"names": (list,), "n_seen": (int,), "kept": (np.ndarray,)}
MONITOR_LEARNED: Types = {
    "names": (list,),
    **dict.fromkeys(["n_seen", "opening", "count"], (int,)),
    **dict.fromkeys(["scale", "past", "rows", "evidence", "learned"], (np.ndarray,)),
    **dict.fromkeys(["limit", "gate_limit", "shut"], (float,)),
    **dict.fromkeys(["yardstick", "detector"], (dict,)),
}


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
    detector, window = settings["detector"], settings["window"]
    fresh = detector.n_features is None and detector.ridge > 0
    need(fresh, "the detector in the settings must have seen nothing, with ridge > 0")
    need(window is None or window >= 1, f"window must be at least 1, got {window}")
    _need_count("warmup", settings["warmup"])
    if learned:
        _need_types("learned", learned, MONITOR_KEPT if "kept" in learned else MONITOR_LEARNED)
    names = learned.get("names", [0])  # before the first sample: one feature at least
    known = all(type(name) in (str, int) for name in names)
    rule = f"names must be strings or whole numbers, each once, got {short(names)}"
    need(known and 1 <= len(names) == len(set(names)), rule)
    n = len(names)
    # A started monitor keeps the window that was the default when it started.
    started = learned.get("past")
    width = window or (default_window(n) if started is None else len(started) + 1)
    inputs = n * width
    # Before the start no array bounds what the start will take: alpha and beta.
    fits = 16 * inputs * detector.n_hidden <= LARGEST_FILE
    need(fits, f"{inputs} inputs and {detector.n_hidden} hidden units are too many for a file")
    if "kept" in learned:
        n_seen = learned["n_seen"]
        need(1 <= n_seen < FIRST, f"n_seen must be in [1, {FIRST}) with kept, got {n_seen}")
        _need_array("kept", learned["kept"], (n_seen, n), high=LARGEST, missing=True)
    elif learned:
        _check_started(settings, learned, n, inputs)


def _check_started(settings: Values, learned: Values, n: int, inputs: int) -> None:
    """Refuse what no `Monitor` could have returned after the samples it keeps."""
    scaler, gate, inner = settings["scaler"], settings["gate"], learned["detector"]
    n_seen, count, shut = learned["n_seen"], learned["count"], learned["shut"]
    _need_count("n_seen", n_seen, FIRST)
    _need_count("count", count, FIRST, n_seen)
    need(bool(inner), "the detector of a started monitor has learned nothing")
    check_detector(settings["detector"].settings(), inner)
    found = len(inner["alpha"])
    need(found == inputs, f"the detector must have {inputs} features, got {found}")
    _need_count("seen and skipped of the detector", inner["seen"] + inner["skipped"], 0, n_seen)
    _need_loose(settings["detector"], inner)
    # From here on `inputs` is a length in the file, so arrays of that length may be made.
    _need_array("past", learned["past"], (inputs // n - 1, n), high=scaler.clip, missing=True)
    _need_array("rows", learned["rows"], (TICK, n), high=LARGEST, missing=True)
    _need_array("evidence", learned["evidence"], (TICK, N_EVIDENCES))
    _need_array("learned", learned["learned"], (TICK,), "bool")
    _check_scale(scaler, learned["scale"], n)
    _check_yardstick(learned["yardstick"], inputs, count - FIRST)
    for name in ("limit", "gate_limit"):
        limit = learned[name]
        need(limit > -math.inf, f"{name} must be a number or inf, got {limit}")
    closed = gate is not None or learned["gate_limit"] == math.inf
    need(closed, f"gate_limit must be inf without a gate, got {learned['gate_limit']}")
    longest = 0 if gate is None else gate.longest
    opening = settings["warmup"] - FIRST
    _need_count("opening", learned["opening"], opening, max(opening, longest))
    need(0 <= shut <= longest, f"shut must be in [0, {longest}], got {shut}")


def _need_loose(detector: Detector, learned: Values) -> None:
    """Insist that the root of P exists after a drift too: a monitor may need it at any tick."""
    with np.errstate(all="ignore"):
        try:
            twin = Detector(**detector.settings()).resume(learned)
            twin.loosen()
            exists = bool(np.isfinite(twin.learned()["S"]).all())
        except np.linalg.LinAlgError:
            exists = False
    need(exists, "S is too large for P = S S' to be loosened")


def _check_scale(scaler: Standard | MinMax, memory: Array, n: int) -> None:
    """Refuse what is no memory of the scaler for `n` features."""
    # A sum or a mean of numbers up to LARGEST may round beyond it, but not to twice that.
    high = 2 * LARGEST
    if isinstance(scaler, Standard):
        _need_array("scale", memory, (3, n))
        count, mean, variance = memory
        _need_array("count in scale", count, (n,), low=0, high=max(scaler.memory, FIRST))
        _need_array("mean in scale", mean, (n,), high=high)
        _need_array("variance in scale", variance, (n,), low=0, high=high * high)
    else:
        _need_array("scale", memory, (2, n), high=high)
        need(bool((memory[0] <= memory[1]).all()), "the range in scale has its ends exchanged")


def _check_yardstick(yardstick: Values, inputs: int, most: int) -> None:
    """Refuse what is no `Yardstick` that took at most `most` samples."""
    fresh = vars(Yardstick(inputs))
    types: Types = {name: (type(value),) for name, value in fresh.items()}
    _need_types("yardstick", yardstick, types | {"weight": (int, float)})
    low = {"usual": 0.0, "sums": 0.0, "trend": TREND[0]}
    high = {"trend": TREND[1]}
    scores = yardstick["scores"]
    for name, value in fresh.items():
        if isinstance(value, np.ndarray):
            shape = (min(scores.size, RING),) if name == "scores" else value.shape
            ends = low.get(name, -math.inf), high.get(name, math.inf)
            _need_array(name, yardstick[name], shape, low=ends[0], high=ends[1])
    need(len(scores) >= 1, "scores must hold a score")
    need(bool((np.diff(scores) >= 0).all()), "scores must be sorted")
    _need_array("counts in sums", yardstick["sums"][2], (2 * inputs,), high=TICK)
    _need_array("spread in levels", yardstick["levels"][1], (N_EVIDENCES,), low=float(SPREAD.min()))
    inverse = 1 / np.maximum(yardstick["usual"], FLOOR)
    need(bool((yardstick["scales"] == inverse).all()), "scales must be the inverse of usual")
    weight = yardstick["weight"]
    need(0 <= weight <= USUAL, f"weight of yardstick must be in [0, {USUAL}], got {weight}")
    _need_count("n_ring", yardstick["n_ring"], 0, most)
    _need_count("n_fresh", yardstick["n_fresh"], 0, yardstick["n_ring"])


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
        *(Monitor, Detector, Gate),
        *(Constant, Adaptive, OnDrift),
        *(Standard, MinMax),
        *(Deviation, Tail, Quantile, Fixed),
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
