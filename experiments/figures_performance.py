"""The report's sections on time, energy and operations, from stored records alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median

import matplotlib.pyplot as plt

from experiments import figures, forgetting_cost, operations, records
from experiments.claims_core import microseconds
from experiments.claims_cost import machine_of, processor_beside, times
from experiments.latency import disturbed
from experiments.pages import markdown
from experiments.records import Record
from experiments.settings import paper
from experiments.steps import IMPLEMENTATIONS
from experiments.tables import provenance

LABELS = {
    ("onlad", "cpu"): "ONLAD, compiled",
    ("onlad-numpy", "cpu"): "ONLAD, NumPy",
    ("fpelm-numpy", "cpu"): "FPELM-AE, NumPy",
    ("fpelm", "cpu"): "FPELM-AE-CPU",
    ("nn", "cpu"): "NN-AE-CPU",
    ("dnn", "cpu"): "DNN-AE-CPU",
    ("fpelm", "gpu"): "FPELM-AE-GPU",
    ("nn", "gpu"): "NN-AE-GPU",
    ("dnn", "gpu"): "DNN-AE-GPU",
}
OURS = ("onlad", "cpu")
CORES = {2: ":", 8: "-.", 16: "-"}  # lanes, and the kind of its line
COST_LABELS = {
    "onlad": "ONLAD",
    "fpelm": "FP-ELM as printed",
    "fpelm-vector": "FP-ELM, one vector solve (with the score)",
}


def _who(record: Record) -> tuple[str, str]:
    return record["implementation"], record["device"]


def _size(record: Record) -> tuple[int, int]:
    return record["n_features"], record["n_hidden"]


def panels(
    lines: dict[str, list[tuple[int, int, float]]], unit: str, styles: Sequence[str]
) -> plt.Figure:
    """Draw time over n, a panel for each N; a line is a list of (n, N, time).

    A style is the number of a colour, with "--" behind it for a broken line.
    """
    widths = sorted({N for points in lines.values() for _, N, _ in points})
    figure, axes = plt.subplots(
        1, len(widths), figsize=(10, 3.4), sharex=True, sharey=True, squeeze=False
    )
    for axis, width in zip(axes[0], widths, strict=True):
        for (label, points), style in zip(lines.items(), styles, strict=True):
            mine = [(n, t) for n, N, t in sorted(points) if width == N]
            xs, ys = zip(*mine, strict=True) if mine else ((), ())
            colour, kind = figures.COLOURS[int(style[0])], style[1:] or "-"
            axis.plot(xs, ys, kind, marker="o", ms=3, lw=1.2, color=colour, label=label)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(sorted({n for points in lines.values() for n, _, _ in points}))
        axis.get_xaxis().set_major_formatter(plt.FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_title(f"{width} hidden units", fontsize=9)
        axis.set_xlabel("features")
    axes[0][0].set_ylabel(unit)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return figure


def speedups(quantity: str) -> dict[tuple[str, str], float]:
    """Return how many times as long as the compiled detector each takes, mean over the sizes.

    Both are times of one machine.
    """
    found = {}
    for who in LABELS:
        other, ours = times(*who, quantity), times(*OURS, quantity, processor_beside(who[1]))
        if who != OURS and other:
            found[who] = fmean(other[size] / ours[size] for size in other)
    return found


def latency(folder: Path) -> str:
    text = [
        "## Latency",
        "One sample per call, from the call until the result is there; the median of many calls, in"
        " the quietest of several rounds. On the processor one thread. NN-AE, DNN-AE and FPELM-AE"
        " are compiled by JAX; training of the compiled detector includes its score. The core:"
        " simulated cycles, with those that load a sample, at the 100 MHz of the paper's board; no"
        " core of these sizes was routed for its chip. The processor's lines are of"
        f" {machine_of('cpu')}, the GPU's of {machine_of('gpu')}.",
    ]
    mine = [r for r in records.read("latency") if r["machine"] == machine_of("cpu")]
    if loud := [r for r in mine if disturbed(r)]:
        cells = ", ".join(
            f"{LABELS[_who(r)]} {r['quantity']} at {_size(r)}: {r['microseconds']:.0f} µs, 10 %"
            f" quantile {r['quantiles_10_90'][0]:.0f}"
            for r in loud
        )
        text.append(
            f"{len(loud)} of the processor's {len(mine)} medians stayed disturbed in all rounds,"
            f" so they are upper bounds, which favours what stands beside them: {cells}."
        )
    rows = {who: [LABELS[who], processor_beside(who[1])] for who in LABELS if who != OURS}
    for quantity in ("training", "prediction"):
        lines, styles = {}, []
        for who, label in LABELS.items():
            if found := times(*who, quantity):
                lines[label] = [(n, N, time) for (n, N), time in found.items()]
                colour = list(IMPLEMENTATIONS).index(who[0])
                styles.append(f"{colour}--" if who[1] == "gpu" else f"{colour}")
        step = {"training": "train", "prediction": "predict"}[quantity]
        for lanes, kind in CORES.items():
            core = [(n, N, time) for (n, N), time in microseconds(step, lanes).items()]
            if core:
                lines[f"Core, {lanes} lanes"] = core
                styles.append(f"6{kind}")
        figures.save(panels(lines, f"µs a {quantity} call", styles), f"latency-{quantity}", folder)
        text.append(f"![Time of {quantity}](evaluation/latency-{quantity}.svg)")
        printed, found = paper()["latency"][f"{quantity}_speedup"], speedups(quantity)
        for who, row in rows.items():
            number = printed.get("-".join(who))
            row += [f"{number:.2f}" if number else "", f"{found[who]:.1f}" if who in found else ""]
    text.append(
        "How many times faster than each: the paper's ONLAD Core on its FPGA, and here the compiled"
        " detector on a processor. Both times of a ratio are of one machine: beside a GPU, the"
        " detector ran on the processor of the GPU's machine. Means over the twelve sizes."
    )
    heads = ["over", "processor", "training: paper", "here", "prediction: paper", "here"]
    text += [markdown(heads, rows.values()), provenance(records.read("latency"))]
    return "\n\n".join(text)


def cost(folder: Path) -> str:
    stored = records.read("forgetting_cost")

    def of(part: str, name: str) -> list[Record]:
        return [r for r in stored if r["part"] == part and r["implementation"] == name]

    lines = {
        label: [(*_size(r), r["milliseconds"]) for r in of("paper", name)]
        for name, label in COST_LABELS.items()
    }
    figures.save(panels(lines, "ms a training step", "023"), "forgetting-cost", folder)
    ours = {_size(r): r["milliseconds"] for r in of("paper", "onlad")}
    rows = []
    for name, label in COST_LABELS.items():
        ratio = fmean(r["milliseconds"] / ours[_size(r)] for r in of("paper", name))
        by_n = [
            forgetting_cost.growth([r for r in of("paper", name) if r["n_features"] == n])
            for n in sorted({n for n, _ in ours})
        ]
        grown = forgetting_cost.growth(of("growth", name))
        rows.append([label, f"{ratio:.2f}", f"{grown:.2f}", f"{fmean(by_n):.2f}"])
    counted = fmean(operations.train_fpelm(*s) / operations.train_here(*s) for s in ours)
    wanted = paper()["forgetting_cost"]
    few = forgetting_cost.GROWTH_FEATURES
    return "\n\n".join(
        [
            "## What forgetting costs",
            "A training step of ONLAD and of FP-ELM, both in NumPy on one thread, at the paper's"
            f" sizes (eight times those above). The paper has {wanted['ratio']}x on average.",
            "![Time of a training step](evaluation/forgetting-cost.svg)",
            markdown(
                ["", "times ONLAD, mean", f"exponent of N, n = {few}", "exponent of N, these n"],
                rows,
            ),
            f"By the count of operations FP-ELM as printed takes {counted:.1f} times as many. The"
            f" paper's exponents are {wanted['growth_onlad']} and {wanted['growth_fpelm']}: they"
            f" show where features are few (n = {few}). At the paper's sizes n is far above N, and"
            " the terms with n, which are linear in N for ONLAD and quadratic for FP-ELM, decide.",
            provenance(stored),
        ]
    )


def power() -> str:
    stored = records.read("power")
    rows = []
    for r in stored:
        for name, watts in r["watts"].items():
            joules = r["joules_per_step"].get(name)
            rows.append(
                [
                    "at rest" if r["implementation"] == "idle" else LABELS[_who(r)],
                    name,
                    f"{watts:.1f}",
                    f"{1e3 * joules:.2f}" if joules is not None else "",
                    f"{1e6 * r['seconds'] / r['steps']:.1f}" if r["steps"] else "",
                ]
            )
    without = {f"{r['machine']}: {r['missing']}" for r in stored if r["missing"]}
    wanted = paper()["power"]
    low, high = wanted["others_times"]
    return "\n\n".join(
        [
            "## Power",
            f"Training without pause, n = {wanted['n_features']}, N = {wanted['n_hidden']}. The"
            f" paper has {wanted['core_watts']} W for its board and {low} to {high} times as much"
            " for the others. The core's power is not measured: there is no board."
            " `python -m experiments.power` reads the counters of the processor"
            " (RAPL) and of the GPU (NVML); a counter is for the whole device: compare with the row"
            " at rest.",
            markdown(["", "counter", "watts", "mJ per step", "µs per step"], rows),
            f"Not measured on a processor: {'; '.join(sorted(without))}." if without else "",
            provenance(stored),
        ]
    )


def counts() -> str:
    stored = records.read("operations")
    rows = []
    for r in stored:
        n, N = _size(r)
        parts = operations.space(n, N)
        rows.append(
            [
                f"{n}, {N}",
                f"{operations.train(n, N):,} / {r['train_as_printed']:,}",
                f"{operations.train_here(n, N):,} / {r['train_here']:,}",
                f"{operations.train_fpelm(n, N):,} / {r['train_fpelm']:,}",
                f"{operations.predict(n, N):,} / {r['predict']:,}",
                f"{parts['parameter'] + parts['train']:,} / "
                f"{r['space_parameter'] + r['space_train']:,}",
                f"{sum(parts.values()):,}",
                f"{operations.space_printed(n, N):,}",
            ]
        )
    ratio = median(r["train_here"] / r["train_as_printed"] for r in stored)
    heads = ["n, N", "I_train", "I_train here", "FP-ELM", "I_predict"]
    heads += ["S_parameter + S_train", "sum of the four S", "S_onlad as printed"]
    return "\n\n".join(
        [
            "## Operations",
            "Iterations of matrix products and inverses as the paper counts them: by formula / as"
            " counted on arrays that count what is done with them. Our step uses that P is"
            " symmetric and that the new P h is already known: 2N² iterations fewer, a median of"
            f" {100 * (1 - ratio):.0f} % at these sizes. The paper's S_onlad is larger than the"
            " sum of the four parts that it gives.",
            markdown(heads, rows),
        ]
    )


def sections(folder: Path = figures.FOLDER) -> list[str]:
    """Return a section for each kind of record there is."""
    makers: dict[str, Callable[[], str]] = {
        "latency": lambda: latency(folder),
        "forgetting_cost": lambda: cost(folder),
        "power": power,
        "operations": counts,
    }
    return [make() for name, make in makers.items() if records.read(name)]
