"""A bank is its detectors: to the last bit where it takes their step, within rounding in blocks."""

import copy
import pickle
import re
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

from checks import rounding
from onlad import Detector, modelfile
from onlad.errors import ModelFileError, OnladError
from onlad.fields import values
from onlad.fleet import Bank, bankfile, host, models
from onlad.forgetting import Adaptive
from oracle import assert_near

DTYPES = ["float64", "float32"]
KINDS = {
    "default": {},
    "float32": {"dtype": "float32"},
    "tanh": {"activation": "tanh", "loss": "absolute", "score": "reconstruction"},
    "relu": {"activation": "relu", "dtype": "float32", "loss": "absolute"},
    "identity": {"activation": "identity", "score": "leverage", "weights": "normal"},
}


def make(**options):
    return Detector(**{"n_hidden": 13, "ridge": 0.1, "seed": 4, "forgetting": 0.95} | options)


def streams(models, rows, n, seed=0):
    """Return a stream a model, (models, rows, n); that of model 1 gets stuck."""
    X = np.random.default_rng(seed).uniform(0, 1, (models, rows, n))
    X[1:2, 5:] = X[1:2, 5:6]
    return X


def assert_same(found, expected):
    """Assert that two detectors are equal to the last bit, settings included."""
    assert found.settings() == expected.settings()
    np.testing.assert_equal(values(found.learned()), values(expected.learned()))


def assert_near_detector(found, expected):
    bound = rounding(expected)
    assert_near(found.state.beta, expected.state.beta, bound)
    assert_near(found.state.P, expected.state.P, bound)
    for name in ("n_seen", "n_skipped", "n_paused"):
        assert getattr(found, name) == getattr(expected, name)


# -- equal to a loop over detectors -------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 9, 20])
@pytest.mark.parametrize("kind", KINDS)
def test_update_is_a_loop_over_detectors_to_the_last_bit(kind, n):
    X, mask = streams(11, 150, n), np.random.default_rng(1).random((11, 150)) < 0.8
    models = Bank(make(**KINDS[kind]), 11, n_features=n)
    detectors = [make(**KINDS[kind]).start(n) for _ in range(11)]
    for t in range(X.shape[1]):
        scores = models.update(X[:, t], mask[:, t])
        for i, detector in enumerate(detectors):
            if mask[i, t]:
                assert scores[i] == detector.update_one(X[i, t])
            else:
                assert np.isnan(scores[i])
    for i, detector in enumerate(detectors):
        assert_same(models[i], detector)
    assert models.n_seen.tolist() == mask.sum(1).tolist()


def test_the_guard_against_wind_up_acts_on_the_stuck_model_alone():
    X, options = streams(4, 100, 20), {"n_hidden": 12, "forgetting": 0.7}
    models, detector = Bank(make(**options), 4, n_features=20), make(**options).start(20)
    for t in range(X.shape[1]):
        models.update(X[:, t])
        detector.update_one(X[1, t])
    assert_same(models[1], detector)
    assert models.n_paused[1] > 0
    assert models.n_paused[[0, 2, 3]].tolist() == [0, 0, 0]


@pytest.mark.parametrize("many", [False, True])
def test_a_step_that_is_not_finite_is_skipped_and_counted(many):
    X = streams(3, 10, 4)
    X[2, 4] = 1e60  # f.f is beyond 1e30
    models = Bank(make(activation="identity"), 3, n_features=4)
    detector = make(activation="identity").start(4)
    if many:
        models.update_many(X)
    else:
        for t in range(10):
            models.update(X[:, t])
    for x in X[2]:
        detector.update_one(x)
    assert models.n_skipped.tolist() == [0, 0, 1]
    assert models.n_seen.tolist() == [10, 10, 9]
    assert_same(models[2], detector)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "N"), [(9, 13), (160, 52), (40, 210)])
