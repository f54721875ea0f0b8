"""From a sum of the lanes to h or e: add b or subtract from x, round, saturate, apply G."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from onlad.hardware import sigmoid
from onlad.hardware.config import Config
from onlad.hardware.rtl.interfaces import Op, Part, Ports, delayed, magnitude
from onlad.hardware.rtl.lane import saturate


def place(config: Config) -> data.StructLayout:
    """Return which of the sums it is, of a pass."""
    sums = max(config.beta_row, config.alpha_row) * config.lanes
    return data.StructLayout({"index": ceil_log2(sums + 1)})


class Finish(Part):
    """Make h of the hidden layer's sums, and e of the reconstruction's."""

    def ports(self, c: Config) -> Ports:
        return {
            "valid": In(1),  # a sum leaves the lanes; `Op.FORWARD` is not for here
            "op": In(Op),
            "sum": In(signed(c.sum_width)),
            "base": In(signed(c.width)),  # the b or x that belongs to it, one cycle later
            "place": In(place(c)),  # what to carry along: where the result belongs
            "h_valid": Out(1),
            "e_valid": Out(1),
            "result": Out(signed(c.width)),
            "result_place": Out(place(c)),
            "cut": Out(1),  # the result was out of range
            "idle": Out(1),  # nothing is under way
        }

    def build(self, m: Module) -> None:
        c = self.config
        curve = 6 if c.activation == "sigmoid" else 0
        hidden = delayed(m, self.valid & (self.op == Op.HIDDEN), 4 + curve, "hidden")
        errors = delayed(m, self.valid & (self.op == Op.ERRORS), 4, "errors")
        places = delayed(m, self.place, 4 + curve, "place")
        total = delayed(m, self.sum, 2, "sum")[-1]
        base = Signal(signed(c.width))
        m.d.sync += base.eq(self.base)

        # b + sum, or x - sum: one adder, with the sign's carry and half a bit below the sum.
        def at(fraction: int) -> Any:
            return Cat(Const(1, 1), Const(1 << fraction - 1, fraction), base).as_signed()

        minus = ~hidden[2]
        terms = Cat(minus, total[:] ^ minus.replicate(len(total))).as_signed()
        alpha_fraction, fraction = c.alpha_fraction - c.sum_cut, c.fraction - c.sum_cut
        value = Signal(signed(c.sum_width + 2))
        m.d.sync += value.eq(Mux(hidden[2], at(alpha_fraction), at(fraction)) + terms)
        word = Signal(signed(c.width))
        cut = Signal()
        rounded = Mux(hidden[3], value >> 1 + alpha_fraction, value >> 1 + fraction)
        m.d.sync += saturate(rounded, word, cut)
        m.d.comb += [
            self.e_valid.eq(errors[4]),
            # The curve is flat where its argument is cut.
            self.cut.eq(cut & (errors[4] if curve else errors[4] | hidden[4])),
            self.h_valid.eq(hidden[-1]),
            self.result.eq(word),
            self.result_place.eq(places[4]),
            self.idle.eq(~Cat(*hidden[1:], *errors[1:]).any()),
        ]
        if curve:
            m.submodules.curve = table = Curve(c)
            m.d.comb += table.z.eq(word)
            with m.If(hidden[-1]):
                m.d.comb += [self.result.eq(table.value), self.result_place.eq(places[-1])]


class Curve(Part):
    """The logistic function, 6 cycles later. Equal to ``sigmoid.sigmoid`` for every input."""

    def ports(self, c: Config) -> Ports:
        return {
            "z": In(signed(c.width)),  # the argument
            "value": Out(signed(c.width)),  # its function, with the same fraction bits
        }

    def build(self, m: Module) -> None:
        fraction, steps = self.config.fraction, sigmoid.STEP_BITS
        segment_bits = ceil_log2(sigmoid.SEGMENTS)
        size = magnitude(self.z)
        drop = fraction - 5 - steps
        place = size >> drop if drop > 0 else size << -drop
        segment = Signal(segment_bits)
        within = Signal(steps)
        beyond = place[steps + segment_bits :].any()
        m.d.sync += [
            segment.eq(Mux(beyond, sigmoid.SEGMENTS - 1, place[steps:])),
            within.eq(Mux(beyond, (1 << steps) - 1, place[:steps])),
        ]
        negative = delayed(m, self.z[-1], 5, "negative")[-1]
        rows = [
            int(start) | int(rise) << sigmoid.VALUE_BITS
            for start, rise in zip(sigmoid.START, sigmoid.RISE, strict=True)
        ]
        width = sigmoid.VALUE_BITS + sigmoid.SLOPE_BITS
        m.submodules.table = memory = Memory(shape=width, depth=sigmoid.SEGMENTS, init=rows)
        port = memory.read_port()
        row = Signal(width)
        product = Signal(sigmoid.SLOPE_BITS + steps)
        starts = delayed(m, row[: sigmoid.VALUE_BITS], 1, "start")
        withins = delayed(m, within, 2, "within")
        high = Signal(sigmoid.VALUE_BITS + steps)
        m.d.comb += port.addr.eq(segment)
        m.d.sync += [
            row.eq(port.data),
            product.eq(row[sigmoid.VALUE_BITS :] * withins[-1]),
            high.eq((starts[-1] << steps) + product),
        ]
        shift = sigmoid.VALUE_BITS + steps - fraction
        value = (high + (1 << shift - 1)) >> shift
        m.d.sync += self.value.eq(Mux(negative, (1 << fraction) - value, value))
