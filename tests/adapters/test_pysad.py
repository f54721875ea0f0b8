import doctest

import numpy as np
import pytest

pytest.importorskip("pysad")

from pysad.evaluation import AUROCMetric
from pysad.transform.probability_calibration import (
    ConformalProbabilityCalibrator,
    GaussianTailProbabilityCalibrator,
)
from pysad.utils import ArrayStreamer, fix_seed

import onlad.adapters.pysad as adapter
from onlad import Detector
from onlad.adapters.pysad import OnladDetector


def stream(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, 2)) @ np.random.default_rng(9).uniform(-1, 1, (2, 6))
    y = np.arange(n) % 40 == 39
    X[y] += rng.uniform(-2, 2, (y.sum(), 6))
    return X, y


def test_fit_score_gives_one_float_an_instance_and_finds_the_anomalies():
    X, y = stream()
    scores = OnladDetector(random_state=0).fit_score(X, y)
    assert scores.shape == (len(X),)
    assert scores.dtype == np.float64
    metric = AUROCMetric()
    for label, score in zip(y[50:], scores[50:], strict=True):
        metric.update(label, score)
    assert metric.get() > 0.9


def test_an_instance_is_scored_before_it_is_learned():
    X, _ = stream()
    one, two = (OnladDetector(random_state=0) for _ in range(2))
    for x in X:
        score = two.score_partial(x)
        assert two.fit_partial(x) is two
        assert one.fit_score_partial(x) == score
        assert type(score) is float


def test_scores_are_those_of_the_detector():
    X, _ = stream()
    model = OnladDetector(
        n_hidden=8,
        activation="tanh",
        weights="normal",
        forgetting=0.9,
        score_type="reconstruction",
        loss="absolute",
        ridge=1.0,
        random_state=0,
    )
    twin = Detector(
        n_hidden=8,
        activation="tanh",
        weights="normal",
        forgetting=0.9,
        score="reconstruction",
        loss="absolute",
        ridge=1.0,
        seed=model.detector.seed,
    )
    np.testing.assert_array_equal(model.fit_score(X), [twin.update_one(x) for x in X])
    np.testing.assert_array_equal(model.score(X), [twin.score_one(x) for x in X])


def test_scoring_does_not_learn():
    X, _ = stream()
    model = OnladDetector(random_state=0).fit(X)
    np.testing.assert_array_equal(model.score(X), model.score(X))


@pytest.mark.parametrize(
    "calibrator", [ConformalProbabilityCalibrator, GaussianTailProbabilityCalibrator]
)
def test_calibrators_make_probabilities_of_the_scores(calibrator):
    model, calibrate = OnladDetector(random_state=0), calibrator(window_size=100)
    X, _ = stream()
    for x in ArrayStreamer(shuffle=False).iter(X):
        probability = calibrate.fit_transform(np.array([model.fit_score_partial(x)]))
        assert 0 <= np.asarray(probability).item() <= 1


def test_random_state_decides_and_fix_seed_reaches_it():
    X, _ = stream()

    def scores(random_state):
        return OnladDetector(random_state=random_state).fit_score(X).tolist()

    assert scores(1) == scores(1) == scores(np.random.RandomState(1))
    assert scores(1) != scores(2)
    fix_seed(5)
    first = scores(None)
    fix_seed(5)
    assert scores(None) == first


def test_examples():
    assert doctest.testmod(adapter).failed == 0
