"""What both banks check of what they are given: places, masks, and whether there is a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from onlad.errors import OnladError

T = TypeVar("T")


def is_tensor(given: Any) -> bool:
    """Return whether something is a tensor of PyTorch."""
    return type(given).__module__.partition(".")[0] == "torch"


def place(index: Any, count: int, what: str) -> int:
    """Return an index, which may count from the end, as one from 0 on; `what` is named by it."""
    if not isinstance(index, (int, np.integer)):
        raise TypeError(f"a {what} is named by its index, got {index!r:.60}")
    if not -count <= index < count:
        raise IndexError(f"there is no {what} {index}: the bank has {count}")
    return int(index) % count


def others(gone: Any, count: int, what: str) -> list[int]:
    """Return the places of all that stay when those with some indices are taken out."""
    places = {place(index, count, what) for index in np.atleast_1d(np.asarray(gone)).tolist()}
    return [at for at in range(count) if at not in places]


def mask_of(given: Any, shape: tuple[int, ...], what: str) -> Any:
    """Return a mask with one entry per row, (models, T), of rows of this shape.

    It is given for each row, or for each model; `what` is there where it is True.
    """
    mask: Any = given if hasattr(given, "dtype") else np.asarray(given)
    if str(mask.dtype) not in ("bool", "torch.bool"):
        raise TypeError(f"mask must hold bools, True where there is a {what}; got {mask.dtype}")
    if tuple(mask.shape) not in (shape[:1], shape):
        wanted = " or ".join(map(str, dict.fromkeys((shape[:1], shape))))
        raise ValueError(f"mask must have shape {wanted}, got {tuple(mask.shape)}")
    mask, whole = mask.reshape(shape[0], -1), (*shape, 1)[:2]
    return mask.expand(whole) if is_tensor(mask) else np.broadcast_to(mask, whole)


def on_gpu(device: str, make: Callable[[], T]) -> T:
    """Return what `make` makes on a GPU, or say what is missing for it."""
    if device != "cuda":
        raise ValueError(f"device must be cpu or cuda, got {device!r}")
    try:
        return make()
    except ImportError as error:
        missing = f"device='cuda' needs PyTorch and Triton ({error})"
        raise OnladError(f"{missing}: pip install 'onlad[gpu]'") from None
    except RuntimeError as error:
        if "no NVIDIA GPU" not in str(error):
            raise
        raise OnladError(f"device='cuda' needs a GPU, but {error}. Use 'cpu'") from None
