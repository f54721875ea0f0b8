"""Numbers and tables in the text of the pages: each from the code or from a record.

    python -m experiments.numbers             # writes them
    python -m experiments.numbers --check     # fails where one is stale

A number stands between ``<!--= NAME -->`` and ``<!--/-->``, a table between
``<!-- table: NAME -->`` and ``<!-- end -->``. `experiments.core_page` has those of
docs/howto/hardware.md.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments import ablation, adapter_defaults, bands, mcu, precision, score_choice, wind_up
from experiments.benchmark import normals
from experiments.pages import markdown, renewed
from onlad import (
    Detector,
    Monitor,
    burnin,
    counter,
    forgetting,
    incident,
    instance,
    limit,
    mode,
    monitor,
    persist,
    recurring,
    reference,
    rhythm,
    rows,
    split,
    watching,
)
from onlad.adapters import sklearn
from onlad.cli import session
from onlad.fleet import together
from onlad.fleet.exchange import sums
from onlad.fleet.spark import herd
from onlad.mcu import definition
from onlad.mcu.layout import Sizes
from onlad.serve import alarm, checkpoint, connection, disk, marks, service
from onlad.streams import block, lines

ROOT = Path(__file__).parent.parent
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def default(name: str) -> Any:
    """Return the default of an argument of `Monitor`."""
    return inspect.signature(Monitor).parameters[name].default


def results(name: str) -> list[dict[str, Any]]:
    """Return the records of a benchmark."""
    lines = (ROOT / "benchmarks" / "results" / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def span(name: str, digits: int = 0, benchmark: str = "serve") -> str:
    """Return the least and the most of a number of the service's records."""
    found = sorted(record[name] for record in results(benchmark))
    return f"{found[0]:.{digits}f} to {found[-1]:.{digits}f}"


def exactness(dtype: str, part: str) -> str:
    """Return how far the GPU was from a float64 loop at most, as a power of ten."""
    found = [
        off
        for r in results("bank-h200")
        if (r["device"], r["n"], r["N"], r["dtype"]) == ("cuda", 512, 64, dtype)
        for name, off in r["off the float64 loop"].items()
        if (part == "loss") == ("loss" in name)
    ]
    head, exponent = f"{max(found):.0e}".split("e")
    return rf"${head} \cdot 10^{{{int(exponent)}}}$"


def power(number: float) -> str:
    """Return a power of ten as the mathematics has it."""
    return f"$10^{{{round(np.log10(number))}}}$"


def sums_of(n: int) -> str:
    """Return the size of what a monitor of `n` features with one mode sends to others."""
    X = np.random.default_rng(0).normal(size=(1000, n)) + np.sin(np.arange(1000) / 20)[:, None]
    monitor = Monitor().fit(X, scale=together.agreed([together.measure(X)]))
    return f"{len(together.sums(monitor).to_bytes()) / 1000:.0f} kB"


def model_of(n: int) -> str:
    """Return the size of a saved monitor that has learned `n` features."""
    noise = np.random.default_rng(0).normal(size=(1000, n))
    monitor = Monitor().fit(np.sin(np.arange(1000) / 20)[:, None] + 0.1 * noise)
    return f"{len(persist.to_bytes(monitor)) / 1000:.0f} kB"


def messages() -> str:
    """Return a table of what a device sends to others."""
    lines = ["| features | hidden units | bytes |", "|---|---|---|"]
    for n, N in ((3, 8), (8, 16), (32, 64), (256, 64)):
        detector = Detector(n_hidden=N, forgetting=1.0)
        detector.learn_one(np.zeros(n))
        lines.append(f"| {n} | {N} | {len(sums(detector).to_bytes()):,} |")
    return "\n".join(lines)


def kilobytes(count: int) -> str:
    """Return a number of bytes in kB."""
    return f"{count / 1000:.0f} kB"


