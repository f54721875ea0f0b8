"""MQTT against a real broker: both versions, wildcards, payloads, wills, passwords, TLS."""

import asyncio
import contextlib
import json
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections import Counter

import httpx
import numpy as np
import paho.mqtt.client as paho
import pytest
from serving import Client, Process, Served, free_port, machine, models, sample, until, write_config

from onlad import persist
from onlad.cli import main
from onlad.serve import service
from onlad.serve.config import load
from onlad.serve.intake import Item
from onlad.serve.mqtt import Mqtt
from onlad.serve.orders import UnknownError
from onlad.serve.service import Service
from onlad.serve.watcher import Watcher
from onlad.streams.client import BrokerError

CONFIG = """
[service]
state = "state"
[mqtt]
port = PORT
version = "VERSION"
verdicts = "all"
state_every = 0.2
discovery = "homeassistant"
[[streams]]
name = "pump"
topic = "plant/{device}/sensors/#"
time = "at"
ignore = ["serial"]
[[streams]]
name = "cabinet"
topic = "cabinet/+"
payload = "plain"
"""


def config(folder, port, version, more=""):
    return write_config(folder, port, CONFIG.replace("VERSION", version) + more)


def connected(served):
    until(lambda: "mqtt" not in served.service.health.trouble, "a connection")


def test_devices_payloads_and_what_is_published(tmp_path, broker, version):
    X = machine(500, faults=[450])
    with Client(broker.port, ["onlad/#", "homeassistant/#"]) as client:
        with Served(config(tmp_path, broker.port, version)) as served:
            connected(served)
            for i, x in enumerate(X):
                extra = {"at": 1000.0 + i, "serial": "x-7"}
                client.send(f"plant/{'ab'[i % 2 if i < 300 else 0]}/sensors/x", sample(x) | extra)
            client.send("plant/b/sensors", [sample(x) for x in X[:5]])  # # means the level above
            client.send("plant/b/sensors", {"at": "2026-01-01T00:00:00Z"} | sample(X[5]))
            client.send("cabinet/1", "20.5, 3")
            client.send("cabinet/2", "21.5 4\n22.5 5")
            client.send("cabinet/2", "hot")
            client.send("plant/b/other", sample(X[0]))
            until(lambda: served.samples() == 509, "all samples")
            until(lambda: len(client.on("onlad/.*/verdict")) == 509, "all verdicts")
            watchers = served.service.watchers
            assert set(watchers) == {("pump", "a"), ("pump", "b"), ("cabinet", "")}
            assert watchers["pump", "a"].monitor.n_seen == 350
            assert watchers["pump", "b"].last.time == 1767225600.0
            assert watchers["cabinet", ""].bad == 1
            (alarm,) = client.on("onlad/pump/a/alarm")
            row = 150 + 150  # the fault is the 151st after the devices went apart
            assert (alarm["row"], alarm["time"], next(iter(alarm["causes"]))) == (
                row,
                1450.0,
                "valve",
            )
            until(lambda: client.on("onlad/pump/a/state")[-1]["state"] == "normal", "the end")
            assert "alarm" in [state["state"] for state in client.on("onlad/pump/a/state")]
            found = client.on("homeassistant/.*")
            assert {f["name"] for f in found} == {"Alarm", "Score", "Severity"}
            assert any(f["state_topic"] == "onlad/pump/a/state" for f in found)
            assert ("onlad/status", b"online", False) in client.heard
        until(lambda: ("onlad/status", b"offline", False) in client.heard, "the goodbye")
    with Client(broker.port, ["onlad/#"]) as late:  # states are retained, verdicts and alarms not
        until(lambda: late.on("onlad/pump/a/state"), "the retained state")
        time.sleep(0.2)
        kept = {topic for topic, _, retained in late.heard if retained}
        assert {"onlad/status", "onlad/pump/a/state", "onlad/cabinet/-/state"} <= kept
        assert not any(topic.endswith(("verdict", "alarm")) for topic in kept)


