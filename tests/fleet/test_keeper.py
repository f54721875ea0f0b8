"""What is said of the rows of one key, without a cluster; `test_spark` has the real one."""

import dataclasses
import datetime as dt
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'onlad[fleet]'")

import pandas as pd
from fleet_data import FEATURES, assert_said, devices, plain_loop, small_monitor
from pyspark.sql import types as st

from onlad import Monitor, persist
from onlad.errors import ModelFileError, OnladError
from onlad.fields import values
from onlad.fleet.spark.herd import Kept, Memory, herd_of
from onlad.fleet.spark.keeper import Keeper, answers
from onlad.rules import Rules, Sensor
from onlad.watching import CANDIDATE

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "benchmarks" / "results" / "spark.jsonl"
LONG = st.LongType()


def keeper(names=tuple(FEATURES), clock=LONG, expire=None, renew=False):
    start = persist.to_bytes(small_monitor())
    return Keeper(names, start, st.StringType(), clock, expire=expire, renew=renew)


def prepared(frame, names=FEATURES, **columns):
    """Return rows of a device as Spark prepares them."""
    columns = {"row": np.arange(len(frame)), "refused": None, "kept": None} | columns
    features = {f"x{j}": frame[name] for j, name in enumerate(names)}
    return frame[["time"]].assign(key=frame["device"], **columns, **features)


def model_of(kept, key):
    """Return the monitor of a device in the state of its bucket."""
    return herd_of(kept, key)[kept.keys.index(key)]


def named(said, names=FEATURES):
    """Return answers under the names that they have in Spark."""
    causes = [
        None if order is None else
        [{"feature": names[j], "share": s} for j, s in zip(order, shares, strict=True) if s > 0]
        for order, shares in zip(said["order"], said["shares"], strict=True)
    ]  # fmt: skip
    return said.rename(columns={"key": "device"}).assign(causes=causes)


class Clock:
    """Spark's clock."""

    def __init__(self, now):
        self.now = now

    def getCurrentProcessingTimeInMs(self):
        return self.now


class Value:
    """A value that is in no store, with what a keeper asks of it."""

    def __init__(self, ttl):
        self.value, self.ttl, self.updates = None, ttl, 0

    def get(self):
        return self.value

    def update(self, value):
        self.value = value
        self.updates += 1


class Store:
    """The state of a bucket."""

    def getValueState(self, name, schema, ttl):
        made = Value(ttl)
        setattr(self, name, made)
        return made

    def kept(self):
        return Kept(*self.bank.value, *self.since.value)


@pytest.mark.parametrize("remembers", [True, False])
@pytest.mark.parametrize(
    ("sizes", "writes"), [([120], 1), ([1] * 120, 8), ([31, 1, 2, 86], 2), ([64, 56], 2)]
)
def test_micro_batches_of_any_size_say_the_same(sizes, writes, remembers, monkeypatch):
    if not remembers:  # as if each were run by another process
        monkeypatch.setattr(Memory, "take", lambda self, mark: None)
    frame, store, here = devices(3, 120), Store(), keeper(expire=dt.timedelta(seconds=2))
    here.init(store)
    assert (store.bank.ttl, store.since.ttl) == (4000, 2000)
    said = []
    for stop, size in zip(np.cumsum(sizes), sizes, strict=True):
        part = frame[(frame["time"] >= stop - size) & (frame["time"] < stop)]
        rows = iter([prepared(part.sample(frac=1))])
        said += here.handleInputRows((0,), rows, Clock(int(stop)))
    here.close()
    said = named(pd.concat(said))
    assert_said(said, plain_loop(frame))
    kept = store.kept()
    assert kept.last == [119] * 3
    assert [each.n_seen for each in map(herd_of(kept, "").__getitem__, range(3))] == [120] * 3
    assert store.bank.updates == writes


def test_a_micro_batch_that_is_run_again_says_the_same():
    frame, store, here = devices(2, 120), Store(), keeper()
    here.init(store)
    for stop in range(10, 121, 10):
        before = store.bank.value, store.since.value
        rows = prepared(frame[(frame["time"] >= stop - 10) & (frame["time"] < stop)])
        (said,) = here.handleInputRows((0,), iter([rows]), Clock(0))
        after = herd_of(store.kept(), "").to_bytes()
        store.bank.value, store.since.value = before  # it was not committed
        (again,) = here.handleInputRows((0,), iter([rows]), Clock(0))
        pd.testing.assert_frame_equal(said, again)
        assert herd_of(store.kept(), "").to_bytes() == after


