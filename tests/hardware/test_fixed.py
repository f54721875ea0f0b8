"""Fixed point against whole numbers and fractions; the curve on every input."""

import re
from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlad.hardware import fixed
from onlad.hardware.config import Config
from onlad.hardware.sigmoid import ERROR, sigmoid

words = st.integers(-(2**31), 2**31 - 1)
scalars = st.integers(-(2**34), 2**34 - 1)
narrow = st.integers(-(2**17), 2**17 - 1)


def rounded(value: Fraction) -> int:
    return floor(value + Fraction(1, 2))


@given(st.integers(-(2**50), 2**50), st.integers(1, 40))
def test_rounding_is_half_up(value, shift):
    assert fixed.round_shift(np.int64(value), shift) == rounded(Fraction(value, 2**shift))


@given(st.integers(-(2**40), 2**40), st.integers(2, 35))
def test_saturation_gives_the_nearest_word(value, width):
    nearest = min(max(value, -(2 ** (width - 1))), 2 ** (width - 1) - 1)
    assert fixed.saturate(np.int64(value), width) == nearest


@given(words, scalars, st.integers(17, 32), words)
def test_wide_products_are_rounded_once(a, b, shift, base):
    found = fixed.product_shift(np.int64(a), np.int64(b), shift, np.int64(base))
    assert found == base + rounded(Fraction(a * b, 2**shift))


@given(narrow, narrow, st.integers(1, 16), narrow)
def test_narrow_products_are_rounded_once(a, b, shift, base):
    found = fixed.product_shift(np.int64(a), np.int64(b), shift, np.int64(base))
    assert found == base + rounded(Fraction(a * b, 2**shift))


@given(st.lists(st.integers(-(2**80), 2**80), min_size=1))
def test_bit_length_is_what_twos_complement_needs(values):
    bits = fixed.bit_length(values)
    assert all(-(2**bits) <= v < 2**bits for v in values)
    assert bits == 0 or not all(-(2 ** (bits - 1)) <= v < 2 ** (bits - 1) for v in values)


@given(st.floats(-200, 200))
def test_quantizing_is_within_half_a_word_or_saturates(value):
    word = fixed.quantize(value, 32, 24)
    assert abs(fixed.value(word, 24) - np.clip(value, -128, 128 - 2.0**-24)) <= 2.0**-25


@pytest.mark.parametrize("size", [1e-9, 0.3, 1.0, 5e4])
@pytest.mark.parametrize("N", [2, 5, 16, 64])
def test_a_root_comes_back_within_half_a_word(N, size):
    config = Config(n=64, hidden=N, lanes=2)
    S = np.random.default_rng(N).uniform(-size, size, (N, N))
    words, mantissa, exponent = fixed.root_words(config, S)
    assert 0.5 <= np.abs(words).max() / 2.0**config.root_fraction <= 1
    back = fixed.root_value(config, words, mantissa, exponent)
    np.testing.assert_allclose(back, S, rtol=0, atol=np.abs(S).max() * 2.0**-config.root_fraction)


@given(st.floats(1e-30, 1e30))
def test_a_limit_keeps_23_bits(limit):
    word = fixed.limit_word(limit)
    assert 0 <= word < 2**31
    assert fixed.limit_value(word) == pytest.approx(limit, rel=2.0**-22)


def test_no_limit_is_zero():
    assert fixed.limit_word(0.0) == 0
    assert fixed.limit_value(0) == 0.0


@pytest.mark.parametrize("fraction", [24, 17, 12])
def test_the_curve_keeps_its_bound_on_every_input(fraction):
    # Inputs that share the 23 bits the table looks at have one result, so the two ends of each
    # such run are all there is to try. From 16 on nothing changes any more. Below zero bits are
    # inverted, which is one unit of z off, and the curve's slope is at most 1/4.
    run = max(1, 2 ** (fraction - 19))
    starts = np.arange(0, 16 * 2**fraction + 2, run)
    for z in (starts, starts + run - 1, -starts, -starts - run + 1):
        G = fixed.value(sigmoid(z, fraction), fraction)
        exact = 1 / (1 + np.exp(-fixed.value(z, fraction)))
        assert np.abs(G - exact).max() <= ERROR + (0.5 + 0.25) * 2.0**-fraction


def test_the_curve_never_falls():
    for z in (np.arange(-(2**17), 2**17), np.arange(-17 * 2**24, 17 * 2**24, 1021)):
        assert (np.diff(sigmoid(z, 24)) >= 0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 1}, "n must be in 2 to 4096, got 1"),
        ({"hidden": 300}, "hidden must be in 2 to 256, got 300"),
        ({"lanes": 3}, "lanes must be one of 1, 2, 4, 8, 16, 32, got 3"),
        ({"hidden": 4}, "lanes must be at most min(n, hidden) = 4, got 8; take fewer lanes"),
        ({"width": 24}, "width must be one of 32, 25, 18, got 24"),
        ({"activation": "relu"}, "activation must be one of identity, sigmoid, got 'relu'"),
        ({"alpha": "none"}, "alpha must be one of stored, narrow, seeded, got 'none'"),
        ({"seed": 0}, "seed must be in 1 to 2**32 - 1, got 0"),
    ],
)
def test_a_wrong_configuration_is_refused(change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Config(**{"n": 16, "hidden": 16, **change})


@pytest.mark.parametrize("width", [32, 25, 18])
@pytest.mark.parametrize("N", [2, 3, 16, 17, 64, 256])
def test_formats_leave_room_for_every_gain(N, width):
    config = Config(n=64, hidden=N, lanes=2, width=width)
    assert config.hidden <= 4**config.headroom
    top = config.scalar_width - 1
    # |q| is at most twice a row of S over the length of f, and C four times that.
    assert top - config.gain_fraction >= 2 * config.headroom + 2
    assert top - config.root_scale_fraction >= 2 * config.headroom + 4
    assert config.root_scale_fraction >= 0
