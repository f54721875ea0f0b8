"""`onlad watch mqtt://...` against a real broker: mosquitto, or amqtt where that is not there."""

import contextlib
import json
import re
import signal

import pytest
from piping import NAMES, running, stream

import brokers
import onlad
from brokers import free_port
from onlad.cli.models import file_name

mqtt = pytest.importorskip("paho.mqtt.client")


def broker(folder, port):
    return brokers.broker(folder, port, f"listener {port} 127.0.0.1\nallow_anonymous true\n")


@contextlib.contextmanager
def publisher(port):
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        yield lambda *what, **how: client.publish(*what, qos=1, **how).wait_for_publish(30)
    finally:
        client.disconnect()
        client.loop_stop()
        client._reset_sockets()  # of its loop; a garbage collector may come to them before it


def samples(X):
    for row in X.tolist():
        yield {name: None if v != v else v for name, v in zip(NAMES, row, strict=True)}


def test_each_topic_is_watched_and_its_model_kept(tmp_path):
    X, port, models = stream(300), free_port(), tmp_path / "models"
    args = ("--all", "--output", "jsonl", "--save", models)
    with (
        broker(tmp_path, port),
        running("watch", f"mqtt://127.0.0.1:{port}/plant/+/sensors", *args) as command,
    ):
        assert "subscribed to plant/+/sensors" in command.error_line()
        with publisher(port) as publish:
            found = {"a": [], "b": []}
            for t, sample in enumerate(samples(X)):
                for device in "ab":
                    payload = sample if device == "a" else list(sample.values())
                    publish(f"plant/{device}/sensors", json.dumps(payload))
                    answer = json.loads(command.line())
                    assert answer["series"] == f"plant/{device}/sensors"
                    found[device].append(answer["score"])
                if t == 100:
                    publish("plant/a/sensors", "not JSON")
                    publish("plant/c/level", "1.5")  # another topic
        status, out, err = command.stop(signal.SIGTERM)
    assert (status, out) == (143, "")
    monitor = onlad.Monitor()
    scores = [monitor.observe(sample).score for sample in samples(X)]
    assert found == {"a": scores, "b": scores}
    assert "bad row, message 202 of plant/a/sensors: it is not JSON" in err
    assert sorted(path.name for path in models.iterdir()) == [
        file_name(f"plant/{device}/sensors") for device in "ab"
    ]
    assert onlad.load(models / file_name("plant/a/sensors")).n_seen == 300


def test_retained_messages_are_ignored_and_huge_ones_reported(tmp_path):
    port = free_port()
    with broker(tmp_path, port), publisher(port) as publish:
        publish("level", "9", retain=True)
        with running(
            "watch", f"mqtt://127.0.0.1:{port}/level", "--all", "--output", "jsonl"
        ) as command:
            assert "subscribed" in command.error_line()
            publish("level", "9" * (3 << 20))
            publish("level", "[[1.5], [2.5]]")
            lines = [json.loads(command.line()) for _ in range(2)]
            assert [line["row"] for line in lines] == [1, 2]
            _, _, err = command.stop(signal.SIGTERM)
    assert re.search(r"bad row, message 0 of level: it has \d+ bytes; a message may have", err)
    assert "2 samples, 0 anomalies, 1 bad row" in err


def test_a_broker_that_comes_back_is_found_again(tmp_path):
    port = free_port()
    with running(
        "watch", f"mqtt://127.0.0.1:{port}/level", "--all", "--output", "jsonl"
    ) as command:
        status, _, err = command.end()
        assert status == 1
        assert f"onlad: cannot subscribe at 127.0.0.1:{port}: " in err
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(contextlib.ExitStack())
        first.enter_context(broker(tmp_path, port))
        command = stack.enter_context(
            running("watch", f"mqtt://127.0.0.1:{port}/level", "--all", "--output", "jsonl")
        )
        assert "subscribed" in command.error_line()
        with publisher(port) as publish:
            publish("level", "1.5")
            assert json.loads(command.line())["row"] == 0
        first.close()
        assert f"onlad: lost 127.0.0.1:{port}: " in command.error_line()
        stack.enter_context(broker(tmp_path, port))
        while "subscribed" not in command.error_line():
            pass
        with publisher(port) as publish:
            publish("level", "2.5")
            assert json.loads(command.line())["row"] == 1
        assert command.stop(signal.SIGINT)[0] == 130
