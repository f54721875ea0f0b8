import copy
import pickle
import re

import numpy as np
import pytest
from rough import machine

import onlad
from onlad import Monitor, limit
from onlad.errors import ModelFileError
from onlad.limit import LASTING, SINGLE, TOLD
from onlad.mcu import PortableMonitor
from onlad.mcu.definition import WIDER, ChipLimit, Definition, level
from onlad.mcu.layout import JUDGED
from onlad.mcu.portable import to_bytes
from onlad.mode import BEYOND, FEW, OFTEN
from onlad.verdict import Verdicts

COLUMNS = ("ready", "score", "threshold", "p_value", "is_anomaly", "learned", "drift", "drifting")


def same(a: Verdicts, b: Verdicts):
    for column in (*COLUMNS, "shares"):
        np.testing.assert_array_equal(getattr(a, column), getattr(b, column), column)


@pytest.mark.parametrize(
    ("features", "hidden", "window", "modes", "rows"),
    [
        (1, 4, None, 3, 1500),
        (1, 32, None, 3, 1500),
        (2, 8, 3, 1, 1500),
        (3, 16, None, 3, 6000),
        (8, 32, None, 3, 3000),
    ],
)
def test_the_source_of_the_chip_is_its_definition(features, hidden, window, modes, rows):
    for seed in range(5):
        X = machine(rows, max(features, 2), seed)[:, :features]
        monitor = PortableMonitor(hidden=hidden, window=window, modes=modes)
        said = monitor.observe_many(X)
        chip = Definition(monitor.sizes(), *monitor.layer())
        score, threshold, drift = np.array([chip.observe(x) for x in X]).T
        # Rounding of float32, 6e-8, times the condition of the sums: some 10,000.
        np.testing.assert_allclose(said.score, score, rtol=6e-4, atol=6e-5)
        np.testing.assert_allclose(said.threshold, threshold, rtol=6e-4)
        np.testing.assert_array_equal(said.drift, drift.astype(bool))
        if features == 8 and seed == 0:
            assert said.drift.sum() == 1  # the other half is a mode of its own


def test_a_running_median_does_not_enlarge_a_small_difference():
    for seed in range(100):
        rng = np.random.default_rng(seed)
        found = np.cumsum(rng.normal(size=(96, 4)), axis=0)
        small = 1e-3 * found.std(axis=0)
        other = found + small * rng.uniform(-1, 1, found.shape)
        medians = [level(each, 1.0, 0.5)[0] for each in (found, other)]
        assert (np.abs(medians[0] - medians[1]) < small).all(), seed


def test_a_slow_drift_of_one_sensor_is_the_one_of_the_definition():
    rng = np.random.default_rng(0)
    level = np.sin(np.arange(9_000) / 30)
    X = np.array([level, 2 * level, -level]).T + 0.1 * rng.normal(size=(9_000, 3))
    X[6_600:, 1] += np.linspace(0, 1.2, 2_400)
    monitor = PortableMonitor(hidden=6, modes=1)  # the drift cannot become a mode
    said = monitor.observe_many(X.astype("float32"))
    chip = Definition(monitor.sizes(), *monitor.layer())
    drifting = []
    for x in X.astype("float32").astype("float64"):
        chip.observe(x)
        drifting.append(chip.drifting)
    assert (said.drifting[:6_600] == -1).all()
    assert said.drifting[-1] == 1
    # A row more or less at the bound is rounding.
    assert np.count_nonzero(said.drifting != drifting) <= 2


def counting():
    """Return a machine whose second feature is a meter, with a gap, and replaced at row 1,500."""
    X = machine(6000, 3)[:3000]
    rise = 2 + np.sin(np.arange(3000) / 20) + 0.1 * np.random.default_rng(0).normal(size=3000)
    X[:, 1] = np.round(np.cumsum(rise), 1)
    X[1500:, 1] -= X[1499, 1]
    X[750:755, 1] = np.nan
    return X.astype("float32").astype("float64")


