"""The page: what the service sees, and what a person can do. NiceGUI, in the same process.

`attach` adds three views to the application. ``/`` lists the incidents of all devices, and the
devices, those in alarm first. ``/watch`` shows one: its sensors with their bands, score against
threshold, drift, its alarms with what was expected, and the buttons. ``/peers`` shows the devices
of a stream beside each other. A view looks at the service
once a second while it is open, and changes it through `Service` alone.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import urlencode

import numpy as np
from fastapi import FastAPI
from nicegui import Client, ui

from onlad.errors import OnladError
from onlad.reference import Array
from onlad.report.lines import digits
from onlad.serve import whatif
from onlad.serve.guard import user
from onlad.serve.history import Point
from onlad.serve.incidents import Shared, shared
from onlad.serve.peers import FEWEST, peers
from onlad.serve.service import Service
from onlad.serve.watcher import Alarm, Watcher, rounded
from onlad.serve.whatif import Tried

EVERY = 1.0  # seconds between two looks
SHOWN = 100  # devices in the list; the filter finds the others
FEW = 100  # samples since the start: then the last day is shown with them
POINTS = 500  # of a curve: more than a phone has columns
ALARMS = 8  # in the list, newest first
NAMED = 4  # devices of an incident
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
#: What is said of a sensor under the pointer; low and high are stacked, so the band is a width.
TOLD = """parts => {
  const at = name => parts.find(part => part.seriesName == name)?.value;
  const number = x => x == null ? "-" : Number(x.toPrecision(4));
  const low = at("low"), high = low == null ? null : low + at("band");
  return `${parts[0].name}<br>value ${number(at("value"))}` +
    `<br>expected ${number(low)} to ${number(high)}`;
}"""
#: A cell with a link to the device.
LINKED = """<q-td :props="props" style="white-space: normal; min-width: 9em">
<a class="text-primary" :href="props.row.address">{{ props.value || "-" }}</a></q-td>"""
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

    @ui.page("/peers", title="onlad")
    def beside(stream: str = "") -> None:
        _make_room()
        _frame(service)
        Peers(service, stream)

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
    ui.run_with(app, title="onlad", dark=None, language="en-US", show_welcome_message=False)


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
        self._service, self._by, self._most = service, _by(), ALARMS
        self._listed: list[Any] = []
        self._list = ui.column().classes("w-full gap-2")
        ui.timer(2 * EVERY, self._look)

    def _look(self) -> None:
        found = shared(self._service.watchers.values(), time.time() - RECENT)
        shown = found[: self._most]
        listed = [len(found)] + [
            (alarm.id, round(alarm.severity), each.is_open, alarm.label, alarm.comment, alarm.like)
            for each in shown
            for alarm, _ in each.parts
        ]
        if listed == self._listed:
            return
        self._listed = listed
        self._list.clear()
        if not found:
            return
        with self._list:
            _heading("Incidents")
            with ui.column().classes("w-full gap-2").props('role=list aria-label="Incidents"'):
                for each in shown:
                    self._show(each)
            if len(found) > self._most:
                more = f"{min(len(found), SHOWN)} of {len(found)} in the last 7 days"
                ui.button(f"Show {more}", on_click=self._show_all).props("flat dense no-caps")

    def _show(self, incident: Shared) -> None:
        alarm, named, watchers = incident.worst, incident.named, incident.watchers
        with ui.row().classes("w-full items-start no-wrap gap-2").props("role=listitem"):
            _severity(alarm)
            with ui.column().classes("gap-0 min-w-0 grow"):
                with ui.row().classes("gap-x-2 gap-y-0"):
                    for watcher in watchers[:NAMED]:
                        ui.link(watcher.key, _address(watcher)).classes("break-all")
                    if len(watchers) > NAMED:
                        ui.label(f"and {len(watchers) - NAMED} more")
                said = [f"{_when(alarm.time)}: {alarm.says(next(iter(alarm.causes)))}"]
                said += [f"“{named.comment}”"] * bool(named.comment)
                said += [_like(alarm, watchers[0])] * bool(alarm.like)
                ui.label(". ".join(said)).classes("text-sm opacity-80 break-words")
            if incident.is_open:
                _badge("open", "negative")
            if named.label:
                _badge(named.label, "grey")
            if not incident.seen:
                ui.button("Seen", on_click=lambda: self._see(incident)).props("flat dense no-caps")

    def _show_all(self) -> None:
        self._most = SHOWN
        self._look()

    async def _see(self, incident: Shared) -> None:
        """Note of all alarms of an incident that somebody knows of them."""
        try:
            for alarm, watcher in incident.parts:
                if not alarm.label:
                    await self._service.orders.label(watcher, alarm.id, "seen", by=self._by)
        except OnladError as error:
            ui.notify(str(error), type="negative")
        self._look()


class Devices:
    """The list of devices."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._counts = ui.label().classes("text-sm opacity-80").props("role=status")
        with ui.row().classes("gap-3"):
            for name in service.streams:
                ui.link(
                    f"{name}: devices beside each other", f"/peers?{urlencode({'stream': name})}"
                )
        _heading("Devices")
        self._filter = ui.input("Filter").props("dense clearable").classes("w-full")
        self._list = ui.column().classes("w-full gap-2")
        self._rows: dict[tuple[str, str], Row] = {}
        self._shown: list[tuple[str, str]] = []
        self._more = ui.label().classes("text-sm opacity-60")
        ui.timer(EVERY, self._look)

    def _look(self) -> None:
        wanted = (self._filter.value or "").lower()
        found = [
            w for w in self._service.watchers.values() if wanted in f"{w.key} {w.state}".lower()
        ]
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
        states = Counter(w.state for w in self._service.watchers.values())
        self._counts.text = ", ".join(f"{states[s]:,} {s}" for s in WORST_FIRST if states[s])
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
            with ui.column().classes("gap-0 min-w-0 grow"):
                ui.link(watcher.key, address).classes("font-medium break-all text-inherit")
                self._said = ui.label().classes("text-sm opacity-70 break-words w-full")
            self._state = _badge("", "grey").classes("shrink-0")

    def look(self, watcher: Watcher) -> None:
        """Show the current state."""
        self._state.text = watcher.state
        self._state.props(f"color={COLOURS[watcher.state]}")
        said = f"{_count(watcher.monitor.n_seen, 'sample')}, the last {_ago(watcher.seen)}"
        if watcher.last is not None and watcher.last.ready:
            said += f", score {digits(watcher.last.score)} of {digits(watcher.last.threshold)}"
        if watcher.alarm is not None:
            said += f": {_causes(watcher.alarm)}"
        said += _drifting(watcher)
        if watcher.state == "learning":
            said += _learned(watcher)
        self._said.text = said


