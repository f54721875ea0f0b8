"""Put the tables of docs/hardware.md in their places, from the stored records.

python -m experiments.core_page
"""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

from experiments import core_accuracy, core_area, core_detection, core_latency
from onlad.hardware import Config

PAGE = Path(__file__).parent.parent / "docs" / "hardware.md"


CUTS = ("word", "alpha", "BRAM % (512, 64)", "BRAM % (1,024, 64)", "DSP", "score: median error",
        "AUC: farthest")  # fmt: skip


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
            for r in core_detection.records()
            if (r["width"], r["alpha"]) == (width, alpha)
        )
        dsp = str(area[512]["used"]["DSP"]) if 512 in area else "-"
        found.append((str(width), alpha, *bram, dsp, f"{error:.0e}", f"{auc:.4f}"))
    return found


def tables() -> dict[str, str]:
    markdown = core_area.markdown
    return {
        "latency": markdown(core_latency.HEAD, core_latency.rows()),
        "sizes": markdown(core_area.HEADS["sizes"], core_area.sizes()),
        "variants": markdown(core_area.HEADS["variants"], core_area.variants()),
        "cuts": markdown(CUTS, cuts()),
        "routed": markdown(core_area.HEADS["routed"], core_area.routed()),
        "accuracy": markdown(core_accuracy.HEAD, core_accuracy.rows()),
        "detection": markdown(core_detection.HEAD, core_detection.rows()),
    }


def page() -> str:
    """Return the page with its tables as the records have them."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables().items():
        place = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text, found = place.subn(lambda m, t=table: f"{m[1]}\n{t}\n\n{m[2]}", text)
        assert found == 1, name
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
