"""The view of one device: sensors and bands, scores, alarms, and what a person can do."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

import numpy as np
from nicegui import ui

from onlad.errors import OnladError
from onlad.report.lines import digits
from onlad.serve import replay, shown
from onlad.serve.alarm import Alarm
from onlad.serve.charts import bands, scores, spoken, when
from onlad.serve.service import Service
from onlad.serve.watcher import Watcher

CAUSES = 6  # features that are named
FEW = 100  # samples since the start: then the last day is shown with them


class Device:
    """The view of one device."""

    def __init__(self, service: Service, watcher: Watcher) -> None:
        self._service, self._watcher, self._by = service, watcher, shown.person()
        self._orders = service.orders
        self._tried: replay.Tried | None = None  # the last days, if they are shown
        ui.link("All devices", "/").classes("text-sm")
        with ui.row().classes("w-full items-center"):
            shown.heading(watcher.key, 1, "text-xl font-medium break-all")
            self._state = ui.badge().props("role=status")
        self._counts = shown.note(classes="opacity-60")
        if watcher.kept:
            said = f"The configuration has changed: {', '.join(watcher.kept)}, because this device"
            said += " has learned. Forget the device to let it start again."
            shown.note(said, "text-warning")
        known = [str(name) for name in watcher.names]
        with ui.row().classes("w-full items-center"):
            self._sensor = ui.select(known, value=_first(watcher), label="Sensor").classes("w-60")
            spans = {0.0: "the last samples", 1.0: "the last day", replay.DAYS: "the last 7 days"}
            self._span = ui.select(spans, value=0.0, label="Shown", on_change=self._show_days)
            self._span.classes("w-48")
        self._band = ui.echart(bands([], np.empty((0, 3, 1)), 0)).classes("w-full h-64")
        self._chart = ui.echart(scores([])).classes("w-full h-64")
        with ui.row().classes("w-full items-center"):
            self._pause = ui.button(on_click=self._toggle).props("outline")
            for text, do in (
                ("Save the model", self._save),
                ("Plan maintenance", self._maintain),
                ("What if", self._what_if),
                ("Take a snapshot", self._snap),
                ("Go back", self._choose),
            ):
                ui.button(text, on_click=do).props("outline")
            ui.button("Forget the device", on_click=self._ask).props("outline color=negative")
        shown.heading("Alarms")
        self._alarms = ui.column().classes("w-full gap-2")
        self._cards: dict[str, Card] = {}
        self._dialogs = ui.element("div")
        self._listed: list[tuple[Any, ...]] | None = None
        self._timer = ui.timer(shown.EVERY, self._look)
        if len(watcher.history.points()) < min(FEW, watcher.monitor.n_seen):
            ui.timer(0.1, self._show_days, once=True)  # after a restart: the journal has them

    def _look(self) -> None:
        watcher = self._watcher
        shown.state_of(self._state, watcher)
        counts = ((watcher.monitor.n_seen, "sample"), (watcher.n_alarms, "alarm"),
                  (watcher.drifts, "new mode"), (watcher.suppressed, "alarm"))  # fmt: skip
        samples, alarms, modes, too_many = (shown.counted(*each) for each in counts)
        said = [
            f"{samples}, {alarms} and {modes} since the start, {watcher.bad:,} skipped",
            f"The last sample came {shown.ago(watcher.seen)}"
            f"{shown.drifting(watcher)}{shown.learning(watcher)}",
        ]
        said += ["Maintenance: nothing is reported or learned"] * watcher.serviced
        said += [f"{too_many} beyond the budget, and suppressed"] * bool(watcher.suppressed)
        self._counts.text = ". ".join(said)
        self._pause.text = "Go on learning" if watcher.paused else "Pause learning"
        self._draw()
        newest = list(watcher.alarms)[: -shown.ALARMS - 1 : -1]
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

    def _draw(self) -> None:
        """Draw what is known by now."""
        watcher, names = self._watcher, [str(name) for name in self._watcher.names]
        points, around = watcher.history.after(self._tried.history if self._tried else None)
        if names != list(self._sensor.options):
            self._sensor.set_options(names, value=self._sensor.value or names[0])
        drawn = [(self._chart, scores(points))]
        if self._sensor.value in names[: around.shape[-1]]:
            index = names.index(str(self._sensor.value))
            drawn.append((self._band, bands(points, around, index, watcher.alarms)))
            about = f"{self._sensor.value} over time, with the band in which it is expected"
            self._band.options["aria"] = spoken(about)
        for chart, options in drawn:
            chart.options.update({name: options[name] for name in ("series", "xAxis")})
            chart.update()

    def _show(self, alarm: Alarm) -> None:
        with ui.card().classes("w-full p-3 gap-1"):
            card = self._cards[alarm.id] = Card(alarm)
            with ui.row().classes("items-center gap-1"):
                self._buttons(alarm)
            said = [
                alarm.comment and f"“{alarm.comment}”",
                alarm.like and shown.like(alarm, self._watcher),
                "" if alarm.told else "suppressed: there were too many",
            ]
            if any(said):
                shown.note(". ".join(filter(None, said)), "")
            card.add_causes(alarm)

    def _buttons(self, alarm: Alarm) -> None:
        if alarm.marked or alarm.label:
            ui.badge("marked as normal" if alarm.marked else alarm.label, color="grey-8")
            if alarm.undo or not alarm.marked:
                shown.small("Undo", lambda: self._label(alarm, ""))
            return
        shown.small("This was normal", lambda: self._label(alarm, "normal"))
        shown.small("Fault", lambda: self._comment(alarm, "fault"))
        shown.small("Maintenance", lambda: self._comment(alarm, "maintenance"))
        shown.small("Seen", lambda: self._label(alarm, "seen"))

    async def _show_days(self) -> None:
        """Show the last days: they are judged once more."""
        self._tried, days = None, float(self._span.value)
        if days:
            self._tried = await self._try(None, days)
        elif len(self._watcher.history.points()) < FEW:
            with contextlib.suppress(OnladError):  # nobody asked for it
                self._tried = await self._orders.tried(self._watcher, days=1.0)
        self._look()

    async def _try(self, rate: float | None, days: float) -> replay.Tried | None:
        try:
            return await self._orders.tried(self._watcher, rate, days)
        except OnladError as error:
            ui.notify(str(error), type="negative")
            return None

    # -- what a person can do -----------------------------------------------------------------

    def _what_if(self) -> None:
        """Ask which alarms would have come with another threshold."""
        now = self._watcher.monitor.false_alarms
        with _dialog("Which alarms would have come in the last 7 days?") as dialog:
            steps = {exponent: f"1 in {10**exponent:,}" for exponent in range(2, 7)}
            at = min(steps, key=lambda exponent: abs(math.log10(now) + exponent))
            ui.label("A false alarm in how many normal samples: fewer means a higher threshold")
            rate = ui.slider(min=2, max=6, step=1, value=at)
            rate.props('markers aria-label="False alarms"')
            told = ui.label(steps[at])
            rate.on_value_change(lambda: told.set_text(steps[int(rate.value)]))
            answer = ui.column().classes("w-full gap-1").props("role=status")

            async def look() -> None:
                tried = await self._try(10.0 ** -float(rate.value), replay.DAYS)
                answer.clear()
                if tried is None:
                    return
                count = shown.counted(len(tried.incidents), "incident")
                there = sum(a.time >= tried.since for a in self._watcher.alarms)
                with answer:
                    since, budget = when(tried.since), steps[int(rate.value)]
                    ui.label(f"{count} since {since}, with {budget}. In fact: {there}.")
                    for each in tried.incidents[-shown.ALARMS :]:
                        cause = next(iter(each.causes), "")
                        shown.note(
                            f"{when(each.times[0])}: severity {each.severity:.0f}, {cause}", ""
                        )

            with ui.row():
                ui.button("Try", on_click=look)
                ui.button("Close", on_click=dialog.close).props("flat")

    def _maintain(self) -> None:
        """Let a person say when the device is serviced."""
        own = self._watcher
        with _dialog("During maintenance nothing is reported or learned.") as dialog:

            async def keep(windows: tuple[str, ...]) -> None:
                dialog.close()
                await shown.done(self._orders.maintain(own, windows, by=self._by), "Noted")

            for text in own.stream.maintenance:
                shown.note(f"{text} (of the file)", "")
            for text in own.windows:
                rest = tuple(each for each in own.windows if each != text)
                with ui.row().classes("items-center no-wrap"):
                    shown.note(text, "")
                    ui.button("Remove", on_click=partial(keep, rest)).props("flat dense")
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
        with self._dialogs, _dialog("The next alarm like it is called so.") as dialog:
            text = ui.input("What was it?").props("autofocus").classes("w-72")

            async def keep() -> None:
                dialog.close()
                await self._label(alarm, label, text.value or "")

            text.on("keydown.enter", keep)
            with ui.row():
                ui.button("Cancel", on_click=dialog.close).props("flat")
                ui.button("Keep", on_click=keep)

    async def _toggle(self) -> None:
        pause = not self._watcher.paused
        await shown.done(self._orders.pause(self._watcher, pause, self._by))
        self._look()

    async def _label(self, alarm: Alarm, label: str, comment: str = "") -> None:
        order = self._orders.label(self._watcher, alarm.id, label, comment, by=self._by)

        async def work() -> str:
            samples = shown.counted(await order, "sample")
            if label == "fault" and samples != "0 samples":
                return f"Noted. {samples} that were learned during it are taken back"
            return f"Learned {samples}" if label == "normal" else "Noted"

        with self._alarms:  # the button that was clicked may be gone by now
            await shown.done(work(), None)
        self._look()

    async def _snap(self) -> None:
        snapshot = self._orders.snapshot(self._watcher, self._by)
        await shown.done(snapshot, "The model is kept as it is now")

    def _choose(self) -> None:
        """Let a person choose a snapshot to go back to."""
        kept = self._service.store.snapshots(self._watcher.number)[::-1]
        title = "Go back to a snapshot? What was learned since is gone."
        with _dialog(title if kept else "There is no snapshot yet.") as dialog:
            again = ui.checkbox("Learn the samples since then again")

            async def back(file: str) -> None:
                dialog.close()
                own, learn = self._watcher, bool(again.value)
                revert = self._orders.revert(own, file, by=self._by, again=learn)
                await shown.done(revert, "The model is as it was then")

            for file in kept:
                _, seen, same = file.split(".")[0].split("-")
                text = f"After {int(seen):,} samples"
                text += f", number {int(same) + 1}" if int(same) else ""
                text += f", {shown.ago(self._service.store.taken(file))}"
                shown.small(text, partial(back, file))
            ui.button("Cancel", on_click=dialog.close).props("flat")

    def _ask(self) -> None:
        """Ask for confirmation."""
        with _dialog(f"Forget all that was learned of {self._watcher.key}?") as dialog, ui.row():
            ui.button("Cancel", on_click=dialog.close).props("flat")
            ui.button("Forget", on_click=self._forget).props("color=negative")

    async def _forget(self) -> None:
        try:
            file = await self._orders.forget(self._watcher, self._by)
        except OnladError as error:
            ui.notify(str(error), type="negative")
            return

        async def undo() -> None:
            if await shown.done(self._orders.restore(file, self._by)):
                ui.navigate.to(shown.address_of(self._watcher))

        self._timer.cancel()
        content = ui.context.client.content
        content.clear()
        with content:
            ui.label(f"{self._watcher.key} is forgotten. The file forgotten/{file} can undo it.")
            ui.button("Undo", on_click=undo).props("outline")
            ui.link("All devices", "/")

    async def _save(self) -> None:
        content = await self._orders.model_bytes(self._watcher)
        ui.download(content, f"{self._watcher.stream.name}.onlad")


class Card:
    """What is said of one alarm, which changes while it goes on."""

    def __init__(self, alarm: Alarm) -> None:
        with ui.row().classes("items-center no-wrap gap-2"):
            self._severity = shown.severity(alarm)
            self._told = ui.label()
        self._causes: dict[str, tuple[ui.linear_progress, ui.label]] = {}

    def add_causes(self, alarm: Alarm) -> None:
        """Show the largest causes, and what was expected of them."""
        for name in list(alarm.causes)[:CAUSES]:
            with ui.row().classes("w-full items-center gap-x-2 gap-y-0"):
                shown.note(name, "w-full sm:w-1/4 break-all")
                bar = ui.linear_progress(0.0, show_value=False, color="negative")
                bar.classes("grow w-16").props('aria-hidden="true"')  # the text says it too
                self._causes[name] = bar, shown.note(classes="text-right")

    def look(self, alarm: Alarm) -> None:
        """Show what is known by now."""
        told = f"{when(alarm.time)}, {shown.counted(alarm.last - alarm.row + 1, 'sample')}"
        if alarm.end > alarm.time:
            told += f" until {when(alarm.end)}"
        self._told.text = f"{told}, score up to {digits(alarm.highest)}"
        self._severity.text = f"{alarm.severity:.0f}"
        for name, (bar, text) in self._causes.items():
            bar.value = alarm.causes.get(name, 0.0)
            text.text = alarm.says(name).removeprefix(f"{name} ")


@contextlib.contextmanager
def _dialog(title: str) -> Iterator[ui.dialog]:
    """Open a dialog; what is made meanwhile is in it."""
    with ui.dialog(value=True) as dialog, ui.card().classes("max-w-xl"):
        dialog.props["aria-label"] = title
        ui.label(title)
        yield dialog


def _from_now(hours: int) -> str:
    """Return a time of maintenance that begins now, in UTC."""
    now = datetime.now(timezone.utc).replace(microsecond=0)
    return f"{now.isoformat()}/{(now + timedelta(hours=hours)).isoformat()}"


def _first(watcher: Watcher) -> str | None:
    """Return the sensor that is shown first: the cause of the newest alarm."""
    causes = watcher.alarms[-1].causes if watcher.alarms else {}
    return next(iter(causes), None) or next(map(str, watcher.names), None)
