"""A lane: one multiplier, one accumulator, one way back to the memories."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from onlad.hardware.config import Config
from onlad.hardware.model import COARSE

SPLIT = 17  # unsigned bits that an 18-bit signed multiplier takes


class Multiplier(wiring.Component):
    """``product = a * b`` three cycles later, in partial products that fit one multiplier each.

    Members
    -------
    a : In(signed(width))
    b : In(signed(scalar_width))
    product : Out(signed(width + scalar_width))
    """

    def __init__(self, config: Config) -> None:
        self.whole = config.width <= 25  # the wide side of a DSP takes it all
        super().__init__(
            {
                "a": In(signed(config.width)),
                "b": In(signed(config.scalar_width)),
                "product": Out(signed(config.width + config.scalar_width)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        sums = [
            (self._times_b(m, part, f"part{k}"), place)
            for k, (part, place) in enumerate(self._parts(self.a, self.whole))
        ]
        total: Any = Const(0)
        for part, place in sums:
            total = total + (part << place)
        m.d.sync += self.product.eq(total)
        return m

    def _parts(self, value: Any, whole: bool) -> list[tuple[Any, int]]:
        if whole:
            return [(value, 0)]
        low = Cat(value[:SPLIT], Const(0, 1)).as_signed()
        return [(low, 0), (value[SPLIT:].as_signed(), SPLIT)]

    def _times_b(self, m: Module, part: Any, name: str) -> Any:
        """Return part * b after two cycles: one for the products, one for their sum."""
        total: Any = Const(0)
        for k, (half, place) in enumerate(self._parts(self.b, len(self.b) <= SPLIT + 1)):
            product = Signal(signed(len(part) + len(half)), name=f"{name}_by{k}")
            m.d.sync += product.eq(part * half)
            total = total + (product << place)
        result = Signal(signed(len(part) + len(self.b)), name=f"{name}_sum")
        m.d.sync += result.eq(total)
        return result


class Lane(wiring.Component):
    """Multiply, then sum or add to a stored word.

    Products come 3 cycles after the factors, sums 4, words 5.

    Members
    -------
    a, b
        The factors.
    step : In(1)
        A product is there: sum it.
    clear : In(1)
        It is the first of a sum.
    replace : In(1)
        It is no sum: add the product to `base` instead.
    coarse, coarse_word : In(1)
        The product has fewer fraction bits: for `base`, and a cycle later for `word`.
    base : In(signed(width + 1))
        A stored word, doubled or halved already.
    product, total
        For the sum across the lanes, and the sum in this one.
    word : Out(signed(width))
        `total` as a word: rounded by half a bit that was added before, and saturated.
    gain : Out(signed(scalar_width))
        The same as a scalar.
    word_cut : Out(1)
        `word` was out of range.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        W, B, A = config.width, config.scalar_width, config.accumulator_width
        super().__init__(
            {
                "a": In(signed(W)),
                "b": In(signed(B)),
                "step": In(1),
                "clear": In(1),
                "replace": In(1),
                "coarse": In(1),
                "coarse_word": In(1),
                "base": In(signed(W + 1)),
                "product": Out(signed(W + B)),
                "total": Out(signed(A)),
                "word": Out(signed(W)),
                "gain": Out(signed(B)),
                "word_cut": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        shift, width = self.config.write_shift, self.config.accumulator_width
        m.submodules.multiplier = multiplier = Multiplier(self.config)
        m.d.comb += [
            multiplier.a.eq(self.a),
            multiplier.b.eq(self.b),
            self.product.eq(multiplier.product),
        ]
        stored = Signal(signed(width))

        def placed(shift: int) -> Any:
            return Cat(Const(1 << shift - 1, shift), self.base).as_signed()

        m.d.comb += stored.eq(Mux(self.coarse, placed(shift - COARSE), placed(shift)))
        before = Mux(self.replace, stored, Mux(self.clear, 0, self.total))
        with m.If(self.step):
            m.d.sync += self.total.eq(before + self.product)
        total = self.total
        rounded = Mux(self.coarse_word, total >> shift - COARSE, total >> shift)
        m.d.sync += [
            saturate(rounded, self.word, self.word_cut),
            saturate(self.total[shift:], self.gain, None),
        ]
        return m


def saturate(value: Any, target: Any, cut: Any) -> list[Any]:
    """Return the assignments of `fixed.saturate`, and of whether it changed anything."""
    value = value.as_signed()
    head = value[len(target) - 1 :]
    wide = (head != 0) & ~head.all()
    top = (1 << len(target) - 1) - 1
    found = [target.eq(Mux(wide, Mux(value[-1], Const(-top - 1, signed(len(target))), top), value))]
    if cut is not None:
        found.append(cut.eq(wide))
    return found