def in_alarm(states):
    return [state for state in states if state["state"] == "alarm"]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_device_in_alarm_is_in_alarm_after_a_restart(tmp_path, broker, version, end):
    path = config(tmp_path, broker.port, version)
    X = machine(500, faults=range(490, 500))
    with Client(broker.port) as client:
        with Process(path) as process:
            process.wait_for("connected")
            rows = [sample(x) | {"at": 1000.0 + i} for i, x in enumerate(X)]
            client.send("plant/a/sensors", rows).wait_for_publish(10)
            until(lambda: client.on("onlad/pump/a/alarm"), "the alarm")
            before = until(lambda: in_alarm(client.on("onlad/pump/a/state")), "the state")[-1]
            getattr(process, end)()
        client.heard.clear()
        with Process(path):
            after = until(lambda: client.on("onlad/pump/a/state"), "the state after it")[0]
    assert (before["state"], before["time"]) == ("alarm", 1499.0)
    for state in (after, before):
        del state["sensors"]  # bands come with the next sample
    assert after == before


def test_a_device_that_falls_silent_is_an_alarm(tmp_path, broker, receiver):
    http = free_port()
    text = f"""
[service]
state = "state"
[mqtt]
port = PORT
[http]
port = {http}
page = false
[webhook]
url = "http://127.0.0.1:{receiver.port}/alarm"
format = "text"
[[streams]]
name = "pump"
topic = "plant/{{device}}"
silent_after = 1.0
"""
    path = write_config(tmp_path, broker.port, text)
    with Client(broker.port) as client:
        with Served(path) as served:
            connected(served)
            client.send("plant/a", [sample(x) for x in machine(300)])
            (alarm,) = until(lambda: client.on("onlad/pump/a/alarm"), "the alarm")
            assert (alarm["kind"], alarm["id"]) == ("silent", "pump/a/silent/300")
            assert alarm["text"].startswith("pump/a: no sample since 20")
            until(lambda: receiver.got, "the alarm at the webhook")
            assert receiver.got[0][0].decode() == alarm["text"]
            until(lambda: client.on("onlad/pump/a/state")[-1]["state"] == "silent", "the state")
            (device,) = httpx.get(f"http://127.0.0.1:{http}/streams").json()
            assert device["state"] == "silent"
            assert 0.5 < time.time() - device["seen"] < 60
            metrics = httpx.get(f"http://127.0.0.1:{http}/metrics").text
            assert 'onlad_silent{stream="pump"} 1.0' in metrics
            stamp = 'onlad_last_seen_timestamp_seconds{device="a",stream="pump"} 1.'
            assert stamp in metrics
            client.send("plant/a", sample(machine(1)[0]))
            until(lambda: client.on("onlad/pump/a/state")[-1]["state"] == "normal", "the end of it")
            until(lambda: len(client.on("onlad/pump/a/alarm")) == 2, "the next silence")
        client.heard.clear()
        with Served(path) as served:  # it is known to be silent, and not reported again
            connected(served)
            time.sleep(1.5)
            assert client.on("onlad/pump/a/state")[-1]["state"] == "silent"
            assert client.on("onlad/pump/a/alarm") == []


def test_a_will_says_that_the_service_is_gone(tmp_path, broker, version):
    path = config(tmp_path, broker.port, version)
    with Client(broker.port) as client, Process(path) as process:
        until(lambda: ("onlad/status", b"online", False) in client.heard, "the start")
        process.kill()
        until(lambda: ("onlad/status", b"offline", False) in client.heard, "the will")


def test_old_retained_values_are_no_samples(tmp_path, broker, version):
    with Client(broker.port) as client:
        client.send("cabinet/1", "1,2", retain=True).wait_for_publish(10)
        with Served(config(tmp_path, broker.port, version)) as served:
            connected(served)
            client.send("cabinet/1", "3,4", retain=True)
            until(lambda: served.samples() == 1, "the new sample")
            time.sleep(0.1)
            assert served.samples() == 1
            assert served.service.watchers["cabinet", ""].history.points()[0].row == 0


