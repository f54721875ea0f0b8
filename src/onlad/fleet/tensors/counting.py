"""`rates`: values of counters as rates, for many devices; `onlad.counter` defines it."""

from __future__ import annotations

from typing import Any

import torch

from onlad.counter import RESET
from onlad.fleet.tensors.pool import FLOAT


def rates(counted: Any, X: Any, counts: Any) -> tuple[Any, Any, Any, Any]:
    """Return rows with rates, base and gap of each value, and what was counted after the rows.

    `counted` is (devices, 2, n), and of device i the first ``counts[i]`` rows of `X`, (devices,
    rows, n), are there; None: all.
    """
    last, since = counted.unbind(1)
    counting = ~last.isnan()[:, None]
    T = X.shape[1]
    order = torch.arange(T, device=X.device)[None, :, None]
    newest = torch.where(X.isnan(), -1, order).cummax(1).values  # a value, up to each row
    before = torch.nn.functional.pad(newest, (0, 0, 1, 0), value=-1)[:, :-1]
    seen = before >= 0
    base = torch.where(seen, X.gather(1, before.clamp(min=0)), last[:, None])
    gap = torch.where(seen, (order - before).to(FLOAT), since[:, None] + order + 1)
    reset = (base > X) & (X.abs() <= RESET * base.abs())
    found = (X - torch.where(reset, 0.0, base)) / gap
    end = torch.full_like(newest[:, 0, 0], T) if counts is None else counts
    final = newest.gather(1, (end - 1).clamp(min=0)[:, None, None].expand(-1, 1, X.shape[2]))
    final = torch.where((end > 0)[:, None], final[:, 0], -1)
    value = X.gather(1, final.clamp(min=0)[:, None])[:, 0]
    rows = torch.where(final >= 0, (end[:, None] - 1 - final).to(FLOAT), since + end[:, None])
    after = torch.stack((torch.where(final >= 0, value, last), rows), 1)
    after = torch.where(counting, after, counted)
    rated = torch.where(counting, found, X)
    return rated, torch.where(counting, base, 0.0), torch.where(counting, gap, 1.0), after
