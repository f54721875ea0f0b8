"""HTTP: samples in, verdicts out, and who may come in."""

import asyncio
import base64
import contextlib
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import product

import httpx
import pytest
from serving import Process, Served, free_port, machine, models, sample, until
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from onlad import persist
from onlad.cli import main
from onlad.errors import OnladError
from onlad.serve.audit import verify

CONFIG = """
[service]
state = "state"
devices = 3
[http]
port = PORT
page = false
MORE
[[streams]]
name = "pump"
warmup = 128
[[streams]]
name = "cabinet"
payload = "plain"
"""


HANDSHAKE = (
    b"GET /live?stream=pump HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
    b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


@contextmanager
def served(folder, more="", text=CONFIG):
    port = free_port()
    path = folder / "onlad.toml"
    path.write_text(text.replace("PORT", str(port)).replace("MORE", more))
    with Served(path) as running, httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        running.port = port
        until(lambda: _alive(client), "the server")
        yield running, client


def _alive(client):
    try:
        return client.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


def test_one_sample_and_a_batch_are_judged_like_by_a_monitor(tmp_path):
    X = machine(700, faults=[600])
    with served(tmp_path) as (running, client):
        first = client.post("/streams/pump/samples", json=sample(X[0])).json()
        assert first["accepted"] == 1
        assert first["verdicts"][0]["ready"] is False
        assert first["verdicts"][0]["threshold"] is None
        rest = client.post("/streams/pump/samples", json=[sample(x) for x in X[1:]]).json()
        assert rest["accepted"] == 699
        twin = running.service.streams["pump"].monitor()
        expected = twin.observe_many([sample(x) for x in X])
        said = first["verdicts"] + rest["verdicts"]
        assert [v["row"] for v in said] == list(range(700))
        assert [v["score"] for v in said] == pytest.approx(
            expected.score.tolist(), rel=0.005
        )  # 3 digits
        assert [v["is_anomaly"] for v in said] == expected.is_anomaly.tolist()
        assert said[600]["is_anomaly"]
        assert next(iter(said[600]["causes"])) == "valve"
    assert models(tmp_path / "state")["pump", ""].n_seen == 700


def test_bad_samples_are_named_and_the_others_taken(tmp_path):
    rows = [{"a": 1, "b": 2}, {"a": "x", "b": 2}, {"c": 2}, {"a": 1e300}, {"a": None}]
    with served(tmp_path) as (_, client):
        answer = client.post("/streams/pump/samples?device=d", json=rows)
        assert answer.status_code == 200
        assert answer.json()["accepted"] == 2
        assert [bad["index"] for bad in answer.json()["bad"]] == [1, 2, 3]
        assert "which is not a number" in answer.json()["bad"][0]["why"]
        for body in (b"", b"{", b"3", b"[]", b"[" * 100_000, b"\xff", b'{"a": 1e999}'):
            assert client.post("/streams/pump/samples?device=d", content=body).status_code == 422
        plain = client.post("/streams/cabinet/samples", content=b"1.5, 2\n3;4\nx 4\n")
        assert plain.json()["accepted"] == 0
        assert "column '0' holds 'x', which is not a number" in plain.json()["bad"][0]["why"]
        assert client.post("/streams/cabinet/samples", content=b"1,2\n3 4").json()["accepted"] == 2
        assert client.post("/streams/none/samples", json=[1]).status_code == 404
        # There are two devices now. A third is the last.
        assert client.post("/streams/pump/samples?device=e", json=[1]).status_code == 200
        answer = client.post("/streams/pump/samples?device=f", json=[1])
        assert answer.status_code == 422
        assert "at most 3 devices" in answer.json()["bad"][0]["why"]


def test_names_from_the_network_reach_no_path(tmp_path):
    device = "../../../etc/x\0$(reboot){{7*7}}"
    with served(tmp_path) as (_, client):
        for _ in range(2):
            params = {"device": device}
            assert client.post("/streams/pump/samples", params=params, json=[1]).status_code == 200
        assert client.post("/streams/..%2f..%2fx/samples", json=[1]).status_code == 404
    names = sorted(p.name for p in (tmp_path / "state").rglob("*") if p.is_file())
    assert [name for name in names if "journal" not in name] == [
        "000001-000000000002-000.onlad.gz",
        "000001-0000000001.onlad.gz",
        "audit.jsonl",
        "hand",
        "lock",
        "state.json",
    ]
    assert ("pump", device) in models(tmp_path / "state")


def test_what_was_learned_during_a_fault_is_taken_back_and_counted(tmp_path):
    X = machine(900, faults=range(500, 520))
    X[520:] += 5  # a mode that begins with the fault
    with served(tmp_path) as (_, client):
        client.post("/streams/pump/samples", json=[sample(x) for x in X])
        (stream,) = client.get("/streams").json()
        label = {"alarm": stream["alarms"][0]["id"], "label": "fault"}
        assert client.post("/streams/pump/label", json=label).json()["taken_back"] > 0
        undone = client.post("/streams/pump/label", json=label | {"label": ""})
        assert undone.json() == {"learned": 0}


def test_what_a_person_does(tmp_path):
    X = machine(700, faults=[500, 640])
    with served(tmp_path) as (running, client):
        client.post("/streams/pump/samples", json=[sample(x) for x in X[:600]])
        (stream,) = client.get("/streams").json()
        assert (stream["state"], stream["samples"]) == ("normal", 600)
        (alarm,) = stream["alarms"]
        assert (alarm["row"], alarm["marked"]) == (500, False)
        label = {"alarm": alarm["id"], "label": "fault", "comment": "valve", "by": "Kim"}
        assert client.post("/streams/pump/label", json=label).json() == {"taken_back": 0}
        (told,) = client.get("/streams").json()[0]["alarms"]
        assert (told["label"], told["comment"]) == ("fault", "valve")
        assert client.post("/streams/pump/label", json=label | {"label": ""}).status_code == 200
        assert client.post("/streams/pump/label", json=label | {"label": "x"}).status_code == 409
        assert client.post("/streams/pump/label", json=label | {"alarm": "x"}).status_code == 404
        assert client.post("/streams/pump/label", json=label | {"by": 1}).status_code == 422
        assert client.post("/streams/pump/label", json="fault").status_code == 422
        trail = [said for _, said in verify(tmp_path / "state")]
        assert [(said["kind"], said["label"]) for said in trail] == [
            ("label", "fault"),
            ("label", ""),
        ]
        assert (trail[0]["by"], trail[0]["comment"], trail[0]["stream"]) == ("Kim", "valve", "pump")
        marked = client.post("/streams/pump/normal", json=alarm["id"]).json()
        assert marked["learned"] >= 1
        assert client.get("/streams").json()[0]["alarms"][0]["marked"]
        again = client.post("/streams/pump/samples", json=[sample(x) for x in X[600:]]).json()
        unmarked = running.service.streams["pump"].monitor()
        before = unmarked.observe_many([sample(x) for x in X])
        assert again["verdicts"][40]["score"] < before.score[640]
        assert client.post("/streams/pump/label", json=label).status_code == 409  # it was learned
        file = client.post("/streams/pump/snapshots").json()["file"]
        assert file in client.get("/streams/pump/snapshots").json()
        assert client.post("/streams/pump/revert", json=file).json()["samples"] == 700
        assert client.post("/streams/pump/revert", json="../state.json").status_code == 409
        assert client.post("/streams/pump/revert", json=1).status_code == 422
        assert client.post("/streams/pump/normal", json="pump/1").status_code == 404
        assert client.post("/streams/pump/normal", content=b"{").status_code == 422

        assert client.post("/streams/pump/learning", json="no").status_code == 422
        assert client.post("/streams/none/learning", json=False).status_code == 404
        assert client.post("/streams/pump/learning", json=False).json()["state"] == "paused"
        said = client.post("/streams/pump/samples", json=[sample(x) for x in X[:50]]).json()
        assert not any(v["learned"] for v in said["verdicts"])
        (tmp_path / "copy.onlad").write_bytes(client.get("/streams/pump/model").content)
        assert client.get("/streams/none/model").status_code == 404
    with served(tmp_path) as (_, client):  # pausing outlives a restart
        assert client.get("/streams").json()[0]["state"] == "paused"
        assert client.post("/streams/pump/learning", json=True).json()["state"] != "paused"
    from onlad import load

    assert load(tmp_path / "copy.onlad").n_seen == 750


def test_a_device_is_forgotten_and_put_back(tmp_path, monkeypatch, capsys):
    X = machine(400)

    def post(client, rows, device):
        return client.post(f"/streams/pump/samples?device={device}", json=rows)

    def seen(client):
        return {d["device"]: d["samples"] for d in client.get("/streams").json()}

    with served(tmp_path) as (running, client):
        post(client, [1, 2, 3], "a/b")  # a stray first sample fixes the features
        assert post(client, sample(X[0]), "a/b").status_code == 422
        post(client, [sample(x) for x in X], "c")
        file = client.delete("/streams/pump/devices/a/b").json()["undo"]
        assert client.delete("/streams/pump/devices/a/b").status_code == 404
        assert post(client, [sample(x) for x in X[:9]], "a/b").status_code == 200
        assert seen(client) == {"c": 400, "a/b": 9}
        answer = client.post(f"/forgotten/{file}")
        assert answer.status_code == 409
        assert "is watched again. Forget that one first" in answer.json()["error"]
        other = client.delete("/streams/pump/devices/a/b").json()["undo"]
        assert client.post(f"/forgotten/{file}").json()["samples"] == 1
        assert post(client, [4, 5, 6], "a/b").status_code == 200
        for name in ("000099.json", "..%2Fstate.json", "x"):
            assert client.post(f"/forgotten/{name}").status_code in (404, 409)
        running.service.disk.checkpoint = lambda **_: asyncio.sleep(0)  # as a crash would end it
    with served(tmp_path) as (running, client):
        assert seen(client) == {"c": 400, "a/b": 2}
    path = str(tmp_path / "onlad.toml")
    assert main(["forget", "--config", path, "pump", "nobody"]) == 1
    assert "there is no device pump/nobody; there are: pump/a/b, pump/c" in capsys.readouterr().err
    assert main(["forget", "--config", path, "pump", "a/b"]) == 0
    assert "To undo it: onlad forget --config" in capsys.readouterr().out
    assert main(["forget", "--config", path, "--undo", other]) == 0
    assert capsys.readouterr().out == "pump/a/b is restored\n"
    with served(tmp_path) as (_, client):
        assert seen(client) == {"c": 400, "a/b": 9}
        with monkeypatch.context() as patch:
            patch.setattr("onlad.serve.journal.os.write", _no_space)
            assert client.delete("/streams/pump/devices/c").status_code == 503
        assert seen(client) == {"c": 400, "a/b": 9}


def _no_space(*_):
    raise OSError(28, "No space left on device")


def test_on_a_full_disk_nothing_that_a_person_does_is_half_done(tmp_path, monkeypatch):
    with served(tmp_path) as (running, client):
        rows = [sample(x) for x in machine(700, faults=[600])]
        client.post("/streams/pump/samples", json=rows)
        watcher = running.service.watchers["pump", ""]
        (alarm,) = client.get("/streams").json()[0]["alarms"]
        before = persist.to_bytes(watcher.monitor)
        said = {"alarm": alarm["id"], "label": "normal"}
        orders = [("learning", False), ("normal", alarm["id"]), ("label", said)]
        orders += [("label", said | {"label": "fault"}), ("maintenance", ["daily 02:00-03:00"])]
        for what, (path, body) in product(("os.write", "Journal.append"), orders):
            with monkeypatch.context() as patch:
                patch.setattr(f"onlad.serve.journal.{what}", _no_space)
                how = "PUT" if path == "maintenance" else "POST"
                answer = client.request(how, f"/streams/pump/{path}", json=body)
            assert answer.status_code == 503
            assert "No space left on device. Nothing was changed" in answer.json()["error"]
        assert (persist.to_bytes(watcher.monitor), watcher.paused) == (before, False)
        kept = watcher.alarms[-1]
        assert (kept.marked, kept.undo, kept.label, watcher.windows) == (False, "", "", ())
        assert {said["kind"] for _, said in verify(tmp_path / "state")} <= {"snapshot"}
        assert client.post("/streams/pump/learning", json=False).status_code == 200
        assert client.post("/streams/pump/normal", json=alarm["id"]).status_code == 200


def test_what_was_normal_can_be_undone_and_the_trail_knows_by_whom(tmp_path):
    with served(tmp_path, 'token = "open-sesame"') as (_, client):
        client.auth = ("Kim", "open-sesame")
        client.post("/streams/pump/samples", json=[sample(x) for x in machine(700, faults=[600])])
        (alarm,) = client.get("/streams").json()[0]["alarms"]
        assert client.post("/streams/pump/normal", json=alarm["id"]).json()["learned"] >= 1
        undone = {"alarm": alarm["id"], "label": "", "by": "Lee"}
        assert client.post("/streams/pump/label", json=undone).status_code == 200
        assert not client.get("/streams").json()[0]["alarms"][0]["marked"]
        client.post("/streams/pump/learning", json=False)
        client.post("/streams/pump/snapshots")
        client.delete("/streams/pump/devices/")
        client.post("/forgotten/000001.json")
        by = {(said["kind"], said["by"]) for _, said in verify(tmp_path / "state") if "by" in said}
    people = {"label": "Kim", "paused": "Kim", "snapshot": "Kim", "reverted": "Lee"}
    assert by >= set(people.items()) | {("label", "Lee")}
    assert "" not in {name for _, name in by}


def test_devices_that_fail_together_are_one_incident(tmp_path):
    with served(tmp_path) as (_, client):
        now = time.time() - 1000
        for k, device in enumerate(("a", "b", "c")):
            X = machine(700, seed=k, faults=[500] if device == "c" else [640, 641, 642])
            rows = [sample(x) | {"time": now + i} for i, x in enumerate(X)]
            client.post(f"/streams/pump/samples?device={device}", json=rows)
        together, incident = client.get("/incidents").json()
        assert {each["device"] for each in together["devices"]} == {"a", "b"}
        assert together["time"] <= together["peak"] <= together["end"]
        assert abs(together["time"] - now - 640) < 5
        assert together["severity"] >= 40
        assert not together["open"]
        assert "valve" in together["sensors"]
        assert "valve" in together["text"]
        assert [each["device"] for each in incident["devices"]] == ["c"]
        for each in together["devices"][1:]:  # a name that one of the devices has is its name
            said = {"alarm": each["alarm"], "label": "fault", "comment": "worn"}
            client.post(f"/streams/pump/label?device={each['device']}", json=said)
        assert client.get("/incidents").json()[0]["comment"] == "worn"
        assert client.get("/incidents?days=0").json() == []
        assert "onlad_suppressed_total" in client.get("/metrics").text


def test_live_verdicts_and_a_client_that_does_not_read(tmp_path):
    X = machine(900, faults=[600])
    with served(tmp_path) as (running, client):
        url = f"ws://127.0.0.1:{running.port}/live"
        narrow = socket.socket()
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        narrow.connect(("127.0.0.1", running.port))
        narrow.sendall(HANDSHAKE)
        with (
            connect(url + "?only=anomalies", max_queue=None) as anomalies,
            connect(url + "?device=b") as other,
        ):
            until(lambda: len(_live(running)) == 3, "the clients")
            # 900 verdicts a request, until the buffers of the one that reads none are full.
            body = json.dumps([sample(x) for x in X])
            for _ in range(100):
                client.post("/streams/pump/samples", content=body).raise_for_status()
                if "websocket" in running.service.health.dropped:
                    break
            first = json.loads(anomalies.recv(10))
            assert (first["row"], first["is_anomaly"]) == (600, True)
            client.post("/streams/pump/samples?device=b", json=sample(X[0]))
            assert json.loads(other.recv(10))["device"] == "b"
            assert running.service.health.dropped["websocket"] > 0
            narrow.close()
        until(lambda: not _live(running), "the clients to be forgotten")
        assert b'onlad_dropped_total{what="websocket"}' in client.get("/metrics").content


def test_the_end_is_quiet_with_a_websocket_that_does_not_read(tmp_path):
    port = free_port()
    path = tmp_path / "onlad.toml"
    path.write_text(CONFIG.replace("PORT", str(port)).replace("MORE", ""))
    body = json.dumps([sample(x) for x in machine(900)])
    url = f"http://127.0.0.1:{port}"
    with Process(path) as process, socket.socket() as narrow:
        process.wait_for("listening")
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        narrow.connect(("127.0.0.1", port))
        narrow.sendall(HANDSHAKE)
        until(lambda: narrow.recv(12) == b"HTTP/1.1 101", "the WebSocket")
        while 'what="websocket"' not in httpx.get(f"{url}/metrics").text:
            httpx.post(f"{url}/streams/pump/samples", content=body, timeout=30)
        assert process.stop() == 0
    log = process.log.read_text()
    assert log.splitlines()[-1].endswith("info: stopped")
    assert "error" not in log


def _live(running):
    listener = next(f for f in running.service.listeners if hasattr(f, "clients"))
    return listener.clients


def test_metrics_and_health(tmp_path):
    with served(tmp_path) as (running, client):
        client.post("/streams/pump/samples", json=[sample(x) for x in machine(300)])
        client.post("/streams/pump/samples", content=b"x")
        text = client.get("/metrics").text
        for line in [
            'onlad_samples_total{stream="pump"} 300.0',
            'onlad_samples_total{stream="cabinet"} 0.0',
            'onlad_skipped_total{stream="pump"} 1.0',
            'onlad_alarms_total{stream="pump"} 0.0',
            'onlad_devices{stream="pump"} 1.0',
            'onlad_paused{stream="pump"} 0.0',
            'onlad_latency_seconds_bucket{le="+Inf"} 1.0',
            "onlad_queue 0.0",
            "onlad_ready 1.0",
        ]:
            assert line in text.splitlines()
        assert "onlad_checkpoint_age_seconds" in text
        assert client.get("/readyz").text == "ready\n"
        running.service.health.trouble["journal"] = "the journal cannot be written: No space left"
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200
        assert "onlad_ready 0.0" in client.get("/metrics").text


def test_the_door_asks_for_the_token(tmp_path):
    with served(tmp_path, 'token = "open-sesame"') as (running, client):
        assert client.get("/streams").status_code == 401
        assert client.get("/metrics").status_code == 401
        wrong = {"Authorization": "Bearer open-sesam"}
        assert client.get("/streams", headers=wrong).status_code == 401
        broken = {"Authorization": "Basic %%%"}
        assert client.get("/streams", headers=broken).status_code == 401
        basic = base64.b64encode(b"me:open-sesame").decode()
        for header in ("Bearer open-sesame", f"Basic {basic}"):
            with httpx.Client(base_url=client.base_url) as fresh:
                answer = fresh.get("/streams", headers={"Authorization": header})
                assert answer.status_code == 200
                assert "HttpOnly" in answer.headers["set-cookie"]
                assert fresh.get("/streams").status_code == 200  # by the cookie
        url = f"ws://127.0.0.1:{running.port}/live"
        with pytest.raises(WebSocketException), connect(url):
            pass
        with connect(url, additional_headers={"Authorization": "Bearer open-sesame"}):
            pass
        assert 'onlad_http_refused_total{status="401"}' in fresh_metrics(client)


def fresh_metrics(client):
    return client.get("/metrics", headers={"Authorization": "Bearer open-sesame"}).text


def test_the_door_knows_its_name_and_counts(tmp_path):
    with served(tmp_path, "body = 2000\nrate = 5.0\nclients = 20") as (_, client):
        assert client.get("/streams", headers={"Host": "evil.example"}).status_code == 403
        origin = {"Origin": "http://evil.example"}
        assert client.post("/streams/pump/samples", headers=origin, json=[1]).status_code == 403
        assert client.post("/streams/pump/samples", content=b"1" * 2001).status_code == 413

        def parts():
            for _ in range(100):
                yield b"[" * 100

        client.post("/streams/pump/samples", json=[1])
        for path in ("samples", "learning", "normal"):
            assert client.post(f"/streams/pump/{path}", content=parts()).status_code == 413
        answer = client.get("/streams")
        assert answer.headers["content-security-policy"] == "frame-ancestors 'none'"
        time.sleep(1)
        statuses = [client.get("/streams").status_code for _ in range(30)]
        assert 429 in statuses
        assert client.get("/healthz").status_code == 200  # who asks for this is always answered
        time.sleep(0.5)
        assert client.get("/streams").status_code == 200


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET /streams HTTP/1.1\r\nHost: local",
        b"POST /streams/pump/samples HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n[",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nG",
    ],
)
def test_connections_that_say_nothing_keep_nobody_out(tmp_path, said, monkeypatch):
    monkeypatch.setattr("onlad.serve.connection.HEADERS", 0.5)
    with served(tmp_path, "clients = 20\nrate = 1e6") as (running, _):
        url = f"http://127.0.0.1:{running.port}"
        silent = []
        for _ in range(60):
            silent.append(socket.create_connection(("127.0.0.1", running.port), 10))
            silent[-1].sendall(said)
            if len(silent) % 10 == 0:
                assert httpx.get(f"{url}/healthz", timeout=5).status_code == 200
        answer = httpx.post(f"{url}/streams/pump/samples", json=[1], timeout=5)
        assert answer.status_code == 200
        if b"POST" not in said:  # that one has as long as a body may take
            for s in silent:
                s.settimeout(5)
                while s.recv(1000):  # until it is closed
                    pass
        for s in silent:
            s.close()


