"""The configuration: right ones are read, of wrong ones every mistake is shown at once."""

import re

import pytest

from onlad import Detector, Monitor, save
from onlad.cli import main
from onlad.serve import config
from onlad.serve.config import ConfigError

RIGHT = """
[service]
state = "state"

[mqtt]
host = "broker.example"
version = "3.1.1"

[[streams]]
name = "pump"
topic = "plant/{device}/#"
columns = ["flow", "power"]
false_alarms = 1e-5
warmup = 512

[[streams]]
name = "fan"
topic = "fans"
"""

WRONG = """\
[service]
state = 7
chekpoint = 3
log = "xml"

[http]
host = "0.0.0.0"
port = 80000

[[streams]]
name = "a b"
topic = "x/#/y"

[[streams]]
topic = "z"
window = 0
false_alarms = 1
columns = [1]
"""


def write(folder, text):
    path = folder / "onlad.toml"
    path.write_text(text)
    return path


def test_a_right_file_is_read(tmp_path):
    settings = config.load(write(tmp_path, RIGHT))
    assert settings.service.state == tmp_path / "state"
    assert [stream.name for stream in settings.streams] == ["pump", "fan"]
    assert settings.streams[0].columns == ("flow", "power")
    made = settings.streams[0].monitor().settings()
    assert made == Monitor(false_alarms=1e-5, warmup=512).settings()
    assert settings.streams[1].monitor().settings() == Monitor().settings()
    assert settings.mqtt.version == "3.1.1"
    assert settings.http is settings.webhook is None


def test_every_mistake_is_in_one_message_with_its_line(tmp_path):
    with pytest.raises(ConfigError) as caught:
        config.load(write(tmp_path, WRONG))
    text = str(caught.value)
    for line in [
        "has 13 mistakes",
        "line 2: service.state: must be a path, got 7",
        "line 3: service.chekpoint: unknown key. did you mean checkpoint? Allowed: state, checkp",
        "line 4: service.log: must be one of 'text', 'json', got 'xml'",
        "line 7: http.host: '0.0.0.0' can be reached by others, so a token is needed",
        "line 8: http.port: must be in [0, 65,535], got 80000",
        "line 11: streams.name: must match",
        "line 12: streams.topic: needs a table [mqtt]",
        "line 12: streams.topic: # is allowed as the last level only",
        "line 14: streams: the key name is needed",
        "line 16: streams.window: must be in [1, 1,000], got 0",
        "line 17: streams.false_alarms: must be in [1e-09, 0.5], got 1",
        "line 18: streams.columns: must be text, got 1",
    ]:
        assert line in text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[[streams]]", "[[streams]", "is not TOML"),
        ('topic = "fans"', 'topic = "x/#/y"', "line 18: streams.topic: # is allowed as the last"),
        ('topic = "fans"', 'topic = "x+/y"', "a wildcard takes a whole level, got 'x+'"),
        ('topic = "fans"', 'topic = "{device}/{device}"', "{device} may appear only once"),
        ('topic = "fans"', 'topic = "#"', "matches what the service itself publishes"),
        ('topic = "fans"', "", "needs a topic, or a table [http]"),
        ('name = "fan"', 'name = "pump"', "line 17: streams.name: 'pump' is already taken"),
        ('version = "3.1.1"', "tls = true\nca = 'none.pem'", "mqtt.ca: there is no file"),
        ('version = "3.1.1"', "ca = 'none.pem'", "mqtt.ca: needs tls = true"),
        ('version = "3.1.1"', 'password = "x"', "a password needs a username"),
        ('version = "3.1.1"', 'tls = true\nkey = "k"', "certificate and key are needed together"),
        ('topic = "fans"', "gate = true", "line 18: streams.gate: was removed; unusual samples"),
        ('topic = "fans"', "hidden = 9", "streams.hidden: was removed; the size of a model"),
        ('topic = "fans"', "forgetting = 1.0", "streams.forgetting: was removed; how fast a model"),
        (
            'topic = "fans"',
            '[streams.threshold]\nkind = "tail"',
            "streams.threshold: was removed; the threshold follows false_alarms",
        ),
        (
            'topic = "fans"',
            'model = "none.onlad"\nwindow = 3',
            "line 19: streams.window: is set by the model. Remove it here",
        ),
        ('state = "state"', "", "line 2: service: the key state is needed"),
        ('"flow", "power"', '"flow", "flow"', "a name appears twice"),
        (
            'columns = ["flow", "power"]',
            'model = "none.onlad"',
            "cannot be read: No such file or directory",
        ),
        ('columns = ["flow", "power"]', 'payload = "plain"\ntime = "t"', '"plain" has no names'),
        ('host = "broker.example"', 'host = ""', "mqtt.host: must match"),
        ('state = "state"', 'state = "a\\u0000b"', "service.state: must be a path, got 'a"),
        ('name = "fan"', f'name = "fan"\nseed = {10**48}', "streams.seed: must be in [0, 9,223"),
        ('"flow", "power"]', '"flow", "t"]\ntime = "t"', "columns: 't' is the time, and never"),
        ('version = "3.1.1"', f'username = "{"u" * 70_000}"', "mqtt.username: must match"),
        *(
            ("[service]", f"[webhook]\n{line}\n[service]", message)
            for line, message in (
                ('url = "http://[::1"', "webhook.url: Invalid IPv6 URL, got 'http://[::1'"),
                ('url = "http://a:99999"', "webhook.url: Port out of range"),
                ('url = "http://:80"', "webhook.url: it needs a host name and a valid port"),
                ('url = "http://a"\ntoken = "a\\nb"', "webhook.token: must match [!-~]+"),
            )
        ),
        (RIGHT, '[service]\nstate = "s"\nstreams = 1\n', "a table [[streams]] is needed"),
        (RIGHT, '[service]\nstate = "s"\n[[streams]]\nname = "a"', "[mqtt] or [http] is needed"),
    ],
)
def test_a_mistake_is_named(tmp_path, old, new, message):
    assert old in RIGHT
    with pytest.raises(ConfigError, match=re.escape(message)):
        config.load(write(tmp_path, RIGHT.replace(old, new)))


