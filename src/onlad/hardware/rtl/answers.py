"""The word that answers: what it is, and when it is taken over."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Const, Module, Mux, Signal, signed
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from onlad.hardware.config import Config
from onlad.hardware.packets import REFUSED, Mode, Reason
from onlad.hardware.rtl.interfaces import decoded


class Take(enum.Enum):
    """What the next answer is made of."""

    NOTHING = 0
    REFUSAL = 1
    READ = 2  # the word that was asked for
    SUCCESS = 3
    SCORE = 4


class Answers(wiring.Component):
    """Keep the answer until the host has taken it.

    Members
    -------
    take : In(Take)
    decoded : In
        The word that is answered.
    refusal, learned, score : In
        Bits of `Reason`; whether the step was learned; the mean square.
    register, status, x, b, matrix : In
        Words that the host may read.
    answer : Out(32)
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        word = signed(config.width)
        super().__init__(
            {
                "take": In(Take),
                "decoded": In(decoded(config)),
                "refusal": In(len(Reason)),
                "learned": In(1),
                "score": In(31),
                "register": In(signed(32)),
                "status": In(32),
                "x": In(word),
                "b": In(word),
                "matrix": In(word),
                "answer": Out(32),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
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
        return m
