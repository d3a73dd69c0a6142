"""Makes a DataFrame of blocks in Ray's object store, without moving them through the driver.

In a RayDP session the executors' JVMs read the blocks straight from the object store, with an internal
function of RayDP. It is four times as fast as Python workers. In any other session Python workers fetch the
blocks from their holder.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import ray

from penstock.actors.client.cluster import join_existing
from penstock.actors.shared.answers import answer_of
from penstock.bridge.arrow.dataframe_schemas import spark_schema_of
from penstock.bridge.blocks.block_holder import FETCH, Block, find_holder
from penstock.runtime.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def dataframe_of_blocks(
    spark: SparkSession, blocks: Mapping[int, Block], schema: pa.Schema | None, holder: str
) -> DataFrame:
    """A DataFrame with one partition for each block.

    Args:
        spark: The session to read them in.
        blocks: Blocks by their numbers in the holder.
        schema: Schema of all blocks where it is known; needed when there are no blocks.
        holder: Name of their holder.

    Raises:
        PenstockError: There is no block and no schema, or the blocks have different schemas.
    """
    common = _common_schema(blocks.values(), schema)
    spark_schema = spark_schema_of(common)
    if not blocks:
        return spark.createDataFrame([], spark_schema)
    if is_raydp(spark):
        from raydp.spark.dataset import _convert_by_rdd

        references = [block.data for block in blocks.values()]
        frame: DataFrame = _convert_by_rdd(spark, references, _owners(references), spark_schema)
        return frame
    pull = Pull(ray.get_runtime_context().gcs_address, holder, tuple(blocks))
    return spark.range(0, len(blocks), 1, len(blocks)).mapInArrow(pull, spark_schema)


def _owners(references: Sequence[Any]) -> list[bytes]:
    """The owner of each block; RayDP's own function asks for it in a way that Ray warns of."""
    worker: Any = ray._private.worker.global_worker
    return [worker.core_worker.get_owner_address(reference) for reference in references]


def is_raydp(spark: SparkSession) -> bool:
    """Whether the executors of a session are actors of Ray."""
    return str(spark.sparkContext.master).startswith("ray")


@dataclass(frozen=True, slots=True)
class Pull:
    """Fetches blocks in Spark's Python workers; a function for `DataFrame.mapInArrow`.

    Attributes:
        address: Address of the Ray cluster.
        holder: Name of the holder.
        blocks: Their numbers.
    """

    address: str
    holder: str
    blocks: tuple[int, ...]

    def __call__(self, places: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the blocks at these places."""
        join_existing(self.address)
        holder: Any = find_holder(self.holder)
        for batch in places:
            for place in batch.column(0).to_pylist():
                number = self.blocks[place]
                call = holder.block.remote(number)
                data: bytes = answer_of(
                    call, f"the holder of the job's results, asked for block {number}", 2 * FETCH
                )
                with pa.ipc.open_stream(data) as stream:
                    yield from stream


def _common_schema(blocks: Collection[Block], schema: pa.Schema | None) -> pa.Schema:
    seen = list(dict.fromkeys(block.schema for block in blocks))
    if not seen:
        if schema is None:
            msg = "no row is committed, so the columns are not known: give SparkResults a schema="
            raise PenstockError(msg)
        return schema
    first, *others = [pa.ipc.read_schema(pa.py_buffer(each)) for each in seen]
    for other in others:
        if not other.equals(first):
            msg = (
                f"rows of different subtasks have different columns: {first.to_string()} and "
                f"{other.to_string()}. Give SparkResults the schema= that all rows have"
            )
            raise PenstockError(msg)
    return first
