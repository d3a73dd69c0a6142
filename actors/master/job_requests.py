"""Users' requests to a running job: checkpoints, savepoints, rescales, and stops with a savepoint.

Runs on the JobMaster's event loop. Each request goes to the scheduler, which answers it once. If the
JobMaster dies before that, the handle repeats the request to the next JobMaster.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from penstock.actors.shared.job_report import JobReport
from penstock.actors.shared.snapshot_answers import (
    CheckpointReply,
    SavepointAnswer,
    SnapshotRefused,
    answer_of_report,
    checkpoint_reply,
    reply_of_report,
    savepoint_answer,
)
from penstock.runtime.checkpoint.coordinator.requests import CheckpointAnswer, OnAnswer
from penstock.runtime.job.job_state import JobState, RescaleAnswer, RescaleRefused, StopRequest
from penstock.runtime.job.scheduler import JobScheduler

#: Seconds that a request waits for a job that starts or restarts, and seconds between two checks.
_PATIENCE: Final = 60.0
_POLL: Final = 0.1

T = TypeVar("T")

#: Context manager around each use of the scheduler.
Guard: TypeAlias = Callable[[], AbstractContextManager[None]]


class JobRequests:
    """Passes users' requests to the scheduler of one job, and waits for its answers.

    Args:
        prepared: Set when the job's scheduler has started, or the job has ended without it.
        ended: Set when the job has ended.
    """

    def __init__(
        self, guard: Guard, prepared: asyncio.Event, ended: asyncio.Event, report: Callable[[], JobReport]
    ) -> None:
        self._guard = guard
        self._prepared = prepared
        self._ended = ended
        self._report = report
        self._scheduler: JobScheduler | None = None
        self._storage_url = ""
        self._stop: tuple[StopRequest, asyncio.Future[SavepointAnswer]] | None = None

    def serve(self, scheduler: JobScheduler, storage_url: str) -> None:
        self._scheduler, self._storage_url = scheduler, storage_url

    async def checkpoint(self, full: bool) -> CheckpointReply:
        """Take a checkpoint in addition to the periodic ones; `min_pause` and `max_concurrent` apply."""
        scheduler = await self._settled()
        if scheduler is None:
            return reply_of_report(self._report())

        def trigger(on_answer: OnAnswer) -> None:
            scheduler.trigger_checkpoint(on_answer=on_answer, full=full)

        answer = await self._ask(trigger)
        if answer is None:
            return reply_of_report(self._report())
        return checkpoint_reply(answer, self._storage_url)

    async def savepoint(self, target: str | None) -> SavepointAnswer:
        scheduler = await self._settled()
        if scheduler is None:
            return answer_of_report(self._report())
        return self._saved(await self._ask(partial(scheduler.take_savepoint, target)))

    async def stop(self, drain: bool, target: str | None) -> SavepointAnswer:
        """Stop the job with a savepoint; return the savepoint, or the reason why the job continues.

        While a stop is in progress, an identical request gets the same answer; a different stop is refused.
        """
        scheduler = await self._settled()
        request = StopRequest(drain, target)
        if scheduler is not None and self._stop is not None:
            wanted, answer = self._stop
            if wanted != request:
                return SnapshotRefused(_is_stopped_already(wanted))
            return await asyncio.shield(answer)
        # If this process has no request and the job is stopping, an earlier JobMaster got the request.
        if scheduler is None or scheduler.state is JobState.STOPPING:
            return await self._end(request)
        stopping = asyncio.ensure_future(self._stop_once(scheduler, request))
        self._stop = request, stopping
        return await asyncio.shield(stopping)

    async def _stop_once(self, scheduler: JobScheduler, request: StopRequest) -> SavepointAnswer:
        try:
            saved = await self._ask(partial(scheduler.stop_with_savepoint, request))
            answer = self._saved(saved, drain=request.drain)
            # A stop that is repeated after the JobMaster's death may arrive after the job has ended.
            if isinstance(answer, SnapshotRefused) and not scheduler.state.is_terminal:
                return answer
            return await self._end(request)
        finally:
            self._stop = None

    async def _end(self, request: StopRequest) -> SavepointAnswer:
        await self._ended.wait()
        return answer_of_report(self._report(), drain=request.drain)

    async def rescale(self, parallelism: Mapping[str, int]) -> RescaleAnswer:
        scheduler = await self._settled()
        answer = None if scheduler is None else await self._ask(partial(scheduler.rescale, parallelism))
        return answer or RescaleRefused(f"the job has ended: {self._report().status.value}")

    async def _settled(self) -> JobScheduler | None:
        """Wait for the scheduler, and up to `_PATIENCE` for a job that starts or restarts.

        Returns `None` after the job's end.
        """
        await self._prepared.wait()
        scheduler, deadline = self._scheduler, time.monotonic() + _PATIENCE
        while scheduler is not None and scheduler.state.is_coming_up and time.monotonic() < deadline:
            await asyncio.sleep(_POLL)
        return None if self._ended.is_set() else scheduler

    def _saved(self, answer: CheckpointAnswer | None, *, drain: bool = False) -> SavepointAnswer:
        if answer is None:
            return answer_of_report(self._report(), drain=drain)
        return savepoint_answer(answer, self._storage_url)

    async def _ask(self, request: Callable[[Callable[[T], None]], None]) -> T | None:
        """Make a request to the scheduler; return `None` when the job has ended without an answer."""
        answered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._guard():
            request(answered.set_result)
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            waiting: set[asyncio.Future[Any]] = {answered, ended}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
        return answered.result() if answered.done() else None


def _is_stopped_already(request: StopRequest) -> str:
    where = "the checkpoint storage" if request.target is None else request.target
    how = "with a drain" if request.drain else "without a drain"
    return (
        f"it is already being stopped {how}, with a savepoint in {where}: repeat that request to wait for "
        "the end of the job, or cancel the job, which abandons the savepoint"
    )
