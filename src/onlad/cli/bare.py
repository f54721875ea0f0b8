"""A detector instead of monitors: scores without a threshold, and no missing values."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from onlad.cli.models import Models, save_model
from onlad.detector import Detector
from onlad.errors import OnladError
from onlad.kernel import LARGEST
from onlad.rows import Names
from onlad.streams.block import Block
from onlad.verdict import Verdicts


class BareDetector(Models):
    """One detector; it learns what it scores, or only scores."""

    judges = False

    def __init__(self, detector: Detector, *, learn: bool) -> None:
        super().__init__({})
        self._detector, self._learn = detector, learn

    def names(self, series: str) -> Names:
        """Return no names: a detector knows only how many features there are."""
        return ()

    def observe(self, block: Block) -> Verdicts:
        """Return verdicts that have a score and nothing else."""
        verdicts = Verdicts(block.names, len(block.values))
        n = self._detector.n_features
        if n is not None and n != len(block.names):
            raise OnladError(f"the detector has {n} features, the source {len(block.names)}")
        strange = ~(np.abs(block.values) <= LARGEST[self._detector.dtype])
        if strange.any():
            i, j = (int(k) for k in np.argwhere(strange)[0])
            raise OnladError(
                f"row {block.row[i]}: column {block.names[j]!r} is missing or too large; a bare "
                "detector takes numbers of about unit size only. onlad fit without --detector "
                "scales them, and takes missing values"
            )
        update = self._detector.update_many if self._learn else self._detector.score_many
        verdicts.score[:] = update(block.values)
        return verdicts

    def save(self, path: Path, many: bool) -> bool:
        """Write the detector."""
        if self._detector.n_features is None:
            return False
        save_model(self._detector, path)
        return True

    def check(self, many: bool, save: Path | None) -> None:
        """Refuse many series, and a path that cannot be written."""
        if many:
            raise OnladError("a bare detector is fitted on one series; give a table of numbers")
        super().check(many, save)
