"""The page in a real browser: Chromium, headless, clicked through. Pictures go to build/page."""

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import threading
import time
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path

import httpx
import numpy as np
import pytest
from serving import Process, free_port, machine, sample, until

from onlad import Monitor, load, save
from onlad.cli import main
from onlad.serve.audit import verify

playwright = pytest.importorskip("playwright.sync_api")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PICTURES = Path(__file__).parents[2] / "build" / "page"
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 820}
FLAGS = [
    "--no-sandbox",  # tests run as root in a container
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
CONFIG = """
[service]
state = "state"
[http]
port = PORT
MORE
"""
STREAM = """
[[streams]]
name = "pump"
warmup = 128
"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt install chromium")


@pytest.fixture(scope="module")
def browser():
    playwright.expect.set_options(timeout=20_000)
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@contextlib.contextmanager
def serving(folder, more="", headers=(), stream=STREAM, config=CONFIG):
    """Run `onlad serve` with a page, and yield a client and the address."""
    port = free_port()
    path = folder / "onlad.toml"
    path.write_text(config.replace("PORT", str(port)).replace("MORE", more) + stream)
    address = f"http://127.0.0.1:{port}"
    with Process(path, cwd=folder) as process:
        with httpx.Client(base_url=address, headers=dict(headers), timeout=30) as client:
            until(lambda: _alive(process, client), "the server")
            client.pid = process.pid
            yield client, address
        assert process.stop() == 0


def _alive(process, client):
    assert process.popen.poll() is None, process.log.read_text()
    try:
        return client.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


def send(client, X, device=""):
    answer = client.post(
        f"/streams/pump/samples?device={device}", content=json.dumps([sample(row) for row in X])
    )
    assert answer.status_code == 200, answer.text


@contextlib.contextmanager
def opened(browser, address, errors, size=DESK, **settings):
    context = browser.new_context(viewport=size, **settings)
    page = context.new_page()
    page.set_default_timeout(20_000)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(address)
    yield page
    context.close()


def picture(page, name):
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png")


def test_a_person_clicks_through_the_page(browser, tmp_path):
    expect, errors = playwright.expect, []
    with serving(tmp_path) as (client, address), opened(browser, address, errors) as page:
        expect(page.get_by_text("No device has sent a sample yet.")).to_be_visible()
        for device in ("north", "south"):
            send(client, machine(900, seed=len(device)), device)
        send(client, machine(40, seed=3, faults=[30, 31, 32, 33, 34]), "south")
        expect(page.get_by_text("2 of 2 devices")).to_be_visible()
        expect(page.get_by_text("service: ok")).to_be_visible()
        cards = page.locator(".q-card")
        expect(cards.first).to_contain_text("pump/south")  # in alarm, so it comes first
        expect(cards.first).to_contain_text("valve")
        expect(cards.nth(1)).to_contain_text("normal")
        picture(page, "devices")
        page.get_by_label("Filter").fill("nor")
        expect(cards).to_have_count(1)
        page.get_by_label("Filter").fill("")

        cards.filter(has_text="pump/south").click()
        expect(page.locator("canvas")).to_have_count(2)  # a sensor with its band, and the score
        expect(page.get_by_text("940 samples; since the service started 1 alarm")).to_be_visible()
        alarm = page.locator(".q-card").first
        expect(alarm).to_contain_text("valve")
        picture(page, "device")

        page.get_by_role("button", name="Pause learning").click()
        expect(page.get_by_role("button", name="Go on learning")).to_be_visible()
        expect(page.get_by_text("paused", exact=True)).to_be_visible()
        assert _described(client, "south")["state"] == "paused"
        page.get_by_role("button", name="Go on learning").click()
        expect(page.get_by_role("button", name="Pause learning")).to_be_visible()

        page.get_by_role("button", name="This was normal").click()
        expect(page.get_by_text("marked as normal")).to_be_visible()
        expect(page.get_by_text(re.compile(r"Learned \d+ samples"))).to_be_visible()
        assert [a["marked"] for a in _described(client, "south")["alarms"]] == [True]

        page.get_by_role("button", name="Undo").click()
        expect(page.get_by_role("button", name="This was normal")).to_be_visible()
        page.get_by_role("button", name="Take a snapshot").click()
        expect(page.get_by_text("The model is kept as it is now")).to_be_visible()
        page.get_by_role("button", name="Go back").click()
        page.get_by_role("button", name="After 940 samples, number 2").click()
        expect(page.get_by_text("The model is as it was then")).to_be_visible()

        with page.expect_download() as download:
            page.get_by_role("button", name="Save the model").click()
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        assert path.name == "pump.onlad"
        assert load(path).n_seen == 940

        page.get_by_role("button", name="Forget the device").click()
        page.get_by_role("button", name="Forget", exact=True).click()
        expect(page.get_by_text("pump/south is forgotten")).to_be_visible()
        assert [d["device"] for d in client.get("/streams").json()] == ["north"]
        page.get_by_role("button", name="Undo").click()
        expect(page.get_by_text("940 samples")).to_be_visible()
        assert _described(client, "south")["samples"] == 940
    assert errors == []


def test_an_incident_is_labelled_and_the_next_one_like_it_is_recognised(browser, tmp_path):
    expect, errors = playwright.expect, []
    with serving(tmp_path) as (client, address), opened(browser, address, errors) as page:
        for device in ("north", "south"):
            send(client, machine(900, seed=5), device)
        for device in ("north", "south"):  # they fail together
            send(client, machine(40, seed=3, faults=[30, 31, 32, 33, 34]), device)
        incidents = page.get_by_role("list", name="Incidents")
        expect(incidents.get_by_role("listitem")).to_have_count(1)  # one incident, two devices
        for device in ("north", "south"):
            expect(incidents.get_by_role("link", name=f"pump/{device}")).to_be_visible()
        expect(incidents).to_contain_text("valve")
        expect(incidents).to_contain_text(
            re.compile(r"valve \d+%: \S+, (above|below) the expected \S+ to")
        )
        picture(page, "incidents")
        incidents.get_by_role("button", name="Seen").click()
        expect(incidents.get_by_text("seen", exact=True)).to_be_visible()
        for device in ("north", "south"):
            assert _described(client, device)["alarms"][0]["label"] == "seen"
        incidents.get_by_role("link").first.click()
        expect(page.locator("canvas")).to_have_count(2)
        page.get_by_role("button", name="Undo").click()
        expect(page.get_by_label("Sensor")).to_have_value("valve")  # the cause comes first
        expect(page.get_by_role("img", name="valve over time")).to_be_visible()
        alarm = page.locator(".q-card").first
        expect(alarm).to_contain_text(
            re.compile(r"\d+%: \S+, (above|below) the expected \S+ to \S+")
        )

        page.get_by_role("button", name="Seen").click()
        expect(page.get_by_text("seen", exact=True)).to_be_visible()
        page.get_by_role("button", name="Undo").click()
        page.get_by_role("button", name="Fault", exact=True).click()
        page.get_by_label("What was it?").fill("a worn valve")
        page.keyboard.press("Enter")
        expect(page.get_by_text("fault", exact=True)).to_be_visible()
        expect(page.get_by_text("“a worn valve”")).to_be_visible()
        device = re.search(r"device=(\w+)", page.url)[1]
        assert _described(client, device)["alarms"][0]["comment"] == "a worn valve"

        send(client, machine(200, seed=7), device)
        send(client, machine(40, seed=3, faults=[30, 31, 32, 33, 34]), device)
        expect(page.locator(".q-card").first).to_contain_text("Like a worn valve")
        picture(page, "alarm")
        assert _described(client, device)["alarms"][-1]["text"].endswith(". Like a worn valve")
    assert errors == []


WEEK = """
[[streams]]
name = "pump"
model = "pump.onlad"
time = "time"
alarms_per_day = 1
[[streams]]
name = "fan"
silent_after = 1
"""
#: Tells the test which buttons and links there are, and which of them are clicked.
WATCHED = """
const controls = "button, a[href]";
const named = e => e.matches("a")
  ? new URL(e.href).pathname : e.getAttribute("aria-label") || e.innerText;
const there = () => document.querySelectorAll(controls).forEach(e => told("there", named(e)));
document.addEventListener("click", event => {
  const control = event.target.closest(controls);
  if (control) told("clicked", named(control));
}, true);
document.addEventListener("DOMContentLoaded", () => {
  new MutationObserver(there).observe(
    document.body, {subtree: true, childList: true, characterData: true});
});
"""


PART = "options.dataZoom[0].start > 0 && [options.dataZoom[0].start, options.dataZoom[0].end]"
DRAWN, NEWEST, ZOOMED, MARKED, ZOOMED_BELOW = (
    f"""() => {{
  const chart = document.querySelectorAll(".nicegui-echart")[{which}];
  const options = getElement(chart.id.slice(1)).chart.getOption();
  return {wanted};
}}"""
    for which, wanted in (
        (0, "options.xAxis[0].data.length"),
        (0, "options.xAxis[0].data.at(-1)"),
        (0, PART),
        (0, "options.series[2].markArea.data.map(([from, to]) => [from.xAxis, to.xAxis])"),
        (1, PART),
    )
)


class Controls:
    """The buttons and links that a page has had, by their names, and those that were clicked."""

    def __init__(self, page):
        self.told = {"there": set(), "clicked": set()}
        page.context.expose_binding("told", self._note)
        page.context.add_init_script(WATCHED)
        page.reload()

    def _note(self, _, what, name):
        kinds = ("After", "Show")  # a snapshot to go back to, more incidents
        name = next((kind for kind in kinds if name.startswith(f"{kind} ")), name.strip())
        if name:
            self.told[what].add(re.sub(r"(?i)^\d+ h ", "", name))

    @property
    def left(self):
        return self.told["there"] - self.told["clicked"]


class Plant:
    """A week of pumps, sample by sample, five minutes apart."""

    def __init__(self, client):
        self.client, self.rows = client, Counter()
        self.begin = (time.time() // 86400 - 6) * 86400  # a midnight

    def send(self, X, device="north", oil=None):
        """Send samples of a device, perhaps with one more sensor; return the time of the first."""
        first = self.begin + 300 * self.rows[device]
        rows = [sample(x) | {"time": first + 300 * i} for i, x in enumerate(X)]
        for row, value in zip(rows, () if oil is None else oil, strict=False):
            row["oil"] = value
        where = f"/streams/pump/samples?device={device}"
        answer = self.client.post(where, content=json.dumps(rows))
        assert answer.status_code == 200, answer.text
        self.rows[device] += len(X)
        return first


def fault(rows=40):
    return machine(rows, seed=3, faults=range(30, 35))


def test_an_alarm_is_shown_where_it_was_however_long_ago(browser, tmp_path):
    expect, errors = playwright.expect, []
    with serving(tmp_path) as (client, address), opened(browser, address, errors) as page:
        for part in np.split(machine(1840, faults=range(930, 935)), 2):
            send(client, part)
        page.get_by_role("list", name="Incidents").get_by_role("link", name="pump").click()
        expect(page.get_by_role("combobox", name="Sensor")).to_have_value("valve")
        until(lambda: page.evaluate(DRAWN) == 127, "the alarm, two samples longer than the fault")
        assert page.evaluate(MARKED) == [[59, 67]]  # 60 samples before it, 60 after
        page.get_by_role("button", name="Show flow at this alarm").click()
        expect(page.get_by_role("combobox", name="Sensor")).to_have_value("flow")
        picture(page, "alarm-shown")
        page.locator("canvas").first.hover()
        page.mouse.wheel(0, -400)
        near = until(lambda: page.evaluate(ZOOMED), "a part of it")
        until(lambda: page.evaluate(ZOOMED_BELOW) == near, "the same part in the other chart")
        page.get_by_label("Shown").click()
        page.get_by_role("option", name="the last samples").click()
        until(lambda: page.evaluate(DRAWN) > 127, "the last samples")
        until(lambda: not page.evaluate(ZOOMED), "all of them")
        assert page.evaluate(MARKED) == []
    assert errors == []


def test_all_alarms_that_are_kept_can_be_seen(browser, tmp_path):
    with serving(tmp_path) as (client, address):
        send(client, machine(900))
        for k in range(10):
            send(client, machine(100, seed=k))
            send(client, fault())
        with opened(browser, f"{address}/watch?stream=pump", []) as page:
            playwright.expect(page.locator(".q-card")).to_have_count(8)
            page.get_by_role("button", name="Show all 10").click()
            playwright.expect(page.locator(".q-card")).to_have_count(10)


def test_the_budget_over_all_devices_is_shown(browser, tmp_path):
    expect, errors = playwright.expect, []
    budget = "[service]\nstate = 'state'\nalarms_per_hour = 1\n"
    with serving(tmp_path, config=CONFIG.replace('[service]\nstate = "state"\n', budget)) as (
        client, address,
    ), opened(browser, address, errors) as page:  # fmt: skip
        for device in ("north", "south"):
            send(client, machine(900, seed=len(device)), device)
            send(client, fault(), device)
        said = "1 alarm beyond the budget of 1 per hour since the service started, and suppressed"
        expect(page.get_by_text(said)).to_be_visible()
        page.get_by_role("list", name="Incidents").get_by_role("link", name="pump/south").click()
        expect(page.get_by_text("1 alarm beyond the budget, and suppressed")).to_be_visible()
        expect(page.locator(".q-card").first).to_contain_text("Suppressed: there were too many")
    assert errors == []


@pytest.mark.xfail(
    reason="it failed at some hours of the day: after a person said that "
    "it is a fault, the poisoning raised no alarm. The cause is not known yet",
    strict=False,
)
def test_a_week_of_a_pump(browser, tmp_path):
    """Each feature is used once, by clicks: faults, maintenance, a new mode, a poisoning."""
    expect, errors = playwright.expect, []
    before = time.time() - 14 * 86400
    names = list(sample(machine(1)[0]))
    known = Monitor(names=names).fit(machine(400, seed=20), before + 300 * np.arange(400))
    save(known, tmp_path / "pump.onlad")
    with serving(tmp_path, stream=WEEK) as (client, address):
        plant = Plant(client)
        for k in range(4):  # its like
            plant.send(machine(200, seed=k) + 5 * (k == 2), f"peer{k}")
        plant.send(machine(200))
        plant.send(fault())
        for k in range(8):  # one of them fails often
            plant.send(machine(60 + 10 * k, seed=30 + k), "peer3")
            plant.send(fault(), "peer3")
        with opened(browser, address, errors) as page:
            controls = Controls(page)
            incidents = page.get_by_role("list", name="Incidents")
            page.get_by_role("button", name=re.compile("^Show 9 of 9 ")).click()
            expect(incidents.get_by_role("listitem")).to_have_count(9)
            incidents.get_by_role("button", name="Seen").first.click()
            expect(incidents.get_by_text("seen", exact=True)).to_be_visible()
            # A device that sends nothing any more is seen, and found.
            rows = json.dumps([sample(x) for x in machine(20)])
            assert client.post("/streams/fan/samples", content=rows).status_code == 200
            page.get_by_label("Filter").fill("silent")
            expect(page.locator(".q-card")).to_have_count(1)
            expect(page.locator(".q-card")).to_contain_text("fan")
            page.get_by_label("Filter").fill("")

            # An incident is found in the list, and called by its name.
            incidents.get_by_role("link", name="pump/north").click()
            page.get_by_role("button", name="Fault", exact=True).click()
            page.get_by_role("button", name="Cancel").click()
            page.get_by_role("button", name="Fault", exact=True).click()
            expect(page.get_by_text("learned during it is taken back")).to_be_visible()
            page.get_by_label("What was it?").fill("a worn valve")
            page.get_by_role("button", name="Keep").click()
            expect(page.get_by_text("“a worn valve”")).to_be_visible()
            plant.send(machine(100, seed=7))
            plant.send(fault())
            expect(page.locator(".q-card").first).to_contain_text("Like a worn valve")

            # One more on the same day is beyond the budget; that it was normal is taken back.
            plant.send(machine(60, seed=15))
            plant.send(fault())
            expect(page.get_by_text("1 alarm beyond the budget, and suppressed")).to_be_visible()
            newest = page.locator(".q-card").first
            expect(newest).to_contain_text("Suppressed: there were too many")
            newest.get_by_role("button", name="This was normal").click()
            newest.get_by_role("button", name="Undo").click()
            newest.get_by_role("button", name="Maintenance").click()
            page.get_by_label("What was it?").fill("a new gasket")
            page.get_by_role("button", name="Keep").click()
            expect(newest).to_contain_text("“a new gasket”")
            newest.get_by_role("button", name="Undo").click()
            newest.get_by_role("button", name="Seen").click()
            expect(newest.get_by_text("seen", exact=True)).to_be_visible()

            # Maintenance: every week, which is taken out again, and once. Nothing is reported.
            page.get_by_role("button", name="Plan maintenance").click()
            page.get_by_label("Or when, such as Sat 22:00-23:30").fill("Sun 03:00-04:00")
            page.get_by_role("button", name="Add").click()
            page.get_by_role("button", name="Plan maintenance").click()
            expect(page.get_by_text("Sun 03:00-04:00", exact=True)).to_be_visible()
            page.get_by_role("button", name="Close").click()
            page.get_by_role("button", name="Plan maintenance").click()
            page.get_by_role("button", name="Remove").click()
            until(lambda: not client.get("/streams/pump/maintenance?device=north").json(), "none")
            page.get_by_role("button", name="Plan maintenance").click()
            page.get_by_role("button", name="1 h from now").click()
            page.get_by_role("button", name="Plan maintenance").click()
            page.get_by_role("button", name="Remove").click()
            until(lambda: not client.get("/streams/pump/maintenance?device=north").json(), "none")
            plant.send(machine(60, seed=8))
            begin = plant.begin + 300 * plant.rows["north"]
            once = "/".join(_iso(when) for when in (begin, begin + 300 * 40))
            page.get_by_role("button", name="Plan maintenance").click()
            page.get_by_label("Or when, such as Sat 22:00-23:30").fill(once)
            page.get_by_role("button", name="Add").click()
            expect(page.get_by_text("Noted").last).to_be_visible()
            plant.send(fault())
            expect(page.get_by_text("Maintenance: nothing is reported or learned")).to_be_visible()
            assert len(_described(client, "north")["alarms"]) == 3
            plant.send(machine(100, seed=9))
            page.get_by_role("button", name="Take a snapshot").click()
            expect(page.get_by_text("The model is kept as it is now")).to_be_visible()

            # A poisoning: a fault is sent for so long that it is a mode, and no alarm any more.
            poison = machine(900, seed=12) * [1, 1, -3, 1]  # a valve that works the wrong way
            plant.send(poison)
            expect(page.get_by_text("1 new mode and")).to_be_visible()
            told = len(_described(client, "north")["alarms"])
            plant.send(poison[:100])
            assert len(_described(client, "north")["alarms"]) == told
            assert _described(client, "north")["state"] == "normal"
            # A person says that it is none.
            page.get_by_role("button", name="Fault", exact=True).first.click()
            page.get_by_label("What was it?").fill("poison")
            page.get_by_role("button", name="Keep").click()
            expect(page.get_by_text("“poison”").first).to_be_visible(timeout=60_000)
            plant.send(machine(300, seed=13))
            told = len(_described(client, "north")["alarms"])
            plant.send(poison[:50])
            assert len(_described(client, "north")["alarms"]) == told + 1  # an alarm again
            plant.send(machine(150, seed=14))

            # A new mode becomes normal after a while.
            plant.send(machine(1000, seed=10) + np.array([3, -4, 3, 2]))
            expect(page.get_by_text("2 new modes and")).to_be_visible()

            # A person looks closer, and the chart stays so while samples come.
            page.get_by_label("Shown").click()
            page.get_by_role("option", name="the last samples").click()
            until(lambda: page.evaluate(DRAWN) > 200, "the last samples")
            page.locator("canvas").first.hover()
            page.mouse.wheel(0, -400)
            near = until(lambda: page.evaluate(ZOOMED), "a part of the samples")
            at = page.evaluate(NEWEST)
            page.get_by_role("button", name="Pause learning").click()
            expect(page.get_by_role("button", name="Go on learning")).to_be_visible()
            plant.send(machine(20, seed=17) + np.array([3, -4, 3, 2]))
            until(lambda: page.evaluate(NEWEST) != at, "the samples since")
            assert page.evaluate(ZOOMED) == near
            page.get_by_role("button", name="Go on learning").click()
            expect(page.get_by_role("button", name="Pause learning")).to_be_visible()

            # The last days, and what would have been with another threshold.
            for span in ("the last day", "the last 7 days"):
                page.get_by_label("Shown").click()
                page.get_by_role("option", name=span).click()
            page.get_by_role("button", name="What if").click()
            expect(page.get_by_text(re.compile(r"since .*, with 1 in 10,000"))).to_be_visible()
            page.locator(".q-slider__track-container").press("ArrowLeft")
            expect(page.get_by_text("1 in 1,000", exact=True)).to_be_visible()
            expect(page.get_by_text(re.compile(r"since .*, with 1 in 1,000\."))).to_be_visible(
                timeout=60_000
            )
            page.get_by_role("button", name="Close").click()
            picture(page, "week")

            # A sensor that comes later is there to be looked at, without the page anew.
            plant.send(machine(100, seed=16), oil=np.random.default_rng(1).normal(40, 1, 100))
            page.get_by_label("Sensor").click()
            page.get_by_role("option", name="oil").click()
            expect(page.get_by_role("img", name="oil over time")).to_be_visible()

            # Back to the snapshot, and the samples since then learned again.
            page.get_by_role("button", name="Go back").click()
            page.get_by_role("button", name="Cancel").click()
            page.get_by_role("button", name="Go back").click()
            page.get_by_text("Learn the samples since then again").click()
            page.get_by_role("button", name=re.compile("^After")).first.click()
            expect(page.get_by_text("The model is as it was then")).to_be_visible(timeout=60_000)

            # The device beside the others; the way there and back.
            page.get_by_role("link", name="All devices").click()
            page.get_by_role("link", name="pump: devices beside each other").press("Enter")
            row = page.get_by_role("row", name=re.compile("peer2"))
            expect(row).to_contain_text(re.compile("usual.*unusual", re.DOTALL))
            picture(page, "peers")

            # The strange one is kept as a file and forgotten, which was a mistake.
            row.get_by_role("link", name="peer2").click()
            with page.expect_download() as download:
                page.get_by_role("button", name="Save the model").click()
            download.value.save_as(tmp_path / "peer2.onlad")
            assert load(tmp_path / "peer2.onlad").n_seen == 600
            page.get_by_role("button", name="Forget the device").click()
            page.get_by_role("button", name="Cancel").click()
            page.get_by_role("button", name="Forget the device").click()
            page.get_by_role("button", name="Forget", exact=True).click()
            page.get_by_role("button", name="Undo").click()
            expect(page.get_by_text("600 samples")).to_be_visible()
            assert len(controls.told["clicked"]) > 25
            assert controls.left == set()  # nothing on the page was left out
        told = [said for _, said in verify(tmp_path / "state")]
    kinds = {said["kind"] for said in told}
    assert kinds >= {"label", "maintenance", "snapshot", "reverted", "mode added"}
    assert {said["by"] for said in told if said["kind"] == "label"} == {"the page"}
    assert errors == []
    # All of it led to the models on the disk, bit for bit.
    assert main(["audit", str(tmp_path / "state"), "--replay", str(tmp_path / "onlad.toml")]) == 0


def test_a_lost_connection_is_seen(browser, tmp_path):
    with serving(tmp_path) as (client, address), opened(browser, address, []) as page:
        send(client, machine(40))
        playwright.expect(page.get_by_text("1 of 1 devices")).to_be_visible()
        page.context.set_offline(True)
        os.kill(client.pid, signal.SIGSTOP)
        playwright.expect(page.get_by_text(re.compile("Connection lost"))).to_be_visible(
            timeout=60_000
        )
        os.kill(client.pid, signal.SIGCONT)


SLOWEST = """() => new Promise(done => {
  const end = performance.now() + 3000;
  let last = performance.now(), slowest = 0;
  const frame = now => {
    slowest = Math.max(slowest, now - last);
    last = now;
    if (now < end) requestAnimationFrame(frame); else done(slowest);
  };
  requestAnimationFrame(frame);
})"""  # milliseconds between two frames


@contextlib.contextmanager
def samples_that_come(address):
    """Send samples of the devices at the top of the list all the time."""
    ended = threading.Event()

    def flow():
        with httpx.Client(base_url=address, timeout=30) as client:
            for k in itertools.count():
                if ended.is_set():
                    return
                send(client, machine(1, seed=k % 50), f"device{1 + k % 100:03}")

    thread = threading.Thread(target=flow)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_a_thousand_devices_are_listed_and_found(browser, tmp_path):
    with serving(tmp_path, "rate = 1e6") as (client, address):
        for k in range(1000):
            send(client, machine(1), f"device{k:03}" if k else "x" * 120)
        with opened(browser, address, [], size=PHONE) as page:
            playwright.expect(page.get_by_text("100 of 1000 devices")).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
            playwright.expect(page.get_by_text("1,000 learning")).to_be_visible()
            began = time.monotonic()
            page.get_by_label("Filter").fill("device777")
            playwright.expect(page.locator(".q-card")).to_have_count(1)
            assert time.monotonic() - began < 5  # a look per second, and the way there
            page.get_by_label("Filter").fill("")
            playwright.expect(page.locator(".q-card")).to_have_count(100)
            page.get_by_label("Filter").fill("device777")
            page.get_by_role("link", name="pump/device777").press("Enter")
            playwright.expect(page.get_by_text("1 sample;").first).to_be_visible()


@pytest.mark.slow
def test_a_thousand_devices_do_not_make_the_page_stutter(browser, tmp_path):
    with serving(tmp_path, "rate = 1e6") as (client, address):
        for k in range(1000):
            send(client, machine(1), f"device{k:03}")
        with opened(browser, address, [], size=PHONE) as page:
            playwright.expect(page.get_by_text("100 of 1000 devices")).to_be_visible()
            with samples_that_come(address):
                # The best of three: a machine that does other things too stutters by itself.
                assert min(page.evaluate(SLOWEST) for _ in range(3)) < 300


def _iso(seconds):
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()


def test_after_a_restart_the_charts_go_on_where_they_were(browser, tmp_path):
    errors = []
    with serving(tmp_path) as (client, _):
        send(client, machine(300))
    with serving(tmp_path) as (client, address):
        until(lambda: client.get("/readyz").status_code == 200, "the journal")
        with opened(browser, f"{address}/watch?stream=pump", errors) as page:
            until(lambda: page.evaluate(DRAWN) == 300, "the samples of before")
            send(client, machine(50, seed=2))
            until(lambda: page.evaluate(DRAWN) == 350, "those that came since")
    assert errors == []


def test_a_device_says_which_settings_it_cannot_follow(browser, tmp_path):
    with serving(tmp_path) as (client, _):
        send(client, machine(40))
    more = '[[streams]]\nname = "pump"\nwarmup = 128\nwindow = 2\n'
    with serving(tmp_path, stream=more) as (client, address):
        until(lambda: client.get("/readyz").status_code == 200, "the journal")
        (device,) = client.get("/streams").json()
        assert device["kept"] == ["window stays the default, not 2"]
        errors = []
        with opened(browser, f"{address}/watch?stream=pump", errors) as page:
            said = page.get_by_text(
                "window stays the default, not 2, because this device has learned"
            )
            playwright.expect(said).to_contain_text("Forget the device to let it start again.")
        assert errors == []


def test_it_reads_well_on_a_phone_and_in_the_dark(browser, tmp_path):
    errors = []
    with serving(tmp_path) as (client, address):
        send(client, machine(900, faults=[880, 881, 882]), "north")
        dark = {"color_scheme": "dark", "has_touch": True}
        where = f"{address}/watch?stream=pump&device=north"
        with opened(browser, where, errors, size=PHONE, **dark) as page:
            playwright.expect(page.locator("canvas").first).to_be_visible()
            playwright.expect(page.locator(".q-card").first).to_contain_text("valve")
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= PHONE["width"]  # nothing to push aside
            text, ground = page.evaluate(
                "[getComputedStyle(document.body).color,"
                " getComputedStyle(document.body).backgroundColor]"
            )
            assert _light(text) > 180 > 80 > _light(ground)
            picture(page, "phone")
            assert page.evaluate("document.documentElement.lang") == "en-US"
        with opened(browser, address, errors, size=PHONE, **dark) as page:
            send(client, machine(900, faults=[880, 881, 882]), "x" * 60)
            card = page.locator(".q-card").filter(has_text="xxx")
            playwright.expect(card.get_by_text("score")).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
            said, state = (
                card.get_by_text(text).bounding_box() for text in ("score", re.compile("^alarm$"))
            )
            assert said["x"] + said["width"] <= state["x"]  # beside each other
            picture(page, "phone-devices")
    assert errors == []


#: Returns texts whose contrast is below 4.5 (WCAG 2.1), and whether headings and dialogs are named.
READABLE = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const parsed = colour => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].map((x, i) => i == 3 ? x / 255 : x);
  };
  const over = (top, alpha, below) => below.map((x, i) => top[i] * alpha + x * (1 - alpha));
  const ground = e => {
    if (!e) return [255, 255, 255];
    const own = parsed(getComputedStyle(e).backgroundColor);
    return over(own, own[3], own[3] == 1 ? own.slice(0, 3) : ground(e.parentElement));
  };
  const light = colour => [0.2126, 0.7152, 0.0722].reduce((sum, weight, i) => {
    const x = colour[i] / 255;
    return sum + weight * (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
  }, 0.05);
  const found = [];
  for (const e of document.querySelectorAll("body *:not(i, script, style)")) {
    const own = [...e.childNodes].some(node => node.nodeType == 3 && node.data.trim());
    if (!own || !e.innerText?.trim() || !e.checkVisibility() || e.clientWidth == 1) continue;
    const below = ground(e), colour = parsed(getComputedStyle(e).color);
    let alpha = colour[3];
    for (let p = e; p; p = p.parentElement) alpha *= Number(getComputedStyle(p).opacity);
    const both = [light(over(colour, alpha, below)), light(below)];
    if (Math.max(...both) / Math.min(...both) < 4.5) found.push(e.innerText);
  }
  if (document.querySelectorAll("h1, [role=heading][aria-level='1']").length != 1)
    found.push("no heading of the page");
  for (const e of document.querySelectorAll("[role=dialog]"))
    if (!e.getAttribute("aria-label")) found.push("a dialog without a name");
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read_and_all_dialogs_have_names(browser, tmp_path, scheme):
    with serving(tmp_path, "rate = 1e6") as (client, address):
        for device in "abcd":
            send(client, machine(900, seed=5), device)
        for device in "ab":
            send(client, fault(), device)
        (alarm,) = _described(client, "b")["alarms"]
        seen = json.dumps({"alarm": alarm["id"], "label": "seen"})
        assert client.post("/streams/pump/label?device=b", content=seen).status_code == 200
        client.post("/streams/pump/learning?device=c", content="false")

        def check():
            # Texts fade in.
            until(lambda: page.evaluate(READABLE) == [], page.evaluate(READABLE), 5)

        with opened(browser, address, [], color_scheme=scheme) as page:
            playwright.expect(page.get_by_text("seen", exact=True)).to_be_visible()
            playwright.expect(page.get_by_text("paused", exact=True)).to_be_visible()
            check()
            page.goto(f"{address}/peers?stream=pump")
            playwright.expect(page.get_by_role("row", name="usual")).to_have_count(4)
            check()
            page.goto(f"{address}/watch?stream=pump&device=a")
            for name in (
                "Plan maintenance",
                "What if",
                "Go back to a snapshot",
                "Forget the device",
                "Fault",
            ):
                page.get_by_role("button", name=name, exact=True).click()
                playwright.expect(page.get_by_role("dialog")).to_be_visible()
                check()
                page.keyboard.press("Escape")
                playwright.expect(page.get_by_role("dialog")).to_be_hidden()


@pytest.mark.parametrize("view", ["/", "/watch?stream=pump", "/peers?stream=pump"])
def test_the_tab_key_reaches_each_control(browser, tmp_path, view):
    with serving(tmp_path) as (client, address):
        send(client, machine(900))
        send(client, fault())
        with opened(browser, f"{address}{view}", []) as page:
            playwright.expect(page.get_by_role("link", name="onlad")).to_be_visible()
            if view == "/watch?stream=pump":
                playwright.expect(page.get_by_role("button", name="Seen")).to_be_visible()
            there = "document.querySelectorAll('button, a[href], input')"
            count = page.evaluate(f"{there}.length")
            assert count >= 2
            for _ in range(2 * count + 20):
                page.keyboard.press("Tab")
                page.evaluate("document.activeElement.reached = true")
            left = f"[...{there}].filter(e => !e.reached).map(e => e.innerText || e.ariaLabel)"
            assert page.evaluate(left) == []


def test_a_button_keeps_the_focus_while_an_alarm_goes_on(browser, tmp_path):
    errors, expect = [], playwright.expect
    fault = machine(60, seed=3, faults=range(60))
    with serving(tmp_path) as (client, address):
        send(client, machine(900))
        send(client, fault[:10])
        with opened(browser, f"{address}/watch?stream=pump", errors) as page:
            button = page.get_by_role("button", name="Fault", exact=True)
            button.focus()
            expect(page.locator(".q-card").first).to_contain_text("10 samples")
            send(client, fault[10:])
            expect(page.locator(".q-card").first).to_contain_text("60 samples")
            expect(button).to_be_focused()
            page.keyboard.press("Enter")
            expect(page.get_by_label("What was it?")).to_be_visible()
    assert errors == []


def test_the_page_is_behind_the_door_and_shows_names_as_they_are(browser, tmp_path):
    errors = []
    token = 'token = "a-long-enough-secret"'
    bearer = [("Authorization", "Bearer a-long-enough-secret")]
    with serving(tmp_path, token, bearer) as (client, address):
        name = "<img src=x onerror=document.title='stolen'>"
        send(client, machine(40), name)
        assert httpx.get(address).status_code == 401
        password = {"username": "me", "password": "a-long-enough-secret"}
        with opened(browser, address, errors, http_credentials=password) as page:
            playwright.expect(page.get_by_text(f"pump/{name}")).to_be_visible()
            assert page.title() == "onlad"
            page.get_by_text(f"pump/{name}").click()
            playwright.expect(page.get_by_text("None so far.")).to_be_visible()
            playwright.expect(page.get_by_text("It learns what is normal: 88 more")).to_be_visible()
            assert page.title() == "onlad"
            page.get_by_role("button", name="Take a snapshot").click()
            playwright.expect(page.get_by_text("The model is kept as it is now")).to_be_visible()
        assert [said["by"] for _, said in verify(tmp_path / "state")] == ["me"]
        where = f"{address}/watch?stream=pump&device=nobody"
        with opened(browser, where, errors, http_credentials=password) as page:
            playwright.expect(page.get_by_text("This device is not watched")).to_be_visible()
    assert errors == []


def _described(client, device):
    return next(d for d in client.get("/streams").json() if d["device"] == device)


def _light(colour):
    """Return the mean of red, green and blue of a computed colour."""
    numbers = colour[colour.index("(") + 1 : -1].split(",")[:3]
    return sum(map(float, numbers)) / 3


def test_the_views_end_with_the_browser(browser, tmp_path):
    with serving(tmp_path) as (client, address):
        send(client, machine(40))
        with opened(browser, address, []) as page:
            playwright.expect(page.get_by_text("pump").first).to_be_visible()
        # The service goes on when nobody looks.
        send(client, machine(40))
        until(lambda: client.get("/readyz").status_code == 200, "readiness")


def test_requests_without_a_browser_keep_no_memory(tmp_path):
    def memory(pid):
        return int(re.search(r"VmRSS:\s*(\d+)", Path(f"/proc/{pid}/status").read_text())[1])

    with serving(tmp_path, "rate = 1e6") as (client, _):
        for _ in range(400):  # caches fill up
            assert client.get("/").status_code == 200
        before = memory(client.pid)
        for _ in range(200):
            assert client.get("/").status_code == 200
        grown = memory(client.pid) - before
    assert grown < 200 * 20  # kB; each took 90 and more
