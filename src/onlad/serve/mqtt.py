"""MQTT: samples in, verdicts, states and alarms out, over one connection that comes back.

Nothing is acknowledged to the broker before it is in the journal. After a crash the broker sends
again what was not acknowledged; what is in the journal already is known by its packet identifier
and digest, and is acknowledged without being learned twice.

aiomqtt has the connection and its place in the event loop. It acknowledges by itself and knows no
duplicates, so messages are taken from the client of paho below it, where both are (`_client`).
"""

from __future__ import annotations

import asyncio
import math
import random
import time
import zlib
from asyncio import FIRST_COMPLETED
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import aiomqtt
import orjson
from paho.mqtt.client import MQTT_CLEAN_START_FIRST_ONLY, MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from onlad.reference import Array
from onlad.serve import discovery, logs, marks, wire
from onlad.serve.config import MqttTable, StreamTable
from onlad.serve.intake import Item, told
from onlad.serve.journal import Mark, digest
from onlad.serve.outbox import Message
from onlad.serve.service import Service
from onlad.serve.topics import Pattern
from onlad.serve.watcher import Watcher
from onlad.verdict import Verdicts

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0  # seconds before the next attempt to connect
MOST_OUT = 1_000_000  # bytes that wait for the broker; beyond that verdicts are dropped
INFLIGHT = 5000  # alarms and states on their way at once
NO_BROKER = "there is no connection to the broker"
FOREVER = 0xFFFFFFFF  # a session's end, in MQTT 5


