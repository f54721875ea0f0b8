"""Bytes to whole lines, in blocks, as promptly as they come and in bounded memory."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from onlad.streams.block import Say, StreamError
from onlad.streams.stop import Stop

READ = 1 << 18  # bytes a read: a pipe gives what it has, a file this many
LONGEST = 1 << 20  # bytes of a line; a longer one is dropped and reported
POLL = 0.2  # seconds between two looks at a file that is followed


class Chunk(NamedTuple):
    """Whole lines, or one that was too long and is gone."""

    data: bytes
    line: int  # number of the first, from 1
    position: int  # bytes of the source that are done
    too_long: int = 0  # bytes of the line that was dropped


class Bytes(NamedTuple):
    """A file, or a pipe if `path` is None, that is open for reading."""

    fd: int
    path: Path | None
    size: int | None  # bytes, where that is known and will not change


def open_bytes(path: Path | None, follow: bool) -> Bytes:
    """Open a file, or standard input if `path` is None."""
    if path is None:
        if sys.stdin is None:  # then 0 is whatever was opened first
            raise StreamError("cannot read standard input: it is closed")
        return Bytes(0, None, None)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        os.read(fd, 0)  # a folder can be opened, but not read
    except OSError as error:
        raise StreamError(f"cannot read {path}: {error.strerror}") from None
    whole = path.is_file() and not follow
    return Bytes(fd, path, os.fstat(fd).st_size if whole else None)


class Lines:
    """Cuts bytes into chunks of whole lines; what has no end yet is kept, up to LONGEST."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # of a line that has not ended yet
        self._held = self._dropped = 0  # bytes in them, bytes of a line that is too long
        self._line = 1
        self.position = 0

    def feed(self, data: bytes) -> Iterator[Chunk]:
        """Take at most READ bytes, and yield the lines that are whole now."""
        self.position += len(data)
        if self._dropped:
            cut = data.find(b"\n")
            if cut < 0:
                self._dropped += len(data)
                return
            yield self._too_long(self._dropped + cut)
            data, self._dropped = data[cut + 1 :], 0
        cut = data.rfind(b"\n") + 1
        if cut:
            block = b"".join([*self._parts, data[:cut]])
            self._parts, self._held, data = [], 0, data[cut:]
            first = block.find(b"\n")  # only this one can be too long: a read is shorter
            if first > LONGEST:
                yield self._too_long(first)
                block = block[first + 1 :]
            if block:
                yield Chunk(block, self._line, self.position)
                self._line += block.count(b"\n")
        if data:
            self._parts.append(data)
            self._held += len(data)
        if self._held > LONGEST:
            self._parts, self._held, self._dropped = [], 0, self._held

    def finish(self) -> Iterator[Chunk]:
        """Yield the last line if it has no end."""
        if self._dropped:
            yield self._too_long(self._dropped)
        elif self._parts:
            yield Chunk(b"".join(self._parts), self._line, self.position)

    def _too_long(self, size: int) -> Chunk:
        self._line += 1
        return Chunk(b"", self._line - 1, self.position, size)


def chunks(source: Bytes, stop: Stop, follow: bool, say: Say) -> Iterator[Chunk]:
    """Yield the lines of `source` until it ends, or for ever with `follow`, or until stopped.

    Half a line is no line while more may come; at the end of the source it is one.
    """
    fd, lines = source.fd, Lines()
    while (data := _read(fd, stop, source.path)) is not None:
        if data:
            yield from lines.feed(data)
            continue
        if not (follow and source.path):
            yield from lines.finish()
            return
        renewed = _renewed(source.path, fd, lines.position)
        if renewed is None:
            stop.wait(seconds=POLL)
            continue
        say(f"{source.path} was replaced or cut; reading it from its start")
        yield from lines.finish()
        if renewed != fd:
            os.close(fd)
        fd, lines = renewed, Lines()


def _read(fd: int, stop: Stop, path: Path | None) -> bytes | None:
    """Return what there is to read, nothing at the end, None when stopped."""
    try:
        return None if stop.wait(fd) else os.read(fd, READ)
    except OSError as error:
        raise StreamError(f"cannot read {path or 'standard input'}: {error.strerror}") from None


def _renewed(path: Path, fd: int, position: int) -> int | None:
    """Return a descriptor to go on with if the file at `path` is another now, or was cut."""
    with contextlib.suppress(OSError):  # it is away for the moment, as when logs are rotated
        there, here = os.stat(path), os.fstat(fd)
        if (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino):
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if there.st_size < position:
            os.lseek(fd, 0, os.SEEK_SET)
            return fd
    return None
