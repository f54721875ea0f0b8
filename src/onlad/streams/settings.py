"""Settings of a monitor as a user gives them: their limits, and which can still be changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from onlad.monitor import FEWEST, Monitor, MonitorSettings

FIXED = ("window", "warmup", "seed")
#: Smallest and largest value of each setting, on the command line and in the service's file.
LIMITS: dict[str, tuple[float, float]] = {
    "window": (1, 1000),
    "warmup": (FEWEST, 10_000_000),
    "seed": (0, 2**63 - 1),
    "false_alarms": (1e-9, 0.5),
}


def given(source: object) -> dict[str, Any]:
    """Return the settings that are attributes of `source` and not None."""
    found = ((name, getattr(source, name, None)) for name in LIMITS)
    return {name: value for name, value in found if value is not None}


def settle(monitor: Monitor, wanted: Mapping[str, Any]) -> bool:
    """Apply the settings that can still be changed; return whether anything changed.

    Examples
    --------
    >>> monitor = Monitor()
    >>> settle(monitor, {"false_alarms": 1e-3}), monitor.false_alarms
    (True, 0.001)
    """
    rate = wanted.get("false_alarms", monitor.false_alarms)
    if rate == monitor.false_alarms:  # setting it would compute the threshold again
        return False
    monitor.false_alarms = rate
    return True


def kept(monitor: Monitor, wanted: MonitorSettings) -> list[str]:
    """Return, in words, the settings that a monitor keeps although other values are wanted.

    Examples
    --------
    >>> kept(Monitor(window=4), Monitor(window=2, false_alarms=1e-3).settings())
    ['window stays 4, not 2']
    """
    have = monitor.settings()
    wanted = replace(wanted, false_alarms=have.false_alarms)  # which can be changed
    both = [(f.name, getattr(have, f.name), getattr(wanted, f.name)) for f in fields(have)]
    return [f"{name} stays {_shown(a)}, not {_shown(b)}" for name, a, b in both if a != b]


def _shown(value: Any) -> str:
    return "the default" if value is None else str(value)
