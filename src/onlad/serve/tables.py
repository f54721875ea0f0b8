"""The tables of the configuration file. A field is a key, its type is what the key holds.

`rule` says what else is allowed. Nothing is read from the environment.
"""

from __future__ import annotations

import dataclasses
import re
import ssl
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from onlad import persist
from onlad.errors import OnladError
from onlad.monitor import Monitor
from onlad.rules import ROLES, SIDES, Rules, Sensor
from onlad.serve.topics import Pattern
from onlad.streams.block import Choice
from onlad.streams.settings import LIMITS, given
from onlad.streams.wire import Login

SHORT = r"(?s:.{0,16000})"  # MQTT has room for 65,535 bytes
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def rule(default: Any = dataclasses.MISSING, **rules: Any) -> Any:
    """Return a field with what its value must be, beyond its type.

    That is one of those `allowed`, in `low` to `high`, or text that matches a `pattern`.
    """
    return field(default=default, metadata=rules)


def setting(name: str) -> Any:
    """Return a field with a setting of monitors; None leaves it at its default."""
    low, high = LIMITS[name]
    return rule(None, low=low, high=high)


@dataclass(frozen=True, kw_only=True)
class ServiceTable:
    """[service]: where the state is kept, and how often."""

    state: Path
    checkpoint: float = rule(60.0, low=0.01, high=86400)  # seconds between two checkpoints
    sync: float = rule(1.0, low=0, high=3600)  # seconds until samples are on the disk; 0: at once
    queue: int = rule(10_000, low=1, high=1_000_000)  # messages that may wait
    devices: int = rule(1000, low=1, high=1_000_000)  # monitors in all
    archive: int = rule(256, low=0, high=1_000_000)  # MB of samples that can be replayed
    snapshots: float = rule(86_400.0, low=0.1, high=1e9)  # seconds between snapshots of a device
    history: int = rule(600, low=1, high=100_000)  # samples that the page shows of each
    alarms_per_hour: int | None = rule(None, low=1, high=1_000_000)  # of all devices; none: all
    log: str = rule("text", allowed=("text", "json"))
    level: str = rule("info", allowed=("debug", "info", "warning", "error"))


@dataclass(frozen=True, kw_only=True)
class MqttTable:
    """[mqtt]: the broker, and where the service publishes."""

    host: str = rule("127.0.0.1", pattern=r"[^\s\0]+")
    port: int | None = rule(None, low=1, high=65535)  # 1883, with TLS 8883
    version: str = rule("3.1.1", allowed=("3.1.1", "5"))
    client_id: str = rule("onlad", pattern=r"[0-9A-Za-z_-]{1,64}")
    username: str | None = rule(None, pattern=SHORT)
    password: str | None = rule(None, pattern=SHORT)
    password_file: Path | None = None
    tls: bool = False
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    qos: int = rule(1, low=0, high=1)
    keepalive: int = rule(30, low=5, high=3600)
    prefix: str = rule("onlad", pattern=r"[^+#/\0][^+#\0]{0,200}")
    verdicts: str = rule("anomalies", allowed=("all", "anomalies", "none"))
    state_every: float = rule(5.0, low=0.1, high=3600)  # seconds, and at each change
    discovery: str | None = rule(None, pattern=r"[^+#/\0][^+#\0]{0,200}")  # Home Assistant's prefix

    def secret(self) -> str | None:
        """Return the password, or raise `ValueError` that says why its file cannot be read."""
        if self.password_file is None:
            return self.password
        try:
            found = self.password_file.read_text("utf-8").strip()
        except OSError as error:
            raise ValueError(f"{self.password_file} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.password_file} is not UTF-8 at byte {error.start}") from None
        if not re.fullmatch(SHORT, found):
            raise ValueError(f"{self.password_file} is too long for a password")
        return found

    def login(self, ahead: int) -> Login:
        """Return how to connect; the broker sends `ahead` messages before an acknowledgement."""
        return Login(
            self.host,
            self.port or (8883 if self.tls else 1883),
            self.client_id,
            five=self.version == "5",
            keepalive=self.keepalive,
            username=self.username,
            password=self.secret(),
            tls=self.context(),
            keeps=True,
            will=(f"{self.prefix}/status", b"offline"),
            ahead=ahead,
        )

    def context(self) -> ssl.SSLContext | None:
        """Return what TLS needs, or raise `ValueError` that says which file is wrong."""
        if not self.tls:
            return None
        file = self.ca
        try:
            context = ssl.create_default_context(cafile=file)
            if self.certificate is not None and self.key is not None:
                file = self.certificate
                context.load_cert_chain(self.certificate, self.key)
        except OSError as error:  # ssl.SSLError is one
            why = error.strerror or str(error)
            raise ValueError(f"{file} is no certificate that can be used: {why}") from None
        return context


@dataclass(frozen=True, kw_only=True)
class HttpTable:
    """[http]: samples in, verdicts, metrics and the page out."""

    host: str = rule("127.0.0.1", pattern=r"[^\s\0]+")
    port: int = rule(8000, low=0, high=65535)
    token: str | None = rule(None, pattern=r"[!-~]{8,200}")
    body: int = rule(1_000_000, low=100, high=100_000_000)  # bytes of one request
    rate: float = rule(200.0, low=0.1, high=1e6)  # requests per second from one address
    clients: int = rule(100, low=1, high=10_000)  # connections at once
    page: bool = True


