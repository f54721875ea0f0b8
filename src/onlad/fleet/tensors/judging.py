"""`Judging`: what rows of many devices score; `onlad.judge` defines it.

Between two ticks a row depends on the one before only by running means, by the mode, by values that
are estimated, and by features that move for the first time. The first two are a loop over rows with
all devices side by side. Devices for which one of the others happens take their rows one by one,
side by side as well.
"""

from __future__ import annotations

from typing import Any

import torch

from onlad.fleet.tensors.modes import Modes, statistics
from onlad.fleet.tensors.pool import FLOAT
from onlad.fleet.tensors.rows import Details, Found, Rows, Said, chosen, indices
from onlad.fleet.tensors.store import Store, bits
from onlad.judge import FILLED, KEEP
from onlad.mode import LEANING, SMALLEST_UNIT, SMOOTHING, STATISTICS, STILL, WINSOR
from onlad.severity import HIGHEST, LATELY, POINTS
from onlad.watching import TICK


class Judging(Store):
    """Monitors that judge rows."""

    def _careful(self, rows: Rows) -> Any:
        """Return which devices make up a value, or have a feature that moves for the first time."""
        devices, X = rows.devices, rows.X
        careful = torch.zeros(len(X), dtype=torch.bool, device=self.device)
        if rows.gaps:
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
            moved = (x - centre).abs() > STILL * centre.abs() + SMALLEST_UNIT
            moved = (moved | centre.isnan()) & ~x.isnan() & still
            careful[which] |= moved.flatten(1).any(1)
        return careful

    def _hold(self, devices: Any, X: Any) -> tuple[Any, Any]:
        """Return rows with the last value where one is missing, and rows since it came."""
        T = X.shape[1]
        order = torch.arange(T, device=self.device)[None, :, None]
        last = torch.where(X.isnan(), -1, order).cummax(1).values
        known = X.gather(1, last.clamp(min=0))
        seen = last >= 0
        known = torch.where(seen, known, self.past[devices][:, -1:])
        since = self.age[devices][:, None] + order + 1
        return known, torch.where(seen, (order - last).to(FLOAT), since)

    def _judge(
        self, rows: Rows, said: Said, which: Any, part: slice, details: str, *, careful: bool
    ) -> None:
        """Judge rows of some devices; their verdicts are the rows `which` of those said."""
        devices, X, place = rows.devices, rows.X, rows.place
        T, before = X.shape[1], self.width - 1
        if careful:
            self._wake(devices, X[:, 0])
        known, age = self._hold(devices, X) if rows.gaps else (X, torch.zeros_like(X[:, :1]))
        present = ~X.isnan()
        if rows.there is not None:
            present &= rows.there[..., None]
        past, run = self.past[devices], self._next_run(devices, place)
        window = past[:, len(past[0]) - before :]
        if careful and rows.gaps:
            whole = torch.cat((window, known), 1)
            known = self._made_up(devices, known, age, present, whole, run)
        found = self._best(devices, torch.cat((window, known), 1), present, run)
        score = found.score
        refused = score > self.gate[devices][:, None]
        is_open = (~rows.paused)[:, None].expand_as(refused)
        kept = self._keep(devices, known, self.origin[devices, 1])
        self._write("kept", devices, place, kept, before)
        own = {"score": score, "mode": found.mode, "run": found.run, "refused": refused}
        for name, values in (own | {"open": is_open, "present": bits(present)}).items():
            self._write(name, devices, place, values)
        past = torch.cat((past, known), 1)
        if rows.there is None:
            self.past[devices] = past[:, T:]
            self.write("age", devices, age[:, -1])
        else:
            last = rows.there.sum(1)[:, None]
            each = torch.arange(len(X), device=self.device)[:, None]
            order = torch.arange(self.past.shape[1], device=self.device)
            self.past[devices] = past[each, last + order]
            self.write("age", devices, age[each, (last - 1).clamp(max=age.shape[1] - 1)][:, 0])
        for name in ("means", "leans", "current"):
            self.write(name, devices, getattr(found, name))
        self._say(rows, found, said, (which, part), details)

    def _say(
        self, rows: Rows, found: Found, said: Said, where: tuple[Any, slice], details: str
    ) -> None:
        """Fill in the verdicts of rows."""
        devices, doubt = rows.devices, self.doubt[rows.devices][:, None]
        rate = self.limits.rate[devices][:, None]
        score = found.score / doubt
        threshold = self.limits_of(devices, rows.place, score.shape[1]) / doubt
        alarm, p_value = score > threshold, self.limits.p_values(devices, found.score)
        refused = found.score > self.gate[devices][:, None]
        unusual = self._lately(rows, refused | alarm)
        told = alarm if details == "alarms" else torch.ones_like(alarm)
        if rows.there is not None:
            told = told & rows.there
        who, when = told.nonzero(as_tuple=True)
        if len(who):
            said.add(self._details(rows, found, who, when))
        common = p_value.clamp(min=rate).maximum((unusual - 1) / LATELY)
        rare = rate * threshold / (score * unusual.clamp(min=1).sqrt())
        columns = {
            "score": score,
            "threshold": threshold,
            "p_value": p_value,
            "severity": (-POINTS * torch.where(alarm, rare, common).log10()).clamp(max=HIGHEST),
            "unusual": unusual,
            "is_anomaly": alarm,
            "learned": ~refused & ~rows.paused[:, None],
            "drifting": self.drifting[devices].long()[:, None].expand_as(score),
        }
        columns["severity"] = columns["severity"].round(decimals=1)
        for name, values in columns.items():
            getattr(said, name)[where] = values

    def _wake(self, devices: Any, x: Any) -> None:
        """Give features that move, or come, for the first time their unit."""
        for pool, at, own in self._modes(devices):
            pool.wake(at, x if own is None else x[own])
        self.measure(devices)
        new = self.past[devices][:, -1].isnan() & ~x.isnan()
        self.origin[devices, 1] = torch.where(new, x, self.origin[devices, 1])

    def _write(self, name: str, devices: Any, place: Any, values: Any, before: int = 0) -> None:
        column = getattr(self, name)
        values = values.to(column.dtype)
        if isinstance(place, int):
            column[devices, place + before : place + before + values.shape[1]] = values
        else:
            column[indices(devices, self.device)[:, None], place + before] = values

    def _next_run(self, devices: Any, place: Any) -> Any:
        """Return how many rows the window of the next row may hold, unless its mode changes."""
        if isinstance(place, int):
            run = self.run[devices, place - 1]
        else:
            run = self.run[indices(devices, self.device), place[:, 0] - 1]
        return (run.long() + 1).clamp(max=self.width - 1)

    def _best(self, devices: Any, rows: Any, present: Any, run: Any) -> Found:
        """Return what each row scores, in the mode to which it belongs."""
        pool, before = self.first, self.width - 1
        Z = pool.scaled(devices, rows)
        E = pool.errors(devices, Z, *pool.hidden(Z, None))
        made = Z[:, before:] - E[:, 1]
        ranks = self._modes(devices)[1:]
        several = ranks[0][2] if ranks else None  # a device has a second mode before a third
        short = (run < before).nonzero()[:, 0] if before else ()
        if len(short):
            several = short if several is None else torch.cat((several, short)).unique()
        moved = self.means[devices], self.leans[devices]
        score, means, leans = scored(pool, devices, E, present, *moved, ordered=self.ordered)
        first = torch.zeros_like(score, dtype=torch.int64)
        found = Found(score, first, first + before, means, leans, first[:, 0].clone(), E, made)
        if several is None:
            return found
        # Of each mode with the rows before, and with rows that are alone.
        b, R, kinds = len(several), len(ranks) + 1, 2 if before else 1
        all_E = E.new_zeros(b, R, kinds, *E.shape[1:])
        all_standard = E.new_zeros(b, R, kinds, STATISTICS, E.shape[2])
        all_made = E.new_zeros(b, R, kinds, *made.shape[1:])
        levels = E.new_ones(b, R, 6, STATISTICS)
        leaning = E.new_ones(b, R, 2, self.features)
        there = torch.zeros(b, R, dtype=torch.bool, device=self.device)
        own = chosen(devices, several)
        for rank, (pool, at, which) in enumerate([(self.first, own, several), *ranks]):
            to = torch.searchsorted(several, which)
            Z = pool.scaled(at, rows[which])
            for kind in range(kinds):
                alone = torch.full_like(present[which, :, 0], bool(kind))
                E = pool.errors(at, Z, *pool.hidden(Z, alone))
                all_made[to, rank, kind] = Z[:, before:] - E[:, 1]
                all_standard[to, rank, kind] = pool.standardised(at, E, present[which])
                all_E[to, rank, kind] = E
            levels[to, rank] = pool.levels[at].to(FLOAT)
            leaning[to, rank] = pool.leaning[at].to(FLOAT)
            there[to, rank] = True
        columns = all_E, all_standard, all_made, levels, leaning, there
        among = self._among(own, columns, present[several], run[several])
        for whole, piece in zip(found, among, strict=True):
            whole[several] = piece
        return found

    def _among(self, devices: Any, columns: tuple[Any, ...], present: Any, run: Any) -> Found:
        """Return what rows score if there are several modes; columns are (devices, modes, ...)."""
        E, standard, made, levels, leaning, there = columns
        b, R, _, _, T, n = E.shape
        some = present.any(2)
        means, leans = self.means[devices].to(FLOAT), self.leans[devices].to(FLOAT)
        current = self.current[devices].long()
        ranks = torch.arange(R, device=self.device)
        early = ranks < self.first_modes[devices][:, None]  # between these it changes at any row
        scores, modes = E.new_empty(b, T), torch.empty_like(some, dtype=torch.int64)
        runs, alone = torch.empty_like(modes), torch.empty_like(modes)
        each = torch.arange(b, device=self.device)
        for t in range(T):
            is_own = ranks == current[:, None]
            changes = ~is_own & early & early[each, current][:, None]
            span = torch.where(changes, 0, run[:, None])
            kind = (span < self.width - 1).long()
            own = standard[each[:, None], ranks, kind, :, t]
            mean = means[:, None] + SMOOTHING * (own.clamp(max=1.0) - means[:, None])
            lean = torch.where(is_own[..., None, None], leans[:, None], 0.0)
            step = E[each[:, None], ranks, kind, :, t].clamp(-WINSOR, WINSOR) - lean
            lean = lean + LEANING * step * present[:, None, None, t]
            highest = own
            if self.ordered:
                slow = (mean - levels[:, :, 2]) / levels[:, :, 3]
                squares = lean**2 / leaning
                found = torch.cat((squares.sum(3) / n, squares.amax(3)), 2)
                found = (found - levels[:, :, 4]) / levels[:, :, 5]
                highest = torch.maximum(torch.maximum(own, slow), found)
            score = highest.clamp(min=0.0).mean(2)
            by_itself = torch.where(there, own.clamp(min=0.0).mean(2), torch.inf)
            least = by_itself.amin(1)
            lowest = torch.where(by_itself == least[:, None], ranks, R).amin(1)
            keeps = (score[each, current] <= KEEP) | (by_itself[each, current] <= least)
            keeps |= ~some[:, t]
            current = torch.where(keeps, current, lowest)
            moves = some[:, t]
            if self.ordered:
                means = torch.where(moves[:, None], mean[each, current], means)
                leans = torch.where(moves[:, None, None], lean[each, current], leans)
            scores[:, t] = torch.where(moves, score[each, current], 0.0)
            modes[:, t], runs[:, t] = current, span[each, current]
            alone[:, t] = kind[each, current]
            run = (runs[:, t] + 1).clamp(max=self.width - 1)
        times = torch.arange(T, device=self.device)
        errors = E[each[:, None], modes, alone, :, times].transpose(1, 2)
        made = made[each[:, None], modes, alone, times]
        return Found(scores, modes, runs, means, leans, current, errors, made)

    def _made_up(
        self, devices: Any, known: Any, age: Any, present: Any, rows: Any, run: Any
    ) -> Any:
        """Return values of one row, with estimates of those that are missing for too long."""
        current, alone = self.current[devices].long(), (run < self.width - 1)[:, None]
        made = torch.zeros_like(known[:, 0])
        for rank, (pool, at, own) in enumerate(self._modes(devices)):
            some = slice(None) if own is None else own
            Z = pool.scaled(at, rows[some])
            E = pool.errors(at, Z, *pool.hidden(Z, alone[some]))
            mine = (current[some] == rank)[:, None]
            made[some] = torch.where(mine, Z[:, -1] - E[:, 1, 0], made[some])
        centre, scale, _ = self._units(devices, current)
        old = ~present[:, 0] & (age[:, 0] > self.patience[devices]) & (scale > 0)
        made = centre + made.clamp(-FILLED, FILLED) * scale
        return torch.where(old, made, known[:, 0])[:, None]

    def _lately(self, rows: Rows, unusual: Any) -> Any:
        """Return how many of the last TICK rows were refused if a row is unusual, else 1."""
        end = rows.place
        if isinstance(end, int):
            end = (end + torch.arange(unusual.shape[1], device=self.device)).expand_as(unusual)
        total = self.refused[rows.devices].cumsum(1)
        lately = total.gather(1, end) - total.gather(1, end - TICK)
        return torch.where(unusual, lately.to(FLOAT), 1.0)

    def _details(self, rows: Rows, found: Found, who: Any, when: Any) -> Details:
        """Return shares, expected values and bands of rows."""
        at = indices(rows.devices, self.device)[who]
        centre, scale, band = self._units(at, found.mode[who, when])
        squares = found.errors[who, :, when].square().sum(1)
        total = squares.sum(1, keepdim=True)
        shares = torch.where(total > 0, squares / total, squares)
        expected = centre + found.made[who, when] * scale
        nothing = rows.X[who, when].isnan().all(1)
        expected = torch.where(nothing[:, None], torch.nan, expected)
        wide = torch.stack((shares, expected, band * scale), 1)
        return Details(rows.number[who, when], wide)


