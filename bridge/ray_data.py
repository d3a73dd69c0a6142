"""`from_ray_dataset` and `to_ray_dataset`: Ray datasets as sources and results of jobs, without Spark.

In: the dataset is computed, and its blocks stay in Ray's object store. Each block is a split that readers
request, with a row number as position. A small actor of the program holds the references to the blocks.
Blocks never change, so a restored reader reads the same rows again. Ray recomputes blocks that are lost with
a node.

Out: results are blocks in the object store (`blocks.py`). Ray tasks, not the driver, turn them into tables.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Unpack

import pyarrow as pa
import pyarrow.types as kinds
import ray

from penstock.actors.client.cluster import connect
from penstock.actors.shared.registry import find_actor, start_actor
from penstock.bridge.blocks import BlockResults
from penstock.bridge.bounded_results import results_of
from penstock.runtime.errors import ConnectorError, GraphError, LostInputError, PenstockError
from penstock.runtime.graph.executor import JobHandle
from penstock.runtime.graph.streams.checked_call import OPTION_NAMES, OperatorOptions, checked_call
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.arrow_batches import arrow_rows, rows_of_arrow
from penstock.runtime.io.connectors.errors import shown
from penstock.runtime.names import checked_keywords
from penstock.runtime.operators.source import ConnectorContext, Polled
from penstock.runtime.operators.source_coordinator import OnRequest
from penstock.runtime.record.elements import ArrowBatch, BatchFormat, RowBatch
from penstock.runtime.time.durations import Duration

if TYPE_CHECKING:
    import ray.data


def with_columns_of(dataset: pa.Schema, block: pa.Table, number: int) -> pa.Table:
    """Return a block with its dataset's columns, because batches of several blocks may be concatenated.

    The block's columns may be in another order, and a column of nulls may lack a type. Any other difference
    is refused.
    """
    if block.schema.equals(dataset):
        return block.replace_schema_metadata(None)
    for name in dict.fromkeys([*dataset.names, *block.schema.names]):
        if name not in dataset.names or name not in block.schema.names:
            where = (
                "is not in the dataset's"
                if name not in dataset.names
                else "is missing, but is in the dataset's"
            )
            raise _refused(number, f"column {name!r} {where} columns {shown(dataset.names)}")
        there, wanted = block.schema.field(name).type, dataset.field(name).type
        if there != wanted and not kinds.is_null(there):
            raise _refused(number, f"column {name!r} is of type {there}, and of type {wanted} in the dataset")
    return block.select(dataset.names).cast(dataset.remove_metadata())


def _refused(number: int, what: str) -> ConnectorError:
    return ConnectorError(
        f"block {number} of the Ray dataset: {what}. Give all blocks the same columns with "
        'Dataset.map_batches or Dataset.select_columns, or read the dataset with batch_format="rows"'
    )


#: Prefix of the holder's name.
DATASET_PREFIX: Final = "dataset:"
#: Seconds between two checks whether a block has arrived.
_PAUSE: Final = 0.005


class DatasetHolder:
    """The actor that keeps the references to a dataset's blocks; it ends with its program."""

    def __init__(self, references: list[ray.ObjectRef[pa.Table]]) -> None:
        self._references = references

    def reference(self, number: int) -> list[ray.ObjectRef[pa.Table]]:
        """Return the reference of one block, in a list: Ray would resolve a bare reference."""
        return [self._references[number]]


@dataclass(frozen=True, slots=True)
class BlockSplit:
    number: int
    row: int = 0


class DatasetSource:
    """The blocks of a dataset as splits; without a schema a reader's first block decides the columns."""

    only_reads: ClassVar[bool] = True

    def __init__(
        self, name: str, holder: Any, blocks: int, batch_format: BatchFormat, schema: pa.Schema | None
    ) -> None:
        self.name = name
        self.batch_format = batch_format
        self.schema = schema
        self._blocks = blocks
        #: The actor ends with its last handle, so the environment's graph holds one.
        self._holder = holder

    def splits(self, parallelism: int) -> Sequence[BlockSplit]:
        return [BlockSplit(number) for number in range(self._blocks)]

    def reader(self, context: ConnectorContext, splits: Sequence[BlockSplit]) -> DatasetReader:
        return DatasetReader(self, context, splits)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_holder": None}


class DatasetReader:
    """Reads blocks one after another; does not wait for a block that is being fetched."""

    makes_new_records: ClassVar[bool] = True

    def __init__(
        self, source: DatasetSource, context: ConnectorContext, splits: Sequence[BlockSplit]
    ) -> None:
        self._clock = context.clock
        self._arrow = source.batch_format == "arrow"
        self._schema = source.schema
        self._splits = deque(splits)
        self._table: pa.Table | None = None
        #: The call that returns the block's reference.
        self._call: Any = None
        self._reference: Any = None
        try:
            self._holder = find_actor(DATASET_PREFIX + source.name)
        except ValueError as error:
            raise _gone() from error

    def poll(self, max_rows: int) -> Polled[Any]:
        if not self._splits:
            return Polled(finished=True)
        if self._table is None and not self._fetch():
            return Polled(ready_at=self._clock.monotonic() + _PAUSE)
        assert self._table is not None, "it was fetched"
        split = self._splits[0]
        some = self._table.slice(split.row, arrow_rows(max_rows) if self._arrow else max_rows)
        if split.row + some.num_rows < self._table.num_rows:
            self._splits[0] = replace(split, row=split.row + some.num_rows)
        else:
            self._splits.popleft()
            self._table = self._call = self._reference = None
        if not some.num_rows:
            return Polled(finished=not self._splits)
        (batch,) = some.combine_chunks().to_batches()
        return Polled(ArrowBatch(batch) if self._arrow else RowBatch(rows_of_arrow(batch)))

    def snapshot(self) -> Sequence[BlockSplit]:
        return list(self._splits)

    def close(self) -> None:
        self._table = self._call = self._reference = None

    def _fetch(self) -> bool:
        """Take the block if it has arrived; the first call requests it."""
        try:
            if self._call is None:
                self._call = self._holder.reference.remote(self._splits[0].number)
            if self._reference is None and ray.wait([self._call], timeout=0)[0]:
                (self._reference,) = ray.get(self._call)
            if self._reference is None or not ray.wait([self._reference], timeout=0)[0]:
                return False
            table: pa.Table = ray.get(self._reference)
        except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError) as error:
            raise _gone() from error
        if self._arrow:
            if self._schema is None:
                self._schema = table.schema.remove_metadata()
            table = with_columns_of(self._schema, table, self._splits[0].number)
        self._table = table
        return True


