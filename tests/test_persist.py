"""Files: what is saved goes on to the last bit, and nothing else is let in.

`written` is a second writer of the format, by docs/model-files.md and without a line of
`onlad.modelfile`: with it hostile headers carry a right checksum and reach the checks behind it.
"""

import copy
import hashlib
import itertools
import json
import os
import re
import signal
import stat
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
from dataclasses import dataclass, is_dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onlad import modelfile, persist
from onlad.detector import Detector
from onlad.errors import ModelFileError
from onlad.forgetting import Adaptive, Constant, OnDrift
from onlad.monitor import Gate, Monitor
from onlad.persist import load, save
from onlad.scaler import MinMax, Standard
from onlad.threshold import Deviation, Fixed, Quantile, Tail

POLICIES = [Constant(0.97), Constant(1), Adaptive(), OnDrift(duration=7, limit=np.inf)]
ARRAYS = ["S", "alpha", "b", "beta", "memory"]


def trained(dtype="float64", forgetting=POLICIES[2], start="stream", n_hidden=5, ridge=0.01):
    """Return a small detector that has seen something, or nothing."""
    rng = np.random.default_rng(0)
    detector = Detector(n_hidden=n_hidden, dtype=dtype, forgetting=forgetting, ridge=ridge, seed=3)
    if start == "fit":
        detector.fit(rng.uniform(size=(40, 3)))
    if start != "nothing":
        detector.learn_many(rng.uniform(size=(60, 3)))
    return detector


def written(header, body=b"", *, version=1, size=None, raw=None):
    """Return a file with this header, these array bytes and a right checksum."""
    text = raw if raw is not None else canonical(header)
    data = b"onlad\x00" + struct.pack("<HQ", version, len(text) if size is None else size) + text
    data += bytes(-len(data) % 64) + body
    return data + hashlib.sha256(data).digest()


def canonical(header):
    return json.dumps(header, sort_keys=True, separators=(",", ":")).encode()


def described(model, **changed):
    """Return header and array bytes of a model, with some of what it learned changed."""
    table, body = [], bytearray()

    def node(value):
        if isinstance(value, np.ndarray):
            shape = list(value.shape)
            table.append({"dtype": str(value.dtype), "offset": len(body), "shape": shape})
            body.extend(value.tobytes() + bytes(-value.nbytes % 64))
            return {"array": len(table) - 1}
        if isinstance(value, dict):
            return {"dict": named(value)}
        if isinstance(value, Detector):
            parts = {"learned": named(value.learned()), "settings": named(value.settings())}
            return {"type": "Detector", **parts}
        if is_dataclass(value):
            return {"type": type(value).__name__, "fields": named(vars(value))}
        return {"float": "inf"} if type(value) is float and value == np.inf else value

    def named(values):
        return {name: node(values[name]) for name in sorted(values)}

    learned = named(merged(model.learned(), changed))
    tree = {"type": type(model).__name__, "learned": learned, "settings": named(model.settings())}
    return {"arrays": table, "model": tree}, bytes(body)


def merged(values, changed):
    """Return `values` with `changed` in them, also where a value is a dict."""
    inner = {k: merged(values[k], v) for k, v in changed.items() if isinstance(v, dict)}
    return values | changed | inner


def refused(tmp_path, data, says=" "):
    """Insist that a file with these bytes is refused in one line that begins with its name."""
    path = tmp_path / "hostile  file.onlad"
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=re.escape(says)) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(f"{path} ")
    assert "\n" not in message
    assert len(message) < len(str(path)) + 300
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return message


@pytest.fixture
def saved(tmp_path):
    save(trained(n_hidden=2), tmp_path / "model.onlad")
    return (tmp_path / "model.onlad").read_bytes()


# -- what is saved comes back -------------------------------------------------------------------


@pytest.mark.parametrize("start", ["nothing", "stream", "fit"])
@pytest.mark.parametrize("forgetting", POLICIES, ids=repr)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_loaded_detector_goes_on_to_the_last_bit(tmp_path, dtype, forgetting, start):
    detector = trained(dtype, forgetting, start)
    save(detector, tmp_path / "m")
    twin = load(tmp_path / "m")
    assert type(twin) is Detector
    assert twin.settings() == detector.settings()
    X = np.random.default_rng(1).uniform(size=(300, 3))
    np.testing.assert_array_equal(twin.score_many(X), detector.score_many(X))
    for x in X[:100]:
        assert twin.update_one(x) == detector.update_one(x)
    np.testing.assert_array_equal(twin.update_many(X[100:]), detector.update_many(X[100:]))
    for name, value in detector.learned().items():
        np.testing.assert_array_equal(twin.learned()[name], value)


def test_a_wound_up_detector_goes_on_to_the_last_bit(tmp_path):
    detector = Detector(n_hidden=16, forgetting=0.7, dtype="float32")
    detector.learn_many(np.full((400, 2), 0.5))
    assert detector.n_paused > 0
    save(detector, tmp_path / "m")
    twin = load(tmp_path / "m")
    for _ in range(50):
        assert twin.update_one([0.5, 0.5]) == detector.update_one([0.5, 0.5])
    assert twin.learned()["trace"] == detector.learned()["trace"]
    assert twin.n_paused == detector.n_paused


