"""Deep SVDD against one written by hand, VAE by its parts, both against themselves in company."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from experiments.methods import _deep, run_trials  # noqa: E402

from experiments import testbeds  # noqa: E402


def data(n_rows, n=5, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.uniform(0, 1, (n_rows, 1)) + rng.normal(0, 0.1, (n_rows, n))).astype("float32")


def by_hand(X, judged, seed):
    """Return the scores of Deep SVDD in float64, for as many rows as one batch takes."""
    kind = _deep.DeepSvdd()
    W, V = (np.float64(w) for w in kind.draw(X.shape[1], seed, kind.size))
    mean, scale = X.mean(axis=0), X.std(axis=0)
    z = (X - mean) / scale

    def output(z):
        h = np.maximum(z @ W, 0)
        return h, np.maximum(h @ V, 0)

    centre = output(z)[1].mean(axis=0)
    centre[(centre > 0) & (centre < 0.1)] = 0.1
    best, least = None, np.inf
    m, v = [0.0, 0.0], [0.0, 0.0]
    for t in range(1, kind.epochs + 1):
        h, out = output(z)
        loss = np.sum((out - centre) ** 2, axis=1).mean()
        loss += 1e-6 * (np.linalg.norm(W) + np.linalg.norm(V))
        delta = 2 * (out - centre) / len(z) * (out > 0)
        slopes = [z.T @ (delta @ V.T * (h > 0)), h.T @ delta]
        found = []
        for i, (slope, w) in enumerate(zip(slopes, (W, V), strict=True)):
            g = slope + 1e-6 * w / np.linalg.norm(w) + kind.decay * w
            m[i], v[i] = 0.9 * m[i] + 0.1 * g, 0.999 * v[i] + 0.001 * g**2
            step = (m[i] / (1 - 0.9**t)) / (np.sqrt(v[i] / (1 - 0.999**t)) + 1e-8)
            found.append(w - kind.lr * step)
        W, V = found
        if loss < least:  # PyOD keeps the weights after the epoch with the least loss
            best, least = (W, V), loss
    W, V = best
    return np.sum((output((judged - mean) / scale)[1] - centre) ** 2, axis=1)


def test_deep_svdd_is_the_one_written_by_hand():
    X, judged = data(32), data(20, seed=1)
    model = _deep.Deep(_deep.DeepSvdd(), seed=3)
    model.fit(X)
    # 100 steps of 1e-4 in float32; Adam divides by small slopes, which magnifies their rounding.
    expected = by_hand(np.float64(X), np.float64(judged), 3)
    np.testing.assert_allclose(model.score(judged), expected, rtol=1e-3)


SMALL = {"vae": {"latent_dim": 3, "dropout_rate": 0.0}, "deep-svdd": {"hidden_neurons": [8, 4]}}


@pytest.mark.parametrize("name", _deep.KINDS)
def test_a_bank_of_different_networks_holds_each_as_if_alone(name):
    X = data(150)
    rows = [np.arange(64), np.arange(20, 120)]
    whole, small = _deep.KINDS[name](lr=1e-2), _deep.KINDS[name](**SMALL[name])
    kinds = [small, whole] if name == "vae" else [whole, small]  # the last is the one with padding
    bank = _deep.Bank(kinds, [1, 2])
    bank.fit(X, rows)
    alone = _deep.Bank(kinds[1:], [2])
    alone.fit(X, rows[1:])
    assert _padding(bank.networks.weights, alone.networks.weights) == {0.0}
    judged = [np.arange(120, 150)] * 2
    found, expected = bank.score(X, judged)[1], alone.score(X, judged[1:])[0]
    if name == "deep-svdd":  # the noise of a VAE has as many units as the widest of its bank
        np.testing.assert_allclose(found, expected, rtol=1e-3)


def _padding(bank, alone):
    """Return the values of the second network of a bank where it is wider than alone."""
    found = set()
    for wide, own in zip(jax.tree.leaves(bank), jax.tree.leaves(alone), strict=True):
        outside = np.ones(wide.shape[1:], bool)
        outside[tuple(map(slice, own.shape[1:]))] = False
        found |= set(np.asarray(wide[1])[outside].tolist())
    return found


@pytest.mark.parametrize("name", _deep.KINDS)
def test_every_setting_is_read(name):
    X, judged = data(64), data(20, seed=1)

    def scores(**settings):
        model = _deep.Deep(_deep.KINDS[name](**settings), seed=0)
        model.fit(X)
        return model.score(judged)

    usual = scores()
    for settings in ({"lr": 1e-2}, *({k: v} for k, v in SMALL[name].items())):
        assert not np.allclose(scores(**settings), usual, rtol=1e-2), settings


def test_a_vae_learns_whole_batches_alone():
    X, kind = data(40), _deep.Vae()
    few = _deep.Bank([kind], [0])
    few.fit(X, [np.arange(31)])
    drawn = kind.draw(5, 0, kind.size)
    assert all(
        np.array_equal(new[0], old)
        for new, old in zip(
            jax.tree.leaves(few.networks.weights), jax.tree.leaves(drawn), strict=True
        )
    )


def test_a_vae_has_the_layers_of_pyod():
    sizes = [leaf.size for leaf in jax.tree.leaves(_deep.Vae().draw(10, 0, (2,)))]
    encoder = 10 * 128 + 128 + 128 * 64 + 64 + 64 * 32 + 32
    decoder = 2 * 32 + 32 + 32 * 64 + 64 + 64 * 128 + 128 + 128 * 10 + 10
    assert sum(sizes) == encoder + 2 * (32 * 2 + 2) + decoder


def test_a_vae_reconstructs_better_what_it_has_learned():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(2), 600)
    X = np.where(y[:, None] == np.arange(6) % 2, 0.8, 0.2) + rng.normal(0, 0.05, (1200, 6))
    trial = testbeds.trial("offline", X.astype("float32"), y, 0)
    for found, part in zip(run_trials("vae", "offline", {}, [trial])[0], trial.parts, strict=True):
        assert np.median(found[part.anomalous]) > 2 * np.median(found[~part.anomalous])
