"""ONLAD Core: the four rooms of the paper around one row of lanes, between two streams."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from onlad.hardware.config import Config
from onlad.hardware.fixed import EXPONENTS, MANTISSA_BITS
from onlad.hardware.packets import Ff, Mode, Reason, Status
from onlad.hardware.rtl.arithmetic import Arithmetic
from onlad.hardware.rtl.banks import Banks
from onlad.hardware.rtl.buffers import InputBuffer, ParameterBuffer
from onlad.hardware.rtl.finish import Finish
from onlad.hardware.rtl.front import Front
from onlad.hardware.rtl.normalise import Normalise
from onlad.hardware.rtl.operations import Op, is_any, magnitude
from onlad.hardware.rtl.predict import PredictModule
from onlad.hardware.rtl.scalars import Scalars
from onlad.hardware.rtl.train import TrainModule
from onlad.hardware.rtl.walk import Walk

DECODE_CYCLES = 3  # from the taking of a word to the first cycle of its work
READ_CYCLES = 5  # from the issue to the first factor of the lane that is picked


class Top(wiring.Component):
    """The core. Equal to ``model.Model(config).accept`` for every sequence of words.

    Members
    -------
    s_axis_* : the stream in, 64 bits
    m_axis_* : the stream out, 32 bits; TLAST is that of the word that is answered
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "s_axis_tdata": In(64),
                "s_axis_tvalid": In(1),
                "s_axis_tready": Out(1),
                "s_axis_tlast": In(1),
                "m_axis_tdata": Out(32),
                "m_axis_tvalid": Out(1),
                "m_axis_tready": In(1),
                "m_axis_tlast": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        c = self.config
        m.submodules.front = self.front = Front(c)
        m.submodules.parameter_buffer = self.parameters = ParameterBuffer(c)
        m.submodules.input_buffer = self.inputs = InputBuffer(c)
        m.submodules.train_module = self.train = TrainModule(c)
        m.submodules.predict_module = self.predict = PredictModule(c)
        m.submodules.walk = self.walk = Walk(c)
        m.submodules.arithmetic = self.arithmetic = Arithmetic(c)
        m.submodules.normalise = self.normalise = Normalise(c)
        m.submodules.scalars = self.scalars = Scalars(c)
        place = data.StructLayout({"index": ceil_log2(max(c.beta_row, c.alpha_row) * c.lanes + 1)})
        m.submodules.finish = self.finish = Finish(c, place)
        self._passes(m)
        self._sums(m)
        self._steps(m)
        self._commands(m)
        return m

    def _passes(self, m: Module) -> None:
        """Bring requests to the walk, issues to the lanes, words to and from the memories."""
        walk, lanes, parameters = self.walk, self.arithmetic, self.parameters
        m.d.comb += walk.request.eq(self.predict.request)
        with m.If(self.train.request.valid):
            m.d.comb += walk.request.eq(self.train.request)
        settled = walk.idle & lanes.idle & self.finish.idle
        m.d.comb += [
            self.train.taken.eq(walk.taken & self.train.request.valid),
            self.predict.taken.eq(walk.taken & ~self.train.request.valid),
            self.train.settled.eq(settled),
            self.predict.settled.eq(settled),
            lanes.issue.eq(walk.issue),
            lanes.pick.eq(self.front.lane),
            parameters.address.eq(lanes.address),
            parameters.write_root.eq(lanes.write_root),
            parameters.write_beta.eq(lanes.write_beta),
            parameters.write_word.eq(lanes.write_word),
        ]
        for k in range(self.config.lanes):
            m.d.comb += [
                lanes.alpha[k].eq(parameters.alpha[k]),
                lanes.root[k].eq(parameters.root[k]),
                lanes.beta[k].eq(parameters.beta[k]),
                parameters.stored[k].eq(lanes.stored[k]),
            ]

    def _sums(self, m: Module) -> None:
        """Bring sums from the lanes to h, f, g and e."""
        c, lanes, finish, normalise = self.config, self.arithmetic, self.finish, self.normalise
        bits = ceil_log2(c.lanes)
        # Which sum leaves the lanes: they come in order, and a pass starts when all is quiet.
        index = Signal.like(finish.place.index)
        with m.If(lanes.chain_valid):
            m.d.sync += index.eq(index + 1)
        with m.Elif(self.walk.idle & lanes.idle):
            m.d.sync += index.eq(0)
        errors = lanes.chain_valid & (lanes.chain_op == Op.ERRORS)
        hidden = lanes.chain_valid & (lanes.chain_op == Op.HIDDEN)
        issue = self.walk.issue
        x_read = issue.valid & (issue.op == Op.HIDDEN)
        late, blank = Signal(), Signal()
        m.d.sync += [late.eq(errors), blank.eq(self.train.blank | (index >= c.n))]
        m.d.comb += [
            self.inputs.read.eq(x_read | errors),
            self.inputs.index.eq(Mux(errors, index, issue.scalar)),
            self.parameters.b_read.eq(hidden),
            self.parameters.b_index.eq(index),
            lanes.x.eq(self.inputs.word),
            finish.valid.eq(errors | (hidden & (index < c.hidden))),
            finish.op.eq(lanes.chain_op),
            finish.sum.eq(lanes.chain),
            finish.place.index.eq(index),
            finish.base.eq(Mux(late, Mux(blank, 0, self.inputs.word), self.parameters.b)),
        ]

        at = finish.result_place.index
        m.submodules.h = h = Banks(1, c.hidden, signed(c.width))
        m.d.comb += [
            h.read.eq(issue.valid & is_any(issue.op, (Op.FORWARD, Op.ERRORS))),
            h.read_address.eq(issue.scalar),
            h.write.eq(finish.h_valid | self.train.h_write),
            h.write_address.eq(Mux(self.train.h_write, self.train.h_index, at)),
            h.data[0].eq(Mux(self.train.h_write, self.train.h_value, finish.result)),
            lanes.h.eq(h.words[0]),
        ]
        # Sums to be normalised: S'h from the lanes, S f across them.
        forward = lanes.chain_valid & (lanes.chain_op == Op.FORWARD) & (index < c.hidden)
        gain = lanes.across_valid & (lanes.across_op == Op.GAIN)
        row = Signal(ceil_log2(c.hidden))
        with m.If(gain):
            m.d.sync += row.eq(row + 1)
        with m.Elif(normalise.clear):
            m.d.sync += row.eq(0)
        m.d.comb += [
            normalise.keep.eq(forward | gain),
            normalise.keep_index.eq(Mux(gain, row, index)),
            normalise.sum.eq(Mux(gain, lanes.across[c.sum_cut :].as_signed(), lanes.chain)),
            self.predict.block_done.eq(
                finish.e_valid & at[:bits].all() if bits else finish.e_valid
            ),
        ]
        slot = at[bits] if len(at) > bits else Const(0)
        lane = Mux(finish.e_valid, at, normalise.index)[:bits] if bits else Const(0, 1)
        vector = Mux(self.train.gain, c.alpha_row, 0) + (normalise.index >> bits)
        m.d.comb += [
            lanes.vector_lane.eq((finish.e_valid | normalise.valid) << lane),
            lanes.vector_address.eq(Mux(finish.e_valid, 2 * c.alpha_row + slot, vector)),
            lanes.vector_data.eq(Mux(finish.e_valid, finish.result, normalise.word)),
        ]

    def _steps(self, m: Module) -> None:
        """Connect Train Module with what it steers."""
        train, scalars, lanes = self.train, self.scalars, self.arithmetic
        across = lanes.across_op
        squares = lanes.across_valid & (across == Op.SQUARE)
        with m.If(squares):
            m.d.sync += scalars.squares.eq(lanes.across)
        seen = Signal()
        m.d.sync += seen.eq(squares)
        with m.If(lanes.across_valid & (across == Op.LOSS) & ~train.blank):
            m.d.sync += scalars.loss.eq(lanes.across)
        m.d.comb += [
            train.squares_valid.eq(seen),
            train.row_valid.eq(lanes.across_valid & (across == Op.ROW)),
            train.row.eq(lanes.across),
            train.predicted.eq(self.predict.done),
            train.over.eq(lanes.over),
            train.near.eq(lanes.near),
            train.scaled.eq(scalars.done),
            train.bounded.eq(scalars.idle),
            train.bound.eq(scalars.bound),
            train.new_mantissa.eq(scalars.new_mantissa),
            train.new_exponent.eq(scalars.new_exponent),
            train.normalised.eq(self.normalise.done),
            train.length.eq(self.normalise.length),
            self.normalise.clear.eq(train.clear),
            self.normalise.start.eq(train.normalise),
            self.normalise.gain.eq(train.gain),
            scalars.forget.eq(train.forget),
            scalars.held.eq(train.paused),
            scalars.scale.eq(train.scale),
            scalars.finish.eq(train.finish),
            scalars.limiting.eq(train.limiting),
            scalars.mantissa.eq(train.mantissa),
            scalars.exponent.eq(train.exponent),
            scalars.renormal.eq(train.renormal),
            scalars.forward_length.eq(train.forward_length),
            scalars.gain_length.eq(train.gain_length),
            lanes.root_scale.eq(scalars.root_scale),
            lanes.beta_scale.eq(scalars.beta_scale),
            lanes.renormal.eq(train.renormal),
            lanes.coarse.eq(scalars.coarse),
        ]

    def _commands(self, m: Module) -> None:
        """Do what words say, and answer."""
        c, front, train, predict = self.config, self.front, self.train, self.predict
        word, present = front.word, front.present
        mode = word.mode
        answer, last = Signal(32), Signal()
        reasons = Signal(5, init=int(Reason.NOT_READY))
        factor = Signal(31, init=1 << c.ff_fraction)
        limit, ridge = Signal(31), Signal(c.width - 1)
        status = {s: Signal(16, name=s.name.lower()) for s in Status if s is not Status.REASONS}
        status[Status.CYCLES] = clock = Signal(24)
        timing = Signal()
        m.d.comb += [
            front.data.eq(self.s_axis_tdata),
            front.valid.eq(self.s_axis_tvalid),
            self.s_axis_tready.eq(front.ready),
            front.answered.eq(self.m_axis_tvalid & self.m_axis_tready),
            self.m_axis_tdata.eq(answer),
            self.m_axis_tlast.eq(last),
            self.scalars.factor.eq(factor),
            self.scalars.limit.eq(limit),
            train.ridge.eq(ridge),
            train.limited.eq(limit[8:].any()),
            train.load_value.eq(word.value),
        ]
        with m.If(self.s_axis_tvalid & self.s_axis_tready):
            m.d.sync += last.eq(self.s_axis_tlast)
        with m.If(timing):
            m.d.sync += clock.eq(clock + 1)

        # Words that write.
        memory = is_any(mode, (Mode.X, Mode.ALPHA, Mode.BETA, Mode.P, Mode.B))
        writes = present & ~word.read
        good = front.inside & front.fits
        for buffer in (self.parameters, self.inputs):
            m.d.comb += [
                buffer.host_mode.eq(mode),
                buffer.host_write.eq(writes & memory & good),
                buffer.host_lane.eq(front.lane),
                buffer.host_word.eq(front.place),
                buffer.host_value.eq(word.value),
            ]
        matrix = writes & good & is_any(mode, (Mode.BETA, Mode.P))
        m.d.comb += self.arithmetic.host.eq(Mux(matrix, word.value, 0))
        size = magnitude(word.value)
        with m.If(writes & (mode == Mode.P) & good):
            m.d.comb += [
                train.near.eq(size[c.root_fraction - 2 :].any()),
                train.over.eq(size[c.root_fraction :].any()),
            ]
        new_reasons = Signal(5)
        with m.If(present & (memory | (mode == Mode.FF) | word.read)):
            with m.If(~front.inside):
                m.d.comb += new_reasons[0].eq(1)
            with m.Elif(~word.read & memory & ~front.fits):
                m.d.comb += new_reasons[2].eq(1)
        with m.If(writes & (mode == Mode.FF) & front.inside):
            value = word.value
            checks = {
                Ff.FACTOR: (value > 0) & (value <= 1 << c.ff_fraction),
                Ff.LIMIT: value >= 0,
                Ff.RIDGE: (value >= 0) & front.fits,
                Ff.MANTISSA: value >= 1 << MANTISSA_BITS - 2,
                Ff.EXPONENT: (value >= EXPONENTS[0]) & (value <= EXPONENTS[-1]),
            }
            with m.Switch(word.index[:3]):
                for register, check in checks.items():
                    with m.Case(int(register)):
                        m.d.comb += new_reasons[1].eq(~check)
                        with m.If(check):
                            if register is Ff.FACTOR:
                                m.d.sync += factor.eq(value)
                            elif register is Ff.LIMIT:
                                m.d.sync += limit.eq(value)
                            elif register is Ff.RIDGE:
                                m.d.sync += ridge.eq(value)
                            elif register is Ff.MANTISSA:
                                m.d.comb += train.load_mantissa.eq(1)
                            else:
                                m.d.comb += train.load_exponent.eq(1)
        sets_factor = writes & (mode == Mode.FF) & front.inside & (word.index[:3] == 0)
        ready_now = sets_factor & ~new_reasons[1]
        m.d.sync += reasons.eq((reasons | new_reasons) & ~(ready_now << 3))

        # Words that are answered.
        paused, saturated, hidden_cut = Signal(), Signal(), Signal()
        with m.If(self.finish.cut | self.arithmetic.cut):
            m.d.sync += saturated.eq(1)
        m.d.comb += train.cut.eq(hidden_cut)
        with m.If(self.finish.cut & ~self.finish.e_valid):
            m.d.sync += hidden_cut.eq(1)
        registers = Signal(32)
        with m.Switch(word.index[:3]):
            for register, value in {
                Ff.FACTOR: factor, Ff.LIMIT: limit, Ff.RIDGE: ridge,
                Ff.MANTISSA: train.mantissa, Ff.EXPONENT: train.exponent,
            }.items():  # fmt: skip
                with m.Case(int(register)):
                    m.d.comb += registers.eq(value)
        describe, state = Signal(32), Signal(32)
        with m.Switch(word.index[:3]):
            for k, constant in enumerate(c.describe()):
                with m.Case(k):
                    m.d.comb += describe.eq(constant)
        with m.Switch(word.index[:3]):
            with m.Case(int(Status.REASONS)):
                m.d.comb += state.eq(reasons)
            for which, signal in status.items():
                with m.Case(int(which)):
                    m.d.comb += state.eq(signal)

        m.d.comb += [predict.hidden.eq(train.hidden), predict.errors.eq(train.errors)]
        wait = Signal(range(READ_CYCLES))
        refused = Signal(5)
        bad = word.index > Mux(mode == Mode.TRAIN, 1, 0)
        m.d.comb += refused.eq(reasons | bad)
        with m.FSM(name="commands"):
            with m.State("IDLE"):
                m.d.sync += [saturated.eq(0), hidden_cut.eq(0)]
                m.d.sync += paused.eq(train.paused)
                with m.If(present & word.read):
                    self._read(m, mode)
                    m.d.sync += wait.eq(READ_CYCLES - 1)
                    m.next = "READ"
                with m.Elif(present & ~memory & (mode != Mode.FF)):
                    m.d.sync += [timing.eq(1), clock.eq(DECODE_CYCLES)]
                    with m.If(refused != 0):
                        m.d.sync += answer.eq(Cat(refused, Const(0, 26), Const(1, 1)))
                        m.d.sync += reasons.eq(reasons & int(Reason.NOT_READY))
                        m.next = "ANSWER"
                    with m.Elif(mode == Mode.TRAIN):
                        m.d.comb += train.start.eq(1)
                        m.d.sync += status[Status.TRAINED].eq(status[Status.TRAINED] + 1)
                        m.next = "TRAIN"
                    with m.Else():
                        m.d.comb += predict.hidden.eq(1)
                        m.next = "HIDDEN"
            with m.State("READ"):
                m.d.sync += wait.eq(wait - 1)
                with m.If(wait == 0):
                    m.next = "ANSWER"
                with m.Switch(mode):
                    with m.Case(Mode.PREDICT):
                        m.d.sync += answer.eq(describe)
                    with m.Case(Mode.TRAIN):
                        m.d.sync += answer.eq(state)
                    with m.Case(Mode.FF):
                        m.d.sync += answer.eq(registers)
                    with m.Case(Mode.X):  # a memory's own output comes late in a cycle
                        m.d.sync += answer.eq(self.arithmetic.held_x)
                    with m.Case(Mode.B):
                        m.d.sync += answer.eq(self.parameters.b)
                    with m.Default():
                        m.d.sync += answer.eq(self.arithmetic.picked)
                with m.If(~front.inside):
                    m.d.sync += answer.eq(0)
            with m.State("TRAIN"):
                m.d.comb += predict.teach.eq(1)
                with m.If(train.done):
                    m.d.sync += answer.eq(train.learned)
                    with m.If(~train.learned):
                        m.d.sync += status[Status.SINGULAR].eq(status[Status.SINGULAR] + 1)
                    with m.Elif(paused):
                        m.d.sync += status[Status.PAUSED].eq(status[Status.PAUSED] + 1)
                    with m.If(saturated):
                        m.d.sync += status[Status.SATURATED].eq(status[Status.SATURATED] + 1)
                    m.next = "ANSWER"
                    with m.If(word.index[0]):
                        m.next = "MEAN"
                        with m.If(~train.learned):
                            m.d.sync += answer.eq(1 << 31 | int(Reason.SINGULAR))
                            m.next = "ANSWER"
            with m.State("HIDDEN"), m.If(predict.done):
                m.next = "ERRORS_START"
            with m.State("ERRORS_START"):
                m.d.comb += predict.errors.eq(1)
                m.next = "ERRORS"
            with m.State("ERRORS"), m.If(predict.done):
                m.next = "MEAN"
            with m.State("MEAN"), m.If(self.scalars.idle):
                m.d.comb += self.scalars.mean.eq(1)
                m.next = "MEAN_END"
            with m.State("MEAN_END"), m.If(self.scalars.done):
                m.d.sync += answer.eq(self.scalars.score)
                m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += self.m_axis_tvalid.eq(1)
                m.d.sync += timing.eq(0)
                with m.If(self.m_axis_tready):
                    m.next = "IDLE"

    def _read(self, m: Module, mode: Any) -> None:
        """Fetch a word of a memory, if the index is in range: of a matrix through the lanes."""
        front, issue = self.front, self.arithmetic.issue
        reads = {Mode.ALPHA: Op.HIDDEN, Mode.BETA: Op.ERRORS, Mode.P: Op.FORWARD}
        with m.If(front.inside), m.Switch(mode):
            for matrix, op in reads.items():
                with m.Case(matrix):
                    # The first product of a sum that never ends: no result leaves the lanes.
                    m.d.comb += [issue.valid.eq(1), issue.op.eq(op), issue.word.eq(front.place)]
                    m.d.comb += [issue.first.eq(1), issue.last.eq(0)]
            with m.Case(Mode.X):
                m.d.comb += [self.inputs.read.eq(1), self.inputs.index.eq(front.place)]
            with m.Case(Mode.B):
                m.d.comb += [self.parameters.b_read.eq(1), self.parameters.b_index.eq(front.place)]
