"""`from_structured_streaming`: the micro-batches of a streaming query as an unbounded source of a job.

Spark numbers the micro-batches, commits one when `foreachBatch` returns, and after a failure gives the same
number to the same rows. So a micro-batch is an epoch of the receive buffers (`receive_buffer.py`), whose rows
can be read when all of them have arrived. `foreachBatch` returns only when a completed checkpoint of the job
covers the micro-batch. So Spark commits no micro-batch that the job could still lose, and the job counts no
repeated micro-batch twice.

The number of a micro-batch is the replayable offset. A snapshot that was taken at the end of a micro-batch
contains its number. A job that starts from it treats all micro-batches up to that number as closed. Spark may
repeat the last one, which is then skipped.

A query that fails is restarted a few times, with growing pauses, because causes such as an unavailable
storage often last some seconds. A query that ends (its trigger is `availableNow` or `once`, or it is stopped)
ends the stream, and the job with it.

The end of a micro-batch induces a checkpoint, because with periodic checkpoints alone each micro-batch would
take a whole period. The program with the query requests the checkpoint from the JobMaster as soon as it would
cover the micro-batch. By then the micro-batch is closed in all receive buffers. Every reader has emitted its
part, and knows that the micro-batch has ended. A micro-batch without rows also needs a checkpoint. A snapshot
in which only some readers know of the end can't start a job. So such a snapshot must not be the newest one
when Spark continues.

A mark in the rows would be simpler (`runtime/operators/coordinators.py`). But then every checkpoint and
savepoint would wait for the end of a micro-batch. A barrier may stand anywhere in a micro-batch, because
receive buffers remember frames. Only Spark's commit needs a barrier after the micro-batch's end.

The request is repeated until all receive buffers know a completed checkpoint that covers the micro-batch. A
single request may not suffice:

* The checkpoint failed, or the job restarts. The failure counts like any other (`tolerable_failures`).
* The completed checkpoint does not cover the micro-batch, because a restored reader reads its part again.
* The JobMaster died: its successor gets the request.

A query has at most one request in progress. `min_pause` and `max_concurrent` delay it like a periodic
checkpoint, because users set them to give the job time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Unpack

import ray

from penstock.actors.client.cluster import connect
from penstock.actors.shared.actor_calls import ANSWER
from penstock.actors.shared.registry import find_master
from penstock.actors.shared.snapshot_answers import CheckpointReply, SnapshotRefused
from penstock.bridge.arrow import arrow_schema_of
from penstock.bridge.from_spark import check_arguments
from penstock.bridge.needed_part import padded_columns
from penstock.bridge.receive_buffer_messages import (
    DEFAULT_MAX_DISK_BYTES,
    DEFAULT_WINDOW,
    DIED,
    NO_PROGRAM,
    BufferSettings,
    TransferError,
)
from penstock.bridge.session.session import is_alive, spark_error_text
from penstock.bridge.spark_source import SparkSource
from penstock.bridge.transfer_service import JobBuffers, QueryPositionError, TransferService, program_ends
from penstock.runtime.config.checks import Location, location
from penstock.runtime.errors import GraphError
from penstock.runtime.graph.streams.checked_call import OPTION_NAMES, OperatorOptions, checked_call
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.record.elements import BatchFormat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


logger = logging.getLogger(__name__)

#: Seconds that one call waits in a receive buffer.
_COVERED_LOOK: Final = 2.0


def wait_until_covered(buffers: JobBuffers, epoch: int, *, induce: bool) -> None:
    """Return when a completed checkpoint covers a closed epoch in all receive buffers.

    Args:
        induce: Request the checkpoint; otherwise wait for the next periodic one.

    Raises:
        TransferError: The epoch will never be covered.
        NoAnswerError: A receive buffer is silent, or Ray can't reach it.
        ray.exceptions.RayActorError: The receive buffers have ended, usually with their job.
    """
    covered = _are_covered(buffers, epoch, 0.0)
    while not covered:
        request = _request_checkpoint(buffers, epoch) if induce else None
        covered = _are_covered(buffers, epoch, _COVERED_LOOK)
        while not covered and request is not None and not _is_answered(request, epoch):
            covered = _are_covered(buffers, epoch, _COVERED_LOOK)


def _are_covered(buffers: JobBuffers, epoch: int, patience: float) -> bool:
    return all(buffers.ask("wait_until_covered", epoch, patience, seconds=patience + ANSWER))


def _request_checkpoint(buffers: JobBuffers, epoch: int) -> Any | None:
    """Request a checkpoint when all readers have emitted the epoch; `None` while there is no JobMaster."""
    while not all(buffers.ask("wait_until_emitted", epoch, _COVERED_LOOK, seconds=_COVERED_LOOK + ANSWER)):
        logger.debug("micro-batch %d has not been read to its end by job %s", epoch, buffers.job_id)
    try:
        master: Any = find_master(buffers.job_id)
    except ValueError:
        return None
    return master.checkpoint.remote(buffers.job_id)


def _is_answered(request: Any, epoch: int) -> bool:
    """Whether a request has ended, successfully or not."""
    if not ray.wait([request], timeout=0)[0]:
        return False
    try:
        reply: CheckpointReply = ray.get(request)
    except ray.exceptions.RayActorError as error:
        reply = SnapshotRefused(f"its JobMaster died: {error}")
    except ValueError as error:
        reply = SnapshotRefused(f"the job has ended: {error}")
    if isinstance(reply, SnapshotRefused):
        logger.warning("no checkpoint for micro-batch %d yet, asking again: %s", epoch, reply.why)
    return True


#: Seconds before the first restart, and the maximum.
SHORTEST: Final = 1.0
LONGEST: Final = 30.0
#: Seconds between two checks that the query is still wanted.
_LOOK: Final = 1.0


class QueryRestarts:
    """Counts the failures of a query, and lengthens its pauses.

    Args:
        most: Maximum number of restarts without progress.
    """

    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self._pause = SHORTEST

    @property
    def are_used_up(self) -> bool:
        return self._left < 0

    def pause(self, *, progress: bool) -> float:
        """Count a failed run; return the seconds until the next one."""
        if progress:
            self._left, self._pause = self._most, SHORTEST
        else:
            self._left -= 1
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST)
        return pause


def rest(
    seconds: float,
    is_wanted: Callable[[], bool],
    wait_for_end: Callable[[float], bool] = program_ends.wait,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Wait, and return whether the query is still wanted, which is checked every second."""
    deadline = clock() + seconds
    while (left := deadline - clock()) > 0:
        if wait_for_end(min(left, _LOOK)) or not is_wanted():
            return False
    return True


