"""The server in a thread of the test's process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from penstock.actors.web.access import Access
from penstock.actors.web.application import bind, make_application
from penstock.actors.web.server import JobDirectory, WebServer


@contextmanager
def served(
    directory: JobDirectory,
    *,
    token: str | None = None,
    read_only: bool = False,
    hides_records: bool = False,
    hosts: tuple[str, ...] = (),
) -> Iterator[WebServer]:
    """A server on loopback that shows these jobs inside."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="served")
    thread.start()
    bound = bind("127.0.0.1", 0)
    port = bound.getsockname()[1]
    access = Access(port, ["127.0.0.1", "localhost", *hosts], token)
    address = f"http://127.0.0.1:{port}/"

    async def begin() -> tuple[WebServer, web.AppRunner]:
        server = WebServer(directory, access, address, read_only=read_only, hides_records=hides_records)
        runner = web.AppRunner(make_application(server), access_log=None, shutdown_timeout=5.0)
        await runner.setup()
        await web.SockSite(runner, bound).start()
        return server, runner

    server, runner = asyncio.run_coroutine_threadsafe(begin(), loop).result()
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
