"""The detector as a CapyMOA anomaly detector: instances of a stream with a schema."""

from __future__ import annotations

from typing import Any

from onlad.adapters import made, needs
from onlad.detector import Detector
from onlad.forgetting import Forgetting
from onlad.reference import Activation, Loss, Score, Weights

with needs(__name__, "CapyMOA, and Java", "capymoa"):
    from capymoa.base import AnomalyDetector


class OnladDetector(AnomalyDetector):
    """An OS-ELM autoencoder that learns one instance at a time and forgets the past.

    Labels are never read, so unlabelled instances are learned like labelled ones. There is no
    `predict`, as in most detectors of CapyMOA: use `score_instance`. Scale the attributes to
    about unit size.

    Parameters
    ----------
    schema
        Of the stream.
    n_hidden, activation, weights, forgetting, loss, ridge
        As in `onlad.Detector`.
    score_type
        The `score` of `onlad.Detector`.
    random_seed
        Of the random layer.

    Examples
    --------
    >>> from capymoa.anomaly.datasets import TinyBlobs
    >>> from capymoa.evaluation import prequential_evaluation_anomaly
    >>> stream = TinyBlobs()
    >>> learner = OnladDetector(stream.get_schema())
    >>> prequential_evaluation_anomaly(stream, learner).auc() > 0.9
    True
    """

    def __init__(
        self,
        schema: Any,
        *,
        n_hidden: int = 64,
        activation: Activation = "sigmoid",
        weights: Weights = "uniform",
        forgetting: float | Forgetting = 0.99,
        score_type: Score = "combined",
        loss: Loss = "squared",
        ridge: float = 1e-2,
        random_seed: int = 1,
    ) -> None:
        super().__init__(schema, random_seed=random_seed)
        self.detector = made(Detector, locals(), random_seed)

    def train(self, instance: Any) -> None:
        """Learn one instance."""
        self.detector.learn_one(instance.x)

    def score_instance(self, instance: Any) -> float:
        """Return how unusual one instance is, and learn nothing: higher is more anomalous."""
        return self.detector.score_one(instance.x)

    def predict(self, instance: Any) -> int | None:
        """Refuse: there is no threshold here."""
        raise NotImplementedError("OnladDetector has no predict; use score_instance")
