"""A detector as a value: its settings, what it has learned, and the compiled model of both."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import numpy as np

from onlad import fields, kernel, reference
from onlad.fields import Numbers, Within
from onlad.forgetting import POLICIES, Forgetting
from onlad.modelfile import need
from onlad.reference import Activation, Array, Loss, Score, Weights

Dtype: TypeAlias = Literal["float64", "float32"]

LARGEST_HIDDEN = 2**14  # in a file. S alone is 2 GiB; a model without a start has no array of it


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorSettings:
    """The arguments of a `Detector`."""

    n_hidden: Annotated[int, Within(1, LARGEST_HIDDEN)]
    activation: Activation
    weights: Weights
    forgetting: Forgetting
    score: Score
    loss: Loss
    ridge: float
    dtype: Dtype
    seed: int

    def check(self) -> None:
        """Refuse, with `ValueError`, what no detector in a file has."""
        fields.check(self)
        need(0 <= self.ridge < math.inf, f"ridge must be finite and not negative, got {self.ridge}")
        need(self.seed >= 0, f"seed must not be negative, got {self.seed}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DetectorState:
    """What a detector has learned. `S` is a root of P: P = S S'."""

    S: Annotated[Array, Numbers(("N", "N"))]
    alpha: Annotated[Array, Numbers(("n", "N"))]
    b: Annotated[Array, Numbers(("N",))]
    beta: Annotated[Array, Numbers(("N", "n"))]
    memory: Annotated[Array, Numbers(("memory",), "float64")]  # of the forgetting policy
    seen: Annotated[int, Within(0)] = 0
    skipped: Annotated[int, Within(0)] = 0
    paused: Annotated[int, Within(0)] = 0
    trace: float = math.nan  # of P, as the guard knows it; NaN: to be measured
    trace_start: float
    shrink: Annotated[float, Within(0, 1)] = 1.0  # share of the ridge that is not forgotten
    weight: float = 0.0  # of all samples

    def check(self, settings: DetectorSettings) -> None:
        """Refuse, with `ValueError`, what no detector with these settings could have learned."""
        N, policy = settings.n_hidden, settings.forgetting
        n = self.alpha.size // N  # if it is not, its rule says so
        need(n >= 1, "alpha has no features")
        sizes = {"n": n, "N": N, "memory": len(policy.start)}
        fields.check(self, sizes, settings.dtype)
        trace, start, weight = self.trace, self.trace_start, self.weight
        # The kernel follows the trace by differences, whose rounding may leave it just below zero.
        need(math.isfinite(trace), f"trace must be finite, got {trace}")
        need(0 < start < math.inf, f"trace_start must be finite and positive, got {start}")
        need(0 <= weight < math.inf, f"weight must be finite and not negative, got {weight}")
        a = float(self.memory[0])
        need(0 < a <= 1, f"the forgetting factor in memory must be in (0, 1], got {a}")
        counts = self.memory[POLICIES[type(policy)]]
        need(bool((counts >= 0).all()), "counts in memory must not be negative")
        with np.errstate(all="ignore"):
            volume = float(np.linalg.slogdet(self.S.astype("float64"))[1])
        need(math.isfinite(volume), "S is singular, so P = S S' is not positive definite")


def to_kernel(settings: DetectorSettings, state: DetectorState) -> kernel.Kernel:
    """Return a compiled model with a copy of the state."""
    a, activation = settings.forgetting.start[0], settings.activation
    limit = reference.trace_limit(state.trace_start, settings.n_hidden, a, activation)
    return kernel.make(
        state, activation=activation, score=settings.score, loss=settings.loss,
        dtype=settings.dtype, trace_limit=limit,
    )  # fmt: skip
