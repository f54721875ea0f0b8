"""Measurements in half or a quarter of their bytes, to the last bit: most have few places.

21.375 with three places is the whole number 21375, which has four bytes where a float64 has eight.
Where the values of each column lie close together, two bytes are enough for what they are above the
smallest. A block is packed only if each of its values comes back as it was.
"""

from __future__ import annotations

import struct

import numpy as np

from onlad.reference import Array

# Which numbers of places are tried, by the largest value: a value with few places is one with more,
# as long as the whole number has its place in four bytes.
TRIED = ((2_000.0, (4, 6)), (200_000.0, (4,)), (20_000_000.0, (2,)), (2_000_000_000.0, (0,)))
NARROW = 0x80  # added to the places of a block with two bytes per value
_PLACES = struct.Struct("<B")


def packed(X: Array) -> bytes | None:
    """Return a block in few bytes, or None if that would not keep all its bits."""
    if X.size == 0:
        return None
    largest = float(np.abs(X).max())
    for limit, tried in TRIED:
        if largest < limit:  # never true of NaN
            raw = X.tobytes()
            for places in tried:
                scale = 10.0**places
                whole = np.rint(X * scale).astype("<i4")
                # By bits: 0.0 and -0.0 are equal, and not the same.
                if (whole / scale).tobytes() == raw:
                    narrow = _narrow(places, whole) if len(X) > 2 else None
                    return narrow or _PLACES.pack(places) + whole.tobytes()
            return None
    return None


def _narrow(places: int, whole: Array) -> bytes | None:
    """Return whole numbers above the smallest of their column, or None if they are too wide."""
    low, high = whole.min(axis=0), whole.max(axis=0)
    widest = int((high.astype(np.int64) - low).max())
    while widest > 0xFFFF:
        # The quotient is the same fraction with fewer places, so it comes back as the same bits.
        if not places or widest > 0xFFFF * 10**places or (whole % 10).any():
            return None
        places, whole, low, widest = places - 1, whole // 10, low // 10, widest // 10
    parts = (low.astype("<i4"), (whole - low).astype("<u2"))
    return b"".join((_PLACES.pack(places | NARROW), *(part.tobytes() for part in parts)))


def unpacked(data: bytes, rows: int, features: int) -> Array:
    """Return the block that `packed` made bytes of."""
    (places,) = _PLACES.unpack_from(data)
    at, count = _PLACES.size, rows * features
    if places & NARROW:
        low = np.frombuffer(data, "<i4", features, at)
        whole = np.frombuffer(data, "<u2", count, at + low.nbytes).reshape(rows, features) + low
    else:
        whole = np.frombuffer(data, "<i4", count, at).reshape(rows, features)
    X: Array = whole / 10.0 ** (places & ~NARROW)
    return X
