"""`Watchers`: monitors of one shape after their start; `onlad.watching` defines them.

All devices are judged and learn together.
"""

from __future__ import annotations

from typing import Any

import torch

from onlad.counter import RESET
from onlad.fleet.tensors.judging import Judging
from onlad.fleet.tensors.pool import FLOAT
from onlad.fleet.tensors.rows import Rows, Said, chosen, count, indices
from onlad.fleet.tensors.ticking import Ticking
from onlad.fleet.verdicts import ON_GPU
from onlad.watching import TICK


class Watchers(Judging, Ticking):
    """Started monitors with one number of features, window and seed."""

    def watch(
        self, devices: Any, X: Any, counts: Any = None, paused: Any = None, *, details: str
    ) -> Said:
        """Judge rows of devices, (devices, rows, n), and update the models at each tick.

        `devices` is a slice or indices that differ from each other. Of device i the first
        ``counts[i]`` rows are there. Details are given of ``"alarms"`` or of ``"all"`` rows.
        """
        counted = self.counted[devices]
        if X.shape[1] == 0 or not bool((~counted[:, 0].isnan()).any()):
            return self._watch(devices, X, counts, paused, details)
        X, base, gap, self.counted[devices] = rates(counted, X, counts)
        said = self._watch(devices, X, counts, paused, details)
        row, n = said.details.row, X.shape[2]
        said.details.wide[:, 1].mul_(gap.reshape(-1, n)[row]).add_(base.reshape(-1, n)[row])
        return said

    def _watch(self, devices: Any, X: Any, counts: Any, paused: Any, details: str) -> Said:
        """Judge rows that have the rates of counters."""
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
                own = X[:, part], None, TICK + low, paused, number[:, part]
                rows = Rows(devices, *own, gaps=bool(own[0].isnan().any()))
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
        return self._uneven(devices, X, counts, paused, said, details)

    def _uneven(
        self, devices: Any, X: Any, counts: Any, paused: Any, said: Said, details: str
    ) -> Said:
        """Judge rows of devices that are at different places of their ticks."""
        devices = indices(devices, self.device)
        number = torch.arange(X.shape[0] * X.shape[1], device=self.device).view(X.shape[:2])
        done = torch.zeros_like(counts)
        while True:
            some = (done < counts).nonzero()[:, 0]
            if len(some) == 0:
                return said.close()
            at, left = self.at[devices[some]].long(), (counts - done)[some]
            taken = torch.minimum(left, TICK - at)
            most = int(taken.max())
            order = torch.arange(most, device=self.device)
            there = order < taken[:, None]
            times = (done[some][:, None] + order).clamp(max=X.shape[1] - 1)
            place = torch.where(there, TICK + at[:, None] + order, 2 * TICK)
            whole = bool((taken == most).all())
            values = X[some[:, None], times]
            sparse = None if whole else there
            own = devices[some], values, sparse, place, paused[some], number[some[:, None], times]
            rows = Rows(*own, gaps=bool(values.isnan().any()))
            # Several rows that are not there may have the same time: those that are come from
            # another tensor.
            found = Said(len(some), most, X.shape[2], self.device)
            self._rows(rows, found, slice(0, most), details)
            for part in found._parts:
                said.add(part)
            who, when = there.nonzero(as_tuple=True)
            for name in ON_GPU:
                getattr(said, name)[some[who], times[who, when]] = getattr(found, name)[who, when]
            self.write("at", devices[some], at + taken)
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
        some = max(1, self.at_once // rows.X.shape[1])
        for first in range(0, count(which), some):
            own = chosen(which, slice(first, first + some))
            self._judge(rows.part(own), said, own, part, details, careful=False)


def rates(counted: Any, X: Any, counts: Any) -> tuple[Any, Any, Any, Any]:
    """Return rows with rates of counters, base and gap of each value, and what was counted after.

    `onlad.counter` defines it. `counted` is (devices, 2, n), and of device i the first
    ``counts[i]`` rows of `X`, (devices, rows, n), are there; None: all.
    """
    last, since = counted.unbind(1)
    counting = ~last.isnan()[:, None]
    T = X.shape[1]
    order = torch.arange(T, device=X.device)[None, :, None]
    newest = torch.where(X.isnan(), -1, order).cummax(1).values  # a value, up to each row
    before = torch.nn.functional.pad(newest, (0, 0, 1, 0), value=-1)[:, :-1]
    seen = before >= 0
    base = torch.where(seen, X.gather(1, before.clamp(min=0)), last[:, None])
    gap = torch.where(seen, (order - before).to(FLOAT), since[:, None] + order + 1)
    reset = (base > X) & (X.abs() <= RESET * base.abs())
    found = torch.where(reset, torch.nan, (X - base) / gap)
    end = torch.full_like(newest[:, 0, 0], T) if counts is None else counts
    final = newest.gather(1, (end - 1).clamp(min=0)[:, None, None].expand(-1, 1, X.shape[2]))
    final = torch.where((end > 0)[:, None], final[:, 0], -1)
    value = X.gather(1, final.clamp(min=0)[:, None])[:, 0]
    rows = torch.where(final >= 0, (end[:, None] - 1 - final).to(FLOAT), since + end[:, None])
    after = torch.stack((torch.where(final >= 0, value, last), rows), 1)
    after = torch.where(counting, after, counted)
    rated = torch.where(counting, found, X)
    return rated, torch.where(counting, base, 0.0), torch.where(counting, gap, 1.0), after
