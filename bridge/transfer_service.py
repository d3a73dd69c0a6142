"""`TransferService`: serves the jobs that read one DataFrame, in a thread of the program that owns it.

The thread waits at the rendezvous until all readers of a job have registered, and then transfers the rows to
their receive buffers (`JobBuffers`). A DataFrame is transferred by one Spark job, a streaming DataFrame by a
query that runs as long as the job.

The rendezvous is an actor that ends with the program. Receive buffers then learn that no program serves them.

Spark numbers micro-batches without gaps and never repeats a committed micro-batch. So if a number does not
follow the job's newest number, the job and the checkpoint location do not belong together.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import ray

from penstock.actors.shared.actor_calls import ANSWER, NoAnswerError, RepeatedCall, while_unavailable
from penstock.actors.shared.registry import find_actor, start_actor
from penstock.bridge.needed_part import NeededPart
from penstock.bridge.push_partition import SUMMARY, PushPartition
from penstock.bridge.receive_buffer_messages import (
    DIED,
    ONE_JOB,
    OTHER_BUFFER,
    EpochStage,
    TransferError,
    buffer_name,
    rendezvous_name,
)
from penstock.bridge.session.session import is_alive
from penstock.runtime.error_text import error_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


program_ends: Final = threading.Event()

atexit.register(program_ends.set)


class QueryPositionError(TransferError):
    """The query continues at another micro-batch than the job; a restart does not help."""


def went_back(epoch: int) -> QueryPositionError:
    return QueryPositionError(
        f"the query sends micro-batch {epoch}, but the job already has later ones: the query has lost its "
        "checkpoint location, or has another location than when the job's snapshot was taken"
    )


def left_out(epoch: int, newest: int) -> QueryPositionError:
    """The error for missing micro-batches after `newest`, which is -1 if the job has none."""
    end = f"after micro-batch {newest}" if newest >= 0 else "before micro-batch 0"
    return QueryPositionError(
        f"the query continues with micro-batch {epoch}, but the job's snapshot ends {end}: Spark has "
        f"committed {_between(newest + 1, epoch - 1)}, and will not send the rows again. Start the job with "
        "restore_from= a newer snapshot: the last checkpoint of the job that read these rows. To read "
        "everything again, start it without a snapshot and with another checkpoint_location"
    )


def inside_epoch(epoch: int) -> QueryPositionError:
    """The error for a snapshot in which only some readers have read a micro-batch to its end."""
    return QueryPositionError(
        f"the job's snapshot was taken inside micro-batch {epoch}: some readers are past its end, others "
        "before its beginning. Start the job with restore_from= another snapshot: the checkpoint that "
        "the end of a micro-batch induces is never inside a micro-batch"
    )


def begins_later(job_id: str, epoch: int) -> str:
    """The warning for a job without a snapshot whose first micro-batch is not number 0."""
    return (
        f"job {job_id} was started without a snapshot of its query, and begins with micro-batch {epoch}: "
        f"Spark has committed {_between(0, epoch - 1)}, whose rows are not in the state of this job. To "
        "include them, start the job with restore_from= the last checkpoint of the job that read these rows. "
        "To read everything again, start it with another checkpoint_location"
    )


def _between(first: int, last: int) -> str:
    return f"micro-batch {first}" if first == last else f"micro-batches {first} to {last}"


logger = logging.getLogger(__name__)

#: Maximum seconds for the receive buffers to answer a check or the report of a failure.
_LOOK: Final = 10.0


@dataclass(frozen=True, slots=True)
class JobBuffers:
    """The receive buffers of one job, as the program with the Spark session calls them.

    Attributes:
        schema: Serialized Arrow schema of the frames.
        part: Part of the DataFrame that the job needs.
    """

    job_id: str
    names: tuple[str, ...]
    handles: tuple[Any, ...]
    address: str
    schema: bytes
    part: NeededPart = field(default_factory=NeededPart)

    def transfer(self, df: DataFrame, epoch: int) -> bool:
        """Push the needed part of a DataFrame as one epoch.

        Returns false if the epoch was closed before, or if no more epochs may follow.

        Raises:
            TransferError: The received rows differ from Spark's counts.
            QueryPositionError: The epoch does not follow the job's newest one.
            Exception: Spark's error, when its job fails.
        """
        stages: list[EpochStage] = self.ask("stage", epoch)
        self._check_place(epoch, stages)
        if EpochStage.CLOSED in stages:
            self._close(epoch)
            return False
        run = secrets.token_hex(4)
        if not all(self.ask("begin", epoch, run)):
            return False
        push = PushPartition(self.address, self.names, self.schema, epoch, run, self.job_id, self.part.steps)
        summaries = self.part.rows_of(df).mapInArrow(push, SUMMARY).collect()
        expected: list[dict[int, tuple[int, int]]] = [{} for _ in self.names]
        for summary in summaries:
            expected[summary.buffer][summary.partition] = (summary.frames, summary.rows)
        calls = [
            partial(buffer.prepare.remote, epoch, run, counts)
            for buffer, counts in zip(self.handles, expected, strict=True)
        ]
        _raise_problems(self._answers(calls, ANSWER))
        self._close(epoch)
        return True

    def _check_place(self, epoch: int, stages: Sequence[EpochStage]) -> None:
        if EpochStage.PAST in stages:
            raise went_back(epoch)
        if EpochStage.GAP in stages:
            raise left_out(epoch, min(self.ask("newest")))
        if {EpochStage.CLOSED, EpochStage.OPEN} <= set(stages):
            raise inside_epoch(epoch)  # a job closes no buffer before all buffers have prepared
        if EpochStage.AHEAD in stages:
            logger.warning("%s", begins_later(self.job_id, epoch))

    def _close(self, epoch: int) -> None:
        """Close an epoch that all receive buffers have prepared; some may have closed it already."""
        _raise_problems(self.ask("close", epoch))

    def are_there(self) -> bool:
        """Return whether all receive buffers are alive; they end with their job.

        A buffer that is silent, or that Ray can't reach, counts as alive; a later call raises the error.
        """
        try:
            self.ask("statistics", seconds=_LOOK)
        except NoAnswerError as error:
            logger.warning(
                "can't tell whether the receive buffers of job %s are alive: %s", self.job_id, error
            )
        except ray.exceptions.RayActorError:
            return False
        return True

    def finish(self) -> None:
        """End the readers' input."""
        self.ask("finish")

    def fail(self, reason: str) -> None:
        """Fail the readers with this reason; skip dead receive buffers."""
        calls = [
            RepeatedCall[None](partial(buffer.fail.remote, reason), self._who) for buffer in self.handles
        ]
        deadline = time.monotonic() + _LOOK
        for call in calls:
            if not program_ends.is_set() and not call.wait(deadline - time.monotonic()):
                logger.warning(
                    "a receive buffer of job %s has not confirmed this failure: %s", self.job_id, reason
                )

    def ask(self, method: str, *arguments: Any, seconds: float = ANSWER) -> list[Any]:
        """Call a method of all receive buffers at once; it must be idempotent. Returns their answers."""
        calls = [partial(getattr(buffer, method).remote, *arguments) for buffer in self.handles]
        return self._answers(calls, seconds)

    def _answers(self, calls: Sequence[Callable[[], Any]], seconds: float) -> list[Any]:
        repeated = [RepeatedCall[Any](call, self._who) for call in calls]
        deadline = time.monotonic() + seconds
        return [call.answer(max(0.0, deadline - time.monotonic())) for call in repeated]

    @property
    def _who(self) -> str:
        return f"the receive buffers of job {self.job_id}"


