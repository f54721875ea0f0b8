"""Memories with one read and one write port, one word per lane.

No port is transparent: reading and writing one address in one cycle gives the old word in one tool
and the new one in another. The formal checks show that it never happens.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Shape
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2


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