class Device:
    """The view of one device."""

    def __init__(self, service: Service, watcher: Watcher) -> None:
        self._service, self._watcher, self._by = service, watcher, _by()
        self._tried: Tried | None = None  # the last days, if they are shown
        ui.link("All devices", "/").classes("text-sm")
        with ui.row().classes("w-full items-center"):
            ui.label(watcher.key).classes("text-xl font-medium break-all").props(
                "role=heading aria-level=1"
            )
            self._state = ui.badge().props("role=status")
        self._counts = ui.label().classes("text-sm opacity-60")
        if watcher.kept:
            said = f"The configuration has changed: {', '.join(watcher.kept)}, because this device"
            ui.label(f"{said} has learned. Forget the device to let it start again.").classes(
                "text-sm text-warning"
            )
        known = [str(name) for name in watcher.names]
        with ui.row().classes("w-full items-center"):
            self._sensor = ui.select(known, value=_first(watcher), label="Sensor").classes("w-60")
            spans = {0.0: "the last samples", 1.0: "the last day", whatif.DAYS: "the last 7 days"}
            self._span = ui.select(spans, value=0.0, label="Shown", on_change=self._show_days)
            self._span.classes("w-48")
        self._band = ui.echart(_bands([], np.empty((0, 3, 1)), 0)).classes("w-full h-64")
        self._chart = ui.echart(_chart([])).classes("w-full h-64")
        with ui.row().classes("w-full items-center"):
            self._pause = ui.button(on_click=self._toggle).props("outline")
            ui.button("Save the model", on_click=self._save).props("outline")
            ui.button("Plan maintenance", on_click=self._maintain).props("outline")
            ui.button("What if", on_click=self._what_if).props("outline")
            ui.button("Take a snapshot", on_click=self._snap).props("outline")
            ui.button("Go back", on_click=self._choose).props("outline")
            ui.button("Forget the device", on_click=self._ask).props("outline color=negative")
        _heading("Alarms")
        self._alarms = ui.column().classes("w-full gap-2")
        self._cards: dict[str, Card] = {}
        self._dialogs = ui.element("div")
        self._listed: list[tuple[Any, ...]] | None = None
        self._timer = ui.timer(EVERY, self._look)
        if len(watcher.history.points()) < min(FEW, watcher.monitor.n_seen):
            ui.timer(0.1, self._show_days, once=True)  # after a restart: the journal has them

    def _look(self) -> None:
        watcher = self._watcher
        self._state.text = watcher.state
        self._state.props(f"color={COLOURS[watcher.state]}")
        self._counts.text = (
            f"{_count(watcher.monitor.n_seen, 'sample')}, {_count(watcher.n_alarms, 'alarm')} and "
            f"{_count(watcher.drifts, 'new mode')} since the start, {watcher.bad:,} skipped. "
            f"The last sample came {_ago(watcher.seen)}{_drifting(watcher)}{_learned(watcher)}"
        )
        if watcher.serviced:
            self._counts.text += ". Maintenance: nothing is told or learned"
        if watcher.suppressed:
            too_many = _count(watcher.suppressed, "alarm")
            self._counts.text += f". {too_many} beyond the budget of a day, and suppressed"
        self._pause.text = "Go on learning" if watcher.paused else "Pause learning"
        points, around = watcher.history.after(self._tried.history if self._tried else None)
        drawn = _chart(points)
        self._chart.options["series"], self._chart.options["xAxis"] = (
            drawn["series"],
            drawn["xAxis"],
        )
        self._chart.update()
        if (names := [str(name) for name in watcher.names]) != list(self._sensor.options):
            self._sensor.set_options(names, value=self._sensor.value or names[0])
        if self._sensor.value in names[: around.shape[-1]]:
            index = names.index(str(self._sensor.value))
            band = _bands(points, around, index, watcher.alarms)
            about = f"{self._sensor.value} over time, with the band in which it is expected"
            self._band.options.update({name: band[name] for name in ("series", "xAxis")})
            self._band.options["aria"] = _spoken(about)
            self._band.update()
        newest = list(watcher.alarms)[: -ALARMS - 1 : -1]
        listed = [
            (a.id, a.marked, list(a.causes)[:CAUSES], a.label, a.comment, a.like) for a in newest
        ]
        if listed != self._listed:
            self._listed = listed
            self._cards.clear()
            self._alarms.clear()
            with self._alarms:
                if not newest:
                    ui.label("None so far.").classes("opacity-60")
                for alarm in newest:
                    self._show(alarm)
        for alarm in newest:  # made anew, a button that has the focus would lose it
            self._cards[alarm.id].look(alarm)

    def _show(self, alarm: Alarm) -> None:
        with ui.card().classes("w-full p-3 gap-1"):
            card = self._cards[alarm.id] = Card(alarm)
            self._buttons(alarm)
            said = [
                alarm.comment and f"“{alarm.comment}”",
                alarm.like and _like(alarm, self._watcher),
                "" if alarm.told else "suppressed: too many that day",
            ]
            if any(said):
                ui.label(". ".join(filter(None, said))).classes("text-sm")
            card.add_causes(alarm)

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

    async def _show_days(self) -> None:
        """Show the last days: they are judged once more."""
        self._tried, days = None, float(self._span.value)
        if days:
            self._tried = await self._try(None, days)
        elif len(self._watcher.history.points()) < FEW:
            with contextlib.suppress(OnladError):  # nobody asked for it
                self._tried = await self._service.orders.tried(self._watcher, days=1.0)
        self._look()

    async def _try(self, rate: float | None, days: float) -> Tried | None:
        try:
            return await self._service.orders.tried(self._watcher, rate, days)
        except OnladError as error:
            ui.notify(str(error), type="negative")
            return None

    def _what_if(self) -> None:
        """Ask which alarms would have come with another threshold."""
        now = self._watcher.monitor.false_alarms
        with ui.dialog(value=True) as dialog, ui.card().classes("w-full max-w-xl"):
            ui.label("Which alarms would have come in the last 7 days?").classes("font-medium")
            steps = {exponent: f"1 in {10**exponent:,}" for exponent in range(2, 7)}
            at = min(steps, key=lambda exponent: abs(math.log10(now) + exponent))
            ui.label("A false alarm in how many normal samples: fewer means a higher threshold")
            rate = ui.slider(min=2, max=6, step=1, value=at).props(
                'markers aria-label="False alarms"'
            )
            told = ui.label(steps[at])
            rate.on_value_change(lambda: told.set_text(steps[int(rate.value)]))
            answer = ui.column().classes("w-full gap-1").props("role=status")

            async def look() -> None:
                tried = await self._try(10.0 ** -float(rate.value), whatif.DAYS)
                answer.clear()
                with answer:
                    if tried is None:
                        return
                    count = len(tried.incidents)
                    there = sum(a.time >= tried.since for a in self._watcher.alarms)
                    ui.label(
                        f"{count} incident{'s' * (count != 1)} since {_when(tried.since)}, "
                        f"with {steps[int(rate.value)]}. In fact: {there}."
                    )
                    for incident in tried.incidents[-ALARMS:]:
                        cause = next(iter(incident.causes), "")
                        ui.label(
                            f"{_when(incident.times[0])}: severity {incident.severity:.0f}, {cause}"
                        ).classes("text-sm")

            with ui.row():
                ui.button("Try", on_click=look)
                ui.button("Close", on_click=dialog.close).props("flat")

    def _maintain(self) -> None:
        """Let a person say when the device is serviced."""
        own = self._watcher
        with ui.dialog(value=True) as dialog, ui.card():
            ui.label("While it is serviced, nothing is told or learned.")

            async def keep(windows: tuple[str, ...]) -> None:
                dialog.close()
                try:
                    await self._service.orders.maintain(own, windows, by=self._by)
                    ui.notify("Noted", type="positive")
                except OnladError as error:
                    ui.notify(str(error), type="negative")

            for text in own.stream.maintenance:
                ui.label(f"{text} (of the file)").classes("text-sm")
            for text in own.windows:
                rest = tuple(each for each in own.windows if each != text)
                with ui.row().classes("items-center no-wrap"):
                    ui.label(text).classes("text-sm")
                    ui.button("Remove", on_click=lambda rest=rest: keep(rest)).props("flat dense")
            with ui.row():
                for hours in (1, 4, 12):
                    ui.button(
                        f"{hours} h from now",
                        on_click=lambda hours=hours: keep((*own.windows, _from_now(hours))),
                    ).props("outline")
            when = ui.input("Or when, such as Sat 22:00-23:30").classes("w-72")
            with ui.row():
                ui.button("Add", on_click=lambda: keep((*own.windows, when.value or "")))
                ui.button("Close", on_click=dialog.close).props("flat")

    def _comment(self, alarm: Alarm, label: str) -> None:
        """Ask what it was; the next alarm like it is called so."""
        # Not in the list of alarms, which is made anew when one of them goes on.
        with self._dialogs, ui.dialog(value=True) as dialog, ui.card():
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
            await self._service.orders.pause(self._watcher, not self._watcher.paused, self._by)
        except OnladError as error:
            ui.notify(str(error), type="negative")
        self._look()

    async def _label(self, alarm: Alarm, label: str, comment: str = "") -> None:
        try:
            count = await self._service.orders.label(
                self._watcher, alarm.id, label, comment, by=self._by
            )
            said, kind = "Noted", "positive"
            if label == "fault" and count:
                said = f"Noted. {count} samples that were learned during it are taken back"
            if label == "normal":
                said = f"Learned {count} sample" + "s" * (count != 1)
        except OnladError as error:
            said, kind = str(error), "negative"
        with self._alarms:  # the button that was clicked may be gone by now
            ui.notify(said, type=kind)  # type: ignore[arg-type]
        self._look()

    async def _snap(self) -> None:
        try:
            await self._service.orders.snapshot(self._watcher, self._by)
            ui.notify("The model is kept as it is now", type="positive")
        except OnladError as error:
            ui.notify(str(error), type="negative")

    def _choose(self) -> None:
        """Let a person choose a snapshot to go back to."""
        kept = self._service.store.snapshots(self._watcher.number)[::-1]
        with ui.dialog(value=True) as dialog, ui.card():
            ui.label("Go back to a snapshot? What was learned since is gone." if kept else
                     "There is no snapshot yet.")  # fmt: skip

            again = ui.checkbox("Learn the samples since then again")

            async def back(file: str) -> None:
                dialog.close()
                try:
                    await self._service.orders.revert(
                        self._watcher, file, by=self._by, again=bool(again.value)
                    )
                    ui.notify("The model is as it was then", type="positive")
                except OnladError as error:
                    ui.notify(str(error), type="negative")

            for file in kept:
                _, seen, same = file.removesuffix(".onlad").split("-")
                taken = _ago(time.time() - self._service.store.age(file))
                text = f"After {int(seen):,} samples"
                text += f", number {int(same) + 1}" if int(same) else ""
                ui.button(f"{text}, {taken}", on_click=lambda file=file: back(file)).props(
                    "flat no-caps"
                )
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
            file = await self._service.orders.forget(self._watcher, self._by)
        except OnladError as error:
            ui.notify(str(error), type="negative")
            return

        async def undo() -> None:
            try:
                await self._service.orders.restore(file, self._by)
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


