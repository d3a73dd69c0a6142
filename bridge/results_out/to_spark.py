"""`to_spark`: the results of a bounded job as a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.bridge.blocks.bounded_results import results_of
from penstock.bridge.results_out.spark_results import SparkResults
from penstock.bridge.session.session import is_alive
from penstock.runtime.config.checks import Duration
from penstock.runtime.errors import PenstockError
from penstock.runtime.graph.job_handle import JobHandle
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.misspelt_names import checked_keywords

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@checked_keywords
def to_spark(
    job_or_stream: JobHandle | DataStream[Any],
    spark: SparkSession,
    *,
    id: str | None = None,
    schema: pa.Schema | None = None,
    timeout: Duration | None = None,
    progress: bool = False,
) -> DataFrame:
    """The results of a bounded job as a DataFrame.

    Given a stream, this runs its job, with all of its sinks, and gives the stream's rows. Given a job that
    was submitted, by this program or another one, it waits for its end and gives what its `SparkResults`
    sink holds.

    The rows stay in Ray's object store until `unpersist()` of the DataFrame, or the end of the program that
    made the sink.

    Args:
        job_or_stream: The stream, of dicts or Arrow batches; or the job.
        spark: The session to read the rows in.
        id: Id of the sink: `"to-spark"` by default for a stream, and the only `SparkResults` for a job.
        schema: Arrow schema of a stream's rows; see `SparkResults`.
        timeout: Seconds for the job; `None` waits for ever.
        progress: Show a live line meanwhile.

    Raises:
        GraphError: The graph can't be built.
        JobFailedError: The job failed.
        JobTimeoutError: It has not ended after `timeout`, and goes on.
        PenstockError: There are no rows and no schema; or the job has no such sink; or Spark is stopped.
    """
    if not is_alive(spark):
        msg = "to_spark: the Spark session is stopped, so it can read no results; start one first"
        raise PenstockError(msg)

    def read(results: SparkResults) -> DataFrame:
        frame: Any = results.to_dataframe(spark)
        unpersist = frame.unpersist

        def release(blocking: bool = False) -> Any:
            unpersist(blocking)
            results.unpersist()
            return frame

        frame.unpersist = release
        return frame  # type: ignore[no-any-return]

    return results_of(
        "to_spark",
        job_or_stream,
        id,
        "to-spark",
        SparkResults,
        schema,
        read,
        timeout=timeout,
        progress=progress,
    )