@pytest.mark.parametrize("arithmetic", ["float", "fixed"])
def test_a_counter_is_watched_by_its_rate_to_the_bit(arithmetic):
    X = counting()
    monitor = PortableMonitor(hidden=8, counters=[1], arithmetic=arithmetic)
    said = monitor.observe_many(X)
    rates, last, since = X.astype("float32"), np.float32("nan"), np.float32(1)
    for t, value in enumerate(X[:, 1].astype("float32")):
        rates[t, 1] = np.nan if value <= last / 2 else (value - last) / since
        last, since = (last, since + 1) if np.isnan(value) else (value, np.float32(1))

    def hold_no_rate(state):
        state["patience"][1] = 0

    other = PortableMonitor(hidden=8, arithmetic=arithmetic)
    other.observe_many(rates[:700])
    rest = changed(other, hold_no_rate).observe_many(rates[700:])
    for column in (*COLUMNS, "shares"):
        np.testing.assert_array_equal(getattr(said, column)[700:], getattr(rest, column), column)
    assert monitor.describe()["counters"] == [1]
    assert not said.is_anomaly[1490:1510].any()  # a reset is none
    assert copy.deepcopy(monitor).dump() == monitor.dump()
    assert PortableMonitor.from_dump(monitor.dump()).counters == (1,)


def test_counters_of_the_source_are_those_of_the_definition():
    X = counting()
    monitor = PortableMonitor(hidden=16, counters=[1])
    said = monitor.observe_many(X)
    chip = Definition(monitor.sizes(), *monitor.layer(), counters=[1])
    score, threshold, _ = np.array([chip.observe(x) for x in X]).T
    # Rounding of float32, 6e-8, times the condition of the sums: some 10,000.
    np.testing.assert_allclose(said.score, score, rtol=2e-3, atol=2e-4)
    np.testing.assert_allclose(said.threshold, threshold, rtol=2e-3)


def test_a_counter_that_is_no_feature_is_refused():
    with pytest.raises(ValueError, match="counters must be names of features, got 'energy'"):
        PortableMonitor(counters=["energy"]).observe({"flow": 1.0})


def test_rows_one_by_one_give_what_many_give():
    X = machine(900, 3)
    one, many = PortableMonitor(hidden=8), PortableMonitor(hidden=8)
    said = many.observe_many(X)
    for t, x in enumerate(X):
        verdict = one.observe(x)
        assert verdict.score == said.score[t]
        assert verdict.causes == said[t].causes
    assert one.dump() == many.dump()


def test_it_finds_what_the_monitor_finds_and_names_the_cause():
    X = machine(3000, 5)
    X[1400, 3] += 8 * np.nanstd(X[:1000, 3])
    for monitor in (Monitor(), PortableMonitor()):
        verdict = monitor.observe_many(X)[1400]
        assert verdict.is_anomaly
        assert next(iter(verdict.causes)) == 3


@pytest.mark.parametrize("layer", ["stored", "seeded"])
@pytest.mark.parametrize(("features", "hidden"), [(1, 32), (3, 16), (8, 32)])
def test_fixed_point_gives_the_verdicts_of_floats(features, hidden, layer):
    X = machine(3000, features) if features > 1 else machine(3000, 2)[:, :1]
    one = PortableMonitor(hidden=hidden, layer=layer)
    other = PortableMonitor(hidden=hidden, layer=layer, arithmetic="fixed")
    said, fixed = one.observe_many(X), other.observe_many(X)
    np.testing.assert_array_equal(said.is_anomaly, fixed.is_anomaly)
    np.testing.assert_array_equal(said.drift, fixed.drift)
    # Inputs have 15 bits, of which the largest takes two or three; errors are some of 0.1. Of the
    # first 64 rows of a new mode the score is what is left of running means that were ten times as
    # large, and so are their errors.
    new = np.convolve(said.drift, np.ones(64))[: len(X)] > 0
    low = (said.score < 1) & ~new
    np.testing.assert_allclose(fixed.score[low], said.score[low], rtol=0.05, atol=0.02)


