"""The charts of a device: which sensor, and which part of its samples."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from nicegui import ui

from onlad.errors import OnladError
from onlad.reference import Array
from onlad.serve import replay, shown
from onlad.serve.alarm import Alarm
from onlad.serve.charts import bands, scores, spoken, when
from onlad.serve.history import Point
from onlad.serve.service import Service
from onlad.serve.watcher import Watcher

FEW = 100  # samples since the start: then the last day is shown with them
SPANS = {0.0: "the last samples", 1.0: "the last day", replay.DAYS: "the last 7 days"}
AROUND = 60  # samples that are shown before and after an alarm, at least
WHOLE = {"type": "dataZoom", "start": 0, "end": 100}


class Curves:
    """A sensor with its band, and scores with their threshold, of the same samples."""

    def __init__(self, service: Service, watcher: Watcher, alarm: Alarm | None) -> None:
        self._orders, self._watcher = service.orders, watcher
        self._older: replay.Tried | None = None  # samples of the journal, if they are shown
        known = [str(name) for name in watcher.names]
        with ui.row().classes("w-full items-center"):
            first = _first(watcher, alarm)
            self._sensor = ui.select(known, value=first, label="Sensor").classes("w-60")
            self._span = ui.select(dict[Any, str](SPANS), value=0.0, label="Shown").classes("w-60")
            self._span.on_value_change(self._change)
        self._band = ui.echart(bands([], np.empty((0, 3, 1)), 0)).classes("w-full h-64")
        self._score = ui.echart(scores([])).classes("w-full h-64")
        for one, other in ((self._band, self._score), (self._score, self._band)):
            one.on("chart:datazoom", js_handler=_zoom(one, other))
        if alarm is not None:
            self._select(alarm)
        elif len(watcher.history.points()) < min(FEW, watcher.monitor.n_seen):
            ui.timer(0.1, self._change, once=True)  # after a restart: the journal has them

    def show(self, alarm: Alarm, sensor: str) -> None:
        """Show a sensor at the time of an alarm."""
        self._sensor.value = sensor
        self._select(alarm)
        ui.run_javascript(f"getElement({self._sensor.id}).$el.scrollIntoView()")

    def _select(self, alarm: Alarm) -> None:
        self._span.set_options({**SPANS, alarm.id: f"alarm of {when(alarm.time)}"}, value=alarm.id)

    @property
    def _alarm(self) -> Alarm | None:
        """Return the alarm that is shown, if one is."""
        return next((a for a in self._watcher.alarms if a.id == self._span.value), None)

    async def _change(self) -> None:
        """Show another part of the samples: those that are no longer kept are judged once more."""
        if self._score.options["series"][0]["data"]:  # there is a chart, perhaps of a part
            self._band.run_chart_method("dispatchAction", WHOLE)
        self._older, alarm, kept = None, self._alarm, self._watcher.history.points()
        if alarm is not None:
            last = self._watcher.last
            if last is not None and (not kept or alarm.row - AROUND < kept[0].row):
                self._older = await self._tried(1 + max(0.0, last.time - alarm.time) / 86_400)
        elif self._span.value in (1.0, replay.DAYS):
            self._older = await self._tried(self._span.value)
        elif len(kept) < FEW:
            with contextlib.suppress(OnladError):  # nobody asked for it
                self._older = await self._orders.tried(self._watcher, days=1.0)
        self.draw()

    async def _tried(self, days: float) -> replay.Tried | None:
        return await shown.unless(self._orders.tried(self._watcher, days=days))

    def draw(self) -> None:
        """Draw what is known by now."""
        watcher, names = self._watcher, [str(name) for name in self._watcher.names]
        points, around = watcher.history.after(self._older.history if self._older else None)
        if (alarm := self._alarm) is not None:
            points, around = _near(points, around, alarm)
        if names != list(self._sensor.options):
            self._sensor.set_options(names, value=self._sensor.value or names[0])
        drawn = [(self._score, scores(points))]
        if self._sensor.value in names[: around.shape[-1]]:
            index = names.index(str(self._sensor.value))
            drawn.append((self._band, bands(points, around, index, watcher.alarms)))
            about = f"{self._sensor.value} over time, with the band in which it is expected"
            self._band.options["aria"] = spoken(about)
        for chart, options in drawn:
            chart.options.update({name: options[name] for name in ("series", "xAxis")})
            chart.update()


def _near(points: list[Point], around: Array, alarm: Alarm) -> tuple[list[Point], Array]:
    """Return the samples of an alarm, and as many before and after."""
    wide = max(AROUND, alarm.last - alarm.row)
    first, end = alarm.row - wide, alarm.last + wide
    at = [i for i, point in enumerate(points) if first <= point.row <= end]
    part = slice(at[0], at[-1] + 1) if at else slice(0)
    return points[part], around[part]


def _zoom(one: ui.echart, other: ui.echart) -> str:
    """Return what lets a chart show the same part of the samples as another."""
    return (
        f"() => {{ const {{start, end}} = getElement({one.id}).chart.getOption().dataZoom[0];"
        f" getElement({other.id}).chart.dispatchAction("
        "{type: 'dataZoom', start, end}, {silent: true}); }"
    )


def _first(watcher: Watcher, alarm: Alarm | None) -> str | None:
    """Return the sensor that is shown first: the cause of an alarm, by default the newest."""
    alarm = alarm or next(reversed(watcher.alarms), None)
    return next(map(str, alarm.causes if alarm else watcher.names), None)
