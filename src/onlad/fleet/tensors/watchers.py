"""`Watchers`: monitors of one shape after their start; `onlad.watching` defines them.

All devices are judged and learn together.
"""

from __future__ import annotations

from typing import Any

import torch

from onlad.fleet.tensors.counting import rates
from onlad.fleet.tensors.judging import Judging
from onlad.fleet.tensors.rows import Rows, chosen, count, indices
from onlad.fleet.tensors.said import Said
from onlad.fleet.tensors.ticking import Ticking
from onlad.fleet.verdicts import ON_GPU
from onlad.watching import TICK


class Watchers(Judging, Ticking):
    """Started monitors with one number of features, window and seed."""

    def watch(
        self, devices: Any, X: Any, counts: Any = None, paused: Any = None, *, details: str
    ) -> Said:
        """Judge rows of devices, (devices, rows, n), and move on at each tick.

        `devices` is a slice or indices that differ from each other. Of device i the first
        ``counts[i]`` rows are there. Details are given of ``"alarms"`` or of ``"all"`` rows.
        """
        counted = self.counted[devices]
        if X.shape[1] == 0 or not bool((~counted[:, 0].isnan()).any()):
            return self._watch(devices, X, counts, paused, details)
        X, base, gap, self.counted[devices] = rates(counted, X, counts)
        said = self._watch(devices, X, counts, paused, details)
        row, n = said.details.row, X.shape[2]
        expected = said.details.around[:, :n]
        expected.mul_(gap.reshape(-1, n)[row]).add_(base.reshape(-1, n)[row])
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
            at, left = self.at[devices[some]].long(), (counts - done)[some]
            taken = torch.minimum(left, TICK - at)
            most = int(taken.max())
            order = torch.arange(most, device=self.device)
            there = order < taken[:, None]
            times = (done[some][:, None] + order).clamp(max=X.shape[1] - 1)
            place = torch.where(there, TICK + at[:, None] + order, 2 * TICK)
            whole = bool((taken == most).all())
            values = X[some[:, None], times]
            rows = Rows(
                devices[some],
                values,
                None if whole else there,
                place,
                paused[some],
                number[some[:, None], times],
                bool(values.isnan().any()),
            )
            # Several rows that are not there may have the same time: those that are come from
            # another tensor.
            own = Said(len(some), most, X.shape[2], self.device)
            self._rows(rows, own, slice(0, most), details)
            for part in own._parts:
                said.add(part)
            who, when = there.nonzero(as_tuple=True)
            for name in ON_GPU:
                getattr(said, name)[some[who], times[who, when]] = getattr(own, name)[who, when]
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
