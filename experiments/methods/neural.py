"""NN-AE and DNN-AE: autoencoders of three and of five layers, trained by backpropagation."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.methods import Entry, Hyperparameters, Method
from experiments.testbeds import Testbed, Trial
from onlad.reference import Array


def build(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Method:
    from experiments.methods import _autoencoder as ae  # noqa: PLC0415  (JAX loads slowly)

    return ae.Autoencoder(ae.Settings(**hyperparameters), n_features, seed)


def run_trials(
    testbed: Testbed, hyperparameters: Hyperparameters, trials: Sequence[Trial]
) -> list[list[Array]]:
    from experiments.methods import _autoencoder as ae  # noqa: PLC0415

    return ae.run_trials(testbed, [ae.Settings(**hyperparameters)] * len(trials), trials)


METHODS = {
    "nn": Entry("NN-AE", "neural", build, run_trials, trials=50),
    "dnn": Entry("DNN-AE", "neural", build, run_trials, trials=50),
}
