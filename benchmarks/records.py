"""Records of benchmarks: who made them, and the tables of the pages that show them."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from onlad.kernel import BACKEND

ROOT = Path(__file__).parents[1]


def commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path: Path | str, records: Iterable[dict[str, Any]]) -> None:
    Path(path).write_text("".join(json.dumps(record) + "\n" for record in records))


def measured(command: str, found: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    """Print each record as it comes, with its command, commit and machine."""
    for each in found:
        machine = f"{platform.machine()}, {BACKEND}"
        record = each | {"command": command, "commit": commit(), "machine": machine}
        print(json.dumps(record), flush=True)
        yield record


def filled(page: str, marks: tuple[str, str], table: str) -> str:
    """Return a page with a table between two marks."""
    begin, end = (page.index(mark) for mark in marks)
    return f"{page[: begin + len(marks[0])]}\n\n{table}\n\n{page[end:]}"
