"""`from_spark`: a DataFrame as a bounded source of a job.

When the readers of the job are up, the program with the Spark session starts one Spark job. Its tasks push
their partitions straight to the readers' receive buffers. The program itself gets one row per partition.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Unpack

from penstock.actors.client.cluster import connect
from penstock.bridge.arrow.spark_types import arrow_schema_of
from penstock.bridge.dataframes_in.spark_source import SparkSource
from penstock.bridge.receive_buffer.frame_store import DEFAULT_MAX_DISK_BYTES
from penstock.bridge.receive_buffer.receive_buffer import DEFAULT_WINDOW
from penstock.bridge.session.session import is_alive, spark_error_text
from penstock.bridge.transfer.job_buffers import JobBuffers
from penstock.bridge.transfer.transfer_service import TransferService
from penstock.runtime.errors import GraphError
from penstock.runtime.graph.streams.checked_call import OPTION_NAMES, OperatorOptions, checked_call
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.record.elements import BatchFormat

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
    the job runs. Keep the program and its Spark session until `wait_for_transfer(job)` returns; from
    then on the job needs neither.

    Each call keeps a process of about 80 MB in the cluster until the session ends; jobs ask it for the rows.
    A program that reads many DataFrames, job after job, should end its session now and then.

    Args:
        env: The environment of the job.
        df: The rows. Spark may compute a partition twice; docs/spark.md says when that matters.
        id: Id of the source; give one when a job has several.
        batch_format: `"arrow"` gives Arrow batches to `map_batches(batch_format="arrow")` (other operators
            see dicts), `"rows"` gives dicts.
        window: Bytes that may wait for each reader before Spark has to wait.
        max_disk_bytes: Bytes that each reader may have in the temporary folder of its node. Rows that no
            checkpoint covers lie there if they do not fit in `window`. With more the job fails by name.
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
    source = SparkSource(
        transfer.id, batch_format, window, max_disk_bytes=max_disk_bytes, arrow_schema=schema
    )
    stream: DataStream[Any] = env.from_source(id, source, **options)
    transfer.start()
    return stream


def check_arguments(
    what: str, df: DataFrame, batch_format: str, window: int, max_disk_bytes: int = DEFAULT_MAX_DISK_BYTES
) -> None:
    """Refuse invalid arguments.

    Raises:
        GraphError: The message says what to do.
    """
    if batch_format not in ("arrow", "rows"):
        msg = f"{what}: batch_format must be 'arrow' or 'rows', not {batch_format!r}"
        raise GraphError(msg)
    for name, value in (("window", window), ("max_disk_bytes", max_disk_bytes)):
        if value < 1:
            msg = f"{what}: {name}={value} is not allowed: it is a number of bytes from 1"
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
