"""The numbers of a step that are no vectors: m and z, C and R, the guard's bound, the mean.

`Serial` works on them, one bit per cycle: product, square root and quotient in one small machine.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import enum
from amaranth.lib.wiring import In, Out

from onlad.hardware import fixed
from onlad.hardware.config import Config
from onlad.hardware.rtl.interfaces import Part, Ports, scaling

WIDE = 56  # bits of a multiplicand
SHORT = 42  # bits of a multiplier
DIVISOR = 44
QUOTIENT = 52  # bits of 2^80 / divisor, where the divisor is at least 2^30
SCORE_CUT = 36  # fraction bits of the squared errors that the mean is taken of, as in the model


class Do(enum.Enum, shape=unsigned(2)):  # type: ignore[call-arg]
    """What `Serial` does."""

    MULTIPLY = 0  # product = a b
    ROOT = 1  # found = floor(sqrt(product))
    DIVIDE = 2  # found = floor(2^80 / b)


class Serial(Part):
    """One operation at a time."""

    def ports(self, c: Config) -> Ports:
        return {
            "start": In(1),  # for a cycle
            "do": In(Do),
            "a": In(WIDE),  # the arguments, read when `start` is high
            "b": In(DIVISOR),
            "done": Out(1),  # high for one cycle; results stay until the next start
            "product": Out(WIDE + SHORT),
            "found": Out(QUOTIENT),  # the root or the quotient
        }

    def build(self, m: Module) -> None:
        factor = Signal(WIDE)
        rest = Signal(DIVISOR + 1)
        count = Signal(range(64))
        doing = Signal(Do)
        busy = Signal()
        low, high = self.product[:SHORT], self.product[SHORT:]
        m.d.sync += self.done.eq(0)
        with m.If(self.start):
            m.d.sync += [busy.eq(1), doing.eq(self.do), self.found.eq(0), count.eq(SHORT - 1)]
            with m.If(self.do == Do.MULTIPLY):
                m.d.sync += [self.product.eq(self.b[:SHORT]), factor.eq(self.a)]
            with m.If(self.do == Do.DIVIDE):
                m.d.sync += [factor.eq(self.b), count.eq(QUOTIENT - 1)]
            # Of 2^80 / b the first 28 zeros are known.
            m.d.sync += rest.eq(Mux(self.do == Do.DIVIDE, 1 << 28, 0))
        with m.Elif(busy):
            m.d.sync += count.eq(count - 1)
            with m.If(count == 0):
                m.d.sync += [busy.eq(0), self.done.eq(1)]
            with m.If(doing == Do.MULTIPLY):
                total = high + Mux(low[0], factor, 0)
                m.d.sync += self.product.eq(Cat(low, total)[1:])
            with m.Else():
                # A root takes two bits of the product, a quotient one zero; each finds one bit.
                rooting = doing == Do.ROOT
                now = Mux(rooting, Cat(self.product[2 * SHORT - 2 :][:2], rest), rest << 1)
                tried = Mux(rooting, Cat(Const(1, 2), self.found[:SHORT]), factor[:DIVISOR])
                left = Signal(DIVISOR + 3)
                m.d.comb += left.eq(now - tried)
                fits = ~left[-1]
                m.d.sync += [
                    rest.eq(Mux(fits, left, now)),
                    self.found.eq(Cat(fits, self.found)),
                    self.product.eq(self.product << 2),
                ]


class Scalars(Part):
    """Forget, scale, bound and mean: each is started by a pulse and ends with `train.done`."""

    def ports(self, c: Config) -> Ports:
        return {
            "train": In(scaling(c)),
            "mean": In(1),  # start: the score
            "factor": In(31),  # a
            "limit": In(31),  # of the guard
            "squares": In(c.accumulator_width),  # f.f
            "loss": In(c.accumulator_width),  # e.e
            "root_scale": Out(signed(c.scalar_width)),  # C
            "beta_scale": Out(signed(c.scalar_width)),  # R
            "coarse": Out(1),  # whether k gives up fraction bits
            "score": Out(31),  # the mean of e.e
        }

    def build(self, m: Module) -> None:
        c, W, hb = self.config, self.config.width, self.config.headroom
        m.submodules.serial = serial = Serial(c)
        M = Signal(DIVISOR)
        F = Signal(DIVISOR)
        root = Signal(WIDE)  # C and R on their way, then the bound in `root`
        beta = Signal(WIDE)
        root_right = Signal(signed(10))  # places to the right
        beta_right = Signal(signed(10))
        v = Signal(signed(9))
        second = Signal()

        def do(what: Any, a: Any = None, b: Any = None) -> None:
            m.d.comb += [serial.start.eq(1), serial.do.eq(what)]
            if a is not None:
                m.d.comb += serial.a.eq(a)
            if b is not None:
                m.d.comb += serial.b.eq(b)

        large = beta[c.scalar_width - 2 :].any() | (beta_right < 0)
        kept = Mux(large, beta >> fixed.COARSE, beta)
        far = (beta_right < 0) | kept[c.scalar_width - 2 :].any()
        over = (root_right < 0) | root[c.scalar_width - 1 :].any()
        m.d.comb += self.train.bound.eq(root)

        with m.FSM(name="scalars"):
            with m.State("IDLE"):
                m.d.comb += self.train.idle.eq(1)
                m.d.sync += second.eq(0)
                with m.If(self.train.forget):
                    m.d.sync += self.train.new_mantissa.eq(self.train.mantissa)
                    m.d.sync += self.train.new_exponent.eq(self.train.exponent)
                    with m.If(self.train.held):
                        m.next = "DONE"
                    with m.Else():
                        m.next = "FORGET"
                with m.If(self.train.scale):
                    m.d.sync += v.eq(
                        self.train.forward_length
                        + (c.sum_cut + 2 * hb - (W - 1) - c.fraction)
                        - self.train.new_exponent
                    )
                    m.next = "ALIGN"
                with m.If(self.train.finish):
                    # The places that depend on g were taken as few as can be; now they are known.
                    rest = c.sum_width - 1 - self.train.gain_length
                    m.d.sync += root_right.eq(root_right + rest)
                    m.d.sync += beta_right.eq(beta_right + rest)
                    m.next = "LATE"
                with m.If(self.train.limiting):
                    m.next = "BOUND"
                with m.If(self.mean):
                    m.next = "MEAN"

            with m.State("FORGET"):
                do(Do.MULTIPLY, self.train.new_mantissa, self.factor)
                m.next = "FORGOT"
            with m.State("FORGOT"), m.If(serial.done):
                m.d.sync += [
                    self.train.new_mantissa.eq(serial.product >> c.ff_fraction),
                    second.eq(1),
                ]
                m.next = "FORGET"
                with m.If(second):
                    m.next = "LIFT"
            with m.State("LIFT"):
                low = ~self.train.new_mantissa[fixed.MANTISSA_BITS - 2 :].any()
                with m.If(
                    (self.train.new_mantissa == 0)
                    | (low & (self.train.new_exponent == fixed.EXPONENTS[0]))
                ):
                    m.d.sync += self.train.new_mantissa.eq(self.train.mantissa)
                    m.d.sync += self.train.new_exponent.eq(self.train.exponent)
                    m.next = "DONE"
                with m.Elif(low):
                    m.d.sync += self.train.new_mantissa.eq(self.train.new_mantissa << 2)
                    m.d.sync += self.train.new_exponent.eq(self.train.new_exponent - 1)
                with m.Else():
                    m.next = "DONE"

            with m.State("ALIGN"):
                cut = 2 * (W - 1) - fixed.SCALAR_BITS
                squares = self.squares >> cut if cut >= 0 else self.squares << -cut
                m.d.sync += [
                    M.eq(self.train.new_mantissa << fixed.SCALAR_BITS - fixed.MANTISSA_BITS),
                    F.eq(squares),
                ]
                least = c.accumulator_width - 1 + 1 + hb - 2 * (W - 1) - fixed.QUOTIENT_BITS
                m.d.sync += root_right.eq(
                    -(least + c.root_scale_fraction + self.train.renormal) - Mux(v < 0, v << 1, 0)
                )
                m.d.sync += beta_right.eq(
                    Mux(v < 0, -v, v) - (least + c.beta_scale_fraction) + self.train.new_exponent
                )
                m.next = "ALIGNING"
            with m.State("ALIGNING"):
                # The one that is further below is moved down, two places for each of v.
                with m.If(v == 0):
                    m.d.sync += F.eq(M + F)
                    m.next = "SQUARE"
                with m.Elif(v < 0):
                    m.d.sync += [F.eq(F >> 2), v.eq(v + 1)]
                with m.Else():
                    m.d.sync += [M.eq(M >> 2), v.eq(v - 1)]
            with m.State("SQUARE"):
                do(Do.MULTIPLY, F, M)
                m.next = "SQUARED"
            with m.State("SQUARED"), m.If(serial.done):
                m.next = "ROOT"
            with m.State("ROOT"):
                do(Do.ROOT)
                m.next = "ROOTED"
            with m.State("ROOTED"), m.If(serial.done):
                m.d.sync += M.eq(F + serial.found)
                m.next = "BY_D"
            with m.State("BY_D"):
                do(Do.DIVIDE, b=F)
                m.next = "BY_D_DONE"
            with m.State("BY_D_DONE"), m.If(serial.done):
                m.d.sync += beta.eq(serial.found)
                m.next = "BY_ROOT"
            with m.State("BY_ROOT"):
                do(Do.DIVIDE, b=M)
                m.next = "BY_ROOT_DONE"
            with m.State("BY_ROOT_DONE"), m.If(serial.done):
                m.d.sync += root.eq(serial.found)
                m.next = "EARLY"
            for state, end in (("EARLY", "DONE"), ("LATE", "SCALED")):
                with m.State(state):
                    more = Signal(name=f"{state.lower()}_more")
                    for value, right in ((root, root_right), (beta, beta_right)):
                        with m.If(right > 0):
                            m.d.comb += more.eq(1)
                            m.d.sync += [value.eq(value >> 1), right.eq(right - 1)]
                    if state == "LATE":  # R may grow, as it can give up fraction bits
                        with m.If((beta_right < 0) & ~beta[-1]):
                            m.d.comb += more.eq(1)
                            m.d.sync += [beta.eq(beta << 1), beta_right.eq(beta_right + 1)]
                    with m.If(~more):
                        m.next = end
            with m.State("SCALED"):
                most, top = (1 << c.scalar_width - 1) - 1, (1 << c.scalar_width - 2) - 1
                m.d.sync += [
                    self.root_scale.eq(-Mux(over, most, root[: c.scalar_width - 1])),
                    self.beta_scale.eq(Mux(far, top, kept[: c.scalar_width - 2])),
                    self.coarse.eq(large),
                ]
                m.next = "DONE"

            with m.State("BOUND"):
                do(Do.MULTIPLY, self.train.mantissa, self.limit[8:])
                m.next = "BOUNDED"
            with m.State("BOUNDED"), m.If(serial.done):
                m.d.sync += root.eq(serial.product)
                m.d.sync += root_right.eq(
                    fixed.MANTISSA_BITS
                    - fixed.TRACE_FRACTION
                    - self.limit[:8].as_signed()
                    - (self.train.exponent << 1)
                )
                m.next = "BOUNDING"
            with m.State("BOUNDING"):
                with m.If(root_right > 0):
                    m.d.sync += [root.eq(root >> 1), root_right.eq(root_right - 1)]
                with m.Elif(root[fixed.TRACE_BITS :].any()):
                    m.d.sync += root.eq((1 << fixed.TRACE_BITS) - 1)
                    m.next = "IDLE"
                with m.Elif(root_right < 0):
                    m.d.sync += [root.eq(root << 1), root_right.eq(root_right + 1)]
                with m.Else():
                    m.next = "IDLE"

            self._mean(m, do, serial)
            with m.State("DONE"):
                m.d.comb += self.train.done.eq(1)
                m.next = "IDLE"

    def _mean(self, m: Module, do: Any, serial: Any) -> None:
        n, c = self.config.n, self.config
        places = (n - 1).bit_length()
        cut = 2 * c.fraction - SCORE_CUT
        loss = self.loss >> cut if cut >= 0 else self.loss << -cut
        size = SCORE_CUT + 6 + places  # a mean that needs more is out of range
        huge = loss[size:].any()
        drop = 31 + places + SCORE_CUT - c.score_fraction
        whole = n == 1 << places  # no product is needed
        with m.State("MEAN"):
            if whole:
                m.next = "MEAN_DONE"
            else:
                do(Do.MULTIPLY, loss[:size], -(-(1 << 31 + places) // n))
                m.next = "MEAN_WAIT"
        with m.State("MEAN_WAIT"), m.If(serial.done):
            m.next = "MEAN_DONE"
        with m.State("MEAN_DONE"):
            product = loss[:size] << 31 if whole else serial.product
            mean = (product[drop - 1 :] + 1) >> 1
            m.d.sync += self.score.eq(Mux(huge | mean[31:].any(), (1 << 31) - 1, mean[:31]))
            m.next = "DONE"
