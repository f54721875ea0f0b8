"""River's detectors on arrays: River's scores, in the first window and after it."""

import numpy as np
import pytest

anomaly = pytest.importorskip("river.anomaly")

from experiments.methods import peers  # noqa: E402
from river import preprocessing  # noqa: E402

from experiments import datasets  # noqa: E402

WINDOW = {"window_size": 60}
# River's model, ours, tolerance. Trees add whole numbers, which no order rounds. A dot product may
# differ from River's in the last digits, and 400 steps spread that little: 1e-9 leaves room for it.
PAIRS = {
    "hst": (
        lambda: peers.River(anomaly.HalfSpaceTrees(seed=3, **WINDOW)),
        lambda: peers.half_space_trees(WINDOW, 64, 3),
        0,
    ),
    "ocsvm": (
        lambda: peers.River(preprocessing.StandardScaler() | anomaly.OneClassSVM()),
        lambda: peers.one_class_svm({}, 64, 3),
        1e-9,
    ),
}


@pytest.fixture(scope="module")
def X():
    return datasets.load("digits").X[:400]


@pytest.fixture(params=PAIRS)
def pair(request):
    its, ours, rtol = PAIRS[request.param]
    return its(), ours(), rtol


@pytest.mark.parametrize("fitted", [0, 1, 59, 60, 61, 130])
@pytest.mark.parametrize("call", ["score", "stream"])
def test_scores_are_rivers(call, fitted, pair, X):
    its, ours, rtol = pair
    for model in (its, ours):
        model.fit(X[:fitted])
    found, expected = (getattr(model, call)(X[fitted:]) for model in (ours, its))
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


def test_a_stream_in_two_halves_is_the_stream(pair, X):
    its, ours, rtol = pair
    parts = np.concatenate([ours.stream(X[:100]), ours.stream(X[100:])])
    expected = its.stream(X)
    np.testing.assert_allclose(parts, expected, rtol=rtol, atol=rtol * np.abs(expected).max())
