"""The server as an aiohttp application: its paths, the page's files, and what holds for every request."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import ray
from aiohttp import web

from penstock.actors.web import change_routes, event_routes, look_routes
from penstock.actors.web.access import SAFE_HEADERS, Refusal
from penstock.actors.web.openapi import describe_routes
from penstock.actors.web.route import Problem, Route
from penstock.actors.web.server import WebServer
from penstock.actors.web.strict_json import dumps
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
#: All paths. Those without names in them come first: aiohttp takes the first that fits.
ROUTES: Final[tuple[Route, ...]] = (*look_routes.ROUTES, *event_routes.ROUTES, *change_routes.ROUTES)
#: Bytes of the largest request.
_LARGEST: Final = 64 * 1024
#: How errors are answered, by the first class that fits.
_STATUS: Final = (
    (JobTimeoutError, 503),
    (DeploymentError, 409),
    (ConfigurationError, 400),
    (ObjectNotFoundError, 404),
    (PenstockError, 409),
)

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def description() -> dict[str, Any]:
    """What `/v1/openapi.json` answers."""
    return describe_routes(ROUTES)


def make_application(server: WebServer) -> web.Application:
    """The application of a server."""
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
        raise Problem(404, "this installation has no page; REST is at /v1/openapi.json")
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
                raise Refusal(403, "this server was started with --read-only")
        answer = await route.handler(server, request)
        if isinstance(answer, web.StreamResponse):
            return answer
        return web.json_response(answer, status=route.status, dumps=dumps)

    return handle


def _guard(server: WebServer) -> Any:
    """Checks and headers of every request, also of those for files and for paths that do not exist."""

    @web.middleware
    async def guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            server.access.check_place(request.headers.get("Host"), request.headers.get("Origin"))
            response = await handler(request)
        except Refusal as error:
            response = _errors(error.status, str(error))
        except Problem as error:
            response = _errors(error.status, str(error))
        except web.HTTPException as error:
            response = _errors(error.status, f"{request.method} {request.path}: {error.reason}")
            if "Allow" in error.headers:
                response.headers["Allow"] = error.headers["Allow"]
        except (PenstockError, ray.exceptions.RayError) as error:
            status = next((status for kind, status in _STATUS if isinstance(error, kind)), 503)
            response = _errors(status, str(error))
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
