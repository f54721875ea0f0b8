"""What a monitor says: of one sample a `Verdict`, of many the same as columns."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from onlad import kernel


class _LateCauses:
    """The shares of the features, of which `causes` are made when somebody asks for them."""

    __slots__ = ("_names", "_shares")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name != "causes":
                raise AttributeError(f"a Verdict has no attribute {name!r}")
            causes = kernel.causes(self._names, np.frombuffer(self._shares))
            object.__setattr__(self, "causes", causes)
            return causes


@dataclass(frozen=True, slots=True)
class Verdict(_LateCauses):
    """What a monitor says of one sample.

    Attributes
    ----------
    ready
        False while the monitor warms up; then nothing is an anomaly.
    score
        How unusual the sample is: 0 is usual, 1 is twice as far out as 999 of 1,000 samples of the
        start. It has no ceiling.
    threshold
        Above it a sample is an anomaly.
    p_value
        Share of recent normal samples that score as high.
    is_anomaly
        Whether the score is above the threshold.
    causes
        Share of each feature in the score, the largest first; they sum to 1. A missing value is
        never a cause. Empty while there is nothing to compare with.
    learned
        Whether the sample is usual enough to be learned. It is learned 64 to 128 samples later,
        unless many of those that follow are unusual.
    drift
        Whether a new mode was confirmed here: what was refused before is normal from now on.
    drifting
        The feature that moved away slowly from where it was when the mode was young, or None. A
        notice, not an alarm.
    """

    ready: bool
    score: float
    threshold: float
    p_value: float
    is_anomaly: bool
    causes: dict[Hashable, float]
    learned: bool
    drift: bool
    drifting: Hashable | None = None


class Verdicts(Sequence[Verdict]):
    """Verdicts of many samples as columns; ``verdicts[i]`` is a `Verdict`.

    The columns are arrays with one entry per sample: ``ready``, ``score``, ``threshold``,
    ``p_value``, ``is_anomaly``, ``learned``, ``drift``, ``drifting`` (the number of the feature, or
    -1), and ``shares`` with one column for each feature, in the order of ``names``.
    """

    def __init__(self, names: tuple[Hashable, ...], rows: int) -> None:
        self.names = names
        self.ready = np.zeros(rows, bool)
        self.score = np.zeros(rows)
        self.threshold = np.full(rows, np.inf)
        self.p_value = np.ones(rows)
        self.is_anomaly = np.zeros(rows, bool)
        self.learned = np.ones(rows, bool)
        self.drift = np.zeros(rows, bool)
        self.drifting = np.full(rows, -1, "int64")
        self.shares = np.zeros((rows, len(names)))

    def __len__(self) -> int:
        return len(self.score)

    @overload
    def __getitem__(self, index: int) -> Verdict: ...
    @overload
    def __getitem__(self, index: slice) -> list[Verdict]: ...
    def __getitem__(self, index: int | slice) -> Verdict | list[Verdict]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        drifting = int(self.drifting[index])
        return Verdict(
            ready=bool(self.ready[index]),
            score=float(self.score[index]),
            threshold=float(self.threshold[index]),
            p_value=float(self.p_value[index]),
            is_anomaly=bool(self.is_anomaly[index]),
            causes=kernel.causes(self.names, self.shares[index]),
            learned=bool(self.learned[index]),
            drift=bool(self.drift[index]),
            drifting=self.names[drifting] if drifting >= 0 else None,
        )

    def __iter__(self) -> Iterator[Verdict]:
        return (self[i] for i in range(len(self)))
