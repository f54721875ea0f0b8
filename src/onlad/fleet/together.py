"""Monitors that learn together: devices send each other sums, and no samples.

First they agree on a scale, once: `measure` gives the sums of a device's history, and `agreed` the
scale of all of them, with which each device starts (`Monitor.fit`). Then the sums of their modes
add: `sums` takes them out of a monitor, and `join` makes the monitor that knows what all know. A
mode of another device that is one of the own becomes part of it; any other becomes a mode.

`onlad.fleet.exchange` does this with bare detectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from onlad import fields
from onlad.fields import Numbers, Within
from onlad.fleet.exchange import Message, weighed
from onlad.instance import WIDEST, Instance
from onlad.mode import MEMORY, PRIOR_SQUARE, RANGE, SMALLEST_UNIT, STILL, Mode, ModeState
from onlad.modelfile import need
from onlad.monitor import Monitor
from onlad.reference import Array
from onlad.rows import LARGEST, Names, read_many
from onlad.watching import LARGEST_WINDOW, MODES, WatchingState, check_size

SAME = 4.0  # a mode whose rows another one predicts with squares so much larger is the same


@dataclass(frozen=True, eq=False)
class Measured(Message):
    """What the scale of a device's history follows from, by feature."""

    names: Names
    count: Annotated[Array, Numbers(("n",), low=0)]
    mean: Annotated[Array, Numbers(("n",), high=LARGEST)]
    square: Annotated[Array, Numbers(("n",), low=0)]  # sum of squares about the mean
    low: Annotated[Array, Numbers(("n",), high=LARGEST)]
    high: Annotated[Array, Numbers(("n",), high=LARGEST)]

    def check(self) -> None:
        """Refuse, with `ValueError`, what no history could have."""
        _check_names(self.names)
        fields.check(self, {"n": len(self.names)})
        need(bool((self.low <= self.high).all()), "low must not be above high")


def measure(X: Any, names: Names = ()) -> Measured:
    """Return what the scale of a history, as `Monitor.fit` takes it, follows from.

    Examples
    --------
    >>> agreed([measure([[1.0, 5.0], [3.0, 5.0]]), measure([[5.0, 5.0], [7.0, np.nan]])])
    (array([4., 5.]), array([2.23606798, 0.        ]))
    """
    rows, names = read_many(X, names)
    known = ~np.isnan(rows)
    count = known.sum(axis=0).astype(float)
    some = np.where(known, rows, 0.0)
    mean = some.sum(axis=0) / np.maximum(count, 1)
    square = (np.where(known, rows - mean, 0.0) ** 2).sum(axis=0)
    seen = count > 0
    low = np.where(seen, np.where(known, rows, np.inf).min(axis=0, initial=np.inf), 0.0)
    high = np.where(seen, np.where(known, rows, -np.inf).max(axis=0, initial=-np.inf), 0.0)
    return Measured(names, count, mean, square, low, high)


def agreed(parts: Iterable[Measured]) -> tuple[Array, Array]:
    """Return centre and unit of each feature over all histories, for `Monitor.fit`.

    The centre is the mean, which sums give. The unit is what a monitor takes: the deviation, but at
    least a share of the range, and 0 for what never moved.
    """
    parts = list(parts)
    if not parts:
        raise ValueError("a scale needs the sums of at least one device")
    names = parts[0].names
    for part in parts:
        if part.names != names:
            raise ValueError(f"devices have the features {names!r:.60} and {part.names!r:.60}")
    count = sum(part.count for part in parts)
    seen, least = count > 0, np.maximum(count, 1)
    centre = sum(part.count * part.mean for part in parts) / least
    square = sum(part.square + part.count * (part.mean - centre) ** 2 for part in parts)
    low = np.min([np.where(part.count > 0, part.low, np.inf) for part in parts], axis=0)
    high = np.max([np.where(part.count > 0, part.high, -np.inf) for part in parts], axis=0)
    span = np.where(seen, high - low, 0.0)
    unit = np.maximum(np.sqrt(square / least), span / RANGE)
    still = unit <= STILL * np.abs(centre) + SMALLEST_UNIT
    return np.where(seen, centre, np.nan), np.where(still | ~seen, 0.0, unit)


@dataclass(frozen=True, eq=False)
class MonitorSums(Message):
    """What a monitor has learned, as sums over its rows: its modes that have the agreed scale."""

    names: Names
    width: Annotated[int, Within(1, LARGEST_WINDOW)]
    ordered: bool
    seed: Annotated[int, Within(0)]
    modes: tuple[ModeState, ...]

    def check(self) -> None:
        """Refuse, with `ValueError`, what no monitor could have sent."""
        _check_names(self.names)
        n = len(self.names)
        fields.check(self)
        check_size(n, self.width)
        need(1 <= len(self.modes) <= MODES, f"there must be 1 to {MODES} modes")
        for mode in self.modes:
            mode.check(n, self.width)


def sums(monitor: Monitor) -> MonitorSums:
    """Return what a monitor has learned in the scale that it was fitted with."""
    state = _watching(monitor)
    first = state.modes[0]
    modes = tuple(mode for mode in state.modes if _same_unit(mode, first))
    return MonitorSums(monitor.names, state.width, state.ordered, monitor.seed, modes)


