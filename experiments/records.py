"""What happened, one JSON line per trial: tables and figures are made from these lines alone."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

Record = dict[str, Any]
ROOT = Path(__file__).parent
RESULTS = ROOT / "results"
AUC_FIELDS = (
    "testbed",
    "dataset",
    "dataset_sha256",
    "method",
    "settings",
    "hyperparameters",
    "seed",
    "auc",
    "seconds",
    "samples",
    "machine",
    "commit",
)


def read(name: str) -> list[Record]:
    """Return the records of ``results/<name>.jsonl``; none where there is no such file."""
    path = RESULTS / f"{name}.jsonl"
    if not path.exists():
        return []
    status = path.stat()
    return list(_parsed(path, status.st_mtime_ns, status.st_size))


def latest(name: str, *keys: str) -> list[Record]:
    """Return the last record of each value of `keys`, in the order in which each came first."""
    found = {json.dumps([record[key] for key in keys]): record for record in read(name)}
    return list(found.values())


@lru_cache(maxsize=64)
def _parsed(path: Path, changed: int, size: int) -> tuple[Record, ...]:
    return tuple(json.loads(line) for line in path.read_text().splitlines())


def append(name: str, records: Iterable[Record]) -> None:
    """Add records to ``results/<name>.jsonl``, each line written at once and whole."""
    path = RESULTS / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    for record in records:
        line = json.dumps(record, separators=(",", ":")) + "\n"
        with path.open("ab", buffering=0) as file:
            file.write(line.encode())


def write(name: str, records: Iterable[Record]) -> None:
    """Store records in place of those that are there."""
    path = RESULTS / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    lines = (json.dumps(r, separators=(",", ":")) + "\n" for r in records)
    part.write_text("".join(lines))
    part.replace(path)


def unclear() -> dict[str, Counter[str]]:
    """Return by file how many of the paper's records do not say all of where they are from.

    "changed": made with uncommitted changes in the tree; "machine": that is not named.
    """
    found: dict[str, Counter[str]] = {"changed": Counter(), "machine": Counter()}
    for path in [*RESULTS.glob("*.jsonl"), *RESULTS.glob("auc/*"), *RESULTS.glob("tune/*")]:
        name = path.relative_to(RESULTS).with_suffix("").as_posix()
        for record in read(name):
            found["changed"][name] += record["commit"].endswith("+")
            found["machine"][name] += record["machine"] == "not recorded"
    return {what: +counts for what, counts in found.items()}


def auc_file(testbed: str, method: str) -> str:
    """Return the name of the file that holds a method's AUC records."""
    return f"auc/{testbed}-{method}"


def key(record: Record) -> str:
    """Return what makes two AUC records the same trial of the same cell."""
    names = ("testbed", "dataset", "method", "settings", "hyperparameters", "seed")
    return json.dumps([record[name] for name in names], sort_keys=True)


def borrow(name: str, wanted: Iterable[Record]) -> list[Record]:
    """Store the wanted trials that another column has, and return the ones still to be run.

    Two ways to choose settings may choose the same: then their trials are the same too.
    """
    stored = read(name)
    known = {key(r) for r in stored}
    twins = {key(r | {"settings": ""}): r for r in stored}
    missing = []
    for record in wanted:
        twin = twins.get(key(record | {"settings": ""}))
        if twin is None:
            missing.append(record)
        elif key(record) not in known:
            append(name, [twin | {"settings": record["settings"]}])
    return missing


@lru_cache
def machine() -> str:
    """Return the processor and its number of cores."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.lower().startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return f"{model}, {os.cpu_count()} cores"


def origin(command: str, *paths: str) -> Record:
    """Return what each record carries: its command, machine and commit."""
    return {"command": command, "machine": machine(), "commit": commit(*paths)}


@lru_cache
def commit(*paths: str) -> str:
    """Return the last commit of what decides a result; a + says that it has changed since.

    `paths` are further files that decide it, beside the library, the data and the testbeds. It is
    not the commit of the checkout: that of a branch may be gone when its records are read.
    """

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=ROOT.parent, capture_output=True, text=True, check=True
        ).stdout.strip()

    decisive = ("src", "cpp", "experiments/datasets.py", "experiments/testbeds.py", *paths)
    try:
        changed = git("status", "--porcelain", "--", *decisive)
        return git("log", "-1", "--format=%h", "--abbrev=12", "--", *decisive) + "+" * bool(changed)
    except (OSError, subprocess.CalledProcessError):
        # A copy of the files on another machine has no history: who made it may say what it is of.
        return os.environ.get("ONLAD_COMMIT", "unknown")
