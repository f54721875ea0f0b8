"""The gateware against the model, bit for bit: every answer, and all that is stored."""

import core_streams as streams
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onlad.hardware import gateware_digest, simulate
from onlad.hardware.config import Config
from onlad.hardware.model import Model
from onlad.hardware.packets import Ff, Mode, Packet, Status, answered, reads
from onlad.hardware.rtl.top import Top
from onlad.hardware.simulate import PATIENCE, Simulator
from onlad.hardware.transport import Emulator

TRAIN, SCORE = (Packet(Mode.TRAIN, False, index, 0).encode() for index in (0, 1))
PREDICT = Packet(Mode.PREDICT, False, 0, 0).encode()
TINY = Config(n=6, hidden=4, lanes=2)


def simulator(config, **options):
    library = simulate.build(lambda: Top(config), f"{config!r} {gateware_digest()}")
    return Simulator(library, **options)


def memories(config):
    """Return the words that read all that a core stores, but for Status.CYCLES."""
    n, N = config.n, config.hidden
    stored = [(Mode.BETA, n * N), (Mode.P, N * N), (Mode.B, N), (Mode.X, n), (Mode.FF, len(Ff))]
    if config.alpha != "seeded":
        stored.append((Mode.ALPHA, n * N))
    words = [reads(mode, count) for mode, count in stored]
    status = [k for k in range(len(Status)) if k != Status.CYCLES]
    return np.concatenate([*words, reads(Mode.TRAIN, len(Status))[status]])


def answers(model, words):
    return np.array([a for word in words for a, _ in model.accept(int(word))], np.uint32)


def assert_same(core, model, words):
    np.testing.assert_array_equal(core.exchange(words), Emulator(model).exchange(words))


def stream(config, steps, factor=0.97, limit=None, seed=0):
    """Return the words of a start and of each step: samples scored, learned, or both."""
    learned = 2 * config.hidden
    X = streams.rows(config.n, learned + steps, seed)
    begin = streams.load(config, streams.start(config, X[:learned], seed), factor, limit)
    orders = [[TRAIN], [SCORE], [PREDICT, TRAIN]]
    return begin, [
        np.concatenate([streams.sample(config, x), np.array(orders[k % 3], np.uint64)])
        for k, x in enumerate(X[learned:])
    ]


def follow(config, steps, *, pauses=0.0, **options):
    core, model = simulator(config, pauses=pauses, seed=1), Model(config)
    begin, samples = stream(config, steps, **options)
    for words in (begin, np.concatenate(samples), memories(config)):
        assert_same(core, model, words)
    assert model.status[Status.TRAINED] == steps & 0xFFFF
    return core, model


@pytest.mark.parametrize("steps", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_thousands_of_steps_are_bit_exact_under_back_pressure(steps):
    follow(Config(n=128, hidden=16), steps, pauses=0.2)


def test_the_guard_is_bit_exact():
    config = Config(n=128, hidden=16)
    _, model = follow(config, 100, factor=0.9, limit=10.0)
    assert model.status[Status.PAUSED] > 10


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["identity", "sigmoid"])
def test_two_hundred_steps_at_the_papers_size_are_bit_exact(activation):
    core, _ = follow(Config(n=512, hidden=64, activation=activation), 200, pauses=0.2)
    assert core.cycles > 0


@pytest.mark.parametrize(
    "config",
    [
        Config(n=9, hidden=5, lanes=4, activation="sigmoid", width=25),
        Config(n=3, hidden=6, lanes=2, width=18, alpha="seeded", seed=9),  # S is the largest
    ],
)
def test_odd_sizes_and_options_are_bit_exact(config):
    follow(config, 60, pauses=0.3)


any_index = st.one_of(st.integers(0, 30), st.integers(0, 2**28 - 1))
any_value = st.one_of(
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**24), 2**24),
    st.sampled_from([1 << 30, 1 << 29, 0, 5]),
)
any_packet = st.builds(Packet, st.sampled_from(Mode), st.booleans(), any_index, any_value)
likely = st.sampled_from([TRAIN, SCORE, PREDICT])
ready = Packet(Mode.FF, False, Ff.FACTOR, 1 << 30).encode()
any_words = st.lists(
    st.one_of(any_packet.map(Packet.encode), likely, st.just(ready)), min_size=1, max_size=60
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(words=any_words, loaded=st.booleans(), seed=st.integers(0, 99))
def test_any_words_in_any_order_are_bit_exact(words, loaded, seed):
    core, model = simulator(TINY, pauses=0.3, seed=seed), Model(TINY)
    words = np.array(words, np.uint64)
    if loaded:
        words = np.concatenate([stream(TINY, 1, seed=seed)[0], words])
    # The count of cycles is the one word that a model cannot know.
    words = words[words >> np.uint64(32) != (int(Mode.TRAIN) << 29 | 1 << 28 | Status.CYCLES)]
    lasts = np.random.default_rng(seed).integers(0, 2, len(words)).astype(np.uint8)
    found, found_lasts = core.stream(words, lasts)
    np.testing.assert_array_equal(found, answers(model, words))
    np.testing.assert_array_equal(found_lasts, lasts[answered(words)])
    assert_same(core, model, memories(TINY))


def interrupt(core, word, cycles):
    """Send one word, let the core work for `cycles`, and assert reset before it is done."""
    words, last, taken = np.array([word], np.uint64), np.ones(1, np.uint8), np.zeros(1, np.uint64)
    core._library.core_stream(
        core._core, words.ctypes, last.ctypes, 1, None, None, 0, taken.ctypes, None, 0, 1, PATIENCE
    )
    core._library.core_wait(core._core, cycles)
    core.reset()


def test_a_reset_in_the_midst_of_a_step_asks_for_a_new_start():
    core, model = simulator(TINY), Model(TINY)
    begin, samples = stream(TINY, 3)
    for cycles in (1, 30, 120, 250, 400):
        core.exchange(begin)
        core.exchange(samples[0])
        interrupt(core, TRAIN, cycles)
        model.reset()
        assert_same(core, model, np.array([PREDICT], np.uint64))  # refused: not ready
        for words in (begin, *samples, memories(TINY)):  # loaded anew, it works as if new
            assert_same(core, model, words)


def test_the_core_counts_its_cycles():
    core = simulator(TINY)
    begin, samples = stream(TINY, 3)
    core.exchange(begin)
    for words in samples:
        core.exchange(words)
        taken = core.cycles
        asked = reads(Mode.TRAIN, 1, Status.CYCLES)
        assert int(core.exchange(asked)[0]) == taken


@st.composite
def shapes(draw):
    n, N = draw(st.integers(2, 12)), draw(st.integers(2, 9))
    return Config(
        n=n,
        hidden=N,
        lanes=draw(st.sampled_from([k for k in (1, 2, 4, 8) if k <= min(n, N)])),
        activation=draw(st.sampled_from(["identity", "sigmoid"])),
        width=draw(st.sampled_from([32, 25, 18])),
        alpha=draw(st.sampled_from(["stored", "narrow", "seeded"])),
    )


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=shapes(), factor=st.sampled_from([0.9, 0.99, 1.0]), seed=st.integers(0, 99))
def test_random_shapes_are_bit_exact(config, factor, seed):
    follow(config, 40, factor=factor, seed=seed, pauses=0.2)
