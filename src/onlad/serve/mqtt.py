"""MQTT: samples in, verdicts, states and alarms out, over one connection that comes back.

Nothing is acknowledged to the broker before it is in the journal. After a crash the broker sends
again what was not acknowledged; what is in the journal already is known by its packet identifier
and digest, and is acknowledged without being learned twice.
"""

from __future__ import annotations

import asyncio
import random
import time
import zlib
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import quote

import orjson

from onlad.reference import Array
from onlad.serve import discovery, logs, marks
from onlad.serve.alarm import key
from onlad.serve.frames import Mark, digest
from onlad.serve.intake import Item, messages
from onlad.serve.listener import Listener, Message
from onlad.serve.service import Service
from onlad.serve.tables import MqttTable, StreamTable
from onlad.serve.topics import Pattern
from onlad.serve.watcher import Watcher
from onlad.streams import wire
from onlad.streams.client import BrokerError, Calls, Client
from onlad.verdict import Verdicts

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0  # seconds before the next attempt to connect
MOST_OUT = 1_000_000  # bytes that wait for the broker; beyond that verdicts are dropped
NO_BROKER = "there is no connection to the broker"
TOLD = 16  # states that are sent before others get their turn: some milliseconds


class Mqtt(Listener):
    """The broker's side of a service."""

    courier = "mqtt"

    def __init__(self, service: Service, table: MqttTable) -> None:
        self.service, self.table = service, table
        # The number names a subscription to the broker, and is the same at every start.
        self.streams: list[tuple[Pattern, int, StreamTable]] = [
            (pattern, zlib.crc32(pattern.filter.encode()) % 268_435_455 + 1, stream)
            for stream in service.streams.values()
            if (pattern := stream.pattern)
        ]
        self.connections = 0
        self._client: Client | None = None  # from the broker's greeting on
        self._again: asyncio.Event = asyncio.Event()  # set: leave this connection
        self._alarms: dict[int, str] = {}  # packet identifier -> alarm
        self._goodbye = 0  # packet identifier of the last message
        self._batch: list[bytes] = []  # acknowledgements and verdicts of the step
        self._states: dict[int, tuple[str, float]] = {}  # what was published: state, when
        service.health.trouble["mqtt"] = NO_BROKER  # until it is there
        service.listen(self)

    @property
    def connected(self) -> bool:
        """Whether there is a broker."""
        return self._client is not None

    async def run(self) -> None:
        """Stay connected."""
        pause = FIRST_PAUSE
        while not self.service.ending:  # an error at that moment hides the cancellation
            self.service.health.trouble["mqtt"] = NO_BROKER
            try:
                await self._session()
                pause = FIRST_PAUSE
            except BrokerError as error:
                if self.connected:
                    pause = FIRST_PAUSE
                logs.warning("no broker", host=self.table.host, why=str(error), again_in=pause)
            finally:
                self._client = None
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _session(self) -> None:
        """Be connected once."""
        table, service = self.table, self.service
        self._again.clear()
        calls = Calls(self._take, self._oversized, self._published, lambda: service.busy)
        self._alarms.clear()
        self._states.clear()
        self._batch.clear()
        try:
            login = table.login(marks.MOST)
        except ValueError as error:
            raise BrokerError(str(error)) from None
        client, kept = await Client.connect(login, calls)
        try:
            self._client = client
            self.connections += 1
            if not kept:
                service.new_session()
            client.open()
            for pattern, identifier, _ in self.streams:
                await client.subscribe(pattern.filter, table.qos, identifier)
            self._publish("status", b"online", retain=True)
            service.health.trouble.pop("mqtt", None)
            logs.info("connected", host=table.host, version=table.version)
            for message in service.outbox.pending("mqtt"):
                self.alarmed(message)
            # Some may have been forgotten while there was no connection.
            for stream, device in await asyncio.to_thread(service.store.forgotten_devices):
                if (stream, device) not in service.watchers:
                    self._take_back(stream, device)
            for watcher in service.watchers.values():
                self._announce(watcher)
            while not self._again.is_set():
                if client.lost.done():
                    client.lost.result()
                client.beat(table.keepalive)
                await self._refresh()
                await asyncio.wait([client.lost], timeout=min(1.0, table.state_every / 4))
        finally:
            client.close()
        await asyncio.sleep(1.0)  # the disk needs time too

    async def stop(self) -> None:
        """Say goodbye: the will is only for those who cannot."""
        if self._client is not None:
            self._goodbye = self._publish("status", b"offline", retain=True)
            for _ in range(50):
                if not self._goodbye:
                    break
                await asyncio.sleep(0.02)

    # -- in -----------------------------------------------------------------------------------

    def _take(self, message: wire.Publication) -> None:
        """Take one message in. Called for each, so it does little."""
        if self.service.ending:  # not acknowledged, so it comes again at the next start
            return
        if message.retained:  # a message from before the subscription is not a new sample
            self._acknowledge(message)
            return
        try:
            topic = message.topic.decode()
        except UnicodeDecodeError:
            self._acknowledge(message)
            self.service.health.dropped["topic"] += 1
            return
        payload, arrived, to = message.payload, time.perf_counter(), message.subscriptions
        mark = Mark(message.mid, digest(message.topic, payload)) if message.qos else None
        items = [
            Item(stream, device, payload, arrived, mark, message.again)
            for pattern, identifier, stream in self.streams
            if (not to or identifier in to) and (device := pattern.device(topic)) is not None
        ]
        if not items:
            self._acknowledge(message)
            return
        if mark is not None:
            # Of several streams the last one acknowledges: one step journals them all or none.
            client, mid = self._client, message.mid
            items[-1].done = lambda: self._done(client, mid)
            items[-1].refused = self._again.set
        if not self.service.submit(*items) and mark is not None:
            self._again.set()  # not acknowledged, so it comes again

    def _oversized(self, message: wire.Publication, size: int) -> None:
        self._acknowledge(message)  # else it would come again and again
        self.service.health.dropped["message"] += 1
        topic = message.topic.decode("utf-8", "replace")
        logs.warning("a message is too large and was left out", topic=topic, bytes=size)

    def _acknowledge(self, message: wire.Publication) -> None:
        if message.qos and self._client is not None:
            self._client.write(wire.acknowledgement(message.mid))

    def _done(self, client: Client | None, mid: int) -> None:
        # A message of an earlier connection comes again; it is acknowledged then.
        if client is self._client:
            self._batch.append(wire.acknowledgement(mid))

    # -- out ----------------------------------------------------------------------------------

    def _publish(self, topic: str, payload: bytes, *, retain: bool = False) -> int:
        """Publish a message that must arrive; return its identifier, 0 without a connection."""
        if self._client is None:
            return 0
        return self._client.publish(f"{self.table.prefix}/{topic}", payload, retain)

    def stepped(self) -> None:
        """Send what a step has gathered, and take what waited for its end."""
        if self._client is not None:
            if self._batch:
                self._client.write(b"".join(self._batch))
            self._client.read_on()
        self._batch.clear()

    def _published(self, mid: int) -> None:
        if mid == self._goodbye:
            self._goodbye = 0
        alarm = self._alarms.pop(mid, None)
        if alarm is not None:
            self.service.outbox.delivered("mqtt", alarm)

    def judged(self, watcher: Watcher, first: int, times: Array, verdicts: Verdicts) -> None:
        """Publish verdicts, and the state if it is another."""
        which: Sequence[int] = range(len(verdicts) if self.table.verdicts == "all" else 0)
        if self.table.verdicts == "anomalies":
            which = verdicts.is_anomaly.nonzero()[0].tolist()
        client = self._client
        if which and (client is None or client.owed > MOST_OUT):
            self.service.health.dropped["verdict"] += len(which)
        elif which:
            topic = f"{self.table.prefix}/{_topic(watcher)}/verdict".encode()
            said = messages(watcher, verdicts, which, first, times.tolist())
            self._batch += wire.publications(
                topic, map(orjson.dumps, said), self.table.version == "5"
            )
        state = self._states.get(watcher.number)
        if client is not None and (state is None or state[0] != watcher.state):
            if state is None:
                self._announce(watcher)
            self._tell_state(watcher)

    def alarmed(self, message: Message) -> None:
        """Publish an alarm. Without a connection it stays in the outbox until the next one."""
        place = f"{message['stream']}/{_level(message['device'])}"
        mid = self._publish(f"{place}/alarm", orjson.dumps(message))
        if mid:
            self._alarms[mid] = message["id"]
            watcher = self.service.watchers.get((message["stream"], message["device"]))
            if watcher is not None:  # an alarm may be over by the end of the step it began in
                self._tell_state(watcher, "alarm" if message["kind"] == "anomaly" else "")

    async def _refresh(self) -> None:
        """Send the states that are due again, a few at a time: samples do not wait for them."""
        due = [watcher for watcher in self.service.watchers.values() if self._is_due(watcher)]
        for count, watcher in enumerate(due, 1):
            if not watcher.gone and self._is_due(watcher):  # it may be forgotten meanwhile
                self._tell_state(watcher)
            if count % TOLD == 0:
                await asyncio.sleep(0)

    def _is_due(self, watcher: Watcher) -> bool:
        state, when = self._states.get(watcher.number, ("", 0.0))
        late = time.monotonic() - when >= self.table.state_every and watcher.last is not None
        return late or state != watcher.state

    def _tell_state(self, watcher: Watcher, state: str = "") -> None:
        alarm, state = watcher.alarm, state or watcher.state
        said = watcher.status() | {"state": state, "alarm": alarm.message() if alarm else None}
        said["sensors"] = watcher.bands()
        self._states[watcher.number] = (state, time.monotonic())
        self._publish(f"{_topic(watcher)}/state", orjson.dumps(said), retain=True)

    def _announce(self, watcher: Watcher) -> None:
        """Let Home Assistant know of a device."""
        if self.table.discovery is None or self._client is None:
            return
        for topic, payload in discovery.configs(self.table, watcher.key, _topic(watcher)):
            self._client.publish(topic, orjson.dumps(payload), True)

    def forgotten(self, watcher: Watcher) -> None:
        """Remove what the broker retains of a device. Nothing is published of it afterwards."""
        self._states.pop(watcher.number, None)
        self._take_back(watcher.stream.name, watcher.device)

    def _take_back(self, stream: str, device: str) -> None:
        place = f"{stream}/{_level(device)}"
        self._publish(f"{place}/state", b"", retain=True)
        if self.table.discovery is not None and self._client is not None:
            for topic, _ in discovery.configs(self.table, key(stream, device), place):
                self._client.publish(topic, b"", True)


def _topic(watcher: Watcher) -> str:
    return f"{watcher.stream.name}/{_level(watcher.device)}"


@lru_cache(maxsize=10_000)
def _level(device: str) -> str:
    """Return a device as a level of a topic, another one for each device.

    A device of HTTP may be named as it likes.

    Examples
    --------
    >>> _level("pump 3"), _level("a/b"), _level("a+b"), _level(""), _level("-")
    ('pump 3', 'a%2Fb', 'a%2Bb', '-', '%2D')
    """
    if device == "-":
        return "%2D"
    plain = "".join(c if c.isprintable() and c not in "+#/%" else quote(c, "") for c in device)
    return plain or "-"
