"""The order in which a pass goes through a matrix or a vector, one issue per cycle."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from onlad.hardware.config import Config
from onlad.hardware.rtl.interfaces import (
    KEPT,
    Op,
    Part,
    Ports,
    choose,
    is_any,
    issue_layout,
    passes,
)


class Walk(Part):
    """Turn a request into issues, without a pause between two requests.

    By blocks of columns (a lane has a column of its own), by rows (all lanes share one), or along
    a vector.
    """

    def ports(self, c: Config) -> Ports:
        return {
            "train": In(passes(c)),  # who asks for passes; Train Module comes first
            "predict": In(passes(c)),
            "issue": Out(issue_layout(c)),
            "idle": Out(1),  # no pass is under way
            "quiet": In(1),  # nothing is under way behind the issues
        }

    def build(self, m: Module) -> None:
        c, row = self.config, self.config.alpha_row
        first = self.train.request.valid
        request = Signal(self.train.request.shape())
        taken = Signal()
        active = Signal()
        op = Signal(Op)
        outer = Signal.like(request.start)
        end = Signal.like(request.end)
        inner = Signal(range(max(c.n, c.hidden)))
        top = Signal.like(inner)
        stride = Signal(range(max(row, c.beta_row) + 1))
        word = Signal.like(self.issue.word)
        slot = Signal()
        # inner == top and outer == end, as registers: who asks would wait long for the comparison.
        inner_last = Signal()
        outer_last = Signal()
        by_rows = is_any(op, (Op.GAIN, Op.ROOT, Op.ROW))

        m.d.comb += [
            request.eq(Mux(first, self.train.request.as_value(), self.predict.request.as_value())),
            taken.eq(request.valid & (~active | (inner_last & outer_last))),
            self.train.taken.eq(taken & first),
            self.predict.taken.eq(taken & ~first),
            self.train.settled.eq(self.idle & self.quiet),
            self.predict.settled.eq(self.idle & self.quiet),
            self.idle.eq(~active),
            self.issue.valid.eq(active),
            self.issue.op.eq(op),
            # Of the losses of all blocks one sum is made.
            self.issue.first.eq((inner == 0) & ((op != Op.LOSS) | (outer == 0))),
            self.issue.last.eq(inner_last),
            self.issue.word.eq(word),
        ]
        lanes = c.lanes.bit_length() - 1
        scalars = {
            (Op.HIDDEN, Op.FORWARD, Op.ERRORS): inner,
            Op.TEACH: inner + row * c.lanes,
            Op.ROOT_GAIN: inner << lanes,
            Op.BETA_GAIN: (inner + row) << lanes,
        }
        choose(m, "comb", self.issue.scalar, op, scalars, outer)
        vectors = {KEPT: inner + row, (Op.LOSS, Op.TEACH): slot + 2 * row}
        choose(m, "comb", self.issue.vector, op, vectors, inner)

        with m.If(active):
            m.d.sync += [inner.eq(inner + 1), word.eq(word + stride)]
            m.d.sync += inner_last.eq(inner + 1 == top)
            with m.If(inner_last):
                m.d.sync += [inner.eq(0), outer.eq(outer + 1), active.eq(~outer_last)]
                m.d.sync += [inner_last.eq(top == 0), outer_last.eq(outer + 1 == end)]
                with m.If(~by_rows):
                    m.d.sync += word.eq(outer + 1)
        with m.If(taken):
            m.d.sync += [
                active.eq(1),
                op.eq(request.op),
                outer.eq(request.start),
                end.eq(request.end),
                outer_last.eq(request.start == request.end),
                slot.eq(request.slot),
                inner.eq(0),
            ]

            def go(count: int, step: int, start: Any) -> None:
                m.d.sync += [top.eq(count - 1), inner_last.eq(count == 1)]
                m.d.sync += [stride.eq(step), word.eq(start)]

            with m.Switch(request.op):
                with m.Case(Op.HIDDEN):
                    go(c.n, row, request.start)
                with m.Case(Op.FORWARD):
                    go(c.hidden, row, request.start)
                with m.Case(Op.ERRORS, Op.TEACH):
                    go(c.hidden, c.beta_row, request.start)
                with m.Case(Op.LOSS):
                    m.d.sync += [top.eq(0), inner_last.eq(1)]
                with m.Default():  # rows and vectors
                    go(row, 1, request.start * row)
