"""The compiled step. It stores a root S of P (P = S S'), and otherwise equals `reference`.

`BACKEND` says which instruction level runs: the highest that the processor has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from onlad import reference
from onlad._kernel import LARGEST32, LARGEST64, LEVEL, Kernel32, Kernel64
from onlad.reference import ACTIVATIONS, LOSSES, SCORES, Activation, Loss, Score

if TYPE_CHECKING:
    Kernel: TypeAlias = Kernel32 | Kernel64

BACKEND = LEVEL
# Beyond these a square would leave the range of the type; the binding refuses them.
LARGEST = {"float32": LARGEST32, "float64": LARGEST64}


def make(
    state: Any, *, activation: Activation, score: Score, loss: Loss, dtype: str, trace_limit: float
) -> Kernel:
    """Return a compiled model with a copy of a `DetectorState`. A trace of NaN is computed."""
    kind = Kernel32 if dtype == "float32" else Kernel64
    return kind(
        state, alpha=state.alpha, b=state.b, beta=state.beta, S=state.S,
        activation=ACTIVATIONS.index(activation), score=SCORES.index(score),
        loss=LOSSES.index(loss), trace_limit=trace_limit, constants=reference,
    )  # fmt: skip
