"""The samples of a history: collected during the run, and learned at its end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onlad.cli.models import Models, file_name, save_model
from onlad.monitor import FEWEST, Monitor
from onlad.reference import Array
from onlad.rows import Names
from onlad.streams.block import Block
from onlad.streams.times import moments
from onlad.verdict import Verdicts


class History(Models):
    """The samples of each series, which are known to be normal."""

    judges = False

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        super().__init__(wanted)
        self._parts: dict[str, tuple[Names, list[Array]]] = {}
        self._times: dict[str, list[Array] | None] = {}  # None where a sample has none

    def names(self, series: str) -> Names:
        """Return the names of a series that has begun."""
        return self._parts[series][0] if series in self._parts else ()

    def observe(self, block: Block) -> Verdicts:
        """Keep the samples, and return empty verdicts."""
        _, parts = self._parts.setdefault(block.series, (block.names, []))
        parts.append(block.values)
        times = self._times.setdefault(block.series, [])
        try:
            if times is not None:
                times.append(moments(block.times or [None]))
        except ValueError:
            self._times[block.series] = None
        return Verdicts(block.names, len(block.values))

    def few(self) -> dict[str, int]:
        """Return the samples with a value of each series that is too short to be learned."""
        known = {series: sum(int((~np.isnan(X).all(axis=1)).sum()) for X in parts)
                 for series, (_, parts) in self._parts.items()}  # fmt: skip
        return {series: count for series, count in known.items() if count < FEWEST}

    def save(self, path: Path, many: bool) -> bool:
        """Learn the samples, and write the models."""
        few = self.few()
        for series, (names, parts) in self._parts.items():
            if series not in few:
                times = self._times[series]
                when = np.concatenate(times) if times else None
                monitor = Monitor(**self._wanted, names=names).fit(np.concatenate(parts), when)
                save_model(monitor, path / file_name(series) if many else path)
        return len(few) < len(self._parts)
