"""`Instance`: an OS-ELM autoencoder kept as its sums, for the modes of a monitor.

A `Detector` carries a root of P and learns one sample at a time. A monitor learns samples in small
groups and some rows late, so its instances keep the sums of `Detector.fit_sums` instead: the gram
matrix H'H and the moment H'X, each weighed down by forgetting. ``beta`` solves the same normal
equations as the recursion, the ridge is never forgotten, and sums of two instances add.

An instance predicts one row x (n) from its input v (d): the row itself, or the row and those before
it, the newest first.

* ``tanh``: random tanh units, as in the paper, in groups. Each group sees all features but every
  fourth, and these it predicts. An autoencoder that sees a feature follows its faults instead of
  showing them.
* ``linear``: v itself and a constant. Each feature is predicted from all others: its own
  coefficient is taken out of beta, which is exact for least squares with a ridge.
* ``projected``: for inputs too wide for that, random linear units and a constant.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from onlad import reference
from onlad.reference import Array

Kind: TypeAlias = Literal["tanh", "linear", "projected"]

GROUPS = 4  # of tanh units
HIDDEN = 32  # tanh units of a group
PROJECTED = 64  # random linear units
RIDGE = 0.1  # against scaled inputs of about unit size
WIDEST = 256  # inputs of a linear instance; wider ones are projected
CONSTANT = 1e-6  # the ridge of the constant: the mean is free
LEAST_REST = 1e-9  # of a feature that the others do not explain


class Instance:
    """One autoencoder of a mode: a fixed hidden layer, and the sums of what was learned.

    The sums are kept by group of units: `gram` (groups, units, units), and `moment` and `beta`
    (units, features) with each feature's column for the group that predicts it. There is one group
    unless the units are tanh.
    """

    def __init__(self, kind: Kind, inputs: int, features: int, seed: int) -> None:
        self.kind: Kind = kind
        self.alpha, self.b = layer(kind, inputs, seed)
        groups = min(GROUPS, features) if kind == "tanh" else 1
        units = len(self.b) // groups
        self.gram: Array = np.zeros((groups, units, units))
        self.moment: Array = np.zeros((units, features))
        self.beta: Array = np.zeros((units, features))
        self._ridge = np.diag(np.full(units, RIDGE))
        if kind != "tanh":
            self._ridge[-1, -1] = CONSTANT
        # The units of each group, and the features that it predicts.
        self._groups = [
            (slice(k * units, (k + 1) * units), slice(k, None, groups)) for k in range(groups)
        ]

    def hidden(self, V: Array) -> Array:
        """Return the hidden layer of the inputs `V`, one row each."""
        if self.kind == "linear":
            return np.concatenate((V, np.ones((len(V), 1))), axis=1)
        H: Array = V @ self.alpha + self.b
        return np.tanh(H) if self.kind == "tanh" else H

    def errors(self, V: Array, X: Array) -> Array:
        """Return what is left of the rows `X` when their prediction from `V` is taken off."""
        return self._errors(self.hidden(V), X)

    def _errors(self, H: Array, X: Array) -> Array:
        errors: Array = X.copy()
        for units, predicted in self._groups:
            errors[:, predicted] -= H[:, units] @ self.beta[:, predicted]
        return errors

    def learn(self, V: Array, X: Array, forgotten: float = 1.0) -> Array:
        """Add rows to the sums, after the past was multiplied by `forgotten`, and solve.

        Return their errors before they were learned.
        """
        H = self.hidden(V)
        errors: Array = self._errors(H, X)
        self.gram *= forgotten
        self.moment *= forgotten
        for k, (units, predicted) in enumerate(self._groups):
            part = H[:, units]
            self.gram[k] += part.T @ part  # symmetric to the bit: BLAS computes one half
            if self.kind != "linear":
                self.moment[:, predicted] += part.T @ X[:, predicted]
        self.solve()
        return errors

    def solve(self) -> None:
        """Compute beta from the sums."""
        if self.kind == "linear":  # its hidden layer begins with the row: the gram has the moment
            self.moment = self.gram[0, :, : self.moment.shape[1]].copy()
        for k, (_, predicted) in enumerate(self._groups):
            self.beta[:, predicted] = np.linalg.solve(
                self.gram[k] + self._ridge, self.moment[:, predicted]
            )
        if self.kind == "linear":
            features = np.arange(self.beta.shape[1])
            rest = np.maximum(1.0 - self.beta[features, features], LEAST_REST)
            self.beta[features, features] = 0.0
            self.beta /= rest


def layer(kind: Kind, inputs: int, seed: int) -> tuple[Array, Array]:
    """Return alpha (inputs, units) and b (units) of a fresh instance."""
    if kind == "linear":
        return np.eye(inputs, inputs + 1), np.append(np.zeros(inputs), 1.0)
    if kind == "projected":
        alpha, _ = reference.draw(inputs, PROJECTED, "normal", seed)
        return np.append(alpha, np.zeros((inputs, 1)), axis=1), np.append(np.zeros(PROJECTED), 1.0)
    groups = min(GROUPS, inputs)
    alpha, b = reference.draw(inputs, groups * HIDDEN, "normal", seed)
    for k in range(groups):
        alpha[k::groups, k * HIDDEN : (k + 1) * HIDDEN] = 0.0
    return alpha, b
