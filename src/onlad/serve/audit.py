"""The audit trail: what was done to models, each line with the digest of the one before.

A line that is changed, removed or inserted breaks the chain from there on. If somebody rewrites the
whole file, a digest that was noted elsewhere shows it: `verify` checks that the trail contains it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onlad.errors import OnladError
from onlad.serve.journal import append

FILE = "audit.jsonl"
FIRST = "0" * 64  # what stands before the first line


class AuditError(OnladError):
    """The trail is not what was written."""


class Audit:
    """Adds lines to the trail of a state folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._head = FIRST
        if self._path.exists():
            data = self._path.read_bytes()
            whole = data[: data.rfind(b"\n") + 1]
            if len(whole) < len(data):  # a crash tore the last line
                os.truncate(self._path, len(whole))
            if whole:
                self._head = hashlib.sha256(whole[:-1].split(b"\n")[-1]).hexdigest()

    def note(self, kind: str, *, sync: bool = True, **values: Any) -> None:
        """Add a line; `OSError` if it cannot be.

        With `sync` it is on the disk when this returns, which takes long on a card.
        """
        said = {"time": round(time.time(), 3), "kind": kind, **values, "before": self._head}
        line = json.dumps(said, ensure_ascii=False).encode()
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        try:
            end = os.fstat(file).st_size
            append(file, line + b"\n", end, sync=sync)
        finally:
            os.close(file)
        self._head = hashlib.sha256(line).hexdigest()

    @property
    def end(self) -> tuple[int, str]:
        """Return where the next line will stand, for `take_back`."""
        return self._path.stat().st_size if self._path.exists() else 0, self._head

    def take_back(self, end: tuple[int, str]) -> None:
        """Remove the lines since `end`: what they say was not done."""
        size, self._head = end
        if self._path.exists():
            os.truncate(self._path, size)


def verify(folder: Path, head: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the digest and the content of each line, or raise `AuditError` where the chain breaks.

    With `head`, a digest that was noted before, the trail must have it.
    """
    path = folder / FILE
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise AuditError(f"{path} cannot be read: {error.strerror}") from None
    before, found = FIRST, head is None
    for number, line in enumerate(lines[:-1], 1):
        try:
            said = json.loads(line)
            fits = said["before"] == before
        except (ValueError, KeyError, TypeError):
            fits = False
        if not fits:
            raise AuditError(f"{path}, line {number}: the chain is broken here")
        before = hashlib.sha256(line).hexdigest()
        found = found or before == head
        file = folder / "snapshots" / Path(str(said.get("file", ""))).name
        is_there = said.get("kind") == "snapshot" and "sha256" in said and file.is_file()
        if is_there and hashlib.sha256(file.read_bytes()).hexdigest() != said["sha256"]:
            raise AuditError(f"{file} is not the snapshot that was taken: its digest is another")
        yield before, said
    if lines[-1]:
        raise AuditError(f"{path}, line {len(lines)}: the line is torn")
    if not found:
        raise AuditError(f"{path} does not have the digest {head}: the trail was rewritten")
