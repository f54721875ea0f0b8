"""Records of benchmarks: who made them, and the tables of the pages that show them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from experiments.records import machine

from onlad.kernel import BACKEND

ROOT = Path(__file__).parents[1]


def commit() -> str:
    """Return the commit that the code is of; a + says that it has been changed since.

    Where only its files are, without their history, the variable ONLAD_COMMIT says it.
    """
    if known := os.environ.get("ONLAD_COMMIT"):
        return known

    def git(*words: str) -> str:
        command = ["git", "-C", str(ROOT), *words]
        return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--", "src", "cpp", "benchmarks/*.py")
    return git("rev-parse", "--short", "HEAD") + "+" * bool(changed)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path: Path | str, records: Iterable[dict[str, Any]]) -> None:
    Path(path).write_text("".join(json.dumps(record) + "\n" for record in records))


def measured(command: str, found: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    """Print each record as it comes, with its command, commit and machine."""
    for each in found:
        where = f"{machine()}, {BACKEND}"
        record = each | {"command": command, "commit": commit(), "machine": where}
        print(json.dumps(record), flush=True)
        yield record


def filled(page: str, marks: tuple[str, str], table: str) -> str:
    """Return a page with a table between two marks."""
    begin, end = (page.index(mark) for mark in marks)
    return f"{page[: begin + len(marks[0])]}\n\n{table}\n\n{page[end:]}"
