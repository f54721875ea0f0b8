"""`Anchor`: a frozen copy of a mode's linear instance, against which slow faults show.

A model that learns follows a fault that grows slowly enough. The anchor does not learn: the mean
of its errors over some hundred rows leans to one side when a sensor drifts away from the others.
How far it leans while all is well is measured first. A sensor whose lean still grows by then is a
random walk or a counter: it has no place to drift from, and is never reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from onlad import fields
from onlad.fields import Numbers, Within
from onlad.mode import LARGEST_SQUARE, LARGEST_UNIT, SMALLEST_UNIT, Mode, check_unit, units
from onlad.modelfile import need
from onlad.reference import Array

SETTLED = 2_048  # rows that a mode must have learned
MEASURED = 4_096  # rows for which the lean is measured
MEAN = 512  # rows of a mean
OUTSIDE = 3.0  # times the largest lean that was measured is a drift,
SLACK = 0.5  # deviations added to it
FARTHEST = 5.0  # the largest scaled value at which it follows: beyond, a stream is elsewhere
GROWS = 2.0  # a lean that grows by so much from one half to the next is a walk


@dataclass(frozen=True, slots=True, eq=False)
class AnchorState:
    """What an anchor holds. `unit` is centre, scale and deviation, `lean` is it and its halves."""

    beta: Annotated[Array, Numbers(("units", "n"), high=LARGEST_SQUARE)]
    unit: Annotated[Array, Numbers((3, "n"), high=LARGEST_UNIT, missing=True)]
    lean: Annotated[Array, Numbers((3, "n"), high=LARGEST_SQUARE)]
    rows: Annotated[int, Within(0)]

    def check(self, n: int, width: int) -> None:
        """Refuse, with `ValueError`, what no anchor of `n` features could hold."""
        fields.check(self, {"n": n, "units": units(n, width)})
        centre, scale, deviation = self.unit
        check_unit(centre, scale, n)
        Numbers((n,), low=SMALLEST_UNIT, high=LARGEST_SQUARE).check("deviation", deviation)
        need(bool((self.lean[1:] >= 0).all()), "the largest leans must not be negative")


class Anchor:
    """The anchor of one mode, and how its errors lean."""

    def __init__(self, mode: Mode) -> None:
        linear = mode.instances[1]
        self.beta = linear.beta.copy()
        self.centre, self.scale = mode.centre.copy(), mode.scale.copy()
        self.deviation = np.sqrt(1 / mode.inverse()[1])
        self.lean: Array = np.zeros(mode.features)
        self.halves: Array = np.zeros((2, mode.features))  # the largest lean in each half
        self.rows = 0

    def follow(self, mode: Mode, windows: Array, measured: int = MEASURED) -> None:
        """Let the lean follow normal rows of the mode, by the error of their mean."""
        scale = np.where(self.scale > 0, self.scale, np.inf)
        mean = windows.mean(axis=0).reshape(mode.width, mode.features)
        V = ((mean - self.centre) / scale).reshape(1, -1)
        V = np.where(np.isnan(V), 0.0, V)
        if np.abs(V).max() > FARTHEST:
            return
        error = (V[:, : mode.features] - mode.instances[1].hidden(V) @ self.beta)[0]
        self.lean = self.lean + min(len(windows) / MEAN, 1.0) * (error - self.lean)
        if self.rows < measured:
            half = int(2 * self.rows >= measured)
            self.halves[half] = np.maximum(self.halves[half], np.abs(self.lean))
        self.rows += len(windows)

    def drifting(self) -> int:
        """Return the feature that leans farthest outside of what was measured, or -1."""
        if self.rows < MEASURED:
            return -1
        walks = self.halves[1] > GROWS * self.halves[0] + SLACK * self.deviation
        bound = OUTSIDE * self.halves.max(axis=0) + SLACK * self.deviation
        outside = np.where(walks | ~(self.scale > 0), 0.0, np.abs(self.lean) / bound)
        worst = int(np.argmax(outside))
        return worst if outside[worst] > 1 else -1

    def learned(self) -> AnchorState:
        """Return all that the anchor holds."""
        unit = np.array([self.centre, self.scale, self.deviation])
        return AnchorState(self.beta.copy(), unit, np.array([self.lean, *self.halves]), self.rows)

    def resume(self, state: AnchorState) -> Anchor:
        """Take over what `learned` returned."""
        self.beta = state.beta.copy()
        self.centre, self.scale, self.deviation = state.unit.copy()
        self.lean, self.halves = state.lean[0].copy(), state.lean[1:].copy()
        self.rows = state.rows
        return self
