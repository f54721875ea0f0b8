"""The harness, tried on a component that echoes, and on ones that break a rule of the stream."""

import numpy as np
import pytest

from onlad.hardware import packets, simulate
from onlad.hardware.simulate import SimulationError, Simulator

pytest.importorskip("amaranth")
from echo import Echo


@pytest.fixture(scope="module")
def library():
    return simulate.build(Echo, "echo")


def some_words(count):
    rng = np.random.default_rng(0)
    return rng.integers(0, 2**64, count, dtype=np.uint64), rng.integers(0, 2, count, dtype=np.uint8)


@pytest.mark.parametrize("pauses", [0, 0.3, 0.9])
def test_every_request_is_answered_once_and_in_order(library, pauses):
    words, lasts = some_words(40_000)  # more than one call of the library
    asks = packets.answered(words)
    answers, answer_lasts = Simulator(library, pauses=pauses).stream(words, lasts)
    np.testing.assert_array_equal(answers, (words[asks] & 0xFFFFFFFF).astype(np.uint32))
    np.testing.assert_array_equal(answer_lasts, lasts[asks])


def test_cycles_are_those_of_the_last_instruction(library):
    simulator = Simulator(library)
    assert simulator.cycles == 0
    assert simulator.exchange(packets.reads(packets.Mode.X, 3)).tolist() == [0, 0, 0]
    assert simulator.cycles == 0  # to read is no instruction of the paper
    before = simulator.clock
    simulator.exchange(np.zeros(1, np.uint64))
    assert simulator.cycles == 1  # the echo offers its answer one cycle after it took the word
    assert simulator.clock - before == 2
    simulator.reset()
    assert simulator.clock - before == 4


def test_no_words_have_no_answers(library):
    assert len(Simulator(library).exchange(np.empty(0, np.uint64))) == 0


def test_one_seed_gives_one_run(library):
    words, _ = some_words(1000)
    clocks = []
    for seed in (1, 1, 2):
        simulator = Simulator(library, pauses=0.5, seed=seed)
        simulator.exchange(words)
        clocks.append(simulator.clock)
    assert clocks[0] == clocks[1] != clocks[2]


def test_a_build_is_kept(library, monkeypatch):
    monkeypatch.setattr(simulate, "verilog", None)  # would be called to build
    assert simulate.build(Echo, "echo") == library


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("withdraws", "changed or withdrew an answer"),
        ("changes", "changed or withdrew an answer"),
        ("deaf", "the core is stuck: 0 answers of 12"),
    ],
)
def test_a_broken_stream_is_noticed(fault, words, monkeypatch):
    monkeypatch.setattr(simulate, "PATIENCE", 1000)
    simulator = Simulator(simulate.build(lambda: Echo(fault), fault), pauses=0.5)
    with pytest.raises(SimulationError, match=words):
        simulator.exchange(some_words(20)[0])


def test_a_compiler_that_fails_says_why(monkeypatch, tmp_path):
    monkeypatch.setattr(simulate, "cache", lambda: tmp_path)
    monkeypatch.setattr(simulate, "verilog", lambda make: "module top(")
    with pytest.raises(SimulationError, match=r"verilator_bin failed:\n%Error"):
        simulate.build(Echo, "broken")
    monkeypatch.setattr(simulate.shutil, "which", lambda name: None)
    with pytest.raises(SimulationError, match=r"needs g\+\+"):
        simulate.build(Echo, "broken")


def test_pauses_are_a_share(library):
    with pytest.raises(ValueError, match=r"pauses must be in \[0, 0.99\], got 1"):
        Simulator(library, pauses=1)