def test_a_broker_that_goes_and_comes_back(tmp_path, start_broker, version):
    port = free_port()
    path = config(tmp_path, port, version)
    X = machine(40)
    with Served(path) as served:  # it starts without a broker
        assert served.service.health.problems()
        first = start_broker(port)
        connected(served)
        with Client(port) as client:
            for x in X[:20]:
                client.send("plant/a/sensors", sample(x)).wait_for_publish(10)
            until(lambda: served.samples() == 20, "samples")
        first.stop()
        until(lambda: "mqtt" in served.service.health.trouble, "the loss to be noticed")
        start_broker(port)
        connected(served)
        with Client(port) as client:
            for x in X[20:]:
                client.send("plant/a/sensors", sample(x))
            until(lambda: served.samples() == 40, "more samples")


def test_streams_with_overlapping_topics_learn_a_message_once(tmp_path, broker, version):
    text = f"""
[service]
state = "state"
[mqtt]
port = PORT
version = "{version}"
[[streams]]
name = "all"
topic = "plant/#"
[[streams]]
name = "pump"
topic = "plant/{{device}}/sensors"
[[streams]]
name = "twin"
topic = "plant/+/sensors"
"""
    large = [sample(x) for x in machine(900)]  # paho puts it together
    with Client(broker.port) as client, Served(write_config(tmp_path, broker.port, text)) as served:
        connected(served)
        for x in machine(20):
            client.send("plant/a/sensors", sample(x))
        client.send("plant/a/sensors", large)
        client.send("plant/b", sample(x)).wait_for_publish(10)
        until(lambda: served.samples() >= 3 * 920 + 1, "all samples")
        time.sleep(0.2)
        seen = {key: w.monitor.n_seen for key, w in served.service.watchers.items()}
        assert seen == {("all", ""): 921, ("pump", "a"): 920, ("twin", ""): 920}


def test_what_came_while_the_service_was_away_is_read(tmp_path, keeping_broker, version):
    path = config(tmp_path, keeping_broker.port, version)
    X = machine(400)
    with Served(path) as served:
        connected(served)
    with Client(keeping_broker.port) as client:
        for x in X:
            client.send("plant/a/sensors", sample(x))
        client.send("plant/a/sensors", sample(X[0])).wait_for_publish(10)
    with Served(path) as served:
        until(lambda: served.samples() == 401, "what the broker kept")
    assert models(tmp_path / "state")["pump", "a"].n_seen == 401


def test_a_stop_does_not_wait_for_what_comes_again(tmp_path, keeping_broker, version, monkeypatch):
    path, X = config(tmp_path, keeping_broker.port, version), machine(1000)
    slow = Watcher.observe

    def observe(self, X, times):
        time.sleep(0.02)
        return slow(self, X, times)

    with monkeypatch.context() as patched:
        patched.setattr(Watcher, "observe", observe)
        patched.setattr(service, "BATCH", 1)
        patched.setattr(Service, "busy", False)
        with Served(path) as served, Client(keeping_broker.port) as client:
            connected(served)
            for x in X:
                client.send("plant/a/sensors", sample(x))
            until(lambda: served.service.queue > 600, "a queue")
            began = time.monotonic()
            served.end()
            assert time.monotonic() - began < 6  # all of them take 12 s
            assert served.samples() < 800
            client.send("plant/a/sensors", sample(X[0])).wait_for_publish(30)
    with Served(path) as served:
        until(lambda: served.samples() >= 1001, "the rest")
    assert models(tmp_path / "state")["pump", "a"].n_seen == 1001


def test_what_a_broker_sends_again_after_its_own_crash_is_known_by_its_time(
    tmp_path, start_broker, version
):
    port = free_port()
    path = config(tmp_path, port, version)
    first = start_broker(port, more="autosave_interval 0\n")
    with Served(path) as served:  # subscribes, and goes
        connected(served)
    with Client(port) as client:
        for i, x in enumerate(machine(50)):
            client.send("plant/a/sensors", sample(x) | {"at": 1000.0 + i}).wait_for_publish(10)
        client.send("cabinet/1", "1,2").wait_for_publish(10)
    first.process.send_signal(signal.SIGUSR1)  # it saves what waits for the service
    until((tmp_path / "mosquitto/mosquitto.db").exists, "the broker's file")
    time.sleep(0.5)
    with Served(path) as served:
        until(lambda: served.samples() == 51, "what was kept")
    first.process.kill()
    first.process.wait(10)
    start_broker(port, more="autosave_interval 0\n")
    with Served(path) as served:
        until(lambda: served.service.health.duplicates >= 50, "what was sent again")
        with Client(port) as client:
            client.send("plant/a/sensors", sample(x) | {"at": 2000.0}).wait_for_publish(10)
            watcher = served.service.watchers["pump", "a"]
            until(lambda: watcher.monitor.n_seen > 50, "a new sample with the old values")
        assert watcher.monitor.n_seen == 51
        # Without a time nothing tells a message from another with the same values.
        assert served.service.watchers["cabinet", ""].monitor.n_seen == 2


