"""Where a number lies in the dump of a chip: the offsets of `c/onlad.c`, for Python."""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from onlad.mode import STATISTICS
from onlad.reference import Array
from onlad.watching import TICK

DELAY = TICK  # rows after which a row is learned
WARMUP = 384  # rows of the start of a mode
PARTS, LEAST_WARMUP, MOST_WARMUP = 12, 96, 98_304  # of a start: its rows are a multiple of PARTS
MOST_MODES = 255
HEADER = struct.Struct("<4s8I")  # magic, version, sizes, checksum of the layer, sequence number
MAGIC, VERSION = b"ONLC", 3
FIXED_VERSION = 0x103  # words where the other has floats
WORD, WEIGHT = 2.0**20, 2.0**12  # one, in entries of U and beta and in the layer, in fixed point
BINS = 97  # of the histogram of recent scores
BEFORE = 12  # bytes: bins of the scores counted last
COUNTS = (
    "seen", "ready", "position", "current", "warmup", "paused", "ticked", "refused",
    "total", "since", "episode", "alarms", "explained", "foreign", "idle",
    "anchored", "settling", "anchor_rows", "drifting", "run",
)  # fmt: skip
SCALARS = ("rate", "factor", "now", "gate", "doubt", "last", "peak", "highest")
FREE, MODE, BEGINNING, WAITING, TWIN = range(5)  # roles of a place
OPEN, UNUSUAL, JUDGED, ALONE = 256, 512, 1024, 2048  # flags of a row
SCORED = 16  # the bit from which on they have the bin of its score


VERDICT: list[Any] = [  # onlad_verdict
    *((name, "<f4") for name in ("score", "threshold", "p_value")),
    *((name, "?") for name in ("ready", "is_anomaly", "learned", "drift")),
    ("drifting", "<i4"),
    ("causes", [("feature", "<i4"), ("share", "<f4")], (3,)),
]
Field: TypeAlias = tuple[str, Any, tuple[int, ...]]


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

    def fields(self) -> list[Field]:
        """Return name, type and shape of all between the header of a dump and its checksum."""
        n, d, u = self.features, self.inputs, self.units
        mode = {
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
        rest = {
            "anchor_beta": (n, d),
            "anchor": (6, n),  # centre, scale, deviation, lean, two halves
            "ring": (self.ring, n),
            "leans": (2, n),
            "first_leans": (2, n),
            "age": (n,),
            "patience": (n,),
            "counted": (n,),  # the last value of a counter
            **dict.fromkeys(SCALARS, ()),
            "means": (STATISTICS,),
            "starting": (5, STATISTICS),
        }
        return [
            *((name, "<u4", ()) for name in COUNTS),
            ("places", "<u4", (self.modes, 4)),  # role, rows, weight, begun
            ("histogram", "<u2", (BINS, 2)),  # rows, and those that follow one as high
            ("before", "<u1", (BEFORE,)),
            ("flags", "<u4", (self.ring,)),
            ("masks", "<u4", (self.ring, self.masks)),
            ("modes", [(name, "<f4", shape) for name, shape in mode.items()], (self.modes,)),
            *((name, "<f4", shape) for name, shape in rest.items()),
        ]

    @property
    def dump(self) -> int:
        """Bytes of a dump: `ONLAD_DUMP`."""
        return HEADER.size + _bytes(self.fields()) + 4

    def ram(self, fixed: bool = False) -> int:
        """Return the bytes of `onlad_monitor`: what is dumped, and the numbers of one row."""
        n = self.features
        scratch = self.inputs + max(self.inputs, self.units, 3 * n) + 3 * n
        scratch += (self.inputs + self.hidden + 1) // 2 if fixed else self.hidden
        return _bytes(self.fields()) + 4 * scratch

    def state(self, dump: bytes | None = None) -> Array:
        """Return the numbers of a dump, or zeros, as an array that can be written to."""
        data = bytearray(self.dump if dump is None else dump)[HEADER.size : -4]
        return np.frombuffer(data, self.fields()).reshape(())


def following(state: int) -> int:
    """Return the next state of the chip's random numbers, of 32 bits."""
    return (state * 1_664_525 + 1_013_904_223) % 2**32


def _bytes(fields: list[Field]) -> int:
    """Return how many bytes fields take, also where NumPy could not hold them."""
    return sum(
        math.prod(shape) * (int(kind[-1]) if isinstance(kind, str) else _bytes(kind))
        for _, kind, shape in fields
    )
