"""The pages of the service: their commands run, in order, against a real broker.

A page is run as it stands, but for addresses: ports are free ones, and what a page writes below
/etc, /opt and /var goes below a folder of the test. What a test machine has no right to do
(install packages, speak to systemd) goes to stand-ins that do the part that matters here.
"""

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import yaml
from serving import ONLAD, Client, Served, free_port, machine, sample, until

from onlad.serve import config, tables
from onlad.serve.discovery import configs

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "howto"

pytestmark = [
    pytest.mark.skipif(not DOCS.exists(), reason="the docs are not in the package"),
    pytest.mark.skipif(
        not all(map(shutil.which, ("mosquitto_pub", "curl"))), reason="needs mosquitto_pub and curl"
    ),
]

SYSTEMCTL = """#!/bin/bash
# systemd's part: start, restart, and start again what was killed.
start() { ONLAD_LOG; ONLAD serve --config CONFIG >> LOG 2>&1 & echo $! > PID; }
case "$*" in
  "enable --now onlad") start ;;
  "restart onlad")
    kill $(cat PID)
    while kill -0 $(cat PID) 2>/dev/null; do sleep 0.1; done
    start ;;
  "kill -s KILL onlad") kill -9 $(cat PID); sleep 1; start ;;
  "restart mosquitto"|"daemon-reload") ;;
  *) echo "unknown: $*" >&2; exit 1 ;;
esac
"""
PYTHON = """#!/bin/bash
# "python3 -m venv PLACE", where onlad is installed already.
[[ "$1 $2" == "-m venv" ]] || exec REAL "$@"
mkdir -p "$3/bin"
ln -s ONLAD "$3/bin/onlad"
printf '#!/bin/bash\\necho "$@" >> PIPLOG\\n' > "$3/bin/pip"
chmod +x "$3/bin/pip"
"""


def blocks(page, language="bash", section=None):
    text = (DOCS / page).read_text()
    if section is not None:
        text = re.search(rf"(?ms)^## {section}\n(.*?)(?=^## |\Z)", text)[1]
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", text)


