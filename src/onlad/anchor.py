"""`Anchor`: a frozen copy of a mode's linear instance, against which slow faults show.

A model that learns follows a fault that grows slowly enough. The anchor does not learn: the mean
of its errors over some hundred rows leans to one side when a sensor drifts away from the others.
How far it leans while all is well is measured first. A sensor whose lean still grows by then is a
random walk or a counter: it has no place to drift from, and is never reported.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onlad.mode import Mode
from onlad.reference import Array

SETTLED = 2_048  # rows that a mode must have learned
MEASURED = 4_096  # rows for which the lean is measured
MEAN = 512  # rows of a mean
OUTSIDE = 3.0  # how many times as far as ever measured is a drift,
SLACK = 0.5  # and how many deviations more
FARTHEST = 20.0  # the largest scaled value that counts: beyond, a stream is elsewhere
GROWS = 2.0  # a lean that grows by so much from one half to the next is a walk


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
        V = np.clip(np.where(np.isnan(V), 0.0, V), -FARTHEST, FARTHEST)
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

    def learned(self) -> dict[str, Any]:
        """Return all that the anchor holds, as numbers and arrays."""
        return {
            "beta": self.beta.copy(),
            "unit": np.array([self.centre, self.scale, self.deviation]),
            "lean": np.array([self.lean, *self.halves]),
            "rows": self.rows,
        }

    def resume(self, learned: dict[str, Any]) -> Anchor:
        """Take over what `learned` returned."""
        self.beta = learned["beta"].copy()
        self.centre, self.scale, self.deviation = learned["unit"].copy()
        self.lean, self.halves = learned["lean"][0].copy(), learned["lean"][1:].copy()
        self.rows = int(learned["rows"])
        return self
