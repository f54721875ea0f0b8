"""Put the tables of docs/howto/hardware.md in their places, from the stored records.

python -m experiments.core_page
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from experiments import core_accuracy, core_area, core_detection, core_latency, core_source, records
from experiments.pages import markdown, renewed
from onlad.hardware import Config
from onlad.hardware.paper import SIZES

PAGE = Path(__file__).parent.parent / "docs" / "howto" / "hardware.md"


CUTS = ("word", "alpha", "BRAM % (512, 64)", "BRAM % (1,024, 64)", "DSP", "score: median error",
        "AUC: farthest")  # fmt: skip


SOURCES = ("records", "stored", "of the source as it is", "digests of their source",
           "digest of the source now")  # fmt: skip


def cuts() -> list[tuple[str, ...]]:
    """Return what narrower words and other alphas save, and what they cost in accuracy."""
    found = []
    for width, alpha in ((32, "stored"), (25, "stored"), (18, "stored"), (32, "narrow"),
                         (32, "seeded")):  # fmt: skip
        area = {
            r["config"]["n"]: r
            for r in core_area.records()
            if r["part"] == "xc7z020"
            and r["config"] == asdict(Config(r["config"]["n"], 64, width=width, alpha=alpha))
        }
        bram = (f"{area[n]['percent']['BRAM']}" if n in area else "-" for n in (512, 1024))
        error = max(
            r.score_median
            for r in core_accuracy.records()
            if (r.case["n"], r.case["width"], r.case["alpha"]) == (64, width, alpha)
        )
        auc = max(
            abs(r["auc"] - r["auc_float64"])
            for r in records.read("core_detection")
            if (r["width"], r["alpha"]) == (width, alpha)
        )
        dsp = str(area[512]["used"]["DSP"]) if 512 in area else "-"
        found.append((str(width), alpha, *bram, dsp, f"{error:.0e}", f"{auc:.4f}"))
    return found


# tb:nnhw: what the paper says of each; the last column is ours.
OTHERS = (
    ("", "Akin et al.", "Wess et al.", "Moss et al.", "Alrawashdeh et al.", "the paper's core"),
    ("approach", "supervised", "supervised", "semi-supervised", "supervised", "semi-supervised"),
    ("model", "BP-NN", "BP-NN", "BP-NN", "DBN", "OS-ELM"),
    ("layers", "3", "3", "5", "4", "3"),
    ("weights", "12", "about 84", "1,280", "", "131,072"),
    ("platform", "Cyclone III", "Zedboard", "USRP X310", "ZC706", "PYNQ-Z1"),
    ("tools", "Quartus II, VHDL", "Vivado HLS", "Vivado HLS", "Vivado, Verilog", "Vivado HLS"),
    ("trains", "no", "no", "no", "yes", "yes"),
    ("clock", "50 MHz", "", "200 MHz", "", "100 MHz"),
    ("prediction", "about 2 ms", "about 100 cycles", "105 ns", "8 µs", "about 1 ms"),
    ("training", "", "", "", "", "about 1 ms"),
    ("power", "", "", "", "", "3.1 W"),
    ("operations per joule", "", "", "", "37 Gops/W", ""),
)


def others() -> list[tuple[str, ...]]:
    """Return the paper's table of cores with ours at its largest size beside it."""
    n, N = SIZES[-1]
    steps = {
        r["config"]["lanes"]: r
        for r in core_latency.records()
        if (r["config"]["n"], r["config"]["hidden"]) == (n, N)
    }

    def time(step: str) -> str:
        shown = (f"{r[step]:,} cycles with {lanes} lanes" for lanes, r in sorted(steps.items()))
        return ", ".join(shown)

    mhz = "; ".join(
        f"{min(r['mhz']):.0f} to {max(r['mhz']):.0f} MHz routed on ECP5 at"
        f" ({r['config']['n']}, {r['config']['hidden']})"
        for r in core_area.records()
        if r["mhz"]
    )
    ours = {
        "approach": "semi-supervised",
        "model": "OS-ELM",
        "layers": "3",
        "weights": f"{2 * n * N:,}",
        "platform": "xc7z020 synthesised, none run",
        "tools": "Amaranth, yosys",
        "trains": "yes",
        "clock": mhz,
        "prediction": time("predict"),
        "training": time("train"),
        "power": "not measured",
        "operations per joule": "not measured",
    }
    return [(*row, ours[row[0]]) for row in OTHERS[1:]]


def sources() -> list[tuple[str, ...]]:
    """Return of which source the records are, and whether it is the source as it is now."""
    gateware, model = core_source.gateware(), core_source.model()
    kinds = {
        "latency": ([r["gateware"] for r in core_latency.records()], gateware),
        "area": ([r["gateware"] for r in core_area.records()], gateware),
        "detection": ([r["model"] for r in records.read("core_detection")], model),
        "accuracy": ([r.model for r in core_accuracy.records()], model),
    }
    return [
        (kind, str(len(found)), str(found.count(now)), ", ".join(sorted(set(found))), now)
        for kind, (found, now) in kinds.items()
    ]


def tables() -> dict[str, str]:
    return {
        "latency": markdown(core_latency.HEAD, core_latency.rows()),
        "sizes": markdown(core_area.HEADS["sizes"], core_area.sizes()),
        "synthesised": markdown(core_area.HEADS["synthesised"], core_area.synthesised()),
        "others": markdown((*OTHERS[0], "this core"), others()),
        "sources": markdown(SOURCES, sources()),
        "variants": markdown(core_area.HEADS["variants"], core_area.variants()),
        "cuts": markdown(CUTS, cuts()),
        "routed": markdown(core_area.HEADS["routed"], core_area.routed()),
        "accuracy": markdown(core_accuracy.HEAD, core_accuracy.rows()),
        "detection": markdown(core_detection.HEAD, core_detection.rows()),
    }


def page() -> str:
    """Return the page with its tables as the records have them."""
    return renewed(PAGE.read_text(encoding="utf-8"), tables())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
