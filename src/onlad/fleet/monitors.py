"""`MonitorBank`: the monitors of many devices, whose rows are judged by one call."""

from __future__ import annotations

import copy
import os
from typing import Any

import numpy as np

from onlad import compiled, kernel, samples
from onlad.fleet import monitorsfile
from onlad.fleet.host import usable_cores
from onlad.monitor import Monitor, MonitorSettings, MonitorState
from onlad.reference import Array
from onlad.rows import LARGEST, Names
from onlad.verdict import Verdicts

NAMED = 5  # devices that a message names
COLUMNS = tuple(vars(Verdicts((), 0)).keys() - {"names"})


class MonitorBank:
    """Monitors of devices with the same features, each of which watches its own stream.

    What it says is what a loop of `Monitor.observe` says, to the last bit. A bank is for one
    caller at a time.

    Parameters
    ----------
    monitor
        How all devices start: fresh, or with what it has learned.
    devices
        How many.
    names
        Of the features; needed if `monitor` has seen nothing.
    threads
        By default as many as this process has cores. Results do not depend on it.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> bank = MonitorBank(Monitor().fit(rng.normal(size=(500, 2))), devices=1000)
    >>> X = rng.normal(size=(1000, 2))                      # one row per device
    >>> X[7] = 30.0, -30.0
    >>> verdicts = bank.observe(X)
    >>> np.flatnonzero(verdicts.is_anomaly).tolist()
    [7]
    >>> sent = np.arange(1000) != 3                         # device 3 is silent
    >>> bank.observe(X, sent).ready[2:5].tolist(), bank.n_seen[2:5].tolist()
    ([True, False, True], [502, 501, 502])
    >>> monitor = bank[7]                        # a copy; and back by bank[7] = monitor
    """

    def __init__(
        self,
        monitor: Monitor,
        devices: int,
        *,
        names: Names | None = None,
        threads: int | None = None,
    ) -> None:
        if not isinstance(monitor, Monitor):
            raise TypeError(f"monitor must be a Monitor, got {monitor!r:.60}")
        self.threads = None if threads is None else samples.whole("threads", threads, 1)
        self.names: Names = tuple(names or monitor.names)
        if not self.names:
            raise ValueError("names are needed: the monitor has seen nothing yet")
        self.paused: Array = np.zeros(
            0, bool
        )  # by device: its rows are judged, and none is learned
        self._seen: Array = np.zeros(0, "int64")
        self._settings: list[MonitorSettings] = []
        self._watching: list[kernel.Watching | None] = []
        self._young: dict[int, Monitor] = {}  # devices that have not started, or are young
        self._start = self._fitting(monitor)
        self.grow(samples.whole("devices", devices, 0))

    # -- rows -------------------------------------------------------------------------------

    def observe(self, X: Any, mask: Any = None) -> Verdicts:
        """Return the verdicts on one row per device, (devices, n), and learn what is normal.

        NaN is a missing value. Where `mask` is False there is no row: its verdict is not ready, and
        its device stays as it is.

        Raises
        ------
        ValueError
            `X` or `mask` does not fit, or devices sent what is no measurement. The message names
            them, and no device has changed.
        """
        X = self._checked(X, (len(self), len(self.names)), "(devices, n)")
        sent = np.ones(len(self), bool) if mask is None else _checked_mask(mask, (len(self),))
        at = np.flatnonzero(sent)
        return self._spread(X, at, at)

    def observe_many(self, X: Any, mask: Any = None) -> Verdicts:
        """Return the verdicts on T rows per device, (devices, T, n); the same as T calls.

        Row t of device i is verdict i * T + t. `mask` has shape (devices,) or (devices, T).
        """
        X = samples.numbers(X, "X")
        T = X.shape[1] if X.ndim == 3 else 0
        X = self._checked(X, (len(self), T, len(self.names)), "(devices, T, n)")
        sent = np.ones((len(self), T), bool)
        if mask is not None:
            mask = _checked_mask(mask, (len(self),), (len(self), T))
            sent = np.broadcast_to(mask.reshape(len(self), -1), sent.shape)
        at = np.flatnonzero(sent)
        return self._spread(X.reshape(-1, len(self.names)), at, at // max(T, 1))

    def observe_rows(self, devices: Any, X: Any) -> Verdicts:
        """Return the verdicts on rows, (rows, n), of the devices given, (rows,).

        A device may have any number of rows; they are taken in their order.
        """
        devices = np.asarray(devices)
        if devices.ndim != 1 or devices.dtype.kind not in "iu":
            raise TypeError(f"devices must be one whole number per row, got {devices!r:.60}")
        for device in np.unique(devices[(devices < 0) | (devices >= len(self))])[:1]:
            raise IndexError(f"there is no device {device}: the bank has {len(self)}")
        X = self._checked(X, (len(devices), len(self.names)), "(rows, n)", devices)
        order = np.argsort(devices, kind="stable")
        return self._spread(X, order, devices[order])

    # -- looking ----------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._watching)

    @property
    def n_seen(self) -> Array:
        """Rows seen, by device."""
        return np.array(self._seen)

    @property
    def ready(self) -> Array:
        """Whether a device has started, by device."""
        started = [each is not None for each in self._watching]
        for at, monitor in self._young.items():
            started[at] = monitor.describe()["ready"]
        return np.array(started, bool)

    def __repr__(self) -> str:
        return f"MonitorBank(devices={len(self)}, names={self.names!r:.60})"

    # -- monitors in and out ----------------------------------------------------------------

    def __getitem__(self, device: int) -> Monitor:
        """Return a copy of one device's monitor."""
        at = self._place(device)
        own = self._watching[at]
        if own is None:
            monitor = copy.deepcopy(self._young[at])
        else:
            state = MonitorState(self.names, int(self._seen[at]), watching=compiled.learned(own))
            monitor = Monitor.resumed(self._settings[at], state)
        monitor.paused = bool(self.paused[at])
        return monitor

    def __setitem__(self, device: int, monitor: Monitor) -> None:
        """Replace one device's monitor by a copy of another; a fresh one starts it from nothing."""
        at = self._place(device)
        self._put(at, self._fitting(monitor), monitor.learned())
        self.paused[at] = monitor.paused

    def grow(self, devices: int = 1, monitor: Monitor | None = None) -> None:
        """Add devices at the end, which start as `monitor`, by default as the first ones did."""
        count = samples.whole("devices", devices, 0)
        start = self._start if monitor is None else self._fitting(monitor)
        before = len(self)
        self._watching += [None] * count
        self._settings += [start.settings()] * count
        self._seen = np.append(self._seen, np.zeros(count, "int64"))
        self.paused = np.append(self.paused, np.zeros(count, bool))
        state = start.learned()
        for at in range(before, before + count):
            self._put(at, start, state)

    def remove(self, devices: Any) -> None:
        """Take devices out, by their indices. Those after them move up."""
        gone = {self._place(device) for device in np.atleast_1d(np.asarray(devices)).tolist()}
        kept = [at for at in range(len(self)) if at not in gone]
        self._watching = [self._watching[at] for at in kept]
        self._settings = [self._settings[at] for at in kept]
        self._seen, self.paused = self._seen[kept], self.paused[kept]
        self._young = {new: self._young[at] for new, at in enumerate(kept) if at in self._young}

    # -- files ------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all monitors to the file `path`, whole or not at all, as `onlad.save` does."""
        monitors = [self._start, *(self[at] for at in range(len(self)))]
        monitorsfile.save(path, self.names, monitors, self.paused)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, threads: int | None = None) -> MonitorBank:
        """Return the bank in the file `path`; it goes on to the last bit as the saved one would.

        Raises
        ------
        ModelFileError
            The file is not onlad's, is damaged, or holds no valid bank. The message says which.
        """
        names, monitors, paused = monitorsfile.load(path)
        bank = cls(monitors[0], 0, names=names, threads=threads)
        for monitor in monitors[1:]:
            bank.grow(1, monitor)
        bank.paused = paused
        return bank

    # -- inside -----------------------------------------------------------------------------

    def _fitting(self, monitor: Monitor) -> Monitor:
        """Return a copy of a monitor that watches these features."""
        if monitor.widened:
            raise ValueError("a bank has one number of features: none may have come later")
        if monitor.timed:
            raise ValueError("a bank has no times: its monitors learn no patterns of day and week")
        if not isinstance(monitor, Monitor):
            raise TypeError(f"monitor must be a Monitor, got {monitor!r:.60}")
        if monitor.names not in ((), self.names):
            raise ValueError(f"the bank has the features {self.names!r:.60}, got {monitor.names}")
        return Monitor.resumed(monitor.settings(), monitor.learned(), self.names)

    def _put(self, at: int, start: Monitor, state: MonitorState | None) -> None:
        """Let a device go on from `start`, which has learned `state`."""
        settings = start.settings()
        self._young.pop(at, None)
        self._settings[at], self._seen[at] = settings, start.n_seen
        if state is None or state.watching is None or state.warming is not None:
            self._watching[at] = None
            self._young[at] = copy.deepcopy(start)
        else:
            rate, seed = settings.false_alarms, settings.seed
            self._watching[at] = compiled.resumed(state.watching, rate, seed, self.names)

    def _place(self, device: Any) -> int:
        if not isinstance(device, (int, np.integer)):
            raise TypeError(f"a device is named by its index, got {device!r:.60}")
        if not -len(self) <= device < len(self):
            raise IndexError(f"there is no device {device}: the bank has {len(self)}")
        return int(device) % len(self)

    def _checked(
        self, given: Any, shape: tuple[int, ...], what: str, devices: Array | None = None
    ) -> Array:
        X: Array = np.ascontiguousarray(samples.numbers(given, "X"), "float64")
        if X.shape != shape:
            raise ValueError(f"X must have shape {what}, here {shape}; got {X.shape}")
        bad = np.abs(X) > LARGEST  # never true of NaN
        if np.count_nonzero(bad):
            rows = np.argwhere(bad)[:, 0]
            found = np.unique(rows if devices is None else devices[rows])
            more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
            raise ValueError(
                f"devices {', '.join(map(str, found[:NAMED]))}{more} sent what is no measurement, "
                f"such as {X[bad][0]}. No device has changed"
            )
        return X

    def _spread(self, X: Array, at: Array, devices: Array) -> Verdicts:
        """Return verdicts on the rows of `X`; those `at`, in the order of `devices`, are there."""
        whole = len(at) == len(X) and bool((at[1:] > at[:-1]).all())
        found = Verdicts(self.names, len(at))
        if len(at):
            self._step(X if whole else X[at], devices, found)
        if whole:
            return found
        said = Verdicts(self.names, len(X))
        said.learned[:] = False
        _scatter(said, at, found)
        return said

    def _step(self, X: Array, devices: Array, verdicts: Verdicts) -> None:
        """Judge rows, sorted by device."""
        first = np.flatnonzero(np.concatenate(([True], devices[1:] != devices[:-1])))
        own, counts = devices[first], np.diff(np.append(first, len(devices)))
        self._seen[own] += counts
        if self._young:
            waits = np.array([device in self._young for device in own.tolist()])
            for k in np.flatnonzero(waits).tolist():
                at = np.arange(first[k], first[k] + counts[k])
                _scatter(verdicts, at, self._warm_up(int(own[k]), X[at]))
            if waits.any():
                at = np.flatnonzero(np.repeat(~waits, counts))
                rest = Verdicts(self.names, len(at))
                self._judge(own[~waits], counts[~waits], X[at], rest)
                _scatter(verdicts, at, rest)
                return
        self._judge(own, counts, X, verdicts)

    def _judge(self, own: Array, counts: Array, X: Array, verdicts: Verdicts) -> None:
        all_of_them = len(own) == len(self)
        monitors = self._watching if all_of_them else [self._watching[at] for at in own.tolist()]
        threads = self.threads or usable_cores()
        compiled.watch_all(monitors, counts, X, self.paused[own], verdicts, threads=threads)

    def _warm_up(self, device: int, X: Array) -> Verdicts:
        monitor = self._young[device]
        monitor.paused = bool(self.paused[device])
        said = monitor.observe_many(X)
        if not monitor.young:
            self._watching[device] = monitor._watching
            del self._young[device]
        return said


def _scatter(to: Verdicts, at: Array, found: Verdicts) -> None:
    """Put verdicts into their places among others."""
    for name in COLUMNS:
        getattr(to, name)[at] = getattr(found, name)


def _checked_mask(given: Any, *shapes: tuple[int, ...]) -> Array:
    mask: Array = np.asarray(given)
    if mask.dtype != bool:
        raise TypeError(f"mask must hold bools, True where there is a row; got {mask.dtype}")
    if mask.shape not in shapes:
        wanted = " or ".join(map(str, shapes))
        raise ValueError(f"mask must have shape {wanted}, got {mask.shape}")
    return mask