@given(
    n=st.integers(1, 6),
    N=st.integers(1, 9),
    rows=st.integers(0, 30),
    options=st.fixed_dictionaries(
        {
            "activation": st.sampled_from(["sigmoid", "identity", "relu", "tanh"]),
            "weights": st.sampled_from(["uniform", "uniform01", "normal"]),
            "score": st.sampled_from(["reconstruction", "leverage", "combined"]),
            "loss": st.sampled_from(["squared", "absolute"]),
            "ridge": st.floats(1e-6, 1e6),
            "dtype": st.sampled_from(["float32", "float64"]),
            "seed": st.integers(0, 2**128 - 1) | st.integers(0, 99).map(np.int64),
            "forgetting": st.floats(0.5, 1) | st.sampled_from(POLICIES),
        }
    ),
)
def test_save_inverts_load(tmp_path_factory, n, N, rows, options):
    path = tmp_path_factory.getbasetemp() / "inverse"
    detector = Detector(n_hidden=N, **options)
    detector.learn_many(np.random.default_rng(0).uniform(-1, 1, (rows, n)))
    save(detector, path)
    before = path.read_bytes()
    save(load(path), path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("forgetting", POLICIES, ids=repr)
@pytest.mark.parametrize("start", ["nothing", "stream"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_bytes_are_those_of_the_page(tmp_path, dtype, start, forgetting):
    detector = trained(dtype, forgetting, start)
    save(detector, tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == written(*described(detector))


def test_ridge_zero_and_strides_and_views_do_not_matter(tmp_path):
    detector = trained(start="fit", ridge=0.0)
    save(detector, str(tmp_path / "m"))
    twin = load(str(tmp_path / "m"))
    assert twin.ridge == 0
    assert twin.score_one([0.1, 0.2, 0.3]) == detector.score_one([0.1, 0.2, 0.3])


# -- models to come: every kind of value, and models in models ----------------------------------


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


numbers = st.floats() | st.integers(-(10**39) + 1, 10**39) | st.booleans() | st.none()
names = st.text(max_size=5) | st.sampled_from(["array", "type", "../etc/passwd", "dict"])
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


def same(a, b):
    """Whether two values are equal in type, order and bits; NaN equals NaN."""
    if isinstance(a, np.ndarray):
        native = a.dtype.newbyteorder("=")
        return (
            b.dtype == native and a.shape == b.shape and a.astype(native).tobytes() == b.tobytes()
        )
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return type(b) is dict and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and repr(a) == repr(b)


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


# -- damage -------------------------------------------------------------------------------------


def test_any_flipped_byte_is_refused(tmp_path, saved):
    path = tmp_path / "flipped"
    rng = np.random.default_rng(0)
    for at in range(len(saved)):
        data = bytearray(saved)
        data[at] ^= rng.integers(1, 256)
        path.write_bytes(data)
        with pytest.raises(ModelFileError):
            load(path)


def test_any_truncation_is_refused(tmp_path, saved):
    path = tmp_path / "cut"
    for length in range(len(saved)):
        path.write_bytes(saved[:length])
        with pytest.raises(ModelFileError):
            load(path)


@given(more=st.binary(min_size=1, max_size=200))
def test_appended_bytes_are_refused(tmp_path_factory, more):
    path = tmp_path_factory.getbasetemp() / "longer"
    header, body = described(trained())
    for data in (written(header, body) + more, written(header, body + more)):
        path.write_bytes(data)
        with pytest.raises(ModelFileError):
            load(path)


@given(
    data=st.binary(max_size=300),
    signed=st.booleans(),
    prefix=st.sampled_from([b"", b"onlad\0\1\0"]),
)
def test_any_bytes_are_refused(tmp_path_factory, data, signed, prefix):
    path = tmp_path_factory.getbasetemp() / "noise"
    data = prefix + data
    path.write_bytes(data + hashlib.sha256(data).digest() if signed else data)
    with pytest.raises(ModelFileError):
        load(path)


trees = st.recursive(
    numbers.filter(lambda v: v == v and abs(v or 0) != np.inf)
    | names
    | st.sampled_from(["Detector", "Monitor", "Constant", "OnDrift", "Gate", "inf", "float64"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["array", "dict", "tuple", "float", "type", "fields", "settings", "learned", "a"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=200)
@given(
    model=trees,
    arrays=trees,
    at=st.sampled_from(["root", "settings", "learned", "S", "forgetting"]),
)
def test_any_signed_header_is_refused(tmp_path_factory, model, arrays, at):
    path = tmp_path_factory.getbasetemp() / "tree"
    header, body = described(trained())
    if at == "root":
        header = {"arrays": arrays, "model": model}
    elif at in ("settings", "learned"):
        header["model"][at] = model
    else:
        part = header["model"]["settings" if at == "forgetting" else "learned"]
        if part[at] == model:
            return
        part[at] = model
    path.write_bytes(written(header, body))
    with pytest.raises(ModelFileError) as caught:
        load(path)
    assert "\n" not in str(caught.value)


# -- signed, but hostile ------------------------------------------------------------------------


def put(header, place, value):
    """Return a copy of `header` with `value` at a path of keys such as "model.settings.seed"."""
    header = copy.deepcopy(header)
    *way, last = [int(key) if key.isdigit() else key for key in place.split(".")]
    node = header
    for key in way:
        node = node[key]
    node[last] = value
    return header


POLICY = "model.settings.forgetting"
CONSTANT = {"type": "Constant", "fields": {"a": 0.5}}


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        ("arrays.0.shape", [2**40], "array 0 has shape"),
        ("arrays.0.shape", [2**31, 2**31], "array 0 is larger than the file"),
        ("arrays.0.shape", [2**31, 0], "array 1 has offset 256, not 0"),
        ("arrays.0.shape", [-5, -5], "array 0 has shape"),
        ("arrays.0.shape", [5.0, 5], "array 0 has shape"),
        ("arrays.0.shape", [True, 25], "array 0 has shape"),
        ("arrays.0.shape", [1] * 8 + [25], "array 0 has shape"),
        ("arrays.0.shape", 25, "array 0 has shape"),
        ("arrays.0.shape", [25], "S must have shape (5, 5), got (25,)"),
        ("arrays.0.shape", [5, 4], "not the zeros"),
        ("arrays.0.dtype", "object", "array 0 has dtype 'object'"),
        ("arrays.0.dtype", "|O", "array 0 has dtype '|O'"),
        ("arrays.0.dtype", ["float64"], "array 0 has dtype ['float64']"),
        ("arrays.0.dtype", "int64", "S must be float64, got int64"),
        ("arrays.0.offset", 64, "array 0 has offset 64, not 0"),
        ("arrays.0.offset", -8, "array 0 has offset -8, not 0"),
        ("arrays.0.offset", 2**64, "array 0 has offset"),
        ("arrays.0.offset", False, "array 0 has offset False, not 0"),
        ("arrays.0.path", "/etc/passwd", "array 0 is not described by"),
        ("arrays.0", "/etc/passwd", "array 0 is not described by"),
        ("arrays", {}, "the header is not that of a model"),
        ("extra", 1, "the header is not that of a model"),
        ("model", 1, "it is 1, which is no model"),
        ("model", CONSTANT, "which is no model"),
        ("model", {"type": "os.system", "fields": {"command": "true"}}, "is not a known kind"),
        ("model", {"type": "Detector", "fields": {}}, "is not a known kind of value"),
        ("model", {"learned settings": {}, "type": "Detector"}, "is not a known kind"),
        ("model.type", "../../Detector", "is not a known kind of value"),
        ("model.type", "Constant", "is not a known kind of value"),
        ("model.type", ["Detector"], "is not a known kind of value"),
        ("model.settings", [], "[] is not an object"),
        ("model.settings", {}, "missing in settings or not known: ['activation', "),
        ("model.settings.../../x", 1, "is not a known kind"),
        (
            "model.settings.n_hidden",
            2**62,
            "n_hidden must be in [1, 16384], got 4611686018427387904",
        ),
        ("model.settings.n_hidden", 10**60, "a whole number has 61 digits"),
        ("model.settings.n_hidden", 0, "n_hidden must be in [1, 16384], got 0"),
        ("model.settings.n_hidden", 5.0, "n_hidden must be int, got 5.0"),
        ("model.settings.n_hidden", True, "n_hidden must be int, got True"),
        ("model.settings.n_hidden", 6, "S must have shape (6, 6), got (5, 5)"),
        ("model.settings.seed", -1, "seed must not be negative, got -1"),
        ("model.settings.seed", "0", "seed must be int, got '0'"),
        ("model.settings.seed", None, "seed must be int, got None"),
        ("model.settings.ridge", -1.0, "ridge must be finite and not negative, got -1.0"),
        (
            "model.settings.ridge",
            {"float": "nan"},
            "ridge must be finite and not negative, got nan",
        ),
        ("model.settings.ridge", {"float": "1"}, "is not a known kind of value"),
        ("model.settings.ridge", 1, "ridge must be float, got 1"),
        ("model.settings.dtype", "float32", "S must be float32, got float64"),
        ("model.settings.activation", "/bin/sh", "activation must be one of sigmoid, "),
        ("model.settings.activation", "a\nb", "activation must be one of sigmoid, "),
        ("model.settings.loss", ["squared"], "loss must be str, got ['squared']"),
        (POLICY, 0.5, "forgetting must be Constant or Adaptive or OnDrift, got 0.5"),
        (POLICY, {"type": "Never", "fields": {}}, "is not a known kind of value"),
        (
            POLICY,
            {"type": "Constant", "fields": {"a": 1.5}},
            "forgetting must be in (0, 1], got 1.5",
        ),
        (POLICY, {"type": "Constant", "fields": {"a": True}}, "a must be int or float, got True"),
        (POLICY, {"type": "Constant", "fields": {"a": "1"}}, "a must be int or float, got '1'"),
        (POLICY, {"type": "Constant", "fields": {}}, "missing in Constant or not known: ['a']"),
        (POLICY, {"type": "Constant", "fields": 1}, "1 is not an object"),
        (POLICY, {"type": "Constant", "fields": {}, "path": {}}, "is not a known kind of value"),
        (POLICY, CONSTANT, "memory must have shape (1,), got (4,)"),
        (POLICY + ".fields.long", 1, "need 1 <= recent < long, got 16 and 1"),
        (POLICY + ".fields.long", 99.5, "long must be int, got 99.5"),
        (POLICY + ".fields.long", 2**63, "long of Adaptive must be at most 2^62, got 92233720"),
        (POLICY + ".fields.low", {"float": "nan"}, "low of Adaptive is NaN"),
        (POLICY + ".fields.low", {"type": "Detector"}, "is not a known kind of value"),
        ("model.learned", None, "None is not an object"),
        ("model.learned.other", 1, "missing in learned or not known: ['other']"),
        ("model.learned.seen", -1, "seen must be in [0, 2^62], got -1"),
        ("model.learned.paused", 2**62 + 1, "paused must be in [0, 2^62], got 46116860184273879"),
        ("model.learned.skipped", 1.0, "skipped must be int, got 1.0"),
        ("model.learned.skipped", True, "skipped must be int, got True"),
        ("model.learned.trace", {"float": "nan"}, "trace must be finite, got nan"),
        ("model.learned.trace", {"float": "inf"}, "trace must be finite, got inf"),
        ("model.learned.trace_start", 0.0, "trace_start must be finite and positive, got 0.0"),
        ("model.learned.trace_start", {"float": "inf"}, "trace_start must be finite and positive"),
        ("model.learned.shrink", 1.5, "shrink must be in [0, 1], got 1.5"),
        ("model.learned.shrink", {"float": "nan"}, "shrink must be in [0, 1], got nan"),
        ("model.learned.weight", -1.0, "weight must be finite and not negative, got -1.0"),
        ("model.learned.weight", {"float": "inf"}, "weight must be finite and not negative"),
        ("model.learned.weight", {"float": "nan"}, "weight must be finite and not negative"),
        ("model.learned.weight", 1, "weight must be float, got 1"),
        ("model.learned.S", {"array": 1}, "array 1 is out of turn"),
        ("model.learned.S", {"array": False}, "array False is out of turn"),
        ("model.learned.S", {"array": 10**30}, "is out of turn"),
        ("model.learned.S", {"array": "S"}, "is not a known kind of value"),
        ("model.learned.S", 1.0, "array 1 is out of turn"),
        ("model.learned.memory", {"array": 3}, "array 3 is out of turn"),
        ("model.learned.memory", (0.5,), "there are arrays that belong to nothing"),
        ("model.learned.memory", {"dict": {"a": {"array": 4}}}, "memory must be ndarray, got {"),
        ("model.learned.trace", {"tuple": 1}, "is not a known kind of value"),
        ("model.learned.trace", {"dict": 1}, "is not a known kind of value"),
        ("model.learned.trace", {"dict": {}}, "trace must be float, got {}"),
        ("model.learned.trace", {}, "{} is not a known kind of value"),
    ],
)
def test_a_hostile_header_is_refused_with_its_reason(tmp_path, place, value, says):
    header, body = described(trained())
    load_path = tmp_path / "good"
    load_path.write_bytes(written(header, body))
    load(load_path)  # so that what is refused below is the change and nothing else
    if place == "model.settings.../../x":  # a name with slashes is an unknown name
        header["model"]["settings"]["../../x"] = value
        says = "missing in settings or not known: ['../../x']"
    else:
        header = put(header, place, value)
    if place == "model":  # nothing is left that could name the arrays
        header, body = put(header, "arrays", []), b""
    message = refused(tmp_path, written(header, body), says)
    assert message.endswith(". Save the model again")


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_arrays_that_are_not_finite_are_refused(tmp_path, name, bad):
    array = trained().learned()[name]
    array.flat[-1] = bad
    says = f"{name} holds a number that is not finite"
    refused(tmp_path, written(*described(trained(), **{name: array})), says)


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_that_do_not_fit_are_refused(tmp_path, name):
    array = np.concatenate([trained().learned()[name]] * 2)
    refused(tmp_path, written(*described(trained(), **{name: array})), "must have shape")


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_of_another_type_are_refused(tmp_path, name):
    array = trained().learned()[name].astype("float32")
    refused(tmp_path, written(*described(trained(), **{name: array})), f"{name} must be float64")


@pytest.mark.parametrize("alpha", [np.empty((0, 5)), np.array(1.0)], ids=["empty", "scalar"])
def test_a_model_without_features_is_refused(tmp_path, alpha):
    refused(tmp_path, written(*described(trained(), alpha=alpha)), "alpha has no features")


@pytest.mark.parametrize(
    "S",
    [np.zeros((5, 5)), np.ones((5, 5)), np.diag([1.0, 1, 0, 1, 1]), np.full((5, 5), 1e308)],
    ids=["zero", "ones", "one zero", "huge"],
)
def test_a_root_that_is_singular_is_refused(tmp_path, S):
    refused(tmp_path, written(*described(trained(), S=S)), "S is singular")


@pytest.mark.parametrize("a", [0.0, -0.5, 1.5])
def test_a_forgetting_factor_out_of_range_is_refused(tmp_path, a):
    memory = trained().learned()["memory"]
    memory[0] = a
    says = f"the forgetting factor in memory must be in (0, 1], got {a}"
    refused(tmp_path, written(*described(trained(), memory=memory)), says)


@pytest.mark.parametrize(
    ("forgetting", "at"),
    [(Adaptive(), 3), (OnDrift(), 2), (OnDrift(), 3), (OnDrift(), 4)],
)
def test_a_negative_count_in_memory_is_refused(tmp_path, forgetting, at):
    detector = trained(forgetting=forgetting)
    memory = detector.learned()["memory"]
    memory[at] = -1.0  # the policy would divide by zero at the next sample
    says = "counts in memory must not be negative"
    refused(tmp_path, written(*described(detector, memory=memory)), says)


@pytest.mark.parametrize("name", trained().learned())
def test_what_is_missing_is_refused(tmp_path, name):
    header, body = described(trained())
    if name in ARRAYS:  # without its entry, but with all arrays, turn or table is wrong
        learned = trained().learned()
        del learned[name]
        detector = trained()
        detector.learned = lambda: learned
        header, body = described(detector)
    else:
        del header["model"]["learned"][name]
    refused(tmp_path, written(header, body), f"missing in learned or not known: ['{name}']")


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


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace(b'"seed":3', b'"seed":3,"seed":3'),
        lambda text: text.replace(b'"seed":3', b'"seed": 3'),
        lambda text: text.replace(b'"ridge":0.01', b'"ridge":1e-2'),
        lambda text: text.replace(b'"type"', b'"\\u0074ype"'),
        lambda text: text.replace(b'"ridge":0.01', b'"ridge":NaN'),
        lambda text: text.replace(b'"ridge":0.01', b'"ridge":Infinity'),
        lambda text: text.replace(b'"ridge":0.01', b'"ridge":1e999'),
        lambda text: text.replace(b'"seed":3', b'"seed":' + b"9" * 10**6),
        lambda text: text.replace(b'"seed":3', b'"seed":' + b"[" * 10**5 + b"]" * 10**5),
        lambda text: text.replace(b'"seed":3', b'"seed":' + b'{"a":' * 10**5 + b"0" + b"}" * 10**5),
        lambda text: text.replace(b'"seed":3', b'"seed":' + b"[" * 300 + b"]" * 300),
        lambda text: b"\xff\xfe" + text,
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: text.decode().encode("utf-16"),
        lambda text: text[:-1],
        lambda text: b"",
        lambda text: b"null",
        lambda text: b"[]",
    ],
)
def test_a_header_in_any_other_spelling_is_refused(tmp_path, edit):
    header, body = described(trained())
    text = canonical(header)
    assert edit(text) != text
    refused(tmp_path, written(None, body, raw=edit(text)))


@pytest.mark.parametrize("size", [2**64 - 1, 2**40, 2**20 + 1, 2**19])
def test_a_header_longer_than_the_file_is_refused(tmp_path, size):
    header, body = described(trained())
    refused(tmp_path, written(header, body, size=size), f"the header has {size} bytes")


def test_padding_holds_nothing(tmp_path):
    header, body = described(trained())
    good = written(header, body)
    start = good.index(body) if body in good else 0
    for at in (start - 1, start + 5 * 5 * 8):
        data = bytearray(good[:-32])
        data[at] = 1
        refused(tmp_path, bytes(data) + hashlib.sha256(data).digest(), "not the zeros")


def test_declared_sizes_allocate_nothing(tmp_path):
    header, body = described(trained())
    hostile = [
        put(header, "arrays.0.shape", [2**40]),
        put(header, "arrays.0.shape", [2**20, 2**20]),
        put(header, "arrays.0.shape", [0] + [2**31] * 7),
        put(header, "model.settings.n_hidden", 2**40),
        put(header, "arrays", [header["arrays"][0]] * 5000),
    ]
    # A model that is not started has no arrays that n_hidden could be compared with.
    empty = put(put(header, "model.learned", {}), "arrays", [])
    files = [written(h, body) for h in hostile] + [
        written(put(empty, "model.settings.n_hidden", 2**40)),
        written(header, body, size=2**40),
        written(put(empty, "model.settings.seed", [{"array": 0}] * 5000)),
    ]
    tracemalloc.start()
    try:
        for data in files:
            refused(tmp_path, data)
        assert tracemalloc.get_traced_memory()[1] < 10e6
    finally:
        tracemalloc.stop()


def test_a_sparse_giant_is_not_read(tmp_path, saved):
    path = tmp_path / "giant"
    path.write_bytes(saved)
    os.truncate(path, 2**40)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match="has 1099511627776 bytes; a model has at most"):
            load(path)
        assert tracemalloc.get_traced_memory()[1] < 10e6
    finally:
        tracemalloc.stop()


# -- monitors ---------------------------------------------------------------------------------

COLUMNS = ["score", "threshold", "p_value", "is_anomaly", "learned", "ready", "drift", "shares"]
MOMENTS = [0, 31, 32, 33, 64, 90, 511, 790, 1000]


def stream(rows=1100, n=3):
    """Return samples in raw units with values missing; from 700 on the stream has drifted."""
    rng = np.random.default_rng(5)
    level = np.sin(np.arange(rows) / 9)[:, None]
    X = 50 + 9 * level * np.arange(1, n + 1) + rng.normal(size=(rows, n))
    X[700:] += 80
    X[rng.random(X.shape) < 0.03] = np.nan
    return X


def watcher(rows=0, **options):
    """Return a small and impatient monitor that has seen `rows` samples of the stream."""
    usual = {
        "detector": Detector(n_hidden=4, activation="tanh", weights="normal", ridge=0.1, seed=2),
        "gate": Gate(shortest=64, longest=128),
        "warmup": 64,
        "window": 2,
    }
    monitor = Monitor(**usual | options)
    if rows:
        monitor.observe_many(stream()[:rows])
    return monitor


SEASONED = watcher(1005)  # after a drift, in the middle of a tick, ready


def saved_and_loaded(monitor, path):
    save(monitor, path)
    return load(path)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"window": None},
        {"window": 1, "gate": None},
        {"scaler": MinMax(), "threshold": Tail(q=1e-3)},
        {"scaler": MinMax(clip=2), "threshold": Fixed(4)},
        {"scaler": Standard(memory=16, clip=5.0), "threshold": Quantile(0.9)},
        {"threshold": Deviation(5.0), "warmup": 300, "seed": 9},
        {"detector": Detector(n_hidden=3, dtype="float32", forgetting=Adaptive())},
        {"detector": Detector(n_hidden=3, score="reconstruction", forgetting=OnDrift(limit=2.0))},
        {"detector": Detector(n_hidden=3, score="leverage", forgetting=Constant(1))},
    ],
    ids=repr,
)
def test_a_loaded_monitor_goes_on_to_the_last_bit(tmp_path, options):
    X = stream()
    whole, monitor = copy.deepcopy(watcher(**options)), watcher(**options)
    verdicts = whole.observe_many(X)
    assert verdicts.drift.any() == (monitor.gate is not None)
    for start, stop in zip(MOMENTS, [*MOMENTS[1:], len(X)], strict=True):
        twin = saved_and_loaded(monitor, tmp_path / "m")
        assert type(twin) is Monitor
        assert repr(twin) == repr(monitor)
        found = twin.observe_many(X[start : start + 100])
        for name in COLUMNS:
            expected = getattr(verdicts, name)[start : start + 100]
            np.testing.assert_array_equal(getattr(found, name), expected, err_msg=name)
        monitor = saved_and_loaded(monitor, tmp_path / "m")
        monitor.observe_many(X[start:stop])
    assert same(whole.learned(), monitor.learned())


