"""The page: what the service sees, and what a person can do. NiceGUI, in the same process.

`attach` adds two views to the application. ``/`` lists the incidents of all devices, and the
devices, those in alarm first. ``/watch`` shows one: its sensors with their bands, score against
threshold, drift, its alarms with what was expected, and the buttons. A view looks at the service
once a second while it is open, and changes it through `Service` alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

import numpy as np
from fastapi import FastAPI
from nicegui import Client, ui

from onlad.errors import OnladError
from onlad.incident import TOGETHER
from onlad.reference import Array
from onlad.report.lines import digits
from onlad.serve.history import Point
from onlad.serve.service import Service
from onlad.serve.watcher import Alarm, Watcher, rounded

EVERY = 1.0  # seconds between two looks
SHOWN = 100  # devices in the list; the filter finds the others
POINTS = 500  # of a curve: more than a phone has columns
ALARMS = 8  # in the list, newest first
RECENT = 7 * 86400  # seconds that the list of incidents goes back
WAITING = 100  # views without a browser
CAUSES = 6  # features that are named
WORST_FIRST = ("failed", "alarm", "silent", "learning", "paused", "normal")
COLOURS = {
    "alarm": "negative",
    "failed": "negative",
    "silent": "warning",
    "learning": "info",
    "paused": "grey",
    "normal": "positive",
}
SEVERITIES = ((60, "negative"), (50, "warning"), (0, "grey"))  # from which on, colour
GREY, BLUE, AMBER, RED, VIOLET = "#8a8a8a", "#4c8dd6", "#e0a030", "#e04545", "#a066d3"


def attach(app: FastAPI, service: Service) -> None:
    """Add the page to the application of a service."""

    @ui.page("/", title="onlad")
    def devices() -> None:
        _make_room()
        _frame(service)
        Incidents(service)
        Devices(service)

    @ui.page("/watch", title="onlad")
    def watch(stream: str = "", device: str = "") -> None:
        _make_room()
        _frame(service)
        watcher = service.watchers.get((stream, device))
        if watcher is None:
            ui.label("This device is not watched, or has sent nothing yet.")
            ui.link("All devices", "/")
        else:
            Device(service, watcher)

    # dark=None: as the reader's system has it.
    ui.run_with(app, title="onlad", dark=None, show_welcome_message=False)


def _make_room() -> None:
    """Remove views whose browser never came, or is gone: NiceGUI keeps each for a minute."""
    waiting = [client for client in Client.instances.values() if not client.has_socket_connection]
    for client in waiting[:-WAITING]:
        client.delete()


def _frame(service: Service) -> None:
    """Add the head of a page: links, and whether the service is ready."""
    ui.query(".nicegui-content").classes("w-full max-w-5xl mx-auto gap-3")
    with ui.header().classes("items-center py-2 bg-primary"):
        ui.link("onlad", "/").classes("text-xl font-bold text-white no-underline")
        ui.space()
        state = ui.label().classes("text-sm text-white")

    def look() -> None:
        state.text = "; ".join(service.health.problems()) or "service: well"

    ui.timer(EVERY, look)


class Incidents:
    """The newest incidents of all devices; those that began together are one."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._listed: list[tuple[Any, ...]] | None = None
        self._list = ui.column().classes("w-full gap-1").props('role=list aria-label="Incidents"')
        ui.timer(2 * EVERY, self._look)

    def _look(self) -> None:
        since = time.time() - RECENT
        found = [
            (alarm, watcher)
            for watcher in self._service.watchers.values()
            for alarm in watcher.alarms
            if alarm.time >= since or alarm is watcher.alarm
        ]
        shown = joined(found)[:ALARMS]
        listed = [(a.id, a.severity, a.label, a.comment, len(others)) for (a, _), others in shown]
        if listed == self._listed:
            return
        self._listed = listed
        self._list.clear()
        with self._list:
            if shown:
                ui.label("Incidents").classes("text-lg font-medium")
            for (alarm, watcher), others in shown:
                with ui.row().classes("w-full items-center no-wrap gap-2").props("role=listitem"):
                    _severity(alarm)
                    where = watcher.key + (f" and {len(others)} more" if others else "")
                    ui.link(where, _address(watcher)).classes("truncate")
                    ui.label(
                        f"{_when(alarm.time)}: {alarm.says(next(iter(alarm.causes)))}"
                    ).classes("text-sm opacity-80 truncate")
                    if alarm.label:
                        ui.badge(alarm.label, color="grey")


