"""A bank in a file: the bytes of `onlad.modelfile`, written in pieces, and what they must be."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated, Any

from onlad import modelfile
from onlad.fields import Numbers, read, values
from onlad.fleet.models import Layer, Models
from onlad.forgetting import Constant
from onlad.modelfile import Record, Values, need, refusal, short
from onlad.reference import Array
from onlad.state import DetectorSettings

LARGEST_BANK = 2**40  # bytes


@dataclass(frozen=True, slots=True, eq=False)
class BankState(Models):
    """What a bank has learned: all its models, their random layer, and how new ones start."""

    alpha: Annotated[Array, Numbers(("n", "N"))]
    b: Annotated[Array, Numbers(("N",))]
    start: Models


def save(
    path: str | os.PathLike[str],
    settings: DetectorSettings,
    layer: Layer,
    start: Models,
    models: Models,
) -> None:
    """Write a bank to the file `path`, whole or not at all."""
    state = BankState(**values(models), alpha=layer.alpha, b=layer.b, start=start)
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
    return settings, layer, Models(*(part.copy() for part in state.start)), state


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