def test_the_default_monitor_goes_on_to_the_last_bit_one_by_one(tmp_path):
    monitor = Monitor()
    monitor.observe_many(stream()[:600])
    twin = saved_and_loaded(monitor, tmp_path / "m")
    for x in stream()[600:]:
        assert twin.observe(x) == monitor.observe(x)


@pytest.mark.parametrize("rows", [5, 100])
@pytest.mark.parametrize(
    "names",
    [("flow", "power", "Wärme\n"), (7, 0, -3), ("", 0, "0"), tuple(map(np.int64, range(3)))],
    ids=repr,
)
def test_names_come_back(tmp_path, names, rows):
    monitor, X = watcher(), stream()
    for row in X[:rows]:
        monitor.observe(dict(zip(names, row, strict=True)))
    twin = saved_and_loaded(monitor, tmp_path / "m")
    assert twin.names == names
    x = dict(zip(names, X[rows], strict=True))
    assert twin.observe(x) == monitor.observe(x)


@pytest.mark.parametrize("name", [("a", 1), 1.5, None, True, b"a"], ids=repr)
def test_a_name_that_is_no_string_or_number_is_refused(tmp_path, name):
    monitor = watcher()
    monitor.observe({name: 1.0, "b": 2.0})
    with pytest.raises((ModelFileError, TypeError), match=r"names must be|cannot be saved"):
        save(monitor, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=30)
