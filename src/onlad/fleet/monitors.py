"""`MonitorBank`: the monitors of many devices, whose rows are judged by one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from onlad import compiled, samples
from onlad.fleet import given
from onlad.fleet.host import usable_cores
from onlad.fleet.members import Members
from onlad.fleet.verdicts import DETAILS, ON_GPU, Details, FleetVerdicts
from onlad.reference import Array
from onlad.rhythm import DAY, LATEST
from onlad.rows import LARGEST

if TYPE_CHECKING:
    from onlad.fleet.tensors.rows import Said

NAMED = 5  # devices that a message names


class MonitorBank(Members):
    """Monitors of many devices, each of which watches its own stream.

    On the processor it says what a loop of `Monitor.observe` says, to the last bit; on a GPU
    within rounding. A bank is for one caller at a time.

    Parameters
    ----------
    monitor
        How devices start: fresh, or with what it has learned.
    devices
        How many.
    names
        Of the features; needed if `monitor` has seen nothing.
    device
        ``cpu``, or ``cuda`` for an NVIDIA GPU (extra ``gpu``). Devices that have not started, or
        are young, are watched on the processor until then; those with times or features that came
        later always are.
    threads
        On the processor; by default as many as this process has cores. Results do not depend on it.
    storage
        ``exact``, or ``compact`` for a third of the memory: monitors are rounded between two calls,
        and verdicts are then equal within rounding. Those on a GPU always are.

    Attributes
    ----------
    names
        Features of a device, unless `grow` was given others.
    shapes
        Features of all kinds of devices.
    widest
        Columns of rows: features of the kind that has most. Others have the first ones.
    paused
        By device: its rows are judged, and none is learned.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> from onlad import Monitor
    >>> bank = MonitorBank(Monitor().fit(rng.normal(size=(500, 2))), devices=1000)
    >>> X = rng.normal(size=(1000, 2))                      # one row per device
    >>> X[7] = 30.0, -30.0
    >>> verdicts = bank.observe(X)
    >>> np.flatnonzero(verdicts.is_anomaly).tolist(), verdicts[7].severity > 45
    ([7], True)
    >>> sent = np.arange(1000) != 3                         # device 3 is silent
    >>> bank.observe(X, sent).ready[2:5].tolist(), bank.n_seen[2:5].tolist()
    ([True, False, True], [502, 501, 502])
    >>> monitor = bank[7]                        # a copy; and back by bank[7] = monitor
    """

    def observe(self, X: Any, mask: Any = None, *, details: Details = "alarms") -> Any:
        """Return the verdicts on one row per device, (devices, n), and learn what is normal.

        NaN is a missing value. A device with fewer features than others has the first columns.
        Where `mask` is False there is no row: its verdict is not ready, and its device stays as it
        is. `details`, causes and expected values, are wide: they are there for alarms, for all
        rows, or for none. Arrays give `FleetVerdicts`. On a GPU a tensor gives
        `onlad.fleet.tensors.rows.Said`: tensors, with the details of alarms.

        Raises
        ------
        ValueError
            `X` or `mask` does not fit, or devices sent what is no measurement. The message names
            them, and no device has changed.
        """
        if self._gpu and given.is_tensor(X):
            return self._on_gpu(X[:, None] if X.ndim == 2 else X, mask)
        X = self._sized(X, (len(self), self.widest), "(devices, n)")
        sent = np.ones(len(self), bool)
        if mask is not None:
            sent = given.mask_of(np.asarray(mask), sent.shape, "row")
        return self._spread(X, np.arange(len(self)), np.flatnonzero(sent), details)

    def observe_many(self, X: Any, mask: Any = None, *, details: Details = "alarms") -> Any:
        """Return the verdicts on T rows per device, (devices, T, n); the same as T calls.

        Row t of device i is verdict i * T + t. `mask` has shape (devices,) or (devices, T).
        """
        if self._gpu and given.is_tensor(X):
            return self._on_gpu(X, mask)
        X = samples.numbers(X, "X")
        T = X.shape[1] if X.ndim == 3 else 0
        X = self._sized(X, (len(self), T, self.widest), "(devices, T, n)")
        sent = np.ones((len(self), T), bool)
        if mask is not None:
            sent = given.mask_of(np.asarray(mask), sent.shape, "row")
        devices = np.repeat(np.arange(len(self)), T)
        return self._spread(X.reshape(-1, self.widest), devices, np.flatnonzero(sent), details)

    def observe_rows(
        self,
        devices: Any,
        X: Any,
        *,
        times: Array | None = None,
        pause: Array | None = None,
        details: Details = "alarms",
    ) -> FleetVerdicts:
        """Return the verdicts on rows, (rows, n), of the devices given, (rows,).

        A device may have any number of rows; they are taken in their order. With `times`, in
        seconds since 1970, new devices learn patterns of day and week. Where `pause` is True a row
        is judged and not learned.
        """
        devices = np.asarray(devices)
        if devices.ndim != 1 or devices.dtype.kind not in "iu":
            raise TypeError(f"devices must be one whole number per row, got {devices!r:.60}")
        for device in np.unique(devices[(devices < 0) | (devices >= len(self))])[:1]:
            raise IndexError(f"there is no device {device}: the bank has {len(self)}")
        X = self._sized(X, (len(devices), self.widest), "(rows, n)")
        for name, column in (("times", times), ("pause", pause)):
            if column is not None and column.shape != devices.shape:
                raise ValueError(f"{name} must have {len(devices)} entries, got {column.shape}")
        if times is not None and not (np.abs(times) <= LATEST * DAY).all():
            raise ValueError("times must be seconds since 1970")
        order = np.argsort(devices, kind="stable")
        if pause is None or not pause.any():
            return self._spread(X, devices, order, details, times)
        # A device is paused in a call, or not: where that changes, another call begins.
        X, own, paused = self._checked(X, devices), devices[order], self.paused.copy()
        call = np.cumsum(np.diff(pause[order], prepend=False))
        call -= call[np.searchsorted(own, own)]
        said = FleetVerdicts(devices, self._names, self._rate, self.widest)
        try:
            for number in range(int(call.max()) + 1):
                part = order[call == number]
                some, when = devices[part], None if times is None else times[part]
                self.paused[some] = paused[some] | pause[part]
                said.put(part, self._spread(X[part], some, np.arange(len(part)), details, when))
        finally:
            self.paused = paused
        return said

    # -- inside --------------------------------------------------------------------------------

    def _sized(self, rows: Any, shape: tuple[int, ...], what: str) -> Array:
        X: Array = np.ascontiguousarray(samples.numbers(rows, "X"), "float64")
        if X.shape != shape:
            raise ValueError(f"X must have shape {what}, here {shape}; got {X.shape}")
        return X

    def _spread(
        self, X: Array, devices: Array, order: Array, details: Details, times: Array | None = None
    ) -> FleetVerdicts:
        """Return verdicts on the rows of `X`, of which those in `order` are there, by device."""
        samples.choice("details", details, DETAILS)
        whole = len(order) == len(X) and bool((order[1:] > order[:-1]).all())
        rows, own = (X, devices) if whole else (X[order], devices[order])
        rows = self._checked(rows, own)
        if times is None and self._single and np.isin(own, self.timed).any():
            raise ValueError("devices have learned patterns of time: give `times` to observe_rows")
        found = FleetVerdicts(own, self._names, self._rate, self.widest)
        if len(order):
            self._step(rows, own, found, details, times if times is None else times[order])
        if whole:
            return found
        said = FleetVerdicts(devices, self._names, self._rate, self.widest)
        said.put(order, found)
        return said

    def _checked(self, X: Array, devices: Array) -> Array:
        """Refuse what is no measurement; what a device has no feature for is not looked at."""
        if len(self.shapes) > 1:
            X = np.where(np.arange(self.widest) < self._width[devices][:, None], X, np.nan)
        bad = np.abs(X) > LARGEST  # never true of NaN
        if np.count_nonzero(bad):
            _refuse(np.unique(devices[np.argwhere(bad)[:, 0]]).tolist(), float(X[bad][0]))
        return X

    def _step(
        self, X: Array, devices: Array, said: FleetVerdicts, details: Details, times: Array | None
    ) -> None:
        """Judge rows, sorted by device."""
        first = np.flatnonzero(np.concatenate(([True], devices[1:] != devices[:-1])))
        own, counts = devices[first], np.diff(np.append(first, len(devices)))
        self._seen[own] += counts
        if not self._single:
            self._judge(own, counts, X, said, details)
            return
        single = [self._single.get(device) for device in own.tolist()]
        alone = np.zeros(len(own), bool)  # they have not started, or may start anew
        for k, monitor in enumerate(single):
            if monitor is None:
                continue
            monitor.paused = bool(self.paused[own[k]])
            alone[k] = self._apart or monitor.beside(int(counts[k])) is None
        at = np.flatnonzero(np.repeat(~alone, counts))
        others = FleetVerdicts(devices[at], self._names, self._rate, self.widest)
        if len(at):
            self._judge(own[~alone], counts[~alone], X[at], others, details)
            said.put(at, others)
        for k, monitor in enumerate(single):
            if monitor is None:
                continue
            begin, n = int(first[k]), int(self._width[own[k]])
            end = begin + int(counts[k])
            rows = np.ascontiguousarray(X[begin:end, :n])
            if alone[k]:
                untimed = times is None or (monitor.n_seen and not monitor.timed)
                when = None if times is None or untimed else times[begin:end]
                said.take(np.arange(begin, end), monitor.observe_many(rows, times=when), details)
            else:
                monitor.judged(rows, said.learned[begin:end], bool(said.drift[end - 1]))
            self._watching[own[k]] = monitor.beside(0)
            if not (monitor.young or monitor.timed or monitor.widened):
                self._grown_up(int(own[k]))

    def _judge(
        self, own: Array, counts: Array, X: Array, said: FleetVerdicts, details: Details
    ) -> None:
        """Judge rows of devices that have started."""
        if self._gpu:
            self._judge_there(own, counts, X, said, details)
            return
        all_of_them = len(own) == len(self)
        monitors = self._watching if all_of_them else [self._watching[at] for at in own.tolist()]
        widths = self._width[own]
        if len(self.shapes) > 1:
            flat = X[np.arange(self.widest) < np.repeat(widths, counts)[:, None]]
        else:
            flat = X.ravel()
        rows, wide = compiled.watch_fleet(
            monitors, counts, widths, flat, paused=self.paused[own], said=said,
            detailed=DETAILS.index(details), threads=self.threads or usable_cores(),
        )  # fmt: skip
        said.detailed, said.values, said.wide = rows, X[rows], wide

    def _judge_there(
        self, own: Array, counts: Array, X: Array, said: FleetVerdicts, details: Details
    ) -> None:
        """Judge rows on the GPU."""
        most, n = int(counts.max()), self.widest
        there = np.arange(most) < counts[:, None]
        whole = bool(there.all())
        rows = X.reshape(-1, most, n) if whole else np.full((len(own), most, n), np.nan)
        if not whole:
            rows[there] = X
        assert self._gpu
        which = "all" if details == "all" else "alarms"
        found = self._gpu.watch(own, rows, None if whole else counts, self.paused[own], which)
        for name in ON_GPU:
            getattr(said, name)[:] = getattr(found, name).cpu().numpy()[there]
        said.ready[:] = True
        if details != "none":
            row, said.wide = (each.cpu().numpy() for each in found.details)
            said.detailed = (np.cumsum(there.ravel()) - 1)[row]
            said.values = X[said.detailed]

    def _on_gpu(self, X: Any, mask: Any) -> Said:
        """Return the verdicts on a tensor, (devices, T, n), as tensors."""
        assert self._gpu
        if self._single:
            raise ValueError(
                f"{len(self._single)} devices have not started, or are young, and are watched on "
                "the processor, as are those with times or later features. Give arrays"
            )
        shape = (len(self), X.shape[1] if X.ndim == 3 else 0, self.widest)
        if tuple(X.shape) != shape:
            raise ValueError(f"X must have shape (devices, T, n), here {shape}; got {X.shape}")
        bad = X.abs() > LARGEST
        if bool(bad.any()):
            _refuse(bad.flatten(1).any(1).nonzero()[:, 0].tolist(), float(X[bad][0]))
        places = np.arange(len(self))
        if mask is None:
            self._seen += shape[1]
            return self._gpu.watch(places, X, None, self.paused, "alarms")
        mask = mask.cpu() if given.is_tensor(mask) else mask
        sent = given.mask_of(np.asarray(mask), shape[:2], "row")
        self._seen += sent.sum(axis=1)
        return self._gpu.watch_some(places, X, sent, self.paused, "alarms")


def _refuse(devices: list[int], value: float) -> NoReturn:
    """Say which devices sent what is no measurement."""
    raise ValueError(
        f"devices {samples.listed(devices, NAMED)} sent what is no measurement, such as {value}. "
        "No device has changed"
    )
