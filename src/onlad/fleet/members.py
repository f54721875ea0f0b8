"""`Members`: the monitors of many devices, and how they come in and out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np

from onlad import compiled, modelfile, samples
from onlad._kernel import Packed
from onlad.fleet import given, monitorsfile
from onlad.modelfile import refusal
from onlad.monitor import Monitor, MonitorSettings, MonitorState
from onlad.reference import Array
from onlad.rows import Names
from onlad.verdict import Verdict
from onlad.watching import WatchingState

if TYPE_CHECKING:
    from onlad.fleet.tensors.bank import TensorMonitors

Own = TypeVar("Own", bound="Members")
Storage: TypeAlias = Literal["exact", "compact"]
STORAGES: tuple[Storage, ...] = ("exact", "compact")


class Members:
    """Monitors of many devices; `onlad.fleet.MonitorBank` takes their rows."""

    def __init__(
        self,
        monitor: Monitor,
        devices: int,
        *,
        names: Names | None = None,
        device: Literal["cpu", "cuda"] = "cpu",
        threads: int | None = None,
        storage: Storage = "exact",
    ) -> None:
        if not isinstance(monitor, Monitor):
            raise TypeError(f"monitor must be a Monitor, got {monitor!r:.60}")
        samples.choice("storage", storage, STORAGES)
        self.storage: Storage = storage
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
        self._gpu = _gpu(device)
        # A `_kernel.Watching`, or packed; on a GPU, of devices that are young alone.
        self._watching: list[Any] = []
        # Of devices that have not started or are young, that have times, or later features.
        self._single: dict[int, Monitor] = {}
        self._start = _copy(monitor, self.names)
        self.grow(samples.whole("devices", devices, 0))

    @property
    def _apart(self) -> bool:
        """Whether monitors are kept in another way than those that are `_single`."""
        return self._gpu is not None or self.storage == "compact"

    # -- looking -------------------------------------------------------------------------------

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
        for at, monitor in self._single.items():
            started[at] = monitor.beside(0) is not None or monitor.describe()["ready"]
        return started

    @property
    def young(self) -> list[int]:
        """Devices that have not started, or are young: in them a lasting change is a start."""
        return sorted(at for at, monitor in self._single.items() if monitor.young)

    @property
    def timed(self) -> list[int]:
        """Devices that have learned patterns of day and week: their rows have times."""
        return sorted(at for at, monitor in self._single.items() if monitor.timed)

    def names_of(self, device: int) -> Names:
        """Return the features of a device, in the order of its columns."""
        return self._names[given.place(device, len(self), "device")]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(devices={len(self)}, names={self.names!r:.60})"

    # -- monitors in and out -------------------------------------------------------------------

    def __getitem__(self, device: int) -> Monitor:
        """Return a copy of one device's monitor."""
        at = given.place(device, len(self), "device")
        monitor = Monitor.resumed(self._settings[at], self._state(at), self._names[at])
        monitor.paused = bool(self.paused[at])
        return monitor

    def __setitem__(self, device: int, monitor: Monitor) -> None:
        """Replace one device's monitor by a copy of another; a fresh one starts it from nothing."""
        at = given.place(device, len(self), "device")
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

    def widen(self, device: int, names: Names) -> None:
        """Let a device watch more features from its next row on, as `Monitor.widen` does."""
        at, monitor = given.place(device, len(self), "device"), self[device]
        monitor.widen(names)
        self._names[at] = monitor.names
        self._put([at], monitor.settings(), None)
        self._single[at], self._seen[at] = monitor, monitor.n_seen
        self._sort()

    def remove(self, devices: Any) -> None:
        """Take devices out, by their indices. Those after them move up."""
        kept = given.others(devices, len(self), "device")
        self._watching = [self._watching[at] for at in kept]
        if self._gpu:
            self._gpu.keep(kept)
        self._settings = [self._settings[at] for at in kept]
        self._names = [self._names[at] for at in kept]
        self._seen, self.paused, self._rate = (
            array[kept] for array in (self._seen, self.paused, self._rate)
        )
        self._single = {new: self._single[at] for new, at in enumerate(kept) if at in self._single}
        self._sort()

    # -- files ---------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all monitors to the file `path`, whole or not at all, as `onlad.save` does."""
        modelfile.replace(path, modelfile.pieces(monitorsfile.tree(self._saved())))

    @classmethod
    def load(
        cls: type[Own],
        path: str | os.PathLike[str],
        *,
        device: Literal["cpu", "cuda"] = "cpu",
        threads: int | None = None,
        storage: Storage = "exact",
    ) -> Own:
        """Return the bank in the file `path`; it goes on to the last bit as the saved one would.

        Raises
        ------
        ModelFileError
            The file is not onlad's, is damaged, or holds no valid bank. The message says which.
        """
        data = modelfile.read(path, monitorsfile.LARGEST_BANK)
        return cls._made(data, path, trusted=False, device=device, threads=threads, storage=storage)

    def to_bytes(self) -> bytes:
        """Return what `save` would write, for a place that is no file."""
        return modelfile.encode(monitorsfile.tree(self._saved()))

    @classmethod
    def from_bytes(
        cls: type[Own],
        data: bytes,
        name: str = "the data",
        *,
        threads: int | None = None,
        trusted: bool = False,
    ) -> Own:
        """Return the bank in `data`, as `load` does; `name` is what an error calls it.

        With `trusted` a right checksum is enough: that is for a store that nobody else writes.
        """
        return cls._made(modelfile.check(data, name), name, trusted=trusted, threads=threads)

    def __reduce__(self) -> tuple[Any, ...]:
        return _copied, (type(self), self.to_bytes(), self.device, self.threads, self.storage)

    # -- inside --------------------------------------------------------------------------------

    @classmethod
    def _made(
        cls: type[Own], data: bytes, name: str | os.PathLike[str], *, trusted: bool, **options: Any
    ) -> Own:
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
        if at in self._single:
            return self._single[at].learned()
        own = self._watching[at]
        if self._gpu:
            watching = self._gpu.learned(at)
        else:
            is_packed = isinstance(own, Packed)
            watching = compiled.learned(
                own.watching(self._names[at], Verdict) if is_packed else own
            )
        return MonitorState(self._names[at], int(self._seen[at]), watching=watching)

    def _add(
        self,
        settings: Sequence[MonitorSettings],
        states: Sequence[MonitorState | None],
        names: Sequence[Names],
    ) -> None:
        """Add devices."""
        before, count = len(self), len(settings)
        self._watching += [None] * count
        self._settings += settings
        self._names += names
        self._seen = np.append(self._seen, np.zeros(count, "int64"))
        self.paused = np.append(self.paused, np.zeros(count, bool))
        self._rate = np.append(self._rate, np.zeros(count))
        if self._gpu:
            self._gpu.grow(count)
        pairs = [*zip(settings, states, strict=True)]
        alike = groupby(range(count), lambda k: (id(settings[k]), id(states[k])))
        for _, group in alike:  # devices that start from the same
            own = [*group]
            self._put([before + k for k in own], *pairs[own[0]])
        self._sort()

    def _put(
        self, places: Sequence[int], settings: MonitorSettings, state: MonitorState | None
    ) -> None:
        """Let devices go on from what was learned."""
        single = state is None or state.watching is None
        if state is not None:
            single |= any(part is not None for part in (state.warming, state.rhythm, state.late))
        for at in places:
            self._single.pop(at, None)
            self._settings[at], self._rate[at] = settings, settings.false_alarms
            self._seen[at] = 0 if state is None else state.n_seen
            self._watching[at] = None
            if single:
                self._single[at] = Monitor.resumed(settings, state, self._names[at])
                self._watching[at] = self._single[at].beside(0)
        if state is not None and state.watching is not None and not single:
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
        rate, seed = settings.false_alarms, settings.seed
        own = None
        for at in places:
            if own is None or self.storage == "exact":  # one can be packed many times
                own = compiled.resumed(state, rate, seed, self._names[at])
            self._watching[at] = own if self.storage == "exact" else Packed(own)

    def _grown_up(self, device: int) -> None:
        """Let a device that is no longer young go where the others are."""
        monitor = self._single.pop(device)
        if self._apart:
            state = monitor.learned()
            assert state is not None
            assert state.watching is not None
            self._watching[device] = None
            self._go_on([device], state.watching, monitor.settings())

    def _sort(self) -> None:
        """Note which kinds of devices there are."""
        self.shapes: tuple[Names, ...] = tuple(dict.fromkeys(self._names)) or (self.names,)
        self._width: Array = np.array([len(names) for names in self._names], "int64")
        self.widest = max(map(len, self.shapes))


def _gpu(device: str) -> TensorMonitors | None:
    """Return where devices on a GPU are, if that is where they are."""

    def there() -> TensorMonitors:
        from onlad.fleet.tensors.bank import TensorMonitors  # noqa: PLC0415  (an extra)

        return TensorMonitors()

    return None if device == "cpu" else given.on_gpu(device, there)


def _copied(kind: type[Own], data: bytes, device: str, threads: int | None, storage: str) -> Own:
    """Return a bank that was pickled."""
    options = {"device": device, "threads": threads, "storage": storage}
    return kind._made(data, "the data", trusted=True, **options)


def _copy(monitor: Monitor, names: Names) -> Monitor:
    """Return a copy of a monitor that watches these features."""
    if not isinstance(monitor, Monitor):
        raise TypeError(f"monitor must be a Monitor, got {monitor!r:.60}")
    if monitor.names not in ((), names):
        raise ValueError(f"the device has the features {names!r:.60}, got {monitor.names}")
    return Monitor.resumed(monitor.settings(), monitor.learned(), names)
