"""`MonitorBank`: the monitors of many devices, whose rows are judged by one call."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np

from onlad import compiled, kernel, samples
from onlad.errors import OnladError
from onlad.fleet import monitorsfile
from onlad.fleet.host import usable_cores
from onlad.monitor import Monitor, MonitorSettings, MonitorState
from onlad.reference import Array
from onlad.rows import LARGEST, Names
from onlad.verdict import Verdicts
from onlad.watching import WatchingState

if TYPE_CHECKING:
    from onlad.fleet.tensors.bank import TensorMonitors
    from onlad.fleet.tensors.watchers import Said

NAMED = 5  # devices that a message names
NARROW = ("score", "threshold", "p_value", "is_anomaly", "learned", "drift", "drifting")
COLUMNS = tuple(vars(Verdicts((), 0)).keys() - {"names"})


class MonitorBank:
    """Monitors of devices with the same features, each of which watches its own stream.

    On the processor it says what a loop of `Monitor.observe` says, to the last bit; on a GPU
    within rounding. A bank is for one caller at a time.

    Parameters
    ----------
    monitor
        How all devices start: fresh, or with what it has learned.
    devices
        How many.
    names
        Of the features; needed if `monitor` has seen nothing.
    device
        ``cpu``, or ``cuda`` for an NVIDIA GPU (extra ``gpu``). Devices that have not started, or
        are young, are watched on the processor until then.
    threads
        On the processor; by default as many as this process has cores. Results do not depend on it.

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
        device: Literal["cpu", "cuda"] = "cpu",
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
        self.device = device
        self._gpu = _gpu(device, len(self.names))
        # On a GPU, of devices that are young alone.
        self._watching: list[kernel.Watching | None] = []
        self._young: dict[int, Monitor] = {}  # devices that have not started, or are young
        self._start = self._fitting(monitor)
        self.grow(samples.whole("devices", devices, 0))

    # -- rows -------------------------------------------------------------------------------

    def observe(self, X: Any, mask: Any = None) -> Any:
        """Return the verdicts on one row per device, (devices, n), and learn what is normal.

        NaN is a missing value. Where `mask` is False there is no row: its verdict is not ready, and
        its device stays as it is. On a GPU a tensor gives `onlad.fleet.tensors.watchers.Said`:
        tensors, with causes and expected values of the alarms alone.

        Raises
        ------
        ValueError
            `X` or `mask` does not fit, or devices sent what is no measurement. The message names
            them, and no device has changed.
        """
        if self._gpu and _is_tensor(X):
            return self._on_gpu(X[:, None] if X.ndim == 2 else X, mask)
        X = self._checked(X, (len(self), len(self.names)), "(devices, n)")
        sent = np.ones(len(self), bool) if mask is None else _checked_mask(mask, (len(self),))
        at = np.flatnonzero(sent)
        return self._spread(X, at, at)

    def observe_many(self, X: Any, mask: Any = None) -> Any:
        """Return the verdicts on T rows per device, (devices, T, n); the same as T calls.

        Row t of device i is verdict i * T + t. `mask` has shape (devices,) or (devices, T).
        """
        if self._gpu and _is_tensor(X):
            return self._on_gpu(X, mask)
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
        started = [True] * len(self)
        for at, monitor in self._young.items():
            started[at] = monitor.describe()["ready"]
        return np.array(started, bool)

    @property
    def young(self) -> list[int]:
        """Devices that have not started, or are young: in them a lasting change is a start."""
        return sorted(self._young)

    def __repr__(self) -> str:
        return f"MonitorBank(devices={len(self)}, names={self.names!r:.60})"

    # -- monitors in and out ----------------------------------------------------------------

    def __getitem__(self, device: int) -> Monitor:
        """Return a copy of one device's monitor."""
        at = self._place(device)
        if at in self._young:
            monitor = copy.deepcopy(self._young[at])
        else:
            state = MonitorState(self.names, int(self._seen[at]), watching=self._learned(at))
            monitor = Monitor.resumed(self._settings[at], state)
        monitor.paused = bool(self.paused[at])
        return monitor

    def __setitem__(self, device: int, monitor: Monitor) -> None:
        """Replace one device's monitor by a copy of another; a fresh one starts it from nothing."""
        at = self._place(device)
        self._put([at], self._fitting(monitor), monitor.learned())
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
        if self._gpu:
            self._gpu.grow(count)
        self._put(range(before, before + count), start, start.learned())

    def remove(self, devices: Any) -> None:
        """Take devices out, by their indices. Those after them move up."""
        gone = {self._place(device) for device in np.atleast_1d(np.asarray(devices)).tolist()}
        kept = [at for at in range(len(self)) if at not in gone]
        self._watching = [self._watching[at] for at in kept]
        if self._gpu:
            self._gpu.keep(kept)
        self._settings = [self._settings[at] for at in kept]
        self._seen, self.paused = self._seen[kept], self.paused[kept]
        self._young = {new: self._young[at] for new, at in enumerate(kept) if at in self._young}

    # -- files ------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all monitors to the file `path`, whole or not at all, as `onlad.save` does."""
        monitors = [self._start, *(self[at] for at in range(len(self)))]
        monitorsfile.save(path, self.names, monitors, self.paused)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        device: Literal["cpu", "cuda"] = "cpu",
        threads: int | None = None,
    ) -> MonitorBank:
        """Return the bank in the file `path`; it goes on to the last bit as the saved one would.

        Raises
        ------
        ModelFileError
            The file is not onlad's, is damaged, or holds no valid bank. The message says which.
        """
        names, monitors, paused = monitorsfile.load(path)
        bank = cls(monitors[0], 0, names=names, device=device, threads=threads)
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

    def _put(self, places: Sequence[int], start: Monitor, state: MonitorState | None) -> None:
        """Let devices go on from `start`, which has learned `state`."""
        settings = start.settings()
        for at in places:
            self._young.pop(at, None)
            self._settings[at], self._seen[at], self._watching[at] = settings, start.n_seen, None
            if state is None or state.watching is None or state.warming is not None:
                self._young[at] = copy.deepcopy(start)
        if state is not None and state.watching is not None and state.warming is None:
            self._go_on(places, state.watching, settings)
        elif self._gpu and len(places):
            self._gpu.release(np.array(places))

    def _go_on(
        self, places: Sequence[int], state: WatchingState, settings: MonitorSettings
    ) -> None:
        """Let devices that are not young go on from a state."""
        if not self._gpu:
            for at in places:
                rate, seed = settings.false_alarms, settings.seed
                self._watching[at] = compiled.resumed(state, rate, seed, self.names)
        elif len(places):
            self._gpu.put(np.array(places), state, settings)

    def _learned(self, at: int) -> WatchingState:
        """Return what a device that is not young has learned."""
        if self._gpu:
            return self._gpu.learned(at)
        own = self._watching[at]
        assert own is not None
        return compiled.learned(own)

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
            _refuse(found.tolist(), float(X[bad][0]))
        return X

    def _on_gpu(self, X: Any, mask: Any) -> Said:
        """Return the verdicts on a tensor, (devices, T, n), as tensors."""
        assert self._gpu
        if self._young:
            raise ValueError(
                f"{len(self._young)} devices have not started, or are young, and are watched on "
                "the processor. Give arrays until they are not in `young`"
            )
        shape = (len(self), X.shape[1] if X.ndim == 3 else 0, len(self.names))
        if tuple(X.shape) != shape:
            raise ValueError(f"X must have shape (devices, T, n), here {shape}; got {X.shape}")
        bad = X.abs() > LARGEST
        if bool(bad.any()):
            _refuse(bad.flatten(1).any(1).nonzero()[:, 0].tolist(), float(X[bad][0]))
        places = np.arange(len(self))
        counts: Array | None = None
        if mask is not None:
            sent = _checked_mask(mask.cpu().numpy() if _is_tensor(mask) else mask, (len(self),))
            counts = np.where(sent, shape[1], 0)
        self._seen += shape[1] if counts is None else counts
        return self._gpu.watch(places, X, counts, self.paused, "alarms")

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
        if self._gpu:
            self._judge_there(own, counts, X, verdicts)
            return
        all_of_them = len(own) == len(self)
        monitors = self._watching if all_of_them else [self._watching[at] for at in own.tolist()]
        threads = self.threads or usable_cores()
        compiled.watch_all(monitors, counts, X, self.paused[own], verdicts, threads=threads)

    def _judge_there(self, own: Array, counts: Array, X: Array, verdicts: Verdicts) -> None:
        """Judge rows on the GPU."""
        if not len(own):
            return
        most, n = int(counts.max()), len(self.names)
        there = np.arange(most) < counts[:, None]
        whole = bool(there.all())
        rows = X.reshape(-1, most, n) if whole else np.full((len(own), most, n), np.nan)
        if not whole:
            rows[there] = X
        assert self._gpu
        said = self._gpu.watch(own, rows, None if whole else counts, self.paused[own], "all")
        for name in NARROW:
            getattr(verdicts, name)[:] = getattr(said, name).cpu().numpy()[there]
        verdicts.ready[:], verdicts.values[:] = True, X
        verdicts.shares[:] = said.details.shares.cpu().numpy()
        verdicts.around[:] = said.details.around.cpu().numpy()
        rates = np.array([self._settings[at].false_alarms for at in own.tolist()])
        verdicts.rate[:] = np.repeat(rates, counts)

    def _warm_up(self, device: int, X: Array) -> Verdicts:
        monitor = self._young[device]
        monitor.paused = bool(self.paused[device])
        said = monitor.observe_many(X)
        if not monitor.young:
            state = monitor.learned()
            assert state is not None
            assert state.watching is not None
            del self._young[device]
            if self._gpu:
                self._go_on([device], state.watching, monitor.settings())
            else:
                self._watching[device] = monitor._watching
        return said


def _refuse(devices: list[int], value: float) -> NoReturn:
    """Say which devices sent what is no measurement."""
    more = f" and {len(devices) - NAMED} more" if len(devices) > NAMED else ""
    raise ValueError(
        f"devices {', '.join(map(str, devices[:NAMED]))}{more} sent what is no measurement, "
        f"such as {value}. No device has changed"
    )


def _is_tensor(given: Any) -> bool:
    return type(given).__module__.partition(".")[0] == "torch"


def _gpu(device: str, features: int) -> TensorMonitors | None:
    """Return where devices on a GPU are, if that is where they are."""
    if device == "cpu":
        return None
    if device != "cuda":
        raise ValueError(f"device must be cpu or cuda, got {device!r}")
    try:
        from onlad.fleet.tensors.bank import TensorMonitors  # noqa: PLC0415  (an extra)

        return TensorMonitors(features)
    except ImportError as error:
        missing = f"device='cuda' needs PyTorch ({error})"
        raise OnladError(f"{missing}: pip install 'onlad[gpu]'") from None
    except RuntimeError as error:
        raise OnladError(f"device='cuda' needs a GPU, but {error}. Use 'cpu'") from None


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
