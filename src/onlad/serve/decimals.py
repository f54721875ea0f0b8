"""Measurements in half their bytes, to the last bit: most have a few decimal places.

21.375 with three places is the whole number 21375, which has four bytes where a float64 has eight.
A block is packed only if each of its values comes back as it was.
"""

from __future__ import annotations

import struct

import numpy as np

from onlad.reference import Array

# Which numbers of places are tried, by the largest value: a value with few places is one with more,
# as long as the whole number has its place in four bytes.
TRIED = ((2_000.0, (4, 6)), (200_000.0, (4,)), (20_000_000.0, (2,)), (2_000_000_000.0, (0,)))
_PLACES = struct.Struct("<B")


def packed(X: Array) -> bytes | None:
    """Return a block in half its bytes, or None if that would not keep all its bits."""
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
                    return _PLACES.pack(places) + whole.tobytes()
            return None
    return None


def unpacked(data: bytes, rows: int, features: int) -> Array:
    """Return the block that `packed` made bytes of."""
    (places,) = _PLACES.unpack_from(data)
    whole = np.frombuffer(data, "<i4", rows * features, _PLACES.size).reshape(rows, features)
    X: Array = whole / 10.0**places
    return X
