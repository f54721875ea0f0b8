"""The driver of the board on PYNQ's own code. Run by test_pynq.py in an environment with PYNQ."""

import os
from pathlib import Path

import numpy as np
import pynq
import pytest
from board import Board
from pynq.lib.dma import DMA, _SDMAChannel

import onlad.hardware.pynq as ours
from onlad import Detector, OnladError
from onlad.hardware import OnladCore, load, read
from onlad.hardware.model import Model
from onlad.hardware.simulate import Simulator
from onlad.hardware.transport import Emulator

CORE = OnladCore(n=16, hidden=8, lanes=2, activation="sigmoid")
X = np.random.default_rng(0).uniform(0, 1, (60, 16))


def detector():
    settings = {"activation": "sigmoid", "score": "reconstruction", "weights": "normal"}
    return Detector(n_hidden=8, **settings).fit(X[:40])


def overlay(board, tmp_path):
    bit = tmp_path / "onlad.bit"
    bit.write_bytes(b"")
    return pynq.Overlay(str(bit), device=board)


@pytest.fixture(params=["emulated", "simulated"])
def core(request):
    if request.param == "emulated":
        return Emulator(Model(CORE.config))
    library = os.environ.get("ONLAD_LIBRARY")
    if not library:
        pytest.skip("no simulator was built")
    return Simulator(Path(library), pauses=0.2)


def test_the_overlay_has_the_core_as_a_detector(core, tmp_path):
    board = Board(core)
    device = overlay(board, tmp_path).onlad
    assert type(device) is ours.Onlad
    assert type(device.dma) is DMA
    assert type(device.dma.sendchannel) is _SDMAChannel
    assert device.config == CORE.config
    load(detector(), device)
    emulated = CORE.emulate(detector())
    np.testing.assert_array_equal(device.update_many(X), emulated.update_many(X))
    assert device.score_one(X[0]) == emulated.score_one(X[0])
    device.learn_one(X[1])
    emulated.learn_one(X[1])
    for mine, theirs in zip(read(device).state, read(emulated).state, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert device.n_seen == 40 + 61
    assert board.flushed > 0
    assert board.invalidated > 0


def test_a_dma_with_short_transfers_gets_short_transfers(tmp_path):
    device = overlay(Board(Emulator(Model(CORE.config)), length_width=14), tmp_path).onlad
    assert device.transport._words == (2**14 - 1) // 8
    load(detector(), device)
    assert len(X) * 17 * 4 > 2**11  # several transfers
    found = device.update_many(np.tile(X, (4, 1)))
    expected = CORE.emulate(detector()).update_many(np.tile(X, (4, 1)))
    np.testing.assert_array_equal(found, expected)


class Stuck:
    """A core that gives no answers after its first ones."""

    def __init__(self):
        self.core, self.calls = Emulator(Model(CORE.config)), 0

    def exchange(self, words):
        self.calls += 1
        answers = self.core.exchange(words)
        return answers if self.calls == 1 else answers[:-1]


def test_a_core_that_is_stuck_is_no_endless_loop(monkeypatch, tmp_path):
    monkeypatch.setattr(ours, "_PATIENCE", 0.05)
    board = Board(Stuck())
    device = overlay(board, tmp_path).onlad
    with pytest.raises(OnladError, match="the core ended its answers after 5 of 6"):
        device.status()
    board.send = lambda nbytes: None  # takes no words at all
    with pytest.raises(OnladError, match="the core did not accept all words within 0 s"):
        device.status()


def test_other_hierarchies_are_left_alone():
    dma = {"type": "xilinx.com:ip:axi_dma:7.1"}
    check = ours.Onlad.checkhierarchy
    assert check({"fullpath": "onlad", "ip": {"dma": dma}})
    assert check({"fullpath": "part/onlad", "ip": {"dma": dma}})
    assert not check({"fullpath": "video", "ip": {"dma": dma}})
    assert not check({"fullpath": "onlad", "ip": {"gpio": {"type": "xilinx.com:ip:axi_gpio:2.0"}}})
