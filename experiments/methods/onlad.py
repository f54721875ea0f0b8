"""ONLAD as the paper has it, without forgetting, and with the settings and the score of ours."""

from __future__ import annotations

import numpy as np

from experiments.methods import Entry, Hyperparameters
from onlad import Detector, block
from onlad.reference import Array

# The paper's score, and no L2 regularisation. float32 takes half of the time; experiments.ablation
# has the AUC of both.
PAPER = {"score": "reconstruction", "ridge": 0.0, "dtype": "float32"}


class Onlad:
    """`onlad.Detector` behind the protocol."""

    def __init__(self, hyperparameters: Hyperparameters, seed: int) -> None:
        self.detector = Detector(**hyperparameters, seed=seed)

    def fit(self, X: Array) -> None:
        self.detector.fit(X)

    def score(self, X: Array) -> Array:
        return self.detector.score_many(X)

    def stream(self, X: Array) -> Array:
        return self.detector.update_many(X)

    def evidence(self, X: Array, learn: bool) -> tuple[Array, Array]:
        """Return loss and leverage of each row: every kind of score follows from one pass."""
        X = np.ascontiguousarray(X, self.detector.dtype)
        model, a = self.detector.compiled(), self.detector.factor
        loss, leverage = np.empty(len(X)), np.empty(len(X))
        if not learn:
            model.score_many(X=X, a=a, loss=loss, leverage=leverage)
        elif block.pays(X.shape[1], self.detector.n_hidden):
            loss, leverage = block.update_many(model, X, np.full(len(X), a))
        else:
            model.update_many(X=X, a=np.full(len(X), a), loss=loss, leverage=leverage)
        return loss, leverage


def onlad(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Onlad:
    return Onlad(PAPER | hyperparameters, seed)


def onlad_nf(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Onlad:
    return Onlad(PAPER | hyperparameters | {"forgetting": 1.0}, seed)


def onlad_01(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Onlad:
    # In float64 and with a little ridge: on images the sigmoid layer of these weights is saturated,
    # its Gram matrix is singular, and without ridge P does not exist.
    other = {"weights": "uniform01", "dtype": "float64", "ridge": 1e-6}
    return Onlad(PAPER | hyperparameters | other, seed)


def onlad_plus(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Onlad:
    return Onlad({"dtype": "float32"} | hyperparameters, seed)


METHODS = {
    "onlad": Entry("ONLAD", "os-elm", onlad, trials=50),
    "onlad-nf": Entry("ONLAD-NF", "os-elm", onlad_nf, trials=50, testbeds=("online",)),
    "onlad-01": Entry("ONLAD, Uniform[0, 1]", "os-elm", onlad_01, trials=50),
    "onlad-plus": Entry("ONLAD+", "os-elm", onlad_plus, trials=50),
}
