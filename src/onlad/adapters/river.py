"""The detector as a River anomaly detector: dicts in, features may come and go."""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Iterable
from dataclasses import replace
from numbers import Real
from typing import Any, Literal, TypeAlias

import numpy as np

from onlad import _kernel, kernel, reference
from onlad.adapters import keep, made, needs
from onlad.detector import Detector
from onlad.forgetting import Forgetting
from onlad.reference import Activation, Array, Loss, Score
from onlad.state import DetectorState

with needs(__name__, "River", "river"):
    from river.base import AnomalyDetector

Names: TypeAlias = tuple[Hashable, ...]


class OnladDetector(AnomalyDetector):
    """An OS-ELM autoencoder that learns one dict at a time and forgets the past.

    A feature that a sample lacks counts as 0, and one that appears late counts as 0 until then:
    the model is exactly the one that had known it from the start, because each feature has
    random weights of its own, drawn from `seed` and its name. Values that are not finite numbers
    (NaN, None, text) count as missing. Put a scaler in front, so that 0 is a normal value.

    Parameters
    ----------
    n_hidden, activation, forgetting, loss, ridge
        As in `onlad.Detector`; `ridge` must be above 0. Weights are Uniform[-1, 1].
    score_type
        The `score` of `onlad.Detector`.
    dtype
        ``float32`` takes half of the time of ``float64`` on wide samples.
    seed
        Of the random layer. Without one, each detector draws its own.

    Examples
    --------
    >>> from river import preprocessing
    >>> model = preprocessing.StandardScaler() | OnladDetector(seed=1)
    >>> for t in range(500):
    ...     model.learn_one({"load": t % 10, "current": 3 * (t % 10) + 1})
    >>> usual, unusual = {"load": 2, "current": 7}, {"load": 2, "current": 25}
    >>> bool(model.score_one(usual) < model.score_one(unusual))
    True
    """

    def __init__(
        self,
        n_hidden: int = 64,
        *,
        activation: Activation = "sigmoid",
        forgetting: float | Forgetting = 0.99,
        score_type: Score = "combined",
        loss: Loss = "squared",
        ridge: float = 1e-2,
        dtype: Literal["float64", "float32"] = "float32",
        seed: int | None = None,
    ) -> None:
        keep(self, locals())
        if ridge == 0:
            raise ValueError("ridge must be above 0: River gives no samples to start from, got 0")
        self._model = made(Detector, vars(self), seed)
        self._names: Names = ()
        self._read: _kernel.DictReader | None = None  # while there are no features

    def learn_one(self, x: dict[Hashable, Any]) -> None:
        """Learn one sample; features that it is the first to have are added to the model."""
        try:
            row = self._read(x) if self._read else None
            if row is not None:
                self._model.update_one(row)
                return
        except (TypeError, ValueError):  # not a dict, or it has a NaN: check each value
            pass
        values = self._finite(x)
        self._grow(values)
        if self._names:
            self._model.learn_one(_vector(values, self._names))

    def score_one(self, x: dict[Hashable, Any]) -> float:
        """Return how unusual one sample is, and learn nothing: higher is more anomalous."""
        try:
            row = self._read(x) if self._read else None
            if row is not None:
                return self._model.score_one(row)
        except (TypeError, ValueError):
            pass
        values = self._finite(x)
        names, model = self._with(values)
        return model.score_one(_vector(values, names)) if names else 0.0

    def learn_many(self, X: Any) -> None:
        """Learn the rows of a data frame (pandas, Polars) in order."""
        if self._is_plain(X):
            self._grow(X.columns)
            self._model.learn_many(_matrix(X, self._names))
        else:
            for x in _rows(X):
                self.learn_one(x)

    def score_many(self, X: Any) -> Array:
        """Return how unusual each row of a data frame is, and learn nothing."""
        if self._is_plain(X):
            names, model = self._with(X.columns)
            return model.score_many(_matrix(X, names))
        return np.array([self.score_one(x) for x in _rows(X)], dtype="float64")

    def _with(self, features: Iterable[Hashable]) -> tuple[Names, Detector]:
        """Return names and model with `features` among them; self is not changed."""
        new = sorted(set(features).difference(self._names), key=repr)
        names = (*self._names, *new)
        if not new:
            return names, self._model
        N, seed = self.n_hidden, self._model.seed
        state = self._model.learned() or DetectorState(
            S=np.eye(N) / np.sqrt(self.ridge),
            alpha=np.empty((0, N)),
            b=reference.draw(1, N, "uniform", seed)[1],
            beta=np.empty((N, 0)),
            memory=np.array(self._model.forgetting.start),
            trace_start=N / self.ridge,
        )
        own = [(seed << 32) + zlib.crc32(repr(name).encode()) for name in new]
        rows = [reference.draw(1, N, "uniform", s)[0] for s in own]
        # beta = 0 is what a feature that was always 0 would have; h, and so S, never saw it.
        alpha = np.vstack([state.alpha, *rows])
        beta = np.hstack([state.beta, np.zeros((N, len(new)))])
        grown = replace(state, alpha=alpha, beta=beta)
        return names, Detector.resumed(self._model.settings(), grown)

    def _grow(self, features: Iterable[Hashable]) -> None:
        keys, before = tuple(features), self._names
        self._names, self._model = self._with(keys)
        if len(keys) < len(self._names):
            if self._names == before:
                return
            keys = self._names
        # The model has its own order of features, so that rounding does not depend on the order
        # in a dict. Dicts nearly always come in the same order, for which reading is fast.
        place = {name: i for i, name in enumerate(self._names)}
        self._read = _kernel.DictReader(keys, np.array([place[name] for name in keys], "int64"))

    def _finite(self, x: dict[Hashable, Any]) -> dict[Hashable, float]:
        values = {name: _number(value) for name, value in x.items()}
        largest = kernel.LARGEST[self.dtype]
        return {name: value for name, value in values.items() if abs(value) <= largest}

    def _is_plain(self, X: Any) -> bool:
        values = X.to_numpy()
        largest = kernel.LARGEST[self.dtype]
        return bool(values.size and values.dtype.kind in "fiub" and abs(values).max() <= largest)


def _number(value: Any) -> float:
    try:
        return float(value) if isinstance(value, (Real, np.bool_)) else np.nan
    except OverflowError:
        return np.inf


def _vector(values: dict[Hashable, float], names: Names) -> Array:
    return np.array([values.get(name, 0.0) for name in names])


def _matrix(X: Any, names: Names) -> Array:
    matrix = np.zeros((len(X), len(names)))
    place = {name: i for i, name in enumerate(names)}
    matrix[:, [place[name] for name in X.columns]] = X.to_numpy()
    return matrix


def _rows(X: Any) -> list[dict[Hashable, Any]]:
    names = list(X.columns)
    return [dict(zip(names, row, strict=True)) for row in X.to_numpy().tolist()]
