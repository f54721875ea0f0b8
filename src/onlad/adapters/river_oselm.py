"""OS-ELM as a River regressor and classifier."""

from __future__ import annotations

from collections.abc import Hashable
from numbers import Real
from typing import Any

import numpy as np

from onlad import kernel
from onlad.adapters import keep, made, needs
from onlad.oselm import OsElm
from onlad.reference import Activation, Array

with needs(__name__, "River", "river"):
    from river.base import Classifier, Regressor

LARGEST = kernel.LARGEST["float64"]


class _OsElmBase:
    """What both share: the model, and the features of the first sample, sorted."""

    def __init__(
        self,
        n_hidden: int = 64,
        *,
        activation: Activation = "sigmoid",
        forgetting: float = 1.0,
        ridge: float = 1e-2,
        seed: int | None = None,
    ) -> None:
        keep(self, locals())
        self._model = made(OsElm, vars(self), seed)
        self._names: tuple[Hashable, ...] = ()
        self._classes: list[Any] = []  # of a classifier

    def _vector(self, x: dict[Hashable, Any]) -> Array:
        # A value that is missing, no number, or not finite counts as 0: the mean after a scaler.
        return np.array([_finite(x.get(name)) for name in self._names])

    def _learn(self, x: dict[Hashable, Any], target: Any) -> None:
        if not self._names:
            self._names = tuple(sorted(x, key=repr))
        if self._names:
            self._model.learn_one(self._vector(x), target)


def _finite(value: Any) -> float:
    usable = isinstance(value, (Real, np.bool_)) and abs(value) <= LARGEST
    return float(value) if usable else 0.0


class OsElmRegressor(_OsElmBase, Regressor):
    """Regression by OS-ELM, one dict at a time; the past is forgotten with `forgetting` below 1.

    The features are those of the first sample: one that a later sample lacks counts as 0, and one
    that comes later is not used. Put a scaler in front.

    Parameters
    ----------
    n_hidden, activation, forgetting, ridge
        As in `onlad.OsElm`.
    seed
        Of the random layer. Without one, each model draws its own.

    Examples
    --------
    >>> import random
    >>> rng = random.Random(0)
    >>> model = OsElmRegressor(activation="tanh", ridge=1e-4, seed=1)
    >>> for _ in range(500):
    ...     a, b = rng.uniform(-1, 1), rng.uniform(-1, 1)
    ...     model.learn_one({"a": a, "b": b}, a * b)
    >>> abs(model.predict_one({"a": 0.5, "b": -0.5}) + 0.25) < 0.01
    True
    """

    def learn_one(self, x: dict[Hashable, Any], y: float) -> None:
        """Learn that `x` has the target `y`."""
        self._learn(x, float(y))

    def predict_one(self, x: dict[Hashable, Any]) -> float:
        """Return the predicted target; 0 before the first sample."""
        if not self._model.n_seen:
            return 0.0
        return float(self._model.predict_one(self._vector(x))[0])


class OsElmClassifier(_OsElmBase, Classifier):
    """Classification by OS-ELM: one column per class, and a new class at any time.

    A class that comes late gets a column as if it had been there from the start. Features and
    parameters are as in `OsElmRegressor`. Probabilities are the predicted columns, clipped to
    [0, 1] and divided by their sum: they rank classes, but are not calibrated.

    Examples
    --------
    >>> model = OsElmClassifier(seed=1)
    >>> for t in range(300):
    ...     model.learn_one({"level": t % 10}, "high" if t % 10 > 4 else "low")
    >>> model.predict_one({"level": 8}), model.predict_one({"level": 1})
    ('high', 'low')
    """

    _multiclass = True

    def learn_one(self, x: dict[Hashable, Any], y: Any) -> None:
        """Learn that `x` is of the class `y`."""
        if y not in self._classes:
            self._classes.append(y)
            if self._model.n_seen:
                self._model.add_target()
        self._learn(x, np.array([float(y == each) for each in self._classes]))

    def predict_proba_one(self, x: dict[Hashable, Any]) -> dict[Any, float]:
        """Return the probability of each class; empty before the first sample."""
        if not self._model.n_seen:
            return {}
        columns = np.clip(self._model.predict_one(self._vector(x)), 1e-9, 1.0)
        return dict(zip(self._classes, (columns / columns.sum()).tolist(), strict=True))
