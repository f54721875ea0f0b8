"""What a module of the core is, and what the modules say to each other.

`Op` is what the lanes can do in a cycle. Signatures are those of the module that asks.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from amaranth.hdl import Module, Signal, signed, unsigned
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out, Signature
from amaranth.utils import ceil_log2

from onlad.hardware.config import Config
from onlad.hardware.fixed import MANTISSA_BITS, TRACE_BITS
from onlad.hardware.packets import INDEX_BITS, Mode

Ports: TypeAlias = dict[str, Any]
WORD = data.StructLayout({"mode": Mode, "read": 1, "index": INDEX_BITS, "value": signed(32)})


class Part(wiring.Component):
    """A module of the core: `ports` go in and out, `build` says what is between them."""

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(self.ports(config))

    def ports(self, c: Config) -> Ports:
        raise NotImplementedError

    def build(self, m: Module) -> None:
        raise NotImplementedError

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        self.build(m)
        return m


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


def signature(**members: Any) -> Signature:
    """Return a signature by the names of its members."""
    return Signature(members)


def decoded(config: Config) -> Signature:
    """Return a word of the host: where it belongs, whether index and value are in range."""
    return signature(
        present=Out(1),
        word=Out(WORD),
        lane=Out(max(1, ceil_log2(config.lanes))),
        place=Out(issue_layout(config)["word"].shape),
        inside=Out(1),
        fits=Out(1),
    )


def host_write(config: Config) -> Signature:
    """Return how the host writes the memories: never while a step is under way."""
    return signature(
        mode=Out(Mode),
        write=Out(1),
        lane=Out(max(1, ceil_log2(config.lanes))),
        word=Out(issue_layout(config)["word"].shape),
        value=Out(signed(config.width)),
    )


def passes(config: Config) -> Signature:
    """Return how a module asks `Walk` for a pass over the blocks or rows `start` to `end`.

    It is `settled` when nothing is under way anywhere.
    """
    place = ceil_log2(max(config.hidden, config.beta_row))
    request = data.StructLayout({"valid": 1, "op": Op, "start": place, "end": place, "slot": 1})
    return signature(request=Out(request), taken=In(1), settled=In(1))


def parameters(config: Config) -> Signature:
    """Return how the lanes reach alpha, S and beta.

    An address in cycle 1, words in cycle 2; words to write back, and where, in cycle 9.
    """
    layout, lanes, width = issue_layout(config), config.lanes, config.width
    return signature(
        address=Out(layout),
        alpha=In(signed(config.alpha_width)).array(lanes),
        root=In(signed(width)).array(lanes),
        beta=In(signed(width)).array(lanes),
        stored=Out(signed(width)).array(lanes),
        write_root=Out(1),
        write_beta=Out(1),
        write_word=Out(layout["word"].shape),
    )


def scaling(config: Config) -> Signature:
    """Return what Train Module asks of `Scalars`."""
    length = range(config.sum_width)
    return signature(
        forget=Out(1),  # start: m 4^z <- m 4^z a^2
        scale=Out(1),  # start: the quotients of d
        finish=Out(1),  # start: C and R
        limiting=Out(1),  # start: the bound
        held=Out(1),  # forget nothing
        mantissa=Out(MANTISSA_BITS, init=1 << MANTISSA_BITS - 2),  # m
        exponent=Out(signed(6)),  # z
        renormal=Out(signed(2)),  # how S will be scaled: -1, 0 or 1
        forward_length=Out(length),  # of the sums of f
        gain_length=Out(length),  # of the sums of g
        done=In(1),  # for a cycle
        idle=In(1),  # nothing is under way
        new_mantissa=In(MANTISSA_BITS),  # after forgetting
        new_exponent=In(signed(7)),
        bound=In(TRACE_BITS),  # from which trace of S S' on the guard acts
    )


def normalising(config: Config) -> Signature:
    """Return what Train Module asks of `Normalise`."""
    return signature(
        clear=Out(1),  # forget what was kept
        start=Out(1),  # give all words
        gain=Out(1),  # of g; else of f
        length=In(range(config.sum_width)),  # bits, without sign, of the widest sum
        done=In(1),  # the last word has left
    )


def is_any(value: Any, wanted: tuple[Any, ...]) -> Any:
    """Return whether `value` is one of `wanted`."""
    found: Any = value == wanted[0]
    for other in wanted[1:]:
        found = found | (value == other)
    return found


def choose(
    m: Module, domain: str, target: Any, value: Any, cases: dict[Any, Any], other: Any = None
) -> None:
    """Let `target` be what `cases` has for `value`; else `other`, or what it was."""
    with m.Switch(value):
        for case, found in cases.items():
            with m.Case(*(case if isinstance(case, tuple) else (case,))):
                m.d[domain] += target.eq(found)
        if other is not None:
            with m.Default():
                m.d[domain] += target.eq(other)


def ask(m: Module, passes: Any, op: Any, start: Any = 0, end: Any = 0) -> Any:
    """Ask for a pass; return the condition that it is taken."""
    m.d.comb += [
        passes.request.valid.eq(1),
        passes.request.op.eq(op),
        passes.request.start.eq(start),
        passes.request.end.eq(end),
    ]
    return m.If(passes.taken)


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
