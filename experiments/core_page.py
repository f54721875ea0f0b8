"""Put the tables of docs/hardware.md in their places, from the stored records.

python -m experiments.core_page
"""

from __future__ import annotations

import re
from pathlib import Path

from experiments import core_accuracy, core_area, core_detection, core_latency

PAGE = Path(__file__).parent.parent / "docs" / "hardware.md"


def tables() -> dict[str, str]:
    markdown = core_area.markdown
    return {
        "latency": markdown(core_latency.HEAD, core_latency.rows()),
        "sizes": markdown(core_area.HEADS["sizes"], core_area.sizes()),
        "variants": markdown(core_area.HEADS["variants"], core_area.variants()),
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
