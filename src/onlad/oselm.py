"""`OsElm`: OS-ELM with targets that are not the sample, for regression and classification."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from onlad import kernel, reference, samples
from onlad.errors import OnladError
from onlad.forgetting import Constant, check_factor
from onlad.reference import Activation, Array, State, Weights
from onlad.state import DetectorSettings, DetectorState, Dtype, of_kernel, to_kernel

if TYPE_CHECKING:
    from onlad.kernel import Kernel


class OsElm:
    """An OS-ELM that learns a vector `t` from a sample `x`, and forgets the past.

    It works from the first sample. `fit` gives it a start from many. The numbers of features and of
    targets are those of the first data it learns. One target may be given as a number.

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
        samples.choice("activation", activation, reference.ACTIVATIONS)
        samples.choice("weights", weights, reference.WEIGHTS)
        samples.choice("dtype", dtype, ("float64", "float32"))
        check_factor("forgetting", forgetting)
        if not (samples.is_real(ridge) and 0 < ridge < np.inf):
            raise ValueError(f"ridge must be finite and above 0, got {ridge!r}")
        self.n_hidden = samples.whole("n_hidden", n_hidden, 1)
        self.activation: Activation = activation
        self.weights: Weights = weights
        self.forgetting = float(forgetting)
        self.ridge = float(ridge)
        self.dtype: Dtype = dtype
        self.seed = samples.whole("seed", seed, 0)
        self._kernel: Kernel | None = None
        self._n = 0  # features
        self._row = np.empty(0)  # [x, t] of one sample

    def fit(self, X: Any, T: Any) -> OsElm:
        """Forget everything and start from the rows of `X` and their targets."""
        X, T = self._pair(X, T)
        fresh = self._state(X.shape[1], T.shape[1])
        state = reference.fit(
            fresh, X, ridge=self.ridge, activation=self.activation, T=np.hstack([X, T])
        )
        self._begin(state, X.shape[1], seen=len(X))
        return self

    def learn_one(self, x: Any, t: Any) -> None:
        """Learn that `x` has the target `t`."""
        row = self._joined(x, t)
        assert self._kernel is not None
        self._kernel.update(row, self.forgetting)

    def learn_many(self, X: Any, T: Any) -> None:
        """Learn the rows of `X` with the targets `T` in order, as a loop of `learn_one` would."""
        X, T = self._pair(X, T, known=True)
        if not len(X):
            return
        self._started(X.shape[1], T.shape[1])
        assert self._kernel is not None
        rows = np.ascontiguousarray(np.hstack([X, T]), self.dtype)
        loss, leverage = np.empty(len(X)), np.empty(len(X))
        self._kernel.update_many(rows, np.full(len(X), self.forgetting), loss, leverage)

    def predict_one(self, x: Any) -> Array:
        """Return the predicted target of one sample, shape (m,)."""
        predicted: Array = self.predict_many(samples.numbers(x, "x")[None])[0]
        return predicted

    def predict_many(self, X: Any) -> Array:
        """Return the predicted targets of the rows of `X`, shape (rows, m)."""
        if self._kernel is None:
            raise OnladError("there is nothing to predict with before the first sample")
        X = samples.matrix(X, self._n, self.dtype, kernel.LARGEST[self.dtype])
        k = self._kernel
        H = reference.activate(X @ k.alpha[: self._n] + k.b[0], self.activation)
        predicted: Array = H @ k.beta_t[self._n :].T
        return predicted

    def add_target(self) -> None:
        """Add a column to the targets. The model is exactly the one for which it was always 0."""
        if self._kernel is None:
            raise OnladError("there are no targets before the first sample")
        one, zero = self._learned(self._kernel), np.zeros((1, self.n_hidden))
        alpha, beta = np.vstack([one.alpha, zero]), np.hstack([one.beta, zero.T])
        self._row = np.empty(len(self._row) + 1, self.dtype)
        self._make(replace(one, alpha=alpha, beta=beta))

    @property
    def state(self) -> State:
        """Copies of alpha (n, N), b (N,), beta (N, m) and P (N, N)."""
        if self._kernel is None:
            raise OnladError("there is no state before the first sample")
        k, n = self._kernel, self._n
        S = k.S.astype("float64")
        P = reference.symmetric(S @ S.T)
        return State(np.array(k.alpha[:n]), np.array(k.b[0]), np.array(k.beta_t[n:].T), P)

    @property
    def n_seen(self) -> int:
        """Samples learned."""
        return 0 if self._kernel is None else self._kernel.seen

    # -- copies and pickles, which go on to the last bit

    def __getstate__(self) -> dict[str, Any]:
        learned = None if self._kernel is None else self._learned(self._kernel)
        return vars(self) | {"_kernel": learned}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if state["_kernel"] is not None:
            self._make(state["_kernel"])

    # -- inside: the compiled step is an autoencoder. That of [x, t] whose t has no input weights
    # -- is OS-ELM: h comes from x alone, and the columns of beta do not know each other.

    def _state(self, n: int, m: int) -> State:
        alpha, b = reference.draw(n, self.n_hidden, self.weights, self.seed)
        N = self.n_hidden
        return State(alpha, b, np.zeros((N, n + m)), np.eye(N) / self.ridge)

    def _begin(self, state: State, n: int, seen: int) -> None:
        self._n, self._row = n, np.empty(state.beta.shape[1], self.dtype)
        S = np.linalg.cholesky(state.P)
        alpha = np.vstack([state.alpha, np.zeros((state.beta.shape[1] - n, self.n_hidden))])
        self._make(
            DetectorState(
                S=S, alpha=alpha, b=state.b, beta=state.beta, memory=np.array([self.forgetting]),
                trace_start=self.n_hidden / self.ridge, weight=seen, seen=seen,
            )
        )  # fmt: skip

    def _learned(self, k: Kernel) -> DetectorState:
        return of_kernel(k, np.array([self.forgetting]))

    def _make(self, state: DetectorState) -> None:
        settings = DetectorSettings(
            n_hidden=self.n_hidden, activation=self.activation, weights=self.weights,
            forgetting=Constant(self.forgetting), score="reconstruction", loss="squared",
            ridge=self.ridge, dtype=self.dtype, seed=self.seed,
        )  # fmt: skip
        self._kernel = to_kernel(settings, state)

    def _started(self, n: int, m: int) -> None:
        if self._kernel is None:
            self._begin(self._state(n, m), n, seen=0)

    def _joined(self, x: Any, t: Any) -> Array:
        largest = kernel.LARGEST[self.dtype]
        known = None if self._kernel is None else self._n
        x = samples.vector(x, known, self.dtype, largest)
        t = np.atleast_1d(samples.numbers(t, "t"))
        t = samples.vector(
            t, None if known is None else len(self._row) - known, self.dtype, largest, "t"
        )
        self._started(len(x), len(t))
        self._row[: self._n], self._row[self._n :] = x, t
        return self._row

    def _pair(self, X: Any, T: Any, known: bool = False) -> tuple[Array, Array]:
        largest = kernel.LARGEST[self.dtype]
        n = self._n if known and self._kernel is not None else None
        X = samples.matrix(X, n, "float64", largest)
        T = samples.numbers(T, "T")
        T = samples.matrix(
            T[:, None] if T.ndim == 1 else T,
            None if n is None else len(self._row) - n,
            "float64",
            largest,
            "T",
        )
        if len(X) != len(T):
            raise ValueError(f"X has {len(X)} rows but T has {len(T)}")
        return X, T
