"""What a `Monitor` in a file must be, so that it can go on for as long as it likes.

Every length is compared with an array of the file before anything is made of it. Ranges are wider
than any stream needs, and narrow enough that no sum, square or quotient overflows and that the
normal equations of each mode have a solution: what passes here never fails later.
"""

from __future__ import annotations

from types import NoneType

import numpy as np

from onlad.fields import Types, need_array, need_count, need_types
from onlad.instance import CONSTANT, GROUPS, HIDDEN, PROJECTED, RIDGE, WIDEST
from onlad.limit import GAP, HIGHEST, RECENT
from onlad.mode import MEMORY, STATISTICS, unpacked
from onlad.modelfile import Values, need, short
from onlad.monitor import FEWEST
from onlad.reference import Array
from onlad.rows import LARGEST
from onlad.watching import CANDIDATE, MODES, TICK

LARGEST_WINDOW = 4_096
# A projected instance draws PROJECTED numbers for each input, and a file has no such array. It has
# arrays of about the same size for each feature, so short windows are in proportion to the file.
SHORT_WINDOW, LARGEST_INPUTS = 4, 2**14

LARGEST_UNIT = 1e120  # a mode may be made of values that another mode made up
LARGEST_HELD = 1e122  # a value that is made up lies up to 5 units from its centre
SMALLEST_UNIT = 1e-30  # what moves by less is still
LARGEST_SUM = 1e14  # of products of scaled values: the ridge is still seen beside it
LARGEST_SQUARE = 1e60  # of an error
LARGEST_LEVEL, SMALLEST_REACH = 1e9, 1e-3
LARGEST_SCORE = 1e30
LARGEST_RECENT = 1e8  # roots of scores

SETTINGS: Types = {
    "window": (int, NoneType),
    **dict.fromkeys(["warmup", "seed"], (int,)),
    "false_alarms": (float,),
}
WARMING: Types = {"names": (list,), "n_seen": (int,), "warming": (np.ndarray,)}
LEARNED: Types = {"names": (list,), "n_seen": (int,), "watching": (dict,)}
WATCHING: Types = {
    **dict.fromkeys(["width", "begun", "explained", "foreign", "drifting", "at"], (int,)),
    "current": (int,),
    "ordered": (bool,),
    **dict.fromkeys(["modes", "anchors"], (list,)),
    "limit": (dict,),
    "candidate": (dict, NoneType),
    **dict.fromkeys(["held", "age", "patience", "past", "means"], (np.ndarray,)),
    **dict.fromkeys(["kept", "present", "score", "mode", "refused", "open"], (np.ndarray,)),
    "quarantine": (np.ndarray,),
}
MODE: Types = {
    **dict.fromkeys(["centre", "scale", "usual", "largest", "levels"], (np.ndarray,)),
    **dict.fromkeys(["gram", "moment", "linear_gram", "linear_moment"], (np.ndarray,)),
    "weight": (float,),
    "count": (int,),
}
ANCHOR: Types = {**dict.fromkeys(["beta", "unit", "lean"], (np.ndarray,)), "rows": (int,)}
LIMIT: Types = {**dict.fromkeys(["recent", "fresh", "episode"], (np.ndarray,)), "factor": (float,)}

# The settings of a monitor in a file of the first release, which no other has.
FIRST_RELEASE = {"detector", "gate", "scaler", "threshold"}


def check_monitor(settings: Values, learned: Values) -> None:
    """Refuse, with `ValueError`, what no `Monitor` could have returned."""
    need_types("settings", settings, SETTINGS)
    window, warmup, seed = settings["window"], settings["warmup"], settings["seed"]
    if window is not None:
        need_count("window", window, 1, LARGEST_WINDOW)
    need_count("warmup", warmup, FEWEST)
    need(seed >= 0, f"seed must not be negative, got {seed}")
    if not learned:
        return
    need_types("learned", learned, WARMING if "warming" in learned else LEARNED)
    names = learned["names"]
    known = all(type(name) in (str, int) for name in names)
    rule = f"names must be strings or whole numbers, each once, got {short(names)}"
    need(known and 1 <= len(names) == len(set(names)), rule)
    need_count("n_seen", learned["n_seen"], 1)
    if "warming" in learned:
        _check_size(len(names), window or 1)
        _check_warming(learned["warming"], len(names), min(learned["n_seen"], warmup - 1))
    else:
        _check_watching(learned["watching"], len(names), window, learned["n_seen"])


