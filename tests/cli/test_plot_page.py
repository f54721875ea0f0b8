"""The page of `onlad plot`, in a real browser without a network."""

import shutil

import pytest
from piping import NAMES, stream, table

import onlad
from onlad import cli

playwright = pytest.importorskip("playwright.sync_api")
pytest.importorskip("matplotlib")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt install chromium")


def test_the_page_shows_values_under_the_pointer_and_asks_nobody(tmp_path):
    (tmp_path / "pump.csv").write_text(table(stream()))
    path = tmp_path / "pump.html"
    assert cli.main(["plot", str(tmp_path / "pump.csv"), "-o", str(path)]) == 0
    asked, errors = [], []
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1200, "height": 800}, offline=True)
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text))
        page.goto(path.as_uri())
        box = page.locator("figure svg").bounding_box()

        def under(row):
            """Return what is shown when the pointer is at a row: buckets are samples here."""
            share = 0.13 + (0.95 - 0.13) * (row + 0.5) / 600
            page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
            return page.locator("#under").inner_text()

        assert under(10).endswith("00:00:10: learning")
        assert "00:05:00: score " in under(300)
        assert ", 1 alarm, " in under(545)
        assert any(name in under(545) for name in NAMES)
        page.mouse.move(box["x"] + 2, box["y"] + 2)
        assert not page.locator("#under").is_visible()
        incidents = onlad.Incidents()
        told = incidents.add(onlad.Monitor().observe_many(stream())) + incidents.finish()
        assert page.locator("tbody tr").count() == len(told) >= 1
        page.set_viewport_size({"width": 400, "height": 800})
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 400  # on a phone the picture scrolls, not the page
        page.screenshot(path=tmp_path / "phone.png")
        browser.close()
    assert asked == [path.as_uri()]
    assert errors == []
