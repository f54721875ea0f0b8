"""The core on integers: what each word does to it, bit for bit as the gateware does it.

One training step, with the symbols of `reference` and `fixed`::

    h = G(x alpha + b)                           a <- 1 while the guard holds
    m 4^z <- m 4^z a^2                           forgetting
    f 2^t = S^'h                                 f: block floating, its squares sum to at most 1
    M, F = m 4^z, f.f brought to one scale       d = M + F
    g 2^u = S^ f                                 g: block floating
    C = -2^(u + s) / (d + sqrt(M d))             q = g C
    R = 2^u / d                                  k = g R
    S^ <- 2^s S^ + q f'                          Potter; s in -1, 0, 1 keeps S^ below 1
    e = x - h beta,  beta <- beta + k e'         Score = e.e / n

A departure from the paper: nothing of size N^2 is multiplied for forgetting, and P cannot lose
symmetry or definiteness, as only its root is stored.
"""

from __future__ import annotations

from math import isqrt
from typing import NamedTuple

import numpy as np

from onlad.hardware import fixed
from onlad.hardware.config import Config
from onlad.hardware.fixed import (
    COARSE,
    EXPONENTS,
    MANTISSA_BITS,
    QUOTIENT_BITS,
    SCALAR_BITS,
    TRACE_BITS,
    TRACE_FRACTION,
    Ints,
)
from onlad.hardware.packets import REFUSED, Ff, Mode, Packet, Reason, Status
from onlad.hardware.seeded import seeded_alpha
from onlad.hardware.sigmoid import sigmoid

SCORE_MOST = (1 << 31) - 1


class Halves(NamedTuple):
    """A matrix of words as two matrices of floats, whose products with such halves are exact."""

    high: fixed.Floats
    low: fixed.Floats

    @classmethod
    def of(cls, words: Ints) -> Halves:
        """Return the halves of words of at most 32 bits."""
        return cls((words >> 16).astype(np.float64), (words & 0xFFFF).astype(np.float64))


def product(vector: Ints, matrix: Halves) -> tuple[Ints, Ints]:
    """Return vector times matrix, exactly: (high, low) mean high 2^32 + low."""
    v = np.stack([(vector >> 16).astype(np.float64), (vector & 0xFFFF).astype(np.float64)])
    by_high, by_low = v @ matrix.high, v @ matrix.low
    middle = by_high[1] + by_low[0]
    low = (middle.astype(np.int64) << 16) + by_low[1].astype(np.int64)
    return by_high[0].astype(np.int64), low


def whole(high: Ints, low: Ints) -> list[int]:
    """Return high 2^32 + low as integers of any size."""
    return [(a << 32) + b for a, b in zip(high.tolist(), low.tolist(), strict=True)]


