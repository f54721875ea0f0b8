"""The view of one device: sensors and bands, scores, alarms, and what a person can do."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

from nicegui import ui

from onlad.errors import OnladError
from onlad.report.lines import digits
from onlad.serve import shown
from onlad.serve.alarm import KEPT, Alarm
from onlad.serve.charts import when
from onlad.serve.curves import Curves
from onlad.serve.service import Service
from onlad.serve.watcher import Watcher

CAUSES = 6  # features that are named, at most


class Device:
    """The view of one device."""

    def __init__(self, service: Service, watcher: Watcher, alarm: str = "") -> None:
        self._service, self._watcher, self._by = service, watcher, shown.person()
        self._orders = service.orders
        ui.link("All devices", "/").classes("text-sm")
        with ui.row().classes("w-full items-center"):
            shown.heading(watcher.key, 1, "text-xl font-medium break-all")
            self._state = ui.badge().props("role=status")
        self._counts = shown.note(classes="opacity-60")
        if watcher.kept:
            said = f"The configuration has changed: {', '.join(watcher.kept)}, because this device"
            said += " has learned. Forget the device to let it start again."
            shown.note(said, "text-warning")
        with ui.row().classes("w-full items-start lg:flex-nowrap gap-4"):
            with ui.column().classes("w-full lg:w-3/5"):
                self._curves = Curves(service, watcher, _named(watcher, alarm))
            with ui.column().classes("w-full lg:w-2/5"):
                shown.heading("Alarms")
                self._alarms = ui.column().classes("w-full gap-2")
        shown.heading("Model")
        with ui.row().classes("w-full items-center"):
            self._pause = ui.button(on_click=self._toggle).props("outline")
            for text, do in (
                ("Save the model", self._save),
                ("Plan maintenance", self._maintain),
                ("What if", self._what_if),
                ("Take a snapshot", self._snap),
                ("Go back to a snapshot", self._choose),
            ):
                ui.button(text, on_click=do).props("outline")
            ui.button("Forget the device", on_click=self._ask).props("outline color=negative")
        self._most = shown.ALARMS
        self._cards: dict[str, Card] = {}
        self._dialogs = ui.element("div")
        self._listed: list[tuple[Any, ...]] | None = None
        self._timer = ui.timer(shown.EVERY, self._look)

    def _look(self) -> None:
        watcher = self._watcher
        shown.state_of(self._state, watcher)
        counts = ((watcher.monitor.n_seen, "sample"), (watcher.n_alarms, "alarm"),
                  (watcher.drifts, "new mode"), (watcher.bad, "skipped sample"),
                  (watcher.suppressed, "alarm"))  # fmt: skip
        samples, alarms, modes, bad, too_many = (shown.counted(*each) for each in counts)
        said = [
            f"{samples}; since the service started {alarms}, {modes} and {bad}",
            f"The last sample came {shown.ago(watcher.seen)}"
            f"{shown.drifting(watcher)}{shown.learning(watcher)}",
        ]
        said += ["Maintenance: nothing is reported or learned"] * watcher.serviced
        said += [f"{too_many} beyond the budget, and suppressed"] * bool(watcher.suppressed)
        self._counts.text = ". ".join(said)
        self._pause.text = "Go on learning" if watcher.paused else "Pause learning"
        self._curves.draw()
        newest = list(watcher.alarms)[: -self._most - 1 : -1]
        listed = [(alarm.id, alarm.marked, alarm.label) for alarm in newest]
        if listed != self._listed:
            self._listed = listed
            self._cards.clear()
            self._alarms.clear()
            with self._alarms:
                if not newest:
                    ui.label("None so far.").classes("opacity-60")
                for alarm in newest:
                    card = Card(alarm, self._watcher, self._curves, self._buttons)
                    self._cards[alarm.id] = card
                if len(newest) < len(watcher.alarms):
                    shown.small(f"Show all {len(watcher.alarms)}", self._show_all)
        for alarm in newest:  # made anew, a button that has the focus would lose it
            self._cards[alarm.id].look(alarm)

    def _show_all(self) -> None:
        self._most = len(self._watcher.alarms)
        self._look()

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
            answer = ui.column().classes("w-full gap-1").props("role=status")

            async def look() -> None:
                asked = int(rate.value)
                told.text = steps[asked]
                tried = await shown.unless(self._orders.tried(self._watcher, 10.0**-asked))
                if tried is None or asked != rate.value:  # it was moved meanwhile
                    return
                answer.clear()
                count = shown.counted(len(tried.incidents), "incident")
                there = sum(a.time >= tried.since for a in self._watcher.alarms)
                fact = f"{there} or more" if there == KEPT else f"{there}"
                newest = tried.incidents[: -shown.ALARMS - 1 : -1]
                with answer:
                    said = (
                        f"{count} since {when(tried.since)}, with {steps[asked]}. In fact: {fact}."
                    )
                    ui.label(said + " The newest:" * (len(newest) < len(tried.incidents)))
                    for each in newest:
                        cause = next(iter(each.causes), "")
                        shown.note(
                            f"{when(each.times[0])}: severity {each.severity:.0f}, {cause}", ""
                        )

            rate.on_value_change(look)
            ui.timer(0.0, look, once=True)
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
            said = f"Or when, such as Sat 22:00-23:30 ({own.stream.zone})"
            when = ui.input(said).classes("w-80")
            with ui.row():
                ui.button("Add", on_click=lambda: keep((*own.windows, when.value or "")))
                ui.button("Close", on_click=dialog.close).props("flat")

    def _comment(self, alarm: Alarm, label: str) -> None:
        """Ask what it was; the next alarm like it is called so."""
        # Not in the list of alarms, which is made anew when one of them goes on.
        said = "What was learned during it is taken back. " if label == "fault" else ""
        with self._dialogs, _dialog(f"{said}The next alarm like it is called so.") as dialog:
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
                return f"Noted. Learned during it, and taken back: {samples}"
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

    def __init__(
        self, alarm: Alarm, watcher: Watcher, curves: Curves, buttons: Callable[[Alarm], None]
    ) -> None:
        self._watcher, self._curves = watcher, curves
        self._causes: dict[str, tuple[ui.linear_progress, ui.label]] = {}
        with ui.card().classes("w-full p-3 gap-1"):
            with ui.row().classes("items-center no-wrap gap-2"):
                self._severity = shown.severity(alarm)
                self._told = ui.label()
            with ui.row().classes("items-center gap-1"):
                buttons(alarm)
            self._said = shown.note(classes="")
            self._list = ui.column().classes("w-full gap-1")

    def _show(self, alarm: Alarm, causes: list[str]) -> None:
        """Show the largest causes, and what was expected of them; a click draws one."""
        self._list.clear()
        self._causes.clear()
        for name in causes:
            with self._list, ui.row().classes("w-full items-center gap-x-2 gap-y-0"):
                link = shown.small(name, partial(self._curves.show, alarm, name))
                link.classes("w-full sm:w-1/4 break-all").props("align=left padding=none")
                link.props["aria-label"] = f"Show {name} at this alarm"
                bar = ui.linear_progress(0.0, show_value=False, color="negative")
                bar.classes("grow w-16").props('aria-hidden="true"')  # the text says it too
                self._causes[name] = bar, shown.note(classes="text-right")

    def look(self, alarm: Alarm) -> None:
        """Show what is known by now."""
        told = f"{when(alarm.time)}, {shown.counted(alarm.last - alarm.row + 1, 'sample')}"
        if alarm.end > alarm.time:
            told += f" until {when(alarm.end)}"
        self._told.text = f"{told}, score up to {digits(alarm.highest)}"
        shown.grade(self._severity, alarm)
        said = [
            alarm.comment and f"“{alarm.comment}”",
            alarm.like and shown.like(alarm, self._watcher),
            "" if alarm.reported else "Suppressed: there were too many",
        ]
        self._said.text = ". ".join(filter(None, said))
        self._said.set_visibility(any(said))
        if list(self._causes) != (causes := alarm.large(CAUSES)):
            self._show(alarm, causes)
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


def _named(watcher: Watcher, alarm: str) -> Alarm | None:
    """Return the alarm of that id, if it is kept."""
    return next((each for each in watcher.alarms if each.id == alarm), None)