class Card:
    """What is said of one alarm, which changes while it goes on."""

    def __init__(self, alarm: Alarm) -> None:
        with ui.row().classes("items-center no-wrap gap-2"):
            self._severity = _severity(alarm)
            self._told = ui.label()
        self._causes: dict[str, tuple[ui.linear_progress, ui.label]] = {}

    def add_causes(self, alarm: Alarm) -> None:
        """Show the largest causes, and what was expected of them."""
        for name in list(alarm.causes)[:CAUSES]:
            with ui.row().classes("w-full items-center gap-x-2 gap-y-0"):
                ui.label(name).classes("w-full sm:w-1/4 break-all text-sm")
                bar = ui.linear_progress(0.0, show_value=False, color="negative")
                bar.classes("grow w-16").props('aria-hidden="true"')  # the text says it too
                self._causes[name] = bar, ui.label().classes("text-right text-sm")

    def look(self, alarm: Alarm) -> None:
        """Show what is known by now."""
        lasted = alarm.last - alarm.row + 1
        told = f"{_when(alarm.time)}, {lasted:,} sample" + "s" * (lasted > 1)
        if alarm.end > alarm.time:
            told += f" until {_when(alarm.end)}"
        self._told.text = f"{told}, score up to {digits(alarm.highest)}"
        self._severity.text = f"{alarm.severity:.0f}"
        for name, (bar, text) in self._causes.items():
            bar.value = alarm.causes.get(name, 0.0)
            text.text = alarm.says(name).removeprefix(f"{name} ")


