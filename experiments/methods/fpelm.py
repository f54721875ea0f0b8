"""FPELM-AE: the FP-ELM autoencoder (eq:fp_elm_train), one sample per step, in an exact block form.

With V = (r I + K) beta the recursion of the paper is V_t = a^2 V_{t-1} + h_t' x_t, so the error of
sample t needs only w_t = (r I + K_{t-1})^-1 h_t, an N x N solve that no recursion spares, and

    h_t beta_{t-1} = a^2t w_t V_0 + sum_{s<t} a^2(t-1-s) (w_t . h_s) x_s

over a block is matrix products. What the solve costs a step is in the latency figures.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import blas, lapack

from experiments.methods import Entry, Hyperparameters
from onlad import reference
from onlad.reference import Array

ROWS = 64  # a block


class FpElm:
    """FP-ELM with batch size 1; scores are mean squared errors."""

    def __init__(
        self,
        n_features: int,
        *,
        n_hidden: int,
        activation: reference.Activation,
        forgetting: float,
        ridge: float,
        seed: int,
    ) -> None:
        self.alpha, self.b = reference.draw(n_features, n_hidden, "uniform", seed)
        self.activation: reference.Activation = activation
        self.forgetting, self.ridge = forgetting, ridge
        self.K = np.zeros((n_hidden, n_hidden), order="F")  # its lower triangle
        self.V = np.zeros((n_hidden, n_features))

    def _hidden(self, X: Array) -> Array:
        return reference.activate(X @ self.alpha + self.b, self.activation)

    def _solve(self, right: Array) -> Array:
        """Return (r I + K)^-1 right, by Cholesky."""
        regular = self.K.copy(order="F")
        regular.ravel(order="K")[:: len(self.K) + 1] += self.ridge
        _, found, failed = lapack.dposv(regular, right, lower=1, overwrite_a=1)
        if failed:
            raise np.linalg.LinAlgError(f"r I + K is not positive definite ({failed})")
        return found

    def fit(self, X: Array) -> None:
        X = X.astype("float64")
        H = self._hidden(X)
        self.K = np.asfortranarray(H.T @ H)
        self.V = H.T @ X

    def score(self, X: Array) -> Array:
        return reference.reduce_error(X - self._hidden(X) @ self._solve(self.V))

    def stream(self, X: Array) -> Array:
        blocks = np.array_split(X, len(X) // ROWS + 1)
        return np.concatenate([self._block(rows.astype("float64")) for rows in blocks])

    def _block(self, X: Array) -> Array:
        H, W = self._hidden(X), np.empty((len(X), len(self.K)))
        a2 = self.forgetting**2
        for h, w in zip(H, W, strict=True):
            w[:] = self._solve(h)
            self.K *= a2
            blas.dsyr(1.0, h, a=self.K, lower=1, overwrite_a=1)
        t = np.arange(len(X))
        older = t[:, None] - 1 - t  # steps from s to the state that sample t meets
        weights = np.where(older >= 0, a2 ** np.maximum(older, 0), 0.0)
        E = X - (a2**t)[:, None] * (W @ self.V) - ((W @ H.T) * weights) @ X
        self.V = a2 ** len(X) * self.V + (H * (a2 ** t[::-1])[:, None]).T @ X
        return reference.reduce_error(E)


def build(hyperparameters: Hyperparameters, n_features: int, seed: int) -> FpElm:
    return FpElm(n_features, **hyperparameters, seed=seed)


METHODS = {"fpelm": Entry("FPELM-AE", "os-elm", build, trials=50)}
