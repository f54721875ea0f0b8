import doctest

import numpy as np
import pytest

try:
    pytest.importorskip("capymoa")
except Exception as error:  # CapyMOA's own, which cannot be imported without it
    if type(error).__name__ != "CapymoaImportError":
        raise
    pytest.skip("CapyMOA needs a Java runtime", allow_module_level=True)

from capymoa.anomaly.datasets import TinyBlobs
from capymoa.core import Instance
from capymoa.evaluation import prequential_evaluation_anomaly

import onlad.adapters.capymoa as adapter
from onlad import Detector
from onlad.adapters.capymoa import OnladDetector


def test_prequential_evaluation_finds_the_anomalies():
    stream = TinyBlobs()
    result = prequential_evaluation_anomaly(stream, OnladDetector(stream.get_schema()))
    assert result.auc() > 0.95


def test_scores_are_those_of_the_detector_and_labels_are_not_read():
    stream = TinyBlobs()
    schema = stream.get_schema()
    model = OnladDetector(schema, n_hidden=8, forgetting=0.9, random_seed=4)
    twin = Detector(n_hidden=8, forgetting=0.9, seed=4)
    for _ in range(50):
        instance = stream.next_instance()
        bare = Instance.from_array(schema, np.array(instance.x))
        assert model.score_instance(bare) == twin.score_one(instance.x)
        model.train(bare)
        twin.learn_one(instance.x)
    assert model.detector.n_seen == 50


def test_parameters_can_be_taken_out_and_put_in():
    schema = TinyBlobs().get_schema()
    params = OnladDetector(schema, n_hidden=8).get_params()
    assert OnladDetector.from_params(schema, params).detector.n_hidden == 8


def test_there_is_no_predict():
    stream = TinyBlobs()
    with pytest.raises(NotImplementedError, match="use score_instance"):
        OnladDetector(stream.get_schema()).predict(stream.next_instance())


def test_examples():
    assert doctest.testmod(adapter).failed == 0
