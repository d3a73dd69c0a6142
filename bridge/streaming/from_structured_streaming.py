"""`from_structured_streaming`: the micro-batches of a streaming query as an unbounded source of a job.

Spark numbers the micro-batches, commits one when `foreachBatch` returns, and after a failure gives the same
number to the same rows. So a micro-batch is an epoch of the receive buffers (`receive_buffer.py`):

* Its rows can be read when all of them are there. A micro-batch that Spark abandons has not reached the job;
  a complete one is not taken again.
* `foreachBatch` returns only when a completed checkpoint of the job covers the micro-batch. So Spark commits
  nothing that the job could still lose, and the job counts nothing twice that Spark repeats. The end of the
  micro-batch induces that checkpoint (`induced_checkpoint.py`).

The number of a micro-batch is the replayable offset. A snapshot of the job that was taken at the end of a
micro-batch contains its number. When a job starts from the snapshot, its receive buffers treat all
micro-batches up to that number as closed. Spark may give the last one again, and it is skipped.

A query that fails is restarted from its own checkpoint location a few times. The pauses grow, because a cause
such as an unavailable storage often lasts some seconds. A query that ends (its trigger is `availableNow` or
`once`, or it is stopped) ends the stream, and the job with it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, Unpack

from penstock.actors.client.cluster import connect
from penstock.bridge.arrow.spark_types import arrow_schema_of
from penstock.bridge.dataframes_in.from_spark import check_arguments
from penstock.bridge.dataframes_in.spark_source import SparkSource
from penstock.bridge.receive_buffer.frame_store import DEFAULT_MAX_DISK_BYTES
from penstock.bridge.receive_buffer.messages import DIED, NO_PROGRAM, TransferError
from penstock.bridge.receive_buffer.receive_buffer import DEFAULT_WINDOW
from penstock.bridge.session.session import is_alive, spark_error_text
from penstock.bridge.streaming.induced_checkpoint import wait_until_covered
from penstock.bridge.transfer.job_buffers import JobBuffers, QueryPositionError, program_ends
from penstock.bridge.transfer.transfer_service import TransferService
from penstock.runtime.errors import GraphError
from penstock.runtime.graph.streams.checked_call import OPTION_NAMES, OperatorOptions, checked_call
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.record.elements import BatchFormat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


#: Seconds before the first restart, and the maximum.
SHORTEST: Final = 1.0

LONGEST: Final = 30.0
#: Seconds between two checks that the query is still wanted.
_LOOK: Final = 1.0


class QueryRestarts:
    """Counts the failures of a query, and lets its pauses grow.

    Args:
        most: Restarts without progress.

    Example:
        >>> restarts = QueryRestarts(2)
        >>> [restarts.pause(progress=p) for p in (False, False, True, False, False)]
        [1.0, 2.0, 1.0, 2.0, 4.0]
        >>> restarts.are_used_up, restarts.pause(progress=False), restarts.are_used_up
        (False, 8.0, True)
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


class Ends(Protocol):
    """An event that may happen during a wait, such as a `threading.Event`."""

    def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the event; return whether it has happened."""
        ...


def rest(
    seconds: float,
    is_wanted: Callable[[], bool],
    ends: Ends = program_ends,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Wait, unless the query is no longer wanted.

    Args:
        is_wanted: Checked every second.
        ends: Ends the wait at once.
        clock: Monotonic seconds.
    """
    deadline = clock() + seconds
    while (left := deadline - clock()) > 0:
        if ends.wait(min(left, _LOOK)) or not is_wanted():
            return False
    return True


logger = logging.getLogger(__name__)

_POLL: Final = 0.2
#: Seconds between checks that the job is alive.
_JOB_LOOK: Final = 2.0

_STOPPED: Final = (
    "the Spark session was stopped while its query ran; keep it as long as the job is to run (stop() of the "
    "query ends the job normally), and start the job again"
)
#: Follows the text of the failure.
_FAILED: Final = (
    "{}. The micro-batches before that are committed and stay: mend it, and start a job with the same "
    "checkpoint_location and restore_from= the last checkpoint of this one, which continues after them"
)


@checked_call(OPTION_NAMES)
def from_structured_streaming(
    env: StreamEnvironment,
    df: DataFrame,
    *,
    checkpoint_location: str,
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
    checkpoint, so the job's checkpoint interval may be long. Keep the program with the query as long as the
    job runs.

    Args:
        env: The environment of the job; it must take checkpoints.
        df: The streaming DataFrame.
        checkpoint_location: Folder in which Spark keeps the query's progress. A new job with the same
            location continues where the last one ended; start it from a snapshot of that job to keep its
            state.
        id: Id of the source; give one when a job has several.
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
    """
    what = "from_structured_streaming"
    check_arguments(what, df, batch_format, DEFAULT_WINDOW, max_disk_bytes)
    if not df.isStreaming:
        msg = f"{what}: this DataFrame is not a stream; use from_spark"
        raise GraphError(msg)
    if env.config.checkpointing is None:
        msg = (
            f"{what}: Spark may commit a micro-batch only when a checkpoint of the job covers it, and this "
            "job takes none: give the StreamEnvironment checkpointing=Checkpointing(...)"
        )
        raise GraphError(msg)
    connect()
    query = StreamingQuery(df, id, checkpoint_location, dict(trigger or {}), query_restarts, induce=induce)
    transfer = TransferService(df.sparkSession, arrow_schema_of(df), query.serve, one_job=True)
    source = SparkSource(
        transfer.id, batch_format, DEFAULT_WINDOW, staged=True, max_disk_bytes=max_disk_bytes
    )
    stream: DataStream[Any] = env.from_source(id, source, **options)
    transfer.start()
    return stream


@dataclass(frozen=True, slots=True)
class QueryEnd:
    """Outcome of a run of the query.

    Attributes:
        failure: Why it failed; `None` when it did not.
        stopped_here: Whether it was stopped because its job or its program ends; the stream has not ended.
    """

    failure: str | None = None
    stopped_here: bool = False
    is_final: bool = False


class StreamingQuery:
    """Runs the query for one job.

    Args:
        trigger: Arguments of Spark's `trigger`.
        restarts: Maximum number of restarts without progress.
        rest: Waits between two runs; see `rest`.
    """

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
        #: Spark may abandon a query while its function still runs here; the next run waits for that function.
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
            reason = self._for_good(end, restarts)
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
        logger.info("the query for job %s ends, as its job or its program does", buffers.job_id)
        buffers.fail(NO_PROGRAM if program_ends.is_set() else DIED)

    def _for_good(self, end: QueryEnd, restarts: QueryRestarts) -> str | None:
        """Why a failed query is not restarted, or `None`."""
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
                    f"micro-batch {number} has columns {_told(batch.schema)}, and the job was built for "
                    f"{_told(self._df.schema)}; build the job again"
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
    """Wait for the end of a query; true if it was stopped here, because its job or the program ends."""
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


def _told(schema: StructType) -> str:
    fields = (f"{f.name} {f.dataType.simpleString()}{'' if f.nullable else ' not null'}" for f in schema)
    return f"({', '.join(fields)})"