def _check_size(n: int, width: int) -> None:
    fits = width <= SHORT_WINDOW or n * width <= LARGEST_INPUTS
    rule = f"a window of {width} rows has at most {LARGEST_INPUTS // width} features, got {n}"
    need(fits, rule)


def _check_warming(kept: Array, n: int, most: int) -> None:
    rows = len(kept) if kept.ndim else 0
    need_array("warming", kept, (rows, n), high=LARGEST, missing=True)
    need(rows <= most, f"warming must hold at most {most} rows, got {rows}")
    need(not np.isnan(kept).all(axis=1).any(), "warming holds a row without a value")


def _check_watching(learned: Values, n: int, window: int | None, n_seen: int) -> None:
    need_types("watching", learned, WATCHING)
    width, ordered = learned["width"], learned["ordered"]
    need_count("width", width, 1, LARGEST_WINDOW)
    need(window is None or width == window, f"width must be {window}, got {width}")
    _check_size(n, width)
    _check_rows(learned, n, width)
    modes, anchors, candidate = learned["modes"], learned["anchors"], learned["candidate"]
    need(1 <= len(modes) <= MODES, f"there must be 1 to {MODES} modes, got {len(modes)}")
    need(len(anchors) == len(modes), f"there must be {len(modes)} anchors, got {len(anchors)}")
    need_array("mode", learned["mode"], (2 * TICK,), "int64", low=0, high=len(modes) - 1)
    need_count("current", learned["current"], 0, len(modes) - 1)
    need_count("drifting", learned["drifting"], -1, n - 1)
    need_count("at", learned["at"], 0, TICK - 1)
    need_count("begun", learned["begun"], 1, n_seen)
    need_count("explained", learned["explained"])
    need_count("foreign", learned["foreign"])
    for values in (*modes, *([] if candidate is None else [candidate])):
        _check_mode(values, n, width)
    for values in anchors:
        if values is not None:
            _check_anchor(values, n, width)
    _check_quarantine(learned["quarantine"], n * width, CANDIDATE - 1 if candidate is None else 0)
    late = len(learned["quarantine"]) or candidate is not None or any(anchors)
    need(ordered or not late, "rows without order have no quarantine, candidate or anchors")
    _check_limit(learned["limit"])


def _check_rows(learned: Values, n: int, width: int) -> None:
    """Check what is kept of the last rows."""
    for name, rows in (("past", width - 1), ("kept", width - 1 + 2 * TICK)):
        need_array(name, learned[name], (rows, n), high=LARGEST_HELD, missing=True)
    need_array("held", learned["held"], (n,), high=LARGEST_HELD, missing=True)
    for name in ("age", "patience"):
        need_array(name, learned[name], (n,), low=0, high=LARGEST)
    need_array("means", learned["means"], (STATISTICS,), high=LARGEST_SCORE)
    need_array("score", learned["score"], (2 * TICK,), low=0, high=LARGEST_SCORE)
    need_array("present", learned["present"], (2 * TICK, n), "bool")
    for name in ("refused", "open"):
        need_array(name, learned[name], (2 * TICK,), "bool")


def _check_quarantine(rows: Array, inputs: int, most: int) -> None:
    count = len(rows) if rows.ndim else 0
    need_array("quarantine", rows, (count, inputs), high=LARGEST_HELD, missing=True)
    need(count <= most, f"quarantine must hold at most {most} rows, got {count}")


def _units(n: int, width: int) -> int:
    """Return the units of the second instance of a mode."""
    return n * width + 1 if n * width <= WIDEST else PROJECTED + 1


