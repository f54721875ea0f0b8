"""The pictures of the report: AUC and drift. Records in, SVG out, the same bytes each time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

from experiments.metrics import Mean
from experiments.records import Record

mpl.use("svg")
mpl.rcParams.update(
    {
        "svg.hashsalt": "onlad",
        "svg.fonttype": "none",  # text stays text: small files, readable by machines
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.25,
        "legend.frameon": False,
        "figure.constrained_layout.use": True,
    }
)

FOLDER = Path(__file__).parent.parent / "docs" / "explanation" / "evaluation"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")


def save(figure: plt.Figure, name: str, folder: Path = FOLDER) -> str:
    """Write a figure as ``<name>.svg`` and return the path that a page in docs/ links to."""
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    return f"{folder.name}/{name}.svg"


def auc(
    cells: Mapping[tuple[str, str], Mean],
    datasets: Mapping[str, str],
    methods: Mapping[str, str],
    paper: Mapping[tuple[str, str], float],
) -> plt.Figure:
    """Draw one dot a method and dataset with its 95 % interval, the paper's as a hollow one."""
    figure, axes = plt.subplots(
        1, len(datasets), figsize=(10, 0.32 * len(methods) + 0.9), sharey=True
    )
    for axis, (dataset, label) in zip(axes, datasets.items(), strict=True):
        for i, method in enumerate(methods):
            colour = COLOURS[0] if method.startswith("onlad") else COLOURS[7]
            if (dataset, method) in cells:
                mean = cells[dataset, method]
                half = 0.0 if np.isnan(mean.half) else mean.half
                axis.errorbar(mean.mean, i, xerr=half, fmt="o", ms=4, color=colour, lw=1)
            if (dataset, method) in paper:
                axis.plot(paper[dataset, method], i, "D", ms=6, mfc="none", mec=COLOURS[1], mew=1)
        axis.set_title(label, fontsize=9)
        axis.set_xlim(0.4, 1.0)
    axes[0].set_yticks(range(len(methods)), list(methods.values()))
    axes[0].invert_yaxis()
    figure.supxlabel("AUC: here (dots, 95 % interval) and in the paper (diamonds)", fontsize=9)
    return figure


def drift(records: Sequence[Record], labels: Mapping[str, str]) -> plt.Figure:
    """Draw the scores of normal and anomalous samples over a stream whose concept changes."""
    figure, axes = plt.subplots(len(records), 1, figsize=(9, 1.9 * len(records)), sharex=True)
    for axis, record in zip(np.atleast_1d(axes), records, strict=True):
        at, name = record["at"], labels[record["method"]]
        axis.plot(at, record["normal"], color=COLOURS[0], lw=1, label="normal samples")
        axis.plot(at, record["anomalous"], color=COLOURS[1], lw=1, label="anomalies")
        for start, concept in zip(record["starts"], record["concepts"], strict=True):
            axis.axvline(start, color="black", lw=0.6, alpha=0.5)
            axis.text(
                start,
                1.0,
                f" class {concept}",
                fontsize=7,
                va="top",
                transform=axis.get_xaxis_transform(),
            )
        axis.set_yscale("log")
        axis.set_title(f"{name}: AUC {record['auc']:.3f}", fontsize=9, loc="left")
        axis.set_ylabel("score")
    np.atleast_1d(axes)[0].legend(loc="lower right", ncols=2, fontsize=7)
    np.atleast_1d(axes)[-1].set_xlabel("sample")
    return figure
