"""VAE and Deep SVDD: networks that learn once, with the defaults of PyOD or other settings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from experiments.methods import Entry, Hyperparameters, Method
from experiments.testbeds import Array, Testbed, Trial


def build_vae(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Method:
    from experiments.methods import _deep  # noqa: PLC0415  (JAX loads slowly)

    return _deep.Deep(_deep.Vae(**hyperparameters), seed)


def build_deep_svdd(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Method:
    from experiments.methods import _deep  # noqa: PLC0415

    return _deep.Deep(_deep.DeepSvdd(**hyperparameters), seed)


def run_trials(
    name: str, testbed: Testbed, hyperparameters: Hyperparameters, trials: Sequence[Trial]
) -> list[list[Array]]:
    from experiments.methods import _deep  # noqa: PLC0415

    return _deep.run_trials(name, [hyperparameters] * len(trials), trials)


METHODS = {
    name: Entry(label, "peer", build, partial(run_trials, name), testbeds=("offline",), trials=50)
    for name, label, build in (
        ("vae", "VAE", build_vae),
        ("deep-svdd", "Deep SVDD", build_deep_svdd),
    )
}
