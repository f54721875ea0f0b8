"""`Store`: what many monitors have learned, in pools of tensors.

Mode 0 of device i is entry i of `first`. Further modes and candidates are in `more`, quarantines in
`refuge`: few devices have them.

Rows wait for two ticks until they are learned, once. They are kept in half precision, as
differences from a value of their tick in units of the first mode: then it does not matter where a
stream has gone. The rows that the next one is judged with are kept as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from onlad import limit, watching
from onlad.fleet.tensors.limits import Limits
from onlad.fleet.tensors.modes import Modes
from onlad.fleet.tensors.pool import FLOAT, HALF, SINGLE, Fields, Pool, halved, tensor
from onlad.fleet.tensors.rows import indices
from onlad.mode import STATISTICS
from onlad.watching import MODES, TICK, WatchingState

ROOM = watching.CANDIDATE + TICK  # rows of a quarantine
# The unit in which rows are kept, in scales of the first mode, rounded up to a power of 2. Half
# precision then has differences of up to 7e7 scales, rounds none by more than 1e-4 scales or
# 0.05 %, and counts and switches not at all.
UNIT = 1024.0
# What is kept under the names of `WatchingState`.
ARRAYS = ("age", "patience", "counted", "means", "leans")
BY_ROW = ("score", "mode", "run", "refused", "open")
NUMBERS = ("current", "at", "begun", "first_modes", "drifting", "explained", "foreign")


class Refuge(Pool):
    """Quarantines: rings of raw windows."""

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs

    def fields(self) -> Fields:
        """Return shape, type and first value of each tensor, by its name."""
        whole = torch.int64
        return {
            "windows": ((ROOM, self.inputs), FLOAT, 0.0),
            "start": ((), whole, 0),
            "size": ((), whole, 0),
        }

    def filled(self, at: Any) -> tuple[Any, Any]:
        """Return quarantines, the oldest row first, and how many rows each has."""
        order = self.start[at][:, None] + torch.arange(ROOM, device=self.device)
        return self.windows[at[:, None], order % ROOM], self.size[at]

    def rows(self, at: int) -> Any:
        """Return one quarantine, the oldest row first; of -1, none."""
        if at < 0:
            return np.empty((0, self.inputs))
        windows, size = self.filled(torch.tensor([at], device=self.device))
        return windows[0, : int(size)].cpu().numpy()


class Store(Pool):
    """What monitors with one number of features, window and seed have learned."""

    at_once = 2**20  # rows that are worked on together: their hidden units take a GiB

    def __init__(self, features: int, width: int, ordered: bool, seed: int, device: str) -> None:
        self.features, self.width, self.ordered, self.seed = features, width, ordered, seed
        self.make(0, device)
        self.first = Modes(features, width, seed, 0, device)
        self.more = Modes(features, width, seed, 0, device)
        self.limits = Limits()
        self.limits.make(0, device)
        self.refuge = Refuge(features * width)
        self.refuge.make(0, device)

    def fields(self) -> Fields:
        """Return shape, type and first value of each tensor, by its name."""
        n, rows = self.features, 2 * TICK + 1
        whole, nan = torch.int32, torch.nan
        short = torch.uint8 if self.width <= 256 else torch.int16
        return {
            # Values held of the rows of two ticks, with those before, and one that is not read;
            # origins are those of the rows of the tick before, and of this one.
            "kept": ((self.width - 1 + rows, n), HALF, nan),
            "origin": ((2, n), FLOAT, 0.0),
            "unit": ((n,), SINGLE, 0.0),  # of rows that are kept; 0 while a feature never moved
            # The last rows that a window has, at least one, the newest last.
            "past": ((max(self.width - 1, 1), n), FLOAT, nan),
            "present": ((rows, -(-n // 8)), torch.uint8, 0),  # a bit for each feature
            "score": ((rows,), SINGLE, 0.0),
            "mode": ((rows,), torch.int8, 0),
            "run": ((rows,), short, self.width - 1),  # rows before it in its window, at most
            "refused": ((rows,), torch.bool, 0),
            "open": ((rows,), torch.bool, 0),
            "age": ((n,), SINGLE, 0.0),
            "patience": ((n,), SINGLE, 0.0),
            "counted": ((2, n), FLOAT, nan),  # of counters the last value; rows since then
            "means": ((STATISTICS,), SINGLE, 0.0),
            "leans": ((2, n), SINGLE, 0.0),
            "current": ((), whole, 0),
            "at": ((), whole, 0),
            "begun": ((), whole, 0),
            "first_modes": ((), whole, 0),
            "drifting": ((), whole, -1),
            "explained": ((), whole, 0),
            "foreign": ((), whole, 0),
            "slots": ((MODES - 1,), torch.int64, -1),  # of the modes after the first, in `more`
            "candidate": ((), torch.int64, -1),  # in `more`, or -1
            "quarantine": ((), torch.int64, -1),  # in `refuge`, or -1
            "now": ((), FLOAT, torch.inf),
            "doubt": ((), FLOAT, 1.0),
            "gate": ((), FLOAT, torch.inf),
        }

    def grow(self, count: int) -> None:
        """Add devices at the end; each needs a `put`."""
        super().grow(count)
        self.first.grow(count)
        self.limits.grow(count)

    def nbytes(self) -> int:
        """Return the bytes of all tensors."""
        parts = (self.first, self.more, self.limits, self.refuge)
        return super().nbytes() + sum(part.nbytes() for part in parts)

    # -- places in the pools ------------------------------------------------------------------

    def _modes(self, devices: Any) -> list[tuple[Modes, Any, Any]]:
        """Return for each rank of modes: the pool, the places there, and of which of `devices`."""
        found: list[tuple[Modes, Any, Any]] = [(self.first, devices, None)]
        if len(self.more) == len(self.more.free):
            return found
        slots = self.slots[devices]
        for rank in range(MODES - 1):
            own = (slots[:, rank] >= 0).nonzero()[:, 0]
            if len(own):
                found.append((self.more, slots[own, rank], own))
        return found

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

    def learned_rows(self, devices: Any) -> Any:
        """Return how many rows the modes of each device have learned."""
        total = self.first.count[devices].long()
        for pool, at, own in self._modes(devices)[1:]:
            total[own] += pool.count[at]
        return total

    def _tick_rows(self, devices: Any, start: int) -> tuple[Any, Any, Any]:
        """Return raw rows of a tick with those before, which values were there, and who is alone.

        A row that is alone stands in for those before it.
        """
        stop, before = start + TICK, self.width - 1
        present = of_bits(self.present[devices, start:stop], self.features)
        alone = self.run[devices, start:stop] < before
        return self._raw(devices, start, stop + before), present, alone

    def _raw(self, devices: Any, start: int, stop: int) -> Any:
        """Return rows that are kept, by their place there."""
        rows = self.kept[devices, start:stop].to(FLOAT) * self.unit[devices][:, None]
        before, now = self.origin[devices].unbind(1)
        late = max(0, min(self.width - 1 + TICK - start, rows.shape[1]))
        rows[:, :late] += before[:, None]
        rows[:, late:] += now[:, None]
        return rows

    def _keep(self, devices: Any, rows: Any, origin: Any) -> Any:
        """Return rows as they are kept; `origin` is that of their tick."""
        unit = self.unit[devices][:, None]
        # What never moved differs by less than `mode.STILL`, in any unit that it may get.
        return halved((rows - origin[:, None]) / torch.where(unit > 0, unit, torch.inf))

    def measure(self, devices: Any) -> None:
        """Give features that have moved the unit in which their rows are kept."""
        unit, scale = self.unit[devices], self.first.scale[devices]
        new = torch.where(scale > 0, (UNIT * scale).log2().ceil().exp2(), 0.0)
        self.write("unit", devices, torch.where(unit > 0, unit, new))

    def _begin(self, devices: Any, tick: int, rows: Any) -> None:
        """Let the rows of a tick be kept as differences from these."""
        centre = self.first.centre[devices].nan_to_num(nan=0.0)
        self.origin[devices, tick] = torch.where(rows.isnan(), centre, rows)

    def inform(self, devices: Any) -> None:
        """Settle the limit of the next tick."""
        learned = self.learned_rows(devices)
        now = self.limits.value(devices, learned)
        trust: Any = 1.0
        if self.ordered:
            top = watching.SHELVED * self.score[devices, :TICK].amax(1)
            now = torch.where(self.limits.shelved(devices), torch.maximum(now, top), now)
            trust = 1 + watching.YOUNG / learned.to(FLOAT)
        self.now[devices], self.doubt[devices] = now, self.limits.doubt(learned)
        self.gate[devices] = watching.REFUSED * self.limits.edge[devices].clamp(min=1.0) * trust

    def limits_of(self, devices: Any, place: Any, rows: int) -> Any:
        """Return from which score each row is an anomaly, of rows at a place whose scores are kept.

        It is (devices, rows).
        """
        now = self.now[devices][:, None]
        if not self.ordered:
            return now.expand(-1, rows)
        if isinstance(place, int):
            before = self.score[devices, place - 1 : place - 1 + rows]
        else:
            before = self.score[indices(devices, self.device)[:, None], place - 1]
        return torch.where(before <= now, limit.SINGLE * now, now)

    def _release(self, devices: Any) -> None:
        """Give up the quarantines of devices."""
        if len(devices):
            self.refuge.free += self.quarantine[devices].tolist()
            self.quarantine[devices] = -1

    def _shelter(self, devices: Any) -> None:
        """Give devices that have none an empty quarantine."""
        lack = devices[self.quarantine[devices] < 0]
        if len(lack):
            at = self.refuge.claim(len(lack))
            self.quarantine[lack] = at
            self.refuge.start[at], self.refuge.size[at] = 0, 0

    # -- values in and out --------------------------------------------------------------------

    def put(self, devices: Any, state: WatchingState, rate: float) -> None:
        """Let devices go on from a state."""
        at = indices(devices, self.device)
        self.forget(at)
        before = self.width - 1
        for name in BY_ROW:
            column = getattr(self, name)
            array = tensor(getattr(state, name), self.device, column.dtype)
            column[devices, : 2 * TICK] = array
        self.present[devices, : 2 * TICK] = bits(tensor(state.present, self.device))
        for name in ARRAYS:
            self.write(name, devices, tensor(getattr(state, name), self.device))
        past = state.past[::-1].copy() if before else state.held[None]
        self.past[devices] = tensor(past, self.device)
        for name in NUMBERS:
            getattr(self, name)[devices] = getattr(state, name)
        self.first.put(devices, state.modes[0])
        self.unit[devices] = 0.0
        self.measure(devices)
        rows, middle = tensor(state.kept, self.device).expand(len(at), -1, -1), before + TICK
        for tick, first in enumerate((before, middle - 1)):
            self._begin(devices, tick, rows[:, first])
        origin = self.origin[devices]
        self.kept[devices, :middle] = self._keep(devices, rows[:, :middle], origin[:, 0])
        self.kept[devices, middle:-1] = self._keep(devices, rows[:, middle:], origin[:, 1])
        self.first.anchors.put(devices, state.anchors[0])
        self.limits.put(devices, state.limit, rate)
        further = [*zip(state.modes[1:], state.anchors[1:], strict=True)]
        if state.candidate is not None:
            further.append((state.candidate, None))
        for rank, (mode, anchor) in enumerate(further, 1):
            slots = self.more.claim(len(at))
            self.more.put(slots, mode)
            self.more.anchors.put(slots, anchor)
            if rank < len(state.modes):
                self.slots[at, rank - 1] = slots
            else:
                self.candidate[at] = slots
        if len(state.quarantine):
            size = len(state.quarantine)
            windows = tensor(state.quarantine, self.device)
            self._shelter(at)
            own = self.quarantine[at]
            self.refuge.windows[own, :size] = windows
            self.refuge.size[own] = size
        self.inform(devices)

    def forget(self, at: Any) -> None:
        """Give up what devices have in the pools that all share."""
        self._release(at[self.quarantine[at] >= 0])
        for slots in (*self.slots[at].T, self.candidate[at]):
            self.more.free += slots[slots >= 0].tolist()
        self.slots[at], self.candidate[at] = -1, -1

    def learned(self, device: int) -> WatchingState:
        """Return all that was learned of one device."""
        slots = [slot for slot in self.slots[device].tolist() if slot >= 0]
        candidate, past = int(self.candidate[device]), self.array("past", device)
        pools = [(self.first, device), *((self.more, slot) for slot in slots)]
        kept = self._raw(slice(device, device + 1), 0, self.width - 1 + 2 * TICK)
        present = of_bits(self.present[device, : 2 * TICK], self.features)
        numbers: Any = {name: int(getattr(self, name)[device]) for name in NUMBERS}
        return WatchingState(
            width=self.width,
            ordered=self.ordered,
            past=past[::-1][: self.width - 1].copy(),
            kept=kept[0].cpu().numpy(),
            held=past[-1],
            present=present.cpu().numpy(),
            **{name: self.array(name, device) for name in ARRAYS},
            **{name: self.array(name, device)[: 2 * TICK] for name in BY_ROW},
            **numbers,
            modes=tuple(pool.learned(at) for pool, at in pools),
            candidate=None if candidate < 0 else self.more.learned(candidate),
            anchors=tuple(pool.anchors.learned(at) for pool, at in pools),
            quarantine=self.refuge.rows(int(self.quarantine[device])),
            limit=self.limits.learned(device),
        )


def bits(present: Any) -> Any:
    """Return what is there, (..., n), with a bit for each feature."""
    wide = torch.nn.functional.pad(present, (0, -present.shape[-1] % 8)).unflatten(-1, (-1, 8))
    powers = 2 ** torch.arange(8, dtype=torch.uint8, device=present.device)
    return (wide * powers).sum(-1, dtype=torch.uint8)


def of_bits(kept: Any, features: int) -> Any:
    """Return what `bits` was given."""
    powers = 2 ** torch.arange(8, dtype=torch.uint8, device=kept.device)
    return (kept[..., None] & powers).bool().flatten(-2)[..., :features]
