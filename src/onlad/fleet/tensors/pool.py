"""`Pool`: tensors with one entry per member, which grow and are copied together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import torch

FLOAT = torch.float64  # of what is computed, and of raw values
SINGLE = torch.float32  # of what is kept from tick to tick
HALF = torch.float16  # of rows that are learned once, and of scores
LARGEST_HALF = torch.finfo(torch.float16).max
STEPS = 2**23 - 1  # of a number in three bytes

Fields: TypeAlias = dict[str, tuple[tuple[int, ...], Any, float]]


def tensor(array: Any, device: str, dtype: Any = None) -> Any:
    """Return a copy of an array as a tensor on the device."""
    return torch.as_tensor(array).to(device, dtype, copy=True)


def three_bytes(values: Any) -> Any:
    """Return numbers between -1 and 1 as three bytes each, (..., 3)."""
    wide = (values * STEPS).round_().to(torch.int32).bitwise_left_shift_(8)
    return wide[..., None].view(torch.uint8)[..., 1:]


def of_three_bytes(kept: Any) -> Any:
    """Return the numbers that `three_bytes` was given."""
    wide = torch.zeros(*kept.shape[:-1], 4, dtype=torch.uint8, device=kept.device)
    wide[..., 1:] = kept
    return wide.view(torch.int32)[..., 0].to(FLOAT).div_(256 * STEPS)


def halved(values: Any) -> Any:
    """Return numbers in half precision, none of them infinite."""
    return values.clamp(-LARGEST_HALF, LARGEST_HALF).to(HALF)


class Pool:
    """Members of one kind; a subclass names its tensors and their shapes in `fields`."""

    device: str
    free: list[int]  # places that nobody has

    if TYPE_CHECKING:  # a tensor

        def __getattr__(self, name: str) -> Any: ...

    def fields(self) -> Fields:
        """Return shape, type and first value of each tensor, by its name."""
        raise NotImplementedError

    def make(self, count: int, device: str) -> None:
        """Make the tensors of `count` members."""
        self.device, self.free = device, []
        for name, (shape, dtype, first) in self.fields().items():
            made = torch.full((count, *shape), first, dtype=dtype, device=device)
            setattr(self, name, made)

    def __len__(self) -> int:
        return len(getattr(self, next(iter(self.fields()))))

    def claim(self, count: int, spare: float = 0.5) -> Any:
        """Return free places; where there are too few, add at least a share `spare` of all."""
        short, size = count - len(self.free), len(self)
        if short > 0:
            self.grow(max(short, int(spare * size)))
            self.free += range(size, len(self))
        found = torch.tensor(self.free[:count], dtype=torch.int64, device=self.device)
        del self.free[:count]
        return found

    def grow(self, count: int) -> None:
        """Add members at the end."""
        for name, (shape, dtype, first) in self.fields().items():
            more = torch.full((count, *shape), first, dtype=dtype, device=self.device)
            old = getattr(self, name)
            setattr(self, name, more if len(old) == 0 else torch.cat((old, more)))

    def write(self, name: str, at: Any, values: Any) -> None:
        """Put values, in the precision that is kept, into the places of members."""
        kept = getattr(self, name)
        kept[at] = values.to(kept.dtype)

    def array(self, name: str, at: Any) -> Any:
        """Return what is kept of members as an array of its own, numbers with 64 bits."""
        kept = getattr(self, name)[at]
        whole = kept if kept.dtype == torch.bool else kept.long()
        return (kept.to(FLOAT) if kept.is_floating_point() else whole).cpu().numpy().copy()

    def copy(self, to: Any, source: Pool, at: Any) -> None:
        """Copy members from their places in another pool."""
        for name in self.fields():
            getattr(self, name)[to] = getattr(source, name)[at]

    def nbytes(self) -> int:
        """Return the bytes of all tensors."""
        return sum(getattr(self, name).nbytes for name in self.fields())
