"""The detector as a PySAD model: one array at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from onlad.adapters import made, needs
from onlad.detector import Detector
from onlad.forgetting import Forgetting
from onlad.reference import Activation, Loss, Score, Weights

with needs(__name__, "PySAD", "pysad"):
    from pysad.core.base_model import BaseModel
    from sklearn.utils import check_random_state  # a requirement of PySAD


class OnladDetector(BaseModel):
    """An OS-ELM autoencoder that learns one array at a time and forgets the past.

    `fit`, `score` and `fit_score` over many instances are those of PySAD, one by one and in
    order; `fit` continues from what was learned. Scale the instances to about unit size.

    Parameters
    ----------
    n_hidden, activation, weights, forgetting, loss, ridge
        As in `onlad.Detector`.
    score_type
        The `score` of `onlad.Detector`.
    random_state
        Seed or generator of the random layer. None draws from NumPy's global state, which
        `pysad.utils.fix_seed` seeds.

    Examples
    --------
    >>> import numpy as np
    >>> model = OnladDetector(random_state=1)
    >>> level = np.random.default_rng(0).uniform(size=300)
    >>> _ = model.fit(np.column_stack([level, 1 - level]))
    >>> model.score_partial(np.array([0.5, 0.5])) < model.score_partial(np.array([0.9, 0.9]))
    True
    """

    def __init__(
        self,
        n_hidden: int = 64,
        *,
        activation: Activation = "sigmoid",
        weights: Weights = "uniform",
        forgetting: float | Forgetting = 0.99,
        score_type: Score = "combined",
        loss: Loss = "squared",
        ridge: float = 1e-2,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.random_state = random_state
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        self.detector = made(Detector, locals(), seed)

    def fit_partial(self, X: Any, y: Any = None) -> OnladDetector:
        """Learn one instance of shape (num_features,); `y` is ignored."""
        self.detector.learn_one(X)
        return self

    def score_partial(self, X: Any) -> float:
        """Return how unusual one instance is, and learn nothing: higher is more anomalous."""
        return self.detector.score_one(X)

    def fit_score_partial(self, X: Any, y: Any = None) -> float:
        """Return the score of one instance, then learn it, in one step; `y` is ignored."""
        return self.detector.update_one(X)
