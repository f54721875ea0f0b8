"""What a service is told: one TOML file, checked at the start, every mistake in one message.

The dataclasses are the documentation of the file: a field is a key, its type is what the key
holds, `_rule` says what else is allowed. Nothing is read from the environment.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_origin, get_type_hints

from onlad.detector import Detector
from onlad.monitor import FIRST, Gate, Monitor
from onlad.serve import toml
from onlad.serve.toml import ConfigError, Lines, Place
from onlad.serve.topics import Pattern
from onlad.threshold import Deviation, Fixed, Quantile, Tail, Threshold

# By kind: the policy, and which of its settings `value` is.
THRESHOLDS: dict[str, tuple[Callable[..., Threshold], str]] = {
    "deviation": (Deviation, "k"),
    "quantile": (Quantile, "q"),
    "tail": (Tail, "q"),
    "fixed": (Fixed, "value"),
}
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def _rule(
    default: Any = dataclasses.MISSING,
    *,
    allowed: Sequence[str] = (),
    low: float | None = None,
    high: float | None = None,
    pattern: str = "",
) -> Any:
    rules = {"allowed": allowed, "low": low, "high": high, "pattern": pattern}
    return field(default=default, metadata=rules)


@dataclass(frozen=True, kw_only=True)
class ServiceTable:
    """[service]: where the state is kept, and how often."""

    state: Path
    checkpoint: float = _rule(60.0, low=0.01, high=86400)  # seconds between two checkpoints
    sync: float = _rule(
        1.0, low=0, high=3600
    )  # seconds until a sample is on the disk; 0: before it is acknowledged
    queue: int = _rule(10_000, low=1, high=1_000_000)  # messages that may wait
    devices: int = _rule(1000, low=1, high=1_000_000)  # monitors in all
    history: int = _rule(600, low=1, high=100_000)  # samples that the page shows of each
    log: str = _rule("text", allowed=("text", "json"))
    level: str = _rule("info", allowed=("debug", "info", "warning", "error"))


@dataclass(frozen=True, kw_only=True)
class MqttTable:
    """[mqtt]: the broker, and where the service publishes."""

    host: str = "127.0.0.1"
    port: int | None = _rule(None, low=1, high=65535)  # 1883, with TLS 8883
    version: str = _rule("3.1.1", allowed=("3.1.1", "5"))
    client_id: str = _rule("onlad", pattern=r"[0-9A-Za-z_-]{1,64}")
    username: str | None = None
    password: str | None = None
    password_file: Path | None = None
    tls: bool = False
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    qos: int = _rule(1, low=0, high=1)
    keepalive: int = _rule(30, low=5, high=3600)
    prefix: str = _rule("onlad", pattern=r"[^+#/\0][^+#\0]{0,200}")
    verdicts: str = _rule("anomalies", allowed=("all", "anomalies", "none"))
    state_every: float = _rule(5.0, low=0.1, high=3600)  # seconds, and at each change
    discovery: str | None = _rule(
        None, pattern=r"[^+#/\0][^+#\0]{0,200}"
    )  # Home Assistant's prefix


@dataclass(frozen=True, kw_only=True)
class HttpTable:
    """[http]: samples in, verdicts, metrics and the page out."""

    host: str = "127.0.0.1"
    port: int = _rule(8000, low=0, high=65535)
    token: str | None = _rule(None, pattern=r"\S{8,200}")
    body: int = _rule(1_000_000, low=100, high=100_000_000)  # bytes of one request
    rate: float = _rule(200.0, low=0.1, high=1e6)  # requests a second from one address
    clients: int = _rule(100, low=1, high=10_000)  # connections at once
    page: bool = True


@dataclass(frozen=True, kw_only=True)
class WebhookTable:
    """[webhook]: where each alarm is posted."""

    url: str = _rule(pattern=r"https?://[^\s/]+\S*")
    format: str = _rule("json", allowed=("json", "text"))  # the alarm, or a line for a phone
    token: str | None = None  # sent as a bearer token
    timeout: float = _rule(10.0, low=0.1, high=300)


@dataclass(frozen=True, kw_only=True)
class ThresholdTable:
    """[streams.threshold]: from which score a sample is an anomaly."""

    kind: str = _rule("deviation", allowed=tuple(THRESHOLDS))
    value: float | None = None  # deviations, quantile, tail probability, or the score itself

    def made(self) -> Threshold:
        """Return the policy."""
        if self.kind == "fixed" and self.value is None:
            raise ValueError('value is needed with kind = "fixed"')
        policy, setting = THRESHOLDS[self.kind]
        return policy() if self.value is None else policy(**{setting: self.value})


@dataclass(frozen=True, kw_only=True)
class StreamTable:
    """[[streams]]: a source and how it is watched."""

    name: str = _rule(pattern=r"[0-9A-Za-z_-]{1,64}")
    topic: str | None = None  # of MQTT; without it samples come by HTTP
    payload: str = _rule("json", allowed=("json", "plain"))
    columns: tuple[str, ...] = ()  # which values are watched; by default those of the first sample
    ignore: tuple[str, ...] = ()
    time: str | None = None  # the value that is the time, in seconds since 1970 or ISO 8601
    model: Path | None = None  # each device starts from it
    warmup: int = _rule(256, low=2 * FIRST, high=10_000_000)
    window: int | None = _rule(None, low=1, high=1000)
    hidden: int = _rule(64, low=1, high=4096)
    forgetting: float = _rule(0.9999, low=0.5, high=1)
    seed: int = _rule(0, low=0)
    gate: bool = True
    quiet: int = _rule(32, low=1, high=1_000_000)  # normal samples that end an alarm
    threshold: ThresholdTable = field(default_factory=ThresholdTable)

    @property
    def pattern(self) -> Pattern | None:
        """Return what messages belong to the stream."""
        return None if self.topic is None else Pattern(self.topic)

    def monitor(self) -> Monitor:
        """Return a monitor that has seen nothing."""
        detector = Detector(
            n_hidden=self.hidden,
            activation="tanh",
            weights="normal",
            forgetting=self.forgetting,
            ridge=0.1,
            seed=self.seed,
        )
        return Monitor(
            detector=detector,
            window=self.window,
            threshold=self.threshold.made(),
            gate=Gate() if self.gate else None,
            warmup=self.warmup,
            seed=self.seed,
        )


@dataclass(frozen=True, kw_only=True)
class Config:
    """The whole file."""

    service: ServiceTable
    streams: tuple[StreamTable, ...]
    mqtt: MqttTable | None = None
    http: HttpTable | None = None
    webhook: WebhookTable | None = None


def load(path: Path) -> Config:
    """Return the configuration in a file, or raise `ConfigError` with every mistake in it.

    Paths in the file are relative to the folder that the file is in.
    """
    values, lines = toml.read(path)
    check = _Check(lines, path.absolute().parent)
    config: Config = check.table(Config, values, ())
    check.together(config)
    if check.mistakes:
        count = len(check.mistakes)
        listed = "\n".join(f"  {text}" for _, text in sorted(check.mistakes))
        raise ConfigError(f"{path} has {count} mistake{'s'[: count > 1]}:\n{listed}")
    return config


class _Check:
    """Goes through the tables and notes each mistake with its line."""

    def __init__(self, lines: Lines, folder: Path) -> None:
        self.lines, self.folder = lines, folder
        self.mistakes: list[tuple[int, str]] = []

    def mistake(self, place: Place, what: str) -> None:
        at = place
        while at and at not in self.lines:
            at = at[:-1]
        number = self.lines.get(at, 1)
        name = ".".join(str(part) for part in place if isinstance(part, str))
        self.mistakes.append((number, f"line {number}: {name}{': ' if name else ''}{what}"))

    def table(self, kind: Any, values: Any, place: Place) -> Any:
        """Return a table as its dataclass.

        After noting what is wrong with it: as far as it is right, with None for what is not.
        """
        if not isinstance(values, dict):
            self.mistake(place, f"must be a table, got {values!r:.60}")
            values = {}
        before = len(self.mistakes)
        hints = get_type_hints(kind)
        fields = {item.name: item for item in dataclasses.fields(kind)}
        for name in values.keys() - fields.keys():
            close = difflib.get_close_matches(name, fields, 1)
            hint = f"did you mean {close[0]}? " if close else ""
            self.mistake((*place, name), f"unknown key. {hint}Allowed: {', '.join(fields)}")
        made: dict[str, Any] = {}
        for name, item in fields.items():
            if name in values:
                made[name] = self.value(hints[name], item.metadata, values[name], (*place, name))
            elif item.default is not dataclasses.MISSING:
                made[name] = item.default
            elif item.default_factory is not dataclasses.MISSING:
                made[name] = item.default_factory()
            else:
                made[name] = None
                what = "a table [[streams]]" if name == "streams" else f"the key {name}"
                self.mistake(place, f"{what} is needed")
        return kind(**made) if len(self.mistakes) == before else SimpleNamespace(**made)

    def value(self, hint: Any, rules: Any, value: Any, place: Place) -> Any:
        """Return one value as what its type says, or None after noting what is wrong with it."""
        kind = next(kind for kind in (*get_args(hint), hint) if kind is not type(None))
        if get_origin(hint) is tuple:
            return self.items(kind, value, place)
        if dataclasses.is_dataclass(kind):
            return self.table(kind, value, place)
        if kind is Path and isinstance(value, str):
            return self.folder / Path(value).expanduser()
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            words = {str: "text", Path: "a path", int: "a whole number", float: "a number",
                     bool: "true or false"}  # fmt: skip
            return self.mistake(place, f"must be {words[kind]}, got {value!r:.60}")
        if broken := _broken(rules, value):
            return self.mistake(place, f"{broken}, got {value!r:.60}")
        return value

    def items(self, kind: Any, values: Any, place: Place) -> Any:
        """Return a list as a tuple, or None after noting what is wrong with it."""
        if not isinstance(values, list):
            return self.mistake(place, f"must be a list, got {values!r:.60}")
        return tuple(self.value(kind, {}, item, (*place, i)) for i, item in enumerate(values))

    # -- what concerns several keys -----------------------------------------------------------

    def together(self, config: Config) -> None:
        if config.streams == ():
            self.mistake((), "at least one [[streams]] is needed")
        if config.mqtt is None and config.http is None:
            self.mistake((), "a table [mqtt] or [http] is needed: samples must come from somewhere")
        if config.mqtt is not None:
            self.mqtt(config.mqtt)
        if config.http is not None:
            self.http(config.http)
        seen: set[str] = set()
        for index, stream in enumerate(config.streams or ()):
            place = ("streams", index)
            if stream.name is not None and stream.name in seen:
                self.mistake((*place, "name"), f"{stream.name!r} is already taken")
            seen.add(stream.name)
            self.stream(config, stream, place)

    def mqtt(self, table: MqttTable) -> None:
        if table.password is not None and table.password_file is not None:
            self.mistake(("mqtt", "password_file"), "give password or password_file, not both")
        if (table.password or table.password_file) and table.username is None:
            self.mistake(("mqtt",), "a password needs a username")
        for name in ("ca", "certificate", "key"):
            path = getattr(table, name)
            if path is not None and not table.tls:
                self.mistake(("mqtt", name), "needs tls = true")
        if (table.certificate is None) != (table.key is None):
            self.mistake(("mqtt",), "certificate and key are needed together")
        for name in ("ca", "certificate", "key", "password_file"):
            path = getattr(table, name)
            if path is not None and not path.is_file():
                self.mistake(("mqtt", name), f"there is no file {path}")

    def http(self, table: HttpTable) -> None:
        if table.host not in (*LOOPBACK, None) and table.token is None:
            rule = f"{table.host!r} can be reached by others, so a token is needed"
            self.mistake(("http", "host"), f"{rule}. Set token, or host to one of {LOOPBACK}")

    def stream(self, config: Config, stream: StreamTable, place: Place) -> None:
        if stream.topic is not None:
            if config.mqtt is None and config.http is not None:  # without both it is said already
                self.mistake((*place, "topic"), "needs a table [mqtt]")
            try:
                pattern = Pattern(stream.topic)
            except ValueError as error:
                self.mistake((*place, "topic"), str(error))
            else:
                mqtt = config.mqtt
                if (
                    mqtt is not None
                    and mqtt.prefix
                    and pattern.device(f"{mqtt.prefix}/status") is not None
                ):
                    self.mistake((*place, "topic"), "takes in what the service itself publishes")
        elif config.http is None and config.mqtt is not None:
            self.mistake(place, "needs a topic, or a table [http] to take its samples in")
        if both := set(stream.columns or ()) & set(stream.ignore or ()):
            self.mistake((*place, "ignore"), f"{sorted(both)} are in columns too")
        if stream.payload == "plain" and (stream.ignore or stream.time):
            self.mistake((*place, "payload"), '"plain" has no names, so no ignore and no time')
        if stream.columns and len(set(stream.columns)) != len(stream.columns):
            self.mistake((*place, "columns"), "a name stands there twice")
        if stream.model is not None and not stream.model.is_file():
            self.mistake((*place, "model"), f"there is no file {stream.model}")
        if isinstance(stream.threshold, ThresholdTable):
            try:
                stream.threshold.made()
            except ValueError as error:
                self.mistake((*place, "threshold"), str(error))


def _broken(rules: Any, value: Any) -> str:
    """Return the rule that the value breaks, or nothing."""
    if rules.get("allowed") and value not in rules["allowed"]:
        return f"must be one of {', '.join(map(repr, rules['allowed']))}"
    low, high = rules.get("low"), rules.get("high")
    above = low is None or value >= low
    below = high is None or value <= high
    if not (above and below):  # NaN is neither
        return f"must be in [{low:,}, {high:,}]" if high is not None else f"must be at least {low}"
    if rules.get("pattern") and not re.fullmatch(rules["pattern"], value):
        return f"must match {rules['pattern']}"
    return ""


__all__ = ["Config", "ConfigError", "HttpTable", "MqttTable", "StreamTable", "load"]