def test_files_of_the_broker_are_read_by_check(tmp_path, capsys):
    (tmp_path / "bad").write_bytes(b"\xff\xfe")
    for more, message in [
        ('username = "me"\npassword_file = "bad"', "mqtt.password_file: "),
        ('tls = true\nca = "bad"', "mqtt.ca: "),
        ('tls = true\ncertificate = "bad"\nkey = "bad"', "bad is no certificate that can be used"),
    ]:
        path = write(tmp_path, RIGHT.replace('version = "3.1.1"', more))
        assert main(["serve", "--config", str(path), "--check"]) == 1
        said = capsys.readouterr().err
        assert "has 1 mistake" in said
        assert message in said
        assert "cannot write the output" not in said
    (tmp_path / "long").write_text("p" * 70_000)
    with pytest.raises(ConfigError, match="long is too long for a password"):
        config.load(
            write(
                tmp_path,
                RIGHT.replace('version = "3.1.1"', "username = 'u'\npassword_file = 'long'"),
            )
        )


def test_a_model_that_no_device_can_start_from_is_a_mistake(tmp_path, capsys):
    rows = [{"flow": float(i % 7), "power": float(i % 5)} for i in range(100)]
    monitor, detector = Monitor(), Detector(n_hidden=4)
    monitor.observe_many(rows)
    detector.learn_many([[0.1, 0.2], [0.3, 0.4]])
    save(monitor, tmp_path / "right.onlad")
    save(detector, tmp_path / "detector.onlad")
    (tmp_path / "garbage.onlad").write_text("hello")
    for file, more, message in [
        ("right.onlad", "", ""),
        ("right.onlad", 'columns = ["power", "flow"]', ""),
        ("garbage.onlad", "", "is not an onlad model"),
        ("detector.onlad", "", "holds a Detector, and a stream needs a Monitor"),
        (
            "right.onlad",
            'columns = ["flow"]',
            "has learned ['flow', 'power'], and the stream gives",
        ),
        ("right.onlad", 'ignore = ["flow"]', "and the stream gives it ['power']"),
        ("right.onlad", 'time = "flow"', "and the stream gives it ['power']"),
        ("right.onlad", 'payload = "plain"', "and the stream gives it ['0', '1']"),
    ]:
        text = RIGHT.replace('topic = "fans"', f'topic = "fans"\nmodel = "{file}"\n{more}')
        path = write(tmp_path, text)
        assert main(["serve", "--config", str(path), "--check"]) == (1 if message else 0)
        said = capsys.readouterr().err
        assert message in said
        assert bool(message) == ("line 19: streams.model: " in said)


def test_http_beyond_loopback_needs_a_token(tmp_path):
    more = '[http]\nhost = "0.0.0.0"\n'
    with pytest.raises(ConfigError, match=r"http.host: '0.0.0.0' can be reached by others"):
        config.load(write(tmp_path, RIGHT + more))
    settings = config.load(write(tmp_path, RIGHT + more + 'token = "long-enough"\n'))
    assert settings.http.token == "long-enough"


def test_the_command_checks_and_refuses(tmp_path, capsys):
    path = write(tmp_path, RIGHT)
    assert main(["serve", "--config", str(path), "--check"]) == 0
    assert main(["serve", "--config", str(write(tmp_path, WRONG))]) == 1
    assert "has 13 mistakes" in capsys.readouterr().err
    assert main(["serve", "--config", str(tmp_path / "none.toml")]) == 1
    assert "cannot be read: No such file" in capsys.readouterr().err
    path.write_bytes(b"\xff")
    assert main(["serve", "--config", str(path)]) == 1
    assert "is not UTF-8" in capsys.readouterr().err
