"""`Said`: verdicts of many devices as tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from onlad.fleet.tensors.pool import FLOAT
from onlad.fleet.verdicts import COLUMNS, ON_GPU


class Details(NamedTuple):
    """What is wide, of some rows. `row` is the number of a row among those given."""

    row: Any  # (k,)
    shares: Any  # (k, n)
    around: Any  # (k, 2 n): expected values, half widths of bands

    def widened(self, columns: int) -> Details:
        """Return the same with columns of features that devices do not have."""
        n = self.shares.shape[1]
        parts = self.shares, self.around[:, :n], self.around[:, n:]
        shares, *around = (
            torch.nn.functional.pad(part, (0, columns), value=torch.nan) for part in parts
        )
        return Details(self.row, shares, torch.cat(around, 1))


class Said:
    """Verdicts of rows as tensors, (devices, rows); `details` are of alarms alone, or of all."""

    details: Details

    if TYPE_CHECKING:  # a column

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, devices: int, rows: int, features: int, device: str) -> None:
        for name in ON_GPU:
            kind, first = COLUMNS[name]
            made = torch.full((devices, rows), first, dtype=getattr(torch, kind), device=device)
            setattr(self, name, made)
        wide = torch.empty(0, features, dtype=FLOAT, device=device)
        around = torch.empty(0, 2 * features, dtype=FLOAT, device=device)
        none = torch.empty(0, dtype=torch.int64, device=device)
        self.details = Details(none, wide, around)
        self._parts: list[Details] = []

    def add(self, details: Details) -> None:
        """Keep the details of more rows."""
        self._parts.append(details)

    def close(self) -> Said:
        """Put all details together, in the order of their rows."""
        if self._parts:
            row, shares, around = (torch.cat(part) for part in zip(*self._parts, strict=True))
            order = row.argsort()
            self.details = Details(row[order], shares[order], around[order])
            self._parts = []
        return self