def _check_mode(values: Values, n: int, width: int) -> None:
    need_types("mode", values, MODE)
    units = _units(n, width)
    groups = min(GROUPS, n)
    need_array("gram", values["gram"], (groups, HIDDEN * (HIDDEN + 1) // 2), high=LARGEST_SUM)
    half = (units * (units + 1) // 2,)
    need_array("linear_gram", values["linear_gram"], half, high=LARGEST_SUM)
    need_array("moment", values["moment"], (HIDDEN, n), high=LARGEST_SUM)
    projected = (units, n) if n * width > WIDEST else (0,)
    need_array("linear_moment", values["linear_moment"], projected, high=LARGEST_SUM)
    _check_unit(values["centre"], values["scale"], n)
    for name in ("usual", "largest"):
        need_array(name, values[name], (2, n), low=0, high=LARGEST_SQUARE)
    levels = values["levels"]
    need_array("levels", levels, (4, STATISTICS), high=LARGEST_LEVEL)
    need_array("reach in levels", levels[1::2], (2, STATISTICS), low=SMALLEST_REACH)
    weight = values["weight"]
    need(0 <= weight <= MEMORY, f"weight must be in [0, {MEMORY}], got {weight}")
    need_count("count", values["count"], 1)
    _check_sums(unpacked(values["gram"]), RIDGE)
    _check_sums(unpacked(values["linear_gram"][None]), CONSTANT)


def _check_sums(gram: Array, last: float) -> None:
    """Insist on sums that rows can have: with half of the ridge they are positive definite.

    They are then, with the whole ridge, whatever rows are added.
    """
    ridge = np.append(np.full(gram.shape[1] - 1, RIDGE), last)
    try:
        np.linalg.cholesky(gram + np.diag(ridge / 2))
    except np.linalg.LinAlgError:
        raise ValueError("the sums of a mode are not those of any rows") from None


def _check_unit(centre: Array, scale: Array, n: int) -> None:
    need_array("centre", centre, (n,), high=LARGEST_UNIT, missing=True)
    need_array("scale", scale, (n,), low=0, high=LARGEST_UNIT)
    moving = scale > 0
    need(
        bool((scale[moving] >= SMALLEST_UNIT).all()), f"scale must be 0 or at least {SMALLEST_UNIT}"
    )
    need(not np.isnan(centre[moving]).any(), "a feature with a scale must have a centre")


def _check_anchor(values: Values, n: int, width: int) -> None:
    need_types("anchor", values, ANCHOR)
    need_array("beta", values["beta"], (_units(n, width), n), high=LARGEST_SQUARE)
    need_array("unit", values["unit"], (3, n), high=LARGEST_UNIT, missing=True)
    centre, scale, deviation = values["unit"]
    _check_unit(centre, scale, n)
    need_array("deviation", deviation, (n,), low=SMALLEST_UNIT, high=LARGEST_SQUARE)
    need_array("lean", values["lean"], (3, n), high=LARGEST_SQUARE)
    need(bool((values["lean"][1:] >= 0).all()), "the largest leans must not be negative")
    need_count("rows", values["rows"])


def _check_limit(values: Values) -> None:
    need_types("limit", values, LIMIT)
    for name, least in (("recent", 1), ("fresh", 0)):
        scores = values[name]
        count = min(max(len(scores) if scores.ndim else 0, least), RECENT)
        need_array(name, scores, (count,), "float32", low=0, high=LARGEST_RECENT)
    factor = values["factor"]
    need(0 <= factor <= HIGHEST, f"factor must be in [0, {HIGHEST:g}], got {factor}")
    need_array("episode", values["episode"], (3,), high=LARGEST)
    since, rows, peak = values["episode"].tolist()
    none = (since, rows, peak) == (-1, 0, 0)
    some = 0 <= since <= GAP and rows >= 1 and peak > 0
    need(none or some, "episode must be of refused rows, or -1, 0, 0")
