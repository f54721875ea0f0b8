"""One model of a bank as a `Detector`, and back, without loss."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from onlad.detector import Detector
from onlad.fleet.models import Layer, Models
from onlad.forgetting import Constant
from onlad.state import DetectorSettings, DetectorState

NUMBERS = ("trace", "trace_start", "shrink", "weight")  # before the factor
COUNTS = ("seen", "skipped", "paused")


def settings(detector: Detector) -> DetectorSettings:
    """Return the settings of a detector, whose forgetting factor must be one for good."""
    if not isinstance(detector.forgetting, Constant):
        raise ValueError(
            "a bank takes a constant forgetting factor, which may differ by model; got "
            f"{detector.forgetting!r}"
        )
    return replace(detector.settings(), forgetting=Constant(detector.factor))


def model(detector: Detector) -> Models:
    """Return a started detector as one model."""
    one = detector.started()
    numbers = [*(getattr(one, name) for name in NUMBERS), detector.factor]
    counts = [getattr(one, name) for name in COUNTS]
    return Models(one.beta.T[None], one.S[None], np.array([numbers]), np.array([counts], "int64"))


def fitting(detector: Any, wanted: DetectorSettings, layer: Layer) -> Models:
    """Return a detector as one model of a bank with these settings, if it can be one."""
    if not isinstance(detector, Detector):
        raise TypeError(f"a model of a bank is a Detector, got {detector!r:.60}")
    theirs = settings(detector)
    wanted = replace(wanted, forgetting=theirs.forgetting)  # it may differ by model
    both = [(f.name, getattr(wanted, f.name), getattr(theirs, f.name)) for f in fields(wanted)]
    other = [pair for pair in both if pair[1] != pair[2]]
    if other:
        own = ", ".join(f"{name}={value!r}" for name, value, _ in other)
        found = ", ".join(f"{name}={value!r}" for name, _, value in other)
        raise ValueError(f"the models of this bank have {own}; the detector has {found}")
    if detector.n_features is None:
        detector = Detector.resumed(theirs).start(layer.n_features)
    one = detector.started()
    if not (np.array_equal(one.alpha, layer.alpha) and np.array_equal(one.b, layer.b)):
        raise ValueError(
            f"the detector has another random layer: {detector.n_features} features, where "
            f"the bank has {layer.n_features}, or other weights"
        )
    return model(detector)


def detector(one: Models, wanted: DetectorSettings, layer: Layer) -> Detector:
    """Return one model as a detector of its own."""
    *numbers, a = one.numbers[0].tolist()
    own = dict(zip((*NUMBERS, *COUNTS), (*numbers, *one.counts[0].tolist()), strict=True))
    state = DetectorState(
        S=one.S[0], alpha=layer.alpha, b=layer.b, beta=one.beta[0].T, memory=np.array([a]), **own
    )
    return Detector.resumed(replace(wanted, forgetting=Constant(a)), state)