@pytest.mark.parametrize(
    "endless",
    [
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", b"X-a: b\r\n"),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ", b"aaaaaaaa"),
        (b"GET /", b"aaaaaaaa"),
        (
            b"POST /streams/pump/samples HTTP/1.1\r\nHost: localhost\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n3\r\n[1]\r\n0\r\n",
            b"X-a: b\r\n",  # trailers
        ),
    ],
)
def test_a_head_without_end_takes_no_memory(tmp_path, endless):
    begin, more = endless
    with served(tmp_path, "rate = 1e6") as (running, client):
        with socket.create_connection(("127.0.0.1", running.port), 10) as s:
            s.sendall(begin)
            with pytest.raises(OSError, match=r"reset|[Pp]ipe"):
                s.sendall(more * 1_000_000)
        # What is large and right is taken.
        body = json.dumps([[1.0, 2.0]] * 1000)
        pieces = (body[i : i + 10].encode() for i in range(0, len(body), 10))
        answer = client.post("/streams/pump/samples", content=pieces)
        assert answer.json()["accepted"] == 1000
        assert client.get("/healthz", headers={"X-a": "b" * 30_000}).status_code == 200


def test_clients_that_do_not_read_keep_nobody_out(tmp_path, monkeypatch):
    monkeypatch.setattr("onlad.serve.connection.HEADERS", 1.0)
    monkeypatch.setattr("onlad.serve.http.BUFFER", 4096)
    body = json.dumps([[1.0]] * 1000).encode()  # its answer is larger than what can wait on the way
    head = f"POST /streams/pump/samples HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
    limits = "clients = 10\nrate = 1e6"
    with served(tmp_path, limits) as (running, client), contextlib.ExitStack() as stack:
        whole = len(client.post("/streams/pump/samples", content=body).content)
        deaf = [stack.enter_context(socket.socket()) for _ in range(20)]
        for s in deaf:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            s.connect(("127.0.0.1", running.port))
            s.sendall(head.encode() + b"\r\n\r\n" + body)
            if s is deaf[9]:
                until(lambda: running.samples() == 11_000, "ten answers")
        assert httpx.get(f"{client.base_url}/healthz", timeout=5).status_code == 200
        time.sleep(3)
        assert all(left(s) < whole for s in deaf)  # each was put out


