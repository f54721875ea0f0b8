"""Models in files: `save` writes one, and `load` reads one without trusting its contents.

`onlad.modelfile` has the bytes; this module has the classes that a file may name. Settings and
states check their own values. `save` checks the file before it writes it, so `load` never refuses
what `save` wrote.
"""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any, TypeAlias

from onlad import modelfile
from onlad.detector import Detector
from onlad.errors import ModelFileError
from onlad.fields import LARGEST_COUNT, read, values
from onlad.forgetting import POLICIES
from onlad.mcu import layout
from onlad.mcu.portable import LARGEST_DUMP, PortableMonitor, PortableSettings, PortableState
from onlad.modelfile import Record, Values, need, refusal, short
from onlad.monitor import Monitor, MonitorSettings, MonitorState
from onlad.state import DetectorSettings, DetectorState

Model: TypeAlias = Monitor | PortableMonitor | Detector

# A file can name these classes and no others.
MODELS: dict[str, tuple[type[Any], type[Any], type[Any]]] = {
    "Monitor": (Monitor, MonitorSettings, MonitorState),
    "PortableMonitor": (PortableMonitor, PortableSettings, PortableState),
    "Detector": (Detector, DetectorSettings, DetectorState),
}
NAMED = {kind.__name__: kind for kind in POLICIES}

# The settings of a monitor in a file of the first release, which no other has.
FIRST_RELEASE = {"detector", "gate", "scaler", "threshold"}


def save(model: Model, path: str | os.PathLike[str]) -> None:
    """Write `model`, a `Monitor` or a `Detector`, to the file `path`, whole or not at all.

    A file that is there is replaced and its permissions are kept. After a crash at any moment
    `path` is the old file or the new one. When `save` returns, the new one is on the disk.

    Raises
    ------
    TypeError
        The model, or a part of it, cannot be saved.
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
    """Return what `save` would write, for example for a database or a message.

    `save` also checks that the model can be loaded again; this does not.

    Examples
    --------
    >>> detector = Detector(n_hidden=4)
    >>> detector.learn_many([[0.1, 0.2], [0.3, 0.4]])
    >>> from_bytes(to_bytes(detector)).n_seen
    2
    """
    if MODELS.get(type(model).__name__, (None,))[0] is not type(model):
        raise TypeError(f"save takes a {' or a '.join(MODELS)}, got {short(model)}")
    return modelfile.encode(_described(model))


def from_bytes(data: bytes, name: str | os.PathLike[str] = "the data") -> Any:
    """Return the model in `data`, as `load` does; `name` is what an error calls it."""
    return _model(modelfile.check(data, name), name)


def load(path: str | os.PathLike[str]) -> Any:
    """Return the model in the file `path`; it continues bit for bit as the saved one would.

    The dump of a microcontroller, as `onlad_dump` writes it, is read too, if its seed is 0.

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
    with open(path, "rb") as file:
        data = file.read(len(layout.MAGIC))
        if data == layout.MAGIC:
            try:
                return PortableMonitor.from_dump(data + file.read(LARGEST_DUMP))
            except (ModelFileError, ValueError) as error:
                raise refusal(path, f"holds no valid dump: {error}") from None
    return _model(modelfile.read(path), path)


def _model(data: bytes, path: str | os.PathLike[str]) -> Any:
    try:
        tree = modelfile.decode(data)
        is_monitor = type(tree) is Record and tree.type == "Monitor"
        if is_monitor and tree.parts.get("settings", {}).keys() >= FIRST_RELEASE:
            what = "holds a Monitor of the first release, which had a different model"
            raise refusal(path, f"{what}. Learn it again from its data, with `onlad fit`")
        model = _made(tree)
        need(type(model).__name__ in MODELS, f"it is {short(model)}, which is not a model")
    except modelfile.FAULTS as error:
        raise refusal(path, f"holds no valid model: {error}. Save the model again") from None
    return model


# -- objects to values and back ---------------------------------------------------------------


def _described(model: Model) -> Record:
    """Return a model as the values of a file."""
    settings, learned = values(model.settings()), values(model.learned()) or {}
    for name, value in settings.items():
        if type(value) in POLICIES:
            settings[name] = Record(type(value).__name__, {"fields": dataclasses.asdict(value)})
    return Record(type(model).__name__, {"learned": learned, "settings": settings})


def _made(value: Any) -> Any:
    """Return `value` with each `Record` made the object that it describes, if there can be one."""
    kind = type(value)
    if kind is dict:
        return {key: _made(item) for key, item in value.items()}
    if kind in (list, tuple):
        return kind(map(_made, value))
    if kind is not Record:
        return value
    name, parts = value.type, {part: _made(found) for part, found in value.parts.items()}
    need(name != "Bank", "a Bank is loaded by onlad.fleet.Bank.load")
    wanted = {"learned", "settings"} if name in MODELS else {"fields"}
    known = (name in MODELS or name in NAMED) and parts.keys() == wanted
    need(known, f"{short(name)} with {short(sorted(parts))} is not a known kind of value")
    if name in NAMED:
        return _policy(NAMED[name], parts["fields"])
    model, kind_of_settings, kind_of_state = MODELS[name]
    settings, state = read(kind_of_settings, parts["settings"], "settings"), None
    settings.check()
    if parts["learned"]:
        state = read(kind_of_state, parts["learned"], "learned")
        state.check(settings)
    return model.resumed(settings, state)


def _policy(kind: type[Any], found: Values) -> Any:
    for name, value in found.items():
        known = type(value) is not float or not math.isnan(value)
        need(known, f"{name} of {kind.__name__} is NaN")
        small = type(value) is not int or abs(value) <= LARGEST_COUNT  # beyond, NumPy may refuse it
        need(small, f"{name} of {kind.__name__} must be at most 2^62, got {value}")
    return read(kind, found, kind.__name__)
