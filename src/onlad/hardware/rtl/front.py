"""The input stage: words are taken from the stream, checked and decoded."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from onlad.hardware import packets
from onlad.hardware.config import Config
from onlad.hardware.packets import Mode
from onlad.hardware.rtl.interfaces import WORD, Part, Ports, choose, decoded


class Front(Part):
    """Take words in order; each is decoded in three cycles, one word per cycle.

    After a word that is answered no other is taken until its answer has been.
    """

    def ports(self, c: Config) -> Ports:
        return {
            "data": In(64),  # the stream in
            "valid": In(1),
            "ready": Out(1),
            "answered": In(1),  # the answer to the last word was taken
            "decoded": Out(decoded(c)),
        }

    def sizes(self) -> dict[Mode, int]:
        """Return how many indices each mode has; of PREDICT and TRAIN for reading."""
        c = self.config
        alpha = 0 if c.alpha == "seeded" else c.n * c.hidden
        return {
            Mode.PREDICT: len(packets.Describe),
            Mode.TRAIN: len(packets.Status),
            Mode.FF: len(packets.Ff),
            Mode.X: c.n,
            Mode.ALPHA: alpha,
            Mode.BETA: c.n * c.hidden,
            Mode.P: c.hidden**2,
            Mode.B: c.hidden,
        }

    def build(self, m: Module) -> None:
        c = self.config
        raw = Signal(WORD)
        m.d.comb += [
            raw.mode.eq(self.data[packets.MODE_SHIFT :]),
            raw.read.eq(self.data[packets.READ_SHIFT]),
            raw.index.eq(self.data[packets.INDEX_SHIFT : packets.READ_SHIFT]),
            raw.value.eq(self.data[: packets.INDEX_SHIFT].as_signed()),
        ]
        waiting = Signal()
        take = self.valid & self.ready
        asks = raw.read | (raw.mode == Mode.PREDICT) | (raw.mode == Mode.TRAIN)
        m.d.comb += self.ready.eq(~waiting)
        with m.If(take & asks):
            m.d.sync += waiting.eq(1)
        with m.Elif(self.answered):
            m.d.sync += waiting.eq(0)

        one = Signal(WORD)
        two = Signal(WORD)
        have_one = Signal()
        have_two = Signal()
        inside = Signal()
        fits = Signal()
        with m.If(take):
            m.d.sync += one.eq(raw)  # a word that is answered stays until it is
        m.d.sync += [have_one.eq(take), have_two.eq(have_one), two.eq(one)]
        m.d.sync += [self.decoded.present.eq(have_two), self.decoded.word.eq(two)]
        sizes = {mode: one.index < size for mode, size in self.sizes().items()}
        choose(m, "sync", inside, one.mode, sizes)
        narrow = Mux(
            one.mode == Mode.ALPHA, _fits(one.value, c.alpha_width), _fits(one.value, c.width)
        )
        m.d.sync += [fits.eq(narrow), self.decoded.inside.eq(inside), self.decoded.fits.eq(fits)]
        self._place(m, one, two)

    def _place(self, m: Module, one: Any, two: Any) -> None:
        """Find bank and word: rows start at whole words, so padding is added row by row.

        The row is index times a reciprocal of the row's length, exact for every index in range.
        """
        c, bits = self.config, ceil_log2(self.config.lanes)
        rows = {Mode.ALPHA: (c.hidden, c.alpha_row), Mode.P: (c.hidden, c.alpha_row),
                Mode.BETA: (c.n, c.beta_row)}  # fmt: skip
        most = max(self.sizes().values())
        reach = most.bit_length()
        index = Signal(reach)
        padded = Signal(reach + bits + 1)
        m.d.sync += index.eq(one.index)
        m.d.comb += padded.eq(index)
        lengths = sorted({length for length, words in rows.values() if length % c.lanes})
        for length in lengths:
            places = reach + length.bit_length()
            row = Signal(reach, name=f"row{length}")
            reciprocal = -(-(1 << places) // length)
            m.d.sync += row.eq((one.index[:reach] * Const(reciprocal)) >> places)
            modes = [mode for mode, (other, _) in rows.items() if other == length]
            with m.Switch(two.mode), m.Case(*modes):
                m.d.comb += padded.eq(index + row * (-length % c.lanes))
        vector = (two.mode == Mode.X) | (two.mode == Mode.B)
        with m.If(vector):
            m.d.sync += [self.decoded.place.eq(index), self.decoded.lane.eq(0)]
        with m.Else():
            m.d.sync += [
                self.decoded.place.eq(padded >> bits),
                self.decoded.lane.eq(padded[:bits] if bits else 0),
            ]


def _fits(value: Any, width: int) -> Any:
    head = value[width - 1 :]
    return head.all() | ~head.any()
