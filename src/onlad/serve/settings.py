"""Changes of the configuration that devices which have learned already cannot follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from onlad.monitor import Monitor, MonitorSettings
from onlad.serve.checkpoint import peek
from onlad.serve.config import Config
from onlad.serve.watcher import key
from onlad.streams.settings import kept

SHOWN = 5  # devices in a line


def kept_by(
    wanted: Mapping[str, MonitorSettings], devices: Iterable[tuple[str, str, Monitor]]
) -> list[str]:
    """Return a line for each setting of a stream that devices keep otherwise than `wanted`.

    `wanted` has the settings by stream; a device is stream, name and monitor.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for stream, device, monitor in devices:
        for what in kept(monitor, wanted.get(stream, monitor.settings())):
            found.setdefault((stream, what), []).append(key(stream, device))
    lines = []
    for (stream, what), names in found.items():
        shown = ", ".join(names[:SHOWN]) + (" ..." if len(names) > SHOWN else "")
        lines.append(
            f"stream {stream}: {what}, for devices that have learned: {shown}. "
            "To let a device start again: onlad forget"
        )
    return lines


def check(config: Config) -> list[str]:
    """Return what a service with this configuration would say of its devices at its start."""
    wanted = {stream.name: stream.template().settings() for stream in config.streams}
    return kept_by(wanted, peek(config.service.state))
