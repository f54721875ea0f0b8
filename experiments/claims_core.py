"""The claims on the core, judged by simulated cycles, synthesis and power records."""

from __future__ import annotations

from collections.abc import Iterator
from math import log2
from statistics import fmean

import numpy as np

from experiments import core_area, core_latency, records
from experiments.claims import Claim, Finding, Word, word
from experiments.claims_cost import Size, times
from experiments.settings import paper
from onlad.hardware.paper import AREA, SIZES

CHIP = "xc7z020"


def microseconds(step: str, lanes: int = 8) -> dict[Size, float]:
    """Return the core's time of a step at 100 MHz by (n, N), loading of the sample included."""
    return {
        (c["n"], c["hidden"]): (r[step] + c["n"]) / r["megahertz"]
        for r in core_latency.records()
        if (c := r["config"])["lanes"] == lanes
        and c["activation"] == "identity"
        and (c["width"], c["alpha"]) == (32, "stored")
    }


def area(lanes: int = 8) -> dict[Size, dict[str, float]]:
    """Return per cent of the paper's chip by (n, N)."""
    return {
        (c["n"], c["hidden"]): r["percent"]
        for r in core_area.records()
        if r["part"] == CHIP
        and (c := r["config"])["lanes"] == lanes
        and (c["width"], c["alpha"], c["activation"]) == (32, "stored", "identity")
    }


def faster(quantity: str, rival: str) -> Finding:
    """Say holds if two lanes are as many times faster as in the paper; partly if faster at all.

    The paper's core has two arithmetic units. Eight lanes are what ours has by default.
    """
    step = "train" if quantity == "training" else "predict"
    name, device = rival.split("-")
    other = times(name, device, quantity)
    ratio, told = {}, []
    for lanes in (2, 8):
        core = microseconds(step, lanes)
        ratio[lanes] = fmean(other[size] / core[size] for size in core)
        wins = sum(other[size] > core[size] for size in core)
        told.append(f"{ratio[lanes]:.1f}x with {lanes} lanes, ahead at {wins} of {len(core)} sizes")
    wanted = paper()["latency"][f"{quantity}_speedup"][rival]
    found: Word = (
        "holds" if ratio[2] >= wanted else "partly" if max(ratio.values()) > 1 else "fails"
    )
    return Finding("; ".join(told), found, "core_latency, latency")


def only_frameworks_are_slow() -> Finding:
    """Say holds if the core is ahead of compiled software on a processor."""
    core, mine = microseconds("train"), times("onlad", "cpu", "training")
    ratio = fmean(core[size] / mine[size] for size in SIZES)
    good = sum(core[size] < mine[size] for size in SIZES)
    told = f"our kernel on a processor is {ratio:.1f} times as fast as the core with 8 lanes"
    return Finding(told, word(good, len(SIZES)), "core_latency, latency")


def below_a_millisecond(step: str) -> Finding:
    """Say holds if each of the sizes takes less than 1.1 ms ("about"), with 2 lanes and with 8."""
    told, good, of = [], 0, 0
    for lanes in (2, 8):
        found = microseconds(step, lanes)
        worst = max(found, key=lambda size: found[size])
        told.append(f"{found[worst]:,.0f} µs at {worst} with {lanes} lanes")
        good, of = good + sum(t < 1100 for t in found.values()), of + len(found)
    return Finding("; ".join(told), word(good, of), "core_latency")


def linear_in_hidden() -> Finding:
    """Say holds if doubling N takes 1.8 to 2.2 times as long where n is at least 8 N."""
    found = microseconds("train")
    exponents = {
        (n, N): log2(found[n, 2 * N] / found[n, N]) for n, N in SIZES if (n, 2 * N) in found
    }
    wide = [p for (n, N), p in exponents.items() if n >= 8 * 2 * N]
    good = sum(0.85 <= p <= 1.14 for p in wide)
    told = f"N^{min(exponents.values()):.2f} to N^{max(exponents.values()):.2f}"
    told += f"; where n >= 8N, N^{min(wide):.2f} to N^{max(wide):.2f}"
    return Finding(told, word(good, len(wide)), "core_latency")