def test_a_seeded_layer_is_as_wide_as_a_stored_one():
    for settings in ({}, {"arithmetic": "fixed"}):
        layers = []
        for layer in ("stored", "seeded"):
            monitor = PortableMonitor(hidden=400, layer=layer, seed=3, **settings)
            monitor.names = tuple(range(20))
            layers.append(monitor.layer())
        for stored, seeded in zip(*layers, strict=True):
            assert stored.dtype == seeded.dtype
            # The deviation of 6,000 or 400 draws is known to some 5 %.
            assert abs(np.std(seeded) / np.std(stored) - 1) < 0.1


@pytest.mark.parametrize("rows", [0, 100, 150, 250, 383, 384, 700, 1600, 2900])
def test_a_dump_goes_on_to_the_last_bit(rows):
    X = machine(3000, 4)
    monitor = PortableMonitor(hidden=8)
    monitor.names = (0, 1, 2, 3)
    monitor.observe_many(X[:rows])
    data = monitor.dump(sequence=7)
    other = PortableMonitor(hidden=8).restore(data)
    assert (other.n_seen, other.dump(7)) == (rows, data)
    same(monitor.observe_many(X[rows:]), other.observe_many(X[rows:]))
    assert monitor.dump() == other.dump()


def test_a_model_file_a_copy_and_a_pickle_go_on_to_the_last_bit(tmp_path):
    X = machine(1500, 3)
    monitor = PortableMonitor(hidden=8, false_alarms=1e-3)
    monitor.observe_many(X[:800])
    onlad.save(monitor, tmp_path / "chip.onlad")
    others = [
        onlad.load(tmp_path / "chip.onlad"),
        copy.deepcopy(monitor),
        pickle.loads(pickle.dumps(monitor)),
    ]
    said = monitor.observe_many(X[800:])
    for other in others:
        assert other.false_alarms == 1e-3
        same(said, other.observe_many(X[800:]))


def test_an_unstarted_monitor_is_saved_too(tmp_path):
    onlad.save(PortableMonitor(hidden=8, window=2), tmp_path / "chip.onlad")
    assert repr(onlad.load(tmp_path / "chip.onlad")) == repr(PortableMonitor(hidden=8, window=2))


def test_any_byte_that_is_not_the_dumps_is_refused():
    X = machine(600, 2)
    monitor = PortableMonitor(hidden=4, modes=1)
    monitor.observe_many(X)
    data = monitor.dump()
    for at in range(0, len(data), 7):
        bad = bytearray(data)
        bad[at] ^= 0x10
        with pytest.raises(ModelFileError, match="the dump is damaged"):
            monitor.restore(bytes(bad))
    with pytest.raises(ModelFileError, match="the dump is damaged"):
        monitor.restore(data[:-1])
    with pytest.raises(ModelFileError, match="with other sizes or seed"):
        PortableMonitor(hidden=4, modes=1, seed=1).restore(data)
    assert monitor.dump() == data  # refused bytes change nothing


def test_a_file_whose_dump_was_changed_is_refused(tmp_path):
    monitor = PortableMonitor(hidden=4)
    monitor.observe_many(machine(500, 2))
    learned = monitor.learned()
    learned.dump[100] ^= 1
    monitor.learned = lambda: learned
    with pytest.raises(ModelFileError, match="the dump is damaged"):
        onlad.save(monitor, tmp_path / "chip.onlad")


def test_accept_learns_a_row_once_and_lowers_its_score():
    X = machine(1400, 3)
    odd = X[1399] + [0, 6 * np.nanstd(X[:, 1]), 0]
    monitor = PortableMonitor()
    monitor.observe_many(X)
    before = monitor.observe(odd)
    monitor.accept()
    assert not before.learned
    assert monitor.observe(odd).score < before.score


