"""PySAD's KitNet, faster: all its small autoencoders side by side, and rows at once where it can.

KitNET learns from the first samples of a stream alone. At 784 features PySAD takes 50 ms for each
of them and 10 ms to score one, most of it Python between several hundred autoencoders. Here they
are padded to one size and take a step together. The map of features, the initial weights and the
last autoencoder are PySAD's own, and the scores are the same but for rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pysad.models import KitNet
from pysad.models.kitnet_model.KitNET import KitNET
from scipy.special import expit

from experiments.methods.peers import PySad
from experiments.testbeds import Array

ROWS = 256  # scored at once: their padded inputs fit in the cache


class Ensemble:
    """The small autoencoders (`dA`) of KitNET. Arrays: autoencoder, row, input or hidden unit."""

    def __init__(self, layer: Sequence[Any], features: Sequence[Sequence[int]]) -> None:
        sizes = np.array([a.W.shape for a in layer])[:, :, None, None]
        self.n_inputs, self.n_units = sizes[:, 0], sizes[:, 1]
        most_inputs, most_units = sizes.max(axis=0).ravel()
        self.inputs = np.arange(most_inputs) < self.n_inputs  # False: padding
        self.units = np.arange(most_units) < self.n_units
        self.features = np.zeros((len(layer), most_inputs), int)
        self.W = np.zeros((len(layer), most_inputs, most_units))
        for i, (a, own) in enumerate(zip(layer, features, strict=True)):
            self.features[i, : len(own)] = own
            self.W[i, : a.W.shape[0], : a.W.shape[1]] = a.W
        self.lr = layer[0].params.lr
        self.hbias = np.zeros((len(layer), 1, 1))  # one for all units: see `train`
        self.vbias = np.zeros((len(layer), 1, 1))
        self.low = np.full(self.inputs.shape, np.inf)
        self.high = -self.low

    def _reconstruct(self, x: Array) -> tuple[Array, Array, Array]:
        """Return normalised inputs, hidden values and errors; padding is 0 in each."""
        # As PySAD: what was constant so far is only shifted.
        scale = np.where(self.high == self.low, 1.0, self.high - self.low + 1e-16)
        v = (x - self.low) / scale * self.inputs
        y = expit(v @ self.W + self.hbias) * self.units
        z = expit(y @ self.W.swapaxes(1, 2) + self.vbias)
        return v, y, (v - z) * self.inputs

    def _rms(self, e: Array) -> Array:
        return np.sqrt(np.sum(e * e, axis=2, keepdims=True) / self.n_inputs)[:, :, 0].T

    def score(self, X: Array) -> Array:
        """Return each autoencoder's error for each row."""
        return self._rms(self._reconstruct(X[:, self.features].swapaxes(0, 1))[2])

    def train(self, x: Array) -> Array:
        """Return each autoencoder's error for one sample, and learn it."""
        inputs = x[self.features][:, None]
        self.low, self.high = np.minimum(self.low, inputs), np.maximum(self.high, inputs)
        v, y, e = self._reconstruct(inputs)
        slope = e @ self.W * y * (1 - y)
        self.W += self.lr * (v.swapaxes(1, 2) * slope + e.swapaxes(1, 2) * y)
        # PySAD, like KitNET's authors, adds the mean slope of an autoencoder to all its biases.
        self.hbias += self.lr * slope.sum(axis=2, keepdims=True) / self.n_units
        self.vbias += self.lr * e.sum(axis=2, keepdims=True) / self.n_inputs
        return self._rms(e)[0]


class SideBySide(KitNET):  # type: ignore[misc]
    """KitNET with an `Ensemble` as its first layer."""

    def __createAD__(self, feature_map: Any, temporary: bool) -> None:
        super().__createAD__(feature_map, temporary)
        self.ensemble = Ensemble(self.ensembleLayer, feature_map)

    def train(self, x: Array) -> None:
        if self.n_trained < self.FM_grace_period:
            self.FM.update(x)
            if (self.n_trained + 1) & self.n_trained == 0:
                self.__createAD__(self.FM.cluster(self.m), temporary=True)
        elif self.temporary:
            self.__createAD__(self.FM.cluster(self.m), temporary=False)
        self.outputLayer.train(self.ensemble.train(x))
        self.n_trained += 1

    def score(self, X: Array) -> Array:
        """Return the scores of rows."""
        x = self.outputLayer.normalize(self.ensemble.score(X))
        scores: Array = np.sqrt(np.mean((x - self.outputLayer.reconstruct(x)) ** 2, axis=1))
        return scores

    def execute(self, x: Array) -> float:
        return float(self.score(x[None])[0])


class Fast(KitNet):  # type: ignore[misc]
    """PySAD's model around `SideBySide`."""

    def fit_partial(self, X: Array, y: Any = None) -> Any:
        if self.to_init:
            self.model = SideBySide(
                len(X),
                self.max_size_ae,
                self.grace_feature_mapping,
                self.grace_anomaly_detector,
                self.learning_rate,
                self.hidden_ratio,
                random_state=self.random_state,
            )
            self.to_init = False
        return super().fit_partial(X, y)


class Method(PySad):
    """What comes after the grace periods changes nothing, so it is scored many rows at once."""

    def score(self, X: Array) -> Array:
        blocks = np.array_split(X, len(X) // ROWS + 1)
        return np.concatenate([self.model.model.score(rows.astype("float64")) for rows in blocks])

    def fit(self, X: Array) -> None:
        super().fit(X[: self._left()])

    def stream(self, X: Array) -> Array:
        left = self._left()
        scores = super().stream(X[:left])
        return np.concatenate([scores, self.score(X[left:])]) if left < len(X) else scores

    def _left(self) -> int:
        """Return how many samples are still learned."""
        learned = 0 if self.model.to_init else self.model.model.n_trained
        return self.model.grace_feature_mapping + self.model.grace_anomaly_detector - learned