def test_blocks_are_the_loop(n, N, dtype):
    rows = 75
    options = {"n_hidden": N, "dtype": dtype, "ridge": 1.0, "forgetting": 0.99}
    X, mask = streams(3, rows, n), np.random.default_rng(1).random((3, rows)) < 0.8
    blocks, loop = (Bank(make(**options), 3, n_features=n) for _ in range(2))
    expected = np.array([loop.update(X[:, t], mask[:, t]) for t in range(rows)]).T
    found = np.hstack(
        [blocks.update_many(X[:, s], mask[:, s]) for s in np.split(np.arange(rows), [17])]
    )
    np.testing.assert_array_equal(np.isnan(found), ~mask)
    for i in range(3):
        there = mask[i]
        assert_near(found[i, there], expected[i, there], rounding(loop[i]))
        assert_near_detector(blocks[i], loop[i])


def test_the_guard_acts_inside_a_block():
    X = streams(3, 100, 128)
    options = {"n_hidden": 64, "forgetting": 0.7}
    blocks, loop = (Bank(make(**options), 3, n_features=128) for _ in range(2))
    for t in range(100):
        loop.update(X[:, t])
    blocks.update_many(X)
    assert loop.n_paused[1] > 0
    np.testing.assert_array_equal(blocks.n_paused, loop.n_paused)
    assert_near_detector(blocks[1], loop[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [9, 160])
def test_the_number_of_threads_changes_nothing(dtype, n):
    X = streams(40, 30, n)
    results = []
    for threads in (1, 2, 7, None):
        models = Bank(make(dtype=dtype, n_hidden=52), 40, n_features=n, threads=threads)
        scores = [models.update_many(X), models.update(X[:, 0]), models.score(X[:, 1])]
        results.append([*scores, *models._engine.models()])
    for result in results[1:]:
        for mine, theirs in zip(result, results[0], strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_scoring_learns_nothing():
    X = streams(5, 12, 9)
    models = Bank(make(), 5, n_features=9)
    models.update_many(X)
    before = models._engine.take(slice(None))
    mask = np.arange(5) != 2
    many, one = models.score_many(X, mask), models.score(X[:, 3], mask)
    for mine, theirs in zip(models._engine.models(), before, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(many[:, 3], one)
    assert np.isnan(many[2]).all()
    for i in (0, 4):
        assert [models[i].score_one(x) for x in X[i]] == many[i].tolist()


def test_a_mask_of_models_holds_for_all_their_samples():
    X, mask = streams(5, 12, 9), np.array([True, False, True, True, False])
    one, other = (Bank(make(), 5, n_features=9) for _ in range(2))
    np.testing.assert_array_equal(
        one.update_many(X, mask), other.update_many(X, np.repeat(mask[:, None], 12, 1))
    )
    assert one.n_seen.tolist() == other.n_seen.tolist() == [12, 0, 12, 12, 0]


def test_the_interpreter_goes_on_while_a_bank_learns():
    models, X = Bank(make(n_hidden=64), 64, n_features=128), streams(64, 200, 128)
    done, turns = threading.Event(), 0

    def learn():
        models.update_many(X)
        done.set()

    worker = threading.Thread(target=learn)
    worker.start()
    while not done.wait(0.001):
        turns += 1
    worker.join()
    assert turns > 5  # with the lock held the first wait would return when all is done


# -- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e101])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_bad_number_is_refused_with_its_models_and_nothing_changes(dtype, value):
    models, X = Bank(make(dtype=dtype), 30, n_features=4), streams(30, 3, 4)
    models.update_many(X)
    before = models._engine.take(slice(None))
    X[[3, 17], 2, 1] = value
    says = "for 2 of the models: 3, 17. Leave them out by the mask. No model was changed"
    for call in (models.update_many, models.score_many):
        with pytest.raises(ValueError, match=re.escape(says)):
            call(X)
    with pytest.raises(ValueError, match="3, 17"):
        models.update(X[:, 2])
    for mine, theirs in zip(models._engine.models(), before, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    mask = np.ones((30, 3), bool)
    mask[[3, 17], 2] = False
    models.update_many(X, mask)
    assert models.n_seen[[2, 3]].tolist() == [6, 5]


def test_no_more_than_ten_bad_models_are_named():
    models = Bank(make(), 30, n_features=4)
    with pytest.raises(ValueError, match=r"for 30 of the models: 0, .*, 9 and 20 more. Leave"):
        models.update(np.full((30, 4), np.nan))


@pytest.mark.parametrize(
    ("X", "mask", "error", "says"),
    [
        (np.zeros((5, 4)), None, ValueError, "here (6, 4); got (5, 4). No model was changed"),
        (np.zeros((6, 3)), None, ValueError, "shape (models, n), here (6, 4); got (6, 3)"),
        (np.zeros((6, 1, 4)), None, ValueError, "got (6, 1, 4)"),
        (np.zeros((6, 4), complex), None, TypeError, "X must hold real numbers"),
        ([[1, 2], [3]], None, ValueError, "X is not rectangular"),
        (np.zeros((6, 4)), np.ones(6), TypeError, "mask must hold bools, True where there is"),
        (np.zeros((6, 4)), np.ones(5, bool), ValueError, "mask must have shape (6,), got (5,)"),
    ],
)
def test_what_does_not_fit_is_refused(X, mask, error, says):
    with pytest.raises(error, match=re.escape(says)):
        Bank(make(), 6, n_features=4).update(X, mask)


def test_samples_may_be_of_any_real_type():
    models, other = (Bank(make(dtype="float32"), 3, n_features=4) for _ in range(2))
    X = np.arange(12).reshape(3, 4) % 5
    np.testing.assert_array_equal(models.update(X.tolist()), other.update(X.astype("float16")))


def test_an_empty_bank_and_no_samples_are_fine():
    models = Bank(make(), 0, n_features=4)
    assert models.update(np.zeros((0, 4)), np.zeros(0, bool)).shape == (0,)
    assert models.update_many(np.zeros((0, 7, 4))).shape == (0, 7)
    models.grow(2)
    assert models.update_many(np.zeros((2, 0, 4))).shape == (2, 0)
    assert models.n_seen.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"detector": 3}, TypeError, "detector must be a Detector, got 3"),
        ({"models": -1}, ValueError, "models must be a whole number of at least 0, got -1"),
        ({"n_features": None}, ValueError, "n_features is needed: the detector has seen nothing"),
        ({"n_features": 0}, ValueError, "n_features must be a whole number of at least 1, got 0"),
        ({"threads": 0}, ValueError, "threads must be a whole number of at least 1, got 0"),
        ({"device": "tpu"}, ValueError, "device must be cpu or cuda, got 'tpu'"),
        (
            {"detector": Detector(forgetting=Adaptive())},
            ValueError,
            "a bank takes a constant forgetting factor, which may differ by model; got Adaptive(",
        ),
    ],
)
def test_what_makes_no_bank_is_refused(options, error, says):
    with pytest.raises(error, match=re.escape(says)):
        Bank(**{"detector": make(), "models": 3, "n_features": 4} | options)


