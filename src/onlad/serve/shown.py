"""What the views of the page have in common: colours, and how states and times are written."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import urlencode

from nicegui import ui

from onlad.errors import OnladError
from onlad.report import lines
from onlad.serve.alarm import Alarm
from onlad.serve.charts import when
from onlad.serve.guard import user
from onlad.serve.watcher import Watcher

T = TypeVar("T")
EVERY = 1.0  # seconds between two looks
ALARMS = 8  # in a list, newest first
COLOURS = {
    "alarm": "negative",
    "failed": "negative",
    "silent": "warning",
    "learning": "info",
    "paused": "grey-8",
    "normal": "positive",
}
SEVERITIES = ((50, "negative"), (45, "warning"), (0, "grey-8"))  # from which on, colour
#: Colours with which white text, and text of this colour on white, have a contrast of 4.5 (WCAG).
LIGHT = {"primary": "#1b66a8", "positive": "#1b7f33", "warning": "#8a5a00", "info": "#0b7285",
         "negative": "#c10015"}  # fmt: skip
#: Text on a dark ground needs other colours. (Quasar's own rules are `!important`: what they refer
#: to can be changed, they cannot.)
CSS = """
.nicegui-content a:not(.text-inherit) { color: var(--q-primary) }
.body--dark :is(.nicegui-content a, .q-btn--outline, .q-btn--flat, .text-warning) {
  --q-primary: #8fc1ee; --q-warning: #f2c037; --q-negative: #ff8a80;
}
"""


def severity(alarm: Alarm) -> ui.badge:
    """Show the severity as a number in a colour."""
    return grade(badge("", "grey-8").classes("mt-1"), alarm)


def grade(badge: ui.badge, alarm: Alarm) -> ui.badge:
    """Show the severity as it is by now."""
    colour = next(c for least, c in SEVERITIES if alarm.severity >= least)
    badge.text = f"{alarm.severity:.0f}"
    return badge.props(f'color={colour} aria-label="severity {badge.text}"')


def badge(text: str, colour: str) -> ui.badge:
    """Show a word in a colour. Quasar would have each announced when it changes."""
    return ui.badge(text, color=colour).props("role=note")


def small(text: str, on_click: Callable[[], Any]) -> ui.button:
    """Show a button that takes little room."""
    return ui.button(text, on_click=on_click).props("flat dense no-caps")


def note(text: str = "", classes: str = "opacity-80") -> ui.label:
    """Show small text."""
    return ui.label(text).classes(f"text-sm {classes}")


def state_of(badge: ui.badge, watcher: Watcher) -> None:
    """Show the state of a device as a word in a colour."""
    badge.text = watcher.state
    badge.props(f"color={COLOURS[watcher.state]}")


async def done(work: Awaitable[Any], said: str | None = "") -> bool:
    """Wait for what a person wants; say that it is done, or why it is not.

    Without `said`, None, what the work returns is said.
    """
    try:
        found = await work
    except OnladError as error:
        ui.notify(str(error), type="negative")
        return False
    if said := found if said is None else said:
        ui.notify(said, type="positive")
    return True


async def unless(work: Awaitable[T]) -> T | None:
    """Return what work returns, or say why there is nothing."""
    try:
        return await work
    except OnladError as error:
        ui.notify(str(error), type="negative")
        return None


def heading(text: str, level: int = 2, classes: str = "text-lg font-medium") -> None:
    """Show a heading, also to a screen reader."""
    ui.label(text).classes(classes).props(f"role=heading aria-level={level}")


def like(alarm: Alarm, watcher: Watcher) -> str:
    """Return what an alarm is like: a name, or the time of one that has none."""
    for past in watcher.alarms:
        if past.id == alarm.like:
            return f"Like that of {when(past.time)}"
    return f"Like {alarm.like}"


def person() -> str:
    """Return who looks at the page: the name that was given with the password."""
    request = ui.context.client.request
    return user(request.headers) or "the page"


counted = lines.counted


def learning(watcher: Watcher) -> str:
    """Return what is being learned, or nothing if that is only what is usual."""
    known = watcher.monitor.describe()
    if not known["ready"]:
        return f". It learns what is normal: {known['why']}"
    if known["candidate"]:
        return ". A lasting change is being learned, and may become a new mode"
    return ""


def address_of(watcher: Watcher, alarm: Alarm | None = None) -> str:
    """Return the address of the view of a device, perhaps at an alarm."""
    where = {"stream": watcher.stream.name, "device": watcher.device}
    return "/watch?" + urlencode(where | ({"alarm": alarm.id} if alarm else {}))


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