@given(
    rows=st.integers(0, 400),
    n=st.integers(1, 4),
    options=st.fixed_dictionaries(
        {
            "window": st.none() | st.integers(1, 5),
            "scaler": st.sampled_from([Standard(), MinMax(clip=1)]),
            "threshold": st.sampled_from([Fixed(3), Quantile(), Deviation(), Tail()]),
            "gate": st.sampled_from([None, Gate(), Gate(deviations=0.5, shortest=1, longest=40)]),
            "warmup": st.integers(64, 200),
        }
    ),
)
def test_save_inverts_load_of_a_monitor(tmp_path_factory, rows, n, options):
    path = tmp_path_factory.getbasetemp() / "inverse"
    monitor = watcher(**options)
    monitor.observe_many(stream(rows + 1, n)[:rows])
    save(monitor, path)
    assert path.read_bytes() == written(*described(monitor))
    save(load(path), path)
    assert path.read_bytes() == written(*described(monitor))


def test_a_feature_that_is_always_missing_can_be_saved(tmp_path):
    monitor, X = watcher(), stream()
    X[:, 1] = np.nan
    for scaler in (Standard(), MinMax()):
        monitor = watcher(scaler=scaler)
        monitor.observe_many(X[:500])
        twin = saved_and_loaded(monitor, tmp_path / "m")
        assert twin.observe(X[500]) == monitor.observe(X[500])


