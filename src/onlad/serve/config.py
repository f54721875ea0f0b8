"""The configuration of a service: one TOML file; one message names all that is wrong in it."""

from __future__ import annotations

import dataclasses
import difflib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias, get_args, get_origin, get_type_hints

from onlad.errors import OnladError
from onlad.serve.tables import LOOPBACK, Config, MqttTable, StreamTable, WebhookTable
from onlad.serve.topics import Pattern
from onlad.streams.settings import FIXED

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover  (the same parser under its older name)
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

#: Where a key stands: ("streams", 0, "topic").
Place: TypeAlias = tuple[str | int, ...]
Lines: TypeAlias = dict[Place, int]

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]")
_KEY = re.compile(r"""\s*([A-Za-z0-9_-]+|"[^"]*"|'[^']*')\s*[=.]""")
_QUOTES = re.compile(r'"""|\'\'\'')


class ConfigError(OnladError):
    """The configuration has mistakes; the message lists all of them."""


def load(path: Path) -> Config:
    """Return the configuration in a file, or raise `ConfigError` with every mistake in it.

    Paths in the file are relative to the folder that the file is in.
    """
    values, lines = _read(path)
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
            if name in getattr(kind, "REMOVED", ()):
                self.mistake((*place, name), kind.REMOVED[name])
                continue
            close = difflib.get_close_matches(name, fields, 1)
            hint = f"did you mean {close[0]}? " if close else ""
            self.mistake((*place, name), f"unknown key. {hint}Allowed: {', '.join(fields)}")
        made: dict[str, Any] = {}
        for name, item in fields.items():
            if name in values:
                made[name] = self.value(hints[name], item.metadata, values[name], (*place, name))
            elif item.default is not dataclasses.MISSING:
                made[name] = item.default
            else:
                made[name] = None
                what = "a table [[streams]]" if name == "streams" else f"the key {name}"
                self.mistake(place, f"{what} is needed")
        return kind(**made) if len(self.mistakes) == before else SimpleNamespace(**made)

    def value(self, hint: Any, rules: Any, value: Any, place: Place) -> Any:
        """Return one value as what its type says, or None after noting what is wrong with it."""
        kind = next(kind for kind in (*get_args(hint), hint) if kind is not type(None))
        if get_origin(hint) is tuple:
            if not isinstance(value, list):
                return self.mistake(place, f"must be a list, got {value!r:.60}")
            return tuple(self.value(kind, {}, item, (*place, i)) for i, item in enumerate(value))
        if dataclasses.is_dataclass(kind):
            return self.table(kind, value, place)
        if kind is Path and isinstance(value, str) and value and "\0" not in value:
            return self.folder / Path(value).expanduser()
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            words = {str: "text", Path: "a path", int: "a whole number", float: "a number",
                     bool: "true or false"}  # fmt: skip
            return self.mistake(place, f"must be {words[kind]}, got {value!r:.60}")
        broken = _broken(rules, value)
        return self.mistake(place, f"{broken}, got {value!r:.60}") if broken else value

    def tried(self, place: Place, work: Callable[[], Any]) -> None:
        """Do something, and note the mistake if that raises `ValueError`."""
        try:
            work()
        except ValueError as error:
            self.mistake(place, str(error))

    # -- what concerns several keys -----------------------------------------------------------

    def together(self, config: Config) -> None:
        if config.streams == ():
            self.mistake((), "at least one [[streams]] is needed")
        if config.mqtt is None and config.http is None:
            self.mistake((), "a table [mqtt] or [http] is needed: samples must come from somewhere")
        if config.mqtt is not None:
            self.mqtt(config.mqtt)
        http = config.http
        if http is not None and http.host not in (*LOOPBACK, None) and http.token is None:
            rule = f"{http.host!r} can be reached by others, so a token is needed"
            self.mistake(("http", "host"), f"{rule}. Set token, or host to one of {LOOPBACK}")
        if isinstance(config.webhook, WebhookTable):
            try:
                config.webhook.check()
            except ValueError as error:
                self.mistake(("webhook", "url"), f"{error}, got {config.webhook.url!r:.60}")
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
            if getattr(table, name) is not None and not table.tls:
                self.mistake(("mqtt", name), "needs tls = true")
        if (table.certificate is None) != (table.key is None):
            self.mistake(("mqtt",), "certificate and key are needed together")
        files = ("ca", "certificate", "key", "password_file")
        absent = [name for name in files if (path := getattr(table, name)) and not path.is_file()]
        for name in absent:
            self.mistake(("mqtt", name), f"there is no file {getattr(table, name)}")
        if not absent and isinstance(table, MqttTable):
            for name, read in (("password_file", table.secret), ("ca", table.context)):
                self.tried(("mqtt", name), read)

    def stream(self, config: Config, stream: StreamTable, place: Place) -> None:
        self.topic(config, stream.topic, place)
        if both := set(stream.columns or ()) & set(stream.ignore or ()):
            self.mistake((*place, "ignore"), f"{sorted(both)} are in columns too")
        for name in ("columns", "ignore"):
            if stream.time is not None and stream.time in (getattr(stream, name) or ()):
                self.mistake((*place, name), f"{stream.time!r} is the time, and never watched")
        if stream.payload == "plain" and (stream.ignore or stream.time):
            self.mistake((*place, "payload"), '"plain" has no names, so no ignore and no time')
        if stream.columns and len(set(stream.columns)) != len(stream.columns):
            self.mistake((*place, "columns"), "a name appears twice")
        self.states(stream, place)
        for name in FIXED:
            if stream.model is not None and getattr(stream, name) is not None:
                self.mistake((*place, name), "is set by the model. Remove it here")
        if isinstance(stream, StreamTable):
            self.tried((*place, "maintenance"), lambda: stream.rules)
            if stream.model is not None:
                self.tried((*place, "model"), stream.template)

    def states(self, stream: StreamTable, place: Place) -> None:
        for sensor in stream.sensors or ():
            own, where = sensor.states or (), (*place, "sensors")
            if len(set(own)) < len(own) or "" in own:
                self.mistake(where, f"{sensor.name}: states must differ, got {list(own)}")
            if own and (sensor.name in (stream.columns or ()) or stream.payload == "plain"):
                what = "a text has no place in columns, nor in plain payloads. Leave columns out"
                self.mistake(where, f"{sensor.name}: {what}")

    def topic(self, config: Config, topic: str | None, place: Place) -> None:
        mqtt = config.mqtt
        if topic is None:
            if config.http is None and mqtt is not None:
                self.mistake(place, "needs a topic, or a table [http] to take its samples in")
            return
        if mqtt is None and config.http is not None:  # without both it is said already
            self.mistake((*place, "topic"), "needs a table [mqtt]")

        def check() -> None:
            pattern, status = Pattern(topic), f"{mqtt.prefix}/status" if mqtt is not None else ""
            if mqtt is not None and mqtt.prefix and pattern.device(status) is not None:
                raise ValueError("matches what the service itself publishes")

        self.tried((*place, "topic"), check)


