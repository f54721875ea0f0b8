"""Files that an earlier release wrote. Those in first_release/ are of 0.1.0, byte for byte."""

import pathlib
import re

import numpy as np
import pytest

from onlad.errors import ModelFileError
from onlad.fleet import Bank
from onlad.persist import load, save

FIRST = pathlib.Path(__file__).parent / "first_release"
X = np.arange(60).reshape(20, 3) % 7 / 7  # what the models of the files have learned


def test_a_detector_of_the_first_release_goes_on(tmp_path):
    detector = load(FIRST / "detector.onlad")
    assert detector.n_seen == 20
    # As the first release said; other processors round differently, times the condition of P.
    assert detector.score_one(X[4]) == pytest.approx(0.005520191245142696, rel=1e-9)
    detector = load(FIRST / "detector.onlad")
    save(detector, tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == (FIRST / "detector.onlad").read_bytes()


def test_a_bank_of_the_first_release_goes_on():
    found = Bank.load(FIRST / "bank.onlad").score(X[4:6])
    np.testing.assert_allclose(found, [0.002497608404288805, 9.092013590472738e-05], rtol=1e-9)


def test_a_monitor_of_the_first_release_is_refused_with_what_to_do():
    says = (
        "monitor.onlad holds a Monitor of the first release, which had a different model. "
        "Learn it again from its data, with `onlad fit`"
    )
    with pytest.raises(ModelFileError, match=re.escape(says)):
        load(FIRST / "monitor.onlad")
