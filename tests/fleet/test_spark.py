"""Keyed streams on a real Spark on this machine. One session for all of it."""

import dataclasses
import datetime as dt
import re

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'onlad[fleet]'")

from fleet_data import (
    FEATURES,
    FIELDS,
    QUICK,
    SLOW,
    assert_said,
    devices,
    plain_loop,
    small_monitor,
    write,
)
from pyspark.errors import StreamingQueryException
from rich.console import Console

from onlad import Detector, load, persist
from onlad.errors import OnladError
from onlad.fleet import spark as fleet
from onlad.fleet.spark import demo
from onlad.fleet.spark.session import need_java
from onlad.reference import hidden
from onlad.rules import Rules
from oracle import assert_near, solve, tolerance

ROWS, COUNT = 120, 5
SCHEMA = "device string, time long, flow double, power double, heat double, ticket long"
LATE, AGAIN, ENDLESS = 1_000, 2_000, 3_000  # tickets of rows that are put in


@pytest.fixture(scope="module")
def spark():
    try:
        with fleet.session(2, **QUICK) as session:
            yield session
    except OnladError as error:
        pytest.skip(str(error))


def query(df, folder):
    """Run a streaming query to the end of its input and return what it has written so far.

    Spark gives a Python worker ten seconds to start. A machine that is too busy for that is no
    failure of ours: the query goes on from its checkpoint.
    """
    writer = df.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
    for _ in range(5):
        run = writer.trigger(availableNow=True).start(f"{folder}/said")
        try:
            run.awaitTermination()
            break
        except StreamingQueryException as error:
            if SLOW not in str(error):
                raise
    return df.sparkSession.read.parquet(f"{folder}/said").toPandas()


def stream(spark, folder, schema=SCHEMA):
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def told(**changes):
    """Return a row of pump-0 that is not among those of the others."""
    row = {"device": "pump-0", "time": 100, "flow": 50.0, "power": 800.0, "heat": 41.0}
    return pd.DataFrame([row | changes])


@pytest.fixture(scope="module")
def rows():
    frame = devices(COUNT, ROWS)
    return frame.assign(ticket=2**60 + np.arange(len(frame)))