def _broken(rules: Any, value: Any) -> str:
    """Return the rule that the value breaks, or nothing."""
    if rules.get("allowed") and value not in rules["allowed"]:
        return f"must be one of {', '.join(map(repr, rules['allowed']))}"
    low, high = rules.get("low"), rules.get("high")
    if low is not None and not low <= value <= high:  # NaN neither
        return f"must be in [{low:,}, {high:,}]"
    if rules.get("pattern") and not re.fullmatch(rules["pattern"], value):
        return f"must match {rules['pattern']}"
    return ""


# -- where keys stand -------------------------------------------------------------------------


def _read(path: Path) -> tuple[dict[str, Any], Lines]:
    """Return the tables in the file and the line of each table and key."""
    try:
        text = path.read_text("utf-8")
        return tomllib.loads(text), lines(text)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None


def lines(text: str) -> Lines:
    r"""Return where tables and keys stand in TOML that is known to be right.

    Examples
    --------
    >>> lines('[http]\nport = 1\n[[streams]]\n[[streams]]\nname = "a"')[("streams", 1, "name")]
    5
    """
    found: Lines = {}
    tables: dict[str, int] = {}
    here: Place = ()
    inside = False  # a string of several lines
    for number, line in enumerate(text.splitlines(), 1):
        ends = len(_QUOTES.findall(line)) % 2 == 1
        if not inside:
            if header := _HEADER.match(line):
                here = _place(header[1] == "[[", header[2], tables)
                found.setdefault(here, number)
            elif key := _KEY.match(line):
                found.setdefault((*here, key[1].strip("\"'")), number)
        inside ^= ends
    return found


def _place(is_list: bool, name: str, tables: dict[str, int]) -> Place:
    """Return the place of a header; below a list of tables it is in the newest of them."""
    place: Place = ()
    path = ""
    parts = [part.strip(" \"'") for part in name.split(".")]
    for depth, part in enumerate(parts):
        path = f"{path}.{part}"
        place = (*place, part)
        if is_list and depth == len(parts) - 1:
            tables[path] = tables.get(path, -1) + 1
        if path in tables:
            place = (*place, tables[path])
    return place
