"""The packets of MQTT 3.1.1 and 5 that onlad needs, as bytes, without connections."""

from __future__ import annotations

import ssl
import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

CONNECT, CONNACK, PUBLISH, PUBACK = 0x10, 0x20, 0x30, 0x40
SUBSCRIBE, SUBACK, PINGREQ, PINGRESP, DISCONNECT = 0x80, 0x90, 0xC0, 0xD0, 0xE0

# Lengths of the values of properties of MQTT 5: in bytes, or in texts.
BYTES = {0x01: 1, 0x17: 1, 0x19: 1, 0x24: 1, 0x25: 1, 0x28: 1, 0x29: 1, 0x2A: 1,
         0x13: 2, 0x21: 2, 0x22: 2, 0x23: 2, 0x02: 4, 0x11: 4, 0x18: 4, 0x27: 4}  # fmt: skip
TEXTS = {0x03: 1, 0x08: 1, 0x09: 1, 0x12: 1, 0x15: 1, 0x16: 1, 0x1A: 1, 0x1C: 1, 0x1F: 1, 0x26: 2}
SESSION_EXPIRY, RECEIVE_MAXIMUM, SUBSCRIPTION, IDENTIFIERS = 0x11, 0x21, 0x0B, 0x29
FOREVER = 0xFFFFFFFF  # as the expiry of a session

# Why a broker refuses a connection: codes of 3.1.1, and those of 5 that mean the same.
REFUSALS = {
    **dict.fromkeys((1, 0x84), "it does not support this version of MQTT"),
    **dict.fromkeys((2, 0x85), "it does not accept the client_id"),
    **dict.fromkeys((3, 0x88), "it is not available"),
    **dict.fromkeys((4, 0x86), "the username or the password is wrong"),
    **dict.fromkeys((5, 0x87), "it does not authorise this client: check username and password"),
    0x8A: "this client is banned",
    0x8E: "another client has the same client_id",
    0x8F: "the topic filter is wrong",
}
_SHORT = struct.Struct("!H")
_PLAIN = bytes((PUBLISH,))  # of QoS 0, not retained


class WireError(ValueError):
    """The bytes are not MQTT."""


class Login(NamedTuple):
    """Where the broker is, and who we are."""

    host: str
    port: int
    client_id: str
    five: bool = False  # MQTT 5, not 3.1.1
    keepalive: int = 30  # seconds
    username: str | None = None
    password: str | None = None
    tls: ssl.SSLContext | None = None
    keeps: bool = False  # the broker keeps messages while we are away
    will: tuple[str, bytes] | None = None  # what it publishes when we are lost
    ahead: int = 65535  # messages that it sends before we acknowledge the first


class Publication(NamedTuple):
    """A message as the broker sent it."""

    topic: bytes
    payload: bytes
    qos: int
    mid: int  # 0 with QoS 0
    again: bool  # sent again: it may have arrived before
    retained: bool
    subscriptions: tuple[int, ...] = ()  # by their identifiers, where the broker sends them


class Greeting(NamedTuple):
    """How a broker answers to CONNECT."""

    code: int
    session: bool  # it has kept the session
    receive_maximum: int = 65535
    identifiers: bool = True  # of subscriptions


# -- a stream of packets ----------------------------------------------------------------------


def packet(data: bytes | bytearray, at: int) -> tuple[int, int, int] | None:
    """Return kind, start and end of the body of the packet at `at`, or None if its head is cut."""
    found = _variable_length(data, at + 1)
    return None if found is None else (data[at], found[1], found[1] + found[0])


def packed(kind: int, *parts: bytes) -> bytes:
    """Return a packet."""
    body = b"".join(parts)
    return bytes((kind,)) + variable_length(len(body)) + body


@lru_cache(maxsize=10_000)  # of all messages with a verdict, few lengths differ
def variable_length(value: int) -> bytes:
    """Return a whole number in one to four bytes."""
    data = b""
    while True:
        value, low = divmod(value, 128)
        data += bytes((low | 128 if value else low,))
        if not value:
            return data


def text(value: str | bytes) -> bytes:
    """Return a text or other bytes with their length before them."""
    data = value.encode() if isinstance(value, str) else value
    return _SHORT.pack(len(data)) + data


# -- what is read -----------------------------------------------------------------------------


def read(kind: int, body: bytes, five: bool) -> Publication:
    """Return the message in the body of a PUBLISH; `WireError` if it is not valid."""
    qos = kind >> 1 & 3
    if qos > 1 or len(body) < 2:
        raise WireError(
            "a message that is cut off, or with a quality of service that was not requested"
        )
    at = 2 + _SHORT.unpack_from(body)[0]
    topic, mid = body[2:at], 0
    if qos:
        if len(body) < at + 2:
            raise WireError("a message that is cut off")
        mid = _SHORT.unpack_from(body, at)[0]
        at += 2
    subscriptions: tuple[int, ...] = ()
    if five:
        at, found = properties(body, at)
        if found:
            subscriptions = tuple(value for name, value in found if name == SUBSCRIPTION)
    if at > len(body) or len(topic) == 0:
        raise WireError("a message that has no topic, or is cut off")
    again, retained = bool(kind & 8), bool(kind & 1)
    return Publication(topic, body[at:], qos, mid, again, retained, subscriptions)


