"""What a monitor does while it lives: modes, quarantine, drift, faults of real machines."""

import copy
import pickle

import numpy as np
import pytest

from onlad import Monitor
from onlad.limit import LASTING
from onlad.mode import FORGETTING
from onlad.watching import (
    CANDIDATE,
    LONGEST,
    LONGEST_WINDOW,
    MODES,
    PATIENCE,
    SHORTEST,
    TICK,
    WIDEST,
    Watching,
    default_window,
    is_ordered,
)
from plants import plant, smooth, white, windows

NAN = np.nan
LINGERS = 128  # rows for which a running mean of the past 30 or so remembers a fault
DEVIATION = plant(20_000, seed=5)[1]
SIDES = [np.random.default_rng(100 + k).choice([-1, 1], 6) for k in range(9)]


def mode(number, rows, seed, first=0):
    """Return rows of the plant in another mode: each sensor lies elsewhere."""
    return plant(rows, seed, first)[0] + 8 * number * DEVIATION * SIDES[number]


def definition(monitor):
    """Return what a monitor has learned, in the classes that define it."""
    return Watching.resumed(monitor.learned().watching, monitor.false_alarms, monitor.seed)


# -- modes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_a_new_mode_is_confirmed_once_and_is_known_when_it_returns(seed):
    monitor = Monitor().fit(mode(0, 3000, seed))
    verdicts = monitor.observe_many(mode(1, 6000, seed + 10))
    drift = np.flatnonzero(verdicts.drift)
    assert len(drift) == 1  # told once
    told = slice(0, LASTING)  # then the alarm is shelved
    assert verdicts.is_anomaly[told].mean() > 0.99
    assert verdicts.is_anomaly[LASTING + 2 * TICK : drift[0] + 1].mean() < 0.05
    assert not verdicts.learned[: drift[0] + 1].any()
    # Refused rows make a candidate, and then it has to explain as many more as patience wants.
    patience = min(max(PATIENCE * 3000, SHORTEST), LONGEST)
    assert patience + CANDIDATE <= drift[0] <= (patience + CANDIDATE) * 1.2 + 3 * TICK
    assert verdicts.is_anomaly[drift[0] + LINGERS :].mean() < 0.005
    assert len(monitor.describe()["modes"]) == 2
    # Both are known from now on, however long the other one lasts.
    for number, rows, start in ((0, 5000, 20), (1, 2000, 30), (0, 2000, 40)):
        again = monitor.observe_many(mode(number, rows, seed + start))
        assert again.is_anomaly.mean() < 0.01
        assert not again.drift.any()


def test_an_alarm_that_lasts_is_shelved_and_comes_back_when_it_gets_worse():
    monitor = Monitor().fit(mode(0, 3000, 1))
    X = mode(0, LASTING + 8 * TICK, 2)
    X[:, 0] += 20 * X[:, 0].std()
    shelved = monitor.observe_many(X)
    assert shelved.is_anomaly[TICK:LASTING].all()
    assert not shelved.is_anomaly[LASTING + TICK :].any()
    assert not shelved.learned.any()
    worse = mode(0, TICK, 3)
    worse[:, 0] += 40 * X[:, 0].std()
    assert monitor.observe_many(worse).is_anomaly.any()
    monitor.observe_many(mode(0, 4 * TICK, 4))  # it is over
    assert monitor.observe_many(X[:TICK]).is_anomaly.mean() > 0.9


@pytest.mark.parametrize("rows", [200, 700, 1400])
def test_a_fault_shorter_than_the_quarantine_never_becomes_a_mode(rows):
    X = mode(0, 8000, 1)
    assert rows < CANDIDATE + PATIENCE * 4000
    X[4000 : 4000 + rows] = mode(1, rows, 5, first=4000)
    monitor = Monitor().fit(X[:3000])
    verdicts = monitor.observe_many(X[3000:])
    fault = slice(1000, 1000 + rows)
    told = slice(1000, 1000 + min(rows, LASTING))
    assert verdicts.is_anomaly[told].mean() > 0.99
    assert not verdicts.learned[fault].any()
    assert not verdicts.drift.any()
    assert verdicts.is_anomaly[1000 + rows + LINGERS :].mean() < 0.005
    assert len(monitor.describe()["modes"]) == 1


