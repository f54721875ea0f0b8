"""Whether bands hold 95 % of normal values, and severities come as rarely as they say.

And whether incidents at faults are more severe than others, on simulated machines and plants and on
labelled streams.

python -m experiments.bands       # minutes; labelled streams need their folders
python -m experiments.numbers     # its table, from the records alone
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.benchmark import machines, plants
from experiments.benchmark.collections import LABELLED
from experiments.benchmark.measures import GRACE
from experiments.benchmark.normals import NORMALS, SEEDS, make
from experiments.benchmark.series import Series
from experiments.pages import markdown
from experiments.records import append, latest, origin
from onlad import Incidents, Monitor

NAME, FAULTS = "benchmark/bands", "benchmark/severities"
ROWS, INCIDENTS = (10, 20, 30), (40, 50, 60)  # severities that are counted
SEVERE = 50  # in red on the page: once in 100,000 normal samples
WITH_FAULTS = {
    each.name: each
    for each in (machines.COLLECTION, plants.COLLECTION, *LABELLED)
    if each.name not in {"records", "quiet"}  # no order; no faults
}
ORIGIN = origin("python -m experiments.bands", "experiments/benchmark")


def run(kind: str, seed: int) -> dict[str, Any]:
    """Watch normal data of one kind, without a history."""
    X = make(kind, seed).X
    verdicts = Monitor().observe_many(X)
    known = verdicts.ready[:, None] & ~np.isnan(X)
    inside = (verdicts.low <= X) & (verdicts.high >= X) & known
    each = inside.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    severity = verdicts.severity[verdicts.ready]
    incidents = Incidents()
    ended = incidents.add(verdicts) + incidents.finish()
    alone = np.ones(len(X), bool)  # outside of incidents
    for incident in ended:
        alone[incident.begin : incident.end + 1] = False
    alone = alone[verdicts.ready]
    return {
        "kind": kind,
        "seed": seed,
        "inside": round(float(inside.sum() / known.sum()), 4),
        "feature": [round(float(share), 4) for share in (each.min(), each.max())],
        "rows": len(severity),
        "severe": {str(least): int(np.sum(severity >= least)) for least in ROWS},
        "times": {
            str(least): int(np.sum(alone & (severity >= least)))
            + sum(incident.severity >= least for incident in ended)
            for least in ROWS
        },
        "incidents": {str(s): sum(e.severity >= s for e in ended) for s in INCIDENTS},
        **ORIGIN,
    }


def run_faults(series: Series) -> dict[str, Any]:
    """Watch a series with faults, without a history: severities of incidents at faults, and else.

    An incident is at a fault if one of its rows is at most ten rows before or after it.
    """
    incidents = Incidents()
    ended = incidents.add(Monitor().observe_many(series.X)) + incidents.finish()
    told: dict[bool, list[float]] = {True: [], False: []}
    for each in ended:
        rows = slice(max(0, each.begin - GRACE), each.end + 1 + GRACE)
        told[bool(series.y[rows].any())].append(each.severity)
    name = {"collection": series.collection, "series": series.name}
    return {**name, "at faults": told[True], "else": told[False], **ORIGIN}


def found() -> list[dict[str, Any]]:
    """Return the newest records."""
    return latest(NAME, "kind", "seed")


def at_faults(collection: str, which: str) -> list[float]:
    """Return the severities of incidents "at faults" of a collection, or "else"."""
    own = latest(FAULTS, "collection", "series")
    return [s for record in own if record["collection"] == collection for s in record[which]]


def fault_table() -> str:
    """Return the table of the page: how severe incidents at faults are, by collection."""
    heads = ["streams"]
    for which in ("incidents at faults", "other incidents"):
        heads += [which, "their median severity", f"{SEVERE} and more"]
    rows = []
    for name, collection in WITH_FAULTS.items():
        row = [collection.title]
        for own in (at_faults(name, which) for which in ("at faults", "else")):
            severe = np.mean(np.array(own) >= SEVERE) if own else 0.0
            row += [str(len(own)), f"{np.median(own):.0f}" if own else "", f"{severe:.0%}"]
        rows.append(row)
    return markdown(heads, rows)


def table() -> str:
    """Return the table of the page: by kind, over the seeds."""
    rows = []
    for kind in NORMALS:
        own = [record for record in found() if record["kind"] == kind]
        shares = [record["inside"] for record in own]
        least = min(record["feature"][0] for record in own)
        most = max(record["feature"][1] for record in own)
        total = sum(record["rows"] for record in own)
        counted = [("severe", s) for s in ROWS] + [("times", s) for s in ROWS[1:]]
        counted += [("incidents", s) for s in INCIDENTS]
        each = [sum(record[name][str(s)] for record in own) / total for name, s in counted]
        rows.append(
            [kind, f"{np.mean(shares):.1%}", f"{least:.1%} to {most:.1%}"]
            + [f"{10_000 * share:.1f}" for share in each]
        )
    heads = ["normal data", "in the band", "by sensor"]
    heads += [f"samples of {s} and more" for s in ROWS]
    heads += [f"{s} and more, an incident once" for s in ROWS[1:]]
    return markdown(heads + [f"incidents of {s} and more" for s in INCIDENTS], rows)


def share(kind: str, counted: str, least: int) -> float:
    """Return the share of samples of a kind that reach a severity, over the seeds."""
    own = [record for record in found() if record["kind"] == kind]
    return sum(r[counted][str(least)] for r in own) / sum(r["rows"] for r in own)


def mean_share(least: int, *, without: str = "") -> float:
    """Return the share of samples at which incidents of a severity begin, a mean of the kinds."""
    return float(np.mean([share(kind, "incidents", least) for kind in NORMALS if kind != without]))


def points_off(least: int) -> float:
    """Return by how many points a severity is off at most, if an incident counts once."""
    return max(abs(10 * np.log10(share(kind, "times", least)) + least) for kind in NORMALS)


def main() -> None:
    done = {(record["kind"], record["seed"], record["commit"]) for record in found()}
    for kind in NORMALS:
        for seed in range(SEEDS):
            if (kind, seed, ORIGIN["commit"]) not in done:
                append(NAME, [run(kind, seed)])
    known = {
        (r["collection"], r["series"], r["commit"]) for r in latest(FAULTS, "collection", "series")
    }
    for name, collection in WITH_FAULTS.items():
        if missing := collection.missing():
            print(missing)
            continue
        for each in collection.names():
            series = collection.load(each)
            if (name, series.name, ORIGIN["commit"]) not in known:
                append(FAULTS, [run_faults(series)])


if __name__ == "__main__":
    main()