_POLL: Final = 0.2
#: Seconds between checks that the job is alive.
_JOB_LOOK: Final = 2.0

_STOPPED: Final = (
    "the Spark session was stopped while its query ran; keep it for as long as the job should run (stop() of "
    "the query ends the job normally), and start the job again"
)
#: Error of a query that is not restarted any more; `{}` is the text of its failure.
_FAILED: Final = (
    "{}. The micro-batches before the failure are committed and stay. Fix the cause, and start a job with "
    "the same checkpoint_location and restore_from= this job's last checkpoint: the new job continues after "
    "the committed micro-batches"
)


@checked_call(OPTION_NAMES)
def from_structured_streaming(
    env: StreamEnvironment,
    df: DataFrame,
    *,
    checkpoint_location: Location,
    id: str = "from-structured-streaming",
    trigger: Mapping[str, Any] | None = None,
    batch_format: BatchFormat = "arrow",
    query_restarts: int = 3,
    induce: bool = True,
    max_disk_bytes: int = DEFAULT_MAX_DISK_BYTES,
    **options: Unpack[OperatorOptions],
) -> DataStream[Any]:
    """A stream of the rows of a streaming DataFrame, micro-batch by micro-batch, each exactly once.

    Spark commits a micro-batch when a completed checkpoint covers it. The end of each micro-batch induces a
    checkpoint, so the job's checkpoint interval may be long. Keep the program with the query running as long
    as the job runs.

    Args:
        env: The environment of the job; it must take checkpoints.
        df: The streaming DataFrame.
        checkpoint_location: Folder in which Spark keeps the query's progress. A new job with the same
            location continues where the last one ended; start it from a snapshot of that job to keep its
            state.
        id: Id of the source; unique in the job.
        trigger: The arguments of Spark's `trigger`, such as `{"processingTime": "5 seconds"}` or
            `{"availableNow": True}`; by default a micro-batch begins when the last one is done.
        batch_format: Format of the batches, as in `from_spark`.
        query_restarts: Maximum number of restarts of a query without progress, after pauses of 1, 2, 4
            and up to 30 seconds.
        induce: Whether the end of a micro-batch induces a checkpoint. Without it a micro-batch waits for the
            next periodic one.
        max_disk_bytes: Limit as in `from_spark`. Micro-batches that no checkpoint covers must fit in it.
        **options: See `OperatorOptions`.

    Raises:
        GraphError: The job takes no checkpoints, the DataFrame is not a stream, a column's type can't be
            transferred, or an argument is invalid.
        ConfigurationError: `checkpoint_location` is not a path or URL.
    """
    what = "from_structured_streaming"
    checkpoint_location = location("checkpoint_location", checkpoint_location)
    check_arguments(what, df, batch_format, DEFAULT_WINDOW, max_disk_bytes)
    if not df.isStreaming:
        msg = f"{what}: this DataFrame is not a stream; use from_spark"
        raise GraphError(msg)
    if env.config.checkpointing is None:
        msg = (
            f"{what}: Spark may commit a micro-batch only when a checkpoint of the job covers it, but this "
            "job takes none: give the StreamEnvironment checkpointing=Checkpointing(...)"
        )
        raise GraphError(msg)
    connect()
    query = StreamingQuery(
        df,
        id,
        checkpoint_location,
        dict(trigger or {}),
        query_restarts,
        induce=induce,
    )
    schema = arrow_schema_of(df)
    transfer = TransferService(df.sparkSession, schema, query.serve, one_job=True)
    buffers = BufferSettings(transfer.id, staged=True, max_disk_bytes=max_disk_bytes)
    stream: DataStream[Any] = env.from_source(
        id, SparkSource(buffers, batch_format, schema, padded_columns(df)), **options
    )
    transfer.start()
    return stream


