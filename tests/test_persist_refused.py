"""What `save` refuses: what has no form in a file, and what `load` would refuse."""

import re
from dataclasses import dataclass

import numpy as np
import pytest

from model_files import trained
from onlad import modelfile
from onlad.detector import Detector
from onlad.errors import ModelFileError
from onlad.monitor import Monitor
from onlad.persist import save
from onlad.watching import LARGEST_WINDOW


class Other(Detector):
    pass


def seeded(seed):
    """Return a detector with a seed that its constructor would refuse."""
    detector = Detector()
    detector.seed = seed
    return detector


@dataclass(frozen=True)
class Mine:
    start = (0.5,)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (7, "save takes a Monitor or a PortableMonitor or a Detector, got 7"),
        (Other(), "save takes a Monitor or a PortableMonitor or a Detector, got Detector(n_h"),
        (Detector(forgetting=Mine()), "a model with Mine() in it cannot be saved"),
        (seeded(np.array(3, dtype="int32")), "an array in a model must be float64, float32"),
        (seeded({1: 2}), "names in a model must be strings, got [1]"),
    ],
    ids=["number", "subclass", "policy", "array", "names"],
)
def test_what_has_no_form_in_a_file_is_refused(tmp_path, model, says):
    with pytest.raises(TypeError, match=re.escape(says)):
        save(model, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (Detector(n_hidden=2**14 + 1), "n_hidden must be in [1, 16384], got 16385"),
        (Detector(seed=10**40), "a whole number has 41 digits"),
        (seeded("x" * 2**20), "the header has 1048"),
        (seeded(True), "seed must be int, got True"),
        (Monitor(window=LARGEST_WINDOW + 1), "window must be in [1, 4096], got 4097"),
    ],
)
def test_save_refuses_what_load_would_refuse(tmp_path, model, says):
    path = tmp_path / "m"
    path.write_bytes(b"old")
    with pytest.raises(
        ModelFileError, match=re.escape(f"{path} was not written: {says}")
    ) as caught:
        save(model, path)
    assert str(caught.value).endswith(". The file is as it was")
    assert path.read_bytes() == b"old"


def test_save_refuses_a_model_larger_than_a_file_may_be(tmp_path, monkeypatch):
    monkeypatch.setattr(modelfile, "LARGEST_FILE", 1000)
    with pytest.raises(ModelFileError, match="a model has at most 1000 bytes"):
        save(trained(), tmp_path / "m")