def joined(
    found: Sequence[tuple[Alarm, Watcher]],
) -> list[tuple[tuple[Alarm, Watcher], list[Watcher]]]:
    """Return alarms, the newest first; of those that began within a minute the most severe."""
    groups: list[list[tuple[Alarm, Watcher]]] = []
    for pair in sorted(found, key=lambda pair: -pair[0].time):
        if groups and groups[-1][-1][0].time - pair[0].time <= TOGETHER:
            groups[-1].append(pair)
        else:
            groups.append([pair])
    shown = []
    for group in groups:
        worst = max(group, key=lambda pair: pair[0].severity)
        others = {id(watcher): watcher for _, watcher in group if watcher is not worst[1]}
        shown.append((worst, list(others.values())))
    return shown


class Devices:
    """The list of devices."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._filter = ui.input("Filter").props("dense clearable").classes("w-full")
        self._list = ui.column().classes("w-full gap-2")
        self._rows: dict[tuple[str, str], Row] = {}
        self._shown: list[tuple[str, str]] = []
        self._more = ui.label().classes("text-sm opacity-60")
        ui.timer(EVERY, self._look)

    def _look(self) -> None:
        wanted = (self._filter.value or "").lower()
        found = [w for w in self._service.watchers.values() if wanted in w.key.lower()]
        found.sort(key=lambda w: (WORST_FIRST.index(w.state), w.key))
        shown = found[:SHOWN]
        keys = [(w.stream.name, w.device) for w in shown]
        if keys != self._shown:  # a new order: build it again
            self._list.clear()
            with self._list:
                self._rows = {key: Row(w) for key, w in zip(keys, shown, strict=True)}
            self._shown = keys
        for key, watcher in zip(keys, shown, strict=True):
            self._rows[key].look(watcher)
        if not self._service.watchers:
            self._more.text = "No device has sent a sample yet."
        else:
            self._more.text = f"{len(shown)} of {len(self._service.watchers)} devices"


class Row:
    """One device of the list."""

    def __init__(self, watcher: Watcher) -> None:
        address = _address(watcher)
        with (
            ui.card()
            .classes("w-full p-3 cursor-pointer")
            .on("click", lambda: ui.navigate.to(address)),
            ui.row().classes("w-full items-center justify-between no-wrap"),
        ):
            with ui.column().classes("gap-0 min-w-0"):
                ui.label(watcher.key).classes("font-medium truncate")
                self._said = ui.label().classes("text-sm opacity-60 truncate")
            self._state = ui.badge()

    def look(self, watcher: Watcher) -> None:
        """Show the current state."""
        self._state.text = watcher.state
        self._state.props(f"color={COLOURS[watcher.state]}")
        said = f"{watcher.monitor.n_seen:,} samples, the last {_ago(watcher.seen)}"
        if watcher.last is not None and watcher.last.ready:
            said += f", score {digits(watcher.last.score)} of {digits(watcher.last.threshold)}"
        if watcher.alarm is not None:
            said += f": {_causes(watcher.alarm)}"
        said += _drifting(watcher)
        self._said.text = said


class Device:
    """The view of one device."""

    def __init__(self, service: Service, watcher: Watcher) -> None:
        self._service, self._watcher = service, watcher
        with ui.row().classes("w-full items-center"):
            ui.label(watcher.key).classes("text-xl font-medium")
            self._state = ui.badge()
        self._counts = ui.label().classes("text-sm opacity-60")
        if watcher.kept:
            said = f"The configuration has changed: {', '.join(watcher.kept)}, because this device"
            ui.label(f"{said} has learned. Forget the device to let it start again.").classes(
                "text-sm text-warning"
            )
        names = [str(name) for name in watcher.names]
        self._sensor = ui.select(names, value=_first(watcher), label="Sensor").classes("w-60")
        self._band = ui.echart(_bands([], np.empty((0, 3, 1)), 0)).classes("w-full h-64")
        self._chart = ui.echart(_chart([])).classes("w-full h-64")
        with ui.row().classes("w-full items-center"):
            self._pause = ui.button(on_click=self._toggle).props("outline")
            ui.button("Save the model", on_click=self._save).props("outline")
            ui.button("Take a snapshot", on_click=self._snap).props("outline")
            ui.button("Go back", on_click=self._choose).props("outline")
            ui.button("Forget the device", on_click=self._ask).props("outline color=negative")
        ui.label("Alarms").classes("text-lg font-medium")
        self._alarms = ui.column().classes("w-full gap-2")
        self._listed: list[tuple[Any, ...]] | None = None
        self._timer = ui.timer(EVERY, self._look)

    def _look(self) -> None:
        watcher = self._watcher
        self._state.text = watcher.state
        self._state.props(f"color={COLOURS[watcher.state]}")
        self._counts.text = (
            f"{watcher.monitor.n_seen:,} samples, {watcher.n_alarms:,} alarms and "
            f"{watcher.drifts:,} drifts since the start, {watcher.bad:,} skipped. "
            f"The last sample came {_ago(watcher.seen)}{_drifting(watcher)}"
        )
        self._pause.text = "Go on learning" if watcher.paused else "Pause learning"
        drawn = _chart(watcher.history.points())
        self._chart.options["series"], self._chart.options["xAxis"] = (
            drawn["series"],
            drawn["xAxis"],
        )
        self._chart.update()
        if self._sensor.value in self._sensor.options:
            index = list(self._sensor.options).index(self._sensor.value)
            band = _bands(watcher.history.points(), watcher.history.around(), index)
            for name in ("series", "xAxis"):
                self._band.options[name] = band[name]
            self._band.update()
        newest = list(watcher.alarms)[: -ALARMS - 1 : -1]
        listed = [
            (alarm.id, alarm.marked, alarm.last, alarm.label, alarm.comment) for alarm in newest
        ]
        if listed != self._listed:
            self._listed = listed
            self._alarms.clear()
            with self._alarms:
                if not newest:
                    ui.label("None so far.").classes("opacity-60")
                for alarm in newest:
                    self._show(alarm)

    def _show(self, alarm: Alarm) -> None:
        with ui.card().classes("w-full p-3 gap-1"):
            with ui.row().classes("w-full items-center justify-between no-wrap"):
                lasted = alarm.last - alarm.row + 1
                told = f"{_when(alarm.time)}, {lasted} sample" + "s" * (lasted > 1)
                with ui.row().classes("items-center no-wrap gap-2"):
                    _severity(alarm)
                    ui.label(f"{told}, score up to {digits(alarm.highest)}")
                self._buttons(alarm)
            said = [
                alarm.comment and f"“{alarm.comment}”",
                alarm.like and f"like {alarm.like}",
                "" if alarm.told else "suppressed: too many that day",
            ]
            if any(said):
                ui.label(". ".join(filter(None, said))).classes("text-sm")
            for name, share in list(alarm.causes.items())[:CAUSES]:
                with ui.row().classes("w-full items-center no-wrap gap-2"):
                    ui.label(name).classes("w-1/4 truncate text-sm")
                    ui.linear_progress(share, show_value=False, color="negative").classes("grow")
                    ui.label(alarm.says(name).removeprefix(f"{name} ")).classes(
                        "w-1/2 text-right text-sm"
                    )

    def _buttons(self, alarm: Alarm) -> None:
        if alarm.marked:
            ui.badge("marked as normal", color="grey")
            if alarm.undo:
                ui.button("Undo", on_click=lambda: self._label(alarm, "")).props(
                    "flat dense no-caps"
                )
            return
        with ui.row().classes("items-center gap-1"):
            if alarm.label:
                ui.badge(alarm.label, color="grey")
                ui.button("Undo", on_click=lambda: self._label(alarm, "")).props(
                    "flat dense no-caps"
                )
                return
            ui.button("This was normal", on_click=lambda: self._label(alarm, "normal")).props(
                "flat dense no-caps"
            )
            for label in ("fault", "maintenance"):
                ui.button(
                    label.capitalize(), on_click=lambda label=label: self._comment(alarm, label)
                ).props("flat dense no-caps")
            ui.button("Seen", on_click=lambda: self._label(alarm, "seen")).props(
                "flat dense no-caps"
            )

    def _comment(self, alarm: Alarm, label: str) -> None:
        """Ask what it was; the next alarm like it is called so."""
        with ui.dialog(value=True) as dialog, ui.card():
            text = ui.input("What was it?").props("autofocus").classes("w-72")

            async def keep() -> None:
                dialog.close()
                await self._label(alarm, label, text.value or "")

            text.on("keydown.enter", keep)
            with ui.row():
                ui.button("Cancel", on_click=dialog.close).props("flat")
                ui.button("Keep", on_click=keep)

    async def _toggle(self) -> None:
        try:
            await self._service.orders.pause(self._watcher, not self._watcher.paused)
        except OnladError as error:
            ui.notify(str(error), type="negative")
        self._look()

    async def _label(self, alarm: Alarm, label: str, comment: str = "") -> None:
        try:
            count = await self._service.orders.label(
                self._watcher, alarm.id, label, comment, by="the page"
            )
            said, kind = "Noted", "positive"
            if label == "normal":
                said = f"Learned {count} sample" + "s" * (count != 1)
        except OnladError as error:
            said, kind = str(error), "negative"
        with self._alarms:  # the button that was clicked may be gone by now
            ui.notify(said, type=kind)  # type: ignore[arg-type]
        self._look()

    async def _snap(self) -> None:
        try:
            await self._service.orders.snapshot(self._watcher)
            ui.notify("The model is kept as it is now", type="positive")
        except OnladError as error:
            ui.notify(str(error), type="negative")

    def _choose(self) -> None:
        """Let a person choose a snapshot to go back to."""
        kept = self._service.store.snapshots(self._watcher.number)[::-1]
        with ui.dialog(value=True) as dialog, ui.card():
            ui.label("Go back to a snapshot? What was learned since is gone." if kept else
                     "There is no snapshot yet.")  # fmt: skip

            async def back(file: str) -> None:
                dialog.close()
                try:
                    await self._service.orders.revert(self._watcher, file, by="the page")
                    ui.notify("The model is as it was then", type="positive")
                except OnladError as error:
                    ui.notify(str(error), type="negative")

            for file in kept:
                _, seen, same = file.removesuffix(".onlad").split("-")
                text = f"After {int(seen):,} samples"
                text += f", number {int(same) + 1}" if int(same) else ""
                ui.button(text, on_click=lambda file=file: back(file)).props("flat no-caps")
            ui.button("Cancel", on_click=dialog.close).props("flat")

    def _ask(self) -> None:
        """Ask for confirmation."""
        with ui.dialog(value=True) as dialog, ui.card():
            ui.label(f"Forget all that was learned of {self._watcher.key}?")
            with ui.row():
                ui.button("Cancel", on_click=dialog.close).props("flat")
                ui.button("Forget", on_click=self._forget).props("color=negative")

    async def _forget(self) -> None:
        try:
            file = await self._service.orders.forget(self._watcher)
        except OnladError as error:
            ui.notify(str(error), type="negative")
            return

        async def undo() -> None:
            try:
                await self._service.orders.restore(file)
                ui.navigate.to(_address(self._watcher))
            except OnladError as error:
                ui.notify(str(error), type="negative")

        self._timer.cancel()
        content = ui.context.client.content
        content.clear()
        with content:
            ui.label(f"{self._watcher.key} is forgotten. The file forgotten/{file} can undo it.")
            ui.button("Undo", on_click=undo).props("outline")
            ui.link("All devices", "/")

    async def _save(self) -> None:
        content = await self._service.orders.model_bytes(self._watcher)
        ui.download(content, f"{self._watcher.stream.name}.onlad")


def _severity(alarm: Alarm) -> None:
    """Show the severity as a number in a colour."""
    colour = next(c for least, c in SEVERITIES if alarm.severity >= least)
    ui.badge(f"{alarm.severity:.0f}", color=colour).props('aria-label="severity"')


def _first(watcher: Watcher) -> str | None:
    """Return the sensor that is shown first: the cause of the newest alarm."""
    causes = watcher.alarms[-1].causes if watcher.alarms else {}
    return next(iter(causes), None) or next(map(str, watcher.names), None)


def _address(watcher: Watcher) -> str:
    return "/watch?" + urlencode({"stream": watcher.stream.name, "device": watcher.device})


def _when(seconds: float) -> str:
    return time.strftime("%d %b %H:%M:%S", time.localtime(seconds))


def _ago(seconds: float) -> str:
    """Return how long ago something was, in words.

    Examples
    --------
    >>> _ago(time.time() - 7), _ago(time.time() - 7300), _ago(time.time() + 9)
    ('7 s ago', '2 h ago', '0 s ago')
    """
    age = max(0.0, time.time() - seconds)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if age >= 2 * size:
            return f"{age / size:.0f} {unit} ago"
    return f"{age:.0f} s ago"


def _drifting(watcher: Watcher) -> str:
    """Return the notice that a feature drifts slowly, or nothing."""
    if watcher.last is None or watcher.last.drifting is None:
        return ""
    return f". {watcher.last.drifting} drifts slowly away from where it was"


def _causes(alarm: Alarm) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in list(alarm.causes.items())[:2])


def thinned(points: Sequence[Point], most: int = POINTS) -> list[Point]:
    """Return at most about `most` points: of each stretch the highest score, and every drift.

    Examples
    --------
    >>> points = [Point(i, float(i), 9.0 if i == 7 else 1.0, 5.0, i == 7, False) for i in range(10)]
    >>> [p.row for p in thinned(points, 5)]
    [0, 2, 4, 7, 8]
    """
    stretch = max(1, math.ceil(len(points) / most))
    kept: list[Point] = []
    for first in range(0, len(points), stretch):
        part = points[first : first + stretch]
        highest = max(part, key=lambda p: (p.is_anomaly, p.score))
        kept += [p for p in part if p.drift or p is highest]
    return kept


def _chart(points: Sequence[Point]) -> dict[str, Any]:
    """Return the options of the chart: score, threshold, anomalies and drifts, sample by sample."""
    points = thinned(points)

    def known(value: float) -> float | None:
        return rounded(value) if math.isfinite(value) else None

    line = {"type": "line", "showSymbol": False, "animation": False}
    score = line | {"name": "score", "color": BLUE, "data": [known(p.score) for p in points]}
    score["markLine"] = {
        "symbol": "none",
        "label": {"formatter": "drift", "color": VIOLET},
        "lineStyle": {"color": VIOLET},
        "data": [{"xAxis": i} for i, p in enumerate(points) if p.drift],
    }
    threshold = line | {"name": "threshold", "color": AMBER}
    threshold["data"] = [known(p.threshold) for p in points]
    anomalies = {"type": "scatter", "name": "anomalies", "color": RED, "symbolSize": 6}
    anomalies |= {
        "data": [rounded(p.score) if p.is_anomaly else None for p in points],
        "animation": False,
    }
    words = {"color": GREY}
    return {
        "grid": {"left": 40, "right": 16, "top": 32, "bottom": 24},
        "legend": {"top": 0, "textStyle": words},
        "tooltip": {"trigger": "axis"},
        "xAxis": {"type": "category", "axisLabel": words, "data": [_when(p.time) for p in points]},
        "yAxis": {"axisLabel": words, "splitLine": {"lineStyle": {"opacity": 0.2}}},
        "series": [score, threshold, anomalies],
    }


def _bands(points: Sequence[Point], around: Array, index: int) -> dict[str, Any]:
    """Return the options of the chart of one sensor: its values, and the band they are in."""
    known = dict(zip((p.row for p in points), (a[:, index].tolist() for a in around), strict=False))
    points = thinned(points)

    def column(of: Callable[[float, float, float], float]) -> list[float | None]:
        found = (of(*known.get(p.row, (math.nan,) * 3)) for p in points)
        return [float(f"{value:.6g}") if math.isfinite(value) else None for value in found]

    line = {"type": "line", "showSymbol": False, "animation": False}
    low = line | {"name": "low", "stack": "band", "lineStyle": {"opacity": 0}, "color": GREY}
    low |= {"data": column(lambda value, expected, reach: expected - reach), "stackStrategy": "all"}
    band = line | {"name": "band", "stack": "band", "lineStyle": {"opacity": 0}, "color": GREY}
    band |= {"data": column(lambda value, expected, reach: 2 * reach), "stackStrategy": "all"}
    band |= {"areaStyle": {"color": GREY, "opacity": 0.3}}
    values = column(lambda value, expected, reach: value)
    value = line | {"name": "value", "color": BLUE, "data": values}
    marks = {"type": "scatter", "name": "anomalies", "color": RED, "symbolSize": 6}
    pairs = zip(points, values, strict=True)
    marks |= {"animation": False, "data": [v if p.is_anomaly else None for p, v in pairs]}
    words = {"color": GREY}
    axis = {"scale": True, "axisLabel": words, "splitLine": {"lineStyle": {"opacity": 0.2}}}
    return {
        "grid": {"left": 56, "right": 16, "top": 32, "bottom": 24},
        "legend": {"top": 0, "textStyle": words, "data": ["value", "band", "anomalies"]},
        "tooltip": {"trigger": "axis"},
        "dataZoom": [{"type": "inside"}],
        "xAxis": {"type": "category", "axisLabel": words, "data": [_when(p.time) for p in points]},
        "yAxis": axis,
        "series": [low, band, value, marks],
    }
