"""What a bank of monitors keeps in few bytes, packed or on a GPU, and what that changes."""

import pickle
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from onlad import Monitor
from onlad._kernel import Packed
from onlad.fleet import MonitorBank
from onlad.mode import STILL
from onlad.watching import TICK

EXACT = ("is_anomaly", "learned", "drift", "drifting", "ready")
CALLS = (1,) * 70 + (5, 60, 64, 1, 130)  # rows: less than a tick, a tick, and more


def tensors():
    """Return the module of tensors, or skip."""
    pytest.importorskip("torch", reason="PyTorch is not installed (extra gpu)")
    return pytest.importorskip("onlad.fleet.tensors.bank")


@pytest.fixture(params=["packed", "tensors"])
def kept(request, monkeypatch):
    """Return how a bank is made that keeps less than a monitor."""
    if request.param == "packed":
        return {"storage": "compact", "threads": 1}
    there = tensors()
    if not there.torch.cuda.is_available():  # PyTorch runs on the processor
        monkeypatch.setattr(there, "device", lambda: "cpu")
    return {"device": "cuda"}


def bytes_of(bank):
    """Return the bytes of all devices."""
    return bank._gpu.nbytes() if bank._gpu else sum(each.nbytes for each in bank._watching)


def history(rows, n, seed=0):
    """Return ordered rows of one device, with gaps."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, n)) + 3 * np.sin(np.arange(rows) / 15)[:, None]
    X[rng.uniform(size=X.shape) < 0.01] = np.nan
    return X


def streams(devices, rows, n, seed):
    """Return ordered rows of devices, with gaps, outliers and faults that end."""
    X = np.array([history(rows, n, seed + i) for i in range(devices)])
    X[np.random.default_rng(seed).uniform(size=X.shape[:2]) < 0.005] *= 20
    X[:, rows // 2 : rows // 2 + 150, 0] += 25.0
    return X


def agree(bank, alone, X, rtol=5e-3):
    """Insist that a bank says what monitors say, numbers within what it keeps."""
    devices, rows = X.shape[:2]
    ends = np.cumsum((0, *CALLS))
    cuts = [*ends[ends < rows].tolist(), rows]
    calls = [bank.observe_many(X[:, a:b]) for a, b in pairwise(cuts)]
    for i, monitor in enumerate(alone):
        expected = monitor.observe_many(X[i])
        for name in (*EXACT, "score", "threshold"):
            columns = [getattr(each, name).reshape(devices, -1)[i] for each in calls]
            mine, theirs = np.concatenate(columns), getattr(expected, name)
            # Rows are learned with an error of 0.05 %, and limits come from roots in 65,534 steps.
            bound = 0.0 if name in EXACT else rtol
            np.testing.assert_allclose(mine, theirs, rtol=bound, atol=bound / 10, err_msg=name)
    return np.concatenate([each.is_anomaly for each in calls])


@pytest.mark.parametrize(
    ("centre", "scale"), [(0.0, 1.0), (1e6, 1.0), (-5e4, 1e-3), (0.0, 1e-12), (1e9, 1e6)]
)
def test_a_device_takes_less_than_20_kB_and_says_what_a_monitor_says(kept, centre, scale):
    start = Monitor().fit(centre + scale * history(4_096, 8))
    bank = MonitorBank(start, 2, **kept)
    assert bytes_of(bank) / 2 < 20_000
    X = centre + scale * streams(2, 700, 8, seed=1)
    found = agree(bank, [Monitor.resumed(start.settings(), start.learned()) for _ in X], X)
    assert found.any()
    assert not found.all()


def test_it_does_not_matter_how_far_a_stream_has_gone(kept):
    def walks(devices, rows, seed):
        rng = np.random.default_rng(seed)
        path = rng.normal(0, 0.5, (devices, rows, 1)).cumsum(axis=1)
        return path * [1.0, -1.0, 2.0] + rng.normal(0, 0.2, (devices, rows, 3))

    start = Monitor().fit(walks(1, 600, 0)[0])
    X = walks(2, 3_000, 1)
    bank = MonitorBank(start, 2, **kept)
    # Sums of such values are some thousand times those of their steps, and so is their rounding.
    agree(bank, [Monitor.resumed(start.settings(), start.learned()) for _ in X], X, rtol=2e-2)
    assert np.abs(X).max() > 10 * start.learned().watching.modes[0].scale.max()


def kept_apart(bank, alone):
    """Return how far the rows that a bank keeps are from those of a monitor, by feature."""
    mine, theirs = (each.learned().watching for each in (bank[0], alone))
    there = theirs.width - 1 + TICK + theirs.at  # the rest of this tick is overwritten
    return np.nanmax(np.abs(mine.kept - theirs.kept)[:there], axis=0)


def test_rows_are_kept_as_well_wherever_a_stream_has_gone(kept):
    start = Monitor().fit(history(600, 3))
    scale = start.learned().watching.modes[0].scale
    X = history(3_000, 3, seed=1) + 0.3 * scale * np.arange(3_000)[:, None]
    bank = MonitorBank(start, 1, **kept)
    bank.observe_many(X[None])
    start.observe_many(X)
    # Within a tick it goes 64 times 0.3 scales and some noise: 0.05 % of that, not of 900 scales.
    assert (kept_apart(bank, start) < 5e-4 * 30 * scale).all()


def test_a_sensor_that_comes_late_and_far_away_is_kept_as_it_is(kept):
    rows = history(700, 3)
    rows[:, 2] = np.nan
    start = Monitor().fit(rows)
    X = streams(1, 400, 3, seed=2)
    X[:, :350, 2] = np.nan
    X[:, 350:, 2] = 3e7 + 1e-2 * X[:, 350:, 2]
    bank = MonitorBank(start, 1, **kept)
    agree(bank, [start], X)
    assert kept_apart(bank, start)[2] <= STILL * 3e7


def test_a_monitor_goes_out_and_in_without_loss(kept):
    start = Monitor().fit(history(1_500, 8))
    bank = MonitorBank(start, 2, **kept)
    X = streams(2, 300, 8, seed=3)
    X[1] = X[0]
    bank.observe_many(X)
    bank[1] = bank[0]
    found = bank.observe_many(X)
    half = len(found) // 2
    np.testing.assert_array_equal(found.is_anomaly[:half], found.is_anomaly[half:])
    np.testing.assert_allclose(found.score[:half], found.score[half:], rtol=1e-3, atol=1e-4)


def test_a_monitor_goes_out_of_tensors_and_in_without_loss(monkeypatch):
    there = tensors()
    torch = there.torch
    if not torch.cuda.is_available():
        monkeypatch.setattr(there, "device", lambda: "cpu")
    bank = MonitorBank(Monitor().fit(history(1_500, 8)), 2, device="cuda")
    X = streams(2, 300, 8, seed=3)
    X[1] = X[0]
    bank.observe_many(X)
    bank[1] = bank[0]
    engine = next(iter(bank._gpu.engines.values()))
    # Rows may be kept as differences from another value, and beta is solved again from roots that
    # were rounded after it was solved: by 1e-7 of their size, times a condition of some hundred.
    for part, but in ((engine.first, {"beta", "linear_beta"}), (engine.limits, {"head", "recent"})):
        for name in part.fields().keys() - but:
            one, other = getattr(part, name)
            assert torch.equal(one, other), name
    for name in ("beta", "linear_beta"):
        one, other = getattr(engine.first, name)
        np.testing.assert_allclose(one.cpu(), other.cpu(), rtol=0, atol=2e-5)


@pytest.mark.parametrize("n", [1, 2, 3, 9, 40])
def test_packed_monitors_of_any_size_are_as_good(n):
    start = Monitor(seed=n).fit(history(3_000, n))
    X = streams(3, 450, n, seed=4)
    bank = MonitorBank(start, 3, storage="compact", threads=2)
    agree(bank, [Monitor.resumed(start.settings(), start.learned()) for _ in X], X)


def test_packed_monitors_learn_a_new_mode_and_keep_their_quarantine():
    start = Monitor().fit(history(1_500, 3))
    X = streams(2, 3_000, 3, seed=5)
    X[0, 700:] += 40.0
    bank = MonitorBank(start, 2, storage="compact")
    alone = [Monitor.resumed(start.settings(), start.learned()) for _ in X]
    agree(bank, alone, X[:, :300])
    assert len(bank[0].learned().watching.quarantine) > 0
    agree(bank, alone, X[:, 300:900])
    assert bank[0].learned().watching.candidate is not None
    agree(bank, alone, X[:, 900:])
    assert len(bank[0].learned().watching.modes) == 2


def test_a_packed_monitor_is_rounded_where_it_matters_least():
    start = Monitor().fit(history(4_096, 8))
    start.observe_many(history(100, 8, seed=1))
    bank = MonitorBank(start, 1, storage="compact")
    mine, theirs = (each.learned().watching for each in (bank[0], start))
    # The limit follows from the highest fiftieth of the scores. Thrice as many are not rounded.
    order = np.argsort(theirs.limit.recent)
    kept, recent = (each.limit.recent[order] for each in (mine, theirs))
    np.testing.assert_array_equal(kept[-120:], recent[-120:])
    assert np.abs(kept - recent).max() <= 0.51 * recent[-120] / 4_094
    moved = np.nanmax(theirs.kept) - np.nanmin(theirs.kept)
    assert np.nanmax(np.abs(mine.kept - theirs.kept)) <= moved / 2**16


def test_a_packed_bank_is_saved_copied_and_changed_as_any_other(tmp_path):
    start = Monitor().fit(history(1_500, 3))
    bank = MonitorBank(Monitor(warmup=100), 2, names=start.names, storage="compact")
    bank.grow(2, start)
    X = streams(4, 5_000, 3, seed=6)
    bank.observe_many(X)
    assert not bank.young
    assert {type(each) for each in bank._watching} == {Packed}
    bank.save(tmp_path / "bank.onlad")
    loaded = MonitorBank.load(tmp_path / "bank.onlad", storage="compact")
    copied = pickle.loads(pickle.dumps(bank))
    for other in (loaded, copied):
        assert (other.storage, other._watching[3].nbytes < 20_000) == ("compact", True)
        other.remove(0)
        other[0] = other[2]
        found = other.observe_many(X[[1, 2, 3], :200])
        assert found.ready.all()
    with pytest.raises(ValueError, match="storage must be one of exact, compact; got 'small'"):
        MonitorBank(start, 1, storage="small")


@given(arrays.arrays("float64", (3, 5), elements=st.floats(-1, 1)))
def test_three_bytes_hold_a_number_to_half_a_step(values):
    torch = tensors().torch
    pool = pytest.importorskip("onlad.fleet.tensors.pool")
    kept = pool.three_bytes(torch.tensor(values))
    assert kept.shape == (3, 5, 3)
    back = pool.of_three_bytes(kept)
    np.testing.assert_allclose(back, values, rtol=0, atol=0.5001 / pool.STEPS)
    assert torch.equal(pool.three_bytes(back), kept)  # it changes once


@given(arrays.arrays("bool", st.tuples(st.integers(1, 3), st.integers(1, 20))))
def test_bits_hold_what_was_there(present):
    torch = tensors().torch
    store = pytest.importorskip("onlad.fleet.tensors.store")
    kept = store.bits(torch.tensor(present))
    assert kept.nbytes == len(present) * -(-present.shape[1] // 8)
    np.testing.assert_array_equal(store.of_bits(kept, present.shape[1]), present)


def test_no_window_reaches_over_a_change_between_modes_of_the_start(kept):
    start = Monitor().fit(history(1_500, 3))
    start.observe_many(40 + history(3_000, 3, seed=1))
    learned = start.learned()
    assert (len(learned.watching.modes), learned.watching.width) == (2, 4)
    both = replace(learned, watching=replace(learned.watching, first_modes=2))
    start = Monitor.resumed(start.settings(), both)
    X = np.stack([history(700, 3, seed=seed) for seed in (2, 3)])
    X += 40 * (np.arange(700) // 85 % 2)[None, :, None]
    X[1, 500:540, 1] = np.nan  # what is missing for long is estimated, in the mode that it is in
    bank = MonitorBank(start, 2, **kept)
    bank.observe_many(X[:, :88])
    assert (bank[0].learned().watching.run < 3).any()
    bank = MonitorBank(start, 2, **kept)
    agree(bank, [Monitor.resumed(start.settings(), start.learned()) for _ in X], X)
