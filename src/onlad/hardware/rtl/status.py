"""The status words: cycles of the last step, and steps by how they ended."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from onlad.hardware.packets import Reason, Status

DECODE_CYCLES = 3  # from the taking of a word to the first cycle of its work


class StatusWords(wiring.Component):
    """Count, for a host that asks.

    Members
    -------
    idle : In(1)
        No word is worked on.
    begun, ends : In(1)
        A PREDICT or TRAIN starts; it is answered.
    trains, trained, learned, paused : In(1)
        A step starts; it ends; it was learned; from now on nothing is forgotten.
    cut, hidden_cut : In(1)
        A word was out of range; it was one of the hidden layer.
    hidden_was_cut : Out(1)
        So it was in this step.
    reasons : In
    index, value : In, Out
        The word of `packets.Status` that is asked for.
    """

    def __init__(self) -> None:
        pulses = ("idle", "begun", "ends", "trains", "trained", "learned", "paused", "cut",
                  "hidden_cut")  # fmt: skip
        super().__init__(
            {
                **{name: In(1) for name in pulses},
                "hidden_was_cut": Out(1),
                "reasons": In(len(Reason)),
                "index": In(3),
                "value": Out(32),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
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
        return m
