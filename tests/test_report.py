"""Measures against labels, tracks of any length, and pictures of them."""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlad import Monitor
from onlad.report import track
from onlad.report.evaluation import evaluate, is_anomalous, runs, truths
from onlad.report.record import records
from onlad.streams.block import Block, StreamError
from onlad.verdict import Verdicts
from plants import smooth


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.booleans(), st.booleans()), min_size=2, max_size=60
    ).filter(lambda rows: len({truth for _, _, truth in rows}) == 2)
)
def test_areas_are_those_of_scikit_learn(rows):
    metrics = pytest.importorskip("sklearn.metrics")
    score, alarm, truth = (np.array(column) for column in zip(*rows, strict=True))
    report = evaluate(score.astype(float), alarm, truth)
    # Sums of at most 60 ratios: rounding of a few units in the last place.
    assert report.auc == pytest.approx(metrics.roc_auc_score(truth, score), rel=1e-13)
    assert report.auc_pr == pytest.approx(metrics.average_precision_score(truth, score), rel=1e-13)


def test_events_delays_and_false_alarms():
    truth = np.array([0, 1, 1, 1, 0, 0, 1, 1, 0, 0], bool)
    alarm = np.array([1, 0, 0, 1, 1, 1, 0, 0, 0, 1], bool)
    report = evaluate(alarm + 0.0, alarm, truth)
    assert (report.events, report.found, report.delay, report.false_alarms) == (2, 1, 2.0, 3)
    assert (report.precision, report.recall) == (1 / 5, 1 / 5)
    assert [list(edges) for edges in runs(truth)] == [[1, 6], [4, 8]]


def test_records_are_of_the_samples_asked_for_and_say_what_their_verdicts_say():
    X = np.random.default_rng(0).normal(size=(800, 3))
    X[700, 1] += 30.0
    verdicts = Monitor().observe_many(X)
    which = [3, 700, 650]
    for i, found, short in zip(
        which, records(verdicts, which), records(verdicts, which, anomalies_only=True), strict=True
    ):
        verdict = verdicts[i]
        for name in ("score", "p_value", "severity", "is_anomaly", "ready", "learned", "drift"):
            assert found[name] == short[name] == getattr(verdict, name)
        assert found["threshold"] == (verdict.threshold if verdict.ready else None)
        assert list(found["causes"]) == [str(name) for name in verdict.causes]
        assert list(found["high"]) == [str(name) for name in verdict.high]
        assert ("high" in short) == verdict.is_anomaly == (i == 700)


def test_nothing_to_count_is_no_number():
    report = evaluate(np.zeros(3), np.zeros(3, bool), np.zeros(3, bool)).as_dict()
    assert report["auc"] is report["precision"] is report["recall"] is report["delay"] is None
    assert (report["samples"], report["events"], report["false_alarms"]) == (3, 0, 0)


@pytest.mark.parametrize(
    ("label", "truth"),
    [("0", False), ("1", True), ("0.0", False), (" TRUE ", True), ("normal", False), ("y", True)],
)
def test_labels_say_it_in_many_ways(label, truth):
    assert is_anomalous(label) is truth


@pytest.mark.parametrize("label", ["-1", "2", "smurf"])
def test_a_label_that_says_nothing_is_refused(label):
    with pytest.raises(StreamError, match="--normal VALUE names the normal one"):
        is_anomalous(label)
    assert is_anomalous(label, normal="x")
    assert not is_anomalous(label, normal=label)


def test_samples_without_a_label_do_not_count():
    known, truth = truths(["1", "", "0", "n/a"])
    assert known.tolist() == [True, False, True, False]
    assert truth.tolist() == [True, False, False, False]


# -- tracks -----------------------------------------------------------------------------------


def judged(rows, start, rng):
    verdicts = Verdicts(("a", "b"), rows)
    verdicts.ready[:] = start + np.arange(rows) >= 100
    verdicts.score[:] = rng.normal(size=rows)
    verdicts.threshold[verdicts.ready] = 2.0
    verdicts.is_anomaly[:] = verdicts.score > verdicts.threshold
    verdicts.shares[:, 0] = 1.0
    verdicts.drift[:] = start + np.arange(rows) == 5000
    index = start + np.arange(rows)
    return Block(("a", "b"), np.zeros((rows, 2)), index, index.tolist()), verdicts


