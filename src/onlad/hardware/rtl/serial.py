"""Scalars, one bit a cycle: product, square root, quotient and shift in one small machine."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

WIDE = 56  # bits of a multiplicand, and of what is shifted
SHORT = 42  # bits of a multiplier
DIVISOR = 44
QUOTIENT = 52  # bits of 2^80 / divisor, where the divisor is at least 2^30


class Do(enum.Enum, shape=unsigned(2)):  # type: ignore[call-arg]
    """What `Serial` does."""

    MULTIPLY = 0  # product = a b
    ROOT = 1  # root = floor(sqrt(a b)) after MULTIPLY
    DIVIDE = 2  # quotient = floor(2^80 / b)
    SHIFT = 3  # shifted = a 2^amount, its floor, saturated to WIDE bits


class Serial(wiring.Component):
    """One operation at a time.

    Members
    -------
    start : In(1)
    do : In(Do)
    a, b, amount : In
        Read when `start` is high.
    done : Out(1)
        High for one cycle; results stay until the next start.
    product, root, quotient, shifted : Out
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "do": In(Do),
                "a": In(WIDE),
                "b": In(DIVISOR),
                "amount": In(9),
                "done": Out(1),
                "product": Out(WIDE + SHORT),
                "root": Out(SHORT),
                "quotient": Out(QUOTIENT),
                "shifted": Out(WIDE),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        high, low = Signal(WIDE + 1), Signal(SHORT)
        factor = Signal(WIDE)
        rest = Signal(DIVISOR + 1)
        count, doing, busy = Signal(range(64)), Signal(Do), Signal()
        moving, more = Signal(WIDE), Signal(9)
        amount = self.amount.as_signed()
        m.d.comb += [
            self.product.eq(Cat(low, high)),
            self.shifted.eq(moving),
        ]
        m.d.sync += self.done.eq(0)
        with m.If(self.start):
            m.d.sync += [busy.eq(1), doing.eq(self.do)]
            with m.Switch(self.do):
                with m.Case(Do.MULTIPLY):
                    m.d.sync += [high.eq(0), low.eq(self.b), factor.eq(self.a), count.eq(SHORT - 1)]
                with m.Case(Do.ROOT):
                    m.d.sync += [rest.eq(0), self.root.eq(0), count.eq(SHORT - 1)]
                with m.Case(Do.DIVIDE):
                    # The first 28 zeros of 2^80 / b are known.
                    m.d.sync += [rest.eq(1 << 28), self.quotient.eq(0), factor.eq(self.b),
                                 count.eq(QUOTIENT - 1)]  # fmt: skip
                with m.Case(Do.SHIFT):
                    m.d.sync += [moving.eq(self.a), more.eq(amount)]
        with m.Elif(busy):
            m.d.sync += count.eq(count - 1)
            ended: Any = count == 0
            with m.Switch(doing):
                with m.Case(Do.MULTIPLY):
                    total = high + Mux(low[0], factor, 0)
                    m.d.sync += Cat(low, high).eq(Cat(low, total)[1:])
                with m.Case(Do.ROOT):
                    self._root_bit(m, high, low, rest)
                with m.Case(Do.DIVIDE):
                    twice = rest << 1
                    fits = twice >= factor[:DIVISOR]
                    m.d.sync += [
                        rest.eq(Mux(fits, twice - factor[:DIVISOR], twice)),
                        self.quotient.eq(Cat(fits, self.quotient)),
                    ]
                with m.Case(Do.SHIFT):
                    self._shift(m, moving, more)
            with m.If(Mux(doing == Do.SHIFT, more == 0, ended)):
                m.d.sync += [busy.eq(0), self.done.eq(1)]
        return m

    def _root_bit(self, m: Module, high: Any, low: Any, rest: Any) -> None:
        """Take two bits of the product, from the highest of 2 SHORT, and find one of the root."""
        radicand = Cat(low, high)
        tried = Cat(Const(1, 2), self.root)
        now = Cat(radicand[2 * SHORT - 2 : 2 * SHORT], rest)
        fits = now >= tried
        m.d.sync += [
            rest.eq(Mux(fits, now - tried, now)),
            self.root.eq(Cat(fits, self.root)),
            radicand.eq(radicand << 2),
        ]

    def _shift(self, m: Module, moving: Any, more: Any) -> None:
        """Move by 8 or by 1; what leaves to the left saturates."""
        left = more.as_signed()
        for step in (1, 8):
            with m.If(left <= -step):
                m.d.sync += [moving.eq(moving >> step), more.eq(left + step)]
        for step in (1, 8):
            with m.If(left >= step):
                wide = moving[WIDE - step :].any()
                m.d.sync += [moving.eq(Mux(wide, (1 << WIDE) - 1, moving << step)),
                             more.eq(left - step)]  # fmt: skip
