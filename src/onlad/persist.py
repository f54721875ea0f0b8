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
from typing import Any, Protocol, TypeAlias

import numpy as np

from onlad import modelfile
from onlad.detector import Detector
from onlad.fields import LARGEST_COUNT, read, values
from onlad.forgetting import Adaptive, Constant, OnDrift
from onlad.mcu.portable import PortableMonitor
from onlad.modelfile import Record, Values, need, refusal, short
from onlad.monitor import Monitor, MonitorSettings, MonitorState

# The settings of a monitor in a file of the first release, which no other has.
FIRST_RELEASE = {"detector", "gate", "scaler", "threshold"}
LARGEST_HIDDEN = 2**14  # S alone is 2 GiB; an unstarted model has no arrays that would bound it

# A field with one of these annotations holds just that; other fields are left to the class.
FIELDS: dict[Any, tuple[type, ...]] = {"float": (int, float), "int": (int,), "bool": (bool,)}

Types: TypeAlias = dict[str, tuple[type, ...]]

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
PORTABLE_SETTINGS: Types = {
    **dict.fromkeys(["hidden", "modes", "warmup", "seed"], (int,)),
    "window": (int, type(None)),
    "false_alarms": (float,),
}
# In the memory of a policy: what it divides by or counts down.
COUNTS = {Constant: slice(0), Adaptive: slice(3, 4), OnDrift: slice(2, 5)}


class Model(Protocol):
    """What a class must have to be saved; ``Model(**settings).resume(learned)`` is its inverse."""

    def settings(self) -> Any:
        """Return the arguments that make an equal model."""
        ...

    def learned(self) -> Any:
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
        tree = modelfile.decode(data)
        if _is_of_first_release(tree):
            what = "holds a Monitor of the first release, whose model is another"
            raise refusal(path, f"{what}. Learn it again from its data, with `onlad fit`")
        model = _made(tree)
        need(type(model).__name__ in CHECKS, f"it is {short(model)}, which is no model")
    except modelfile.FAULTS as error:
        raise refusal(path, f"holds no valid model: {error}. Save the model again") from None
    return model


def _is_of_first_release(tree: Any) -> bool:
    if type(tree) is not Record or tree.type != "Monitor":
        return False
    return tree.parts.get("settings", {}).keys() >= FIRST_RELEASE


# -- what a model may be ----------------------------------------------------------------------


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


def check_detector(settings: Values, learned: Values) -> None:
    """Refuse, with `ValueError`, what no `Detector` could have returned."""
    need_types("settings", settings, DETECTOR_SETTINGS)
    N, seed = settings["n_hidden"], settings["seed"]
    need(1 <= N <= LARGEST_HIDDEN, f"n_hidden must be in [1, {LARGEST_HIDDEN}], got {N}")
    need(seed >= 0, f"seed must not be negative, got {seed}")
    if not learned:
        return
    need_types("learned", learned, DETECTOR_LEARNED)
    n = learned["alpha"].size // N  # if it is not, the shape below says so
    need(n >= 1, "alpha has no features")
    memory = (len(settings["forgetting"].start),)
    shapes = {"S": (N, N), "alpha": (n, N), "b": (N,), "beta": (N, n), "memory": memory}
    for name, shape in shapes.items():
        dtype = "float64" if name == "memory" else settings["dtype"]
        need_array(name, learned[name], shape, dtype)
    for name in ("seen", "skipped", "paused"):
        need_count(name, learned[name])
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


def check_portable(settings: Values, learned: Values) -> None:
    """Refuse, with `ValueError`, what no `PortableMonitor` could have returned."""
    need_types("settings", settings, PORTABLE_SETTINGS)
    monitor = PortableMonitor(**settings)
    if not learned:
        return
    need_types("learned", learned, {"names": (list,), "dump": (np.ndarray,)})
    names, dump = learned["names"], learned["dump"]
    need(len(names) > 0 and len(set(names)) == len(names), "names must be there, each once")
    need_array("dump", dump, (len(dump),), "int64", low=0, high=2**32 - 1)
    monitor.names = tuple(names)  # memory is made for it only if the dump is as long
    need(monitor.sizes().dump == 4 * len(dump), "dump does not fit the settings")


# A file can name these classes and no others. One with a check is a model, else a policy.
CLASSES: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(Monitor, PortableMonitor, Detector),
        *(Constant, Adaptive, OnDrift),
    )
}
CHECKS: dict[str, Callable[[Values, Values], None]] = {
    "Monitor": lambda settings, learned: None,
    "PortableMonitor": check_portable,
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
        parts = {"learned": value.learned() or {}, "settings": value.settings()}
        if name == "Monitor":
            parts = {part: values(found) for part, found in parts.items()}
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
    if name == "Monitor":
        settings = read(MonitorSettings, parts["settings"], "settings")
        settings.check()
        state = read(MonitorState, parts["learned"], "learned") if parts["learned"] else None
        if state is not None:
            state.check(settings)
        return Monitor.resumed(settings, state)
    CHECKS[name](parts["settings"], parts["learned"])
    return CLASSES[name](**parts["settings"]).resume(parts["learned"])


def _policy(kind: type[Any], values: Values) -> Any:
    fields = dataclasses.fields(kind)
    wanted = {
        field.name: FIELDS.get(field.type, (type(values.get(field.name)),)) for field in fields
    }
    need_types(kind.__name__, values, wanted)
    for name, value in values.items():
        known = type(value) is not float or not math.isnan(value)
        need(known, f"{name} of {kind.__name__} is NaN")
        small = type(value) is not int or abs(value) <= LARGEST_COUNT  # beyond, NumPy may refuse it
        need(small, f"{name} of {kind.__name__} must be at most 2^62, got {value}")
    return kind(**values)
