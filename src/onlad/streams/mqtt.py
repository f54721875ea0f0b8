"""Messages of an MQTT broker, one series per topic; needs aiomqtt."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from onlad.rows import Names
from onlad.streams.block import MOST, Block, Choice, Say, StreamError
from onlad.streams.lines import LONGEST
from onlad.streams.records import Records, Sample, collected
from onlad.streams.stop import Stop

POLL = 0.2  # seconds between two looks whether to stop
LONGEST_WAIT = 30.0  # seconds between two attempts to connect


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
        raise StreamError(f"{text!r} is no address of a broker: {error}") from None
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
) -> Iterator[Block]:
    """Yield each message as a block: JSON, by the rules of `onlad.streams.records`."""
    readers: dict[str, Records] = {}
    row = 0
    for count, (topic, payload) in enumerate(_messages(address, stop, say)):
        reader = readers.get(topic)
        if reader is None and len(readers) < MOST:
            reader = readers[topic] = Records(choice, known(topic), say)
        found: Iterable[Sample | str]
        if reader is None:
            found = [f"topic {topic!r} is one too many; {MOST} are watched"]
        elif len(payload) > LONGEST:
            found = [f"it has {len(payload)} bytes; a message may have {LONGEST}"]
        else:
            found = reader.read(payload)
        placed = [(f"message {count} of {topic}", each) for each in found]
        block = collected(placed, row, reader.roles if reader else None, row)
        block.series = topic
        row += len(placed)
        yield block


def _messages(address: Address, stop: Stop, say: Say) -> Iterator[tuple[str, bytes]]:
    """Yield messages until stopped, from a loop that runs while it waits for the next."""
    loop = asyncio.new_event_loop()
    source = _received(address, say)
    try:
        while not stop.signal:
            task = loop.create_task(_next(source))
            while not task.done() and not stop.signal:
                loop.run_until_complete(asyncio.wait({task}, timeout=POLL))
            if not task.done():
                task.cancel()
                loop.run_until_complete(asyncio.wait({task}))
                break
            yield task.result()
    finally:
        loop.run_until_complete(source.aclose())
        loop.close()


async def _next(source: AsyncGenerator[tuple[str, bytes], None]) -> tuple[str, bytes]:
    return await anext(source)


async def _received(address: Address, say: Say) -> AsyncGenerator[tuple[str, bytes], None]:
    try:
        import aiomqtt  # noqa: PLC0415  (an extra)
    except ImportError:
        raise StreamError("MQTT needs aiomqtt: pip install onlad[serve]") from None
    where = f"{address.host}:{address.port}"
    wait, connected = 1.0, False
    while True:
        try:
            async with aiomqtt.Client(
                address.host,
                address.port,
                username=address.user,
                password=address.password,
                tls_context=ssl.create_default_context() if address.tls else None,
            ) as client:
                await client.subscribe(address.topic, qos=1)
                say(f"subscribed to {address.topic} at {where}")
                wait, connected = 1.0, True
                async for message in client.messages:
                    payload = message.payload
                    raw = payload if isinstance(payload, bytes) else str(payload).encode()
                    yield str(message.topic), raw
        except aiomqtt.MqttError as error:
            if not connected:
                raise StreamError(f"cannot subscribe at {where}: {error}") from None
            say(f"lost {where}: {error}. Trying again in {wait:g} s; messages may be missed")
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)