@pytest.mark.parametrize("total", [150, 5_000, 40_000])
def test_a_track_is_bounded_and_loses_no_peak(total, monkeypatch):
    monkeypatch.setattr(track, "BUCKETS", 256)
    rng = np.random.default_rng(0)
    one, scores, alarms = track.Track(), [], 0
    for start in range(0, total, 50):
        block, verdicts = judged(50, start, rng)
        one.add(block, verdicts)
        scores.append(verdicts.score[verdicts.ready])
        alarms += verdicts.is_anomaly.sum()
    assert len(one) <= 512
    assert np.nanmax(one.score) == np.concatenate(scores).max()
    assert one.alarms.sum() == alarms == round(one.shares.sum())
    assert one.n_seen == total
    assert one.row.tolist() == [i * one.width for i in range(len(one))] == one.times
    assert one.drift.sum() == (total > 5000)
    listed = one.incidents
    assert len(listed) == min(one.n_incidents, track.MOST)
    if one.n_incidents == len(listed):
        assert sum(each.anomalies for each in listed) == alarms
    assert [each.begin for each in listed] == sorted(each.begin for each in listed)


@pytest.fixture(scope="module")
def seen():
    rng = np.random.default_rng(0)
    monitor, found = Monitor(names=("flow", "</script> & co")), track.Track()
    X = rng.normal(size=(1500, 2))
    X[1200:1210, 1] += 30
    block = Block(monitor.names, X, np.arange(1500))
    found.add(block, monitor.observe_many(X))
    return found


def test_the_page_stands_alone_and_has_every_bucket(seen):
    pytest.importorskip("matplotlib")
    from html.parser import HTMLParser

    from onlad.report import picture

    text = picture.page(seen, "a </script> & title")

    class Reader(HTMLParser):
        links, text = [], []

        def handle_starttag(self, tag, attributes):
            self.links += [
                value
                for name, value in attributes
                if name in ("src", "href", "xlink:href", "data") and not value.startswith("#")
            ]

        def handle_data(self, data):
            self.text.append(data)

    Reader().feed(text)
    assert Reader.links == []
    assert "url(http" not in text
    assert "@import" not in text
    assert "a </script> & title" in Reader.text
    assert any("</script> & co" in part for part in Reader.text)
    data = json.loads(re.search(r"const data = (.*);\n", text)[1].replace("<\\/", "</"))
    assert len(data["buckets"]) == len(seen) == 1500
    assert data["buckets"][1203][4] == "</script> & co"
    assert data["buckets"][0][1] is None


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_pictures_are_what_their_suffix_says(seen, tmp_path, suffix, magic):
    pytest.importorskip("matplotlib")
    from onlad.report import picture

    path = tmp_path / f"a.{suffix}"
    picture.draw(path, seen, "a title")
    assert path.read_bytes().startswith(magic)


def test_a_run_without_alarms_is_drawn_too():
    pytest.importorskip("matplotlib")
    from onlad.report import picture

    calm = track.Track()
    calm.add(Block(("a",), np.zeros((3, 1)), np.arange(3)), Verdicts(("a",), 3))
    assert "no alarms" in picture.page(calm, "calm")


def test_series_with_other_features_are_drawn_together_and_their_incidents_are_joined():
    """Their samples come in turn, and both fail within a minute."""
    picture = pytest.importorskip("onlad.report.picture")
    found = track.Track()
    for series, names, seed in (("a", ("flow", "power"), 1), ("b", ("power", "heat"), 2)):
        X = smooth(2000, 2, seed=seed)
        X[1500:1510, 1] += 50
        monitor = Monitor(names=names)
        for first in range(0, 2000, 100):
            values = X[first : first + 100]
            rows = 2 * np.arange(first, first + 100) + (series == "b")
            block = Block(names, values, rows, times=rows.tolist(), series=series)
            found.add(block, monitor.observe_many(values))
    assert found.names == ("flow", "power", "heat")
    (incident,) = found.incidents
    assert (incident.devices, found.n_incidents) == (("a", "b"), 1)
    assert (found.shares.sum(axis=0)[1:] > 0).all()
    assert found.alarms.sum() == pytest.approx(found.shares.sum())
    assert "<td>a, b</td>" in picture.page(found, "two")
