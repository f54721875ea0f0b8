"""Ask which constants of `Monitor` would be chosen without a collection, and judge them on it.

The constants were found with all collections in view; this is a check of them, made afterwards.

    python -m experiments.benchmark.choice run          # skips what is stored
    python -m experiments.benchmark.choice summary      # from the records alone, for the page

Each variant changes one constant. Its value on a collection is the mean of the collection's own
measure over its series, told nothing and with history. For each collection in turn, the variant is
taken that is best in the mean over all others; what it reaches on the one left out is what a user
may expect. Beside it stands the variant that is best when no collection is left out.
"""

from __future__ import annotations

from experiments import one_thread  # noqa: F401  (before NumPy loads its BLAS)

# isort: split
import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from types import ModuleType

import numpy as np

from experiments import records
from experiments.benchmark import measures, methods
from experiments.benchmark.run import COLLECTIONS
from experiments.benchmark.tables import SCORED
from experiments.records import Record
from experiments.reproduce import in_parallel
from onlad import compiled

DEFAULT = "as it is"
VARIANTS: dict[str, tuple[float | int, ...]] = {
    "SMOOTHING": (1 / 10, 1 / 60),
    "REFUSED": (0.25, 1.0),
    "LONGEST_WINDOW": (1, 8),
    "RANGE": (2.0, 8.0),
    "HIDDEN": (32, 128),
    "QUANTILE": (0.99,),
    "PRIOR": (16.0, 256.0),
    "GAIN": (0.4, 1e9),
    "SPARED": (0.05, 0.5),
    "SHORTEST": (64, 1024),
}
FILE = "benchmark/choice_runs"
OURS = {"nothing": "Monitor()", "history": "Monitor().fit"}


def variants() -> list[str]:
    """Return the variants by name; the first is the default."""
    return [DEFAULT, *(f"{name} {value:.4g}" for name, vs in VARIANTS.items() for value in vs)]


def _modules() -> list[ModuleType]:
    return [module for name, module in sys.modules.items() if name.startswith("onlad.")]


# As they are before anything is changed: a process runs many variants, one after the other.
BEFORE = {
    (module.__name__, name): getattr(module, name)
    for module in _modules()
    for name in VARIANTS
    if hasattr(module, name)
}


def change(variant: str) -> None:
    """Change one constant in all modules of the library that have it, in this process."""
    for (module, name), value in BEFORE.items():
        setattr(sys.modules[module], name, value)
    if variant != DEFAULT:
        changed, _, _ = variant.partition(" ")
        (value,) = (v for v in VARIANTS[changed] if f"{changed} {v:.4g}" == variant)
        for module, name in BEFORE:
            if name == changed:
                setattr(sys.modules[module], name, value)
    compiled.layer.cache_clear()  # the kernel has the constants of its layers


def value(variant: str, collection: str, told: str) -> Record:
    """Return what a variant reaches on a collection: the mean over its series."""
    change(variant)
    names = COLLECTIONS[collection].names()
    found = []
    for name in names:
        series = COLLECTIONS[collection].load(name)
        found.append(measures.measure(series, methods.METHODS[OURS[told]](series)))
    return {
        "variant": variant,
        "collection": collection,
        "told": told,
        "series": len(names),
        "value": round(float(np.mean([f[SCORED[collection][1]] for f in found])), 5),
        "command": "python -m experiments.benchmark.choice run",
        "machine": records.machine(),
        "commit": records.commit("experiments/benchmark"),
    }


def run() -> None:
    """Run what is not stored, and store each result."""
    keys = ("variant", "collection", "told")
    done = {tuple(r[key] for key in keys) for r in records.read(FILE)}
    todo = [
        (variant, name, told)
        for name in SCORED
        if COLLECTIONS[name].missing() is None
        for variant in variants()
        for told in OURS
        if (variant, name, told) not in done
    ]
    for record in in_parallel("choice", [(value, task) for task in todo], os.cpu_count() or 1):
        records.append(FILE, [record])


def means() -> dict[str, dict[str, float]]:
    """Return the value of each variant on each collection."""
    by: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records.read(FILE):
        by[record["variant"]][record["collection"]].append(record["value"])
    return {v: {c: float(np.mean(xs)) for c, xs in by[v].items()} for v in variants() if v in by}


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
            "default": round(found[DEFAULT][c], 4),
            "in_sample_settings": overall,
            "command": "python -m experiments.benchmark.choice summary",
        }
        for c in names
    ]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run", "summary"])
    if parser.parse_args(argv).what == "run":
        run()
    else:
        path = records.RESULTS / "benchmark/choice.jsonl"
        lines = (json.dumps(r, separators=(",", ":")) + "\n" for r in summary())
        path.write_text("".join(lines))
        found = means()
        for variant, by in found.items():
            shown = "  ".join(f"{c} {v:.3f}" for c, v in by.items())
            print(f"{np.mean(list(by.values())):.3f}  {variant:20s} {shown}")


if __name__ == "__main__":
    main()
