"""The journal: every sample is here before it is learned, so a crash at any moment loses none.

A state folder has numbered segments, each a row of frames. `append` hands a frame to the system:
from then on `kill -9` cannot lose it; after `sync` a power cut cannot either. What follows the last
whole frame may be torn by a crash; it was acknowledged to nobody, and is cut off. Damage before a
whole frame is refused, and so is a missing segment: one that is followed by another ends by saying
so. `onlad.serve.repair` salvages the rest.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from onlad.errors import OnladError
from onlad.serve import logs
from onlad.serve.frames import END, Record, Rows, framed, frames, records

ARCHIVE = "archive"  # folder of the segments that a checkpoint covers


class JournalError(OnladError):
    """The journal is damaged, or in use."""


class Journal:
    """The segments of a folder, the newest of them open for writing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._file = -1
        self._end = 0  # of what is whole in the open segment
        self._named = False  # whether the folder with its name is on the disk
        self.number = 0
        self.written = self.synced = 0  # bytes since this object was made
        self.replayed = 0  # bytes

    def segments(self) -> list[int]:
        """Return the numbers of the segments, in order."""
        names = (path.name for path in self.folder.iterdir() if path.is_file())
        return sorted(int(name[:10]) for name in names if re.fullmatch(r"[0-9]{10}\.journal", name))

    def replay(self, first: int, *, needed: bool = False) -> Iterator[Record]:
        """Yield the records from segment `first` on. Cut off what the last write left torn.

        If it is `needed`, there is at least that segment.
        """
        numbers = [number for number in self.segments() if number >= first]
        if numbers != list(range(first, first + len(numbers))) or (needed and not numbers):
            raise self._error(f"{self.folder} lacks a segment: there are {numbers}, from {first}")
        ended, before = False, 0
        for number in numbers:
            path = self.path(number)
            data = path.read_bytes()
            end, ended = 0, False
            for at, stop, frame in frames(data):
                if at != end:
                    raise self._error(f"{path} is damaged at byte {end}, before whole frames")
                for record in records(frame):
                    if record == END:
                        ended = True
                    else:
                        yield record
                end = stop
                self.replayed = before + end
            if end < len(data):
                logs.warning("cut off a torn write", file=path.name, at=end, size=len(data) - end)
                os.truncate(path, end)
            before += end
        if ended:
            raise self._error(f"{self.folder} lacks segment {numbers[-1] + 1}, which was there")

    def size(self, first: int) -> int:
        """Return the bytes of the segments from `first` on."""
        return sum(self.path(n).stat().st_size for n in self.segments() if n >= first)

    def _error(self, what: str) -> JournalError:
        way = f"Restore it from a copy, or salvage the rest: onlad repair {self.folder.parent}"
        return JournalError(f"{what}. {way}")

    def open(self, number: int) -> int:
        """Write to a segment from now on, at its end if it is there; return the one before.

        The caller brings that one to the disk with `finish`: it takes long.
        """
        old = self._file
        self._file = os.open(self.path(number), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        self.number, self._end, self._named = number, os.fstat(self._file).st_size, False
        return old

    def finish(self, old: int) -> None:
        """Bring a segment that `open` returned to the disk, and let go of it."""
        if old < 0:
            return
        try:
            self._flush_folder()  # the next one is there before this one says so
            append(old, framed([END]), os.fstat(old).st_size, sync=True)
        finally:
            os.close(old)

    def append(self, new: Iterable[Record]) -> None:
        """Write records, all or none; `OSError` if the disk takes no more."""
        data = framed(new)
        append(self._file, data, self._end)
        self._end += len(data)
        self.written += len(data)

    def sync(self) -> None:
        """Bring what was written to the disk."""
        upto, named = self.written, self._named
        os.fsync(self._file)
        if not named:  # without its name in the folder a segment is not there after a power cut
            self._flush_folder()
            self._named = True
        self.synced = max(self.synced, upto)

    def forget(self, before: int, archive: int = 0) -> None:
        """Remove the segments before a number: a checkpoint covers them.

        The newest `archive` bytes of them stay in a folder, for `rows`.
        """
        folder = self.folder / ARCHIVE
        for number in self.segments():
            if number < before and archive:
                folder.mkdir(exist_ok=True)
                self.path(number).replace(folder / self.path(number).name)
            elif number < before:
                self.path(number).unlink()
        for path in sorted(folder.glob("*.journal"), reverse=True):
            archive -= path.stat().st_size
            if archive < 0:
                path.unlink()

    def rows(self, watcher: int, since: int = 0) -> Iterator[Rows]:
        """Yield the rows of a watcher out of `of`."""
        return (record for record in self.of(watcher, since) if isinstance(record, Rows))

    def of(self, watcher: int, since: int = 0) -> Iterator[Record]:
        """Yield all that is still there of a watcher, the oldest first.

        From segment `since` on, with those of the archive. Some of it may come twice.
        """
        kept = self.folder / ARCHIVE
        numbers = {*self.segments(), *(int(path.stem) for path in kept.glob("*[0-9].journal"))}
        for number in sorted(n for n in numbers if n >= since):
            for path in (self.path(number), kept / self.path(number).name):  # it may be moved now
                with contextlib.suppress(FileNotFoundError):
                    for *_, frame in frames(path.read_bytes()):
                        for record in records(frame, watcher):
                            if record.number == watcher:
                                yield record
                    break

    def close(self) -> None:
        """Let go of the open segment."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def path(self, number: int) -> Path:
        """Return the file of a segment."""
        return self.folder / f"{number:010d}.journal"

    def _flush_folder(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def append(file: int, data: bytes, end: int, *, sync: bool = False) -> None:
    """Write at the end of a file, all or nothing, and with `sync` to the disk."""
    written = 0
    try:
        while written < len(data):
            written += os.write(file, data[written:])
        if sync:
            os.fsync(file)
    except OSError:
        os.ftruncate(file, end)
        raise