def test_a_detector_with_other_features_is_refused():
    with pytest.raises(ValueError, match="n_features is 4, but the detector was started with 5"):
        Bank(make().start(5), 3, n_features=4)
    models = Bank(make(), 2, n_features=7)
    with pytest.raises(ValueError, match="another random layer: 6 features, where the bank has 7"):
        models[0] = make().start(6)


def test_without_pytorch_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "onlad.fleet.cuda", None)
    with pytest.raises(OnladError, match=re.escape("pip install 'onlad[gpu]'")) as raised:
        Bank(make(), 3, n_features=4, device="cuda")
    assert "\n" not in str(raised.value)


def test_a_move_that_fails_leaves_the_bank_where_it_was(monkeypatch):
    monkeypatch.setitem(sys.modules, "onlad.fleet.cuda", None)
    models = Bank(make(), 3, n_features=4)
    with pytest.raises(OnladError):
        models.to("cuda")
    assert models.device == "cpu"
    models.update(np.zeros((3, 4)))


# -- models in and out --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_comes_out_and_goes_in_without_loss(kind):
    models, twin = (Bank(make(**KINDS[kind]), 4, n_features=7) for _ in range(2))
    X = streams(4, 120, 7)
    models.update_many(X)
    for i in range(4):
        twin[i] = models[i]
        assert_same(twin[i], models[i])
    np.testing.assert_array_equal(models.update(X[:, 3]), twin.update(X[:, 3]))


