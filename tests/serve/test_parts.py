"""Topics, payloads, packets, logs and the outbox, each for itself."""

import asyncio
import io
import json
import logging
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paho.mqtt.client import topic_matches_sub

from onlad import Monitor
from onlad.serve import charts, logs, payload
from onlad.serve.history import History, Point
from onlad.serve.listener import MOST, Listener, Outbox
from onlad.serve.tables import StreamTable
from onlad.serve.topics import Pattern
from onlad.streams import wire
from onlad.streams.client import BrokerError, Calls
from onlad.streams.client import Client as Broker

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
        (json.dumps([[1]] * 1001).encode(), "1001 samples in one message; 1 to 1000 are allowed"),
        (b'"text"', "it is neither an object of names and numbers nor an array of numbers"),
        (json.dumps({str(i): 1 for i in range(1001)}).encode(), "1001 features; at most 1000"),
        (json.dumps({"x" * 201: 1}).encode(), "a name has more than 200 letters"),
        (b"{}", "it is neither an object of names and numbers"),
        (b'{"a": [1]}', "column 'a' holds an array, which is not a number"),
        (b'{"a": true, "b": "1"}', "column 'b' holds \"1\", which is not a number"),
    ],
)
def test_what_is_no_sample_is_named(data, why):
    found = read(data)
    assert len(found.rows) == 0
    assert why in found.bad[0][1]


@given(st.binary(max_size=80))
def test_any_bytes_are_samples_or_refused(data):
    for kind in ("json", "plain"):
        found = read(data, payload=kind, time="t")
        assert len(found.rows) or found.bad
        assert all(np.abs(row[~np.isnan(row)]).max(initial=0) <= 1e100 for row in found.rows)


def test_columns_ignore_and_time():
    data = b'{"a": 1, "b": 2, "c": "x", "t": 9}'
    found = read(data, columns=("b", "a"), time="t")
    assert (found.names, found.times) == (("b", "a"), [9.0])
    assert found.rows[0].tolist() == [2.0, 1.0]
    assert read(data, ignore=("c", "t")).names == ("a", "b")
    assert "it has none of the names that are watched" in read(data, columns=("z",)).bad[0][1]
    assert read(data, ignore=("c*",)).times == [5.0]
    assert read(b'{"a": 1, "ts": 7}').times == [7.0]  # called like a time
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
    assert len(found.rows) or found.bad
    for when in found.times:
        assert charts.when(when)


@pytest.mark.parametrize(("seconds", "part"), [(3_600.0, "slice(7)"), (90_000.0, "slice(0, -3)")])
def test_a_chart_of_less_than_a_day_has_times_without_the_date(seconds, part):
    points = [Point(i, seconds * i, 0.5, 1.0, False, False) for i in range(2)]
    assert charts.scores(points)["xAxis"]["axisLabel"][":formatter"].endswith(part)
    assert re.fullmatch(r"\d\d:\d\d:\d\d", charts.when(seconds)[7:])


def sent(message, five):
    """Return the packet of a message."""
    mid = message.mid.to_bytes(2, "big") if message.qos else b""
    # The message's expiry, a pair of texts, and the subscriptions.
    listed = b"".join(b"\x0b" + bytes([n & 127 | 128, n >> 7]) for n in message.subscriptions)
    properties = b"\x02\0\0\0\x09\x26\0\x01a\0\x02bc" + listed
    properties = bytes([len(properties)]) + properties if five else b""
    kind = 0x30 | message.qos << 1 | message.again << 3 | message.retained
    return wire.packed(kind, wire.text(message.topic), mid, properties, message.payload)


class Transport:
    """Keeps what is written, and whether it may read."""

    def __init__(self):
        self.written, self.reads, self.closed = [], True, False

    def pause_reading(self):
        self.reads = False

    def resume_reading(self):
        self.reads = True

    def write(self, data):
        self.written.append(data)

    def is_closing(self):
        return self.closed

    def abort(self):
        self.closed = True


