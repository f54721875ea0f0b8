"""Choose among settings of `Monitor` by leaving collections out, and say what to expect of it.

    python -m experiments.benchmark.choice run          # skips what is stored
    python -m experiments.benchmark.choice summary      # from the records alone, for the page
    python -m experiments.benchmark.choice layers       # the default as it is, measured again

Each variant sets some constants. Its value on a collection is the mean of the collection's own
measure over its series, over random layers of several seeds, without and with history: single
seeds differ by more than most variants do. For each collection in turn, the variant is taken that
is best in the mean over all others; what it reaches on the one left out is what a user may expect.
Beside it stands the variant that is best when no collection is left out, which is the default.
"""

from __future__ import annotations

from experiments import one_thread  # noqa: F401  (before NumPy loads its BLAS)

# isort: split
import argparse
import copy
import os
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from experiments import metrics, records
from experiments.benchmark import collections, cuts, measures, methods, volume
from experiments.benchmark.series import Outcome, Series
from experiments.benchmark.tables import SCORED
from experiments.records import Record
from experiments.reproduce import in_parallel
from onlad import Monitor, compiled

SEEDS = (0, 1, 2)
DEFAULT = "default"
VARIANTS: dict[str, Mapping[str, float]] = {  # by module and name
    DEFAULT: {},
    "young 1,024": {"limit.YOUNG": 1_024.0},
    "young 4,096": {"limit.YOUNG": 4_096.0},
    "burn-in 2,048": {"burnin.BURN_IN": 2_048},
    "burn-in 8,192": {"burnin.BURN_IN": 8_192},
    "gate 0.4": {"watching.REFUSED": 0.4},
    "gate 0.6": {"watching.REFUSED": 0.6},
    "modes stay 32 rows": {"split.STAY": 32},
    "modes stay 128 rows": {"split.STAY": 128},
    "modes from a gain of 0.1": {"split.GAIN": 0.1},
    "means 15, EWMA 60": {"mode.SMOOTHING": 1 / 15, "mode.LEANING": 1 / 60},
    "means 30, EWMA 60": {"mode.SMOOTHING": 1 / 30, "mode.LEANING": 1 / 60},
}
FILE, LAYERS = "benchmark/choice_runs", "benchmark/layers"
COLLECTIONS = {c.name: c for c in (*collections.LABELLED, cuts.COLLECTION)}

# As they are before anything is changed: a process runs many variants, one after the other. A
# module that takes a constant of another has a copy of it.
CHANGED = {name: name.split(".") for variant in VARIANTS.values() for name in variant}
DEFAULTS = {
    (module, name): getattr(sys.modules[module], own)
    for name, (where, own) in CHANGED.items()
    for module in list(sys.modules)
    if module.startswith("onlad.")
    and getattr(sys.modules[module], own, None) is getattr(sys.modules[f"onlad.{where}"], own)
}


def change(variant: str) -> None:
    """Set the constants of a variant in all modules of the library, in this process."""
    for (module, name), value in DEFAULTS.items():
        setattr(sys.modules[module], CHANGED[name][1], VARIANTS[variant].get(name, value))
    compiled.layer.cache_clear()  # the kernel has the constants of its layers


def outcome(series: Series, told: str, seed: int) -> Outcome:
    """Return what a monitor with a random layer of this seed says of a series."""
    monitor = Monitor(seed=seed)
    if told == "nothing":
        return methods.outcome(monitor.observe_many(series.X))
    history = series.X[: series.history]
    monitor.fit(history)
    parts = (
        copy.deepcopy(monitor).observe_many(history),
        monitor.observe_many(series.X[series.history :]),
    )
    return replace(methods.outcome(*parts), told=series.history)


def value(variant: str, collection: str, told: str, seed: int, command: str = "run") -> Record:
    """Return what a variant reaches on a collection: the mean over its series.

    Cuts are of several collections: the mean over the series of each, then over these.
    """
    change(variant)
    found: dict[str, list[float]] = defaultdict(list)
    names = COLLECTIONS[collection].names()
    for name in names:
        series = COLLECTIONS[collection].load(name)
        whole = name.split(": ")[0] if collection == "cuts" else collection
        reached = _measured(series, outcome(series, told, seed), SCORED[whole][1])
        if reached is not None:
            found[whole].append(reached)
    return {
        "variant": variant,
        "collection": collection,
        "told": told,
        "seed": seed,
        "series": len(names),
        "value": round(float(np.mean([np.mean(each) for each in found.values()])), 5),
        "command": f"python -m experiments.benchmark.choice {command}",
        "machine": records.machine(),
        "commit": records.commit("experiments/benchmark"),
    }


def _measured(series: Series, found: Outcome, measure: str) -> float | None:
    if measure == "vus_pr" and series.collection == "tsb_ad_m":
        window = measures.buffer(series.X)
        return volume.vus_pr(series.y, measures.scaled(found.score), window)
    counted = slice(max(series.first, found.told), None)
    y, score = series.y[counted], found.score[counted]
    if not 0 < y.sum() < len(y):
        return None
    return metrics.auc(y, score) if measure == "auc" else metrics.auc_pr(y, score)


def run() -> None:
    """Run what is not stored, and store each result."""
    keys = ("variant", "collection", "told", "seed")
    done = {tuple(r[key] for key in keys) for r in records.read(FILE)}
    todo = [
        (variant, name, told, seed)
        for name in ("cuts", *SCORED)
        if COLLECTIONS[name].missing() is None
        for variant in VARIANTS
        for told in ("nothing", "history")
        for seed in SEEDS
        if (variant, name, told, seed) not in done
    ]
    for record in in_parallel("choice", [(value, task) for task in todo], os.cpu_count() or 1):
        records.append(FILE, [record])


def layers() -> None:
    """Measure the default with each random layer, in place of what is stored."""
    tasks = [
        (DEFAULT, name, told, seed, "layers")
        for name in SCORED
        if COLLECTIONS[name].missing() is None
        for told in ("nothing", "history")
        for seed in SEEDS
    ]
    found = in_parallel("layers", [(value, task) for task in tasks], os.cpu_count() or 1)
    records.write(LAYERS, list(found))


def means() -> dict[str, dict[str, float]]:
    """Return the value of each variant on each collection."""
    by: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records.read(FILE):
        by[record["variant"]][record["collection"]].append(record["value"])
    return {v: {c: float(np.mean(xs)) for c, xs in by[v].items()} for v in VARIANTS if v in by}


def summary() -> list[Record]:
    """Return, for each collection, what is chosen without it and what that reaches on it."""
    found = means()
    names = [c for c in SCORED if all(c in by for by in found.values())]

    def best(left_out: str | None) -> str:
        used = [c for c in names if c != left_out]
        return max(found, key=lambda v: float(np.mean([found[v][c] for c in used])))

    overall = best(None)
    return [
        {
            "left_out": SCORED[c][0],
            "settings": best(c),
            "value": round(found[best(c)][c], 4),
            "in_sample": round(found[overall][c], 4),
            "in_sample_settings": overall,
            "command": "python -m experiments.benchmark.choice summary",
        }
        for c in names
    ]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run", "summary", "layers"])
    what = parser.parse_args(argv).what
    if what == "run":
        run()
    elif what == "layers":
        layers()
    else:
        records.write("benchmark/choice", summary())
        for variant, by in means().items():
            shown = "  ".join(f"{c} {v:.3f}" for c, v in by.items())
            scored = float(np.mean([v for c, v in by.items() if c in SCORED]))
            print(f"{scored:.4f}  {variant:30s} {shown}")


if __name__ == "__main__":
    main()
