"""`Ticking`: what many monitors learn after each tick; `onlad.watching` defines it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from onlad.anchor import SETTLED
from onlad.fleet.tensors.modes import Modes
from onlad.fleet.tensors.refusing import Refusing
from onlad.fleet.tensors.rows import chosen, count
from onlad.watching import SPARED, TICK


class Ticking(Refusing):
    """Monitors that learn."""

    def tick(self, devices: Any) -> Any:
        """Move on after TICK rows; return for which devices a new mode was confirmed."""
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
        for name in ("kept", "present", "score", "mode", "refused", "open"):
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
                rows, present = self._tick_rows(chosen(which, part), start)
                pool.learn(chosen(at, part), rows, present, mine[part])

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
            rows, present = self._tick_rows(which, TICK)
            Z = pool.scaled(at, rows)
            E = pool.errors(at, Z, *pool.hidden(Z))
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
        kept = self._raw(devices, TICK, 2 * TICK + before)
        means = []
        for lag in range(self.width):
            first = before - lag
            each = torch.where(quiet[..., None], kept[:, first : first + TICK], 0.0)
            means.append(each.sum(1) / rows[:, None])
        pool.anchors.follow(at, torch.stack(means, 1), rows, pool.projection)