class Wired:
    """A client with a broker's bytes in hand, and what it took."""

    def __init__(self, five=False):
        self.taken, self.large, self.arrived, self.busy = [], [], [], False
        self.transport = Transport()
        calls = Calls(
            self.taken.append,
            lambda message, size: self.large.append((message, size)),
            self.arrived.append,
            lambda: self.busy,
        )

        async def make():
            return Broker(calls, five)

        self.client = asyncio.run(make())
        self.client.connection_made(self.transport)
        self.client.open()


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
    packets=st.lists(messages | st.just(b"\xd0\0"), max_size=12),
    five=st.booleans(),
    cuts=st.lists(st.integers(1, 400), max_size=30),
    busy=st.lists(st.booleans(), max_size=30),
)
def test_messages_are_taken_in_order_however_they_are_cut(packets, five, cuts, busy):
    if not five:
        packets = [p._replace(subscriptions=()) if isinstance(p, tuple) else p for p in packets]
    data = b"".join(sent(p, five) if isinstance(p, wire.Publication) else p for p in packets)
    wired = Wired(five)
    for i, cut in enumerate([*cuts, len(data)]):
        wired.busy = i < len(busy) and busy[i]
        wired.client.data_received(data[:cut])
        data = data[cut:]
    wired.busy = False
    wired.client.read_on()
    assert wired.taken == [p for p in packets if isinstance(p, wire.Publication)]
    assert wired.transport.reads
    assert not wired.client.lost.done()


def test_nothing_is_read_while_too_much_waits():
    wired = Wired()
    one = wire.Publication(b"t", b"1", 1, 1, False, False)
    wired.busy = True
    wired.client.data_received(sent(one, False))
    assert (wired.taken, wired.transport.reads) == ([], False)
    wired.busy = False
    wired.client.read_on()
    assert (wired.taken, wired.transport.reads) == ([one], True)


def test_no_message_is_taken_before_the_service_is_ready_for_it():
    wired = Wired()
    wired.client._open = False
    one = wire.Publication(b"t", b"1", 1, 1, False, False)
    wired.client.data_received(b"\x20\x02\x01\0" + sent(one, False))
    assert wired.client._greeted.result() == wire.Greeting(0, True)
    assert wired.taken == []
    wired.client.open()
    assert wired.taken == [one]


@pytest.mark.parametrize("five", [False, True])
def test_a_message_that_is_too_large_is_never_kept(five):
    wired = Wired(five)
    one = wire.Publication(b"t", b"1", 1, 1, False, False)
    large = wire.Publication(b"big", b"x" * (5 << 20), 1, 7, False, False)
    data = sent(large, five) + sent(one, five)
    for start in range(0, len(data), 100_000):
        wired.client.data_received(data[start : start + 100_000])
        kept = len(wired.client._data) + sum(map(len, wired.client._more))
        assert kept < 400_000
    ((message, size),) = wired.large
    assert (message.topic, message.mid, wired.taken) == (b"big", 7, [one])
    assert size > 5 << 20


@pytest.mark.parametrize("five", [False, True])
@given(body=st.binary(max_size=40), kind=st.integers(0x30, 0x3F))
def test_any_bytes_are_a_message_or_refused(body, kind, five):
    try:
        found = wire.read(kind, body, five)
    except wire.WireError:
        return
    assert found.topic in body
    assert body.endswith(found.payload)


@settings(max_examples=300)
@given(data=st.binary(max_size=60), five=st.booleans())
def test_any_bytes_of_a_broker_are_taken_or_end_the_connection(data, five):
    wired = Wired(five)
    wired.client.data_received(data)
    if wired.client.lost.done():
        with pytest.raises(BrokerError, match=r"the broker (sent bytes that are not|closed)"):
            wired.client.lost.result()


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 20_000, 3_000_000])
@pytest.mark.parametrize("five", [False, True])
@pytest.mark.parametrize("mid", [0, 258])
def test_a_publication_is_read_as_it_was_written(size, five, mid):
    data = wire.publication(b"a/b", b"x" * size, five, mid, retain=True)
    kind, start, stop = wire.packet(data, 0)
    assert stop == len(data)
    found = wire.read(kind, data[start:stop], five)
    assert found == wire.Publication(b"a/b", b"x" * size, bool(mid), mid, False, True)
    assert wire.acknowledgement(258) == b"\x40\x02\x01\x02"


