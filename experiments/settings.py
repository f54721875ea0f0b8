"""Which hyperparameters: the paper's, those found here by `experiments.tune`, or ours.

"equal" are the best of as many settings for each method: of `BUDGET` that are drawn at random from
all that its search tried, or of all where it tried no more.
"""

from __future__ import annotations

import sys
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from experiments import records
from experiments.methods import Hyperparameters, registry
from experiments.testbeds import Testbed

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Settings = Literal["paper", "found", "ours", "equal"]
SETTINGS: tuple[Settings, ...] = get_args(Settings)
BUDGET = 20  # the fewest that a network's search tried
STAND_IN = {"digits": "letter_recognition"}  # a dataset that the paper lacks borrows settings
# ONLAD-NF has ONLAD's settings without forgetting, ONLAD-01 has them with other weights.
SAME_AS = {"onlad-nf": "onlad", "onlad-01": "onlad"}


class NoSettingsError(SystemExit):
    """One line that says which settings are missing."""


@lru_cache
def paper() -> dict[str, Any]:
    """Return the paper's numbers and settings."""
    return tomllib.loads((Path(__file__).parent / "paper.toml").read_text())


def chosen(testbed: Testbed, dataset: str, method: str) -> Hyperparameters:
    """Return the settings with the best mean AUC on validation data, from the records.

    Only settings that were tried on the most folds or streams count.
    """
    tried = [r for r in records.read(f"tune/{testbed}-{method}") if r["dataset"] == dataset]
    if not tried:
        raise NoSettingsError(
            f"no settings were found yet for {method} on {dataset}, {testbed}: run "
            f"python -m experiments.tune {testbed} --dataset {dataset} --method {method}"
        )
    most = max(len(r["aucs"]) for r in tried)
    full = [r for r in tried if len(r["aucs"]) == most]
    return dict(max(full, key=lambda r: sum(r["aucs"]))["hyperparameters"])


def equal(testbed: Testbed, dataset: str, method: str) -> Hyperparameters:
    """Return the best of `BUDGET` settings, on the folds or streams that all of them had."""
    tried = [
        r for r in records.read(f"tune/{testbed}-{method}") if r["dataset"] == dataset and r["aucs"]
    ]
    if not tried:
        raise NoSettingsError(f"no settings were tried yet for {method} on {dataset}, {testbed}")
    folds = min(len(r["aucs"]) for r in tried)
    rng = np.random.default_rng(zlib.crc32(f"{testbed} {dataset} {method}".encode()))
    drawn = rng.choice(len(tried), min(BUDGET, len(tried)), replace=False)
    best = max(drawn.tolist(), key=lambda k: sum(tried[k]["aucs"][:folds]))
    return dict(tried[best]["hyperparameters"])


def hyperparameters(
    settings: Settings, testbed: Testbed, dataset: str, method: str
) -> Hyperparameters:
    """Return the hyperparameters of one cell of a table."""
    source, method = STAND_IN.get(dataset, dataset), SAME_AS.get(method, method)
    if settings == "paper":
        try:
            return dict(paper()["settings"][testbed][source][method])
        except KeyError:
            raise NoSettingsError(f"the paper has no settings for {method} on {dataset}") from None
    if settings == "equal":
        return equal(testbed, source, method)
    if settings == "ours" and registry()[method].family == "peer":
        return {}  # as the library gives it
    return chosen(testbed, source, method)
