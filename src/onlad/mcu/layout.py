"""Where a number lies in the dump of a chip: the offsets of `c/onlad.c`, for Python."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from onlad.mode import STATISTICS
from onlad.reference import Array
from onlad.watching import TICK

DELAY = TICK  # rows after which a row is learned
WARMUP = 384  # rows of the start of a mode
HEADER = struct.Struct("<4s8I")  # magic, version, sizes, checksum of the layer, sequence number
MAGIC, VERSION = b"ONLC", 3
FIXED_VERSION = 0x103  # words where the other has floats
WORD, WEIGHT = 2.0**20, 2.0**12  # one, in entries of U and beta and in the layer, in fixed point
BINS = 97  # of the histogram of recent scores
BEFORE = 3  # words of the bins of the scores counted last, a byte each
COUNTS = (
    "seen", "ready", "position", "current", "warmup", "paused", "ticked", "refused", "since",
    "episode", "alarms", "explained", "foreign", "idle", "anchored", "settling", "anchor_rows",
    "drifting", "total",
)  # fmt: skip
SCALARS = ("rate", "factor", "now", "gate", "doubt", "last", "peak", "highest")
FREE, MODE, BEGINNING, WAITING, TWIN = range(5)  # roles of a place
OPEN, UNUSUAL, JUDGED = 256, 512, 1024  # flags of a row
SCORED = 16  # the bit from which on they have the bin of its score


class Sizes(NamedTuple):
    """The sizes of a chip's monitor."""

    features: int
    window: int
    groups: int
    units: int
    modes: int

    @property
    def inputs(self) -> int:
        """Inputs of the linear instance: a constant, and the window."""
        return self.features * self.window + 1

    @property
    def hidden(self) -> int:
        """Tanh units in all."""
        return self.groups * self.units

    @property
    def ring(self) -> int:
        """Rows that are kept."""
        return DELAY + self.window

    @property
    def masks(self) -> int:
        """Words that say which features of a row are present."""
        return (self.features + 31) // 32

    def mode_parts(self) -> dict[str, tuple[int, ...]]:
        """Return the arrays of a mode in order, with their shapes."""
        n, d, u = self.features, self.inputs, self.units
        return {
            "centre": (n,),
            "scale": (n,),
            "linear": (d * (d + 1) // 2,),
            "tanh": (self.groups, u * (u + 1) // 2),
            "beta": (n, u),
            "usual": (2, n),
            "largest": (2, n),
            "leaning": (2, n),
            "levels": (6, STATISTICS),
        }

    def common_parts(self) -> dict[str, tuple[int, ...]]:
        """Return the arrays after the modes."""
        n = self.features
        return {
            "anchor_beta": (n, self.inputs),
            "anchor": (6, n),  # centre, scale, deviation, lean, two halves
            "ring": (self.ring, n),
            "leans": (2, n),
            "first_leans": (2, n),
            "age": (n,),
            "patience": (n,),
            "counted": (n,),  # the last value of a counter
            "scalars": (len(SCALARS),),
            "means": (STATISTICS,),
            "starting": (5, STATISTICS),
        }

    @property
    def counts(self) -> int:
        """Whole numbers: `ONLAD_COUNTS`."""
        return len(COUNTS) + 4 * self.modes + BINS + BEFORE + self.ring * (1 + self.masks)

    @property
    def floats(self) -> int:
        """All others: `ONLAD_FLOATS`."""
        mode = sum(int(np.prod(shape)) for shape in self.mode_parts().values())
        common = sum(int(np.prod(shape)) for shape in self.common_parts().values())
        return self.modes * mode + common

    @property
    def dump(self) -> int:
        """Bytes of a dump: `ONLAD_DUMP`."""
        return HEADER.size + 4 * (self.counts + self.floats) + 4

    def ram(self, fixed: bool = False) -> int:
        """Return the bytes of `onlad_monitor`: what is dumped, and the numbers of one row."""
        scratch = self.inputs + max(self.inputs, self.units) + 6 * self.features
        scratch += (self.inputs + self.hidden + 1) // 2 if fixed else self.hidden
        return 4 * (self.counts + self.floats + scratch)


class State:
    """A dump as arrays, by name; they are views, so that what is written to them is in it."""

    def __init__(self, sizes: Sizes, data: bytes | None = None) -> None:
        self.sizes = sizes
        body = slice(HEADER.size, sizes.dump - 4)
        self.words: Array = np.zeros(sizes.counts + sizes.floats, "<u4")
        if data is not None:
            self.words[:] = np.frombuffer(data[body], "<u4")
        counts, floats = self.words[: sizes.counts], self.words[sizes.counts :].view("<f4")
        self.counts = counts[: len(COUNTS)]
        at = len(COUNTS)
        self.places = counts[at : at + 4 * sizes.modes].reshape(-1, 4)  # role, rows, weight, begun
        at += 4 * sizes.modes
        self.histogram = counts[at : at + BINS].view("<u2").reshape(BINS, 2)
        at += BINS
        self.before = counts[at : at + BEFORE].view("u1")
        at += BEFORE
        self.flags = counts[at : at + sizes.ring]
        self.masks = counts[at + sizes.ring :].reshape(sizes.ring, sizes.masks)
        self.modes: list[dict[str, Array]] = []
        for _ in range(sizes.modes):
            parts, floats = _split(sizes.mode_parts(), floats)
            self.modes.append(parts)
        self.common, _ = _split(sizes.common_parts(), floats)

    def _place(self, name: str) -> tuple[Array, int]:
        if name in COUNTS:
            return self.counts, COUNTS.index(name)
        return self.common["scalars"], SCALARS.index(name)

    def __getitem__(self, name: str) -> float:
        array, at = self._place(name)
        return float(array[at])

    def __setitem__(self, name: str, value: float) -> None:
        array, at = self._place(name)
        array[at] = value


def _split(parts: dict[str, tuple[int, ...]], floats: Array) -> tuple[dict[str, Array], Array]:
    found = {}
    for name, shape in parts.items():
        size = int(np.prod(shape))
        found[name], floats = floats[:size].reshape(shape), floats[size:]
    return found, floats
