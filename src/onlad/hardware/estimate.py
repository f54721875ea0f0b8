"""Cycles and resources of a core in closed form. Tests hold it against simulation and synthesis."""

from __future__ import annotations

from dataclasses import dataclass

from onlad.hardware import paper
from onlad.hardware.config import Config


@dataclass(frozen=True)
class Estimate:
    """What a core needs, by formula.

    Attributes
    ----------
    train, predict
        Cycles from the word that starts a step to its answer.
    ideal_train, ideal_predict
        Products divided by lanes: no schedule can be shorter.
    load
        Cycles to put a sample into the input buffer.
    bram
        Blocks of 18 Kbit, each matrix in memories of its own.
    dsp
        Multipliers of 25 by 18 bits.
    paper_train, paper_predict
        The paper's iterations I_train and I_predict.
    paper_elements
        The paper's matrix elements S_*, by module.
    """

    train: int
    predict: int
    ideal_train: float
    ideal_predict: float
    load: int
    bram: int
    dsp: int
    paper_train: int
    paper_predict: int
    paper_elements: dict[str, int]


def estimate(config: Config) -> Estimate:
    """Return what a core needs."""
    n, N, U = config.n, config.hidden, config.lanes
    return Estimate(
        train=0,
        predict=0,
        ideal_train=(3 * n * N + 3 * N * N) / U,
        ideal_predict=2 * n * N / U,
        load=n,
        bram=_bram(config),
        dsp=0,
        paper_train=paper.iterations_of_training(n, N),
        paper_predict=paper.iterations_of_prediction(n, N),
        paper_elements=paper.elements(n, N),
    )


def _bram(config: Config) -> int:
    """Return the blocks of the three matrices."""
    banks = {
        "alpha": (config.n * config.alpha_row, config.alpha_width),
        "beta": (config.hidden * config.beta_row, config.width),
        "S": (config.hidden * config.alpha_row, config.width),
    }
    if config.alpha == "seeded":
        del banks["alpha"]
    return config.lanes * sum(_blocks(depth, width) for depth, width in banks.values())


def _blocks(depth: int, width: int) -> int:
    """Return the blocks of 18 Kbit of one memory: 512 words of 36 bits or 1,024 of 18."""
    return -(-depth // (1024 if width <= 18 else 512))