def test_a_model_that_comes_out_is_a_copy():
    models, X = Bank(make(), 2, n_features=7), streams(2, 50, 7)
    models.update_many(X)
    detector = models[-1]
    detector.learn_many(X[0])
    assert detector.n_seen == 100
    assert models.n_seen.tolist() == [50, 50]


def test_a_bank_may_start_from_what_a_detector_has_learned():
    detector = make(ridge=0.0).fit(streams(1, 60, 7)[0])
    models = Bank(detector, 3)
    assert_same(models[2], detector)
    models.update(streams(3, 1, 7)[:, 0])
    models.grow(1)
    assert_same(models[3], detector)


def test_a_fresh_detector_starts_a_model_anew():
    models = Bank(make(), 2, n_features=7)
    models.update_many(streams(2, 50, 7))
    models[0] = make()
    assert_same(models[0], make().start(7))
    assert models.n_seen.tolist() == [0, 50]


@pytest.mark.parametrize(
    ("detector", "error", "says"),
    [
        (make(n_hidden=12), ValueError, "this bank have n_hidden=13; the detector has n_hidden=12"),
        (make(dtype="float32"), ValueError, "the detector has dtype='float32'"),
        (make(seed=5), ValueError, "the detector has seed=5"),
        (make(forgetting=Adaptive()), ValueError, "a bank takes a constant forgetting factor"),
        ("pump", TypeError, "a model of a bank is a Detector, got 'pump'"),
    ],
)
def test_a_detector_of_another_kind_is_refused(detector, error, says):
    models = Bank(make(), 2, n_features=7)
    with pytest.raises(error, match=re.escape(says)):
        models[0] = detector
    with pytest.raises(error, match=re.escape(says)):
        models.grow(1, detector)
    assert len(models) == 2


@pytest.mark.parametrize(("model", "error"), [(2, IndexError), (-3, IndexError), ("a", TypeError)])
def test_a_model_that_is_not_there_is_refused(model, error):
    models = Bank(make(), 2, n_features=7)
    with pytest.raises(error, match="model"):
        models[model]
    with pytest.raises(error, match="model"):
        models[model] = make()
    with pytest.raises(error, match="model"):
        models.remove(model)


def test_a_bank_grows_and_shrinks_and_the_others_stay():
    models, X = Bank(make(), 3, n_features=7), streams(6, 40, 7)
    models.update_many(X[:3])
    kept = [models[i] for i in range(3)]
    models.grow(2)
    models.grow(1, kept[2])
    assert (len(models), models.n_seen.tolist()) == (6, [40, 40, 40, 0, 0, 40])
    models.remove([0, -3])
    assert len(models) == 4
    for i, detector in enumerate([kept[1], kept[2], make().start(7), kept[2]]):
        assert_same(models[i], detector)
    scores = models.update(X[:4, 0])
    assert [detector.update_one(x) for detector, x in zip(kept[1:], X[:2, 0], strict=True)] == list(
        scores[:2]
    )
    models.remove([])
    assert len(models) == 4


def test_each_model_may_forget_at_its_own_rate():
    models, X = Bank(make(forgetting=0.9), 3, n_features=7), streams(3, 60, 7)
    assert models.forgetting.tolist() == [0.9, 0.9, 0.9]
    models.forgetting = [0.9, 0.99, 1.0]
    models[0] = make(forgetting=0.97)
    assert models.forgetting.tolist() == [0.97, 0.99, 1.0]
    detectors = [make(forgetting=a).start(7) for a in (0.97, 0.99, 1.0)]
    for t in range(60):
        models.update(X[:, t])
    for i, detector in enumerate(detectors):
        for x in X[i]:
            detector.update_one(x)
        assert_same(models[i], detector)
    models.forgetting = 0.5
    assert models[2].factor == 0.5
    for wrong in (0.0, 1.5, np.nan, [0.5, 0.5]):
        with pytest.raises(ValueError, match="forgetting must be"):
            models.forgetting = wrong