def test_a_bank_is_written_before_it_expires():
    frame, store, here = devices(1, 40), Store(), keeper(expire=dt.timedelta(seconds=2))
    here.init(store)
    written = []
    for t in range(10):
        list(
            here.handleInputRows((0,), iter([prepared(frame[frame["time"] == t])]), Clock(900 * t))
        )
        written.append(store.bank.updates)
    assert written == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4]


def test_a_process_remembers_as_many_banks_as_it_may(monkeypatch):
    monkeypatch.setattr("onlad.fleet.spark.herd.REMEMBERED", 100)
    here = Memory()
    here.put(b"a", "first", 60)
    here.put(b"b", "second", 60)
    here.put(b"c", "too large", 101)
    assert [here.take(mark) for mark in (b"a", b"b", b"b", b"c")] == [None, None, None, None]
    here.put(b"d", "fourth", 100)
    assert here.take(b"d") == ("fourth", 100)
    assert here.take(b"d") is None


def test_a_device_that_expired_starts_anew_and_others_stay():
    frame, store, here = devices(2, 120), Store(), keeper(expire=dt.timedelta(seconds=2))
    here.init(store)

    def sent(rows, now):
        (said,) = here.handleInputRows((0,), iter([prepared(rows)]), Clock(now))
        return said

    early, late = frame[frame["time"] < 100], frame[frame["time"] >= 100]
    sent(early, 1000)
    one = late[late["device"] == "pump-0"]
    assert sent(one[one["time"] == 100], 2999)["ready"].all()
    assert sent(late[late["device"] == "pump-1"], 3000)["ready"].any() == False  # noqa: E712
    assert sent(one[one["time"] > 100], 4000)["ready"].all()
    # What was late before it expired is not late after.
    again = sent(early[early["device"] == "pump-0"].head(1), 9000)
    assert again["note"].isna().all()
    assert store.kept().keys == ["pump-0"]


def test_models_of_another_checkpoint_are_taken_over():
    frame, here = devices(2, 120), keeper()
    first, second = frame[frame["time"] < 70], frame[frame["time"] >= 70]
    _, state = here.answer(prepared(first))
    models = [persist.to_bytes(model_of(state, key)) for key in state.keys]
    table = pd.DataFrame({"key": state.keys, "time": state.last, "model": models})
    store = Store()
    here.init(store)
    here.handleInitialState((3,), table.head(1), None)
    here.handleInitialState((3,), table, None)
    (said,) = here.handleInputRows((3,), iter([prepared(second)]), None)
    loop = {pair: v for pair, v in plain_loop(frame).items() if pair[1] >= 70}
    assert_said(named(said), loop)


def test_rows_that_are_not_watched_leave_the_state_as_it_was():
    frame, store, here = devices(1, 40), Store(), keeper()
    here.init(store)
    list(here.handleInputRows((0,), iter([prepared(frame)]), None))
    before = store.bank.value, store.since.value
    for rows, note in (
        (prepared(frame.tail(1)), "repeated"),
        (prepared(frame.head(3)), "late"),
        (prepared(frame.tail(1).assign(time=99), refused="refused: heat is Infinity"), "refused"),
    ):
        (said,) = here.handleInputRows((0,), iter([rows]), None)
        assert said["note"].str.startswith(note).all()
        assert said[["score", "ready", "order"]].isna().all(axis=None)
    assert (store.bank.value, store.since.value) == before
    assert (store.bank.updates, store.since.updates) == (1, 1)


def test_of_rows_with_one_time_the_same_one_is_watched_in_any_order():
    rows = pd.concat([devices(1, 3, seed=k) for k in range(4)])
    notes = []
    for seed in range(6):
        shuffled = prepared(rows.sample(frac=1, random_state=seed))
        said, _ = keeper().answer(shuffled.assign(kept=shuffled["x0"].astype(str)))
        notes.append(said[said["note"].isna()]["kept"].tolist())
    assert all(kept == notes[0] for kept in notes)
    assert len(notes[0]) == 3


def test_without_a_time_nothing_is_late_or_repeated():
    frame = devices(1, 50)
    said, state = keeper(clock=None).answer(prepared(frame).assign(time=0))
    assert said["note"].isna().all()
    assert model_of(state, "pump-0").n_seen == 50
    again, _ = keeper(clock=None).answer(prepared(frame).assign(time=0), state)
    assert again["note"].isna().all()


def test_the_answer_has_the_columns_that_are_announced():
    said, _ = keeper().answer(prepared(devices(1, 5)))
    schema = st.StructType().add("key", "string").add("time", "long").add("kept", "string")
    assert set(said.columns) == set(answers(schema).names)


