"""`MonitorBank`: the monitors of many devices, whose rows are judged by one call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np

from onlad import compiled, kernel, modelfile, samples
from onlad.errors import OnladError
from onlad.fleet import monitorsfile
from onlad.fleet.host import usable_cores
from onlad.fleet.verdicts import DETAILS, Details, FleetVerdicts
from onlad.modelfile import refusal
from onlad.monitor import Monitor, MonitorSettings, MonitorState
from onlad.reference import Array
from onlad.rows import LARGEST, Names
from onlad.severity import POINTS, TAIL
from onlad.watching import WatchingState

if TYPE_CHECKING:
    from onlad.fleet.tensors.bank import TensorMonitors
    from onlad.fleet.tensors.said import Said

NAMED = 5  # devices that a message names
ON_GPU = ("score", "threshold", "p_value", "is_anomaly", "learned", "drift", "drifting")


class MonitorBank:
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
        ``cpu``, or ``cuda`` for an NVIDIA GPU (extra ``gpu``), where all devices have the same
        features. Devices that have not started, or are young, are watched on the processor until
        then.
    threads
        On the processor; by default as many as this process has cores. Results do not depend on it.

    Attributes
    ----------
    names
        Features of a device, unless `grow` was told others.
    shapes
        Features of all kinds of devices.
    widest
        Columns of rows: features of the kind that has most. Others have the first ones.
    paused
        By device: its rows are judged, and none is learned.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> bank = MonitorBank(Monitor().fit(rng.normal(size=(500, 2))), devices=1000)
    >>> X = rng.normal(size=(1000, 2))                      # one row per device
    >>> X[7] = 30.0, -30.0
    >>> verdicts = bank.observe(X)
    >>> np.flatnonzero(verdicts.is_anomaly).tolist(), verdicts[7].severity > 50
    ([7], True)
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
        self.paused: Array = np.zeros(0, bool)
        self._seen: Array = np.zeros(0, "int64")
        self._rate: Array = np.zeros(0)
        self._names: list[Names] = []
        self._settings: list[MonitorSettings] = []
        self.device = device
        self._gpu = _gpu(device, len(self.names))
        # On a GPU, of devices that are young alone.
        self._watching: list[kernel.Watching | None] = []
        self._young: dict[int, Monitor] = {}  # devices that have not started, or are young
        self._start = _copy(monitor, self.names)
        self.grow(samples.whole("devices", devices, 0))

    # -- rows -------------------------------------------------------------------------------

    def observe(self, X: Any, mask: Any = None, *, details: Details = "alarms") -> Any:
        """Return the verdicts on one row per device, (devices, n), and learn what is normal.

        NaN is a missing value. A device with fewer features than others has the first columns.
        Where `mask` is False there is no row: its verdict is not ready, and its device stays as it
        is. `details`, causes and expected values, are wide: they are there for alarms, for all
        rows, or for none. Arrays give `FleetVerdicts`. On a GPU a tensor gives
        `onlad.fleet.tensors.said.Said`: tensors, with the details of alarms.

        Raises
        ------
        ValueError
            `X` or `mask` does not fit, or devices sent what is no measurement. The message names
            them, and no device has changed.
        """
        if self._gpu and _is_tensor(X):
            return self._on_gpu(X[:, None] if X.ndim == 2 else X, mask)
        X = self._sized(X, (len(self), self.widest), "(devices, n)")
        sent = np.ones(len(self), bool) if mask is None else _checked_mask(mask, (len(self),))
        return self._spread(X, np.arange(len(self)), np.flatnonzero(sent), details)

    def observe_many(self, X: Any, mask: Any = None, *, details: Details = "alarms") -> Any:
        """Return the verdicts on T rows per device, (devices, T, n); the same as T calls.

        Row t of device i is verdict i * T + t. `mask` has shape (devices,) or (devices, T).
        """
        if self._gpu and _is_tensor(X):
            return self._on_gpu(X, mask)
        X = samples.numbers(X, "X")
        T = X.shape[1] if X.ndim == 3 else 0
        X = self._sized(X, (len(self), T, self.widest), "(devices, T, n)")
        sent = np.ones((len(self), T), bool)
        if mask is not None:
            mask = _checked_mask(mask, (len(self),), (len(self), T))
            sent = np.broadcast_to(mask.reshape(len(self), -1), sent.shape)
        devices = np.repeat(np.arange(len(self)), T)
        return self._spread(X.reshape(-1, self.widest), devices, np.flatnonzero(sent), details)

    def observe_rows(self, devices: Any, X: Any, *, details: Details = "alarms") -> FleetVerdicts:
        """Return the verdicts on rows, (rows, n), of the devices given, (rows,).

        A device may have any number of rows; they are taken in their order.
        """
        devices = np.asarray(devices)
        if devices.ndim != 1 or devices.dtype.kind not in "iu":
            raise TypeError(f"devices must be one whole number per row, got {devices!r:.60}")
        for device in np.unique(devices[(devices < 0) | (devices >= len(self))])[:1]:
            raise IndexError(f"there is no device {device}: the bank has {len(self)}")
        X = self._sized(X, (len(devices), self.widest), "(rows, n)")
        return self._spread(X, devices, np.argsort(devices, kind="stable"), details)

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
        started = np.ones(len(self), bool)
        for at, monitor in self._young.items():
            started[at] = monitor.beside(0) is not None
        return started

    @property
    def young(self) -> list[int]:
        """Devices that have not started, or are young: in them a lasting change is a start."""
        return sorted(self._young)

    def names_of(self, device: int) -> Names:
        """Return the features of a device, in the order of its columns."""
        return self._names[self._place(device)]

    def __repr__(self) -> str:
        return f"MonitorBank(devices={len(self)}, names={self.names!r:.60})"

    # -- monitors in and out ----------------------------------------------------------------

    def __getitem__(self, device: int) -> Monitor:
        """Return a copy of one device's monitor."""
        at = self._place(device)
        monitor = Monitor.resumed(self._settings[at], self._state(at), self._names[at])
        monitor.paused = bool(self.paused[at])
        return monitor

    def __setitem__(self, device: int, monitor: Monitor) -> None:
        """Replace one device's monitor by a copy of another; a fresh one starts it from nothing."""
        at = self._place(device)
        start = _copy(monitor, self._names[at])
        self._put([at], start.settings(), start.learned())
        self.paused[at] = monitor.paused

    def grow(
        self, devices: int = 1, monitor: Monitor | None = None, names: Names | None = None
    ) -> None:
        """Add devices at the end, which start as `monitor`, by default as the first ones did.

        They have its features. A monitor that has seen nothing has `names`, by default those of
        the bank.
        """
        count = samples.whole("devices", devices, 0)
        start = self._start
        if monitor is not None:
            start = _copy(monitor, tuple(names or getattr(monitor, "names", ()) or self.names))
        settings, state = start.settings(), start.learned()
        self._add([settings] * count, [state] * count, [start.names] * count)

    def remove(self, devices: Any) -> None:
        """Take devices out, by their indices. Those after them move up."""
        gone = {self._place(device) for device in np.atleast_1d(np.asarray(devices)).tolist()}
        kept = [at for at in range(len(self)) if at not in gone]
        self._watching = [self._watching[at] for at in kept]
        if self._gpu:
            self._gpu.keep(kept)
        self._settings = [self._settings[at] for at in kept]
        self._names = [self._names[at] for at in kept]
        self._seen, self.paused, self._rate = (
            array[kept] for array in (self._seen, self.paused, self._rate)
        )
        self._young = {new: self._young[at] for new, at in enumerate(kept) if at in self._young}
        self._sort()

    # -- files ------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all monitors to the file `path`, whole or not at all, as `onlad.save` does."""
        modelfile.replace(path, modelfile.pieces(monitorsfile.tree(self._saved())))

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
        data = modelfile.read(path, monitorsfile.LARGEST_BANK)
        return cls._made(data, path, trusted=False, device=device, threads=threads)

    def to_bytes(self) -> bytes:
        """Return what `save` would write, for a place that is no file."""
        return modelfile.encode(monitorsfile.tree(self._saved()))

    @classmethod
    def from_bytes(
        cls,
        data: bytes,
        name: str = "the data",
        *,
        threads: int | None = None,
        trusted: bool = False,
    ) -> MonitorBank:
        """Return the bank in `data`, as `load` does; `name` is what an error calls it.

        With `trusted` a right checksum is enough: that is for a store that nobody else writes.
        """
        return cls._made(modelfile.check(data, name), name, trusted=trusted, threads=threads)

    def __reduce__(self) -> tuple[Any, ...]:
        return _copied, (self.to_bytes(), self.device, self.threads)

    # -- inside -----------------------------------------------------------------------------

    @classmethod
    def _made(
        cls, data: bytes, name: str | os.PathLike[str], *, trusted: bool, **options: Any
    ) -> MonitorBank:
        try:
            saved = monitorsfile.parse(data, trusted=trusted)
            start = Monitor.resumed(saved.settings[0], saved.states[0], saved.features[0])
            bank = cls(start, 0, names=saved.names, **options)
            bank._add(saved.settings[1:], saved.states[1:], saved.features[1:])
        except modelfile.FAULTS as error:
            raise refusal(name, f"holds no valid bank: {error}. Save the bank again") from None
        bank.paused = saved.paused
        return bank

    def _saved(self) -> monitorsfile.Saved:
        start = self._start
        return monitorsfile.Saved(
            self.names,
            [start.settings(), *self._settings],
            [start.learned(), *(self._state(at) for at in range(len(self)))],
            [start.names, *self._names],
            self.paused,
        )

    def _state(self, at: int) -> MonitorState | None:
        """Return what a device has learned."""
        if at in self._young:
            return self._young[at].learned()
        own = self._watching[at]
        if self._gpu:
            watching = self._gpu.learned(at)
        else:
            assert own is not None
            watching = compiled.learned(own)
        return MonitorState(self._names[at], int(self._seen[at]), watching=watching)

    def _add(
        self,
        settings: Sequence[MonitorSettings],
        states: Sequence[MonitorState | None],
        names: Sequence[Names],
    ) -> None:
        """Add devices."""
        if self._gpu and any(each != self.names for each in names):
            raise ValueError(f"on a GPU all devices have the features {self.names!r:.60}")
        before, count = len(self), len(settings)
        self._watching += [None] * count
        self._settings += settings
        self._names += names
        self._seen = np.append(self._seen, np.zeros(count, "int64"))
        self.paused = np.append(self.paused, np.zeros(count, bool))
        self._rate = np.append(self._rate, np.zeros(count))
        if self._gpu:
            self._gpu.grow(count)
        alike = groupby(enumerate(zip(settings, states, strict=True), before), _identity)
        for _, group in alike:
            places, pairs = zip(*group, strict=True)
            self._put(places, *pairs[0])
        self._sort()

    def _put(
        self, places: Sequence[int], settings: MonitorSettings, state: MonitorState | None
    ) -> None:
        """Let devices go on from what was learned."""
        young = state is None or state.watching is None or state.warming is not None
        for at in places:
            self._young.pop(at, None)
            self._settings[at], self._rate[at] = settings, settings.false_alarms
            self._seen[at] = 0 if state is None else state.n_seen
            self._watching[at] = None
            if young:
                self._young[at] = Monitor.resumed(settings, state, self._names[at])
                self._watching[at] = self._young[at].beside(0)
        if state is not None and state.watching is not None and not young:
            self._go_on(places, state.watching, settings)
        elif self._gpu and len(places):
            self._gpu.release(np.array(places))

    def _go_on(
        self, places: Sequence[int], state: WatchingState, settings: MonitorSettings
    ) -> None:
        """Let devices that are not young go on from a state."""
        if self._gpu:
            self._gpu.put(np.array(places), state, settings)
            return
        for at in places:
            rate, seed = settings.false_alarms, settings.seed
            self._watching[at] = compiled.resumed(state, rate, seed, self._names[at])

    def _sort(self) -> None:
        """Note which kinds of devices there are."""
        self.shapes: tuple[Names, ...] = tuple(dict.fromkeys(self._names)) or (self.names,)
        self._width: Array = np.array([len(names) for names in self._names], "int64")
        self.widest = max(map(len, self.shapes))

    def _place(self, device: Any) -> int:
        if not isinstance(device, (int, np.integer)):
            raise TypeError(f"a device is named by its index, got {device!r:.60}")
        if not -len(self) <= device < len(self):
            raise IndexError(f"there is no device {device}: the bank has {len(self)}")
        return int(device) % len(self)

    def _sized(self, given: Any, shape: tuple[int, ...], what: str) -> Array:
        X: Array = np.ascontiguousarray(samples.numbers(given, "X"), "float64")
        if X.shape != shape:
            raise ValueError(f"X must have shape {what}, here {shape}; got {X.shape}")
        return X

    def _spread(self, X: Array, devices: Array, order: Array, details: Details) -> FleetVerdicts:
        """Return verdicts on the rows of `X`, of which those in `order` are there, by device."""
        samples.choice("details", details, DETAILS)
        whole = len(order) == len(X) and bool((order[1:] > order[:-1]).all())
        rows, own = (X, devices) if whole else (X[order], devices[order])
        rows = self._checked(rows, own)
        found = FleetVerdicts(own, self._names, self._rate, self.widest)
        if len(order):
            self._step(rows, own, found, details)
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

    def _step(self, X: Array, devices: Array, said: FleetVerdicts, details: Details) -> None:
        """Judge rows, sorted by device."""
        first = np.flatnonzero(np.concatenate(([True], devices[1:] != devices[:-1])))
        own, counts = devices[first], np.diff(np.append(first, len(devices)))
        self._seen[own] += counts
        if not self._young:
            self._judge(own, counts, X, said, details)
            return
        young = [self._young.get(device) for device in own.tolist()]
        alone = np.zeros(len(own), bool)  # they have not started, or may start anew
        for k, monitor in enumerate(young):
            if monitor is None:
                continue
            monitor.paused = bool(self.paused[own[k]])
            alone[k] = self._gpu is not None or monitor.beside(int(counts[k])) is None
        at = np.flatnonzero(np.repeat(~alone, counts))
        others = FleetVerdicts(devices[at], self._names, self._rate, self.widest)
        if len(at):
            self._judge(own[~alone], counts[~alone], X[at], others, details)
            said.put(at, others)
        for k, monitor in enumerate(young):
            if monitor is None:
                continue
            begin, n = int(first[k]), int(self._width[own[k]])
            end = begin + int(counts[k])
            rows = np.ascontiguousarray(X[begin:end, :n])
            if alone[k]:
                said.take(np.arange(begin, end), monitor.observe_many(rows), details)
            else:
                monitor.judged(rows, bool(said.drift[end - 1]))
            self._watching[own[k]] = monitor.beside(0)
            if not monitor.young:
                self._grown_up(int(own[k]))

    def _grown_up(self, device: int) -> None:
        """Let a device that is no longer young go where the others are."""
        monitor = self._young.pop(device)
        if self._gpu:
            state = monitor.learned()
            assert state is not None
            assert state.watching is not None
            self._watching[device] = None
            self._go_on([device], state.watching, monitor.settings())

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
        most, n = int(counts.max()), len(self.names)
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
        place = np.cumsum(there.ravel()) - 1
        at = place[found.details.row.cpu().numpy()]
        around = found.details.around.cpu().numpy()
        said.unusual[at] = around[:, -1]
        ratio, rate = said.score / said.threshold, np.repeat(self._rate[own], counts)
        kernel.severities(ratio, said.p_value, said.unusual, rate, POINTS, TAIL, said.severity)
        if details != "none":
            shares = found.details.shares.cpu().numpy()
            said.detailed, said.values = at, X[at]
            said.wide = np.stack((shares, around[:, :n], around[:, n : 2 * n]), axis=1)

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


