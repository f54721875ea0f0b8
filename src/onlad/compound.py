"""Other ways to forget, to stack and to mix: a window, directional forgetting, layers, a mixture.

Each has `fit`, `update_one`, `score_one`, `update_many` and `score_many` as `Detector` has them,
scores with the paper's mean squared error, and runs on compiled steps. `onlad.variants` has the
equations, and `onlad.reference` those of FP-ELM.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, TypeVar

import numpy as np

from onlad import kernel, reference, samples, variants
from onlad.detector import Detector
from onlad.errors import OnladError
from onlad.forgetting import Adaptive, Forgetting
from onlad.oselm import OsElm
from onlad.reference import Activation, Array
from onlad.state import DetectorState


class _Streamed:
    """A model in float64 that starts from rows, or from the first sample that it is given."""

    _n: int | None = None  # features, once it has started

    def fit(self: S, X: Any) -> S:
        """Forget everything and start from the rows of `X`."""
        X = samples.matrix(X, None, "float64", kernel.LARGEST["float64"])
        self._begin(X)
        self._n = X.shape[1]
        return self

    def update_one(self, x: Any) -> float:
        """Return the score of `x`, then learn it."""
        return float(self.update_many(self._row(x)[None])[0])

    def update_many(self, X: Any) -> Array:
        """Return the scores of the rows of `X`, each learned after its score."""
        X = self._rows(X)
        if self._n is None and len(X):
            self.fit(X[:0])
        return np.array([self._learn(x) for x in X])

    def score_one(self, x: Any) -> float:
        """Return how unusual `x` is, and learn nothing."""
        return float(self.score_many(self._row(x)[None])[0])

    def score_many(self, X: Any) -> Array:
        """Return how unusual each row of `X` is, and learn nothing."""
        X = self._rows(X)
        return (self if self._n else deepcopy(self).fit(X[:0]))._scores(X)

    def _row(self, x: Any) -> Array:
        return samples.vector(x, self._n, "float64", kernel.LARGEST["float64"])

    def _rows(self, X: Any) -> Array:
        return samples.matrix(X, self._n, "float64", kernel.LARGEST["float64"])

    def _begin(self, X: Array) -> None:
        """Start from rows, of which there may be none."""
        raise NotImplementedError

    def _learn(self, x: Array) -> float:
        """Return the score of a sample, then learn it."""
        raise NotImplementedError

    def _scores(self, X: Array) -> Array:
        raise NotImplementedError


S = TypeVar("S", bound=_Streamed)


def _above_zero(ridge: float) -> float:
    if not (samples.is_real(ridge) and 0 < ridge < np.inf):
        raise ValueError(f"ridge must be finite and above 0, got {ridge!r}")
    return ridge


class Windowed(_Streamed):
    """A detector that has learned the last `window` samples only (FOS-ELM).

    A sample that leaves the window is removed by `Detector.unlearn`. `settings` are arguments of
    `Detector`. Nothing is forgotten otherwise, and `dtype` is float64, because rounding errors of
    removed samples remain.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).uniform(size=(300, 3))
    >>> model, twin = Windowed(50, n_hidden=8), Windowed(50, n_hidden=8).fit(X[-50:])
    >>> _ = model.update_many(X)
    >>> bool(np.isclose(model.score_one(X[0]), twin.score_one(X[0])))
    True
    """

    def __init__(self, window: int, **settings: Any) -> None:
        self.window = samples.whole("window", window, 1)
        self.detector = Detector(
            **{"score": "reconstruction", **settings, "forgetting": 1.0, "dtype": "float64"}
        )
        self._held: deque[Array] = deque()

    def _begin(self, X: Array) -> None:
        X = X[-self.window :]
        self.detector.fit(X)
        self._held = deque(np.array(x) for x in X)

    def _learn(self, x: Array) -> float:
        score = self.detector.update_one(x)
        self._held.append(np.array(x))
        if len(self._held) > self.window:
            self.detector.unlearn(self._held[0])
            self._held.popleft()
        return score

    def _scores(self, X: Array) -> Array:
        return self.detector.score_many(X)


class Directional(_Streamed):
    """A detector that forgets only along what a sample excites, the faster the higher its error.

    Adaptive directional forgetting, which `onlad.variants` takes lambda_DFF OS-ELM for. `rho` sets
    how far the factor falls.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).uniform(size=(300, 3))
    >>> model = Directional(n_hidden=8)
    >>> scores = model.update_many(X)
    >>> bool(scores[-50:].mean() < scores[:50].mean())
    True
    """

    def __init__(
        self,
        *,
        n_hidden: int = 64,
        rho: float = 0.99,
        activation: Activation = "sigmoid",
        ridge: float = 1e-2,
        seed: int = 0,
    ) -> None:
        if not (samples.is_real(rho) and 0 <= rho < np.inf):
            raise ValueError(f"rho must be finite and at least 0, got {rho!r}")
        self._model = Detector(
            n_hidden=n_hidden, activation=activation, forgetting=1.0, score="reconstruction",
            ridge=_above_zero(ridge), seed=seed,
        )  # fmt: skip
        self.rho, self.memory = rho, variants.Directional()

    def _begin(self, X: Array) -> None:
        self._model.fit(X)
        self.memory = variants.Directional()

    def _learn(self, x: Array) -> float:
        model = self._model.compiled()
        score = model.update_directional(x, self.memory.factor)
        assert score is not None  # x is checked
        if model.leverage > 0:
            self.memory = variants.dff_follow(self.memory, model.leverage, score, self.rho)
        return score

    def _scores(self, X: Array) -> Array:
        return self._model.score_many(X)


class FpElm(_Streamed):
    """A detector whose ridge is never forgotten, at the price of a solve per sample (FP-ELM).

    `forgetting` is a factor or a policy of `onlad.forgetting`. Unlike in `Detector` a sample is
    learned with the factor that follows its own score.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).uniform(size=(300, 3))
    >>> model = FpElm(n_hidden=8)
    >>> scores = model.update_many(X)
    >>> bool(scores[-50:].mean() < scores[:50].mean())
    True
    """

    def __init__(
        self,
        *,
        n_hidden: int = 64,
        activation: Activation = "sigmoid",
        forgetting: float | Forgetting = Adaptive(),  # noqa: B008  (frozen)
        ridge: float = 0.02,
        seed: int = 0,
    ) -> None:
        self._model = Detector(
            n_hidden=n_hidden, activation=activation, forgetting=forgetting,
            score="reconstruction", ridge=_above_zero(ridge), seed=seed,
        )  # fmt: skip
        self.memory = self._model.forgetting.start

    def score_one(self, x: Any) -> float:
        """Return how unusual `x` is, and learn nothing."""
        return self._score(self._row(x)) if self._n else super().score_one(x)

    def _begin(self, X: Array) -> None:
        # K stands in the place of S, and V in that of beta (fpelm.hpp).
        own = self._model
        alpha, b = reference.draw(X.shape[1], own.n_hidden, own.weights, own.seed)
        H = reference.activate(X @ alpha + b, own.activation)
        self.memory = own.forgetting.start
        state = DetectorState(
            S=H.T @ H, alpha=alpha, b=b, beta=H.T @ X, memory=np.array(self.memory),
            trace_start=1.0, seen=len(X),
        )  # fmt: skip
        self._model = Detector.resumed(own.settings(), state)

    def _learn(self, x: Array) -> float:
        score = self._score(x)
        self.memory = self._model.forgetting.step(self.memory, score)
        self._model.compiled().fp_elm_learn(self.memory[0])
        return score

    def _score(self, x: Array) -> float:
        score = self._model.compiled().fp_elm_score(x, self._model.ridge)
        assert score is not None  # x is checked
        if math.isnan(score):
            raise OnladError(
                f"rounding of K exceeds the ridge {self._model.ridge:g}, so r I + K has no "
                "inverse. Scale the samples to about unit size, or give a larger ridge"
            )
        return score

    def _scores(self, X: Array) -> Array:
        own, k = self._model, self._model.compiled()
        beta = np.linalg.solve(k.S + own.ridge * np.eye(own.n_hidden), k.beta_t.T)
        H = reference.activate(X @ k.alpha + k.b, own.activation)
        return reference.reduce_error(X - H @ beta)


class Stacked(_Streamed):
    """Layers of OS-ELM autoencoders, and on top one that reconstructs the sample (ML-OSELM).

    Parameters
    ----------
    n_hidden
        Hidden units of each layer, from the lowest to the last.
    activation, forgetting, ridge, seed
        As in `Detector`; each layer draws weights of its own.

    Examples
    --------
    >>> import numpy as np
    >>> level = np.random.default_rng(0).uniform(size=(400, 1))
    >>> model = Stacked([16, 8]).fit(np.hstack([level, 1 - level, level**2]))
    >>> model.score_one([0.5, 0.5, 0.25]) < model.score_one([0.9, 0.9, 0.1])
    True
    """

    def __init__(
        self,
        n_hidden: Sequence[int],
        *,
        activation: Activation = "sigmoid",
        forgetting: float = 0.99,
        ridge: float = 1e-2,
        seed: int = 0,
    ) -> None:
        if len(n_hidden) < 1:
            raise ValueError(f"n_hidden must name at least one layer, got {n_hidden!r}")
        rest: dict[str, Any] = {"activation": activation, "ridge": ridge, "forgetting": forgetting}
        *below, last = n_hidden
        self.layers = [
            Detector(n_hidden=n, **rest, score="reconstruction", seed=seed + i)
            for i, n in enumerate(below)
        ]
        self.top = OsElm(n_hidden=last, **rest, seed=seed + len(below))

    def _begin(self, X: Array) -> None:
        given = X
        for layer in self.layers:
            layer.fit(given)
            given = self._above(layer, given)
        self.top.fit(given, X)

    def _learn(self, x: Array) -> float:
        given = x
        for layer in self.layers:
            above = self._above(layer, given)
            layer.update_one(given)
            given = above
        return self.top.update_one(given, x)

    def _scores(self, X: Array) -> Array:
        given = X
        for layer in self.layers:
            given = self._above(layer, given)
        return reference.reduce_error(X - self.top.predict_many(given))

    def _above(self, layer: Detector, given: Array) -> Array:
        return reference.activate(given @ layer.compiled().beta_t, layer.activation)


class Mixture(_Streamed):
    """Several detectors; the one that reconstructs a sample best scores it and learns it.

    `settings` are arguments of `Detector`. `fit` assigns rows to instances by k-means; without it
    the instances differ only in their random layers.

    Examples
    --------
    >>> import numpy as np
    >>> level = np.random.default_rng(0).uniform(size=(400, 1))
    >>> rising, falling = np.hstack([level, level]), np.hstack([level, 1 - level])
    >>> model = Mixture(2, n_hidden=8).fit(np.vstack([rising, falling]))
    >>> model.score_one([0.9, 0.1]) < model.score_one([0.9, 0.5])
    True
    """

    def __init__(self, instances: int, **settings: Any) -> None:
        count = samples.whole("instances", instances, 1)
        settings = {"score": "reconstruction", **settings}
        seed = samples.whole("seed", settings.pop("seed", 0), 0)
        self.instances = [Detector(**settings, seed=seed + i) for i in range(count)]
        self.seed = seed

    def _begin(self, X: Array) -> None:
        least = 1 if self.instances[0].ridge else self.instances[0].n_hidden + 1
        nearest = _clusters(X, len(self.instances), np.random.default_rng(self.seed))
        for k, instance in enumerate(self.instances):
            mine = X[nearest == k]
            instance.fit(mine if len(mine) >= least else X)  # a cluster that is too small: all rows

    def _learn(self, x: Array) -> float:
        scores = [instance.score_one(x) for instance in self.instances]
        best = int(np.argmin(scores))
        self.instances[best].learn_one(x)
        return scores[best]

    def _scores(self, X: Array) -> Array:
        lowest: Array = np.min([one.score_many(X) for one in self.instances], axis=0)
        return lowest


def _clusters(X: Array, k: int, rng: np.random.Generator) -> Array:
    """Return the cluster of each row, by Lloyd's algorithm from random rows."""
    if not len(X):
        return np.empty(0)
    centres = X[rng.permutation(len(X))[:k]]
    for _ in range(20):
        # |x - c|^2 without |x|^2, which is the same for all centres.
        nearest: Array = ((centres**2).sum(1) - X @ (2 * centres).T).argmin(1)
        means = [
            X[nearest == j].mean(0) if np.any(nearest == j) else centres[j]
            for j in range(len(centres))
        ]
        if np.allclose(means, centres):
            break
        centres = np.array(means)
    return nearest
