"""What a module of the core is, and what the modules say to each other: their signatures."""

from __future__ import annotations

from typing import Any, TypeAlias

from amaranth.hdl import Module, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, Signature
from amaranth.utils import ceil_log2

from onlad.hardware.config import Config
from onlad.hardware.fixed import MANTISSA_BITS, TRACE_BITS
from onlad.hardware.packets import INDEX_BITS, Mode
from onlad.hardware.rtl.operations import Op, issue_layout

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


def decoded(config: Config) -> Signature:
    """Return a word of the host: where it belongs, whether index and value are in range."""
    return Signature(
        {
            "present": Out(1),
            "word": Out(WORD),
            "lane": Out(max(1, ceil_log2(config.lanes))),
            "place": Out(issue_layout(config)["word"].shape),
            "inside": Out(1),
            "fits": Out(1),
        }
    )


def host_write(config: Config) -> Signature:
    """Return how the host writes the memories: never while a step is under way."""
    return Signature(
        {
            "mode": Out(Mode),
            "write": Out(1),
            "lane": Out(max(1, ceil_log2(config.lanes))),
            "word": Out(issue_layout(config)["word"].shape),
            "value": Out(signed(config.width)),
        }
    )


def request_layout(config: Config) -> data.StructLayout:
    """Return what a module asks of `Walk`: a pass over the blocks or rows `start` to `end`."""
    most = max(config.hidden, config.beta_row)
    return data.StructLayout(
        {"valid": 1, "op": Op, "start": ceil_log2(most), "end": ceil_log2(most), "slot": 1}
    )


def passes(config: Config) -> Signature:
    """Return how a module asks for passes; `settled`: nothing is under way anywhere."""
    return Signature(
        {"request": Out(request_layout(config)), "taken": In(1), "settled": In(1)},
    )


def parameters(config: Config) -> Signature:
    """Return how the lanes reach alpha, S and beta.

    An address in cycle 1, words in cycle 2; words to write back, and where, in cycle 9.
    """
    layout, lanes, width = issue_layout(config), config.lanes, config.width
    return Signature(
        {
            "address": Out(layout),
            "alpha": In(signed(config.alpha_width)).array(lanes),
            "root": In(signed(width)).array(lanes),
            "beta": In(signed(width)).array(lanes),
            "stored": Out(signed(width)).array(lanes),
            "write_root": Out(1),
            "write_beta": Out(1),
            "write_word": Out(layout["word"].shape),
        }
    )


def scaling(config: Config) -> Signature:
    """Return what Train Module asks of `Scalars`.

    forget, scale, finish, limiting
        Start: m 4^z <- m 4^z a^2; the quotients of d; C and R; the bound.
    held
        Forget nothing.
    mantissa, exponent, renormal
        m and z, and how S will be scaled: -1, 0 or 1.
    forward_length, gain_length
        Lengths of the sums of f and g.
    done, idle
        For a cycle; nothing is under way.
    new_mantissa, new_exponent, bound
        After forgetting; from which trace of S S' on the guard acts.
    """
    length = range(config.sum_width)
    return Signature(
        {
            "forget": Out(1),
            "scale": Out(1),
            "finish": Out(1),
            "limiting": Out(1),
            "held": Out(1),
            "mantissa": Out(MANTISSA_BITS, init=1 << MANTISSA_BITS - 2),
            "exponent": Out(signed(6)),
            "renormal": Out(signed(2)),
            "forward_length": Out(length),
            "gain_length": Out(length),
            "done": In(1),
            "idle": In(1),
            "new_mantissa": In(MANTISSA_BITS),
            "new_exponent": In(signed(7)),
            "bound": In(TRACE_BITS),
        }
    )


def normalising(config: Config) -> Signature:
    """Return what Train Module asks of `Normalise`.

    clear
        Forget what was kept.
    start, gain
        Give all words: of f, or of g.
    length
        Bits, without sign, of the widest sum, two cycles after `start`.
    done
        The last word has left.
    """
    return Signature(
        {
            "clear": Out(1),
            "start": Out(1),
            "gain": Out(1),
            "length": In(range(config.sum_width)),
            "done": In(1),
        }
    )
