"""`OsElm`: OS-ELM with targets that are not the sample, for regression and classification."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from onlad import kernel, reference, samples
from onlad.detector import Detector
from onlad.errors import OnladError
from onlad.forgetting import check_factor
from onlad.reference import Activation, Array, State, Weights
from onlad.state import Dtype


class OsElm:
    """An OS-ELM that learns a vector `t` from a sample `x`, and forgets the past.

    It works from the first sample on; `fit` starts it from many samples at once. The numbers of
    features and of targets are those of the first data. A single target may be a plain number.

    Parameters
    ----------
    n_hidden, activation, weights, ridge, dtype, seed
        As in `onlad.Detector`.
    forgetting
        The factor a of the paper, 0 < a <= 1.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> model = OsElm(n_hidden=32, activation="tanh", ridge=1e-4)
    >>> for _ in range(500):
    ...     x = rng.uniform(-1, 1, 2)
    ...     model.learn_one(x, x[0] * x[1])
    >>> bool(abs(model.predict_one([0.5, -0.5])[0] + 0.25) < 0.01)
    True
    """

    def __init__(
        self,
        *,
        n_hidden: int = 64,
        activation: Activation = "sigmoid",
        weights: Weights = "uniform",
        forgetting: float = 1.0,
        ridge: float = 1e-2,
        dtype: Dtype = "float64",
        seed: int = 0,
    ) -> None:
        check_factor("forgetting", forgetting)
        if not (samples.is_real(ridge) and 0 < ridge < np.inf):
            raise ValueError(f"ridge must be finite and above 0, got {ridge!r}")
        # An autoencoder of [x, t] whose t has no input weights is OS-ELM: h comes from x alone,
        # and the columns of beta do not depend on each other.
        self._model = Detector(
            n_hidden=n_hidden, activation=activation, weights=weights, forgetting=forgetting,
            score="reconstruction", ridge=ridge, dtype=dtype, seed=seed,
        )  # fmt: skip
        self.n_hidden = self._model.n_hidden
        self.activation = self._model.activation
        self.weights = self._model.weights
        self.forgetting = self._model.factor
        self.ridge = self._model.ridge
        self.dtype = self._model.dtype
        self.seed = self._model.seed
        self._n = 0  # features
        self._row = np.empty(0)  # [x, t] of one sample

    def fit(self, X: Any, T: Any) -> OsElm:
        """Forget everything and start from the rows of `X` and their targets."""
        X, T = self._pair(X, T)
        self._begin(X, T)
        return self

    def learn_one(self, x: Any, t: Any) -> None:
        """Learn that `x` has the target `t`."""
        row = self._joined(x, t)  # first: it may start the model
        self._model.learn_one(row)

    def update_one(self, x: Any, t: Any) -> float:
        """Return the mean squared error of the prediction for `x`, then learn its target `t`."""
        self.learn_one(x, t)
        error = self._model.compiled().error[0, self._n :]  # of beta before the step
        return float(reference.reduce_error(error))

    def learn_many(self, X: Any, T: Any) -> None:
        """Learn the rows of `X` with the targets `T` in order, as a loop of `learn_one` would."""
        X, T = self._pair(X, T, known=True)
        if not len(X):
            return
        if not self._n:
            self._begin(X[:0], T[:0])
        rows = np.ascontiguousarray(np.hstack([X, T]), self.dtype)
        loss, leverage = np.empty(len(X)), np.empty(len(X))
        factors = np.full(len(X), self.forgetting)
        self._model.compiled().update_many(X=rows, a=factors, loss=loss, leverage=leverage)

    def predict_one(self, x: Any) -> Array:
        """Return the predicted target of one sample, shape (m,)."""
        predicted: Array = self.predict_many(samples.numbers(x, "x")[None])[0]
        return predicted

    def predict_many(self, X: Any) -> Array:
        """Return the predicted targets of the rows of `X`, shape (rows, m)."""
        if not self._n:
            raise OnladError("no prediction is possible before the first sample")
        X = samples.matrix(X, self._n, self.dtype, kernel.LARGEST[self.dtype])
        k = self._model.compiled()
        H = reference.activate(X @ k.alpha[: self._n] + k.b[0], self.activation)
        predicted: Array = H @ k.beta_t[self._n :].T
        return predicted

    def add_target(self) -> None:
        """Add a column to the targets. The model is exactly the one for which it was always 0."""
        if not self._n:
            raise OnladError("there are no targets before the first sample")
        one, zero = self._model.started(), np.zeros((1, self.n_hidden))
        alpha, beta = np.vstack([one.alpha, zero]), np.hstack([one.beta, zero.T])
        self._model = Detector.resumed(self._model.settings(), replace(one, alpha=alpha, beta=beta))
        self._row = np.empty(len(alpha), self.dtype)

    @property
    def state(self) -> State:
        """Copies of alpha (n, N), b (N,), beta (N, m) and P (N, N)."""
        alpha, b, beta, P = self._model.state
        return State(alpha[: self._n].copy(), b.copy(), beta[:, self._n :].copy(), P.copy())

    @property
    def n_seen(self) -> int:
        """Samples learned."""
        return self._model.n_seen

    def __copy__(self) -> OsElm:
        return deepcopy(self)

    # -- inside -----------------------------------------------------------------------------

    def _begin(self, X: Array, T: Array) -> None:
        """Start from these rows and targets; without rows, from the ridge alone."""
        n, N = X.shape[1], self.n_hidden
        alpha, b = reference.draw(n, N, self.weights, self.seed)
        H = reference.activate(X @ alpha + b, self.activation)
        layer = np.vstack([alpha, np.zeros((T.shape[1], N))]), b
        gram, moment = H.T @ H + self.ridge * np.eye(N), H.T @ np.hstack([X, T])
        self._model.begin(layer, gram, moment, shrink=1.0, weight=len(X), seen=len(X))
        self._n, self._row = n, np.empty(len(layer[0]), self.dtype)

    def _joined(self, x: Any, t: Any) -> Array:
        largest = kernel.LARGEST[self.dtype]
        known = self._n or None
        x = samples.vector(x, known, self.dtype, largest)
        m = None if known is None else len(self._row) - known
        t = samples.vector(np.atleast_1d(samples.numbers(t, "t")), m, self.dtype, largest, "t")
        if known is None:
            self._begin(x[None][:0], t[None][:0])
        self._row[: self._n], self._row[self._n :] = x, t
        return self._row

    def _pair(self, X: Any, T: Any, known: bool = False) -> tuple[Array, Array]:
        largest = kernel.LARGEST[self.dtype]
        n = (self._n or None) if known else None
        X = samples.matrix(X, n, "float64", largest)
        T = samples.numbers(T, "T")
        T, m = T[:, None] if T.ndim == 1 else T, None if n is None else len(self._row) - n
        T = samples.matrix(T, m, "float64", largest, "T")
        if len(X) != len(T):
            raise ValueError(f"X has {len(X)} rows but T has {len(T)}")
        return X, T
