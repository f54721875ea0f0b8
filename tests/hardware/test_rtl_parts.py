"""Parts of the gateware against their twins on integers, in Amaranth's own simulator."""

import importlib
import inspect
import pkgutil
import random
from math import isqrt

import numpy as np
import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.sim import Simulator

from onlad.hardware import fixed, rtl
from onlad.hardware.config import Config
from onlad.hardware.rtl.finish import Curve
from onlad.hardware.rtl.interfaces import Part
from onlad.hardware.rtl.lane import Lane, Multiplier, placed
from onlad.hardware.rtl.normalise import Normalise
from onlad.hardware.rtl.scalars import DIVISOR, SHORT, WIDE, Do, Serial
from onlad.hardware.sigmoid import sigmoid

WIDTHS = [32, 25, 18]
COMPONENTS = {
    cls
    for found in pkgutil.iter_modules(rtl.__path__, f"{rtl.__name__}.")
    for cls in vars(importlib.import_module(found.name)).values()
    if inspect.isclass(cls) and issubclass(cls, wiring.Component) and cls.__module__ == found.name
    if cls is not Part
}
ARGUMENTS = {"count": 2, "depth": 4, "shape": 8}


def run(part, bench):
    simulator = Simulator(part)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()


def words(width, count, seed=0):
    """Return signed words: the ends of the range, small ones, and any."""
    rng = random.Random(seed)
    top = 1 << width - 1
    ends = [-top, -top + 1, -1, 0, 1, top - 1]
    return ends + [rng.randrange(-top, top) >> rng.randrange(width) for _ in range(count)]


@pytest.mark.parametrize("component", sorted(COMPONENTS, key=lambda cls: cls.__name__))
def test_a_component_can_be_made_and_uses_what_it_declares(component):
    known = ARGUMENTS | {"config": Config(n=16, hidden=8, lanes=2)}
    arguments = {name: known[name] for name in inspect.signature(component).parameters}
    rtlil.convert(component(**arguments))  # Amaranth warns of what was never used


@pytest.mark.parametrize("component", sorted(COMPONENTS, key=lambda cls: cls.__name__))
def test_a_port_says_what_it_is_or_goes_with_one_that_does(component):
    source = inspect.getsource(component.ports if issubclass(component, Part) else component)
    lines = [line.strip() for line in source.partition("{\n")[2].partition("}\n")[0].splitlines()]
    assert lines
    # An interface has its own docstring; a stream has four wires, of which the first has words.
    told = [k for k, line in enumerate(lines) if "#" in line or "(c))," in line]
    for k, line in enumerate(lines):
        assert any(0 <= k - words < 4 for words in told), line


@pytest.mark.parametrize("width", WIDTHS)
def test_products_come_three_cycles_after_their_factors(width):
    config = Config(n=16, hidden=16, width=width)
    part = Multiplier(config)
    factors = list(zip(words(width, 60), reversed(words(config.scalar_width, 60)), strict=True))

    async def bench(ctx):
        for k, (a, b) in enumerate([*factors, (0, 0), (0, 0), (0, 0)]):
            ctx.set(part.a, a)
            ctx.set(part.b, b)
            if k >= 3:
                assert ctx.get(part.product) == factors[k - 3][0] * factors[k - 3][1]
            await ctx.tick()

    run(part, bench)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("renormal", [-1, 0, 1, "coarse"])
def test_a_lane_adds_rounds_and_saturates_as_defined(width, renormal):
    config = Config(n=16, hidden=16, width=width)
    part, shift = Lane(config), config.write_shift
    coarse = renormal == "coarse"
    renormal = 0 if coarse else renormal

    async def bench(ctx):
        ctx.set(part.replace, 1)
        ctx.set(part.step, 1)
        ctx.set(part.coarse, coarse)
        for a, b, old in zip(
            words(width, 40, 1), reversed(words(config.scalar_width, 40, 2)), words(width, 40, 3),
            strict=True,
        ):  # fmt: skip
            ctx.set(part.a, a)
            ctx.set(part.b, b)
            half = 1 << (0 if coarse else 8)
            place = 1 if coarse else 9
            moved = old << 1 if renormal > 0 else old >> -renormal
            ctx.set(part.base, (moved << place) + half)
            for _ in range(5):
                await ctx.tick()
            exact = fixed.product_shift(
                np.int64(a), np.int64(b), shift - 8 * coarse, np.int64(moved)
            )
            top = (1 << width - 1) - 1
            result = min(max(int(exact), -top - 1), top)
            found = ctx.get(part.result)
            assert (found & top) - (top + 1) * (found < 0) == result  # low bits and sign
            assert ctx.get(part.cut) == (result != exact)

    run(part, bench)


