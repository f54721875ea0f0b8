import os
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
from experiments.benchmark import (
    collections,
    cuts,
    machines,
    measures,
    methods,
    normals,
    plants,
    report,
    run,
    scenarios,
    tables,
    timed,
    volume,
)
from experiments.benchmark.series import Collection, Outcome, series

from experiments import records


def flags(rows, *ranges):
    found = np.zeros(rows, bool)
    for start, stop in ranges:
        found[start:stop] = True
    return found


# -- measures -------------------------------------------------------------------------------------


def test_a_fault_is_found_by_an_alarm_that_begins_in_it_or_beside_it():
    y = flags(1000, (100, 120), (300, 320), (500, 520), (700, 720)).astype(int)
    alarm = flags(1000, (95, 97), (310, 312), (525, 530), (400, 401), (731, 732))
    found = measures.alarms(y, alarm)
    assert found.delays == [0, 10, 25, None]
    assert found.false == 2
    assert found.share == pytest.approx(9 / 920)


def test_alarms_less_than_ten_rows_apart_are_one_episode():
    y = np.zeros(100, int)
    assert measures.alarms(y, flags(100, (10, 11), (20, 21))).false == 1
    assert measures.alarms(y, flags(100, (10, 11), (21, 22))).false == 2


def test_an_alarm_that_never_ends_finds_nothing():
    y = flags(1000, (100, 120), (500, 520)).astype(int)
    found = measures.alarms(y, np.ones(1000, bool))
    assert found.delays == [None, None]
    assert (found.false, found.share) == (1, 1.0)


def test_without_order_each_row_stands_for_itself():
    y = np.array([0, 1, 1, 0, 1, 0])
    found = measures.alarms(y, np.array([1, 0, 1, 0, 1, 1], bool), ordered=False)
    assert found.delays == [None, 0, 0]
    assert found.false == 2


def a_fault(**known):
    """A hundred rows of three sensors; sensor 1 is wrong in rows 60 to 69."""
    y = flags(100, (60, 70)).astype(int)
    X = np.zeros((100, 3))
    return series("test", "a", X, y, history=20, causes={(60, 70): (1,)}, **known)


def test_the_first_cause_is_that_of_the_rows_in_alarm():
    shares = np.zeros((100, 3))
    shares[60:65, 0], shares[65:70, 1] = 9.0, 1.0
    alarm = flags(100, (65, 70))
    outcome = Outcome(score=np.arange(100.0), alarm=alarm, shares=shares)
    assert measures.right_causes(a_fault(), outcome) == [True]
    assert measures.noticed(a_fault(), outcome) == 5
    outcome = Outcome(score=np.arange(100.0), alarm=flags(100, (60, 70)), shares=shares)
    assert measures.right_causes(a_fault(), outcome) == [False]
    outcome = Outcome(score=np.arange(100.0), alarm=np.zeros(100, bool), shares=shares)
    assert measures.right_causes(a_fault(), outcome) == [None]
    assert measures.noticed(a_fault(), outcome) is None


def test_a_sensor_named_as_drifting_is_noticed():
    drifting = np.full(100, -1)
    drifting[30:62], drifting[63:] = 0, 1
    assert measures.noticed(a_fault(), Outcome(score=np.zeros(100), drifting=drifting)) == 3


def test_all_that_is_measured_of_a_series():
    ready = flags(100, (60, 100))
    alarm = flags(100, (10, 11), (30, 31), (62, 68))
    shares = np.tile([0.2, 0.7, 0.1], (100, 1))
    outcome = Outcome(score=np.arange(100.0), alarm=alarm, ready=ready, shares=shares)
    found = measures.measure(a_fault(marks={"late": [(60, 64), (66, 70)]}), outcome)
    assert found == {
        "rows": 100,
        "features": 3,
        "anomalous": 0.125,
        "auc": round(40 / 70, 5),
        "average_precision": found["average_precision"],
        "not_ready": 0.5,
        "normal_rows": 70,
        "false_episodes": 1,
        "alarm_share": round(1 / 70, 5),
        "faults": 1,
        "found": 1,
        "median_delay": 2.0,
        "marks": {"late": 0.5},
        "right_causes": [True],
        "noticed": 2,
    }


