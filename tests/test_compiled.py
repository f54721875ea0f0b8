"""The compiled monitor is the one of `onlad.watching`: what it says, and what it has learned."""

import dataclasses
import pickle
import re

import numpy as np
import pytest

from onlad import Monitor, _kernel, compiled, watching
from onlad.instance import WIDEST
from onlad.verdict import Verdict, Verdicts
from onlad.watching import TICK, Watching
from plants import plant, smooth

NAN = np.nan
COLUMNS = ("ready", "score", "threshold", "p_value", "is_anomaly", "learned", "drift", "drifting")
RATE = 1e-3


def range_of(n):
    return tuple(range(n))


def rough(rows, n, seed):
    """Return a stream with gaps, outages, spikes, another mode, a stuck time, a late sensor."""
    rng = np.random.default_rng(seed)
    X = smooth(rows, n, seed)
    X[rows // 3 : 2 * rows // 3] = 6 - 2 * X[rows // 3 : 2 * rows // 3, ::-1]
    X[rng.uniform(size=rows) < 0.01] *= 9
    X[rng.uniform(size=X.shape) < 0.05] = NAN
    X[rows // 4 : rows // 4 + 60, n // 2 :] = NAN  # far longer than a value is held
    X[rows // 2 : rows // 2 + 5] = NAN
    X[rows // 2 + 9, 0] = 1e100
    X[5 * rows // 6 : 5 * rows // 6 + 150] = X[5 * rows // 6]
    if n > 2:
        X[:, 1] = 5.0
        X[3 * rows // 4 :, 1] = 5.0 + rng.normal(size=rows - 3 * rows // 4)
        X[: rows // 5, 2] = NAN  # first seen late
    return X


def defined(own, X, paused):
    """Return what the definition says of the rows of `X`."""
    verdicts = Verdicts(tuple(range(X.shape[1])), len(X))
    first = 0
    while first < len(X):
        stop = min(len(X), first + TICK - own.at)
        part = slice(first, stop)
        verdicts.ready[part] = True
        verdicts.drifting[part] = own.drifting
        shares = verdicts.shares[part]
        rows = own.rows(X[part], shares, paused)
        total = shares.sum(axis=1, keepdims=True)
        np.divide(shares, total, out=shares, where=total > 0)
        verdicts.score[part], verdicts.threshold[part] = own.told(rows)
        verdicts.learned[part] = ~own.refused[rows] & (not paused)
        verdicts.p_value[part] = own.limit.p_values(own.score[rows])
        verdicts.is_anomaly[part] = verdicts.score[part] > verdicts.threshold[part]
        verdicts.expected[part], verdicts.reach[part] = (
            own.expected[rows],
            own.reach[own.mode[rows]],
        )
        unusual = own.refused[rows] | verdicts.is_anomaly[part]
        verdicts.unusual[part] = [
            own.unusual(rows.start + i) if odd else 1 for i, odd in enumerate(unusual)
        ]
        verdicts.drift[stop - 1] = own.at == TICK and own.tick()
        first = stop
    return verdicts


def said(own, X, paused):
    """Return what the compiled monitor says of the rows of `X`."""
    verdicts = Verdicts(tuple(range(X.shape[1])), len(X))
    compiled.watch(own, np.ascontiguousarray(X), paused, verdicts, slice(0, len(X)))
    return verdicts


def condition(own):
    """Return the largest condition number of the normal equations of a monitor."""
    systems = [
        gram + instance._ridge
        for mode in (*own.modes, *filter(None, [own.candidate]))
        for instance in mode.instances
        for gram in instance.gram
    ]
    return max(np.linalg.cond(each) for each in systems)


def assert_near(found, expected, bound, where="values"):
    """Compare nested values; an array within `bound` of its largest entry."""
    if dataclasses.is_dataclass(expected):
        for field in dataclasses.fields(expected):
            mine, theirs = getattr(found, field.name), getattr(expected, field.name)
            assert_near(mine, theirs, bound, f"{where}.{field.name}")
    elif isinstance(expected, tuple):
        assert len(found) == len(expected), where
        for i, value in enumerate(expected):
            assert_near(found[i], value, bound, f"{where}[{i}]")
    elif isinstance(expected, np.ndarray):
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype), where
        if expected.dtype.kind != "f":
            np.testing.assert_array_equal(found, expected, err_msg=where)
            return
        # Roots of scores are kept in single precision: there the last bit may fall either way.
        bound = max(bound, np.finfo(expected.dtype).eps)
        largest = np.nanmax(np.abs(expected), initial=1.0)
        np.testing.assert_allclose(found, expected, rtol=0, atol=bound * largest, err_msg=where)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=bound), where
    else:
        assert (type(found), found) == (type(expected), expected), where


@pytest.mark.parametrize(
    ("n", "window", "shuffled", "rows"),
    [
        (1, None, False, 3000),
        (1, 1, True, 1000),
        (2, None, False, 3000),
        (3, 2, False, 3000),
        (5, None, False, 9000),
        (5, None, True, 2000),
        (17, None, False, 3000),
        (70, None, False, 1800),
        (100, 3, False, 500),
        (WIDEST + 4, None, False, 400),
    ],
)
def test_the_compiled_monitor_is_the_definition(n, window, shuffled, rows):
    X = rough(rows, n, seed=3)
    if shuffled:
        X = np.random.default_rng(0).permutation(X)
    if n == 3:  # one is a counter, with missing values and a reset
        X[:, 0] = np.nancumsum(np.abs(X[:, 0])) + 0 * X[:, 0]
        X[rows // 2 :, 0] -= np.nanmin(X[rows // 2 :, 0])
    start = rows // 5
    rate = 1e-6 if n == 17 else RATE  # that far its tail may not be followed
    one = Watching.start(X[:start], window, rate, 0)
    other = compiled.resumed(one.learned(), rate, 0, tuple(range(n)))
    assert one.ordered != shuffled
    assert (len(one.counters.which) == 1) == (n == 3)
    alarms, confirmed, candidates = 0, 0, set()
    for k, part in enumerate(np.array_split(X[start:], 7)):
        paused = k == 1
        expected, found = defined(one, part, paused), said(other, part, paused)
        alarms += int(found.is_anomaly.sum())
        # Each tick both solve the same linear systems. An error is then within rounding times the
        # condition of what the other has; 1,000 is for its square, and for all that is divided by
        # a small reach.
        bound = 1000 * np.finfo(float).eps * condition(one)
        assert bound < 1e-4
        for name in COLUMNS:
            a, b = getattr(found, name), getattr(expected, name)
            if a.dtype == float:
                np.testing.assert_allclose(a, b, rtol=bound, atol=bound, err_msg=name)
            else:
                np.testing.assert_array_equal(a, b, err_msg=name)
        np.testing.assert_allclose(found.shares, expected.shares, rtol=0, atol=bound)
        # In raw units, which are of the order of 10 to 100; a spike is clipped at 10,000 units.
        np.testing.assert_allclose(found.around, expected.around, rtol=bound, atol=1e4 * bound)
        values = one.learned()
        assert_near(compiled.learned(other), values, bound)
        confirmed += int(found.drift.sum())
        candidates.add(values.candidate is not None)
    if n == 5 and not shuffled:  # it was all in the stream
        assert confirmed > 0
        assert candidates == {False, True}
        assert any(each is not None for each in values.anchors)
        assert alarms > 0


def test_the_least_useful_mode_is_dropped_as_in_the_definition():
    rows, deviation = 5600, plant(20_000, seed=5)[1]
    sides = np.random.default_rng(0).choice([-1, 1], (5, 6))
    X = np.array([plant(rows, i)[0] + 8 * i * deviation * side for i, side in enumerate(sides)])
    other = compiled.resumed(Watching.start(X[0], None, RATE, 0).learned(), RATE, 0, range_of(6))
    for each in X[1:-1]:
        said(other, each, False)
    one = Watching.resumed(compiled.learned(other), RATE, 0)
    assert len(one.modes) == watching.MODES
    expected, found = defined(one, X[-1], False), said(other, X[-1], False)
    assert expected.drift.sum() == 1
    assert len(one.modes) == watching.MODES
    np.testing.assert_array_equal(found.drift, expected.drift)
    bound = 1000 * np.finfo(float).eps * condition(one)
    assert_near(compiled.learned(other), one.learned(), bound)


@pytest.mark.parametrize("n", [3, 8, 300])
def test_gram_matrices_are_kept_once_and_come_back_to_the_last_bit(n):
    X = rough(600, n, seed=1)
    own = compiled.resumed(Watching.start(X[:300], None, RATE, 0).learned(), RATE, 0, range_of(n))
    said(own, X[300:500], False)
    values = compiled.learned(own)
    again = compiled.resumed(values, RATE, 0, range_of(n))
    assert_near(compiled.learned(again), values, 0.0)
    one, two = said(own, X[500:], False), said(again, X[500:], False)
    for name in (*COLUMNS, "shares", "around"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)


@pytest.mark.parametrize("n", [2, 8, 70])
def test_one_by_one_and_in_blocks_are_the_same_to_the_last_bit(n):
    X = rough(1500, n, seed=4)
    names = tuple(f"sensor {j}" for j in range(n))
    many = Monitor(warmup=300).observe_many([dict(zip(names, x, strict=True)) for x in X.tolist()])
    monitor = Monitor(warmup=300)
    for t, x in enumerate(X.tolist()):
        verdict = monitor.observe(dict(zip(names, x, strict=True)))
        assert verdict == many[t], t
        assert list(verdict.causes) == list(many[t].causes)


# -- verdicts ------------------------------------------------------------------------------


def verdict_of_one():
    monitor = Monitor(warmup=100)
    monitor.observe_many(smooth(400, 3))
    return monitor.observe({0: 1.0, 1: NAN, 2: 5.0})


def test_a_verdict_of_the_kernel_is_a_value_like_any_other():
    verdict = verdict_of_one()
    assert type(verdict) is Verdict
    twin = pickle.loads(pickle.dumps(verdict_of_one()))  # before its causes were asked for
    assert twin == verdict
    assert repr(twin) == repr(verdict)
    assert repr(verdict).startswith("Verdict(ready=True, score=")
    assert sum(verdict.causes.values()) == pytest.approx(1.0)
    assert 1 not in verdict.causes  # a missing value is never a cause
    assert verdict.causes is verdict.causes
    with pytest.raises(AttributeError, match="cannot assign to field 'score'"):
        verdict.score = 0.0
    with pytest.raises(AttributeError, match="a Verdict has no attribute 'cause'"):
        _ = verdict.cause


# -- the binding ---------------------------------------------------------------------------


def test_arrays_that_do_not_fit_are_refused():
    values = Watching.start(smooth(300, 3), 2, RATE, 0).learned()
    names = ("a", "b", "c")
    own = compiled.resumed(values, RATE, 0, names)
    refusal = pytest.raises(ValueError, match="the arrays do not fit the monitor")
    changes = {
        "width": 3,
        "modes": (),
        "anchors": (),
        "at": TICK,
        "current": 1,
        "drifting": 3,
        "mode": np.full(2 * TICK, 1),
        "kept": values.kept[1:],
        "held": np.zeros(4),
        "patience": np.zeros(3, "float32"),
        "candidate": dataclasses.replace(values.modes[0], gram=np.zeros((1, 3))),
        "limit": dataclasses.replace(values.limit, recent=np.zeros(0, "float32")),
    }
    given = {"layer": compiled.layer(3, 2, 0), "rate": RATE, "verdict": Verdict}
    for name, value in changes.items():
        with refusal:
            changed = dataclasses.replace(values, **{name: value})
            _kernel.Watching(**given, state=changed, names=names)
    with refusal:
        _kernel.Watching(**given, state=values, names=("a", "b"))
    with refusal:
        said(own, np.zeros((4, 2)), False)
    with refusal:
        own.observe_row(np.zeros(4), False)
    for rows, first, columns in [
        (5, 0, {}),
        (4, 1, {}),
        (4, 0, {"drifting": np.zeros(4, "int32")}),
    ]:
        verdicts = Verdicts(names, 4)
        vars(verdicts).update(columns)  # a converted column would be lost
        with refusal:
            own.watch(np.zeros((rows, 3)), paused=False, verdicts=verdicts, first=first)
    assert_near(compiled.learned(own), values, 0.0)


def test_the_kernel_takes_its_constants_by_name():
    known = compiled.constants()
    assert known["watching.TICK"] == TICK
    assert (known["mode.LEAST_0"], known["mode.LEAST_1"]) == (0.5, 0.05)
    del known["limit.STEP"]
    given = {"width": 1, "alpha": np.zeros((1, 32)), "b": np.zeros(32), "groups": 1}
    given["projection"] = np.empty((0, 0))
    with pytest.raises(KeyError, match=re.escape("limit.STEP")):
        _kernel.Layer(**given, features=1, constants=known)
    with pytest.raises(ValueError, match="do not fit"):
        _kernel.Layer(**given, features=2, constants=compiled.constants())
