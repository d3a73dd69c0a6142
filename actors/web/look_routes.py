"""Paths that show jobs, once or as server-sent events; nothing here changes one.

A listening page receives new reports, and the age of the last one when nothing is new.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Any, Final

from aiohttp import web

from penstock.actors.shared.job_report import JobReport, SubtaskProcess
from penstock.actors.web import answer_types as forms
from penstock.actors.web.answers import (
    backpressure_of,
    checkpoints_of,
    details_of,
    exceptions_of,
    metrics_of,
    preview_of,
    watermarks_of,
)
from penstock.actors.web.flame_graph import flame_graph
from penstock.actors.web.job_watcher import JobWatcher, filter_lines
from penstock.actors.web.route import Problem, Route, dumps
from penstock.actors.web.saved_state import newest_snapshot, value_of_key
from penstock.actors.web.server import WebServer
from penstock.runtime.graph.graph_info import VertexInfo
from penstock.runtime.snapshot.checkpoint_record import CheckpointDetails


async def info(server: WebServer, _: web.Request) -> Any:
    """The server itself."""
    return server.info()


async def overview(server: WebServer, _: web.Request) -> Any:
    """All jobs, the newest first."""
    return await server.overview()


async def job(server: WebServer, request: web.Request) -> Any:
    """The job's report and its age."""
    watcher = await server.watcher(request)
    report = await watcher.fresh()
    return {"report": report.to_dict(), **watcher.status()}


async def plan(server: WebServer, request: web.Request) -> Any:
    """The job graph."""
    return (await server.report(request)).graph.to_dict()


async def exceptions(server: WebServer, request: web.Request) -> Any:
    """The job's failures."""
    return exceptions_of(await server.report(request))


async def checkpoints(server: WebServer, request: web.Request) -> Any:
    """The job's checkpoints."""
    watcher = await server.watcher(request)
    report = await watcher.fresh()
    return checkpoints_of(report, await watcher.checkpoints(report))


async def checkpoint_config(server: WebServer, request: web.Request) -> Any:
    """The settings of the job's checkpoints."""
    settings = (await server.report(request)).settings
    prefix = "checkpointing."
    return {
        "config": {
            name.removeprefix(prefix): text for name, text in settings.items() if name.startswith(prefix)
        }
    }


async def checkpoint_details(server: WebServer, request: web.Request) -> Any:
    """One checkpoint with what each subtask measured."""
    return await _details(server, request)


async def checkpoint_subtasks(server: WebServer, request: web.Request) -> Any:
    """One checkpoint's measurements of the subtasks of one vertex."""
    found = await _details(server, request)
    vertex = request.match_info["vertex"]
    return {**found, "by_subtask": [row for row in found["by_subtask"] if row["vertex"] == vertex]}


async def config(server: WebServer, request: web.Request) -> Any:
    """The settings of the job."""
    return {"config": dict((await server.report(request)).settings)}


async def samples(server: WebServer, request: web.Request) -> Any:
    """The job's curves."""
    watcher = await server.watcher(request)
    return {"samples": [sample.to_dict() for sample in watcher.samples.all()]}


async def log(server: WebServer, request: web.Request) -> Any:
    """Lines of the job's log."""
    operator = request.query.get("operator")
    vertex = None if not operator else (await server.report(request)).vertex_of(operator)
    subtask, offset = _number(request, "subtask"), _number(request, "offset")
    wanted = filter_lines(vertex, subtask, request.query.get("text", ""))
    opened = await server.log_of(request)
    return await server.in_thread(opened.page, offset, wanted)


async def state(server: WebServer, request: web.Request) -> Any:
    """Content of the job's newest snapshot."""
    return await server.in_thread(newest_snapshot, await server.report(request))


async def key(server: WebServer, request: web.Request) -> Any:
    """The value of a key in the job's newest snapshot."""
    wanted = request.query.get("key")
    if wanted is None:
        raise Problem(400, "give the key, as JSON: ?key=7 or ?key=%22seven%22")
    operator, name = request.match_info["operator"], request.match_info["state"]
    return await server.in_thread(value_of_key, await server.report(request), operator, name, wanted)


