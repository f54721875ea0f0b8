"""The compiled step. It stores a root S of P (P = S S'), and otherwise equals `reference`.

`BACKEND` says which instruction level runs: the highest that the processor has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from onlad import _kernel, reference
from onlad.reference import ACTIVATIONS, LOSSES, SCORES, Activation, Loss, Score

if TYPE_CHECKING:
    Kernel: TypeAlias = _kernel.Kernel32 | _kernel.Kernel64

BACKEND = _kernel.LEVEL
# Beyond these a square would leave the range of the type; the binding refuses them.
LARGEST = {"float32": _kernel.LARGEST32, "float64": _kernel.LARGEST64}


def make(
    state: Any, *, activation: Activation, score: Score, loss: Loss, dtype: str, trace_limit: float
) -> Kernel:
    """Return a compiled model with a copy of a `DetectorState`. A trace of NaN is computed."""
    kind = _kernel.Kernel32 if dtype == "float32" else _kernel.Kernel64
    return kind(
        state, alpha=state.alpha, b=state.b, beta=state.beta, S=state.S,
        activation=ACTIVATIONS.index(activation), score=SCORES.index(score),
        loss=LOSSES.index(loss), trace_limit=trace_limit, constants=reference,
    )  # fmt: skip
