"""ONLAD Core: the paper's four modules around one row of lanes, between two streams."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal, signed
from amaranth.lib.wiring import In, Out, connect
from amaranth.utils import ceil_log2

from onlad.hardware.config import Config
from onlad.hardware.packets import Mode
from onlad.hardware.rtl.arithmetic import Arithmetic
from onlad.hardware.rtl.buffers import Banks, InputBuffer, ParameterBuffer
from onlad.hardware.rtl.commands import Answers, Commands
from onlad.hardware.rtl.finish import Finish
from onlad.hardware.rtl.front import Front
from onlad.hardware.rtl.interfaces import Op, Part, Ports, is_any, magnitude
from onlad.hardware.rtl.normalise import Normalise
from onlad.hardware.rtl.predict import PredictModule
from onlad.hardware.rtl.registers import Registers, StatusWords
from onlad.hardware.rtl.scalars import Scalars
from onlad.hardware.rtl.train import TrainModule
from onlad.hardware.rtl.walk import Walk


class Top(Part):
    """The core. Equal to ``model.Model(config).accept`` for every sequence of words."""

    def ports(self, c: Config) -> Ports:
        return {
            "s_axis_tdata": In(64),  # the stream in
            "s_axis_tvalid": In(1),
            "s_axis_tready": Out(1),
            "s_axis_tlast": In(1),
            "m_axis_tdata": Out(32),  # the stream out
            "m_axis_tvalid": Out(1),
            "m_axis_tready": In(1),
            "m_axis_tlast": Out(1),  # that of the word that is answered
        }

    def build(self, m: Module) -> None:
        c = self.config
        m.submodules.front = self.front = Front(c)
        m.submodules.registers = self.registers = Registers(c)
        m.submodules.commands = self.commands = Commands(c)
        m.submodules.status = self.status = StatusWords(c)
        m.submodules.answers = self.answers = Answers(c)
        m.submodules.parameter_buffer = self.parameters = ParameterBuffer(c)
        m.submodules.input_buffer = self.inputs = InputBuffer(c)
        m.submodules.train_module = self.train = TrainModule(c)
        m.submodules.predict_module = self.predict = PredictModule(c)
        m.submodules.walk = self.walk = Walk(c)
        m.submodules.arithmetic = self.arithmetic = Arithmetic(c)
        m.submodules.normalise = self.normalise = Normalise(c)
        m.submodules.scalars = self.scalars = Scalars(c)
        m.submodules.finish = self.finish = Finish(c)
        word = self.front.decoded
        connect(m, word, self.registers.decoded, self.commands.decoded, self.answers.decoded)
        connect(m, self.commands.host, self.parameters.host, self.inputs.host)
        connect(m, self.arithmetic.parameters, self.parameters.lanes)
        connect(m, self.train.passes, self.walk.train)
        connect(m, self.predict.passes, self.walk.predict)
        connect(m, self.train.scaling, self.scalars.train)
        connect(m, self.train.normalising, self.normalise.train)
        self._streams(m)
        self._issues(m)
        self._reads(m)
        self._sums(m)
        self._steps(m)
        self._commands(m)

    def _streams(self, m: Module) -> None:
        """Take words in, give answers out, each with the TLAST of its request."""
        last = Signal()
        with m.If(self.s_axis_tvalid & self.s_axis_tready):
            m.d.sync += last.eq(self.s_axis_tlast)
        m.d.comb += [
            self.front.data.eq(self.s_axis_tdata),
            self.front.valid.eq(self.s_axis_tvalid),
            self.s_axis_tready.eq(self.front.ready),
            self.front.answered.eq(self.m_axis_tvalid & self.m_axis_tready),
            self.commands.answered.eq(self.m_axis_tready),
            self.m_axis_tvalid.eq(self.commands.answering),
            self.m_axis_tdata.eq(self.answers.answer),
            self.m_axis_tlast.eq(last),
        ]

    def _issues(self, m: Module) -> None:
        """Bring products to the lanes: of a pass, or of a word that the host reads."""
        lanes, word = self.arithmetic, self.front.decoded
        reads = {Mode.ALPHA: Op.HIDDEN, Mode.BETA: Op.ERRORS, Mode.P: Op.FORWARD}
        m.d.comb += [
            self.walk.quiet.eq(lanes.idle & self.finish.idle),
            lanes.pick.eq(word.lane),
            lanes.issue.eq(self.walk.issue),
        ]
        with m.If(self.commands.fetch), m.Switch(word.word.mode):
            for matrix, op in reads.items():
                with m.Case(matrix):
                    # The first product of a sum that never ends: no result leaves the lanes.
                    m.d.comb += [
                        lanes.issue.valid.eq(1),
                        lanes.issue.op.eq(op),
                        lanes.issue.word.eq(word.place),
                        lanes.issue.first.eq(1),
                        lanes.issue.last.eq(0),
                    ]

    def _reads(self, m: Module) -> None:
        """Read x and b: for a sum, or for the host."""
        word, lanes, issue = self.front.decoded, self.arithmetic, self.walk.issue
        # Which sum leaves the lanes: they come in order, and a pass starts when all is quiet.
        self.index = index = Signal.like(self.finish.place.index)
        with m.If(lanes.chain_valid):
            m.d.sync += index.eq(index + 1)
        with m.Elif(self.walk.idle & lanes.idle):
            m.d.sync += index.eq(0)
        errors = lanes.chain_valid & (lanes.chain_op == Op.ERRORS)
        hidden = lanes.chain_valid & (lanes.chain_op == Op.HIDDEN)
        x_read = issue.valid & (issue.op == Op.HIDDEN)
        x_host = self.commands.fetch & (word.word.mode == Mode.X)
        b_host = self.commands.fetch & (word.word.mode == Mode.B)
        m.d.comb += [
            self.inputs.read.eq(x_read | errors | x_host),
            self.inputs.index.eq(Mux(x_host, word.place, Mux(errors, index, issue.scalar))),
            self.parameters.b_read.eq(hidden | b_host),
            self.parameters.b_index.eq(Mux(b_host, word.place, index)),
            lanes.x.eq(self.inputs.word),
        ]

    def _sums(self, m: Module) -> None:
        """Bring sums from the lanes to h, f, g and e."""
        c, lanes, finish, normalise = self.config, self.arithmetic, self.finish, self.normalise
        bits, index, issue = ceil_log2(c.lanes), self.index, self.walk.issue
        errors = lanes.chain_valid & (lanes.chain_op == Op.ERRORS)
        hidden = lanes.chain_valid & (lanes.chain_op == Op.HIDDEN)
        late = Signal()
        blank = Signal()
        m.d.sync += [late.eq(errors), blank.eq(self.train.blank | (index >= c.n))]
        m.d.comb += [
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
        with m.Elif(self.train.normalising.clear):
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
        vector = Mux(self.train.normalising.gain, c.alpha_row, 0) + (normalise.index >> bits)
        m.d.comb += [
            lanes.vector_lane.eq((finish.e_valid | normalise.valid) << lane),
            lanes.vector_address.eq(Mux(finish.e_valid, 2 * c.alpha_row + slot, vector)),
            lanes.vector_data.eq(Mux(finish.e_valid, finish.result, normalise.word)),
        ]

    def _steps(self, m: Module) -> None:
        """Bring what a step needs to Train Module, the scalars and the lanes."""
        train, scalars, lanes = self.train, self.scalars, self.arithmetic
        word, host = self.front.decoded.word, self.commands.host
        squares = lanes.across_valid & (lanes.across_op == Op.SQUARE)
        with m.If(squares):
            m.d.sync += scalars.squares.eq(lanes.across)
        seen = Signal()
        m.d.sync += seen.eq(squares)
        with m.If(lanes.across_valid & (lanes.across_op == Op.LOSS) & ~train.blank):
            m.d.sync += scalars.loss.eq(lanes.across)
        m.d.comb += [
            train.squares_valid.eq(seen),
            train.row_valid.eq(lanes.across_valid & (lanes.across_op == Op.ROW)),
            train.row.eq(lanes.across),
            train.predicted.eq(self.predict.done),
            train.cut.eq(self.status.hidden_was_cut),
            train.ridge.eq(self.registers.ridge),
            train.limited.eq(self.registers.limit[8:].any()),
            train.load_mantissa.eq(self.registers.load_mantissa),
            train.load_exponent.eq(self.registers.load_exponent),
            train.load_value.eq(word.value),
            scalars.factor.eq(self.registers.factor),
            scalars.limit.eq(self.registers.limit),
            lanes.root_scale.eq(scalars.root_scale),
            lanes.beta_scale.eq(scalars.beta_scale),
            lanes.renormal.eq(train.scaling.renormal),
            lanes.coarse.eq(scalars.coarse),
            lanes.host.eq(Mux(host.write & is_any(host.mode, (Mode.BETA, Mode.P)), word.value, 0)),
        ]
        # Whether a word of S reaches 1/4 or 1: of the host's, or of those that the lanes write.
        size, fraction = magnitude(word.value), self.config.root_fraction
        with m.If(host.write & (host.mode == Mode.P)):
            m.d.comb += train.near.eq(size[fraction - 2 :].any())
            m.d.comb += train.over.eq(size[fraction:].any())
        with m.Else():
            m.d.comb += [train.near.eq(lanes.near), train.over.eq(lanes.over)]

    def _commands(self, m: Module) -> None:
        """Let the commands start modules, and their ends be heard."""
        c, train, predict, scalars = self.commands, self.train, self.predict, self.scalars
        registers, status, answers = self.registers, self.status, self.answers
        m.d.comb += [
            registers.mantissa.eq(train.scaling.mantissa),
            registers.exponent.eq(train.scaling.exponent),
            registers.told.eq(c.told),
            c.reasons.eq(registers.reasons),
            c.trained.eq(train.done),
            c.learned.eq(train.learned),
            c.predicted.eq(predict.done),
            c.rested.eq(scalars.train.idle),
            c.meant.eq(scalars.train.done),
            train.start.eq(c.train),
            predict.hidden.eq(train.hidden | c.hidden),
            predict.errors.eq(train.errors | c.errors),
            predict.teach.eq(c.teach),
            scalars.mean.eq(c.mean),
            status.idle.eq(c.idle),
            status.begun.eq(c.begun),
            status.ends.eq(c.answering),
            status.trains.eq(c.train),
            status.trained.eq(train.done),
            status.learned.eq(train.learned),
            status.paused.eq(train.paused),
            status.cut.eq(self.finish.cut | self.arithmetic.cut),
            status.hidden_cut.eq(self.finish.cut & ~self.finish.e_valid),
            status.reasons.eq(registers.reasons),
            status.index.eq(self.front.decoded.word.index),
            answers.take.eq(c.take),
            answers.refusal.eq(c.refusal),
            answers.learned.eq(train.learned),
            answers.score.eq(scalars.score),
            answers.register.eq(registers.value),
            answers.status.eq(status.value),
            answers.x.eq(self.arithmetic.held_x),  # a memory's own output comes late in a cycle
            answers.b.eq(self.parameters.b),
            answers.matrix.eq(self.arithmetic.picked),
        ]
