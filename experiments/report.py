"""Make docs/explanation/evaluation.md and its pictures from the stored records alone.

    python -m experiments.report             # writes
    python -m experiments.report --check     # fails where the page is stale

The words are in evaluation.template.md. Modules experiments/figures_*.py add sections of their own.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from pathlib import Path

import experiments
from experiments import datasets, figures, pages, records, scaling, tables, ways
from experiments.methods import registry
from experiments.settings import BUDGET
from experiments.testbeds import TESTBEDS

TEMPLATE = Path(__file__).parent / "evaluation.template.md"
PAGE = Path(__file__).parent.parent / "docs" / "explanation" / "evaluation.md"
NOTHING = "No records yet."


def _auc(folder: Path) -> dict[str, str]:
    parts = {}
    for testbed in TESTBEDS:
        aucs = tables.Aucs(testbed)
        parts[f"{testbed}_paper"] = aucs.beside_the_paper()
        parts[f"{testbed}_all"] = aucs.all_methods()
        parts[f"{testbed}_best"] = aucs.ours()
        parts[f"{testbed}_equal"] = aucs.equal()
        parts[f"{testbed}_differences"] = aucs.differences()
        means = aucs.means()
        shown = {m: e.label for m, e in tables.ordered().items() if any(m == k[1] for k in means)}
        printed = {(d, m): v for d, row in aucs.paper.items() for m, v in row.items()}
        picture = figures.auc(means, tables.names(), shown, printed)
        figures.save(picture, f"auc-{testbed}", folder)
    return parts


def _drift(folder: Path) -> str:
    stored = records.read("drift")
    if not stored:
        return NOTHING
    labels = {name: entry.label for name, entry in registry().items()}
    figures.save(figures.drift(stored, labels), "drift", folder)
    name = datasets.DATASETS[stored[0]["dataset"]].label
    return f"{name}, seed {stored[0]['seed']}. {tables.provenance(stored)}"


def _others() -> str:
    found: list[str] = []
    for module in pkgutil.iter_modules(experiments.__path__):
        if module.name.startswith("figures_"):
            found += importlib.import_module(f"experiments.{module.name}").sections()
    return "\n\n".join(found) or NOTHING


def page(folder: Path = figures.FOLDER) -> str:
    """Return the page, and write its pictures into `folder`."""
    parts = {
        **_auc(folder),
        "settings": tables.settings_found(),
        "budget": str(BUDGET),
        "scaling": scaling.table(),
        "unclear": tables.unclear(),
        "ways_online": ways.table("online"),
        "ways_offline": ways.table("offline"),
        "drift": _drift(folder),
        "performance": _others(),
    }
    return pages.filled(TEMPLATE, parts)


def main(arguments: Sequence[str] | None = None) -> None:
    pages.main(PAGE, page, "experiments.report", arguments)


if __name__ == "__main__":
    main()