@dataclass(frozen=True, slots=True)
class QueryEnd:
    """Outcome of a run of the query.

    Attributes:
        stopped_here: Whether the end of the job or program stopped the query; its stream has not ended.
        is_final: Whether a restart would be useless.
    """

    failure: str | None = None
    stopped_here: bool = False
    is_final: bool = False


class StreamingQuery:
    """Runs the query for one job; see `from_structured_streaming` for the arguments."""

    def __init__(
        self,
        df: DataFrame,
        name: str,
        checkpoint_location: str,
        trigger: Mapping[str, Any],
        restarts: int,
        *,
        induce: bool = True,
        rest: Callable[[float, Callable[[], bool]], bool] = rest,
    ) -> None:
        self._df = df
        self._name = name
        self._location = checkpoint_location
        self._trigger = trigger
        self._restarts = restarts
        self._induce = induce
        self._rest = rest
        #: Held by the function for `foreachBatch`, which may still run when Spark has abandoned its query.
        self._one_batch = threading.Lock()
        self._batches = 0
        #: Set when the query and the job do not continue at the same micro-batch.
        self._misplaced: QueryPositionError | None = None

    def serve(self, buffers: JobBuffers) -> None:
        session, restarts = self._df.sparkSession, QueryRestarts(self._restarts)
        while True:
            before = self._batches
            end = self._run_once(buffers)
            if end.stopped_here or not buffers.are_there():
                break
            if end.failure is None:
                buffers.finish()
                return
            pause = restarts.pause(progress=self._batches > before)
            reason = self._final_reason(end, restarts)
            if reason is not None:
                logger.error("the query for job %s has failed: %s", buffers.job_id, reason)
                buffers.fail(reason)
                return
            logger.warning(
                "the query for job %s starts again in %g s: %s", buffers.job_id, pause, end.failure
            )
            rested = self._rest(pause, lambda: is_alive(session) and buffers.are_there())
            if not rested and is_alive(session):  # the next run reports a stopped session
                break
        logger.info("the query for job %s ends, because its job or its program ends", buffers.job_id)
        buffers.fail(NO_PROGRAM if program_ends.is_set() else DIED)

    def _final_reason(self, end: QueryEnd, restarts: QueryRestarts) -> str | None:
        """Return the reason not to restart a failed query, or `None`."""
        if not is_alive(self._df.sparkSession):
            return _STOPPED
        if end.is_final:
            return end.failure
        return _FAILED.format(end.failure) if restarts.are_used_up else None

    def _run_once(self, buffers: JobBuffers) -> QueryEnd:
        session = self._df.sparkSession
        query: Any = None
        try:
            query = self._start(buffers)
            stopped_here = _watch(query, buffers)
            error = query.exception()
            with self._one_batch:
                if stopped_here:
                    return QueryEnd(stopped_here=True)
                if self._misplaced is not None:
                    return QueryEnd(str(self._misplaced), is_final=True)
                return QueryEnd(None if error is None else spark_error_text(error, session))
        except Exception as error:  # Spark and Py4J raise many kinds
            return QueryEnd(spark_error_text(error, session))
        finally:
            _stop(query)

    def _start(self, buffers: JobBuffers) -> Any:
        writer = self._df.writeStream.queryName(f"{self._name} of {buffers.job_id}")
        if self._trigger:
            writer = writer.trigger(**self._trigger)
        return (
            writer.option("checkpointLocation", self._location)
            .foreachBatch(lambda batch, number: self._transfer(buffers, batch, number))
            .start()
        )

    def _transfer(self, buffers: JobBuffers, batch: DataFrame, number: int) -> None:
        """The function for `foreachBatch`; returns when a completed checkpoint covers the micro-batch."""
        with self._one_batch:
            if batch.schema != self._df.schema:
                msg = (
                    f"micro-batch {number} has columns {_shown(batch.schema)}, but the job was built for "
                    f"{_shown(self._df.schema)}; build the job again"
                )
                raise TransferError(msg)
            try:
                buffers.transfer(batch, number)
            except QueryPositionError as error:
                self._misplaced = error
                raise
            wait_until_covered(buffers, number, induce=self._induce)
            self._batches += 1


def _watch(query: Any, buffers: JobBuffers) -> bool:
    """Wait for the end of a query; return whether it was stopped because its job or the program ends."""
    looked = time.monotonic()
    while query.isActive:
        if program_ends.wait(_POLL):
            query.stop()
        elif time.monotonic() - looked > _JOB_LOOK:
            if not buffers.are_there():
                query.stop()
                return True
            looked = time.monotonic()
    return program_ends.is_set()


def _stop(query: Any) -> None:
    """Stop a query if it runs: Spark refuses a second query of the same name."""
    try:
        if query is not None and query.isActive:
            query.stop()
    except Exception as error:  # its session has ended, and the query with it
        logger.debug("a query can't be stopped: %s", error)


def _shown(schema: StructType) -> str:
    fields = (f"{f.name} {f.dataType.simpleString()}{'' if f.nullable else ' not null'}" for f in schema)
    return f"({', '.join(fields)})"
