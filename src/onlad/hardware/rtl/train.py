"""Train Module: one step of Potter on S, the teaching of beta, and the wind-up guard."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from onlad.hardware.config import Config
from onlad.hardware.fixed import EXPONENTS, MANTISSA_BITS, TRACE_BITS, TRACE_FRACTION
from onlad.hardware.rtl.operations import Op
from onlad.hardware.rtl.walk import request_layout


class TrainModule(wiring.Component):
    """Ask for the passes of a training step, in the order of `Model._learn`.

    Members
    -------
    start : In(1)
    done, learned : Out(1)
        The step has ended, for a cycle; whether the sample was learned.
    paused : Out(1)
        The step forgets nothing.
    request, taken, settled
        To and from `Walk`; nothing is under way anywhere.
    hidden, errors, predicted
        To and from `PredictModule`.
    blank : Out(1)
        x counts as zero: the guard's own sample is learned.
    cut : In(1)
        A sum of the hidden layer was out of range.
    forget, scale, finish, limiting, scaled
        To and from `Scalars`.
    clear, normalise, gain, normalised, length
        To and from `Normalise`.
    h_write, h_index, h_value : Out
        The guard's own h.
    squares_valid, row_valid, row : In
        f.f is there; the squares of a row of S are there.
    mantissa, exponent : Out
        m and z; set by `load_*`.
    renormal : Out(signed(2))
        How S is scaled in this step: -1, 0 or 1.
    limited, bounded, bound : In
        There is a limit to the trace; it is known; it.
    """

    def __init__(self, config: Config) -> None:
        self.config = c = config
        index = ceil_log2(c.hidden)
        super().__init__(
            {
                "start": In(1),
                "done": Out(1),
                "learned": Out(1),
                "paused": Out(1),
                "request": Out(request_layout(c)),
                "taken": In(1),
                "settled": In(1),
                "hidden": Out(1),
                "errors": Out(1),
                "predicted": In(1),
                "blank": Out(1),
                "cut": In(1),
                "forget": Out(1),
                "scale": Out(1),
                "finish": Out(1),
                "scaled": In(1),
                "limiting": Out(1),
                "clear": Out(1),
                "normalise": Out(1),
                "gain": Out(1),
                "normalised": In(1),
                "length": In(range(c.sum_width)),
                "h_write": Out(1),
                "h_index": Out(index),
                "h_value": Out(signed(c.width)),
                "ridge": In(c.width - 1),
                "squares_valid": In(1),
                "row_valid": In(1),
                "row": In(c.accumulator_width),
                "over": In(1),
                "near": In(1),
                "load_mantissa": In(1),
                "load_exponent": In(1),
                "load_value": In(signed(32)),
                "new_mantissa": In(MANTISSA_BITS),
                "new_exponent": In(signed(7)),
                "mantissa": Out(MANTISSA_BITS, init=1 << MANTISSA_BITS - 2),
                "exponent": Out(signed(6)),
                "forward_length": Out(range(c.sum_width)),
                "gain_length": Out(range(c.sum_width)),
                "renormal": Out(signed(2)),
                "limited": In(1),
                "bounded": In(1),
                "bound": In(TRACE_BITS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        c = self.config
        over, near, wound, ready = Signal(), Signal(), Signal(), Signal()
        self._look(m, over, near)
        commit, measure_all = Signal(), Signal()
        trace, round_row = self._trace(m, commit, measure_all)
        m.d.comb += self.paused.eq(wound)

        def ask(op: Any, start: Any = 0, end: Any = 0) -> None:
            m.d.comb += [
                self.request.valid.eq(1),
                self.request.op.eq(op),
                self.request.start.eq(start),
                self.request.end.eq(end),
            ]

        with m.If(self.scaled):
            m.d.sync += ready.eq(1)
        with m.FSM(name="train"):
            with m.State("IDLE"):
                m.d.sync += [self.blank.eq(0), self.learned.eq(0)]
                with m.If(self.start):
                    m.d.comb += [self.hidden.eq(1), self.forget.eq(1)]
                    m.d.sync += ready.eq(0)
                    m.next = "HIDDEN"
            with m.State("HIDDEN"), m.If(self.predicted):
                m.next = "FORWARD"
                with m.If(self.cut):
                    m.next = "REFUSED"
            with m.State("REFUSED"), m.If(ready):
                m.next = "DONE"
            with m.State("FORWARD"):
                m.d.comb += self.clear.eq(1)
                ask(Op.FORWARD, 0, c.alpha_row - 1)
                with m.If(self.taken):
                    m.next = "FORWARD_END"
            with m.State("FORWARD_END"), m.If(self.settled):
                m.d.comb += self.normalise.eq(1)
                m.next = "NORMALISE"
            with m.State("NORMALISE"), m.If(self.normalised):
                m.next = "FORGOTTEN"
            with m.State("FORGOTTEN"), m.If(ready):
                m.d.sync += [self.forward_length.eq(self.length), ready.eq(0)]
                m.d.sync += self.renormal.eq(self._renormal(over, near))
                m.d.comb += self.clear.eq(1)
                m.next = "SQUARE"
                with m.If(self.length == 0):
                    m.next = "DONE"
            with m.State("SQUARE"):
                ask(Op.SQUARE)
                with m.If(self.taken):
                    m.next = "GAIN"
            with m.State("GAIN"):
                m.d.comb += self.scale.eq(self.squares_valid)
                ask(Op.GAIN, 0, c.hidden - 1)
                with m.If(self.taken):
                    m.next = "GAIN_END"
            with m.State("GAIN_END"):
                m.d.comb += [self.scale.eq(self.squares_valid), self.gain.eq(1)]
                with m.If(self.settled & ~self.squares_valid):
                    m.d.comb += self.normalise.eq(1)
                    m.next = "NORMALISE_GAIN"
            with m.State("NORMALISE_GAIN"):
                m.d.comb += self.gain.eq(1)
                m.d.sync += self.gain_length.eq(self.length)
                with m.If(self.normalised):
                    m.next = "FINISH"
            with m.State("FINISH"), m.If(ready):
                m.d.comb += self.finish.eq(1)
                m.d.sync += ready.eq(0)
                m.next = "FINISHED"
            with m.State("FINISHED"), m.If(ready):
                m.next = "ROOT_GAIN"
            with m.State("ROOT_GAIN"):
                ask(Op.ROOT_GAIN)
                with m.If(self.taken):
                    m.next = "BETA_GAIN"
            with m.State("BETA_GAIN"):
                ask(Op.BETA_GAIN)
                with m.If(self.taken):
                    m.next = "GAINS_END"
            with m.State("GAINS_END"), m.If(self.settled):
                m.next = "ROOT"
            with m.State("ROOT"):
                ask(Op.ROOT, 0, c.hidden - 1)
                with m.If(self.taken):
                    m.d.comb += [commit.eq(1), self.errors.eq(1)]
                    m.next = "LIMIT"
            with m.State("LIMIT"):
                m.d.comb += self.limiting.eq(1)
                m.next = "ERRORS"
            with m.State("ERRORS"), m.If(self.predicted):
                m.d.sync += self.learned.eq(1)
                m.d.comb += measure_all.eq(self.blank)
                m.next = "ROW"
            with m.State("ROW"):
                with m.If(self.blank):
                    ask(Op.ROW, 0, c.hidden - 1)
                with m.Else():
                    ask(Op.ROW, round_row, round_row)
                with m.If(self.taken):
                    m.next = "ROW_END"
            with m.State("ROW_END"), m.If(self.settled & self.bounded):
                m.next = "COMPARE"
            with m.State("COMPARE"):
                act = self.limited & (trace > self.bound)
                m.d.sync += wound.eq(act)
                m.next = "DONE"
                with m.If(act & ~self.blank):
                    m.d.sync += [self.h_index.eq(0), self.blank.eq(1)]
                    m.next = "RESTORE"
            with m.State("RESTORE"):
                m.d.comb += self.h_write.eq(1)
                m.d.comb += self.h_value.eq(Mux(self.h_index == self._worst, self.ridge, 0))
                m.d.sync += self.h_index.eq(self.h_index + 1)
                with m.If(self.h_index == c.hidden - 1):
                    m.d.comb += self.forget.eq(1)  # paused: it only takes m and z over
                    m.d.sync += ready.eq(0)
                    m.next = "FORWARD"
            with m.State("DONE"):
                m.d.comb += self.done.eq(1)
                m.next = "IDLE"
        return m

    def _look(self, m: Module, over: Any, near: Any) -> None:
        """Keep m and z, and whether a word of S reaches 1 or 1/4."""
        m.d.sync += [over.eq(over | self.over), near.eq(near | self.near)]
        self._over, self._near = over, near
        with m.If(self.load_mantissa):
            m.d.sync += self.mantissa.eq(self.load_value)
        with m.If(self.load_exponent):
            m.d.sync += self.exponent.eq(self.load_value)

    def _renormal(self, over: Any, near: Any) -> Any:
        wanted = Mux(over, -1, Mux(near, 0, 1))
        low = over & (self.new_exponent == EXPONENTS[0])
        high = ~over & ~near & (self.new_exponent == EXPONENTS[-1])
        return Mux(low | high, 0, wanted)

    def _trace(self, m: Module, commit: Any, measure_all: Any) -> tuple[Any, Any]:
        """Measure trace(S S') a row a step, and which row is largest."""
        c = self.config
        trace, total, largest = (Signal(TRACE_BITS, name=n) for n in ("trace", "total", "largest"))
        row, largest_row, worst = (
            Signal(ceil_log2(c.hidden), name=n) for n in ("round_row", "largest_row", "worst")
        )
        self._worst = worst
        with m.If(commit):
            m.d.sync += [
                self.mantissa.eq(self.new_mantissa),
                self.exponent.eq(self.new_exponent + self.renormal),
                self._over.eq(0),
                self._near.eq(0),
            ]
            for value in (trace, total, largest):
                with m.If(self.renormal > 0):
                    lost = value[-2:].any()
                    m.d.sync += value.eq(Mux(lost, (1 << TRACE_BITS) - 1, value << 2))
                with m.Elif(self.renormal < 0):
                    m.d.sync += value.eq(value >> 2)
        with m.If(measure_all):
            m.d.sync += [total.eq(0), row.eq(0)]
        size = self.row[2 * c.root_fraction - TRACE_FRACTION :]
        grown = Signal(TRACE_BITS + 1)
        capped = Mux(grown[-1], (1 << TRACE_BITS) - 1, grown[:TRACE_BITS])
        bigger = (row == 0) | (size > largest)
        m.d.comb += grown.eq(total + size)
        with m.If(self.row_valid):
            m.d.sync += [total.eq(capped), row.eq(row + 1)]
            with m.If(bigger):
                m.d.sync += [largest.eq(size), largest_row.eq(row)]
            with m.If(row == c.hidden - 1):
                m.d.sync += [trace.eq(capped), total.eq(0), row.eq(0)]
                m.d.sync += worst.eq(Mux(bigger, row, largest_row))
        return trace, row
