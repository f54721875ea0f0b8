"""The picture of a demo: scores and sensors over the day, and each kind of fault up close."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from onlad.demo.counting import Watched
from onlad.demo.machine import KINDS, SENSORS, Fault, Recording

# Okabe and Ito's colours: colour-blind readers tell them apart.
COLOURS = dict(zip(KINDS, ("#D55E00", "#0072B2", "#AA4499", "#009E73", "#B8860B"), strict=True))
INK, FAINT, LINE, ALARM = "#222222", "#9a9a9a", "#5b6b7b", "#D00000"
TRACES = ("flow", "bearing_temp", "vibration")
MARGIN = 60  # samples around a fault up close
NARROWEST = 14  # samples: a shade of less would not be seen


def draw(path: Path, recording: Recording, watched: Watched) -> None:
    """Write the picture as a PNG of 1600 by 1200 dots."""
    figure = Figure(figsize=(16, 12), dpi=100, facecolor="white")
    figure.suptitle(
        "A pump for a day, watched by onlad: no labels, no training before",
        fontsize=16, color=INK, y=0.985,
    )  # fmt: skip
    # Margins by hand: a layout engine would take as long as all the rest.
    heights = [2.8, *[1.0] * len(TRACES)]
    day = figure.add_gridspec(
        len(heights), height_ratios=heights, left=0.055, right=0.98, top=0.84, bottom=0.25
    )
    close_ups = figure.add_gridspec(
        1, len(KINDS), left=0.055, right=0.98, top=0.185, bottom=0.045, wspace=0.28
    )
    top = figure.add_subplot(day[0])
    _scores(top, recording, watched)
    for row, name in enumerate(TRACES, start=1):
        ax = figure.add_subplot(day[row], sharex=top)
        _trace(ax, name, recording)
        ax.tick_params(labelbottom=name == TRACES[-1])
    for column, kind in enumerate(KINDS):
        faults = [fault for fault in recording.faults if fault.kind == kind]
        if faults:
            _close_up(figure.add_subplot(close_ups[column]), faults[0], recording, watched)
    figure.savefig(path, format="png")


def _scores(ax: Any, recording: Recording, watched: Watched) -> None:
    verdicts, faults = watched.verdicts, recording.faults
    columns = (verdicts.score, verdicts.threshold)
    scores, thresholds = (np.where(verdicts.ready, column, np.nan) for column in columns)
    _prepare(ax, "score")
    ax.set_yscale("symlog", linthresh=1)  # linear up to 1, logarithmic above
    ax.plot(scores, color=LINE, linewidth=0.6, label="score")
    ax.plot(thresholds, color=ALARM, linewidth=1.6, label="threshold")
    at = np.array([watched.strongest(incident) for incident in watched.incidents], int)
    right = [watched.fault_of(incident, faults) is not None for incident in watched.incidents]
    true, false = at[np.array(right, bool)], at[~np.array(right, bool)]
    ax.plot(true, scores[true], "v", color=ALARM, markersize=7, label="alarm")
    ax.plot(false, scores[false], "X", color="black", markersize=8, label="false alarm")
    ax.plot([], [], "x", color=FAINT, label="missed")
    ax.plot([], [], "--", color=INK, linewidth=1.6, label="drift")
    for fault in faults:
        colour = COLOURS[fault.kind]
        _shade(ax, fault, colour)
        found = any(watched.first_alarm(each, fault) is not None for each in watched.incidents)
        ax.text(
            (fault.start + fault.stop) / 2,
            1.02,
            fault.kind if found else f"× {fault.kind}",
            transform=ax.get_xaxis_transform(),
            rotation=50,
            fontsize=9,
            color=colour,
            alpha=1 if found else 0.6,
        )
    if not np.isfinite(scores).all():
        ready = int(np.argmax(np.isfinite(scores)))
        ax.axvspan(0, ready, color="#eeeeee", linewidth=0)
        ax.text(ready / 2, 0.5, "warming up", transform=ax.get_xaxis_transform(), rotation=90,
                ha="center", va="center", color=FAINT, fontsize=10)  # fmt: skip
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.01), ncols=2, frameon=False, fontsize=10)
    ax.tick_params(labelbottom=False)


def _trace(ax: Any, name: str, recording: Recording) -> None:
    _prepare(ax, f"{name}\n{SENSORS[name]}")
    column = list(SENSORS).index(name)
    values = recording.values[:, column]
    ax.plot(values, color=LINE, linewidth=0.5, alpha=0.8)
    ax.plot(recording.drift[:, column], "--", color=INK, linewidth=1.6)
    for fault in recording.faults:
        if fault.sensor == name:
            _shade(ax, fault, COLOURS[fault.kind])
            inside = np.arange(fault.start, fault.stop)
            ax.plot(inside, values[inside], color=COLOURS[fault.kind], linewidth=1.2)


def _close_up(ax: Any, fault: Fault, recording: Recording, watched: Watched) -> None:
    _prepare(ax, SENSORS[fault.sensor])
    colour = COLOURS[fault.kind]
    column = list(SENSORS).index(fault.sensor)
    shown = np.arange(fault.start - MARGIN, min(fault.stop + MARGIN, len(recording.values)))
    inside = np.arange(fault.start, fault.stop)
    ax.plot(shown, recording.truth[shown, column], color=FAINT, linewidth=1.2, label="truth")
    ax.plot(inside, recording.values[inside, column], ".-", color=colour, markersize=3,
            linewidth=1.2, label="reading")  # fmt: skip
    alarms = shown[watched.verdicts.is_anomaly[shown]]
    ax.plot(alarms, [0.02] * len(alarms), "|", color=ALARM, markersize=9,
            transform=ax.get_xaxis_transform(), label="alarm")  # fmt: skip
    ax.xaxis.set_major_locator(MaxNLocator(3, integer=True))
    ax.set_title(f"{fault.kind}: {fault.sensor}", fontsize=11, color=colour)
    ax.set_xlabel("sample", color=INK, fontsize=9)
    if fault.kind == next(iter(KINDS)):
        ax.legend(fontsize=9, frameon=False)


def _prepare(ax: Any, label: str) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(colors=INK, labelsize=9)
    ax.margins(x=0.005, y=0.08)
    ax.set_ylabel(label, color=INK, fontsize=10)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda t, _: f"{t:,.0f}"))


def _shade(ax: Any, fault: Fault, colour: str) -> None:
    stop = max(fault.stop, fault.start + NARROWEST)
    ax.axvspan(fault.start, stop, color=colour, alpha=0.22, linewidth=0)
