"""NN-AE and DNN-AE: against a network written by hand, and against themselves in other company."""

import dataclasses

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from experiments.methods import _autoencoder as ae  # noqa: E402
from experiments.methods import registry, run_trials  # noqa: E402

from experiments import testbeds  # noqa: E402

SMALL = ae.Settings("sigmoid", [3], batch=4, epochs=2)
DEEP = ae.Settings("relu", [4, 2, 4], batch=4, epochs=2)


def data(n_rows=30, n=5, seed=0):
    rng = np.random.default_rng(seed)
    return np.clip(rng.uniform(0, 1, (n_rows, 1)) + rng.normal(0, 0.05, (n_rows, n)), 0, 1).astype(
        "float32"
    )


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


class ByHand:
    """Backpropagation and Adam as their papers have them, in float64."""

    def __init__(self, settings, n, seed):
        network = ae.draw(settings, n, settings.hidden, seed)
        self.weights = [[np.float64(W), np.float64(b)] for W, b in network.weights]
        self.relu = settings.activation == "relu"
        self.m = [[np.zeros_like(p) for p in layer] for layer in self.weights]
        self.v = [[np.zeros_like(p) for p in layer] for layer in self.weights]
        self.t = 0

    def forward(self, x):
        outputs = [x]
        for i, (W, b) in enumerate(self.weights):
            z = outputs[-1] @ W + b
            hidden_relu = self.relu and i < len(self.weights) - 1
            outputs.append(np.maximum(z, 0) if hidden_relu else sigmoid(z))
        return outputs

    def errors(self, x):
        return np.mean((x - self.forward(x)[-1]) ** 2, axis=1)

    def train(self, x):
        outputs = self.forward(x)
        y = outputs[-1]
        delta = 2 * (y - x) / x.size * y * (1 - y)
        slopes = []
        for i in range(len(self.weights) - 1, -1, -1):
            slopes.insert(0, [outputs[i].T @ delta, delta.sum(axis=0)])
            a = outputs[i]
            delta = delta @ self.weights[i][0].T * ((a > 0) if self.relu else a * (1 - a))
        self.t += 1
        for i, layer in enumerate(slopes):
            for j, g in enumerate(layer):
                self.m[i][j] = 0.9 * self.m[i][j] + 0.1 * g
                self.v[i][j] = 0.999 * self.v[i][j] + 0.001 * g**2
                m, v = self.m[i][j] / (1 - 0.9**self.t), self.v[i][j] / (1 - 0.999**self.t)
                self.weights[i][j] -= 1e-3 * m / (np.sqrt(v) + 1e-8)


@pytest.mark.parametrize("settings", [SMALL, DEEP])
def test_it_is_the_network_written_by_hand(settings):
    X = data()
    bank, hand = ae.Bank(5, [settings], [7]), ByHand(settings, 5, 7)
    bank.fit(jax.numpy.asarray(X), [np.arange(18)])  # a last batch of two
    rows, shares = ae.batches(18, settings, 7)
    for batch, share in zip(rows, shares, strict=True):
        hand.train(np.float64(X[batch[share > 0]]))
    expected = []
    for x in np.float64(X[20:]):
        expected.append(hand.errors(x[None])[0])
        hand.train(x[None])
    # float32 against float64 over 20 steps of size 1e-3 on errors of about 0.1; Adam divides by
    # small slopes, which magnifies their rounding.
    found = bank.stream(jax.numpy.asarray(X), [np.arange(20, 30)])[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_a_bank_of_different_networks_holds_each_as_if_alone():
    X = jax.numpy.asarray(data(60))
    wide = ae.Settings("relu", [8], batch=6, epochs=3)
    settings, rows = [SMALL, wide], [np.arange(17), np.arange(10, 40)]
    streams = [np.arange(40, 50), np.arange(40, 60)]
    bank = ae.Bank(5, settings, [1, 2])
    bank.fit(X, rows)
    streamed = bank.stream(X, streams)
    assert list(map(len, streamed)) == [10, 20]
    alone = ae.Bank(5, settings[:1], [1])  # the one that was padded in all ways
    alone.fit(X, rows[:1])
    # Padding adds zeros to sums: only their order, so rounding, may differ.
    np.testing.assert_allclose(streamed[0], alone.stream(X, streams[:1])[0], rtol=1e-5)


def test_every_epoch_has_each_row_once_and_each_batch_weighs_one():
    rows, shares = ae.batches(10, ae.Settings("relu", [2], batch=4, epochs=3), seed=0)
    assert rows.shape == shares.shape == (9, 4)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-6)
    for epoch in range(3):
        part = slice(3 * epoch, 3 * epoch + 3)
        assert sorted(rows[part][shares[part] > 0]) == list(range(10))
    assert not np.array_equal(rows[:3], rows[3:6])


def test_initial_weights_are_glorots():
    network = ae.draw(ae.Settings("relu", [30], 8, 5), 50, [40], seed=0)
    W, b = network.weights[0]
    limit = np.sqrt(6 / 80)
    assert W.shape == (50, 40)
    assert 0.95 * limit < np.abs(W).max() <= limit
    assert not W[:, 30:].any()
    assert not b.any()


@pytest.mark.parametrize("testbed", testbeds.TESTBEDS)
def test_all_trials_at_once_give_what_each_gives_by_itself(testbed):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(2), 100)
    X = np.clip(0.3 + 0.4 * (y[:, None] == np.arange(4) % 2) + rng.normal(0, 0.05, (200, 4)), 0, 1)
    X = X.astype("float32")
    trials = [testbeds.trial(testbed, X, y, seed) for seed in (0, 1)]
    parameters = {"activation": "sigmoid", "hidden": [2], "batch": 8, "epochs": 60}
    for trial, scores in zip(trials, run_trials("nn", testbed, parameters, trials), strict=True):
        for part, found in zip(trial.parts, scores, strict=True):
            model = registry()["nn"].build(parameters, 4, trial.seed)
            model.fit(part.train)
            alone = (model.score if testbed == "offline" else model.stream)(part.X)
            np.testing.assert_allclose(found, alone, rtol=1e-5)
            if testbed == "offline":  # a network that was trained so long finds what it shall
                assert np.median(found[part.anomalous]) > np.median(found[~part.anomalous])


def test_rows_come_in_another_order_each_epoch_unless_they_are_not_shuffled():
    settings = ae.Settings("relu", [4], batch=4, epochs=2)
    first, second = ae.batches(10, settings, 0)[0].reshape(2, -1)[:, :10]
    assert sorted(first) == sorted(second) == list(range(10))
    assert list(first) != list(second)
    rows, _ = ae.batches(10, dataclasses.replace(settings, shuffle=False), 0)
    assert [list(epoch[:10]) for epoch in rows.reshape(2, -1)] == [list(range(10))] * 2