class Model:
    """An emulated core: a device on packets, with the same calls on whole arrays.

    Attributes
    ----------
    alpha, b, beta, S, x
        The memories, as words.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        n, N = config.n, config.hidden
        self.alpha = np.zeros((n, N), np.int64)
        if config.alpha == "seeded":
            self.alpha = seeded_alpha(config)
        self.b = np.zeros(N, np.int64)
        self.beta = np.zeros((N, n), np.int64)
        self.S = np.zeros((N, N), np.int64)
        self.x = np.zeros(n, np.int64)
        self._reciprocal_shift = 31 + (n - 1).bit_length()
        self._reciprocal = -(-(1 << self._reciprocal_shift) // n)
        self.reset()

    def reset(self) -> None:
        """Pull the reset line: memories stay, registers do not."""
        self.reasons = Reason.NOT_READY
        self.factor, self.limit, self.ridge = 1 << self.config.ff_fraction, 0, 0
        self.mantissa, self.exponent = 1 << MANTISSA_BITS - 2, 0
        self.over = self.near = False  # S^ reaches 1; reaches 1/4
        self._saturated = False
        self.trace = self.trace_sum = 0  # of S^S^': the last full round over the rows; this round
        self.largest = self.largest_row = 0  # of this round
        self.worst_row = 0  # of the last full round
        self.round_row = 0
        self.wound = False
        self.status = [0] * len(Status)
        self._halves: dict[str, Halves] = {}

    # Words ---------------------------------------------------------------------------------

    def accept(self, word: int, last: bool = False) -> list[tuple[int, bool]]:
        """Take one input word; return the answers, at most one, with its TLAST."""
        packet = Packet.decode(word)
        index = np.array([packet.index])
        if packet.read:
            return [(int(self.read(packet.mode, index)[0]), last)]
        if packet.mode is Mode.PREDICT:
            return [(self.predict(packet.index), last)]
        if packet.mode is Mode.TRAIN:
            return [(self.train(packet.index), last)]
        self.write(packet.mode, index, np.array([packet.value]))
        return []

    def _memory(self, mode: Mode) -> tuple[Ints, int]:
        """Return the words behind a mode, flat, and their width."""
        width = self.config.width
        if mode is Mode.ALPHA:
            stored = self.config.alpha != "seeded"
            return self.alpha.reshape(-1)[: None if stored else 0], self.config.alpha_width
        return {Mode.X: self.x, Mode.B: self.b, Mode.BETA: self.beta, Mode.P: self.S}[mode].reshape(
            -1
        ), width

    def write(self, mode: Mode, indices: Ints, values: Ints) -> None:
        """Do what words of `mode` with R = 0 do, for any mode but PREDICT and TRAIN."""
        if mode is Mode.FF:
            for index, value in zip(indices.tolist(), values.tolist(), strict=True):
                self._write_register(index, value)
            return
        memory, width = self._memory(mode)
        inside = indices < memory.size
        fits = (values >= -(1 << width - 1)) & (values < 1 << width - 1)
        if not inside.all():
            self.reasons |= Reason.BAD_INDEX
        if not fits[inside].all():
            self.reasons |= Reason.BAD_VALUE
        good = inside & fits
        memory[indices[good]] = values[good]
        self._halves.pop(mode.name, None)
        if mode is Mode.P:
            self._look_at(values[good])

    def _write_register(self, index: int, value: int) -> None:
        factor_top = 1 << self.config.ff_fraction
        data_top = 1 << self.config.width - 1
        good = {
            Ff.FACTOR: 0 < value <= factor_top,
            Ff.LIMIT: value >= 0,
            Ff.RIDGE: 0 <= value < data_top,
            Ff.MANTISSA: value >= 1 << MANTISSA_BITS - 2,
            Ff.EXPONENT: value in EXPONENTS,
        }
        if index >= len(Ff):
            self.reasons |= Reason.BAD_INDEX
        elif not good[Ff(index)]:
            self.reasons |= Reason.BAD_FACTOR
        else:
            setattr(self, Ff(index).name.lower(), value)
            if index == Ff.FACTOR:
                self.reasons &= ~Reason.NOT_READY

    def read(self, mode: Mode, indices: Ints) -> Ints:
        """Return the answers to words of `mode` with R = 1, as 32-bit words without sign."""
        if mode is Mode.PREDICT:
            words = np.array(self.config.describe())
        elif mode is Mode.TRAIN:
            self.status[Status.REASONS] = int(self.reasons)
            words = np.array(self.status)
        elif mode is Mode.FF:
            words = np.array([getattr(self, name.lower()) for name in Ff.__members__])
        else:
            words = self._memory(mode)[0]
        inside = indices < words.size
        if not inside.all():
            self.reasons |= Reason.BAD_INDEX
        found = np.zeros(indices.shape, np.int64)
        found[inside] = words[indices[inside]]
        return found & 0xFFFFFFFF

    def predict(self, index: int = 0) -> int:
        """Do a prediction; return Score, or why it was refused."""
        if refused := self._refuse(index, 0):
            return refused
        h, _ = self._hidden()
        return self._score(self._errors(h, self.x)[0])

    def train(self, index: int = 0) -> int:
        """Do a training step; return Success, with index 1 Score, or why it was refused."""
        if refused := self._refuse(index, 1):
            return refused
        self._count(Status.TRAINED)
        h, self._saturated = self._hidden()
        score = None if self._saturated else self._learn(h, self.x, self.wound)
        if score is None:
            self._count(Status.SINGULAR)
        else:
            if self.wound:
                self._count(Status.PAUSED)
            self._measure_row()
            self._compare()
            if self.wound:
                self._restore()
        if self._saturated:
            self._count(Status.SATURATED)
        if index == 0:
            return int(score is not None)
        return REFUSED | Reason.SINGULAR if score is None else score

    def _refuse(self, index: int, most: int) -> int:
        if index > most:
            self.reasons |= Reason.BAD_INDEX
        if not self.reasons:
            return 0
        answer = REFUSED | int(self.reasons)
        self.reasons &= Reason.NOT_READY
        return answer

    def _count(self, status: Status) -> None:
        self.status[status] = (self.status[status] + 1) & 0xFFFF

    # Arithmetic ----------------------------------------------------------------------------

    def _matrix(self, mode: Mode, words: Ints) -> Halves:
        if mode.name not in self._halves:
            self._halves[mode.name] = Halves.of(words)
        return self._halves[mode.name]

    def _hidden(self) -> tuple[Ints, bool]:
        """Return h, and whether a sum was cut to its range."""
        config = self.config
        high, low = product(self.x, self._matrix(Mode.ALPHA, self.alpha))
        z, cut = self._round(high, self._cut(low), config.alpha_fraction, self.b)
        if config.activation == "sigmoid":
            return sigmoid(z, config.fraction), False  # flat where z is cut
        return z, cut

    def _errors(self, h: Ints, x: Ints) -> tuple[Ints, bool]:
        high, low = product(h, self._matrix(Mode.BETA, self.beta))
        return self._round(-high, -self._cut(low), self.config.fraction, x)

    def _cut(self, low: Ints) -> Ints:
        return low >> self.config.sum_cut << self.config.sum_cut

    def _sums(self, vector: Ints, matrix: Halves) -> list[int]:
        return [v >> self.config.sum_cut for v in whole(*product(vector, matrix))]

    def _round(self, high: Ints, low: Ints, shift: int, base: Ints) -> tuple[Ints, bool]:
        rounded = base + (high << 32 - shift) + fixed.round_shift(low, shift)
        word = fixed.saturate(rounded, self.config.width)
        return word, bool((word != rounded).any())

    def _score(self, e: Ints) -> int:
        """Return the mean square of e: E times a reciprocal of n, rounded half up."""
        squares = e * e
        total = (int((squares >> 32).sum()) << 32) + int((squares & 0xFFFFFFFF).sum())
        # E with 36 fraction bits is finer than Score by a thousand; its floor is divided by n.
        cut = 2 * self.config.fraction - 36
        total = total >> cut if cut > 0 else total << -cut
        shift = self._reciprocal_shift + 36 - self.config.score_fraction
        return min((total * self._reciprocal + (1 << shift - 1)) >> shift, SCORE_MOST)

    def _learn(self, h: Ints, x: Ints, held: bool) -> int | None:
        """Learn a sample and return its score. None: nothing was learned, nothing has changed."""
        gain = self._root_step(h, held)
        if gain is None:
            return None
        k, shift = gain
        e, cut = self._errors(h, x)
        beta = fixed.product_shift(e[None, :], k[:, None], shift, self.beta)
        self.beta = fixed.saturate(beta, self.config.width)
        self._saturated |= cut or bool((beta != self.beta).any())
        self._halves.pop(Mode.BETA.name, None)
        return self._score(e)

    def _root_step(self, h: Ints, held: bool) -> tuple[Ints, int] | None:
        """Let S^ learn h; return the gain k and its fraction bits."""
        W, hb = self.config.width, self.config.headroom
        m, z = (self.mantissa, self.exponent) if held else self._forget()
        S = Halves.of(self.S)
        sums = self._sums(h, S)
        t = fixed.bit_length(sums)
        if t == 0:
            return None
        f = _shifted(sums, t + hb - (W - 1))
        sums = self._sums(f, Halves(S.high.T, S.low.T))
        u = fixed.bit_length(sums)
        g = _shifted(sums, u - (W - 2))
        s = -1 if self.over else 0 if self.near else 1
        if not EXPONENTS[0] <= z + s <= EXPONENTS[-1]:
            s = 0
        C, R, k_fraction = self._scales(f, t, u, s, (m, z))
        q, k = self._scaled(g, C), self._scaled(g, R)
        base = self.S << 1 if s > 0 else self.S >> -s
        root = fixed.product_shift(f[None, :], q[:, None], self.config.write_shift, base)
        self.S = fixed.saturate(root, W)
        self._saturated |= bool((root != self.S).any())
        self.mantissa, self.exponent = m, z + s
        self.over = self.near = False
        self._look_at(self.S)
        self.trace = _shift(self.trace, 2 * s, TRACE_BITS)
        self.trace_sum = _shift(self.trace_sum, 2 * s, TRACE_BITS)
        self.largest = _shift(self.largest, 2 * s, TRACE_BITS)
        return k, k_fraction

    def _forget(self) -> tuple[int, int]:
        """Return m and z after m 4^z <- m 4^z a^2."""
        m, z, fraction = self.mantissa, self.exponent, self.config.ff_fraction
        m = m * self.factor >> fraction
        m = m * self.factor >> fraction
        while m < 1 << MANTISSA_BITS - 2 and m:
            if z == EXPONENTS[0]:
                return self.mantissa, self.exponent  # as far as it goes: forgetting pauses
            m, z = m << 2, z - 1
        return (m, z) if m else (self.mantissa, self.exponent)

    def _scales(
        self, f: Ints, t: int, u: int, s: int, scale: tuple[int, int]
    ) -> tuple[int, int, int]:
        """Return C, R and the fraction bits of k. C is negative: q f' is added to S^."""
        config, W, hb = self.config, self.config.width, self.config.headroom
        m, z = scale
        v = t + config.sum_cut + 2 * hb - (W - 1) - config.fraction - z  # f 2^v: to the scale of m
        F = _shift(sum(w * w for w in f.tolist()), SCALAR_BITS - 2 * (W - 1))
        M = m << SCALAR_BITS - MANTISSA_BITS
        M, F = M >> min(2 * max(v, 0), 63), F >> min(2 * max(-v, 0), 63)
        d = M + F
        one = 1 << SCALAR_BITS + QUOTIENT_BITS
        of_root, of_d = one // (d + isqrt(M * d)), one // d
        u += config.sum_cut + 1 + hb - 2 * (W - 1) - QUOTIENT_BITS
        width, k_fraction = config.scalar_width, config.write_shift
        C = _shift(of_root, u + s + 2 * min(v, 0) + config.root_scale_fraction, width - 1)
        # |g| is at most 1/2, so no k is out of range while R needs one bit less than a scalar has.
        # k grows with the root of P; cutting single entries would turn it out of its direction.
        R = _shift(of_d, u - abs(v) - z + config.beta_scale_fraction)
        if R >> width - 2:
            R = _shift(R, -COARSE, width - 2)
            k_fraction -= COARSE
        return -C, R, k_fraction

    def _scaled(self, g: Ints, scale: int) -> Ints:
        word = fixed.product_shift(g, np.int64(scale), self.config.write_shift)
        return fixed.saturate(word, self.config.scalar_width)

    def _look_at(self, words: Ints) -> None:
        """Note whether words of S^ reach 1, or 1/4."""
        if words.size:
            size = int(np.where(words < 0, ~words, words).max())
            self.over |= size >> self.config.root_fraction > 0
            self.near |= size >> self.config.root_fraction - 2 > 0

    # The wind-up guard -----------------------------------------------------------------------

    def _row(self, i: int) -> int:
        squares = self.S[i] * self.S[i]
        total = (int((squares >> 32).sum()) << 32) + int((squares & 0xFFFFFFFF).sum())
        return total >> 2 * self.config.root_fraction - TRACE_FRACTION

    def _measure_row(self) -> None:
        """Add one row of S^ to the trace of this round; a round takes N steps."""
        size = self._row(self.round_row)
        self.trace_sum = min(self.trace_sum + size, (1 << TRACE_BITS) - 1)
        if self.round_row == 0 or size > self.largest:
            self.largest, self.largest_row = size, self.round_row
        self.round_row += 1
        if self.round_row == self.config.hidden:
            self.trace, self.worst_row = self.trace_sum, self.largest_row
            self.trace_sum = self.round_row = 0

    def _compare(self) -> None:
        """Note whether trace(P) is above the limit."""
        mantissa, exponent = self.limit >> 8, (self.limit & 0xFF) - ((self.limit & 0x80) << 1)
        bound = mantissa * self.mantissa  # 31 fraction bits
        shift = exponent + 2 * self.exponent + TRACE_FRACTION - MANTISSA_BITS
        bound = _shift(bound, shift, TRACE_BITS)
        self.wound = bool(mantissa) and self.trace > bound

    def _restore(self) -> None:
        """Put the forgotten ridge back for the worst row: learn h = w e_k with x = 0."""
        h = np.zeros(self.config.hidden, np.int64)
        h[self.worst_row] = self.ridge
        if self._learn(h, np.zeros_like(self.x), True) is not None:
            self.trace_sum = self.round_row = 0
            for _ in range(self.config.hidden):
                self._measure_row()
            self._compare()


def _shifted(sums: list[int], shift: int) -> Ints:
    """Return sums / 2^shift, rounded half up, or exact to the left."""
    if shift <= 0:
        return np.array([v << -shift for v in sums], np.int64)
    return np.array([(v + (1 << shift - 1)) >> shift for v in sums], np.int64)


def _shift(value: int, shift: int, most: int | None = None) -> int:
    """Return the floor of value 2^shift, at most 2^most - 1."""
    value = value << min(shift, 128) if shift >= 0 else value >> min(-shift, 128)
    return value if most is None else min(value, (1 << most) - 1)
