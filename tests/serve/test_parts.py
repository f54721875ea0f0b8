"""Topics, payloads, packets, logs and the outbox, each for itself."""

import io
import json
import logging
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paho.mqtt.client import topic_matches_sub

from onlad.serve import logs, page, payload, wire
from onlad.serve.config import StreamTable
from onlad.serve.outbox import MOST, Outbox
from onlad.serve.topics import Pattern

LEVELS = st.lists(st.sampled_from(["a", "b", "$x", "ü", ""]), min_size=1, max_size=4)


@given(st.data(), LEVELS)
def test_a_pattern_matches_what_a_broker_delivers(data, levels):
    # Any filter made from some topic by putting wildcards in.
    chosen = [data.draw(st.sampled_from([level, level, "+", "a"])) for level in levels]
    if data.draw(st.booleans()):
        chosen = [*chosen[: data.draw(st.integers(0, len(chosen)))], "#"]
    text, topic = "/".join(chosen), "/".join(levels)
    if text and topic:
        found = Pattern(text).device(topic) is not None
        assert found == topic_matches_sub(text, topic)


def test_wrong_patterns_are_refused():
    for text in ("", "a\0b"):
        with pytest.raises(ValueError, match="must have 1 to 65535 bytes"):
            Pattern(text)
    with pytest.raises(ValueError, match=r"takes a whole level, got 'x\{device\}'"):
        Pattern("a/x{device}")


def read(data, **settings):
    return payload.read(StreamTable(name="s", **settings), data, (), 5.0)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"[" + b"1," * 600_000 + b"1]", "bytes in one message; at most 1000000"),
        (json.dumps([[1]] * 1001).encode(), "1001 samples in one message; at most 1000"),
        (b'"text"', "a sample is an object or a list of numbers"),
        (json.dumps({str(i): 1 for i in range(1001)}).encode(), "1001 features; at most 1000"),
        (json.dumps({"x" * 201: 1}).encode(), "a name has more than 200 letters"),
        (b"{}", "no features"),
        (b'{"a": [1]}', "must be a number or missing"),
        (b'{"a": true, "b": "1"}', "must be a number or missing"),
    ],
)
def test_what_is_no_sample_is_named(data, why):
    found = read(data)
    assert not found.rows
    assert why in found.bad[0][1]


@given(st.binary(max_size=80))
def test_any_bytes_are_samples_or_refused(data):
    for kind in ("json", "plain"):
        found = read(data, payload=kind, time="t")
        assert found.rows or found.bad
        assert all(np.abs(row[~np.isnan(row)]).max(initial=0) <= 1e100 for row in found.rows)


def test_columns_ignore_and_time():
    data = b'{"a": 1, "b": 2, "c": "x", "t": 9}'
    found = read(data, columns=("b", "a"), time="t")
    assert (found.names, found.times) == (("b", "a"), [9.0])
    assert found.rows[0].tolist() == [2.0, 1.0]
    assert read(data, ignore=("c", "t")).names == ("a", "b")
    assert "none of the columns" in read(data, columns=("z",)).bad[0][1]
    assert read(b'{"a": 1}', time="t").times == [5.0]
    for bad in ('"yesterday"', "[1]", '"0001-01-01T00:00:00+23:00"', "1e999"):
        found = read(b'{"a": 1, "t": %s}' % bad.encode(), time="t")
        assert found.bad or np.isfinite(found.times[0])


@pytest.mark.parametrize("factor", [1, 10**3, 10**6, 10**9])
def test_a_time_is_one_in_whatever_unit_machines_count(factor):
    when = 1_767_225_600
    found = read(b'{"a": 1, "t": %d}' % (when * factor), time="t")
    assert found.times == [when]


@given(st.floats() | st.integers() | st.text(max_size=30))
def test_any_time_is_one_that_a_page_can_show_or_refused(value):
    found = read(json.dumps({"a": 1, "t": value}).encode(), time="t")
    assert found.rows or found.bad
    for when in found.times:
        assert page._when(when)


