"""A bank in a file: the bytes of `onlad.modelfile`, written in pieces, and what they must be."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from onlad import modelfile
from onlad.detector import Detector
from onlad.fields import LARGEST_COUNT
from onlad.fleet.models import FACTOR, SHRINK, TRACE, TRACE_START, WEIGHT, Layer, Models
from onlad.forgetting import Constant
from onlad.modelfile import Record, Values, need, refusal, short
from onlad.persist import check_detector
from onlad.reference import Array

LARGEST_BANK = 2**40  # bytes
AT_ONCE = 1024  # models that are looked at together


def save(
    path: str | os.PathLike[str], settings: Values, layer: Layer, start: Models, models: Models
) -> None:
    """Write a bank to the file `path`, whole or not at all."""
    learned = {"alpha": layer.alpha, "b": layer.b, **models._asdict()}
    learned["start"] = start._asdict()
    try:
        _check(settings, learned)
    except modelfile.FAULTS as error:
        raise refusal(path, f"was not written: {error}. The file is as it was") from None
    tree = Record("Bank", {"settings": settings, "learned": learned})
    modelfile.replace(path, modelfile.pieces(tree))


def load(path: str | os.PathLike[str]) -> tuple[Values, Layer, Models, Models]:
    """Return settings, layer, the start of new models, and all models, as views of the file."""
    data = modelfile.read(path, LARGEST_BANK)
    try:
        tree = modelfile.decode(data, largest=LARGEST_BANK, copy=False)
        is_bank = isinstance(tree, Record) and tree.type == "Bank"
        need(is_bank, f"it is {short(getattr(tree, 'type', tree))}, which is no bank")
        need(
            tree.parts.keys() == {"settings", "learned"}, "settings or what was learned is missing"
        )
        settings, learned = tree.parts["settings"], tree.parts["learned"]
        _check(settings, learned)
    except modelfile.FAULTS as error:
        raise refusal(path, f"holds no valid bank: {error}. Save the bank again") from None
    layer = Layer(
        learned["alpha"].copy(), learned["b"].copy(), settings["activation"], settings["loss"]
    )
    start, models = (
        Models(*(values[name] for name in Models._fields)) for values in (learned["start"], learned)
    )
    return settings, layer, Models(*(part.copy() for part in start)), models


def _check(settings: Values, learned: Values) -> None:
    """Refuse, with `ValueError`, what no bank could have."""
    a: Any = settings.get("forgetting")
    need(type(a) is float, f"forgetting must be a float, got {short(a)}")
    check_detector(settings | {"forgetting": Constant(a)}, {})
    Detector(**settings)  # knows which strings it takes
    wanted = {"alpha", "b", "start", *Models._fields}
    strange = sorted(learned.keys() ^ wanted)
    need(not strange, f"missing in learned or not known: {short(strange)}")
    need(type(learned["start"]) is dict, "start must be a dict")
    strange = sorted(learned["start"].keys() ^ set(Models._fields))
    need(not strange, f"missing in start or not known: {short(strange)}")
    N, dtype = settings["n_hidden"], settings["dtype"]
    counts = learned["counts"]
    need(type(learned["alpha"]) is np.ndarray and type(counts) is np.ndarray, "arrays are missing")
    n = learned["alpha"].size // N  # if it is not, the shape below says so
    need(n >= 1, "alpha has no features")
    _need_array("alpha", learned["alpha"], (n, N), dtype)
    _need_array("b", learned["b"], (N,), dtype)
    for values, M in ((learned["start"], 1), (learned, len(counts) if counts.ndim else 0)):
        _need_array("beta", values["beta"], (M, n, N), dtype)
        _need_array("S", values["S"], (M, N, N), dtype)
        _need_array("numbers", values["numbers"], (M, 5), "float64")
        _need_array("counts", values["counts"], (M, 3), "int64")
        _check_values(values["S"], values["numbers"], values["counts"])


def _check_values(S: Array, numbers: Array, counts: Array) -> None:
    ends = {
        TRACE_START: ("trace_start", np.nextafter(0, 1), math.inf),
        SHRINK: ("shrink", 0, 1),
        WEIGHT: ("weight", 0, math.inf),
        FACTOR: ("the forgetting factor", np.nextafter(0, 1), 1),
        TRACE: ("trace", -math.inf, math.inf),  # its rounding may leave it just below zero
    }
    for column, (name, low, high) in ends.items():
        inside = (numbers[:, column] >= low) & (numbers[:, column] <= high)
        need(bool(inside.all()), f"{name} of a model is out of range")
    possible = (counts >= 0) & (counts <= LARGEST_COUNT)
    need(bool(possible.all()), "a count of a model is out of range")
    for first in range(0, len(S), AT_ONCE):
        with np.errstate(all="ignore"):
            volume = np.linalg.slogdet(S[first : first + AT_ONCE].astype("float64"))[1]
        singular = np.flatnonzero(~np.isfinite(volume))
        if len(singular):
            raise ValueError(f"S of model {first + int(singular[0])} is singular")


def _need_array(name: str, array: Any, shape: tuple[int, ...], dtype: str) -> None:
    need(type(array) is np.ndarray, f"{name} must be an array, got {short(array)}")
    need(array.shape == shape, f"{name} must have shape {shape}, got {array.shape}")
    need(array.dtype.name == dtype, f"{name} must be {dtype}, got {array.dtype}")
    for first in range(0, len(array), AT_ONCE):
        finite = bool(np.isfinite(array[first : first + AT_ONCE]).all())
        need(finite, f"{name} holds a number that is not finite")
