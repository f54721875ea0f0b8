"""What is in deploy/ fits the service: configurations load, metrics exist, the unit is a unit."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

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
    from serving import Served

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
        mqtt.connected = True
        served.service.drop("intake")
        text = Metrics(served.service, mqtt, guard).text().decode()
    known = set(re.findall(r"(?m)^(onlad_\w+)", text))
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


def test_both_broker_configurations_say_the_same():
    def limits(path):
        return re.findall(r"(?m)^max_\w+ \d+", path.read_text())

    assert limits(DEPLOY / "mosquitto.conf") == limits(DEPLOY / "container/mosquitto.conf")
