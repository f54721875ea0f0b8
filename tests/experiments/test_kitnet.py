"""KitNet side by side: PySAD's scores, before, in and after the grace periods."""

import numpy as np
import pytest

KitNet = pytest.importorskip("pysad.models").KitNet

from experiments.methods import peers  # noqa: E402

from experiments import datasets  # noqa: E402

GRACE = {"grace_feature_mapping": 60, "grace_anomaly_detector": 90}


@pytest.fixture(scope="module")
def X():
    return datasets.load("digits").X[:400]


def both(X, seed=3):
    """Return PySAD's model and ours after the first rows."""
    models = peers.PySad(KitNet(random_state=seed, **GRACE)), peers.kitnet(GRACE, 0, seed)
    for model in models:
        model.fit(X)
    return models


# The last digits differ by the order of sums, and learning at rate 0.1 spreads that little over
# 150 steps: 1e-9 leaves room for any machine's order.
@pytest.mark.parametrize("fitted", [0, 20, 100, 149, 150, 200])  # of 150 that are learned
def test_a_stream_has_pysads_scores(fitted, X):
    its, ours = both(X[:fitted])
    np.testing.assert_allclose(ours.stream(X[fitted:]), its.stream(X[fitted:]), rtol=1e-9)


@pytest.mark.parametrize("fitted", [1, 59, 60, 150, 200])
def test_scoring_has_pysads_scores(fitted, X):
    its, ours = both(X[:fitted])
    np.testing.assert_allclose(ours.score(X[fitted:]), its.score(X[fitted:]), rtol=1e-9)


def test_a_stream_in_two_halves_is_the_stream(X):
    whole, halves = peers.kitnet(GRACE, 0, 0), peers.kitnet(GRACE, 0, 0)
    parts = [halves.stream(X[:100]), halves.stream(X[100:])]
    np.testing.assert_allclose(np.concatenate(parts), whole.stream(X), rtol=1e-9)