def test_the_largest_measurements_can_be_saved(tmp_path):
    X = np.random.default_rng(0).choice([-1e100, 0.0, 1e100], (300, 3))
    for scaler in (Standard(), MinMax()):
        monitor = watcher(scaler=scaler)
        monitor.observe_many(X)
        twin = saved_and_loaded(monitor, tmp_path / "m")
        assert twin.observe(X[0]) == monitor.observe(X[0])


@pytest.mark.parametrize("rows", [20, 500])
def test_a_damaged_monitor_is_refused(tmp_path, rows):
    path, rng = tmp_path / "m", np.random.default_rng(0)
    save(watcher(rows), path)
    good = path.read_bytes()
    for at in rng.integers(len(good), size=200):
        flipped = bytearray(good)
        flipped[at] ^= rng.integers(1, 256)
        for data in (flipped, good[:at]):
            path.write_bytes(data)
            with pytest.raises(ModelFileError):
                load(path)


LEARNED, OPTIONS = "model.learned.", "model.settings."
YARDSTICK, INNER = LEARNED + "yardstick.dict.", LEARNED + "detector.dict."
NAN, INF, LOWEST = {"float": "nan"}, {"float": "inf"}, {"float": "-inf"}


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (OPTIONS + "window", 0, "window must be at least 1, got 0"),
        (OPTIONS + "window", True, "window must be int or NoneType, got True"),
        (OPTIONS + "window", 2.0, "window must be int or NoneType, got 2.0"),
        (OPTIONS + "window", 2**39, "inputs and 4 hidden units are too many for a file"),
        (OPTIONS + "window", 3, "the detector must have 9 features, got 6"),
        (OPTIONS + "warmup", 63, "warmup must be a whole number of at least 64, got 63"),
        (OPTIONS + "warmup", 2**62 + 1, "warmup must be in [0, 2^62], got 46116860184273879"),
        (OPTIONS + "warmup", 64.0, "warmup must be int, got 64.0"),
        (OPTIONS + "warmup", 256, "opening must be in [224, 224], got "),
        (OPTIONS + "seed", None, "seed must be int, got None"),
        (OPTIONS + "scaler", None, "scaler must be Standard or MinMax, got None"),
        (OPTIONS + "scaler", {"type": "MinMax", "fields": {"clip": 9.0}}, "scale must have shape"),
        (OPTIONS + "scaler.fields.clip", 0.0, "clip must be finite and above 0, got 0.0"),
        (OPTIONS + "scaler.fields.clip", 1e-3, "past holds a number that is not in [-0.001, 0."),
        (OPTIONS + "scaler.fields.memory", 32, "count in scale holds a number that is not in [0"),
        (OPTIONS + "scaler.fields.memory", 1e4, "memory must be int, got 10000.0"),
        (OPTIONS + "threshold", 3.5, "threshold must be Deviation or Tail or Quantile or Fixed"),
        (OPTIONS + "threshold.fields.k", INF, "k must be finite and above 0, got inf"),
        (OPTIONS + "threshold.fields.k", 10**39, "k of Deviation must be at most 2^62, got 1000"),
        (OPTIONS + "gate", 1, "gate must be Gate or NoneType, got 1"),
        (OPTIONS + "gate", None, "gate_limit must be inf without a gate, got "),
        (OPTIONS + "gate.fields.longest", 1, "need 1 <= shortest <= longest, got 64 and 1"),
        (OPTIONS + "detector", None, "detector must be Detector, got None"),
        (OPTIONS + "detector.settings.ridge", 0.0, "must have seen nothing, with ridge > 0"),
        (OPTIONS + "detector.settings.n_hidden", 5, "S must have shape (5, 5), got (4, 4)"),
        (OPTIONS + "detector.settings.n_hidden", 2**40, "n_hidden must be in [1, 16384], got"),
        (OPTIONS + "detector.settings.seed", -1, "seed must not be negative, got -1"),
        (LEARNED + "other", 1, "missing in learned or not known: ['other']"),
        (LEARNED + "kept", 1, "missing in learned or not known: ['count', 'detector', "),
        (LEARNED + "names", 3, "names must be list, got 3"),
        (LEARNED + "names", [], "names must be strings or whole numbers, each once, got []"),
        (LEARNED + "names", [0, 1, 1], "names must be strings or whole numbers, each once, got"),
        (LEARNED + "names", [0, 1, None], "names must be strings or whole numbers, each once"),
        (LEARNED + "names", [0, True, 2], "names must be strings or whole numbers, each once"),
        (LEARNED + "names", [0, 1, [2]], "names must be strings or whole numbers, each once"),
        (LEARNED + "names", [0, 1], "the detector must have 4 features, got 6"),
        (LEARNED + "names", [0, 1, 2, 3], "the detector must have 8 features, got 6"),
        (LEARNED + "names", list(range(6)), "the detector must have 12 features, got 6"),
        (LEARNED + "n_seen", 31, "n_seen must be in [32, 2^62], got 31"),
        (LEARNED + "n_seen", 2**62 + 1, "n_seen must be in [32, 2^62], got 4611686018427387905"),
        (LEARNED + "n_seen", 1000.0, "n_seen must be int, got 1000.0"),
        (LEARNED + "n_seen", 400, "count must be in [32, 400], got "),
        (LEARNED + "count", 31, "count must be in [32, 1005], got 31"),
        (LEARNED + "count", 1006, "count must be in [32, 1005], got 1006"),
        (LEARNED + "count", 32, "n_ring must be in [0, 0], got "),
        (LEARNED + "opening", 31, "opening must be in [32, 128], got 31"),
        (LEARNED + "opening", 129, "opening must be in [32, 128], got 129"),
        (LEARNED + "opening", 64.0, "opening must be int, got 64.0"),
        (LEARNED + "limit", NAN, "limit must be a number or inf, got nan"),
        (LEARNED + "limit", LOWEST, "limit must be a number or inf, got -inf"),
        (LEARNED + "limit", 3, "limit must be float, got 3"),
        (LEARNED + "gate_limit", NAN, "gate_limit must be a number or inf, got nan"),
        (LEARNED + "shut", -1.0, "shut must be in [0, 128], got -1.0"),
        (LEARNED + "shut", 129.0, "shut must be in [0, 128], got 129.0"),
        (LEARNED + "shut", NAN, "shut must be in [0, 128], got nan"),
        (LEARNED + "yardstick", {"array": 5}, "is out of turn"),
        (YARDSTICK + "other", 1, "missing in yardstick or not known: ['other']"),
        (YARDSTICK + "weight", NAN, "weight of yardstick must be in [0, 2048], got nan"),
        (YARDSTICK + "weight", -1, "weight of yardstick must be in [0, 2048], got -1"),
        (YARDSTICK + "weight", 2049.0, "weight of yardstick must be in [0, 2048], got 2049.0"),
        (YARDSTICK + "weight", True, "weight must be int or float, got True"),
        (YARDSTICK + "n_ring", -1, "n_ring must be in [0, "),
        (YARDSTICK + "n_ring", 10**9, "n_ring must be in [0, "),
        (YARDSTICK + "n_fresh", 1000, "n_fresh must be in [0, "),
        (YARDSTICK + "n_fresh", -1, "n_fresh must be in [0, "),
        (YARDSTICK + "n_fresh", 1.0, "n_fresh must be int, got 1.0"),
        (INNER + "weight", -1.0, "weight must be finite and not negative, got -1.0"),
        (INNER + "seen", 1006, "seen and skipped of the detector must be in [0, 1005], got 1006"),
        (INNER + "skipped", 1005, "seen and skipped of the detector must be in [0, 1005], got "),
        (INNER + "trace", NAN, "trace must be finite, got nan"),
        (INNER + "path", "/etc/passwd", "missing in learned or not known: ['path']"),
    ],
)
def test_a_hostile_monitor_is_refused_with_its_reason(tmp_path, place, value, says):
    header, body = described(SEASONED)
    (tmp_path / "good").write_bytes(written(header, body))
    load(tmp_path / "good")
    refused(tmp_path, written(put(header, place, value), body), says)