async def backpressure(server: WebServer, request: web.Request) -> Any:
    """Shares of the time of a vertex's subtasks."""
    report = await server.report(request)
    return backpressure_of(report, _vertex(report, request))


async def watermarks(server: WebServer, request: web.Request) -> Any:
    """Event time of a vertex's subtasks."""
    report = await server.report(request)
    return watermarks_of(report, _vertex(report, request))


async def metrics(server: WebServer, request: web.Request) -> Any:
    """Metrics of a vertex's subtasks."""
    report = await server.report(request)
    wanted = [name for name in request.query.get("get", "").split(",") if name]
    return metrics_of(report, _vertex(report, request), wanted)


async def flames(server: WebServer, request: web.Request) -> Any:
    """The stacks in which a subtask spends its time."""
    report = await server.report(request)
    vertex, index = _vertex(report, request), _number(request, "subtask") or 0
    try:
        seconds = float(request.query.get("seconds", "3"))
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise Problem(400, "?seconds= is a number of seconds, at most 30")
    return await server.in_thread(flame_graph, _process(report, vertex, index), seconds)


async def rescale_preview(server: WebServer, request: web.Request) -> Any:
    """The state that a rescale would move."""
    try:
        wanted = json.loads(request.query.get("parallelism", ""))
    except (ValueError, RecursionError):
        wanted = None
    if not isinstance(wanted, dict) or not all(type(number) is int for number in wanted.values()):
        raise Problem(400, 'give the new parallelism by operator id, as JSON: ?parallelism={"count":4}')
    return preview_of(await server.report(request), wanted)


async def trigger(server: WebServer, request: web.Request) -> Any:
    """Progress of a request to a job."""
    job_id = (await server.watcher(request)).handle.job_id
    found = server.triggers.get(job_id, request.match_info["trigger"])
    if found is None:
        raise Problem(404, f"job {job_id} knows no request {request.match_info['trigger']!r:.80}")
    return found.to_dict()


async def openapi(server: WebServer, _: web.Request) -> Any:
    """The description of all paths."""
    return server.description


def _vertex(report: JobReport, request: web.Request) -> VertexInfo:
    wanted = request.match_info["vertex"]
    for vertex in report.graph.vertices:
        if vertex.id == wanted:
            return vertex
    known = ", ".join(vertex.id for vertex in report.graph.vertices) or "none"
    raise Problem(404, f"job {report.job_id} has no vertex {wanted!r:.80}; it has: {known}")


def _process(report: JobReport, vertex: VertexInfo, index: int) -> SubtaskProcess:
    for each in report.subtasks:
        if each.subtask.vertex == vertex.id and each.subtask.index == index and each.process is not None:
            return each.process
    raise Problem(409, f"{vertex.id}[{index}] runs in no process now")


async def _details(server: WebServer, request: web.Request) -> dict[str, Any]:
    wanted = request.match_info["checkpoint"]
    watcher = await server.watcher(request)
    records = await watcher.checkpoints(await watcher.fresh())
    record = next((each for each in reversed(records) if str(each.checkpoint_id) == wanted), None)
    if record is None:
        msg = f"job {watcher.handle.job_id} has no checkpoint {wanted!r:.80} among the last that it knows"
        raise Problem(404, msg)
    found = await server.in_thread(watcher.handle.checkpoint_details, record.checkpoint_id)
    return details_of(found or CheckpointDetails(record, {}))


def _number(request: web.Request, name: str) -> int | None:
    text = request.query.get(name, "")
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS:
        raise Problem(400, f"?{name}= is a number from 0 on, not {text!r:.80}")
    return int(text)


#: Maximum number of digits of a number in a path.
_DIGITS: Final = 18
_JOB: Final = "/v1/jobs/{job}"
_VERTEX: Final = "/v1/jobs/{job}/vertices/{vertex}"


#: Seconds between two checks of a silent job, and between two comments that keep proxies awake.
_LOOK: Final = 1.0
_BEAT: Final = 10.0
#: Seconds between two checks of the list of jobs.
_OVERVIEW: Final = 2.0


