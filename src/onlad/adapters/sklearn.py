"""The detector as a scikit-learn outlier detector that can also be updated."""

from __future__ import annotations

from typing import Any

import numpy as np

from onlad.adapters import keep, made, needs
from onlad.detector import Detector
from onlad.forgetting import Forgetting
from onlad.reference import Activation, Array, Loss, Score, Weights

with needs(__name__, "scikit-learn", "sklearn"):
    from sklearn.base import BaseEstimator, OutlierMixin
    from sklearn.preprocessing import StandardScaler
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data

WINDOW = 1000  # training scores that a stream of partial_fit keeps for offset_


class OnladDetector(OutlierMixin, BaseEstimator):
    """An OS-ELM autoencoder: a high reconstruction error is an outlier.

    Features are standardised inside, by the mean and deviation of all rows seen, so a scaler in
    front is not needed. The defaults were chosen on the data sets that come with scikit-learn
    (docs/howto/adapters.md); they differ from those of `onlad.Detector`, which is made for streams.

    Parameters
    ----------
    n_hidden, activation, weights, loss, ridge
        As in `onlad.Detector`.
    score_type
        The `score` of `onlad.Detector`.
    forgetting
        As in `onlad.Detector`, for `partial_fit` alone: in `fit` all rows weigh the same.
    contamination
        Share of outliers among the training rows, in (0, 0.5]: `offset_` is this quantile of
        their scores. With ``auto``, an outlier's log score lies three robust deviations above
        the median.
    random_state
        Seed or generator of the random layer.

    Attributes
    ----------
    offset_ : float
        ``decision_function`` is ``score_samples`` less this.
    detector_ : onlad.Detector
        The fitted detector, on standardised features.
    scaler_ : sklearn.preprocessing.StandardScaler
        What standardises them.

    Examples
    --------
    >>> import numpy as np
    >>> level = np.random.default_rng(0).uniform(size=300)
    >>> model = OnladDetector(random_state=1).fit(np.column_stack([level, 1000 * level]))
    >>> model.predict([[0.5, 500.0], [0.5, 900.0]])
    array([ 1, -1])
    """

    def __init__(
        self,
        n_hidden: int = 64,
        *,
        activation: Activation = "sigmoid",
        weights: Weights = "normal",
        forgetting: float | Forgetting = 1.0,
        score_type: Score = "combined",
        loss: Loss = "squared",
        ridge: float = 1.0,
        contamination: float | str = "auto",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        keep(self, locals())

    def fit(self, X: Any, y: Any = None) -> OnladDetector:
        """Forget everything and learn the rows of `X`, all with the same weight."""
        X = validate_data(self, X, dtype="float64")
        share = self.contamination
        if share != "auto" and not (isinstance(share, (int, float)) and 0 < share <= 0.5):
            raise ValueError(f"contamination must be 'auto' or in (0, 0.5], got {share!r}")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        detector = made(Detector, vars(self), seed)
        scaler = StandardScaler().fit(X)
        X = scaler.transform(X)
        self.detector_, self.scaler_ = detector.fit(X), scaler
        self._set_offset(-detector.score_many(X))
        return self

    def partial_fit(self, X: Any, y: Any = None) -> OnladDetector:
        """Learn the rows of `X` one after another, with forgetting. The first call is `fit`.

        `offset_` is updated from the latest training scores: as many as `fit` had rows, but at
        least 1,000.
        """
        if not hasattr(self, "detector_"):
            return self.fit(X)
        X = validate_data(self, X, dtype="float64", reset=False)
        X = self.scaler_.partial_fit(X).transform(X)
        scores = np.concatenate([self._scores, -self.detector_.update_many(X)])
        self._set_offset(scores[-max(WINDOW, len(self._scores)) :])
        return self

    def score_samples(self, X: Any) -> Array:
        """Return how normal each row of `X` is: higher is more normal, 0 is the highest."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype="float64", reset=False)
        return -self.detector_.score_many(self.scaler_.transform(X))

    def decision_function(self, X: Any) -> Array:
        """Return ``score_samples(X) - offset_``: below 0 for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> Array:
        """Return -1 for each row of `X` that is an outlier, else 1."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def _set_offset(self, scores: Array) -> None:
        self._scores = scores
        if self.contamination == "auto":
            logs = np.log(np.maximum(-scores, 1e-300))
            median = np.median(logs)
            deviation = 1.4826 * np.median(np.abs(logs - median))  # of a normal distribution
            self.offset_ = -float(np.exp(min(median + 3 * deviation, 600.0)))
        else:
            self.offset_ = float(np.quantile(scores, float(self.contamination)))
