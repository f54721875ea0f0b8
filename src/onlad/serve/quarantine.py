"""Messages and rows that ended a process: set aside, so that they cannot end the next one too.

What Python raises while a message is read belongs to that message and is answered. This is for the
rest. A monitor that raises is set aside with its device; at the next start the journal's rows are
watched one by one, and the row that raises is set aside instead. A fault in compiled code is seen
by no ``except``: so what is at hand is noted in a mapped file, which outlives the process, and
Python's fault handler notes that it was a fault. A ``kill -9`` leaves no such note, and blames
nobody.

Each file of the folder ``quarantine`` is one message or row. Removing the file lets it in again.
"""

from __future__ import annotations

import base64
import contextlib
import faulthandler
import json
import mmap
import os
import struct
import time
from pathlib import Path
from typing import Any

from onlad import modelfile
from onlad.reference import Array
from onlad.serve import logs
from onlad.serve.frames import digest
from onlad.serve.intake import Item

MOST = 1000  # files; more are counted and logged only
NOTHING, READING, WATCHING, REPLAYING = 0, 1, 2, 3
_HAND = struct.Struct("<BIQ")  # what is done, number of the watcher, digest or first row


class Quarantine:
    """The folder of what was set aside, and the note on what is at hand."""

    def __init__(self, state: Path) -> None:
        self.folder = state / "quarantine"
        self.count = 0  # set aside since the start of the process
        self.careful = False  # a block of the journal ended the last start: replay it one by one
        self._fault = state / "fault"
        self._hand = mmap.mmap(-1, _HAND.size)
        # A full disk cannot hold it: then it is kept in memory alone.
        with (
            contextlib.suppress(OSError),
            open(os.open(state / "hand", os.O_RDWR | os.O_CREAT, 0o640), "r+b") as file,
        ):
            if len(file.read()) != _HAND.size:
                file.truncate(0)
                file.write(bytes(_HAND.size))  # a hole in the file would be filled too late
                file.flush()
            self._hand = mmap.mmap(file.fileno(), _HAND.size)
        self._accuse()
        self._names = {path.stem for path in self.folder.glob("*.json")}

    def watch_faults(self) -> None:
        """From here on note a fault of the process. Of one service a process: it is a global."""
        self._log = self._fault.open("w")
        faulthandler.enable(self._log)

    def _accuse(self) -> None:
        """Set aside what was at hand when the last process ended by a fault."""
        what, number, value = _HAND.unpack(self._hand[:])
        self.drop()
        with contextlib.suppress(FileNotFoundError):
            why = self._fault.read_text("utf-8", "replace")
            names = {READING: f"message-{value:016x}", WATCHING: _rows(number, value)}
            if why and what in names:
                self._put(names[what], {"why": why})
                whose = "a message" if what == READING else "rows"
                logs.warning(f"{whose} ended the last process", file=names[what])
            elif why and what == REPLAYING:
                self.careful = True
                logs.warning("the journal ended the last process", device=number, row=value)
            self._fault.unlink()

    # -- what is at hand ----------------------------------------------------------------------

    def hold(self, what: int, number: int, value: int) -> None:
        """Note what is at hand. It costs no call of the system."""
        _HAND.pack_into(self._hand, 0, what, number, value)

    def drop(self) -> None:
        """Note that nothing is at hand."""
        _HAND.pack_into(self._hand, 0, NOTHING, 0, 0)

    def read(self, item: Item) -> str:
        """Hold a message that is read next, or return why it is not to be read."""
        if item.mark is not None:
            value = item.mark.digest
        else:
            value = digest(f"{item.stream.name}/{item.device}".encode(), item.payload)
        name = f"message-{value:016x}"
        if name not in self._names:
            self.hold(READING, 0, value)
            return ""
        self._put(name, item.where | {"payload": base64.b64encode(item.payload).decode()})
        logs.warning("a message is set aside", **item.where, file=f"quarantine/{name}.json")
        return f"it ended the service once, and is set aside in quarantine/{name}.json"

    # -- rows of the journal ------------------------------------------------------------------

    def has_rows(self, number: int, first: int) -> bool:
        """Return whether the rows from `first` on ended a process by a fault."""
        return bool(self._names) and _rows(number, first) in self._names

    def put_rows(self, number: int, first: int, key: str, X: Array, why: str) -> None:
        """Set rows of a watcher aside."""
        name = _rows(number, first)
        self._put(name, {"device": key, "row": first, "rows": X.tolist(), "why": why})
        logs.warning("rows are set aside", device=key, row=first, rows=len(X), why=why)

    def _put(self, name: str, facts: dict[str, Any]) -> None:
        """Write a file, with what is in it already; a full disk only costs the file."""
        self.count += 1
        path = self.folder / f"{name}.json"
        with contextlib.suppress(OSError):
            self.folder.mkdir(exist_ok=True)
            known: dict[str, Any] = {"time": time.time()}
            if path.exists():
                with contextlib.suppress(ValueError, TypeError):  # of one that is damaged, nothing
                    known |= json.loads(path.read_bytes())
            elif sum(1 for _ in self.folder.iterdir()) >= MOST:
                return
            modelfile.replace(path, json.dumps(known | facts, indent=1).encode())

    def close(self) -> None:
        """Let go of the note."""
        self._hand.close()


def _rows(number: int, first: int) -> str:
    return f"rows-{number:06d}-{first:012d}"
