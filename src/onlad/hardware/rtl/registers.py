"""What a host can ask about: the registers of update_ff, why it is refused, and the counts."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib.wiring import In, Out

from onlad.hardware.config import Config
from onlad.hardware.fixed import EXPONENTS, MANTISSA_BITS
from onlad.hardware.packets import Ff, Mode, Reason, Status
from onlad.hardware.rtl.interfaces import Part, Ports, choose, decoded, is_any

DECODE_CYCLES = 3  # from the taking of a word to the first cycle of its work
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
        # What each holds, and what it may be set to.
        factor = (word.value > 0) & (word.value <= 1 << self.config.ff_fraction)
        exponent = (word.value >= EXPONENTS[0]) & (word.value <= EXPONENTS[-1])
        table = {
            Ff.FACTOR: (self.factor, factor),
            Ff.LIMIT: (self.limit, word.value >= 0),
            Ff.RIDGE: (self.ridge, (word.value >= 0) & fits),
            Ff.MANTISSA: (self.mantissa, word.value >= 1 << MANTISSA_BITS - 2),
            Ff.EXPONENT: (self.exponent, exponent),
        }
        writes = Signal()
        good = Signal()
        m.d.comb += writes.eq(
            self.decoded.present & ~word.read & (word.mode == Mode.FF) & self.decoded.inside
        )
        checks = {int(register): check for register, (_, check) in table.items()}
        choose(m, "comb", good, word.index[:3], checks)
        for register in (Ff.FACTOR, Ff.LIMIT, Ff.RIDGE):
            with m.If(writes & good & (word.index[:3] == int(register))):
                m.d.sync += table[register][0].eq(word.value)
        sets = writes & good
        m.d.comb += [
            self.load_mantissa.eq(sets & (word.index[:3] == int(Ff.MANTISSA))),
            self.load_exponent.eq(sets & (word.index[:3] == int(Ff.EXPONENT))),
        ]
        with m.Switch(word.index[:3]):
            for register, (value, _) in table.items():
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


class StatusWords(Part):
    """Count, for a host that asks."""

    def ports(self, c: Config) -> Ports:
        return {
            "idle": In(1),  # no word is worked on
            "begun": In(1),  # a PREDICT or TRAIN starts
            "ends": In(1),  # it is answered
            "trains": In(1),  # a step starts
            "trained": In(1),  # it ends
            "learned": In(1),  # it was learned
            "paused": In(1),  # from now on nothing is forgotten
            "cut": In(1),  # a word was out of range
            "hidden_cut": In(1),  # it was one of the hidden layer
            "hidden_was_cut": Out(1),  # so it was in this step
            "reasons": In(len(Reason)),
            "index": In(3),  # of the word of `packets.Status` that is asked for
            "value": Out(32),
        }

    def build(self, m: Module) -> None:
        timing = Signal()
        cycles = Signal(24)
        with m.If(self.begun):
            m.d.sync += [timing.eq(1), cycles.eq(DECODE_CYCLES)]
        with m.Else():
            with m.If(self.ends):
                m.d.sync += timing.eq(0)
            with m.If(timing):
                m.d.sync += cycles.eq(cycles + 1)

        paused = Signal()  # while this step is under way
        saturated = Signal()
        with m.If(self.idle):
            m.d.sync += [saturated.eq(0), self.hidden_was_cut.eq(0), paused.eq(self.paused)]
        with m.Else():
            with m.If(self.cut):
                m.d.sync += saturated.eq(1)
            with m.If(self.hidden_cut):
                m.d.sync += self.hidden_was_cut.eq(1)

        words = {int(Status.REASONS): self.reasons, int(Status.CYCLES): cycles}
        for which, happens in {
            Status.TRAINED: self.trains,
            Status.SINGULAR: self.trained & ~self.learned,
            Status.PAUSED: self.trained & self.learned & paused,
            Status.SATURATED: self.trained & saturated,
        }.items():
            words[int(which)] = count = Signal(16, name=which.name.lower())
            with m.If(happens):
                m.d.sync += count.eq(count + 1)
        choose(m, "comb", self.value, self.index, words)
