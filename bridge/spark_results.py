"""`SparkResults`: a sink whose committed rows Spark reads straight from Ray's object store.

    results = bridge.SparkResults()
    stream.sink("out", results)
    env.run()
    df = results.to_dataframe(spark)

Rows become blocks of some megabytes. A checkpoint stages the blocks written so far with the actor that owns
them, its completion shows them; a restored job shows them again, which does nothing. So the DataFrame has
every row once, as files of a `FileSink` would, without a file system.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
import ray

from penstock.actors.client.cluster import connect
from penstock.bridge.answers import ANSWER
from penstock.bridge.block_frames import dataframe_of_blocks
from penstock.bridge.block_holder import Block, TransactionKey, find_holder, open_holder
from penstock.bridge.open_block import GatheredBlocks, OpenBlock
from penstock.bridge.readable_batches import ReadableBatches
from penstock.bridge.repeated_call import RepeatedCall
from penstock.bridge.spark_schema import readable_schema
from penstock.runtime.errors import LostOutputError
from penstock.runtime.operators.protocols import ConnectorContext
from penstock.runtime.record.elements import Batch
from penstock.runtime.snapshot.permit import CommitPermit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Blocks of a subtask that are on their way to their holder.
_OUTSTANDING: Final = 2

#: What messages call the actor that has the blocks.
_HOLDER: Final = "the holder of the job's results"
#: Results that a job writes or of which there are DataFrames, by name: their holders end with them.
_in_use: Final[dict[str, SparkResults]] = {}


class SparkResults:
    """Where a job on Ray leaves rows for Spark; a sink, and a context manager that releases them.

    Making one joins the cluster, or starts a local one. The blocks live until `unpersist()`, the end of the
    `with` block, or the end of this program; for results that must outlive it use `SparkTable`.

    Args:
        schema: The rows' Arrow schema. Needed when rows are dicts whose first batch may not show all types,
            and when there may be no rows at all. Only columns that it declares as `not null` stay so.

    Raises:
        BadRecordError: The schema has a type that Spark does not read.
    """

    def __init__(self, schema: pa.Schema | None = None) -> None:
        self._schema = None if schema is None else readable_schema(schema)
        connect()
        self._name = secrets.token_hex(8)
        self._holder: Any = open_holder(self._name)
        #: The job and the sink whose rows these are; `None` means all that use this object.
        self._sink: tuple[str, str] | None = None

    @classmethod
    def of_sink(cls, name: str, job_id: str, sink: str, schema: bytes | None) -> Self:
        """What one sink of one job has left with the holder of this name."""
        results = cls.__new__(cls)
        results._schema = None if schema is None else pa.ipc.read_schema(pa.py_buffer(schema))
        results._name, results._sink = name, (job_id, sink)
        results._holder = find_holder(name)
        return results

    def writer(self, context: ConnectorContext) -> BlockWriter:
        """Make the writer of one subtask.

        Raises:
            LostOutputError: The program that holds the blocks has ended, or has released them.
        """
        return BlockWriter(self._found(), self._schema, context)

    def to_dataframe(self, spark: SparkSession) -> DataFrame:
        """The rows that are committed by now, one partition a block; nothing passes through this program.

        Raises:
            PenstockError: There are no rows and no schema, or blocks have different schemas, or they have
                been released.
        """
        frame: Any = dataframe_of_blocks(spark, self.blocks(), self._schema, self._name)
        self.stay()
        return frame  # type: ignore[no-any-return]

    def blocks(self) -> dict[int, Block]:
        """The committed blocks, by the numbers under which their holder has them.

        Raises:
            PenstockError: They have been released.
        """
        try:
            found: dict[int, Block] = _ask(self._found().blocks, *self._sink or ())
        except ray.exceptions.RayActorError as error:
            raise self._gone() from error
        return found

    @property
    def schema(self) -> pa.Schema | None:
        """The rows' Arrow schema as it was given."""
        return self._schema

    def stay(self) -> None:
        """Keep the blocks until they are released: neither a job nor what is made of a DataFrame does."""
        if self._sink is None and self._holder is not None:
            _in_use[self._name] = self

    def let_go(self) -> None:
        """Keep the blocks no longer than this object, after all."""
        if self._sink is None:
            _in_use.pop(self._name, None)

    def unpersist(self) -> None:
        """Release the blocks; DataFrames of them can't be computed any more."""
        holder, self._holder = self._holder, None
        if holder is None:
            return
        if self._sink is not None:
            try:
                if not _ask(holder.release, *self._sink):
                    return
            except ray.exceptions.RayActorError:
                return  # released already, with everything else
        _in_use.pop(self._name, None)
        ray.kill(holder)

    def __enter__(self) -> SparkResults:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unpersist()

    def __getstate__(self) -> dict[str, Any]:
        self.stay()  # for the job that is being submitted
        return {"_name": self._name, "_schema": self._schema, "_sink": self._sink, "_holder": None}

    def _found(self) -> Any:
        if self._holder is not None:
            return self._holder
        try:
            return find_holder(self._name)
        except ValueError as error:
            raise self._gone() from error

    def _gone(self) -> LostOutputError:
        return LostOutputError(
            f"the results {self._name} are gone: the program that made them has ended or has released them. "
            "Keep it until the job has ended and Spark has read them, or write to a SparkTable"
        )


