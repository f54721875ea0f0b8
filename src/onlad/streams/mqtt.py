"""Messages of an MQTT broker, one series per topic."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

from onlad.rows import Names
from onlad.streams.block import MOST, Block, Choice, Say, StreamError
from onlad.streams.client import BrokerError, Calls, Client
from onlad.streams.lines import LONGEST
from onlad.streams.records import Records, Sample, collected
from onlad.streams.stop import Stop
from onlad.streams.wire import Login, Publication, acknowledgement

POLL = 0.2  # seconds between two checks whether to stop
LONGEST_WAIT = 30.0  # seconds between two attempts to connect
WAITING = 1000  # messages; more are left in the broker

Message: TypeAlias = (
    "tuple[str, bytes | int]"  # topic and payload, or the length of one that was too long
)


class Address(NamedTuple):
    """Where to subscribe, and to what."""

    host: str
    port: int
    user: str | None
    password: str | None
    topic: str
    tls: bool


def parse_address(text: str) -> Address:
    """Return what an address such as ``mqtt://user:secret@host:1883/plant/+/sensors`` says.

    Examples
    --------
    >>> parse_address("mqtt://broker/plant/#")
    Address(host='broker', port=1883, user=None, password=None, topic='plant/#', tls=False)
    """
    try:
        parts = urlsplit(text.replace("#", "%23").replace("?", "%3F"))
        tls = parts.scheme == "mqtts"
        port = parts.port or (8883 if tls else 1883)
    except ValueError as error:
        raise StreamError(f"{text!r} is not the address of a broker: {error}") from None
    topic = unquote(parts.path[1:])
    if not parts.hostname or not topic:
        raise StreamError(f"{text!r} must be mqtt://[USER:PASSWORD@]HOST[:PORT]/TOPIC")
    user = None if parts.username is None else unquote(parts.username)
    password = None if parts.password is None else unquote(parts.password)
    return Address(parts.hostname, port, user, password, topic, tls)


def blocks(
    address: Address,
    choice: Choice,
    known: Callable[[str], Names],
    stop: Stop,
    say: Say,
    *,
    grows: bool = False,
) -> Iterator[Block]:
    """Yield each message as a block: JSON, by the rules of `onlad.streams.records`."""
    readers: dict[str, Records] = {}
    row = 0
    for count, (topic, payload) in enumerate(_messages(address, stop, say)):
        reader = readers.get(topic)
        if reader is None and len(readers) < MOST:
            reader = readers[topic] = Records(choice, known(topic), say, grows=grows)
        size = payload if isinstance(payload, int) else len(payload)
        found: Iterable[Sample | str]
        if reader is None:
            found = [f"topic {topic!r} is one too many: at most {MOST} are watched"]
        elif isinstance(payload, int) or size > LONGEST:
            found = [f"it has {size} bytes; a message may have {LONGEST}"]
        else:
            found = reader.read(payload)
        placed = [(f"message {count} of {topic}", each) for each in found]
        for block in collected(placed, row, reader.roles if reader else None, row):
            block.series = topic
            yield block
        row += len(placed)


def _messages(address: Address, stop: Stop, say: Say) -> Iterator[Message]:
    """Yield messages until stopped, from a loop that runs while it waits for the next."""
    loop = asyncio.new_event_loop()
    source = _Subscription(address, say)
    listening = loop.create_task(source.run())
    tasks: set[asyncio.Task[Any]] = {listening}
    try:
        while not stop.signal:
            task = loop.create_task(source.next())
            tasks = {listening, task}
            while not task.done() and not stop.signal:
                first = asyncio.wait(tasks, timeout=POLL, return_when=asyncio.FIRST_COMPLETED)
                loop.run_until_complete(first)
                if listening.done():
                    listening.result()
            if task.done():
                yield task.result()
    finally:
        for each in tasks:
            each.cancel()
        loop.run_until_complete(asyncio.wait(tasks))
        loop.run_until_complete(asyncio.sleep(0))  # the connection is closed
        loop.close()


class _Subscription:
    """A connection that is made again when it is lost. Messages wait until they are asked for."""

    def __init__(self, address: Address, say: Say) -> None:
        self._address, self._say = address, say
        self._where = f"{address.host}:{address.port}"
        self._queue: asyncio.Queue[Message] = asyncio.Queue()
        self._client: Client | None = None

    async def next(self) -> Message:
        """Return the next message."""
        message = await self._queue.get()
        if self._client is not None:
            self._client.read_on()
        return message

    async def run(self) -> None:
        """Stay connected; `StreamError` if there is no broker at first."""
        host, port, user, password, topic, tls = self._address
        context = ssl.create_default_context() if tls else None
        name = f"onlad-{secrets.token_hex(6)}"
        login = Login(host, port, name, username=user, password=password, tls=context)
        calls = Calls(
            self._take, self._take, lambda mid: None, lambda: self._queue.qsize() >= WAITING
        )
        wait, connected = 1.0, False
        while True:
            try:
                client, _ = await Client.connect(login, calls)
                self._client = client
                client.open()
                await client.subscribe(topic, 1, 1)
                self._say(f"subscribed to {topic} at {self._where}")
                wait, connected = 1.0, True
                while not client.lost.done():
                    client.beat(login.keepalive)
                    await asyncio.wait([client.lost], timeout=1.0)
                client.lost.result()
            except BrokerError as error:
                if not connected:
                    raise StreamError(f"cannot subscribe at {self._where}: {error}") from None
                again = f"Trying again in {wait:g} s; messages may be missed"
                self._say(f"lost {self._where}: {error}. {again}")
            finally:
                if self._client is not None:
                    self._client.close()
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)

    def _take(self, message: Publication, size: int = 0) -> None:
        if message.mid and self._client is not None:
            self._client.write(acknowledgement(message.mid))
        if not message.retained:  # an old message is not a new sample
            payload = size or message.payload
            self._queue.put_nowait((message.topic.decode("utf-8", "replace"), payload))
