"""What is said of the rows of one key, without a cluster; `test_spark` has the real one."""

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
from onlad.fleet.spark.keeper import Keeper, answers
from onlad.fleet.spark.kept import Kept, Memory, bank_of
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
    return bank_of(kept, key)[kept.keys.index(key)]


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
    assert [each.n_seen for each in map(bank_of(kept, "").__getitem__, range(3))] == [120] * 3
    assert store.bank.updates == writes


def test_a_micro_batch_that_is_run_again_says_the_same():
    frame, store, here = devices(2, 120), Store(), keeper()
    here.init(store)
    for stop in range(10, 121, 10):
        before = store.bank.value, store.since.value
        rows = prepared(frame[(frame["time"] >= stop - 10) & (frame["time"] < stop)])
        (said,) = here.handleInputRows((0,), iter([rows]), Clock(0))
        after = bank_of(store.kept(), "").to_bytes()
        store.bank.value, store.since.value = before  # it was not committed
        (again,) = here.handleInputRows((0,), iter([rows]), Clock(0))
        pd.testing.assert_frame_equal(said, again)
        assert bank_of(store.kept(), "").to_bytes() == after


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
    monkeypatch.setattr("onlad.fleet.spark.kept.REMEMBERED", 100)
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
    two = ("flow", "heat")
    later = prepared(devices(1, 80).tail(10), two)
    says = r"the model of pump-0 knows \['flow', 'power', 'heat'\], but features are \['flow', 'he"
    with pytest.raises(OnladError, match=says):
        keeper(two).answer(later, state)
    said, renewed = keeper(two, renew=True).answer(later, state)
    assert not said["ready"].any()
    assert model_of(renewed, "pump-0").names == two


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
    from benchmarks.spark import WRITES, costs, records

    base, each, write, row = costs(records())
    devices = 10_000
    one = each + write / WRITES + row
    assert (base + devices * one) / 60 < 0.5
    assert base / devices + one <= 1e-3
    assert (base / devices + each + write) / 100 + row <= 0.05e-3  # each of a hundred


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
    assert abs(len(persist.to_bytes(monitor)) - 50_000) < 1000
    parts = [*values(kept.modes[0]).values(), *values(kept.anchors[0]).values()]
    assert round(sum(part.nbytes for part in parts if isinstance(part, np.ndarray)), -3) == 27_000
    assert round(8 * (CANDIDATE - 1) * 8 * kept.width, -3) == 65_000
