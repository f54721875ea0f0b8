"""The word that answers: what it is, and when it is taken over."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal, signed
from amaranth.lib import enum
from amaranth.lib.wiring import In, Out

from onlad.hardware.config import Config
from onlad.hardware.packets import REFUSED, Mode, Reason
from onlad.hardware.rtl.interfaces import Part, Ports, decoded


class Take(enum.Enum):
    """What the next answer is made of."""

    NOTHING = 0
    REFUSAL = 1
    READ = 2  # the word that was asked for
    SUCCESS = 3
    SCORE = 4


class Answers(Part):
    """Keep the answer until the host has taken it."""

    def ports(self, c: Config) -> Ports:
        return {
            "take": In(Take),  # what the next answer is made of
            "decoded": In(decoded(c)),  # the word that is answered
            "refusal": In(len(Reason)),  # bits of `Reason`
            "learned": In(1),  # whether the step was learned
            "score": In(31),  # the mean square
            # Words that the host may read.
            "register": In(signed(32)),
            "status": In(32),
            **dict.fromkeys(("x", "b", "matrix"), In(signed(c.width))),
            "answer": Out(32),  # what the host gets
        }

    def build(self, m: Module) -> None:
        word = self.decoded.word
        describe = Signal(32)
        with m.Switch(word.index[:3]):
            for k, constant in enumerate(self.config.describe()):
                with m.Case(k):
                    m.d.comb += describe.eq(constant)
        read = Signal(32)
        with m.Switch(word.mode):
            for mode, value in {
                Mode.PREDICT: describe,
                Mode.TRAIN: self.status,
                Mode.FF: self.register,
                Mode.X: self.x,
                Mode.B: self.b,
            }.items():
                with m.Case(mode):
                    m.d.comb += read.eq(value)
            with m.Default():
                m.d.comb += read.eq(self.matrix)
        # TRAIN with index 1 asks for a score; a step that was not learned has none.
        failed = Mux(word.index[0], Const(REFUSED | int(Reason.SINGULAR), 32), 0)
        with m.Switch(self.take):
            with m.Case(Take.REFUSAL):
                m.d.sync += self.answer.eq(Const(REFUSED, 32) | self.refusal)
            with m.Case(Take.READ):
                m.d.sync += self.answer.eq(Mux(self.decoded.inside, read, 0))
            with m.Case(Take.SUCCESS):
                m.d.sync += self.answer.eq(Mux(self.learned, 1, failed))
            with m.Case(Take.SCORE):
                m.d.sync += self.answer.eq(self.score)
