"""The page in a real browser: Chromium, headless, clicked through. Pictures go to build/page."""

import contextlib
import json
import re
import shutil
from pathlib import Path

import httpx
import pytest
from serving import Process, free_port, machine, sample, until

from onlad import load

playwright = pytest.importorskip("playwright.sync_api")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PICTURES = Path(__file__).parents[2] / "build" / "page"
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1000, "height": 820}
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
def serving(folder, more="", headers=(), stream=STREAM):
    """Run `onlad serve` with a page, and yield a client and the address."""
    port = free_port()
    path = folder / "onlad.toml"
    path.write_text(CONFIG.replace("PORT", str(port)).replace("MORE", more) + stream)
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
        expect(page.get_by_text("service: well")).to_be_visible()
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
        expect(page.get_by_text("940 samples, 1 alarms")).to_be_visible()
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
        expect(incidents).to_contain_text("and 1 more")
        expect(incidents).to_contain_text("valve")
        expect(incidents).to_contain_text("usually")
        picture(page, "incidents")
        incidents.get_by_role("link").first.click()
        expect(page.locator("canvas")).to_have_count(2)
        expect(page.get_by_label("Sensor")).to_have_value("valve")  # the cause comes first
        alarm = page.locator(".q-card").first
        expect(alarm).to_contain_text(re.compile(r"(above|below) \(\S+, usually \S+ to \S+\)"))

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
        expect(page.locator(".q-card").first).to_contain_text("like a worn valve")
        picture(page, "alarm")
        assert _described(client, device)["alarms"][-1]["text"].endswith(". Like a worn valve")
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
            assert page.title() == "onlad"
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
