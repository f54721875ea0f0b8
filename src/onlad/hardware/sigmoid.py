"""The logistic function by a table of 512 chords on [0, 16): one memory block, one multiplier.

G(-z) = 1 - G(z), a unit in the last place of z aside. A chord lies at most
width^2 / 8 max|G''| = 1.18e-5 off the curve; the rounding of its ends adds 2^-20 and that of z the
same; beyond 16 the curve is within 1.2e-7 of 1.
"""

from __future__ import annotations

import numpy as np

from onlad.hardware.fixed import Ints, round_shift

SEGMENTS, PER_UNIT = 512, 32
VALUE_BITS, SLOPE_BITS = 20, 16  # together a word of 36 bits, as wide as a memory block
STEP_BITS = 14  # of the place within a segment
ERROR = 1.5e-5  # bound on |G - logistic| before its last rounding; tested on every input


def _ends() -> Ints:
    z = np.arange(SEGMENTS + 1) / PER_UNIT
    return np.minimum(
        np.floor(np.ldexp(1 / (1 + np.exp(-z)), VALUE_BITS) + 0.5), (1 << VALUE_BITS) - 1
    ).astype(np.int64)


#: Start of each chord, with VALUE_BITS fraction bits, and its rise to the next.
START: Ints = _ends()[:-1]
RISE: Ints = np.diff(_ends())


def sigmoid(z: Ints, fraction: int) -> Ints:
    """Return G(z) with the fraction bits of `z`, of which at least 5 are needed.

    >>> sigmoid(np.array([0, 1 << 24, -1 << 24]), 24) / 2**24
    array([0.5       , 0.73105..., 0.26894...])
    """
    sign = z < 0
    size = np.where(sign, ~z, z)
    # The place on the table: 9 bits of segment, 14 bits within; finer bits of z do not count.
    drop = fraction - 5 - STEP_BITS
    place = size >> drop if drop > 0 else size << -drop
    segment = np.minimum(place >> STEP_BITS, SEGMENTS - 1)
    within = np.where(
        place >> STEP_BITS >= SEGMENTS, (1 << STEP_BITS) - 1, place & (1 << STEP_BITS) - 1
    )
    high = (START[segment] << STEP_BITS) + RISE[segment] * within  # VALUE_BITS + STEP_BITS
    word = round_shift(high, VALUE_BITS + STEP_BITS - fraction)
    return np.where(sign, (1 << fraction) - word, word)