@pytest.fixture(scope="module")
def story(spark, rows, tmp_path_factory):
    """Watch three micro-batches with rows in any order, and some that are no good."""
    folder = tmp_path_factory.mktemp("story")
    parts = [rows[rows["time"] // 40 == k].sample(frac=1, random_state=k) for k in range(3)]
    parts[1] = pd.concat(
        [
            told(time=5, flow=1e9, ticket=LATE),
            told(time=39, flow=1e9, ticket=AGAIN),  # the last of the micro-batch before
            parts[1],
            told(time=60, flow=1e9, ticket=AGAIN + 100),
            told(time=61, flow=1e9, ticket=AGAIN + 101),
            told(time=62, heat=np.inf, ticket=ENDLESS),
            told(time=62, power=-1e101, ticket=ENDLESS + 100),
            told(time=np.nan, ticket=ENDLESS + 101),
            told(device=None, time=7, ticket=ENDLESS + 102),
        ]
    ).astype({"time": "Int64", "ticket": "int64"})
    write(parts, folder / "in")
    verdicts = fleet.watch(
        stream(spark, folder / "in"), "device", FEATURES, "time", small_monitor(), keep=["ticket"]
    )
    return folder, query(verdicts, folder)


def by_ticket(said, ticket):
    return said[said["ticket"] == ticket].iloc[0]


def test_a_stream_says_what_a_plain_loop_says(story, rows):
    said = story[1]
    assert_said(said[said["note"].isna()], plain_loop(rows))
    assert said["is_anomaly"].sum() > 3  # there was something to say


def test_a_batch_says_what_a_stream_says(spark, story, rows):
    shuffled = spark.createDataFrame(rows.sample(frac=1, random_state=5)).repartition(3)
    said = fleet.watch(shuffled, "device", FEATURES, "time", small_monitor()).toPandas()
    assert said["note"].isna().all()
    assert_said(said, plain_loop(rows))


def test_each_row_has_one_answer(story, rows):
    assert len(story[1]) == len(rows) + 8
    assert story[1]["ticket"].is_unique


@pytest.mark.parametrize(
    ("ticket", "note"),
    [
        (LATE, "late"),
        (AGAIN, "repeated"),
        (AGAIN + 100, "repeated"),
        (AGAIN + 101, "repeated"),
        (ENDLESS, "refused: heat is Infinity"),
        (ENDLESS + 100, "refused: power is -1.0E101"),
        (ENDLESS + 101, "refused: time is null"),
        (ENDLESS + 102, "refused: device is null"),
    ],
)
def test_a_row_that_is_not_watched_says_why_and_nothing_else(story, ticket, note):
    row = by_ticket(story[1], ticket)
    assert row["note"] == note
    assert row[FIELDS].isna().all()


def test_a_model_goes_from_the_cluster_to_a_device(spark, story, rows, tmp_path):
    found = {row["key"]: row for row in fleet.models(spark, f"{story[0]}/checkpoint").collect()}
    assert set(found) == {f"pump-{k}" for k in range(COUNT)}
    assert {row["time"] for row in found.values()} == {ROWS - 1}
    mine = rows[rows["device"] == "pump-3"].sort_values("time")[FEATURES]
    twin = small_monitor()
    twin.observe_many(mine)
    (tmp_path / "pump-3.onlad").write_bytes(found["pump-3"]["model"])
    device = load(tmp_path / "pump-3.onlad")
    assert persist.to_bytes(device) == persist.to_bytes(twin)
    assert device.names == tuple(FEATURES)


# -- another list of features, keys that went away --------------------------------------------


@pytest.mark.slow
def test_other_features_stop_the_query_or_start_new_models(spark, rows, tmp_path):
    first, second = rows[rows["time"] < 80], rows[rows["time"] >= 80]
    write([first], tmp_path / "in")
    source = stream(spark, tmp_path / "in")

    def watched(features, **options):
        df = fleet.watch(source, "device", features, "time", small_monitor(), **options)
        return query(df, tmp_path)

    assert watched(["flow", "heat"])["ready"].sum() == 16 * COUNT
    write([first, second], tmp_path / "in")
    message = r"the model of pump-\d knows \['flow', 'heat'\], but features are \['power'\]"
    with pytest.raises(Exception, match=message):
        watched(["power"])
    said = watched(["power"], renew=True)
    later = said[said["time"] >= 80]
    assert not later["ready"].any()  # they warm up again
    assert_said(later, plain_loop(second, features=["power"]))


def test_patterns_and_features_that_come_later_go_on_from_a_checkpoint(spark, tmp_path):
    """The second query has one more feature; both learn patterns, by the clock of Tokyo."""
    frame = devices(2, 400)
    at = pd.to_datetime(1_793_000_000 + 1800 * frame["time"], unit="s", utc=True)
    frame["at"] = at.dt.as_unit("us")
    first, second = frame[frame["time"] < 300], frame[frame["time"] >= 300]
    schema = "device string, time long, flow double, power double, heat double, at timestamp"
    for parts, features in (([first], FEATURES[:2]), ([first, second], FEATURES)):
        write(parts, tmp_path / "in")
        source = stream(spark, tmp_path / "in", schema)
        said = query(
            fleet.watch(source, "device", features, "at", small_monitor(), keep=["time"],
                        patterns=True, rules=Rules(zone="Asia/Tokyo"), buckets=2),
            tmp_path,
        )  # fmt: skip
    loop = {}
    for device, rows in frame.groupby("device"):
        monitor, seconds = small_monitor(), 1_793_000_000.0 + 1800.0 * rows["time"] + 9 * 3600
        verdicts = list(monitor.observe_many(rows[FEATURES[:2]][:300], times=seconds[:300]))
        monitor.widen(["heat"])
        verdicts += monitor.observe_many(rows[FEATURES][300:], times=seconds[300:])
        for time, verdict in zip(rows["time"], verdicts, strict=True):
            loop[device, time] = dataclasses.asdict(verdict)
    assert_said(said, loop)
    (model,) = fleet.models(spark, f"{tmp_path}/checkpoint").filter("key = 'pump-1'").collect()
    monitor = persist.from_bytes(bytes(model.model))
    assert (monitor.timed, monitor.names, monitor.n_seen) == (True, tuple(FEATURES), 400)


@pytest.mark.slow
def test_the_order_of_features_does_not_matter(spark, rows, tmp_path):
    two = rows[rows["device"].isin(["pump-0", "pump-1"])]
    first, second = two[two["time"] < 80], two[two["time"] >= 80]
    for parts, features in (([first], FEATURES), ([first, second], FEATURES[::-1])):
        write(parts, tmp_path / "in")
        source = stream(spark, tmp_path / "in")
        verdicts = fleet.watch(source, "device", features, "time", small_monitor())
        said = query(verdicts, tmp_path)
    assert_said(said, plain_loop(two))


@pytest.mark.slow
def test_a_key_that_disappears_is_forgotten(spark, rows, tmp_path):
    two = rows[rows["device"].isin(["pump-0", "pump-1"])]
    first, second = two[two["time"] < 80], two[two["time"] >= 80]

    def watched(expire):
        folder = tmp_path / str(expire.total_seconds())
        for parts in ([first], [first, second]):
            write(parts, folder / "in")
            source = stream(spark, folder / "in")
            monitor = small_monitor()
            verdicts = fleet.watch(source, "device", FEATURES, "time", monitor, expire=expire)
            said = query(verdicts, folder)
        return said[said["time"] >= 80]

    assert watched(dt.timedelta(days=1))["ready"].all()
    # The second query starts more than a millisecond after the first has ended.
    assert not watched(dt.timedelta(milliseconds=1))["ready"].any()


def test_a_query_goes_on_with_the_models_of_another_one(spark, story, rows, tmp_path):
    # Other buckets, and another number of partitions than those of the checkpoint.
    later = devices(COUNT, ROWS + 40)
    later = later[later["time"] >= ROWS]
    write([later[later["time"] < ROWS + 20], later[later["time"] >= ROWS + 20]], tmp_path / "in")
    before = fleet.models(spark, f"{story[0]}/checkpoint")
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        columns = "device string, time long, flow double, power double, heat double"
        source = stream(spark, tmp_path / "in", columns)
        verdicts = fleet.watch(
            source, "device", FEATURES, "time", small_monitor(), buckets=7, models=before
        )
        said = query(verdicts, tmp_path)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
    loop = plain_loop(pd.concat([rows, later]))
    assert_said(said, {pair: verdict for pair, verdict in loop.items() if pair[1] >= ROWS})


# -- columns ----------------------------------------------------------------------------------

UTC = dt.timezone.utc
AUTUMN = dt.datetime(2025, 10, 26, 0, 30, 0, 123457, tzinfo=UTC)  # 02:30, an hour that comes twice


@pytest.mark.parametrize(
    ("kind", "moments"),
    [
        ("timestamp", [AUTUMN + dt.timedelta(hours=k) for k in range(3)]),
        (
            "timestamp_ntz",
            [dt.datetime(2025, 10, 26, 2, 30, 0, 123457) + dt.timedelta(hours=k) for k in range(3)],
        ),
        ("date", [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2026, 2, 28)]),
        ("long", [2**62 + 1, 2**62 + 2, 2**62 + 3]),
        ("double", [0.1, 0.2, 0.30000000000000004]),
        ("smallint", [-3, 0, 5]),
    ],
)
def test_times_and_kept_columns_come_back_as_they_were(spark, kind, moments):
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        table = [
            ("a", t, 1.0, 2**62 + k, None if k else "ü\"'", 0.1 + k, AUTUMN + dt.timedelta(hours=k))
            for k, t in enumerate(moments)
        ]
        names = f"k string, t {kind}, x double, n long, s string, d double, at timestamp"
        df = spark.createDataFrame(table[::-1], names)
        said = fleet.watch(df, "k", ["x"], "t", keep=["n", "s", "d", "at"])
        assert [said.schema[c] for c in ("k", "t", "n", "s", "d", "at")] == [
            df.schema[c] for c in ("k", "t", "n", "s", "d", "at")
        ]
        pick = ["k", "t", "n", "s", "d", "at"]
        assert said.select(pick).exceptAll(df.select(pick)).count() == 0
        assert said.filter("note is null").count() == 3
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_without_a_time_rows_go_in_the_order_of_the_frame(spark, rows):
    mine = rows[rows["device"] == "pump-1"].sort_values("time")
    df = spark.createDataFrame(mine).coalesce(1)
    said = fleet.watch(df, "device", FEATURES, monitor=small_monitor(), keep=["time"]).toPandas()
    assert_said(said, plain_loop(mine))


def test_a_key_may_start_with_what_another_device_knows(spark, rows):
    mine = rows[rows["device"] == "pump-1"].sort_values("time")
    typical = small_monitor()
    typical.observe_many(rows[rows["device"] == "pump-0"][FEATURES])
    data = persist.to_bytes(typical)
    df = spark.createDataFrame(mine)
    said = fleet.watch(df, "device", FEATURES, "time", typical).toPandas()
    assert said["ready"].all()
    assert_said(said, plain_loop(mine, lambda: persist.from_bytes(data)))


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"features": []}, ValueError, "features is empty"),
        ({"features": ["flow", "flow"]}, ValueError, "a column is named twice: flow, flow"),
        ({"keep": ["time"]}, ValueError, "a column is named twice: device, time, time"),
        ({"features": ["flow", "note"]}, TypeError, "column 'note' must hold numbers, got string"),
        ({"key": "flow"}, TypeError, "column 'flow' must hold text or whole numbers, got double"),
        ({"time": "text"}, TypeError, "column 'text' must hold numbers, dates or timestamps"),
        ({"keep": ["note"]}, ValueError, "'note' is a column of the verdict: rename that of df"),
        ({"expire": dt.timedelta(0)}, ValueError, "expire must be above 0, got datetime.timedelta"),
    ],
)
def test_what_could_not_go_well_is_refused_at_once(spark, rows, arguments, error, says):
    df = spark.createDataFrame(rows.head(3).assign(note="x", text="x"))
    asked = {"key": "device", "features": FEATURES, "time": "time"} | arguments
    with pytest.raises(error, match=re.escape(says)):
        fleet.watch(df, **asked)


