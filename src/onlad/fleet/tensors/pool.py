"""`Pool`: tensors with one entry per member, which grow and are copied together."""

from __future__ import annotations

from typing import Any

import torch

FLOAT = torch.float64


def tensor(array: Any, device: str, dtype: Any = None) -> Any:
    """Return a copy of an array as a tensor on the device."""
    return torch.as_tensor(array).to(device, dtype, copy=True)


class Pool:
    """Members of one kind; a subclass names its tensors and their shapes in `fields`."""

    device: str

    def fields(self) -> dict[str, tuple[tuple[int, ...], Any, float]]:
        """Return shape, type and first value of each tensor, by its name."""
        raise NotImplementedError

    def make(self, count: int, device: str) -> None:
        """Make the tensors of `count` members."""
        self.device = device
        for name, (shape, dtype, first) in self.fields().items():
            made = torch.full((count, *shape), first, dtype=dtype, device=device)
            setattr(self, name, made)

    def grow(self, count: int) -> None:
        """Add members at the end."""
        for name, (shape, dtype, first) in self.fields().items():
            more = torch.full((count, *shape), first, dtype=dtype, device=self.device)
            old = getattr(self, name)
            setattr(self, name, more if len(old) == 0 else torch.cat((old, more)))

    def copy(self, to: Any, source: Pool, at: Any) -> None:
        """Copy members from their places in another pool."""
        for name in self.fields():
            getattr(self, name)[to] = getattr(source, name)[at]

    def nbytes(self) -> int:
        """Return the bytes of all tensors."""
        return sum(getattr(self, name).nbytes for name in self.fields())
