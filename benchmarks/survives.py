"""The numbers on the page of what the service survives: `python -m benchmarks.survives`.

It renews the spans of docs/explanation/survives.md, from the record of the soak and from the
settings that the test of the unit tries.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/explanation/survives.md"
RECORD = ROOT / "benchmarks/results/soak.json"
BOOTED = ROOT / "tests/serve/booted.py"


def filled(page: str) -> str:
    """Return the page with its spans filled in."""
    spans = {"soak": soak(json.loads(RECORD.read_text())), "unit": unit(BOOTED.read_text())}
    for name, text in spans.items():
        start = f"<!-- {name}: python -m benchmarks.survives -->"
        before, rest = page.split(start)
        after = rest.split("<!-- end -->", 1)[1]
        page = f"{before}{start}\n{text}\n<!-- end -->{after}"
    return page


def soak(record: dict[str, Any]) -> str:
    """Return what a record says."""
    kills, written = record["kills"], record["written_mb_per_minute"]
    worst = {name: max(k[name] for k in kills) for name in ("healthz", "readyz", "replayed")}
    devices, right = record["devices"], record["devices_with_the_right_count"]
    equal, compared = record["models_equal_to_the_bit"], record["models_compared"]
    rows = {
        "devices": f"{devices:,}",
        "features of a sample": record["features"],
        "samples per second of each device": f"{record['rate']:g}",
        "samples sent": f"{record['sent']:,}",
        "samples learned": f"{record['learned']:,}",
        "devices that learned exactly what they sent": f"{right:,}",
        "models that are equal to the bit to one that saw all at once": f"{equal} of {compared}",
        "`kill -9`": len(kills),
        "from a kill until `/healthz` answered, at most": f"{worst['healthz']:.1f} s",
        "from a kill until it was ready, at most": f"{worst['readyz']:.1f} s",
        "rows replayed for that, at most": f"{worst['replayed']:,}",
        "written to the disk per minute, mean": f"{written['mean']:.1f} MB",
        "written to the disk per minute, most": f"{written['most']:.1f} MB",
        "processor time per minute, mean": f"{record['cpu_s_per_minute']['mean']:.1f} s",
        "memory, at most": f"{record['peak_mb']} MB",
        "from SIGTERM to the end": f"{record['stop_s']:.1f} s",
    }
    where = f"{record['cores']} cores that others shared, with a load of {record['load']:g}"
    return "\n".join(
        [
            f"It ran for {record['minutes']} minutes: `{record['command']}`,",
            f"commit {record['commit']}, on {where}.",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in rows.items()),
        ]
    )


def unit(text: str) -> str:
    """Return which settings of the unit its test tries, and which it does not."""
    lines = []
    for name, what in (("TRIED", "Tried"), ("NOT_TRIED", "Not tried")):
        found = re.findall(r'"(\w+)"', text.split(f"\n{name} = {{")[1].split("}", 1)[0])
        lines.append(f"{what}: {', '.join(f'`{each}`' for each in sorted(found))}.")
    return "\n\n".join(lines)


def main() -> None:
    PAGE.write_text(filled(PAGE.read_text()))


if __name__ == "__main__":
    main()
