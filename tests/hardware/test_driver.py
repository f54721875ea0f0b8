import re
from dataclasses import replace

import numpy as np
import pytest

from checks import (
    equal_detectors_do_the_same_to_the_last_bit,
    it_works_from_the_first_sample,
    learning_many_is_updating_many,
    stream,
    what_was_learned_scores_low_and_what_was_not_scores_high,
)
from onlad import Detector, OnladError
from onlad.forgetting import Adaptive
from onlad.hardware import Config, Device, OnladCore, load, packets, read
from onlad.hardware.model import Model
from onlad.hardware.packets import CoreRefusedError, Mode, Reason, Status
from onlad.hardware.transport import Emulator, Recorder, Replay, ReplayError

CORE = OnladCore(n=3, hidden=8, lanes=2, activation="sigmoid")


def fitted(core=CORE, seed=0, rows=200, **settings):
    """Return a detector that fits the core, after some samples."""
    config = core.config
    settings = {"weights": "normal", "score": "reconstruction", "seed": seed} | settings
    detector = Detector(n_hidden=config.hidden, activation=config.activation, **settings)
    return detector.fit(np.random.default_rng(seed).uniform(0, 1, (rows, config.n)))


@pytest.mark.parametrize(
    "check",
    [
        it_works_from_the_first_sample,
        equal_detectors_do_the_same_to_the_last_bit,
        learning_many_is_updating_many,
        what_was_learned_scores_low_and_what_was_not_scores_high,
    ],
)
def test_contract(check):
    check(CORE.emulate)


def test_scoring_does_not_learn():
    device, x = CORE.emulate(fitted()), stream(1)[0]
    before = device.state
    assert device.score_one(x) == device.score_one(x)
    for now, then in zip(device.state, before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_an_update_is_a_score_then_a_step_to_the_last_bit():
    one, other = CORE.emulate(), CORE.emulate()
    for x in stream(60):
        expected = one.score_one(x)
        one.learn_one(x)
        assert other.update_one(x) == expected


@pytest.mark.parametrize("alpha", ["stored", "narrow", "seeded"])
@pytest.mark.parametrize("activation", ["identity", "sigmoid"])
def test_a_core_follows_the_detector_that_it_was_loaded_with(activation, alpha):
    core = OnladCore(n=12, hidden=6, lanes=2, activation=activation, alpha=alpha)
    detector = core.detector(forgetting=0.98, seed=3)
    X = np.random.default_rng(0).uniform(0, 1, (300, 12))
    detector.learn_many(X[:100])
    device = core.emulate(detector)
    found, expected = device.update_many(X[100:]), detector.update_many(X[100:])
    # Words of alpha have 2^-24, narrow ones 2^-17; P of some thousand magnifies it.
    np.testing.assert_allclose(found, expected, rtol=1e-3 if alpha == "narrow" else 1e-4)


def test_load_and_read_are_inverse_within_a_word():
    detector = fitted(forgetting=0.97)
    again = read(load(detector, CORE.emulate()))
    assert replace(again.settings(), forgetting=detector.forgetting) == detector.settings()
    assert again.factor == pytest.approx(0.97, abs=2**-31)
    fraction = CORE.config.fraction
    for name in ("alpha", "b", "beta"):
        mine, theirs = getattr(again.state, name), getattr(detector.state, name)
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=2.0 ** -(fraction + 1))
    # S has a word of 2^-root_fraction of its largest entry, times four at most by m and z.
    P = detector.state.P
    step = 4 * np.sqrt(P.max()) * 2.0**-CORE.config.root_fraction
    np.testing.assert_allclose(again.state.P, P, rtol=0, atol=16 * step * np.sqrt(P.max()))
    assert (again.n_seen, again.n_skipped, again.n_paused) == (200, 0, 0)
    assert again.learned().trace_start == pytest.approx(detector.learned().trace_start)


def test_reading_is_exact_the_second_time():
    device = CORE.emulate(fitted())
    device.learn_many(stream(50))
    first = device.state
    load(read(device), device)
    for now, then in zip(device.state[:3], first[:3], strict=True):
        np.testing.assert_array_equal(now, then)


def test_what_is_read_counts_the_steps_of_the_core():
    detector = fitted(forgetting=0.95)
    device = CORE.emulate(detector)
    X = stream(40)
    device.learn_many(X)
    detector.learn_many(X)
    again, mine, theirs = read(device), read(device).learned(), detector.learned()
    assert (again.n_seen, device.n_seen) == (240, 240)
    assert mine.weight == pytest.approx(theirs.weight)
    assert mine.shrink == pytest.approx(theirs.shrink)
    load(again, device)
    assert device.n_seen == 240


def test_the_scale_of_an_identity_layer_is_folded_away():
    core = OnladCore(n=400, hidden=8, lanes=4)
    detector = fitted(core, weights="uniform01", ridge=1.0)
    device = core.emulate(detector)
    words = device.transport.exchange(packets.reads(Mode.ALPHA, 400 * 8)).astype(np.int32)
    assert 0 < words.max() < 2 ** (core.config.fraction - 2)  # the sums would be above 128
    x = np.full(400, 0.5)
    assert device.score_one(x) == pytest.approx(detector.score_one(x), rel=1e-3, abs=1e-6)
    np.testing.assert_allclose(read(device).state.alpha, detector.state.alpha, atol=2**-20)


def test_forgetting_can_be_set():
    device = CORE.emulate(fitted())
    device.forgetting = 0.5
    assert device.forgetting == 0.5
    with pytest.raises(ValueError, match=re.escape("forgetting must be in (0, 1], got 0")):
        device.forgetting = 0
    assert device.forgetting == 0.5


