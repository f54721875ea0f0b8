"""What is in deploy/ fits the service: configurations load, metrics exist, the unit is a unit."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import yaml
from serving import ONLAD, Client, Served, free_port, machine, models, sample, until

from onlad.serve import config
from onlad.serve.metrics import COUNTERS, GAUGES

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_the_examples_are_right_configurations():
    example = config.load(DEPLOY / "onlad.toml")
    assert example.http.host == "127.0.0.1"
    assert example.mqtt.discovery == "homeassistant"
    container = config.load(DEPLOY / "container/onlad.toml")
    assert container.http.token
    # What is commented out is right too.
    text = (DEPLOY / "onlad.toml").read_text()
    assert "# [webhook]" in text


def test_the_commented_part_of_the_example_is_right_too(tmp_path):
    text = (DEPLOY / "onlad.toml").read_text()
    path = tmp_path / "onlad.toml"
    path.write_text(re.sub(r"(?m)^# (?=\[webhook\]|url|format)", "", text))
    assert config.load(path).webhook.url.startswith("https://ntfy.sh/")


def test_the_compose_file_names_files_that_are_there():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    mounts = [v.split(":")[0] for s in services.values() for v in s["volumes"]]
    files = [mount for mount in mounts if mount.startswith(".")]
    assert len(files) == 2
    assert all((DEPLOY / file).is_file() for file in files)
    build = services["onlad"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()
    assert config.load(DEPLOY / "container/onlad.toml").mqtt.host in services


def test_the_dashboard_shows_metrics_that_exist(tmp_path):
    path = tmp_path / "onlad.toml"
    path.write_text(
        '[service]\nstate = "s"\n[mqtt]\nport = 1\n[http]\nport = 0\npage = false\n'
        '[[streams]]\nname = "pump"\ntopic = "a"\n'
    )
    with Served(path) as served:
        from onlad.serve.guard import Guard
        from onlad.serve.metrics import Metrics
        from onlad.serve.mqtt import Mqtt

        guard = Guard(None, served.service.config.http)
        guard.refused[401] = 1
        mqtt = Mqtt.__new__(Mqtt)
        mqtt._client = None
        served.service.health.drop("intake")
        text = Metrics(served.service, mqtt, guard).text().decode()
    known = set(re.findall(r"(?m)^(?:# TYPE )?(onlad_\w+)", text))
    board = json.loads((DEPLOY / "grafana.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    used = set(re.findall(r"onlad_\w+", " ".join(queries)))
    assert used <= known
    for name, _ in COUNTERS.values():
        assert f"{name}_total" in known
    for name, _ in GAUGES.values():
        assert name in known
    assert {"onlad_latency_seconds_bucket", "onlad_checkpoint_age_seconds"} <= used


def test_the_unit_is_a_unit_that_systemd_takes(tmp_path):
    analyze = shutil.which("systemd-analyze")
    text = (DEPLOY / "onlad.service").read_text()
    assert "--config /etc/onlad/onlad.toml" in text
    assert "StateDirectory=onlad" in text  # /var/lib/onlad, as in the example
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    path = tmp_path / "onlad.service"
    path.write_text(text.replace("/opt/onlad/bin/onlad", "/bin/true"))
    command = [analyze, "verify", str(path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_leaves_little_open():
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    command = [analyze, "security", "--offline=yes", "--threshold=25", DEPLOY / "onlad.service"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-200:] + done.stderr


def can_isolate():
    """Return whether this machine lets us make a sandbox."""
    tools = ("unshare", "setpriv", "mount", "systemd-analyze")
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    if os.geteuid() != 0 or platform.machine() != "x86_64" or not header.exists():
        return False
    if not all(map(shutil.which, tools)):
        return False
    return subprocess.run(["unshare", "--mount", "true"], check=False).returncode == 0


@pytest.mark.skipif(not can_isolate(), reason="needs root, unshare, setpriv and systemd-analyze")
def test_the_service_works_in_the_sandbox_of_its_unit(tmp_path, broker):
    state = tmp_path / "state"
    state.mkdir()
    http = free_port()
    path = state / "onlad.toml"  # where a user without rights can read it
    path.write_text(
        f'[service]\nstate = "{state}"\ncheckpoint = 0.5\n[mqtt]\nport = {broker.port}\n'
        f'[http]\nport = {http}\n[[streams]]\nname = "pump"\ntopic = "plant/{{device}}"\n'
    )
    unit = str(DEPLOY / "onlad.service")
    sandbox = ["unshare", "--mount", sys.executable, str(Path(__file__).with_name("sandbox.py"))]
    serve = [ONLAD, "serve", "--config", str(path)]
    look = "import os, socket; print(os.getuid(), os.listdir('/home'), os.access('/etc', os.W_OK))"
    look += "; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"
    command = [*sandbox, unit, str(state), "--", sys.executable, "-c", look]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.stdout == "61184 [] False\n", done.stderr  # it is a sandbox
    assert "PermissionError" in done.stderr
    with (tmp_path / "log").open("wb") as log:
        popen = subprocess.Popen([*sandbox, unit, str(state), "--", *serve], stderr=log, stdout=log)
    try:
        with Client(broker.port) as client:
            until(lambda: b"online" in [p for _, p, _ in client.heard], "the service", 60)
            client.send("plant/a", [sample(x) for x in machine(300)])
            answer = httpx.get(f"http://127.0.0.1:{http}/readyz")
            assert (answer.status_code, answer.text) == (200, "ready\n")
            page = httpx.get(f"http://127.0.0.1:{http}/", timeout=30)
            assert page.status_code == 200
            until(lambda: client.on("onlad/pump/a/state"), "the state of the device")
            until((state / "state.json").exists, "a checkpoint")
    finally:
        popen.terminate()
        status = popen.wait(30)
    assert status == 0, (tmp_path / "log").read_text()
    assert models(state)["pump", "a"].n_seen == 300
    assert (state / "state.json").stat().st_uid == 61184


def test_both_broker_configurations_say_the_same():
    def limits(path):
        return re.findall(r"(?m)^max_\w+ \d+", path.read_text())

    assert limits(DEPLOY / "mosquitto.conf") == limits(DEPLOY / "container/mosquitto.conf")
