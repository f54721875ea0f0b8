"""OS-ELM as a scikit-learn regressor and classifier that can also be updated."""

from __future__ import annotations

from typing import Any

import numpy as np

from onlad.adapters import keep, made, needs
from onlad.oselm import OsElm
from onlad.reference import Activation, Array, Weights

with needs(__name__, "scikit-learn", "sklearn"):
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.preprocessing import StandardScaler
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data


class _OsElmBase(BaseEstimator):
    def __init__(
        self,
        n_hidden: int = 100,
        *,
        activation: Activation = "sigmoid",
        weights: Weights = "normal",
        forgetting: float = 1.0,
        ridge: float = 1e-2,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        keep(self, locals())

    def _fit(self, X: Array, T: Array) -> None:
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        model = made(OsElm, vars(self), seed)
        scaler = StandardScaler().fit(X)
        self.model_, self.scaler_ = model.fit(scaler.transform(X), T), scaler

    def _learn(self, X: Array, T: Array) -> None:
        # The scaler does not change: what was learned depends on it.
        self.model_.learn_many(self.scaler_.transform(X), T)

    def _predict(self, X: Any) -> Array:
        check_is_fitted(self)
        X = validate_data(self, X, dtype="float64", reset=False)
        return self.model_.predict_many(self.scaler_.transform(X))


class OsElmRegressor(RegressorMixin, _OsElmBase):
    """Regression by OS-ELM: a random layer, and a ridge regression that is exact at each step.

    Features are standardised inside by the rows of the first `fit` or `partial_fit`.

    Parameters
    ----------
    n_hidden, activation, weights, ridge
        As in `onlad.OsElm`.
    forgetting
        As in `onlad.OsElm`, for `partial_fit` alone: in `fit` all rows weigh the same.
    random_state
        Seed or generator of the random layer.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).uniform(-1, 1, (400, 2))
    >>> model = OsElmRegressor(random_state=0).fit(X[:200], X[:200, 0] * X[:200, 1])
    >>> model.partial_fit(X[200:], X[200:, 0] * X[200:, 1]).score(X, X[:, 0] * X[:, 1]) > 0.99
    True
    """

    def fit(self, X: Any, y: Any) -> OsElmRegressor:
        """Forget everything and learn the rows of `X`, all with the same weight."""
        X, y = validate_data(self, X, y, dtype="float64", multi_output=True, y_numeric=True)
        self._one = y.ndim == 1
        self._fit(X, y)
        return self

    def partial_fit(self, X: Any, y: Any) -> OsElmRegressor:
        """Learn the rows of `X` one after another, with forgetting. The first call is `fit`."""
        if not hasattr(self, "model_"):
            return self.fit(X, y)
        X, y = validate_data(
            self, X, y, dtype="float64", multi_output=True, y_numeric=True, reset=False
        )
        self._learn(X, y)
        return self

    def predict(self, X: Any) -> Array:
        """Return the predicted target of each row, shaped as `y` was."""
        predicted = self._predict(X)
        return predicted[:, 0] if self._one else predicted

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class OsElmClassifier(ClassifierMixin, _OsElmBase):
    """Classification by OS-ELM: one column per class, 1 for the class of a row and 0 elsewhere.

    Parameters are those of `OsElmRegressor`.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = OsElmClassifier(200, random_state=0).fit(X[:1000], y[:1000])
    >>> model.score(X[1000:], y[1000:]) > 0.9
    True
    """

    def fit(self, X: Any, y: Any) -> OsElmClassifier:
        """Forget everything and learn the rows of `X`, all with the same weight."""
        X, y = validate_data(self, X, y, dtype="float64")
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError("The number of classes has to be greater than one; got 1 class")
        self._fit(X, self._columns(y))
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> OsElmClassifier:
        """Learn the rows of `X` one after another, with forgetting.

        The first call needs `classes`, or at least one row of each.
        """
        first = not hasattr(self, "model_")
        X, y = validate_data(self, X, y, dtype="float64", reset=first)
        if first:
            check_classification_targets(y)
            self.classes_ = np.unique(y if classes is None else classes)
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(f"y has the class {unknown[0]!r}, which is not one of {self.classes_}")
        (self._fit if first else self._learn)(X, self._columns(y))
        return self

    def decision_function(self, X: Any) -> Array:
        """Return the predicted column of each class; of two classes, their difference."""
        columns = self._predict(X)
        return columns[:, 1] - columns[:, 0] if len(self.classes_) == 2 else columns

    def predict(self, X: Any) -> Array:
        """Return the class of each row."""
        columns = self._predict(X)
        predicted: Array = self.classes_[columns.argmax(axis=1)]
        return predicted

    def _columns(self, y: Array) -> Array:
        columns: Array = (y[:, None] == self.classes_).astype("float64")
        return columns