def test_a_fault_that_is_soon_another_never_becomes_a_mode():
    monitor = Monitor().fit(mode(0, 3000, 0))
    faults = [mode(1 + i % 8, 350, i) * (1 + i // 8) for i in range(16)]
    verdicts = monitor.observe_many(np.vstack(faults))
    assert verdicts.is_anomaly[:LASTING].mean() > 0.95
    assert not verdicts.learned.any()
    assert not verdicts.drift.any()
    assert len(monitor.describe()["modes"]) == 1


def test_there_are_at_most_so_many_modes_and_the_least_learned_goes():
    monitor = Monitor().fit(mode(0, 2000, 0))
    for number in range(1, MODES + 3):
        verdicts = monitor.observe_many(mode(number, 6000, number))
        assert verdicts.drift.sum() == 1
        assert verdicts.is_anomaly[-500:].mean() < 0.01
        assert len(monitor.describe()["modes"]) == min(number + 1, MODES)
        learned = monitor.describe()["modes"]
        assert sum(learned) == monitor.describe()["learned"]
    assert min(learned) > 2000  # the first mode, of 2,000 rows, is gone


def test_a_history_of_two_modes_starts_with_both():
    rng = np.random.default_rng(0)
    load = np.sin(np.arange(4000) / 30) + 0.2 * rng.normal(size=4000)
    second = (np.arange(4000) // 500) % 2 == 1
    follower = np.where(second, 8 - load, load)
    X = np.column_stack([load, follower]) + 0.05 * rng.normal(size=(4000, 2))
    monitor = Monitor().fit(X[:3000])
    assert len(monitor.describe()["modes"]) == 2
    verdicts = monitor.observe_many(X[3000:])
    assert verdicts.is_anomaly.mean() < 0.01
    assert monitor.observe([1.0, 4.0]).is_anomaly  # between the two


# -- what is learned, and when -------------------------------------------------------------


def test_an_anomaly_is_not_learned_and_usual_rows_are_learned_late():
    X = plant(4000)[0]
    monitor = Monitor().fit(X[:2000])
    counts = [monitor.describe()["learned"]]
    for part in np.split(X[2000 : 2000 + 4 * TICK], 4):
        monitor.observe_many(part)
        counts.append(monitor.describe()["learned"])
    # The first tick is decided at the end of the second.
    assert counts[1] == counts[0] == 2000
    assert (np.diff(counts[1:]) > 0.8 * TICK).all()


def test_rows_before_a_fault_that_begins_slowly_are_refused_with_it():
    X = plant(4000)[0]
    X[3000:] += np.minimum(np.arange(1000) / 100, 5)[:, None] * DEVIATION * SIDES[1]
    monitor = Monitor().fit(X[:2000])
    verdicts = monitor.observe_many(X[2000:3000])
    before = monitor.describe()["learned"]
    verdicts = monitor.observe_many(X[3000:3300])
    usual = int(verdicts.learned.sum())
    assert usual > 0  # by themselves they were usual
    # Rows of the ticks before are learned in this time too: those two.
    assert monitor.describe()["learned"] - before <= 2 * TICK + usual // 2


def test_records_without_order_are_learned_at_once_and_make_no_modes():
    records = np.random.default_rng(0).permutation(plant(6000)[0])
    monitor = Monitor().fit(records[:2000])
    monitor.observe_many(records[2000 : 2000 + TICK])
    assert monitor.describe()["learned"] > 2000 + 0.9 * TICK
    verdicts = monitor.observe_many(records[2000 + TICK :] + 10 * DEVIATION * SIDES[1])
    assert verdicts.is_anomaly.mean() > 0.99
    assert not verdicts.drift.any()
    assert not verdicts.learned.any()


# -- slow faults ---------------------------------------------------------------------------


@pytest.mark.parametrize("sensor", [0, 2, 5])
def test_a_slow_ramp_is_noticed_and_its_sensor_named(sensor):
    X = plant(24_000, seed=sensor)[0]
    X[12_000:, sensor] += np.linspace(0, 3, 12_000) * DEVIATION[sensor]
    verdicts = Monitor().observe_many(X)
    assert (verdicts.drifting[:12_000] == -1).all()
    said = np.flatnonzero(verdicts.drifting >= 0)
    assert 12_000 < said[0] < 18_000
    assert (verdicts.drifting[said] == sensor).mean() > 0.9
    assert verdicts[int(said[0])].drifting == sensor


@pytest.mark.parametrize("seed", range(3))
def test_random_walks_and_counters_do_not_drift(seed):
    X = np.random.default_rng(seed).normal(size=(20_000, 4)).cumsum(axis=0)
    X[:, 3] = np.arange(20_000)
    assert (Monitor().observe_many(X).drifting == -1).all()


@pytest.mark.parametrize("seed", range(4))
def test_a_young_model_does_not_learn_a_leak(seed):
    X = plant(1500, seed)[0]
    leak = np.minimum(np.arange(400) / 100, 4) * DEVIATION[2]
    X[300:700, 2] += leak
    monitor = Monitor()
    verdicts = monitor.observe_many(X[:700])
    # Seen before it is 3 deviations large, and from there on nothing of it is learned.
    first = int(np.argmax(verdicts.is_anomaly[300:700]))
    assert 0 < first < 300
    assert verdicts.learned[300 + first + TICK :].mean() < 0.1
    # Repaired, and then it leaks again: that is as odd as before.
    assert not monitor.observe_many(X[700:1000]).drift.any()
    again = X[1000:1100].copy()
    again[:, 2] += 4 * DEVIATION[2]
    assert monitor.observe_many(again).is_anomaly.mean() > 0.7


STEPS = (0.4, 0.2, 0.1, 0.05, 0.02, 0.0, -0.1, -0.3)


def attack(window, seed, sensor, rows):
    """Push one sensor as far as the monitor learns it, tick by tick.

    Return the monitor before and after, and the offset of each tick in deviations. The attacker
    tries each tick on a copy, so it knows more than any real one.
    """
    start = 6 * 1024
    first = monitor = Monitor(window=window).fit(plant(start, seed)[0])
    offset, offsets = 0.0, []
    for t in range(start, start + rows, TICK):
        X = plant(TICK, seed * 1000 + t, t)[0]
        for tried in np.maximum(offset + np.array(STEPS), 0):
            twin, pushed = copy.deepcopy(monitor), X.copy()
            pushed[:, sensor] += tried * DEVIATION[sensor]
            if twin.observe_many(pushed).learned.all():
                break
        monitor, offset = twin, float(tried)
        offsets.append(offset)
    return first, monitor, np.array(offsets)


def expected(monitor, sensor):
    """Return how far the model expects a sensor from where it was, in deviations."""
    watching = definition(monitor)
    own, X = watching.modes[0], plant(4000, seed=77)[0]
    error = own.errors(own.scaled(windows(X, watching.width)))[1, :, sensor].mean()
    return -error * own.scale[sensor] / DEVIATION[sensor]


@pytest.mark.parametrize("sensor", [0, 3])
def test_an_attacker_just_below_the_gate_moves_the_model_by_its_share_of_the_rows(sensor):
    before, after, offsets = attack(1, sensor, sensor, 1024)
    weight = definition(after).modes[0].instances[1].gram[0, -1, -1]  # rows, weighed by forgetting
    assert weight <= 1 / (1 - FORGETTING**2) + 6 * 1024
    # What is expected is a weighted mean of what was learned. The attacker's rows weigh at most 1
    # each, so they move it by at most their share of the weight times the largest offset. 0.02 is
    # what the noise of 4,000 rows and of the other sensors' coefficients adds.
    moved = expected(after, sensor) - expected(before, sensor)
    assert moved <= len(offsets) * TICK / weight * offsets.max() + 0.02


@pytest.mark.parametrize("sensor", [0, 3])
def test_an_attacker_just_below_the_gate_gets_not_far(sensor):
    # With a window, a sensor that stays where it was a moment ago is believed more and more. So
    # there is no bound but a measured one. It is the lean that holds the attacker: without it,
    # 0.46 to 1.2 deviations in 1,024 rows, with it 0.05 to 0.12.
    _, _, offsets = attack(None, sensor, sensor, 1024)
    assert offsets.max() < 0.3


# -- missing values ------------------------------------------------------------------------


@pytest.mark.parametrize("sensors", [[1], [1, 3]])
@pytest.mark.parametrize("seed", range(3))
def test_an_outage_of_some_sensors_raises_few_alarms(seed, sensors):
    X = plant(8000, seed)[0]
    X[4000:6000, sensors] = NAN
    verdicts = Monitor().fit(X[:3000]).observe_many(X[3000:])
    assert np.isfinite(verdicts.score).all()
    assert (verdicts.shares[1000:3000, sensors] == 0).all()
    assert verdicts.is_anomaly[1000:].mean() < 0.05
    assert not verdicts.drift.any()
    assert verdicts.is_anomaly[3000 + LINGERS :].mean() < 0.005


def test_a_stream_that_comes_in_pieces_is_watched():
    X = plant(6000, seed=1)[0]
    for sensor in range(6):
        X[np.arange(6000) % (sensor + 1) != 0, sensor] = NAN  # each at its own rate
    verdicts = Monitor().observe_many(X)
    assert np.isfinite(verdicts.score).all()
    assert verdicts.is_anomaly[1000:].mean() < 0.01


# -- long life -----------------------------------------------------------------------------


def size(monitor):
    return len(pickle.dumps(monitor))


def test_a_long_life_in_a_drifting_stream_stays_finite_and_small():
    monitor, sizes, alarms = Monitor(), [], []
    for part in range(20):
        t = np.arange(10_000 * part, 10_000 * (part + 1))
        X = plant(10_000, part, t[0])[0] + 3 * DEVIATION * np.sin(t / 16_000)[:, None]
        verdicts = monitor.observe_many(X)
        assert np.isfinite(verdicts.score).all()
        assert np.isfinite(verdicts.threshold[verdicts.ready]).all()
        alarms.append(verdicts.is_anomaly.mean())
        sizes.append(size(monitor))
    assert np.mean(alarms[10:]) < 0.05
    one = size(Monitor().fit(plant(3000)[0]))
    assert max(sizes) < (MODES + 1) * one
    for each in definition(monitor).modes:
        assert each.instances[1].gram[0, -1, -1] <= 1 / (1 - FORGETTING**2) + TICK
        assert all(np.isfinite(instance.beta).all() for instance in each.instances)


@pytest.mark.parametrize("noise", [0.0, 1e-9])
def test_nothing_winds_up_while_all_sensors_are_stuck(noise):
    X = plant(4000, seed=1)[0]
    monitor = Monitor().fit(X)
    largest = max(np.abs(i.beta).max() for i in definition(monitor).modes[0].instances)
    still = np.repeat(X[-1:], 50_000, axis=0) * (1 + noise * white(50_000, 6))
    verdicts = monitor.observe_many(still)
    assert np.isfinite(verdicts.score).all()
    assert verdicts.is_anomaly[-1000:].mean() < 0.01
    for instance in definition(monitor).modes[-1].instances:
        # The ridge is never forgotten: it holds what the stuck rows do not tell.
        assert np.abs(instance.beta).max() <= 3 * largest
    again = monitor.observe_many(plant(8000, seed=2, first=4000)[0])
    assert again.drift.sum() <= 1
    assert again.is_anomaly[-2000:].mean() < 0.01
    assert again.learned[-2000:].mean() > 0.9


@pytest.mark.parametrize("noise", [0.0, 1e-9])
def test_a_machine_that_starts_at_rest_raises_no_alarm_until_it_runs(noise):
    X = plant(1000, seed=1)[0]
    monitor = Monitor()
    resting = monitor.observe_many(np.repeat(X[-1:], 3000, axis=0) * (1 + noise * white(3000, 6)))
    assert np.isfinite(resting.score).all()
    assert resting.is_anomaly.mean() < 0.01
    assert monitor.observe_many(X[:32]).is_anomaly.mean() > 0.9


# -- order and window ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_order_is_found_where_there_is_one(seed):
    X = smooth(500, 3, seed)
    shuffled = np.random.default_rng(seed).permutation(X)
    assert is_ordered(X)
    assert not is_ordered(shuffled)
    assert not is_ordered(white(500, 3, seed))
    gone = np.random.default_rng(seed + 1).uniform(size=X.shape) < 0.05
    assert is_ordered(np.where(gone, NAN, X))


def test_a_stream_that_stands_still_has_an_order():
    assert is_ordered(np.full((300, 2), 7.0))
    assert is_ordered(np.full((300, 2), NAN))


def test_the_default_window_is_longer_for_few_sensors():
    found = [default_window(n) for n in range(1, 1001)]
    assert found[0] == LONGEST_WINDOW
    assert (np.diff(found) <= 0).all()
    assert all(n * width <= WIDEST or width == 1 for n, width in enumerate(found, 1))


def test_rows_that_are_refused_now_and_then_leave_the_quarantine():
    rows = 20_000
    X = mode(0, rows, 1)
    for start in range(3000, rows - 4000, 2500):  # a burst of 20 odd rows now and then
        X[start : start + 20] += 30 * np.abs(X).std(axis=0)
    monitor, most = Monitor().fit(X[:2000]), 0
    for start in range(2000, rows, TICK):
        monitor.observe_many(X[start : start + TICK])
        most = max(most, monitor.describe()["quarantine"])
    assert 0 < most < CANDIDATE
    assert monitor.describe()["quarantine"] == 0
    assert not monitor.describe()["candidate"]
