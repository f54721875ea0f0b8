"""What can be salvaged of a damaged state folder, and what is lost.

Whole frames of the journal are kept. Where rows of a device are missing between them, the journal
says so from then on, and its model goes on behind the gap. Nothing is thrown away: what was damaged
is kept beside, in the folder ``damaged``.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from operator import is_
from pathlib import Path

from onlad import modelfile
from onlad.errors import OnladError
from onlad.serve.alarm import key
from onlad.serve.checkpoint import Checkpoint, Saved, StateError, Store
from onlad.serve.frames import END, Fact, Record, framed, frames, legible, records


def repair(folder: Path) -> Iterator[str]:
    """Salvage what can be of a state folder that no service uses, and yield what was done."""
    if not (folder / "lock").is_file():
        raise StateError(f"{folder} is no state folder: there is no file lock in it")
    store = Store(folder)
    try:
        yield from _Repair(store).run()
    finally:
        store.close()


class _Repair:
    def __init__(self, store: Store) -> None:
        self.store, self.damaged = store, store.folder / "damaged"
        self.names: dict[int, str] = {}  # devices by number
        self.rows: dict[int, int] = {}  # of each, the next row of the journal
        self.kept: dict[int, int] = {}
        self.lost: dict[int, int] = {}
        self.gone: dict[int, tuple[int, int]] = {}  # of each, rows that cannot be replayed
        self.illegible = False  # whether it is not known whose rows stood there
        self.left_out: list[str] = []  # what a person did and cannot be done again
        self.missing = False  # a segment of the journal

    def run(self) -> Iterator[str]:
        """Repair the folder; yield what was done."""
        before = len(list(self.damaged.glob("*")))
        point = yield from self._checkpoint()
        good: list[Saved] = []
        for saved in point.watchers:
            name = self.names[saved.number] = key(saved.stream, saved.device)
            try:
                seen = self.store.model(saved).n_seen
            except OnladError as error:
                self._set_aside(self.store.models / saved.file)
                yield f"{name}: {error}. The device starts from nothing"
                continue
            good.append(saved)
            try:
                self.store.alarms(saved)
            except OnladError:
                self._set_aside(self.store.models / saved.alarm_file)
                good[-1] = saved._replace(alarm_file="")
            self.rows[saved.number] = seen + saved.lost
        yield from self._journal(point)
        if len(good) != len(point.watchers) or len(list(self.damaged.glob("*"))) > before:
            if not point.is_first:  # also where a state.json was taken that has no right checksum
                self.store.commit(point._replace(watchers=tuple(good)))
            for number, (first, end) in self.gone.items():
                missing = max(0, end - self.rows.get(number, first))  # others count before these
                self.lost[number] = self.lost.get(number, 0) + missing
            for number in sorted({*self.kept, *self.lost}):
                name = self.names.get(number, f"device {number}, whose name is lost")
                kept, lost = self.kept.get(number, 0), self.lost.get(number, 0)
                yield f"{name}: {kept:,} rows of the journal are kept, {lost:,} are lost"
            if self.illegible or self.missing:
                yield "of some rows it cannot be told whose they were: more may be lost"
            yield f"what was damaged is in {self.damaged}"
        elif not self.missing:
            yield "nothing is damaged"

    def _checkpoint(self) -> Generator[str, None, Checkpoint]:
        """Return the checkpoint, also one whose checksum is wrong if it can be read at all."""
        try:
            return self.store.read()
        except StateError as error:
            path = self.store.folder / "state.json"
            if not path.exists():
                raise
            try:
                point = self.store.parse(json.loads(path.read_bytes())["state"])
            except (ValueError, KeyError, TypeError):
                raise StateError(f"{path} cannot be read. Restore it from a copy") from error
            self._set_aside(path)
            yield "state.json: its checksum is wrong; it was taken as it can be read"
            return point

    def _journal(self, point: Checkpoint) -> Iterator[str]:
        journal = self.store.journal
        numbers = [number for number in journal.segments() if number >= point.segment]
        last = max(numbers, default=point.segment)
        if numbers and any(END in records(frame) for *_, frame in frames(self._read(last))):
            last += 1  # the last one that is there says that another followed
        for number in range(point.segment, last + 1):
            path = journal.path(number)
            data = self._read(number)
            if not path.exists() and not (point.is_first and not numbers):
                self.missing = True
                yield f"{path.name} is missing; there is an empty one now"
            parts: list[bytes] = []
            end, gaps = 0, []
            for at, stop, frame in frames(data):
                if at > end:
                    gaps.append((end, at))
                end = stop
                there = list(records(frame))
                batch = list(self._batch(iter(there)))
                if len(batch) == len(there) and all(map(is_, batch, there)):
                    parts.append(data[at:stop])
                elif batch:
                    parts.append(framed(batch))
            if end < len(data):
                gaps.append((end, len(data)))
            new = b"".join(parts)
            if new == data and path.exists():
                continue
            for start, stop in gaps:
                yield f"{path.name}: bytes {start:,} to {stop:,} cannot be read"
                whose_rows = list(legible(data[start:stop]))
                self.illegible = self.illegible or not whose_rows
                for whose in whose_rows:
                    self._lose(*whose)
            yield from self.left_out
            self.left_out.clear()
            self._set_aside(path)
            modelfile.replace(path, new)

    def _lose(self, number: int, first: int, rows: int) -> None:
        begin, end = self.gone.get(number, (first, 0))
        self.gone[number] = min(begin, first), max(end, first + rows)

    def _read(self, number: int) -> bytes:
        path = self.store.journal.path(number)
        return path.read_bytes() if path.exists() else b""

    def _batch(self, batch: Iterator[Record]) -> Iterator[Record]:
        """Yield the records that can be replayed, and what is missing before them."""
        for record in batch:
            if isinstance(record, Fact):
                if record.kind == "birth":
                    number, device = record.values["number"], record.values["device"]
                    self.names.setdefault(number, key(record.values["stream"], device))
                    self.rows.setdefault(number, 0)
                elif record.kind in ("reverted", "restored"):
                    try:
                        self._try(record)
                    except StateError as error:
                        self.left_out.append(str(error))
                        continue
                elif record.kind == "lost" and record.values["number"] in self.rows:
                    number = record.values["number"]
                    if self.rows[number] == record.values["first"]:
                        self.rows[number] += record.values["rows"]
                yield record
                continue
            number = record.number
            if number not in self.rows:  # without its birth
                self._lose(number, record.first, len(record.X))
                continue
            missing = record.first - self.rows[number]
            if missing > 0:
                self.lost[number] = self.lost.get(number, 0) + missing
                facts = {"number": number, "first": self.rows[number], "rows": missing}
                yield Fact("lost", facts)
            self.rows[number] = max(self.rows[number], record.first + len(record.X))
            self.kept[number] = self.kept.get(number, 0) + len(record.X)
            yield record

    def _try(self, fact: Fact) -> None:
        """Raise `StateError` if a file that a fact needs cannot be read."""
        number, file = fact.values["number"], fact.values["file"]
        if fact.kind == "restored":
            saved, model, _ = self.store.forgotten(file)
            self.names.setdefault(number, key(saved.stream, saved.device))
            self.rows.setdefault(number, model.n_seen + saved.lost)
            return
        try:
            self.store.snapped(number, file)
        except StateError as error:
            name = self.names.get(number, f"device {number}")
            what = f"{name} stays what it was before it went back to a snapshot"
            raise StateError(f"{what}: {error}") from None

    def _set_aside(self, path: Path) -> None:
        """Copy a file to where what was damaged is."""
        self.damaged.mkdir(exist_ok=True)
        if path.exists():
            target, count = self.damaged / path.name, 0
            while target.exists():
                count += 1
                target = self.damaged / f"{path.name}.{count}"
            target.write_bytes(path.read_bytes())