@pytest.mark.parametrize("again", [copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))])
def test_a_copy_goes_on_to_the_last_bit(again):
    models, X = Bank(make(dtype="float32"), 3, n_features=7, threads=2), streams(3, 60, 7)
    models.update_many(X)
    twin = again(models)
    np.testing.assert_array_equal(twin.update_many(X), models.update_many(X))
    assert (twin.threads, repr(twin)) == (2, repr(models))
    twin.grow(1)
    assert len(models) == 3
    assert "models=3, n_features=7, device='cpu'" in repr(models)


# -- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_loaded_bank_goes_on_to_the_last_bit(tmp_path, kind, count):
    models, X = Bank(make(**KINDS[kind]), count, n_features=9), streams(count, 60, 9)
    models.update_many(X)
    models.forgetting = 0.98
    models.save(tmp_path / "bank.onlad")
    twin = Bank.load(tmp_path / "bank.onlad", threads=1)
    for i in range(count):
        assert_same(twin[i], models[i])
    np.testing.assert_array_equal(twin.update_many(X), models.update_many(X))
    twin.grow(1)
    models.grow(1)
    assert_same(twin[count], models[count])
    assert (twin.threads, len(twin)) == (1, count + 1)


def test_a_bank_of_fitted_models_without_ridge_can_be_saved(tmp_path):
    detector = make(ridge=0.0).fit(streams(1, 60, 7)[0])
    Bank(detector, 2).save(tmp_path / "bank.onlad")
    twin = Bank.load(tmp_path / "bank.onlad")
    twin.grow(1)
    assert_same(twin[2], detector)


def test_a_file_is_written_in_small_pieces(tmp_path, monkeypatch):
    models = Bank(make(), 500, n_features=9)
    monkeypatch.setattr(modelfile, "PIECE", 2**14)
    sizes, pieces = [], modelfile.pieces

    def watched(tree):
        for piece in pieces(tree):
            sizes.append(len(piece))
            yield piece

    monkeypatch.setattr(modelfile, "pieces", watched)
    models.save(tmp_path / "bank.onlad")
    assert max(sizes) <= 2**14 < 2**20 < sum(sizes)
    assert len(Bank.load(tmp_path / "bank.onlad")) == 500


def test_a_save_that_is_refused_leaves_the_file(tmp_path):
    models = Bank(make(), 3, n_features=9)
    path = tmp_path / "bank.onlad"
    models.save(path)
    before = path.read_bytes()
    models._engine.models().beta[1, 2, 3] = np.nan
    with pytest.raises(ModelFileError, match="was not written: beta holds a number that is not"):
        models.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "bank.onlad"
    Bank(make(), 3, n_features=9).save(path)
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match="is damaged"):
        Bank.load(path)


def test_a_detector_is_no_bank_and_a_bank_no_detector(tmp_path):
    import onlad

    path = tmp_path / "model.onlad"
    onlad.save(make().start(3), path)
    with pytest.raises(ModelFileError, match="it is 'Detector', which is no bank"):
        Bank.load(path)
    Bank(make(), 3, n_features=9).save(path)
    with pytest.raises(
        ModelFileError, match=re.escape("a Bank is loaded by onlad.fleet.Bank.load")
    ):
        onlad.load(path)


def tree_of(models):
    """Return what is in the file of a bank, to be changed."""
    engine, layer = models._engine.models(), models._layer
    learned = {"alpha": layer.alpha, "b": layer.b, **values(engine)}
    learned["start"] = values(models._start)
    settings = values(models._settings) | {"forgetting": 0.99}
    return {"settings": settings, "learned": learned}


def with_entry(name, index, value):
    def change(tree):
        array = np.array(tree["learned"][name])
        array[index] = value
        tree["learned"][name] = array

    return change


def without(part, name):
    return lambda tree: tree[part].pop(name)


