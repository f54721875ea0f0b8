"""The position in a followed file, saved beside the model: the next start continues there.

Model and position are two files, and a crash can come between the two. So the position is saved
with the number of samples of each series; samples that a model has seen beyond it are skipped.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TypedDict

from onlad import modelfile
from onlad.cli.models import Models
from onlad.errors import OnladError
from onlad.streams.block import Block, Say
from onlad.streams.lines import open_bytes
from onlad.streams.source import Source


class _Kept(TypedDict):
    source: str
    position: int
    head: str
    seen: dict[str, int]


class Place:
    """The position in a file up to which its samples are learned."""

    def __init__(self, source: Path, model: Path, models: Models, say: Say) -> None:
        self._source, self._path, self._models = source, Path(f"{model}.place"), models
        self.start = self._last = 0
        self._again: dict[str, int] = {}  # by series: samples after the position that are learned
        kept = self._load() if models.is_loaded else None
        if kept is None or kept["source"] != str(source.absolute()):
            return
        if not self._is_same(kept):
            say(f"{source} is not the file of the last run; reading it from its start")
            return
        self.start = kept["position"]
        self._again = {
            series: models.seen(series) - count for series, count in kept["seen"].items()
        }
        say(f"continuing at byte {self.start:,} of {source}")

    def _load(self) -> _Kept | None:
        try:
            kept: _Kept = json.loads(self._path.read_bytes())
            return kept
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is damaged"
            what = f"cannot read {self._path}, where {self._source} was left: {why}"
            raise OnladError(f"{what}. Remove it to read from the start") from None

    def _is_same(self, kept: _Kept) -> bool:
        file = open_bytes(self._source, follow=True)
        try:
            size = os.fstat(file.fd).st_size
            return size >= kept["position"] and file.head(kept["position"]) == kept["head"]
        finally:
            os.close(file.fd)

    def new(self, block: Block) -> Block | None:
        """Return the part of a block that is not learned yet."""
        if block.position < self._last:  # the file was replaced or truncated
            self.start = 0
        self._last = block.position
        if block.position <= self.start:
            return None
        count = self._again.get(block.series, 0)
        if count <= 0 or not block.names:
            return block
        self._again[block.series] = count - len(block.values)
        return block.part(slice(count, None))

    def save(self, source: Source, position: int) -> None:
        """Save the position after a block; the models are saved before it."""
        assert source.bytes is not None
        kept: _Kept = {
            "source": str(self._source.absolute()),
            "position": position,
            "head": source.bytes.head(position),
            "seen": self._models.all_seen(),
        }
        try:
            modelfile.replace(self._path, json.dumps(kept).encode())
        except OSError as error:
            raise OnladError(f"cannot write {self._path}: {error.strerror}") from None
