"""What is compared: each method one file of this folder, all behind one small protocol.

A file lists what it offers in ``METHODS``: command-line name to `Entry`. Every file here whose
name has no leading underscore is found by itself, so a new method is one new file. Importing it
must be cheap: libraries that load slowly (JAX, River) are imported where they are used.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol

import numpy as np

from experiments.testbeds import Array, Testbed, Trial

Hyperparameters = dict[str, Any]


class Method(Protocol):
    """A model of one run. Higher scores are more unusual."""

    def fit(self, X: Array) -> None:
        """Learn the initial batch."""

    def score(self, X: Array) -> Array:
        """Score rows and learn nothing (Offline Testbed)."""

    def stream(self, X: Array) -> Array:
        """Score each row, then learn it, in order (Online Testbed)."""


Build = Callable[[Hyperparameters, int, int], Method]
RunTrials = Callable[[Testbed, Hyperparameters, Sequence[Trial]], list[list[Array]]]


@dataclass(frozen=True)
class Entry:
    """How one method is named, built and run.

    ``build(hyperparameters, n_features, seed)`` makes a fresh model. ``run_trials(testbed,
    hyperparameters, trials)`` returns the scores of each part of each trial, for a method that
    runs many trials at once; without it each trial runs by itself.
    """

    label: str
    family: Literal["os-elm", "neural", "variant", "peer"]
    build: Build
    run_trials: RunTrials | None = None
    testbeds: tuple[Testbed, ...] = ("offline", "online")
    trials: int = 10  # in the stored tables
    ordered: bool = False  # offline, half of the training rows are learned one by one


@lru_cache
def registry() -> dict[str, Entry]:
    """Return every method by its name on the command line."""
    found: dict[str, Entry] = {}
    for file in pkgutil.iter_modules(__path__):
        if not file.name.startswith("_"):
            module = importlib.import_module(f"{__name__}.{file.name}")
            found |= getattr(module, "METHODS", {})
    return found


def module_of(name: str) -> str:
    """Return the file that a method is built in, from the root of the checkout."""
    return registry()[name].build.__module__.replace(".", "/") + ".py"


def run_trials(
    name: str, testbed: Testbed, hyperparameters: Hyperparameters, trials: Sequence[Trial]
) -> list[list[Array]]:
    """Return the scores of each part of each trial."""
    entry = registry()[name]
    if entry.run_trials is not None:
        return entry.run_trials(testbed, hyperparameters, trials)
    return [_run(entry, testbed, hyperparameters, trial) for trial in trials]


def _run(
    entry: Entry, testbed: Testbed, hyperparameters: Hyperparameters, trial: Trial
) -> list[Array]:
    scores = []
    for part in trial.parts:
        model = entry.build(hyperparameters, part.data.shape[1], trial.seed)
        if entry.ordered and testbed == "offline":
            first, rest = np.array_split(part.train, 2)
            model.fit(first)
            model.stream(rest)
        else:
            model.fit(part.train)
        scores.append(model.score(part.X) if testbed == "offline" else model.stream(part.X))
    return scores
