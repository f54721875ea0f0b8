"""`Refusing`: what becomes of the refused rows of many devices: quarantines and candidates."""

from __future__ import annotations

from typing import Any

import torch

from onlad import watching
from onlad.fleet.tensors.pool import FLOAT
from onlad.fleet.tensors.rows import chosen
from onlad.fleet.tensors.starting import start
from onlad.fleet.tensors.store import ROOM, Store
from onlad.watching import MODES, TICK


class Refusing(Store):
    """Monitors that make a mode of what they refuse."""

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
        rows, _ = self._tick_rows(devices, 0)
        before = self.width - 1
        lags = [rows[who, when + before - lag] for lag in range(self.width)]
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
            start(self.more, slots, *self.refuge.filled(places))
            self.more.anchors.there[slots] = False
            self.candidate[part] = slots
        self.explained[devices], self.foreign[devices] = 0, 0
        self._release(devices)

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
        moves = devices[least[:, 0] == 0]
        self.first.copy(moves, self.more, self.slots[moves, 0])
        gone = ranks[:-1] == (least - 1).clamp(min=0)
        self.more.free += slots[gone].tolist()
        self.slots[devices] = -1
        self.slots[devices, : MODES - 2] = slots[~gone].view(-1, MODES - 2)
        mode = self.mode[devices]
        self.mode[devices] = torch.where(mode == least, 0, mode - (mode > least).to(mode.dtype))
