"""`to_spark`: run a bounded job and have its results as a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from penstock.bridge.bounded_results import run_and_read
from penstock.bridge.spark_results import SparkResults
from penstock.runtime.checkpoint.config_values import Duration
from penstock.runtime.graph.data_stream import DataStream
from penstock.runtime.graph.stream_environment import StreamEnvironment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")


def to_spark(
    env: StreamEnvironment,
    stream: DataStream[T],
    spark: SparkSession,
    *,
    id: str = "to-spark",
    schema: pa.Schema | None = None,
    timeout: Duration | None = None,
    progress: bool = False,
) -> DataFrame:
    """Run the job and give the rows of a stream as a DataFrame.

    The rows stay in Ray's object store until `unpersist()` of the DataFrame, or the end of this program. With
    a sink of your own choice, or for a job that runs while Spark reads, use `SparkResults`.

    Args:
        env: The environment of the job; all of its sinks take part.
        stream: The rows: dicts, or Arrow batches.
        spark: The session to read them in.
        id: Id of the sink.
        schema: The rows' Arrow schema; see `SparkResults`.
        timeout: Seconds for the job; `None` waits for ever.
        progress: Show a live line meanwhile.

    Raises:
        GraphError: The graph can't be built.
        JobFailedError: The job failed.
        PenstockError: There are no rows and no schema.
    """
    results = SparkResults(schema)
    frame: Any = run_and_read(
        env, stream, id, results, lambda r: r.to_dataframe(spark), timeout=timeout, progress=progress
    )
    unpersist = frame.unpersist

    def release(blocking: bool = False) -> Any:
        unpersist(blocking)
        results.unpersist()
        return frame

    frame.unpersist = release
    return frame  # type: ignore[no-any-return]
