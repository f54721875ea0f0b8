import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlad import Monitor
from onlad.fields import values
from onlad.limit import (
    FARTHEST,
    GAP,
    HIGHEST,
    LASTING,
    LEAST,
    RECENT,
    SHORT,
    SINGLE,
    STEP,
    STRONG,
    TOLD,
    WEAK,
    YOUNG,
    Limit,
    tail,
)
from onlad.watching import REFUSED

TICK = 64
OLD = 10**9  # rows learned: the allowance of a young stream is over
DRAWS = {
    "gaussian": lambda rng, size: rng.normal(size=size) ** 2 / 8,
    "exponential": lambda rng, size: rng.exponential(0.2, size),
    "heavy": lambda rng, size: np.abs(rng.standard_t(3, size)) / 8,
    "heavier": lambda rng, size: np.abs(rng.standard_t(1.5, size)) / 8,
}


def follow(limit, ratio):
    """Let a limit follow scores in units of it; rows are refused from half of it on."""
    limit.follow(ratio, ratio > 0.5)


def live(limit, scores, take=True):
    """Let a limit follow scores as a monitor does; return which rows were alarms."""
    alarms = []
    for part in np.split(scores, len(scores) // TICK):
        ratio, gate = part / limit.value(OLD), REFUSED * max(1.0, limit.base)
        limit.follow(ratio, part > gate)
        if take:
            limit.take(part, gate)
        alarms.append(ratio > 1)
    return np.concatenate(alarms)


def episodes(alarms):
    """Return how many episodes begin: alarms with more than GAP rows without one before."""
    at = np.flatnonzero(alarms)
    return int(np.sum(np.diff(at) > GAP) + (len(at) > 0))


@pytest.mark.parametrize("rate", [1e-3, 1e-2])
@pytest.mark.parametrize("kind", DRAWS)
def test_the_rate_of_false_alarms_comes_to_the_budget(kind, rate):
    draw, rows = DRAWS[kind], TICK * 1500
    found = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        limit = Limit(rate, draw(rng, 1000))
        alarms = live(limit, draw(rng, rows))
        found.append(episodes(alarms[rows // 3 :]) / (2 * rows / 3))
    # Each weak episode raises the factor by STEP and each row lowers it by STEP x rate, while the
    # factor is between 0 and HIGHEST. So over R rows they exceed the budget by at most
    # HIGHEST / (STEP R). As many again are allowed for strong ones, which do not raise it.
    bound = 2 * rate + HIGHEST / (STEP * 2 * rows / 3)
    assert np.mean(found) < bound
    assert max(found) < 2 * bound


def test_a_distribution_that_widens_is_followed():
    rng = np.random.default_rng(0)
    limit = Limit(1e-3, rng.exponential(0.2, 1000))
    wide = live(limit, 4 * rng.exponential(0.2, TICK * 2000))
    assert wide[: TICK * 20].mean() > 1e-3  # it learned too little at the start
    assert episodes(wide[TICK * 1000 :]) / (TICK * 1000) < 3e-3


def test_long_and_strong_episodes_do_not_raise_the_limit():
    rng = np.random.default_rng(1)
    limit = Limit(1e-3, rng.exponential(0.05, 2000))
    before = limit.value(OLD)
    scores = np.zeros(TICK * 400)
    for first in range(1000, len(scores), 1000):
        scores[first : first + 60] = 3 * WEAK * before
    alarms = live(limit, scores, take=False)
    assert alarms.sum() == 60 * len(range(1000, len(scores), 1000))
    assert limit.factor == 0
    assert limit.value(OLD) == before


@pytest.mark.parametrize("rows", [1, SHORT - 1, SHORT, 40])
@pytest.mark.parametrize("share", [0.55, 0.99, 1.01, 1e6])
def test_a_weak_episode_raises_the_limit_by_a_step_and_a_strong_one_does_not(rows, share):
    limit = Limit(1e-3, np.random.default_rng(1).exponential(0.05, 2000))
    strong = STRONG if rows < SHORT else WEAK  # what is short must be stronger
    ratio = np.zeros(2 * TICK)
    ratio[5 : 5 + rows] = share * strong
    follow(limit, ratio)
    assert limit.factor == (STEP if share < 1 else 0.0)


def test_the_factor_has_a_highest_value_and_comes_down_by_the_budget():
    limit = Limit(1e-2, np.random.default_rng(1).exponential(0.05, 2000))
    ratio = np.zeros(TICK)
    ratio[0] = (1 + WEAK) / 2
    for _ in range(100):
        follow(limit, ratio)
    assert HIGHEST - STEP < limit.factor <= HIGHEST
    before = limit.factor
    follow(limit, np.zeros(TICK))
    assert before - limit.factor == pytest.approx(STEP * 1e-2 * TICK)
    for _ in range(1000):
        follow(limit, np.zeros(TICK))
    assert limit.factor == 0


@given(st.lists(st.integers(1, 400), max_size=4), st.integers(0, 3))
def test_an_episode_may_lie_across_any_cut(cuts, seed):
    rng = np.random.default_rng(seed)
    ratio = np.where(rng.uniform(size=400) < 0.05, rng.exponential(3, 400), 0.0)
    whole, parts = (Limit(1e-9, np.zeros(10)) for _ in range(2))
    follow(whole, ratio)
    for part in np.split(ratio, sorted(cuts)):
        follow(parts, part)
    # The budget lowers the factor by less than 400 x STEP x 1e-9.
    assert parts.factor == pytest.approx(whole.factor, abs=1e-6)
    np.testing.assert_array_equal(parts.episode, whole.episode)


def test_a_young_stream_has_a_higher_limit():
    limit = Limit(1e-3, np.random.default_rng(1).exponential(0.05, 2000))
    old = limit.value(OLD)
    assert limit.value(int(YOUNG)) == pytest.approx(2 * old, rel=1e-5)
    values = [limit.value(rows) for rows in (0, 64, 256, 1024, 4096)]
    assert (np.diff(values) < 0).all()
    assert np.isfinite(values).all()


def test_a_lower_budget_is_a_higher_limit_and_can_be_changed():
    scores = np.random.default_rng(1).exponential(0.3, 2000)
    found = [Limit(rate, scores).value(OLD) for rate in (1e-2, 1e-3, 1e-4, 1e-5)]
    assert (np.diff(found) > 0).all()
    limit = Limit(1e-2, scores)
    limit.allow(1e-4)
    assert limit.value(OLD) == found[2]


def test_the_memory_does_not_grow():
    limit = Limit(1e-3, np.zeros(10))
    for _ in range(200):
        limit.take(np.random.default_rng(0).exponential(0.1, TICK), 1.0)
        assert len(limit.recent) + len(limit.fresh) <= RECENT + RECENT // 16 + TICK
    assert len(limit.recent) == RECENT


def test_scores_up_to_the_gate_do_not_raise_the_limit_by_themselves():
    # Rows are refused at half of the limit, and what is taken counts for no more than that.
    limit = Limit(1e-4, np.random.default_rng(0).exponential(0.3, 2000))
    most = limit.base
    for _ in range(300):
        limit.take(np.full(TICK, 1e12), 0.5 * limit.base)
        assert limit.base <= most
    assert limit.recent.max() <= np.sqrt(0.5 * most) * (1 + 1e-6)


def test_a_limit_has_a_least_value():
    assert Limit(1e-3, np.zeros(500)).value(OLD) == pytest.approx(LEAST, rel=1e-5)


# -- p-values ------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1e6, width=32), min_size=1, max_size=50), st.floats(0, 1e12))
def test_a_p_value_is_the_share_of_recent_scores_as_high_with_its_own(scores, score):
    limit = Limit(1e-3, np.array(scores))
    expected = (1 + np.sum(limit.sorted >= np.sqrt(score))) / (1 + len(scores))
    np.testing.assert_array_equal(limit.p_values(np.array([score])), [expected])
    assert 0 < expected <= 1


# -- the tail ------------------------------------------------------------------------------

TRUTH = {  # draw, and the quantile with probability q above it
    "exponential": (lambda rng, n: rng.exponential(size=n), lambda q: -np.log(q)),
    "uniform": (lambda rng, n: rng.uniform(size=n), lambda q: 1 - q),
    "pareto": (lambda rng, n: rng.pareto(5, n), lambda q: q**-0.2 - 1),
}


@pytest.mark.parametrize("rate", [1e-3, 1e-4])
@pytest.mark.parametrize("kind", TRUTH)
@pytest.mark.parametrize("clustered", [False, True])  # alone, each high value is a cluster
def test_a_tail_is_near_the_truth(kind, rate, clustered):
    draw, quantile = TRUTH[kind]
    found = [
        tail(draw(np.random.default_rng(s), 2000), rate, clustered=clustered) for s in range(20)
    ]
    # From 2,000 values a quantile of one in 10,000 is known to some 20 per cent; a bounded
    # distribution is taken for an exponential one, which lies a little farther out.
    truth = min(quantile(rate), FARTHEST * quantile(1e-3))
    assert truth * 0.85 < np.median(found) < truth * 1.3


@given(
    st.lists(st.floats(0, 1e6, width=32), min_size=1, max_size=200),
    st.sampled_from([1e-6, 1e-4, 1e-2, 0.5]),
)
def test_a_tail_is_a_number_within_its_bounds(values, rate):
    roots = np.array(values, float)
    low, high = (tail(roots, rate, clustered=clustered) for clustered in (True, False))
    assert np.isfinite(high)
    assert 0 <= low <= high <= max(FARTHEST * roots.max(), roots.max())


@pytest.mark.parametrize("rows", [1, 5, 20])
def test_alarms_begin_as_often_as_the_budget_says_whatever_their_length_is(rows):
    # Clusters of `rows` equal values: a maximum over `rows` new values each is as correlated.
    rng, begun = np.random.default_rng(rows), []
    for _ in range(30):
        values = np.repeat(rng.exponential(size=12_000 // rows + 1), rows)[:12_000]
        above = values[2_000:] > tail(values[:2_000], 1e-3, clustered=True)
        begun.append(np.count_nonzero(np.diff(above.astype(int)) == 1) / 10_000)
    # 1,000 rows for one alarm: of 2,000 rows the truth is known within a factor of three.
    assert 1e-3 / 3 < np.mean(begun) < 3e-3


def test_a_single_row_needs_more_than_a_row_that_follows_another():
    monitor = Monitor().fit(np.random.default_rng(0).normal(size=(2_000, 3)).cumsum(axis=0))
    told = monitor.observe_many(np.full((4, 3), 1e4))
    np.testing.assert_allclose(told.threshold, told.threshold[1] * np.array([SINGLE, 1, 1, 1]))
    assert told.threshold[0] > told.threshold[1] == monitor.describe()["threshold"]


def test_a_rarer_tail_is_farther_out():
    roots = np.random.default_rng(0).exponential(size=2000)
    for clustered in (False, True):
        found = [tail(roots, rate, clustered=clustered) for rate in (1e-2, 1e-3, 1e-4, 1e-6)]
        assert (np.diff(found) >= 0).all()


# -- values in and out ---------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 1, 5, 40])
def test_what_was_learned_goes_on_to_the_last_bit(rows):
    rng = np.random.default_rng(2)
    scores = rng.exponential(0.2, TICK * 80)
    limit = Limit(1e-2, rng.exponential(0.2, 300))
    live(limit, scores[: TICK * max(rows, 1)])
    learned = limit.learned()
    twin = Limit(1e-2, np.zeros(1)).resume(learned)
    rest = scores[TICK * 40 :]
    np.testing.assert_array_equal(live(twin, rest), live(limit, rest))
    assert twin.value(500) == limit.value(500)
    np.testing.assert_equal(values(twin.learned()), values(limit.learned()))


def test_only_an_alarm_that_was_told_for_long_is_shelved():
    refused = np.ones(LASTING, bool)
    quiet, loud = Limit(1e-4, np.ones(100)), Limit(1e-4, np.ones(100))
    quiet.follow(np.full(LASTING, 0.99), refused)  # refused, and just below the limit
    assert quiet.lasts()
    assert not quiet.shelved()
    ratio = np.full(LASTING, 0.99)
    ratio[: TOLD - 1] = 1.01
    loud.follow(ratio, refused)
    assert not loud.shelved()
    loud.follow(np.full(1, 1.01), refused[:1])
    assert loud.shelved()
