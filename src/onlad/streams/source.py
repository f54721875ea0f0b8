"""Open a source by its name: find out its format, and read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from onlad.rows import Names
from onlad.streams import delimited, influx, parquet, records
from onlad.streams.block import Block, Choice, Say, StreamError
from onlad.streams.delimited import Dialect
from onlad.streams.lines import Bytes, Chunk, chunks, open_bytes
from onlad.streams.stop import Stop

FORMATS = ("csv", "jsonl", "influx", "parquet")
SUFFIXES = {
    **dict.fromkeys((".csv", ".tsv", ".txt"), "csv"),
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
    **dict.fromkeys((".lp", ".influx"), "influx"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
}


@dataclass
class Source:
    """Blocks of samples. ``size`` is the position of the end, if that is known."""

    blocks: Iterator[Block]
    size: int | None = None
    many: bool = False  # several series, each with its own monitor
    bytes: Bytes | None = None  # the file or pipe that is read


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a source is read."""

    choice: Choice = Choice()  # noqa: RUF009  (a frozen value)
    format: str | None = None
    dialect: Dialect = Dialect()  # noqa: RUF009
    follow: bool = False

    def open(
        self,
        where: str,
        known: Callable[[str], Names],
        stop: Stop,
        say: Say,
        cut: int = 0,
        *,
        grows: bool = False,
    ) -> Source:
        """Open a path, ``-`` or ``mqtt://...``; `known` has the names that a series must have.

        If a line of a file ends at the position `cut`, no block goes beyond it. If a series
        `grows`, names that come later are added to those that it has.
        """
        if where.startswith(("mqtt://", "mqtts://")):
            from onlad.streams import mqtt  # noqa: PLC0415  (asyncio is slow to import)

            address = mqtt.parse_address(where)
            return Source(
                mqtt.blocks(address, self.choice, known, stop, say, grows=grows), many=True
            )
        path = None if where == "-" else Path(where)
        kind = self.format or (SUFFIXES.get(path.suffix.lower()) if path else None)
        if kind is None and path and path.suffix.lower() in (".gz", ".zst"):
            kind = SUFFIXES.get(Path(path.stem).suffix.lower())
        if kind == "parquet":
            if path is None or self.follow:
                raise StreamError("Parquet cannot be read from a pipe or a growing file")
            file = parquet.open_parquet(path)
            blocks = parquet.blocks(file, self.choice, known(""), stop)
            return Source(blocks, file.metadata.num_rows)
        source = open_bytes(path, self.follow)
        found = chunks(source, stop, self.follow, say, cut)
        if kind is None:
            kind, found = _detected(found)
        if kind == "influx":
            if self.choice.label or self.choice.time:
                raise StreamError("line protocol has its own time, and no labels")
            series = influx.Series(self.choice, known, say, grows=grows)
            return Source(influx.blocks(found, series), source.size, many=True, bytes=source)
        if kind == "jsonl":
            lines = records.blocks(found, self.choice, known(""), say, grows=grows)
            return Source(lines, source.size, bytes=source)
        table = delimited.blocks(found, self.choice, known(""), self.dialect, say)
        return Source(table, source.size, bytes=source)


def _detected(found: Iterator[Chunk]) -> tuple[str, Iterator[Chunk]]:
    """Return the format that the first line looks like, and the chunks from the first on."""
    seen = []
    for chunk in found:
        seen.append(chunk)
        first = chunk.data.lstrip().split(b"\n", 1)[0]
        if first:
            if first.startswith((b"{", b"[")):
                kind = "jsonl"
            else:
                kind = "influx" if influx.LOOKS_LIKE.match(first) else "csv"
            return kind, chain(seen, found)
    return "csv", iter(seen)
