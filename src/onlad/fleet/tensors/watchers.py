"""`Watchers`: monitors of one shape after their start; `onlad.watching` and `judge` define them.

All devices are judged and learn together. Between two ticks a row depends on the one before only by
running means, by the mode, by values that are made up, and by features that move for the first
time. The first two are a loop over rows with all devices side by side. Devices for which one of the
others happens take their rows one by one, side by side as well.

Mode 0 of device i is entry i of `first`. Further modes and candidates are in `more`, quarantines in
`refuge`: few devices have them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from onlad.anchor import SETTLED
from onlad.fleet.tensors.limits import Limits
from onlad.fleet.tensors.modes import Modes, statistics
from onlad.fleet.tensors.pool import FLOAT, Pool, tensor
from onlad.judge import FILLED, KEEP
from onlad.mode import SMOOTHING, STATISTICS, STILL, WINSOR, Mode
from onlad.watching import (
    CANDIDATE,
    EXPIRING,
    FOREIGN,
    LONGEST,
    MODES,
    PATIENCE,
    REFUSED,
    SHELVED,
    SHORTEST,
    SPARED,
    TICK,
    YOUNG,
    WatchingState,
)

AT_ONCE = 2**19  # rows that are worked on together: their hidden units take half a GiB
NARROW = ("score", "threshold", "p_value", "is_anomaly", "learned", "drift", "drifting")
ROOM = CANDIDATE + TICK  # rows of a quarantine


class Details(NamedTuple):
    """What is wide, of some rows. `row` is the number of a row among those given."""

    row: Any  # (k,)
    shares: Any  # (k, n)
    around: Any  # (k, 2 n + 1)


class Said:
    """Verdicts of rows as tensors, (devices, rows); `details` are of alarms alone, or of all."""

    score: Any
    threshold: Any
    p_value: Any
    is_anomaly: Any
    learned: Any
    drift: Any
    drifting: Any
    details: Details

    def __init__(self, devices: int, rows: int, features: int, device: str) -> None:
        kinds = {"is_anomaly": torch.bool, "learned": torch.bool, "drift": torch.bool}
        kinds["drifting"] = torch.int64
        firsts = {"threshold": torch.inf, "p_value": 1.0, "drifting": -1}
        for name in NARROW:
            kind, start = kinds.get(name, FLOAT), firsts.get(name, 0)
            made = torch.full((devices, rows), start, dtype=kind, device=device)
            setattr(self, name, made)
        wide = torch.empty(0, features, dtype=FLOAT, device=device)
        around = torch.empty(0, 2 * features + 1, dtype=FLOAT, device=device)
        none = torch.empty(0, dtype=torch.int64, device=device)
        self.details = Details(none, wide, around)
        self._parts: list[Details] = []

    def add(self, details: Details) -> None:
        """Keep the details of more rows."""
        self._parts.append(details)

    def close(self) -> Said:
        """Put all details together, in the order of their rows."""
        if self._parts:
            row, shares, around = (torch.cat(part) for part in zip(*self._parts, strict=True))
            order = row.argsort()
            self.details = Details(row[order], shares[order], around[order])
            self._parts = []
        return self


class Rows(NamedTuple):
    """Rows to be judged, (devices, rows, n), and which of them are there (None: all)."""

    devices: Any  # slice or indices
    X: Any
    there: Any
    place: Any  # of the first among those of two ticks, or of each
    paused: Any  # (devices,)
    number: Any  # (devices, rows) among those given

    def part(self, some: Any, times: slice = slice(None)) -> Rows:
        """Return some devices, by slice or indices, and some of their rows."""
        place = self.place
        if isinstance(place, int):
            place += times.start or 0
        else:
            place = place[some][:, times]
        return Rows(
            chosen(self.devices, some),
            self.X[some][:, times],
            None if self.there is None else self.there[some][:, times],
            place,
            self.paused[some],
            self.number[some][:, times],
        )


class Found(NamedTuple):
    """What the judge found, (devices, rows)."""

    score: Any
    mode: Any
    means: Any  # (devices, 4) after the last row
    leans: Any  # (devices, 2, n)
    current: Any  # (devices,)
    squares: Any  # (devices, rows, n)
    made: Any  # (devices, rows, n) predictions, in units of the mode


def chosen(devices: Any, some: Any) -> Any:
    """Return some of the devices; both are slices or indices."""
    if not isinstance(devices, slice):
        return devices[some]
    if isinstance(some, slice):
        stop = devices.stop if some.stop is None else min(devices.start + some.stop, devices.stop)
        return slice(devices.start + (some.start or 0), stop)
    return some + devices.start


def count(devices: Any) -> int:
    """Return how many devices a slice, or indices, name."""
    return devices.stop - devices.start if isinstance(devices, slice) else len(devices)


def indices(devices: Any, device: str) -> Any:
    """Return a slice as indices."""
    if isinstance(devices, slice):
        return torch.arange(devices.start, devices.stop, device=device)
    return devices


class Refuge(Pool):
    """Quarantines: rings of raw windows."""

    windows: Any
    start: Any
    size: Any

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs

    def fields(self) -> dict[str, tuple[tuple[int, ...], Any, float]]:
        """Return shape, type and first value of each tensor, by its name."""
        whole = torch.int64
        return {
            "windows": ((ROOM, self.inputs), FLOAT, 0.0),
            "start": ((), whole, 0),
            "size": ((), whole, 0),
        }

    def rows(self, at: int) -> Any:
        """Return one quarantine, the oldest row first; of -1, none."""
        if at < 0:
            return np.empty((0, self.inputs))
        start, size = int(self.start[at]), int(self.size[at])
        order = (start + torch.arange(size, device=self.device)) % ROOM
        return self.windows[at][order].cpu().numpy()


class Watchers(Pool):
    """Started monitors with one number of features, window and seed."""

    kept: Any  # values held of the rows of two ticks, with those before, and one that is not read
    present: Any
    score: Any
    mode: Any
    refused: Any
    open: Any
    held: Any
    age: Any
    patience: Any
    means: Any
    leans: Any
    current: Any
    at: Any
    begun: Any
    drifting: Any
    explained: Any
    foreign: Any
    slots: Any  # of the modes after the first, in `more`
    candidate: Any  # in `more`, or -1
    quarantine: Any  # in `refuge`, or -1
    now: Any
    gate: Any

    def __init__(self, features: int, width: int, ordered: bool, seed: int, device: str) -> None:
        self.features, self.width, self.ordered, self.seed = features, width, ordered, seed
        self.make(0, device)
        self.first = Modes(features, width, seed, 0, device)
        self.more = Modes(features, width, seed, 0, device)
        self.limits = Limits()
        self.limits.make(0, device)
        self.refuge = Refuge(features * width)
        self.refuge.make(0, device)
        self._free_modes: list[int] = []
        self._free_refuge: list[int] = []

    def fields(self) -> dict[str, tuple[tuple[int, ...], Any, float]]:
        """Return shape, type and first value of each tensor, by its name."""
        n, rows = self.features, 2 * TICK + 1
        whole, nan = torch.int64, torch.nan
        return {
            "kept": ((self.width - 1 + rows, n), FLOAT, nan),
            "present": ((rows, n), torch.bool, 0),
            "score": ((rows,), FLOAT, 0.0),
            "mode": ((rows,), torch.int8, 0),
            "refused": ((rows,), torch.bool, 0),
            "open": ((rows,), torch.bool, 0),
            "held": ((n,), FLOAT, nan),
            "age": ((n,), FLOAT, 0.0),
            "patience": ((n,), FLOAT, 0.0),
            "means": ((STATISTICS,), FLOAT, 0.0),
            "leans": ((2, n), FLOAT, 0.0),
            "current": ((), whole, 0),
            "at": ((), whole, 0),
            "begun": ((), whole, 0),
            "drifting": ((), whole, -1),
            "explained": ((), whole, 0),
            "foreign": ((), whole, 0),
            "slots": ((MODES - 1,), whole, -1),
            "candidate": ((), whole, -1),
            "quarantine": ((), whole, -1),
            "now": ((), FLOAT, torch.inf),
            "gate": ((), FLOAT, torch.inf),
        }

    def __len__(self) -> int:
        return len(self.at)

    def grow(self, count: int) -> None:
        """Add devices at the end; each needs a `put`."""
        super().grow(count)
        self.first.grow(count)
        self.limits.grow(count)

    def nbytes(self) -> int:
        """Return the bytes of all tensors."""
        parts = (self.first, self.more, self.limits, self.refuge)
        return super().nbytes() + sum(part.nbytes() for part in parts)

    # -- rows ---------------------------------------------------------------------------------

    def watch(
        self, devices: Any, X: Any, counts: Any = None, paused: Any = None, *, details: str
    ) -> Said:
        """Judge rows of devices, (devices, rows, n), and move on at each tick.

        `devices` is a slice or indices that differ from each other. Of device i the first
        ``counts[i]`` rows are there. Details are given of ``"alarms"`` or of ``"all"`` rows.
        """
        b, T, n = X.shape
        said = Said(b, T, n, self.device)
        if b == 0 or T == 0:
            return said
        if paused is None:
            paused = torch.zeros(b, dtype=torch.bool, device=self.device)
        number = torch.arange(b * T, device=self.device).view(b, T)
        at = self.at[devices]
        low, high = torch.stack(at.aminmax()).tolist()
        if counts is None and low == high:
            done = 0
            while done < T:
                part = slice(done, min(T, done + TICK - low))
                rows = Rows(devices, X[:, part], None, TICK + low, paused, number[:, part])
                self._rows(rows, said, part, details)
                low += part.stop - done
                self.at[devices] = low
                if low == TICK:
                    said.drift[:, part.stop - 1] = self.tick(devices)
                    low = 0
                done = part.stop
            return said.close()
        if counts is None:
            counts = torch.full((b,), T, device=self.device)
        return self._uneven(devices, X, counts, paused, number, said, details)

    def _uneven(
        self,
        devices: Any,
        X: Any,
        counts: Any,
        paused: Any,
        number: Any,
        said: Said,
        details: str,
    ) -> Said:
        """Judge rows of devices that are at different places of their ticks."""
        devices = indices(devices, self.device)
        done = torch.zeros_like(counts)
        while True:
            some = (done < counts).nonzero()[:, 0]
            if len(some) == 0:
                return said.close()
            at, left = self.at[devices[some]], (counts - done)[some]
            taken = torch.minimum(left, TICK - at)
            most = int(taken.max())
            order = torch.arange(most, device=self.device)
            there = order < taken[:, None]
            times = (done[some][:, None] + order).clamp(max=X.shape[1] - 1)
            place = torch.where(there, TICK + at[:, None] + order, 2 * TICK)
            whole = bool((taken == most).all())
            rows = Rows(
                devices[some],
                X[some[:, None], times],
                None if whole else there,
                place,
                paused[some],
                number[some[:, None], times],
            )
            # Several rows that are not there may have the same time: those that are come from
            # another tensor.
            own = Said(len(some), most, X.shape[2], self.device)
            self._rows(rows, own, slice(0, most), details)
            for part in own._parts:
                said.add(part)
            who, when = there.nonzero(as_tuple=True)
            for name in NARROW:
                getattr(said, name)[some[who], times[who, when]] = getattr(own, name)[who, when]
            self.at[devices[some]] = at + taken
            done[some] += taken
            ends = (at + taken == TICK).nonzero()[:, 0]
            if len(ends):
                drift = self.tick(devices[some][ends])
                said.drift[some[ends], done[some][ends] - 1] = drift

    def _rows(self, rows: Rows, said: Said, part: slice, details: str) -> None:
        """Judge rows of one tick; fill in the verdicts of a part of the columns."""
        T = rows.X.shape[1]
        careful = self._careful(rows)
        slow = careful.nonzero()[:, 0]
        if len(slow) == 0:
            self._in_chunks(rows, slice(0, len(careful)), said, part, details)
            return
        fast = (~careful).nonzero()[:, 0]
        if len(fast):
            self._in_chunks(rows, fast, said, part, details)
        for t in range(T):
            which = slow
            if rows.there is not None:
                which = slow[rows.there[slow, t]]
            if len(which):
                at = part.start + t
                one = rows.part(which, slice(t, t + 1))._replace(there=None)
                self._judge(one, said, which, slice(at, at + 1), details, careful=True)

    def _in_chunks(self, rows: Rows, which: Any, said: Said, part: slice, details: str) -> None:
        some = max(1, AT_ONCE // rows.X.shape[1])
        for first in range(0, count(which), some):
            own = chosen(which, slice(first, first + some))
            self._judge(rows.part(own), said, own, part, details, careful=False)

    def _careful(self, rows: Rows) -> Any:
        """Return which devices make up a value, or have a feature that moves for the first time."""
        devices, X = rows.devices, rows.X
        careful = torch.zeros(len(X), dtype=torch.bool, device=self.device)
        if bool(X.isnan().any()):
            _, age = self._hold(devices, X)
            missing = X.isnan()
            if rows.there is not None:
                missing &= rows.there[..., None]
            careful |= ((age > self.patience[devices][:, None]) & missing).flatten(1).any(1)
        for pool, at, own in self._modes(devices):
            asleep = (~(pool.scale[at] > 0)).any(1).nonzero()[:, 0]
            if len(asleep) == 0:
                continue
            which = asleep if own is None else own[asleep]
            slots = chosen(at, asleep)
            centre, still = pool.centre[slots][:, None], ~(pool.scale[slots] > 0)[:, None]
            x = X[which]
            moved = (x - centre).abs() > STILL * centre.abs() + 1e-30
            moved = (moved | centre.isnan()) & ~x.isnan() & still
            careful[which] |= moved.flatten(1).any(1)
        return careful

    def _modes(self, devices: Any) -> list[tuple[Modes, Any, Any]]:
        """Return for each rank of modes: the pool, the places there, and of which of `devices`."""
        found: list[tuple[Modes, Any, Any]] = [(self.first, devices, None)]
        if len(self.more.count) == len(self._free_modes):
            return found
        slots = self.slots[devices]
        for rank in range(MODES - 1):
            own = (slots[:, rank] >= 0).nonzero()[:, 0]
            if len(own):
                found.append((self.more, slots[own, rank], own))
        return found

    def _hold(self, devices: Any, X: Any) -> tuple[Any, Any]:
        """Return rows with the last value where one is missing, and rows since it came."""
        T = X.shape[1]
        order = torch.arange(T, device=self.device)[None, :, None]
        last = torch.where(X.isnan(), -1, order).cummax(1).values
        known = X.gather(1, last.clamp(min=0))
        seen = last >= 0
        known = torch.where(seen, known, self.held[devices][:, None])
        since = self.age[devices][:, None] + order + 1
        return known, torch.where(seen, (order - last).to(FLOAT), since)

    def _judge(
        self, rows: Rows, said: Said, which: Any, part: slice, details: str, *, careful: bool
    ) -> None:
        """Judge rows of some devices; their verdicts are the rows `which` of those said."""
        devices, X, place = rows.devices, rows.X, rows.place
        T, before = X.shape[1], self.width - 1
        if careful:
            for pool, at, own in self._modes(devices):
                pool.wake(at, X[:, 0] if own is None else X[own, 0])
        known, age = self._hold(devices, X)
        present = ~X.isnan()
        if rows.there is not None:
            present &= rows.there[..., None]
        past = self._past(devices, place)
        found = self._best(devices, torch.cat((past, known), 1), present)
        score, mode = found.score, found.mode
        if careful:
            known = self._made_up(devices, known, age, present, found)
        now, gate = self.now[devices], self.gate[devices]
        refused = score > gate[:, None]
        is_open = (~rows.paused)[:, None].expand_as(refused)
        self._write("kept", devices, place, known, before)
        columns = ("present", present), ("score", score), ("mode", mode.to(torch.int8))
        for name, values in (*columns, ("refused", refused), ("open", is_open)):
            self._write(name, devices, place, values)
        if rows.there is None:
            self.held[devices], self.age[devices] = known[:, -1], age[:, -1]
        else:
            last = rows.there.sum(1) - 1
            each = torch.arange(len(X), device=self.device)
            self.held[devices], self.age[devices] = known[each, last], age[each, last]
        self.means[devices], self.leans[devices] = found.means, found.leans
        self.current[devices] = found.current
        alarm = score > now[:, None]
        said.score[which, part] = score
        said.threshold[which, part] = now[:, None].expand(-1, T)
        said.p_value[which, part] = self.limits.p_values(devices, score)
        said.is_anomaly[which, part] = alarm
        said.learned[which, part] = ~refused & is_open
        said.drifting[which, part] = self.drifting[devices][:, None].expand(-1, T)
        told = alarm if details == "alarms" else torch.ones_like(alarm)
        if rows.there is not None:
            told = told & rows.there
        who, when = told.nonzero(as_tuple=True)
        if len(who):
            said.add(self._details(rows, found, who, when, alarm))

    def _past(self, devices: Any, place: Any) -> Any:
        """Return the rows before those that go to a place, the oldest first."""
        before = self.width - 1
        if isinstance(place, int):
            return self.kept[devices, place : place + before]
        order = torch.arange(before, device=self.device)
        rows = indices(devices, self.device)
        return self.kept[rows[:, None], place[:, :1] + order]

    def _write(self, name: str, devices: Any, place: Any, values: Any, before: int = 0) -> None:
        column = getattr(self, name)
        if isinstance(place, int):
            column[devices, place + before : place + before + values.shape[1]] = values
        else:
            column[indices(devices, self.device)[:, None], place + before] = values

    def _best(self, devices: Any, rows: Any, present: Any) -> Found:
        """Return what each row scores, in the mode in which it is least unusual."""
        pool, before = self.first, self.width - 1
        Z = pool.scaled(devices, rows)
        E = pool.errors(devices, Z, *pool.hidden(Z))
        made = Z[:, before:] - E[:, 1]
        standard = pool.standardised(devices, E, present)
        some = present.any(2)
        found = self._alone(devices, E, standard, made, present, some)
        ranks = self._modes(devices)[1:]
        if not ranks:
            return found
        several = ranks[0][2]  # a device has a second mode before it has a third
        b, R = len(several), len(ranks) + 1
        all_E = E.new_zeros(b, R, *E.shape[1:])
        all_standard = E.new_zeros(b, R, *standard.shape[1:])
        all_made = E.new_zeros(b, R, *made.shape[1:])
        levels = E.new_ones(b, R, 6, STATISTICS)
        leaning = E.new_ones(b, R, 2, self.features)
        there = torch.zeros(b, R, dtype=torch.bool, device=self.device)
        all_E[:, 0], all_standard[:, 0], all_made[:, 0] = (x[several] for x in (E, standard, made))
        own = chosen(devices, several)
        levels[:, 0], leaning[:, 0], there[:, 0] = pool.levels[own], pool.leaning[own], True
        for rank, (pool, at, which) in enumerate(ranks, 1):
            to = torch.searchsorted(several, which)
            Z = pool.scaled(at, rows[which])
            E = pool.errors(at, Z, *pool.hidden(Z))
            all_made[to, rank] = Z[:, before:] - E[:, 1]
            all_standard[to, rank] = pool.standardised(at, E, present[which])
            all_E[to, rank] = E
            levels[to, rank], leaning[to, rank] = pool.levels[at], pool.leaning[at]
            there[to, rank] = True
        columns = all_E, all_standard, all_made, levels, leaning, there
        among = self._among(own, *columns, present[several], some[several])
        for whole, piece in zip(found, among, strict=True):
            whole[several] = piece
        return found

    def _alone(
        self, devices: Any, E: Any, standard: Any, made: Any, present: Any, some: Any
    ) -> Found:
        """Return what rows score if there is one mode."""
        means, leans = self.means[devices], self.leans[devices]
        levels = self.first.levels[devices][..., None]
        highest = standard
        if self.ordered:
            T = E.shape[2]
            weight = SMOOTHING * some.T.to(FLOAT)[..., None]
            bounded = standard.clamp(max=1.0).permute(2, 0, 1).contiguous()
            slow = torch.empty_like(bounded)
            errors, leaned = E.clamp(-WINSOR, WINSOR), torch.empty_like(E)
            pull = SMOOTHING * present.to(FLOAT)[:, None]
            for t in range(T):
                means = torch.lerp(means, bounded[t], weight[t], out=slow[t])
                leans = torch.lerp(leans, errors[:, :, t], pull[:, :, t])
                leaned[:, :, t] = leans
            slow = (slow.permute(1, 2, 0) - levels[:, 2]) / levels[:, 3]
            squares = leaned.square_().div_(self.first.leaning[devices][:, :, None])
            lean = (statistics(squares, self.features) - levels[:, 4]) / levels[:, 5]
            highest = torch.maximum(torch.maximum(standard, slow), lean)
        score = highest.clamp(min=0.0).mean(1)
        return Found(
            torch.where(some, score, 0.0),
            torch.zeros_like(some, dtype=torch.int64),
            means.clone(),
            leans,
            torch.zeros_like(self.current[devices]),
            E.square().sum(1),
            made,
        )

    def _among(
        self,
        devices: Any,
        E: Any,
        standard: Any,
        made: Any,
        levels: Any,
        leaning: Any,
        there: Any,
        present: Any,
        some: Any,
    ) -> Found:
        """Return what rows score if there are several modes, (devices, modes, ...)."""
        b, R, _, T, n = E.shape
        means, leans, current = (x[devices] for x in (self.means, self.leans, self.current))
        ranks = torch.arange(R, device=self.device)
        scores, modes = E.new_empty(b, T), torch.empty_like(some, dtype=torch.int64)
        each = torch.arange(b, device=self.device)
        for t in range(T):
            own = standard[..., t]
            mean = means[:, None] + SMOOTHING * (own.clamp(max=1.0) - means[:, None])
            is_own = (ranks == current[:, None])[..., None, None]
            lean = torch.where(is_own, leans[:, None], 0.0)
            step = E[:, :, :, t].clamp(-WINSOR, WINSOR) - lean
            lean = lean + SMOOTHING * step * present[:, None, None, t]
            slow = (mean - levels[:, :, 2]) / levels[:, :, 3]
            squares = lean**2 / leaning
            found = torch.cat((squares.sum(3) / n, squares.amax(3)), 2)
            found = (found - levels[:, :, 4]) / levels[:, :, 5]
            score = torch.maximum(torch.maximum(own, slow), found).clamp(min=0.0).mean(2)
            score = torch.where(there, score, torch.inf)
            of_own = score[each, current]
            least = score.amin(1)
            lowest = torch.where(score == least[:, None], ranks, R).amin(1)
            keeps = (of_own <= KEEP) | (of_own <= least) | ~some[:, t]
            current = torch.where(keeps, current, lowest)
            moves = some[:, t]
            means = torch.where(moves[:, None], mean[each, current], means)
            leans = torch.where(moves[:, None, None], lean[each, current], leans)
            scores[:, t] = torch.where(moves, score[each, current], 0.0)
            modes[:, t] = current
        at = each[:, None], modes, slice(None), torch.arange(T, device=self.device)
        squares = E[at].square().sum(2)
        return Found(scores, modes, means, leans, current, squares, made[at[0], modes, at[3]])

    def _units(self, devices: Any, mode: Any) -> tuple[Any, Any, Any]:
        """Return centre, scale and band of one mode for each of the devices."""
        at = indices(devices, self.device)
        names = "centre", "scale", "band"
        found = [getattr(self.first, name)[at] for name in names]
        further = (mode > 0).nonzero()[:, 0]
        if len(further):
            slots = self.slots[at[further], mode[further] - 1]
            for name, part in zip(names, found, strict=True):
                part[further] = getattr(self.more, name)[slots]
        return found[0], found[1], found[2]

    def _made_up(self, devices: Any, known: Any, age: Any, present: Any, found: Found) -> Any:
        """Return values of one row, with those that are missing for too long made up."""
        centre, scale, _ = self._units(devices, found.mode[:, 0])
        old = ~present[:, 0] & (age[:, 0] > self.patience[devices]) & (scale > 0)
        made = centre + found.made[:, 0].clamp(-FILLED, FILLED) * scale
        return torch.where(old, made, known[:, 0])[:, None]

    def _details(self, rows: Rows, found: Found, who: Any, when: Any, alarm: Any) -> Details:
        """Return shares, expected values, bands and unusual rows lately of rows."""
        at = indices(rows.devices, self.device)[who]
        centre, scale, band = self._units(at, found.mode[who, when])
        squares = found.squares[who, when]
        total = squares.sum(1, keepdim=True)
        shares = torch.where(total > 0, squares / total, squares)
        expected = centre + found.made[who, when] * scale
        nothing = rows.X[who, when].isnan().all(1)
        expected = torch.where(nothing[:, None], torch.nan, expected)
        refused = self.refused[at].cumsum(1)
        place = rows.place
        end = place + when if isinstance(place, int) else place[who, when]
        lately = refused.gather(1, torch.stack((end, end - TICK), 1))
        lately = (lately[:, 0] - lately[:, 1]).to(FLOAT)
        lately = torch.where(alarm[who, when], lately, 1.0)
        around = torch.cat((expected, band * scale, lately[:, None]), 1)
        return Details(rows.number[who, when], shares, around)

    # -- ticks --------------------------------------------------------------------------------

    def tick(self, devices: Any) -> Any:
        """Move on after TICK rows; return for which devices a new mode was confirmed."""
        late, both = slice(TICK, 2 * TICK), slice(0, 2 * TICK)
        score, is_open = self.score[devices, late], self.open[devices, late]
        now, gate = self.now[devices][:, None], self.gate[devices][:, None]
        self.limits.follow(devices, score / now, score > gate, is_open)
        if self.ordered:
            lasting = self.limits.lasts(devices).nonzero()[:, 0]
            if len(lasting):
                self._widen(chosen(devices, lasting))
        decided = slice(0, TICK) if self.ordered else late  # no order: no delay
        score, is_open = self.score[devices, decided], self.open[devices, decided]
        refused = self.refused[devices, decided]
        usual, normal, unusual = ~refused & is_open, is_open, is_open & False
        if self.ordered:
            total = torch.nn.functional.pad(self.refused[devices, both].cumsum(1), (1, 0))
            after = total[:, TICK + 1 :] - total[:, :TICK]
            spared = after < SPARED * (TICK + 1)
            usual, normal, unusual = usual & spared, is_open & spared, is_open & ~spared
        self._learn(devices, usual, decided.start)
        self.limits.take(devices, score, normal, self.gate[devices])
        confirmed = torch.zeros(count(devices), dtype=torch.bool, device=self.device)
        if self.ordered:
            self._seclude(devices, unusual, is_open.any(1), confirmed)
            self._look_for_drift(devices)
        self._shift(devices)
        self.inform(devices)
        return confirmed

    def _shift(self, devices: Any) -> None:
        """Make the rows of this tick those of the tick before."""
        keep = self.width - 1 + TICK
        for name in ("kept", "present", "score", "mode", "refused", "open"):
            column = getattr(self, name)
            rows = keep if name == "kept" else TICK
            column[devices, :rows] = column[devices, TICK : TICK + rows].clone()
        self.open[devices, TICK:] = False
        self.at[devices] = 0

    def inform(self, devices: Any) -> None:
        """Settle the limit of the next tick."""
        learned = self.learned_rows(devices)
        now = self.limits.value(devices, learned)
        trust: Any = 1.0
        if self.ordered:
            top = SHELVED * self.score[devices, :TICK].amax(1)
            now = torch.where(self.limits.shelved(devices), torch.maximum(now, top), now)
            trust = 1 + YOUNG / learned.to(FLOAT)
        self.now[devices] = now
        self.gate[devices] = REFUSED * self.limits.base[devices].clamp(min=1.0) * trust

    def learned_rows(self, devices: Any) -> Any:
        """Return how many rows the modes of each device have learned."""
        total = self.first.count[devices].clone()
        for pool, at, own in self._modes(devices)[1:]:
            total[own] += pool.count[at]
        return total

    def _learn(self, devices: Any, usual: Any, start: int) -> None:
        """Let modes learn rows of a tick, which begins at row `start`."""
        mode = self.mode[devices, start : start + TICK]
        for rank, (pool, at, own) in enumerate(self._modes(devices)):
            mine = usual & (mode == rank) if own is None else usual[own] & (mode[own] == rank)
            which = devices if own is None else chosen(devices, own)
            some = max(1, AT_ONCE // TICK)
            for first in range(0, len(mine), some):
                part = slice(first, first + some)
                rows, present = self._tick_rows(chosen(which, part), start)
                pool.learn(chosen(at, part), rows, present, mine[part])

    def _tick_rows(self, devices: Any, start: int) -> tuple[Any, Any]:
        """Return raw rows of a tick, with those before, and which values were there."""
        rows = self.kept[devices, start : start + TICK + self.width - 1]
        return rows, self.present[devices, start : start + TICK]

    def _widen(self, devices: Any) -> None:
        """Let bands follow what is refused for long too."""
        late = slice(TICK, 2 * TICK)
        refused = self.open[devices, late] & self.refused[devices, late]
        mode = self.mode[devices, late]
        for rank, (pool, at, own) in enumerate(self._modes(devices)):
            some = slice(None) if own is None else own
            which = devices if own is None else chosen(devices, own)
            mine = refused[some] & (mode[some] == rank)
            rows, present = self._tick_rows(which, TICK)
            Z = pool.scaled(at, rows)
            E = pool.errors(at, Z, *pool.hidden(Z))
            pool.widen(at, E[:, 1], present & mine[..., None], mine.any(1))

    def _look_for_drift(self, devices: Any) -> None:
        """Let anchors follow the rows of this tick, and settle new ones."""
        late = slice(TICK, 2 * TICK)
        quiet = self.open[devices, late] & (self.score[devices, late] <= self.now[devices][:, None])
        mode = self.mode[devices, late]
        drifting = torch.full((count(devices),), -1, device=self.device)
        for rank, (pool, at, own) in enumerate(self._modes(devices)):
            mine = quiet & (mode == rank) if own is None else quiet[own] & (mode[own] == rank)
            which = devices if own is None else chosen(devices, own)
            some = max(1, AT_ONCE // TICK)
            for first in range(0, len(mine), some):
                part = slice(first, first + some)
                self._follow(pool, chosen(at, part), chosen(which, part), mine[part])
            rows = mine.any(1)
            found = torch.where(rows, pool.anchors.drifting(at), -1)
            before = drifting if own is None else drifting[own]
            drifting[slice(None) if own is None else own] = torch.where(before < 0, found, before)
            due = ~pool.anchors.there[at] & (pool.count[at] >= SETTLED)
            new = due.nonzero()[:, 0]
            if len(new):
                pool.anchor(chosen(at, new))
        self.drifting[devices] = drifting

    def _follow(self, pool: Modes, at: Any, devices: Any, quiet: Any) -> None:
        """Let the anchors of modes follow quiet rows of their devices."""
        before, rows = self.width - 1, quiet.sum(1)
        kept = self.kept[devices]
        means = []
        for lag in range(self.width):
            first = TICK + before - lag
            each = torch.where(quiet[..., None], kept[:, first : first + TICK], 0.0)
            means.append(each.sum(1) / rows[:, None])
        pool.anchors.follow(at, torch.stack(means, 1), rows, pool.projection)

    # -- what is refused ----------------------------------------------------------------------

    def _seclude(self, devices: Any, unusual: Any, decided: Any, confirmed: Any) -> None:
        """Put refused rows into quarantine, or let old ones go; mark devices with a new mode."""
        some = unusual.any(1)
        quarantine, candidate = self.quarantine[devices].clone(), self.candidate[devices].clone()
        leaves = (~some & decided & (quarantine >= 0)).nonzero()[:, 0]
        if len(leaves):
            at = quarantine[leaves]
            gone = self.refuge.size[at].clamp(max=EXPIRING)
            self.refuge.start[at] = (self.refuge.start[at] + gone) % ROOM
            self.refuge.size[at] -= gone
            empty = leaves[self.refuge.size[at] == 0]
            self._release(chosen(devices, empty))
        new = (some & (candidate < 0)).nonzero()[:, 0]
        if len(new):
            self._exclude(chosen(devices, new), unusual[new])
        known = (some & (candidate >= 0)).nonzero()[:, 0]
        if len(known):
            confirmed[known] = self._explain(chosen(devices, known), unusual[known])

    def _release(self, devices: Any) -> None:
        """Give up the quarantines of devices."""
        if len(devices):
            self._free_refuge += self.quarantine[devices].tolist()
            self.quarantine[devices] = -1

    def _exclude(self, devices: Any, unusual: Any) -> None:
        """Put rows into quarantine; make a candidate where there are enough."""
        lack = devices[self.quarantine[devices] < 0]
        if len(lack):
            short = len(lack) - len(self._free_refuge)
            if short > 0:
                size = len(self.refuge.size)
                more = max(short, size // 2)
                self.refuge.grow(more)
                self._free_refuge += range(size, size + more)
            at = torch.tensor([self._free_refuge.pop() for _ in range(len(lack))])
            at = at.to(self.device)
            self.quarantine[lack] = at
            self.refuge.start[at], self.refuge.size[at] = 0, 0
        at = self.quarantine[devices]
        who, when = unusual.nonzero(as_tuple=True)
        size = self.refuge.size[at]
        place = self.refuge.start[at][:, None] + size[:, None] + unusual.cumsum(1) - 1
        rows, _ = self._tick_rows(devices, 0)
        before = self.width - 1
        lags = [rows[who, when + before - lag] for lag in range(self.width)]
        self.refuge.windows[at[who], place[who, when] % ROOM] = torch.cat(lags, 1)
        size = size + unusual.sum(1)
        self.refuge.size[at] = size
        for device in devices[size >= CANDIDATE].tolist():
            self._make_candidate(device)

    def _make_candidate(self, device: int) -> None:
        """Start a mode from the quarantine of one device: rare, so the definition does it."""
        rows = self.refuge.rows(int(self.quarantine[device]))
        mode = Mode(self.features, self.width, True, self.seed)
        mode.start(rows, rows[:, : self.features] == rows[:, : self.features])
        slot = self._slot()
        self.more.put(torch.tensor([slot], device=self.device), mode.learned())
        self.more.anchors.there[slot] = False
        self.candidate[device] = slot
        self.explained[device], self.foreign[device] = 0, 0
        self._release(torch.tensor([device], device=self.device))

    def _slot(self) -> int:
        """Return a free place in `more`."""
        if not self._free_modes:
            size = len(self.more.count)
            more = max(4, size // 2)
            self.more.grow(more)
            self._free_modes += range(size, size + more)
        return self._free_modes.pop()

    def _explain(self, devices: Any, unusual: Any) -> Any:
        """Let candidates learn refused rows that they explain; return which are confirmed."""
        at = self.candidate[devices]
        rows, present = self._tick_rows(devices, 0)
        if bool((~(self.more.scale[at] > 0)).any()):
            own = rows[:, self.width - 1 :]
            for t in range(TICK):
                self.more.wake(at, torch.where(unusual[:, t, None], own[:, t], torch.nan))
        fits = unusual & (self.more.fits(at, rows, present) <= 1)
        self.more.learn(at, rows, present, fits)
        explained = self.explained[devices] + fits.sum(1)
        foreign = self.foreign[devices] + (unusual & ~fits).sum(1)
        self.explained[devices], self.foreign[devices] = explained, foreign
        dropped = foreign > FOREIGN * (explained + CANDIDATE)
        patience = (PATIENCE * self.learned_rows(devices).to(FLOAT)).clamp(SHORTEST, LONGEST)
        confirmed = ~dropped & (explained >= patience)
        if bool(dropped.any()):
            self._free_modes += at[dropped].tolist()
            self.candidate[devices[dropped]] = -1
        for device in devices[confirmed].tolist():
            self._confirm(device)
        return confirmed

    def _confirm(self, device: int) -> None:
        """Let the candidate of one device be a mode; if there are too many, the least one goes."""
        slots = [slot for slot in self.slots[device].tolist() if slot >= 0]
        if len(slots) == MODES - 1:
            counts = [int(self.first.count[device]), *self.more.count[slots].tolist()]
            least = counts.index(min(counts))
            if least == 0:
                self.first.copy(device, self.more, slots[0])
            self._free_modes.append(slots.pop(max(least - 1, 0)))
            mode = self.mode[device]
            moved = torch.where(mode == least, 0, mode - (mode > least).to(mode.dtype))
            self.mode[device] = moved
        slots.append(int(self.candidate[device]))
        self.candidate[device] = -1
        self.slots[device] = torch.tensor(slots + [-1] * (MODES - 1 - len(slots)))
        self.current[device] = self.current[device].clamp(max=len(slots))

    # -- values in and out --------------------------------------------------------------------

    def put(self, devices: Any, state: WatchingState, rate: float) -> None:
        """Let devices go on from a state."""
        at = indices(devices, self.device)
        self.forget(at)
        keep = self.width - 1 + 2 * TICK
        self.kept[devices, :keep] = tensor(state.kept, self.device)
        for name in ("present", "score", "mode", "refused", "open"):
            column = getattr(self, name)
            array = tensor(getattr(state, name), self.device, column.dtype)
            column[devices, : 2 * TICK] = array
        for name in ("held", "age", "patience", "means", "leans"):
            getattr(self, name)[devices] = tensor(getattr(state, name), self.device)
        for name in ("current", "at", "begun", "drifting", "explained", "foreign"):
            getattr(self, name)[devices] = getattr(state, name)
        self.first.put(devices, state.modes[0])
        self.first.anchors.put(devices, state.anchors[0])
        self.limits.put(devices, state.limit, rate)
        further = [*zip(state.modes[1:], state.anchors[1:], strict=True)]
        if state.candidate is not None:
            further.append((state.candidate, None))
        for rank, (mode, anchor) in enumerate(further, 1):
            slots = torch.tensor([self._slot() for _ in range(len(at))], device=self.device)
            self.more.put(slots, mode)
            self.more.anchors.put(slots, anchor)
            if rank < len(state.modes):
                self.slots[at, rank - 1] = slots
            else:
                self.candidate[at] = slots
        if len(state.quarantine):
            size = len(state.quarantine)
            windows = tensor(state.quarantine, self.device)
            self._exclude(at, torch.zeros(len(at), TICK, dtype=torch.bool, device=self.device))
            own = self.quarantine[at]
            self.refuge.windows[own, :size] = windows
            self.refuge.size[own] = size
        self.inform(devices)

    def forget(self, at: Any) -> None:
        """Give up what devices have in the pools that all share."""
        self._release(at[self.quarantine[at] >= 0])
        for slots in (*self.slots[at].T, self.candidate[at]):
            self._free_modes += slots[slots >= 0].tolist()
        self.slots[at], self.candidate[at] = -1, -1

    def learned(self, device: int) -> WatchingState:
        """Return all that was learned of one device."""

        def array(name: str, stop: int | None = None) -> Any:
            return getattr(self, name)[device][:stop].cpu().numpy().copy()

        def number(name: str) -> int:
            return int(getattr(self, name)[device])

        slots = [slot for slot in self.slots[device].tolist() if slot >= 0]
        candidate, quarantine = number("candidate"), number("quarantine")
        kept = array("kept", self.width - 1 + 2 * TICK)
        last = TICK + number("at") + self.width - 1
        return WatchingState(
            width=self.width,
            ordered=self.ordered,
            past=kept[last - self.width + 1 : last][::-1].copy(),
            kept=kept,
            held=array("held"),
            age=array("age"),
            patience=array("patience"),
            means=array("means"),
            leans=array("leans"),
            score=array("score", 2 * TICK),
            present=array("present", 2 * TICK),
            refused=array("refused", 2 * TICK),
            open=array("open", 2 * TICK),
            mode=array("mode", 2 * TICK).astype("int64"),
            current=number("current"),
            drifting=number("drifting"),
            at=number("at"),
            begun=number("begun"),
            explained=number("explained"),
            foreign=number("foreign"),
            modes=(self.first.learned(device), *(self.more.learned(slot) for slot in slots)),
            candidate=None if candidate < 0 else self.more.learned(candidate),
            anchors=(
                self.first.anchors.learned(device),
                *(self.more.anchors.learned(slot) for slot in slots),
            ),
            quarantine=self.refuge.rows(quarantine),
            limit=self.limits.learned(device),
        )
