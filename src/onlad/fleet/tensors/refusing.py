"""`Refusing`: what becomes of the refused rows of many devices: quarantines and candidates."""

from __future__ import annotations

from typing import Any

import torch

from onlad.fleet.tensors.pool import FLOAT
from onlad.fleet.tensors.rows import chosen
from onlad.fleet.tensors.store import ROOM, Store
from onlad.mode import Mode
from onlad.watching import (
    CANDIDATE,
    EXPIRING,
    FOREIGN,
    LONGEST,
    MODES,
    PATIENCE,
    SHORTEST,
    TICK,
)


class Refusing(Store):
    """Monitors that make a mode of what they refuse."""

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
