"""One model of a bank as a `Detector`, and back, without loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from onlad.detector import Detector
from onlad.fleet.models import Layer, Models
from onlad.forgetting import Constant
from onlad.modelfile import Values

NUMBERS = ("trace", "trace_start", "shrink", "weight")  # the factor is the fifth
COUNTS = ("seen", "skipped", "paused")


def factor(detector: Detector) -> float:
    """Return the forgetting factor of a detector, which must be one for good."""
    if not isinstance(detector.forgetting, Constant):
        raise ValueError(
            "a bank takes a constant forgetting factor, which may differ by model; got "
            f"{detector.forgetting!r}"
        )
    return detector.factor


def model(detector: Detector) -> Models:
    """Return a started detector as one model."""
    parts = detector.learned()
    return Models(
        parts["beta"].T[None],
        parts["S"][None],
        np.array([[*(parts[name] for name in NUMBERS), factor(detector)]]),
        np.array([[parts[name] for name in COUNTS]], "int64"),
    )


def fitting(detector: Any, settings: Values, layer: Layer) -> Models:
    """Return a detector as one model of a bank with these settings, if it can be one."""
    if not isinstance(detector, Detector):
        raise TypeError(f"a model of a bank is a Detector, got {detector!r:.60}")
    theirs = detector.settings() | {"forgetting": factor(detector)}
    other = [k for k, value in settings.items() if theirs[k] != value and k != "forgetting"]
    if other:
        own, found = (
            ", ".join(f"{name}={values[name]!r}" for name in other) for values in (settings, theirs)
        )
        raise ValueError(f"the models of this bank have {own}; the detector has {found}")
    if detector.n_features is None:
        detector = Detector(**theirs).start(layer.n_features)
    parts = detector.learned()
    if not (np.array_equal(parts["alpha"], layer.alpha) and np.array_equal(parts["b"], layer.b)):
        raise ValueError(
            f"the detector has another random layer: {detector.n_features} features, where "
            f"the bank has {layer.n_features}, or other weights"
        )
    return model(detector)


def detector(one: Models, settings: Values, layer: Layer) -> Detector:
    """Return one model as a detector of its own."""
    beta, S, numbers, counts = (part[0] for part in one)
    *measured, a = numbers.tolist()
    learned = {
        "alpha": layer.alpha,
        "b": layer.b,
        "beta": beta.T,
        "S": S,
        "memory": np.array([a]),
        **dict(zip(NUMBERS, measured, strict=True)),
        **dict(zip(COUNTS, counts.tolist(), strict=True)),
    }
    return Detector(**settings | {"forgetting": a}).resume(learned)
