"""Parameter Buffer and Input Buffer: the memories that a host writes."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Const, Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from onlad.hardware.config import Config
from onlad.hardware.packets import Mode
from onlad.hardware.rtl.banks import Banks
from onlad.hardware.rtl.operations import Op, is_any, issue_layout
from onlad.hardware.seeded import SHIFTS, lane_seeds


def host_layout(config: Config) -> dict[str, Any]:
    """Return how a host writes the memories: never while a step is under way."""
    return {
        "host_mode": In(Mode),
        "host_write": In(1),
        "host_lane": In(max(1, ceil_log2(config.lanes))),
        "host_word": In(issue_layout(config)["word"].shape),
        "host_value": In(signed(config.width)),
    }


class ParameterBuffer(wiring.Component):
    """alpha, beta, S and b. Row-major; rows are padded to whole words of all lanes.

    Members
    -------
    host_* : see `host_layout`
    address : In
        An issue, in its cycle 1; words come in cycle 2.
    alpha, root, beta : Out
    stored, write_root, write_beta, write_word : In
    b_index, b_read, b : In, In, Out
        The word comes in the next cycle.
    """

    def __init__(self, config: Config) -> None:
        self.config = c = config
        layout, U, W = issue_layout(c), config.lanes, config.width
        super().__init__(
            {
                **host_layout(c),
                "address": In(layout),
                "alpha": Out(signed(c.alpha_width)).array(U),
                "root": Out(signed(W)).array(U),
                "beta": Out(signed(W)).array(U),
                "stored": In(signed(W)).array(U),
                "write_root": In(1),
                "write_beta": In(1),
                "write_word": In(layout["word"].shape),
                "b_index": In(ceil_log2(c.hidden)),
                "b_read": In(1),
                "b": Out(signed(W)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        c = self.config
        self._matrix(m, Mode.BETA, c.hidden * c.beta_row)
        self._matrix(m, Mode.P, c.hidden * c.alpha_row)
        if c.alpha == "seeded":
            self._generators(m)
        else:
            self._alpha(m)
        m.submodules.b = b = Banks(1, c.hidden, signed(c.width))
        m.d.comb += [
            b.read.eq(self.b_read),
            b.read_address.eq(self.b_index),
            b.write.eq(self.host_write & (self.host_mode == Mode.B)),
            b.write_address.eq(self.host_word),
            b.data[0].eq(self.host_value),
            self.b.eq(b.words[0]),
        ]
        return m

    def _bank(self, m: Module, mode: Mode, depth: int, width: int, ops: tuple[Any, ...]) -> Banks:
        """Return banks that issues read."""
        m.submodules[mode.name.lower()] = banks = Banks(self.config.lanes, depth, signed(width))
        m.d.comb += [
            banks.read.eq(self.address.valid & is_any(self.address.op, ops)),
            banks.read_address.eq(self.address.word),
        ]
        return banks

    def _alpha(self, m: Module) -> None:
        c = self.config
        banks = self._bank(m, Mode.ALPHA, c.n * c.alpha_row, c.alpha_width, (Op.HIDDEN,))
        asked = self.host_write & (self.host_mode == Mode.ALPHA)
        m.d.comb += banks.write_address.eq(self.host_word)
        m.d.comb += banks.write.eq(asked << self.host_lane)
        for k in range(c.lanes):
            m.d.comb += [banks.data[k].eq(self.host_value), self.alpha[k].eq(banks.words[k])]

    def _matrix(self, m: Module, mode: Mode, depth: int) -> None:
        """Keep S or beta, which the lanes write as well."""
        root = mode is Mode.P
        ops = (Op.FORWARD, Op.GAIN, Op.ROW, Op.ROOT) if root else (Op.ERRORS, Op.TEACH)
        banks = self._bank(m, mode, depth, self.config.width, ops)
        # What a host writes has gone through the lanes' last register, a cycle later.
        late, lane, word = Signal(), Signal.like(self.host_lane), Signal.like(self.host_word)
        m.d.sync += [
            late.eq(self.host_write & (self.host_mode == mode)),
            lane.eq(self.host_lane),
            word.eq(self.host_word),
        ]
        m.d.comb += banks.write_address.eq(word)
        m.d.comb += banks.write.eq(late << lane)
        with m.If(self.write_root if root else self.write_beta):
            m.d.comb += banks.write.eq(-1)
            m.d.comb += banks.write_address.eq(self.write_word)
        for k in range(self.config.lanes):
            m.d.comb += banks.data[k].eq(self.stored[k])
            m.d.comb += (self.root if root else self.beta)[k].eq(banks.words[k])

    def _generators(self, m: Module) -> None:
        """Make alpha anew, a word a lane a cycle: `seeded.advance` in gates."""
        read = self.address.valid & (self.address.op == Op.HIDDEN)
        for k, seed in enumerate(lane_seeds(self.config)):
            state = Signal(32, name=f"state{k}")
            now: Any = Signal(32, name=f"now{k}")
            m.d.comb += now.eq(state)
            with m.If(self.address.word == 0):
                m.d.comb += now.eq(Const(seed, 32))
            later: Any = now
            for shift in SHIFTS:
                later = (later ^ (later << shift if shift > 0 else later >> -shift))[:32]
            with m.If(read):
                m.d.sync += [
                    state.eq(later),
                    self.alpha[k].eq(now[32 - self.config.alpha_width :].as_signed()),
                ]


class InputBuffer(wiring.Component):
    """x.

    Members
    -------
    host_* : see `host_layout`
    index, read, word : In, In, Out
        The word comes in the next cycle.
    """

    def __init__(self, config: Config) -> None:
        self.config = c = config
        super().__init__(
            {
                **host_layout(c),
                "index": In(ceil_log2(c.n)),
                "read": In(1),
                "word": Out(signed(c.width)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.x = x = Banks(1, self.config.n, signed(self.config.width))
        asked = self.host_mode == Mode.X
        m.d.comb += [
            x.read.eq(self.read),
            x.read_address.eq(self.index),
            x.write.eq(self.host_write & asked),
            x.write_address.eq(self.host_word),
            x.data[0].eq(self.host_value),
            self.word.eq(x.words[0]),
        ]
        return m