def test_alarms_in_a_history_that_was_told_do_not_count():
    made = series("test", "a", np.zeros((100, 1)), history=50, first=0)
    alarm = flags(100, (10, 11), (70, 71))
    assert measures.measure(made, Outcome(score=alarm * 1.0, alarm=alarm))["false_episodes"] == 2
    told = Outcome(score=alarm * 1.0, alarm=alarm, told=50)
    found = measures.measure(made, told)
    assert (found["false_episodes"], found["normal_rows"]) == (1, 50)


def test_an_outcome_with_too_few_rows_is_refused():
    with pytest.raises(ValueError, match="score has 99 rows, a has 100"):
        measures.measure(a_fault(), Outcome(score=np.zeros(99)))


@pytest.mark.skipif(find_spec("TSB_AD") is None, reason="TSB-AD comes with make benchmark")
@pytest.mark.parametrize("window", [0, 1, 7, 30])
def test_the_fast_vus_pr_is_that_of_tsb_ad(window):
    curves = measures._tsb_ad("evaluation/basic_metrics")
    for seed in range(3):
        rng = np.random.default_rng(seed)
        y = np.zeros(600, int)
        for start in (0, 200, 215, 400, 590):  # at both ends, and with buffers that meet
            y[start : start + int(rng.integers(1, 12))] = 1
        score = measures.scaled(np.round(rng.normal(size=600) + y, 1))  # with ties
        expected = curves.generate_curve(y, score, window, "opt", 250)[7]
        assert volume.vus_pr(y, score, window) == pytest.approx(expected, rel=1e-9)


@pytest.mark.skipif(find_spec("TSB_AD") is None, reason="TSB-AD comes with make benchmark")
def test_vus_pr_is_high_for_the_labels_and_about_their_share_for_noise():
    rng = np.random.default_rng(0)
    X = np.sin(np.arange(2000) / 8)[:, None] + rng.normal(0, 0.1, (2000, 1))
    y = flags(2000, (900, 950), (1500, 1550)).astype(int)
    assert measures.vus_pr(X, y, y * 1.0) > 0.8
    assert measures.vus_pr(X, y, rng.uniform(size=2000)) < 0.2


# -- what is measured -----------------------------------------------------------------------------


def test_a_history_with_a_fault_is_refused():
    with pytest.raises(ValueError, match="a: row 5 of the history is a fault"):
        series("test", "a", np.zeros((20, 2)), np.arange(20) == 5, history=10)


@pytest.mark.parametrize("name", machines.MACHINES)
def test_a_machine_is_wrong_only_where_it_says_so(name, monkeypatch):
    made, kinds = machines.simulate(name, 1)
    again, _ = machines.simulate(name, 1)
    np.testing.assert_array_equal(made.X, again.X)
    assert kinds == machines.kinds(f"{name}, run 1")
    assert sorted(kinds) == sorted(machines.FAULTS)
    assert not made.y[: machines.NORMAL].any()
    starts = [start for start, _ in made.causes]
    stops = [stop for _, stop in made.causes]
    assert min(np.subtract(starts[1:], stops[:-1])) >= machines.GAP
    whole = dict.fromkeys(machines.FAULTS, lambda at: at.own)
    monkeypatch.setattr(machines, "FAULTS", whole)
    clean = machines.simulate(name, 1)[0]
    wrong = made.X != clean.X
    assert not wrong[made.y == 0].any()
    for kind, ((start, stop), sensors) in zip(kinds, made.causes.items(), strict=True):
        assert len(sensors) == (2 if kind == "swap" else 1)
        if kind != "swap":  # it exchanges two sensors, whatever they show
            assert np.flatnonzero(wrong[start:stop].any(axis=0)).tolist() == list(sensors)


@pytest.mark.parametrize("name", plants.PLANTS)
def test_a_plant_has_each_fault_in_each_size_and_none_before(name, monkeypatch):
    made, kinds = plants.make(name, 0)
    assert sorted(kinds) == sorted(3 * [*plants.PLANTS[name].faults])
    assert np.isfinite(made.X).all()
    again, _ = plants.make(name, 0)
    assert np.array_equal(made.X, again.X)
    assert int(np.argmax(made.y)) == plants.HISTORY
    monkeypatch.setattr(plants, "SIZES", (0.0, 0.0, 0.0))
    sound, _ = plants.make(name, 0)
    assert not np.array_equal(sound.X[made.y == 1], made.X[made.y == 1])


