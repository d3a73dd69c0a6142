"""`to_spark` and `SparkResults`: a sink whose committed rows Spark reads directly from Ray's object store.

    results = SparkResults()
    stream.sink("out", results)
    env.run()
    df = results.to_dataframe(spark)

The rows don't pass through the driver. In a RayDP session the executors' JVMs read the blocks from the object
store, with an internal function of RayDP. This is four times as fast as Python workers. These read the blocks
in any other session, and with a version of RayDP that lacks the function. The process that holds the blocks
gives them only references.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import ray

from penstock.actors.client.cluster import join_existing
from penstock.actors.shared.actor_calls import answer_of
from penstock.bridge.arrow import spark_schema_of
from penstock.bridge.blocks import FETCH, HOLDER, Block, BlockResults, find_holder
from penstock.bridge.bounded_results import results_of
from penstock.bridge.session.session import is_alive
from penstock.runtime.errors import PenstockError
from penstock.runtime.graph.executor import JobHandle
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.names import checked_keywords
from penstock.runtime.time.durations import Duration, seconds_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def dataframe_of_blocks(
    spark: SparkSession, blocks: Mapping[int, Block], schema: pa.Schema | None, holder: str
) -> DataFrame:
    """A DataFrame with one partition for each block; the schema is needed if there are no blocks."""
    common = _common_schema(blocks.values(), schema)
    spark_schema = spark_schema_of(common)
    if not blocks:
        return spark.createDataFrame([], spark_schema)
    read_in_jvm = _reader_in_jvm(spark)
    if read_in_jvm is not None:
        references = [block.data for block in blocks.values()]
        worker: Any = ray._private.worker.global_worker  # RayDP's own function for owners makes Ray warn
        owners = [worker.core_worker.get_owner_address(reference) for reference in references]
        frame: DataFrame = read_in_jvm(spark, references, owners, spark_schema)
        return frame
    pull = Pull(ray.get_runtime_context().gcs_address, holder, tuple(blocks))
    return spark.range(0, len(blocks), 1, len(blocks)).mapInArrow(pull, spark_schema)


def _reader_in_jvm(spark: SparkSession) -> Any:
    """RayDP's internal function, which reads blocks in the JVM; `None` in other sessions and versions."""
    if not is_raydp(spark):
        return None
    from raydp.spark import dataset

    return getattr(dataset, "_convert_by_rdd", None)


def is_raydp(spark: SparkSession) -> bool:
    return str(spark.sparkContext.master).startswith("ray")


@dataclass(frozen=True, slots=True)
class Pull:
    """Fetches blocks in Spark's Python workers; a function for `DataFrame.mapInArrow`."""

    address: str
    holder: str
    blocks: tuple[int, ...]

    def __call__(self, places: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        join_existing(self.address)
        holder: Any = find_holder(self.holder)
        for batch in places:
            for place in batch.column(0).to_pylist():
                number = self.blocks[place]
                asked = f"{HOLDER}, asked for block {number}"
                (reference,) = answer_of(holder.reference.remote(number), asked)
                data: bytes = answer_of(reference, asked, FETCH)
                with pa.ipc.open_stream(data) as stream:
                    yield from stream


def _common_schema(blocks: Collection[Block], schema: pa.Schema | None) -> pa.Schema:
    seen = list(dict.fromkeys(block.schema for block in blocks))
    if not seen:
        if schema is None:
            msg = "no row is committed, so the columns are not known: give SparkResults a schema="
            raise PenstockError(msg)
        return schema
    first, *others = [pa.ipc.read_schema(pa.py_buffer(schema)) for schema in seen]
    for other in others:
        if not other.equals(first):
            msg = (
                f"rows of different subtasks have different columns: {first.to_string()} and "
                f"{other.to_string()}. Give SparkResults the schema= that all rows have"
            )
            raise PenstockError(msg)
    return first


class SparkResults(BlockResults):
    """A sink on Ray whose committed rows Spark reads; a context manager that releases them at its end.

    The constructor joins the cluster, or starts a local one. The blocks live until `unpersist()`, the end of
    the `with` block, or the end of this program. For results that must live longer use `SparkTable`.

    Args:
        schema: The rows' Arrow schema. Needed for dicts whose first batch may lack some types, and if there
            may be no rows. Only its `not null` columns stay `not null`.

    Raises:
        BadRecordError: The schema has a type that Spark can't read.
    """

    def to_dataframe(self, spark: SparkSession) -> DataFrame:
        """The committed rows of the newest job, one partition per block.

        The rows do not pass through this program. Rows of earlier jobs with this sink are omitted.

        Raises:
            PenstockError: The results have neither rows nor schema, have several schemas, or were released.
        """
        frame: Any = dataframe_of_blocks(spark, self.blocks(), self.schema, self._name)
        self.stay()
        return frame  # type: ignore[no-any-return]


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

    Given a stream, this runs its job, with all of its sinks, and returns the stream's rows. Given a submitted
    job, of this program or another one, it waits for the job's end and returns the rows of its `SparkResults`
    sink.

    The rows stay in Ray's object store until `unpersist()` of the DataFrame, or the end of the program that
    made the sink.

    Args:
        job_or_stream: The stream, of dicts or Arrow batches; or the job.
        spark: The session to read the rows in.
        id: Id of the sink. The default is `"to-spark"` for a stream, and the only `SparkResults` for a job.
        schema: Arrow schema of a stream's rows; see `SparkResults`.
        timeout: Seconds for the job; `None` waits for ever.
        progress: Whether to show a live line while the job runs.

    Raises:
        GraphError: The graph can't be built.
        JobFailedError: The job failed.
        JobTimeoutError: The job has not ended after `timeout`, and continues.
        PenstockError: The results have no rows and no schema, the job has no such sink, or Spark is
            stopped.
    """
    if timeout is not None:
        seconds_in("timeout", timeout)
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