def slower_with_features() -> Finding:
    """Say holds if the lead over NN-AE on a processor is smaller at 1,024 features than at 128."""
    found = microseconds("train")
    exponents = [log2(found[2 * n, N] / found[n, N]) for n, N in SIZES if (2 * n, N) in found]
    nn = times("nn", "cpu", "training")
    lead = {n: fmean(nn[n, N] / found[n, N] for N in (16, 32, 64)) for n in (128, 1024)}
    good = lead[1024] < lead[128]
    told = (
        f"n^{min(exponents):.2f} to n^{max(exponents):.2f}; lead over NN-AE-CPU"
        f" {lead[128]:.0f}x at n = 128, {lead[1024]:.1f}x at 1,024"
    )
    return Finding(told, "holds" if good else "fails", "core_latency, latency")


def _columns(kind: str) -> Iterator[tuple[Size, float, float]]:
    found = area()
    for size in SIZES:
        yield size, found[size][kind], AREA[size][kind]


def constant(kind: str) -> Finding:
    """Say holds if a resource varies over the sizes by no more points than the paper's.

    Partly if it varies by no more than a tenth of what is needed at most.
    """
    ours, theirs = ([row[i] for row in _columns(kind)] for i in (1, 2))
    spread, printed = (round(max(values) - min(values), 1) for values in (ours, theirs))
    found: Word = (
        "holds" if spread <= printed else "partly" if spread <= max(ours) / 10 else "fails"
    )
    told = f"{min(ours)} to {max(ours)} %, {spread} points where the paper's varies by {printed}"
    return Finding(told, found, "core_area")


def linear_blocks(by: str) -> Finding:
    """Say holds if BRAM is linear in n (or N) with a correlation above 0.99 in each row."""
    found = {size: ours for size, ours, _ in _columns("BRAM")}
    groups = sorted({size[by == "n"] for size in SIZES})
    seen = []
    for fixed in groups:
        row = sorted((size[by != "n"], v) for size, v in found.items() if size[by == "n"] == fixed)
        seen.append(float(np.corrcoef(np.array(row).T)[0, 1]))
    good = sum(r > 0.99 for r in seen)
    return Finding(
        f"correlation {min(seen):.3f} to {max(seen):.3f}", word(good, len(seen)), "core_area"
    )


def fits() -> Finding:
    """Say holds if each size but the largest is below 100 % of the chip."""
    found = area()
    worst = {size: max(found[size].values()) for size in SIZES}
    good = sum(worst[size] < 100 for size in SIZES if size != (1024, 64))
    told = f"{good} of {len(SIZES) - 1}; (1024, 64) has {worst[1024, 64]} %, the paper's 104.2 %"
    return Finding(told, word(good, len(SIZES) - 1), "core_area")


def smaller(kind: str) -> Finding:
    """Say holds if ours needs no more than the paper's core at each size."""
    rows = list(_columns(kind))
    good = sum(ours <= theirs for _, ours, theirs in rows)
    low, high = (f(ours for _, ours, _ in rows) for f in (min, max))
    told = f"{low} to {high} % with 8 lanes, no more at {good} of {len(rows)} sizes"
    return Finding(told, word(good, len(rows)), "core_area")


def synthesised() -> Finding:
    """Say holds if ours at (512, 64) needs no more than the paper's core after synthesis."""
    cells, good, of = [], 0, 0
    for lanes in (2, 8):
        found = area(lanes)[512, 64]
        for kind, theirs in core_area.POST_SYNTHESIS.items():
            good, of = good + (found[kind] <= theirs), of + 1
        shares = " / ".join(f"{found[k]}" for k in core_area.POST_SYNTHESIS)
        cells.append(f"{lanes} lanes: {shares}")
    return Finding("; ".join(cells) + " (yosys)", word(good, of), "core_area")


def clock() -> Finding:
    """Show another chip: no open tool routes the paper's."""
    told = [f"not routed for {CHIP}"]
    for r in core_area.records():
        c = r["config"]
        if r["mhz"]:
            clocks = f"{min(r['mhz'])} to {max(r['mhz'])} MHz"
        elif "route" in r:
            clocks = f"{r['route']['placed_mhz']:.1f} MHz as placed, routing not ended,"
        else:
            continue
        told.append(f"{r['part']} {clocks} at ({c['n']}, {c['hidden']}), {c['lanes']} lanes")
    return Finding("; ".join(told), "not measurable here", "core_area")