@pytest.mark.parametrize("kind", normals.NORMALS)
def test_normal_data_have_no_labels_and_come_again(kind):
    made, again = normals.make(kind, 0, 3000), normals.make(kind, 0, 3000)
    np.testing.assert_array_equal(made.X, again.X)
    assert made.X.shape[0] == 3000
    assert 4 <= made.X.shape[1] <= 8
    assert not made.y.any()
    assert not made.causes
    assert np.isnan(made.X).any() == (kind in ("different rates", "dropouts"))
    assert not np.array_equal(made.X, normals.make(kind, 1, 3000).X, equal_nan=True)


@pytest.mark.parametrize("name", scenarios.SCENARIOS)
def test_a_scenario_comes_again_and_its_probes_are_labelled(name):
    made = scenarios.make(name, 2)
    np.testing.assert_array_equal(made.X, scenarios.load(f"{name}, seed 2").X)
    assert made.name == f"{name}, seed 2"
    probes = made.marks.get("probes", ())
    assert all(made.y[start:stop].all() for start, stop in probes)
    assert all(made.y[start:stop].all() or name == "no ramp" for start, stop in made.causes)


@pytest.mark.parametrize(("alarm", "moved"), [(False, 50.0), (True, 0.0)])
def test_an_attacker_goes_as_far_as_nobody_sees(alarm, moved):
    verdict = SimpleNamespace(is_anomaly=alarm, learned=False)
    watcher = SimpleNamespace(observe=lambda x: verdict)
    assert scenarios.poisoned(lambda history: watcher, 0, rows=50) == pytest.approx(moved)


@pytest.mark.parametrize("collection", collections.LABELLED, ids=lambda c: c.name)
def test_a_labelled_collection_is_what_it_says(collection):
    if collection.missing():
        pytest.skip(f"{collection.needs} is not set")
    names = collection.names()
    made = collection.load(names[0])
    assert (made.collection, made.name) == (collection.name, names[0])
    assert made.y.any() == (collection.name != "quiet")
    assert all(made.y[start : stop - 1].all() for start, stop in made.causes)


@pytest.mark.parametrize(
    ("kind", "rows", "features", "history"),
    [("late", 1_500, 6, 500), ("half 0", 2_000, 3, 1_000), ("from 100", 1_899, 6, 300)],
)
def test_a_cut_has_other_rows_or_features(kind, rows, features, history, monkeypatch):
    monkeypatch.setattr(cuts, "GECCO_HISTORY", 300)
    y = np.zeros(2_000)
    y[[100, 1_500]] = 1  # the 300 rows from row 100 on are not normal, those from row 101 on are
    X = np.random.default_rng(0).normal(size=(2_000, 6))
    label = y if kind.startswith("from") else np.where(np.arange(2_000) < 1_000, 0, y)
    whole = series("any", "any", X, label, history=100 if kind.startswith("from") else 1_000)
    part = cuts.cut(whole, kind)
    assert (part.X.shape, part.history, part.first) == ((rows, features), history, history)
    assert len(part.y) == rows
    assert part.y.sum() == 1


