"""Predict Module: the hidden layer, the errors and their mean square.

When it works for Train Module it also teaches each block of beta while its errors are at hand:
errors of block t + 1 are summed while those of block t leave the lanes, then block t is taught.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import In, Out

from onlad.hardware.config import Config
from onlad.hardware.rtl.interfaces import Op, Part, Ports, ask, passes


class PredictModule(Part):
    """Ask for the passes that make h, and e."""

    def ports(self, c: Config) -> Ports:
        return {
            "hidden": In(1),  # start: make h
            "errors": In(1),  # start: make e
            "teach": In(1),  # teach beta as well; constant from `errors` to `done`
            "passes": Out(passes(c)),
            "block_done": In(1),  # the errors of one more block are in place
            "done": Out(1),  # for a cycle: what was started has ended
        }

    def build(self, m: Module) -> None:
        blocks = self.config.beta_row
        block = Signal.like(self.passes.request.start)
        ready = Signal(2)  # blocks whose errors are in place and not yet used

        def asked(op: Any, start: Any, end: Any) -> Any:
            taken = ask(m, self.passes, op, start, end)
            m.d.comb += self.passes.request.slot.eq(block[0])
            return taken

        used = Signal()
        with m.If(self.block_done & ~used):
            m.d.sync += ready.eq(ready + 1)
        with m.Elif(used & ~self.block_done):
            m.d.sync += ready.eq(ready - 1)

        with m.FSM(name="predict"):
            with m.State("IDLE"):
                m.d.sync += [block.eq(0), ready.eq(0)]
                with m.If(self.hidden):
                    m.next = "HIDDEN"
                with m.Elif(self.errors):
                    m.next = "FIRST"
            with m.State("HIDDEN"), asked(Op.HIDDEN, 0, self.config.alpha_row - 1):
                m.next = "SETTLE"
            with m.State("FIRST"), asked(Op.ERRORS, 0, 0):
                m.next = "NEXT"
            with m.State("NEXT"):
                with m.If(block == blocks - 1):
                    m.next = "LOSS"
                with m.Else(), asked(Op.ERRORS, block + 1, block + 1):
                    m.next = "LOSS"
            with m.State("LOSS"), m.If(ready != 0), asked(Op.LOSS, block, block):
                m.d.comb += used.eq(1)
                with m.If(self.teach):
                    m.next = "TEACH"
                with m.Else():
                    m.d.sync += block.eq(block + 1)
                    m.next = "NEXT"
                    with m.If(block == blocks - 1):
                        m.next = "SETTLE"
            with m.State("TEACH"), asked(Op.TEACH, block, block):
                m.d.sync += block.eq(block + 1)
                m.next = "NEXT"
                with m.If(block == blocks - 1):
                    m.next = "SETTLE"
            with m.State("SETTLE"), m.If(self.passes.settled):
                m.d.comb += self.done.eq(1)
                m.next = "IDLE"
