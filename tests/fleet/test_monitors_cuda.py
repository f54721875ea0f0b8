"""A bank of monitors on a GPU against a loop of monitors: on a GPU, or with PyTorch without one."""

import re
from dataclasses import fields, replace

import numpy as np
import pytest

from onlad import Monitor, OnladError
from onlad.counter import Counters
from onlad.fleet import MonitorBank
from onlad.limit import RECENT
from onlad.mode import Mode

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra gpu)")

tensors = pytest.importorskip("onlad.fleet.tensors.bank")
anchors = pytest.importorskip("onlad.fleet.tensors.anchors")
store = pytest.importorskip("onlad.fleet.tensors.store")
limits = pytest.importorskip("onlad.fleet.tensors.limits")
watchers = pytest.importorskip("onlad.fleet.tensors.watchers")
modes = pytest.importorskip("onlad.fleet.tensors.modes")
judging = pytest.importorskip("onlad.fleet.tensors.judging")
starting = pytest.importorskip("onlad.fleet.tensors.starting")

NAN = np.nan
# What a bank keeps in few bytes is kept in float64 here: `test_monitors_kept` has it as it is.
# Both sides solve the same normal equations, whose condition is up to 1e6 here, in float64: errors
# of predictions differ by 1e-10, and a statistic divides by a level of 0.05 at least.
CLOSE = 1e-7
ROOTS = ("root", "linear_root")
EXACT = ("is_anomaly", "learned", "drift", "drifting", "ready")


@pytest.fixture(autouse=True)
def _somewhere(monkeypatch):
    """Let PyTorch run on the processor where there is no GPU; several chunks and quarantines."""
    if not torch.cuda.is_available():
        monkeypatch.setattr(tensors, "device", lambda: "cpu")
    monkeypatch.setattr(store.Store, "at_once", 256)


@pytest.fixture(autouse=True)
def _exact(monkeypatch):
    """Let all be kept in float64, and roots of scores in 32 bits."""
    fields_of = modes.Modes.fields

    def wide_fields(self):
        found = fields_of(self)
        roots = {name: ((*found[name][0][:-1], 1), torch.float64, 0.0) for name in ROOTS}
        return found | roots

    for module in (anchors, modes, limits, store):
        for name in {"HALF", "SINGLE"} & vars(module).keys():
            monkeypatch.setattr(module, name, torch.float64)
        if hasattr(module, "halved"):
            monkeypatch.setattr(module, "halved", lambda values: values)
    monkeypatch.setattr(modes.Modes, "fields", wide_fields)
    monkeypatch.setattr(modes.pool, "three_bytes", lambda values: values[..., None])
    monkeypatch.setattr(modes.pool, "of_three_bytes", lambda kept: kept[..., 0].clone())
    steps = {"BITS": 32, "STEPS": torch.int32, "EMPTY": -(2**31), "LARGEST": 2**32 - 2}
    for name, value in steps.items():
        monkeypatch.setattr(limits, name, value)


def test_the_kernel_counts_as_pytorch_does(monkeypatch):
    kernels = pytest.importorskip("onlad.fleet.tensors.kernels", reason="Triton is not installed")
    recent = torch.randint(-(2**15) + 1, 2**15, (3, RECENT), dtype=torch.int16)
    recent[0, 7:] = -(2**15)  # not there yet
    scores = torch.randint(-(2**15) + 1, 2**15, (3, 4))
    scores = torch.cat((scores, recent[:, :2].long()), dim=1)
    found = torch.empty(3, 6, dtype=torch.int32)
    on = [each.to("cuda" if torch.cuda.is_available() else "cpu") for each in (recent, scores)]
    found = found.to(on[0].device)
    kernels.count_at_least[3,](*on, found, 6, RECENT)
    assert found.tolist() == limits.counted(recent, scores).tolist()


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("n", [1, 5, 8])
def test_the_kernel_scores_as_pytorch_does(n, ordered):
    pytest.importorskip("onlad.fleet.tensors.kernels", reason="Triton is not installed")
    rng, devices, rows = np.random.default_rng(0), 3, 20
    pool = modes.Modes(n, 1, 0, devices, "cpu")
    for name in ("inverse", "levels", "leaning"):
        drawn = torch.tensor(rng.uniform(0.5, 2, getattr(pool, name).shape))
        pool.write(name, slice(0, devices), drawn)
    E = torch.tensor(3 * rng.normal(size=(devices, 2, rows, n)))
    present = torch.tensor(rng.uniform(size=(devices, rows, n)) < 0.8)
    present[1, 4:6] = False
    state = [torch.tensor(rng.normal(size=shape)) for shape in ((devices, 4), (devices, 2, n))]
    expected = judging.in_pytorch(pool, slice(0, devices), E.clone(), present, *state, ordered)
    where = "cuda" if torch.cuda.is_available() else "cpu"
    for name in pool.fields():
        setattr(pool, name, getattr(pool, name).to(where))
    E, present, means, leans = (each.to(where) for each in (E, present, *state))
    found = judging.in_a_kernel(pool, slice(0, devices), E, present, means, leans, ordered)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine.cpu(), theirs, rtol=1e-12, atol=1e-12)