@pytest.mark.parametrize("five", [False, True])
def test_many_publications_are_the_bytes_of_each(five):
    payloads = [b"", b"x" * 100, b"y" * 127, b"z" * 20_000]
    each = [wire.publication(b"a/b", payload, five) for payload in payloads]
    assert b"".join(wire.publications(b"a/b", payloads, five)) == b"".join(each)


def test_no_more_messages_are_on_their_way_than_the_broker_takes():
    wired = Wired(five=True)
    wired.client._greeting = wire.greeting(b"\0\0\x03\x21\0\x02", five=True)
    assert wired.client._greeting.receive_maximum == 2
    mids = [wired.client.publish("t", b"") for _ in range(5)]
    assert len(wired.transport.written) == 2
    for mid in mids[:2]:
        wired.client.data_received(b"\x40\x02" + mid.to_bytes(2, "big"))
    assert (wired.arrived, len(wired.transport.written)) == (mids[:2], 4)


@pytest.mark.parametrize("five", [False, True])
def test_a_subscription_that_the_broker_refuses_is_an_error(five):
    async def work(code):
        client = Broker(Calls(print, print, print, lambda: False), five)
        client.connection_made(Transport())
        asked = asyncio.ensure_future(client.subscribe("a/#", 1, 7))
        await asyncio.sleep(0)
        client.data_received(wire.packed(wire.SUBACK, b"\0\x01", b"\0" if five else b"", code))
        await asked

    asyncio.run(work(b"\x01"))
    why = "it does not authorise this client" if five else "it refuses"
    with pytest.raises(BrokerError, match=f"the broker refuses the subscription to a/#: {why}"):
        asyncio.run(work(b"\x87" if five else b"\x80"))


def test_a_broker_that_is_silent_is_left():
    wired = Wired()
    wired.client.beat(30)
    assert wired.transport.written == []
    wired.client._last_sent -= 16
    wired.client.beat(30)
    assert wired.transport.written == [b"\xc0\0"]
    wired.client._last_received -= 46
    wired.client.beat(30)
    assert wired.transport.closed
    with pytest.raises(BrokerError, match="the broker does not answer"):
        wired.client.lost.result()


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
        logs.log.debug("hidden")
        try:
            raise ValueError("seven")
        except ValueError:
            logs.log.exception("failed")
        logging.getLogger("uvicorn.error").warning("evil \x1b[2J\n%s", "request")
        for i in range(100):
            logs.warning("flood")
            logging.getLogger("asyncio").error("flood of a library, number %d", i)
    finally:
        root.handlers[:] = before
        root.setLevel(level)
        logging.captureWarnings(False)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4 + 2 * logs.MOST
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


class Named(Listener):
    def __init__(self, name):
        self.courier = name


def test_the_outbox_keeps_what_one_courier_has_and_drops_the_oldest():
    done = []
    outbox = Outbox(done.append)
    outbox.add({"id": "lost"})  # nobody to deliver to
    outbox.couriers += [Named("a"), Named("b")]
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


@settings(max_examples=50)
@given(st.lists(st.integers(1, 12), max_size=12), st.integers(1, 10))
def test_the_history_has_the_last_samples_in_order(sizes, most):
    history, expected, row = History(most), [], 0
    for size in sizes:
        verdicts = Monitor().observe_many(np.zeros((size, 1)))
        verdicts.score[:] = row + np.arange(size)
        verdicts.is_anomaly[:] = verdicts.score % 3 == 0
        times = 100.0 + row + np.arange(size)
        history.add(row, times, verdicts)
        expected += [
            Point(r, 100.0 + r, float(r), float("inf"), r % 3 == 0, False)
            for r in range(row, row + size)
        ]
        row += size
    assert history.points() == expected[-most:]


def test_older_samples_come_before_what_is_kept():
    X = np.random.default_rng(0).normal(size=(600, 2))
    verdicts = Monitor().observe_many(X)
    older, history = History(600), History(100)
    older.add(0, np.arange(600.0), verdicts)
    assert history.after(older)[0] == older.points()
    history.add(400, np.arange(400.0, 600.0), verdicts.part(verdicts.names, slice(400, None)))
    points, around = history.after(older)
    assert [p.row for p in points] == list(range(600))
    np.testing.assert_array_equal(around, older.around())
    assert history.after(None)[0] == points[500:]
