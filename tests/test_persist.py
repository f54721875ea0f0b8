"""Files: what is saved goes on to the last bit, and nothing else is let in.

`written` is a second writer of the format, by docs/model-files.md and without a line of
`onlad.persist`: with it hostile headers carry a right checksum and reach the checks behind it.
"""

import copy
import hashlib
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
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onlad import persist
from onlad.detector import Detector
from onlad.errors import ModelFileError
from onlad.forgetting import Adaptive, Constant, OnDrift
from onlad.persist import load, save

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


def described(detector, **changed):
    """Return header and array bytes of a detector, with some of what it learned changed."""
    learned = detector.learned() | changed
    table, body = [], b""
    for name in sorted(name for name in learned if isinstance(learned[name], np.ndarray)):
        array = learned[name]
        learned[name] = {"array": len(table)}
        table.append({"dtype": str(array.dtype), "offset": len(body), "shape": list(array.shape)})
        body += array.tobytes() + bytes(-array.nbytes % 64)
    options = detector.settings()
    policy = options["forgetting"]
    fields = {k: {"float": "inf"} if v == np.inf else v for k, v in vars(policy).items()}
    options["forgetting"] = {"type": type(policy).__name__, "fields": fields}
    model = {"type": "Detector", "settings": options, "learned": learned}
    return {"arrays": table, "model": model}, body


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
    | st.sampled_from(["Detector", "Constant", "OnDrift", "inf", "float64"]),
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
        (POLICY, {"type": "Constant", "fields": 1}, "is not a known kind"),
        (POLICY, CONSTANT, "memory must have shape (1,), got (4,)"),
        (POLICY + ".fields.long", 1, "need 1 <= recent < long, got 16 and 1"),
        (POLICY + ".fields.long", 99.5, "long must be int, got 99.5"),
        (POLICY + ".fields.low", {"float": "nan"}, "low of Adaptive is NaN"),
        (POLICY + ".fields.low", {"type": "Detector"}, "is not a known kind of value"),
        ("model.learned", None, "None is not an object"),
        ("model.learned.other", 1, "missing in learned or not known: ['other']"),
        ("model.learned.seen", -1, "seen must be in [0, 2^63), got -1"),
        ("model.learned.paused", 2**63, "paused must be in [0, 2^63), got 9223372036854775808"),
        ("model.learned.skipped", 1.0, "skipped must be int, got 1.0"),
        ("model.learned.skipped", True, "skipped must be int, got True"),
        ("model.learned.trace", {"float": "nan"}, "trace must be finite, got nan"),
        ("model.learned.trace", {"float": "inf"}, "trace must be finite, got inf"),
        ("model.learned.trace_start", 0.0, "trace_start must be finite and positive, got 0.0"),
        ("model.learned.trace_start", {"float": "inf"}, "trace_start must be finite and positive"),
        ("model.learned.shrink", 1.5, "shrink must be in [0, 1], got 1.5"),
        ("model.learned.shrink", {"float": "nan"}, "shrink must be in [0, 1], got nan"),
        ("model.learned.S", {"array": 1}, "array 1 is out of turn"),
        ("model.learned.S", {"array": False}, "array False is out of turn"),
        ("model.learned.S", {"array": 10**30}, "is out of turn"),
        ("model.learned.S", {"array": "S"}, "is not a known kind of value"),
        ("model.learned.S", 1.0, "array 1 is out of turn"),
        ("model.learned.memory", {"array": 3}, "array 3 is out of turn"),
        ("model.learned.memory", (0.5,), "memory must be ndarray, got [0.5]"),
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


@dataclass(frozen=True)
class Mine:
    start = (0.5,)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (7, "save takes a Detector, got 7"),
        (Other(), "save takes a Detector, got Detector(n_h"),
        (Detector(forgetting=Mine()), "a model with Mine() in it cannot be saved"),
        (Detector(seed=np.array(3, dtype="int32")), "an array in a model must be float64, float32"),
        (Detector(seed={1: 2}), "names in a model must be strings, got [1]"),
    ],
    ids=["number", "subclass", "policy", "array", "names"],
)
def test_what_has_no_form_in_a_file_is_refused(tmp_path, model, says):
    with pytest.raises(TypeError, match=re.escape(says)):
        save(model, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"n_hidden": 2**14 + 1}, "n_hidden must be in [1, 16384], got 16385"),
        ({"seed": 10**40}, "a whole number has 41 digits"),
        ({"seed": "x" * 2**20}, "the header has 1048"),
        ({"seed": True}, "seed must be int, got True"),
    ],
)
def test_save_refuses_what_load_would_refuse(tmp_path, options, says):
    path = tmp_path / "m"
    path.write_bytes(b"old")
    with pytest.raises(
        ModelFileError, match=re.escape(f"{path} was not written: {says}")
    ) as caught:
        save(Detector(**options), path)
    assert str(caught.value).endswith(". The file is as it was")
    assert path.read_bytes() == b"old"


def test_save_refuses_a_model_larger_than_a_file_may_be(tmp_path, monkeypatch):
    monkeypatch.setattr(persist, "LARGEST_FILE", 1000)
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
from onlad import persist
from onlad.detector import Detector

files = []
for seed in range(2):
    detector = Detector(n_hidden=64, seed=seed)
    detector.learn_one(np.zeros(4096))
    files.append(persist._encode(detector))
os.fsync = lambda descriptor: None
persist.save(detector, sys.argv[1])
print("saved", flush=True)
while True:
    for data in files:
        persist._replace(sys.argv[1], data)
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
