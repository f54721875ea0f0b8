"""`Detector`: the algorithm on arrays. No scaling, no threshold: `onlad.monitor` has those."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, cast

import numpy as np

from onlad import block, kernel, reference, samples
from onlad.errors import NotInModelError, OnladError
from onlad.forgetting import Constant, Forgetting
from onlad.reference import Activation, Array, Loss, Score, State, Weights
from onlad.state import DetectorSettings, DetectorState, Dtype, to_kernel


class Detector:
    """An OS-ELM autoencoder that scores each sample, then learns it, and forgets the past.

    It works from the first sample on; `fit` starts it from many samples at once. The number of
    features is that of the first data it learns.

    Parameters
    ----------
    n_hidden
        Hidden units.
    activation
        ``sigmoid``, ``identity``, ``relu`` or ``tanh``.
    weights
        How the random layer is drawn: ``uniform`` is Uniform[-1, 1], ``uniform01`` is
        Uniform[0, 1] as the paper prints it, ``normal`` is Normal(0, 1/n).
    forgetting
        The factor a of the paper, 0 < a <= 1: squared errors k samples ago weigh a^(2k). Or a
        policy of `onlad.forgetting`, which adapts it to the scores.
    score
        ``reconstruction`` (the paper's), ``leverage``, or ``combined`` of both.
    loss
        Mean of the ``squared`` or of the ``absolute`` errors.
    ridge
        Regularisation of the start at beta = 0. With 0, as in the paper, call `fit` first, with
        more samples than hidden units.
    dtype
        ``float64`` or ``float32``.
    seed
        Of the random layer.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> detector = Detector(n_hidden=16, seed=1)
    >>> for _ in range(300):                        # two sensors that move together
    ...     level = rng.uniform()
    ...     _ = detector.update_one(np.array([level, 1 - level]))
    >>> detector.score_one([0.5, 0.5]) < detector.score_one([0.9, 0.9])
    True
    """

    def __init__(
        self,
        *,
        n_hidden: int = 64,
        activation: Activation = "sigmoid",
        weights: Weights = "uniform",
        forgetting: float | Forgetting = 0.99,
        score: Score = "combined",
        loss: Loss = "squared",
        ridge: float = 1e-2,
        dtype: Dtype = "float64",
        seed: int = 0,
    ) -> None:
        samples.choice("activation", activation, reference.ACTIVATIONS)
        samples.choice("weights", weights, reference.WEIGHTS)
        samples.choice("score", score, reference.SCORES)
        samples.choice("loss", loss, reference.LOSSES)
        samples.choice("dtype", dtype, ("float64", "float32"))
        if not (samples.is_real(ridge) and 0 <= ridge < np.inf):
            raise ValueError(f"ridge must be finite and not negative, got {ridge!r}")
        if samples.is_real(forgetting):
            forgetting = Constant(float(cast("float", forgetting)))
        if not hasattr(forgetting, "start"):
            raise TypeError(
                f"forgetting must be a number or a policy of onlad.forgetting, got {forgetting!r}"
            )
        self.n_hidden = samples.whole("n_hidden", n_hidden, 1)
        self.activation: Activation = activation
        self.weights: Weights = weights
        self.forgetting = cast("Forgetting", forgetting)
        self.score: Score = score
        self.loss: Loss = loss
        self.ridge = float(ridge)
        self.dtype: Dtype = dtype
        self.seed = samples.whole("seed", seed, 0)
        self._largest = kernel.LARGEST[dtype]
        self._kernel: kernel.Kernel | None = None
        self._memory = self.forgetting.start
        self._a = self._memory[0]
        self._follows = not isinstance(self.forgetting, Constant)

    # -- learning ---------------------------------------------------------------------------

    def fit(self, X: Any) -> Detector:
        """Forget everything and start from the rows of `X` (the paper's initial training)."""
        X = samples.matrix(X, None, "float64", self._largest)
        alpha, b = reference.draw(X.shape[1], self.n_hidden, self.weights, self.seed)
        gram, moment = np.zeros((self.n_hidden,) * 2), np.zeros((self.n_hidden, X.shape[1]))
        for rows in np.array_split(X, len(X) // 4096 + 1):  # H of all rows may not fit in memory
            H = reference.activate(rows @ alpha + b, self.activation)
            gram += H.T @ H
            moment += H.T @ rows
        return self.fit_sums(gram, moment, len(X))

    def fit_sums(self, gram: Array, moment: Array, rows: int) -> Detector:
        """Do what `fit` does, from H'H (N, N) and H'X (N, n) over `rows` samples.

        H is the hidden layer of the samples X. Sums add, so parts of a large X can be summed
        where they are.
        """
        if self.ridge == 0 and rows <= self.n_hidden:
            raise ValueError(
                f"fit got {rows} samples for {self.n_hidden} hidden units; without ridge it "
                "needs more samples than hidden units. Give more, or ridge > 0"
            )
        layer = reference.draw(moment.shape[1], self.n_hidden, self.weights, self.seed)
        gram = gram + self.ridge * np.eye(self.n_hidden)
        self.begin(layer, gram, moment, shrink=1.0, weight=rows, seen=rows)
        return self

    def update_one(self, x: Any) -> float:
        """Return the score of `x`, then learn it."""
        if self._kernel is None:
            x = self._vector(x)
            self._kernel = self._fresh(len(x))
        score = self._kernel.update(x, self._a)
        if score is None:  # the kernel takes finite float vectors of the right length only
            score = self._kernel.update(self._vector(x), self._a)
            assert score is not None
        if self._follows:
            self._remember(self.forgetting.step(self._memory, score))
        return score

    def learn_one(self, x: Any) -> None:
        """Learn `x`."""
        self.update_one(x)

    def score_one(self, x: Any) -> float:
        """Return how unusual `x` is, and learn nothing."""
        x = self._vector(x) if self._kernel is None else x
        model = self._kernel or self._fresh(len(x))
        score = model.score(x, self._a)
        if score is None:  # as in update_one
            score = model.score(self._vector(x), self._a)
        assert score is not None
        return score

    def update_many(self, X: Any) -> Array:
        """Return the scores of the rows of `X`, each learned after its score.

        The same as a loop of `update_one`, within rounding: large models take the exact block
        form (`onlad.block`), small ones a compiled loop.
        """
        X = self._matrix(X)
        if len(X) == 0:
            return np.empty(0)
        model = self._kernel = self._kernel or self._fresh(X.shape[1])
        if self._follows:
            return np.array([self.update_one(x) for x in X])
        a = np.full(len(X), self._a)
        if block.pays(X.shape[1], self.n_hidden):
            loss, leverage = block.update_many(model, X, a)
        else:
            loss, leverage = np.empty(len(X)), np.empty(len(X))
            model.update_many(X=X, a=a, loss=loss, leverage=leverage)
        return reference.combine(loss, leverage, self.score)

    def learn_many(self, X: Any) -> None:
        """Learn the rows of `X` in order."""
        self.update_many(X)

    def score_many(self, X: Any) -> Array:
        """Return how unusual each row of `X` is, and learn nothing."""
        X = self._matrix(X)
        loss, leverage = np.empty(len(X)), np.empty(len(X))
        model = self._kernel or self._fresh(X.shape[1])
        model.score_many(X=X, a=self._a, loss=loss, leverage=leverage)
        return reference.combine(loss, leverage, self.score)

    def unlearn(self, x: Any) -> None:
        """Remove `x`, as if it had never been learned. Exact if nothing is forgotten.

        Raises
        ------
        NotInModelError
            `x` cannot have been learned: the model knows too little without it.
        """
        x = self._vector(x)
        if self._kernel is None or not self._kernel.take_back(x):
            raise NotInModelError("x was not learned by this model, so it cannot be unlearned")

    # -- inspection -------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """alpha, b, beta and P: read-only views, and P computed from its root."""
        k = self.compiled()
        S = k.S.astype("float64")
        state = State(k.alpha, k.b[0], k.beta_t.T, reference.symmetric(S @ S.T))
        for array in state:
            array.flags.writeable = False
        return state

    @property
    def n_features(self) -> int | None:
        """Features per sample, or None before the first."""
        return None if self._kernel is None else len(self._kernel.alpha)

    @property
    def n_seen(self) -> int:
        """Samples learned."""
        return 0 if self._kernel is None else self._kernel.seen

    @property
    def n_skipped(self) -> int:
        """Samples that were scored but could not be learned."""
        return 0 if self._kernel is None else self._kernel.skipped

    @property
    def n_paused(self) -> int:
        """Steps that forgot nothing because P was wound up."""
        return 0 if self._kernel is None else self._kernel.paused

    # -- for the fleet and the experiments ----------------------------------------------------

    @property
    def factor(self) -> float:
        """The forgetting factor of the next sample."""
        return self._a

    def start(self, n_features: int) -> Detector:
        """Start without data, for samples of `n_features`."""
        self._kernel = self._fresh(n_features)
        return self

    def begin(
        self, layer: tuple[Array, Array], gram: Array, moment: Array, *,
        shrink: float, weight: float, seen: int,
    ) -> None:  # fmt: skip
        """Start from sufficient statistics, K = `gram` and V = `moment`, of the random `layer`."""
        alpha, b = layer
        try:
            L = np.linalg.cholesky(gram)
        except np.linalg.LinAlgError:
            raise ValueError(
                "the hidden activations of these samples do not span all hidden units, so P does "
                "not exist. Give ridge > 0, fewer hidden units, or other samples"
            ) from None
        S = np.linalg.inv(L).T  # K = L L', so P = L'^-1 L^-1
        trace = self.n_hidden / self.ridge if self.ridge else float(np.sum(S * S))
        self._remember(self.forgetting.start)
        state = DetectorState(
            S=S, alpha=alpha, b=b, beta=S @ (S.T @ moment), memory=np.array(self._memory),
            trace_start=trace, shrink=shrink, weight=weight, seen=seen,
        )  # fmt: skip
        self._kernel = to_kernel(self.settings(), state)

    def compiled(self) -> kernel.Kernel:
        """Return the compiled model."""
        if self._kernel is None:
            raise OnladError("there is no state before the first sample")
        return self._kernel

    # -- values in and out: files, copies, pickles ------------------------------------------

    def settings(self) -> DetectorSettings:
        """Return the arguments that make an equal detector."""
        return DetectorSettings(
            n_hidden=self.n_hidden, activation=self.activation, weights=self.weights,
            forgetting=self.forgetting, score=self.score, loss=self.loss, ridge=self.ridge,
            dtype=self.dtype, seed=self.seed,
        )  # fmt: skip

    def learned(self) -> DetectorState | None:
        """Return what the detector has learned; None before the first sample."""
        return None if self._kernel is None else self.started()

    def started(self) -> DetectorState:
        """Return what `learned` returns, of a detector that has started."""
        return DetectorState(**self.compiled().values(), memory=np.array(self._memory))

    @classmethod
    def resumed(cls, settings: DetectorSettings, state: DetectorState | None = None) -> Detector:
        """Return a detector with these settings and state; it continues bit for bit."""
        self = cls(**{field.name: getattr(settings, field.name) for field in fields(settings)})
        if state is not None:
            self._kernel = to_kernel(self.settings(), state)
            self._remember(tuple(state.memory.tolist()))
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).resumed, (self.settings(), self.learned())

    def __repr__(self) -> str:
        return repr(self.settings()).replace("DetectorSettings", "Detector", 1)

    # -- inside -----------------------------------------------------------------------------

    def _vector(self, x: Any) -> Array:
        return samples.vector(x, self.n_features, self.dtype, self._largest)

    def _matrix(self, X: Any) -> Array:
        return samples.matrix(X, self.n_features, self.dtype, self._largest)

    def _fresh(self, n_features: int) -> kernel.Kernel:
        if self.ridge == 0:
            raise OnladError("without ridge there is no start: call fit first, or give ridge > 0")
        alpha, b = reference.draw(n_features, self.n_hidden, self.weights, self.seed)
        state = DetectorState(
            S=np.eye(self.n_hidden) / np.sqrt(self.ridge), alpha=alpha, b=b,
            beta=np.zeros((self.n_hidden, n_features)), memory=np.array(self._memory),
            trace_start=self.n_hidden / self.ridge,
        )  # fmt: skip
        return to_kernel(self.settings(), state)

    def _remember(self, memory: tuple[float, ...]) -> None:
        self._memory = memory
        self._a = memory[0]


def merge(a: Detector, b: Detector) -> Detector:
    """Return the detector that has seen what both have; its settings are those of `a`.

    Both need the same random layer (equal n_hidden, weights, seed, features) and activation.
    Exact for forgetting 1; else each sample keeps the weight that it has in its own detector.
    """
    if a.n_features is None or b.n_features is None:
        raise ValueError("a detector that has learned nothing cannot be merged")
    one, other = a.started(), b.started()
    if a.activation != b.activation or not (
        np.array_equal(one.alpha, other.alpha) and np.array_equal(one.b, other.b)
    ):
        raise ValueError(
            "only detectors with one random layer can be merged: equal features, n_hidden, "
            f"activation, weights and seed. Got {a!r} on {a.n_features} features and {b!r} on "
            f"{b.n_features}"
        )
    roots = [np.linalg.inv(part.S.astype("float64")) for part in (one, other)]  # K = R'R
    # Both hold the ridge they started from, as far as it is not forgotten: keep it once.
    twice = min(a.ridge * one.shrink, b.ridge * other.shrink)
    grams = [R.T @ R for R in roots]
    merged = Detector.resumed(a.settings())
    merged.begin(
        (one.alpha.astype("float64"), one.b.astype("float64")),
        reference.symmetric(grams[0] + grams[1]) - twice * np.eye(a.n_hidden),
        grams[0] @ one.beta.astype("float64") + grams[1] @ other.beta.astype("float64"),
        shrink=max(one.shrink, other.shrink),
        weight=one.weight + other.weight,
        seen=one.seen + other.seen,
    )
    return merged
