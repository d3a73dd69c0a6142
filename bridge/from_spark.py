"""`from_spark`: a DataFrame as a bounded source of a job, and the progress of its transfer.

When the readers of the job have started, the program with the Spark session starts one Spark job. Its tasks
push their partitions directly to the readers' receive buffers. The program itself gets one row per partition.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Unpack

import ray

from penstock.actors.client.cluster import connect
from penstock.actors.client.job_handle import RayJobHandle
from penstock.actors.shared.actor_calls import RepeatedCall
from penstock.actors.shared.registry import find_actor, living_actors
from penstock.bridge.arrow import arrow_schema_of
from penstock.bridge.needed_part import padded_columns
from penstock.bridge.receive_buffer_messages import (
    DEFAULT_MAX_DISK_BYTES,
    DEFAULT_WINDOW,
    BufferSettings,
    ReceiveBufferStatistics,
    buffer_prefix,
)
from penstock.bridge.session.session import is_alive, spark_error_text
from penstock.bridge.spark_source import SparkSource
from penstock.bridge.transfer_service import JobBuffers, TransferService
from penstock.runtime.errors import ConfigurationError, GraphError, JobFailedError
from penstock.runtime.graph.executor import JobHandle, JobStatus
from penstock.runtime.graph.streams.checked_call import OPTION_NAMES, OperatorOptions, checked_call
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.names import checked_keywords
from penstock.runtime.record.elements import BatchFormat
from penstock.runtime.time.durations import Duration, seconds_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


logger = logging.getLogger(__name__)


@checked_call(OPTION_NAMES)
def from_spark(
    env: StreamEnvironment,
    df: DataFrame,
    *,
    id: str = "from-spark",
    batch_format: BatchFormat = "arrow",
    window: int = DEFAULT_WINDOW,
    max_disk_bytes: int = DEFAULT_MAX_DISK_BYTES,
    **options: Unpack[OperatorOptions],
) -> DataStream[Any]:
    """A stream of the rows of a DataFrame, transferred by the Spark executors.

    A partition goes to the least loaded reader when its Spark task begins. Spark computes the rows only when
    the job runs. Keep the program and its Spark session running until `wait_for_transfer(job)` returns; after
    that the job needs neither.

    Each call keeps a process of about 80 MB in the cluster until the session ends; the readers of jobs
    register there. A program that reads many DataFrames should end its session now and then.

    Args:
        env: The environment of the job.
        df: The rows. Spark may compute a partition twice; docs/spark.md says when that matters.
        id: Id of the source; unique in the job.
        batch_format: `"arrow"` gives Arrow batches to `map_batches(batch_format="arrow")` (other operators
            see dicts); `"rows"` gives dicts.
        window: Maximum bytes that wait for each reader; beyond that Spark waits.
        max_disk_bytes: Maximum bytes of each reader in the temporary folder of its node; the job fails if
            they don't suffice. Rows that no checkpoint covers go there beyond `window` bytes.
        **options: See `OperatorOptions`.

    Raises:
        GraphError: A column has a type that can't be transferred, or an argument is invalid.
    """
    check_arguments("from_spark", df, batch_format, window, max_disk_bytes)
    if df.isStreaming:
        msg = "from_spark: this DataFrame is a stream; use from_structured_streaming"
        raise GraphError(msg)
    connect()
    schema = arrow_schema_of(df)
    transfer = TransferService(df.sparkSession, schema, lambda buffers: _serve(df, buffers))
    buffers = BufferSettings(transfer.id, window, max_disk_bytes=max_disk_bytes)
    source = SparkSource(buffers, batch_format, schema, padded_columns(df))
    stream: DataStream[Any] = env.from_source(id, source, **options)
    transfer.start()
    return stream


def check_arguments(
    what: str, df: DataFrame, batch_format: str, window: int, max_disk_bytes: int = DEFAULT_MAX_DISK_BYTES
) -> None:
    """Refuse invalid arguments; `what` is the user's call."""
    if batch_format not in ("arrow", "rows"):
        msg = f"{what}: batch_format must be 'arrow' or 'rows', not {batch_format!r}"
        raise GraphError(msg)
    for name, value in (("window", window), ("max_disk_bytes", max_disk_bytes)):
        if value < 1:
            msg = f"{what}: {name}={value} is not allowed: give a number of bytes, at least 1"
            raise GraphError(msg)
    if not is_alive(df.sparkSession):
        msg = f"{what}: the DataFrame's Spark session is stopped; start one and make the DataFrame again"
        raise GraphError(msg)


