"""What the core costs: the paper's twelve sizes on its chip, then other lanes, words and alphas.

    python -m experiments.core_area run       # resumable: skips what is stored for this gateware
    python -m experiments.core_area far LOG   # how far nextpnr came with (512, 64), if stopped
    python -m experiments.core_area table     # from the records alone

yosys maps to xc7z020 and counts; its timing analysis gives the longest path through the logic,
without wires. nextpnr places and routes for an ECP5-85F of the slowest grade.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from experiments import core_source
from experiments.pages import markdown
from experiments.records import Record, append, latest, origin
from onlad.hardware import Config, OnladCore
from onlad.hardware.paper import AREA, SIZES

ECP5 = "lfe5u-85f"
# Per cent of an xc7z020 at (512, 64) after synthesis: tb:resource_onboard.
POST_SYNTHESIS = {"BRAM": 55.4, "DSP": 32.7, "FF": 11.6, "LUT": 25.8}
VARIANTS = (  # of the paper's largest sizes, one thing changed at a time
    {"lanes": 16}, {"lanes": 16, "width": 25}, {"width": 25}, {"width": 18},
    {"alpha": "narrow"}, {"alpha": "seeded"}, {"activation": "sigmoid"},
)  # fmt: skip
LARGE = ({"alpha": "narrow"}, {"alpha": "seeded"}, {"width": 25}, {"width": 18})


def _configs() -> Iterator[tuple[str, Config, int]]:
    """Yield part, core and seeds, the most telling first."""
    by_cost = sorted(SIZES, key=lambda size: size[0] * size[1])
    yield "xc7z020", Config(512, 64), 0
    yield "xc7z020", Config(512, 64, lanes=2), 0
    for n, N in (size for size in by_cost if size != (512, 64)):
        yield "xc7z020", Config(n, N), 0
    for change in VARIANTS:
        yield "xc7z020", Config(512, 64, **change), 0  # type: ignore[arg-type]
    for change in LARGE:
        yield "xc7z020", Config(1024, 64, **change), 0  # type: ignore[arg-type]
    yield ECP5, Config(512, 64), 1
    yield ECP5, Config(128, 16, lanes=4), 3


def records() -> list[Record]:
    """Return the last record of each core on each part."""
    return latest("core_area", "part", "config")


def run() -> None:
    """Synthesise what is not stored yet for the gateware as it is, and store each at once."""
    digest = core_source.gateware()
    stored = [r for r in records() if r["gateware"] == digest]
    routed = {(r["part"], Config(**r["config"])): len(r["mhz"]) for r in stored}
    for part, config, seeds in _configs():
        if routed.get((part, config), -1) >= seeds:
            continue
        measure(part, config, seeds)


def measure(part: str, config: Config, seeds: int) -> None:
    """Synthesise a core, route it with as many seeds, and store what it costs."""
    origin("make core-area", "experiments/core_area.py")  # as it was when this began
    print(time.strftime("%H:%M:%S"), part, config, flush=True)
    core = OnladCore(**asdict(config))
    report = core.synth(part, seeds=seeds, say=lambda text: print("   ", text, flush=True))
    record = {
        "part": part, "config": asdict(config), "used": report.used,
        "percent": {k: round(v, 1) for k, v in report.percent.items()},
        "logic_ns": report.logic_ns, "mhz": [round(f, 1) for f in report.mhz],
        "seconds": round(report.seconds), "tools": report.tools,
        "gateware": core_source.gateware(),
    }  # fmt: skip
    append("core_area", [record | origin("make core-area", "experiments/core_area.py")])


def progress(log: str) -> Record:
    """Return how far nextpnr came: what it printed, one line after the other."""
    arcs = re.search(r"Routing (\d+) arcs", log)
    placed = re.search(r"Max frequency for clock .*: ([\d.]+) MHz", log)
    rows = re.findall(r"\|\s*(\d+)\|\s*[\d.]+\s+([\d.]+)\|", log)  # arcs left, and seconds so far
    if not (arcs and placed and rows):
        raise SystemExit("nextpnr has not begun to route")
    left, seconds = rows[-1]
    return {
        "arcs": int(arcs[1]), "left": int(left), "seconds": round(float(seconds)),
        "placed_mhz": float(placed[1]),
    }  # fmt: skip


def far(path: str) -> None:
    """Store how far a run with the paper's size came that was stopped."""
    core = asdict(Config(512, 64))
    known = next(r for r in records() if (r["part"], r["config"]) == (ECP5, core))
    route = progress(Path(path).read_text(encoding="utf-8"))
    what = origin("python -m experiments.core_area far LOG", "experiments/core_area.py")
    append("core_area", [known | {"route": route, "gateware": core_source.gateware()} | what])