def test_each_device_has_a_topic_of_its_own_until_it_is_forgotten(tmp_path, broker, version):
    http = free_port()
    path = config(tmp_path, broker.port, version, f"[http]\nport = {http}\npage = false\n")
    url = f"http://127.0.0.1:{http}/streams/pump"
    names = {"a/b": "a%2Fb", "a+b": "a%2Bb", "a_b": "a_b", "": "-", "-": "%2D"}
    with Client(broker.port, ["onlad/#", "homeassistant/#"]) as client, Served(path) as served:
        connected(served)
        for count, device in enumerate(names, 1):
            rows = [sample(x) for x in machine(count)]
            httpx.post(f"{url}/samples", params={"device": device}, json=rows).raise_for_status()
        for count, level in enumerate(names.values(), 1):
            topic = f"onlad/pump/{level}/state"
            until(lambda t=topic, n=count: [s for s in client.on(t) if s["samples"] == n], topic)
        client.heard.clear()
        httpx.delete(f"{url}/devices/a%2Fb").raise_for_status()
        # What was said before may still come; nothing comes after on the same topic.
        for topic in ("onlad/pump/a%2Fb/state", "homeassistant/.*/alarm/config"):
            until(lambda t=topic: b"" in last_on(client, t), f"an empty {topic}")


def last_on(client, pattern):
    """Return the last message on each topic that matches."""
    heard = {topic: payload for topic, payload, _ in list(client.heard)}
    return [payload for topic, payload in heard.items() if re.fullmatch(pattern, topic)]


def test_a_device_that_is_forgotten_without_a_broker_is_taken_back(
    tmp_path, start_broker, version, capsys
):
    """While the broker is away, and by `onlad forget` while the service is stopped."""
    port = free_port()
    path, topics = config(tmp_path, port, version), ["onlad/+/+/state", "homeassistant/#"]
    first = start_broker(port)
    with Served(path) as served:
        with Client(port, topics) as client:
            connected(served)
            for device in "abc":
                client.send(f"plant/{device}/sensors", sample(machine(1)[0]))
            until(lambda: len(client.on("onlad/pump/./state")) >= 3, "three states")
        first.stop()  # it keeps on its disk what is retained
        until(lambda: "mqtt" in served.service.health.trouble, "the loss")
        served.do(served.service.orders.forget(served.service.watchers["pump", "a"]))
    assert main(["forget", "--config", str(path), "pump", "b"]) == 0
    start_broker(port)
    with Served(path) as served:
        connected(served)
        until(lambda: retained(port, topics) == {"onlad/pump/c/state": 1, "homeassistant": 3}, "c")


def retained(port, topics):
    """Return how many messages the broker retains, by topic."""
    with Client(port, [*topics, "the/end"]) as client:
        client.send("the/end", b"{}")
        until(lambda: client.on("the/end"), "the end")
        found = [topic for topic, _, is_retained in client.heard if is_retained]
    return dict(Counter(t.split("/")[0] if t.startswith("home") else t for t in found))


class Told:
    """In place of a connection: keeps what the broker receives, in order."""

    owed = 0

    def __init__(self):
        self.states = []

    def publish(self, topic, payload, retain=False):
        if topic.endswith("/state"):
            self.states.append((topic.split("/")[2], payload))
        return len(self.states) + 1

    def write(self, data=b""):
        pass

    read_on = write


