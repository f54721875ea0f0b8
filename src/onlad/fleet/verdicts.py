"""`FleetVerdicts`: what a bank of monitors says of rows, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from onlad.reference import Array
from onlad.rows import Names
from onlad.samples import Made
from onlad.verdict import JUDGED, Verdict, Verdicts, causes

Details: TypeAlias = Literal["none", "alarms", "all"]
DETAILS: tuple[Details, ...] = ("none", "alarms", "all")  # in the order of the kernel

# Columns with one entry per row, their types, and what stands where there was no row.
COLUMNS = {
    "ready": ("bool", False),
    "score": ("float64", 0.0),
    "threshold": ("float64", np.inf),
    "p_value": ("float64", 1.0),
    "severity": ("float64", 0.0),
    "is_anomaly": ("bool", False),
    "learned": ("bool", False),
    "drift": ("bool", False),
    "drifting": ("int64", -1),
    "unusual": ("float64", 1.0),  # rows of the device that were unusual lately
}
ON_GPU = tuple(name for name in COLUMNS if name != "ready")


class FleetVerdicts(Made[Verdict]):
    """Verdicts on rows of many devices as columns; ``verdicts[i]`` is a `Verdict`.

    Columns with one entry per row are ``device``, ``ready``, ``score``, ``threshold``, ``p_value``,
    ``severity``, ``is_anomaly``, ``learned``, ``drift``, ``drifting`` (the number of the feature,
    or -1) and ``unusual``.

    Of the rows that ``detailed`` counts there is more: ``shares``, ``values``, ``expected``,
    ``low`` and ``high`` have an entry for each of them, with one column per feature. A `Verdict` on
    another row has neither causes nor expected values.
    """

    if TYPE_CHECKING:  # a column

        def __getattr__(self, name: str) -> Array: ...

    def __init__(self, device: Array, names: Sequence[Names], rate: Array, widest: int) -> None:
        rows = len(device)
        self.device = device
        self._names, self._rate = names, rate  # by device
        for name, (kind, first) in COLUMNS.items():
            setattr(self, name, np.full(rows, first, kind))
        self.detailed: Array = np.zeros(0, "int64")
        self.values: Array = np.zeros((0, widest))
        self.wide: Array = np.zeros((0, 3, widest))  # shares, expected, half widths of bands

    def __len__(self) -> int:
        return len(self.score)

    @property
    def shares(self) -> Array:
        """Share of each feature in the score."""
        return self.wide[:, 0]

    @property
    def expected(self) -> Array:
        """What the model made of each feature."""
        return self.wide[:, 1]

    @property
    def low(self) -> Array:
        """Where bands begin."""
        return np.asarray(self.wide[:, 1] - self.wide[:, 2])

    @property
    def high(self) -> Array:
        """Where bands end."""
        return np.asarray(self.wide[:, 1] + self.wide[:, 2])

    def _item(self, i: int) -> Verdict:
        device = int(self.device[i])
        names, drifting = self._names[device], int(self.drifting[i])
        at = int(np.searchsorted(self.detailed, i))
        is_detailed = at < len(self.detailed) and self.detailed[at] == i
        shown: Names = ()
        shares, around = np.zeros(0), np.zeros(0)
        if is_detailed:
            shown, n = names, len(names)
            shares = self.shares[at, :n]
            around = np.concatenate((self.values[at, :n], self.wide[at, 1:, :n].ravel()))
        verdict = Verdict(
            **{name: getattr(self, name)[i].item() for name in JUDGED},
            causes=causes(shown, shares),
            drifting=names[drifting] if drifting >= 0 else None,
        )
        return verdict.with_around(
            shown, np.append(around, self.unusual[i]), float(self._rate[device])
        )

    def put(self, at: Array, found: FleetVerdicts) -> None:
        """Put what was found of some rows into their places, which grow."""
        for name in COLUMNS:
            getattr(self, name)[at] = getattr(found, name)
        self.detail(at[found.detailed], found.values, found.wide)

    def detail(self, rows: Array, values: Array, wide: Array) -> None:
        """Add the details of rows."""
        if not len(rows):
            return
        lack = self.wide.shape[2] - wide.shape[2]  # features that these devices do not have
        values = np.pad(values, ((0, 0), (0, lack)), constant_values=np.nan)
        wide = np.pad(wide, ((0, 0), (0, 0), (0, lack)), constant_values=np.nan)
        rows = np.concatenate((self.detailed, rows))
        order = np.argsort(rows, kind="stable")
        self.detailed = rows[order]
        self.values = np.concatenate((self.values, values))[order]
        self.wide = np.concatenate((self.wide, wide))[order]

    def take(self, at: Array, said: Verdicts, details: Details) -> None:
        """Put the verdicts of one monitor on rows of its device into their places."""
        for name in COLUMNS:
            getattr(self, name)[at] = getattr(said, name)
        wanted = np.ones(len(said), bool) if details == "all" else said.is_anomaly
        if details == "none" or not wanted.any():
            return
        wide = np.stack((said.shares, said.expected, said.reach), axis=1)
        self.detail(at[wanted], said.values[wanted], wide[wanted])
