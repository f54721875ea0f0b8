"""Autoencoders trained by backpropagation, as the paper's baselines: many networks at once.

Each network of a bank has settings, seed and rows of its own; all share one array X. A call of
`fit`, `score` or `stream` is one compiled program, a scan with no Python in its loop. Networks
of different sizes share it too: smaller ones are padded with units that stay at zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from experiments.testbeds import Testbed, Trial

Array = npt.NDArray[Any]


class Adam(NamedTuple):
    """The optimiser of Kingma and Ba (2015). Its state: steps taken, mean of slopes, of squares."""

    rate: float = 1e-3
    first: float = 0.9
    second: float = 0.999
    epsilon: float = 1e-8

    def init(self, weights: Any) -> Any:
        mean, square = (jax.tree.map(jnp.zeros_like, weights) for _ in range(2))
        return jnp.zeros((), "int32"), mean, square

    def step(self, weights: Any, slope: Any, state: Any) -> tuple[Any, Any]:
        """Return the weights after a step along a slope, and the state."""
        steps, mean, square = state[0] + 1, *state[1:]
        mean = jax.tree.map(lambda m, g: self.first * m + (1 - self.first) * g, mean, slope)
        square = jax.tree.map(
            lambda v, g: self.second * v + (1 - self.second) * g**2, square, slope
        )
        one, two = 1 - self.first**steps, 1 - self.second**steps
        weights = jax.tree.map(
            lambda w, m, v: w - self.rate * (m / one) / (jnp.sqrt(v / two) + self.epsilon),
            weights,
            mean,
            square,
        )
        return weights, (steps, mean, square)


ADAM = Adam()  # the rate of TensorFlow, which the paper used


@dataclass(frozen=True)
class Settings:
    """What the paper's tables list. The output is a sigmoid, the loss the mean squared error."""

    activation: Literal["relu", "sigmoid"]
    hidden: Sequence[int]  # units of each hidden layer
    batch: int
    epochs: int
    shuffle: bool = True  # the rows, before each epoch


class Network(NamedTuple):
    """What a step reads; with a leading axis, a bank of them."""

    weights: Any  # a pair (W, b) for each layer, learned
    adam: Any  # the state of the optimiser
    units: Any  # for each hidden layer: 1 per unit, 0 where it is padding
    relu: Any  # 1 for relu, 0 for sigmoid


def draw(settings: Settings, n_features: int, padded: Sequence[int], seed: int) -> Network:
    """Return a network with the initial weights of Glorot and Bengio."""
    rng = np.random.default_rng(seed)
    sizes = [n_features, *settings.hidden, n_features]
    weights = []
    for (n_in, n_out), shape in zip(
        pairwise(sizes), pairwise([n_features, *padded, n_features]), strict=True
    ):
        W, limit = np.zeros(shape, "float32"), np.sqrt(6 / (n_in + n_out))
        W[:n_in, :n_out] = rng.uniform(-limit, limit, (n_in, n_out))
        weights.append((W, np.zeros(shape[1], "float32")))
    units = [np.float32(np.arange(p) < n) for p, n in zip(padded, settings.hidden, strict=True)]
    return Network(weights, ADAM.init(weights), units, np.float32(settings.activation == "relu"))


def reconstruct(weights: Any, network: Network, x: Any) -> Any:
    for (W, b), units in zip(weights, network.units, strict=False):
        z = x @ W + b
        x = jnp.where(network.relu, jax.nn.relu(z), jax.nn.sigmoid(z)) * units
    W, b = weights[-1]
    return jax.nn.sigmoid(x @ W + b)


def errors(weights: Any, network: Network, x: Any) -> Any:
    """Return the mean squared error of each row."""
    return jnp.mean((x - reconstruct(weights, network, x)) ** 2, axis=-1)


def train(network: Network, x: Any, share: Any) -> tuple[Network, Any]:
    """Return the network after a step of Adam on a batch, and each row's error before it.

    ``share`` is each row's share in the loss.
    """

    def loss(weights: Any) -> Any:
        each = errors(weights, network, x)
        return share @ each, each

    (_, each), slope = jax.value_and_grad(loss, has_aux=True)(network.weights)
    weights, adam = ADAM.step(network.weights, slope, network.adam)
    return network._replace(weights=weights, adam=adam), each


def _fit(network: Network, X: Any, rows: Any, shares: Any) -> Network:
    def step(network: Network, batch: Any) -> tuple[Network, None]:
        rows, share = batch
        learned, _ = train(network, X[rows], share)
        padding = share[0] == 0  # batches that only longer trainings of the bank have
        return jax.tree.map(partial(jnp.where, padding), network, learned), None

    return jax.lax.scan(step, network, (rows, shares))[0]


def _stream(network: Network, X: Any, rows: Any) -> tuple[Network, Any]:
    """Score each row, then learn it."""

    def step(network: Network, row: Any) -> tuple[Network, Any]:
        network, each = train(network, X[row][None], jnp.ones(1))
        return network, each[0]

    return jax.lax.scan(step, network, rows)


