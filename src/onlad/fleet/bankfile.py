"""A bank in a file: the bytes of `onlad.modelfile`, written in pieces, and what they must be."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from onlad import fields, modelfile
from onlad.fields import AT_ONCE, LARGEST_COUNT, Numbers, read, values
from onlad.fleet.models import FACTOR, SHRINK, TRACE, TRACE_START, WEIGHT, Layer, Models
from onlad.forgetting import Constant
from onlad.modelfile import Record, Values, need, refusal, short
from onlad.reference import Array
from onlad.state import DetectorSettings

LARGEST_BANK = 2**40  # bytes


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ModelsState:
    """Models of a bank, as `Models` has them."""

    beta: Annotated[Array, Numbers(("M", "n", "N"))]
    S: Annotated[Array, Numbers(("M", "N", "N"))]
    numbers: Annotated[Array, Numbers(("M", 5), "float64")]
    counts: Annotated[Array, Numbers(("M", 3), "int64")]

    def check(self, M: int, n: int, settings: DetectorSettings) -> None:
        """Refuse, with `ValueError`, what no models with these settings could be."""
        fields.check(self, {"M": M, "n": n, "N": settings.n_hidden}, settings.dtype)
        _check_values(self.S, self.numbers, self.counts)

    def models(self) -> Models:
        """Return them for an engine."""
        return Models(self.beta, self.S, self.numbers, self.counts)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BankState(ModelsState):
    """What a bank has learned: all its models, their random layer, and how new ones start."""

    alpha: Annotated[Array, Numbers(("n", "N"))]
    b: Annotated[Array, Numbers(("N",))]
    start: ModelsState


def save(
    path: str | os.PathLike[str],
    settings: DetectorSettings,
    layer: Layer,
    start: Models,
    models: Models,
) -> None:
    """Write a bank to the file `path`, whole or not at all."""
    first = ModelsState(**start._asdict())
    state = BankState(**models._asdict(), alpha=layer.alpha, b=layer.b, start=first)
    try:
        _check(settings, state)
    except modelfile.FAULTS as error:
        raise refusal(path, f"was not written: {error}. The file is as it was") from None
    own = values(settings) | {"forgetting": settings.forgetting.start[0]}
    tree = Record("Bank", {"settings": own, "learned": values(state)})
    modelfile.replace(path, modelfile.pieces(tree))


def load(path: str | os.PathLike[str]) -> tuple[DetectorSettings, Layer, Models, Models]:
    """Return settings, layer, the start of new models, and all models, as views of the file."""
    data = modelfile.read(path, LARGEST_BANK)
    try:
        tree = modelfile.decode(data, largest=LARGEST_BANK, copy=False)
        is_bank = isinstance(tree, Record) and tree.type == "Bank"
        need(is_bank, f"it is {short(getattr(tree, 'type', tree))}, which is no bank")
        whole = tree.parts.keys() == {"settings", "learned"}
        need(whole, "settings or what was learned is missing")
        settings = _settings(tree.parts["settings"])
        state = read(BankState, tree.parts["learned"], "learned")
        _check(settings, state)
    except modelfile.FAULTS as error:
        raise refusal(path, f"holds no valid bank: {error}. Save the bank again") from None
    layer = Layer(state.alpha.copy(), state.b.copy(), settings.activation, settings.loss)
    start = Models(*(part.copy() for part in state.start.models()))
    return settings, layer, start, state.models()


def _settings(found: Values) -> DetectorSettings:
    a: Any = found.get("forgetting")  # the factor itself, where a detector has a policy
    need(type(a) is float, f"forgetting must be a float, got {short(a)}")
    return read(DetectorSettings, found | {"forgetting": Constant(a)}, "settings")


def _check(settings: DetectorSettings, state: BankState) -> None:
    """Refuse, with `ValueError`, what no bank could have."""
    settings.check()
    n = state.alpha.size // settings.n_hidden  # if it is not, its rule says so
    need(n >= 1, "alpha has no features")
    state.start.check(1, n, settings)
    state.check(len(state.counts) if state.counts.ndim else 0, n, settings)


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
