"""Times: patterns of a day and of a week, gaps, and a rate that changes."""

import numpy as np
import pytest

from onlad import Monitor, persist
from onlad.incident import close
from onlad.rhythm import BINS, DAY, Rhythm

STEP = 300  # seconds between samples
PER_DAY = 288


def office(seed, days=35):
    """Return times and samples of a building: more load on workdays, a job each morning."""
    rng = np.random.default_rng(seed)
    t = 19_675 * DAY + np.arange(0, days * DAY, STEP)
    hour, weekday = (t % DAY) / 3600, ((t // DAY).astype(int) + 3) % 7
    busy = np.convolve((hour >= 8) & (hour < 18) & (weekday < 5), np.ones(6) / 6, "same")
    slow = np.zeros((len(t), 2))
    for i in range(1, len(t)):
        slow[i] = (0.9, 0.95) * slow[i - 1] + rng.normal(0, (1.0, 0.1))
    load = 20 + 60 * busy + slow[:, 0]
    heat = 22 + 4 * np.sin((hour - 9) / 24 * 2 * np.pi) + slow[:, 1]
    job = 5 + 40 * ((hour >= 6) & (hour < 6.25)) + rng.normal(0, 0.3, len(t))
    return t, np.column_stack((load, heat, job, 3 + 0.02 * load + rng.normal(0, 0.05, len(t))))


def faults(t, X):
    """Put four faults into the last two weeks, usual values at unusual times; return where."""
    weekday = ((t[::PER_DAY] // DAY).astype(int) + 3) % 7
    late = np.arange(len(weekday)) >= 22
    work, rest = np.flatnonzero(late & (weekday < 5)), np.flatnonzero(late & (weekday >= 5))
    load = np.array([60, 0, 0, 1.2])
    wrong = [
        (work[1], 2, 4, load),
        (rest[0], 10, 13, load),
        (work[4], 11, 13, -load),
        (work[7], 3, 6, np.array([0, 4, 0, 0])),
    ]
    spans = []
    for day, first, last, off in wrong:
        span = (day * PER_DAY + 12 * first, day * PER_DAY + 12 * last)
        X[slice(*span)] += off
        spans.append(span)
    return spans


@pytest.fixture(scope="module")
def buildings():
    found = []
    for seed in range(8):
        t, X = office(seed)
        found.append((t, X, faults(t, X)))
    return found


def counted(X, spans, times):
    """Return how many faults were found, and how many other incidents there were."""
    parts = close(np.flatnonzero(Monitor().observe_many(X, times=times).is_anomaly))
    hits = sum(any(((p >= a) & (p < b + 3)).any() for p in parts) for a, b in spans)
    near = [(a - 1, b + 12) for a, b in spans]
    false = sum(not any(((p >= a) & (p < b)).any() for a, b in near) for p in parts)
    return hits, false


def test_usual_values_at_an_unusual_time_are_found(buildings):
    hits, false = np.sum([counted(X, spans, t) for t, X, spans in buildings], axis=0).tolist()
    assert hits == 32  # all of them
    assert false <= 16  # in 8 times 5 weeks, the first of each without a week before it; 9 were


def test_only_times_show_that_a_day_is_like_one_of_another_kind():
    with_time, without = [], []
    for seed in range(8):
        t, X = office(seed)
        weekday = ((t[::PER_DAY] // DAY).astype(int) + 3) % 7
        late = np.arange(len(weekday)) >= 22
        work, rest = (np.flatnonzero(late & kind) for kind in (weekday < 5, weekday >= 5))
        days = X.reshape(-1, PER_DAY, X.shape[1])
        before, spans = days.copy(), []
        for day, like in ((work[1], rest[0] - 7), (rest[0], work[1] - 7), (work[7], rest[0] - 7)):
            days[day] = before[like]
            spans.append((day * PER_DAY, (day + 1) * PER_DAY))
        with_time.append(counted(X, spans, t)[0])
        without.append(counted(X, spans, None)[0])
    assert sum(with_time) >= 8  # of 24; 9 were
    assert sum(without) == 0


def test_a_job_of_every_morning_stops_to_be_an_alarm():
    for seed in range(8):
        t, X = office(seed)  # without faults: an alarm of one may last into the morning
        anomalies = Monitor().observe_many(X, times=t).is_anomaly.reshape(-1, PER_DAY)
        assert not anomalies[14:, 71:77].any()


def learned(t, X):
    """Return what is taken out of each row, as it was known when the row came."""
    rhythm, taken = Rhythm(X.shape[1]), []
    for part in rhythm.days(t):
        taken.append(rhythm.pattern(t[part]))
        rhythm.take(t[part], X[part])
    return rhythm, np.concatenate(taken)


@pytest.mark.parametrize("begin", [3.9, 11.1, 20.25])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_switch_that_follows_the_clock_is_no_alarm_and_one_at_night_is(begin, seed):
    rng = np.random.default_rng(seed)
    hours = np.arange(0, 24 * 35, 0.25)
    load = rng.normal(20, 1, len(hours)) + 15 * ((hours % 24 > 7) & (hours % 24 < 19))
    heat = 21 + 0.1 * load + rng.normal(0, 0.1, len(hours))
    load[-200:-196] += 15  # at night
    on = load > 27
    X = np.column_stack([load, heat, on, ~on])
    verdicts = Monitor().observe_many(X, times=3600 * (begin + hours))
    (fault,) = close(np.flatnonzero(verdicts.is_anomaly))
    assert 0 <= fault[0] - (len(hours) - 200) < 4


def test_a_monitor_starts_anew_without_the_pattern_of_each_weekday():
    t, X = office(0, days=15)  # the fifteenth day is a Monday
    rhythm, _ = learned(t[:-PER_DAY], X[:-PER_DAY])
    load = rhythm.fresh(t[-PER_DAY])[:, 0].reshape(-1, PER_DAY)
    noon, night = load[:, 120:180].mean(axis=1), load[:, :60].mean(axis=1)
    # 60 more by day, on workdays alone; what is left is noise, and what one week taught.
    assert (np.abs(noon - night) < 8).all()


def test_within_an_hour_a_weekend_is_not_like_a_workday():
    t, X = office(0)
    _, taken = learned(t, X)
    rest = (X - taken)[:, 0].reshape(-1, PER_DAY)[-7:]  # the last week
    hour = rest[5:, 8 * 12 : 9 * 12]  # of its weekend, when on workdays the load goes up by 60
    assert (np.ptp(hour, axis=1) < 10).all()


def test_a_fault_of_one_day_is_no_pattern():
    t, X = office(0)
    _, plain = learned(t, X)
    X[23 * PER_DAY : 23 * PER_DAY + 24, 0] += 60  # for two hours
    _, taken = learned(t, X)
    off = (taken - plain)[:, 0].reshape(-1, PER_DAY)[24:]
    assert np.abs(off).max() < 6  # neither on the next day nor a week later: it was 30
    X[24 * PER_DAY :, 0] += 60 * (t[24 * PER_DAY :] % DAY < 7200)  # each night from then on
    _, taken = learned(t, X)
    off = (taken - plain)[:, 0].reshape(-1, PER_DAY)[-1]
    assert off[:24].mean() > 25  # a Sunday, the second of these


def test_blocks_and_files_change_nothing():
    t, X = office(0, days=20)
    some = np.ones(len(X), bool)
    some[3000:3050] = some[3052:3090] = False  # gaps
    t, X = t[some], X[some]
    whole = Monitor().observe_many(X, times=t)
    monitor, rng, scores, first = Monitor(), np.random.default_rng(1), [], 0
    while first < len(X):
        part = slice(first, first + int(rng.integers(1, 500)))
        scores.append(monitor.observe_many(X[part], times=t[part]).score)
        monitor = persist.from_bytes(persist.to_bytes(monitor))
        first = part.stop
    np.testing.assert_array_equal(np.concatenate(scores), whole.score)


@pytest.mark.parametrize("seed", range(4))
def test_blocks_change_nothing_whatever_the_times_are(seed):
    rng = np.random.default_rng(seed)
    n, day = 500, np.arange(20) // 5
    X = rng.normal(size=(n, 3))
    X[np.isin(np.arange(n) // 25, day)] = np.nan  # some days have no values
    strange = rng.choice([0.0, -1e9, 1.7e9, 4e9], n)  # a clock that is set, also back to 1970
    t = np.where(rng.random(n) < 0.2, strange, 1.7e9 + np.arange(n) * 3600.0)
    whole, parts, saved = (Monitor(warmup=64, names=list("abc")) for _ in range(3))
    whole.observe_many(X, times=t)
    for part in np.split(np.arange(n), np.sort(rng.choice(n, 60, replace=False))):
        if len(part):
            parts.observe_many(X[part], times=t[part])
            saved.observe_many(X[part], times=t[part])
            saved = persist.from_bytes(persist.to_bytes(saved))
    assert persist.to_bytes(parts) == persist.to_bytes(whole)
    assert persist.to_bytes(saved) == persist.to_bytes(whole)


def test_a_pause_after_a_day_with_few_samples_is_the_same_in_blocks():
    t = DAY * np.array([20_000.0, 20_001.0, 20_001.1])
    X, pause = np.ones((3, 2)), np.array([False, True, True])
    whole, parts = Monitor(), Monitor()
    whole.observe_many(X, times=t, pause=pause)
    for i in range(3):
        parts.observe_many(X[i : i + 1], times=t[i : i + 1], pause=pause[i : i + 1])
    assert persist.to_bytes(whole) == persist.to_bytes(parts)


def test_one_by_one_gives_the_same():
    t, X = office(2, days=4)
    many, monitor = Monitor().observe_many(X, times=t), Monitor()
    for i in range(len(X)):
        one = monitor.observe(dict(enumerate(X[i].tolist())), time=t[i])
        assert one.score == many.score[i]
        assert list(one.expected.values()) == [e for e in many.expected[i] if not np.isnan(e)]


def test_bands_are_in_raw_units_and_hold_95_percent():
    t, X = office(3)
    told = Monitor().observe_many(X, times=t)
    inside = ((told.low <= X) & (told.high >= X))[3000:].mean(axis=0)
    assert ((inside > 0.93) & (inside < 0.97)).all()
    noon = told.expected[-PER_DAY:].reshape(BINS, 4)[144, 0]
    night = told.expected[-PER_DAY:].reshape(BINS, 4)[24, 0]
    assert noon - night > 40 or ((t[-1] // DAY) + 3) % 7 >= 5


def test_a_stream_without_a_pattern_stays_as_it_is():
    rng = np.random.default_rng(0)
    t = np.arange(0, 10 * DAY, 600)
    X = np.cumsum(rng.normal(size=(len(t), 3)), axis=0) * 0.1 + rng.normal(size=(len(t), 3))
    timed, plain = Monitor().observe_many(X, times=t), Monitor().observe_many(X)
    np.testing.assert_array_equal(timed.score, plain.score)


def test_no_window_reaches_over_a_gap():
    rng = np.random.default_rng(0)
    rows = np.arange(3000)
    X = np.column_stack([np.sin(rows / 8), np.cos(rows / 8)]) * 10 + rng.normal(0, 0.1, (3000, 2))
    t = 1.0 * rows
    cut = np.ones(3000, bool)
    cut[2000:2025] = False  # half a turn, in which nothing was sent
    known = Monitor().observe_many(X[cut], times=t[cut])
    blind = Monitor().observe_many(X[cut])
    assert blind.is_anomaly[2000:2010].any()
    assert not known.is_anomaly[2000:2010].any()
    assert np.flatnonzero(~known.learned[2000:2010]).tolist() == [0, 1, 2]  # they fill the window
    assert len(known) == len(blind) == 2975


def test_a_slower_rate_is_taken_for_gaps_and_then_for_the_rate():
    rhythm = Rhythm(1)
    fast = np.arange(100.0)
    slow = 100 + 60 * np.arange(100.0)
    assert not rhythm.gaps(fast).any()
    gaps = rhythm.gaps(slow)
    assert gaps[1:4].all()
    assert not gaps[8:].any()
    back = rhythm.gaps(slow[-1:] - 30)
    assert back.all()  # time went back


def test_irregular_times_are_seldom_gaps():
    times = np.cumsum(np.random.default_rng(0).exponential(10.0, 20_000))
    assert Rhythm(1).gaps(times).mean() < 0.01


def test_a_history_with_times_starts_with_its_patterns():
    t, X = office(1)
    spans = faults(t, X)
    history = slice(0, 21 * PER_DAY)
    monitor = Monitor().fit(X[history], times=t[history])
    told = monitor.observe_many(X[21 * PER_DAY :], times=t[21 * PER_DAY :])
    found = [told.is_anomaly[a - 21 * PER_DAY : b - 21 * PER_DAY + 3].any() for a, b in spans]
    assert sum(found) >= 3


def test_a_stream_has_times_or_has_none():
    X = np.random.default_rng(0).normal(size=(300, 2))
    timed, plain = Monitor(), Monitor()
    timed.observe_many(X, times=np.arange(300))
    plain.observe_many(X)
    with pytest.raises(ValueError, match="have times: give them"):
        timed.observe(X[0])
    with pytest.raises(ValueError, match="had no times"):
        plain.observe(X[0], time=300.0)
    with pytest.raises(ValueError, match="times must have 300 entries"):
        Monitor().observe_many(X, times=np.arange(3))
    with pytest.raises(ValueError, match="seconds since 1970"):
        Monitor().observe_many(X, times=np.full(300, 1e18))


def test_while_it_is_paused_no_pattern_is_learned():
    t, X = office(0, days=5)
    monitor = Monitor().fit(X[:576], times=t[:576])
    monitor.paused = True
    monitor.observe_many(X[576:600], times=t[576:600])
    assert not monitor.learned().rhythm.counts.any()  # of the third day
