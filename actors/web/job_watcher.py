"""Polls the JobMaster of one job, on behalf of all browsers that show it.

A report costs the JobMaster some milliseconds, and the subtasks nothing: their counters come from their last
heartbeats. The watcher polls once a second while a page is open. Otherwise it polls every ten seconds, so the
curves have no gaps. A call to a JobMaster that hangs or is being replaced lasts until a JobMaster answers, at
most two minutes. It blocks a thread, never the server. Meanwhile the page shows the age of its data.

A watcher belongs to the server's event loop. Calls of the job's handle run in threads.

A report has the last 20 checkpoints. The JobMaster remembers a thousand, and encoding these takes about
twenty milliseconds. A page needs all of them after each checkpoint. So the server requests them once, then
adds the checkpoints of each report. It requests them again after a gap, when no page was open while many
checkpoints were taken. An ended checkpoint's record never changes, and stays here even if a new JobMaster has
lost it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Container, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeAlias, TypeVar

import ray

from penstock.actors.client.job_handle import RayJobHandle
from penstock.actors.client.logs import LogLine, LogReader
from penstock.actors.shared.job_report import CHECKPOINTS_SHOWN, JobReport
from penstock.actors.web.answers import dumps
from penstock.actors.web.samples import Sample, Samples, VerticesSample, lag_trend, sample_of
from penstock.runtime.checkpoint.coordinator.history import CAPACITY, CheckpointRecords
from penstock.runtime.errors import DeploymentError, PenstockError
from penstock.runtime.snapshot.checkpoint_record import CheckpointRecord, CheckpointStatus
from penstock.runtime.snapshot.plain_values import to_plain

_Key: TypeAlias = tuple[int, int, float]
#: Terminal states of a checkpoint.
_ENDED: Final = (CheckpointStatus.COMPLETED, CheckpointStatus.FAILED)
#: Records above `CAPACITY` that are kept before old ones are dropped; some savepoints and failures stay.
_SLACK: Final = 200


class KnownCheckpoints:
    def __init__(self) -> None:
        self.is_complete = False
        self._known: dict[_Key, CheckpointRecord] = {}

    def records(self, shown: Iterable[CheckpointRecord] = ()) -> list[CheckpointRecord]:
        """All known checkpoints and those of a report, oldest first."""
        return [*self._joined(shown).values()]

    def merge(self, shown: Sequence[CheckpointRecord]) -> None:
        newest = shown[-CHECKPOINTS_SHOWN:]
        if len(newest) < CHECKPOINTS_SHOWN:  # the report has all checkpoints
            self._known = _by_key(shown)
            self.is_complete = True
        elif self.is_complete and _key(newest[0]) in self._known:
            self._keep(newest, {_key(record) for record in newest if record.status not in _ENDED})
        else:
            self.is_complete = False

    def take(self, remembered: Iterable[CheckpointRecord]) -> None:
        given = _by_key(remembered)
        self._keep(given.values(), given)
        self.is_complete = True

    def _joined(self, newer: Iterable[CheckpointRecord]) -> dict[_Key, CheckpointRecord]:
        joined = dict(self._known)
        is_in_order = True
        newest = next(reversed(joined), None)
        for key, record in _by_key(newer).items():
            known = joined.get(key)
            if known is None or known.status not in _ENDED:
                is_in_order &= known is not None or newest is None or key > newest
                joined[key] = record
        return joined if is_in_order else dict(sorted(joined.items()))

    def _keep(self, newer: Iterable[CheckpointRecord], live: Container[_Key]) -> None:
        """Keep the ended records, and those in `live`."""
        joined = self._joined(newer)
        self._known = {k: record for k, record in joined.items() if record.status in _ENDED or k in live}
        if len(self._known) > CAPACITY + _SLACK:
            bounded = CheckpointRecords()
            bounded.replace_all(self._known.values())
            self._known = _by_key(bounded)


def _key(record: CheckpointRecord) -> _Key:
    return record.attempt, record.checkpoint_id, record.triggered_at


def _by_key(records: Iterable[CheckpointRecord]) -> dict[_Key, CheckpointRecord]:
    return {_key(record): record for record in records}


logger = logging.getLogger(__name__)

T = TypeVar("T")
#: Runs a call in a thread.
InThread = Callable[..., Coroutine[Any, Any, Any]]

#: Seconds between two polls while a page is open, and while no page is open.
_LOOKED_AT: Final = 1.0

_UNSEEN: Final = 10.0
#: Seconds without an answer after which a JobMaster counts as silent.
SILENT: Final = 3.0
#: Seconds that a request waits for a newer report.
_FRESH: Final = 2.0
#: Maximum age, in seconds, of a report that answers a request without another poll.
_NEW: Final = 0.2


class JobWatcher:
    """Holds the newest report of a job, its curves, and the error of the last poll, if any."""

    def __init__(self, handle: RayJobHandle, in_thread: InThread) -> None:
        self.handle = handle
        self.report: JobReport | None = None
        self.samples = Samples[Sample]()
        self.vertex_samples = Samples[VerticesSample]()
        self.version = 0
        self.error: Exception | None = None
        self.newest_sample: Sample | None = None
        self._in_thread = in_thread
        self._history = KnownCheckpoints()
        self._history_task: asyncio.Task[None] | None = None
        self._asked_at = 0.0
        self._answered_at: float | None = None
        self._viewers = 0
        self._wanted = asyncio.Event()
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._encoded: tuple[int, bytes] = (-1, b"")

    def begin(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._watch())

    async def end(self) -> None:
        for task in (self._task, self._history_task):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    @property
    def has_ended(self) -> bool:
        """Whether the job's last report is known; it never changes."""
        return self.report is not None and self.report.status.is_terminal

    @property
    def has_viewers(self) -> bool:
        return self._viewers > 0

    @property
    def age(self) -> float:
        """Seconds since the JobMaster answered.

        0 if it has answered the last call or has never answered, and for an ended job.
        """
        if self.has_ended or self._answered_at is None or self._asked_at <= self._answered_at:
            return 0.0
        return time.monotonic() - self._answered_at

    @property
    def is_answering(self) -> bool:
        return self.age < SILENT

    def status(self) -> dict[str, Any]:
        """The report's age, and whether the job is catching up."""
        trend = None if self.has_ended else lag_trend(self.samples.all())
        return {
            "age": round(self.age, 1),
            "answering": self.is_answering,
            "live": not self.has_ended,
            "lag_trend": None if trend is None else trend.to_dict(),
        }

    def encoded(self) -> bytes:
        """The newest report as JSON; encoded once for all browsers."""
        if self._encoded[0] != self.version and self.report is not None:
            self._encoded = self.version, dumps(self.report.to_dict()).encode()
        return self._encoded[1]

    async def fresh(self) -> JobReport:
        """Return a current report, or the newest known one if the poll fails or takes more than two seconds.

        Raises:
            PenstockError, RayError: No report is known: the poll failed, or took more than two seconds.
        """
        is_new = self._answered_at is not None and time.monotonic() - self._answered_at < _NEW
        if not self.has_ended and not is_new:
            self.begin()
            asked, version = time.monotonic(), self.version
            self._wanted.set()
            with suppress(TimeoutError):
                await asyncio.wait_for(
                    self._changed_to(
                        lambda: (
                            (self._asked_at >= asked and (self.version > version or self.error is not None))
                            or self.has_ended
                        )
                    ),
                    _FRESH,
                )
        if self.report is None:
            if self.error is not None:
                raise self.error
            msg = f"the JobMaster of job {self.handle.job_id} has not answered yet; ask again"
            raise DeploymentError(msg)
        return self.report

    async def checkpoints(self, report: JobReport) -> list[CheckpointRecord]:
        """Return all remembered checkpoints, oldest first, or the report's if no others are known."""
        if not self._history.is_complete:
            if self._history_task is None or self._history_task.done():
                self._history_task = asyncio.get_running_loop().create_task(self._ask_for_history())
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._history_task), _FRESH)
        return self._history.records(report.checkpoint_history)

    async def _ask_for_history(self) -> None:
        try:
            found = await self._in_thread(self.handle.checkpoints)
        except (PenstockError, ray.exceptions.RayError) as error:
            logger.warning("can't read the checkpoints of job %s: %s", self.handle.job_id, error)
        else:
            self._history.take(details.record for details in found)

    @asynccontextmanager
    async def viewed(self) -> AsyncIterator[None]:
        self._viewers += 1
        self._wanted.set()
        self.begin()
        try:
            yield
        finally:
            self._viewers -= 1

    async def wait_for_change(self, version: int, at_most: float) -> bool:
        """Wait up to `at_most` seconds for a report newer than `version`; return whether it arrived."""
        with suppress(TimeoutError):
            await asyncio.wait_for(
                self._changed_to(lambda: self.version > version or self.has_ended), at_most
            )
        return self.version > version

    async def _changed_to(self, has_happened: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(has_happened)

    async def _watch(self) -> None:
        while not self.has_ended:
            self._wanted.clear()
            await self._ask()
            if self.has_ended:
                return
            pause = _LOOKED_AT if self._viewers else _UNSEEN
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), pause)

    async def _ask(self) -> None:
        self._asked_at = time.monotonic()
        try:
            report = await self._in_thread(self.handle.report, fresh=False)
        except (PenstockError, ray.exceptions.RayError) as error:
            if self.error is None:
                logger.warning("job %s does not answer: %s", self.handle.job_id, error)
            self.error = error
        else:
            self.error = None
            self._answered_at = time.monotonic()
            self.report = report
            self._history.merge(report.checkpoint_history)
            self.version += 1
            self.newest_sample = None
            if not report.status.is_terminal:
                sample = sample_of(report, time.time())
                if self.samples.add(sample):
                    self.newest_sample = sample
                    self.vertex_samples.add(VerticesSample(report, sample.at))
        async with self._changed:
            self._changed.notify_all()


