"""No memory is read and written at one address in one cycle: watched in every cycle of long runs.

Vivado and yosys disagree on what such a read gives, so it must not happen.
"""

import numpy as np
import pytest

pytest.importorskip("amaranth")
from amaranth.hdl import Cat, Fragment, Module, Signal
from amaranth.lib import wiring
from echo import PORTS

from onlad.hardware import Device, OnladCore, gateware_digest, packets, simulate
from onlad.hardware.rtl.banks import Banks
from onlad.hardware.rtl.top import Top

CORE = OnladCore(n=13, hidden=6, lanes=2, activation="sigmoid")


class Watched(wiring.Component):
    """The core, with answers that are inverted from the first collision on."""

    def __init__(self, config, collides):
        super().__init__(PORTS)
        self.config, self.collides = config, collides

    def elaborate(self, platform):
        plain, hits = Banks.elaborate, []

        def watched(banks, platform):
            m, hit = plain(banks, platform), Signal()
            m.d.comb += hit.eq(self.collides(banks))
            hits.append(hit)
            return m

        m, core = Module(), Top(self.config)
        Banks.elaborate = watched
        try:
            m.submodules.core = Fragment.get(core, platform)
        finally:
            Banks.elaborate = plain
        assert len(hits) >= 8  # alpha, beta, S, b, x, h, f and g, q and k, sums
        seen = Signal()
        m.d.sync += seen.eq(seen | Cat(*hits).any())
        for name, flow in PORTS.items():
            mine, theirs = getattr(self, name), getattr(core, name)
            m.d.comb += theirs.eq(mine) if flow.flow is wiring.In else mine.eq(theirs)
        m.d.comb += self.m_axis_tdata.eq(core.m_axis_tdata ^ seen.replicate(32))
        return m


def same_word(banks):
    return banks.read & banks.write.any() & (banks.read_address == banks.write_address)


def same_cycle(banks):
    return banks.read & banks.write.any()


def run(collides):
    """Return answers of the watched gateware and of the model to one long mixture of words."""
    key = f"{collides.__name__} {CORE.config} {gateware_digest()}"
    library = simulate.build(lambda: Watched(CORE.config, collides), key)
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (200, 13))
    found = []
    for core in (CORE.emulate(), Device(simulate.Simulator(library, pauses=0.3))):
        device = core.load(CORE.detector(forgetting=0.9))
        stuck = np.repeat(X[:1], 100, axis=0)  # the guard acts
        scores = [device.update_many(X), device.score_many(X[:20]), device.update_many(stuck)]
        reads = [packets.reads(mode, 5) for mode in packets.Mode]
        words = np.concatenate([*reads, *map(np.flip, reads)])
        found.append([np.concatenate(scores), device.transport.exchange(words), device.state])
    return found


def test_no_word_is_read_while_it_is_written():
    model, gates = run(same_word)
    np.testing.assert_array_equal(gates[0], model[0])
    for mine, theirs in zip(gates[2], model[2], strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_collision_would_be_seen():
    # Memories are read and written in one cycle, at two addresses: the answers do get inverted.
    with pytest.raises(packets.CoreRefusedError):
        run(same_cycle)