def test_a_stored_word_has_its_place():
    m, word = Module(), Signal(signed(6))
    made = [Signal(signed(20), name=f"made{k}") for k in range(4)]
    for k, bits in enumerate((placed(word), placed(word, 1), placed(word, -1))):
        m.d.comb += made[k].eq(bits.as_signed())
    m.d.comb += made[3].eq(placed(word, coarse=True).as_signed())
    m.d.sync += Signal().eq(0)  # or there would be no clock

    async def bench(ctx):
        for value in range(-32, 32):
            ctx.set(word, value)
            await ctx.delay(1e-9)
            moved = (value << 9, value << 10, value >> 1 << 9, value << 1)
            for signal, exact, half in zip(made, moved, (256, 256, 256, 1), strict=True):
                assert ctx.get(signal) == exact + half

    run(m, bench)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_curve_is_its_table(width):
    config = Config(n=16, hidden=16, width=width, activation="sigmoid")
    part = Curve(config)
    inputs = np.array(words(width, 300, 4))
    exact = sigmoid(inputs, config.fraction).tolist()

    async def bench(ctx):
        for k, z in enumerate([*inputs.tolist(), *[0] * 6]):
            ctx.set(part.z, z)
            if k >= 6:
                assert ctx.get(part.value) == exact[k - 6]
            await ctx.tick()

    run(part, bench)


async def perform(ctx, part, do, a=0, b=0):
    ctx.set(part.start, 1)
    ctx.set(part.do, do)
    ctx.set(part.a, a)
    ctx.set(part.b, b)
    await ctx.tick()
    ctx.set(part.start, 0)
    await ctx.tick().until(part.done)


def test_serial_products_roots_and_quotients_are_exact():
    part, rng = Serial(Config(2, 2, 1)), random.Random(5)

    async def bench(ctx):
        for _ in range(12):
            a, b = rng.randrange(1 << WIDE), rng.randrange(1 << SHORT)
            await perform(ctx, part, Do.MULTIPLY, a, b)
            assert ctx.get(part.product) == a * b
            a, b = rng.randrange(1 << SHORT), rng.randrange(1 << SHORT)
            await perform(ctx, part, Do.MULTIPLY, a, b)
            await perform(ctx, part, Do.ROOT)
            assert ctx.get(part.found) == isqrt(a * b)
            b = rng.randrange((1 << 30) + 1, 1 << DIVISOR - 1) >> rng.randrange(13) | 1 << 30
            await perform(ctx, part, Do.DIVIDE, 0, b)
            assert ctx.get(part.found) == (1 << 80) // b

    run(part, bench)


@pytest.mark.parametrize("width", WIDTHS)
def test_normalised_words_share_one_exponent(width):
    config = Config(n=16, hidden=5, lanes=1, width=width)
    part, rng = Normalise(config), random.Random(6)
    size = config.sum_width

    async def bench(ctx):
        for case in range(24):
            bits = rng.randrange(1, size)
            sums = [rng.randrange(-(1 << bits - 1), 1 << bits - 1) for _ in range(5)]
            if case == 0:
                sums = [0] * 5
            ctx.set(part.train.clear, 1)
            await ctx.tick()
            ctx.set(part.train.clear, 0)
            ctx.set(part.keep, 1)
            for k, value in enumerate(sums):
                ctx.set(part.keep_index, k)
                ctx.set(part.sum, value)
                await ctx.tick()
            ctx.set(part.keep, 0)
            ctx.set(part.train.gain, case % 2)
            ctx.set(part.train.start, 1)
            await ctx.tick()
            ctx.set(part.train.start, 0)
            found = {}
            while not ctx.get(part.train.done):
                if ctx.get(part.valid):
                    found[ctx.get(part.index)] = ctx.get(part.word)
                await ctx.tick()
            length = fixed.bit_length(sums)
            shift = length - (width - 2) if case % 2 else length + config.headroom - (width - 1)
            exact = [(v + (1 << shift - 1)) >> shift if shift > 0 else v << -shift for v in sums]
            assert ctx.get(part.train.length) == length
            assert [found[k] for k in range(5)] == exact

    run(part, bench)
