"""`Ticking`: what many monitors learn after each tick; `onlad.watching` defines it.

Rows that are refused go into quarantines, and become candidates for modes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from onlad import watching
from onlad.anchor import SETTLED
from onlad.fleet.tensors.modes import Modes
from onlad.fleet.tensors.pool import FLOAT
from onlad.fleet.tensors.rows import chosen, count
from onlad.fleet.tensors.starting import start as start_modes
from onlad.fleet.tensors.store import BY_ROW, ROOM, Store
from onlad.watching import MODES, SPARED, TICK


class Ticking(Store):
    """Monitors that learn."""

    def tick(self, devices: Any) -> Any:
        """Update the models after TICK rows; return for which devices a new mode was confirmed."""
        late, both = slice(TICK, 2 * TICK), slice(0, 2 * TICK)
        ratio = self.score[devices, late] / self.limits_of(devices, TICK, TICK)
        self.limits.follow(devices, ratio, self.refused[devices, late], self.open[devices, late])
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
        before, origin = self.width - 1, self.origin[devices, 1]
        first = self._keep(devices, self._raw(devices, TICK, TICK + before), origin)
        for name in ("kept", "present", *BY_ROW):
            column = getattr(self, name)
            rows = before + TICK if name == "kept" else TICK
            column[devices, :rows] = column[devices, TICK : TICK + rows].clone()
        self.kept[devices, :before], self.origin[devices, 0] = first, origin
        self._begin(devices, 1, self.past[devices][:, -1])
        self.open[devices, TICK:] = False
        self.at[devices] = 0

    def _learn(self, devices: Any, usual: Any, start: int) -> None:
        """Let modes learn rows of a tick, which begins at row `start`."""
        for pool, at, which, mine, _ in self._each_mode(devices, usual, start):
            for part in self._parts(mine):
                pool.learn(
                    chosen(at, part), *self._tick_rows(chosen(which, part), start), mine[part]
                )

    def _each_mode(
        self, devices: Any, wanted: Any, start: int
    ) -> Iterator[tuple[Modes, Any, Any, Any, Any]]:
        """Yield for each rank of modes: the pool, the places there, and their devices.

        Then come which of the wanted rows of a tick are theirs, and of which of `devices`.
        """
        mode = self.mode[devices, start : start + TICK]
        for rank, (pool, at, own) in enumerate(self._modes(devices)):
            some = slice(None) if own is None else own
            which = devices if own is None else chosen(devices, own)
            yield pool, at, which, wanted[some] & (mode[some] == rank), some

    def _parts(self, devices: Any) -> Iterator[slice]:
        """Yield slices of devices whose ticks are worked on together."""
        some = max(1, self.at_once // TICK)
        for first in range(0, len(devices), some):
            yield slice(first, first + some)

    def _widen(self, devices: Any) -> None:
        """Let bands follow what is refused for long too."""
        late = slice(TICK, 2 * TICK)
        refused = self.open[devices, late] & self.refused[devices, late]
        for pool, at, which, mine, _ in self._each_mode(devices, refused, TICK):
            rows, present, alone = self._tick_rows(which, TICK)
            Z = pool.scaled(at, rows)
            E = pool.errors(at, Z, *pool.hidden(Z, alone))
            pool.widen(at, E[:, 1], present & mine[..., None], mine.any(1))

    def _look_for_drift(self, devices: Any) -> None:
        """Let anchors follow the rows of this tick, and settle new ones."""
        late = slice(TICK, 2 * TICK)
        quiet = self.open[devices, late] & (self.score[devices, late] <= self.now[devices][:, None])
        drifting = torch.full((count(devices),), -1, device=self.device)
        for pool, at, which, mine, some in self._each_mode(devices, quiet, TICK):
            for part in self._parts(mine):
                self._follow(pool, chosen(at, part), chosen(which, part), mine[part])
            found = torch.where(mine.any(1), pool.anchors.drifting(at), -1)
            drifting[some] = torch.where(drifting[some] < 0, found, drifting[some])
            due = ~pool.anchors.there[at] & (pool.count[at] >= SETTLED)
            new = due.nonzero()[:, 0]
            if len(new):
                pool.anchor(chosen(at, new))
        self.write("drifting", devices, drifting)

    def _follow(self, pool: Modes, at: Any, devices: Any, quiet: Any) -> None:
        """Let the anchors of modes follow quiet rows of their devices."""
        before, rows = self.width - 1, quiet.sum(1)
        kept, _, alone = self._tick_rows(devices, TICK)
        means = []
        for lag in range(self.width):
            first = before - lag
            each = torch.where(alone[..., None], kept[:, before:], kept[:, first : first + TICK])
            each = torch.where(quiet[..., None], each, 0.0)
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
            gone = self.refuge.size[at].clamp(max=watching.EXPIRING)
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

    def _exclude(self, devices: Any, unusual: Any) -> None:
        """Put rows into quarantine; make a candidate where there are enough."""
        self._shelter(devices)
        at = self.quarantine[devices]
        who, when = unusual.nonzero(as_tuple=True)
        size = self.refuge.size[at]
        place = self.refuge.start[at][:, None] + size[:, None] + unusual.cumsum(1) - 1
        rows, _, alone = self._tick_rows(devices, 0)
        newest, back = when + self.width - 1, (~alone[who, when]).long()
        lags = [rows[who, newest - lag * back] for lag in range(self.width)]
        self.refuge.windows[at[who], place[who, when] % ROOM] = torch.cat(lags, 1)
        size = size + unusual.sum(1)
        self.refuge.size[at] = size
        self._make_candidates(devices[size >= watching.CANDIDATE])

    def _make_candidates(self, devices: Any) -> None:
        """Start a mode from the quarantine of each of the devices."""
        some = max(1, self.at_once // ROOM)
        for first in range(0, len(devices), some):
            part = devices[first : first + some]
            places, slots = self.quarantine[part], self.more.claim(len(part))
            start_modes(self.more, slots, *self.refuge.filled(places))
            self.more.anchors.there[slots] = False
            self.candidate[part] = slots
        self.explained[devices], self.foreign[devices] = 0, 0
        self._release(devices)

    def _explain(self, devices: Any, unusual: Any) -> Any:
        """Let candidates learn refused rows that they explain; return which are confirmed."""
        at = self.candidate[devices]
        rows, present, alone = self._tick_rows(devices, 0)
        if bool((~(self.more.scale[at] > 0)).any()):
            own = rows[:, self.width - 1 :]
            for t in range(TICK):
                self.more.wake(at, torch.where(unusual[:, t, None], own[:, t], torch.nan))
        fits = unusual & (self.more.fits(at, rows, present, alone) <= 1)
        self.more.learn(at, rows, present, alone, fits)
        explained = self.explained[devices] + fits.sum(1)
        foreign = self.foreign[devices] + (unusual & ~fits).sum(1)
        self.write("explained", devices, explained)
        self.write("foreign", devices, foreign)
        dropped = foreign > watching.FOREIGN * (explained + watching.CANDIDATE)
        patience = watching.PATIENCE * self.learned_rows(devices).to(FLOAT)
        patience = patience.clamp(watching.SHORTEST, watching.LONGEST)
        confirmed = ~dropped & (explained >= patience)
        if bool(dropped.any()):
            self.more.free += at[dropped].tolist()
            self.candidate[devices[dropped]] = -1
        self._confirm(devices[confirmed])
        return confirmed

    def _confirm(self, devices: Any) -> None:
        """Let candidates be modes; of a device that has too many the least one goes."""
        self._drop_least(devices[(self.slots[devices] >= 0).all(1)])
        last = (self.slots[devices] >= 0).sum(1)
        self.slots[devices, last] = self.candidate[devices]
        self.candidate[devices] = -1
        self.write("current", devices, torch.minimum(self.current[devices], last + 1))

    def _drop_least(self, devices: Any) -> None:
        """Take the mode that learned least from devices that have as many as there may be."""
        if len(devices) == 0:
            return
        slots = self.slots[devices]
        counts = torch.cat((self.first.count[devices][:, None], self.more.count[slots]), 1)
        ranks = torch.arange(MODES, device=self.device)
        least = torch.where(counts == counts.amin(1, keepdim=True), ranks, MODES).amin(1)[:, None]
        first_modes = self.first_modes[devices]
        self.write("first_modes", devices, first_modes - (least[:, 0] < first_modes).int())
        moves = devices[least[:, 0] == 0]
        self.first.copy(moves, self.more, self.slots[moves, 0])
        gone = ranks[:-1] == (least - 1).clamp(min=0)
        self.more.free += slots[gone].tolist()
        self.slots[devices] = -1
        self.slots[devices, : MODES - 2] = slots[~gone].view(-1, MODES - 2)
        mode = self.mode[devices]
        self.mode[devices] = torch.where(mode == least, 0, mode - (mode > least).to(mode.dtype))
