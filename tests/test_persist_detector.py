"""Detectors in files: they go on to the last bit, and what cannot be is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_files import ARRAYS, POLICIES, described, put, refused, spelled, trained, written
from onlad.detector import Detector
from onlad.fields import values
from onlad.forgetting import Adaptive, OnDrift
from onlad.persist import load, save


@pytest.mark.parametrize("start", ["nothing", "stream", "fit"])
@pytest.mark.parametrize("forgetting", POLICIES, ids=repr)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_loaded_detector_continues_to_the_last_bit(tmp_path, dtype, forgetting, start):
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
    np.testing.assert_equal(values(twin.learned()), values(detector.learned()))


def test_a_wound_up_detector_continues_to_the_last_bit(tmp_path):
    detector = Detector(n_hidden=16, forgetting=0.7, dtype="float32")
    detector.learn_many(np.full((400, 2), 0.5))
    assert detector.n_paused > 0
    save(detector, tmp_path / "m")
    twin = load(tmp_path / "m")
    for _ in range(50):
        assert twin.update_one([0.5, 0.5]) == detector.update_one([0.5, 0.5])
    assert twin.learned().trace == detector.learned().trace
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
        ("model", 1, "it is 1, which is not a model"),
        ("model", CONSTANT, "which is not a model"),
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
    array = values(trained().learned())[name]
    array.flat[-1] = bad
    says = f"{name} holds a number that is not finite"
    refused(tmp_path, written(*described(trained(), **{name: array})), says)


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_that_do_not_fit_are_refused(tmp_path, name):
    array = np.concatenate([values(trained().learned())[name]] * 2)
    refused(tmp_path, written(*described(trained(), **{name: array})), "must have shape")


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_of_another_type_are_refused(tmp_path, name):
    array = values(trained().learned())[name].astype("float32")
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
    memory = trained().learned().memory
    memory[0] = a
    says = f"the forgetting factor in memory must be in (0, 1], got {a}"
    refused(tmp_path, written(*described(trained(), memory=memory)), says)


@pytest.mark.parametrize(
    ("forgetting", "at"),
    [(Adaptive(), 3), (OnDrift(), 2), (OnDrift(), 3), (OnDrift(), 4)],
)
def test_a_negative_count_in_memory_is_refused(tmp_path, forgetting, at):
    detector = trained(forgetting=forgetting)
    memory = detector.learned().memory
    memory[at] = -1.0  # the policy would divide by zero at the next sample
    says = "counts in memory must not be negative"
    refused(tmp_path, written(*described(detector, memory=memory)), says)


@pytest.mark.parametrize("name", values(trained().learned()))
def test_what_is_missing_is_refused(tmp_path, name):
    header, body = described(trained())
    if name in ARRAYS:  # without its entry, but with all arrays, turn or table is wrong
        learned = values(trained().learned())
        del learned[name]
        header, body = spelled("Detector", values(trained().settings()), learned)
    else:
        del header["model"]["learned"][name]
    refused(tmp_path, written(header, body), f"missing in learned or not known: ['{name}']")
