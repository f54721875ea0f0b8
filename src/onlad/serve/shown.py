"""What the views of the page have in common: colours, and how states and times are written."""

from __future__ import annotations

import time
from urllib.parse import urlencode

from nicegui import ui

from onlad.serve.alarm import Alarm
from onlad.serve.watcher import Watcher

EVERY = 1.0  # seconds between two looks
ALARMS = 8  # in a list, newest first
COLOURS = {
    "alarm": "negative",
    "failed": "negative",
    "silent": "warning",
    "learning": "info",
    "paused": "grey",
    "normal": "positive",
}
SEVERITIES = ((60, "negative"), (50, "warning"), (0, "grey"))  # from which on, colour


def severity(alarm: Alarm) -> None:
    """Show the severity as a number in a colour."""
    colour = next(c for least, c in SEVERITIES if alarm.severity >= least)
    ui.badge(f"{alarm.severity:.0f}", color=colour).props('aria-label="severity"')


def address_of(watcher: Watcher) -> str:
    """Return the address of the view of a device."""
    return "/watch?" + urlencode({"stream": watcher.stream.name, "device": watcher.device})


def ago(seconds: float) -> str:
    """Return how long ago something was, in words.

    Examples
    --------
    >>> ago(time.time() - 7), ago(time.time() - 7300), ago(time.time() + 9)
    ('7 s ago', '2 h ago', '0 s ago')
    """
    age = max(0.0, time.time() - seconds)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if age >= 2 * size:
            return f"{age / size:.0f} {unit} ago"
    return f"{age:.0f} s ago"


def drifting(watcher: Watcher) -> str:
    """Return the notice that a feature drifts slowly, or nothing."""
    if watcher.last is None or watcher.last.drifting is None:
        return ""
    return f". {watcher.last.drifting} drifts slowly away from where it was"
