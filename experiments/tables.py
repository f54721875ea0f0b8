"""The AUC tables and the table of settings, as Markdown, from records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from experiments import metrics, records
from experiments.methods import Entry, Hyperparameters, peers, registry
from experiments.metrics import Mean, Paired
from experiments.pages import markdown
from experiments.records import Record
from experiments.settings import NoSettingsError, Settings, hyperparameters, paper
from experiments.testbeds import TESTBEDS, Testbed

PAPERS = ("onlad", "onlad-nf", "fpelm", "nn", "dnn")
PRINTED = "onlad-01"  # ONLAD with the weights that the paper prints
OURS = "onlad-plus"
SUBSTITUTE = "smartphone_har"


def provenance(used: Sequence[Record], trials: Mapping[str, Sequence[str]] | None = None) -> str:
    """Return one line: how many trials, which machines, which commits."""
    counts = "; ".join(f"{n} trials: {', '.join(names)}" for n, names in (trials or {}).items())
    machines = ", ".join(sorted({r["machine"] for r in used}))
    commits = ", ".join(sorted({r["commit"] for r in used}))
    return f"*{counts}{'. ' * bool(counts)}Machine: {machines}. Commit: {commits}.*"


def unclear() -> str:
    """Return a sentence on the records that do not say all of where they are from."""
    kinds = {
        "changed": "were made with uncommitted changes in the tree: their commit has a +",
        "machine": "do not name their machine",
    }
    told = []
    for what, counts in records.unclear().items():
        if counts:
            files = ", ".join(f"`{name}`" for name in counts)
            told.append(f"{sum(counts.values())} records {kinds[what]} ({files}).")
    return " ".join(told)


def ordered() -> dict[str, Entry]:
    """Return the methods: ours first, then the paper's, then the peers."""
    known = {
        name: entry
        for name, entry in registry().items()
        if entry.family != "variant" and name != PRINTED
    }
    first = [name for name in (OURS, *PAPERS) if name in known]
    return {name: known[name] for name in (*first, *(n for n in known if n not in first))}


def names() -> dict[str, str]:
    """Return the paper's datasets; a star marks the one that is not the paper's data."""
    return {key: label + "*" * (key == SUBSTITUTE) for key, label in paper()["datasets"].items()}


def show(mean: Mean | None) -> str:
    """Return a mean with its interval, as a cell."""
    if mean is None:
        return ""
    return f"{mean.mean:.3f}" if mean.n == 1 else f"{mean.mean:.3f} ± {mean.half:.3f}"


def _difference(mean: Mean | None, number: float | None) -> str:
    return "" if mean is None or number is None else f"{mean.mean - number:+.3f}"


def _compared(gain: float, half: float) -> str:
    word = "above" if gain > half else "below" if gain < -half else "level"
    return f"{gain:+.3f}, {word}"


def words(parameters: Hyperparameters) -> str:
    """Return settings as a cell."""
    return ", ".join(f"{name} {value}" for name, value in parameters.items())


def _current(
    settings: Settings, testbed: Testbed, dataset: str, method: str
) -> Hyperparameters | None:
    try:
        return hyperparameters(settings, testbed, dataset, method)
    except NoSettingsError:
        return None


