"""The compiled step. It stores a root S of P (P = S S'), and otherwise equals `reference`.

`BACKEND` says which instruction level runs: the highest that the processor has.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from onlad import reference
from onlad._kernel import (
    LARGEST32,
    LARGEST64,
    DictReader,
    Kernel32,
    Kernel64,
    Layer,
    Portable,
    PortableFixed,
    Watching,
    causes,
    read_csv,
    read_dict,
    severities,
    watch_all,
    watch_fleet,
)
from onlad._kernel import LEVEL as BACKEND
from onlad.reference import ACTIVATIONS, LOSSES, SCORES, Activation, Array, Loss, Score

if TYPE_CHECKING:
    Kernel: TypeAlias = Kernel32 | Kernel64

__all__ = [
    "BACKEND",
    "LARGEST",
    "DictReader",
    "Layer",
    "Portable",
    "PortableFixed",
    "Watching",
    "causes",
    "make",
    "read_csv",
    "read_dict",
    "severities",
    "watch_all",
    "watch_fleet",
]

# Beyond these a square would leave the range of the type; the binding refuses them.
LARGEST = {"float32": LARGEST32, "float64": LARGEST64}


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

    Without ``trace`` it is computed; a model that continues bit for bit needs its own value.
    """
    kind = Kernel32 if dtype == "float32" else Kernel64
    return kind(
        alpha=np.ascontiguousarray(alpha, dtype), b=np.ascontiguousarray(b, dtype),
        beta=np.ascontiguousarray(beta, dtype), S=np.ascontiguousarray(S, dtype),
        activation=ACTIVATIONS.index(activation), score=SCORES.index(score),
        loss=LOSSES.index(loss), trace=trace, trace_start=trace_start, trace_limit=trace_limit,
        shrink=shrink, weight=weight, seen=seen, skipped=skipped, paused=paused,
        constants=reference,
    )  # fmt: skip
