"""`TensorMonitors`: devices of a `MonitorBank` on a GPU, sorted by the shape of their models."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from onlad.fleet.tensors.pool import FLOAT
from onlad.fleet.tensors.rows import Details, Said
from onlad.fleet.tensors.watchers import Watchers
from onlad.fleet.verdicts import ON_GPU
from onlad.monitor import MonitorSettings
from onlad.reference import Array
from onlad.watching import WatchingState


def device() -> str:
    """Return where the tensors go, or raise an error that says why there is no such place."""
    if not torch.cuda.is_available():
        raise RuntimeError("PyTorch finds no NVIDIA GPU")
    return "cuda"


Shape = tuple[int, int, bool, int]  # features, window, whether rows have an order, seed


class TensorMonitors:
    """Started monitors of devices. Those that have not started have no engine here."""

    def __init__(self) -> None:
        self.device = device()
        self.engines: dict[Shape, Watchers] = {}
        self._shapes: list[Shape] = []
        self._shape: Array = np.zeros(0, "int64")  # of each device, or -1
        self._row: Array = np.zeros(0, "int64")

    def grow(self, count: int) -> None:
        """Add devices that have not started."""
        self._shape = np.append(self._shape, np.full(count, -1))
        self._row = np.append(self._row, np.full(count, -1))

    def keep(self, places: list[int]) -> None:
        """Keep the devices with these places, in this order."""
        gone = np.ones(len(self._shape), bool)
        gone[places] = False
        self.release(np.flatnonzero(gone))
        self._shape, self._row = self._shape[places], self._row[places]

    def put(self, places: Array, state: WatchingState, settings: MonitorSettings) -> None:
        """Let devices go on from a state."""
        self.release(places)
        shape = (len(state.held), state.width, state.ordered, settings.seed)
        if shape not in self.engines:
            self.engines[shape] = Watchers(*shape, self.device)
            self._shapes.append(shape)
        engine = self.engines[shape]
        rows = engine.claim(len(places), spare=0).cpu().numpy()
        engine.put(self._which(rows), state, settings.false_alarms)
        self._shape[places], self._row[places] = self._shapes.index(shape), rows

    def release(self, places: Array) -> None:
        """Take devices out of their engines."""
        for number, shape in enumerate(self._shapes):
            own = places[self._shape[places] == number]
            if len(own):
                engine, rows = self.engines[shape], self._row[own]
                engine.forget(torch.as_tensor(rows).to(self.device))
                engine.free += rows.tolist()
                self._shape[own] = -1

    def learned(self, place: int) -> WatchingState:
        """Return all that was learned of one device."""
        return self.engines[self._shapes[self._shape[place]]].learned(int(self._row[place]))

    def nbytes(self) -> int:
        """Return the bytes of all devices."""
        return sum(engine.nbytes() for engine in self.engines.values())

    def watch(self, places: Array, X: Any, counts: Any, paused: Array, details: str) -> Said:
        """Judge rows, (devices, T, n); of each device as many as `counts` has, or all.

        A device with fewer features has the first columns; there is nothing in its others.
        """
        b, T, n = X.shape
        X = torch.as_tensor(X).to(self.device, FLOAT)
        parts = []
        for number, shape in enumerate(self._shapes):
            own = np.flatnonzero(self._shape[places] == number)
            if len(own):
                parts.append((self.engines[shape], own))
        if len(parts) == 1 and parts[0][0].features == n:
            return self._run(parts[0][0], places, X, counts, paused, details)
        said = Said(b, T, n, self.device)
        for engine, own in parts:
            at = torch.as_tensor(own).to(self.device)
            some = None if counts is None else counts[own]
            rows = X[at][..., : engine.features]
            found = self._run(engine, places[own], rows, some, paused[own], details)
            for name in ON_GPU:
                getattr(said, name)[at] = getattr(found, name)
            row, wide = found.details
            lack = (0, n - engine.features)  # columns of features that devices do not have
            wide = torch.nn.functional.pad(wide, lack, value=torch.nan)
            said.add(Details(at[row // T] * T + row % T, wide))
        return said.close()

    def watch_some(self, places: Array, X: Any, sent: Array, paused: Array, details: str) -> Said:
        """Judge those rows, (devices, T, n), that were sent, (devices, T)."""
        # Those that are there come first, and each verdict goes back to where its row was.
        order = torch.as_tensor(np.argsort(~sent, axis=1, kind="stable")).to(self.device)
        X = torch.as_tensor(X).to(self.device).gather(1, order[..., None].expand(X.shape))
        said = self.watch(places, X, sent.sum(axis=1), paused, details)
        for name in ON_GPU:
            column = getattr(said, name)
            setattr(said, name, torch.empty_like(column).scatter_(1, order, column))
        row, T = said.details.row, X.shape[1]
        said.add(said.details._replace(row=row - row % T + order.flatten()[row]))
        return said.close()

    def _run(
        self, engine: Watchers, places: Array, X: Any, counts: Any, paused: Array, details: str
    ) -> Said:
        counts = None if counts is None else torch.as_tensor(counts).to(self.device)
        still = torch.as_tensor(paused).to(self.device)
        return engine.watch(self._which(self._row[places]), X, counts, still, details=details)

    def _which(self, rows: Array) -> Any:
        """Return rows as a slice, if they are one: then nothing is copied."""
        first = int(rows[0])
        if np.array_equal(rows, np.arange(first, first + len(rows))):
            return slice(first, first + len(rows))
        return torch.as_tensor(rows).to(self.device)