def test_a_monitor_of_other_features_is_refused(spark, rows):
    monitor = small_monitor()
    monitor.observe({"flow": 1.0})
    says = "monitor knows ['flow'], but features are ['flow', 'power', 'heat']"
    with pytest.raises(ValueError, match=re.escape(says)):
        fleet.watch(spark.createDataFrame(rows.head(3)), "device", FEATURES, monitor=monitor)


def test_another_state_store_is_refused(spark, tmp_path):
    spark.conf.set(fleet.PROVIDER, "org.example.Other")
    try:
        with pytest.raises(OnladError, match=r"needs RocksDB: call spark\.conf\.set"):
            fleet.watch(stream(spark, tmp_path), "device", FEATURES)
    finally:
        spark.conf.set(fleet.PROVIDER, fleet.ROCKSDB)


# -- the initial fit --------------------------------------------------------------------------


def test_the_fit_of_a_cluster_is_the_local_fit(spark, rows):
    whole = rows.dropna()
    df = spark.createDataFrame(whole).repartition(7)
    X, unit, clip = whole[FEATURES].to_numpy(), fleet.measure(df, FEATURES), 1.5
    np.testing.assert_allclose(unit, (X.mean(axis=0), X.std(axis=0)), rtol=1e-12)
    Z = np.clip((X - unit[0]) / unit[1], -clip, clip)
    assert (np.abs(Z) == clip).any()
    detector = Detector(n_hidden=16, activation="tanh", weights="normal", forgetting=1.0)
    local = Detector.resumed(detector.settings()).fit(Z)
    spread = fleet.fit(df, FEATURES, detector, unit, clip)
    beta, P, gram = solve(hidden(local.state, Z, "tanh"), Z, 1.0, detector.ridge)
    for state in (local.state, spread.state):
        assert_near(state.P, P, tolerance(gram))
        assert_near(state.beta, beta, tolerance(gram))
    assert spread.n_seen == local.n_seen == len(whole)
    assert detector.n_features is None  # what was given is as it was


