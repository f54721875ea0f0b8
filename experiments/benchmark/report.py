"""Make docs/explanation/benchmark.md and its picture from the stored records alone.

    python -m experiments.benchmark.report             # writes
    python -m experiments.benchmark.report --check     # fails where the page is stale

The words are in benchmark.template.md, the tables in benchmark/tables.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt

from experiments import figures, pages
from experiments.benchmark import tables
from experiments.benchmark.methods import OURS

TEMPLATE = Path(__file__).parent / "benchmark.template.md"
PAGE = Path(__file__).parent.parent.parent / "docs" / "explanation" / "benchmark.md"
FOLDER = PAGE.parent / "benchmark"


def standing(ranked: Sequence[tables.Ranked]) -> plt.Figure:
    """Draw one bar per method, the best on top; onlad's own in colour."""
    figure, axis = plt.subplots(figsize=(8, 0.22 * len(ranked) + 0.8))
    for i, entry in enumerate(ranked):
        ours = entry.method in OURS
        colour = figures.COLOURS[1 if ours else 0 if entry.here else 7]
        axis.barh(i, entry.value, color=colour, height=0.7, alpha=1.0 if ours else 0.7)
        axis.text(entry.value, i, f" {entry.value:.3f}", va="center", fontsize=7)
    axis.set_yticks(range(len(ranked)), [entry.method for entry in ranked], fontsize=7)
    for label, entry in zip(axis.get_yticklabels(), ranked, strict=True):
        label.set_fontweight("bold" if entry.method in OURS else "normal")
    axis.invert_yaxis()
    axis.grid(visible=False, axis="y")
    axis.set_xlabel(
        "mean VUS-PR, same series: Monitor (orange), others run here (blue), published (grey)",
        fontsize=8,
    )
    return figure


def page(folder: Path = FOLDER) -> str:
    """Return the page, and write its picture into `folder`."""
    ranked = tables.ranked()
    if ranked:
        figures.save(standing(ranked), "tsb-ad-m", folder)
    parts = {
        "scores": tables.scores(),
        "layers": tables.of_layers(),
        "cuts": tables.cut_otherwise(),
        "timed": tables.with_times(),
        "alarms": tables.labelled_alarms(),
        "published": tables.beside_published(ranked),
        "choice": tables.choice(),
        "machines": tables.of_machines(),
        "kinds": tables.of_kinds(),
        "plants": tables.of_plants(),
        "regimes": tables.of_regimes(),
        "normals": tables.of_normals(),
        "scenarios": tables.of_scenarios(),
        "provenance": tables.origin(),
    }
    return pages.filled(TEMPLATE, parts)


def main(arguments: Sequence[str] | None = None) -> None:
    pages.main(PAGE, lambda: page(FOLDER), "experiments.benchmark.report", arguments)


if __name__ == "__main__":
    main()