class Mqtt:
    """The broker's side of a service."""

    def __init__(self, service: Service, table: MqttTable) -> None:
        self.service, self.table = service, table
        self.streams: list[tuple[Pattern, int, StreamTable]] = [
            (stream.pattern, _identifier(stream.pattern), stream)
            for stream in service.streams.values()
            if stream.pattern
        ]
        self.connected = False
        self.connections = 0
        self._client: aiomqtt.Client | None = None
        self._paho: Any = None  # that of the connection, from the broker's greeting on
        self._socket: wire.Buffered | None = None
        self._again: asyncio.Event = asyncio.Event()  # set: leave this connection
        self._alarms: dict[int, str] = {}  # packet identifier -> alarm
        self._batch: list[bytes] = []  # acknowledgements and verdicts of the step
        self._states: dict[int, tuple[str, float]] = {}  # what was published: state, when
        service.trouble["mqtt"] = NO_BROKER  # until it is there
        service.listeners.append(self._verdicts)
        service.after_step.append(self._flush)
        service.forgetting.append(self._forget)
        service.outbox.couriers["mqtt"] = self._alarm

    async def run(self) -> None:
        """Stay connected, for ever."""
        pause = FIRST_PAUSE
        while True:
            self.service.trouble["mqtt"] = NO_BROKER
            try:
                await self._session()
                pause = FIRST_PAUSE
            except (
                aiomqtt.MqttError,
                ValueError,
            ) as error:  # also of a certificate that was changed
                if self.connected:
                    pause = FIRST_PAUSE
                logs.warning("no broker", host=self.table.host, why=str(error), again_in=pause)
            finally:
                self.connected, self._client, self._paho = False, None, None
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _session(self) -> None:
        """Be connected once."""
        table = self.table
        async with self._new_client() as client:
            self._client, self.connected = client, True
            self.connections += 1
            for pattern, identifier, _ in self.streams:
                how: dict[str, Any] = {"qos": table.qos}
                if table.version == "5":
                    # It can leave retained messages out; 3.1.1 cannot, so `_take` does too.
                    how = {"options": SubscribeOptions(qos=table.qos, retainHandling=2)}
                    # A broker may send a copy for each subscription that matches.
                    how["properties"] = Properties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
                    how["properties"].SubscriptionIdentifier = identifier
                # The answer stands behind all that the broker has kept for us.
                waiting = client.subscribe(pattern.filter, timeout=math.inf, **how)
                asked: asyncio.Future[Any] = asyncio.ensure_future(waiting)
                lost: asyncio.Future[Any] = client._disconnected
                await asyncio.wait({asked, lost}, return_when=FIRST_COMPLETED)
                if not asked.cancel():
                    asked.result()
            self._publish("status", b"online", retain=True)
            self.service.trouble.pop("mqtt", None)
            logs.info("connected", host=table.host, version=table.version)
            for message in self.service.outbox.pending("mqtt"):
                self._alarm(message)
            for watcher in self.service.watchers.values():
                self._announce(watcher)
            while not self._again.is_set():
                if client._disconnected.done():
                    why = client._disconnected.exception()
                    raise aiomqtt.MqttError(f"the connection was lost: {why}") from why
                self._refresh()
                await asyncio.wait([client._disconnected], timeout=min(1.0, table.state_every / 4))
            await asyncio.sleep(1.0)  # the disk needs time too

    async def stop(self) -> None:
        """Say goodbye: the will is only for those who cannot."""
        if self._client is not None:
            info = self._publish("status", b"offline", retain=True)
            for _ in range(50):
                if info is None or info.is_published():
                    break
                await asyncio.sleep(0.02)

    def _new_client(self) -> aiomqtt.Client:
        table = self.table
        five = table.version == "5"
        settings: dict[str, Any] = {}
        if five:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = FOREVER
            properties.ReceiveMaximum = marks.MOST
            settings |= {"properties": properties, "clean_start": False}
        else:
            settings |= {"clean_session": False, "clean_start": MQTT_CLEAN_START_FIRST_ONLY}
        if table.tls:
            settings["tls_context"] = table.context()
        client = aiomqtt.Client(
            table.host,
            table.port or (8883 if table.tls else 1883),
            identifier=table.client_id,
            username=table.username,
            password=table.secret(),
            protocol=aiomqtt.ProtocolVersion.V5 if five else aiomqtt.ProtocolVersion.V311,
            keepalive=table.keepalive,
            will=aiomqtt.Will(f"{table.prefix}/status", b"offline", 1, True),
            max_inflight_messages=INFLIGHT,
            **settings,
        )
        paho: Any = client._client
        greet = client._on_connect

        def on_connect(*args: Any) -> None:
            if not args[2].session_present:
                self.service.new_session()
            self._again.clear()
            self._alarms.clear()
            self._states.clear()
            self._batch.clear()
            self._paho = paho
            # The greeting has been read to its end, so here one packet ends and the next begins:
            # messages may stand behind it.
            paho._sock = self._socket = wire.Buffered(
                paho._sock,
                lambda: self.service.busy,
                lambda message: self._take(paho, message),
                five,
            )
            greet(*args)

        paho.on_connect = on_connect
        paho.on_message = self._message
        paho.on_publish = self._published
        paho.manual_ack_set(True)
        return client

    # -- in -----------------------------------------------------------------------------------

    def _message(self, paho: Any, _: object, message: MQTTMessage) -> None:
        """Take a message in that is so large that paho had to put it together."""
        topic, payload = message._topic, bytes(message.payload)
        head = (message.qos, message.mid, bool(message.dup), bool(message.retain))
        to = tuple(getattr(message.properties, "SubscriptionIdentifier", ()))
        self._take(paho, wire.Publication(topic, payload, *head, to))

    def _take(self, paho: Any, message: wire.Publication) -> None:
        """Take one message in. Called for each, so it does little."""
        if message.retained:  # what was said before we listened is not a new sample
            paho.ack(message.mid, message.qos)
            return
        try:
            topic = message.topic.decode()
        except UnicodeDecodeError:
            paho.ack(message.mid, message.qos)
            self.service.drop("topic")
            return
        payload, arrived, mark = message.payload, time.perf_counter(), None
        if message.qos:
            mark = Mark(message.mid, digest(message.topic, payload))
        to = message.subscriptions
        items = [
            Item(stream, device, payload, arrived, mark, message.again)
            for pattern, identifier, stream in self.streams
            if (not to or identifier in to) and (device := pattern.device(topic)) is not None
        ]
        if not items:
            paho.ack(message.mid, message.qos)
            return
        if mark is not None:
            # Of several streams the last one acknowledges: one step journals them all or none.
            items[-1].done = lambda: self._done(paho, mark.mid)
            items[-1].refused = self._again.set
        if not self.service.submit(*items) and mark is not None:
            self._again.set()  # not acknowledged, so it comes again

    def _done(self, paho: Any, mid: int) -> None:
        # A message of an earlier connection comes again; it is acknowledged then.
        if paho is self._paho:
            self._batch.append(wire.acknowledgement(mid))

    # -- out ----------------------------------------------------------------------------------

    def _publish(self, topic: str, payload: bytes, *, retain: bool = False) -> Any:
        """Publish one message that must arrive; without a connection return None."""
        if self._client is None or not self.connected:
            return None
        return self._client._client.publish(f"{self.table.prefix}/{topic}", payload, 1, retain)

    def _flush(self) -> None:
        """Send what a step has gathered."""
        if self._batch and self._paho is not None:
            self._paho._packet_queue(wire.PUBACK, b"".join(self._batch), 0, 0)
        self._batch.clear()
        if self._paho is not None and self._socket is not None and self._socket.blocked:
            self._read_on(self._paho)

    def _read_on(self, paho: Any) -> None:
        """Read what was left while too much waited: TLS may have it, and then nothing wakes us."""
        try:
            paho.loop_read()
            while paho._sock is self._socket and self._socket.pending():
                paho.loop_read()
        except OSError:
            self._again.set()

    @property
    def _stuck(self) -> bool:
        """Whether the broker takes nothing, so that what is for it piles up here."""
        if self._client is None:
            return False
        return sum(packet["to_process"] for packet in self._client._client._out_packet) > MOST_OUT

    def _published(self, _paho: Any, _data: object, mid: int, *_rest: object) -> None:
        alarm = self._alarms.pop(mid, None)
        if alarm is not None:
            self.service.outbox.delivered("mqtt", alarm)

    def _verdicts(self, watcher: Watcher, first: int, times: Array, verdicts: Verdicts) -> None:
        which: Sequence[int] = range(len(verdicts))
        if self.table.verdicts != "all":
            anomalies = verdicts.is_anomaly.nonzero()[0].tolist()
            which = anomalies if self.table.verdicts == "anomalies" else ()
        if which and (not self.connected or self._stuck):
            self.service.drop("verdict", len(which))
        elif which:
            topic = f"{self.table.prefix}/{_topic(watcher)}/verdict".encode()
            five = self.table.version == "5"
            for i in which:
                said = told(watcher, verdicts, i, first + i, float(times[i]))
                self._batch.append(wire.publication(topic, orjson.dumps(said), five))
        state = self._states.get(watcher.number)
        if self.connected and (state is None or state[0] != watcher.state):
            if state is None:
                self._announce(watcher)
            self._tell_state(watcher)

    def _alarm(self, message: Message) -> None:
        # Without a connection it stays in the outbox, and goes out at the next one.
        place = f"{message['stream']}/{_level(message['device'])}"
        info = self._publish(f"{place}/alarm", orjson.dumps(message))
        if info is not None:
            self._alarms[info.mid] = message["id"]
            watcher = self.service.watchers.get((message["stream"], message["device"]))
            if watcher is not None:  # an alarm may be over by the end of the step it began in
                self._tell_state(watcher, "alarm" if message["kind"] == "anomaly" else "")

    def _refresh(self) -> None:
        """Tell the states that are old news."""
        now = time.monotonic()
        for watcher in self.service.watchers.values():
            state, when = self._states.get(watcher.number, ("", 0.0))
            changed = state != watcher.state
            if changed or (now - when >= self.table.state_every and watcher.last is not None):
                self._tell_state(watcher)

    def _tell_state(self, watcher: Watcher, state: str = "") -> None:
        alarm, state = watcher.alarm, state or watcher.state
        said = watcher.told() | {"state": state, "alarm": alarm.message() if alarm else None}
        self._states[watcher.number] = (state, time.monotonic())
        self._publish(f"{_topic(watcher)}/state", orjson.dumps(said), retain=True)

    def _announce(self, watcher: Watcher) -> None:
        """Let Home Assistant know of a device."""
        if self.table.discovery is None or self._client is None:
            return
        for topic, payload in discovery.configs(self.table, watcher.key, _topic(watcher)):
            self._client._client.publish(topic, orjson.dumps(payload), 1, True)

    def _forget(self, watcher: Watcher) -> None:
        """Take back what the broker retains of a device."""
        self._states.pop(watcher.number, None)
        self._publish(f"{_topic(watcher)}/state", b"", retain=True)
        if self.table.discovery is not None and self._client is not None:
            for topic, _ in discovery.configs(self.table, watcher.key, _topic(watcher)):
                self._client._client.publish(topic, b"", 1, True)


def _identifier(pattern: Pattern) -> int:
    """Return what names a subscription to the broker, and is the same at every start."""
    return zlib.crc32(pattern.filter.encode()) % 268_435_455 + 1


def _topic(watcher: Watcher) -> str:
    return f"{watcher.stream.name}/{_level(watcher.device)}"


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


__all__ = ["Mqtt"]
