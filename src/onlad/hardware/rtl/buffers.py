"""The memories: banks of them, and Parameter Buffer and Input Buffer, which a host writes.

No port is transparent: reading and writing one address in one cycle gives the old word in one tool
and the new one in another. The formal checks show that it never happens.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Const, Module, Shape, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from onlad.hardware.config import Config
from onlad.hardware.packets import Mode
from onlad.hardware.rtl.interfaces import Op, Part, Ports, host_write, is_any, parameters
from onlad.hardware.seeded import SHIFTS, lane_seeds


class Banks(wiring.Component):
    """`count` memories that are read together and written one by one or together."""

    def __init__(self, count: int, depth: int, shape: Any) -> None:
        self.count, self.depth, self.word = count, depth, Shape.cast(shape)
        address = ceil_log2(depth)
        super().__init__(
            {
                "read_address": In(address),  # of all banks; the words come in the next cycle
                "read": In(1),
                "words": Out(self.word).array(count),
                "write_address": In(address),
                "write": In(count),  # one bit per bank
                "data": In(self.word).array(count),  # one word per bank
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        for k in range(self.count):
            memory = Memory(shape=self.word, depth=self.depth, init=[])
            m.submodules[f"bank{k}"] = memory
            reader, writer = memory.read_port(), memory.write_port()
            m.d.comb += [
                reader.addr.eq(self.read_address),
                reader.en.eq(self.read),
                self.words[k].eq(reader.data),
                writer.addr.eq(self.write_address),
                writer.en.eq(self.write[k]),
                writer.data.eq(self.data[k]),
            ]
        return m


class ParameterBuffer(Part):
    """alpha, beta, S and b. Row-major; rows are padded to whole words of all lanes."""

    def ports(self, c: Config) -> Ports:
        return {
            "host": In(host_write(c)),
            "lanes": In(parameters(c)),
            "b_index": In(ceil_log2(c.hidden)),  # of b, which comes in the next cycle
            "b_read": In(1),
            "b": Out(signed(c.width)),
        }

    def build(self, m: Module) -> None:
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
            b.write.eq(self.host.write & (self.host.mode == Mode.B)),
            b.write_address.eq(self.host.word),
            b.data[0].eq(self.host.value),
            self.b.eq(b.words[0]),
        ]

    def _bank(self, m: Module, mode: Mode, depth: int, width: int, ops: tuple[Any, ...]) -> Banks:
        """Return banks that issues read."""
        m.submodules[mode.name.lower()] = banks = Banks(self.config.lanes, depth, signed(width))
        m.d.comb += [
            banks.read.eq(self.lanes.address.valid & is_any(self.lanes.address.op, ops)),
            banks.read_address.eq(self.lanes.address.word),
        ]
        return banks

    def _alpha(self, m: Module) -> None:
        c = self.config
        banks = self._bank(m, Mode.ALPHA, c.n * c.alpha_row, c.alpha_width, (Op.HIDDEN,))
        asked = self.host.write & (self.host.mode == Mode.ALPHA)
        m.d.comb += banks.write_address.eq(self.host.word)
        m.d.comb += banks.write.eq(asked << self.host.lane)
        for k in range(c.lanes):
            m.d.comb += [banks.data[k].eq(self.host.value), self.lanes.alpha[k].eq(banks.words[k])]

    def _matrix(self, m: Module, mode: Mode, depth: int) -> None:
        """Keep S or beta, which the lanes write as well."""
        root = mode is Mode.P
        ops = (Op.FORWARD, Op.GAIN, Op.ROW, Op.ROOT) if root else (Op.ERRORS, Op.TEACH)
        banks = self._bank(m, mode, depth, self.config.width, ops)
        # What a host writes has gone through the lanes' last register, one cycle later.
        late = Signal()
        lane = Signal.like(self.host.lane)
        word = Signal.like(self.host.word)
        m.d.sync += [
            late.eq(self.host.write & (self.host.mode == mode)),
            lane.eq(self.host.lane),
            word.eq(self.host.word),
        ]
        m.d.comb += banks.write_address.eq(word)
        m.d.comb += banks.write.eq(late << lane)
        with m.If(self.lanes.write_root if root else self.lanes.write_beta):
            m.d.comb += banks.write.eq(-1)
            m.d.comb += banks.write_address.eq(self.lanes.write_word)
        for k in range(self.config.lanes):
            m.d.comb += banks.data[k].eq(self.lanes.stored[k])
            m.d.comb += (self.lanes.root if root else self.lanes.beta)[k].eq(banks.words[k])

    def _generators(self, m: Module) -> None:
        """Generate alpha, one word per lane and cycle: `seeded.advance` in gates."""
        read = self.lanes.address.valid & (self.lanes.address.op == Op.HIDDEN)
        for k, seed in enumerate(lane_seeds(self.config)):
            state = Signal(32, name=f"state{k}")
            now: Any = Signal(32, name=f"now{k}")
            m.d.comb += now.eq(state)
            with m.If(self.lanes.address.word == 0):
                m.d.comb += now.eq(Const(seed, 32))
            later: Any = now
            for shift in SHIFTS:
                later = (later ^ (later << shift if shift > 0 else later >> -shift))[:32]
            with m.If(read):
                m.d.sync += [
                    state.eq(later),
                    self.lanes.alpha[k].eq(now[32 - self.config.alpha_width :].as_signed()),
                ]


class InputBuffer(Part):
    """x."""

    def ports(self, c: Config) -> Ports:
        return {
            "host": In(host_write(c)),
            "index": In(ceil_log2(c.n)),  # of the word, which comes in the next cycle
            "read": In(1),
            "word": Out(signed(c.width)),
        }

    def build(self, m: Module) -> None:
        m.submodules.x = x = Banks(1, self.config.n, signed(self.config.width))
        asked = self.host.mode == Mode.X
        m.d.comb += [
            x.read.eq(self.read),
            x.read_address.eq(self.index),
            x.write.eq(self.host.write & asked),
            x.write_address.eq(self.host.word),
            x.data[0].eq(self.host.value),
            self.word.eq(x.words[0]),
        ]
