"""Incidents as text and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from onlad.incident import Incident
from onlad.report.lines import SHOWN, cause, readable
from onlad.report.record import figures
from onlad.samples import listed

LIKE = 3  # similar incidents in a line
NAMED = 4  # devices in a line


def described(incident: Incident) -> dict[str, Any]:
    """Return an incident as values that JSON has; names are text."""
    found = asdict(incident)
    for name in ("causes", "direction", "value", "expected", "low", "high"):
        found[name] = {
            str(key): value if name == "direction" else figures(value)
            for key, value in found[name].items()
        }
    return found


def line(incident: Incident, *, begins: bool = False) -> str:
    """Return the line of an incident that began, or that is over.

    One of several devices has no rows, since each device counts its own.
    """
    first, last, _ = incident.times
    rows = f"row {incident.begin}"
    if not begins and incident.end > incident.begin:
        rows = f"rows {incident.begin} to {incident.end}"
    when = "" if first is None else readable(first)
    if when and not begins and incident.end > incident.begin:
        when += f" to {readable(last)}"
    parts = [
        listed(incident.devices, NAMED),
        f"incident {incident.number}" + (" begins" if begins else ""),
        when,
        rows if len(incident.devices) < 2 else "",
        f"severity {incident.severity:.0f}",
        causes(incident),
        _like(incident),
    ]
    return "  ".join(part for part in parts if part) + "\n"


def causes(incident: Incident) -> str:
    """Return the largest causes for people, with what was expected of them."""
    kinds = ("value", "direction", "low", "high")
    return "; ".join(
        cause(name, share, {kind: getattr(incident, kind).get(name) for kind in kinds})
        for name, share in list(incident.causes.items())[:SHOWN]
    )


def _like(incident: Incident) -> str:
    if incident.label:
        return f"like {incident.label!r}"
    shown = ", ".join(map(str, incident.similar[:LIKE]))
    return f"like {shown}" if shown else ""
