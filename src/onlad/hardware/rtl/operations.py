"""What the lanes can do in a cycle, and the word that tells them."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal, unsigned
from amaranth.lib import data, enum
from amaranth.utils import ceil_log2

from onlad.hardware.config import Config


class Op(enum.Enum, shape=unsigned(4)):  # type: ignore[call-arg]
    """One product per lane: where its factors come from and where it goes."""

    HIDDEN = 0  # x_i alpha_ij, summed in the lanes
    FORWARD = 1  # h_i S_ij, summed in the lanes
    ERRORS = 2  # h_i beta_ij, summed in the lanes
    SQUARE = 3  # f_j f_j, summed across the lanes
    GAIN = 4  # S_ij f_j, summed across the lanes
    LOSS = 5  # e_j e_j, summed across the lanes
    ROW = 6  # S_ij S_ij, summed across the lanes
    ROOT_GAIN = 7  # g_j C, kept as q
    BETA_GAIN = 8  # g_j R, kept as k
    ROOT = 9  # q_i f_j, added to S_ij
    TEACH = 10  # k_i e_j, added to beta_ij


SUMMED_IN_LANES = (Op.HIDDEN, Op.FORWARD, Op.ERRORS)
SUMMED_ACROSS = (Op.SQUARE, Op.GAIN, Op.LOSS, Op.ROW)
KEPT = (Op.ROOT_GAIN, Op.BETA_GAIN)
OF_VECTORS = (Op.SQUARE, Op.GAIN, Op.LOSS, *KEPT, Op.ROOT, Op.TEACH)  # f_j, g_j or e_j is a factor


def issue_layout(config: Config) -> data.StructLayout:
    """Return the word that goes down the pipeline with each product."""
    scalars = max(config.n, 2 * config.alpha_row * config.lanes)
    rows = max(config.n, config.hidden)  # of alpha, or of S
    words = max(rows * config.alpha_row, config.hidden * config.beta_row)
    return data.StructLayout(
        {
            "valid": 1,
            "op": Op,
            "first": 1,  # of a sum
            "last": 1,  # of a sum
            "scalar": ceil_log2(scalars),  # what all lanes multiply by: x_i, h_i, q_i or k_i
            "word": ceil_log2(words),  # of each bank of alpha, S or beta
            "vector": ceil_log2(2 * config.alpha_row + 2),  # of each lane's f, g or e
        }
    )


def is_any(value: Any, wanted: tuple[Any, ...]) -> Any:
    """Return whether `value` is one of `wanted`."""
    found: Any = value == wanted[0]
    for other in wanted[1:]:
        found = found | (value == other)
    return found


def delayed(m: Module, signal: Any, cycles: int, name: str) -> list[Any]:
    """Return `signal` and its copies 1 to `cycles` cycles later."""
    stages = [signal]
    for k in range(1, cycles + 1):
        later = Signal(signal.shape(), name=f"{name}_{k}")
        m.d.sync += later.eq(stages[-1])
        stages.append(later)
    return stages


def magnitude(value: Any) -> Any:
    """Return the bits of a signed value, inverted if it is negative, without the sign."""
    bits = len(value) - 1
    return value[:bits] ^ value[bits].replicate(bits)