def test_missing_values_are_left_out_of_a_measure(spark, rows):
    X = rows[FEATURES].to_numpy()
    assert np.isnan(X).any()
    mean, deviation = fleet.measure(
        spark.createDataFrame(rows.assign(still=3.0)), [*FEATURES, "still"]
    )
    np.testing.assert_allclose(mean, [*np.nanmean(X, axis=0), 3.0], rtol=1e-12)
    np.testing.assert_allclose(deviation, [*np.nanstd(X, axis=0), 3e-8], rtol=1e-12)


def test_a_fit_of_rows_that_are_no_measurements_is_refused(spark, rows):
    df, detector = spark.createDataFrame(rows), Detector(n_hidden=4)
    missing = rows["power"].isna().sum()
    says = f"{missing} of {len(rows)} rows have a value that is missing or infinite"
    with pytest.raises(ValueError, match=says):
        fleet.fit(df, FEATURES, detector)
    with pytest.raises(ValueError, match="fit got no rows"):
        fleet.fit(df.filter("time < 0"), FEATURES, detector)
    with pytest.raises(TypeError, match="column 'device' must hold numbers"):
        fleet.fit(df, ["device"], detector)


# -- Java -------------------------------------------------------------------------------------


def test_without_java_one_line_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    says = "Spark needs Java 17 or newer, and there is none: install one, for example with `apt-get"
    with pytest.raises(OnladError, match=re.escape(says)):
        fleet.session()