def _serve(df: DataFrame, buffers: JobBuffers) -> None:
    session = df.sparkSession
    try:
        session.sparkContext.setJobDescription(f"rows for Penstock's job {buffers.job_id}")
        buffers.transfer(df, 0)
        buffers.finish()
    except Exception as error:  # Spark and Py4J raise many kinds; the job receives the text
        reason = spark_error_text(error, session)
        logger.error("rows could not be transferred to job %s: %s", buffers.job_id, reason)
        buffers.fail(reason)


_POLL: Final = 0.2

_ANSWER: Final = 30.0


def transfer_statistics(job: JobHandle) -> list[ReceiveBufferStatistics]:
    """Counters of every receive buffer between Spark and this job, in the order of the buffers' names.

    The receive buffers live as long as the job; afterwards the list is empty.

    Raises:
        ConfigurationError: The job does not run on Ray.
        NoAnswerError: A receive buffer does not answer, or Ray can't reach it.
    """
    prefix = buffer_prefix(job_on_ray(job).job_id)
    names = sorted(name for name in living_actors() if name.startswith(prefix))
    calls: list[RepeatedCall[ReceiveBufferStatistics]] = []
    for name in names:
        with suppress(ValueError):  # the job has just ended
            calls.append(
                RepeatedCall(find_actor(name).statistics.remote, f"{name} (rows between Spark and a job)")
            )
    found: list[ReceiveBufferStatistics] = []
    deadline = time.monotonic() + _ANSWER
    for call in calls:
        with suppress(ray.exceptions.RayActorError):  # the job has just ended
            found.append(call.answer(max(0.0, deadline - time.monotonic())))
    return found


@checked_keywords
def wait_for_transfer(job: JobHandle, timeout: Duration | None = None) -> list[ReceiveBufferStatistics]:
    """Wait until the job has all rows of all its DataFrames; Spark may be stopped then.

    Args:
        job: The result of `env.submit()`.
        timeout: Maximum seconds to wait; `None` waits for ever.

    Returns:
        The counters of the receive buffers; an empty list if the job has ended meanwhile.

    Raises:
        JobFailedError: The job failed before the transfer was complete.
        TimeoutError: The transfer is not complete after `timeout`.
    """
    seconds = None if timeout is None else seconds_in("timeout", timeout)
    handle = job_on_ray(job)
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        status = handle.status()
        if status is JobStatus.FAILED:
            failure = handle.report().failure
            why = "" if failure is None else f": {failure.root}"
            msg = f"job {handle.job_id} failed before all rows were transferred{why}"
            raise JobFailedError(msg)
        found = transfer_statistics(job)
        # Readers start their receive buffers when they are opened. So a running job has all of them.
        if status.is_terminal or (status is JobStatus.RUNNING and all(buffer.complete for buffer in found)):
            return found
        if deadline is not None and time.monotonic() > deadline:
            waiting = [buffer.index for buffer in found if not buffer.complete]
            msg = (
                f"the transfer to job {handle.job_id} ({status.value}) is not complete after {seconds:g} s; "
                f"receive buffers that lack rows: {waiting or 'not known'}"
            )
            raise TimeoutError(msg)
        time.sleep(_POLL)


def job_on_ray(job: JobHandle) -> RayJobHandle:
    if not isinstance(job, RayJobHandle):
        msg = f"{job!r:.80} is not a job on Ray; pass the handle that env.submit() returns"
        raise ConfigurationError(msg)
    return job
