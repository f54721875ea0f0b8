"""Block floating vectors: sums are kept exactly until the widest is known, then all are shifted."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from onlad.hardware.config import Config
from onlad.hardware.rtl.buffers import Banks
from onlad.hardware.rtl.interfaces import Part, Ports, choose, delayed, magnitude, normalising

STRIDE = 8  # bits of the coarse shift


class Normalise(Part):
    """Keep N sums; when told, give them as words with one exponent."""

    def ports(self, c: Config) -> Ports:
        return {
            "train": In(normalising(c)),
            "keep": In(1),  # a sum to keep
            "keep_index": In(ceil_log2(c.hidden)),
            "sum": In(signed(c.sum_width)),
            "valid": Out(1),  # one word per cycle
            "index": Out(ceil_log2(c.hidden)),
            "word": Out(signed(c.width)),
        }

    def build(self, m: Module) -> None:
        c, A = self.config, self.config.sum_width
        m.submodules.sums = sums = Banks(1, c.hidden, signed(A))
        mask = Signal(A - 1)
        m.d.comb += [
            sums.write.eq(self.keep),
            sums.write_address.eq(self.keep_index),
            sums.data[0].eq(self.sum),
        ]
        with m.If(self.train.clear):
            m.d.sync += mask.eq(0)
        with m.Elif(self.keep):
            m.d.sync += mask.eq(mask | magnitude(self.sum))

        # The place of the highest bit, in two cycles; then the words, 4 cycles each.
        coarse, fine = self._highest(m, mask)
        started = delayed(m, self.train.start, 2, "started")[-1]
        running = Signal()
        index = Signal(ceil_log2(c.hidden))
        last = index == c.hidden - 1
        with m.If(started):
            m.d.sync += [running.eq(1), index.eq(0)]
        with m.Elif(running):
            m.d.sync += [index.eq(index + 1), running.eq(~last)]
        m.d.comb += [sums.read.eq(running), sums.read_address.eq(index)]
        going = delayed(m, running, 5, "going")
        m.d.comb += [
            self.valid.eq(going[-1]),
            self.index.eq(delayed(m, index, 5, "index")[-1]),
            self.train.done.eq(delayed(m, running & last, 6, "last")[-1]),
        ]
        # To the left until the highest bit of the widest stands below the sign.
        groups = -(-(A - 1) // STRIDE)
        spare = groups * STRIDE - (A - 1)  # the top group is not full: A - 1 bits in all
        word = Signal(signed(A), name="kept")
        left = Signal(signed(A), name="left")
        moved = Signal(signed(A + spare))
        m.d.sync += word.eq(sums.words[0])
        by_groups = {k: word << (groups - 1 - k) * STRIDE for k in range(groups)}
        choose(m, "sync", moved, coarse, by_groups)
        by_places = {k: _move(moved, STRIDE - 1 - k - spare) for k in range(STRIDE)}
        choose(m, "sync", left, fine, by_places)
        low, high = A + c.headroom - c.width, A - c.width + 1
        m.d.sync += self.word.eq(Mux(self.train.gain, _rounded(left, high), _rounded(left, low)))

    def _highest(self, m: Module, mask: Any) -> tuple[Any, Any]:
        """Return group and place of the highest bit of mask; set `length`."""
        groups = [mask[k : k + STRIDE] for k in range(0, len(mask), STRIDE)]
        coarse = Signal(range(len(groups)))
        fine = Signal(range(STRIDE))
        some = Signal()
        group = Signal(STRIDE)
        for k, bits in enumerate(groups):
            with m.If(bits.any()):
                m.d.sync += [coarse.eq(k), group.eq(bits)]
        m.d.sync += some.eq(mask.any())
        with m.If(~mask.any()):
            m.d.sync += [coarse.eq(0), group.eq(0)]
        m.d.sync += fine.eq(0)
        for k in range(STRIDE):
            with m.If(group[k]):
                m.d.sync += fine.eq(k)
        coarse_later = Signal.like(coarse)
        some_later = Signal()
        m.d.sync += [coarse_later.eq(coarse), some_later.eq(some)]
        m.d.comb += self.train.length.eq(Mux(some_later, coarse_later * STRIDE + fine + 1, 0))
        return coarse_later, fine


def _move(value: Any, places: int) -> Any:
    return value << places if places >= 0 else value >> -places


def _rounded(value: Any, shift: int) -> Any:
    return ((value >> shift - 1) + 1) >> 1
