"""What a decoded word makes the core do, from its start to its answer, and what that is."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal, signed
from amaranth.lib import enum
from amaranth.lib.wiring import In, Out

from onlad.hardware.config import Config
from onlad.hardware.packets import REFUSED, Mode, Reason
from onlad.hardware.rtl.interfaces import Part, Ports, choose, decoded, host_write, is_any
from onlad.hardware.rtl.registers import MEMORIES, flag

READ_CYCLES = 5  # from the issue to the first factor of the lane that is picked


class Take(enum.Enum):
    """What the next answer is made of."""

    NOTHING = 0
    REFUSAL = 1
    READ = 2  # the word that was asked for
    SUCCESS = 3
    SCORE = 4


class Commands(Part):
    """Write, read, train or predict, as the word says; then let the answer be taken."""

    def ports(self, c: Config) -> Ports:
        return {
            "decoded": In(decoded(c)),
            "host": Out(host_write(c)),  # words that write the memories
            "reasons": In(len(Reason)),  # why it must be refused
            "refusal": Out(len(Reason)),  # that and a wrong index
            "told": Out(1),  # it is refused in this cycle
            "idle": Out(1),  # no word is worked on
            "begun": Out(1),  # a PREDICT or TRAIN starts
            "fetch": Out(1),  # read the memory that the word names
            "train": Out(1),  # start Train Module
            "trained": In(1),  # the step has ended
            "learned": In(1),  # it was learned
            "hidden": Out(1),  # start Predict Module: the hidden layer
            "errors": Out(1),  # or the errors
            "teach": Out(1),  # and beta is taught by them
            "predicted": In(1),  # Predict Module has ended
            "mean": Out(1),  # start `Scalars`
            "rested": In(1),  # `Scalars` is idle
            "meant": In(1),  # the mean is there
            "take": Out(Take),  # what the answer is made of
            "answering": Out(1),  # there is an answer
            "answered": In(1),  # it is taken
        }

    def build(self, m: Module) -> None:
        word, present = self.decoded.word, self.decoded.present
        memory = is_any(word.mode, MEMORIES)
        good = self.decoded.inside & self.decoded.fits
        wrong = word.index > Mux(word.mode == Mode.TRAIN, 1, 0)
        m.d.comb += [
            self.host.mode.eq(word.mode),
            self.host.write.eq(present & ~word.read & memory & good),
            self.host.lane.eq(self.decoded.lane),
            self.host.word.eq(self.decoded.place),
            self.host.value.eq(word.value),
            self.refusal.eq(self.reasons | flag(wrong, Reason.BAD_INDEX)),
        ]
        wait = Signal(range(READ_CYCLES))
        with m.FSM(name="commands"):
            with m.State("IDLE"):
                m.d.comb += self.idle.eq(1)
                with m.If(present & word.read):
                    m.d.comb += self.fetch.eq(self.decoded.inside)
                    m.d.sync += wait.eq(READ_CYCLES - 1)
                    m.next = "READ"
                with m.Elif(present & ~memory & (word.mode != Mode.FF)):
                    m.d.comb += self.begun.eq(1)
                    with m.If(self.refusal != 0):
                        m.d.comb += [self.told.eq(1), self.take.eq(Take.REFUSAL)]
                        m.next = "ANSWER"
                    with m.Elif(word.mode == Mode.TRAIN):
                        m.d.comb += self.train.eq(1)
                        m.next = "TRAIN"
                    with m.Else():
                        m.d.comb += self.hidden.eq(1)
                        m.next = "HIDDEN"
            with m.State("READ"):
                m.d.comb += self.take.eq(Take.READ)
                m.d.sync += wait.eq(wait - 1)
                with m.If(wait == 0):
                    m.next = "ANSWER"
            with m.State("TRAIN"):
                m.d.comb += self.teach.eq(1)
                with m.If(self.trained):
                    m.d.comb += self.take.eq(Take.SUCCESS)
                    m.next = "ANSWER"
                    with m.If(word.index[0] & self.learned):
                        m.next = "MEAN"
            with m.State("HIDDEN"), m.If(self.predicted):
                m.next = "ERRORS_START"
            with m.State("ERRORS_START"):
                m.d.comb += self.errors.eq(1)
                m.next = "ERRORS"
            with m.State("ERRORS"), m.If(self.predicted):
                m.next = "MEAN"
            with m.State("MEAN"), m.If(self.rested):
                m.d.comb += self.mean.eq(1)
                m.next = "MEAN_END"
            with m.State("MEAN_END"), m.If(self.meant):
                m.d.comb += self.take.eq(Take.SCORE)
                m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += self.answering.eq(1)
                with m.If(self.answered):
                    m.next = "IDLE"


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
        choose(m, "comb", describe, word.index[:3], dict(enumerate(self.config.describe())))
        read = Signal(32)
        words = {
            Mode.PREDICT: describe,
            Mode.TRAIN: self.status,
            Mode.FF: self.register,
            Mode.X: self.x,
            Mode.B: self.b,
        }
        choose(m, "comb", read, word.mode, words, self.matrix)
        # TRAIN with index 1 asks for a score; a step that was not learned has none.
        failed = Mux(word.index[0], Const(REFUSED | int(Reason.SINGULAR), 32), 0)
        answers = {
            Take.REFUSAL: Const(REFUSED, 32) | self.refusal,
            Take.READ: Mux(self.decoded.inside, read, 0),
            Take.SUCCESS: Mux(self.learned, 1, failed),
            Take.SCORE: self.score,
        }
        choose(m, "sync", self.answer, self.take, answers)
