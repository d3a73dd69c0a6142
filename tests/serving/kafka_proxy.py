"""A proxy in front of a broker: it cuts connections in the middle of chosen requests, or holds these back.

It reads the frames of Kafka's protocol, so a test chooses the moment and not a time. A connection is cut
behind half of the request, which then never reaches the broker, or behind half of its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Literal

from serving.kafka import Broker

#: Seconds for a moment that a test waits for, on a busy machine.
_PATIENCE: Final = 120.0


class Api(IntEnum):
    """Numbers of requests in Kafka's protocol."""

    PRODUCE = 0
    FETCH = 1
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    END_TXN = 26


@dataclass(eq=False)
class Moment:
    """A request of some kind that is cut or held once."""

    api: Api
    _came: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        """Wait until it has come.

        Raises:
            AssertionError: No such request has come within two minutes.
        """
        assert self._came.wait(_PATIENCE), f"no request of kind {self.api.name} has come"

    def comes(self) -> None:
        self._came.set()


@dataclass(eq=False)
class Cut(Moment):
    """Attributes:
    within: Whether half of the request or half of its answer is the last that comes through.
    """

    within: Literal["request", "answer"] = "request"


@dataclass(eq=False)
class Hold(Moment):
    """No request of the kind reaches the broker; other connections go through."""

    _released: asyncio.Event = field(default_factory=asyncio.Event)

    async def hold(self) -> None:
        self.comes()
        await self._released.wait()

    def release(self) -> None:
        self._released.set()


class KafkaProxy:
    """Forwards connections in a thread of its own; `kafka_proxy` starts and ends it."""

    def __init__(self, port: int, target: int) -> None:
        self._port = port
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._cuts: list[Cut] = []
        self._holds: list[Hold] = []
        self._listening = threading.Event()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))

    def start(self) -> None:
        self._thread.start()
        assert self._listening.wait(_PATIENCE), f"the proxy does not listen on port {self._port}"

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_PATIENCE)

    def cut(self, api: Api, within: Literal["request", "answer"]) -> Cut:
        """Cut the connection of the next request of this kind."""
        cut = Cut(api, within=within)
        self._loop.call_soon_threadsafe(self._cuts.append, cut)
        return cut

    @contextmanager
    def holding(self, api: Api) -> Iterator[Hold]:
        """Hold back all requests of this kind; at the end their connections are cut."""
        hold = Hold(api)
        self._loop.call_soon_threadsafe(self._holds.append, hold)
        try:
            yield hold
        finally:
            self._loop.call_soon_threadsafe(self._holds.remove, hold)
            self._loop.call_soon_threadsafe(hold.release)

    # -- the proxy's thread -------------------------------------------------------------------------------

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._forward, "127.0.0.1", self._port)
        async with server:
            self._listening.set()
            await self._stopping.wait()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _forward(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            broker, to_broker = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            to_client.transport.abort()
            return
        cut_answers: dict[bytes, Cut] = {}
        ways = [
            asyncio.ensure_future(self._requests(client, to_broker, cut_answers)),
            asyncio.ensure_future(_answers(broker, to_client, cut_answers)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            to_client.transport.abort()
            to_broker.transport.abort()

    async def _requests(
        self, client: asyncio.StreamReader, to_broker: asyncio.StreamWriter, cut_answers: dict[bytes, Cut]
    ) -> None:
        async for frame in _frames(client):
            api, correlation = int.from_bytes(frame[4:6]), frame[8:12]
            hold = next((hold for hold in self._holds if hold.api == api), None)
            if hold is not None:
                await hold.hold()
                return
            cut = next((cut for cut in self._cuts if cut.api == api), None)
            if cut is not None:
                self._cuts.remove(cut)
                if cut.within == "request":
                    await _write_half(frame, to_broker, cut)
                    return
                cut_answers[correlation] = cut
            to_broker.write(frame)
            await to_broker.drain()


async def _answers(
    broker: asyncio.StreamReader, to_client: asyncio.StreamWriter, cut_answers: dict[bytes, Cut]
) -> None:
    async for frame in _frames(broker):
        cut = cut_answers.get(frame[4:8])
        if cut is not None:
            await _write_half(frame, to_client, cut)
            return
        to_client.write(frame)
        await to_client.drain()


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Each frame with its size in front; ends with the connection."""
    with contextlib.suppress(asyncio.IncompleteReadError, OSError):
        while True:
            size = await reader.readexactly(4)
            yield size + await reader.readexactly(int.from_bytes(size))


async def _write_half(frame: bytes, writer: asyncio.StreamWriter, cut: Cut) -> None:
    writer.write(frame[: len(frame) // 2])
    with contextlib.suppress(OSError):
        await writer.drain()
    cut.comes()


@contextmanager
def kafka_proxy(broker: Broker) -> Iterator[KafkaProxy]:
    """The proxy before the listener `PROXIED` of a broker."""
    proxy = KafkaProxy(*broker.proxied_ports)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