class Aucs:
    """The stored AUC records of one testbed, by dataset, method and settings.

    Records with hyperparameters that the settings no longer have are left out.
    """

    def __init__(self, testbed: Testbed) -> None:
        self.testbed: Testbed = testbed
        self.paper: dict[str, dict[str, float]] = paper()["auc"][testbed]
        groups: dict[tuple[str, str, Settings], list[Record]] = defaultdict(list)
        for method in registry():
            for r in records.read(records.auc_file(testbed, method)):
                groups[r["dataset"], method, r["settings"]].append(r)
        self.cells = {}
        for (dataset, method, settings), found in groups.items():
            wanted = _current(settings, testbed, dataset, method)
            kept = {r["seed"]: r for r in found if r["hyperparameters"] == wanted}
            if kept and dataset in self.paper:
                self.cells[dataset, method, settings] = list(kept.values())

    def mean(self, dataset: str, method: str, settings: Settings | None = None) -> Mean | None:
        """Return a cell; without settings the paper's for its methods, else ours."""
        settings = settings or ("paper" if method in (*PAPERS, PRINTED) else "ours")
        found = self.cells.get((dataset, method, settings))
        return metrics.mean([r["auc"] for r in found]) if found else None

    def paired(
        self, dataset: str, one: tuple[str, Settings], other: tuple[str, Settings]
    ) -> Paired | None:
        """Return the mean of one method's AUC less the other's, over the seeds that both have."""
        mine, theirs = (
            {r["seed"]: r["auc"] for r in self.cells.get((dataset, *who), [])}
            for who in (one, other)
        )
        seeds = sorted(mine.keys() & theirs.keys())
        return metrics.paired([mine[s] - theirs[s] for s in seeds]) if seeds else None

    def about(self, methods: Iterable[str]) -> str:
        """Return trials, machines and commits of these methods' records."""
        methods = list(methods)
        used = [r for key, found in self.cells.items() if key[1] in methods for r in found]
        if not used:
            return "No records yet."
        groups: dict[str, list[str]] = defaultdict(list)
        for method in methods:
            counts = {len(found) for key, found in self.cells.items() if key[1] == method}
            if counts:
                low, high = min(counts), max(counts)
                groups[str(low) if low == high else f"{low} to {high}"].append(
                    registry()[method].label
                )
        return provenance(used, groups)

    def means(self) -> dict[tuple[str, str], Mean]:
        """Return the cells of the table of all methods."""
        return {
            (dataset, method): mean
            for dataset in self.paper
            for method in ordered()
            if (mean := self.mean(dataset, method))
        }

    def beside_the_paper(self) -> str:
        """Return the paper's table with our numbers."""
        rows = []
        for dataset, label in names().items():
            for method in (m for m in PAPERS if m in self.paper[dataset]):
                number = self.paper[dataset][method]
                here, found = (self.mean(dataset, method, s) for s in ("paper", "found"))
                printed = self.mean(dataset, PRINTED) if method == "onlad" else None
                rows.append(
                    [
                        label,
                        registry()[method].label,
                        f"{number:.3f}",
                        show(here),
                        _difference(here, number),
                        show(found),
                        _difference(found, number),
                        show(printed),
                    ]
                )
        heads = "dataset", "method", "paper", "here, paper's settings", "difference"
        more = "here, settings found", "difference", "paper's settings, Uniform[0, 1]"
        table = markdown((*heads, *more), rows)
        return f"{table}\n\n{self.about((*PAPERS, PRINTED))}"

    def all_methods(self) -> str:
        """Return the means of all methods."""
        best = {dataset: max(column.values()) for dataset, column in self.paper.items()}
        rows = [["best in the paper", *(f"{best[dataset]:.3f}" for dataset in names())]]
        for method, entry in ordered().items():
            cells = [self.mean(dataset, method) for dataset in names()]
            if any(cells):
                pairs = zip(cells, names(), strict=True)
                above = [
                    cell is not None
                    and cell.mean - cell.half > best[dataset]
                    and dataset != SUBSTITUTE
                    for cell, dataset in pairs
                ]
                shown = zip(map(show, cells), above, strict=True)
                rows.append([entry.label, *(f"**{c}**" if high else c for c, high in shown)])
        return f"{markdown(('method', *names().values()), rows)}\n\n{self.about(ordered())}"

    def equal(self) -> str:
        """Return the methods that were searched, with as many settings each."""
        rows = []
        for method, entry in ordered().items():
            cells = [self.mean(dataset, method, "equal") for dataset in names()]
            if any(cells):
                rows.append([entry.label, *map(show, cells)])
        used = [r for key, found in self.cells.items() if key[2] == "equal" for r in found]
        table = markdown(("method", *names().values()), rows)
        return f"{table}\n\n{self._not_searched()}\n\n{provenance(used)}"

    def _not_searched(self) -> str:
        """Return which searches of the peers are not complete, how far they are, and what is left.

        The time is that of the settings tried so far, on one core of the machine that ran them; of
        the slowest dataset where none was tried.
        """
        missing: dict[str, list[str]] = {}
        for method, grid in peers.GRIDS.items():
            if self.testbed != registry()[method].testbeds[-1]:
                continue
            took = defaultdict(list)
            for r in records.read(f"tune/{self.testbed}-{method}"):
                took[r["dataset"]].append(r["seconds"])
            means = {dataset: fmean(seconds) for dataset, seconds in took.items()}
            for dataset, label in names().items():
                if self.mean(dataset, method, "equal") is None:
                    share = f"{len(took[dataset])} of {len(grid)}"
                    if means:
                        each = means.get(dataset, max(means.values()))
                        left = each * (len(grid) - len(took[dataset])) / 60
                        share += f", about {left:.0f} min left"
                    missing.setdefault(label, []).append(f"{registry()[method].label} ({share})")
        if not missing:
            return "All searches are complete."
        told = "; ".join(f"{label}: {', '.join(each)}" for label, each in missing.items())
        return (
            "Searches that are not complete: the settings tried so far, and the time of the others"
            f" as these took, on one core of a machine with other work. {told}."
        )

    def differences(self) -> str:
        """Return by how much ONLAD is above the paper's other methods, on the same seeds."""
        others = [m for m in PAPERS if m != "onlad" and m in next(iter(self.paper.values()))]
        columns = {"paper": "paper's", "found": "found", "equal": "equal budgets"}
        rows = []
        for dataset, label in names().items():
            for settings, words in columns.items():
                pairs = [
                    self._difference(dataset, ("onlad", settings), (other, settings))  # type: ignore[arg-type]
                    for other in others
                ]
                if any(pairs):
                    rows.append([label, words, *pairs])
        heads = (f"less {registry()[other].label}" for other in others)
        return markdown(("dataset", "settings", *heads), rows)

    def _difference(
        self, dataset: str, one: tuple[str, Settings], other: tuple[str, Settings]
    ) -> str:
        found = self.paired(dataset, one, other)
        if found is None:
            return ""
        p = f"{found.p:.3f}" if found.p >= 0.001 else "< 0.001"
        return f"{found.mean:+.3f} ± {found.half:.3f} (n {found.n}, p {p})"

    def ours(self) -> str:
        """Return how ONLAD+ stands to the best of the paper, of its methods here, and of all."""
        rows = []
        for dataset, label in names().items():
            ours = self.mean(dataset, OURS)
            if ours is None:
                continue
            column = self.paper[dataset]
            leader = max(column, key=lambda m: column[m])
            of_paper = [(m, s) for m in PAPERS for s in ("paper", "found")]
            of_all = [(m, "equal") for m in registry() if m != OURS]
            rows.append(
                [
                    label,
                    show(ours),
                    f"{registry()[leader].label} {column[leader]:.3f}",
                    _compared(ours.mean - column[leader], ours.half)
                    if dataset != SUBSTITUTE
                    else "other data",
                    *self._beside(dataset, "ours", of_paper),
                    *self._beside(dataset, "equal", of_all),
                    words(hyperparameters("ours", self.testbed, dataset, OURS)),
                ]
            )
        heads = "dataset", "ONLAD+", "best in the paper", "ONLAD+ is", "best of its methods here"
        more = "ONLAD+ is", "best of all others, equal budgets", "ONLAD+ is", "settings of ONLAD+"
        return f"{markdown((*heads, *more), rows)}\n\n{self.about([OURS])}"

    def _beside(
        self, dataset: str, settings: Settings, rivals: Sequence[tuple[str, Settings]]
    ) -> tuple[str, str]:
        """Return the best of the rivals, and how ONLAD+ stands to it on the same seeds."""
        here = {who: mean.mean for who in rivals if (mean := self.mean(dataset, *who))}
        if not here:
            return "", ""
        rival = max(here, key=lambda who: here[who])
        gap = self.paired(dataset, (OURS, settings), rival)
        said = f"{registry()[rival[0]].label}, {rival[1]} {here[rival]:.3f}"
        return said, f"{_compared(gap.mean, gap.half)} (± {gap.half:.3f})" if gap else ""


def settings_found() -> str:
    """Return the settings found by search, beside the paper's."""
    rows, used = [], []
    for testbed in TESTBEDS:
        for method in ("onlad", "fpelm", "nn", "dnn", OURS):
            tried = records.read(f"tune/{testbed}-{method}")
            for dataset, label in names().items():
                mine = [r for r in tried if r["dataset"] == dataset]
                if not mine:
                    continue
                used += mine
                found = hyperparameters("found", testbed, dataset, method)
                longest = max(len(r["aucs"]) for r in mine)
                aucs = max(
                    r["aucs"]
                    for r in mine
                    if r["hyperparameters"] == found and len(r["aucs"]) == longest
                )
                rows.append(
                    [
                        f"{testbed}, {label}",
                        registry()[method].label,
                        words(paper()["settings"][testbed][dataset].get(method, {})),
                        words(found),
                        f"{metrics.mean(aucs).mean:.3f}",
                        f"{len(mine)}, {longest}",
                    ]
                )
    if not rows:
        return "No records yet."
    heads = "testbed, dataset", "method", "paper", "found", "AUC, validation"
    return f"{markdown((*heads, 'settings tried, folds'), rows)}\n\n{provenance(used)}"
