import re

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from onlad.threshold import LEAST, ROBUST, Deviation, Fixed, Quantile, Tail

FOLLOWING = [
    Quantile(),
    Quantile(0.5),
    Deviation(),
    Deviation(2.0),
    Tail(),
    Tail(q=1e-2, level=0.9),
]

ties = st.lists(st.sampled_from([0.0, 1.0, 1.5, -2.0]), min_size=1, max_size=40)
scores = st.one_of(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), ties)


def in_order(values):
    return np.sort(np.array(values, "float64"))


def spread_of(values):
    return ROBUST * np.median(np.abs(values - np.median(values)))


@given(st.one_of(scores, st.lists(st.floats(-1e100, 1e100), min_size=1, max_size=60)))
@pytest.mark.parametrize("policy", [Fixed(3.0), *FOLLOWING], ids=repr)
@example([0.0])
@example([1.0, 2.0])
@example([5.0] * 30)
@example([0.0] * 30 + [5.0] * 2)
@example([0.0] * 30 + [5e-324])
@example([0.0, 0.0, 1e-308])
@example([1e100, -1e100])
def test_a_limit_is_a_number_for_any_scores(policy, values):
    limit = policy.limit(in_order(values))
    assert type(limit) is float
    assert np.isfinite(limit)


@given(scores, st.floats(1e-3, 1e3), st.floats(-1e3, 1e3))
@pytest.mark.parametrize("policy", FOLLOWING, ids=repr)
def test_a_limit_moves_and_grows_with_the_scores(policy, values, a, b):
    one = in_order(values)
    other = a * one + b
    size = np.abs(one).max() * a + abs(b) + np.finfo(float).tiny
    if isinstance(policy, Tail):
        # Rounding of the scores becomes an error of the shape, as large as they are to their
        # excesses; a shape at most 1/2 follows it no further than the square of n / q.
        spread = np.ptp(one) * a
        assume(spread == 0 or spread > 1e-6 * size)
        tolerance = 1e-5 * max(spread, 1e-9 * size)
    else:
        if isinstance(policy, Deviation):  # below it, the spread of scores is LEAST
            assume(spread_of(one) * min(a, 1.0) >= LEAST)
        tolerance = 100 * np.finfo(float).eps * size
    expected = a * policy.limit(one) + b
    assert policy.limit(other) == pytest.approx(expected, rel=1e-6, abs=tolerance)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.floats(0.01, 1))
def test_a_quantile_has_its_share_below(values, q):
    ordered = in_order(values)
    limit = Quantile(q).limit(ordered)
    below = (ordered <= limit).sum()
    assert below >= np.floor(q * (len(ordered) - 1))
    assert (ordered < limit).sum() <= np.ceil(q * (len(ordered) - 1))


def test_the_quantile_of_one_is_the_largest_score():
    assert Quantile(1.0).limit(np.array([1.0, 2.0, 9.0])) == 9.0


def test_a_deviation_is_median_and_spread():
    ordered = np.array([0.0, 1.0, 2.0, 4.0, 100.0])
    assert Deviation(3.0).limit(ordered) == pytest.approx(2 + 3 * 1.4826 * 2)


def test_scores_that_hardly_differ_have_a_least_deviation():
    assert Deviation(2.0).limit(np.full(9, 3.0)) == pytest.approx(3 + 2 * LEAST)


@given(scores)
@example([0.0, 0.0, 0.0, 7.0])
def test_a_deviation_is_that_of_medians_to_the_last_bit(values):
    ordered = in_order(values)
    expected = np.median(ordered) + 3.0 * max(spread_of(ordered), LEAST)
    assert Deviation(3.0).limit(ordered) == expected


def test_the_spread_of_normal_values_is_their_deviation_and_a_third_may_be_anything():
    values = np.random.default_rng(0).normal(10, 3, 10_000)
    # The deviation of a median is 1.25 / sqrt(n), that of this spread 1.17 / sqrt(n).
    error = 4 * (1.25 + 1.17) * 3 / 100
    assert Deviation(1.0).limit(np.sort(values)) == pytest.approx(13, abs=error)
    values[:3333] = 1e9
    assert 13 < Deviation(1.0).limit(np.sort(values)) < 28


def test_a_fixed_threshold_is_fixed():
    assert Fixed(5).limit(np.array([1.0])) == Fixed(5).limit(np.array([100.0, 1e9])) == 5.0