def _score(network: Network, X: Any, rows: Any) -> Any:
    return errors(network.weights, network, X[rows])


def compiled(function: Any, at_once: int | None) -> Any:
    """Return the function over a bank: one network after the other, or so many together."""

    @jax.jit
    @jax.default_matmul_precision("highest")  # float32 in full on every kind of machine
    def over(networks: Network, X: Any, *rows: Any) -> Any:
        return jax.lax.map(
            lambda one: function(one[0], X, *one[1:]), (networks, *rows), batch_size=at_once
        )

    return over


@cache
def programs() -> tuple[Any, Any, Any]:
    """Return fit, stream and score of a bank.

    A GPU takes a whole bank at once. A processor is faster with one network after the other, which
    stay in its cache; the results are the same to the bit.
    """
    at_once = None if jax.default_backend() == "cpu" else 10_000
    return compiled(_fit, at_once), compiled(_stream, at_once), compiled(_score, None)


def batches(n_rows: int, settings: Settings, seed: int) -> tuple[Array, Array]:
    """Return all epochs' batches and each row's share in its batch.

    The last batch of an epoch may be smaller: it is filled with rows whose share is 0.
    """
    rng = np.random.default_rng([seed, 1])  # not the draws of the weights
    size = min(settings.batch, n_rows)
    steps = -(-n_rows // size)
    rows = np.zeros((settings.epochs, steps * size), "int32")
    for epoch in rows:
        epoch[:n_rows] = rng.permutation(n_rows) if settings.shuffle else np.arange(n_rows)
    used = (np.arange(steps * size) < n_rows).reshape(steps, size)
    shares = np.float32(used / used.sum(axis=1, keepdims=True))
    return rows.reshape(-1, size), np.tile(shares, (settings.epochs, 1))


def stacked(arrays: Sequence[Array]) -> Array:
    """Return arrays of different shapes as one, filled up with zeros."""
    shape = np.max([a.shape for a in arrays], axis=0)
    return np.stack(
        [np.pad(a, [(0, s - n) for s, n in zip(shape, a.shape, strict=True)]) for a in arrays]
    )


class Bank:
    """Networks side by side. `rows` has one array of row numbers of X for each network."""

    def __init__(self, n_features: int, settings: Sequence[Settings], seeds: Sequence[int]) -> None:
        self.settings, self.seeds = settings, seeds
        padded = np.max([s.hidden for s in settings], axis=0)
        drawn = [draw(s, n_features, padded, k) for s, k in zip(settings, seeds, strict=True)]
        self.networks = jax.tree.map(lambda *leaves: jnp.stack(leaves), *drawn)

    def fit(self, X: Any, rows: Sequence[Array]) -> None:
        plans = [
            batches(len(r), s, k) for r, s, k in zip(rows, self.settings, self.seeds, strict=True)
        ]
        order = stacked([r[batch] for r, (batch, _) in zip(rows, plans, strict=True)])
        self.networks = programs()[0](
            self.networks, X, order, stacked([shares for _, shares in plans])
        )

    def score(self, X: Any, rows: Sequence[Array]) -> list[Array]:
        scores = np.asarray(programs()[2](self.networks, X, stacked(rows)))
        return [s[: len(r)] for s, r in zip(scores, rows, strict=True)]

    def stream(self, X: Any, rows: Sequence[Array]) -> list[Array]:
        """Return each row's score before the row was learned.

        Networks with fewer rows than others go on to learn row 0: a stream ends a bank's life.
        """
        self.networks, found = programs()[1](self.networks, X, stacked(rows))
        return [s[: len(r)] for s, r in zip(np.asarray(found), rows, strict=True)]


class Autoencoder:
    """One network behind the methods' protocol."""

    def __init__(self, settings: Settings, n_features: int, seed: int) -> None:
        self.bank = Bank(n_features, [settings], [seed])

    def fit(self, X: Array) -> None:
        self.bank.fit(jnp.asarray(X, "float32"), [np.arange(len(X))])

    def score(self, X: Array) -> Array:
        return self.bank.score(jnp.asarray(X, "float32"), [np.arange(len(X))])[0]

    def stream(self, X: Array) -> Array:
        return self.bank.stream(jnp.asarray(X, "float32"), [np.arange(len(X))])[0]


def run_trials(
    testbed: Testbed, settings: Sequence[Settings], trials: Sequence[Trial]
) -> list[list[Array]]:
    """Return the scores of each part of each trial, all at once: trial k has setting k."""
    pairs = [
        (s, trial.seed, part)
        for s, trial in zip(settings, trials, strict=True)
        for part in trial.parts
    ]
    all_settings, seeds, parts = zip(*pairs, strict=True)
    X = jnp.asarray(parts[0].data, "float32")
    bank = Bank(X.shape[1], all_settings, seeds)
    bank.fit(X, [part.train_rows for part in parts])
    rows = [part.rows for part in parts]
    scores = iter(bank.score(X, rows) if testbed == "offline" else bank.stream(X, rows))
    return [[next(scores) for _ in trial.parts] for trial in trials]
