"""What two chips learned becomes one model, which can be sent to either, or to a third.

Chips that began with one model have the same unit of every feature and the same random layer, so
the sums of their modes can be added. A mode that only one of them knows is taken as it is.
"""

from __future__ import annotations

import numpy as np

from onlad.instance import CONSTANT, RIDGE
from onlad.limit import RECENT
from onlad.mcu.convert import entries, factors, to_words
from onlad.mcu.definition import halved
from onlad.mcu.layout import MODE, WORD, Sizes
from onlad.mcu.portable import PortableMonitor, to_bytes
from onlad.mode import MEMORY
from onlad.reference import Array

ALIKE = ("levels", "leaning")  # measured at the start of a mode, and never after


def merge(a: PortableMonitor, b: PortableMonitor) -> PortableMonitor:
    """Return the monitor that has learned what both have, and goes on from the rows of `a`.

    Both must have begun with one model: `onlad export` of a fitted monitor, or a dump. What they
    learned before they parted then counts twice. A candidate of `b` is left out.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.cumsum(rng.normal(size=(900, 3)), axis=0)
    >>> one, other = PortableMonitor(), PortableMonitor()
    >>> for chip in (one, other):
    ...     verdicts = chip.observe_many(X[:600])
    >>> verdicts = one.observe_many(X[600:700]), other.observe_many(X[700:])
    >>> merge(one, other).n_seen
    1500
    """
    sizes, one, other = _checked(a, b)
    known = [i for i in range(sizes.modes) if one["places"][i, 0] == MODE]
    for j in np.flatnonzero(other["places"][:, 0] == MODE):
        partners = [i for i in known if _is_same(one["modes"][i], other["modes"][j])]
        if partners:
            i = partners[0]
            _add(one["modes"][i], other["modes"][j], (one["places"][i], other["places"][j]), a)
            continue
        free = np.flatnonzero(one["places"][:, 0] == 0)
        if len(free) < 2:  # one is for the next candidate
            raise ValueError(
                "the chips know more modes than one has places for. Only chips that began with "
                "one model can be merged, and it needs --modes enough"
            )
        one["modes"][free[0]] = other["modes"][j]
        one["places"][free[0]] = other["places"][j]
    histogram = one["histogram"].astype("int64") + other["histogram"]
    while histogram[:, 0].sum() >= RECENT:
        histogram = halved(histogram)
    one["histogram"][:], one["total"] = histogram, int(histogram[:, 0].sum())
    one["factor"] = max(one["factor"], other["factor"])
    one["seen"] += other["seen"]
    merged = PortableMonitor.resumed(a.settings(), names=a.names)
    merged.restore(to_bytes(one, a))
    merged.false_alarms = a.false_alarms  # the limit is settled anew
    return merged


def _checked(a: PortableMonitor, b: PortableMonitor) -> tuple[Sizes, Array, Array]:
    if not (a.describe()["ready"] and b.describe()["ready"]):
        raise ValueError("a monitor that is not ready cannot be merged")
    layers = zip(a.layer(), b.layer(), strict=True)
    kinds = [(m.sizes(), m.arithmetic, m.names, m.counters) for m in (a, b)]
    if not (kinds[0] == kinds[1] and all(np.array_equal(*pair) for pair in layers)):
        raise ValueError(
            "only chips with one random layer can be merged: equal features, window, hidden, "
            f"modes, seed, arithmetic, layer and counters. Got {a!r} and {b!r}"
        )
    return a.sizes(), a.state(), b.state()


def _is_same(one: Array, other: Array) -> bool:
    """Return whether two modes are one, learned on two chips: equal units, equal levels."""
    moves = (one["scale"] > 0) & (other["scale"] > 0)
    return all(np.array_equal(one[name], other[name]) for name in ALIKE) and all(
        np.array_equal(one[name][moves], other[name][moves]) for name in ("centre", "scale")
    )


def _add(mine: Array, its: Array, places: tuple[Array, Array], a: PortableMonitor) -> None:
    """Add a mode of the other chip to the one that it shares with `a`."""
    sizes = a.sizes()
    ridge = np.append(CONSTANT, np.full(sizes.inputs - 1, RIDGE))
    K = [sums(_floats(mode, "linear", a)) for mode in (mine, its)]
    beta = [_floats(mode, "beta", a) for mode in (mine, its)]
    linear = factors(K[0] + K[1] - np.diag(ridge))  # the ridge of both is kept once
    tanh = [_floats(mode, "tanh", a) for mode in (mine, its)]
    for group in range(sizes.groups):
        own = slice(group, None, sizes.groups)
        G = [sums(part[group]) for part in tanh]
        moment = sum(g @ values[own].T for g, values in zip(G, beta, strict=True))
        total = G[0] + G[1] - RIDGE * np.eye(sizes.units)
        mine["tanh"][group] = factors(total)
        mine["beta"][own] = np.linalg.solve(total, moment).T
    mine["linear"][:] = linear
    weights = [float(place[2]) for place in places]
    mine["usual"][:] = np.average([mine["usual"], its["usual"]], axis=0, weights=weights)
    mine["largest"][:] = np.maximum(mine["largest"], its["largest"])
    asleep = ~(mine["scale"] > 0)
    for name in ("centre", "scale"):
        mine[name][asleep] = its[name][asleep]
    places[0][1] += places[1][1]
    places[0][2] = min(sum(weights), MEMORY)
    if a.is_fixed:
        to_words(mine, sizes)


def sums(packed: Array) -> Array:
    """Return K whose inverse has these factors: what `factors` takes."""
    size = int((np.sqrt(8 * len(packed) + 1) - 1) / 2)
    columns, rows = np.tril_indices(size)
    U = np.zeros((size, size))
    U[rows, columns] = packed
    D = np.diag(U).copy()
    np.fill_diagonal(U, 1.0)
    inverse = np.linalg.inv(U)
    return np.asarray(inverse.T @ (inverse / D[:, None]))


def _floats(mode: Array, name: str, monitor: PortableMonitor) -> Array:
    """Return an array of a mode in float64, whatever its arithmetic is."""
    with np.errstate(invalid="ignore"):  # a word may look like any float
        values = mode[name].astype("float64")
    if monitor.is_fixed:
        entry = entries(name, monitor.sizes())
        values[..., entry] = mode[name].view("<i4")[..., entry] / WORD
    return values
