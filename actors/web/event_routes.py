"""Server-sent events: the page hears what is new, and how old it is when nothing is."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from aiohttp import web

from penstock.actors.web.job_watcher import JobWatcher
from penstock.actors.web.route import Route, dumps
from penstock.actors.web.server import WebServer

#: Seconds between two looks at a job that says nothing, and between two comments that keep proxies awake.
_LOOK: Final = 1.0
_BEAT: Final = 10.0
#: Seconds between two looks at the list of jobs.
_OVERVIEW: Final = 2.0


async def job_events(server: WebServer, request: web.Request) -> Any:
    """Reports and samples of a job as they come, until it has ended or the browser leaves."""
    watcher = await server.watcher(request)
    stream = await _open(request)
    with suppress(ConnectionResetError):  # the browser has left
        await _tell(server, watcher, stream)
    return stream


async def _tell(server: WebServer, watcher: JobWatcher, stream: web.StreamResponse) -> None:
    async with watcher.viewed():
        if watcher.report is not None:
            await _send_report(stream, watcher)
        seen, quiet = watcher.version, 0.0
        while not (server.is_closing or (watcher.has_ended and seen == watcher.version)):
            if await watcher.wait_for_change(seen, _LOOK):
                seen, quiet = watcher.version, 0.0
                await _send_report(stream, watcher)
                if watcher.newest_sample is not None:
                    await _send(stream, "sample", dumps(watcher.newest_sample.to_dict()).encode())
            else:
                quiet += _LOOK
                if not watcher.is_answering:
                    await _send(stream, "age", dumps(watcher.status()).encode())
                elif quiet >= _BEAT:
                    quiet = 0.0
                    await stream.write(b": nothing new\n\n")
    await _send(stream, "end", b"{}")


async def overview_events(server: WebServer, request: web.Request) -> Any:
    """The list of jobs whenever it changes."""
    stream = await _open(request)
    with suppress(ConnectionResetError):  # the browser has left
        await _tell_overview(server, stream)
    return stream


async def _tell_overview(server: WebServer, stream: web.StreamResponse) -> None:
    sent, quiet = b"", 0.0
    while not server.is_closing:
        now = dumps(await server.overview()).encode()
        if now != sent:
            sent, quiet = now, 0.0
            await _send(stream, "overview", now)
        elif quiet >= _BEAT:
            quiet = 0.0
            await stream.write(b": nothing new\n\n")
        quiet += _OVERVIEW
        await server.pause(_OVERVIEW)


async def _open(request: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    )
    await stream.prepare(request)
    return stream


async def _send_report(stream: web.StreamResponse, watcher: JobWatcher) -> None:
    status = dumps(watcher.status()).encode()
    await _send(stream, "report", b'{"report": ' + watcher.encoded() + b", " + status[1:])


async def _send(stream: web.StreamResponse, event: str, data: bytes) -> None:
    await stream.write(b"event: " + event.encode() + b"\ndata: " + data + b"\n\n")


ROUTES: Final = (
    Route("GET", "/v1/events", overview_events, "The list of jobs, as server-sent events `overview`"),
    Route(
        "GET",
        "/v1/jobs/{job}/events",
        job_events,
        "A job, as server-sent events `report`, `sample`, `age` and `end`",
    ),
)
