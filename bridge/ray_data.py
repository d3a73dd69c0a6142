"""`from_ray_dataset` and `to_ray_dataset`: Ray Data in and out of jobs; without Spark.

In: the dataset is computed, its blocks stay in Ray's object store, and a small actor of the program holds
their references. Each block is a split, handed out on request, and its position is a row number. Blocks never
change, so a reader that is restored reads the very same rows again. Ray itself computes blocks again that are
lost with a node.

Out: results are those of `SparkResults`; tasks make tables of their blocks, which the driver does not see.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Unpack

import pyarrow as pa
import ray

from penstock.actors.cluster import connect
from penstock.actors.names import NAMESPACE
from penstock.bridge.answers import answer_of
from penstock.bridge.block_holder import Block
from penstock.bridge.bounded_results import run_and_read
from penstock.bridge.spark_reader import RecordFormat
from penstock.bridge.spark_results import SparkResults
from penstock.runtime.checkpoint.config_values import Duration
from penstock.runtime.errors import GraphError, LostInputError, PenstockError
from penstock.runtime.graph.data_stream import DataStream
from penstock.runtime.graph.operator_options import OperatorOptions
from penstock.runtime.graph.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.arrow_rows import rows_of_arrow
from penstock.runtime.operators.on_request import OnRequest
from penstock.runtime.operators.protocols import ConnectorContext, Polled
from penstock.runtime.record.elements import ArrowBatch, RowBatch

if TYPE_CHECKING:
    import ray.data

_PREFIX: Final = "dataset:"
#: Seconds until a reader whose block is on its way looks again.
_PAUSE: Final = 0.005
#: Arrow batches may be this much larger than asked for, as they cost nothing per row.
_ARROW_FACTOR: Final = 4


def from_ray_dataset(
    env: StreamEnvironment,
    dataset: ray.data.Dataset,
    *,
    id: str = "from-ray-dataset",
    format: RecordFormat = "arrow",
    **options: Unpack[OperatorOptions],
) -> DataStream[Any]:
    """A stream of the rows of a Ray dataset, which is computed now.

    Its blocks belong to this program: keep it until the job has read them.

    Args:
        env: The environment of the job.
        dataset: The rows.
        id: Id of the source; give one when a job has several.
        format: `"arrow"` gives Arrow batches to `map_batches(batch_format="arrow")` (other operators see
            dicts), `"rows"` gives dicts.
        **options: See `OperatorOptions`.

    Raises:
        GraphError: An argument can't be meant.
    """
    if format not in ("arrow", "rows"):
        msg = f"from_ray_dataset: format must be 'arrow' or 'rows', not {format!r}"
        raise GraphError(msg)
    if not hasattr(dataset, "to_arrow_refs"):
        msg = f"from_ray_dataset: {type(dataset).__name__} is no ray.data.Dataset"
        raise GraphError(msg)
    connect()
    references = dataset.materialize().to_arrow_refs()
    name = secrets.token_hex(6)
    actor: Any = ray.remote(DatasetHolder)
    options_of_actor = {"name": _PREFIX + name, "namespace": NAMESPACE, "num_cpus": 0}
    holder = actor.options(**options_of_actor).remote(references)
    source = DatasetSource(name, len(references), format)
    stream: DataStream[Any] = env.from_source(id, OnRequest(source), **options)
    # The actor ends with its last handle; the environment's graph is what needs it.
    source.keep(holder)
    return stream


def to_ray_dataset(
    env: StreamEnvironment,
    stream: DataStream[Any],
    *,
    id: str = "to-ray-dataset",
    schema: pa.Schema | None = None,
    timeout: Duration | None = None,
    progress: bool = False,
) -> ray.data.Dataset:
    """Run a bounded job and give the rows of a stream as a Ray dataset.

    The rows stay in Ray's object store for as long as the dataset is used, and this program lives. Their
    types are those of `SparkResults`.

    Args:
        env: The environment of the job; all of its sinks take part.
        stream: The rows: dicts, or Arrow batches.
        id: Id of the sink.
        schema: The rows' Arrow schema; see `SparkResults`.
        timeout: Seconds for the job; `None` waits for ever.
        progress: Show a live line meanwhile.

    Raises:
        GraphError: The graph can't be built.
        JobFailedError: The job failed.
        PenstockError: There are no rows and no schema.
    """
    return run_and_read(
        env,
        stream,
        id,
        _Results(schema),
        lambda results: _dataset_of(results, schema),
        timeout=timeout,
        progress=progress,
    )


def _dataset_of(results: _Results, schema: pa.Schema | None) -> ray.data.Dataset:
    import ray.data

    blocks = results.blocks()
    if blocks:
        as_table: Any = ray.remote(num_cpus=0)(_table_of)
        dataset: Any = ray.data.from_arrow_refs([as_table.remote(block.data) for block in blocks])
    elif schema is not None:
        dataset = ray.data.from_arrow(schema.empty_table())
    else:
        msg = "the job has no result, so its columns are not known: give to_ray_dataset a schema="
        raise PenstockError(msg)
    # The blocks live as long as their holder, and that as long as this object.
    dataset._penstock_results = results
    return dataset  # type: ignore[no-any-return]


def _table_of(block: bytes) -> pa.Table:
    """A block as Ray Data wants it; a view of the bytes, in a task where they are."""
    with pa.ipc.open_stream(block) as reader:
        return reader.read_all()


class _Results(SparkResults):
    """Results whose blocks Ray Data reads."""

    def blocks(self) -> list[Block]:
        """The committed blocks."""
        found: list[Block] = answer_of(self._found().blocks.remote(), "the holder of the job's results")
        return found


class DatasetHolder:
    """Keeps the references of a dataset's blocks; an actor that ends with its program.

    Args:
        references: Of the blocks, in their order.
    """

    def __init__(self, references: list[ray.ObjectRef[pa.Table]]) -> None:
        self._references = references

    def reference(self, number: int) -> list[ray.ObjectRef[pa.Table]]:
        """The reference of one block, in a list so that Ray does not resolve it."""
        return [self._references[number]]


@dataclass(frozen=True, slots=True)
class BlockSplit:
    """A block, and how many of its rows were read.

    Attributes:
        number: Which block.
        row: The next row in it.
    """

    number: int
    row: int = 0


class DatasetSource:
    """The blocks of a dataset as splits.

    Args:
        name: Of the holder.
        blocks: How many there are.
        record_format: Arrow batches, or rows as dicts.
    """

    def __init__(self, name: str, blocks: int, record_format: RecordFormat) -> None:
        self.name = name
        self.record_format = record_format
        self._blocks = blocks
        self._holder: Any = None

    def keep(self, holder: Any) -> None:
        """Keep the holder alive as long as this object."""
        self._holder = holder

    def splits(self, parallelism: int) -> Sequence[BlockSplit]:
        """One for each block."""
        return [BlockSplit(number) for number in range(self._blocks)]

    def reader(self, context: ConnectorContext, splits: Sequence[BlockSplit]) -> DatasetReader:
        """Make the reader of one subtask.

        Raises:
            LostInputError: The program that has the dataset has ended.
        """
        return DatasetReader(self, context, splits)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_holder": None}


class DatasetReader:
    """Reads blocks one after the other, without waiting for one that is on its way.

    Args:
        source: The source.
        context: Where it runs.
        splits: Blocks, fresh or restored.

    Raises:
        LostInputError: The program that has the dataset has ended.
    """

    def __init__(
        self, source: DatasetSource, context: ConnectorContext, splits: Sequence[BlockSplit]
    ) -> None:
        self._clock = context.clock
        self._arrow = source.record_format == "arrow"
        self._splits = deque(splits)
        self._table: pa.Table | None = None
        #: What is on its way: first the block's reference, then the block.
        self._call: Any = None
        self._reference: Any = None
        try:
            self._holder: Any = ray.get_actor(_PREFIX + source.name, namespace=NAMESPACE)
        except ValueError as error:
            raise _gone() from error

    def poll(self, max_rows: int) -> Polled[Any]:
        """The next rows.

        Raises:
            LostInputError: The block is lost, mostly because the program that made it has ended.
        """
        if not self._splits:
            return Polled(finished=True)
        if self._table is None and not self._fetch():
            return Polled(ready_at=self._clock.monotonic() + _PAUSE)
        assert self._table is not None, "it was fetched"
        split = self._splits[0]
        some = self._table.slice(split.row, max_rows * _ARROW_FACTOR if self._arrow else max_rows)
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
        """The blocks that are not read to their end."""
        return list(self._splits)

    def close(self) -> None:
        """Let go of the block."""
        self._table = self._call = self._reference = None

    def _fetch(self) -> bool:
        """Take the block if it is here; ask for it if that was not done."""
        try:
            if self._call is None:
                self._call = self._holder.reference.remote(self._splits[0].number)
            if self._reference is None and ray.wait([self._call], timeout=0)[0]:
                (self._reference,) = ray.get(self._call)
            if self._reference is None or not ray.wait([self._reference], timeout=0)[0]:
                return False
            self._table = ray.get(self._reference)
        except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError) as error:
            raise _gone() from error
        return True


def _gone() -> LostInputError:
    return LostInputError(
        "the blocks of the Ray dataset are gone with the program that made it: keep the program until the "
        "job has read them, or write the dataset to files and read those"
    )