def _identity(pair: tuple[int, tuple[MonitorSettings, MonitorState | None]]) -> tuple[int, int]:
    """Return what tells how devices start apart."""
    settings, state = pair[1]
    return id(settings), id(state)


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


def _copied(data: bytes, device: str, threads: int | None) -> MonitorBank:
    """Return a bank that was pickled."""
    return MonitorBank._made(data, "the data", trusted=True, device=device, threads=threads)


def _copy(monitor: Monitor, names: Names) -> Monitor:
    """Return a copy of a monitor that watches these features."""
    if not isinstance(monitor, Monitor):
        raise TypeError(f"monitor must be a Monitor, got {monitor!r:.60}")
    if monitor.widened:
        raise ValueError("a bank has one number of features: none may have come later")
    if monitor.timed:
        raise ValueError("a bank has no times: its monitors learn no patterns of day and week")
    if monitor.names not in ((), names):
        raise ValueError(f"the device has the features {names!r:.60}, got {monitor.names}")
    return Monitor.resumed(monitor.settings(), monitor.learned(), names)


def _checked_mask(given: Any, *shapes: tuple[int, ...]) -> Array:
    mask: Array = np.asarray(given)
    if mask.dtype != bool:
        raise TypeError(f"mask must hold bools, True where there is a row; got {mask.dtype}")
    if mask.shape not in shapes:
        wanted = " or ".join(map(str, shapes))
        raise ValueError(f"mask must have shape {wanted}, got {mask.shape}")
    return mask