# -- the scores of devices with one mode ------------------------------------------------------

# Running means and leans go from row to row. In PyTorch that is a loop of some launches per row,
# which take longer than what they do; on a GPU one kernel goes through the rows of each device.


def scored(
    modes: Modes, at: Any, E: Any, present: Any, means: Any, leans: Any, *, ordered: bool
) -> tuple[Any, Any, Any]:
    """Return the scores of rows, (modes, rows), and their running means and leans after the last.

    `E`, (modes, 2, rows, features), becomes usual deviations.
    """
    means, leans = means.to(FLOAT, copy=True), leans.to(FLOAT, copy=True)
    score = in_a_kernel if E.is_cuda else in_pytorch
    return score(modes, at, E, present, means, leans, ordered)


def in_a_kernel(
    modes: Modes, at: Any, E: Any, present: Any, means: Any, leans: Any, ordered: bool
) -> tuple[Any, Any, Any]:
    """Do it in one launch."""
    from onlad.fleet.tensors import kernels  # noqa: PLC0415  (Triton is only there with a GPU)

    devices, _, T, n = E.shape
    scores = E.new_empty(devices, T)
    columns = modes.inverse[at], present.contiguous(), modes.levels[at], modes.leaning[at]
    block = max(2, 1 << (n - 1).bit_length())
    kernels.score_rows[devices,](
        E, *columns, means, leans, scores, T, n, block, ordered, num_warps=1
    )
    return scores, means, leans