@pytest.mark.parametrize("seed", range(2))
def test_after_the_empty_message_no_state_of_a_device_is_said(tmp_path, seed):
    """Whatever happens at the same time, until the device is born again."""
    rng, X = np.random.default_rng(seed), machine(600, faults=range(0, 600, 50))
    path = config(tmp_path, 1, "5")

    async def live():
        held = Service(load(path))
        for _ in held.resume():
            pass
        mqtt = Mqtt(held, held.config.mqtt)
        mqtt._client = told = Told()
        rows = dict.fromkeys("abc", 0)

        async def act(device):
            watcher, what = held.watchers.get(("pump", device)), rng.integers(8)
            if what < 3 or watcher is None:
                few = [sample(x) for x in X[rows[device] : rows[device] + 20]]
                rows[device] = (rows[device] + 20) % 580
                held.submit(Item(held.streams["pump"], device, json.dumps(few).encode(), 0.0))
                await held.drain()
            elif what < 5:
                with contextlib.suppress(UnknownError):  # another was faster
                    await held.orders.forget(watcher)
            elif what < 7:
                await held.orders.pause(watcher, bool(what == 5))
            elif ("pump", device) in held.watchers:
                held._silence(watcher)

        for _ in range(200):
            acts = (act("abc"[i]) for i in rng.integers(3, size=3))
            await asyncio.gather(mqtt._refresh(), *acts, mqtt._refresh())
            await mqtt._refresh()
            for name in "abc":
                said = [payload for device, payload in told.states if device == name]
                assert not said or (said[-1] == b"") is (("pump", name) not in held.watchers)
        held.close()
        assert [payload for _, payload in told.states].count(b"") > 20

    asyncio.run(live())


def test_a_full_disk_loses_nothing(tmp_path, keeping_broker, version, monkeypatch):
    X = machine(60)
    path = config(tmp_path, keeping_broker.port, version)
    path.write_text(path.read_text().replace('time = "at"\n', ""))  # that of arrival is another
    with Client(keeping_broker.port) as client, Served(path) as served:
        connected(served)
        journal = served.service.store.journal
        append = type(journal).append
        full = [True]

        def no_space(self, records):
            if full[0]:
                raise OSError(28, "No space left on device")
            append(self, records)

        monkeypatch.setattr(type(journal), "append", no_space)
        for x in X:
            client.send("plant/a/sensors", sample(x))
        until(lambda: "journal" in served.service.health.trouble, "the trouble to show")
        assert any("No space left" in problem for problem in served.service.health.problems())
        time.sleep(0.5)
        assert served.samples() == 0
        full[0] = False
        until(lambda: served.samples() == 60, "all samples, once there is space")
        until(lambda: not served.service.health.problems(), "no more trouble")
    found = models(tmp_path / "state")["pump", "a"]
    twin = served.service.streams["pump"].monitor()
    twin.observe_many([sample(x) for x in X])
    assert persist.to_bytes(found) == persist.to_bytes(twin)


