"""The words of the stream: 64 bits into the core, 32 bits out of it. Defined here and nowhere else.

An input word, the paper's 3-bit mode field first and its 61-bit data field after it::

    63  61 60  59                       32 31                             0
    +-----+---+---------------------------+-------------------------------+
    | mode| R |           index           |             value             |
    +-----+---+---------------------------+-------------------------------+

========  =======  =====================================  ==========================
mode      name     R = 0                                  R = 1: answered by
========  =======  =====================================  ==========================
0         PREDICT  do_prediction, answered by Score       word `index` of `Describe`
1         TRAIN    do_training, answered by Success       word `index` of `Status`
2         FF       update_ff: register `index` of `Ff`    the register
3         X        update_input: x[index] <- value        x[index]
4         ALPHA    update_params: alpha[index] <- value   alpha[index]
5         BETA     update_params: beta[index] <- value    beta[index]
6         P        update_params: P's root, S[index]      S[index]
7         B        update_params: b[index] <- value       b[index]
========  =======  =====================================  ==========================

Matrices are row-major. Values are two's complement in the formats of word `Describe.FORMATS`. A
word of zeros asks for a prediction, and harms nothing.

PREDICT, TRAIN and every word with R = 1 are answered by exactly one word, which carries the TLAST
of its request. No other word is answered. A TRAIN with index 1 is answered by the sample's Score
before the step instead of Success.

A bad word (an index out of range, a forgetting factor outside (0, 1], a value too wide for the
core) changes nothing; a bad read answers 0. Its reason is kept, and the next PREDICT or TRAIN is
refused: it computes nothing and answers with bit 31 set and the reasons in the low bits, which
clears them. So a sample that was damaged on its way is never scored and never learned. Score and
Success have bit 31 clear. After a reset PREDICT and TRAIN are refused until FF is written: load
the parameters first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag

import numpy as np
import numpy.typing as npt

from onlad.errors import OnladError

Words = npt.NDArray[np.uint64]
Values = npt.NDArray[np.int64]

MODE_SHIFT, READ_SHIFT, INDEX_SHIFT = 61, 60, 32
INDEX_BITS, VALUE_BITS = 28, 32
REFUSED = 1 << 31
MAGIC = 0x4F4E4C  # "ONL", in the three high bytes of Describe.IDENTITY
VERSION = 1  # of this layout, in its low byte


class Mode(IntEnum):
    """What a word is about."""

    PREDICT = 0
    TRAIN = 1
    FF = 2
    X = 3
    ALPHA = 4
    BETA = 5
    P = 6
    B = 7


class Ff(IntEnum):
    """Registers of update_ff: what forgetting needs. P = S S' / (m 4^z)."""

    FACTOR = 0  # a, 0 < a <= 1, with 30 fraction bits
    LIMIT = 1  # the wind-up guard acts while trace(P) is above it; see fixed.limit_word; 0: never
    RIDGE = 2  # what the guard puts back: sqrt(N / trace(P) at the start), as data
    MANTISSA = 3  # m, with 31 fraction bits, in [1/4, 1)
    EXPONENT = 4  # z, from -32 to 31


class Describe(IntEnum):
    """Words that tell what the core is. They never change."""

    IDENTITY = 0  # MAGIC and VERSION
    FEATURES = 1  # n
    HIDDEN = 2  # N
    LANES = 3
    FORMATS = 4  # bytes, low to high: width of a word, fraction bits of data, of FF, of Score
    OPTIONS = 5  # bytes, low to high: activation, storage of alpha, width of alpha, 0
    SEED = 6  # of a seeded alpha


class Status(IntEnum):
    """Words that count what the core has done. Reading them changes nothing."""

    REASONS = 0  # of the refusal to come
    CYCLES = 1  # from a PREDICT or TRAIN to its answer, the last one
    TRAINED = 2  # steps since reset, modulo 2^16 as all counts here
    SINGULAR = 3  # steps since reset that were not learned
    PAUSED = 4  # steps since reset that forgot nothing
    SATURATED = 5  # steps since reset in which a stored word was cut to its range


class Reason(IntFlag):
    """Why a training or a prediction was refused."""

    BAD_INDEX = 1  # an index out of range
    BAD_FACTOR = 2  # a forgetting factor outside (0, 1], or a negative limit
    BAD_VALUE = 4  # a value wider than the core's words
    NOT_READY = 8  # no forgetting factor since reset
    SINGULAR = 16  # the sample was not learned: TRAIN with index 1 has no score to answer with


