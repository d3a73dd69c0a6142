"""A proxy in front of an MQTT broker: it cuts connections, and knows which messages were acknowledged.

It reads the packets of the protocol. A message has an id on its way to the client, and the id comes back as
an acknowledgement.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

#: Seconds for the proxy to start and to end, on a busy machine.
_PATIENCE: Final = 120.0
_PUBLISH: Final = 3
_PUBACK: Final = 4


class MqttProxy:
    """Forwards connections in a thread of its own; `mqtt_proxy` starts and ends it.

    Args:
        is_5: Whether the clients speak version 5, whose messages have properties.

    Attributes:
        acknowledged: Payloads of messages whose acknowledgement was passed to the broker.
    """

    def __init__(self, port: int, target: int, *, is_5: bool) -> None:
        self.acknowledged: list[bytes] = []
        self._port = port
        self._target = target
        self._is_5 = is_5
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()
        self._listening = threading.Event()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))

    def start(self) -> None:
        self._thread.start()
        assert self._listening.wait(_PATIENCE), f"the proxy does not listen on port {self._port}"

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_PATIENCE)
        self._loop.close()

    def cut(self) -> None:
        """Cut all connections; returns when the clients can notice it."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(_PATIENCE)

    def settle(self) -> None:
        """Let the proxy handle what has arrived."""
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._loop).result(_PATIENCE)

    # -- the proxy's thread -------------------------------------------------------------------------------

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._forward, "127.0.0.1", self._port)
        async with server:
            self._listening.set()
            await self._stopping.wait()
            await self._cut()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def _forward(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        broker, to_broker = await asyncio.open_connection("127.0.0.1", self._target)
        self._open |= {to_client, to_broker}
        sent: dict[bytes, bytes] = {}
        ways = [
            asyncio.ensure_future(self._to_broker(client, to_broker, sent)),
            asyncio.ensure_future(self._to_client(broker, to_client, sent)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for writer in (to_client, to_broker):
                writer.transport.abort()
                self._open.discard(writer)

    async def _to_broker(
        self, client: asyncio.StreamReader, to_broker: asyncio.StreamWriter, sent: dict[bytes, bytes]
    ) -> None:
        async for head, body in _packets(client):
            to_broker.write(head + body)
            await to_broker.drain()
            if head[0] >> 4 == _PUBACK and body[:2] in sent:
                self.acknowledged.append(sent.pop(body[:2]))

    async def _to_client(
        self, broker: asyncio.StreamReader, to_client: asyncio.StreamWriter, sent: dict[bytes, bytes]
    ) -> None:
        async for head, body in _packets(broker):
            if head[0] >> 4 == _PUBLISH and head[0] & 0b110:
                at = 2 + int.from_bytes(body[:2])
                packet_id, rest = body[at : at + 2], body[at + 2 :]
                sent[packet_id] = rest[1 + rest[0] :] if self._is_5 else rest
            to_client.write(head + body)
            await to_client.drain()


async def _packets(reader: asyncio.StreamReader) -> AsyncIterator[tuple[bytes, bytes]]:
    """Each packet: its head with the size, and its body; ends with the connection."""
    with contextlib.suppress(asyncio.IncompleteReadError, OSError):
        while True:
            head = await reader.readexactly(2)
            size, bits = head[1] & 127, 0
            while head[-1] & 128:
                head += await reader.readexactly(1)
                bits += 7
                size |= (head[-1] & 127) << bits
            yield head, await reader.readexactly(size)


@contextmanager
def mqtt_proxy(port: int, target: int, *, is_5: bool) -> Iterator[MqttProxy]:
    proxy = MqttProxy(port, target, is_5=is_5)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