@pytest.mark.parametrize("name", SEASONED.learned())
def test_what_is_missing_in_a_monitor_is_refused(tmp_path, name):
    monitor = copy.deepcopy(SEASONED)
    learned = monitor.learned()
    del learned[name]
    monitor.learned = lambda: learned
    refused(tmp_path, written(*described(monitor)), f"missing in learned or not known: ['{name}']")


def edited(array, at, value):
    array = array.copy()
    array[at] = value
    return array


def changed_at(name, at, value):
    """Return a change of one number of what a monitor has learned."""
    *way, last = name.split(".")
    learned = SEASONED.learned()
    change = {last: edited((learned[way[0]] if way else learned)[last], at, value)}
    return {way[0]: change} if way else change


def resized(name, *shape, dtype="float64"):
    *way, last = name.split(".")
    change = {last: np.ones(shape, dtype)}
    return {way[0]: change} if way else change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (resized("past", 2, 3), "past must have shape (1, 3), got (2, 3)"),
        (resized("past", 3), "past must have shape (1, 3), got (3,)"),
        (changed_at("past", (0, 0), np.inf), "past holds a number that is not finite"),
        (changed_at("past", (0, 0), 20.5), "past holds a number that is not in [-20, 20]"),
        (resized("rows", 31, 3), "rows must have shape (32, 3), got (31, 3)"),
        (resized("rows", 32, 3, dtype="float32"), "rows must be float64, got float32"),
        (changed_at("rows", (0, 0), -np.inf), "rows holds a number that is not finite"),
        (changed_at("rows", (0, 0), 1.1e100), "rows holds a number that is not in [-1e+100, 1e+1"),
        (resized("evidence", 32, 4), "evidence must have shape (32, 5), got (32, 4)"),
        (changed_at("evidence", (0, 0), np.nan), "evidence holds a number that is not finite"),
        (resized("learned", 31, dtype="bool"), "learned must have shape (32,), got (31,)"),
        (resized("learned", 32), "learned must be bool, got float64"),
        (resized("scale", 2, 3), "scale must have shape (3, 3), got (2, 3)"),
        (resized("scale", 3, 2), "scale must have shape (3, 3), got (3, 2)"),
        (changed_at("scale", (0, 0), -1.0), "count in scale holds a number that is not in [0, 8"),
        (changed_at("scale", (1, 0), np.nan), "scale holds a number that is not finite"),
        (changed_at("scale", (1, 0), 1e101), "mean in scale holds a number that is not in"),
        (changed_at("scale", (2, 0), -1e-9), "variance in scale holds a number that is not in"),
        (changed_at("scale", (2, 0), 1e202), "variance in scale holds a number that is not in"),
        (resized("yardstick.usual", 2, 6), "usual must have shape (2, 12), got (2, 6)"),
        (resized("yardstick.scales", 2, 13), "scales must have shape (2, 12), got (2, 13)"),
        (resized("yardstick.sums", 2, 12), "sums must have shape (3, 12), got (2, 12)"),
        (resized("yardstick.means", 12), "means must have shape (2, 12), got (12,)"),
        (resized("yardstick.trend", 0), "trend must have shape (1,), got (0,)"),
        (resized("yardstick.levels", 5, 2), "levels must have shape (2, 5), got (5, 2)"),
        (resized("yardstick.ring", 2047, 5), "ring must have shape (2048, 5), got (2047, 5)"),
        (resized("yardstick.ring", 2048, 5, dtype="int64"), "ring must be float64, got int64"),
        (resized("yardstick.scores", 0), "scores must hold a score"),
        (resized("yardstick.scores", 2, 2), "scores must have shape (4,), got (2, 2)"),
        (resized("yardstick.scores", 2049), "scores must have shape (2048,), got (2049,)"),
        (changed_at("yardstick.scores", 0, 1e9), "scores must be sorted"),
        (changed_at("yardstick.scores", -1, np.inf), "scores holds a number that is not finite"),
        (changed_at("yardstick.usual", (0, 0), -1.0), "usual holds a number that is not in [0, "),
        (changed_at("yardstick.usual", (0, 0), 9.0), "scales must be the inverse of usual"),
        (changed_at("yardstick.scales", (0, 0), 0.0), "scales must be the inverse of usual"),
        (changed_at("yardstick.scales", (0, 0), np.nan), "scales holds a number that is not fin"),
        (changed_at("yardstick.sums", (0, 0), -1.0), "sums holds a number that is not in [0, inf]"),
        (changed_at("yardstick.sums", (2, 0), 33.0), "counts in sums holds a number that is not"),
        (changed_at("yardstick.means", (1, 0), np.nan), "means holds a number that is not finite"),
        (changed_at("yardstick.trend", 0, 6.1), "trend holds a number that is not in [-3, 6]"),
        (changed_at("yardstick.levels", (0, 0), np.nan), "levels holds a number that is not fini"),
        (changed_at("yardstick.levels", (1, 4), 0.0), "spread in levels holds a number that is "),
        (changed_at("yardstick.ring", (2047, 0), np.nan), "ring holds a number that is not finite"),
        (resized("detector.alpha", 5, 4), "beta must have shape (4, 5), got (4, 6)"),
        (changed_at("detector.S", (0, 0), np.nan), "S holds a number that is not finite"),
        ({"detector": {"S": 1e200 * np.eye(4)}}, "S is too large for P = S S' to be loosened"),
        (
            {"detector": {"S": 1e12 * np.ones((4, 4)) + 1e-2 * np.eye(4)}},
            "S is too large for P = S S' to be loosened",
        ),
    ],
)
def test_arrays_of_a_monitor_that_cannot_be_are_refused(tmp_path, change, says):
    refused(tmp_path, written(*described(SEASONED, **change)), says)


