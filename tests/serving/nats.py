"""A real NATS server with JetStream from a wheel, which is ready in milliseconds."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import nats
from nats.js import JetStreamContext

from serving.kafka import free_ports
from serving.process import Server

T = TypeVar("T")

PASSWORD = "open-sesame"


class NatsServer(Server):
    @property
    def url(self) -> str:
        return f"nats://me:{PASSWORD}@127.0.0.1:{self.port}"

    def run(self, work: Callable[[JetStreamContext], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine with a connection of its own."""

        async def connected() -> T:
            client = await nats.connect(self.url)
            try:
                return await work(client.jetstream())
            finally:
                await client.close()

        return asyncio.run(connected())


@contextmanager
def nats_server(folder: Path) -> Iterator[NatsServer]:
    (port,) = free_ports(1)
    folder.mkdir(parents=True, exist_ok=True)
    program = str(Path(sys.executable).parent / "nats-server")
    words = ["-js", "-sd", str(folder / "data"), "-a", "127.0.0.1", "-p", str(port)]
    server = NatsServer([program, *words, "--user", "me", "--pass", PASSWORD], port, folder / "nats.log")
    try:
        server.start()
        yield server
    finally:
        server.kill()
