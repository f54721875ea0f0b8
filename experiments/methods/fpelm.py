"""FPELM-AE: the FP-ELM autoencoder (eq:fp_elm_train), one sample per step."""

from __future__ import annotations

from experiments.methods import Entry, Hyperparameters, Method
from experiments.methods.variants import Compound
from onlad.compound import FpElm


def build(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Method:
    return Compound(FpElm(**hyperparameters, seed=seed))


METHODS = {"fpelm": Entry("FPELM-AE", "os-elm", build, trials=50)}
