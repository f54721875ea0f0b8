"""The tables of the benchmark's page, as Markdown, from records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from experiments import records
from experiments.benchmark import cuts, machines, normals, plants, regimes, scenarios, timed
from experiments.benchmark.methods import METHODS, OURS
from experiments.pages import markdown
from experiments.records import Record
from experiments.tables import provenance

NOTHING = "No records yet."
# Collection, its title and the measure that its literature uses.
SCORED = {
    "tsb_ad_m": ("TSB-AD-M", "vus_pr", "VUS-PR"),
    "asd": ("ASD", "average_precision", "AP"),
    "gecco": ("GECCO", "average_precision", "AP"),
    "tep": ("TEP", "auc", "AUC"),
    "skab": ("SKAB", "auc", "AUC"),
    "smd": ("SMD", "auc", "AUC"),
    "nab": ("NAB", "auc", "AUC"),
    "records": ("records", "auc", "AUC"),
}
SIMULATED = ("machines", "plants", "normals", "scenarios", "poisoning", "probes", "timed")


def read(collection: str) -> dict[str, list[Record]]:
    """Return the records of a collection by method, in the order of the methods."""
    by: dict[str, list[Record]] = {name: [] for name in METHODS}
    for record in records.read(f"benchmark/{collection}"):
        by[record["method"]].append(record)
    return {name: found for name, found in by.items() if found}


def complete(collection: str) -> dict[str, list[Record]]:
    """Return the same without methods that lack a series: means over different series mislead."""
    by = read(collection)
    most = max(map(len, by.values()), default=0)
    return {name: found for name, found in by.items() if len(found) == most}


def _bold(name: str) -> str:
    return f"**{name}**" if name in OURS else name


def _table(corner: str, rows: dict[str, dict[str, str]], columns: Sequence[str]) -> str:
    """Return a table of the rows and columns that have at least one cell."""
    columns = [c for c in columns if any(c in cells for cells in rows.values())]
    shown = [[_bold(name), *(cells.get(c, "") for c in columns)] for name, cells in rows.items()]
    shown = [row for row in shown if any(row[1:])]
    return markdown([corner, *columns], shown) if shown else NOTHING


def scores() -> str:
    """Return the mean of each collection's own measure, and the mean over all collections."""
    cells: dict[str, dict[str, float]] = {name: {} for name in METHODS}
    for collection, (title, measure, _) in SCORED.items():
        for method, found in complete(collection).items():
            cells[method][title] = float(np.mean([record[measure] for record in found]))
    return _scored(cells, {title: unit for title, _, unit in SCORED.values()})


def of_layers() -> str:
    """Return what `Monitor` reaches with other random layers: mean, lowest and highest."""
    told = {"nothing": OURS[0], "history": OURS[1]}
    by = defaultdict(list)
    for record in records.read("benchmark/layers"):
        by[told[record["told"]], record["collection"]].append(record["value"])
    rows = {
        method: {
            f"{title}, {unit}": "{:.3f} ({:.3f} to {:.3f})".format(*_spread(by[method, name]))
            for name, (title, _, unit) in SCORED.items()
            if by[method, name]
        }
        for method in OURS
    }
    return _table("method", rows, [f"{title}, {unit}" for title, _, unit in SCORED.values()])


def of_regimes() -> str:
    """Return what `Monitor` does after a lasting change: found, false episodes, precision."""
    if not records.read(regimes.FILE):
        return NOTHING
    told = {OURS[0]: "nothing", OURS[1]: "history", "Monitor(), started at the change": "anew"}
    groups = [("all", {})] + [(each, {"change": each}) for each in regimes.CHANGES]
    groups += [(each, {"noise": each}) for each in regimes.NOISES]
    cells = {
        method: {
            name: "{found:.0%}, {false:.1f}, {precision:.2f}".format(
                **regimes.means(which, **wanted)
            )
            for name, wanted in groups
        }
        for method, which in told.items()
    }
    rows = {name: {method: cells[method][name] for method in told} for name, _ in groups}
    return _table("machines", rows, list(told))


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    return float(np.mean(values)), min(values), max(values)


def cut_otherwise() -> str:
    """Return the same of the streams that are cut otherwise; of TSB-AD-M average precision."""
    measures = {c: SCORED[c] for c in cuts.KINDS} | {"tsb_ad_m": SCORED["asd"]}
    units = {SCORED[c][0]: unit for c, (_, _, unit) in measures.items()}
    cells: dict[str, dict[str, float]] = {name: {} for name in METHODS}
    for method, found in complete("cuts").items():
        by = defaultdict(list)
        for record in found:
            collection = record["series"].split(": ")[0]
            if measures[collection][1] in record:
                by[SCORED[collection][0]].append(record[measures[collection][1]])
        cells[method] = {title: float(np.mean(by[title])) for title in units}
    return _scored(cells, units)


