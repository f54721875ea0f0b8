"""The page: what the service sees, and what a person can do. NiceGUI, in the same process.

`attach` adds three views to the application. ``/`` lists the incidents of all devices, and the
devices, those in alarm first. ``/watch`` shows one: its sensors with their bands, score against
threshold, drift, its alarms with what was expected, and the buttons. ``/peers`` shows the devices
of a stream beside each other. A view looks at the service
once a second while it is open, and changes it through `Service` alone.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any
from urllib.parse import urlencode

from fastapi import FastAPI
from nicegui import Client, ui

from onlad.report.lines import digits
from onlad.serve import shown
from onlad.serve.across import FEWEST, Shared, peers, shared
from onlad.serve.charts import when
from onlad.serve.devicepage import Device
from onlad.serve.service import Service
from onlad.serve.watcher import Watcher

SHOWN = 100  # devices in the list; the filter finds the others
RECENT = 7 * 86400  # seconds that the list of incidents goes back
NAMED = 4  # devices of an incident
WAITING = 100  # views without a browser
WORST_FIRST = ("failed", "alarm", "silent", "learning", "paused", "normal")
#: A cell with a link to the device.
LINKED = """<q-td :props="props" style="white-space: normal; min-width: 9em">
<a class="text-primary" :href="props.row.address">{{ props.value || "-" }}</a></q-td>"""


def attach(app: FastAPI, service: Service) -> None:
    """Add the page to the application of a service."""

    @ui.page("/", title="onlad")
    def devices() -> None:
        _frame(service)
        shown.heading("Incidents and devices", 1, "sr-only")
        Incidents(service)
        Devices(service)

    @ui.page("/peers", title="onlad")
    def beside(stream: str = "") -> None:
        _frame(service)
        Peers(service, stream)

    @ui.page("/watch", title="onlad")
    def watch(stream: str = "", device: str = "", alarm: str = "") -> None:
        _frame(service)
        watcher = service.watchers.get((stream, device))
        if watcher is None:
            ui.label("This device is not watched, or has sent nothing yet.")
            ui.link("All devices", "/")
        else:
            Device(service, watcher, alarm)

    # dark=None: as the reader's system has it.
    ui.run_with(app, title="onlad", dark=None, language="en-US", show_welcome_message=False)


def _frame(service: Service) -> None:
    """Add the head of a page: links, and whether the service is ready."""
    # Views whose browser never came, or is gone, make room: NiceGUI keeps each for a minute.
    waiting = [client for client in Client.instances.values() if not client.has_socket_connection]
    for client in waiting[:-WAITING]:
        client.delete()
    ui.colors(**shown.LIGHT)
    ui.add_css(shown.CSS)
    ui.query(".nicegui-content").classes("w-full max-w-7xl mx-auto gap-3")
    with ui.header().classes("items-center py-2 bg-primary"):
        ui.link("onlad", "/").classes("text-xl font-bold text-white no-underline")
        ui.space()
        state = ui.label().classes("text-sm text-white")

    def look() -> None:
        state.text = "; ".join(service.health.problems()) or "service: ok"

    ui.timer(shown.EVERY, look)


class Incidents:
    """The newest incidents of all devices; those that began together are one."""

    def __init__(self, service: Service) -> None:
        self._service, self._by, self._most = service, shown.person(), shown.ALARMS
        self._listed: list[Any] = []
        self._list = ui.column().classes("w-full gap-2")
        ui.timer(2 * shown.EVERY, self._look)

    def _look(self) -> None:
        found = shared(self._service.watchers.values(), time.time() - RECENT)
        newest, outbox = found[: self._most], self._service.outbox
        listed = [len(found), outbox.suppressed] + [
            (alarm.id, round(alarm.severity), each.is_open, alarm.label, alarm.comment, alarm.like)
            for each in newest
            for alarm, _ in each.parts
        ]
        if listed == self._listed:
            return
        self._listed = listed
        self._list.clear()
        if not found:
            return
        with self._list:
            shown.heading("Incidents")
            shown.note("With their severity, 0 to 100: 50 comes once in 100,000 normal samples.")
            if outbox.suppressed:
                said = f"{shown.counted(outbox.suppressed, 'alarm')} beyond the budget of "
                said += f"{outbox.per_hour} per hour since the service started, and suppressed"
                shown.note(said, "text-warning").props("role=status")
            with ui.column().classes("w-full gap-2").props('role=list aria-label="Incidents"'):
                for each in newest:
                    self._show(each)
            if len(found) > self._most:
                more = f"{min(len(found), SHOWN)} of {len(found)} in the last 7 days"
                shown.small(f"Show {more}", self._show_all)

    def _show(self, incident: Shared) -> None:
        alarm, named, firsts = incident.worst, incident.named, incident.firsts
        with ui.row().classes("w-full items-start no-wrap gap-2").props("role=listitem"):
            shown.severity(alarm)
            with ui.column().classes("gap-0 min-w-0 grow"):
                with ui.row().classes("gap-x-2 gap-y-0"):
                    for own, watcher in firsts[:NAMED]:
                        ui.link(watcher.key, shown.address_of(watcher, own)).classes("break-all")
                    if len(firsts) > NAMED:
                        ui.label(f"and {len(firsts) - NAMED} more")
                said = [f"{when(alarm.time)}: {alarm.says(next(iter(alarm.causes)))}"]
                said += [f"“{named.comment}”"] * bool(named.comment)
                said += [shown.like(alarm, firsts[0][1])] * bool(alarm.like)
                shown.note(". ".join(said), "opacity-80 break-words")
            if incident.is_open:
                shown.badge("open", "negative")
            for word in filter(None, ("" if incident.reported else "suppressed", named.label)):
                shown.badge(word, "grey-8")
            if not incident.seen:
                shown.small("Seen", lambda: self._see(incident))

    def _show_all(self) -> None:
        self._most = SHOWN
        self._look()

    async def _see(self, incident: Shared) -> None:
        """Note of all alarms of an incident that somebody knows of them."""
        for alarm, watcher in incident.parts:
            if not alarm.label:
                label = self._service.orders.label(watcher, alarm.id, "seen", by=self._by)
                if not await shown.done(label):
                    break
        self._look()


class Devices:
    """The list of devices."""

    def __init__(self, service: Service) -> None:
        self._service = service
        shown.heading("Devices")
        self._counts = shown.note().props("role=status")
        with ui.row().classes("gap-3"):
            for name in service.streams:
                address = f"/peers?{urlencode({'stream': name})}"
                ui.link(f"{name}: devices beside each other", address)
        self._filter = ui.input("Filter").props("dense clearable").classes("w-full")
        self._list = ui.column().classes("w-full gap-2")
        self._rows: list[Row] = []
        self._shown: list[tuple[str, str]] = []
        self._more = shown.note(classes="opacity-60")
        ui.timer(shown.EVERY, self._look)

    def _look(self) -> None:
        wanted, known = (self._filter.value or "").lower(), self._service.watchers
        found = [w for w in known.values() if wanted in f"{w.key} {w.state}".lower()]
        found.sort(key=lambda w: (WORST_FIRST.index(w.state), w.key))
        del found[SHOWN:]
        keys = [(w.stream.name, w.device) for w in found]
        if keys != self._shown:  # a new order: build it again
            self._list.clear()
            with self._list:
                self._rows = [Row(watcher) for watcher in found]
            self._shown = keys
        for row, watcher in zip(self._rows, found, strict=True):
            row.look(watcher)
        states = Counter(w.state for w in known.values())
        self._counts.text = ", ".join(
            f"{states[s]:,} {'in ' * (s == 'alarm')}{s}" for s in WORST_FIRST if states[s]
        )
        self._more.text = f"{len(found)} of {len(known)} devices"
        if not known:
            self._more.text = "No device has sent a sample yet."


class Row:
    """One device of the list."""

    def __init__(self, watcher: Watcher) -> None:
        address = shown.address_of(watcher)
        card = ui.card().classes("w-full p-3 cursor-pointer")
        card.on("click", lambda: ui.navigate.to(address))
        with card, ui.row().classes("w-full items-center justify-between no-wrap"):
            with ui.column().classes("gap-0 min-w-0 grow"):
                ui.link(watcher.key, address).classes("font-medium break-all text-inherit")
                self._said = shown.note(classes="opacity-70 break-words w-full")
            self._state = shown.badge("", "grey-8").classes("shrink-0")

    def look(self, watcher: Watcher) -> None:
        """Show the current state."""
        shown.state_of(self._state, watcher)
        seen, last, alarm = shown.ago(watcher.seen), watcher.last, watcher.alarm
        said = f"{shown.counted(watcher.monitor.n_seen, 'sample')}, the last {seen}"
        if last is not None and last.ready:
            said += f", score {digits(last.score)}, threshold {digits(last.threshold)}"
        if alarm is not None:
            said += f". Alarm since {when(alarm.time)}: {alarm.says(next(iter(alarm.causes)))}"
        said += shown.drifting(watcher)
        if watcher.state == "learning":
            said += shown.learning(watcher)
        self._said.text = said


class Peers:
    """The devices of a stream beside each other."""

    def __init__(self, service: Service, stream: str) -> None:
        self._service, self._stream = service, stream
        ui.link("All devices", "/").classes("text-sm")
        shown.heading(f"{stream}: devices beside each other", 1, "text-xl font-medium")
        shown.note(
            "A device in alarm is unusual beside its own past. It is unusual beside the others if "
            "a sensor is far from the median of all devices."
        )
        names = ("device", "own past", "other devices", "sensor", "here", "median")
        columns = [{"name": name, "label": name, "field": name, "align": "left"} for name in names]
        self._table = ui.table(columns=columns, rows=[], row_key="device").classes("w-full")
        self._table.add_slot("body-cell-device", LINKED)
        self._more = shown.note(classes="opacity-60")
        ui.timer(2 * shown.EVERY, self._look)

    def _look(self) -> None:
        own = self._service.devices.of(self._stream)
        found = peers(own)
        self._table.rows = [
            {
                "device": peer.device,
                "address": shown.address_of(self._service.watchers[self._stream, peer.device]),
                "own past": "unusual" if peer.itself else "usual",
                "other devices": "unusual" if peer.among else "usual",
                "sensor": peer.sensor,
                "here": f"{peer.value:g}",
                "median": f"{peer.usual:g}",
            }
            for peer in found[:SHOWN]
        ]
        self._more.text = f"{len(self._table.rows)} of {len(own)} devices"
        if not found:
            none = f"There are no {FEWEST} devices with the same sensors that are ready"
            self._more.text = f"{none}, and have sent a sample since the service started."
