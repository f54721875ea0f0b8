"""Fixed point: what rounding, saturation and a root with an exponent mean. Defined here alone.

A word w with f fraction bits means w / 2^f. Sums of products are exact; a sum is rounded once, half
up, and saturated once, when it is stored. Sums that make h, e, f and g lose their lowest
`Config.sum_cut` bits before, which lie far below what rounding takes.

The root S of P = S S' is block floating: the core stores words of S^ with |S^| < 1, and
P = S^ S^' / (m 4^z) with one mantissa m in [1/4, 1) and one exponent z. Forgetting makes m smaller
and touches no word.
"""

from __future__ import annotations

from math import frexp, ldexp

import numpy as np
import numpy.typing as npt

from onlad.hardware.config import Config

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MANTISSA_BITS = 31  # of m
EXPONENTS = range(-32, 32)  # of z
SCALAR_BITS = 40  # fraction bits of d and what comes of it
QUOTIENT_BITS = 40  # fraction bits of 1 / d
TRACE_BITS, TRACE_FRACTION = 40, 14  # of the trace of S^ S^'
COARSE = 8  # fraction bits that a large k gives up


def round_shift(value: Ints, shift: int) -> Ints:
    """Return value / 2^shift, rounded half up.

    >>> round_shift(np.array([5, 6, 7, -5, -6, -7]), 2).tolist()
    [1, 2, 2, -1, -1, -2]
    """
    if shift <= 0:
        return value << -shift
    return (value + (1 << shift - 1)) >> shift


def saturate(value: Ints, width: int) -> Ints:
    """Return the nearest values that fit `width` signed bits.

    >>> saturate(np.array([7, 8, -8, -9]), 4).tolist()
    [7, 7, -8, -8]
    """
    top = (1 << width - 1) - 1
    return np.minimum(np.maximum(value, -top - 1), top)


def quantize(floats: npt.ArrayLike, width: int, fraction: int) -> Ints:
    """Return the words nearest to `floats`."""
    scaled = np.floor(np.ldexp(np.asarray(floats, np.float64), fraction) + 0.5)
    limit = float(1 << width - 1)
    return np.clip(scaled, -limit, limit - 1).astype(np.int64)


def value(words: npt.ArrayLike, fraction: int) -> Floats:
    """Return what words mean."""
    return np.ldexp(np.asarray(words, np.float64), -fraction)


def product_shift(a: Ints, b: Ints, shift: int, base: Ints | int = 0) -> Ints:
    """Return base + a b / 2^shift, rounded half up, where a b may need 67 bits.

    ``a`` has at most 32 bits and ``b`` 35. The halves of ``b`` are multiplied apart; a shift below
    17 is for words of 18 bits, whose products fit.
    """
    half = 1 << shift - 1
    if shift < 17:
        return base + ((a * b + half) >> shift)
    low, high = b & 0x1FFFF, b >> 17
    return base + ((high * a + ((low * a + half) >> 17)) >> (shift - 17))


def bit_length(values: list[int]) -> int:
    """Return the bits, without sign, that the widest of `values` needs. -1 needs none."""
    return max((v ^ (v >> 127)).bit_length() for v in values)


def root_words(config: Config, S: npt.ArrayLike) -> tuple[Ints, int, int]:
    """Return words, mantissa and exponent of a root of P, as the core wants them."""
    S = np.asarray(S, np.float64)
    _, exponent = frexp(float(np.abs(S).max()))
    z = min(max(1 - exponent, EXPONENTS[0]), EXPONENTS[-1])
    # m = 1/4, so S^ = S 2^z / 2.
    return quantize(np.ldexp(S, z - 1), config.width, config.root_fraction), 1 << 29, z


def root_value(config: Config, words: npt.ArrayLike, mantissa: int, exponent: int) -> Floats:
    """Return the root of P that a core holds."""
    S: Floats = value(words, config.root_fraction) / np.sqrt(ldexp(mantissa, -MANTISSA_BITS))
    return value(S, exponent)


def limit_word(limit: float) -> int:
    """Return the word of register LIMIT: a mantissa of 23 bits over a signed exponent of 8."""
    if not limit > 0:
        return 0
    fraction, exponent = frexp(limit)
    mantissa = min(round(ldexp(fraction, 23)), (1 << 23) - 1)
    exponent = min(max(exponent - 23, -128), 127)
    return mantissa << 8 | exponent & 0xFF


def limit_value(word: int) -> float:
    """Return the limit of the wind-up guard; 0 is none."""
    exponent = (word & 0xFF) - (word >> 7 & 1) * 256
    return ldexp(word >> 8, exponent)
