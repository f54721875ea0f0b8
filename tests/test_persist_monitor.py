"""Monitors in files: they go on to the last bit, from whatever moment they were saved at."""

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_files import described, same, stream, written
from onlad import persist
from onlad.anchor import SETTLED
from onlad.burnin import BURN_IN
from onlad.errors import ModelFileError
from onlad.monitor import FEWEST, Monitor
from onlad.persist import load, save
from onlad.watching import TICK

COLUMNS = ["score", "threshold", "p_value", "is_anomaly", "learned", "ready", "drift", "drifting"]
ROWS = 1900


def saved_and_loaded(monitor, path):
    save(monitor, path)
    assert path.read_bytes() == written(*described(monitor))
    return load(path)


def assert_goes_on(monitor, X, path):
    """Insist that a loaded monitor says of `X` what the saved one says, and learns the same."""
    twin = saved_and_loaded(monitor, path)
    assert type(twin) is Monitor
    assert repr(twin) == repr(monitor)
    assert twin.describe() == monitor.describe()
    expected, found = monitor.observe_many(X), twin.observe_many(X)
    for name in (*COLUMNS, "shares"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    assert same(monitor.learned(), twin.learned())


@pytest.mark.parametrize(
    ("options", "n"),
    [
        ({}, 3),
        ({}, 1),
        ({}, 40),
        ({"window": 1}, 2),
        ({"window": 7, "false_alarms": 0.01}, 2),
        ({"warmup": 200, "seed": 10**30}, 3),
        ({"window": 100}, 3),  # 300 inputs are projected
        ({}, 300),
    ],
    ids=repr,
)
def test_a_loaded_monitor_continues_to_the_last_bit(tmp_path, options, n):
    X = stream(ROWS, n)
    monitor = Monitor(**{"warmup": FEWEST} | options).fit(
        X[: 2 * FEWEST]
    )  # a young one has no modes
    states, step = set(), 3 * TICK // 2 + 5  # in the middle of a tick, each time at another row
    for first in range(2 * FEWEST, ROWS, step):
        assert_goes_on(monitor, X[first : first + step], tmp_path / "m")
        said = monitor.describe()
        if said["ready"]:
            states |= {f"{len(said['modes'])} modes"}
            states |= {name for name in ("candidate", "quarantine") if said[name]}
    assert states == {"1 modes", "2 modes", "candidate", "quarantine"}


@pytest.mark.parametrize("rows", [0, 1, FEWEST - 1, FEWEST, FEWEST + 1, FEWEST + TICK, 500])
def test_a_monitor_can_be_saved_at_any_moment(tmp_path, rows):
    monitor = Monitor(warmup=FEWEST)
    monitor.observe_many(stream()[:rows])
    assert_goes_on(monitor, stream()[rows : rows + 300], tmp_path / "m")


def test_a_young_monitor_that_starts_anew_continues_to_the_last_bit(tmp_path):
    monitor, X = Monitor(warmup=FEWEST), stream(ROWS, 3)
    begun, step = set(), 3 * TICK // 2 + 5
    for first in range(0, ROWS, step):
        assert_goes_on(monitor, X[first : first + step], tmp_path / "m")
        begun |= {monitor.describe().get("start")}
    assert len(begun - {None, FEWEST}) > 0
    assert monitor.young


def test_a_monitor_can_be_saved_at_the_end_of_its_burn_in(tmp_path):
    monitor, X = Monitor(warmup=FEWEST), stream(BURN_IN + 3 * TICK, 2)
    monitor.observe_many(X[: BURN_IN - TICK])
    for first in range(BURN_IN - TICK, BURN_IN + 2 * TICK, 13):
        assert_goes_on(monitor, X[first : first + 13], tmp_path / "m")
    assert not monitor.young


def test_a_monitor_whose_rows_so_far_had_no_value_can_be_saved(tmp_path):
    monitor = Monitor()
    monitor.observe_many(np.full((5, 3), np.nan))
    assert_goes_on(monitor, stream()[:300], tmp_path / "m")


def test_an_anchored_monitor_that_drifts_continues_to_the_last_bit(tmp_path):
    rng = np.random.default_rng(0)
    cycle = np.sin(np.arange(9000) / 20)[:, None] * [1.0, 2.0, -1.0]
    X = cycle + 0.1 * rng.normal(size=(9000, 3))
    X[4000:, 1] += 0.4 * np.arange(5000) / 5000
    monitor = Monitor().fit(X[: SETTLED + 500])
    assert monitor.learned().watching.anchors != (None,)
    said = 0
    for first in range(SETTLED + 500, 9000, 1111):
        assert_goes_on(monitor, X[first : first + 1111], tmp_path / "m")
        said += monitor.describe()["drifting"] is not None
    assert said


def test_a_monitor_of_rows_without_order_continues_to_the_last_bit(tmp_path):
    X = np.random.default_rng(0).permutation(stream(2000)[:600])
    monitor = Monitor()
    monitor.observe_many(X[:300])
    assert monitor.describe()["ordered"] is False
    assert_goes_on(monitor, X[300:], tmp_path / "m")


def test_one_by_one_is_the_same_after_loading(tmp_path):
    monitor = Monitor()
    monitor.observe_many(stream()[:600])
    twin = saved_and_loaded(monitor, tmp_path / "m")
    for x in stream()[600:900]:
        assert twin.observe(x) == monitor.observe(x)


def test_what_was_accepted_and_allowed_is_saved(tmp_path):
    monitor, X = Monitor(), stream()
    monitor.observe_many(X[:590])
    monitor.accept(X[580:590] + 30)
    monitor.false_alarms = 0.02
    assert_goes_on(monitor, X[590:1300], tmp_path / "m")


def test_a_pause_is_not_saved(tmp_path):
    monitor = Monitor()
    monitor.observe_many(stream()[:590])
    monitor.paused = True
    monitor.observe_many(stream()[590:600])
    twin = saved_and_loaded(monitor, tmp_path / "m")
    assert twin.paused is False
    monitor.paused = False
    assert_goes_on(monitor, stream()[600:900], tmp_path / "m")


@pytest.mark.parametrize("rows", [5, 100])
@pytest.mark.parametrize(
    "names",
    [("flow", "power", "Wärme\n"), (7, 0, -3), ("", 0, "0"), tuple(map(np.int64, range(3)))],
    ids=repr,
)
def test_names_come_back(tmp_path, names, rows):
    monitor, X = Monitor(warmup=FEWEST), stream()
    for row in X[:rows]:
        monitor.observe(dict(zip(names, row, strict=True)))
    save(monitor, tmp_path / "m")
    twin = load(tmp_path / "m")
    assert twin.names == names
    x = dict(zip(names, X[rows], strict=True))
    assert twin.observe(x) == monitor.observe(x)


@pytest.mark.parametrize("name", [("a", 1), 1.5, None, True, b"a"], ids=repr)
def test_a_name_that_is_no_string_or_number_is_refused(tmp_path, name):
    monitor = Monitor()
    monitor.observe({name: 1.0, "b": 2.0})
    with pytest.raises((ModelFileError, TypeError), match=r"names must be|cannot be saved"):
        save(monitor, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=30)
@given(
    rows=st.integers(0, 1200),
    n=st.integers(1, 4),
    options=st.fixed_dictionaries(
        {
            "window": st.none() | st.integers(1, 5),
            "warmup": st.integers(FEWEST, 300),
            "false_alarms": st.floats(1e-300, 0.99),
            "seed": st.integers(0, 2**128 - 1),
        }
    ),
)
def test_save_inverts_load_of_a_monitor(tmp_path_factory, rows, n, options):
    path = tmp_path_factory.getbasetemp() / "inverse"
    monitor = Monitor(**options)
    monitor.observe_many(stream(rows + 1, n)[:rows])
    save(saved_and_loaded(monitor, path), path)
    assert path.read_bytes() == written(*described(monitor))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda X: np.where([False, True, False], np.nan, X),
        lambda X: np.where([False, True, False], 7.0, X),
        lambda X: np.where(np.arange(len(X))[:, None] < 550, [0.0, np.nan, 1.0], X),
        lambda X: np.where(np.arange(len(X))[:, None] < 550, X, np.nan),
        lambda X: np.random.default_rng(0).choice([-1e100, 0.0, 1e100], X.shape),
        lambda X: np.where(np.arange(len(X))[:, None] < 550, X, 1e100),
        lambda X: X * 1e-40,
    ],
    ids=["missing", "still", "awakes", "ends", "largest", "grows", "tiny"],
)
def test_streams_of_extremes_can_be_saved(tmp_path, spoil):
    monitor, X = Monitor(), spoil(stream())
    for first in range(0, ROWS, 310):
        assert_goes_on(monitor, X[first : first + 310], tmp_path / "m")


def test_more_rows_than_are_remembered_can_be_saved(tmp_path):
    monitor = Monitor(window=1)
    monitor.observe_many(np.tile(stream()[:600], (10, 1)))
    assert_goes_on(monitor, stream()[:100], tmp_path / "m")


@pytest.mark.parametrize(("n", "largest"), [(8, 60_000), (64, 200_000)])
def test_a_file_is_small(n, largest):
    """The file of a monitor that saw nothing unusual, with its anchor."""
    rng, t = np.random.default_rng(0), np.arange(5000)
    cycles = np.array([np.sin(t / 20), np.cos(t / 33), np.sin(t / 7)]).T
    monitor = Monitor()
    monitor.observe_many(cycles @ rng.normal(size=(3, n)) + 0.2 * rng.normal(size=(5000, n)))
    assert monitor.learned().watching.anchors != (None,)
    assert len(persist.to_bytes(monitor)) <= largest


def test_a_copy_of_a_monitor_is_what_a_file_of_it_is(tmp_path):
    monitor = Monitor()
    monitor.observe_many(stream()[:777])
    twin = copy.deepcopy(monitor)
    assert same(saved_and_loaded(monitor, tmp_path / "m").learned(), twin.learned())