def test_accept_needs_a_row_that_was_judged():
    monitor = PortableMonitor()
    monitor.observe_many(machine(100, 3))
    for ago in (0, 64):
        with pytest.raises(ValueError, match="accept needs one of the last 64 samples judged"):
            monitor.accept(ago)


def changed(monitor, change):
    """Return a monitor that took over the dump of another, with a change."""
    state = monitor.state()
    change(state)
    return copy.deepcopy(monitor).restore(to_bytes(state, monitor))


def test_no_row_of_a_start_is_accepted_whatever_a_dump_says_of_it():
    monitor = PortableMonitor(hidden=4)
    monitor.observe_many(machine(100, 3))

    def judge_all(state):
        state["flags"] |= JUDGED

    with pytest.raises(ValueError, match="accept needs one of the last 64 samples judged"):
        changed(monitor, judge_all).accept()


def test_a_unit_that_no_start_can_have_is_refused():
    monitor = PortableMonitor(hidden=4, arithmetic="fixed")
    monitor.observe_many(machine(500, 3))

    def shrink(state):
        state["modes"]["scale"][0, 1] = 1e-45  # one over it is infinite

    with pytest.raises(ModelFileError, match="the dump is damaged"):
        changed(monitor, shrink)


def test_an_alarm_is_shelved_if_it_was_told_for_long_and_not_for_refused_rows_alone():
    X = machine(4000, 3)
    monitor = PortableMonitor(hidden=8)
    monitor.observe_many(X[:700])

    def threshold(alarms):
        def refuse(state):
            state["since"], state["episode"], state["alarms"] = 1, LASTING, alarms
            state["highest"] = 1000.0

        chip = changed(monitor, refuse)
        odd = X[700] + 20 * np.nanstd(X, axis=0)  # the episode goes on
        return chip.observe_many(np.tile(odd, (65, 1))).threshold[-1]

    assert threshold(TOLD) >= 1000 > threshold(0)


