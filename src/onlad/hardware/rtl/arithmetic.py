"""The lanes side by side, what feeds them, and the two ways sums leave them.

The way of a product, by cycle::

    0  the issue; x_i, h_i, q_i or k_i is read          5  partial products
    1  address of alpha, S, beta and of f, g, e          6  their sums
    2  words come out of the memories                    7  product
    3  words in registers; the scalar is chosen          8  sum, or stored word plus product
    4  factors a and b                                   9  rounded, saturated: written

Sums in the lanes are taken over in cycle 9 and leave one per cycle. Sums across the lanes go
through a tree of adders and are whole `ceil(log2(lanes)) + 1` cycles after the product.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, signed
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from onlad.hardware.config import Config
from onlad.hardware.fixed import COARSE
from onlad.hardware.rtl.buffers import Banks
from onlad.hardware.rtl.interfaces import (
    KEPT,
    OF_VECTORS,
    SUMMED_ACROSS,
    SUMMED_IN_LANES,
    Op,
    Part,
    Ports,
    choose,
    delayed,
    is_any,
    issue_layout,
    magnitude,
    parameters,
)
from onlad.hardware.rtl.lane import BASE, Lane, placed


class Arithmetic(Part):
    """All that multiplies."""

    def ports(self, c: Config) -> Ports:
        return {
            "issue": In(issue_layout(c)),  # what to do: one product per lane and cycle
            "idle": Out(1),  # nothing is under way
            "x": In(signed(c.width)),  # the scalars, one cycle after the issue
            "h": In(signed(c.width)),
            "held_x": Out(signed(c.width)),  # x a cycle later, from a register: how a host reads it
            "root_scale": In(signed(c.scalar_width)),  # C
            "beta_scale": In(signed(c.scalar_width)),  # R
            "renormal": In(signed(2)),  # how S is scaled: -1, 0, 1
            "coarse": In(1),  # whether k has fewer fraction bits
            "parameters": Out(parameters(c)),  # to and from `ParameterBuffer`
            "vector_lane": In(c.lanes),  # where f, g and e are written, one per cycle
            "vector_address": In(issue_layout(c)["vector"].shape),
            "vector_data": In(signed(c.width)),
            "chain_valid": Out(1),  # a sum that leaves the lanes, first lane first
            "chain_op": Out(Op),
            "chain": Out(signed(c.sum_width)),
            "across": Out(signed(c.accumulator_width)),  # a sum across the lanes
            "across_op": Out(Op),
            "across_valid": Out(1),
            "host": In(signed(c.width)),  # what a host writes, `stored` a cycle later; or zero
            # The first factor of a lane, in cycle 5: how a host reads the parameters.
            "pick": In(max(1, ceil_log2(c.lanes))),
            "picked": Out(signed(c.width)),
            "over": Out(1),  # a word of S that was written reaches 1
            "near": Out(1),  # or 1/4
            "cut": Out(1),  # any word was out of range
        }

    @property
    def tree_depth(self) -> int:
        """Cycles of a sum across the lanes."""
        return int(ceil_log2(self.config.lanes))

    def build(self, m: Module) -> None:
        c, U, depth = self.config, self.config.lanes, self.tree_depth
        # Not idle before a sum that is taken over in cycle 8 is e, in 13: between two blocks of
        # errors the lanes must not seem to rest.
        at = delayed(m, self.issue, max(13, 11 + depth), "at")
        m.d.comb += self.idle.eq(~Cat(*(stage.valid for stage in at[1:])).any() & ~self.chain_valid)
        m.d.comb += self.parameters.address.eq(at[1])

        m.submodules.vectors = vectors = Banks(U, 2 * c.alpha_row + 2, signed(c.width))
        m.d.comb += [
            vectors.read_address.eq(at[1].vector),
            vectors.read.eq(at[1].valid & is_any(at[1].op, OF_VECTORS)),
            vectors.write_address.eq(self.vector_address),
            vectors.write.eq(self.vector_lane),
        ]
        self._decode(m, at)
        scalar = self._scalar(m, at)
        factors = []
        lanes = [Lane(c) for _ in range(U)]
        for k, lane in enumerate(lanes):
            m.submodules[f"lane{k}"] = lane
            m.d.comb += vectors.data[k].eq(self.vector_data)
            factors.append(self._feed(m, lane, scalar, vectors.words[k], k, at))
        picked = Array(factors)[self.pick] if U > 1 else factors[0]
        m.d.sync += self.picked.eq(picked)
        self._write_back(m, lanes, at)
        self._chain(m, lanes, at)
        self._across(m, lanes, at)

    def _scalar(self, m: Module, at: list[Any]) -> Any:
        """Return what all lanes multiply by, in cycle 3."""
        c, U = self.config, self.config.lanes
        m.submodules.gains = gains = Banks(U, 2 * c.alpha_row, signed(c.scalar_width))
        bank = ceil_log2(U)
        m.d.comb += [
            gains.read_address.eq(self.issue.scalar[bank:]),
            gains.read.eq(self.issue.valid & is_any(self.issue.op, (Op.ROOT, Op.TEACH))),
            gains.write_address.eq(at[9].scalar[bank:]),
            gains.write.eq((at[9].valid & is_any(at[9].op, KEPT)).replicate(U)),
        ]
        x = Signal(signed(c.width))
        h = Signal(signed(c.width))
        gain = Signal(signed(c.scalar_width))
        scalar = Signal(signed(c.scalar_width))
        picked = Array(gains.words)[at[1].scalar[:bank]] if bank else gains.words[0]
        m.d.sync += [x.eq(self.x), h.eq(self.h), gain.eq(picked)]
        m.d.comb += self.held_x.eq(x)
        with m.Switch(at[2].op):
            for ops, value in {
                (Op.HIDDEN,): x,
                (Op.FORWARD, Op.ERRORS): h,
                (Op.ROOT_GAIN,): self.root_scale,
                (Op.BETA_GAIN,): self.beta_scale,
            }.items():
                with m.Case(*ops):
                    m.d.sync += scalar.eq(value)
            with m.Default():
                m.d.sync += scalar.eq(gain)
        self._gains = gains
        return scalar

    def _feed(
        self, m: Module, lane: Lane, scalar: Any, vector_word: Any, k: int, at: list[Any]
    ) -> Any:
        """Choose the factors of a lane in cycle 4 and the stored word in 7; return the first."""
        W = self.config.width
        alpha = Signal(signed(self.config.alpha_width), name=f"alpha{k}")
        root = Signal(signed(W), name=f"root{k}")
        beta = Signal(signed(W), name=f"beta{k}")
        vector = Signal(signed(W), name=f"vector{k}")
        m.d.sync += [
            alpha.eq(self.parameters.alpha[k]),
            root.eq(self.parameters.root[k]),
            beta.eq(self.parameters.beta[k]),
            vector.eq(vector_word),
        ]
        a = Signal(signed(W), name=f"a{k}")
        b = Signal(signed(len(lane.b)), name=f"b{k}")
        choose(m, "sync", a, self._a, dict(enumerate((vector, alpha, root, beta))))
        choose(m, "sync", b, self._b, dict(enumerate((scalar, vector, root))))
        old = Signal(signed(W), name=f"old{k}")
        m.d.sync += old.eq(Mux(self._learns_root, root, beta))
        old = delayed(m, old, 2, f"old{k}")[-1]
        base = Signal(signed(W + BASE), name=f"base{k}")
        with m.If(self._kept):
            m.d.sync += base.eq(1 << COARSE)
        with m.Else():
            words = [placed(old, renormal).as_signed() for renormal in (0, 1, -1)]
            coarse = placed(old, coarse=True).as_signed()
            choose(m, "sync", base, self._how, dict(enumerate(words)), coarse)
        m.d.comb += [
            lane.a.eq(a),
            lane.b.eq(b),
            lane.base.eq(base),
            lane.step.eq(at[7].valid),
            lane.clear.eq(at[7].first),
            lane.replace.eq(self._replace),
            lane.coarse.eq(self._coarse),
            lane.gain.eq(self._gain),
            lane.host.eq(self.host),
        ]
        return a

    def _decode(self, m: Module, at: list[Any]) -> None:
        """Tell all lanes, from registers: their factors in cycle 3, how they end in 6 and later.

        A choice among four words has a code of two bits: then each bit takes one lookup table.
        """
        self._a = Signal(2, name="choose_a")
        self._b = Signal(2, name="choose_b")
        self._learns_root = Signal(name="learns_root")
        op = at[2].op
        matrices = {Op.HIDDEN: 1, (Op.FORWARD, Op.GAIN, Op.ROW): 2, Op.ERRORS: 3}
        choose(m, "sync", self._a, op, matrices, 0)
        choose(m, "sync", self._b, op, {(Op.SQUARE, Op.GAIN, Op.LOSS): 1, Op.ROW: 2}, 0)
        m.d.sync += self._learns_root.eq(op == Op.ROOT)
        self._kept = Signal(name="kept")
        self._replace = Signal(name="replace")
        self._coarse = Signal(name="coarse_word")
        self._gain = Signal(name="gain_word")
        self._how = Signal(2, name="how")
        coarse = self.coarse & (at[5].op == Op.TEACH)
        root = at[5].op == Op.ROOT
        m.d.sync += [
            self._kept.eq(is_any(at[5].op, KEPT)),
            self._how.eq(Mux(coarse, 3, Mux(root, Mux(self.renormal < 0, 2, self.renormal), 0))),
            self._replace.eq(~is_any(at[6].op, SUMMED_IN_LANES)),
            self._coarse.eq(self.coarse & (at[7].op == Op.TEACH)),
            self._gain.eq(is_any(at[7].op, KEPT)),
        ]

    def _write_back(self, m: Module, lanes: list[Lane], at: list[Any]) -> None:
        c, valid, op = self.config, at[9].valid, at[9].op
        root = valid & (op == Op.ROOT)
        beta = valid & (op == Op.TEACH)
        m.d.comb += [self.parameters.write_root.eq(root), self.parameters.write_beta.eq(beta)]
        m.d.comb += self.parameters.write_word.eq(at[9].word)
        near = Signal(c.lanes)
        over = Signal(c.lanes)
        cut = Signal(c.lanes)
        for k, lane in enumerate(lanes):
            word = Cat(lane.result[: c.width - 1], lane.result[-1]).as_signed()
            m.d.comb += [self.parameters.stored[k].eq(word), self._gains.data[k].eq(lane.result)]
            size = magnitude(word)
            m.d.sync += [
                near[k].eq(root & size[c.root_fraction - 2 :].any()),
                over[k].eq(root & size[c.root_fraction :].any()),
                cut[k].eq((root | beta) & lane.cut),
            ]
        m.d.comb += [self.near.eq(near.any()), self.over.eq(over.any()), self.cut.eq(cut.any())]

    def _chain(self, m: Module, lanes: list[Lane], at: list[Any]) -> None:
        """Let sums leave the lanes one per cycle; the last has left when the next are whole."""
        U = self.config.lanes
        chain = [Signal(signed(len(self.chain)), name=f"chain{k}") for k in range(U)]
        place = Signal(range(U))
        going = Signal()
        op = Signal(Op)
        with m.If(going):
            m.d.sync += [place.eq(place + 1), going.eq(place != U - 1)]
        with m.If(at[8].valid & at[8].last & is_any(at[8].op, SUMMED_IN_LANES)):
            m.d.sync += [place.eq(0), going.eq(1), op.eq(at[8].op)]
            m.d.sync += [chain[k].eq(lanes[k].total[self.config.sum_cut :]) for k in range(U)]
        m.d.comb += [
            self.chain_valid.eq(going),
            self.chain_op.eq(op),
            self.chain.eq(Array(chain)[place] if U > 1 else chain[0]),
        ]

    def _across(self, m: Module, lanes: list[Lane], at: list[Any]) -> None:
        narrow = 2 * self.config.width  # both factors are words
        level: list[Any] = [lane.product[:narrow].as_signed() for lane in lanes]
        while len(level) > 1:
            sums = [Signal(signed(len(level[0]) + 1), name=f"sum{len(level)}_{k}")
                    for k in range(len(level) // 2)]  # fmt: skip
            m.d.sync += [s.eq(level[2 * k] + level[2 * k + 1]) for k, s in enumerate(sums)]
            level = list(sums)
        end = at[7 + self.tree_depth]
        with m.If(end.valid & is_any(end.op, SUMMED_ACROSS)):
            m.d.sync += self.across.eq(Mux(end.first, 0, self.across) + level[0])
        m.d.sync += [
            self.across_valid.eq(end.valid & end.last & is_any(end.op, SUMMED_ACROSS)),
            self.across_op.eq(end.op),
        ]