def weights() -> Finding:
    """Say holds if 2nN at the largest size is what the paper prints."""
    n, N = SIZES[-1]
    found = 2 * n * N
    return Finding(f"2nN = {found:,} at {SIZES[-1]}", "holds" if found == 131_072 else "fails", "")


def times_moss() -> Finding:
    """Say holds if the ratio of weights is about 100."""
    ratio = 2 * SIZES[-1][0] * SIZES[-1][1] / 1280
    return Finding(f"{ratio:.0f} times", "holds" if 90 <= ratio <= 110 else "fails", "")


def power() -> Finding:
    """Show what a GPU's counter gave, which is no ratio to a board: there is none here."""
    watts = [
        r["watts"]["NVML GPU 0"]
        for r in records.read("power")
        if r["device"] == "gpu" and r["watts"]
    ]
    told = f"no board; the counter of a GPU while training: {min(watts):.0f} to {max(watts):.0f} W"
    return Finding(told, "not measurable here", "power")


CLAIMS = [
    *(
        Claim(
            "6.2.1",
            f"the core {said} faster than {rival.upper()}",
            f"{ratio}x",
            lambda q=quantity, r=rival: faster(q, r),
        )
        for quantity, said in (("training", "trains"), ("prediction", "predicts"))
        for rival, ratio in paper()["latency"][f"{quantity}_speedup"].items()
    ),
    Claim(
        "6.2.1",
        "software is slow by its overheads, of which a core is free",
        "",
        only_frameworks_are_slow,
    ),
    Claim(
        "6.2.1",
        "the core trains in about a millisecond or less",
        "~1 ms",
        lambda: below_a_millisecond("train"),
    ),
    Claim(
        "6.2.1",
        "the core predicts in about a millisecond or less",
        "~1 ms",
        lambda: below_a_millisecond("predict"),
    ),
    Claim(
        "fig:train_latency_hv",
        "its training time is almost proportional to N",
        "",
        linear_in_hidden,
    ),
    Claim("6.2.1", "with many features it loses its lead", "", slower_with_features),
    Claim("tb:resource", "DSP use does not depend on the size", "40.0 %", lambda: constant("DSP")),
    Claim("tb:resource", "FF use hardly does", "15.9 to 16.1 %", lambda: constant("FF")),
    Claim("tb:resource", "LUT use hardly does", "29.9 to 30.1 %", lambda: constant("LUT")),
    Claim("6.3", "BRAM grows linearly with n", "", lambda: linear_blocks("n")),
    Claim("fig:area_hv", "BRAM is almost proportional to N", "", lambda: linear_blocks("N")),
    Claim("6.3", "all sizes but (1024, 64) fit the chip", "11 of 12", fits),
    Claim("tb:resource", "BRAM it needs", "10.0 to 104.2 %", lambda: smaller("BRAM")),
    Claim("tb:resource", "DSP it needs", "40.0 %", lambda: smaller("DSP")),
    Claim("tb:resource", "FF it needs", "15.9 to 16.1 %", lambda: smaller("FF")),
    Claim("tb:resource", "LUT it needs", "29.9 to 30.1 %", lambda: smaller("LUT")),
    Claim(
        "tb:resource_onboard",
        "BRAM / DSP / FF / LUT after synthesis at (512, 64)",
        "55.4 / 32.7 / 11.6 / 25.8 %",
        synthesised,
    ),
    Claim("4", "it runs at 100 MHz", "100 MHz", clock),
    Claim("tb:nnhw", "up to so many weights", "131,072", weights),
    Claim("tb:nnhw", "100 times the weights of Moss et al.", "100x", times_moss),
    Claim("6.4", "the board takes 3.1 W while training", "3.1 W", power),
    Claim("6.4", "and 5.0 to 25.4 times less than the others", "5.0 to 25.4x", power),
]
