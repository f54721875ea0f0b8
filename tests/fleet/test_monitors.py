"""A bank of monitors is a loop of `Monitor.observe`, to the last bit."""

import copy
import re

import numpy as np
import pytest

from onlad import ModelFileError, Monitor, modelfile, save
from onlad.fleet import MonitorBank
from onlad.fleet.verdicts import COLUMNS
from onlad.modelfile import Record
from onlad.persist import to_bytes

NAN = np.nan
NAMES = ("flow", "power", "heat")


def streams(devices, rows, seed=0):
    """Return rows of devices, (devices, rows, 3): ordered ones and others, with gaps and faults."""
    rng = np.random.default_rng(seed)
    t = np.arange(rows)
    X = rng.normal(size=(devices, rows, 3))
    X[::2] += 3 * np.sin(t / 15)[None, :, None]  # every other device has no order
    X[rng.uniform(size=X.shape) < 0.05] = NAN
    X[rng.uniform(size=X.shape[:2]) < 0.01] *= 20
    X[2:3, rows // 4 :] += 30.0  # a lasting change
    return X


def loop(monitors, X, mask):
    """Return what each monitor says of its own rows, one at a time."""
    return [
        [monitor.observe(dict(zip(NAMES, row, strict=True))) for row, is_sent in rows if is_sent]
        for monitor, rows in zip(
            monitors, (zip(x.tolist(), m, strict=True) for x, m in zip(X, mask, strict=True)),
            strict=True,
        )
    ]  # fmt: skip


def fresh(count, **settings):
    return [Monitor(warmup=100, **settings) for _ in range(count)]


def test_devices_with_times_pauses_and_later_features_are_a_loop_too(tmp_path):
    X, pause = streams(4, 700), np.zeros((4, 700), bool)
    pause[1, 500:620] = pause[3, 640:] = True
    times = 1800.0 * np.arange(700)
    alone = [Monitor(warmup=100, names=NAMES[: 2 if i == 2 else 3]) for i in range(4)]
    bank = MonitorBank(Monitor(warmup=100), 2, names=NAMES)
    bank.grow(1, Monitor(warmup=100), NAMES[:2])
    bank.grow(1)
    for begin, end in ((0, 450), (450, 550), (550, 700)):
        if begin == 450:
            bank.widen(2, NAMES[2:])
            alone[2].widen(NAMES[2:])
        # Device 0 has times; the others do not.
        at = np.arange(begin, end)
        first = bank.observe_rows(np.zeros(len(at), int), X[0, at], times=times[at], details="all")
        expected = alone[0].observe_many(X[0, at], times=times[at])
        assert list(first) == list(expected)
        device, row = (each.ravel() for each in np.meshgrid([3, 1, 2], at))
        found = bank.observe_rows(device, X[device, row], pause=pause[device, row], details="all")
        for i in (1, 2, 3):
            rows = X[i, at, : len(alone[i].names)]
            expected = alone[i].observe_many(rows, pause=pause[i, at])
            assert [found[k] for k in np.flatnonzero(device == i).tolist()] == list(expected)
        bank.save(tmp_path / "bank")
        bank = MonitorBank.load(tmp_path / "bank")
        assert not bank.paused.any()
    assert (bank.timed, bank.names_of(2), bank.ready.tolist()) == ([0], NAMES, [True] * 4)
    for mine, other in zip(bank, alone, strict=True):
        assert to_bytes(mine) == to_bytes(other)
    before = bank.to_bytes()
    with pytest.raises(ValueError, match="learned patterns of time: give `times`"):
        bank.observe(X[:, 0])
    ends = np.arange(4)
    for wrong, said in (
        ({"pause": ends > 0}, "learned patterns of time: give `times`"),
        ({"pause": ends[:2] > 0}, re.escape("pause must have 4 entries, got (2,)")),
        ({"times": times[:3]}, re.escape("times must have 4 entries, got (3,)")),
        ({"times": np.array([0.0, 1.0, 2.0, NAN])}, "times must be seconds since 1970"),
    ):
        with pytest.raises(ValueError, match=said):
            bank.observe_rows(ends, X[:, 0], **wrong)
    assert bank.to_bytes() == before


@pytest.mark.parametrize("threads", [1, 3])
def test_a_bank_is_a_loop_of_observe_to_the_last_bit(threads):
    devices, rows = 6, 1500
    X, mask = streams(devices, rows), np.random.default_rng(1).uniform(size=(devices, rows)) < 0.9
    mask[:, :3] = True
    monitors = fresh(devices)
    expected = loop(monitors, X, mask)
    bank = MonitorBank(Monitor(warmup=100), devices, names=NAMES, threads=threads)
    parts = [
        bank.observe(X[:, t], mask[:, t], details="all") for t in range(400)
    ]  # one row a call,
    many = bank.observe_many(X[:, 400:1200], mask[:, 400:1200], details="all")  # in blocks,
    at = np.argwhere(mask[:, 1200:])  # and as they come
    order = np.random.default_rng(2).permutation(len(at))
    order = order[np.argsort(at[order, 1], kind="stable")]
    device, t = at[order].T
    mixed = bank.observe_rows(device, X[device, 1200 + t], details="all")
    for i in range(devices):
        found = [parts[t][i] for t in range(400) if mask[i, t]]
        found += [many[i * 800 + t] for t in range(800) if mask[i, 400 + t]]
        found += [mixed[k] for k in np.flatnonzero(device == i).tolist()]
        assert found == expected[i]
        same_state(bank[i], monitors[i])
    np.testing.assert_array_equal(bank.n_seen, [monitor.n_seen for monitor in monitors])
    assert bank.ready.all()
    device, t = np.argwhere(~mask[:, 200:400])[0]
    silent = parts[200 + t][device]
    assert [silent.ready, silent.learned, silent.is_anomaly] == [False] * 3
    assert any(verdict.drift for verdict in expected[2])  # it was all in the streams
    assert {bank[i].describe()["ordered"] for i in range(devices)} == {True, False}


def same_state(one, other):
    """Insist that two monitors go on alike."""
    X = streams(1, 200, seed=9)[0]
    assert one.settings() == other.settings()
    assert one.n_seen == other.n_seen
    a, b = copy.deepcopy(one), copy.deepcopy(other)
    assert a.observe_many(X)[:] == b.observe_many(X)[:]


def started(devices=4, **more):
    monitor = Monitor(warmup=100)
    rows = streams(1, 400)[0]
    monitor.observe_many([dict(zip(NAMES, x, strict=True)) for x in rows.tolist()])
    return monitor, MonitorBank(monitor, devices, **more)


def test_a_monitor_goes_in_and_out_without_loss():
    monitor, bank = started()
    X = streams(4, 130, seed=3)
    bank.observe_many(X)
    out = bank[2]
    bank.observe_many(X)
    out.observe_many(X[2])
    same_state(out, bank[2])
    bank[0] = out
    same_state(bank[0], bank[2])
    out.observe_many(X[2])  # a copy: the bank does not follow
    assert bank.n_seen[0] == bank.n_seen[2]
    bank[-1] = Monitor(warmup=100)
    assert bank.ready.tolist() == [True, True, True, False]
    assert bank.n_seen[3] == 0
    same_state(MonitorBank(monitor, 1)[0], monitor)


def test_devices_come_and_go():
    _, bank = started()
    X = streams(4, 130, seed=3)
    bank.observe_many(X)
    kept = [bank[1], bank[3]]
    bank.grow(2, Monitor(warmup=100, seed=5))
    bank.grow(1)
    assert bank.n_seen.tolist() == [530] * 4 + [0, 0, 400]
    assert bank[5].seed == 5
    bank.remove([0, 2, 4])
    assert len(bank) == 4
    same_state(bank[0], kept[0])
    same_state(bank[1], kept[1])
    verdicts = bank.observe(X[:, 0])
    assert verdicts.ready.tolist() == [True, True, False, True]
    assert bank[2].n_seen == 1


def test_a_device_that_is_paused_learns_nothing():
    monitor, bank = started(2)
    bank.paused[1] = True
    X = streams(2, 200, seed=3)
    X[1] = X[0]
    verdicts = bank.observe_many(X)
    assert verdicts.learned[:200].any()
    assert not verdicts.learned[200:].any()
    monitor.paused = True
    monitor.observe_many(X[1])
    same_state(bank[1], monitor)
    assert bank[1].paused


def test_bad_rows_are_refused_with_their_devices_and_nothing_changes():
    _, bank = started(9)
    before = [bank[i] for i in range(9)]
    X = streams(9, 2, seed=3)
    X[[1, 2, 3, 4, 5, 8], 1, 2] = np.inf
    message = "devices 1, 2, 3, 4, 5 and 1 more sent what is no measurement, such as inf."
    with pytest.raises(ValueError, match=re.escape(f"{message} No device has changed")):
        bank.observe_many(X)
    with pytest.raises(ValueError, match=re.escape("devices 7 sent what is no measurement")):
        bank.observe_rows([0, 7, 7], [[0, 0, 0], [0, 0, 0], [0, -1e101, 0]])
    with pytest.raises(ValueError, match=re.escape("(devices, n), here (9, 3); got (9, 2)")):
        bank.observe(X[:, 0, :2])
    with pytest.raises(ValueError, match=re.escape("mask must have shape (9,), got (8,)")):
        bank.observe(X[:, 0], np.ones(8, bool))
    with pytest.raises(TypeError, match="mask must hold bools"):
        bank.observe(X[:, 0], np.ones(9))
    with pytest.raises(IndexError, match="there is no device 9: the bank has 9"):
        bank.observe_rows([0, 9], X[:2, 0])
    with pytest.raises(TypeError, match="devices must be one whole number per row"):
        bank.observe_rows([0.5], X[:1, 0])
    with pytest.raises(
        ValueError, match=r"the device has the features \('flow', 'power', 'heat'\)"
    ):
        bank[0] = Monitor().fit(streams(1, 100)[0])
    with pytest.raises(ValueError, match="names are needed"):
        MonitorBank(Monitor(), 3)
    with pytest.raises(TypeError, match="a device is named by its index"):
        _ = bank["pump"]
    for i, monitor in enumerate(before):
        same_state(bank[i], monitor)


def test_rows_of_no_device_are_none():
    _, bank = started(2)
    assert len(bank.observe_rows(np.empty(0, int), np.empty((0, 3)))) == 0
    assert len(bank.observe_many(np.empty((2, 0, 3)))) == 0
    assert not bank.observe(np.zeros((2, 3)), np.zeros(2, bool)).ready.any()
    empty = MonitorBank(Monitor(), 0, names=NAMES)
    assert len(empty.observe(np.empty((0, 3)))) == 0
    assert bank.n_seen.tolist() == [400, 400]


def test_a_saved_bank_goes_on_to_the_last_bit(tmp_path):
    _, bank = started(3)
    bank.grow(1, Monitor(warmup=100))
    bank.paused[1] = True
    X = streams(4, 150, seed=3)
    bank.observe_many(X[:, :70])
    bank.save(tmp_path / "bank.onlad")
    twin = MonitorBank.load(tmp_path / "bank.onlad", threads=2)
    assert (twin.names, twin.threads, twin.paused.tolist()) == (
        NAMES,
        2,
        [False, True, False, False],
    )
    one, other = bank.observe_many(X[:, 70:]), twin.observe_many(X[:, 70:])
    for name in (*COLUMNS, "detailed", "wide", "values"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    bank.grow(1)
    twin.grow(1)
    same_state(bank[4], twin[4])


def test_a_damaged_file_is_refused(tmp_path):
    _, bank = started(2)
    path = tmp_path / "bank.onlad"
    bank.save(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ModelFileError):
        MonitorBank.load(path)
    save(bank[0], path)
    with pytest.raises(ModelFileError, match="which is no MonitorBank"):
        MonitorBank.load(path)


def rewritten(path, change):
    """Put other values into the file of a bank."""
    learned = modelfile.decode(modelfile.read(path)).parts["learned"]
    change(learned)
    modelfile.replace(path, modelfile.pieces(Record("MonitorBank", {"learned": learned})))


def put(name, value):
    return lambda learned: learned.__setitem__(name, value)


def put_in_shape(value, *path):
    def change(learned):
        part = learned["shapes"][0]
        for name in path[:-1]:
            part = part[name]
        part[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (put("which", np.array([0, 5])), "which names settings that are not there"),
        (put("which", np.zeros(0, "int64")), "which or paused is wrong"),
        (put("paused", np.zeros(9, bool)), "which or paused is wrong"),
        (put("names", "abc"), "a bank has"),
        (put("more", 1), "a bank has"),
        (put("shapes", []), "a device is missing"),
        (put("settings", [{}]), "missing in settings or not known"),
        (put_in_shape(np.array([0, 0]), "places"), "a device is there twice"),
        (put_in_shape(np.array([0, 2]), "places"), "places are wrong"),
        (put_in_shape(np.array([1]), "n_seen"), "a column must hold 2 values of int64"),
        (put_in_shape(1, "watching", "of"), "a column has"),
        (
            put_in_shape(np.array([9, 9]), "watching", "of", "held", "rows"),
            "an array does not have the rows that it should",
        ),
        (
            put_in_shape(np.array([-1, 1]), "watching", "of", "modes", "rows"),
            "a number of rows is wrong",
        ),
        (
            put_in_shape(np.full(6, 1e200), "watching", "of", "held", "of"),
            "held holds a number that is not in",
        ),
    ],
)
def test_a_file_with_other_values_is_refused(tmp_path, change, why):
    _, bank = started(1)
    path = tmp_path / "bank.onlad"
    bank.save(path)
    rewritten(path, change)
    with pytest.raises(ModelFileError, match=re.escape(why)):
        MonitorBank.load(path)


def test_details_are_there_for_alarms_for_all_or_for_none():
    _, bank = started(5)
    X = streams(5, 300, seed=3)
    X[:, 200] = 900.0
    twins = {details: copy.deepcopy(bank) for details in ("none", "alarms", "all")}
    said = {name: twin.observe_many(X, details=name) for name, twin in twins.items()}
    for verdicts in said.values():
        for name in COLUMNS:
            np.testing.assert_array_equal(getattr(verdicts, name), getattr(said["all"], name))
    alarms = np.flatnonzero(said["all"].is_anomaly)
    assert len(alarms) > 3
    assert said["all"].detailed.tolist() == list(range(1500))
    assert said["none"].detailed.tolist() == []
    assert said["alarms"].detailed.tolist() == alarms.tolist()
    for name in ("shares", "values", "expected", "low", "high"):
        whole, some = getattr(said["all"], name), getattr(said["alarms"], name)
        np.testing.assert_array_equal(some, whole[alarms], err_msg=name)
    one = int(alarms[1])
    assert said["alarms"][one] == said["all"][one]
    assert said["alarms"][one].direction == said["all"][one].direction
    assert said["none"][one].causes == {}
    quiet = int(np.flatnonzero(~said["all"].is_anomaly)[5])
    assert said["alarms"][quiet].causes == {}
    for verdicts in said.values():
        severities = [verdict.severity for verdict in verdicts]
        np.testing.assert_array_equal(verdicts.severity, severities)
    with pytest.raises(ValueError, match="details must be one of"):
        bank.observe(X[:, 0], details="some")


def test_devices_of_several_shapes_are_a_loop_of_observe(tmp_path):
    _, bank = started(3)
    rng = np.random.default_rng(4)
    fans = rng.normal(size=(2, 900, 2)) + np.sin(np.arange(900) / 9)[None, :, None]
    big = rng.normal(size=(900, 5)).cumsum(axis=0)
    bank.grow(2, Monitor(warmup=100), names=("speed", "noise"))
    bank.grow(1, Monitor(warmup=64).fit(big[:500]))
    assert (bank.widest, len(bank.shapes)) == (5, 3)
    assert bank.names_of(4) == ("speed", "noise")
    loop_of = [bank[i] for i in range(6)]
    X = np.full((6, 400, 5), NAN)
    X[:3, :, :3] = streams(3, 400, seed=8)
    X[3:5, :, :2] = fans[:, :400]
    X[5] = big[500:]
    X[3:5, :, 3] = np.inf  # columns that these devices do not have
    bank.save(tmp_path / "bank.onlad")
    for each in (bank, MonitorBank.load(tmp_path / "bank.onlad")):
        verdicts = each.observe_many(X[:, :300], details="all")
        mask = np.arange(6) != 1
        rows = [each.observe(X[:, t], mask, details="all") for t in range(300, 400)]
        for i, monitor in enumerate(copy.deepcopy(loop_of)):
            n = len(monitor.names)
            expected = [monitor.observe(x) for x in X[i, :, :n]][: 300 if i == 1 else None]
            found = verdicts[i * 300 : i * 300 + 300] + [said[i] for said in rows if mask[i]]
            assert found == expected
            assert [v.expected for v in found] == [v.expected for v in expected]
    bank.remove([5])
    assert bank.widest == 3


def test_a_bank_in_bytes_goes_on_and_a_damaged_one_is_refused():
    _, bank = started(2)
    bank.grow(1, Monitor(warmup=100))
    data = bank.to_bytes()
    twin = MonitorBank.from_bytes(data, trusted=True)
    X = streams(3, 200, seed=3)
    np.testing.assert_array_equal(bank.observe_many(X).score, twin.observe_many(X).score)
    assert bank.to_bytes() == twin.to_bytes()
    with pytest.raises(ModelFileError, match=r"^bucket 7 is damaged"):
        MonitorBank.from_bytes(data[:-1] + bytes([data[-1] ^ 1]), "bucket 7")
