"""The devices of a service: how they are added, restored and removed, and what they keep.

Devices that have learned cannot follow every change of the configuration; `kept_lines` says which.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from onlad.errors import ModelFileError
from onlad.monitor import Monitor, MonitorSettings
from onlad.samples import listed
from onlad.serve.alarm import Alarm, key
from onlad.serve.checkpoint import Saved, StateError, monitor, peek
from onlad.serve.tables import Config, StreamTable
from onlad.serve.watcher import Watcher
from onlad.streams.settings import kept

LONGEST_NAME = 200  # letters of a device
SHOWN = 5  # devices in a line


class Devices:
    """Watchers by stream and device."""

    def __init__(self, config: Config) -> None:
        self._service = config.service
        self.streams: dict[str, StreamTable] = {s.name: s for s in config.streams}
        self.watchers: dict[tuple[str, str], Watcher] = {}
        # Read once: a file that changes or goes later must not end what is being watched.
        self.templates: dict[str, Monitor] = {}
        for stream in config.streams:
            try:
                self.templates[stream.name] = stream.template()
            except ValueError as error:
                raise StateError(f"stream {stream.name}: {error}") from None
        self.next = 1

    def fresh(self, stream: StreamTable) -> Monitor:
        """Return the monitor that a new device of a stream starts with."""
        template = self.templates[stream.name]
        return Monitor.resumed(template.settings(), template.learned())

    def add(self, number: int, name: str, device: str, monitor: Monitor) -> Watcher:
        """Watch a device that the journal or a checkpoint knows."""
        need_columns(self.streams[name], monitor)
        watcher = Watcher(number, self.streams[name], device, monitor, self._service.history)
        watcher.peers = lambda: self.of(name)
        self.watchers[name, device] = watcher
        return watcher

    @property
    def full(self) -> bool:
        """Whether no more devices are allowed."""
        return len(self.watchers) >= self._service.devices

    def begin(self, stream: StreamTable, device: str) -> Watcher | None:
        """Watch a new device, or return None if that is not allowed."""
        if self.full or len(device) > LONGEST_NAME:
            return None
        watcher = self.add(self.next, stream.name, device, self.fresh(stream))
        watcher.born = False  # until the journal has it
        self.next += 1
        return watcher

    def of(self, stream: str) -> list[Watcher]:
        """Return the devices of a stream."""
        return [watcher for (name, _), watcher in self.watchers.items() if name == stream]

    @property
    def rule(self) -> str:
        """Return the rule for new devices, in words."""
        most = self._service.devices
        return f"at most {most} devices are watched, with names of at most {LONGEST_NAME} letters"

    def take_number(self, number: int) -> None:
        """Never give this number to a later device."""
        self.next = max(self.next, number + 1)

    def remove(self, watcher: Watcher) -> None:
        """Stop watching a device."""
        del self.watchers[watcher.stream.name, watcher.device]
        watcher.gone = True

    def resurrect(self, saved: Saved, model: Monitor, alarms: list[Alarm]) -> Watcher:
        """Watch a device as it was saved."""
        self.take_number(saved.number)
        watcher = self.add(saved.number, saved.stream, saved.device, model)
        watcher.alarms.extend(alarms)
        watcher.paused, watcher.lost, watcher.last = saved.paused, saved.lost, saved.last
        watcher.seen, watcher.silent = saved.seen, saved.silent
        watcher.serve_at(saved.windows)
        return watcher


def need_columns(stream: StreamTable, monitor: Monitor) -> None:
    """Refuse a monitor that has learned other columns than its stream has now."""
    if stream.columns and monitor.names and set(stream.columns) != set(monitor.names):
        raise StateError(
            f"stream {stream.name} has learned the columns {list(monitor.names)}, and the "
            f"configuration says {list(stream.columns)}. Give the stream another name"
        )


def kept_by(stream: StreamTable, wanted: MonitorSettings, model: Monitor) -> list[str]:
    """Return, in words, what a device keeps although the configuration says otherwise."""
    found = kept(model, wanted)
    if stream.model is None and model.n_seen and model.timed != stream.patterns:
        have, want = (str(value).lower() for value in (model.timed, stream.patterns))
        found.append(f"patterns stays {have}, not {want}")
    return found


def kept_lines(devices: Iterable[tuple[str, str, list[str]]]) -> list[str]:
    """Return a line for each setting of a stream that devices keep.

    A device is stream, key, and what it keeps in words.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for stream, name, keeps in devices:
        for what in keeps:
            found.setdefault((stream, what), []).append(name)
    return [
        f"stream {stream}: {what}, for devices that have learned: {listed(names, SHOWN)}. "
        "To let a device start again: onlad forget"
        for (stream, what), names in found.items()
    ]


def check(config: Config) -> list[str]:
    """Return what a service with this configuration would say of its devices at its start.

    Raise `StateError` if it would not start with them.
    """
    streams = {stream.name: (stream, stream.template().settings()) for stream in config.streams}
    devices = []
    for saved in peek(config.service.state):
        with contextlib.suppress(OSError, ModelFileError):  # it is replaced just now, or damaged
            model = monitor(config.service.state / "models" / saved.file)
            if saved.stream in streams:
                stream, wanted = streams[saved.stream]
                need_columns(stream, model)
                name, keeps = key(saved.stream, saved.device), kept_by(stream, wanted, model)
                devices.append((saved.stream, name, keeps))
    return kept_lines(devices)