def test_a_model_of_other_features_is_refused_or_replaced():
    frame = devices(1, 70)
    _, state = keeper().answer(prepared(frame))
    other = ("speed", "noise")
    later = prepared(devices(1, 80).tail(10).assign(speed=1.0, noise=2.0), other)
    says = r"the model of pump-0 knows \['flow', 'power', 'heat'\], but features are \['speed', 'no"
    with pytest.raises(OnladError, match=says):
        keeper(other).answer(later, state)
    said, renewed = keeper(other, renew=True).answer(later, state)
    assert not said["ready"].any()
    assert model_of(renewed, "pump-0").names == other


def in_parts(parts, frame, monkeypatch, remembers):
    """Return what keepers say, one for each part of the times, and the state that is left."""
    if not remembers:  # as if each were run by another process
        monkeypatch.setattr(Memory, "take", lambda self, mark: None)
    said, state = [], None
    for stop, (here, names) in parts.items():
        first = 0 if not said else said[-1]["time"].max() + 1
        for begin in range(first, stop, 37):
            times = frame["time"]
            rows = frame[(times >= begin) & (times < min(begin + 37, stop))]
            more = {"seconds": rows["seconds"]} if "seconds" in frame else {}
            told, state = here.answer(prepared(rows, names, **more), state)
            said.append(named(told, names))
    return pd.concat(said), state


@pytest.mark.parametrize("remembers", [True, False])
def test_features_that_come_later_and_go_need_no_relearning(monkeypatch, remembers):
    frame, two = devices(2, 700), ("flow", "power")
    frame.loc[frame["time"] == 590, "heat"] += 1e4
    parts = {300: (keeper(two), two), 600: (keeper(), FEATURES), 700: (keeper(two), two)}
    said, state = in_parts(parts, frame, monkeypatch, remembers)
    loop = {}
    for device, rows in frame.groupby("device"):
        monitor = small_monitor()
        for row in rows.itertuples(index=False):
            if row.time == 300:
                monitor.widen(["heat"])
            names = two if not 300 <= row.time < 600 else FEATURES
            sample = {name: getattr(row, name) for name in names}
            loop[device, row.time] = dataclasses.asdict(monitor.observe(sample))
    assert_said(said, loop)
    found = said[(said["time"] == 590) & said["is_anomaly"].astype(bool)]
    assert [causes[0]["feature"] for causes in found["causes"]] == ["heat", "heat"]
    assert model_of(state, "pump-1").names == (*two, "heat")
    assert model_of(state, "pump-1").n_seen == 700


@pytest.mark.parametrize("remembers", [True, False])
def test_patterns_of_a_day_are_learned_by_the_clock_of_the_zone(monkeypatch, remembers):
    frame = devices(2, 900)
    frame = frame.assign(seconds=1_793_000_000.0 + 1800.0 * frame["time"])
    here = Keeper(
        tuple(FEATURES), persist.to_bytes(small_monitor()), st.StringType(), LONG,
        patterns=True, rules=Rules(zone="Asia/Tokyo"),
    )  # fmt: skip
    said, state = in_parts({900: (here, FEATURES)}, frame, monkeypatch, remembers)
    loop = {}
    for device, rows in frame.groupby("device"):
        monitor, nine = small_monitor(), 9 * 3600
        verdicts = monitor.observe_many(rows[FEATURES], times=rows["seconds"].to_numpy() + nine)
        for time, verdict in zip(rows["time"], verdicts, strict=True):
            loop[device, time] = dataclasses.asdict(verdict)
        mine = model_of(state, device)
        assert mine.timed
        assert persist.to_bytes(mine) == persist.to_bytes(monitor)
    assert_said(said, loop)
    with pytest.raises(OnladError, match="has learned patterns of time: give `patterns` again"):
        keeper().answer(prepared(frame.tail(2).assign(time=1000)), state)


