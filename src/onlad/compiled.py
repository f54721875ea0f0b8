"""A started monitor in the kernel: `resumed` makes one, `watch` gives it rows.

`onlad.watching` is the definition. It also does what is rare: the start, and rows that a person
accepts. What was learned is passed between the two as values.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from onlad import anchor, counter, instance, judge, limit, mode, severity, watching
from onlad._kernel import Layer, Watching
from onlad._kernel import watch_all as judge_all
from onlad._kernel import watch_fleet as judge_fleet
from onlad.anchor import AnchorState
from onlad.limit import LimitState
from onlad.mode import ModeState
from onlad.reference import Array
from onlad.verdict import Verdict, Verdicts
from onlad.watching import WatchingState

Names: TypeAlias = tuple[Hashable, ...]
MODULES = (anchor, counter, instance, judge, limit, mode, severity, watching)


def constants() -> dict[str, float]:
    """Return the constants of the monitor's modules by name; the kernel takes those it needs."""
    found: dict[str, float] = {}
    for module in MODULES:
        where = module.__name__.rpartition(".")[2]
        for name, value in vars(module).items():
            if not name.isupper():
                continue
            if isinstance(value, (int, float)):
                found[f"{where}.{name}"] = float(value)
            elif isinstance(value, tuple):
                found |= {f"{where}.{name}_{i}": float(each) for i, each in enumerate(value)}
    return found


@lru_cache(maxsize=64)
def layer(features: int, width: int, seed: int) -> Layer:
    """Return what all monitors of one shape and seed share."""
    tanh, linear = mode.Mode(features, width, True, seed).instances
    projected = linear.kind == "projected"
    projection = linear.alpha[:, :-1] if projected else np.empty((0, 0))
    return Layer(
        features=features, width=width, alpha=tanh.alpha, b=tanh.b, groups=len(tanh.gram),
        projection=np.ascontiguousarray(projection), constants=constants(),
    )  # fmt: skip


def resumed(state: WatchingState, rate: float, seed: int, names: Names) -> Watching:
    """Return a monitor that continues from what `learned`, or `Watching.learned`, returned."""
    own = layer(len(names), state.width, seed)
    return Watching(layer=own, rate=rate, state=state, names=names, verdict=Verdict)


def learned(own: Watching) -> WatchingState:
    """Return all that was learned."""
    values = own.values()
    candidate = values["candidate"]
    values["modes"] = tuple(ModeState(**each) for each in values["modes"])
    values["candidate"] = None if candidate is None else ModeState(**candidate)
    values["anchors"] = tuple(
        None if each is None else AnchorState(**each) for each in values["anchors"]
    )
    values["limit"] = LimitState(**values["limit"])
    return WatchingState(**values)


def watch(own: Watching, X: Array, paused: bool, verdicts: Verdicts, part: slice) -> None:
    """Score rows, update the model at each tick, and fill in a part of the verdicts."""
    own.watch(X, paused=paused, verdicts=verdicts, first=part.start)
    verdicts.values[part], verdicts.rate[part] = X, own.rate


def watch_all(
    owns: list[Watching | None], names: list[Names], counts: Array, X: Array, paused: Array
) -> list[Verdicts]:
    """Return the verdicts of monitors with as many features, each of which is given once.

    `X` has the rows of the first monitor, then of the second, and so on; `counts` says how many
    each has.
    """
    first = np.concatenate(([0], np.cumsum(counts, dtype="int64")))
    said = Verdicts((), len(X), X.shape[1])
    judge_all(owns, first_row=first, X=X, paused=paused, verdicts=said, threads=1)
    said.values = X
    said.rate = np.repeat([0.0 if own is None else own.rate for own in owns], counts)
    edges = zip(names, first[:-1].tolist(), first[1:].tolist(), strict=True)
    return [said.part(own, slice(begin, end)) for own, begin, end in edges]


def watch_fleet(
    owns: list[Watching | None],
    counts: Array,
    widths: Array,
    X: Array,
    *,
    paused: Array,
    said: Any,
    detailed: int,
    threads: int,
) -> tuple[Array, Array]:
    """Judge rows of many monitors of any number of features, each of which is given once.

    `X` has the numbers of the first monitor's rows, then of the second's, and so on; `counts` says
    how many rows each has, and `widths` how many features. The columns of `said` are filled in.
    Return rows with details and the details: of none (0), of alarms (1), of all (2). Threads run
    without the interpreter lock.
    """
    first = np.concatenate(([0], np.cumsum(counts, dtype="int64")))
    values = np.concatenate(([0], np.cumsum(counts * widths, dtype="int64")))
    return judge_fleet(
        owns, first_row=first, first_value=values, X=X, paused=paused, verdicts=said,
        detailed=detailed, widest=said.wide.shape[2], threads=threads,
    )  # fmt: skip
