"""The status words: cycles of the last step, and steps by how they ended."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import In, Out

from onlad.hardware.config import Config
from onlad.hardware.packets import Reason, Status
from onlad.hardware.rtl.interfaces import Part, Ports

DECODE_CYCLES = 3  # from the taking of a word to the first cycle of its work


class StatusWords(Part):
    """Count, for a host that asks."""

    def ports(self, c: Config) -> Ports:
        return {
            "idle": In(1),  # no word is worked on
            "begun": In(1),  # a PREDICT or TRAIN starts
            "ends": In(1),  # it is answered
            "trains": In(1),  # a step starts
            "trained": In(1),  # it ends
            "learned": In(1),  # it was learned
            "paused": In(1),  # from now on nothing is forgotten
            "cut": In(1),  # a word was out of range
            "hidden_cut": In(1),  # it was one of the hidden layer
            "hidden_was_cut": Out(1),  # so it was in this step
            "reasons": In(len(Reason)),
            "index": In(3),  # of the word of `packets.Status` that is asked for
            "value": Out(32),
        }

    def build(self, m: Module) -> None:
        timing = Signal()
        cycles = Signal(24)
        with m.If(self.begun):
            m.d.sync += [timing.eq(1), cycles.eq(DECODE_CYCLES)]
        with m.Else():
            with m.If(self.ends):
                m.d.sync += timing.eq(0)
            with m.If(timing):
                m.d.sync += cycles.eq(cycles + 1)

        paused = Signal()  # while this step is under way
        saturated = Signal()
        with m.If(self.idle):
            m.d.sync += [saturated.eq(0), self.hidden_was_cut.eq(0), paused.eq(self.paused)]
        with m.Else():
            with m.If(self.cut):
                m.d.sync += saturated.eq(1)
            with m.If(self.hidden_cut):
                m.d.sync += self.hidden_was_cut.eq(1)

        words = {Status.REASONS: self.reasons, Status.CYCLES: cycles}
        for which, happens in {
            Status.TRAINED: self.trains,
            Status.SINGULAR: self.trained & ~self.learned,
            Status.PAUSED: self.trained & self.learned & paused,
            Status.SATURATED: self.trained & saturated,
        }.items():
            words[which] = count = Signal(16, name=which.name.lower())
            with m.If(happens):
                m.d.sync += count.eq(count + 1)
        with m.Switch(self.index):
            for which, word in words.items():
                with m.Case(int(which)):
                    m.d.comb += self.value.eq(word)
