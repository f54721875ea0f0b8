"""The report's section on the core beside software, and the paper's plots over N."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import matplotlib.pyplot as plt

from experiments import core_area, core_latency, figures
from experiments.claims_core import area, microseconds
from experiments.claims_cost import machine_of, times
from experiments.figures_performance import LABELS
from experiments.settings import paper
from experiments.tables import markdown
from onlad.hardware.paper import AREA, FEATURES, HIDDEN, SIZES

LANES = (2, 8, 16)
STEPS = {"training": "train", "prediction": "predict"}
TEXT = """\
How many times faster a step of [the core](../howto/hardware.md) is than software, means over the
sizes; below 1 the core is slower. The core: cycles in simulation at 100 MHz, with the n cycles that
load a sample. 100 MHz is the clock of the paper's board; no core of these sizes was routed for its
chip. The paper's core has two arithmetic units, as two lanes here. Our own compiled step on a
processor is faster than the core."""


def over_hidden(values: dict[tuple[int, int], float], unit: str, printed: bool) -> plt.Figure:
    """Draw a quantity over N on linear axes, a line for each n; broken lines are the paper's."""
    figure, axis = plt.subplots(figsize=(5.5, 3.4))
    for k, n in enumerate(FEATURES):
        mine = [(N, values[n, N]) for N in HIDDEN if (n, N) in values]
        if mine:
            axis.plot(*zip(*mine, strict=True), "o-", color=figures.COLOURS[k], label=f"n = {n:,}")
        if printed:
            theirs = [AREA[n, N]["BRAM"] for N in HIDDEN]
            axis.plot(HIDDEN, theirs, "--", color=figures.COLOURS[k], lw=0.9)
    axis.set_xlabel("hidden units")
    axis.set_ylabel(unit)
    axis.set_xlim(0)
    axis.set_ylim(0)
    axis.legend(fontsize=8)
    return figure


def beside_software() -> str:
    """Return how many times faster the core is, by lanes; below 1 it is slower."""
    heads, columns = ["over", "measured on"], []
    for quantity, step in STEPS.items():
        heads.append(f"{quantity}: paper")
        columns.append((quantity, step, 0))
        for lanes in LANES:
            sizes = len(microseconds(step, lanes))
            heads.append(
                f"here, {lanes} lanes" + f" ({sizes} of {len(SIZES)} sizes)" * (sizes < 12)
            )
            columns.append((quantity, step, lanes))
    rows = []
    for (name, device), label in LABELS.items():
        row = [label, machine_of(device)]
        for quantity, step, lanes in columns:
            if not lanes:
                number = paper()["latency"][f"{quantity}_speedup"].get(f"{name}-{device}")
                row.append(f"{number:.2f}" if number else "")
                continue
            core, other = microseconds(step, lanes), times(name, device, quantity)
            row.append(f"{fmean(other[size] / core[size] for size in core):.2f}" if core else "")
        rows.append(row)
    return markdown(heads, rows)


def at_one_size(size: tuple[int, int] = (512, 64)) -> str:
    """Return the same at one size, in microseconds and as a ratio; below 1 the core is slower."""
    heads, rows = ["over", "measured on"], []
    for quantity in STEPS:
        heads += [f"{quantity}, µs", *(f"core, {lanes} lanes" for lanes in LANES)]
    cores = {
        (s, lanes): microseconds(s, lanes).get(size) for s in STEPS.values() for lanes in LANES
    }
    shown = [
        cell
        for step in STEPS.values()
        for cell in ("", *(f"{cores[step, k]:,.0f} µs" if cores[step, k] else "" for k in LANES))
    ]
    rows.append(["the core itself", "simulated", *shown])
    for (name, device), label in LABELS.items():
        row = [label, machine_of(device)]
        for quantity, step in STEPS.items():
            other = times(name, device, quantity).get(size)
            row.append(f"{other:,.1f}" if other else "")
            for lanes in LANES:
                core = cores[step, lanes]
                row.append(f"{other / core:.2f}" if other and core else "")
        rows.append(row)
    return markdown(heads, rows)


def sections(folder: Path = figures.FOLDER) -> list[str]:
    """Return the section, if there are records of the core."""
    if not core_latency.records() or not core_area.records():
        return []
    lanes = 2 if len(microseconds("train", 2)) == len(SIZES) else 8
    latency = over_hidden(microseconds("train", lanes), f"µs a training step, {lanes} lanes", False)
    figures.save(latency, "core-latency-hidden", folder)
    blocks = {size: used["BRAM"] for size, used in area().items()}
    figures.save(over_hidden(blocks, "BRAM, % of xc7z020", True), "core-area-hidden", folder)
    return [
        "\n\n".join(
            [
                "## The core beside software",
                TEXT,
                beside_software(),
                "At the size of the paper's board, n = 512 and N = 64:",
                at_one_size(),
                "The paper's `fig:train_latency_hv` and `fig:area_hv`, over the hidden units:",
                "![Training time of the core](evaluation/core-latency-hidden.svg)",
                "![BRAM of the core; broken lines: the paper](evaluation/core-area-hidden.svg)",
            ]
        )
    ]