# The score that a share u lies above, for tails of shape 0, -1, -1/2 and 1/4.
TAILS = {
    "exponential": lambda u: -np.log(u),
    "uniform": lambda u: 1 - u,
    "triangle": lambda u: 1 - np.sqrt(u),
    "Pareto": lambda u: u**-0.25 - 1,
}


@pytest.mark.parametrize("q", [1e-3, 1e-4])
@pytest.mark.parametrize("kind", TAILS)
def test_a_tail_is_close_to_the_truth(kind, q):
    above = TAILS[kind]
    limits, n, k = [], 2000, 40
    for seed in range(50):
        sample = above(1 - np.random.default_rng(seed).uniform(0, 1, n))
        limits.append(Tail(q=q).limit(np.sort(sample)))
    truth = above(q)
    # With k excesses the shape has a deviation of about (1 + shape) / sqrt(k) and the scale of
    # sqrt(2 / k): on the log scale of what lies beyond the level that is a factor of about 2
    # for one sample. The median of 50 samples is 1.25 / sqrt(50) = 0.18 of that off.
    level = above(k / n)
    excess = np.median(limits) - level
    assert 0.6 * (truth - level) < excess < 1.6 * (truth - level)
    within = (np.array(limits) > level + 0.25 * (truth - level)) & (
        np.array(limits) < level + 5 * (truth - level)
    )
    assert within.mean() >= 0.9


def generalised_pareto(n, shape):
    """Return the scores that split a generalised Pareto distribution into equal shares."""
    above = (np.arange(n)[::-1] + 0.5) / n
    return (above**-shape - 1) / shape


@pytest.mark.parametrize("shape", [-0.4, -0.2, 0.1, 0.25])
def test_a_tail_without_noise_is_its_formula(shape):
    scores = generalised_pareto(200_000, shape)
    truth = (1e-4**-shape - 1) / shape
    # 4,000 excesses without noise: the moments miss what lies beyond the last of them
    assert Tail(q=1e-4).limit(scores) == pytest.approx(truth, rel=0.03)


def test_a_tail_is_never_heavier_than_the_root():
    scores = generalised_pareto(20_000, 0.9)
    u, excess = scores[-401], scores[-400:] - scores[-401]
    heaviest = u + np.mean(excess) * ((1e-6 * 20_000 / 400) ** -0.5 - 1)  # scale / shape is b0
    assert Tail(q=1e-6).limit(scores) == pytest.approx(heaviest, rel=1e-3)


def test_a_rarer_tail_is_farther_out():
    ordered = np.sort(np.random.default_rng(3).exponential(size=500))
    limits = [Tail(q=q).limit(ordered) for q in (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-9)]
    assert (np.diff(limits) >= 0).all()
    assert (np.diff(limits[1:]) > 0).all()


def test_a_tail_inside_the_sample_is_at_least_its_level():
    ordered = np.sort(np.random.default_rng(3).exponential(size=500))
    assert Tail(q=0.5, level=0.75).limit(ordered) == ordered[-126]


@pytest.mark.parametrize("values", [[4.0], [1.0, 4.0]])
def test_of_one_or_two_scores_the_tail_is_the_largest(values):
    assert Tail().limit(np.array(values)) == 4.0


def test_where_all_scores_are_equal_the_tail_is_there():
    assert Tail().limit(np.full(100, 3.0)) == 3.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Fixed(np.nan), "value must be finite, got nan"),
        (lambda: Fixed(np.inf), "value must be finite, got inf"),
        (lambda: Quantile(0.0), "q must be in (0, 1], got 0.0"),
        (lambda: Quantile(1.1), "q must be in (0, 1], got 1.1"),
        (lambda: Quantile(np.nan), "q must be in (0, 1], got nan"),
        (lambda: Deviation(0), "k must be finite and above 0, got 0"),
        (lambda: Deviation(np.inf), "k must be finite and above 0, got inf"),
        (lambda: Deviation(np.nan), "k must be finite and above 0, got nan"),
        (lambda: Tail(q=0.0), "q must be in (0, 1), got 0.0"),
        (lambda: Tail(q=1.0), "q must be in (0, 1), got 1.0"),
        (lambda: Tail(level=0.0), "level must be in (0, 1), got 0.0"),
        (lambda: Tail(level=1), "level must be in (0, 1), got 1"),
    ],
)
def test_a_wrong_setting_is_refused(make, message):
    with pytest.raises(ValueError, match="^" + re.escape(message) + "$"):
        make()