class BlockWriter:
    """Gathers the rows of one subtask into blocks.

    Args:
        holder: The actor that holds the blocks.
        schema: The rows' Arrow schema; that of the first rows when left out.
        context: Where it runs.

    Raises:
        LostOutputError: The holder has ended.
    """

    def __init__(self, holder: Any, schema: pa.Schema | None, context: ConnectorContext) -> None:
        self._holder = holder
        self._of = (context.job_id, context.operator_id, context.subtask, context.attempt)
        self._batches = ReadableBatches(schema)
        self._blocks = GatheredBlocks()
        #: Blocks on their way to the holder.
        self._calls: deque[RepeatedCall[None]] = deque()
        self._number = self._staged = 0
        given = None if schema is None else schema.serialize().to_pybytes()
        self._ask(holder.serve, context.job_id, context.operator_id, given)

    def write(self, batch: Batch) -> None:
        """Add rows to the open block."""
        if not len(batch):
            return
        for block in self._blocks.add(self._batches.convert(batch)):
            self._stage(block)

    def prepare_commit(self) -> Sequence[TransactionKey]:
        """Stage the blocks of this transaction."""
        block = self._blocks.rest()
        if block is not None:
            self._stage(block)
        if not self._staged:
            return []
        self._settle(0)
        key = self._key
        self._staged = 0
        self._number += 1
        return [key]

    def commit(self, committables: Sequence[TransactionKey], permit: CommitPermit) -> None:
        """Show transactions.

        Raises:
            LostOutputError: They are gone, with the actor that held them.
        """
        # Keys come back from checkpoints as whatever sequence the codec makes of tuples.
        missing = self._ask(self._holder.commit, [tuple(key) for key in committables])
        if missing:
            raise _blocks_lost()

    def abort(self, committables: Sequence[TransactionKey]) -> None:
        """Drop transactions that no checkpoint covers."""
        self._ask(self._holder.drop, [tuple(key) for key in committables])

    def remove_leftovers(self, permit: CommitPermit) -> None:
        """Drop what earlier attempts staged and no checkpoint covers."""
        job_id, operator, _, attempt = self._of
        self._ask(self._holder.drop_before, job_id, operator, attempt)

    def close(self) -> None:
        """Drop what is open."""
        self._blocks = GatheredBlocks()
        self._calls.clear()

    def _stage(self, block: OpenBlock) -> None:
        self._settle(_OUTSTANDING - 1)
        schema: bytes = block.schema.serialize().to_pybytes()
        stage = partial(self._holder.stage.remote, self._key, self._staged, block.close(), block.rows, schema)
        self._calls.append(RepeatedCall(stage, _HOLDER, ANSWER))
        self._staged += 1

    @property
    def _key(self) -> TransactionKey:
        """Of the open transaction."""
        return (*self._of, self._number)

    def _settle(self, left: int) -> None:
        """Wait until at most so many blocks are on their way."""
        while len(self._calls) > left:
            with _losses_told():
                self._calls.popleft().answer(2 * ANSWER)

    def _ask(self, method: Any, *arguments: Any) -> Any:
        with _losses_told():
            return _ask(method, *arguments)


def _ask(method: Any, *arguments: Any) -> Any:
    """The answer of a holder, which may be asked twice."""
    return RepeatedCall[Any](partial(method.remote, *arguments), _HOLDER, ANSWER).answer(2 * ANSWER)


@contextmanager
def _losses_told() -> Iterator[None]:
    try:
        yield
    except ray.exceptions.RayActorError as error:
        raise _blocks_lost() from error


def _blocks_lost() -> LostOutputError:
    return LostOutputError(
        "the actor that holds the rows for Spark has ended, and committed rows with it: the program that "
        "made the SparkResults must live until Spark has read them. Start the job again, or write to a "
        "SparkTable"
    )
