"""Monitors in hostile files: refused with a reason, or monitors that never fail later."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_files import described, put, refused, refused_in_little_memory, spelled, stream, written
from onlad import persist, watching
from onlad.anchor import SETTLED
from onlad.burnin import BURN_IN
from onlad.errors import ModelFileError
from onlad.fields import values
from onlad.instance import HIDDEN, PROJECTED
from onlad.limit import GAP, RECENT
from onlad.mode import packed
from onlad.monitor import FEWEST, Monitor
from onlad.persist import load, save
from onlad.watching import CANDIDATE, MODES, TICK


def watcher(rows, **options):
    """Return a monitor that has seen `rows` samples of the stream."""
    monitor = Monitor(**{"warmup": FEWEST, "window": 2} | options)
    monitor.observe_many(stream()[:rows])
    return monitor


def seasoned():
    """Return a monitor with two modes, an anchor, rows in quarantine, in the middle of a tick."""
    X = stream(SETTLED + 2300, change=SETTLED + 300)
    monitor = Monitor(window=2).fit(X[:SETTLED])
    monitor.observe_many(X[SETTLED:])
    monitor.observe_many(stream()[-150:] - 300)
    said = monitor.describe()
    assert len(said["modes"]) == 2
    assert said["quarantine"]
    return monitor


SEASONED = seasoned()
UNDECIDED = watcher(1205)  # with a candidate
WARMING = watcher(40)
WIDE = Monitor(warmup=FEWEST)  # projected
WIDE.observe_many(stream(300, 300))


def test_the_monitors_of_these_tests_have_all_there_is():
    now = SEASONED.learned().watching
    assert any(now.anchors)
    assert now.at > 0
    assert UNDECIDED.learned().watching.candidate is not None
    assert WIDE.learned().watching.modes[0].linear_moment.size


def changed(monitor, way, value):
    """Return the bytes of a file in which one value of what `monitor` has learned is another."""
    node = learned = values(monitor.learned())
    for key in way[:-1]:
        node = node[key]
    if value is None:
        del node[way[-1]]
    else:
        node[way[-1]] = value(node[way[-1]])
    return written(*spelled("Monitor", values(monitor.settings()), learned))


def path(place):
    return tuple(int(key) if key.isdigit() else key for key in place.split("."))


def at(index, number):
    def edit(array):
        array[index] = number
        return array

    return edit


def shaped(*shape, dtype="float64"):
    return lambda _: np.ones(shape, dtype)


def to(value):
    return lambda _: value


# -- headers ------------------------------------------------------------------------------------

LEARNED, OPTIONS = "model.learned.", "model.settings."
WATCHING = LEARNED + "watching.dict."
NAN, INF = {"float": "nan"}, {"float": "inf"}


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (OPTIONS + "window", 0, "window must be in [1, 4096], got 0"),
        (OPTIONS + "window", True, "window must be int or NoneType, got True"),
        (OPTIONS + "window", 2.0, "window must be int or NoneType, got 2.0"),
        (OPTIONS + "window", 2**39, "window must be in [1, 4096], got 549755813888"),
        (OPTIONS + "window", 3, "width must be 3, got 2"),
        (OPTIONS + "warmup", FEWEST - 1, f"warmup must be in [{FEWEST}, 2^62], got "),
        (OPTIONS + "warmup", 2**62 + 1, f"warmup must be in [{FEWEST}, 2^62], got "),
        (OPTIONS + "warmup", 64.0, "warmup must be int, got 64.0"),
        (OPTIONS + "seed", None, "seed must be int, got None"),
        (OPTIONS + "seed", -1, "seed must not be negative, got -1"),
        (OPTIONS + "false_alarms", 0.0, "false_alarms must be in (0, 1), got 0.0"),
        (OPTIONS + "false_alarms", NAN, "false_alarms must be in (0, 1), got nan"),
        (OPTIONS + "false_alarms", 1, "false_alarms must be float, got 1"),
        (OPTIONS + "gate", None, "missing in settings or not known: ['gate']"),
        (OPTIONS + "paused", True, "missing in settings or not known: ['paused']"),
        (LEARNED + "other", 1, "missing in learned or not known: ['other']"),
        (LEARNED + "warming", 1, "warming must be ndarray, got 1"),
        (LEARNED + "warming", None, "warming must be ndarray, got None"),
        (LEARNED + "names", 3, "names must be list, got 3"),
        (LEARNED + "names", [], "names must be strings or whole numbers, each once, got []"),
        (LEARNED + "names", [0, 1, 1], "names must be strings or whole numbers, each once, got"),
        (LEARNED + "names", [0, 1, None], "names must be strings or whole numbers, each once"),
        (LEARNED + "names", [0, True, 2], "names must be strings or whole numbers, each once"),
        (LEARNED + "names", [0, 1, [2]], "names must be strings or whole numbers, each once"),
        (LEARNED + "names", [0, 1], "past must have shape (1, 2), got (1, 3)"),
        (LEARNED + "names", [0, 1, 2, 3], "past must have shape (1, 4), got (1, 3)"),
        (LEARNED + "n_seen", 0, "n_seen must be in [1, 2^62], got 0"),
        (LEARNED + "n_seen", 2**62 + 1, "n_seen must be in [1, 2^62], got 4611686018427387905"),
        (LEARNED + "n_seen", 1000.0, "n_seen must be int, got 1000.0"),
        (LEARNED + "n_seen", 9, "begun must be in [1, 9], got "),
        (LEARNED + "watching", 1, "there are arrays that belong to nothing"),
        (WATCHING + "other", 1, "missing in watching or not known: ['other']"),
        (WATCHING + "width", 0, "width must be in [1, 4096], got 0"),
        (WATCHING + "width", 1, "width must be 2, got 1"),
        (WATCHING + "width", True, "width must be int, got True"),
        (WATCHING + "ordered", 1, "ordered must be bool, got 1"),
        (WATCHING + "ordered", False, "rows without order have no quarantine, candidate or anch"),
        (WATCHING + "at", -1, f"at must be in [0, {TICK - 1}], got -1"),
        (WATCHING + "at", TICK, f"at must be in [0, {TICK - 1}], got {TICK}"),
        (WATCHING + "begun", -1, "begun must be in [1, "),
        (WATCHING + "explained", -1, "explained must be in [0, 2^62], got -1"),
        (WATCHING + "foreign", -1, "foreign must be in [0, 2^62], got -1"),
        (WATCHING + "foreign", 1.0, "foreign must be int, got 1.0"),
        (WATCHING + "drifting", 3, "drifting must be in [-1, 2], got 3"),
        (WATCHING + "drifting", -2, "drifting must be in [-1, 2], got -2"),
        (WATCHING + "current", 2, "current must be in [0, 1], got 2"),
        (WATCHING + "current", -1, "current must be in [0, 1], got -1"),
        (WATCHING + "candidate", 1, "candidate must be dict or NoneType, got 1"),
        (WATCHING + "candidate", {"dict": {}}, "missing in candidate or not known: ['band"),
        (WATCHING + "modes.0.dict.count", 0, "count must be in [1, 2^62], got 0"),
        (WATCHING + "modes.0.dict.weight", NAN, "weight must be in [0, "),
        (WATCHING + "modes.1.dict.weight", -1.0, "weight must be in [0, "),
        (WATCHING + "modes.1.dict.weight", 1e5, "weight must be in [0, "),
        (WATCHING + "modes.1.dict.weight", 5, "weight must be float, got 5"),
        (WATCHING + "anchors.0.dict.rows", -1, "rows must be in [0, 2^62], got -1"),
        (WATCHING + "anchors.0.dict.rows", 1.0, "rows must be int, got 1.0"),
        (WATCHING + "limit.dict.factor", -0.1, "factor must be in [0, "),
        (WATCHING + "limit.dict.factor", INF, "factor must be in [0, "),
        (WATCHING + "limit.dict.factor", NAN, "factor must be in [0, "),
        (WATCHING + "limit.dict.factor", 1, "factor must be float, got 1"),
    ],
)
def test_a_hostile_monitor_is_refused_with_its_reason(tmp_path, place, value, says):
    header, body = described(SEASONED)
    (tmp_path / "good").write_bytes(written(header, body))
    load(tmp_path / "good")
    message = refused(tmp_path, written(put(header, place, value), body), says)
    assert message.endswith(". Save the model again")


@pytest.mark.parametrize("what", ["modes", "anchors"])
@pytest.mark.parametrize("value", [1, [], "mode", True], ids=repr)
def test_a_part_that_is_no_dict_is_refused(tmp_path, what, value):
    data = changed(SEASONED, ("watching", what, 0), to(value))
    says = f"{what[:-1]} must be a dict, got {value!r}"
    refused(tmp_path, data, says)


def test_modes_and_anchors_are_counted(tmp_path):
    says = f"there must be 1 to {MODES} modes, got "
    refused(tmp_path, changed(SEASONED, ("watching", "modes"), to([])), says + "0")
    many = lambda modes: modes[:1] * (MODES + 1)  # noqa: E731
    refused(tmp_path, changed(SEASONED, ("watching", "modes"), many), says + str(MODES + 1))
    says = "there must be 2 anchors, got 1"
    refused(tmp_path, changed(SEASONED, ("watching", "anchors"), lambda a: a[:1]), says)


def places(found, way=()):
    """Return the way to each value in nested dicts and lists, but for names."""
    inner = found.items() if isinstance(found, dict) else enumerate(found)
    ways = []
    for key, value in inner:
        if isinstance(value, dict) or (isinstance(value, list) and key != "names"):
            ways += places(value, (*way, key))
        ways.append((*way, key))
    return ways


def named(way):
    return ".".join(map(str, way))


@pytest.mark.parametrize(
    "way",
    [way for way in places(values(SEASONED.learned())) if isinstance(way[-1], str)],
    ids=named,
)
def test_what_is_missing_in_a_monitor_is_refused(tmp_path, way):
    says = f"or not known: ['{way[-1]}']"
    if way == ("watching",):
        says = "missing in learned or not known: ['watching']"
    refused(tmp_path, changed(SEASONED, way, None), says)


def test_a_monitor_that_is_young_and_has_kept_more_than_it_saw_is_refused(tmp_path):
    kept = np.ones((SEASONED.n_seen + 1, 3))
    learned = values(SEASONED.learned()) | {"warming": kept}
    data = written(*spelled("Monitor", values(SEASONED.settings()), learned))
    most = min(SEASONED.n_seen, BURN_IN + TICK - 1)
    refused(tmp_path, data, f"warming must hold at most {most} rows, got {len(kept)}")


# -- arrays -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "change", "says"),
    [
        ("past", shaped(2, 3), "past must have shape (1, 3), got (2, 3)"),
        ("past", shaped(3), "past must have shape (1, 3), got (3,)"),
        ("past", at((0, 0), np.inf), "past holds a number that is not finite"),
        ("past", at((0, 0), 1e123), "past holds a number that is not in [-1e+122, 1e+122]"),
        ("kept", shaped(2 * TICK, 3), f"kept must have shape ({2 * TICK + 1}, 3), got"),
        ("kept", shaped(2 * TICK + 1, 3, dtype="float32"), "kept must be float64, got float32"),
        ("kept", at((0, 0), -np.inf), "kept holds a number that is not finite"),
        ("held", shaped(2), "held must have shape (3,), got (2,)"),
        ("held", shaped(), "held must have shape (3,), got ()"),
        ("held", at(0, 1e123), "held holds a number that is not in [-1e+122, 1e+122]"),
        ("age", at(0, -1.0), "age holds a number that is not in [0, 1e+100]"),
        ("age", at(0, np.nan), "age holds a number that is not finite"),
        ("patience", at(0, np.inf), "patience holds a number that is not finite"),
        ("means", shaped(5), "means must have shape (4,), got (5,)"),
        ("means", at(0, np.nan), "means holds a number that is not finite"),
        ("leans", at((0, 0), 4.0), "leans holds a number that is not in [-3, 3]"),
        ("score", shaped(TICK), f"score must have shape ({2 * TICK},), got ({TICK},)"),
        ("score", at(0, -1.0), "score holds a number that is not in [0, 1e+30]"),
        ("score", at(0, np.nan), "score holds a number that is not finite"),
        ("mode", at(0, 2), "mode holds a number that is not in [0, 1]"),
        ("mode", at(0, -1), "mode holds a number that is not in [0, 1]"),
        ("mode", shaped(2 * TICK), "mode must be int64, got float64"),
        ("present", shaped(2 * TICK, 2, dtype="bool"), "present must have shape"),
        ("present", shaped(2 * TICK, 3), "present must be bool, got float64"),
        ("refused", shaped(2 * TICK), "refused must be bool, got float64"),
        ("open", shaped(TICK, dtype="bool"), "open must have shape"),
        ("quarantine", shaped(9, 5), "quarantine must have shape (9, 6), got (9, 5)"),
        ("quarantine", shaped(), "quarantine must have shape (0, 6), got ()"),
        ("quarantine", shaped(CANDIDATE, 6), "quarantine must hold at most "),
        ("quarantine", at((0, 0), np.inf), "quarantine holds a number that is not finite"),
        ("modes.0.gram", shaped(HIDDEN, HIDDEN), "gram must have shape"),
        ("modes.0.gram", at(0, np.nan), "gram holds a number that is not finite"),
        ("modes.0.gram", at(0, 1e15), "gram holds a number that is not in [-1e+14, 1e+14]"),
        ("modes.1.gram", at(0, -1.0), "the sums of a mode are not those of any rows"),
        ("modes.0.linear_gram", at(-1, -1.0), "the sums of a mode are not those of any rows"),
        ("modes.0.linear_gram", at(1, 1e7), "the sums of a mode are not those of any rows"),
        ("modes.0.linear_gram", shaped(29), "linear_gram must have shape (28,), got (29,)"),
        ("modes.0.moment", shaped(HIDDEN, 4), "moment must have shape"),
        ("modes.0.moment", at((0, 0), 1e15), "moment holds a number that is not in [-1e+14"),
        ("modes.0.linear_moment", shaped(7, 3), "linear_moment must have shape (0,), got (7, 3)"),
        ("modes.0.centre", shaped(1, 3), "centre must have shape (3,), got (1, 3)"),
        ("modes.0.centre", at(0, 1e121), "centre holds a number that is not in [-1e+120, 1e+12"),
        ("modes.0.centre", at(0, np.nan), "a feature with a scale must have a centre"),
        ("modes.0.scale", at(0, -1.0), "scale holds a number that is not in [0, 1e+120]"),
        ("modes.0.scale", at(0, 1e-300), "scale must be 0 or at least 1e-30"),
        ("modes.0.scale", at(0, np.nan), "scale holds a number that is not finite"),
        ("modes.0.usual", at((0, 0), -1.0), "usual holds a number that is not in [0, 1e+60]"),
        ("modes.0.usual", shaped(3, 2), "usual must have shape (2, 3), got (3, 2)"),
        ("modes.0.band", at(0, -1.0), "band holds a number that is not in [0, 10000]"),
        ("modes.0.levels", shaped(4), "levels must have shape (6, 4), got (4,)"),
        ("modes.0.levels", at((0, 0), np.nan), "levels holds a number that is not finite"),
        ("modes.0.levels", at((1, 0), 0.0), "reach in levels holds a number that is not in [0."),
        ("modes.0.leaning", at((0, 0), 0.0), "leaning holds a number that is not in [0.001, 9]"),
        ("modes.0.levels", at((3, 3), -1.0), "reach in levels holds a number that is not in [0."),
        ("anchors.0.beta", shaped(7, 2), "beta must have shape (7, 3), got (7, 2)"),
        ("anchors.0.beta", at((0, 0), np.inf), "beta holds a number that is not finite"),
        ("anchors.0.unit", shaped(2, 3), "unit must have shape (3, 3), got (2, 3)"),
        ("anchors.0.unit", at((1, 0), 1e-300), "scale must be 0 or at least 1e-30"),
        ("anchors.0.unit", at((1, 0), np.nan), "scale holds a number that is not finite"),
        ("anchors.0.unit", at((2, 0), 0.0), "deviation holds a number that is not in [1e-30, 1"),
        ("anchors.0.lean", at((1, 0), -1.0), "the largest leans must not be negative"),
        ("anchors.0.lean", at((0, 0), np.nan), "lean holds a number that is not finite"),
        ("limit.recent", shaped(0, dtype="float32"), "recent must have shape (1,), got (0,)"),
        ("limit.recent", shaped(dtype="float32"), "recent must have shape (1,), got ()"),
        ("limit.recent", shaped(RECENT + 1, dtype="float32"), "recent must have shape"),
        ("limit.recent", shaped(9), "recent must be float32, got float64"),
        ("limit.recent", at(0, np.inf), "recent holds a number that is not finite"),
        ("limit.recent", at(0, -1), "recent holds a number that is not in [0, 1e+08]"),
        ("limit.fresh", shaped(RECENT + 1, dtype="float32"), "fresh must have shape"),
        ("limit.episode", shaped(2), "episode must have shape (4,), got (2,)"),
        ("limit.episode", at(0, np.nan), "episode holds a number that is not finite"),
        ("limit.episode", to(np.array([0.0, 0.0, 2.0, 0.0])), "episode must be of refused"),
        ("limit.episode", to(np.array([0.0, 1.0, 0.0, 0.0])), "episode must be of refused"),
        ("limit.episode", to(np.array([GAP + 1.0, 1.0, 2.0, 0.0])), "episode must be of refused"),
        ("limit.episode", to(np.array([-1.0, 1.0, 2.0, 0.0])), "episode must be of refused"),
        ("limit.episode", to(np.array([0.0, 1.0, 2.0, 3.0])), "episode must be of refused"),
    ],
)
def test_arrays_of_a_monitor_that_cannot_be_are_refused(tmp_path, place, change, says):
    refused(tmp_path, changed(SEASONED, path("watching." + place), change), says)


def test_a_candidate_is_checked_as_a_mode(tmp_path):
    way = ("watching", "candidate", "gram")
    refused(tmp_path, changed(UNDECIDED, way, at(0, -1.0)), "the sums of a mode are not those of")
    rows = shaped(1, 6)
    says = "quarantine must hold at most 0 rows, got 1"
    refused(tmp_path, changed(UNDECIDED, ("watching", "quarantine"), rows), says)


@pytest.mark.parametrize("name", ["linear_gram", "linear_moment"])
def test_a_projected_instance_is_checked(tmp_path, name):
    way = ("watching", "modes", 0, name)
    refused(tmp_path, changed(WIDE, way, shaped(0)), f"{name} must have shape")


@pytest.mark.parametrize("name", ["gram", "linear_gram"])
def test_sums_of_rank_one_that_would_have_no_solution_later_are_refused(tmp_path, name):
    way = ("watching", "modes", 0, name)
    say = f"{name} holds a number that is not in"
    refused(tmp_path, changed(SEASONED, way, lambda half: np.full_like(half, 1e30)), say)
    (tmp_path / "m").write_bytes(changed(SEASONED, way, lambda half: np.full_like(half, 1e11)))
    survives(load(tmp_path / "m"))


@pytest.mark.parametrize(
    ("way", "change", "says"),
    [
        (("n_seen",), to(0), "n_seen must be in [1, 2^62], got 0"),
        (("n_seen",), to(39), "warming must hold at most 39 rows, got 40"),
        (("names",), to([1, 2]), "warming must have shape (40, 2), got (40, 3)"),
        (("names",), to(list(range(2**13 + 1))), "a window of 2 rows"),
        (("warming",), to(np.ones((FEWEST, 3))), "warming must hold at most 40 rows"),
        (("warming",), to(np.ones(())), "warming must have shape (0, 3), got ()"),
        (("warming",), at((0, 0), np.inf), "warming holds a number that is not finite"),
        (("warming",), at((0, 0), 1e101), "warming holds a number that is not in [-1e+100, 1e+"),
        (("warming",), at(0, np.nan), "warming holds a row without a value"),
        (("warming",), to(np.ones((9, 3), "float32")), "warming must be float64, got float32"),
        (("warming",), to(9), "warming must be ndarray, got 9"),
    ],
)
def test_samples_of_a_warm_up_that_cannot_be_are_refused(tmp_path, monkeypatch, way, change, says):
    monkeypatch.setattr(watching, "SHORT_WINDOW", 1)
    refused(tmp_path, changed(WARMING, way, change), says)


@pytest.mark.parametrize("monitor", [WARMING, SEASONED], ids=["warming", "seasoned"])
def test_a_damaged_monitor_is_refused(tmp_path, monitor):
    file, rng = tmp_path / "m", np.random.default_rng(0)
    save(monitor, file)
    good = file.read_bytes()
    for place in rng.integers(len(good), size=200):
        flipped = bytearray(good)
        flipped[place] ^= rng.integers(1, 256)
        for data in (flipped, good[:place]):
            file.write_bytes(data)
            with pytest.raises(ModelFileError):
                load(file)


# -- memory -------------------------------------------------------------------------------------


def test_no_monitor_takes_memory_out_of_proportion(tmp_path):
    names, wide = list(range(9000)), {"window": 4096}
    files = [
        changed(WARMING, ("names",), to(names)),
        changed(SEASONED, ("names",), to(names)),
        changed(SEASONED, ("watching", "width"), to(4096)),
        changed(watcher(40, **wide), ("names",), to(names)),
    ]
    refused_in_little_memory(tmp_path, files)


@pytest.mark.parametrize("options", [{}, {"window": 4096 // 4}], ids=["default", "wide"])
def test_loading_takes_memory_in_proportion_to_the_file(tmp_path, options):
    """A wide window draws PROJECTED numbers for each input, which is bounded by itself."""
    monitor = Monitor(warmup=FEWEST, **options)
    monitor.observe_many(stream(300, 16))
    data = persist.to_bytes(monitor)
    bound = 8 * 3 * PROJECTED * watching.LARGEST_INPUTS if options else 0
    tracemalloc.start()
    try:
        persist.from_bytes(data)
        assert tracemalloc.get_traced_memory()[1] < 9 * len(data) + bound
    finally:
        tracemalloc.stop()


def test_a_window_that_is_too_wide_to_load_is_not_saved(tmp_path):
    monitor = Monitor(window=100, warmup=FEWEST)
    monitor.observe_many(stream(20, 200))
    says = "a window of 100 rows has at most 163 features, got 200"
    with pytest.raises(ModelFileError, match=says):
        save(monitor, tmp_path / "m")


def test_a_started_monitor_with_a_window_that_is_too_wide_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(watching, "SHORT_WINDOW", 1)
    monkeypatch.setattr(watching, "LARGEST_INPUTS", 5)
    says = "a window of 2 rows has at most 2 features, got 3"
    refused(tmp_path, written(*described(SEASONED)), says)


# -- what is let in goes on ---------------------------------------------------------------------


def survives(monitor, rows=400):
    """Insist that a monitor can go on with rows of any kind, and can be saved after them."""
    X = np.tile(stream(rows, len(monitor.names)), (2, 1))
    X[rows // 2 : rows] -= 500
    X[rows : rows + 30, 0] = np.nan
    X[rows + 30 : rows + 40] = np.nan
    X[rows + 40 : rows + 44, 0] = 1e100, -1e100, 1e-300, 0.0
    said = monitor.observe_many(X)
    for name in ("score", "p_value", "shares"):
        assert np.isfinite(getattr(said, name)).all(), name
    assert not np.isnan(said.threshold).any()
    for x in X[:3]:
        assert math.isfinite(monitor.observe(x).score)
    monitor.accept(X[:2])
    monitor.describe()
    persist.from_bytes(persist.to_bytes(monitor))


EXTREMES = [0, -1, 1e-300, 1e-25, 1e-9, 1e11, 1e15, 1e60, 1e119, np.nan]


def extreme(old, value, part):
    """Return `old` with the extreme value in it, in a part of it if it is an array."""
    if isinstance(old, np.ndarray):
        with np.errstate(all="ignore"):
            old.flat[part] = np.array(value).astype(old.dtype)
        return old
    whole = math.isfinite(value) and abs(value) < 1e39
    return type(old)(value) if whole or type(old) is float else old


def is_number(value, way):
    for key in way:
        value = value[key]
    flags = isinstance(value, bool) or (isinstance(value, np.ndarray) and value.dtype == bool)
    return isinstance(value, (np.ndarray, int, float)) and not flags


def numbers_of(monitor):
    learned = values(monitor.learned())
    return [way for way in places(learned) if is_number(learned, way)]


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
@pytest.mark.parametrize(
    ("monitor", "way"),
    [
        *((SEASONED, way) for way in numbers_of(SEASONED)),
        *((UNDECIDED, way) for way in numbers_of(UNDECIDED) if "candidate" in way),
        *((WARMING, way) for way in numbers_of(WARMING)),
        *((WIDE, way) for way in numbers_of(WIDE) if "linear" in way[-1]),
    ],
    ids=lambda value: named(value) if isinstance(value, tuple) else "",
)
def test_a_monitor_that_is_not_refused_never_fails_later(tmp_path, monitor, way):
    """Extreme numbers may make a useless monitor, but none that warns or raises."""
    parts = (slice(None), slice(-1, None))
    edits = [lambda old, v=v, p=p: extreme(old, v, p) for v in EXTREMES for p in parts]
    for data in {changed(monitor, way, edit) for edit in edits}:
        try:
            twin = persist.from_bytes(data)
        except ModelFileError:
            continue
        survives(twin, 100)


@settings(max_examples=60)
@given(
    ways=st.lists(st.sampled_from(numbers_of(SEASONED)), min_size=1, max_size=6, unique=True),
    seed=st.integers(0, 2**32),
)
def test_random_changes_are_refused_or_do_no_harm(ways, seed):
    rng, learned = np.random.default_rng(seed), values(SEASONED.learned())
    for way in ways:
        node = learned
        for key in way[:-1]:
            node = node[key]
        node[way[-1]] = random_like(node[way[-1]], way[-1], rng)
    options = values(SEASONED.settings())
    try:
        twin = persist.from_bytes(written(*spelled("Monitor", options, learned)))
    except ModelFileError:
        return
    survives(twin)


def random_like(old, name, rng):
    """Return a value of the kind of `old`, of any size that could be let in."""
    size = 10.0 ** rng.uniform(-30, 12)
    if name in ("gram", "linear_gram"):
        units = int(np.sqrt(2 * old.shape[-1]))
        H = rng.normal(size=(rng.integers(1, 2 * units), units)) * np.sqrt(size / units)
        return np.broadcast_to(packed((H.T @ H)[None])[0], old.shape).copy()
    if not isinstance(old, np.ndarray):
        return type(old)(min(size, 2.0**60))
    if old.dtype.kind == "i":
        return rng.permutation(old)
    return (old.astype(bool) * rng.uniform(0.1, 1, old.shape) * size).astype(old.dtype)