class Fake:
    """A socket that has some chunks."""

    def __init__(self, *chunks):
        self.chunks = list(chunks)

    def recv(self, size):
        if not self.chunks:
            raise BlockingIOError
        assert len(self.chunks[0]) <= size
        return self.chunks.pop(0)

    def fileno(self):
        return 7


def framed(kind, body):
    length, size = len(body), b""
    while True:
        length, low = divmod(length, 128)
        size += bytes([low | (128 if length else 0)])
        if not length:
            return bytes([kind]) + size + body


def sent(message, qos, five):
    """Return the packet of a message."""
    mid = message.mid.to_bytes(2, "big") if qos else b""
    # The message's expiry, a pair of texts, and the subscriptions.
    listed = b"".join(b"\x0b" + bytes([n & 127 | 128, n >> 7]) for n in message.subscriptions)
    properties = b"\x02\0\0\0\x09\x26\0\x01a\0\x02bc" + listed
    properties = bytes([len(properties)]) + properties if five else b""
    body = len(message.topic).to_bytes(2, "big") + message.topic + mid + properties
    kind = 0x30 | qos << 1 | message.again << 3 | message.retained
    return framed(kind, body + message.payload)


def read_like_paho(socket):
    """Return the packets that are left for paho, read as it reads: kind, length, body."""
    packets, part = [], b""
    while True:
        try:
            if not part:
                part = socket.recv(1)
            while len(part) < 2 or part[-1] & 128:
                part += socket.recv(1)
            length = sum((byte & 127) << 7 * i for i, byte in enumerate(part[1:]))
            body = b""
            while len(body) < length:
                body += socket.recv(length - len(body))
            packets.append(part + body)
            part = b""
        except BlockingIOError:
            assert not part  # the tests below give whole packets
            if socket.pending() == 0 and not socket._socket.chunks:
                return packets


others = st.builds(framed, st.sampled_from([0x40, 0x90, 0xD0]), st.binary(max_size=300))
messages = st.builds(
    wire.Publication,
    st.binary(min_size=1, max_size=20),
    st.binary(max_size=200) | st.just(b"x" * 70_000),
    st.just(1),
    st.integers(1, 65535),
    st.booleans(),
    st.booleans(),
    st.lists(st.integers(128, 255), max_size=3).map(tuple),
)


@settings(max_examples=200)
@given(
    packets=st.lists(messages | others | messages.map(lambda m: m._replace(qos=2)), max_size=12),
    five=st.booleans(),
    cuts=st.lists(st.integers(1, 400), max_size=30),
)
def test_messages_are_taken_out_and_paho_gets_the_rest(packets, five, cuts):
    if not five:
        packets = [p._replace(subscriptions=()) if isinstance(p, tuple) else p for p in packets]
    data = b"".join(sent(p, p.qos, five) if isinstance(p, wire.Publication) else p for p in packets)
    chunks = []
    for cut in cuts:
        chunks.append(data[:cut])
        data = data[cut:]
    chunks += [data[i : i + wire.CHUNK] for i in range(0, len(data), wire.CHUNK)]
    taken: list[wire.Publication] = []
    socket = wire.Buffered(Fake(*filter(None, chunks)), lambda: False, taken.append, five)
    left = read_like_paho(socket)
    small = [p for p in packets if isinstance(p, wire.Publication) and p.qos == 1]
    assert taken == [p for p in small if len(p.payload) < 70_000]
    rest = [p for p in packets if p not in taken]
    assert left == [sent(p, p.qos, five) if isinstance(p, wire.Publication) else p for p in rest]


def test_nothing_is_read_while_too_much_waits():
    busy, taken = [False], []
    one = wire.Publication(b"t", b"1", 1, 1, False, False)
    chunk = sent(one, 1, False)
    socket = wire.Buffered(Fake(chunk + chunk[:3], chunk[3:]), lambda: busy[0], taken.append, False)
    assert socket.fileno() == 7
    with pytest.raises(BlockingIOError):
        socket.recv(1)
    assert taken == [one]
    assert not socket.blocked
    assert socket.pending() == 0  # half a message is none
    busy[0] = True
    with pytest.raises(BlockingIOError):
        socket.recv(1)
    assert socket.blocked
    busy[0] = False
    with pytest.raises(BlockingIOError):
        socket.recv(1)
    assert taken == [one, one]