async def job_events(server: WebServer, request: web.Request) -> Any:
    """Stream reports and samples of a job, until it has ended or the browser disconnects."""
    watcher = await server.watcher(request)
    stream = await _open(request)
    with suppress(ConnectionResetError):  # the browser has disconnected
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
    """Stream the list of jobs whenever it changes."""
    stream = await _open(request)
    with suppress(ConnectionResetError):  # the browser has disconnected
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
    Route("GET", "/v1/info", info, "The server itself", forms.InfoAnswer),
    Route("GET", "/v1/openapi.json", openapi, "This description"),
    Route("GET", "/v1/jobs/overview", overview, "All jobs, the newest first", forms.JobsOverviewAnswer),
    Route("GET", _JOB, job, "A job: its report, and how old that is", forms.JobAnswer),
    Route("GET", f"{_JOB}/plan", plan, "Its graph", forms.PlanAnswer),
    Route("GET", f"{_JOB}/config", config, "Its settings", forms.ConfigurationAnswer),
    Route("GET", f"{_JOB}/exceptions", exceptions, "Its failures", forms.ExceptionsAnswer),
    Route("GET", f"{_JOB}/samples", samples, "Its curves over the last hour", forms.SamplesAnswer),
    Route("GET", f"{_JOB}/checkpoints", checkpoints, "Its checkpoints", forms.CheckpointsAnswer),
    Route(
        "GET",
        f"{_JOB}/checkpoints/config",
        checkpoint_config,
        "Settings of its checkpoints",
        forms.ConfigurationAnswer,
    ),
    Route(
        "GET",
        f"{_JOB}/checkpoints/details/{{checkpoint}}",
        checkpoint_details,
        "One checkpoint, by subtask",
        forms.CheckpointDetailsAnswer,
    ),
    Route(
        "GET",
        f"{_JOB}/checkpoints/details/{{checkpoint}}/subtasks/{{vertex}}",
        checkpoint_subtasks,
        "One checkpoint, the subtasks of a vertex",
        forms.CheckpointDetailsAnswer,
    ),
    Route(
        "GET",
        f"{_JOB}/log",
        log,
        "Lines of its log",
        forms.LogAnswer,
        query={
            "offset": "number of the first line; without it the last 500 lines",
            "operator": "only of this operator's chain, or job-master, or ray",
            "subtask": "only of this subtask, from 0",
            "text": "only lines with this text",
        },
    ),
    Route("GET", f"{_JOB}/state", state, "What its newest snapshot contains", forms.SavedStateAnswer),
    Route(
        "GET",
        f"{_JOB}/state/{{operator}}/{{state}}",
        key,
        "The value of a key in its newest snapshot",
        forms.KeyValueAnswer,
        query={"key": "the key as JSON"},
    ),
    Route(
        "GET",
        f"{_JOB}/rescale-preview",
        rescale_preview,
        "What a rescale would move",
        forms.RescalePreviewAnswer,
        query={"parallelism": "new parallelism by operator id, as JSON"},
    ),
    Route("GET", f"{_JOB}/triggers/{{trigger}}", trigger, "How far a request is", forms.TriggerStatusAnswer),
    Route(
        "GET",
        f"{_JOB}/savepoints/{{trigger}}",
        trigger,
        "How far a savepoint is; as triggers",
        forms.TriggerStatusAnswer,
    ),
    Route(
        "GET",
        f"{_VERTEX}/backpressure",
        backpressure,
        "Busy, back-pressured and idle shares of its subtasks",
        forms.BackpressureAnswer,
    ),
    Route("GET", f"{_VERTEX}/watermarks", watermarks, "Event time of its subtasks", forms.WatermarksAnswer),
    Route(
        "GET",
        f"{_VERTEX}/metrics",
        metrics,
        "Metrics of its subtasks",
        forms.MetricsAnswer,
        query={"get": "names, with commas between them; without it only the names are answered"},
    ),
    Route(
        "GET",
        f"{_VERTEX}/flamegraph",
        flames,
        "Where a subtask spends its time",
        forms.FlameGraphAnswer,
        query={"subtask": "its index, from 0", "seconds": "how long to look: 3, at most 30"},
    ),
    Route("GET", "/v1/events", overview_events, "The list of jobs, as server-sent events `overview`"),
    Route(
        "GET",
        "/v1/jobs/{job}/events",
        job_events,
        "A job, as server-sent events `report`, `sample`, `age` and `end`",
    ),
)
