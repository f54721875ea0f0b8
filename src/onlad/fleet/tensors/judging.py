"""`Judging`: what rows of many devices score; `onlad.judge` defines it.

Between two ticks a row depends on the one before only by running means, by the mode, by values that
are made up, and by features that move for the first time. The first two are a loop over rows with
all devices side by side. Devices for which one of the others happens take their rows one by one,
side by side as well.
"""

from __future__ import annotations

from typing import Any

import torch

from onlad.fleet.tensors.modes import statistics
from onlad.fleet.tensors.pool import FLOAT
from onlad.fleet.tensors.rows import Found, Rows, chosen, indices
from onlad.fleet.tensors.said import Details, Said
from onlad.fleet.tensors.store import Store
from onlad.judge import FILLED, KEEP
from onlad.mode import LEANING, SMOOTHING, STATISTICS, STILL, WINSOR
from onlad.watching import TICK


class Judging(Store):
    """Monitors that judge rows."""

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
        said.unusual[which, part] = self._lately(rows, refused | alarm)
        said.is_anomaly[which, part] = alarm
        said.learned[which, part] = ~refused & is_open
        said.drifting[which, part] = self.drifting[devices][:, None].expand(-1, T)
        told = alarm if details == "alarms" else torch.ones_like(alarm)
        if rows.there is not None:
            told = told & rows.there
        who, when = told.nonzero(as_tuple=True)
        if len(who):
            said.add(self._details(rows, found, who, when))

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
            pull = LEANING * present.to(FLOAT)[:, None]
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
            lean = lean + LEANING * step * present[:, None, None, t]
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

    def _made_up(self, devices: Any, known: Any, age: Any, present: Any, found: Found) -> Any:
        """Return values of one row, with those that are missing for too long made up."""
        centre, scale, _ = self._units(devices, found.mode[:, 0])
        old = ~present[:, 0] & (age[:, 0] > self.patience[devices]) & (scale > 0)
        made = centre + found.made[:, 0].clamp(-FILLED, FILLED) * scale
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
        squares = found.squares[who, when]
        total = squares.sum(1, keepdim=True)
        shares = torch.where(total > 0, squares / total, squares)
        expected = centre + found.made[who, when] * scale
        nothing = rows.X[who, when].isnan().all(1)
        expected = torch.where(nothing[:, None], torch.nan, expected)
        around = torch.cat((expected, band * scale), 1)
        return Details(rows.number[who, when], shares, around)