def test_the_kernel_follows_episodes_as_pytorch_does():
    pytest.importorskip("onlad.fleet.tensors.kernels", reason="Triton is not installed")
    rng, rows, devices = np.random.default_rng(0), 64, 150
    ratio = torch.tensor(rng.uniform(0, 4, (rows, devices)) * rng.uniform(0, 3, devices))
    refused = (ratio > 2) & torch.tensor(rng.uniform(size=(rows, devices)) < 0.1)
    judged = refused | torch.tensor(rng.uniform(size=(rows, devices)) < 0.9)
    episode = torch.tensor([[-1.0, 0, 0, 0], [3, 2, 1.5, 1], [10, 600, 9, 200]]).double()
    episode, factor = episode.repeat(50, 1), torch.tensor(rng.uniform(0, 4, devices))
    given = ratio, refused, judged, episode, factor
    after, raised = limits.in_pytorch(*given)
    assert (raised > factor).any()
    where = "cuda" if torch.cuda.is_available() else "cpu"
    found = limits.in_a_kernel(*(each.to(where) for each in given))
    np.testing.assert_allclose(found[0].cpu(), after, rtol=1e-12)
    np.testing.assert_allclose(found[1].cpu(), raised, rtol=1e-12)


def streams(devices, rows, n, seed=0):
    """Return ordered rows, (devices, rows, n): with gaps, outliers, faults and lasting changes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(devices, rows, n)) + 3 * np.sin(np.arange(rows) / 15)[None, :, None]
    X[rng.uniform(size=X.shape) < 0.03] = NAN
    X[rng.uniform(size=X.shape[:2]) < 0.005] *= 20
    X[0, 5] = NAN  # a row without a value
    if devices > 1:
        X[1, rows // 4 :] = 30 - 2 * X[1, rows // 4 :]  # becomes a mode
    if devices > 2:
        X[2, rows // 3 :, 0] = NAN  # a sensor dies: its values are estimated
    if devices > 3:
        X[3, rows // 2 : rows // 2 + 400, 0] += 25.0  # a fault that ends
    return X


def started(n, *, ordered=True, window=None, seed=0):
    rows = streams(1, 700, n)[0]
    rows[:, n - 1] = 4.0  # never moved
    if not ordered:
        rows = np.random.default_rng(0).permutation(rows)
    return Monitor(window=window, seed=seed).fit(rows)


def compare(found, expected, rows=slice(None)):
    """Insist that verdicts are equal, numbers within rounding."""
    for name in EXACT:
        mine, theirs = getattr(found, name)[rows], getattr(expected, name)
        np.testing.assert_array_equal(mine, theirs, err_msg=name)
    for name in ("score", "threshold", "p_value", "severity", "shares", "expected", "low", "high",
                 "values", "unusual"):  # fmt: skip
        mine, theirs = getattr(found, name)[rows], getattr(expected, name)
        np.testing.assert_allclose(mine, theirs, rtol=CLOSE, atol=CLOSE, err_msg=name)


@pytest.mark.parametrize(
    ("n", "options"),
    [
        (8, {}),
        (3, {}),
        (5, {"window": 1}),
        (3, {"ordered": False}),
        (70, {"window": 4}),  # a projected instance
    ],
)
def test_a_bank_on_a_gpu_is_a_loop_of_monitors_within_rounding(n, options):
    devices, rows = 4, {8: 2300, 70: 300}.get(n, 1000)
    start = started(n, **options)
    X = streams(devices, rows, n, seed=1)
    X[:, : rows // 2, n - 1] = 4.0  # moves for the first time in the middle
    bank = MonitorBank(start, devices, device="cuda")
    found = bank.observe_many(X, details="all")
    drifts = 0
    for i in range(devices):
        alone = Monitor.resumed(start.settings(), start.learned())
        expected = alone.observe_many(X[i])
        compare(found, expected, slice(i * rows, (i + 1) * rows))
        goes_on = streams(1, 300, n, seed=9)[0]
        compare(bank[i].observe_many(goes_on), alone.observe_many(goes_on))
        drifts += int(expected.drift.sum())
    if n == 8:
        assert drifts  # it was all in the streams
        assert found.is_anomaly.any()
        assert len(bank[1].describe()["modes"]) > 1


@pytest.mark.parametrize(("n", "width"), [(8, 4), (3, 1), (70, 4)])
def test_modes_that_start_together_are_those_that_start_alone(n, width):
    rng, rows, most = np.random.default_rng(0), [256, 300, 319, 257], 320
    X = rng.normal(size=(len(rows), most, n * width)) + 3 * rng.normal(size=n * width)
    X[rng.uniform(size=X.shape) < 0.05] = NAN
    X[..., n - 1] = 4.0  # never moved
    X[2, :, 0] = NAN  # never came
    X[3, :, 1] = X[3, :, 2]
    where = tensors.device()
    pool = modes.Modes(n, width, 3, len(rows), where)
    on = [torch.tensor(each, device=where) for each in (np.arange(len(rows)), X, rows)]
    for _ in range(2):  # a place that was used before is as good
        starting.start(pool, *on)
    for i, count in enumerate(rows):
        alone = Mode(n, width, True, 3)
        alone.start(X[i, :count], X[i, :count, :n] == X[i, :count, :n])
        found, expected = pool.learned(i), alone.learned()
        for field in fields(expected):
            mine, theirs = (getattr(state, field.name) for state in (found, expected))
            np.testing.assert_allclose(mine, theirs, rtol=CLOSE, atol=CLOSE, err_msg=field.name)


@pytest.mark.parametrize("counts", [(900, 300, 500, 700), (200, 300, 500, 700)])
def test_a_new_mode_takes_the_place_of_the_one_that_learned_least(counts):
    start, n = started(3, window=1), 3
    state = start.learned()
    first, anchor = state.watching.modes[0], state.watching.anchors[0]
    several = tuple(
        replace(first, centre=first.centre + 60 * k, count=count) for k, count in enumerate(counts)
    )
    state = replace(
        state, watching=replace(state.watching, modes=several, anchors=(anchor, None, None, anchor))
    )
    start = Monitor.resumed(start.settings(), state)
    X = streams(1, 2200, n, seed=1)[0]
    X[:, n - 1] = 4.0
    for k in range(4):
        X[50 * k : 50 * (k + 1)] += 60 * k  # it is in all of them
    X[200:] -= 80
    bank, alone = MonitorBank(start, 1, device="cuda"), Monitor.resumed(start.settings(), state)
    found, expected = bank.observe_many(X[None], details="all"), alone.observe_many(X)
    assert expected.drift.sum() == 1
    compare(found, expected)
    compare(bank[0].observe_many(X), alone.observe_many(X))


def test_counters_are_watched_by_their_rate_on_a_gpu_too():
    rng, n, devices, rows = np.random.default_rng(0), 3, 3, 400

    def counted_streams(count, seed):
        X = streams(count, rows, n, seed)
        X[..., 1] = np.cumsum(rng.uniform(1, 2, X.shape[:2]), axis=1)
        X[rng.uniform(size=X.shape) < 0.05] = NAN
        return X

    start = Monitor().fit(counted_streams(1, 0)[0])
    assert start.describe()["counters"] == [1]
    X = counted_streams(devices, 1)
    X[..., 1] += 700
    X[0, 200:, 1] -= np.nanmax(X[0, :200, 1])  # it is read out, and begins from 0
    X[1, 300:, 1] -= 50.0  # which no counter does
    X[2, 100:140, 1] = NAN
    bank = MonitorBank(start, devices, device="cuda")
    parts = [slice(0, 1), slice(1, 150), slice(150, rows)]
    found = [bank.observe_many(X[:, part], details="all") for part in parts]
    for i in range(devices):
        alone = Monitor.resumed(start.settings(), start.learned())
        for part, mine in zip(parts, found, strict=True):
            T = part.stop - part.start
            compare(mine, alone.observe_many(X[i, part]), slice(i * T, (i + 1) * T))
        counted = (each.learned().watching.counted for each in (bank[i], alone))
        np.testing.assert_array_equal(*counted)


def test_rates_of_devices_with_different_numbers_of_rows_are_those_of_each():
    rng, n, rows = np.random.default_rng(0), 3, 40
    X = np.cumsum(rng.uniform(1, 2, (5, rows, n)), axis=1)
    X[rng.uniform(size=X.shape) < 0.3] = NAN
    X[1, 20:] -= 30.0  # some fall to less than half
    X[2] = NAN
    counts = np.array([rows, 25, 7, 1, 0])
    counted = np.array([[[NAN, 2.0, 1.5], [0.0, 3.0, 0.0]]] * 5)
    on = [torch.tensor(each, device=tensors.device()) for each in (counted, X, counts)]
    said = [each.cpu().numpy() for each in watchers.rates(*on)]
    for i, count in enumerate(counts):
        alone = Counters(counted[i].copy())
        for mine, theirs in zip(said[:3], alone.rates(X[i, :count]), strict=True):
            np.testing.assert_array_equal(mine[i, :count], theirs)
        np.testing.assert_array_equal(said[3][i], alone.counted)


def test_devices_with_different_numbers_of_rows_go_their_own_way():
    n, devices, rows = 3, 4, 700
    start = started(n)
    X = streams(devices, rows, n, seed=2)
    mask = np.random.default_rng(3).uniform(size=(devices, rows)) < [[0.9], [0.5], [0.97], [1.0]]
    bank = MonitorBank(start, devices, device="cuda")
    bank.paused[3] = True
    parts = [bank.observe(X[:, t], mask[:, t]) for t in range(70)]
    many = bank.observe_many(X[:, 70:], mask[:, 70:])
    for i in range(devices):
        alone = Monitor.resumed(start.settings(), start.learned())
        alone.paused = i == 3
        expected = alone.observe_many(X[i, mask[i]])
        sent = np.flatnonzero(mask[i, 70:])
        first = int(mask[i, :70].sum())
        for name in EXACT:
            mine = [getattr(parts[t], name)[i] for t in np.flatnonzero(mask[i, :70])]
            mine += getattr(many, name)[i * (rows - 70) + sent].tolist()
            assert mine == getattr(expected, name).tolist(), name
        scores = many.score[i * (rows - 70) + sent]
        np.testing.assert_allclose(scores, expected.score[first:], rtol=CLOSE, atol=CLOSE)
    assert bank.n_seen.tolist() == (700 + mask.sum(axis=1)).tolist()


def test_devices_of_several_shapes_and_young_ones_come_and_go(tmp_path):
    n = 3
    bank = MonitorBank(started(n), 2, device="cuda")
    bank.grow(1, started(n, ordered=False))
    bank.grow(1, Monitor(warmup=64))
    bank.grow(1, started(n, seed=5))
    assert bank.young == [3]
    X = streams(5, 150, n, seed=4)
    alone = [bank[i] for i in range(5)]
    found = bank.observe_many(X, details="all")
    for i, monitor in enumerate(alone):
        compare(found, monitor.observe_many(X[i]), slice(i * 150, (i + 1) * 150))
    assert bank.ready.all()
    bank.save(tmp_path / "bank")
    bank.remove([0, 3])
    bank[0] = alone[4]
    rest = bank.observe_many(X[[4, 2, 4]], details="all")
    expected = alone[4].observe_many(X[4])
    compare(rest, expected, slice(0, 150))
    compare(rest, expected, slice(300, 450))
    twin = MonitorBank.load(tmp_path / "bank", device="cuda")
    again = twin.observe_many(X[[0, 1, 2, 3, 4]], details="all")
    compare(again, alone[2].observe_many(X[2]), slice(300, 450))


def test_devices_with_other_features_are_sorted_on_a_gpu_too(tmp_path):
    starts, rows = [started(3), started(5), started(1)], 200
    bank = MonitorBank(starts[0], 2, device="cuda")
    for start in starts[1:]:
        bank.grow(1, start)
    X = np.full((4, rows, 5), NAN)
    for i, n in enumerate((3, 3, 5, 1)):
        X[i, :, :n] = streams(1, rows, n, seed=i)[0]
        X[i, 150, :n] = 90.0
        X[i, :, n:] = 1e3  # is not looked at
    bank.save(tmp_path / "bank")
    alone = [bank[i] for i in range(4)]
    twin = MonitorBank.load(tmp_path / "bank", device="cuda")
    found, said = bank.observe_many(X, details="all"), twin.observe_many(torch.tensor(X))
    for i, monitor in enumerate(alone):
        expected, own = monitor.observe_many(X[i, :, : len(monitor.names)]), i * rows
        assert expected.is_anomaly[150]
        for t in (0, 149, 150):
            one, other = found[own + t], expected[t]
            assert one.causes == pytest.approx(other.causes, abs=CLOSE)
            assert one.expected == pytest.approx(other.expected, abs=CLOSE)
        np.testing.assert_allclose(found.score[own : own + rows], expected.score, rtol=CLOSE)
        for name in ("severity", "score", "p_value"):
            mine = getattr(said, name)[i].cpu()
            np.testing.assert_allclose(mine, getattr(found, name)[own : own + rows], rtol=CLOSE)
    alarms = np.flatnonzero(found.is_anomaly)
    np.testing.assert_array_equal(said.details.row.cpu(), alarms)
    np.testing.assert_allclose(said.details.wide[:, 0].cpu(), found.shares[alarms], atol=CLOSE)


def test_a_device_that_is_no_longer_young_moves_to_the_gpu(monkeypatch):
    monkeypatch.setattr("onlad.burnin.BURN_IN", 256)
    bank = MonitorBank(Monitor(warmup=64), 2, names=("a", "b", "c"), device="cuda")
    X = streams(2, 600, 3, seed=6)
    blocks = [X[:, first : first + 150] for first in range(0, 600, 150)]
    found = [bank.observe_many(block, details="all") for block in blocks]
    assert bank.young == []
    alone = Monitor(warmup=64, names=("a", "b", "c"))
    for k, part in enumerate(found):
        expected = alone.observe_many(X[1, 150 * k : 150 * (k + 1)])
        compare(part, expected, slice(150, 300))


def test_tensors_give_tensors_with_details_of_alarms():
    n, devices = 3, 3
    start = started(n)
    bank, twin = (MonitorBank(start, devices, device="cuda") for _ in range(2))
    X = streams(devices, 200, n, seed=7)
    X[1, 150] = 90.0, -90.0, 4.0
    said, expected = bank.observe_many(torch.tensor(X)), twin.observe_many(X)
    alarms = np.flatnonzero(expected.is_anomaly)
    assert len(alarms)
    np.testing.assert_array_equal(said.score.cpu().numpy().ravel(), expected.score)
    np.testing.assert_array_equal(said.details.row.cpu(), alarms)
    np.testing.assert_array_equal(expected.detailed, alarms)
    np.testing.assert_array_equal(said.details.wide.cpu(), expected.wide)
    np.testing.assert_array_equal(said.unusual.cpu().numpy().ravel(), expected.unusual)
    sent = np.array([True, False, True])
    said = bank.observe(torch.tensor(X[:, 0]), torch.tensor(sent))
    assert (said.threshold[:, 0].cpu().numpy() < np.inf).tolist() == sent.tolist()
    assert bank.n_seen.tolist() == [901, 900, 901]
    some = np.random.default_rng(0).uniform(size=(devices, 200)) < 0.5
    X[0, 100] = X[2, 150] = 90.0, -90.0, 4.0
    some[:, [100, 150]] = True
    twin.observe(X[:, 0], sent)
    said, expected = bank.observe_many(torch.tensor(X), some), twin.observe_many(X, some)
    np.testing.assert_array_equal(said.score.cpu().numpy().ravel(), expected.score)
    np.testing.assert_array_equal(said.details.row.cpu(), np.flatnonzero(expected.is_anomaly))
    np.testing.assert_array_equal(said.details.wide.cpu(), expected.wide)
    np.testing.assert_array_equal(bank.n_seen, twin.n_seen)


def test_wrong_tensors_are_refused_and_nothing_changes():
    bank = MonitorBank(started(3), 3, device="cuda")
    X = torch.zeros(3, 4, 3, dtype=torch.float64)
    X[1, 2, 0] = torch.inf
    with pytest.raises(ValueError, match=re.escape("devices 1 sent what is no measurement")):
        bank.observe_many(X)
    with pytest.raises(ValueError, match=re.escape("here (3, 4, 3); got")):
        bank.observe_many(X[..., :2])
    assert bank.n_seen.tolist() == [700] * 3
    bank.grow(1, Monitor())
    with pytest.raises(ValueError, match="1 devices have not started, or are young"):
        bank.observe_many(torch.zeros(4, 4, 3))


def test_a_bank_without_a_gpu_says_so(monkeypatch):
    def none():
        raise RuntimeError("PyTorch finds no NVIDIA GPU")

    monkeypatch.setattr(tensors, "device", none)
    with pytest.raises(OnladError, match="needs a GPU, but PyTorch finds no NVIDIA GPU"):
        MonitorBank(Monitor(), 1, names=("a",), device="cuda")
    with pytest.raises(ValueError, match="device must be cpu or cuda, got 'tpu'"):
        MonitorBank(Monitor(), 1, names=("a",), device="tpu")