def test_the_end_of_a_connection_is_seen():
    socket = wire.Buffered(Fake(b""), lambda: False, print, False)
    assert socket.recv(1) == b""
    socket = wire.Buffered(Fake(b"\x40\x02", b""), lambda: False, print, False)
    assert (socket.recv(1), socket.recv(1), socket.recv(2)) == (b"\x40", b"\x02", b"")


@pytest.mark.parametrize("five", [False, True])
@given(body=st.binary(max_size=40), kind=st.integers(0x30, 0x3F))
def test_any_bytes_are_a_message_or_left_to_paho(body, kind, five):
    found = wire.read(kind, body, five)
    assert found is None or (found.topic in body and body.endswith(found.payload))


def test_no_length_at_all_is_left_to_paho():
    socket = wire.Buffered(Fake(b"\x30" + b"\xff" * 9), lambda: False, print, False)
    assert b"".join(socket.recv(1) for _ in range(5)) == b"\x30\xff\xff\xff\xff"


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 20_000, 3_000_000])
@pytest.mark.parametrize("five", [False, True])
def test_a_publication_is_what_paho_reads(size, five):
    data = wire.publication(b"a/b", b"x" * size, five)
    length, at, shift = 0, 1, 0
    while True:
        length |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if not data[at - 1] & 128:
            break
    assert data[0] == 0x30
    assert len(data) == at + length
    assert data[at:] == b"\0\x03a/b" + (b"\0" if five else b"") + b"x" * size
    assert wire.acknowledgement(258) == b"\x40\x02\x01\x02"


@pytest.mark.parametrize("kind", ["text", "json"])
def test_a_log_line_is_one_line_whatever_a_client_sends(kind, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(logs, "_lately", {})
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        logs.setup(kind, "info")
        logs.info("started", port=7)
        logs.warning("skipped a sample", why="evil\nerror: all is lost" + "x" * 1000)
        logs.event(logging.DEBUG, "hidden")
        try:
            raise ValueError("seven")
        except ValueError:
            logs.log.exception("failed")
        logging.getLogger("uvicorn.error").warning("evil \x1b[2J\n%s", "request")
        for _ in range(100):
            logs.warning("flood")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
        logging.captureWarnings(False)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4 + logs.MOST
    if kind == "json":
        first = json.loads(lines[0])
        assert (first["level"], first["event"], first["port"]) == ("info", "started", 7)
        assert json.loads(lines[1])["why"].startswith("evil\nerror")
        assert json.loads(lines[3])["event"] == r"evil \x1b[2J\nrequest"
    else:
        assert re.fullmatch(r"20\d\d-[0-9-]+T[0-9:.]+\+00:00 info: started port=7", lines[0])
        assert ' warning: skipped a sample why="evil\\nerror' in lines[1]
    assert "\x1b" not in lines[3]
    assert len(lines[1]) < 500
    assert "ValueError('seven')" in lines[2]
    assert "not shown" in lines[-1]


def test_the_outbox_keeps_what_one_courier_has_and_drops_the_oldest():
    done, sent = [], []
    outbox = Outbox(done.append)
    outbox.add({"id": "lost"})  # nobody to deliver to
    outbox.couriers |= {"a": sent.append, "b": lambda _: None}
    outbox.add({"id": "1"})
    outbox.delivered("a", "1")
    assert (done, [m["id"] for m in outbox.pending("b")], outbox.pending("a")) == ([], ["1"], [])
    outbox.delivered("b", "1")
    outbox.delivered("b", "unknown")
    assert (done, len(outbox.waiting)) == (["1"], 0)
    for i in range(MOST + 3):
        outbox.add({"id": f"n{i}"})
    assert (len(outbox.waiting), outbox.dropped) == (MOST, 3)
    assert outbox.pending("a")[0]["id"] == "n3"
