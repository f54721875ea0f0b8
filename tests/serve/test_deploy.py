"""What is in deploy/ fits the service: configurations load, metrics exist, the unit is a unit."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import booted
import httpx
import pytest
import yaml
from serving import Client, Served, free_port, machine, models, sample, until

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
        served.service.health.dropped["intake"] += 1
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


# What Grafana's schema of dashboards (grafana-foundation-sdk, dashboard.jsonschema.json) needs.
BOARD = {"schemaVersion": int, "version": int, "title": str, "uid": str, "tags": list, "time": dict,
         "timezone": str, "refresh": str, "templating": dict, "annotations": dict,
         "panels": list}  # fmt: skip
PANEL = {"id": int, "title": str, "type": str, "datasource": dict, "gridPos": dict,
         "fieldConfig": dict, "targets": list}  # fmt: skip


def test_the_files_for_grafana_have_the_fields_that_it_reads():
    board = json.loads((DEPLOY / "grafana.json").read_text())
    assert {name: type(value) for name, value in board.items()} == BOARD
    (variable,) = board["templating"]["list"]
    assert (variable["type"], variable["query"]) == ("datasource", "prometheus")
    source = {"type": "prometheus", "uid": f"${{{variable['name']}}}"}
    (note,) = board["annotations"]["list"]
    assert {"name", "datasource", "enable", "iconColor", "expr"} <= note.keys()
    assert note["datasource"] == source
    taken = set()
    for panel in board["panels"]:
        assert {name: type(value) for name, value in panel.items()} == PANEL, panel["title"]
        assert panel["datasource"] == source
        assert panel["fieldConfig"].keys() == {"defaults", "overrides"}
        names = [target["refId"] for target in panel["targets"]]
        assert len(set(names)) == len(names) > 0
        x, y, w, h = (panel["gridPos"][name] for name in "xywh")
        cells = {(x + i, y + j) for i in range(w) for j in range(h)}
        assert x + w <= 24  # columns
        assert not cells & taken
        taken |= cells
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    dashboards, sources = (
        yaml.safe_load((DEPLOY / "grafana" / name).read_text())
        for name in ("dashboard.yaml", "datasource.yaml")
    )
    assert dashboards["apiVersion"] == sources["apiVersion"] == 1
    (provider,) = dashboards["providers"]
    assert provider.keys() == {"name", "type", "options"}
    recipe = (DEPLOY.parent / "docs/howto/recipes.md").read_text()
    assert f"`{provider['options']['path']}`" in recipe
    (given,) = sources["datasources"]
    assert (given["type"], given["access"]) == (variable["query"], "proxy")
    assert given["url"].startswith("http://")


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


@pytest.mark.skipif(
    not booted.can_boot(),
    reason="needs root, systemd, overlayfs and cgroups, and code that is not in a home",
)
def test_systemd_runs_the_unit(tmp_path, broker):
    http = free_port()
    text = (DEPLOY / "onlad.service").read_text()
    assert set(booted.settings(text)) == booted.TRIED | booted.NOT_TRIED
    config = (
        f'[service]\nstate = "/var/lib/onlad"\n[mqtt]\nport = {broker.port}\n'
        f'[http]\nport = {http}\n[[streams]]\nname = "pump"\ntopic = "plant/{{device}}"\n'
    )
    command = f"ExecStart=/opt/onlad/bin/python {Path(__file__).with_name('probe.py')}"
    probe = re.sub(r"(?m)^ExecStart=.*$", f"{command} /var/lib/probe", text)
    probe = probe.replace("=onlad\n", "=probe\n").replace("Restart=always", "Restart=no")
    units = {"onlad.service": text, "probe.service": probe}
    with booted.Machine(tmp_path, units, config) as there, Client(broker.port) as client:

        def ready():
            try:
                return httpx.get(f"http://127.0.0.1:{http}/readyz", timeout=5).text == "ready\n"
            except httpx.TransportError:
                return False

        until(ready, "the service", 60)
        client.send("plant/a", [sample(x) for x in machine(300)])
        until(lambda: client.on("onlad/pump/a/state"), "the state of the device")
        assert httpx.get(f"http://127.0.0.1:{http}/", timeout=30).status_code == 200

        there.ctl("start", "probe.service")
        log = there.root / "run/probe.service.log"
        until(lambda: there.shows("probe.service", "SubState") in ("dead", "failed"), "the probe")
        said = json.loads(log.read_text())
        assert 61_184 <= said.pop("user") <= 65_519
        assert said == {
            "umask": "0027",
            "no_new_privileges": "1",
            "capabilities": ["0000000000000000"] * 2,
            "state": [True, "0o750"],
            "environment": "1",
            "tmp": [],
            "devices": ["null", "urandom"],
            "internet": True,
        } | dict.fromkeys(
            ("home", "etc", "opt", "tunables", "cgroups", "modules", "packets", "namespaces",
             "realtime", "personality", "clock", "mount", "old_calls"),
            False,
        )  # fmt: skip

        pid = there.pid_of("onlad.service")
        since = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        until(lambda: there.pid_of("onlad.service") not in (0, pid), "the next process")
        assert time.monotonic() - since > 1.9
        assert there.shows("onlad.service", "NRestarts") == "1"
        until(ready, "the service", 60)
        client.send("plant/a", [sample(x) for x in machine(100)])
        until(lambda: _samples(http) == 400, "the samples")
        there.ctl("stop", "onlad.service")
        assert there.shows("onlad.service", "Result") == "success"
        state = there.root / "var/lib/private/onlad"
        assert models(state)["pump", "a"].n_seen == 400
        assert (state / "state.json").stat().st_uid >= 61_184


def _samples(http):
    return httpx.get(f"http://127.0.0.1:{http}/streams").json()[0]["samples"]


def test_both_broker_configurations_say_the_same():
    def limits(path):
        return re.findall(r"(?m)^max_\w+ \d+", path.read_text())

    assert limits(DEPLOY / "mosquitto.conf") == limits(DEPLOY / "container/mosquitto.conf")