def test_a_range_with_its_ends_exchanged_is_refused(tmp_path):
    monitor = watcher(100, scaler=MinMax())
    scale = monitor.learned()["scale"]
    says = "the range in scale has its ends exchanged"
    refused(tmp_path, written(*described(monitor, scale=scale[::-1].copy())), says)
    says = "scale holds a number that is not in [-2e+100, 2e+100]"
    refused(tmp_path, written(*described(monitor, scale=edited(scale, (1, 0), 1e101))), says)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"n_seen": 0}, "n_seen must be in [1, 32) with kept, got 0"),
        ({"n_seen": 32}, "n_seen must be in [1, 32) with kept, got 32"),
        ({"n_seen": 8}, "kept must have shape (8, 3), got (9, 3)"),
        ({"names": [1, 2]}, "kept must have shape (9, 2), got (9, 3)"),
        ({"kept": np.full((9, 3), np.inf)}, "kept holds a number that is not finite"),
        ({"kept": np.full((9, 3), 1e101)}, "kept holds a number that is not in [-1e+100, 1e+100]"),
        ({"kept": np.ones((9, 3), "float32")}, "kept must be float64, got float32"),
        ({"kept": 9}, "kept must be ndarray, got 9"),
        ({"names": list(range(2**13))}, "131072 inputs and 16384 hidden units are too many for a"),
    ],
)
def test_kept_samples_that_cannot_be_are_refused(tmp_path, change, says):
    detector = Detector(n_hidden=2**14) if len(change.get("names", [])) > 9 else Detector()
    monitor = watcher(9, window=16, detector=detector)
    refused(tmp_path, written(*described(monitor, **change)), says)


def test_a_monitor_that_is_started_inside_only_is_refused(tmp_path):
    monitor = watcher(100)
    learned = monitor.learned() | {"detector": {}}
    monitor.learned = lambda: learned
    says = "the detector of a started monitor has learned nothing"
    refused(tmp_path, written(*described(monitor)), says)
    monitor = watcher()
    monitor.detector.learn_one([1.0, 2.0])
    options = monitor.settings() | {"detector": monitor.detector}
    monitor.settings = lambda: options
    says = "the detector in the settings must have seen nothing, with ridge > 0"
    refused(tmp_path, written(*described(monitor)), says)


def places(values, way=()):
    """Return the way to each number and array in nested dicts."""
    found = []
    for name, value in values.items():
        if isinstance(value, dict):
            found += places(value, (*way, name))
        elif not isinstance(value, list):
            found.append((*way, name))
    return found


EXTREMES = [0, -1, 1e15, 1e300]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("way", places(SEASONED.learned()), ids=".".join)
def test_a_monitor_that_is_not_refused_never_fails_later(tmp_path, way):
    """Extreme numbers may make a useless monitor, but none that raises."""
    monitor = copy.deepcopy(SEASONED)
    start, later = monitor.learned(), stream(300) - 70
    for value, part in itertools.product(EXTREMES, [slice(None), slice(-1, None)]):
        learned = copy.deepcopy(start)
        node = learned
        for name in way[:-1]:
            node = node[name]
        if isinstance(node[way[-1]], np.ndarray):
            node[way[-1]].flat[part] = value
        else:
            node[way[-1]] = type(node[way[-1]])(value)
        monitor.learned = lambda learned=learned: learned
        (tmp_path / "m").write_bytes(written(*described(monitor)))
        try:
            twin = load(tmp_path / "m")
        except ModelFileError:
            continue
        assert len(twin.observe_many(later)) == 300


