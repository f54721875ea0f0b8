"""A lane: one multiplier, one accumulator, one way back to the memories."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib.wiring import In, Out

from onlad.hardware.config import Config
from onlad.hardware.fixed import COARSE
from onlad.hardware.rtl.interfaces import Part, Ports

SPLIT = 17  # unsigned bits that an 18-bit signed multiplier takes


class Multiplier(Part):
    """``product = a * b`` three cycles later, in partial products that fit one multiplier each."""

    def ports(self, c: Config) -> Ports:
        return {
            "a": In(signed(c.width)),  # the factors
            "b": In(signed(c.scalar_width)),
            "product": Out(signed(c.width + c.scalar_width)),
        }

    def build(self, m: Module) -> None:
        whole = self.config.width <= 25  # the wide side of a DSP takes it all
        sums = [
            (self._times_b(m, part, f"part{k}"), place)
            for k, (part, place) in enumerate(self._parts(self.a, whole))
        ]
        total: Any = Const(0)
        for part, place in sums:
            total = total + (part << place)
        m.d.sync += self.product.eq(total)

    def _parts(self, value: Any, whole: bool) -> list[tuple[Any, int]]:
        if whole:
            return [(value, 0)]
        low = Cat(value[:SPLIT], Const(0, 1)).as_signed()
        return [(low, 0), (value[SPLIT:].as_signed(), SPLIT)]

    def _times_b(self, m: Module, part: Any, name: str) -> Any:
        """Return part * b after two cycles: one for the products, one for their sum.

        The upper product takes what the lower one has above SPLIT: a DSP adds it on its way out.
        """
        low, high = [*self._parts(self.b, len(self.b) <= SPLIT + 1), (None, 0)][:2]
        under = Signal(signed(len(part) + len(low[0])), name=f"{name}_under")
        m.d.sync += under.eq(part * low[0])
        if high[0] is None:
            later = Signal.like(under, name=f"{name}_later")
            m.d.sync += later.eq(under)
            return later
        over = Signal(signed(len(part) + len(high[0])), name=f"{name}_over")
        total = Signal(signed(len(over) + 1), name=f"{name}_total")
        rest = Signal(SPLIT, name=f"{name}_rest")
        m.d.sync += [
            over.eq(part * high[0]),
            total.eq(over + (under >> SPLIT)),
            rest.eq(under[:SPLIT]),
        ]
        return Cat(rest, total).as_signed()


class Lane(Part):
    """Multiply, then sum or add to a stored word.

    Products come 3 cycles after the factors, sums 4, results 5.
    """

    def ports(self, c: Config) -> Ports:
        return {
            "a": In(signed(c.width)),  # the factors
            "b": In(signed(c.scalar_width)),
            "step": In(1),  # a product is there: sum it; without one the sum is zero then
            "clear": In(1),  # it is the first of a sum
            "replace": In(1),  # it is no sum: add the product to `base` instead
            "base": In(signed(c.width + BASE)),  # a stored word at its place in the sum: `placed`
            # A cycle after `replace`: the product had fewer fraction bits; the result is a scalar.
            "coarse": In(1),
            "gain": In(1),
            "host": In(signed(c.width)),  # the result, if not zero: never where a sum is
            "product": Out(signed(c.width + c.scalar_width)),  # for the sum across the lanes
            "total": Out(signed(c.accumulator_width)),  # the sum in this lane
            # `total`, rounded by the half bit in it and saturated: to a word, or to a scalar.
            "result": Out(signed(c.scalar_width)),
            "cut": Out(1),  # it was out of range
        }

    def build(self, m: Module) -> None:
        W, B, shift = self.config.width, self.config.scalar_width, self.config.write_shift
        m.submodules.multiplier = multiplier = Multiplier(self.config)
        m.d.comb += [
            multiplier.a.eq(self.a),
            multiplier.b.eq(self.b),
            self.product.eq(multiplier.product),
        ]
        stored = Signal(signed(len(self.total)))
        m.d.comb += stored.eq(Cat(Const(0, shift - COARSE - 1), self.base).as_signed())
        before = Mux(self.replace, stored, Mux(self.clear, 0, self.total))
        m.d.sync += self.total.eq(0)  # by the registers' reset: a host's word needs no multiplexer
        with m.If(self.step):
            m.d.sync += self.total.eq(before + self.product)

        total, sign = self.total, self.total[-1]
        wide = Mux(
            self.gain,
            _differ(total[shift + B - 1 :]),
            Mux(
                self.coarse,
                _differ(total[shift - COARSE + W - 1 :]),
                _differ(total[shift + W - 1 :]),
            ),
        )
        low = Mux(self.coarse, total[shift - COARSE :][: W - 1], total[shift:][: W - 1])
        high = Mux(self.gain, total[shift + W - 1 :][: B - W], sign.replicate(B - W))
        word = Mux(wide, ~sign.replicate(B - 1), Cat(low, high)) | self.host[: W - 1]
        m.d.sync += [
            self.result.eq(Cat(word[: B - 1], sign | self.host[-1])),
            self.cut.eq(wide),
        ]


def placed(word: Any, renormal: int = 0, coarse: bool = False) -> Any:
    """Return a `base`: a word, doubled or halved, at its place above half a bit."""
    if coarse:
        return Cat(Const(1, 1), word)
    if renormal < 0:
        return Cat(Const(1 << COARSE, COARSE + 1), word[1:])
    return Cat(Const(1 << COARSE, COARSE + 1 + renormal), word)


BASE = COARSE + 2  # bits of `base` besides the word's


def _differ(bits: Any) -> Any:
    return bits.any() & ~bits.all()


def saturate(value: Any, target: Any, cut: Any) -> list[Any]:
    """Return the assignments of `fixed.saturate`, and of whether it changed anything."""
    value = value.as_signed()
    wide = _differ(value[len(target) - 1 :])
    top = (1 << len(target) - 1) - 1
    limit = Mux(value[-1], Const(-top - 1, signed(len(target))), top)
    return [target.eq(Mux(wide, limit, value)), cut.eq(wide)]
