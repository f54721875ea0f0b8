"""The labelled streams cut otherwise: later starts, and half of the features.

The design of `Monitor` was found with the whole streams in view. A method that only fits those
loses on their cuts, which had no part in it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from experiments.benchmark import collections
from experiments.benchmark.series import Collection, Series

LATE, HALVES, FROM = "late", ("half 0", "half 1"), "from"
GECCO_ROWS, GECCO_HISTORY, GECCO_STARTS = 50_000, 3_000, range(20_000, 120_000, 20_000)
WHOLE = {c.name: c for c in collections.LABELLED}
# Streams that a cut can be made of, and how.
KINDS: dict[str, tuple[str, ...]] = {
    "tsb_ad_m": HALVES,
    "asd": (LATE, *HALVES),
    "gecco": (*(f"{FROM} {row}" for row in GECCO_STARTS), *HALVES),
    "tep": (LATE, *HALVES),
    "skab": HALVES,
    "smd": (LATE, *HALVES),
    "records": HALVES,
}


def cut(whole: Series, kind: str) -> Series:
    """Return a part of a series: rows after its history count.

    `late` drops the first half of the history, `half K` keeps half of the features, `from R` takes
    50,000 rows from the first row after R that is followed by 3,000 normal ones.
    """
    X, y, history = whole.X, whole.y, whole.history
    if kind == LATE:
        X, y, history = X[history // 2 :], y[history // 2 :], history - history // 2
    elif kind.startswith(FROM):
        start = int(kind.removeprefix(FROM))
        while y[start : start + GECCO_HISTORY].any():
            start += 1
        X, y = X[start : start + GECCO_ROWS], y[start : start + GECCO_ROWS]
        history = GECCO_HISTORY
    else:
        n = X.shape[1]
        drawn = np.random.default_rng(int(kind[-1])).permutation(n)[: (n + 1) // 2]
        X = np.ascontiguousarray(X[:, np.sort(drawn)])
    return replace(whole, X=X, y=y, history=history, first=history, causes={})


def load(name: str) -> Series:
    collection, series, kind = name.split(": ")
    made = cut(WHOLE[collection].load(series), kind)
    return replace(made, collection="cuts", name=name)


def names() -> list[str]:
    return [
        f"{collection}: {series}: {kind}"
        for collection, kinds in KINDS.items()
        if WHOLE[collection].missing() is None
        for series in WHOLE[collection].names()
        for kind in kinds
    ]


COLLECTION = Collection("cuts", "labelled streams, cut otherwise", names, load)