@pytest.fixture
def certificates(tmp_path):
    """Make an authority, and certificates of a server and a client."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")

    def make(*arguments):
        subprocess.run([openssl, *arguments], check=True, capture_output=True, cwd=tmp_path)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    make(
        "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca", "-days", "2"
    )
    (tmp_path / "names").write_text("subjectAltName=IP:127.0.0.1")
    for name in ("server", "client"):
        make("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        sign = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"]
        out = ["-out", f"{name}.pem", "-extfile", "names"]
        make("x509", "-req", "-in", f"{name}.csr", *sign, *out)
    return tmp_path


def test_tls_with_a_client_certificate(certificates, start_broker, version):
    folder, port = certificates, free_port()
    start_broker(
        more=f"listener {port} 127.0.0.1\ncafile {folder}/ca.pem\ncertfile {folder}/server.pem\n"
        f"keyfile {folder}/server.key\nrequire_certificate true\nuse_identity_as_username true\n"
    )
    more = 'tls = true\nca = "ca.pem"\ncertificate = "client.pem"\nkey = "client.key"\n'
    text = CONFIG.replace("VERSION", version).replace("[mqtt]\n", "[mqtt]\n" + more)
    with Served(write_config(folder, port, text)) as served:
        connected(served)
        assert served.service.health.problems() == []
    # Without a certificate of its own it stays outside.
    text = text.replace('certificate = "client.pem"\nkey = "client.key"\n', "")
    with Served(write_config(folder, port, text)) as served:
        time.sleep(1)
        assert served.service.health.problems() == ["there is no connection to the broker"]
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_user_and_password(tmp_path, start_broker, version):
    port = free_port()
    (tmp_path / "users").write_text("")
    mosquitto_passwd = shutil.which("mosquitto_passwd")
    if mosquitto_passwd is None:
        pytest.skip("mosquitto_passwd is not installed")
    users = str(tmp_path / "users")
    subprocess.run([mosquitto_passwd, "-b", users, "pi", "raspberry"], check=True)
    lines = f"listener {port} 127.0.0.1\nallow_anonymous false\npassword_file {users}\n"
    start_broker(more=lines, first="per_listener_settings true\n")
    (tmp_path / "secret").write_text("raspberry\n")
    text = CONFIG.replace("VERSION", version)
    right = text.replace("[mqtt]\n", '[mqtt]\nusername = "pi"\npassword_file = "secret"\n')
    with Served(write_config(tmp_path, port, right)) as served:
        connected(served)
    wrong = text.replace("[mqtt]\n", '[mqtt]\nusername = "pi"\npassword = "strawberry"\n')
    with Served(write_config(tmp_path, port, wrong)) as served:
        time.sleep(1)
        assert served.service.health.problems() == ["there is no connection to the broker"]


def test_tls_and_a_password_together_and_why_a_broker_refuses(
    certificates, start_broker, version, caplog
):
    folder, port = certificates, free_port()
    mosquitto_passwd = shutil.which("mosquitto_passwd")
    if mosquitto_passwd is None:
        pytest.skip("mosquitto_passwd is not installed")
    users = str(folder / "users")
    subprocess.run([mosquitto_passwd, "-c", "-b", users, "pi", "raspberry"], check=True)
    start_broker(
        more=f"listener {port} 127.0.0.1\ncertfile {folder}/server.pem\n"
        f"keyfile {folder}/server.key\nallow_anonymous false\npassword_file {users}\n",
        first="per_listener_settings true\n",
    )
    (folder / "secret").write_text("raspberry\n")
    table = '[mqtt]\ntls = true\nca = "ca.pem"\nusername = "pi"\npassword_file = "secret"\n'
    text = CONFIG.replace("VERSION", version).replace("[mqtt]\n", table)
    with Served(write_config(folder, port, text)) as served:
        connected(served)
        sensor = Client.__new__(Client)
        sensor.paho = paho.Client(paho.CallbackAPIVersion.VERSION2)
        sensor.paho.tls_set(folder / "ca.pem")
        sensor.paho.username_pw_set("pi", "raspberry")
        sensor.paho.connect("127.0.0.1", port)
        sensor.paho.loop_start()
        for x in machine(300):
            sensor.send("plant/a/sensors", sample(x))
        until(lambda: served.samples() == 300, "all samples over TLS")
        sensor.close()

    def refused(text, why):
        caplog.clear()
        with Served(write_config(folder, port, text)) as served:
            until(lambda: any("no broker" in r.message for r in caplog.records), "a refusal")
            (problem,) = served.service.health.problems()
            assert problem == "there is no connection to the broker"
        facts = [r.facts for r in caplog.records if r.message == "no broker"]
        assert why in facts[0]["why"]

    (folder / "wrong").write_text("strawberry")
    refused(text.replace('"secret"', '"wrong"'), "it does not authorise this client")
    refused(text.replace('"ca.pem"', '"client.pem"'), "certificate verify failed")
    refused(text.replace("[mqtt]\n", '[mqtt]\nhost = "localhost"\n'), "certificate verify failed")


def test_alarms_reach_a_webhook_that_was_down(tmp_path, broker, receiver):
    X = machine(600, faults=[400])
    more = f'[webhook]\nurl = "http://127.0.0.1:{receiver.port}/alarm"\ntoken = "tok"\n'
    path = config(tmp_path, broker.port, "3.1.1", more)
    receiver.fail = 1
    with Client(broker.port) as client, Served(path) as served:
        connected(served)
        for x in X:
            client.send("plant/a/sensors", sample(x))
        until(lambda: receiver.got, "the alarm")
        (body, token) = receiver.got[0]
        assert (json.loads(body)["row"], token) == (400, "Bearer tok")
        assert receiver.tries == 2
        until(lambda: not served.service.outbox.waiting, "the delivery to be known")


def test_a_webhook_that_redirects_is_told_and_tried_again(tmp_path, broker, receiver, monkeypatch):
    monkeypatch.setattr("onlad.serve.webhook.FIRST_PAUSE", 0.1)
    receiver.redirect = True
    http = free_port()
    more = f'[webhook]\nurl = "http://127.0.0.1:{receiver.port}/alarm"\ntoken = "tok"\n'
    more += f"[http]\nport = {http}\npage = false\n"
    path = config(tmp_path, broker.port, "3.1.1", more)
    with Client(broker.port) as client, Served(path) as served:
        connected(served)
        client.send("plant/a/sensors", [sample(x) for x in machine(600, faults=[400])])
        until(lambda: receiver.tries >= 2, "two attempts", 5)
        assert (receiver.astray, receiver.got) == ([], [])
        ready = httpx.get(f"http://127.0.0.1:{http}/readyz")
        assert ready.status_code == 503
        assert f"it redirects to http://127.0.0.1:{receiver.port}/elsewhere, which is" in ready.text
        metrics = httpx.get(f"http://127.0.0.1:{http}/metrics").text
        assert "onlad_webhook_failures_total 0.0" not in metrics
        receiver.redirect = False
        until(lambda: receiver.got, "the alarm")
        until(lambda: not served.service.health.problems(), "no more trouble")


def test_a_webhook_that_never_answers_does_not_hold_up_a_stop(tmp_path, broker):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        more = f'[webhook]\nurl = "{url}"\ntimeout = 20\n'
        with Client(broker.port) as client:
            with Served(config(tmp_path, broker.port, "3.1.1", more)) as served:
                connected(served)
                client.send("plant/a/sensors", [sample(x) for x in machine(600, faults=[400])])
                silent.settimeout(10)
                asked, _ = silent.accept()
                since = time.monotonic()
            assert time.monotonic() - since < 5
            asked.close()
    outbox = json.loads((tmp_path / "state/state.json").read_text())["state"]["outbox"]
    assert [message["row"] for message in outbox] == [400]


def test_a_name_that_nobody_resolves_does_not_hold_up_a_stop(tmp_path, monkeypatch):
    asked, ends = threading.Event(), threading.Event()

    def slow(*_):
        asked.set()
        ends.wait(20)
        raise socket.gaierror("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    path = config(tmp_path, 1, "3.1.1")
    path.write_text(path.read_text().replace("[mqtt]\n", '[mqtt]\nhost = "broker.example"\n'))
    with Served(path):
        assert asked.wait(10)
        since = time.monotonic()
    assert time.monotonic() - since < 5
    ends.set()


def test_it_stops_even_if_the_connection_is_lost_at_that_moment(tmp_path, broker, monkeypatch):
    async def lost(self):
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            raise BrokerError("the connection was lost") from None

    monkeypatch.setattr(Mqtt, "_session", lost)
    with Served(config(tmp_path, broker.port, "3.1.1")) as served:
        until(lambda: served.service.health.trouble, "no broker")


def test_undelivered_alarms_survive(tmp_path, broker, receiver):
    X = machine(600, faults=[400])
    more = f'[webhook]\nurl = "http://127.0.0.1:{receiver.port}/alarm"\nformat = "text"\n'
    path = config(tmp_path, broker.port, "3.1.1", more)
    receiver.fail = 10**6
    with Client(broker.port) as client, Served(path) as served:
        connected(served)
        for x in X:
            client.send("plant/a/sensors", sample(x))
        until(lambda: receiver.tries, "an attempt")
    receiver.fail = 0
    with Served(path):
        until(lambda: receiver.got, "the alarm after a restart")
        assert receiver.got[0][0].startswith(b"pump/a: severity ")


def test_alarms_of_all_devices_keep_to_one_budget_also_after_a_kill(tmp_path, broker, receiver):
    http = free_port()
    more = f'[webhook]\nurl = "http://127.0.0.1:{receiver.port}/alarm"\n'
    more += f"[http]\nport = {http}\npage = false\n"
    path = config(tmp_path, broker.port, "3.1.1", more)
    path.write_text(path.read_text().replace("[service]\n", "[service]\nalarms_per_hour = 2\n"))
    address = f"http://127.0.0.1:{http}"

    def fails(client, device):
        client.send(f"plant/{device}/sensors", [sample(x) for x in machine(600, faults=[550])])

    with Client(broker.port) as client:
        with Process(path) as process:
            process.wait_for("connected")
            for device in "abcde":
                fails(client, device)
            until(lambda: httpx.get(f"{address}/budget").json()["suppressed"] == 3, "the budget")
            told = {"alarms_per_hour": 2, "reported_last_hour": 2, "suppressed": 3}
            assert httpx.get(f"{address}/budget").json() == told
            until(lambda: len(receiver.got) == 2, "both alarms at the webhook")
            until(lambda: len(client.on("onlad/pump/./alarm")) == 2, "both alarms")
            devices = httpx.get(f"{address}/streams").json()
            before = {device["device"]: device["alarms"][0]["reported"] for device in devices}
            assert sorted(before.values()) == [False] * 3 + [True] * 2
            (incident,) = httpx.get(f"{address}/incidents").json()
            assert (len(incident["devices"]), incident["reported"]) == (5, True)
            assert sum(device["suppressed"] for device in devices) == 3
            assert (
                'onlad_suppressed_total{stream="pump"} 3.0' in httpx.get(f"{address}/metrics").text
            )
            process.kill()
            process.log.unlink()
        with Process(path) as process:
            process.wait_for("connected")
            devices = httpx.get(f"{address}/streams").json()
            assert {d["device"]: d["alarms"][0]["reported"] for d in devices} == before
            fails(client, "f")
            until(lambda: httpx.get(f"{address}/budget").json()["suppressed"] == 1, "the budget")
            assert (len(receiver.got), len(client.on("onlad/pump/./alarm"))) == (2, 2)


def test_devices_that_fall_silent_together_keep_to_the_budget(tmp_path, broker):
    text = CONFIG.replace("VERSION", "3.1.1").replace("[service]", "[service]\nalarms_per_hour = 2")
    text = text.replace('time = "at"\n', 'time = "at"\nsilent_after = 0.5\n')
    path = write_config(tmp_path, broker.port, text)
    with Client(broker.port) as client:
        with Served(path) as served:
            connected(served)
            for device in "abc":
                client.send(f"plant/{device}/sensors", sample(machine(1)[0]))
            until(lambda: served.service.outbox.suppressed == 1, "the third")
            until(lambda: len(client.on("onlad/pump/./alarm")) == 2, "two alarms")
        client.heard.clear()
        with Served(path) as served:
            connected(served)
            assert [w.state for w in served.service.watchers.values()] == ["silent"] * 3
            assert (client.on("onlad/pump/./alarm"), served.service.outbox.waiting) == ([], {})


def test_a_broker_that_takes_nothing_stalls_nobody(tmp_path, broker):
    port = free_port()
    path = config(tmp_path, broker.port, "3.1.1", f"[http]\nport = {port}\npage = false\n")
    body = json.dumps([sample(x) for x in machine(1000)])
    url = f"http://127.0.0.1:{port}/streams/pump/samples?device=h"
    with Served(path) as served, httpx.Client(timeout=30) as client:
        connected(served)
        broker.process.send_signal(signal.SIGSTOP)
        try:
            for _ in range(100):
                assert client.post(url, content=body).json()["accepted"] == 1000
                if served.service.health.dropped.get("verdict"):
                    break
            else:
                raise AssertionError("what is for the broker piles up without an end")
        finally:
            broker.process.send_signal(signal.SIGCONT)
        count = served.samples()
        with Client(broker.port) as sensor:
            sensor.send("plant/h/sensors", sample(machine(1)[0]))
            until(lambda: served.samples() == count + 1, "life after it")
