"""Paths that begin a request to a job. The answer comes at once; `triggers` shows the outcome."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from penstock.actors.client.job_handle import RayJobHandle
from penstock.actors.shared.snapshot_answers import warning_of
from penstock.actors.web import answer_types as forms
from penstock.actors.web.route import Problem, Route
from penstock.actors.web.server import WebServer


async def session(server: WebServer, request: web.Request) -> Any:
    """Begin a session: the token of the address that was printed becomes a cookie."""
    body = await server.body(request, forms.SessionBody)
    cookie = server.access.begin_session(body["token"])
    answer = web.Response(status=204)
    answer.set_cookie(server.access.cookie, cookie, httponly=True, samesite="Strict", path="/")
    return answer


async def checkpoint(server: WebServer, request: web.Request) -> Any:
    """Take a checkpoint."""
    body = await server.body(request, forms.CheckpointBody)

    def take(handle: RayJobHandle) -> dict[str, Any]:
        return handle.checkpoint(full=body.get("full", False)).to_dict()

    return await server.begin(request, take, body)


async def savepoint(server: WebServer, request: web.Request) -> Any:
    """Take a savepoint, and stop the job with it if requested."""
    body = await server.body(request, forms.SavepointBody)
    savepoint, stops = body.get("target-directory"), body.get("cancel-job", False)

    def take(handle: RayJobHandle) -> dict[str, Any]:
        if stops:
            return {"location": handle.stop(savepoint), "warnings": []}
        taken = handle.take_savepoint(savepoint)
        warning = warning_of(taken, handle.job_id)
        return {"location": taken.path, "warnings": [] if warning is None else [str(warning)]}

    return await server.begin(request, take, body)


async def stop(server: WebServer, request: web.Request) -> Any:
    """Take a savepoint and end the job."""
    body = await server.body(request, forms.StopBody)

    def end(handle: RayJobHandle) -> dict[str, Any]:
        return {"location": handle.stop(body.get("target-directory"), drain=body.get("drain", False))}

    return await server.begin(request, end, body)


async def rescale(server: WebServer, request: web.Request) -> Any:
    """Change the parallelism of operators."""
    body = await server.body(request, forms.ResourceRequirementsBody)

    def change(handle: RayJobHandle) -> dict[str, Any]:
        handle.rescale(body["parallelism"])
        return {"parallelism": body["parallelism"]}

    return await server.begin(request, change)


async def cancel(server: WebServer, request: web.Request) -> Any:
    """End the job without a savepoint."""
    if request.query.get("mode") != "cancel":
        raise Problem(400, "the only mode is ?mode=cancel; POST .../stop ends a job with a savepoint")

    def end(handle: RayJobHandle) -> dict[str, Any]:
        handle.cancel()
        return {}

    return await server.begin(request, end)


_JOB: Final = "/v1/jobs/{job}"

ROUTES: Final = (
    Route(
        "POST",
        "/v1/session",
        session,
        "Begin a session with the token of the printed address",
        body=forms.SessionBody,
        is_open=True,
        status=204,
    ),
    Route(
        "POST",
        f"{_JOB}/checkpoints",
        checkpoint,
        "Take a checkpoint",
        forms.AcceptedAnswer,
        forms.CheckpointBody,
        status=202,
    ),
    Route(
        "POST",
        f"{_JOB}/savepoints",
        savepoint,
        "Take a savepoint",
        forms.AcceptedAnswer,
        forms.SavepointBody,
        status=202,
    ),
    Route(
        "POST",
        f"{_JOB}/stop",
        stop,
        "Take a savepoint and end the job",
        forms.AcceptedAnswer,
        forms.StopBody,
        status=202,
    ),
    Route(
        "PUT",
        f"{_JOB}/resource-requirements",
        rescale,
        "Change the parallelism of operators",
        forms.AcceptedAnswer,
        forms.ResourceRequirementsBody,
        status=202,
    ),
    Route(
        "PATCH",
        _JOB,
        cancel,
        "End the job without a savepoint",
        forms.AcceptedAnswer,
        query={"mode": "cancel"},
        status=202,
    ),
)
