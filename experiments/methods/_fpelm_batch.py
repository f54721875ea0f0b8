"""FPELM-AE's block form (`fpelm`) for a GPU: many streams at once, each with settings of its own.

K_t = a^2 K_{t-1} + h_t h_t' costs little, and given all K_t of a block the solves
w_t = (r I + K_{t-1})^-1 h_t do not wait for one another: those of a block and of all streams are
one batch. All is float64, so JAX must run with ``jax_enable_x64``. Nothing here needs the compiled
library, which a machine with a GPU may lack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve

from experiments.methods import Hyperparameters
from experiments.methods._autoencoder import stacked
from experiments.testbeds import Array, Trial

BYTES = 4 << 30  # of a block's matrices r I + K; their factors and copies take as much again each
ROWS = 256  # a block has no more


class Models(NamedTuple):
    """What no step changes, one of each a stream: see `onlad.reference` for the symbols."""

    alpha: Any
    b: Any
    sigmoid: Any  # or else identity
    a2: Any  # a^2 and r with two more axes, as they meet matrices
    r: Any


def _draw(settings: Sequence[Hyperparameters], n_features: int, seeds: Sequence[int]) -> Models:
    """Return the models with the weights that `onlad.reference.draw` gives."""
    layers = []
    for setting, seed in zip(settings, seeds, strict=True):
        rng, N = np.random.default_rng(seed), setting["n_hidden"]
        layers.append((rng.uniform(-1, 1, (n_features, N)), rng.uniform(-1, 1, N)))
    alpha, b = map(np.stack, zip(*layers, strict=True))
    a2, r = (np.array([[[s[name]]] for s in settings]) for name in ("forgetting", "ridge"))
    return Models(alpha, b, np.array([s["activation"] == "sigmoid" for s in settings]), a2**2, r)


def _hidden(models: Models, x: Any) -> Any:
    z = x @ models.alpha + models.b[:, None]
    return jnp.where(models.sigmoid[:, None, None], jax.nn.sigmoid(z), z)


def _fit(models: Models, x: Any, used: Any) -> tuple[Any, Any]:
    """Return K and V after the initial samples; `used` is 0 where a row is padding."""
    H = _hidden(models, x) * used[:, :, None]
    return H.mT @ H, H.mT @ x


def _block(models: Models, state: tuple[Any, Any], x: Any) -> tuple[tuple[Any, Any], Any]:
    """Return K and V after a block of each stream, and each sample's error before it is learned."""
    K, V = state
    H, a2, regular = _hidden(models, x), models.a2, models.r * jnp.eye(K.shape[-1])

    def learn(K: Any, h: Any) -> tuple[Any, Any]:
        return a2 * K + h[:, :, None] * h[:, None, :], regular + K

    in_turn = H.swapaxes(0, 1)
    K, met = jax.lax.scan(learn, K, in_turn)
    factors = jax.lax.linalg.cholesky(met, symmetrize_input=False)
    W = cho_solve((factors, True), in_turn[..., None])[..., 0].swapaxes(0, 1)
    t = jnp.arange(x.shape[1])
    older = t[:, None] - 1 - t  # steps from s to the state that sample t meets
    weights = jnp.where(older >= 0, a2 ** jnp.maximum(older, 0), 0.0)
    E = x - a2 ** t[:, None] * (W @ V) - ((W @ H.mT) * weights) @ x
    V = a2 ** len(t) * V + (H * a2 ** t[::-1, None]).mT @ x
    return (K, V), jnp.mean(E * E, axis=-1)


@jax.jit
def _run(models: Models, X: Any, first: Any, used: Any, rows: Any) -> Any:
    def samples(rows: Any) -> Any:
        return X[rows].astype("float64")

    state = _fit(models, samples(first), used)
    return jax.lax.scan(lambda state, rows: _block(models, state, samples(rows)), state, rows)[1]


def stream(settings: Sequence[Hyperparameters], trials: Sequence[Trial]) -> list[Array]:
    """Return the scores of online trials, all at once: trial k has setting k.

    The settings have one hidden size.
    """
    parts = [trial.parts[0] for trial in trials]
    X, N, lengths = parts[0].data, settings[0]["n_hidden"], [len(part.rows) for part in parts]
    size = max(1, min(ROWS, BYTES // (8 * N * N * len(parts))))
    rows = stacked([part.rows for part in parts])
    # A stream ends a model's life, so what is padded behind it does no harm.
    rows = np.pad(rows, [(0, 0), (0, -rows.shape[1] % size)])
    blocks = rows.reshape(len(parts), -1, size).swapaxes(0, 1)
    scores = _run(
        _draw(settings, X.shape[1], [trial.seed for trial in trials]),
        X,
        stacked([part.train_rows for part in parts]),
        stacked([np.ones(len(part.train_rows)) for part in parts]),
        blocks,
    )
    found = np.asarray(scores).swapaxes(0, 1).reshape(len(parts), -1)
    return [s[:length] for s, length in zip(found, lengths, strict=True)]
