"""The registers that update_ff writes, and the reasons of the refusal to come."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib.wiring import In, Out

from onlad.hardware.config import Config
from onlad.hardware.fixed import EXPONENTS, MANTISSA_BITS
from onlad.hardware.packets import Ff, Mode, Reason
from onlad.hardware.rtl.interfaces import Part, Ports, decoded
from onlad.hardware.rtl.operations import is_any

MEMORIES = (Mode.X, Mode.ALPHA, Mode.BETA, Mode.P, Mode.B)


def flag(condition: Any, reason: Reason) -> Any:
    """Return the bit of `reason`, set where the condition holds."""
    return Mux(condition, int(reason), 0)


class Registers(Part):
    """Check each word; keep the factor, the limit, the ridge, and what was wrong."""

    def ports(self, c: Config) -> Ports:
        return {
            "decoded": In(decoded(c)),
            "factor": Out(31, init=1 << c.ff_fraction),  # a with 30 fraction bits
            "limit": Out(31),  # of the guard
            "ridge": Out(c.width - 1),  # what the guard puts back
            "mantissa": In(MANTISSA_BITS),  # m and z, which Train Module keeps
            "exponent": In(signed(6)),
            "load_mantissa": Out(1),  # the word sets m
            "load_exponent": Out(1),  # or z
            "value": Out(signed(32)),  # the register that the word names
            # Why the next PREDICT or TRAIN is refused: bits of `Reason`.
            "reasons": Out(len(Reason), init=int(Reason.NOT_READY)),
            "told": In(1),  # they are answered in this cycle
        }

    def build(self, m: Module) -> None:
        word, fits = self.decoded.word, self.decoded.fits
        checks = {
            Ff.FACTOR: (word.value > 0) & (word.value <= 1 << self.config.ff_fraction),
            Ff.LIMIT: word.value >= 0,
            Ff.RIDGE: (word.value >= 0) & fits,
            Ff.MANTISSA: word.value >= 1 << MANTISSA_BITS - 2,
            Ff.EXPONENT: (word.value >= EXPONENTS[0]) & (word.value <= EXPONENTS[-1]),
        }
        writes = Signal()
        good = Signal()
        m.d.comb += writes.eq(
            self.decoded.present & ~word.read & (word.mode == Mode.FF) & self.decoded.inside
        )
        with m.Switch(word.index[:3]):
            for register, check in checks.items():
                with m.Case(int(register)):
                    m.d.comb += good.eq(check)
        for register, kept in (
            (Ff.FACTOR, self.factor),
            (Ff.LIMIT, self.limit),
            (Ff.RIDGE, self.ridge),
        ):
            with m.If(writes & good & (word.index[:3] == int(register))):
                m.d.sync += kept.eq(word.value)
        sets = writes & good
        m.d.comb += [
            self.load_mantissa.eq(sets & (word.index[:3] == int(Ff.MANTISSA))),
            self.load_exponent.eq(sets & (word.index[:3] == int(Ff.EXPONENT))),
        ]
        with m.Switch(word.index[:3]):
            for register, value in {
                Ff.FACTOR: self.factor,
                Ff.LIMIT: self.limit,
                Ff.RIDGE: self.ridge,
                Ff.MANTISSA: self.mantissa,
                Ff.EXPONENT: self.exponent,
            }.items():
                with m.Case(int(register)):
                    m.d.comb += self.value.eq(value)
        self._reasons(m, writes, good)

    def _reasons(self, m: Module, writes: Any, good: Any) -> None:
        word, inside = self.decoded.word, self.decoded.inside
        memory = is_any(word.mode, MEMORIES)
        indexed = self.decoded.present & (memory | (word.mode == Mode.FF) | word.read)
        new = (
            flag(indexed & ~inside, Reason.BAD_INDEX)
            | flag(writes & ~good, Reason.BAD_FACTOR)
            | flag(indexed & inside & ~word.read & memory & ~self.decoded.fits, Reason.BAD_VALUE)
        )
        ready = writes & good & (word.index[:3] == int(Ff.FACTOR))
        left = Mux(self.told, self.reasons & int(Reason.NOT_READY), self.reasons | new)
        m.d.sync += self.reasons.eq(left & ~flag(ready, Reason.NOT_READY))