class PacketError(OnladError):
    """A word that no core takes or gives."""


class CoreRefusedError(OnladError):
    """The core refused a training or a prediction, and says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(f"the core refused: {_in_words(reason)}")
        self.reason = reason


def _in_words(reason: Reason) -> str:
    texts = {
        Reason.BAD_INDEX: "an index was out of range",
        Reason.BAD_FACTOR: "a forgetting factor was outside (0, 1]",
        Reason.BAD_VALUE: "a value was too wide for the core's words",
        Reason.NOT_READY: "no forgetting factor was written since reset",
        Reason.SINGULAR: "the sample cannot be learned: a hidden sum left its word, or S'h is 0",
    }
    return "; ".join(text for bit, text in texts.items() if bit in reason)


@dataclass(frozen=True)
class Packet:
    """An input word, taken apart. `value` is signed."""

    mode: Mode
    read: bool
    index: int
    value: int

    def encode(self) -> int:
        """Return the word.

        >>> hex(Packet(Mode.BETA, False, 3, -1).encode())
        '0xa0000003ffffffff'
        """
        if not 0 <= self.index < 1 << INDEX_BITS:
            raise PacketError(f"index must fit {INDEX_BITS} bits, got {self.index}")
        if not -(1 << VALUE_BITS - 1) <= self.value < 1 << VALUE_BITS - 1:
            raise PacketError(f"value must fit {VALUE_BITS} signed bits, got {self.value}")
        head = self.mode << MODE_SHIFT | self.read << READ_SHIFT | self.index << INDEX_SHIFT
        return head | self.value & (1 << VALUE_BITS) - 1

    @classmethod
    def decode(cls, word: int) -> Packet:
        """Take any word of 64 bits apart.

        >>> Packet.decode(0)
        Packet(mode=<Mode.PREDICT: 0>, read=False, index=0, value=0)
        """
        if not 0 <= word < 1 << 64:
            raise PacketError(f"an input word has 64 bits, got {word:#x}")
        index = word >> INDEX_SHIFT & (1 << INDEX_BITS) - 1
        read = bool(word >> READ_SHIFT & 1)
        value = word & (1 << VALUE_BITS) - 1
        negative = value >> VALUE_BITS - 1
        return cls(Mode(word >> MODE_SHIFT), read, index, value - (negative << VALUE_BITS))


def writes(mode: Mode, values: npt.ArrayLike, start: int = 0) -> Words:
    """Return the words that write `values`, flattened row by row, at `start` and after it.

    >>> [Packet.decode(int(word)) for word in writes(Mode.X, [7, -7])][1]
    Packet(mode=<Mode.X: 3>, read=False, index=1, value=-7)
    """
    flat = np.asarray(values)
    if flat.dtype.kind not in "iu":
        raise PacketError(f"values of a packet are whole numbers, got {flat.dtype}")
    flat = flat.astype(np.int64).ravel()
    limit = 1 << VALUE_BITS - 1
    if flat.size and not (flat.min() >= -limit and flat.max() < limit):
        raise PacketError(f"values must fit {VALUE_BITS} signed bits")
    low = flat.astype(np.uint64) & np.uint64((1 << VALUE_BITS) - 1)
    return np.asarray(_heads(mode, False, start, flat.size) | low, np.uint64)


def reads(mode: Mode, count: int, start: int = 0) -> Words:
    """Return the words that ask for `count` values from `start` on."""
    return _heads(mode, True, start, count)


def _heads(mode: Mode, read: bool, start: int, count: int) -> Words:
    if not 0 <= start <= start + count <= 1 << INDEX_BITS:
        raise PacketError(f"indices must fit {INDEX_BITS} bits, got {start} to {start + count}")
    index = np.arange(start, start + count, dtype=np.uint64) << np.uint64(INDEX_SHIFT)
    return np.asarray(index | np.uint64(mode << MODE_SHIFT | read << READ_SHIFT), np.uint64)


def answered(words: Words) -> npt.NDArray[np.bool_]:
    """Return which input words the core answers: do_training, do_prediction, and what has R = 1."""
    return np.asarray(words >> np.uint64(READ_SHIFT) & np.uint64(1), np.bool_) | computes(words)


def computes(words: Words) -> npt.NDArray[np.bool_]:
    """Return which input words are do_training or do_prediction."""
    heads = words >> np.uint64(READ_SHIFT)  # the mode, then R
    return np.asarray((heads == Mode.PREDICT << 1) | (heads == Mode.TRAIN << 1))