#: Maximum number of lines that are kept per job.
KEPT: Final = 20_000
#: Maximum number of lines of one answer.
MOST: Final = 2_000
#: Lines of the first answer to a page.
TAIL: Final = 500


class JobLog:
    """Reads a job's log, and keeps its last lines. Methods block; threads may share the object."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._lines: deque[LogLine] = deque(maxlen=KEPT)
        self._end = 0
        self._lock = threading.Lock()

    def page(self, offset: int | None, is_wanted: Callable[[LogLine], bool]) -> dict[str, Any]:
        """The wanted lines from number `offset` (`None`: of the last 500), and the number of the next line.

        At most 2,000 lines.
        """
        with self._lock:
            new = self._reader.read()
            self._lines.extend(new)
            self._end += len(new)
            first = self._end - len(self._lines)
            lines = list(self._lines)
            silent = list(self._reader.silent_nodes)
        start = max(first, self._end - TAIL if offset is None else offset)
        chosen: list[LogLine] = []
        number = start
        for line in lines[start - first :]:
            if len(chosen) == MOST:
                break
            number += 1
            if is_wanted(line):
                chosen.append(line)
        return {
            "lines": to_plain(chosen),
            "next": max(number, start),
            "silent_nodes": silent,
        }


def filter_lines(vertex: str | None, subtask: int | None, text: str) -> Callable[[LogLine], bool]:
    """Make a filter for lines of a vertex and a subtask that contain `text`, ignoring case.

    Example:
        >>> line = LogLine("2026-01-02T03:04:05.678901Z", "count", 0, "out", "Hello")
        >>> filter_lines("count", None, "hell")(line), filter_lines("other", None, "")(line)
        (True, False)
    """
    searched = text.casefold()

    def is_wanted(line: LogLine) -> bool:
        return (
            (vertex is None or line.vertex == vertex)
            and (subtask is None or line.subtask == subtask)
            and searched in line.text.casefold()
        )

    return is_wanted
