"""ONLAD as the paper has it, without forgetting, and with the settings and the score of ours."""

from __future__ import annotations

from experiments.methods import Entry, Hyperparameters
from onlad import Detector
from onlad.reference import Array

# The paper's score, and no L2 regularisation. float32 takes half of the time: on one trial of each
# dataset and testbed its AUC was within 6e-7 of float64's.
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


def onlad(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Onlad:
    return Onlad(PAPER | hyperparameters, seed)


def onlad_nf(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Onlad:
    return Onlad(PAPER | hyperparameters | {"forgetting": 1.0}, seed)


def onlad_plus(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Onlad:
    return Onlad({"dtype": "float32"} | hyperparameters, seed)


METHODS = {
    "onlad": Entry("ONLAD", "os-elm", onlad, trials=50),
    "onlad-nf": Entry("ONLAD-NF", "os-elm", onlad_nf, trials=50, testbeds=("online",)),
    "onlad-plus": Entry("ONLAD+", "os-elm", onlad_plus, trials=50),
}
