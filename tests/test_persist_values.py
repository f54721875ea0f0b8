"""Every kind of value in a file, and models in models."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_files import names, numbers, refused, same, trained, written
from onlad import persist
from onlad.forgetting import Constant
from onlad.persist import load, save


@dataclass(frozen=True)
class Limit:
    value: float
    label: str = "x"

    def __post_init__(self):
        if not isinstance(self.label, str):
            raise TypeError(f"label must be a string, got {self.label!r}")


class Box:
    """Stands for a model with a model in it."""

    def __init__(self, **settings):
        self._settings, self._learned = settings, {}

    def settings(self):
        return self._settings

    def learned(self):
        return self._learned

    def resume(self, learned):
        self._learned = learned
        return self


@pytest.fixture
def box(monkeypatch):
    monkeypatch.setitem(persist.CLASSES, "Box", Box)
    monkeypatch.setitem(persist.CLASSES, "Limit", Limit)
    monkeypatch.setitem(persist.CHECKS, "Box", lambda settings, learned: None)
    return Box


blocks = st.tuples(
    st.sampled_from(["float64", "float32", "int64", "bool", ">f8"]),
    st.lists(st.integers(0, 3), max_size=4),
    st.integers(0, 9),
).map(lambda t: np.random.default_rng(t[2]).integers(0, 2, t[1]).astype(t[0]))


values = st.recursive(
    numbers | names | blocks | st.sampled_from([Limit(-np.inf), Constant(0.5)]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(names, inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(learned=st.dictionaries(names, values, max_size=4))
def test_every_kind_of_value_comes_back_as_it_was(box, tmp_path, learned):
    save(Box(limit=Limit(0.5), detector=None).resume(learned), tmp_path / "box")
    twin = load(tmp_path / "box")
    assert type(twin) is Box
    assert same(learned, twin.learned())
    assert same({"limit": Limit(0.5), "detector": None}, twin.settings())


def test_a_model_in_a_model_goes_on_to_the_last_bit(box, tmp_path):
    inner = trained("float32")
    save(
        Box(detector=inner).resume({"window": np.zeros((0, 3)), "on": np.bool_(True)}),
        tmp_path / "m",
    )
    twin = load(tmp_path / "m")
    assert twin.learned()["window"].shape == (0, 3)
    assert twin.learned()["on"] is True
    assert twin.settings()["detector"].update_one([0.1] * 3) == inner.update_one([0.1] * 3)


def test_loaded_arrays_can_be_written_to(box, tmp_path):
    save(Box().resume({"a": np.zeros(2), "b": np.array([True])}), tmp_path / "m")
    twin = load(tmp_path / "m")
    twin.learned()["a"][0] = 1
    twin.learned()["b"][0] = False


def test_an_array_of_bools_holds_nothing_but_0_and_1(box, tmp_path):
    header = {
        "arrays": [{"dtype": "bool", "offset": 0, "shape": [2]}],
        "model": {"type": "Box", "settings": {}, "learned": {"a": {"array": 0}}},
    }
    (tmp_path / "m").write_bytes(written(header, bytes([0, 1]) + bytes(62)))
    assert load(tmp_path / "m").learned()["a"].tolist() == [False, True]
    refused(tmp_path, written(header, bytes([0, 2]) + bytes(62)), "a bool that is not 0 or 1")


def test_what_a_constructor_refuses_is_refused(box, tmp_path):
    limit = {"type": "Limit", "fields": {"label": 7, "value": 0.5}}
    header = {"arrays": [], "model": {"type": "Box", "settings": {"a": limit}, "learned": {}}}
    refused(tmp_path, written(header), "label must be a string, got 7")
    limit["fields"]["label"] = {"array": 0}  # shown in two lines by NumPy
    header["arrays"] = [{"dtype": "bool", "offset": 0, "shape": [2, 2]}]
    refused(tmp_path, written(header, bytes(64)), "label must be a string, got array([[False")
    header["arrays"] = []
    header["model"]["settings"] = {"self": 1}  # not a name that the constructor can take
    refused(tmp_path, written(header), "multiple values for argument 'self'")


def test_an_array_that_is_not_used_is_refused(box, tmp_path):
    header = {
        "arrays": [{"dtype": "bool", "offset": 0, "shape": [2]}],
        "model": {"type": "Box", "settings": {}, "learned": {}},
    }
    refused(tmp_path, written(header, bytes(64)), "arrays that belong to nothing")