def greeting(body: bytes, five: bool) -> Greeting:
    """Return what a CONNACK says."""
    if len(body) < 2:
        raise WireError("a greeting that is cut off")
    found = Greeting(body[1], bool(body[0] & 1))
    if five and len(body) > 2:
        values = dict(properties(body, 2)[1])
        limit, identifiers = values.get(RECEIVE_MAXIMUM, 65535), values.get(IDENTIFIERS, 1)
        found = found._replace(receive_maximum=limit, identifiers=bool(identifiers))
    return found


def number(body: bytes) -> int:
    """Return the packet identifier that a body begins with."""
    if len(body) < 2:
        raise WireError("an answer that is cut off")
    return int(_SHORT.unpack_from(body)[0])


def codes(body: bytes, five: bool) -> bytes:
    """Return the codes of a SUBACK."""
    at = properties(body, 2)[0] if five else 2
    return body[at:]


def properties(body: bytes, at: int) -> tuple[int, list[tuple[int, int]]]:
    """Return where the properties at `at` end, and those that are numbers."""
    length, at = _number(body, at)
    if not length:
        return at, []
    stop, found = at + length, []
    if stop > len(body):
        raise WireError("properties that are cut off")
    while at < stop:
        kind = body[at]
        at += 1
        if kind == SUBSCRIPTION:
            value, at = _number(body, at)
            found.append((kind, value))
        elif kind in BYTES:
            found.append((kind, int.from_bytes(body[at : at + BYTES[kind]], "big")))
            at += BYTES[kind]
        elif kind in TEXTS:
            for _ in range(TEXTS[kind]):
                at += 2 + number(body[at : at + 2])
        else:
            raise WireError(f"an unknown property {kind:#x}")
    if at != stop:
        raise WireError("properties that are cut off")
    return stop, found


def _number(body: bytes, at: int) -> tuple[int, int]:
    found = _variable_length(body, at)
    if found is None:
        raise WireError("a length that is cut off")
    return found


def _variable_length(data: bytes | bytearray, at: int) -> tuple[int, int] | None:
    """Return a whole number of one to four bytes, and where it ends; None if it is cut off."""
    value = 0
    for k, byte in enumerate(data[at : at + 4]):
        value |= (byte & 127) << 7 * k
        if byte < 128:
            return value, at + k + 1
    if len(data) - at >= 4:
        raise WireError("a length of more than four bytes")
    return None


# -- what is written --------------------------------------------------------------------------


def connect(login: Login) -> bytes:
    """Return a CONNECT. With `keeps` the session has no end, and is that of `client_id`."""
    flags, own, rest = 0 if login.keeps else 0x02, b"", [text(login.client_id)]
    if login.five:
        values = struct.pack("!BH", RECEIVE_MAXIMUM, login.ahead)
        values += struct.pack("!BI", SESSION_EXPIRY, FOREVER) if login.keeps else b""
        own = variable_length(len(values)) + values
    if login.will is not None:
        flags |= 0x04 | 0x08 | 0x20  # of QoS 1, retained
        rest += [b"\0" if login.five else b"", text(login.will[0]), text(login.will[1])]
    for value, flag in ((login.username, 0x80), (login.password, 0x40)):
        if value is not None:
            flags |= flag
            rest.append(text(value))
    head = text("MQTT") + bytes((5 if login.five else 4, flags)) + _SHORT.pack(login.keepalive)
    return packed(CONNECT, head, own, *rest)


def subscribe(mid: int, topic: str, qos: int, five: bool, identifier: int | None) -> bytes:
    """Return a SUBSCRIBE. In MQTT 5 it leaves retained messages out."""
    values = b""
    if five:
        if identifier is not None:
            values = bytes((SUBSCRIPTION,)) + variable_length(identifier)
        values = variable_length(len(values)) + values
    options = qos | 0x20 if five else qos  # 0x20: no retained messages
    return packed(SUBSCRIBE | 2, _SHORT.pack(mid), values, text(topic), bytes((options,)))


def acknowledgement(mid: int) -> bytes:
    """Return a PUBACK; that of MQTT 5 is the same when nothing is wrong."""
    return struct.pack("!BBH", PUBACK, 2, mid)


def publication(
    topic: bytes, payload: bytes, five: bool, mid: int = 0, retain: bool = False
) -> bytes:
    """Return a PUBLISH: of QoS 1 with a packet identifier, of QoS 0 without."""
    number = _SHORT.pack(mid) if mid else b""
    kind = PUBLISH | (2 if mid else 0) | retain
    return packed(kind, text(topic), number, b"\0" if five else b"", payload)


def publications(topic: bytes, payloads: Iterable[bytes], five: bool) -> list[bytes]:
    """Return the bytes of a PUBLISH of QoS 0 for each payload, in parts to be joined."""
    head, found = text(topic) + (b"\0" if five else b""), list[bytes]()
    for payload in payloads:
        found += (_PLAIN, variable_length(len(head) + len(payload)), head, payload)
    return found
