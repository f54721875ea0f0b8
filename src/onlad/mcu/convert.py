"""A `Monitor` becomes a `PortableMonitor`: its modes, its limit and the rows that wait."""

from __future__ import annotations

import numpy as np

from onlad.anchor import MEASURED
from onlad.errors import OnladError
from onlad.limit import LASTING, RECENT, TOLD, doubt
from onlad.mcu.definition import ChipLimit, bin_of, gate, order
from onlad.mcu.layout import ALONE, JUDGED, MODE, OPEN, SCORED, UNUSUAL, WORD, Sizes
from onlad.mcu.portable import Arithmetic, PortableMonitor, to_bytes
from onlad.mode import Mode
from onlad.monitor import Monitor
from onlad.reference import Array
from onlad.watching import TICK, Watching


def from_monitor(
    monitor: Monitor, modes: int = 3, arithmetic: Arithmetic = "float"
) -> PortableMonitor:
    """Return a monitor for a chip that goes on from where `monitor` is, in float32.

    Sums become factors, so no sample is needed. What it lacks: a candidate that is not confirmed,
    and the anchors of all modes but the first.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.cumsum(rng.normal(size=(2000, 3)), axis=0)
    >>> monitor = Monitor().fit(X)
    >>> chip = from_monitor(monitor)
    >>> bool(abs(chip.observe(X[-1]).score - monitor.observe(X[-1]).score) < 0.01)
    True
    """
    if monitor.timed or monitor.widened:
        raise OnladError(
            "the C monitor has no patterns of time, and no features that come later. Fit a new "
            "monitor without times: onlad fit --ignore time"
        )
    learned = monitor.learned()
    if learned is None or learned.watching is None:
        raise OnladError("the monitor has not started: show it more samples, or export a fresh one")
    watching = Watching.resumed(learned.watching, monitor.false_alarms, monitor.seed)
    if not watching.ordered:
        raise OnladError(
            "the monitor was started on samples without order; a chip watches a stream"
        )
    if watching.modes[0].instances[1].kind != "linear":
        raise OnladError("the monitor has too many features for a chip: give it a smaller window")
    tanh = watching.modes[0].instances[0]
    chip = PortableMonitor(
        hidden=len(tanh.b),
        window=watching.width,
        modes=max(modes, len(watching.modes) + 1),
        false_alarms=monitor.false_alarms,
        seed=monitor.seed,
        arithmetic=arithmetic,
        counters=monitor.describe()["counters"],
    )
    chip.names = monitor.names
    sizes = chip.sizes()
    state = sizes.state()
    for i, mode in enumerate(watching.modes):
        _mode(state, i, mode, sizes)
        state["places"][i, 3] = 0 if i < watching.first_modes else chip.warmup
        if chip.is_fixed:
            to_words(state["modes"][i], sizes)
    _limit(state, watching)
    _rows(state, watching, sizes)
    _anchor(state, watching, sizes)
    if chip.is_fixed:
        beta = state["anchor_beta"]
        beta.view("<i4")[:] = _words(beta)
    state["seen"], state["ready"], state["warmup"] = monitor.n_seen, 1, chip.warmup
    state["rate"] = monitor.false_alarms
    return chip.restore(to_bytes(state, chip))


def to_words(mode: Array, sizes: Sizes) -> None:
    """Write entries of U, which are not on its diagonal, and beta as words of fixed point."""
    for name in ("linear", "tanh", "beta"):
        entry = entries(name, sizes)
        mode[name].view("<i4")[..., entry] = _words(mode[name][..., entry])


def entries(name: str, sizes: Sizes) -> Array:
    """Return which numbers of an array of a mode are words in fixed point: all but D."""
    if name == "beta":
        return np.ones(sizes.units, bool)
    rows, columns = np.tril_indices(sizes.inputs if name == "linear" else sizes.units)
    return np.asarray(rows != columns)


def _words(values: Array) -> Array:
    words = np.rint(WORD * values.astype("float64"))
    return np.asarray(np.clip(words, -(2.0**31), 2.0**31 - 1).astype("<i4"))