def _raise_problems(answers: Sequence[str | None]) -> None:
    problems = [problem for problem in answers if problem is not None]
    if problems:
        raise TransferError("; ".join(problems))


@dataclass(frozen=True, slots=True)
class TransferRequest:
    """Request of a job whose readers have all registered; each continues after its epoch in `epochs`."""

    job_id: str
    epochs: tuple[int, ...]
    part: NeededPart = field(default_factory=NeededPart)


class Rendezvous:
    """Gathers registrations of each job's receive buffers; with `one_job` only the first job gets rows."""

    def __init__(self, one_job: bool = False) -> None:
        self._one_job = one_job
        #: By job and index: the buffer's incarnation, and the micro-batch after which its reader continues.
        self._registered: dict[str, dict[int, tuple[str, int]]] = {}
        self._requests: list[TransferRequest] = []
        self._changed = asyncio.Event()

    async def register(
        self,
        job_id: str,
        index: int,
        of: int,
        instance: str,
        epoch: int = -1,
        part: NeededPart = NeededPart(),  # noqa: B008 # frozen
    ) -> str | None:
        """Register a receive buffer; return the reason why no rows will arrive, or `None`. Idempotent.

        Args:
            epoch: The micro-batch after which the buffer's reader continues; -1 for none.
            part: The part of the DataFrame that the job needs; equal for all its buffers.
        """
        if self._one_job and self._registered and job_id not in self._registered:
            return ONE_JOB.format(*self._registered)
        known = self._registered.setdefault(job_id, {})
        if index in known:
            # Earlier rows went to another incarnation, whose process has ended.
            return None if known[index][0] == instance else DIED
        known[index] = (instance, epoch)
        if len(known) == of:
            self._requests.append(TransferRequest(job_id, tuple(known[i][1] for i in range(of)), part))
            self._changed.set()
            self._changed = asyncio.Event()
        return None

    async def has_all(self, job_id: str, of: int) -> bool:
        return len(self._registered.get(job_id, {})) == of

    async def request(self, number: int, patience: float) -> TransferRequest | None:
        """Return request number `number`, from 0; `None` if it is missing after `patience` s. Idempotent."""
        deadline = time.monotonic() + patience
        while number >= len(self._requests):
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)
        return self._requests[number]


