"""VAE and Deep SVDD with the defaults of PyOD 3.6 or other settings, in JAX: many networks at once.

PyOD trains one network after the other in PyTorch, and a table has thousands of them. Here a
network is a value, and one compiled program trains them all, as in `_autoencoder`. Layers, first
weights, losses, optimiser, epochs, scores and the names of settings are PyOD's; the random draws
are not. Smaller networks of a bank are padded with units that stay at zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from experiments.methods import _autoencoder as ae
from experiments.testbeds import Array, Trial

BATCH = 32


class Network(NamedTuple):
    """What training and scoring read; with a leading axis, a bank of them."""

    weights: Any
    mean: Any  # (n,) of the training rows
    scale: Any  # (n,) what a standardised row was divided by
    key: Any  # of all random draws after the first weights
    rate: Any  # of learning
    values: Any  # what else the kind reads


def linear(rng: np.random.Generator, n_in: int, shape: tuple[int, ...]) -> Array:
    """Return the first weights of a layer of PyTorch."""
    limit = 1 / np.sqrt(n_in)
    return rng.uniform(-limit, limit, shape).astype("float32")


def padded(weights: Array, *shape: int) -> Array:
    """Return weights with rows and columns of zeros up to a shape."""
    return np.pad(weights, [(0, size - n) for size, n in zip(shape, weights.shape, strict=True)])


@dataclass(frozen=True)
class Vae:
    """An autoencoder of [128, 64, 32], noisy units and [32, 64, 128], with dropout.

    PyOD bounds the Kullback-Leibler term by its `capacity`, which is 0: the term is 0 and has no
    slope, so it is left out.
    """

    latent_dim: int = 2
    dropout_rate: float = 0.2
    lr: float = 1e-3

    decay, epochs = 1e-5, 30
    whole_batches = True  # a last batch that is not full is not learned
    keeps_best = False

    @property
    def size(self) -> tuple[int, ...]:
        return (self.latent_dim,)

    def draw(self, n: int, seed: int, size: Sequence[int]) -> Any:
        rng = np.random.default_rng(seed)
        (units,) = size
        sizes = [n, 128, 64, 32], [self.latent_dim, 32, 64, 128, n]

        def layer(i: int, o: int) -> tuple[Array, Array]:
            return linear(rng, i, (i, o)), linear(rng, i, (o,))

        encoder, decoder = ([layer(i, o) for i, o in pairwise(part)] for part in sizes)
        heads = [layer(32, self.latent_dim) for _ in range(2)]
        decoder[0] = padded(decoder[0][0], units, 32), decoder[0][1]
        return encoder, tuple((padded(W, 32, units), padded(b, units)) for W, b in heads), decoder

    def values(self, size: Sequence[int]) -> Any:
        return np.float32(self.dropout_rate), np.float32(np.arange(size[0]) < self.latent_dim)

    def scale(self, spread: Array) -> Array:
        """Return what rows are divided by: a feature that was constant becomes huge, as in PyOD."""
        return spread + 1e-8

    def centre(self, weights: Any, z: Any, used: Any) -> Any:
        return jnp.zeros(())

    def _output(self, weights: Any, values: Any, z: Any, key: Any, training: bool) -> Any:
        encoder, heads, decoder = weights
        dropout, units = values
        keys = iter(jax.random.split(key, 7))

        def hidden(layer: Any, h: Any) -> Any:
            h = jax.nn.relu(h @ layer[0] + layer[1])
            if not training:
                return h
            kept = jax.random.bernoulli(next(keys), 1 - dropout, h.shape)
            return jnp.where(kept, h / (1 - dropout), 0)

        for layer in encoder:
            z = hidden(layer, z)
        mean, logarithm = (z @ W + b for W, b in heads)
        noise = jax.random.normal(next(keys), mean.shape)
        z = (mean + noise * jnp.exp(0.5 * jnp.clip(logarithm, -30, 20))) * units
        for layer in decoder[:-1]:
            z = hidden(layer, z)
        W, b = decoder[-1]
        return z @ W + b

    def loss(self, network: Network, centre: Any, z: Any, share: Any, key: Any) -> Any:
        output = self._output(network.weights, network.values, z, key, training=True)
        return share @ jnp.mean((z - output) ** 2, axis=1)

    def score(self, network: Network, centre: Any, z: Any, key: Any) -> Any:
        output = self._output(network.weights, network.values, z, key, training=False)
        return jnp.sqrt(jnp.sum((z - output) ** 2, axis=1))


@dataclass(frozen=True)
class DeepSvdd:
    """Two layers of relu units without bias; the score is the distance to a centre."""

    hidden_neurons: Sequence[int] = (64, 32)
    lr: float = 1e-4

    decay, epochs = 0.5e-6, 100
    whole_batches = False
    keeps_best = True  # the weights of the epoch with the least loss

    @property
    def size(self) -> tuple[int, ...]:
        return tuple(self.hidden_neurons)

    def draw(self, n: int, seed: int, size: Sequence[int]) -> Any:
        rng = np.random.default_rng(seed)
        shapes = pairwise([n, *size])
        layers = [linear(rng, i, (i, o)) for i, o in pairwise([n, *self.hidden_neurons])]
        return [padded(W, *shape) for W, shape in zip(layers, shapes, strict=True)]

    def values(self, size: Sequence[int]) -> Any:
        return ()

    def scale(self, spread: Array) -> Array:
        return np.where(spread > 0, spread, 1.0)

    def _output(self, weights: Any, z: Any) -> Any:
        for W in weights:
            z = jax.nn.relu(z @ W)
        return z

    def centre(self, weights: Any, z: Any, used: Any) -> Any:
        """Return the mean output of the first weights; entries near zero are moved away."""
        mean = used @ self._output(weights, z) / used.sum()
        return jnp.where((mean > 0) & (mean < 0.1), 0.1, mean)

    def loss(self, network: Network, centre: Any, z: Any, share: Any, key: Any) -> Any:
        norms = sum(jnp.linalg.norm(W) for W in network.weights)
        return share @ self.score(network, centre, z, key) + 1e-6 * norms

    def score(self, network: Network, centre: Any, z: Any, key: Any) -> Any:
        return jnp.sum((self._output(network.weights, z) - centre) ** 2, axis=1)


Kind: TypeAlias = Vae | DeepSvdd
KINDS: dict[str, type[Kind]] = {"vae": Vae, "deep-svdd": DeepSvdd}


def _fit(kind: Any, network: Network, X: Any, rows: Any, n: Any) -> tuple[Any, Any]:
    """Return weights and centre after all epochs on the first `n` of `rows`; the rest is padding.

    Each epoch's order is drawn here: for all networks it would be gigabytes to send.
    """
    used = jnp.arange(len(rows)) < n
    optimiser = ae.Adam(network.rate)

    def standard(rows: Any) -> Any:
        return (X[rows] - network.mean) / network.scale

    centre = kind.centre(network.weights, standard(rows), used)

    def step(state: Any, batch: Any) -> tuple[Any, Any]:
        rows, used, key = batch
        weights, adam = state
        share = used / jnp.maximum(used.sum(), 1)

        def loss(weights: Any) -> Any:
            now = network._replace(weights=weights)
            return kind.loss(now, centre, standard(rows), share, key)

        value, slope = jax.value_and_grad(loss)(weights)
        slope = jax.tree.map(lambda g, w: g + kind.decay * w, slope, weights)
        learned = optimiser.step(weights, slope, adam)
        real = used.all() if kind.whole_batches else used.any()
        state = jax.tree.map(lambda new, old: jnp.where(real, new, old), learned, state)
        return state, jnp.where(real, value, 0)

    def epoch(state: Any, key: Any) -> tuple[Any, None]:
        learned, best, least = state
        keys = jax.random.split(key, len(rows) // BATCH + 1)
        # Padding is last in every order, so `used` stays as it is.
        order = jnp.argsort(jnp.where(used, jax.random.uniform(keys[0], used.shape), 2))
        batches = (part.reshape(-1, BATCH) for part in (rows[order], used))
        learned, losses = jax.lax.scan(step, learned, (*batches, keys[1:]))
        better = losses.sum() < least
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), learned[0], best)
        return (learned, best, jnp.where(better, losses.sum(), least)), None

    start = (network.weights, optimiser.init(network.weights)), network.weights, jnp.inf
    keys = jax.random.split(network.key, kind.epochs)
    (learned, best, _), _ = jax.lax.scan(epoch, start, keys)
    return (best if kind.keeps_best else learned[0]), centre


def _score(kind: Any, network: Network, X: Any, centre: Any, rows: Any) -> Any:
    z = (X[rows] - network.mean) / network.scale
    return kind.score(network, centre, z, jax.random.fold_in(network.key, kind.epochs))


@cache
def programs(kind: type[Kind]) -> tuple[Any, Any]:
    """Return fit and score of a bank; a GPU trains all of it at once."""
    at_once = None if jax.default_backend() == "cpu" else 10_000

    def fit(network: Network, X: Any, rows: Any, n: Any) -> Any:
        return _fit(kind(), network, X, rows, n)

    def score(network: Network, X: Any, centre: Any, rows: Any) -> Any:
        return _score(kind(), network, X, centre, rows)

    return ae.compiled(fit, at_once), ae.compiled(score, None)


class Bank:
    """Networks of one kind side by side. `rows` has an array of row numbers of X for each."""

    def __init__(self, kinds: Sequence[Kind], seeds: Sequence[int]) -> None:
        self.kinds, self.seeds = kinds, seeds
        self.programs = programs(type(kinds[0]))

    def fit(self, X: Array, rows: Sequence[Array]) -> None:
        drawn, size = [], np.max([kind.size for kind in self.kinds], axis=0)
        for kind, seed, mine in zip(self.kinds, self.seeds, rows, strict=True):
            train = np.asarray(X[mine], "float64")
            mean, scale = train.mean(axis=0), kind.scale(train.std(axis=0))
            drawn.append(
                Network(
                    weights=kind.draw(X.shape[1], seed, size),
                    mean=np.float32(mean),
                    scale=np.float32(scale),
                    key=jax.random.key(seed),
                    rate=np.float32(kind.lr),
                    values=kind.values(size),
                )
            )
        networks = jax.tree.map(lambda *leaves: jnp.stack(leaves), *drawn)
        whole = ae.stacked([np.resize(r, -(-len(r) // BATCH) * BATCH) for r in rows])
        counts = np.array([len(r) for r in rows])
        weights, self.centres = self.programs[0](networks, jnp.asarray(X, "float32"), whole, counts)
        self.networks = networks._replace(weights=weights)

    def score(self, X: Array, rows: Sequence[Array]) -> list[Array]:
        whole = jnp.asarray(X, "float32")
        scores = np.asarray(self.programs[1](self.networks, whole, self.centres, ae.stacked(rows)))
        return [s[: len(r)] for s, r in zip(scores, rows, strict=True)]


class Deep:
    """One network behind the methods' protocol."""

    def __init__(self, kind: Kind, seed: int) -> None:
        self.bank = Bank([kind], [seed])

    def fit(self, X: Array) -> None:
        self.bank.fit(X, [np.arange(len(X))])

    def score(self, X: Array) -> Array:
        return self.bank.score(X, [np.arange(len(X))])[0]

    def stream(self, X: Array) -> Array:
        raise NotImplementedError("learns once: there is no stream")


def run_trials(
    name: str, settings: Sequence[dict[str, Any]], trials: Sequence[Trial]
) -> list[list[Array]]:
    """Return the scores of each part of each offline trial, all at once: trial k has setting k."""
    kinds = [KINDS[name](**given) for given in settings]
    pairs = [(k, t.seed, part) for k, t in zip(kinds, trials, strict=True) for part in t.parts]
    each, seeds, parts = zip(*pairs, strict=True)
    X, bank = parts[0].data, Bank(each, seeds)
    bank.fit(X, [part.train_rows for part in parts])
    scores = iter(bank.score(X, [part.rows for part in parts]))
    return [[next(scores) for _ in trial.parts] for trial in trials]