def _mhz(record: Record) -> str:
    """Return the frequencies by seed, or how far the routing came."""
    if record["mhz"]:
        return ", ".join(f"{f:.1f}" for f in record["mhz"])
    if "route" not in record:
        return "not routed"
    r = record["route"]
    return (
        f"not routed: {r['left']:,} of {r['arcs']:,} arcs left after {r['seconds'] / 60:.0f} "
        f"minutes; {r['placed_mhz']:.1f} MHz by its placement"
    )


def sizes() -> list[tuple[str, ...]]:
    """Return the paper's table with ours beside it."""
    found = []
    for n, N in SIZES:
        for r in records():
            if r["part"] == "xc7z020" and r["config"] == asdict(Config(n, N)):
                paper = AREA[n, N]
                cells = (f"{r['percent'][k]:.1f} ({paper[k]:.1f})" for k in paper)
                found.append((f"{n:,}", str(N), *cells, f"{r['logic_ns']:.2f}"))
    return found


def synthesised() -> list[tuple[str, ...]]:
    """Return the paper's row after synthesis at (512, 64), with ours at 2 and 8 lanes."""
    kinds = tuple(POST_SYNTHESIS)
    rows = [("the paper, Vivado, 2 arithmetic units", *(f"{POST_SYNTHESIS[k]:.1f}" for k in kinds))]
    for lanes in (2, 8):
        for r in records():
            if r["part"] == "xc7z020" and r["config"] == asdict(Config(512, 64, lanes)):
                rows.append((f"here, yosys, {lanes} lanes", *(f"{r['percent'][k]}" for k in kinds)))
    return rows


def variants() -> list[tuple[str, ...]]:
    """Return what other lanes, words and alphas cost."""
    found = []
    standard = asdict(Config(512, 64))
    for r in records():
        c = r["config"]
        if r["part"] == "xc7z020" and c["hidden"] == 64 and c["n"] >= 512:
            changed = [f"{k} {v}" for k, v in c.items() if k != "n" and v != standard[k]]
            counts = (f"{r['used'][k]:,} ({r['percent'][k]:.1f})" for k in r["used"])
            name = ", ".join(changed) or "standard"
            found.append((f"{c['n']:,}", name, *counts, f"{r['logic_ns']:.2f}"))
    return sorted(found, key=lambda row: (int(row[0].replace(",", "")), row[1] != "standard"))


def routed() -> list[tuple[str, ...]]:
    """Return the frequencies after place and route."""
    return [
        (
            f"{r['config']['n']}, {r['config']['hidden']}, {r['config']['lanes']}",
            _mhz(r),
            *(f"{r['used'][k]:,}" for k in r["used"]),
        )
        for r in records()
        if r["part"] == ECP5
    ]


HEADS = {
    "sizes": ("n", "N", "BRAM %", "DSP %", "FF %", "LUT %", "logic, ns"),
    "synthesised": ("", "BRAM %", "DSP %", "FF %", "LUT %"),
    "variants": ("n", "changed", "BRAM (%)", "DSP (%)", "FF (%)", "LUT (%)", "logic, ns"),
    "routed": ("n, N, lanes", "MHz by seed", "BRAM", "DSP", "FF", "LUT"),
}


def table() -> None:
    for name, make in (("sizes", sizes), ("variants", variants), ("routed", routed)):
        print(f"\n{markdown(HEADS[name], make())}")


if __name__ == "__main__":
    {"run": run, "far": far, "table": table}[sys.argv[1]](*sys.argv[2:])
