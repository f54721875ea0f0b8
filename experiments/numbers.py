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

from experiments import ablation, adapter_defaults, plain_p, score_choice, wind_up
from experiments.pages import renewed
from onlad import Monitor, limit, watching
from onlad.serve import marks, service

ROOT = Path(__file__).parent.parent
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def default(name: str) -> Any:
    """Return the default of an argument of `Monitor`."""
    return inspect.signature(Monitor).parameters[name].default


def results(name: str) -> list[dict[str, Any]]:
    """Return the records of a benchmark."""
    lines = (ROOT / "benchmarks" / "results" / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def span(name: str, digits: int = 0) -> str:
    """Return the least and the most of a number of the service's records."""
    found = sorted(record[name] for record in results("serve"))
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


NUMBERS: dict[str, Callable[[], str]] = {
    "warmup": lambda: str(default("warmup")),
    "budget": lambda: f"1 in {1 / default('false_alarms'):,.0f}",
    "budget per day": lambda: WORDS[round(86400 * default("false_alarms"))],
    "modes": lambda: WORDS[watching.MODES],
    "window": lambda: WORDS[watching.LONGEST_WINDOW],
    "tick": lambda: str(watching.TICK),
    "two ticks": lambda: str(2 * watching.TICK),
    "shelved after": lambda: str(limit.LASTING),
    "p-value": lambda: f"1 in {limit.RECENT + 1:,}",
    "marks": lambda: f"{marks.MOST:,}",
    "timed marks": lambda: f"{marks.WINDOW:,}",
    "gather": lambda: f"{1000 * service.GATHER:g} ms",
    "serve median": lambda: span("p50_ms", 1),
    "serve 99": lambda: span("p99_ms"),
    "serve cpu": lambda: span("cpu_us"),
    "serve runs": lambda: WORDS[len(results("serve"))],
    "gpu loss": lambda: exactness("float32", "loss"),
    "gpu model": lambda: exactness("float32", "model"),
    "gpu double": lambda: exactness("float64", "model"),
}


def tables() -> dict[str, str]:
    return {
        "plain_p": plain_p.table(),
        "limits": wind_up.table(),
        "ablation": ablation.table(),
        "search": adapter_defaults.search(),
        "judged": adapter_defaults.judged(),
        **score_choice.tables(),
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