NUMBERS: dict[str, Callable[[], str]] = {
    "warmup": lambda: str(default("warmup")),
    "burn-in": lambda: f"{burnin.BURN_IN:,}",
    "budget": lambda: f"1 in {1 / default('false_alarms'):,.0f}",
    "budget per day": lambda: WORDS[round(86400 * default("false_alarms"))],
    "modes": lambda: WORDS[watching.MODES],
    "recurring": lambda: WORDS[recurring.TIMES],
    "window": lambda: WORDS[watching.LONGEST_WINDOW],
    "tick": lambda: str(watching.TICK),
    "two ticks": lambda: str(2 * watching.TICK),
    "shelved after": lambda: str(limit.LASTING),
    "shortest": lambda: f"{watching.SHORTEST:,}",
    "longest": lambda: f"{watching.LONGEST:,}",
    "p-value": lambda: f"1 in {limit.RECENT + 1:,}",
    "late": lambda: WORDS[monitor.MOST_LATE],
    "quiet": lambda: str(incident.QUIET),
    "gap": lambda: WORDS[round(rhythm.GAP)],
    "renewed": lambda: f"{rhythm.RENEWED} days",
    "block maxima": lambda: str(definition.BLOCK),
    "octave": lambda: str(definition.OCTAVE),
    "widest": lambda: str(instance.WIDEST),
    "tanh sums": lambda: kilobytes(
        8 * instance.GROUPS * instance.HIDDEN * (instance.HIDDEN + 1) // 2
    ),
    "two ticks of eight": lambda: kilobytes(
        (watching.default_window(8) - 1 + 2 * watching.TICK) * 64
    ),
    "recent scores": lambda: kilobytes(limit.RECENT * 4),
    "bins": lambda: str(rhythm.BINS),
    "hours of a week": lambda: str(rhythm.WEEKDAYS * rhythm.HOURS),
    "trust": lambda: str(rhythm.TRUST),
    "least share": lambda: str(rhythm.LEAST),
    "most share": lambda: str(rhythm.MOST),
    "young": lambda: str(watching.YOUNG),
    "candidate": lambda: str(watching.CANDIDATE),
    "held": lambda: WORDS[round(watching.HELD)],
    "trace interval": lambda: str(reference.TRACE_INTERVAL),
    "least d": lambda: power(reference.EPSILON),
    "largest leverage": lambda: power(reference.LARGEST_LEVERAGE),
    "least leverage": lambda: power(reference.LEAST_LEVERAGE),
    "wound up": lambda: power(reference.WOUND_UP),
    "wound up at most": lambda: power(reference.WOUND_UP / reference.LEAST_GROWTH),
    "ridge": lambda: power(Detector().ridge),
    "adapter scores": lambda: f"{sklearn.WINDOW:,}",
    "adapter outliers": lambda: f"{100 * adapter_defaults.OUTLIERS:.0f} %",
    "stuck": lambda: f"{score_choice.STUCK:,}",
    "ablation units": lambda: str(ablation.N),
    "band step": lambda: f"{mode.COVERED / (1 - mode.COVERED):.0f}",
    "full burn-in": lambda: str(burnin.MOST_KEPT // burnin.BURN_IN),
    "projected": lambda: str(instance.PROJECTED),
    "level quantile": lambda: str(mode.QUANTILE),
    "winsor": lambda: WORDS[round(mode.WINSOR)],
    "covered": lambda: str(mode.COVERED),
    "covered percent": lambda: f"{100 * mode.COVERED:.0f} %",
    "level share": lambda: f"{1000 * mode.QUANTILE:.0f} of 1,000",
    "widening": lambda: str(mode.WIDENING),
    "clip": lambda: f"{mode.CLIP:,.0f}",
    "often": lambda: f"{mode.OFTEN:.0f}",
    "groups": lambda: WORDS[instance.GROUPS],
    "stay": lambda: str(split.STAY),
    "rises": lambda: str(counter.RISES),
    "rises per fall": lambda: f"{1 / counter.FALLS:.0f}",
    "on drift": lambda: str(forgetting.OnDrift().duration),
    "adaptive recent": lambda: str(forgetting.Adaptive().recent),
    "adaptive long": lambda: str(forgetting.Adaptive().long),
    "running mean": lambda: f"{1 / mode.SMOOTHING:.0f}",
    "shown": lambda: str(session.SHOWN),
    "longest line": lambda: f"{lines.LONGEST >> 20} MiB",
    "series": lambda: f"{block.MOST:,}",
    "largest": lambda: f"{rows.LARGEST:.0e}".replace("e+", "e"),
    "same mode": lambda: WORDS[round(together.SAME)],
    "marks": lambda: f"{marks.MOST:,}",
    "timed marks": lambda: f"{marks.WINDOW:,}",
    "gather": lambda: f"{1000 * service.GATHER:g} ms",
    "models written": lambda: f"{60 * disk.RATE / 1e6:.0f} MB",
    "headers": lambda: f"{connection.HEADERS:g} to {2 * connection.HEADERS:g}",
    "model of eight": lambda: model_of(8),
    "memory of eight": lambda: f"{results('monitors')[1]['kB_in_memory']:.0f} kB",
    "folded": lambda: str(herd.FOLDED),
    "remembered": lambda: f"{herd.REMEMBERED // 2**20} MiB",
    "monitor sums": lambda: sums_of(8),
    "float32 run": lambda: precision.largest(2),
    "float32 mean": lambda: precision.largest(2, mean=True),
    "float32 wide": lambda: precision.largest(16),
    "float32 seeds": lambda: str(precision.SEEDS),
    "soft float": mcu.soft_float,
    "seeded layer": mcu.seeded,
    "fixed parts": mcu.profiled,
    "fixed fast": mcu.fast,
    "steep": lambda: f"{definition.STEEP:.0f}",
    "wider": lambda: f"{definition.WIDER:.0f}",
    "smd layers": lambda: mcu.spread("smd"),
    "gecco layers": lambda: mcu.spread("gecco"),
    "float64 from the same state": lambda: mcu.rounded("same"),
    "float64 differs": lambda: mcu.rounded("float64"),
    "exported at each tick": mcu.judged_alike,
    "float64 parts": lambda: mcu.parted("gecco"),
    "stretch": lambda: f"{mcu.STRETCH:,}",
    "rounding": lambda: f"{100 * (mcu.rounding(Sizes(watching.WIDEST, 1, 4, 8, 3)) - 1):.1f} %",
    "near factor": lambda: str(mcu.NEAR),
    "serve median": lambda: span("p50_ms", 1),
    "serve 99": lambda: span("p99_ms"),
    "serve cpu": lambda: span("cpu_us"),
    "serve runs": lambda: WORDS[len(results("serve"))],
    "blocks 99": lambda: span("p99_ms", benchmark="serve-blocks"),
    "blocks cpu": lambda: span("cpu_us", benchmark="serve-blocks"),
    "snapshots": lambda: str(checkpoint.SNAPSHOTS),
    "alarms kept": lambda: str(alarm.KEPT),
    "band rows": lambda: f"{normals.ROWS:,}",
    "band seeds": lambda: WORDS[normals.SEEDS],
    "severity 10 off": lambda: f"{bands.points_off(10):.1f}",
    "severity 20 off": lambda: f"{bands.points_off(20):.1f}",
    "incidents of 50": lambda: f"{1e4 * bands.mean_share(50):.2f}",
    "without rarely on": lambda: f"{1e4 * bands.mean_share(50, without='rarely on'):.2f}",
    "rarely 40": lambda: f"{1e4 * bands.share('rarely on', 'incidents', 40):.1f}",
    "rarely 50": lambda: f"{1e4 * bands.share('rarely on', 'incidents', 50):.1f}",
    "rarely 60": lambda: f"{1e4 * bands.share('rarely on', 'incidents', 60):.1f}",
    "rarely severe": lambda: f"{bands.share('rarely on', 'severe', 20):.1%}",
    "rarely highest": lambda: f"{-10 * np.log10(bands.share('rarely on', 'severe', 20)):.0f}",
    "root share": lambda: f"{100 * 64**2 / (3 * 512 * 64 + 3 * 64**2):.0f} %",
    "gpu loss": lambda: exactness("float32", "loss"),
    "gpu model": lambda: exactness("float32", "model"),
    "gpu double": lambda: exactness("float64", "model"),
    "farthest": lambda: str(limit.FARTHEST),
    "gpu memory of eight": lambda: (
        f"{result('monitors-kept')['GPU']['bytes per device']['8'] / 1e3:.1f} kB"
    ),
    "compact memory of eight": lambda: (
        f"{result('monitors-kept')['compact']['bytes per device']['8'] / 1e3:.1f} kB"
    ),
}


def monitors_on_gpu() -> str:
    """Return the speed of monitors on a GPU, in million rows per second, beside detectors."""
    rows = []
    for record in results("monitors-h200"):
        speed = record["million_rows_per_second"]
        rows.append(
            [
                str(record["features"]),
                f"{record['devices']:,}",
                f"{record['bytes_per_device'] / 1e3:.0f} kB",
                f"{speed['in blocks']:.1f}",
                f"{speed['one row per call']:.1f}",
                f"{record['blocks_ratio_to_detectors']:.2f}",
                f"{record['blocks_ratio_to_memory']:.1%}",
            ]
        )
    heads = "features|devices|memory|in blocks|one row per call|of detectors|of memory"
    return markdown(heads.split("|"), rows)


def result(name: str) -> dict[str, Any]:
    """Return the one record of a benchmark."""
    found: dict[str, Any] = json.loads((ROOT / f"benchmarks/results/{name}.json").read_text())
    return found


def monitors_kept() -> str:
    """Return what differs between a bank that keeps less and monitors in float64."""
    names = "streams|rows|rows in alarm|rows with another alarm|episodes|episodes of one alone"
    rows = []
    for kind in ("GPU", "compact"):
        for title, found in result("monitors-kept")[kind].items():
            if "rows" in found:
                alone = sum(found[f"episodes of the {one} alone"] for one in ("bank", "monitor"))
                shown = found | {"episodes of one alone": alone}
                rows.append([kind, title, *(f"{shown[name]:,}" for name in names.split("|"))])
    return markdown(["bank", "streams of", *names.split("|")], rows)


def on_paper() -> str:
    """Return what a hundred million devices on GPUs would take, from the record of a million."""
    found, devices, memory = result("million-h200"), 100_000_000, 141e9
    size, speed = found["bytes per pump"], found["million rows per second"] * 1e6
    return (
        f"On paper, a hundred million such devices take {devices * size / 1e12:.1f} TB, the memory "
        f"of {-(-devices * size // memory):.0f} such GPUs with 141 GB each, and at a row per "
        f"second the time of {-(-devices // speed):.0f}. Rows then come at "
        f"{devices * 8 * 8 / 1e9:.1f} GB/s. This assumes calls with a block of 64 rows, that is "
        "one per minute, rows as float64 that are on the GPU, and that all devices have started."
    )


def million() -> str:
    """Return what became of a million simulated pumps, in one sentence."""
    found = result("million-h200")
    return (
        f"{found['rows'] / 1e9:.2f} billion rows of {found['pumps']:,} pumps took "
        f"{found['seconds']['monitors']:.0f} seconds, {found['million rows per second']:.0f} "
        f"million rows per second. {found['found']:,} of {found['faults']:,} faults were found, "
        f"half of them within {found['median delay, rows']:.0f} rows. "
        f"{found['pumps with a false alarm']:,} healthy pumps had a false alarm: "
        f"{found['false episodes per million rows']:.1f} in a million rows, where the budget was "
        f"{found['budget per million rows']:.0f}."
    )


def tables() -> dict[str, str]:
    return {
        "monitors_gpu": monitors_on_gpu(),
        "million": million(),
        "monitors_kept": monitors_kept(),
        "on_paper": on_paper(),
        "limits": wind_up.table(),
        "ablation": ablation.table(),
        "bands": bands.table(),
        "severities": bands.fault_table(),
        "search": adapter_defaults.search(),
        "judged": adapter_defaults.judged(),
        "sums": messages(),
        **score_choice.tables(),
        **mcu.tables(),
    }


def pages() -> list[Path]:
    """Return the pages with generated places."""
    docs = (path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)
    return [ROOT / "README.md", *sorted(path for path in docs if path.name != "hardware.md")]


def page(text: str) -> str:
    """Return the text with its numbers and tables as they should be."""
    if "<!-- table: " in text:
        text = renewed(text, tables())
    place = re.compile(r"(<!--= ([^>]+?) -->).*?(<!--/-->)", re.DOTALL)
    return place.sub(lambda m: f"{m[1]}{NUMBERS[m[2]]()}{m[3]}", text)


def main(check: bool) -> None:
    for path in pages():
        text = path.read_text(encoding="utf-8")
        new = page(text)
        if check and new != text:
            name = path.relative_to(ROOT)
            raise SystemExit(f"{name} has stale numbers: run python -m experiments.numbers")
        if new != text:
            path.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main("--check" in sys.argv[1:])