#: Seconds between two checks that the program and its session are alive. The thread never waits inside of
#: Ray: a call in progress when the program leaves its cluster would end the program.
_POLL: Final = 1.0
#: Seconds that a call waits at the rendezvous for a request.
_REQUEST: Final = 10.0
#: Maximum seconds from an error to the end of the program, if that end caused the error.
_GRACE: Final = 2.0


#: Transfers rows to the receive buffers of one job; an error fails only this job.
Serve: TypeAlias = Callable[[JobBuffers], None]


class TransferService:
    """Serves the requests of jobs, one after another, as long as the session lives.

    A service costs the program a thread, and the cluster a rendezvous process of about 80 MB. Both stay when
    the jobs have ended, because another job may start. An idle service makes a call every ten seconds and
    checks the session every second.
    """

    def __init__(
        self, session: SparkSession, schema: pa.Schema, serve: Serve, *, one_job: bool = False
    ) -> None:
        self.id = secrets.token_hex(6)
        self._session = session
        self._schema = schema
        self._serve = serve
        self._rendezvous = start_actor(Rendezvous, rendezvous_name(self.id), one_job, num_cpus=0)
        self._address: str = ray.get_runtime_context().gcs_address
        self._thread = threading.Thread(target=self._run, name=f"transfer-{self.id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        taken = 0
        call: RepeatedCall[TransferRequest | None] | None = None
        try:
            while not program_ends.is_set() and ray.is_initialized():
                if not is_alive(self._session):
                    ray.kill(self._rendezvous)
                    return
                call = self._next_request(taken) if call is None else call
                if not call.wait(_POLL):
                    continue
                request, call = call.result(), None
                if request is not None:
                    taken += 1
                    self._take(request)
        except Exception as error:
            # The usual cause: Ray or Spark has stopped because the program ends.
            if program_ends.wait(_GRACE) or not ray.is_initialized():
                logger.debug("transfer %s ends: %s", self.id, error)
                return
            logger.exception("transfer %s has failed", self.id)
            ray.kill(self._rendezvous)  # so that the receive buffers see that no program serves them

    def _next_request(self, taken: int) -> RepeatedCall[TransferRequest | None]:
        call = partial(self._rendezvous.request.remote, taken, _REQUEST)
        return RepeatedCall[TransferRequest | None](
            call, "the rendezvous of a transfer", while_unavailable(ANSWER)
        )

    def _take(self, request: TransferRequest) -> None:
        try:
            buffers = self._buffers(request)
        except ValueError:
            logger.info("job %s has ended before its rows were transferred", request.job_id)
            return
        if len(set(request.epochs)) > 1:
            buffers.fail(OTHER_BUFFER)
            return
        try:
            self._serve(buffers)
        except Exception as error:
            logger.exception("the transfer to job %s has failed", request.job_id)
            buffers.fail(f"the transfer has failed: {error_text(error)}")

    def _buffers(self, request: TransferRequest) -> JobBuffers:
        names = tuple(buffer_name(request.job_id, self.id, i) for i in range(len(request.epochs)))
        handles = tuple(map(find_actor, names))
        schema = request.part.schema_in(self._schema).serialize().to_pybytes()
        return JobBuffers(request.job_id, names, handles, self._address, schema, request.part)
