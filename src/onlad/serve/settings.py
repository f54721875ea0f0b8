"""Changes of the configuration that devices which have learned already cannot follow."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from onlad.errors import ModelFileError
from onlad.monitor import Monitor, MonitorSettings
from onlad.serve.alarm import key
from onlad.serve.checkpoint import monitor, peek
from onlad.serve.config import Config, StreamTable
from onlad.serve.devices import need_columns
from onlad.streams.settings import kept

SHOWN = 5  # devices in a line


def kept_by(stream: StreamTable, wanted: MonitorSettings, model: Monitor) -> list[str]:
    """Return, in words, what a device keeps although the configuration says otherwise."""
    found = kept(model, wanted)
    if stream.model is None and model.n_seen and model.timed != stream.patterns:
        have, want = (str(value).lower() for value in (model.timed, stream.patterns))
        found.append(f"patterns stays {have}, not {want}")
    return found


def lines(
    streams: Mapping[str, StreamTable],
    wanted: Mapping[str, MonitorSettings],
    devices: Iterable[tuple[str, str, Monitor]],
) -> list[str]:
    """Return a line for each setting of a stream that devices keep otherwise than `wanted`.

    `wanted` has the settings by stream; a device is stream, name and monitor.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for stream, device, model in devices:
        for what in kept_by(streams[stream], wanted[stream], model):
            found.setdefault((stream, what), []).append(key(stream, device))
    said = []
    for (stream, what), names in found.items():
        shown = ", ".join(names[:SHOWN]) + (" ..." if len(names) > SHOWN else "")
        said.append(
            f"stream {stream}: {what}, for devices that have learned: {shown}. "
            "To let a device start again: onlad forget"
        )
    return said


def check(config: Config) -> list[str]:
    """Return what a service with this configuration would say of its devices at its start.

    Raise `StateError` if it would not start with them.
    """
    streams = {stream.name: stream for stream in config.streams}
    wanted = {stream.name: stream.template().settings() for stream in config.streams}
    state = config.service.state
    devices = list[tuple[str, str, Monitor]]()
    for saved in peek(state):
        with contextlib.suppress(OSError, ModelFileError):  # it is replaced just now, or damaged
            model = monitor(state / "models" / saved.file)
            if saved.stream in streams:
                devices.append((saved.stream, saved.device, model))
    for name, _, model in devices:
        need_columns(streams[name], model)
    return lines(streams, wanted, devices)
