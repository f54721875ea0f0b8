"""The compiled step. It carries a root S of P (P = S S'), and else reads like `reference`.

`BACKEND` says which instruction level runs: the highest that the processor has.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from onlad._kernel import LEVEL as BACKEND
from onlad._kernel import (
    DictReader,
    Judge,
    Kernel32,
    Kernel64,
    Portable,
    causes,
    p_values,
    read_csv,
    read_dict,
)
from onlad.reference import ACTIVATIONS, LOSSES, SCORES, Activation, Array, Loss, Score

if TYPE_CHECKING:
    Kernel: TypeAlias = Kernel32 | Kernel64

__all__ = [
    "BACKEND",
    "LARGEST",
    "DictReader",
    "Judge",
    "Portable",
    "causes",
    "make",
    "p_values",
    "read_csv",
    "read_dict",
]

# Beyond these a square would leave the range of the type; the binding refuses them too.
LARGEST = {"float32": 1e12, "float64": 1e100}


def make(
    alpha: Array,
    b: Array,
    beta: Array,
    S: Array,
    *,
    activation: Activation,
    score: Score,
    loss: Loss,
    dtype: str,
    trace_start: float,
    trace_limit: float,
    trace: float = math.nan,
    shrink: float = 1.0,
    weight: float = 0.0,
    seen: int = 0,
    skipped: int = 0,
    paused: int = 0,
) -> Kernel:
    """Return a compiled model with copies of the given arrays.

    Without ``trace`` it is measured; a model that is to go on to the last bit needs its own.
    """
    kind = Kernel32 if dtype == "float32" else Kernel64
    return kind(
        np.ascontiguousarray(alpha, dtype),
        np.ascontiguousarray(b, dtype),
        np.ascontiguousarray(beta, dtype),
        np.ascontiguousarray(S, dtype),
        ACTIVATIONS.index(activation),
        SCORES.index(score),
        LOSSES.index(loss),
        trace,
        trace_start,
        trace_limit,
        shrink,
        weight,
        seen,
        skipped,
        paused,
    )
