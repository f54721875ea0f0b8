"""Scalars, one bit per cycle: product, square root and quotient in one small machine."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import enum
from amaranth.lib.wiring import In, Out

from onlad.hardware.config import Config
from onlad.hardware.rtl.interfaces import Part, Ports

WIDE = 56  # bits of a multiplicand
SHORT = 42  # bits of a multiplier
DIVISOR = 44
QUOTIENT = 52  # bits of 2^80 / divisor, where the divisor is at least 2^30


class Do(enum.Enum, shape=unsigned(2)):  # type: ignore[call-arg]
    """What `Serial` does."""

    MULTIPLY = 0  # product = a b
    ROOT = 1  # found = floor(sqrt(product))
    DIVIDE = 2  # found = floor(2^80 / b)


class Serial(Part):
    """One operation at a time."""

    def ports(self, c: Config) -> Ports:
        return {
            "start": In(1),  # for a cycle
            "do": In(Do),
            "a": In(WIDE),  # the arguments, read when `start` is high
            "b": In(DIVISOR),
            "done": Out(1),  # high for one cycle; results stay until the next start
            "product": Out(WIDE + SHORT),
            "found": Out(QUOTIENT),  # the root or the quotient
        }

    def build(self, m: Module) -> None:
        factor = Signal(WIDE)
        rest = Signal(DIVISOR + 1)
        count = Signal(range(64))
        doing = Signal(Do)
        busy = Signal()
        low, high = self.product[:SHORT], self.product[SHORT:]
        m.d.sync += self.done.eq(0)
        with m.If(self.start):
            m.d.sync += [busy.eq(1), doing.eq(self.do), self.found.eq(0), count.eq(SHORT - 1)]
            with m.If(self.do == Do.MULTIPLY):
                m.d.sync += [self.product.eq(self.b[:SHORT]), factor.eq(self.a)]
            with m.If(self.do == Do.DIVIDE):
                m.d.sync += [factor.eq(self.b), count.eq(QUOTIENT - 1)]
            # Of 2^80 / b the first 28 zeros are known.
            m.d.sync += rest.eq(Mux(self.do == Do.DIVIDE, 1 << 28, 0))
        with m.Elif(busy):
            m.d.sync += count.eq(count - 1)
            with m.If(count == 0):
                m.d.sync += [busy.eq(0), self.done.eq(1)]
            with m.If(doing == Do.MULTIPLY):
                total = high + Mux(low[0], factor, 0)
                m.d.sync += self.product.eq(Cat(low, total)[1:])
            with m.Else():
                # A root takes two bits of the product, a quotient one zero; each finds one bit.
                rooting = doing == Do.ROOT
                now = Mux(rooting, Cat(self.product[2 * SHORT - 2 :][:2], rest), rest << 1)
                tried = Mux(rooting, Cat(Const(1, 2), self.found[:SHORT]), factor[:DIVISOR])
                left = Signal(DIVISOR + 3)
                m.d.comb += left.eq(now - tried)
                fits = ~left[-1]
                m.d.sync += [
                    rest.eq(Mux(fits, left, now)),
                    self.found.eq(Cat(fits, self.found)),
                    self.product.eq(self.product << 2),
                ]