def test_a_core_without_a_model_says_so():
    device = Device(Emulator(Model(CORE.config)))
    with pytest.raises(CoreRefusedError, match="no forgetting factor was written since reset"):
        device.score_one(stream(1)[0])


def test_a_damaged_word_spoils_one_sample_and_is_named():
    device, X = CORE.emulate(fitted()), stream(2)
    before = device.state
    bad = packets.Packet(Mode.BETA, False, 3 * 8, 1).encode()
    device.transport.exchange(np.array([bad], np.uint64))
    with pytest.raises(CoreRefusedError, match="an index was out of range") as refusal:
        device.learn_one(X[0])
    assert refusal.value.reason == Reason.BAD_INDEX
    for now, then in zip(device.state, before, strict=True):
        np.testing.assert_array_equal(now, then)
    device.learn_one(X[1])


@pytest.mark.parametrize(
    ("x", "words"),
    [
        ([0.1, 0.2], "x has 2 features, but the model was started with 3"),
        ([0.1, np.nan, 0.2], "x[1] is nan: not a finite number"),
        ([0.1, 0.2, 1000.0], "x[2] is 1000.0: beyond 128"),
        ([[0.1, 0.2, 0.3]], "x must be one sample of shape (n,)"),
    ],
)
def test_a_bad_sample_is_refused_by_the_driver(x, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        CORE.emulate().score_one(x)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n_hidden": 9}, "the detector has hidden units 9, the core was built for 8"),
        ({"activation": "relu"}, "the detector has activation 'relu', the core was built for"),
        ({"score": "combined"}, "the core's score is the paper's"),
        ({"loss": "absolute"}, "the core's score is the paper's"),
        ({"forgetting": Adaptive()}, "the core holds one forgetting factor"),
    ],
)
def test_a_detector_that_does_not_fit_is_refused(settings, words):
    fit = {"n_hidden": 8, "score": "reconstruction"}
    with pytest.raises(ValueError, match=re.escape(words)):
        CORE.emulate(Detector(**(fit | settings)).start(3))


def test_a_detector_without_samples_is_refused():
    with pytest.raises(ValueError, match="the detector has learned nothing"):
        CORE.emulate(Detector(n_hidden=8, score="reconstruction"))


def test_a_beta_that_leaves_the_range_is_refused():
    detector = fitted()
    learned = replace(detector.learned(), beta=np.full((8, 3), 500.0))
    detector = Detector.resumed(detector.settings(), learned)
    with pytest.raises(OnladError, match="beta has a value of 500, but a core with 32-bit words"):
        CORE.emulate(detector)


def test_a_seeded_core_has_an_alpha_of_its_own():
    core = OnladCore(n=3, hidden=8, lanes=2, activation="sigmoid", alpha="seeded", seed=7)
    with pytest.raises(ValueError, match="this core generates alpha"):
        core.emulate(fitted())
    device = core.emulate()
    np.testing.assert_array_equal(device.state.alpha, core.detector().state.alpha)
    assert device.config.seed == 7


def test_a_recording_replays_without_the_core(tmp_path):
    recorder = Recorder(Emulator(Model(CORE.config)))
    X = stream(5)
    expected = Device(recorder).load(fitted()).update_many(X)
    recorder.save(tmp_path / "core.npz")
    device = Device(Replay(tmp_path / "core.npz")).load(fitted())
    np.testing.assert_array_equal(device.update_many(X), expected)
    with pytest.raises(ReplayError, match="the recording ends after"):
        device.update_many(X)
    device = Device(Replay(tmp_path / "core.npz")).load(fitted())
    with pytest.raises(ReplayError, match=r"word \d+ is 0x\w+, but 0x\w+ was recorded"):
        device.update_many(X + 0.1)


class Liar:
    """A transport that answers every word alike, but for the words of one mode."""

    def __init__(self, describe):
        self.describe = describe

    def exchange(self, words):
        return np.array(self.describe, np.uint32)


def test_what_is_no_core_is_refused():
    good = CORE.config.describe()
    with pytest.raises(OnladError, match="this is not an ONLAD Core"):
        Device(Liar([0] * len(good)))
    with pytest.raises(OnladError, match="this core uses version 2 of the packets"):
        Device(Liar([good[0] + 1, *good[1:]]))
    with pytest.raises(OnladError, match="other number formats"):
        Device(Liar([*good[:4], good[4] + (1 << 8), *good[5:]]))
    assert Device(Liar(good)).config == CORE.config


def test_the_emulator_takes_any_words_as_the_model_takes_them_one_by_one():
    rng = np.random.default_rng(0)
    config = Config(n=3, hidden=4, lanes=2)
    words = np.concatenate([
        packets.writes(Mode.P, np.eye(4, dtype=int) << 24), packets.writes(Mode.FF, [1 << 30]),
    ])  # fmt: skip
    index = rng.integers(0, 20, 500, dtype=np.uint64) << np.uint64(packets.INDEX_SHIFT)
    head = rng.integers(0, 16, 500, dtype=np.uint64) << np.uint64(packets.READ_SHIFT)
    head = np.where(rng.integers(0, 2, 500) == 1, head, np.roll(head, 1))  # runs of one kind
    words = np.concatenate([words, index | head | rng.integers(0, 2**32, 500, dtype=np.uint64)])
    one = Model(config)
    expected = [answer for word in words.tolist() for answer, _ in one.accept(word)]
    assert Emulator(Model(config)).exchange(words).tolist() == expected
    assert sum(Reason(a & 0xFF) != 0 for a in expected if a >> 31) > 10


def test_status_counts_steps():
    device = CORE.emulate(fitted())
    device.learn_many(stream(7))
    assert device.status()[Status.TRAINED] == 7
    assert device.n_seen == 207
    assert (device.n_skipped, device.n_paused, device.cycles) == (0, 0, 0)
    assert device.n_features == 3
