"""Train Module: one step of Potter on S, the teaching of beta, and the wind-up guard."""

from __future__ import annotations

from functools import partial
from typing import Any

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from onlad.hardware.config import Config
from onlad.hardware.fixed import EXPONENTS, TRACE_BITS, TRACE_FRACTION
from onlad.hardware.rtl.interfaces import Op, Part, Ports, ask, normalising, passes, scaling


class TrainModule(Part):
    """Ask for the passes of a training step, in the order of `Model._learn`."""

    def ports(self, c: Config) -> Ports:
        return {
            "start": In(1),  # a step
            "done": Out(1),  # the step has ended, for a cycle
            "learned": Out(1),  # whether the sample was learned
            "paused": Out(1),  # the step forgets nothing
            "passes": Out(passes(c)),
            "hidden": Out(1),  # to and from `PredictModule`
            "errors": Out(1),
            "predicted": In(1),
            "blank": Out(1),  # x counts as zero: the guard's own sample is learned
            "cut": In(1),  # a sum of the hidden layer was out of range
            "scaling": Out(scaling(c)),
            "normalising": Out(normalising(c)),
            "h_write": Out(1),  # the guard's own h
            "h_index": Out(ceil_log2(c.hidden)),
            "h_value": Out(signed(c.width)),
            "ridge": In(c.width - 1),  # what the guard puts back
            "squares_valid": In(1),  # f.f is there
            "row_valid": In(1),  # the squares of a row of S are there
            "row": In(c.accumulator_width),
            "over": In(1),  # a word of S that is written reaches 1
            "near": In(1),  # or 1/4
            "load_mantissa": In(1),  # set m
            "load_exponent": In(1),  # or z
            "load_value": In(signed(32)),
            "limited": In(1),  # there is a limit to the trace
        }

    def build(self, m: Module) -> None:
        c = self.config
        over = Signal()
        near = Signal()
        wound = Signal()
        ready = Signal()
        self._look(m, over, near)
        commit = Signal()
        measure_all = Signal()
        trace, round_row = self._trace(m, commit, measure_all)
        m.d.comb += [self.paused.eq(wound), self.scaling.held.eq(wound)]

        asked = partial(ask, m, self.passes)
        with m.If(self.scaling.done):
            m.d.sync += ready.eq(1)
        with m.FSM(name="train"):
            with m.State("IDLE"):
                m.d.sync += [self.blank.eq(0), self.learned.eq(0)]
                with m.If(self.start):
                    m.d.comb += [self.hidden.eq(1), self.scaling.forget.eq(1)]
                    m.d.sync += ready.eq(0)
                    m.next = "HIDDEN"
            with m.State("HIDDEN"), m.If(self.predicted):
                m.next = "FORWARD"
                with m.If(self.cut):
                    m.next = "REFUSED"
            with m.State("REFUSED"), m.If(ready):
                m.next = "DONE"
            with m.State("FORWARD"):
                m.d.comb += self.normalising.clear.eq(1)
                with asked(Op.FORWARD, 0, c.alpha_row - 1):
                    m.next = "FORWARD_END"
            with m.State("FORWARD_END"), m.If(self.passes.settled):
                m.d.comb += self.normalising.start.eq(1)
                m.next = "NORMALISE"
            with m.State("NORMALISE"), m.If(self.normalising.done):
                m.next = "FORGOTTEN"
            with m.State("FORGOTTEN"), m.If(ready):
                m.d.sync += [self.scaling.forward_length.eq(self.normalising.length), ready.eq(0)]
                m.d.sync += self.scaling.renormal.eq(self._renormal(over, near))
                m.d.comb += self.normalising.clear.eq(1)
                m.next = "SQUARE"
                with m.If(self.normalising.length == 0):
                    m.next = "DONE"
            with m.State("SQUARE"), asked(Op.SQUARE):
                m.next = "GAIN"
            with m.State("GAIN"):
                m.d.comb += self.scaling.scale.eq(self.squares_valid)
                with asked(Op.GAIN, 0, c.hidden - 1):
                    m.next = "GAIN_END"
            with m.State("GAIN_END"):
                m.d.comb += [self.scaling.scale.eq(self.squares_valid), self.normalising.gain.eq(1)]
                with m.If(self.passes.settled & ~self.squares_valid):
                    m.d.comb += self.normalising.start.eq(1)
                    m.next = "NORMALISE_GAIN"
            with m.State("NORMALISE_GAIN"):
                m.d.comb += self.normalising.gain.eq(1)
                m.d.sync += self.scaling.gain_length.eq(self.normalising.length)
                with m.If(self.normalising.done):
                    m.next = "FINISH"
            with m.State("FINISH"), m.If(ready):
                m.d.comb += self.scaling.finish.eq(1)
                m.d.sync += ready.eq(0)
                m.next = "FINISHED"
            with m.State("FINISHED"), m.If(ready):
                m.next = "ROOT_GAIN"
            with m.State("ROOT_GAIN"), asked(Op.ROOT_GAIN):
                m.next = "BETA_GAIN"
            with m.State("BETA_GAIN"), asked(Op.BETA_GAIN):
                m.next = "GAINS_END"
            with m.State("GAINS_END"), m.If(self.passes.settled):
                m.next = "ROOT"
            with m.State("ROOT"), asked(Op.ROOT, 0, c.hidden - 1):
                m.d.comb += self.errors.eq(1)
                m.next = "LIMIT"
            with m.State("LIMIT"):
                m.d.comb += [commit.eq(1), self.scaling.limiting.eq(1)]
                m.next = "ERRORS"
            with m.State("ERRORS"), m.If(self.predicted):
                m.d.sync += self.learned.eq(1)
                m.d.comb += measure_all.eq(self.blank)
                m.next = "ROW"
            with m.State("ROW"):
                with m.If(self.blank):
                    asked(Op.ROW, 0, c.hidden - 1)
                with m.Else():
                    asked(Op.ROW, round_row, round_row)
                with m.If(self.passes.taken):
                    m.next = "ROW_END"
            with m.State("ROW_END"), m.If(self.passes.settled & self.scaling.idle):
                m.next = "COMPARE"
            with m.State("COMPARE"):
                act = self.limited & (trace > self.scaling.bound)
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
                    m.d.comb += self.scaling.forget.eq(1)  # paused: it only takes m and z over
                    m.d.sync += ready.eq(0)
                    m.next = "FORWARD"
            with m.State("DONE"):
                m.d.comb += self.done.eq(1)
                m.next = "IDLE"

    def _look(self, m: Module, over: Any, near: Any) -> None:
        """Keep m and z, and whether a word of S reaches 1 or 1/4."""
        m.d.sync += [over.eq(over | self.over), near.eq(near | self.near)]
        self._over, self._near = over, near
        with m.If(self.load_mantissa):
            m.d.sync += self.scaling.mantissa.eq(self.load_value)
        with m.If(self.load_exponent):
            m.d.sync += self.scaling.exponent.eq(self.load_value)

    def _renormal(self, over: Any, near: Any) -> Any:
        wanted = Mux(over, -1, Mux(near, 0, 1))
        low = over & (self.scaling.new_exponent == EXPONENTS[0])
        high = ~over & ~near & (self.scaling.new_exponent == EXPONENTS[-1])
        return Mux(low | high, 0, wanted)

    def _trace(self, m: Module, commit: Any, measure_all: Any) -> tuple[Any, Any]:
        """Measure trace(S S'), one row per step, and which row is largest."""
        c = self.config
        trace = Signal(TRACE_BITS)
        total = Signal(TRACE_BITS)
        largest = Signal(TRACE_BITS)
        row = Signal(ceil_log2(c.hidden), name="round_row")
        largest_row = Signal.like(row)
        worst = Signal.like(row)
        self._worst = worst
        with m.If(commit):
            m.d.sync += [
                self.scaling.mantissa.eq(self.scaling.new_mantissa),
                self.scaling.exponent.eq(self.scaling.new_exponent + self.scaling.renormal),
                self._over.eq(0),
                self._near.eq(0),
            ]
            for value in (trace, total, largest):
                with m.If(self.scaling.renormal > 0):
                    lost = value[-2:].any()
                    m.d.sync += value.eq(Mux(lost, (1 << TRACE_BITS) - 1, value << 2))
                with m.Elif(self.scaling.renormal < 0):
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