@pytest.mark.parametrize("rows", [1, 12])
def test_the_limit_of_a_histogram_is_that_of_the_scores(rows):
    """High scores that last for some rows are one cluster, on the chip as in the monitor."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        roots = 0.2 * np.repeat(rng.exponential(size=2040 // rows), rows)
        chip = ChipLimit(1e-3)
        for root in roots:
            chip.count(root**2)
        edge, base = (limit.tail(roots, 1e-3, clustered=each) for each in (False, True))
        # A bin is 3 to 6 % wide. Only 40 rows are fitted, and where the limit is far out, the
        # shape of their tail counts.
        np.testing.assert_allclose(chip.tails(), (edge, base), rtol=0.1)
        assert rows == 1 or chip.tails()[1] < 0.9 * chip.tails()[0]


def test_rows_below_a_tail_do_not_count_as_its_clusters():
    """Most rows of the bin at its edge are one long run, a little below the tail."""
    rng = np.random.default_rng(0)
    roots = rng.uniform(0.1, 0.4, 1000)
    roots[300:600] = rng.uniform(0.501, 0.515, 300)
    roots[::60] = rng.uniform(0.516, 0.9, 17)
    chip = ChipLimit(1e-3)
    for root in roots:
        chip.count(root**2)
    edge, base = (limit.tail(roots, 1e-3, clustered=each) for each in (False, True))
    np.testing.assert_allclose(chip.tails(), (edge, base), rtol=0.1)


def test_a_single_row_needs_more_than_a_limit():
    X = machine(6000, 3)[:1400]
    monitor = PortableMonitor(hidden=8)
    monitor.observe_many(X)
    usual, step = X[1399], np.array([0, 0.02 * np.nanstd(X[:1000, 1]), 0])
    for size in range(1, 1000):
        chip = copy.deepcopy(monitor)
        first = chip.observe(usual + size * step)
        if first.score > 1.05 * first.threshold / SINGLE:
            break
    assert not first.is_anomaly
    second = chip.observe(usual + 2 * size * step)
    assert second.is_anomaly
    np.testing.assert_allclose(second.threshold, first.threshold / SINGLE, rtol=1e-6)
    np.testing.assert_allclose(chip.describe()["threshold"], second.threshold, rtol=1e-6)


def test_nothing_is_learned_while_it_is_paused():
    X = machine(4000, 3)[:1000]
    monitor = PortableMonitor()
    monitor.observe_many(X[:600])
    monitor.paused = True
    monitor.observe_many(X[600:700])  # rows from before the pause are learned in it
    before = learned_rows(monitor)
    said = monitor.observe_many(X[700:800])
    assert not said.learned.any()
    assert learned_rows(monitor) == before
    monitor.paused = False
    assert monitor.observe_many(X[800:]).learned.any()
    assert learned_rows(monitor) > before


def learned_rows(monitor):
    return int(monitor.state()["places"][0, 1])


def test_what_is_no_measurement_counts_as_missing():
    X = machine(800, 3)
    monitor, other = PortableMonitor(), PortableMonitor()
    X[600, 1] = np.nan
    said = monitor.observe_many(X)
    X[600, 1] = 1e20
    same(said, other.observe_many(X))


def test_a_fit_starts_with_all_rows():
    X = machine(5000, 3)[:2000]
    monitor = PortableMonitor().fit(X)
    assert monitor.n_seen == 2000
    assert monitor.observe(X[1000]).ready
    with pytest.raises(ValueError, match="fit needs at least 96 samples with a value, got 10"):
        monitor.fit(X[:10])


def test_a_new_mode_after_a_long_history_starts_as_fast_as_after_none():
    X = machine(8000, 4)  # another mode from row 4,000 on
    said = PortableMonitor().fit(X[:4000]).observe_many(X[4000:])
    # 384 rows of its start, 320 as it begins again in wider units, half as many to explain as the
    # 3,333 that were learned, 64 that wait.
    assert 2370 < np.flatnonzero(said.drift)[0] < 2520


def test_one_outlier_in_a_start_does_not_make_all_rows_usual():
    X = machine(6000, 3)[:1400]
    X[250] += 1e4 * np.nanstd(X[:250], axis=0)
    monitor = PortableMonitor(hidden=8)
    monitor.observe_many(X)
    # A square is at most OFTEN usual ones, and a reach twice that, wider for few rows.
    widest = BEYOND * OFTEN * (1 + FEW / 96)
    assert monitor.state()["modes"]["levels"][0, 1].max() <= widest


def test_a_candidate_whose_units_are_too_small_begins_again_in_wider_ones():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 2))
    X[2000:] = 50 + 100 * X[2000:]
    X[2000:2140] = 50  # its units are measured here
    monitor = PortableMonitor(hidden=8)
    said = monitor.observe_many(X)
    assert said.drift.any()
    mode = monitor.state()["modes"][1]
    assert (mode["scale"] > 50).all()
    assert mode["usual"][1].mean() < WIDER


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"hidden": 3}, "hidden must be a whole number of at least 4, got 3"),
        ({"warmup": 100}, "warmup must be a multiple of 12 from 96 to 98,304, got 100. 96 is one"),
        ({"modes": 256}, "modes must be at most 255, got 256"),
        ({"false_alarms": 0}, "false_alarms must be in (0, 1), got 0"),
        ({"arithmetic": "double"}, "arithmetic must be"),
        ({"layer": "none"}, "layer must be"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(settings, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        PortableMonitor(**settings)


def test_a_monitor_that_no_chip_could_hold_is_refused():
    with pytest.raises(ValueError, match="take more memory than any chip has"):
        PortableMonitor(window=4096).observe([0.0] * 4096)