class Peers:
    """The devices of a stream beside each other."""

    def __init__(self, service: Service, stream: str) -> None:
        self._service, self._stream = service, stream
        ui.link("All devices", "/").classes("text-sm")
        ui.label(f"{stream}: devices beside each other").classes("text-xl font-medium")
        ui.label(
            "Unusual for itself is a device in alarm; unusual among its like is one whose sensor "
            "is far from where it is on the other devices."
        ).classes("text-sm opacity-80")
        names = ("device", "for itself", "among its like", "sensor", "here", "the others")
        columns = [{"name": name, "label": name, "field": name, "align": "left"} for name in names]
        self._table = ui.table(columns=columns, rows=[], row_key="device").classes("w-full")
        self._table.add_slot("body-cell-device", LINKED)
        self._more = ui.label().classes("text-sm opacity-60")
        ui.timer(2 * EVERY, self._look)

    def _look(self) -> None:
        own = self._service.devices.of(self._stream)
        found = peers(own)
        self._table.rows = [
            {
                "device": peer.device,
                "address": _address(self._service.watchers[self._stream, peer.device]),
                "for itself": "unusual" if peer.itself else "usual",
                "among its like": "unusual" if peer.among else "usual",
                "sensor": peer.sensor,
                "here": f"{peer.value:.4g}",
                "the others": f"{peer.usual:.4g}",
            }
            for peer in found[:SHOWN]
        ]
        self._more.text = (
            f"{len(self._table.rows)} of {len(own)} devices"
            if found
            else (f"There are no {FEWEST} devices with the same sensors that are ready.")
        )