def in_pytorch(
    modes: Modes, at: Any, E: Any, present: Any, means: Any, leans: Any, ordered: bool
) -> tuple[Any, Any, Any]:
    """Do it on a processor."""
    some, levels = present.any(2), modes.levels[at][..., None]
    highest = standard = modes.standardised(at, E, present)
    if ordered:
        weight = SMOOTHING * some.T.to(FLOAT)[..., None]
        bounded = standard.clamp(max=1.0).permute(2, 0, 1).contiguous()
        slow = torch.empty_like(bounded)
        errors, leaned = E.clamp(-WINSOR, WINSOR), torch.empty_like(E)
        pull = LEANING * present.to(FLOAT)[:, None]
        for t in range(E.shape[2]):
            means = torch.lerp(means, bounded[t], weight[t], out=slow[t])
            leans = torch.lerp(leans, errors[:, :, t], pull[:, :, t])
            leaned[:, :, t] = leans
        means = means.clone()
        slow = (slow.permute(1, 2, 0) - levels[:, 2]) / levels[:, 3]
        squares = leaned.square_().div_(modes.leaning[at][:, :, None])
        lean = (statistics(squares, modes.features) - levels[:, 4]) / levels[:, 5]
        highest = torch.maximum(torch.maximum(standard, slow), lean)
    return torch.where(some, highest.clamp(min=0.0).mean(1), 0.0), means, leans
