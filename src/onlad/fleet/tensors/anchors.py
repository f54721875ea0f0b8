"""`Anchors`: frozen copies of linear instances, for many modes; `onlad.anchor` defines them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from onlad.anchor import FARTHEST, GROWS, MEAN, MEASURED, OUTSIDE, SLACK, AnchorState
from onlad.fleet.tensors.pool import FLOAT, HALF, SINGLE, Fields, Pool, halved, tensor


class Anchors(Pool):
    """The anchors of modes; `there` says which have one."""

    def __init__(self, features: int, units: int) -> None:
        self.features, self.units = features, units

    def fields(self) -> Fields:
        """Return shape, type and first value of each tensor, by its name."""
        n = self.features
        return {
            "there": ((), torch.bool, 0),
            "beta": ((self.units, n), HALF, 0.0),
            "centre": ((n,), FLOAT, 0.0),
            "scale": ((n,), FLOAT, 0.0),
            "deviation": ((n,), SINGLE, 1.0),
            "lean": ((n,), SINGLE, 0.0),
            "halves": ((2, n), SINGLE, 0.0),
            "rows": ((), torch.int32, 0),
        }

    def follow(self, at: Any, mean: Any, count: Any, projection: Any) -> None:
        """Let leans follow normal rows, `count` of them, by the error of their mean window.

        `mean` is raw, (modes, width, features). Where `count` is 0, or there is no anchor, nothing
        happens.
        """
        n = self.features
        scale = self.scale[at]
        V = (mean - self.centre[at][:, None]) / torch.where(scale > 0, scale, torch.inf)[:, None]
        V = torch.nan_to_num(V, nan=0.0, posinf=torch.inf, neginf=-torch.inf).flatten(1)
        moves = (count > 0) & self.there[at] & (V.abs().amax(1) <= FARTHEST)
        beta = self.beta[at].to(FLOAT)
        U = V if projection is None else V @ projection
        made = torch.baddbmm(beta[:, -1:], U[:, None], beta[:, :-1])[:, 0]
        lean = self.lean[at]
        weight = (count.to(FLOAT) / MEAN).clamp(max=1.0)[:, None]
        lean = torch.where(moves[:, None], lean + weight * (V[:, :n] - made - lean), lean)
        self.write("lean", at, lean)
        rows, halves = self.rows[at], self.halves[at]
        late = 2 * rows >= MEASURED
        which = torch.stack((~late, late), 1) & (moves & (rows < MEASURED))[:, None]
        grown = torch.maximum(halves, lean.abs()[:, None])
        self.write("halves", at, torch.where(which[..., None], grown, halves))
        self.write("rows", at, rows + torch.where(moves, count, 0))

    def drifting(self, at: Any) -> Any:
        """Return the features that lean farthest outside of what was measured, or -1."""
        halves, deviation = self.halves[at], self.deviation[at]
        walks = halves[:, 1] > GROWS * halves[:, 0] + SLACK * deviation
        bound = OUTSIDE * halves.amax(1) + SLACK * deviation
        still = walks | ~(self.scale[at] > 0)
        outside, worst = torch.where(still, 0.0, self.lean[at].abs() / bound).max(1)
        shown = (outside > 1) & self.there[at] & (self.rows[at] >= MEASURED)
        return torch.where(shown, worst, -1)

    def put(self, at: Any, state: AnchorState | None) -> None:
        """Let modes have an anchor, or none."""
        self.there[at] = state is not None
        if state is None:
            return
        self.beta[at] = halved(tensor(state.beta, self.device))
        unit, lean = tensor(state.unit, self.device), tensor(state.lean, self.device)
        parts = {"centre": unit[0], "scale": unit[1], "deviation": unit[2], "lean": lean[0]}
        for name, values in (parts | {"halves": lean[1:]}).items():
            self.write(name, at, values)
        self.rows[at] = state.rows

    def learned(self, at: int) -> AnchorState | None:
        """Return all that one anchor holds."""
        if not self.there[at]:
            return None
        unit = np.stack([self.array(name, at) for name in ("centre", "scale", "deviation")])
        lean = np.concatenate((self.array("lean", at)[None], self.array("halves", at)))
        return AnchorState(self.array("beta", at), unit, lean, int(self.rows[at]))
