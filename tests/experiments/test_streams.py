import numpy as np
import pytest

from experiments import records, streams
from onlad import Monitor


@pytest.fixture
def stream():
    """Two sensors that move together, and 40 rows in which they do not."""
    rng = np.random.default_rng(0)
    level = rng.uniform(0, 10, 1200)
    X = np.column_stack([level, 3 * level]) + rng.normal(0, 0.1, (1200, 2))
    y = np.zeros(1200, int)
    X[900:940, 1], y[900:940] = 0, 1
    return streams.make("loop", X, y, 400, 86_400)


def test_the_monitor_finds_what_breaks_the_relation(stream):
    found = streams.measure(stream, *streams.watch(Monitor(seed=0), stream.X))
    assert found["auc"] > 0.9
    assert found["faults"] == found["found"] == 1
    assert found["delays"][0] < 40
    assert found["anomalous"] == 40 / 800
    assert found["days"] == pytest.approx(760 / 86_400, abs=1e-5)


def test_a_quiet_stream_has_false_alarms_alone(stream):
    quiet = streams.make("quiet", stream.X, None, 0, 86_400)
    alarms = np.zeros(1200, bool)
    alarms[[10, 15, 500]] = True
    found = streams.measure(quiet, np.zeros(1200), alarms)
    assert found == {"false_alarms": 2, "days": round(1200 / 86_400, 5)}


def test_rows_are_scaled_by_the_past_alone(stream):
    whole = streams.scaled(stream.X)
    assert whole.shape == stream.X.shape
    np.testing.assert_array_equal(streams.scaled(stream.X[:640]), whole[:640])


def test_alarms_above_the_quantile_of_recent_scores():
    scores = np.random.default_rng(0).uniform(size=1000)
    scores[[100, 700]] = 9
    assert np.flatnonzero(streams.quantile_alarms(scores) & (scores > 1)).tolist() == [700]


def test_any_csv_with_labels(tmp_path, stream, capsys, monkeypatch):
    path = tmp_path / "loop.csv"
    table = np.column_stack([stream.X, stream.y])
    np.savetxt(path, table, delimiter=",", header="a,b,fault", comments="")
    again = streams.read_csv(path, "fault", None, 1440)
    np.testing.assert_allclose(again.X, stream.X)
    np.testing.assert_array_equal(again.y, stream.y)
    assert again.start == 180
    monkeypatch.setattr(
        streams, "METHODS", {"Monitor()": lambda s, X: streams.watch(Monitor(seed=s), X)}
    )
    streams.main(["csv", str(path), "--label", "fault"])
    assert '"method": "Monitor()"' in capsys.readouterr().out
    with pytest.raises(SystemExit, match="has no column 'broken'; it has a, b, fault"):
        streams.read_csv(path, "broken", None, 1440)


def test_the_table_comes_from_records_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(records, "RESULTS", tmp_path)
    line = {"method": "Monitor()", "seed": 0, "false_alarms": 3, "days": 1.5}
    fault = {"auc": 0.9, "auc_pr": 0.8, "anomalous": 0.3, "faults": 2, "found": 1, "delays": [7]}
    records.append(
        "streams",
        [line | fault | {"stream": name} for name in ("skab valve1_0", "smd 1-6", "nab nyc_taxi")]
        + [line | {"stream": "skab quiet", "false_alarms": 6}],
    )
    streams.main(["table"])
    row = capsys.readouterr().out.splitlines()[-1]
    cells = "0.900 | 0.900 | 0.900 | 0.800 | 0.800 | 0.800 | 50% | 50% | 50% | 7 | 4.0 | 2.0 | 2.0"
    assert row == f"| Monitor() | {cells} |"