def with_times() -> str:
    """Return what `Monitor` reaches without times, and with them."""
    rows: dict[str, dict[str, str]] = {name: {} for name in OURS}
    for collection in timed.SECONDS:
        title, measure, unit = SCORED[collection]
        without = read(collection)
        for method, records_with in complete("timed").items():
            own = [r for r in records_with if r["series"].startswith(f"{collection}: ")]
            means = [np.mean([r[measure] for r in each]) for each in (without[method], own)]
            rows[method][f"{title}, {unit}"] = "{:.3f}, {:.3f}".format(*means)
    return _table("method", rows, [f"{SCORED[c][0]}, {SCORED[c][2]}" for c in timed.SECONDS])


def _scored(cells: dict[str, dict[str, float]], units: dict[str, str]) -> str:
    """Return a table of means by collection and their mean, the best of each column in bold."""
    for row in cells.values():
        if len(row) == len(units):
            row["mean"] = float(np.mean(list(row.values())))
    titles = [*units, "mean"]
    best = {t: max((row[t] for row in cells.values() if t in row), default=0) for t in titles}
    shown = {
        method: {t: f"**{v:.3f}**" if v == best[t] else f"{v:.3f}" for t, v in row.items()}
        for method, row in cells.items()
    }
    heads = {t: f"{t}, {units[t]}" if t in units else t for t in titles}
    rows = {m: {heads[t]: v for t, v in row.items()} for m, row in shown.items()}
    return _table("method", rows, list(heads.values()))


def _found(found: Sequence[Record]) -> str:
    faults = sum(r.get("faults", 0) for r in found)
    return f"{sum(r.get('found', 0) for r in found) / faults:.0%}" if faults else "-"


def _false(found: Sequence[Record]) -> str:
    rows = sum(r["normal_rows"] for r in found)
    return f"{1e4 * sum(r['false_episodes'] for r in found) / rows:.1f}" if rows else "-"


def _share(found: Sequence[Record]) -> str:
    rows = [r["normal_rows"] for r in found]
    if not sum(rows):
        return "-"
    return f"{np.average([r['alarm_share'] for r in found], weights=rows):.1%}"


def _causes(found: Sequence[Record]) -> str:
    """Return the share of the alarmed faults whose first cause was right."""
    right = [c for r in found for c in r.get("right_causes", []) if c is not None]
    return f"{np.mean(right):.0%}" if right else "-"


def labelled_alarms() -> str:
    """Return faults found, false episodes and normal rows in alarm, of each collection."""
    rows: dict[str, dict[str, str]] = {name: {} for name in METHODS}
    heads = {c: title for c, (title, _, _) in SCORED.items()} | {"quiet": "no faults"}
    for collection, title in heads.items():
        for method, found in read(collection).items():
            parts = [_false(found), _share(found)]
            if collection != "quiet":
                parts.insert(0, _found(found))
            rows[method][title] = ", ".join(parts)
    return _table("method", rows, list(heads.values()))


class Ranked(NamedTuple):
    """A method with its mean VUS-PR over the series at hand."""

    method: str
    value: float
    here: bool  # run here; else published
    over_all: float | None = None  # the published mean over all 180 series


def ranked() -> list[Ranked]:
    """Return all methods that have VUS-PR on TSB-AD-M, the best first."""
    found = [
        Ranked(r["method"], r["vus_pr"], False, r["vus_pr_180"])
        for r in records.read("benchmark/published")
    ]
    for method, mine in complete("tsb_ad_m").items():
        found.append(Ranked(method, float(np.mean([r["vus_pr"] for r in mine])), True))
    return sorted(found, key=lambda entry: -entry.value)


def beside_published(found: Sequence[Ranked]) -> str:
    if not found:
        return NOTHING
    rows = [
        [
            str(i + 1),
            _bold(entry.method),
            "here" if entry.here else "published",
            f"{entry.value:.3f}",
            "" if entry.over_all is None else f"{entry.over_all:.3f}",
        ]
        for i, entry in enumerate(found)
    ]
    return markdown(["", "method", "run", "these series", "all 180"], rows)


def choice() -> str:
    """Return left-out numbers beside in-sample ones, where defaults were chosen on the others."""
    found = records.read("benchmark/choice")
    if not found:
        return "No records yet: no default was chosen on these collections."
    rows = [
        [r["left_out"], str(r["settings"]), f"{r['value']:.3f}", f"{r['in_sample']:.3f}"]
        for r in found
    ]
    expected, chosen = (float(np.mean([r[key] for r in found])) for key in ("value", "in_sample"))
    rows.append(["mean", "", f"{expected:.3f}", f"{chosen:.3f}"])
    return markdown(["left out", "chosen on the others", "value", "chosen on all"], rows)