def left(s):
    """Return how many bytes a socket still has to read before its end."""
    count = 0
    s.settimeout(5)
    with contextlib.suppress(ConnectionError):
        while data := s.recv(1 << 16):
            count += len(data)
    return count


def test_health_is_answered_while_all_connections_are_busy(tmp_path):
    with served(tmp_path, "clients = 5") as (running, client), ThreadPoolExecutor(5) as pool:
        turn = running.service.turn
        running.do(turn.acquire())  # no step can begin
        busy = [pool.submit(client.post, "/streams/pump/samples", json=[1]) for _ in range(5)]
        try:
            until(lambda: running.service.queue == 5, "five requests")
            answer = httpx.get(f"{client.base_url}/healthz", timeout=5)
        finally:
            running.loop.call_soon_threadsafe(turn.release)
        assert answer.status_code == 200
        assert [request.result().status_code for request in busy] == [200] * 5


def test_one_address_cannot_take_all_websockets(tmp_path):
    with served(tmp_path, "clients = 4") as (running, client), contextlib.ExitStack() as stack:
        url = f"ws://127.0.0.1:{running.port}/live"
        for _ in range(2):
            stack.enter_context(connect(url))
        with pytest.raises(WebSocketException), connect(url):
            pass
        assert client.get("/healthz").status_code == 200
        time.sleep(0.1)
        stack.close()
        until(lambda: not _live(running), "the clients to be forgotten")
        with connect(url):
            pass


def test_a_taken_port_is_refused_in_one_line(tmp_path):
    with served(tmp_path) as (running, _):
        (tmp_path / "b").mkdir()
        path = tmp_path / "b" / "onlad.toml"
        path.write_text(CONFIG.replace("PORT", str(running.port)).replace("MORE", ""))
        with pytest.raises(OnladError, match=r"cannot listen on 127\.0\.0\.1"), Served(path):
            pass
