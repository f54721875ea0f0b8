"""Read bytes as blocks of whole lines, without delay and in bounded memory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from onlad.streams.block import Say, StreamError
from onlad.streams.compressed import DAMAGED, unpacked
from onlad.streams.stop import Stop

READ = 1 << 18  # bytes per read, at most
LONGEST = 1 << 20  # bytes of a line; a longer one is dropped and reported
HEAD = 1024  # bytes by which a file is recognised
POLL = 0.2  # seconds between two looks at a file that is followed


class Chunk(NamedTuple):
    """Whole lines, or one that was too long and was dropped."""

    data: bytes
    line: int  # number of the first, from 1
    position: int  # where they end in the source, in bytes
    too_long: int = 0  # bytes of the line that was dropped

    @property
    def problem(self) -> str:
        """Why it was dropped."""
        return f"it has {self.too_long} bytes; a line may have {LONGEST}"


def decoded(line: bytes) -> str:
    """Return the text of a line; a `ValueError` names the first byte that is not UTF-8."""
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1} is not UTF-8") from None


@dataclass
class Bytes:
    """A file, or a pipe if `path` is None, that is open for reading."""

    fd: int  # if the file is followed, of the one that is read now
    path: Path | None
    size: int | None  # bytes, if they are known and will not change
    packed: Any = None  # the file, if it is compressed

    def head(self, upto: int) -> str:
        """Return a digest of the file's beginning, by which it is recognised."""
        return hashlib.sha256(os.pread(self.fd, min(upto, HEAD), 0)).hexdigest()


def open_bytes(path: Path | None, follow: bool) -> Bytes:
    """Open a file, or standard input if `path` is None."""
    if path is None:
        if sys.stdin is None:  # then 0 is the first file that was opened
            raise StreamError("cannot read standard input: it is closed")
        return Bytes(0, None, None)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        os.read(fd, 0)  # a folder can be opened, but not read
    except OSError as error:
        raise StreamError(f"cannot read {path}: {error.strerror}") from None
    whole = path.is_file() and not follow
    packed = unpacked(path, os.pread(fd, 8, 0), follow) if path.is_file() else None
    if packed is not None:
        os.close(fd)
        return Bytes(-1, path, None, packed)
    return Bytes(fd, path, os.fstat(fd).st_size if whole else None)


class Lines:
    """Cuts bytes into chunks of whole lines; an incomplete line is kept, up to LONGEST."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # of a line that has not ended yet
        self._held = self._dropped = 0  # bytes in them, bytes of a line that is too long
        self._line = 1
        self.position = 0

    def feed(self, data: bytes) -> Iterator[Chunk]:
        """Take at most READ bytes, and yield the lines that are now complete."""
        self.position += len(data)
        if self._dropped:
            cut = data.find(b"\n")
            if cut < 0:
                self._dropped += len(data)
                return
            yield self._too_long(self._dropped + cut, len(data) - cut - 1)
            data, self._dropped = data[cut + 1 :], 0
        cut = data.rfind(b"\n") + 1
        if cut:
            block = b"".join([*self._parts, data[:cut]])
            self._parts, self._held, data = [], 0, data[cut:]
            first = block.find(b"\n")  # only this one can be too long: a read is shorter
            if first > LONGEST:
                yield self._too_long(first, len(block) - first - 1 + len(data))
                block = block[first + 1 :]
            if block:
                yield Chunk(block, self._line, self.position - len(data))
                self._line += block.count(b"\n")
        if data:
            self._parts.append(data)
            self._held += len(data)
        if self._held > LONGEST:
            self._parts, self._held, self._dropped = [], 0, self._held

    def finish(self) -> Iterator[Chunk]:
        """Yield the last line if it has no end."""
        if self._dropped:
            yield self._too_long(self._dropped, 0)
        elif self._parts:
            yield Chunk(b"".join(self._parts), self._line, self.position)

    def _too_long(self, size: int, behind: int) -> Chunk:
        self._line += 1
        return Chunk(b"", self._line - 1, self.position - behind, size)


def chunks(source: Bytes, stop: Stop, follow: bool, say: Say, cut: int = 0) -> Iterator[Chunk]:
    """Yield the lines of `source` until it ends, with `follow` without end, or until stopped.

    An incomplete last line is kept back while more may come, and yielded at the end of the source.
    If a line ends at the position `cut`, so does a chunk.
    """
    lines = Lines()
    while (data := _read(source, stop, cut - lines.position)) is not None:
        if data:
            yield from lines.feed(data)
            continue
        if not (follow and source.path):
            yield from lines.finish()
            return
        renewed = _renewed(source.path, source.fd, lines.position)
        if renewed is None:
            stop.wait(seconds=POLL)
            continue
        say(f"{source.path} was replaced or truncated; reading it from its start")
        yield from lines.finish()
        if renewed != source.fd:
            os.close(source.fd)
        source.fd, lines, cut = renewed, Lines(), 0


def _read(source: Bytes, stop: Stop, cut: int) -> bytes | None:
    """Return the bytes that can be read, none at the end of the source, or None when stopped."""
    size = min(READ, cut) if cut > 0 else READ
    if source.packed is not None:
        try:
            return None if stop.signal else source.packed.read(size)
        except DAMAGED as error:
            raise StreamError(f"{source.path} is damaged, or cut off: {error}") from None
    try:
        return None if stop.wait(source.fd) else os.read(source.fd, size)
    except OSError as error:
        where = source.path or "standard input"
        raise StreamError(f"cannot read {where}: {error.strerror}") from None


def _renewed(path: Path, fd: int, position: int) -> int | None:
    """Return a descriptor to continue with if the file at `path` was replaced or truncated."""
    with contextlib.suppress(OSError):  # missing for a moment, as when logs are rotated
        there, here = os.stat(path), os.fstat(fd)
        if (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino):
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if there.st_size < position:
            os.lseek(fd, 0, os.SEEK_SET)
            return fd
    return None