def _by_part(
    collection: str, names: Sequence[str], cell: Callable[[list[Record]], str]
) -> dict[str, dict[str, str]]:
    """Return cells of series ``<name>, run 0`` and so on: rows are names, columns methods."""
    rows: dict[str, dict[str, str]] = {name: {} for name in names}
    for method, found in read(collection).items():
        parts = defaultdict(list)
        for record in found:
            parts[record["series"].rsplit(", ", 1)[0]].append(record)
        for name in names:
            if parts[name]:
                rows[name][method] = cell(parts[name])
    return rows


def of_machines() -> str:
    rows = _by_part(
        "machines",
        list(machines.MACHINES),
        lambda found: f"{_found(found)}, {_causes(found)}, {_false(found)}",
    )
    return _table("machine", rows, list(METHODS))


def of_plants() -> str:
    rows = _by_part(
        "plants",
        list(plants.PLANTS),
        lambda found: f"{_precision(found)}, {_found(found)}, {_causes(found)}, {_false(found)}",
    )
    return _table("plant", rows, list(METHODS))


def _precision(found: list[Record]) -> str:
    return f"{np.mean([r['average_precision'] for r in found]):.2f}"


def of_kinds() -> str:
    """Return the share of faults found by kind, over all machines."""
    rows: dict[str, dict[str, str]] = {kind: {} for kind in machines.FAULTS}
    for method, found in read("machines").items():
        hits = defaultdict(list)
        for record in found:
            for kind, delay in zip(machines.kinds(record["series"]), record["delays"], strict=True):
                hits[kind].append(delay is not None)
        for kind, hit in hits.items():
            rows[kind][method] = f"{np.mean(hit):.0%}"
    return _table("fault", rows, list(METHODS))


def of_normals() -> str:
    rows = _by_part(
        "normals", list(normals.NORMALS), lambda found: f"{_false(found)}, {_share(found)}"
    )
    return _table("data", rows, list(METHODS))


def _marked(mark: str, blind: bool = False) -> Callable[[list[Record]], str]:
    def cell(found: list[Record]) -> str:
        share = float(np.mean([r["marks"][mark] for r in found]))
        return f"{1 - share if blind else share:.0%}"

    return cell


def _noticed(found: list[Record]) -> str:
    if "noticed" not in found[0]:
        return "-"
    hits = [r["noticed"] for r in found if r["noticed"] is not None]
    rows = f", row {np.median(hits):.0f}" if hits else ""
    return f"{len(hits)} of {len(found)}{rows}"


def _ready(found: list[Record]) -> str:
    cause = _causes(found)
    silent = f", {np.mean([r['not_ready'] for r in found]):.0%}" if "not_ready" in found[0] else ""
    return f"{_found(found)}, {cause}{silent}"


QUESTIONS: dict[str, tuple[str, Callable[[list[Record]], str]]] = {
    "a new mode: rows in alarm, of the first 1,000": ("modes return", _marked("new mode")),
    "a mode returns after 6,000 rows: the same": ("modes return", _marked("return")),
    "three known modes: rows in alarm": ("three modes", _marked("later")),
    "three known modes: blind rows": ("three modes, probed", _marked("probes", blind=True)),
    "a stop of 3,000 rows: rows in alarm": ("a stop", _marked("stop")),
    "2,000 rows after it: rows in alarm": ("a stop", _marked("after")),
    "3,000 rows after it: blind rows": ("a stop, probed", _marked("probes", blind=True)),
    "5 deviations in 10,000 rows: noticed": ("slow ramp", _noticed),
    "20 deviations in 2,000 rows: noticed": ("fast ramp", _noticed),
    "no ramp: noticed by chance": ("no ramp", _noticed),
    "90 % missing: found, cause, not ready": ("90 % missing", _ready),
    "5 of 8 sensors at every tenth row: the same": ("slow sensors", _ready),
    "3 of 8 sensors out for 3,000 rows: rows in alarm": ("outage", _marked("outage")),
    "2,000 rows after they are back: the same": ("outage", _marked("after")),
}


def of_scenarios() -> str:
    rows: dict[str, dict[str, str]] = {}
    for question, (scenario, cell) in QUESTIONS.items():
        assert scenario in scenarios.SCENARIOS
        rows[question] = _by_part("scenarios", [scenario], cell)[scenario]
    question = "an attacker without alarms: deviations in 1,000 rows"
    rows[question] = {
        method: f"{np.mean([r['deviations'] for r in found]):.1f}"
        for method, found in read("poisoning").items()
    }
    rows["three known modes: blind rows, each probe shown to a copy"] = {
        method: f"{100 * np.mean([r['blind'] for r in found]):.0f}%"
        for method, found in read("probes").items()
    }
    return _table("case", rows, list(METHODS))


def origin() -> str:
    """Return where the records come from."""
    used = [r for name in (*SCORED, "quiet", *SIMULATED) for m in read(name).values() for r in m]
    return provenance(used) if used else NOTHING