def with_value(part, name, value):
    def change(tree):
        tree[part][name] = value

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (with_entry("S", (1, 2, 2), np.inf), "S holds a number that is not finite"),
        (with_entry("S", 2, 0.0), "S of model 2 is singular"),
        (with_entry("numbers", (0, 0), np.nan), "numbers holds a number that is not finite"),
        (with_entry("numbers", (0, 1), 0.0), "trace_start of a model is out of range"),
        (with_entry("numbers", (0, 2), 1.1), "shrink of a model is out of range"),
        (with_entry("numbers", (0, 3), -1.0), "weight of a model is out of range"),
        (with_entry("numbers", (0, 4), 0.0), "the forgetting factor of a model is out of range"),
        (with_entry("counts", (0, 0), -1), "a count of a model is out of range"),
        (with_value("learned", "b", np.zeros(12)), "b must have shape (13,), got (12,)"),
        (with_value("learned", "beta", np.zeros((3, 9, 13), "float32")), "beta must be float64"),
        (with_value("learned", "beta", np.zeros((2, 9, 13))), "beta must have shape (3, 9, 13)"),
        (with_value("learned", "S", 1.0), "S must be ndarray, got 1.0"),
        (with_value("learned", "alpha", 1.0), "alpha must be ndarray, got 1.0"),
        (with_value("learned", "alpha", np.zeros((0, 13))), "alpha has no features"),
        (with_value("learned", "counts", np.zeros((), "int64")), "must have shape (0, 9, 13)"),
        (with_value("learned", "start", 1), "start must be dict, got 1"),
        (with_value("learned", "start", {}), "missing in start or not known: ['S', 'beta'"),
        (with_value("learned", "more", 1), "missing in learned or not known: ['more']"),
        (without("learned", "S"), "missing in learned or not known: ['S']"),
        (with_value("settings", "forgetting", 1), "forgetting must be a float, got 1"),
        (with_value("settings", "forgetting", 2.0), "forgetting must be in (0, 1], got 2.0"),
        (with_value("settings", "dtype", "float16"), "dtype must be one of"),
        (with_value("settings", "n_hidden", 2**60), "n_hidden must be in [1, 16384]"),
        (without("settings", "seed"), "missing in settings or not known: ['seed']"),
    ],
)
def test_a_bank_that_cannot_be_is_refused_with_its_reason(tmp_path, change, says):
    tree = tree_of(Bank(make(), 3, n_features=9))
    change(tree)
    path = tmp_path / "bank.onlad"
    modelfile.replace(path, modelfile.pieces(modelfile.Record("Bank", tree)))
    with pytest.raises(ModelFileError, match=re.escape(says)):
        Bank.load(path)


@pytest.mark.parametrize("tree", [[1, 2], modelfile.Record("Bank", {"fields": {}})])
def test_a_file_without_a_bank_is_refused(tmp_path, tree):
    path = tmp_path / "bank.onlad"
    modelfile.replace(path, modelfile.pieces(tree))
    with pytest.raises(ModelFileError, match=r"which is no bank|what was learned is missing"):
        Bank.load(path)


def test_a_bank_may_be_larger_than_a_detector(tmp_path, monkeypatch):
    monkeypatch.setattr(modelfile, "LARGEST_FILE", 1000)
    Bank(make(), 3, n_features=9).save(tmp_path / "bank.onlad")
    assert len(Bank.load(tmp_path / "bank.onlad")) == 3
    monkeypatch.setattr(bankfile, "LARGEST_BANK", 1000)
    with pytest.raises(ModelFileError, match="a model has at most 1000"):
        Bank.load(tmp_path / "bank.onlad")


# -- the binding ------------------------------------------------------------------------------


def test_memory_that_is_not_padded_is_refused():
    engine = Bank(make(), 3, n_features=9)._engine
    X, mask = engine.samples(np.zeros((3, 1, 9)), None)
    engine._padded = replace(engine._padded, S=np.zeros((3, 13, 16)))
    with pytest.raises(ValueError, match="not padded to whole cache lines"):
        engine.step(X, mask, True)
    engine = Bank(make(), 3, n_features=9)._engine
    with pytest.raises(ValueError, match="do not fit the models"):
        engine.step(X[:2], mask[:2], True)


def test_memory_begins_at_a_cache_line():
    for shape in [(1,), (7, 3), (100, 8, 8)]:
        assert host.aligned(shape, "float32").ctypes.data % host.LINE == 0
    assert host.usable_cores() >= 1


def test_constants_are_those_of_the_definition():
    assert models.AT_ONCE > 0
    source = (host.LINE, host.ROW_GROUP)
    assert source == (64, 8)
