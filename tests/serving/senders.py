"""Clients of a webhook: each repeats its request until it is accepted or refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final

import aiohttp

#: Seconds for a step of the senders' thread, on a busy machine.
_PATIENCE: Final = 60.0
#: Seconds between two tries of a sender; pauses grow while nothing answers.
_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.5
#: Statuses after which a request is repeated, besides those of a server's failure.
_LATER: Final = (408, 429)


class Senders:
    """Sends requests in a thread of its own; `senders` starts and ends it.

    Attributes:
        accepted: Bodies that were answered with 200.
        refused: Statuses of requests that must not be repeated, by their bodies.
    """

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self.accepted: list[bytes] = []
        self.refused: dict[bytes, int] = {}
        self._url = url
        self._headers = headers
        self._loop = asyncio.new_event_loop()
        self._sending: list[Future[None]] = []
        self._tries: set[asyncio.Task[int]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def start(self) -> None:
        self._thread.start()
        self._session = self._do(self._opened)

    def stop(self) -> None:
        self._do(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        self._loop.close()

    def send(self, body: bytes, **headers: str) -> None:
        """Begin to send a request."""
        sending = asyncio.run_coroutine_threadsafe(self._send(body, headers), self._loop)
        self._sending.append(sending)

    def cut(self) -> None:
        """Cut all connections; the requests are repeated."""
        self._do(self._cut)

    def settle(self) -> None:
        """Let the senders handle what has arrived, and raise the error of one that has failed."""
        self._do(lambda: asyncio.sleep(0))
        for sending in self._sending:
            if sending.done():
                sending.result()

    def _do(self, step: Callable[[], Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(step(), self._loop).result(_PATIENCE)

    # -- the senders' thread ------------------------------------------------------------------------------

    async def _opened(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        return aiohttp.ClientSession(headers=self._headers, connector=connector)

    async def _send(self, body: bytes, headers: dict[str, str]) -> None:
        pause = _PAUSE
        while True:
            this_try = asyncio.ensure_future(self._status(body, headers))
            self._tries.add(this_try)
            await asyncio.wait([this_try])
            self._tries.discard(this_try)
            if this_try.cancelled():
                continue
            status = this_try.result()
            if status == 200:
                self.accepted.append(body)
                return
            if 400 <= status < 500 and status not in _LATER:
                self.refused[body] = status
                return
            pause = _PAUSE if status else min(2 * pause, _LONGEST_PAUSE)
            await asyncio.sleep(pause)

    async def _status(self, body: bytes, headers: dict[str, str]) -> int:
        try:
            async with self._session.post(self._url, data=body, headers=headers) as answer:
                return answer.status
        except aiohttp.ClientError:
            return 0

    async def _cut(self) -> None:
        for this_try in self._tries:
            this_try.cancel()

    async def _close(self) -> None:
        sending = asyncio.all_tasks() - {asyncio.current_task()}
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
        await self._session.close()


@contextmanager
def senders(url: str, headers: dict[str, str]) -> Iterator[Senders]:
    started = Senders(url, headers)
    started.start()
    try:
        yield started
    finally:
        started.stop()
