"""Cycles and resources of a core in closed form; tested against simulation and synthesis."""

from __future__ import annotations

from dataclasses import dataclass

from onlad.hardware import paper, sigmoid
from onlad.hardware.config import Config


@dataclass(frozen=True)
class Estimate:
    """What a core needs, by formula."""

    train: int  #: cycles from the word that starts a step to its answer
    predict: int  #: the same of a prediction
    ideal_train: float  #: products divided by lanes: no schedule can be shorter
    ideal_predict: float
    load: int  #: cycles to put a sample into the input buffer
    bram: int  #: blocks of 18 Kbit, each matrix in its own memories
    dsp: int  #: multipliers of 25 by 18 bits
    paper_train: int  #: the paper's iterations, I_train
    paper_predict: int  #: and I_predict
    paper_elements: dict[str, int]  #: the paper's matrix elements S_*, by module


def estimate(config: Config) -> Estimate:
    """Return what a core needs. Cycles are within 1 % and 12 cycles: a few depend on the data."""
    n, N, U = config.n, config.hidden, config.lanes
    return Estimate(
        train=_train(config),
        predict=_predict(config),
        ideal_train=(3 * n * N + 3 * N * N) / U,
        ideal_predict=2 * n * N / U,
        load=n,
        bram=_bram(config),
        dsp=U * DSP[config.width] + (config.activation == "sigmoid"),
        paper_train=4 * N**2 + (3 * n + 1) * N,  # eq:train_iter
        paper_predict=2 * n * N,  # eq:predict_iter
        paper_elements=paper.elements(n, N),
    )


DSP = {32: 4, 25: 2, 18: 1}  # of a lane
LUTRAM = 64  # words up to which yosys takes look-up tables for a memory
_SERIAL = 192  # cycles of root and quotients
_MEAN = 48  # of the product by 1/n, which a power of two does not need
_CURVE = 6  # of the sigmoid


def _train(config: Config) -> int:
    """Hidden; forward, gain, root; errors and teaching of each block; what does not overlap."""
    n, N, row = config.n, config.hidden, config.alpha_row
    passes = n * row + 3 * N * row + config.beta_row * (2 * N + 1)
    waits = max(0, _SERIAL - N * row - N)  # the gain pass hides it, if it is long enough
    return passes + waits + 2 * N + 2 * config.lanes + 157


def _predict(config: Config) -> int:
    """Hidden; errors of each block; the mean.

    Two blocks are under way at a time. When they are short, the path of a sum from the lanes to its
    error is what takes the time.
    """
    N, U = config.hidden, config.lanes
    block, way = N + 1, (N + 14 + U) / 2
    passes = config.n * config.alpha_row + config.beta_row * max(block, way)
    rest = 38 + 3 * U + 9 * (block >= way)
    rest += _MEAN * (config.n & (config.n - 1) != 0) + _CURVE * (config.activation == "sigmoid")
    return round(passes + rest)


def _bram(config: Config) -> int:
    """Return the blocks of all memories but the smallest, which are look-up tables."""
    U, N, row = config.lanes, config.hidden, config.alpha_row
    memories = [
        (U, N * config.beta_row, config.width),
        (U, N * row, config.width),
        (1, config.n, config.width),
        (U, 2 * row + 2, config.width),  # f, g and e
        (U, 2 * row, config.scalar_width),  # q and k
    ]
    if config.activation == "sigmoid":
        memories.append((1, sigmoid.SEGMENTS, sigmoid.VALUE_BITS + sigmoid.SLOPE_BITS))
    if config.alpha != "seeded":
        memories.append((U, config.n * row, config.alpha_width))
    return sum(count * _blocks(depth, width) for count, depth, width in memories)


def _blocks(depth: int, width: int) -> int:
    """Return the blocks of 18 Kbit of one memory, in the best of their shapes."""
    if depth <= LUTRAM:
        return 0
    shapes = ((512, 36), (1024, 18), (2048, 9), (4096, 4))  # words, bits
    return min(-(-depth // words) * -(-width // bits) for words, bits in shapes)
