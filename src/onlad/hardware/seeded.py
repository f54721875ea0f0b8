"""alpha without a memory: random words that the core makes again in every step.

Each lane has a 32-bit xorshift generator (Marsaglia's 13, 17, 5). It starts anew with each hidden
layer, and its highest 18 bits are the next word of the lane's columns, feature by feature.
"""

from __future__ import annotations

import numpy as np

from onlad.hardware.config import Config
from onlad.hardware.fixed import Floats, Ints, value

SHIFTS = (13, -17, 5)
_MASK = (1 << 32) - 1


def advance(state: int) -> int:
    """Return the generator's next state; from any but 0 it takes 2^32 - 1 steps to come round."""
    for shift in SHIFTS:
        state ^= (state << shift if shift > 0 else state >> -shift) & _MASK
    return state


def lane_seeds(config: Config) -> list[int]:
    """Return the state each lane starts from."""
    seeds = [(config.seed + lane * 0x9E3779B9) & _MASK or 1 for lane in range(config.lanes)]
    for _ in range(16):  # neighbouring seeds part
        seeds = [advance(seed) for seed in seeds]
    return seeds


def seeded_alpha(config: Config) -> Ints:
    """Return the words of alpha (n, N) that a seeded core works with."""
    rows, U = config.alpha_row, config.lanes
    state = np.array(lane_seeds(config), np.uint32)
    made = np.empty((rows, config.n, U), np.uint32)
    for block in range(rows):
        for i in range(config.n):
            made[block, i] = state
            for shift in SHIFTS:
                state ^= state << np.uint32(shift) if shift > 0 else state >> np.uint32(-shift)
    words: Ints = made.view(np.int32).astype(np.int64) >> 32 - config.alpha_width
    columns = words.transpose(1, 0, 2).reshape(config.n, rows * U)
    return np.array(columns[:, : config.hidden], np.int64)


def weights(config: Config) -> Floats:
    """Return what the words mean."""
    return value(seeded_alpha(config), config.alpha_fraction)