@dataclass(frozen=True, kw_only=True)
class WebhookTable:
    """[webhook]: where each alarm is posted."""

    url: str = rule(pattern=r"https?://[^\s/]+\S*")
    format: str = rule("json", allowed=("json", "text"))  # the alarm, or a line for a phone
    token: str | None = rule(None, pattern=r"[!-~]+")  # sent as a bearer token
    timeout: float = rule(10.0, low=0.1, high=300)

    def check(self) -> None:
        """Raise `ValueError` that says why nothing could be posted there."""
        parts = urlsplit(self.url)
        if not parts.hostname or parts.port == 0:
            raise ValueError("it needs a host name and a valid port")


@dataclass(frozen=True, kw_only=True)
class SensorTable(Sensor):
    """[[streams.sensors]]: what matters of a sensor."""

    name: str  # or a pattern such as temp_*; the first table that fits counts
    ignore_below: float = rule(0.0, low=0, high=1e100)  # deviations, in the sensor's unit
    only: str = rule("both", allowed=SIDES)  # the side to which a deviation matters
    role: str = rule("alarm", allowed=ROLES)  # explain: a cause, no alarm; watch: not even a cause
    states: tuple[str, ...] = ()  # of a text: each is watched as a value of 0 or 1, NAME=STATE


@dataclass(frozen=True, kw_only=True)
class StreamTable:
    """[[streams]]: a source and how it is watched."""

    name: str = rule(pattern=r"[0-9A-Za-z_-]{1,64}")
    topic: str | None = None  # of MQTT; without it samples come by HTTP
    payload: str = rule("json", allowed=("json", "plain"))
    columns: tuple[str, ...] = ()  # which values are watched; by default those of the first sample
    ignore: tuple[str, ...] = ()
    time: str | None = None  # the value that is the time; by default one that is called like one
    model: Path | None = None  # each device starts from it
    # Of a new device, if it starts from no model:
    warmup: int | None = setting("warmup")
    window: int | None = setting("window")
    seed: int | None = setting("seed")
    # Of all devices, also of those that have learned:
    false_alarms: float | None = setting("false_alarms")
    quiet: int = rule(32, low=1, high=1_000_000)  # normal samples that end an alarm
    silent_after: float | None = rule(None, low=0.1, high=1e9)  # seconds without a sample
    sensors: tuple[SensorTable, ...] = ()
    maintenance: tuple[str, ...] = ()  # "Sat 22:00-23:30": neither alarms nor learning
    patterns: bool = False  # of a day and of a week are learned from the times of samples
    zone: str = "UTC"  # of these times
    alarms_per_day: int | None = rule(None, low=1, high=1_000_000)  # of each device; none: all

    REMOVED: ClassVar[dict[str, str]] = {
        "threshold": "was removed; the threshold follows false_alarms, the share of normal samples "
        "at which a false alarm may begin",
        "gate": "was removed; unusual samples are not learned, and a lasting change is learned "
        "after some time. Pausing a device stops all learning",
        "hidden": "was removed; the size of a model follows from its columns",
        "forgetting": "was removed; how fast a model forgets is fixed",
    }

    @property
    def pattern(self) -> Pattern | None:
        """Return what messages belong to the stream."""
        return None if self.topic is None else Pattern(self.topic)

    @cached_property
    def choice(self) -> Choice:
        """Return which values are watched."""
        states = tuple((each.name, each.states) for each in self.sensors if each.states)
        return Choice(columns=self.columns, ignore=self.ignore, time=self.time, states=states)

    @cached_property
    def rules(self) -> Rules:
        """Return what people say of the machine, or raise `ValueError` that says what is wrong."""
        sensors = tuple(
            dataclasses.replace(each, name=f"{each.name}=*") if each.states else each
            for each in self.sensors
        )
        most = self.alarms_per_day
        return Rules(sensors=sensors, maintenance=self.maintenance, zone=self.zone,
                     incidents_per_day=most)  # fmt: skip

    def template(self) -> Monitor:
        """Return what each device starts from, or raise `ValueError` that says why it cannot."""
        if self.model is None:
            return self.monitor()
        try:
            model = persist.load(self.model)
        except OSError as error:
            raise ValueError(f"{self.model} cannot be read: {error.strerror}") from None
        except OnladError as error:
            raise ValueError(str(error)) from None
        if not isinstance(model, Monitor):
            what = f"{self.model} holds a {type(model).__name__}, and a stream needs a Monitor"
            raise ValueError(f"{what}. Make one with: onlad fit, without --detector")
        names = set(model.names)
        wanted: set[Hashable] = set(self.columns) or names - {*self.ignore, self.time}
        if self.payload == "plain" and names:
            wanted = set(range(len(names)))
        if names and wanted != names:
            what = f"{self.model} has learned {sorted(map(str, names))}"
            raise ValueError(f"{what}, and the stream gives it {sorted(map(str, wanted))}")
        if self.false_alarms is not None:
            model.false_alarms = self.false_alarms
        return model

    def monitor(self) -> Monitor:
        """Return a monitor that has seen nothing."""
        return Monitor(**given(self))


@dataclass(frozen=True, kw_only=True)
class Config:
    """The whole file."""

    service: ServiceTable
    streams: tuple[StreamTable, ...]
    mqtt: MqttTable | None = None
    http: HttpTable | None = None
    webhook: WebhookTable | None = None
