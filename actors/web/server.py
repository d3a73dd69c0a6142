"""`Route`: a path with its handler. `WebServer`: the state that all handlers share, for one event loop."""

from __future__ import annotations

import asyncio
import secrets
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

from aiohttp import web
from pydantic import TypeAdapter, ValidationError

from penstock._version import __version__
from penstock.actors.client.job_handle import RayJobHandle
from penstock.actors.client.jobs import KnownJob, archived_jobs, cluster_jobs, find_job, with_archived
from penstock.actors.shared.job_report import JobReport
from penstock.actors.web.access import Access, Problem
from penstock.actors.web.answers import overview_of
from penstock.actors.web.job_watcher import JobLog, JobWatcher
from penstock.runtime.errors import (
    CheckpointError,
    ConfigurationError,
    JobCancelledError,
    JobFailedError,
    JobTimeoutError,
    PenstockError,
    RequestLostError,
    RescaleError,
    SavepointError,
)

#: Answers a request with plain values that JSON can hold, or with a response of its own.
Handler: TypeAlias = Callable[["WebServer", web.Request], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Route:
    """A path and a method, with their handler.

    Attributes:
        path: Path with `{names}` in aiohttp's syntax.
        answer: Form of the answer; `None` for an answer without a body, or with a special form.
        body: Form of the request's body; `None` without one.
        query: Descriptions of the query parameters, by name.
        is_open: Whether the route answers without a session.
        shows_records: Whether the answer has records or values of keys; `--hide-records` refuses the request.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    answer: Any = None
    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict)
    is_open: bool = False
    shows_records: bool = False
    status: int = 200

    @property
    def changes(self) -> bool:
        """Whether the route changes something; `--read-only` refuses changes to jobs."""
        return self.method != "GET"


#: Minimum seconds between two listings of a storage, which may hold thousands of reports.
_STORAGE_INTERVAL: Final = 30.0


class JobDirectory:
    """All jobs of the joined cluster, if any, and of a storage. Thread-safe; the methods block."""

    def __init__(self, storage: str | None = None) -> None:
        self.storage = storage
        self._archived: list[KnownJob] = []
        self._listed_at: float | None = None

    def all(self) -> list[KnownJob]:
        """All jobs, oldest first."""
        now = time.monotonic()
        if self.storage is not None and (
            self._listed_at is None or now - self._listed_at >= _STORAGE_INTERVAL
        ):
            self._archived = archived_jobs(self.storage)
            self._listed_at = now
        return with_archived(cluster_jobs(), self._archived)

    def find(self, job: str) -> RayJobHandle:
        """A job by its id, the beginning of its id, or its name."""
        return find_job(job, self.storage)


#: Errors after which the job has not carried out the request. After any other error it may still do so.
_FAILED: Final = (
    CheckpointError,
    ConfigurationError,
    JobCancelledError,
    JobFailedError,
    RescaleError,
    SavepointError,
)
#: Maximum number of ended triggers that are remembered.
_KEPT: Final = 1_000


@dataclass(frozen=True, slots=True)
class RequestTrigger:
    """One request to a job.

    Attributes:
        call: The call on the job's handle, in a thread; cancelled if the server ends before the call begins.
        asked: Text of the request; a repeated request must have the same text.
    """

    call: Future[dict[str, Any]]
    asked: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The status, and after the end the outcome, in the form of Flink's REST API."""
        if not self.call.done():
            return {"status": {"id": "IN_PROGRESS"}}
        failure = CancelledError() if self.call.cancelled() else self.call.exception()
        if failure is not None:
            outcome = "failed" if isinstance(failure, _FAILED) else "unknown"
            cause = {"class": type(failure).__name__, "message": _message(failure), "outcome": outcome}
            return {"status": {"id": "COMPLETED"}, "operation": {"failure-cause": cause}}
        return {"status": {"id": "COMPLETED"}, "operation": {"result": self.call.result()}}


class RequestTriggers:
    """All requests of this server, by their ids."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], RequestTrigger] = {}

    def add(
        self, job_id: str, call: Future[dict[str, Any]], asked: str = "", trigger_id: str | None = None
    ) -> str:
        """Remember a call; return the trigger id, which must be new among this job's requests."""
        trigger_id = trigger_id or secrets.token_hex(16)
        self._known[job_id, trigger_id] = RequestTrigger(call, asked)
        ended = [known for known, trigger in self._known.items() if trigger.call.done()]
        for old in ended[: max(0, len(ended) - _KEPT)]:
            del self._known[old]
        return trigger_id

    def get(self, job_id: str, trigger_id: str) -> RequestTrigger | None:
        return self._known.get((job_id, trigger_id))


def _message(failure: BaseException) -> str:
    """The text of an error; adds advice if the outcome is unknown and the error does not say so itself."""
    # A user's exception may raise in its `__str__`; `traceback` handles that.
    is_own = isinstance(failure, PenstockError)
    text = str(failure) if is_own else "".join(traceback.format_exception_only(failure)).strip()
    if isinstance(failure, (*_FAILED, RequestLostError, JobTimeoutError)):
        return text
    return f"the job may or may not carry out the request: check its report. {text}"


P = ParamSpec("P")

T = TypeVar("T")

#: Maximum number of concurrent calls to jobs. A call that waits for a savepoint must not delay the others.
_THREADS: Final = 64
#: Seconds for which a list of jobs is cached.
_OVERVIEW_KEPT: Final = 1.0
#: Maximum number of cached reports of ended jobs that no page shows.
_ENDED_KEPT: Final = 200


class WebServer:
    def __init__(
        self,
        directory: JobDirectory,
        access: Access,
        address: str,
        *,
        read_only: bool = False,
        hides_records: bool = False,
    ) -> None:
        self.directory = directory
        self.access = access
        self.address = address
        self.read_only = read_only
        self.hides_records = hides_records
        self.triggers = RequestTriggers()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="web")
        self._watchers: dict[str, JobWatcher] = {}
        self._logs: dict[str, JobLog] = {}
        self._closing = asyncio.Event()
        self._listing: asyncio.Task[list[KnownJob]] | None = None
        self._listed_at = float("-inf")

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    async def close(self) -> None:
        """End all streams and all polls of jobs; requests that have begun continue in the jobs."""
        self._closing.set()
        for watcher in self._watchers.values():
            await watcher.end()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def end_streams(self) -> None:
        self._closing.set()

    async def pause(self, seconds: float) -> None:
        """Wait for some seconds, or until the server closes."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), seconds)

    async def in_thread(self, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        call_it = partial(call, *arguments, **named)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call_it)

    def info(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "read_only": self.read_only,
            "hides_records": self.hides_records,
            "address": self.address,
            "storage": self.directory.storage,
        }

    async def overview(self) -> dict[str, Any]:
        """All jobs, newest first; listed at most once a second for all browsers."""
        loop = asyncio.get_running_loop()
        if self._listing is None or (
            self._listing.done() and loop.time() - self._listed_at >= _OVERVIEW_KEPT
        ):
            self._listed_at = loop.time()
            self._listing = loop.create_task(self.in_thread(self.directory.all))
        jobs = await asyncio.shield(self._listing)
        for job in jobs:
            if job.is_running:
                self._watch(job.report.job_id, job.handle)
        return {"jobs": list(map(overview_of, reversed(jobs)))}

    async def watcher(self, request: web.Request) -> JobWatcher:
        """The watcher of the job in the request's path; raises `Problem` if there is no such job."""
        text = request.match_info["job"]
        if text in self._watchers:
            return self._watchers[text]
        try:
            handle = await self.in_thread(self.directory.find, text)
        except ConfigurationError as error:
            raise Problem(404, str(error)) from error
        return self._watch(handle.job_id, lambda: handle)

    def _watch(self, job_id: str, handle: Callable[[], RayJobHandle]) -> JobWatcher:
        watcher = self._watchers.get(job_id)
        if watcher is None:
            watcher = self._watchers[job_id] = JobWatcher(handle(), self.in_thread)
            watcher.begin()
            self._forget_old()
        return watcher

    def _forget_old(self) -> None:
        ended = [id for id, known in self._watchers.items() if known.has_ended and not known.has_viewers]
        for job_id in ended[: max(0, len(ended) - _ENDED_KEPT)]:
            del self._watchers[job_id]
            self._logs.pop(job_id, None)

    async def report(self, request: web.Request) -> JobReport:
        """A current report of the job in the request's path; raises `Problem` if there is no such job."""
        return await (await self.watcher(request)).fresh()

    async def log_of(self, request: web.Request) -> JobLog:
        """The log of the job in the request's path; raises `Problem` if there is no such job."""
        watcher = await self.watcher(request)
        job_id = watcher.handle.job_id
        if job_id not in self._logs:
            reader = await self.in_thread(watcher.handle.log_reader)
            self._logs.setdefault(job_id, JobLog(reader))
        return self._logs[job_id]

    async def body(self, request: web.Request, form: Any) -> Any:
        """Parse the body of a request, `{}` for an empty one; raise `Problem` if it does not match `form`."""
        written = await request.read()
        try:
            return TypeAdapter(form).validate_json(written or b"{}", strict=True)
        except ValidationError as error:
            problems = (
                f"{'.'.join(map(str, found['loc'])) or 'body'}: {found['msg']}" for found in error.errors()
            )
            raise Problem(400, f"this is not a valid {form.__name__}: {'; '.join(problems)}") from error

    async def begin(
        self,
        request: web.Request,
        call: Callable[[RayJobHandle], dict[str, Any]],
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, str]:
        """Begin a request to the job in the request's path; return the trigger id as the answer.

        A repeated request with the same `triggerId` in its `body` begins once. Raises `Problem` if the job
        does not exist or has ended, or if another request has this trigger id.
        """
        watcher = await self.watcher(request)
        known = watcher.report or await watcher.fresh()
        chosen = (body or {}).get("triggerId")
        asked = f"{request.path.rpartition('/')[2]} {sorted((body or {}).items())}"
        if chosen is not None and (earlier := self.triggers.get(watcher.handle.job_id, chosen)) is not None:
            if earlier.asked != asked:
                raise Problem(409, f"trigger id {chosen} belongs to another request to job {known.job_id}")
            return {"request-id": chosen}
        if known.status.is_terminal:
            stopped = "" if known.savepoint is None else f"; it was stopped with savepoint {known.savepoint}"
            raise Problem(409, f"job {known.job_id} has ended: {known.status.value}{stopped}")
        made = self._threads.submit(call, watcher.handle)
        trigger_id = self.triggers.add(watcher.handle.job_id, made, asked, chosen)
        return {"request-id": trigger_id}
