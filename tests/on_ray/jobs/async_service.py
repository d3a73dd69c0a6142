"""A service in a process of its own, and jobs that ask it or a model of Ray Serve.

The service answers over HTTP on the loopback. It remembers each idempotency key with the request that it came
with, and counts how often it came. It can be killed and started again at its port: what it remembers is in a
file, as that of a real service would be.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import aiohttp
from aiohttp import web

from penstock import async_call

_PATIENCE: Final = 30.0


async def serve(port: int, ledger: Path, together: int) -> None:
    """Answer until the process is killed; prints the port when it listens.

    No request is answered before so many wait `together`.
    """
    waiting, all_wait = 0, asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        question = await request.text()
        with ledger.open("a", encoding="utf-8") as log:
            log.write(json.dumps([request.headers["Idempotency-Key"], question]) + "\n")
        nonlocal waiting
        waiting += 1
        if waiting >= together:
            all_wait.set()
        await all_wait.wait()
        await asyncio.sleep(0.02)
        return web.json_response({"line": question, "words": len(question.split())})

    application = web.Application()
    application.router.add_post("/", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, reuse_address=True, backlog=together + 128)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


class Service:
    """The process of the service, for a test."""

    def __init__(self, folder: Path, *, together: int = 1) -> None:
        self.ledger = folder / "ledger.jsonl"
        self.together = together
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def start(self) -> None:
        command = [sys.executable, __file__, str(self.port), str(self.ledger), str(self.together)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(_PATIENCE)
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None

    def requests(self) -> list[tuple[str, str]]:
        """Key and question of all requests that came."""
        if not self.ledger.exists():
            return []
        return [tuple(json.loads(line)) for line in self.ledger.read_text().splitlines()]


class Asks:
    """Asks the service."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/"

    async def open(self, context: Any) -> None:
        # A session of aiohttp has 100 connections unless told otherwise.
        self.session = aiohttp.ClientSession(raise_for_status=True, connector=aiohttp.TCPConnector(limit=0))

    async def __call__(self, line: str) -> dict[str, Any]:
        headers = {"Idempotency-Key": async_call().idempotency_key}
        async with self.session.post(self.url, data=line, headers=headers) as response:
            answer: dict[str, Any] = await response.json()
            return answer

    async def close(self) -> None:
        await self.session.close()


class AsksServe:
    """Asks an application of Ray Serve, whole batches at a time."""

    def __init__(self, application: str) -> None:
        self.application = application

    async def open(self, context: Any) -> None:
        from ray import serve

        self.handle = serve.get_app_handle(self.application)

    def __call__(self, lines: list[str]) -> Any:
        return self.handle.remote(lines)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