def _gone() -> LostInputError:
    return LostInputError(
        "the blocks of the Ray dataset are gone with the program that made it: keep the program running "
        "until the job has read them, or write the dataset to files and read the files"
    )


@checked_call(OPTION_NAMES)
def from_ray_dataset(
    env: StreamEnvironment,
    dataset: ray.data.Dataset,
    *,
    id: str = "from-ray-dataset",
    batch_format: BatchFormat = "arrow",
    **options: Unpack[OperatorOptions],
) -> DataStream[Any]:
    """Return a stream of a Ray dataset's rows; computes the dataset now.

    The blocks belong to this program. Keep the program running, and keep the job's handle or `env`, until the
    job has read them.

    Args:
        env: The environment of the job.
        dataset: The rows.
        id: Id of the source; unique in the job.
        batch_format: `"arrow"` emits Arrow batches for `map_batches(batch_format="arrow")`; other operators
            see dicts. `"rows"` emits dicts.
        **options: See `OperatorOptions`.

    Raises:
        GraphError: An argument is invalid.
    """
    if batch_format not in ("arrow", "rows"):
        msg = f"from_ray_dataset: batch_format must be 'arrow' or 'rows', not {batch_format!r}"
        raise GraphError(msg)
    if not hasattr(dataset, "to_arrow_refs"):
        msg = f"from_ray_dataset: {type(dataset).__name__} is not a ray.data.Dataset"
        raise GraphError(msg)
    connect()
    computed = dataset.materialize()
    references = computed.to_arrow_refs()
    columns = getattr(computed.schema(), "base_schema", None)
    name = secrets.token_hex(6)
    holder = start_actor(DatasetHolder, DATASET_PREFIX + name, references, num_cpus=0)
    source = DatasetSource(
        name,
        holder,
        len(references),
        batch_format,
        columns.remove_metadata() if isinstance(columns, pa.Schema) else None,
    )
    stream: DataStream[Any] = env.from_source(id, OnRequest(source), **options)
    return stream


@checked_keywords
def to_ray_dataset(
    job_or_stream: JobHandle | DataStream[Any],
    *,
    id: str | None = None,
    schema: pa.Schema | None = None,
    timeout: Duration | None = None,
    progress: bool = False,
) -> ray.data.Dataset:
    """Return the results of a bounded job as a Ray dataset.

    Given a stream, this runs its job, with all of its sinks, and returns the stream's rows. Given a submitted
    job, it waits for the job's end and returns the rows of its `SparkResults` sink.

    The rows stay in Ray's object store while the dataset is used and the program that made the sink lives.
    Their types are those of `SparkResults`.

    Args:
        job_or_stream: The stream, of dicts or Arrow batches; or the job.
        id: Id of the sink: `"to-ray-dataset"` by default for a stream, the only `SparkResults` for a job.
        schema: Arrow schema of a stream's rows; see `SparkResults`.
        timeout: Seconds for the job; `None` waits for ever.
        progress: Show a live progress line.

    Raises:
        GraphError: The graph can't be built.
        JobFailedError: The job failed.
        JobTimeoutError: The job has not ended after `timeout`, and continues.
        PenstockError: The results have no rows and no schema; or the job has no such sink.
    """
    return results_of(
        "to_ray_dataset",
        job_or_stream,
        id,
        "to-ray-dataset",
        BlockResults,
        schema,
        _dataset_of,
        timeout=timeout,
        progress=progress,
    )


def _dataset_of(results: BlockResults) -> ray.data.Dataset:
    import ray.data

    blocks = results.blocks()
    if blocks:
        as_table: Any = ray.remote(num_cpus=0)(_table_of)
        dataset: Any = ray.data.from_arrow_refs([as_table.remote(block.data) for block in blocks.values()])
    elif results.schema is not None:
        dataset = ray.data.from_arrow(results.schema.empty_table())
    else:
        msg = "the job has no result, so its columns are not known: give to_ray_dataset a schema="
        raise PenstockError(msg)
    # The blocks live as long as their holder, and the holder as long as this object.
    dataset._penstock_results = results
    results.let_go()
    return dataset  # type: ignore[no-any-return]


def _table_of(block: bytes) -> pa.Table:
    """A block as a table, which is a view of the bytes; runs in a task on their node."""
    with pa.ipc.open_stream(block) as reader:
        return reader.read_all()
