"""The routes of the server. Requests that change a job return at once; `triggers` shows their outcome.

A page that listens to server-sent events receives new reports, and the age of the last report while the
JobMaster is silent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, Final

from aiohttp import web

from penstock.actors.client.job_handle import RayJobHandle
from penstock.actors.shared.job_report import JobReport, SubtaskProcess
from penstock.actors.shared.snapshot_answers import warning_of
from penstock.actors.web import answer_types as forms
from penstock.actors.web.access import Problem
from penstock.actors.web.answers import (
    backpressure_of,
    checkpoints_of,
    details_of,
    dumps,
    exceptions_of,
    metrics_of,
    preview_of,
    watermarks_of,
)
from penstock.actors.web.inspections import FlameGraphType, flame_graph, newest_snapshot, value_of_key
from penstock.actors.web.job_watcher import JobWatcher, filter_lines
from penstock.actors.web.openapi import CheckpointDetailsAnswer, PlanAnswer, SavedStateAnswer, describe_routes
from penstock.actors.web.server import Handler, Route, WebServer
from penstock.runtime.graph.graph_info import VertexInfo
from penstock.runtime.snapshot.checkpoint_record import CheckpointDetails
from penstock.runtime.snapshot.plain_values import to_plain

#: All routes. The first match counts, so a fixed path must come before a path with a parameter that also
#: matches.
ROUTES: Final[list[Route]] = []

_JOB: Final = "/v1/jobs/{job}"
_VERTEX: Final = "/v1/jobs/{job}/vertices/{vertex}"
#: Maximum number of digits of a number in a query.
_DIGITS: Final = 18
#: Seconds between two checks of a silent job, and between two keep-alive comments for proxies.
_LOOK: Final = 1.0
_BEAT: Final = 10.0
#: Maximum number of records in a sample of an edge, and maximum seconds to wait for them.
_RECORDS: Final = 10
_SAMPLED: Final = 2.0
#: Seconds between two checks of the list of jobs.
_OVERVIEW: Final = 2.0


def _route(
    method: str, path: str, summary: str, answer: Any = None, **more: Any
) -> Callable[[Handler], Handler]:
    """Add the decorated handler to `ROUTES`; the arguments are those of `Route`."""

    def add(handler: Handler) -> Handler:
        ROUTES.append(Route(method, path, handler, summary, answer, **more))
        return handler

    return add


@cache
def description() -> dict[str, Any]:
    """The body of `/v1/openapi.json`."""
    return describe_routes(ROUTES)


@_route("GET", "/v1/info", "The server itself", forms.InfoAnswer)
async def info(server: WebServer, _: web.Request) -> Any:
    return server.info()


@_route("GET", "/v1/openapi.json", "This description")
async def openapi(server: WebServer, _: web.Request) -> Any:
    return description()


@_route("GET", "/v1/jobs/overview", "All jobs, the newest first", forms.JobsOverviewAnswer)
async def overview(server: WebServer, _: web.Request) -> Any:
    return await server.overview()


@_route("GET", _JOB, "A job: its report, and the age of the report", forms.JobAnswer)
async def job(server: WebServer, request: web.Request) -> Any:
    watcher = await server.watcher(request)
    report = await watcher.fresh()
    return {"report": report.to_dict(), **watcher.status()}


@_route("GET", f"{_JOB}/plan", "Graph of a job", PlanAnswer)
async def plan(server: WebServer, request: web.Request) -> Any:
    return to_plain((await server.report(request)).graph)


@_route("GET", f"{_JOB}/config", "Settings of a job", forms.ConfigurationAnswer)
async def config(server: WebServer, request: web.Request) -> Any:
    return {"config": dict((await server.report(request)).settings)}


@_route("GET", f"{_JOB}/exceptions", "Failures of a job", forms.ExceptionsAnswer)
async def exceptions(server: WebServer, request: web.Request) -> Any:
    return exceptions_of(await server.report(request))


@_route("GET", f"{_JOB}/samples", "Samples of a job over the last hour", forms.SamplesAnswer)
async def samples(server: WebServer, request: web.Request) -> Any:
    watcher = await server.watcher(request)
    return {"samples": to_plain(watcher.samples.all())}


@_route("GET", f"{_JOB}/checkpoints", "Checkpoints of a job", forms.CheckpointsAnswer)
async def checkpoints(server: WebServer, request: web.Request) -> Any:
    watcher = await server.watcher(request)
    report = await watcher.fresh()
    return checkpoints_of(report, await watcher.checkpoints(report))


@_route("GET", f"{_JOB}/checkpoints/config", "Settings of a job's checkpoints", forms.ConfigurationAnswer)
async def checkpoint_config(server: WebServer, request: web.Request) -> Any:
    settings, prefix = (await server.report(request)).settings, "checkpointing."
    found = {name.removeprefix(prefix): text for name, text in settings.items() if name.startswith(prefix)}
    return {"config": found}


_DETAILS: Final = f"{_JOB}/checkpoints/details/{{checkpoint}}"


@_route("GET", _DETAILS, "One checkpoint, by subtask", CheckpointDetailsAnswer)
async def checkpoint_details(server: WebServer, request: web.Request) -> Any:
    wanted = request.match_info["checkpoint"]
    watcher = await server.watcher(request)
    records = await watcher.checkpoints(await watcher.fresh())
    record = next((known for known in reversed(records) if str(known.checkpoint_id) == wanted), None)
    if record is None:
        msg = f"job {watcher.handle.job_id} has no checkpoint {wanted!r:.80} in its history"
        raise Problem(404, msg)
    found = await server.in_thread(watcher.handle.checkpoint_details, record.checkpoint_id)
    return details_of(found or CheckpointDetails(record, {}))


@_route(
    "GET",
    f"{_DETAILS}/subtasks/{{vertex}}",
    "One checkpoint, the subtasks of a vertex",
    CheckpointDetailsAnswer,
)
async def checkpoint_subtasks(server: WebServer, request: web.Request) -> Any:
    found = await checkpoint_details(server, request)
    vertex = request.match_info["vertex"]
    return {**found, "by_subtask": [row for row in found["by_subtask"] if row["vertex"] == vertex]}


@_route(
    "GET",
    f"{_JOB}/log",
    "Lines of a job's log",
    forms.LogAnswer,
    query={
        "offset": "number of the first line; without it the last 500 lines",
        "operator": "only lines of this operator's chain, or of job-master, or of ray",
        "subtask": "only lines of this subtask, from 0",
        "text": "only lines with this text",
    },
)
async def log(server: WebServer, request: web.Request) -> Any:
    operator = request.query.get("operator")
    vertex = None if not operator else (await server.report(request)).vertex_of(operator)
    subtask, offset = _number(request, "subtask"), _number(request, "offset")
    wanted = filter_lines(vertex, subtask, request.query.get("text", ""))
    opened = await server.log_of(request)
    return await server.in_thread(opened.page, offset, wanted)


@_route("GET", f"{_JOB}/state", "Content of a job's newest snapshot", SavedStateAnswer)
async def state(server: WebServer, request: web.Request) -> Any:
    return await server.in_thread(newest_snapshot, await server.report(request))


@_route(
    "GET",
    f"{_JOB}/state/{{operator}}/{{state}}",
    "The value of a key in a job's newest snapshot",
    forms.KeyValueAnswer,
    shows_records=True,
    query={"key": "the key as JSON"},
)
async def key(server: WebServer, request: web.Request) -> Any:
    wanted = request.query.get("key")
    if wanted is None:
        raise Problem(400, "give the key, as JSON: ?key=7 or ?key=%22seven%22")
    operator, name = request.match_info["operator"], request.match_info["state"]
    return await server.in_thread(value_of_key, await server.report(request), operator, name, wanted)


@_route(
    "GET",
    f"{_JOB}/rescale-preview",
    "Keyed state that a rescale would move",
    forms.RescalePreviewAnswer,
    query={"parallelism": "new parallelism by operator id, as JSON"},
)
async def rescale_preview(server: WebServer, request: web.Request) -> Any:
    try:
        wanted = json.loads(request.query.get("parallelism", ""))
    except (ValueError, RecursionError):
        wanted = None
    if not isinstance(wanted, dict) or not all(type(number) is int for number in wanted.values()):
        raise Problem(400, 'give the new parallelism by operator id, as JSON: ?parallelism={"count":4}')
    return preview_of(await server.report(request), wanted)


@_route(
    "GET",
    f"{_JOB}/savepoints/{{trigger}}",
    "Progress of a savepoint; same answer as .../triggers/{trigger}",
    forms.TriggerStatusAnswer,
)
@_route("GET", f"{_JOB}/triggers/{{trigger}}", "Progress of a request", forms.TriggerStatusAnswer)
async def trigger(server: WebServer, request: web.Request) -> Any:
    job_id = (await server.watcher(request)).handle.job_id
    found = server.triggers.get(job_id, request.match_info["trigger"])
    if found is None:
        raise Problem(404, f"job {job_id} has no request {request.match_info['trigger']!r:.80}")
    return found.to_dict()


@_route("GET", f"{_VERTEX}/samples", "Samples of a vertex over the last hour", forms.VertexSamplesAnswer)
async def vertex_samples(server: WebServer, request: web.Request) -> Any:
    _, vertex = await _vertex(server, request)
    known = (await server.watcher(request)).vertex_samples.all()
    return {"samples": to_plain([found for sample in known if (found := sample.of(vertex.id)) is not None])}


@_route(
    "GET",
    f"{_VERTEX}/backpressure",
    "Busy, back-pressured and idle shares of a vertex's subtasks",
    forms.BackpressureAnswer,
)
async def backpressure(server: WebServer, request: web.Request) -> Any:
    return backpressure_of(*await _vertex(server, request))


@_route("GET", f"{_VERTEX}/watermarks", "Event time of a vertex's subtasks", forms.WatermarksAnswer)
async def watermarks(server: WebServer, request: web.Request) -> Any:
    return watermarks_of(*await _vertex(server, request))


@_route(
    "GET",
    f"{_VERTEX}/metrics",
    "Metrics of a vertex's subtasks",
    forms.MetricsAnswer,
    query={"get": "names, separated by commas; without it the answer has all names and no values"},
)
async def metrics(server: WebServer, request: web.Request) -> Any:
    wanted = [name for name in request.query.get("get", "").split(",") if name]
    return metrics_of(*await _vertex(server, request), wanted)


@_route(
    "GET",
    f"{_VERTEX}/flamegraph",
    "Flame graph of a subtask",
    forms.FlameGraphAnswer,
    query={
        "subtask": "index of the subtask, from 0",
        "seconds": "seconds of sampling: 3 by default, at most 30",
        "type": "on_cpu (default): threads that run; off_cpu: the task's thread while it waits; mixed: both",
    },
)
async def flames(server: WebServer, request: web.Request) -> Any:
    report, vertex = await _vertex(server, request)
    index = _number(request, "subtask") or 0
    try:
        seconds = float(request.query.get("seconds", "3"))
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise Problem(400, "?seconds= must be a finite number of seconds")
    kinds = {kind.value: kind for kind in FlameGraphType}
    kind = kinds.get(request.query.get("type", FlameGraphType.ON_CPU.value))
    if kind is None:
        raise Problem(400, f"?type= must be one of {', '.join(kinds)}")
    return await server.in_thread(flame_graph, _process(report, vertex, index), seconds, kind)


@_route(
    "GET",
    f"{_JOB}/edges/{{edge}}/records",
    "Records that flow on an edge now",
    forms.EdgeRecordsAnswer,
    shows_records=True,
)
async def edge_records(server: WebServer, request: web.Request) -> Any:
    """`edge` is the index of the edge in the answer of `plan`."""
    watcher = await server.watcher(request)
    edges, wanted = (await watcher.fresh()).graph.edges, request.match_info["edge"]
    place = int(wanted) if wanted.isascii() and wanted.isdecimal() and len(wanted) <= _DIGITS else len(edges)
    if place >= len(edges):
        msg = f"job {watcher.handle.job_id} has no edge {wanted!r:.80}; its {len(edges)} edges count from 0"
        raise Problem(404, msg)
    found = await server.in_thread(watcher.handle.sample_edge, place, most=_RECORDS, timeout=_SAMPLED)
    return {
        "source": edges[place].source,
        "target": edges[place].target,
        "seconds": _SAMPLED,
        "records": to_plain(found),
    }


async def _vertex(server: WebServer, request: web.Request) -> tuple[JobReport, VertexInfo]:
    """The report of the job that a path names, and the vertex."""
    report, wanted = await server.report(request), request.match_info["vertex"]
    for vertex in report.graph.vertices:
        if vertex.id == wanted:
            return report, vertex
    known = ", ".join(vertex.id for vertex in report.graph.vertices) or "none"
    raise Problem(404, f"job {report.job_id} has no vertex {wanted!r:.80}; it has: {known}")


def _process(report: JobReport, vertex: VertexInfo, index: int) -> SubtaskProcess:
    for known in report.subtasks:
        if known.subtask.vertex == vertex.id and known.subtask.index == index and known.process is not None:
            return known.process
    raise Problem(409, f"{vertex.id}[{index}] has no process now")


def _number(request: web.Request, name: str) -> int | None:
    text = request.query.get(name, "")
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS:
        raise Problem(400, f"?{name}= must be a whole number, at least 0, not {text!r:.80}")
    return int(text)


@_route("GET", "/v1/events", "The list of jobs, as server-sent events `overview`")
async def overview_events(server: WebServer, request: web.Request) -> Any:
    stream = await _open(request)
    sent, quiet = b"", 0.0
    with suppress(ConnectionResetError):  # the browser has disconnected
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
    return stream


@_route("GET", f"{_JOB}/events", "A job, as server-sent events `report`, `sample`, `age` and `end`")
async def job_events(server: WebServer, request: web.Request) -> Any:
    watcher = await server.watcher(request)
    stream = await _open(request)
    with suppress(ConnectionResetError):  # the browser has disconnected
        async with watcher.viewed():
            await _send_reports(server, watcher, stream)
        await _send(stream, "end", b"{}")
    return stream


async def _send_reports(server: WebServer, watcher: JobWatcher, stream: web.StreamResponse) -> None:
    """Send new reports and samples until the job or the server ends."""
    if watcher.report is not None:
        await _send_report(stream, watcher)
    seen, quiet = watcher.version, 0.0
    while not (server.is_closing or (watcher.has_ended and seen == watcher.version)):
        if await watcher.wait_for_change(seen, _LOOK):
            seen, quiet = watcher.version, 0.0
            await _send_report(stream, watcher)
            if watcher.newest_sample is not None:
                await _send(stream, "sample", dumps(to_plain(watcher.newest_sample)).encode())
        else:
            quiet += _LOOK
            if not watcher.is_answering:
                await _send(stream, "age", dumps(watcher.status()).encode())
            elif quiet >= _BEAT:
                quiet = 0.0
                await stream.write(b": nothing new\n\n")


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


@_route(
    "POST",
    "/v1/session",
    "Begin a session with the token of the printed address",
    body=forms.SessionBody,
    is_open=True,
    status=204,
)
async def session(server: WebServer, request: web.Request) -> Any:
    body = await server.body(request, forms.SessionBody)
    cookie = server.access.begin_session(body["token"])
    answer = web.Response(status=204)
    answer.set_cookie(server.access.cookie, cookie, httponly=True, samesite="Strict", path="/")
    return answer


def _request(
    method: str, path: str, summary: str, body: Any = None, **more: Any
) -> Callable[[Handler], Handler]:
    """Add a handler that begins a request to a job."""
    return _route(method, path, summary, forms.AcceptedAnswer, body=body, status=202, **more)


@_request("POST", f"{_JOB}/checkpoints", "Take a checkpoint", forms.CheckpointBody)
async def checkpoint(server: WebServer, request: web.Request) -> Any:
    body = await server.body(request, forms.CheckpointBody)

    def take(handle: RayJobHandle) -> dict[str, Any]:
        return handle.checkpoint(full=body.get("full", False)).to_dict()

    return await server.begin(request, take, body)


@_request("POST", f"{_JOB}/savepoints", "Take a savepoint", forms.SavepointBody)
async def savepoint(server: WebServer, request: web.Request) -> Any:
    body = await server.body(request, forms.SavepointBody)
    savepoint, stops = body.get("target-directory"), body.get("cancel-job", False)

    def take(handle: RayJobHandle) -> dict[str, Any]:
        if stops:
            return {"location": handle.stop(savepoint), "warnings": []}
        taken = handle.take_savepoint(savepoint)
        warning = warning_of(taken, handle.job_id)
        return {"location": taken.path, "warnings": [] if warning is None else [str(warning)]}

    return await server.begin(request, take, body)


@_request("POST", f"{_JOB}/stop", "Take a savepoint and end the job", forms.StopBody)
async def stop(server: WebServer, request: web.Request) -> Any:
    body = await server.body(request, forms.StopBody)

    def end(handle: RayJobHandle) -> dict[str, Any]:
        return {"location": handle.stop(body.get("target-directory"), drain=body.get("drain", False))}

    return await server.begin(request, end, body)


@_request(
    "PUT",
    f"{_JOB}/resource-requirements",
    "Change the parallelism of operators",
    forms.ResourceRequirementsBody,
)
async def rescale(server: WebServer, request: web.Request) -> Any:
    body = await server.body(request, forms.ResourceRequirementsBody)

    def change(handle: RayJobHandle) -> dict[str, Any]:
        handle.rescale(body["parallelism"])
        return {"parallelism": body["parallelism"]}

    return await server.begin(request, change)


@_request("PATCH", _JOB, "End the job without a savepoint", query={"mode": "cancel"})
async def cancel(server: WebServer, request: web.Request) -> Any:
    if request.query.get("mode") != "cancel":
        raise Problem(400, "the only mode is ?mode=cancel; POST .../stop ends a job with a savepoint")

    def end(handle: RayJobHandle) -> dict[str, Any]:
        handle.cancel()
        return {}

    return await server.begin(request, end)