def test_a_java_that_is_too_old_is_named(monkeypatch, tmp_path):
    (tmp_path / "bin").mkdir()
    old = tmp_path / "bin" / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(OnladError, match=re.escape(f"and {old} is 11: install one")):
        need_java()


# -- many keys --------------------------------------------------------------------------------


@pytest.mark.slow
def test_ten_thousand_keys(spark, tmp_path):
    frame = devices(10_000, 50)
    write([frame[frame["time"] < 40], frame[frame["time"] >= 40]], tmp_path / "in")
    columns = "device string, time long, flow double, power double, heat double"
    source = stream(spark, tmp_path / "in", columns)
    said = query(fleet.watch(source, "device", FEATURES, "time", small_monitor()), tmp_path)
    assert len(said) == len(frame)
    assert not said.duplicated(["device", "time"]).any()
    some = {f"pump-{k}" for k in range(0, 10_000, 50)}
    assert_said(said[said["device"].isin(some)], plain_loop(frame[frame["device"].isin(some)]))
    assert fleet.models(spark, f"{tmp_path}/checkpoint").count() == 10_000


# -- the demo ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_demo_finds_the_faults_that_were_put_in(spark, tmp_path):
    console = Console(record=True, width=120)
    said = demo.run(spark, str(tmp_path), console)
    console.print(demo.table(said))
    text = console.export_text()
    lines = {line.split()[1]: line for line in text.splitlines() if "│ pump-" in line}
    assert "bearing" in lines["pump-7"]
    assert "power" in lines["pump-23"]
    assert "refused: power is Infinity" in lines["pump-40"]
    assert "micro-batch 5 of 5: 60,000 rows" in text


def test_the_demo_without_java_is_one_line(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert demo.main() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("onlad: Spark needs Java 17 or newer, and there is none: install one")