@pytest.mark.parametrize("watch", [methods.monitor, methods.monitor_told])
def test_a_monitor_is_given_the_times_of_a_series_that_has_them(watch):
    hours = np.arange(0, 24 * 28, 0.25)
    X = np.random.default_rng(0).normal([20.0, 3.0], 0.5, (len(hours), 2))
    X[:, 0] += 10 * ((hours % 24 > 7) & (hours % 24 < 19))
    X[-90:-86, 0] += 10  # by night
    whole = series("any", "any", X, history=len(X) // 2)
    assert not watch(whole).alarm[-90:-86].any()
    assert watch(replace(whole, times=3_600 * hours)).alarm[-90:-86].all()


def test_only_monitors_watch_streams_with_times(monkeypatch):
    for variable in (collections.BENCHMARK, collections.STREAMS):
        monkeypatch.setenv(variable, ".")
    monkeypatch.setattr(timed, "names", lambda: ["asd: omi1"])
    collection = replace(timed.COLLECTION, names=timed.names)
    monkeypatch.setattr(run, "COLLECTIONS", {"timed": collection})
    todo = run.tasks(["timed"], list(methods.METHODS))
    assert [task.method for task in todo] == list(methods.OURS)


@pytest.mark.skipif("ONLAD_BENCHMARK" not in os.environ, reason="ONLAD_BENCHMARK is not set")
def test_a_stream_with_times_is_the_whole_one():
    made, whole = timed.load("asd: omi1"), collections.asd("omi1")
    np.testing.assert_array_equal(made.X, whole.X)
    assert np.diff(made.times).tolist() == [300.0] * (len(whole.X) - 1)


@pytest.mark.skipif("ONLAD_BENCHMARK" not in os.environ, reason="ONLAD_BENCHMARK is not set")
def test_causes_are_features_from_0_in_rows_of_the_whole_series():
    made = collections.asd("omi5")
    assert made.causes[8640 + 1589, 8640 + 1618] == (1, 3, 16)


def test_a_collection_without_its_folder_names_the_variable(monkeypatch, capsys):
    monkeypatch.delenv("ONLAD_BENCHMARK", raising=False)
    assert run.tasks(["gecco"], ["plain ONLAD"]) == []
    assert "gecco: skipped; set ONLAD_BENCHMARK to the folder" in capsys.readouterr().err


# -- methods --------------------------------------------------------------------------------------


def test_a_missing_value_is_the_last_one_or_the_first_that_comes():
    gap = np.nan
    X = np.array([[gap, 1.0, gap], [2.0, gap, gap], [gap, 3.0, gap]])
    expected = [[2.0, 1.0, 0.0], [2.0, 1.0, 0.0], [2.0, 3.0, 0.0]]
    assert methods.filled(X).tolist() == expected


@pytest.fixture(scope="module")
def loop():
    """Four sensors that move together; sensor 2 is off in 100 rows."""
    rng = np.random.default_rng(0)
    level = machines.autoregression(rng, 2000, 0.95)
    X = np.outer(level, [3, -3, 3, 3]) + rng.normal(0, 0.3, (2000, 4))
    X[1500:1600, 2] += 6
    X[::50, 3] = np.nan
    y = flags(2000, (1500, 1600)).astype(int)
    return series("test", "loop", X, y, history=1000, causes={(1500, 1600): (2,)})


@pytest.mark.parametrize("name", list(methods.METHODS))
def test_a_method_says_something_of_every_row(name, loop):
    if name.startswith("River"):
        pytest.importorskip("river")
    found = methods.METHODS[name](loop)
    assert np.isfinite(found.score).all()
    assert found.score.shape == found.alarm.shape == (2000,)
    assert found.told == (1000 if methods.METHODS[name].told else 0)
    assert "auc" in measures.measure(loop, found)


def test_the_batch_pca_finds_the_sensor_that_is_off(loop):
    found = measures.measure(loop, methods.METHODS["batch PCA, T² and SPE"](loop))
    assert found["found"] == 1
    assert found["right_causes"] == [True]
    assert found["auc"] > 0.9


@pytest.mark.parametrize("name", list(methods.METHODS))
def test_no_method_looks_ahead(name, loop):
    if name.startswith("River"):
        pytest.importorskip("river")
    part = series("test", "loop", loop.X[:1550], loop.y[:1550], history=1000)
    whole, early = methods.METHODS[name](loop), methods.METHODS[name](part)
    # Sums of products are taken in another order for another number of rows.
    np.testing.assert_allclose(early.score, whole.score[:1550], rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(early.alarm, whole.alarm[:1550])


class Fake:
    """A monitor that remembers what it was given: the sum of all rows before."""

    def __init__(self):
        self.total = 0.0

    def fit(self, X, times=None):
        self.total += float(np.nansum(X))
        return self

    def observe_many(self, X, times=None):
        score = self.total + np.cumsum(np.nansum(X, axis=1))
        self.total = float(score[-1])
        nothing = np.zeros(len(X), bool)
        return SimpleNamespace(
            names=(0, 1, 2, 3),
            score=score,
            is_anomaly=nothing,
            ready=~nothing,
            shares=np.zeros(X.shape),
            drifting=np.append(np.full(len(X) - 1, -1), 3),
        )


def test_a_monitor_that_is_told_learns_the_history_once(loop, monkeypatch):
    monkeypatch.setattr(methods, "Monitor", Fake)
    fresh, told = (methods.METHODS[name](loop) for name in methods.OURS)
    rows = np.cumsum(np.nansum(loop.X, axis=1))
    np.testing.assert_allclose(fresh.score, rows)
    np.testing.assert_allclose(told.score[1000:], rows[1000:])
    np.testing.assert_allclose(told.score[:1000], rows[999] + rows[:1000])
    assert (fresh.told, told.told) == (0, 1000)
    assert np.flatnonzero(told.drifting == 3).tolist() == [999, 1999]


# -- runs and the page ----------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path, monkeypatch, loop):
    """A benchmark of one collection with two series, here and in one process."""
    ran = []

    def load(name):
        ran.append(name)
        return loop

    monkeypatch.setattr(records, "RESULTS", tmp_path)
    monkeypatch.setattr(run, "PROCESSES", 1)
    both = {"skab": Collection("skab", "two", lambda: ["a", "b"], load)}
    monkeypatch.setattr(run, "COLLECTIONS", both)
    monkeypatch.setattr(report, "PAGE", tmp_path / "benchmark.md")
    monkeypatch.setattr(report, "FOLDER", tmp_path)
    return ran


def test_a_run_goes_on_where_it_stopped(small, capsys):
    words = ["--collections", "skab", "--methods", "plain ONLAD"]
    run.store(run.Task("skab", "a", "plain ONLAD"), run.Task("skab", "a", "plain ONLAD").run())
    run.main(words)
    assert small == ["a", "b"]
    run.main(words)
    assert small == ["a", "b"]
    run.main([*words, "--again"])
    assert small == ["a", "b", "a", "b"]
    stored = records.read("benchmark/skab")
    assert sorted(record["series"] for record in stored) == ["a", "b"]
    assert stored[0]["command"] == (
        "python -m experiments.benchmark --collections skab --methods 'plain ONLAD' --again"
    )
    assert {"machine", "commit", "seconds", "auc"} <= stored[0].keys()
    row = f"| plain ONLAD | {np.mean([r['auc'] for r in stored]):.3f} |"
    assert f"**{row.split()[4]}**" in report.PAGE.read_text()


def test_a_page_without_records_says_so(small):
    run.main(["--collections"])
    assert tables.NOTHING in report.PAGE.read_text()


def test_a_method_that_lacks_a_series_has_no_mean(small):
    line = {"auc": 0.5, "machine": "one", "commit": "abc"}
    for method, names in {"plain ONLAD": "ab", "PySAD LODA": "a"}.items():
        records.append("benchmark/skab", [line | {"method": method, "series": n} for n in names])
    assert list(tables.complete("skab")) == ["plain ONLAD"]
    assert "PySAD LODA" not in tables.scores()


def test_a_stale_page_is_named(small):
    report.PAGE.write_text("old")
    with pytest.raises(SystemExit, match=r"benchmark.md is stale: run python -m"):
        report.main(["--check"])


def test_the_picture_has_ours_among_the_published(small, tmp_path):
    line = {"series": 22, "vus_pr": 0.2, "vus_pr_180": 0.3}
    records.append("benchmark/published", [line | {"method": "PCA"}])
    mine = {"method": "Monitor()", "series": "a", "vus_pr": 0.4, "seconds": 1.0, "rows": 10}
    alarms = {"normal_rows": 9, "false_episodes": 0, "alarm_share": 0.0, "faults": 1, "found": 1}
    origin = {"machine": "one", "commit": "abc"}
    records.append("benchmark/tsb_ad_m", [mine | alarms | origin])
    page = report.page(tmp_path)
    assert "| 1 | **Monitor()** | here | 0.400 |  |" in page
    assert "| 2 | PCA | published | 0.200 | 0.300 |" in page
    picture = (tmp_path / "tsb-ad-m.svg").read_text()
    assert "Monitor()" in picture
    assert picture.index("Monitor()") < picture.index("PCA")
    choice = {"left_out": "skab", "settings": {"gate": 3}, "value": 0.8, "in_sample": 0.9}
    records.append("benchmark/choice", [choice])
    assert "| skab | {'gate': 3} | 0.800 | 0.900 |" in report.page(tmp_path)


def test_random_layers_are_shown_with_their_range(small, tmp_path):
    values = [("nothing", 0.4), ("nothing", 0.1), ("nothing", 0.4), ("history", 0.5)]
    found = [{"collection": "skab", "told": told, "value": value} for told, value in values]
    records.write("benchmark/layers", found)
    page = report.page(tmp_path)
    assert "| **Monitor()** | 0.300 (0.100 to 0.400) |" in page
    assert "| **Monitor().fit** | 0.500 (0.500 to 0.500) |" in page
