"""The recipe of docs/howto/together.md, word for word, over a real broker."""

import asyncio
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from test_together import MODES, mode, trained

from oracle import assert_near, tolerance

aiomqtt = pytest.importorskip("aiomqtt", reason="pip install aiomqtt")
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "together.md"


@pytest.fixture
def broker(tmp_path):
    """Return the port of a broker of our own."""
    path = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if path is None:
        pytest.skip("there is no MQTT broker: apt-get install mosquitto")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = tmp_path / "mosquitto.conf"
    config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    running = subprocess.Popen([path, "-c", config], stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)
        yield port
    finally:
        running.terminate()
        running.wait()


def recipe():
    """Return what the code of the page defines under its heading on MQTT."""
    section = PAGE.read_text().partition("## Over MQTT")[2].partition("\n#")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names = {}
    exec(compile(code, str(PAGE), "exec"), names)
    return names["share"]


async def exchange(port, devices):
    """Let all devices share until each has heard all others; return what each then has."""
    share, joint = recipe(), {}

    async def one(name, detector):
        async with aiomqtt.Client("127.0.0.1", port) as client:
            async for heard, joined in share(client, "site-1", name, detector):
                if heard == len(devices) - 1:
                    joint[name] = joined
                    return

    runs = (one(name, detector) for name, detector in devices.items())
    await asyncio.wait_for(asyncio.gather(*runs), 60)
    return joint


@pytest.mark.skipif(not PAGE.exists(), reason="the documentation is not part of a wheel's tests")
def test_ten_devices_learn_together_over_a_broker(broker):
    parts = {f"pump-{k}": mode(k, 100) for k in range(MODES)}
    devices = {name: trained(X) for name, X in parts.items()}
    whole = trained(np.vstack(list(parts.values())))
    joint = asyncio.run(exchange(broker, devices))
    assert set(joint) == set(devices)
    fresh = np.vstack([mode(k, 20, seed=1) for k in range(MODES)])
    for detector in joint.values():
        assert_near(detector.score_many(fresh), whole.score_many(fresh), tolerance(whole.state.P))
    # Messages are kept by the broker: one that comes later hears all, and counts none twice.
    late = {f"pump-{k}": devices[f"pump-{k}"] for k in range(MODES)}
    devices["pump-3"].learn_many(mode(3, 50, seed=2))
    again = asyncio.run(exchange(broker, late))
    assert again["pump-3"].n_seen == 100 * MODES + 50
