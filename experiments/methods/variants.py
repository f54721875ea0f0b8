"""Ways to forget, to stack and to mix, beside ONLAD's constant factor (mathematics.md).

All have the hidden layer of the paper's ONLAD on the same data, so that a row of the table differs
in its way alone. `experiments.ways` has the settings that are tried for each.
"""

from __future__ import annotations

from typing import Any

from experiments.methods import Entry, Hyperparameters, Method
from onlad import Detector, forgetting
from onlad.compound import Directional, FpElm, Mixture, Stacked, Windowed
from onlad.reference import Array

# As in the paper: its score. FOS-ELM has no ridge either, but a window can be poor: Zhou, Liu and
# Zhu (2014) add one to it, and so do all that learn from few rows here.
SCORE = {"score": "reconstruction"}
RIDGE = 1e-4


class Compound:
    """A class of `onlad`, behind the protocol."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, X: Array) -> None:
        self.model.fit(X)

    def score(self, X: Array) -> Array:
        scores: Array = self.model.score_many(X.astype("float64"))
        return scores

    def stream(self, X: Array) -> Array:
        scores: Array = self.model.update_many(X.astype("float64"))
        return scores


def _policy(hyperparameters: Hyperparameters, kind: Any) -> tuple[Hyperparameters, Any]:
    rest = dict(hyperparameters)
    return rest, kind(high=rest.pop("high"), low=rest.pop("low"))


def constant(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Method:
    return Compound(Detector(**SCORE, ridge=RIDGE, **hyperparameters, seed=seed))


def adaptive(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Method:
    rest, policy = _policy(hyperparameters, forgetting.Adaptive)
    return Compound(Detector(**SCORE, ridge=RIDGE, **rest, forgetting=policy, seed=seed))


def on_drift(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Method:
    rest, policy = _policy(hyperparameters, forgetting.OnDrift)
    return Compound(Detector(**SCORE, ridge=RIDGE, **rest, forgetting=policy, seed=seed))


def fos_elm(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Method:
    return Compound(Windowed(ridge=RIDGE, **hyperparameters, seed=seed))


def dff_os_elm(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Method:
    return Compound(Directional(ridge=RIDGE, **hyperparameters, seed=seed))


def fp_elm_dynamic(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Method:
    rest, policy = _policy(hyperparameters, forgetting.Adaptive)
    return Compound(FpElm(**rest, forgetting=policy, seed=seed))  # the paper's ridge


def ml_oselm(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Method:
    return Compound(Stacked(ridge=RIDGE, **hyperparameters, seed=seed))


def mixture(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Method:
    return Compound(Mixture(ridge=RIDGE, **hyperparameters, seed=seed))


def _entry(label: str, build: Any) -> Entry:
    return Entry(label, "variant", build, trials=50, ordered=build not in (ml_oselm, mixture))


METHODS = {
    "constant": _entry("constant factor (ONLAD)", constant),
    "adaptive": _entry("`Adaptive` (ours)", adaptive),
    "on-drift": _entry("`OnDrift` (ours)", on_drift),
    "fos-elm": _entry("FOS-ELM", fos_elm),
    "dff-os-elm": _entry("λ_DFF OS-ELM", dff_os_elm),
    "fp-elm-dynamic": _entry("FP-ELM, dynamic", fp_elm_dynamic),
    "ml-oselm": _entry("ML-OSELM", ml_oselm),
    "mixture": _entry("mixture", mixture),
}
