"""The numbers of a step that are no vectors: m and z, C and R, the guard's bound, the mean."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from onlad.hardware.config import Config
from onlad.hardware.fixed import EXPONENTS, MANTISSA_BITS, QUOTIENT_BITS, SCALAR_BITS
from onlad.hardware.model import COARSE, TRACE_BITS
from onlad.hardware.rtl.serial import DIVISOR, WIDE, Do, Serial

SCORE_CUT = 36  # fraction bits of the squared errors that the mean is taken of


class Scalars(wiring.Component):
    """Forget, scale, bound and mean: each is started by a pulse and ends with `done`.

    Members
    -------
    forget, scale, finish, mean : In(1)
        Start: m 4^z <- m 4^z a^2; the quotients of d; C, R and the bound; the score.
    held : In(1)
        Forget nothing.
    factor, limit, mantissa, exponent, renormal : In
        a, the guard's limit, m and z, and how S will be scaled: -1, 0 or 1.
    squares, forward_length, gain_length, loss : In
        f.f; lengths of the sums of f and g; e.e.
    new_mantissa, new_exponent : Out
        After forgetting.
    root_scale, beta_scale, coarse, bound, score : Out
        C, R, whether k gives up fraction bits, from which trace of S S' on the guard acts, and the
        mean of e.e.
    done, idle : Out(1)
        For a cycle; nothing is under way.
    """

    def __init__(self, config: Config) -> None:
        self.config = c = config
        A = c.accumulator_width
        super().__init__(
            {
                "forget": In(1),
                "scale": In(1),
                "finish": In(1),
                "mean": In(1),
                "held": In(1),
                "factor": In(31),
                "limit": In(31),
                "mantissa": In(MANTISSA_BITS),
                "exponent": In(signed(6)),
                "renormal": In(signed(2)),
                "squares": In(A),
                "forward_length": In(range(A)),
                "gain_length": In(range(A)),
                "loss": In(A),
                "new_mantissa": Out(MANTISSA_BITS),
                "new_exponent": Out(signed(7)),
                "root_scale": Out(signed(c.scalar_width)),
                "beta_scale": Out(signed(c.scalar_width)),
                "coarse": Out(1),
                "bound": Out(TRACE_BITS),
                "score": Out(31),
                "done": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        c, W, hb = self.config, self.config.width, self.config.headroom
        m.submodules.serial = serial = Serial()
        M, F, of_root, of_d = (Signal(DIVISOR), Signal(DIVISOR), Signal(WIDE), Signal(WIDE))
        d = Signal(DIVISOR)
        v = Signal(signed(9))
        second = Signal()
        u = self.gain_length + (1 + hb - 2 * (W - 1) - QUOTIENT_BITS)
        m.d.comb += self.done.eq(0)

        def do(what: Any, a: Any = None, b: Any = None, amount: Any = None) -> None:
            m.d.comb += [serial.start.eq(1), serial.do.eq(what)]
            for port, value in ((serial.a, a), (serial.b, b), (serial.amount, amount)):
                if value is not None:
                    m.d.comb += port.eq(value)

        with m.FSM(name="scalars"):
            with m.State("IDLE"):
                m.d.comb += self.idle.eq(1)
                m.d.sync += second.eq(0)
                with m.If(self.forget):
                    m.d.sync += self.new_mantissa.eq(self.mantissa)
                    m.d.sync += self.new_exponent.eq(self.exponent)
                    with m.If(self.held):
                        m.next = "DONE"
                    with m.Else():
                        m.next = "FORGET"
                with m.If(self.scale):
                    m.d.sync += v.eq(
                        self.forward_length + (2 * hb - (W - 1) - c.fraction) - self.new_exponent
                    )
                    m.next = "ALIGN"
                with m.If(self.finish):
                    m.next = "ROOT_SCALE"
                with m.If(self.mean):
                    m.next = "MEAN"

            with m.State("FORGET"):
                do(Do.MULTIPLY, self.new_mantissa, self.factor)
                m.next = "FORGOT"
            with m.State("FORGOT"), m.If(serial.done):
                m.d.sync += [self.new_mantissa.eq(serial.product >> c.ff_fraction), second.eq(1)]
                m.next = "FORGET"
                with m.If(second):
                    m.next = "LIFT"
            with m.State("LIFT"):
                low = self.new_mantissa < 1 << MANTISSA_BITS - 2
                with m.If((self.new_mantissa == 0) | (low & (self.new_exponent == EXPONENTS[0]))):
                    m.d.sync += self.new_mantissa.eq(self.mantissa)
                    m.d.sync += self.new_exponent.eq(self.exponent)
                    m.next = "DONE"
                with m.Elif(low):
                    m.d.sync += self.new_mantissa.eq(self.new_mantissa << 2)
                    m.d.sync += self.new_exponent.eq(self.new_exponent - 1)
                with m.Else():
                    m.next = "DONE"

            with m.State("ALIGN"):
                cut = 2 * (W - 1) - SCALAR_BITS
                squares = self.squares >> cut if cut >= 0 else self.squares << -cut
                m.d.sync += [M.eq(self.new_mantissa << SCALAR_BITS - MANTISSA_BITS), F.eq(squares)]
                # The one that is further below is moved down; beyond 63 places nothing is left.
                far = Mux(v < 0, -v, v) > 31
                with m.If(v < 0):
                    do(Do.SHIFT, squares, amount=Mux(far, -63, v << 1))
                with m.Else():
                    do(Do.SHIFT, self.new_mantissa << SCALAR_BITS - MANTISSA_BITS,
                       amount=Mux(far, -63, -(v << 1)))  # fmt: skip
                m.next = "ALIGNED"
            with m.State("ALIGNED"), m.If(serial.done):
                with m.If(v < 0):
                    m.d.sync += [F.eq(serial.shifted), d.eq(M + serial.shifted)]
                with m.Else():
                    m.d.sync += [M.eq(serial.shifted), d.eq(F + serial.shifted)]
                m.next = "SQUARE"
            with m.State("SQUARE"):
                do(Do.MULTIPLY, d, M)
                m.next = "SQUARED"
            with m.State("SQUARED"), m.If(serial.done):
                m.next = "ROOT"
            with m.State("ROOT"):
                do(Do.ROOT)
                m.next = "ROOTED"
            with m.State("ROOTED"), m.If(serial.done):
                m.next = "BY_D"
            with m.State("BY_D"):
                do(Do.DIVIDE, b=d)
                m.d.sync += M.eq(d + serial.root)
                m.next = "BY_D_DONE"
            with m.State("BY_D_DONE"), m.If(serial.done):
                m.d.sync += of_d.eq(serial.quotient)
                m.next = "BY_ROOT"
            with m.State("BY_ROOT"):
                do(Do.DIVIDE, b=M)
                m.next = "BY_ROOT_DONE"
            with m.State("BY_ROOT_DONE"), m.If(serial.done):
                m.d.sync += of_root.eq(serial.quotient)
                m.next = "DONE"

            with m.State("ROOT_SCALE"):
                exponent = u + self.renormal + Mux(v < 0, v << 1, 0) + c.root_scale_fraction
                do(Do.SHIFT, of_root, amount=_limited(exponent))
                m.next = "ROOT_SCALED"
            with m.State("ROOT_SCALED"), m.If(serial.done):
                m.d.sync += self.root_scale.eq(-_most(serial.shifted, c.scalar_width - 1))
                m.next = "BETA_SCALE"
            with m.State("BETA_SCALE"):
                exponent = u - Mux(v < 0, -v, v) - self.new_exponent + c.beta_scale_fraction
                do(Do.SHIFT, of_d, amount=_limited(exponent))
                m.next = "BETA_SCALED"
            with m.State("BETA_SCALED"), m.If(serial.done):
                large = serial.shifted[c.scalar_width - 2 :].any()
                kept = Mux(large, serial.shifted >> COARSE, serial.shifted)
                m.d.sync += self.beta_scale.eq(_most(kept, c.scalar_width - 2))
                m.d.sync += self.coarse.eq(large)
                m.d.comb += self.done.eq(1)
                m.next = "BOUND"
            # The bound is ready long before it is asked for.
            with m.State("BOUND"):
                do(Do.MULTIPLY, self.new_mantissa, self.limit[8:])
                m.next = "BOUNDED"
            with m.State("BOUNDED"), m.If(serial.done):
                fraction = 2 * c.root_fraction - (W - 1)
                exponent = (
                    self.limit[:8].as_signed()
                    + ((self.new_exponent + self.renormal) << 1)
                    + (fraction - MANTISSA_BITS)
                )
                do(Do.SHIFT, serial.product, amount=_limited(exponent))
                m.next = "BOUND_DONE"
            with m.State("BOUND_DONE"), m.If(serial.done):
                m.d.sync += self.bound.eq(_most(serial.shifted, TRACE_BITS))
                m.next = "IDLE"

            self._mean(m, do, serial)
            with m.State("DONE"):
                m.d.comb += self.done.eq(1)
                m.next = "IDLE"
        return m

    def _mean(self, m: Module, do: Any, serial: Any) -> None:
        n, c = self.config.n, self.config
        places = (n - 1).bit_length()
        cut = 2 * c.fraction - SCORE_CUT
        loss = self.loss >> cut if cut >= 0 else self.loss << -cut
        size = SCORE_CUT + 6 + places  # a mean that needs more is out of range
        huge = loss[size:].any()
        drop = 31 + places + SCORE_CUT - c.score_fraction
        reciprocal = -(-(1 << 31 + places) // n)
        with m.State("MEAN"):
            do(Do.MULTIPLY, loss, reciprocal)
            m.next = "MEAN_DONE"
            if n == 1 << places:
                mean = (loss[:size] + (1 << drop - 32)) >> drop - 31
                m.d.sync += self.score.eq(_most(Mux(huge, (1 << 32) - 1, mean), 31))
                m.d.comb += serial.start.eq(0)
                m.next = "DONE"
        with m.State("MEAN_DONE"), m.If(serial.done):
            mean = (serial.product + (1 << drop - 1)) >> drop
            m.d.sync += self.score.eq(_most(Mux(huge, (1 << 32) - 1, mean), 31))
            m.next = "DONE"


def _most(value: Any, bits: int) -> Any:
    """Return value, at most 2^bits - 1."""
    return Mux(value[bits:].any(), (1 << bits) - 1, value[:bits])


def _limited(amount: Any) -> Any:
    """Return an amount to shift by that fits; beyond WIDE places nothing changes any more."""
    return Mux(amount < -WIDE - 8, -WIDE - 8, Mux(amount > WIDE + 8, WIDE + 8, amount))