def _by() -> str:
    """Return who looks at the page: the name that was given with the password."""
    request = ui.context.client.request
    return user(request.headers) or "the page"


def _heading(text: str) -> None:
    ui.label(text).classes("text-lg font-medium").props("role=heading aria-level=2")


def _badge(text: str, colour: str) -> ui.badge:
    """Show a word in a colour. Quasar would have each announced when it changes."""
    return ui.badge(text, color=colour).props("role=note")


def _like(alarm: Alarm, watcher: Watcher) -> str:
    """Return what an alarm is like: a name, or the time of one that has none."""
    for past in watcher.alarms:
        if past.id == alarm.like:
            return f"like that of {_when(past.time)}"
    return f"like {alarm.like}"


def _from_now(hours: int) -> str:
    """Return a time of maintenance that begins now, in UTC."""
    now = datetime.now(timezone.utc).replace(microsecond=0)
    return f"{now.isoformat()}/{(now + timedelta(hours=hours)).isoformat()}"


def _severity(alarm: Alarm) -> ui.badge:
    """Show the severity as a number in a colour."""
    colour = next(c for least, c in SEVERITIES if alarm.severity >= least)
    number = f"{alarm.severity:.0f}"
    return _badge(number, colour).props(f'aria-label="severity {number}"').classes("mt-1")