# -- other files, other versions, messages ------------------------------------------------------


def test_the_messages_say_what_to_do(tmp_path, saved):
    says = "is not an onlad model. Give a file that onlad.save wrote"
    for data in (b"", b"onl", b"\x80\x04pickle", b"PK\x03\x04", saved[1:]):
        assert refused(tmp_path, data).endswith(says)
    says = "is damaged: its checksum is not that of its bytes. Restore it from a copy, or save"
    for data in (saved[:-1], saved[:6], saved[:40], saved + b"\0", saved.replace(b"seed", b"sead")):
        assert says in refused(tmp_path, data)


@pytest.mark.parametrize("version", [0, 2, 65535])
def test_another_version_is_refused_by_its_number(tmp_path, version):
    message = refused(tmp_path, written(*described(trained()), version=version))
    says = f"has format {version}; this onlad reads 1. Load it with the onlad that wrote it, or a"
    assert says in message


def test_a_path_with_a_line_break_stays_in_one_line(tmp_path):
    path = tmp_path / "two\nlines"
    path.write_bytes(b"x")
    with pytest.raises(ModelFileError, match=re.escape("two\\nlines' is not an onlad")):
        load(path)


def test_what_cannot_be_read_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        load(tmp_path)
    with pytest.raises(FileNotFoundError):
        save(trained(), tmp_path / "none" / "m")
    with pytest.raises(IsADirectoryError):
        save(trained(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_device_is_no_model():
    with pytest.raises(ModelFileError, match="/dev/zero is not an onlad model"):
        load("/dev/zero")


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
        (7, "save takes a Monitor or a Detector, got 7"),
        (Other(), "save takes a Monitor or a Detector, got Detector(n_h"),
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
        (Monitor(window=2**22 + 1), "4194305 inputs and 64 hidden units are too many for a file"),
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


# -- the disk -----------------------------------------------------------------------------------


def test_permissions_are_those_of_a_new_file_or_of_the_old_one(tmp_path):
    path = tmp_path / "m"
    before = os.umask(0o027)
    try:
        save(trained(), path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        for mode in (0o600, 0o444, 0o664):
            path.chmod(mode)
            save(trained(), path)
            assert stat.S_IMODE(path.stat().st_mode) == mode
    finally:
        os.umask(before)


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to("real/m")
    save(trained(), link)
    assert link.is_symlink()
    assert [p.name for p in (tmp_path / "real").iterdir()] == ["m"]
    load(link)


def test_a_name_without_a_folder_is_in_this_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(trained(), "m")
    load("m")


def test_a_long_name_can_be_saved(tmp_path):
    save(trained(), tmp_path / ("m" * 255))


@pytest.mark.parametrize("broken", ["replace", "fsync", "fchmod"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, broken, error):
    path = tmp_path / "m"
    save(trained(start="nothing"), path)
    before = path.read_bytes()

    def fail(*args):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, broken, fail)
        with pytest.raises(error):
            save(trained(), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "m"
    save(trained(start="nothing"), path)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            save(trained(), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_the_order_is_write_sync_replace_sync(tmp_path, monkeypatch):
    path, done = tmp_path / "m", []
    sync, replace = os.fsync, os.replace

    def watched_sync(descriptor):
        folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        done.append("sync folder" if folder else f"sync {os.fstat(descriptor).st_size}")
        sync(descriptor)

    def watched_replace(source, target):
        assert os.path.dirname(source) == os.path.dirname(target)
        done.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_sync)
    monkeypatch.setattr(os, "replace", watched_replace)
    save(trained(), path)
    assert done == [f"sync {path.stat().st_size}", "replace", "sync folder"]


def test_many_may_save_to_one_path_at_once(tmp_path):
    path = tmp_path / "m"
    detectors = [Detector(n_hidden=8, seed=seed) for seed in range(4)]
    save(detectors[0], path)
    failures = []

    def work(detector):
        try:
            for _ in range(20):
                save(detector, path)
                assert load(path).seed in range(4)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(detector,)) for detector in detectors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


# Nothing but writing, so that a kill falls into it: the bytes are made before, and fsync, which
# matters to a power cut and not to a kill, is left out. Megabytes, for a write that lasts.
SAVER = """
import os, sys
import numpy as np
from onlad import modelfile, persist
from onlad.detector import Detector

files = []
for seed in range(2):
    detector = Detector(n_hidden=64, seed=seed)
    detector.learn_one(np.zeros(4096))
    files.append(modelfile.encode(persist._described(detector)))
os.fsync = lambda descriptor: None
persist.save(detector, sys.argv[1])
print("saved", flush=True)
while True:
    for data in files:
        modelfile.replace(sys.argv[1], data)
"""


def killed_while_saving(path, times):
    """Kill a process that does nothing but save, `times` times; the file must load each time."""
    rng = np.random.default_rng(0)
    command = [sys.executable, "-c", SAVER, str(path)]
    for _ in range(times):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as saver:
            assert saver.stdout.readline() == b"saved\n"
            time.sleep(rng.uniform(0.0, 0.1))
            saver.kill()
        load(path)
    rest = [p.name for p in path.parent.iterdir() if p != path]
    assert all(re.fullmatch(r"\.onlad-[0-9a-f]{16}\.tmp", name) for name in rest)


def test_a_killed_save_leaves_a_file_that_loads(tmp_path):
    killed_while_saving(tmp_path / "m", 5)


@pytest.mark.slow
def test_many_killed_saves_leave_a_file_that_loads(tmp_path):
    killed_while_saving(tmp_path / "m", 60)


# -- bytes that are in no file ----------------------------------------------------------------


def test_the_bytes_of_a_model_are_those_of_its_file(tmp_path):
    detector, path = trained(), tmp_path / "model.onlad"
    save(detector, path)
    assert persist.to_bytes(detector) == path.read_bytes()
    twin = persist.from_bytes(path.read_bytes())
    assert persist.to_bytes(twin) == path.read_bytes()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda data: b"", "the state of pump 7 is not an onlad model"),
        (lambda data: data[:-1], "the state of pump 7 is damaged"),
        (lambda data: data[:99] + b"\xff" + data[100:], "the state of pump 7 is damaged"),
        (
            lambda data: written({"arrays": [], "model": None}),
            "the state of pump 7 holds no valid model",
        ),
    ],
)
def test_bytes_that_are_no_model_are_refused_by_name(spoil, says):
    with pytest.raises(ModelFileError, match=f"^{says}"):
        persist.from_bytes(spoil(persist.to_bytes(trained())), "the state of pump 7")
