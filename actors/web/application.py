"""The server as an aiohttp application: its paths, the page's files, and the checks of every request."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import ray
from aiohttp import web

from penstock.actors.shared.actor_calls import ray_text
from penstock.actors.web.access import SAFE_HEADERS, Access, Problem, check_bind
from penstock.actors.web.answers import dumps
from penstock.actors.web.routes import ROUTES
from penstock.actors.web.server import JobDirectory, Route, WebServer
from penstock.runtime.error_text import error_text
from penstock.runtime.errors import (
    ConfigurationError,
    DeploymentError,
    JobTimeoutError,
    ObjectNotFoundError,
    PenstockError,
)

logger = logging.getLogger(__name__)

#: The files of the page.
PAGE: Final = Path(__file__).with_name("page")
#: Maximum size of a request, in bytes.
_LARGEST: Final = 64 * 1024
#: HTTP status by class of error; the first matching class counts.
_STATUS: Final = (
    (JobTimeoutError, 503),
    (DeploymentError, 409),
    (ConfigurationError, 400),
    (ObjectNotFoundError, 404),
    (PenstockError, 409),
)

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_application(server: WebServer) -> web.Application:
    application = web.Application(middlewares=[_guard(server)], client_max_size=_LARGEST)
    for route in ROUTES:
        application.router.add_route(route.method, route.path, _handler(server, route))
    application.router.add_route("*", "/v1/{rest:.*}", _nowhere)
    application.router.add_get("/", _index)
    if PAGE.is_dir():
        application.router.add_static("/", PAGE, follow_symlinks=False)

    async def end_streams(_: web.Application) -> None:
        server.end_streams()

    async def close(_: web.Application) -> None:
        await server.close()

    application.on_shutdown.append(end_streams)
    application.on_cleanup.append(close)
    return application


async def _nowhere(request: web.Request) -> web.StreamResponse:
    raise Problem(404, f"there is no {request.method} {request.path}; /v1/openapi.json has all paths")


async def _index(_: web.Request) -> web.StreamResponse:
    page = PAGE / "index.html"
    if not page.exists():
        raise Problem(404, "this installation has no web page; /v1/openapi.json describes the REST interface")
    return web.FileResponse(page)


def _handler(server: WebServer, route: Route) -> _Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        if not route.is_open:
            server.access.check_session(
                request.cookies.get(server.access.cookie), request.headers.get("Authorization")
            )
        if route.changes:
            server.access.check_change(request.headers)
            if server.read_only and not route.is_open:
                raise Problem(403, "this server was started with --read-only")
        if route.shows_records and server.hides_records:
            raise Problem(403, "this server was started with --hide-records")
        answer = await route.handler(server, request)
        if isinstance(answer, web.StreamResponse):
            return answer
        return web.json_response(answer, status=route.status, dumps=dumps)

    return handle


def _guard(server: WebServer) -> Any:
    """Middleware that checks every request and sets headers, including for files and unknown paths."""

    @web.middleware
    async def guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            server.access.check_place(request.headers.get("Host"), request.headers.get("Origin"))
            response = await handler(request)
        except Problem as error:
            response = _errors(error.status, str(error))
        except web.HTTPException as error:
            response = _errors(error.status, f"{request.method} {request.path}: {error.reason}")
            if "Allow" in error.headers:
                response.headers["Allow"] = error.headers["Allow"]
        except (PenstockError, ray.exceptions.RayError) as error:
            status = next((status for kind, status in _STATUS if isinstance(error, kind)), 503)
            is_of_ray = isinstance(error, ray.exceptions.RayError)
            response = _errors(status, ray_text(error) if is_of_ray else str(error))
        except Exception as error:
            logger.exception("%s %s", request.method, request.path)
            response = _errors(500, f"{error_text(error)}; the server's log says more")
        if not response.prepared:
            response.headers.update(SAFE_HEADERS)
            if request.path.startswith("/v1/"):
                response.headers["Cache-Control"] = "no-store"
        return response

    return guard


def _errors(status: int, text: str) -> web.Response:
    return web.json_response({"errors": [text]}, status=status)


#: First port to try if the user gives no port; 8265 and 8266 are often Ray's dashboard.
FIRST_PORT: Final = 8275

_TRIED: Final = 20
#: Hosts by which this machine reaches itself.
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
#: Addresses that mean every interface.
_EVERYWHERE: Final = ("0.0.0.0", "::")
#: Seconds that a shutdown waits for open streams to end.
_CLOSING: Final = 5.0


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Settings of a server.

    Attributes:
        port: `None` takes the first free one of the 20 ports from 8275; 0 takes any free port.
        ends_with_input: Stop when standard input closes, that is, when the parent program has ended.
        hides_records: Hide users' data: records on edges and values of keys.
    """

    host: str = "127.0.0.1"
    port: int | None = None
    storage: str | None = None
    read_only: bool = False
    token: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    ends_with_input: bool = False
    hides_records: bool = False


def serve(options: ServerOptions, on_ready: Callable[[str, str], None]) -> None:
    """Serve until SIGINT, SIGTERM or, with `ends_with_input`, the end of standard input.

    `on_ready` gets the server's address and the login address.
    """
    check_bind(options.host, options.token)
    asyncio.run(_serve(options, on_ready))


async def _serve(options: ServerOptions, on_ready: Callable[[str, str], None]) -> None:
    bound = bind(options.host, options.port)
    port = bound.getsockname()[1]
    names = [options.host] if options.host not in _EVERYWHERE else []
    access = Access(port, [*names, *_LOOPBACK, *options.allowed_hosts], options.token)
    shown = "127.0.0.1" if options.host in _EVERYWHERE else options.host
    address = f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"
    server = WebServer(
        JobDirectory(options.storage),
        access,
        address,
        read_only=options.read_only,
        hides_records=options.hides_records,
    )
    runner = web.AppRunner(make_application(server), access_log=None, shutdown_timeout=_CLOSING)
    await runner.setup()
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signal_number, ended.set)
    if options.ends_with_input:
        loop.add_reader(sys.stdin.fileno(), ended.set)  # stdin has no input, so only its end counts
    try:
        await web.SockSite(runner, bound).start()
        on_ready(address, f"{address}#token={access.new_login()}")
        await ended.wait()
    finally:
        await runner.cleanup()


def bind(host: str, port: int | None) -> socket.socket:
    """A socket that listens on this address; without a port, on the first free one of 20."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    tried = range(FIRST_PORT, FIRST_PORT + _TRIED) if port is None else (port,)
    for number in tried:
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((host, number))
            made.listen()
        except OSError as error:
            made.close()
            problem = error
        else:
            made.setblocking(False)
            return made
    where = f"{host}:{port}" if port is not None else f"{host}:{tried[0]} to {tried[-1]}"
    msg = f"the server can't listen on {where}: {problem.strerror or problem}; give another port with --port"
    raise DeploymentError(msg)