def _first(watcher: Watcher) -> str | None:
    """Return the sensor that is shown first: the cause of the newest alarm."""
    causes = watcher.alarms[-1].causes if watcher.alarms else {}
    return next(iter(causes), None) or next(map(str, watcher.names), None)


def _address(watcher: Watcher) -> str:
    return "/watch?" + urlencode({"stream": watcher.stream.name, "device": watcher.device})


def _when(seconds: float) -> str:
    return time.strftime("%d %b %H:%M:%S", time.localtime(seconds))


def _count(number: int, what: str) -> str:
    """Return a number of things.

    Examples
    --------
    >>> _count(1, "alarm"), _count(2000, "sample")
    ('1 alarm', '2,000 samples')
    """
    return f"{number:,} {what}" + "s" * (number != 1)


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


def _learned(watcher: Watcher) -> str:
    """Return what is being learned, or nothing if that is only what is usual."""
    known = watcher.monitor.describe()
    if not known["ready"]:
        return f". It learns what is normal: {known['why']}"
    if known["candidate"]:
        return ". A lasting change is being learned, and may become a new mode"
    return ""


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


def _spoken(text: str) -> dict[str, Any]:
    """Return what a screen reader says of a chart; by itself it would read out numbers."""
    return {"enabled": True, "label": {"description": text}}


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
        "dataZoom": [{"type": "inside"}],
        "aria": _spoken("Score and threshold over time"),
        "xAxis": {"type": "category", "axisLabel": words, "data": [_when(p.time) for p in points]},
        "yAxis": {"axisLabel": words, "splitLine": {"lineStyle": {"opacity": 0.2}}},
        "series": [score, threshold, anomalies],
    }


def _bands(
    points: Sequence[Point], around: Array, index: int, alarms: Iterable[Alarm] = ()
) -> dict[str, Any]:
    """Return the options of the chart of one sensor: values, the band they are in, incidents."""
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
    areas = [
        [{"xAxis": here[0]}, {"xAxis": here[-1]}]
        for alarm in alarms
        if (here := [i for i, p in enumerate(points) if alarm.row <= p.row <= alarm.last])
    ]
    value["markArea"] = {
        "silent": True,
        "itemStyle": {"color": RED, "opacity": 0.15},
        "data": areas,
    }
    marks = {"type": "scatter", "name": "anomalies", "color": RED, "symbolSize": 6}
    pairs = zip(points, values, strict=True)
    marks |= {"animation": False, "data": [v if p.is_anomaly else None for p, v in pairs]}
    words = {"color": GREY}
    axis = {"scale": True, "axisLabel": words, "splitLine": {"lineStyle": {"opacity": 0.2}}}
    return {
        "grid": {"left": 56, "right": 16, "top": 32, "bottom": 44},
        "legend": {"top": 0, "textStyle": words, "data": ["value", "band", "anomalies"]},
        "tooltip": {"trigger": "axis", ":formatter": TOLD},
        "dataZoom": [{"type": "inside"}, {"type": "slider", "height": 14, "bottom": 2}],
        "aria": _spoken("A sensor over time"),
        "xAxis": {"type": "category", "axisLabel": words, "data": [_when(p.time) for p in points]},
        "yAxis": axis,
        "series": [low, band, value, marks],
    }