def ask(port, path):
    """Return what the service says, or nothing while it does not."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.read().decode()
    except OSError:
        return ""


def wait_until_ready(port):
    """A loaded test machine takes longer than a page says."""
    until(lambda: ask(port, "/readyz") == "ready\n", "a service that is ready", 60)


def wait_for_samples(port, count):
    def seen():
        streams = json.loads(ask(port, "/streams") or "[]")
        return sum(stream["samples"] for stream in streams) >= count

    until(seen, f"{count} samples", 60)


class Shell:
    """Runs the blocks of a page in one shell, and keeps what each one prints."""

    def __init__(self, folder, broker, http, replace=()):
        self.folder, self.replace = folder, [("127.0.0.1:8000", f"127.0.0.1:{http}"), *replace]
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name in ("mosquitto_pub", "mosquitto_sub"):
            self.command(name, f'#!/bin/bash\nexec {shutil.which(name)} -p {broker} "$@"\n')
        self.command("sudo", '#!/bin/bash\nexec "$@"\n')
        self.command("apt-get", '#!/bin/bash\n[[ "$1 $2" == "install -y" ]]\n')
        path = f"{self.bin}:{Path(ONLAD).parent}:{os.environ['PATH']}"
        self.env = {**os.environ, "PATH": path, "OPENBLAS_NUM_THREADS": "1"}

    def command(self, name, text):
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def run(self, block):
        for old, new in self.replace:
            block = block.replace(old, str(new))
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def serving(folder, port):
    """Return a shell for the first service of the page, and its port of HTTP."""
    http = free_port()
    return Shell(folder, port, http, [
        ('host = "127.0.0.1"\n', f'host = "127.0.0.1"\nport = {port}\n'),
        ("port = 8000", f"port = {http}\npage = false"),
        # In the background of a shell that ends; the test stops it.
        ("onlad.toml &", "onlad.toml > log 2>&1 & echo $! > pid"),
    ]), http  # fmt: skip


def test_the_page_on_serving(tmp_path, broker):
    shell, http = serving(tmp_path, broker.port)
    write, start, send, state, post, together, person, observe = blocks("serving.md")
    shell.run(write)
    shell.run(start)
    pid = int((tmp_path / "pid").read_text())
    try:
        wait_until_ready(http)
        shell.run(send)
        wait_for_samples(http, 401)
        told, streams = shell.run(state).strip().split("\n")
        assert json.loads(told)["state"] == "alarm"
        (alarm,) = json.loads(streams)[0]["alarms"]
        assert (alarm["row"], next(iter(alarm["causes"]))) == (400, "power")
        answer = json.loads(shell.run(post))
        assert (answer["accepted"], answer["bad"][0]["index"]) == (1, 1)
        (incident,) = json.loads(shell.run(together))
        assert [each["device"] for each in incident["devices"]] == ["pump"]
        out = shell.run(person)
        assert '"state":"paused"' in out
        assert '{"learned":' in out
        assert "401" in out  # onlad info
        ready, metrics = shell.run(observe).split("\n", 1)
        assert ready == "ready"
        named = re.findall(r"`(onlad_\w+)`", (DOCS / "serving.md").read_text())
        missing = {"onlad_http_refused_total", "onlad_dropped_total"}  # none yet, so no line
        assert set(named) - missing <= set(re.findall(r"onlad_\w+", metrics))
    finally:
        os.kill(pid, signal.SIGTERM)


def test_the_first_service_may_be_pasted_as_one_block(tmp_path, broker):
    shell, _ = serving(tmp_path, broker.port)
    try:
        out = shell.run("\n".join(blocks("serving.md")[:4])).strip().split("\n")
        assert json.loads(out[-1])[0]["samples"] == 401
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGTERM)


def test_the_page_on_alarms(tmp_path):
    (toml,) = blocks("alarms.md", "toml")
    (maintain,) = blocks("alarms.md")
    http = free_port()
    path = tmp_path / "onlad.toml"
    path.write_text(toml.replace("[http]\n", f"[http]\nport = {http}\npage = false\n"))
    with Served(path):
        wait_until_ready(http)
        shell = Shell(tmp_path, 1883, http)
        rows = json.dumps([sample(x) for x in machine(20)])
        (tmp_path / "rows.json").write_text(rows)
        there = f"http://127.0.0.1:{http}/streams/pumps"
        shell.run(f"curl -sf '{there}/samples?device=north' -d @rows.json")
        said = json.loads(shell.run(maintain))
        assert said == json.loads(ask(http, "/streams/pumps/maintenance?device=north")) != []
        tried = "device=north&false_alarms=0.001"
        assert f"`GET /streams/pumps/backtest?{tried}`" in (DOCS / "alarms.md").read_text()
        assert json.loads(ask(http, f"/streams/pumps/backtest?{tried}"))["incidents"] == []


def test_every_key_stands_on_the_page_with_its_default():
    text = (DOCS.parent / "reference" / "configuration.md").read_text()
    kinds = {
        "[service]": tables.ServiceTable,
        "[mqtt]": tables.MqttTable,
        "[http]": tables.HttpTable,
        "[webhook]": tables.WebhookTable,
        "[[streams]]": tables.StreamTable,
        "[[streams.sensors]]": tables.SensorTable,
    }
    for head, table in kinds.items():
        part = text.split(f"| `{head}` | default | |\n")[1].split("\n\n")[0]
        rows = re.findall(r"(?m)^\| `(\w+)` \| (.*?) \|", part)
        assert [name for name, _ in rows] == [field.name for field in dataclasses.fields(table)]
        for (name, shown), field in zip(rows, dataclasses.fields(table), strict=True):
            needed = field.default is field.default_factory is dataclasses.MISSING
            assert needed == (shown == "required"), name
            if needed:
                continue
            if shown and name != "port":
                assert config.tomllib.loads(f"x = {shown.strip('`')}")["x"] == field.default, name
            elif name != "port":
                assert field.default in (None, (), dataclasses.MISSING), name


def test_the_page_on_the_pi(tmp_path, broker, receiver):
    http, onlad = free_port(), Path(ONLAD)
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    for name in ("etc/systemd/system", "opt"):
        (tmp_path / name).mkdir(parents=True)
    toml = tmp_path / "deploy/onlad.toml"
    text = toml.read_text().replace('host = "127.0.0.1"\n', f"port = {broker.port}\n", 1)
    text = text.replace("port = 8000", f"port = {http}\npage = false")
    toml.write_text(text.replace("/var/lib/onlad", str(tmp_path / "state")))
    shell = Shell(tmp_path, broker.port, http, [
        ("/etc/", f"{tmp_path}/etc/"),
        ("/opt/", f"{tmp_path}/opt/"),
        ("https://ntfy.sh/", f"http://127.0.0.1:{receiver.port}/"),
        ("sleep 1\ndone", "sleep 0.001\ndone"),
        # What a loaded test machine measures of itself differs from run to run.
        ("read -r load _ < /proc/loadavg", "load=$((i % 7)).$((i * 3 % 10))"),
        ("$(awk '/MemAvailable/ {print $2 / 1024}' /proc/meminfo)", "$((900 - i % 7)).$((i % 9))"),
    ])  # fmt: skip
    pid = tmp_path / "pid"
    fill = {"ONLAD_LOG": "true", "ONLAD": onlad, "CONFIG": tmp_path / "etc/onlad/onlad.toml",
            "LOG": tmp_path / "log", "PID": pid}  # fmt: skip
    shell.command("systemctl", _filled(SYSTEMCTL, fill))
    real = {"REAL": sys.executable, "ONLAD": onlad, "PIPLOG": tmp_path / "pip.log"}
    shell.command("python3", _filled(PYTHON, real))
    install, setup, ready, sensor, state, phone, fault, plug = blocks("pi.md")
    try:
        shell.run(install)
        shell.run(setup)
        assert (tmp_path / "pip.log").read_text() == "install .[serve]\n"
        wait_until_ready(http)
        assert shell.run(ready) == "ready\n"
        shell.run(sensor)
        wait_for_samples(http, 600)
        assert json.loads(shell.run(state))["state"] == "normal"
        shell.run(phone)
        wait_until_ready(http)
        shell.run(fault)
        until(lambda: receiver.got, "the alarm on the phone")
        assert receiver.got[0][0].startswith(b"machine/pi: severity ")
        kill, look = plug.split("sleep 5\n")
        shell.run(kill)
        wait_until_ready(http)
        (device,) = json.loads(shell.run(look))
        assert (device["device"], device["samples"]) == ("pi", 660)
    finally:
        os.kill(int(pid.read_text()), signal.SIGTERM)


def _filled(text, values):
    for name, value in values.items():
        text = re.sub(rf"\b{name}\b", str(value), text)
    return text


def test_the_recipes_for_node_red_home_assistant_and_grafana(tmp_path, broker):
    (flow,) = blocks("recipes.md", "json", "Node-RED")
    nodes = {node["id"]: node for node in json.loads(flow)}
    for node in nodes.values():
        for wire in node.get("wires", []):
            assert set(wire) <= set(nodes)
    (stream,) = blocks("recipes.md", "toml", "Home Assistant")
    published, automation = blocks("recipes.md", "yaml", "Home Assistant")
    # Home Assistant names an entity by its device: what onlad reports must not come back to it.
    left_out = yaml.safe_load(published)["mqtt_statestream"]["exclude"]["entity_globs"]
    for _, entity in configs(
        tables.MqttTable(discovery="homeassistant"), "home/boiler", "home/boiler"
    ):
        name = entity["device"]["name"].replace(" ", "_")
        assert fnmatchcase(f"sensor.{name}", left_out)
    (scrape,) = blocks("recipes.md", "yaml", "Grafana")
    path, http = tmp_path / "onlad.toml", free_port()
    path.write_text(
        f'[service]\nstate = "s"\n[mqtt]\nport = {broker.port}\n[http]\nport = {http}\n'
        f"page = false\n{stream}"
    )
    topics = {
        nodes["onlad-alarms"]["topic"],
        yaml.safe_load(automation)[0]["triggers"][0]["topic"],
    }
    assert yaml.safe_load(scrape)["scrape_configs"][0]["static_configs"]
    with Client(broker.port, topics) as client, Served(path) as served:
        until(lambda: "mqtt" not in served.service.health.trouble, "a connection")
        for value in machine(500, faults=[450])[:, 2]:
            client.send("homeassistant_states/sensor/boiler/state", f"{value:.3f}")
        until(lambda: client.on("onlad/home/boiler/alarm"), "the alarm, on both topics")
        alarm = client.on("onlad/home/boiler/alarm")[0]
        # What the function node and the template take from it.
        assert alarm["text"].startswith("home/boiler: severity ")
        (grep,) = blocks("recipes.md", "bash", "Grafana")
        out = Shell(tmp_path, broker.port, http).run(grep)
        assert 'onlad_alarms_total{stream="home"} 1.0' in out
