"""The detector as a PyOD model that can also be updated."""

from __future__ import annotations

from typing import Any

import numpy as np

from onlad.adapters import keep, made, needs
from onlad.detector import Detector
from onlad.forgetting import Forgetting
from onlad.reference import Activation, Array, Loss, Score, Weights

with needs(__name__, "PyOD", "pyod"):
    from pyod.models.base import BaseDetector
    from sklearn.preprocessing import StandardScaler  # a requirement of PyOD
    from sklearn.utils import check_array, check_random_state
    from sklearn.utils.validation import check_is_fitted

WINDOW = 1000  # training scores that a stream of partial_fit keeps for threshold_


class OnladDetector(BaseDetector):
    """An OS-ELM autoencoder: a high reconstruction error is an outlier.

    Parameters
    ----------
    contamination
        Share of outliers among the training rows, in (0, 0.5], or a PyThresh object.
    preprocessing
        Standardise the features inside, as PyOD's own autoencoders do.
    n_hidden, activation, weights, loss, ridge
        As in `onlad.Detector`; the defaults are chosen for batches (docs/howto/adapters.md).
    score_type
        The `score` of `onlad.Detector`.
    forgetting
        As in `onlad.Detector`, for `partial_fit` alone: in `fit` all rows weigh the same.
    random_state
        Seed or generator of the random layer.

    Attributes
    ----------
    decision_scores_, threshold_, labels_
        As in every PyOD model: of the training rows, higher is more anomalous.
    detector_ : onlad.Detector
        The fitted detector.

    Examples
    --------
    >>> import numpy as np
    >>> level = np.random.default_rng(0).uniform(size=300)
    >>> model = OnladDetector(contamination=0.01, random_state=1)
    >>> _ = model.fit(np.column_stack([level, 1000 * level]))
    >>> model.predict(np.array([[0.5, 500.0], [0.5, 900.0]]))
    array([0, 1])
    """

    def __init__(
        self,
        contamination: Any = 0.1,
        *,
        preprocessing: bool = True,
        n_hidden: int = 64,
        activation: Activation = "sigmoid",
        weights: Weights = "normal",
        forgetting: float | Forgetting = 1.0,
        score_type: Score = "combined",
        loss: Loss = "squared",
        ridge: float = 1.0,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        super().__init__(contamination=contamination)
        keep(self, locals())

    def fit(self, X: Any, y: Any = None) -> OnladDetector:
        """Forget everything and learn the rows of `X`, all with the same weight."""
        X = check_array(X, dtype="float64")
        self._set_n_classes(y)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        detector = made(Detector, vars(self), seed)
        on = bool(self.preprocessing)
        self.scaler_ = StandardScaler(with_mean=on, with_std=on).fit(X)
        X = self.scaler_.transform(X)
        self.detector_ = detector.fit(X)
        self.decision_scores_ = detector.score_many(X)
        self._process_decision_scores()
        return self

    def partial_fit(self, X: Any, y: Any = None) -> OnladDetector:
        """Learn the rows of `X` one after another, with forgetting. The first call is `fit`.

        `decision_scores_`, `threshold_` and `labels_` are then those of the latest rows, as many
        as `fit` had but at least 1,000, each scored before it was learned.
        """
        if not hasattr(self, "detector_"):
            return self.fit(X)
        X = self.scaler_.partial_fit(check_array(X, dtype="float64")).transform(X)
        scores = np.concatenate([self.decision_scores_, self.detector_.update_many(X)])
        self.decision_scores_ = scores[-max(WINDOW, len(self.decision_scores_)) :]
        self._process_decision_scores()
        return self

    def decision_function(self, X: Any) -> Array:
        """Return how unusual each row of `X` is: higher is more anomalous."""
        check_is_fitted(self, ["decision_scores_", "threshold_", "labels_"])
        return self.detector_.score_many(self.scaler_.transform(check_array(X, dtype="float64")))
