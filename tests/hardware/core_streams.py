"""Data and words that the tests of the core share."""

from __future__ import annotations

import numpy as np

from onlad import reference
from onlad.hardware import fixed
from onlad.hardware.config import Config
from onlad.hardware.packets import Mode, Words, writes

WIND_UP = 1e4


def rows(n: int, count: int, seed: int, *, rank: int = 3, noise: float = 0.1) -> np.ndarray:
    """Return samples in [0, 1] that move with `rank` hidden causes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, rank)) @ rng.normal(size=(rank, n))
    X += noise * rng.normal(size=X.shape)
    return (X - X.min(0)) / (X.max(0) - X.min(0))


def start(config: Config, X: np.ndarray, seed: int = 0) -> reference.State:
    """Return a state that has learned `X`."""
    state = reference.init(config.n, config.hidden, seed=seed)
    if config.activation == "identity":
        state = state._replace(alpha=state.alpha / np.sqrt(config.n))
    return reference.fit(state, X, ridge=1e-2, activation=config.activation)


def load(
    config: Config, state: reference.State, factor: float, limit: float | None = None
) -> Words:
    """Return the words that bring a state into a core."""
    trace = float(np.trace(state.P))
    words, mantissa, exponent = fixed.root_words(config, np.linalg.cholesky(state.P))

    def data(values: np.ndarray) -> np.ndarray:
        return fixed.quantize(values, config.width, config.fraction)

    alpha = fixed.quantize(state.alpha, config.alpha_width, config.alpha_fraction)
    ridge = int(data(np.sqrt(config.hidden / trace)))
    limit = fixed.limit_word(WIND_UP * trace if limit is None else limit)
    registers = [round(factor * 2**config.ff_fraction), limit, ridge, mantissa, exponent]
    parts = [
        writes(Mode.B, data(state.b)),
        writes(Mode.BETA, data(state.beta)),
        writes(Mode.P, words),
        writes(Mode.FF, registers),
    ]
    if config.alpha != "seeded":
        parts.append(writes(Mode.ALPHA, alpha))
    return np.concatenate(parts)


def sample(config: Config, x: np.ndarray) -> Words:
    """Return the words that bring a sample into a core."""
    return writes(Mode.X, fixed.quantize(x, config.width, config.fraction))