@pytest.mark.parametrize("remembers", [True, False])
def test_rules_mute_sensors_and_maintenance_is_not_learned(monkeypatch, remembers):
    frame = devices(2, 400)
    frame = frame.assign(seconds=1_793_000_000.0 + 60.0 * frame["time"])
    begin, end = (
        dt.datetime.fromtimestamp(1_793_000_000 + 60 * t, dt.timezone.utc) for t in (300, 340)
    )
    rules = Rules(
        sensors=(Sensor(name="heat", only="below"),),
        maintenance=(f"{begin.isoformat()}/{end.isoformat()}",),
    )
    here = Keeper(
        tuple(FEATURES), persist.to_bytes(small_monitor()), st.StringType(), LONG, rules=rules
    )
    said, state = in_parts({400: (here, FEATURES)}, frame, monkeypatch, remembers)
    loop = {}
    for device, rows in frame.groupby("device"):
        monitor = Monitor(warmup=64, names=FEATURES)
        verdicts = rules.observe(
            monitor, rows[FEATURES].to_numpy(), rows["seconds"].to_numpy(), timed=False
        )
        for time, verdict in zip(rows["time"], verdicts, strict=True):
            loop[device, time] = dataclasses.asdict(verdict)
        found = model_of(state, device)
        assert (found.n_seen, found.describe()["learned"]) == (400, monitor.describe()["learned"])
    assert_said(said, loop)
    plain = keeper().answer(prepared(frame))[0]
    assert plain["is_anomaly"].sum() > said["is_anomaly"].sum()
    assert not said[said["time"].between(300, 339)]["learned"].any()


def test_the_side_of_the_band_is_told():
    frame = devices(1, 200)
    frame.loc[199, "heat"] = 400.0
    said, _ = keeper().answer(prepared(frame))
    last = said.iloc[-1]
    assert last["side"][2] == 1
    off = np.abs(frame.loc[199, FEATURES].to_numpy(float) - last["expected"])
    assert (np.array(last["side"]) == 0).tolist() == (off <= last["half"]).tolist()


def test_a_damaged_state_is_named():
    state = Kept(b"onlad\x00" + bytes(99), ["pump-0", "pump-1"], [0, 0], [0, 0])
    with pytest.raises(ModelFileError, match=r"^the state of pump-0 and 1 more is damaged"):
        keeper().answer(prepared(devices(1, 3)), state)


def test_devices_whose_features_have_another_order_go_on():
    frame = devices(2, 120)
    early, late = frame[frame["time"] < 70], frame[frame["time"] >= 70]
    _, state = keeper().answer(prepared(early[early["device"] == "pump-0"]))
    names = tuple(FEATURES[::-1])
    said, state = keeper(names).answer(prepared(late, names), state)
    assert {model_of(state, key).names for key in state.keys} == {tuple(FEATURES), names}
    mine = frame[frame["device"] == "pump-0"]
    loop = {pair: v for pair, v in plain_loop(mine).items() if pair[1] >= 70}
    other = late[late["device"] == "pump-1"]
    loop |= plain_loop(other, features=list(names))
    assert_said(named(said, names), loop)


@pytest.mark.skipif(not RECORDS.exists(), reason="benchmarks are not part of a wheel's tests")
def test_the_page_carries_on_what_was_measured():
    from benchmarks.spark import paper, records

    assert paper(records()) in (ROOT / "docs" / "howto" / "spark.md").read_text()


@pytest.mark.skipif(not RECORDS.exists(), reason="benchmarks are not part of a wheel's tests")
def test_ten_thousand_devices_with_a_row_a_minute_take_less_than_half_a_core():
    from benchmarks.spark import WRITES, costs, of_a_hundred, records

    base, each, write, row = costs(records())
    devices = 10_000
    one = each + write / WRITES + row
    assert (base + devices * one) / 60 < 0.5
    assert base / devices + one <= 1e-3
    assert of_a_hundred(records()) <= 0.05e-3


def test_a_missing_spark_is_named_with_its_extra():
    code = "import sys; sys.modules['pyspark'] = None; import onlad.fleet.spark"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    says = "ImportError: onlad.fleet.spark needs Spark: pip install 'onlad[fleet]'"
    assert done.stderr.splitlines()[-1] == says


def test_sums_are_exchanged_without_spark():
    code = "import sys, onlad.fleet.exchange; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_state_is_as_large_as_the_page_says():
    rng, t = np.random.default_rng(0), np.arange(6000)  # older than a young stream
    cycles = np.array([np.sin(t / 20), np.cos(t / 33), np.sin(t / 7)]).T
    monitor = Monitor()
    monitor.observe_many(cycles @ rng.normal(size=(3, 8)) + 0.2 * rng.normal(size=(6000, 8)))
    assert not monitor.young
    kept = monitor.learned().watching
    assert (len(kept.modes), len(kept.quarantine), kept.candidate) == (1, 0, None)
    assert abs(len(persist.to_bytes(monitor)) - 51_000) < 1000
    parts = [*values(kept.modes[0]).values(), *values(kept.anchors[0]).values()]
    assert round(sum(part.nbytes for part in parts if isinstance(part, np.ndarray)), -3) == 27_000
    assert round(8 * (CANDIDATE - 1) * 8 * kept.width, -3) == 65_000
