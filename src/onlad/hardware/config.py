"""What fixes a core before it is built: sizes, lanes, options, and the formats that follow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, log2
from typing import Literal, TypeAlias

from onlad.hardware.packets import MAGIC, VERSION

Activation: TypeAlias = Literal["identity", "sigmoid"]
Storage: TypeAlias = Literal["stored", "narrow", "seeded"]

ACTIVATIONS: tuple[Activation, ...] = ("identity", "sigmoid")
STORAGES: tuple[Storage, ...] = ("stored", "narrow", "seeded")
FRACTIONS = {32: 24, 25: 17, 18: 12}  # of data, by width of a word: the page ONLAD Core says why
LANES = (1, 2, 4, 8, 16, 32)
MOST_FEATURES, MOST_HIDDEN = 4096, 256


@dataclass(frozen=True)
class Config:
    """A core: `n` features, `hidden` units, `lanes` multipliers side by side.

    Any two sizes go together, but a lane needs a column to work on: ``lanes <= min(n, hidden)``.

    >>> Config(n=512, hidden=64, lanes=12)
    Traceback (most recent call last):
    ValueError: lanes must be one of 1, 2, 4, 8, 16, 32, got 12
    """

    n: int
    hidden: int
    lanes: int = 8
    activation: Activation = "identity"
    width: int = 32  # bits of a word of alpha, beta, S, b and x
    alpha: Storage = "stored"  # narrow: 18 bits; seeded: no memory at all, made again each step
    seed: int = 1  # of alpha, if it is seeded

    def __post_init__(self) -> None:
        for name, value, most in (
            ("n", self.n, MOST_FEATURES),
            ("hidden", self.hidden, MOST_HIDDEN),
        ):
            if not 2 <= value <= most:
                raise ValueError(f"{name} must be in 2 to {most}, got {value!r}")
        _one_of("lanes", self.lanes, LANES)
        _one_of("activation", self.activation, ACTIVATIONS)
        _one_of("width", self.width, tuple(FRACTIONS))
        _one_of("alpha", self.alpha, STORAGES)
        if self.lanes > min(self.n, self.hidden):
            raise ValueError(
                f"lanes must be at most min(n, hidden) = {min(self.n, self.hidden)},"
                f" got {self.lanes}; take fewer lanes"
            )
        if not 0 < self.seed < 1 << 32:
            raise ValueError(f"seed must be in 1 to 2**32 - 1, got {self.seed!r}")

    # Formats. A word w with f fraction bits means w / 2^f. ------------------------------------

    @cached_property
    def fraction(self) -> int:
        """Fraction bits of data: x, b, h, e and beta."""
        return FRACTIONS[self.width]

    @cached_property
    def alpha_width(self) -> int:
        """Bits of a word of alpha."""
        return self.width if self.alpha == "stored" else 18

    @cached_property
    def alpha_fraction(self) -> int:
        """Fraction bits of alpha; narrow, it must lie within [-1, 1)."""
        return self.fraction if self.alpha == "stored" else 17

    @cached_property
    def ff_fraction(self) -> int:
        """Fraction bits of the forgetting factor a."""
        return 30

    @cached_property
    def score_fraction(self) -> int:
        """Fraction bits of Score."""
        return 26

    @cached_property
    def scalar_width(self) -> int:
        """Bits of what all lanes multiply by: both halves of it fill one side of a multiplier."""
        return 18 if self.width == 18 else 35

    @cached_property
    def headroom(self) -> int:
        """Return the least k with N <= 4^k: a row of S is at most 2^k times its largest entry."""
        return ceil(log2(self.hidden) / 2)

    @cached_property
    def root_fraction(self) -> int:
        """Fraction bits of S. Kept below 1, no step can take an entry out of range."""
        return self.width - 1 - self.headroom

    @cached_property
    def gain_fraction(self) -> int:
        """Fraction bits of q, by which S is corrected: it is below 4^(headroom + 1)."""
        room = self.scalar_width - 1 - 2 * self.headroom
        return min(room - 2, (self.width - 1 + room - 4 - self.headroom) // 2)

    @cached_property
    def write_shift(self) -> int:
        """Bits that every product loses before it is added to a stored word."""
        return self.gain_fraction + self.headroom

    @cached_property
    def root_scale_fraction(self) -> int:
        """Fraction bits of C, by which g becomes q."""
        return self.write_shift + self.gain_fraction - (self.width - 1)

    @cached_property
    def beta_scale_fraction(self) -> int:
        """Fraction bits of R, by which g becomes k."""
        return 2 * self.write_shift - (self.width - 1)

    @cached_property
    def accumulator_width(self) -> int:
        """Bits that hold any sum of products exactly."""
        longest = ceil(log2(max(self.n, self.hidden)))
        return max(2 * self.width + longest, self.width + self.scalar_width + 1)

    @cached_property
    def sum_cut(self) -> int:
        """Lowest bits that a sum loses when it leaves the lanes; they are below its rounding."""
        return min(self.fraction, self.alpha_fraction, 17) - 1

    @cached_property
    def sum_width(self) -> int:
        """Bits of a sum that has left the lanes."""
        return self.accumulator_width - self.sum_cut

    @cached_property
    def alpha_row(self) -> int:
        """Words of a bank that hold a row of alpha, or of S."""
        return -(-self.hidden // self.lanes)

    @cached_property
    def beta_row(self) -> int:
        """Words of a bank that hold a row of beta."""
        return -(-self.n // self.lanes)

    def describe(self) -> list[int]:
        """Return the words of `packets.Describe`."""
        formats = (self.width, self.fraction, self.ff_fraction, self.score_fraction)
        options = (
            ACTIVATIONS.index(self.activation),
            STORAGES.index(self.alpha),
            self.alpha_width,
            0,
        )
        return [
            MAGIC << 8 | VERSION,
            self.n,
            self.hidden,
            self.lanes,
            int.from_bytes(bytes(formats), "little"),
            int.from_bytes(bytes(options), "little"),
            self.seed,
        ]


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(str, allowed))}, got {value!r}")