def factors(K: Array) -> Array:
    """Return U and D with the inverse of `K` = U D U', packed by columns, D on the diagonal.

    Examples
    --------
    >>> K = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> d0, u, d1 = factors(K)
    >>> U, D = np.array([[1, u], [0, 1]]), np.diag([d0, d1])
    >>> np.allclose(U @ D @ U.T, np.linalg.inv(K))
    True
    """
    # K = L L' gives its inverse as L^-T L^-1, and L^-T is upper.
    upper = np.linalg.inv(np.linalg.cholesky(K)).T
    diagonal = np.diag(upper)
    packed = upper / diagonal
    np.fill_diagonal(packed, diagonal**2)
    columns, rows = np.tril_indices(len(K))
    return np.asarray(packed[rows, columns])


def _mode(state: Array, i: int, mode: Mode, sizes: Sizes) -> None:
    tanh, linear = mode.instances
    into, inputs = state["modes"][i], order(sizes)
    for name in ("centre", "scale", "usual", "largest", "leaning", "levels"):
        into[name] = getattr(mode, name)
    into["linear"] = factors((linear.gram[0] + linear._ridge)[np.ix_(inputs, inputs)])
    into["tanh"] = [factors(K) for K in tanh.gram + tanh._ridge]
    into["beta"] = tanh.beta.T
    state["places"][i] = MODE, mode.count, int(mode.weight), 0


def _limit(state: Array, watching: Watching) -> None:
    limit = watching.limit
    since, rows, peak, alarms = limit.episode
    recent = ChipLimit(limit.rate)
    for root in np.concatenate((limit.recent, limit.fresh))[1 - RECENT :]:
        recent.count(float(root) ** 2)
    state["histogram"], state["total"] = recent.rows, recent.rows[:, 0].sum()
    state["before"][: len(recent.before)] = recent.before
    learned = watching.learned_rows
    state["factor"], state["doubt"] = np.exp(limit.factor), doubt(learned)
    state["now"] = watching.threshold * doubt(learned)
    state["gate"] = gate(limit.edge, learned)
    state["last"] = watching.score[TICK + watching.at - 1]
    state["since"], state["episode"] = since + 1, min(rows, LASTING)
    state["alarms"], state["peak"] = min(alarms, TOLD), peak


def _rows(state: Array, watching: Watching, sizes: Sizes) -> None:
    """Fill the ring from its end: the newest row lies at the last place."""
    moving = watching.moving
    for back in range(sizes.ring):
        row, into = TICK + watching.at - 1 - back, sizes.ring - 1 - back
        held = row + sizes.window - 1
        if held < 0:
            break
        state["ring"][into] = watching.held[held]
        if row < 0:
            continue
        present = np.packbits(watching.present[row], bitorder="little")
        state["masks"][into].view("u1")[: len(present)] = present
        judged = row >= TICK or watching.open[row]
        scored = bin_of(float(watching.score[row])) << SCORED
        flags = int(watching.mode[row]) | scored | JUDGED * judged | OPEN * watching.open[row]
        flags |= ALONE * (watching.run[row] < sizes.window - 1)
        state["flags"][into] = flags | (UNUSUAL * watching.refused[row] if judged else 0)
    state["refused"] = int(np.count_nonzero(state["flags"][-TICK - 1 :] & UNUSUAL))
    state["position"], state["current"] = sizes.ring - 1, int(moving.mode[0])
    state["run"] = int(moving.run[0])
    state["ticked"] = min(watching.at, TICK - 1)
    for name in ("age", "patience", "means", "leans"):
        state[name] = getattr(moving, name)
    state["counted"] = watching.counters.counted[0]


def _anchor(state: Array, watching: Watching, sizes: Sizes) -> None:
    anchor = watching.anchors[0]
    if anchor is None:
        return
    learned = anchor.learned()
    state["anchor_beta"] = learned.beta[order(sizes)].T
    state["anchor"] = *learned.unit, *learned.lean
    state["anchored"], state["settling"] = 1, sizes.features
    state["anchor_rows"] = min(anchor.rows, MEASURED)
    state["drifting"] = watching.drifting + 1