def join(
    monitor: Monitor, others: Iterable[MonitorSums], weights: Sequence[float] | None = None
) -> Monitor:
    """Return the monitor that knows what `monitor` and all `others` know.

    Its threshold stays that of `monitor`, which is not modified: keep it apart, and send only its
    own sums, so that no row comes back and counts twice. `weights` multiplies the sums of each of
    the others. At most four modes are kept, those that learned most.
    """
    own, state = sums(monitor), _watching(monitor)
    shape = (own.names, own.width, own.ordered, own.seed)
    modes, anchors = list(state.modes), list(state.anchors)
    for other, w in weighed(others, weights):
        if not 0 < w < np.inf:
            raise ValueError(f"a weight must be finite and above 0, got {w!r}")
        if (other.names, other.width, other.ordered, other.seed) != shape:
            raise ValueError(
                "only sums of equal features, window and seed can be joined, of streams that all "
                "have an order or all have none"
            )
        for theirs in other.modes:
            if not _same_unit(theirs, state.modes[0]):
                raise ValueError("the scales differ: fit all monitors with the agreed one")
            at = _like(modes, theirs, own)
            if at is not None:
                modes[at] = _added(modes[at], theirs, w, own)
            elif len(modes) < MODES:
                modes.append(_weighed(theirs, w))
                anchors.append(None)
    learned = monitor.learned()
    assert learned is not None
    watching = replace(state, modes=tuple(modes), anchors=tuple(anchors))
    joint = replace(learned, watching=watching, rhythm=None, late=None)
    return Monitor.resumed(monitor.settings(), joint)


# -- modes ------------------------------------------------------------------------------------


def _like(modes: Sequence[ModeState], theirs: ModeState, own: MonitorSums) -> int | None:
    """Return which of the modes predicts the rows of another one best, if any does well."""
    usual = np.maximum(_squares(theirs, theirs, own)[1], PRIOR_SQUARE)
    found = [
        float((_squares(mode, theirs, own)[1] / usual).mean())
        if _same_unit(mode, theirs)
        else np.inf
        for mode in modes
    ]
    best = int(np.argmin(found))
    return best if found[best] <= SAME else None


def _squares(mode: ModeState, rows: ModeState, own: MonitorSums) -> Array:
    """Return the mean squared errors of one mode on the rows of another, (2, n), from its sums."""
    model, data = _resumed(mode, own), _resumed(rows, own)
    n = len(own.names)
    total = data.instances[1].gram[0]
    weight, square = total[-1, -1], np.diag(total)[:n]
    found = np.empty((2, n))
    for k, (one, other) in enumerate(zip(model.instances, data.instances, strict=True)):
        for group in range(len(other.gram)):
            for j in range(group, n, len(other.gram)):
                beta = one.beta[:, j]
                left = square[j] - 2 * beta @ _moment(other, j) + beta @ other.gram[group] @ beta
                found[k, j] = max(left, 0.0) / max(weight, 1.0)
    return found


def _moment(instance: Instance, j: int) -> Array:
    return instance.gram[0][:, j] if instance.kind == "linear" else instance.moment[:, j]


def _added(mode: ModeState, theirs: ModeState, w: float, own: MonitorSums) -> ModeState:
    """Return a mode that has learned the rows of both."""
    total = mode.weight + w * theirs.weight
    a = mode.weight / total if total > 0 else 0.5
    joint = replace(
        mode,
        gram=mode.gram + w * theirs.gram,
        linear_gram=mode.linear_gram + w * theirs.linear_gram,
        moment=mode.moment + w * theirs.moment,
        usual=a * mode.usual + (1 - a) * theirs.usual,
        largest=np.maximum(mode.largest, theirs.largest),
        band=np.maximum(mode.band, theirs.band),
        leaning=np.maximum(mode.leaning, theirs.leaning),
        levels=np.maximum(mode.levels, theirs.levels),
        weight=min(total, float(MEMORY)),
        count=mode.count + theirs.count,
    )
    # One model of both may fit each less well than its own did.
    return replace(joint, usual=np.maximum(joint.usual, _squares(joint, joint, own)))


def _weighed(mode: ModeState, w: float) -> ModeState:
    return replace(
        mode,
        gram=w * mode.gram,
        linear_gram=w * mode.linear_gram,
        moment=w * mode.moment,
        weight=min(w * mode.weight, float(MEMORY)),
    )


def _resumed(mode: ModeState, own: MonitorSums) -> Mode:
    return Mode(len(own.names), own.width, own.ordered, own.seed).resume(mode)


def _same_unit(one: ModeState, other: ModeState) -> bool:
    centre = np.array_equal(one.centre, other.centre, equal_nan=True)
    return centre and np.array_equal(one.scale, other.scale)


def _watching(monitor: Monitor) -> WatchingState:
    state = monitor.learned()
    if state is None or state.watching is None:
        raise ValueError("a monitor that has not started has no sums")
    if len(state.names) * state.watching.width > WIDEST:
        raise ValueError(f"sums are for monitors of at most {WIDEST} inputs, features times window")
    return state.watching


# -- messages ---------------------------------------------------------------------------------


def _check_names(names: Names) -> None:
    known = all(type(name) in (str, int) for name in names)
    need(known and 1 <= len(names) == len(set(names)), "names must be there, each once")
