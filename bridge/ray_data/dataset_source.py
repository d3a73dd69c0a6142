"""`DatasetSource`: the blocks of a Ray dataset as splits, read straight from the object store.

A small actor of the program holds the references of the blocks. Each block is a split, and its position is a
row number. Blocks never change, so a restored reader reads the same rows again. Ray itself recomputes blocks
that are lost with a node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import pyarrow as pa
import ray

from penstock.actors.shared.names import NAMESPACE
from penstock.bridge.arrow.record_format import RecordFormat
from penstock.bridge.ray_data.block_columns import with_columns_of
from penstock.runtime.errors import LostInputError
from penstock.runtime.io.connectors.arrow_rows import arrow_rows, rows_of_arrow
from penstock.runtime.operators.protocols import ConnectorContext, Polled
from penstock.runtime.record.elements import ArrowBatch, RowBatch

#: Prefix of the holder's name.
DATASET_PREFIX: Final = "dataset:"
#: Seconds until a reader whose block is on its way looks again.
_PAUSE: Final = 0.005


class DatasetHolder:
    """Keeps the references of a dataset's blocks; an actor that ends with its program.

    Args:
        references: References of the blocks, in their order.
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
        row: The next row in it.
    """

    number: int
    row: int = 0


class DatasetSource:
    """The blocks of a dataset as splits.

    Args:
        name: Name of the holder.
        blocks: Number of blocks.
        record_format: Arrow batches, or rows as dicts.
        schema: Columns of all blocks as Arrow batches; `None` lets a reader's first block decide.
    """

    only_reads: ClassVar[bool] = True

    def __init__(
        self, name: str, blocks: int, record_format: RecordFormat, schema: pa.Schema | None = None
    ) -> None:
        self.name = name
        self.record_format = record_format
        self.schema = schema
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
    """Reads blocks one after the other; never waits for one that is on its way.

    Args:
        splits: Blocks, fresh or restored.

    Raises:
        LostInputError: The program that has the dataset has ended.
    """

    makes_new_records: ClassVar[bool] = True

    def __init__(
        self, source: DatasetSource, context: ConnectorContext, splits: Sequence[BlockSplit]
    ) -> None:
        self._clock = context.clock
        self._arrow = source.record_format == "arrow"
        self._schema = source.schema
        self._splits = deque(splits)
        self._table: pa.Table | None = None
        #: The call for the block's reference, and then the reference.
        self._call: Any = None
        self._reference: Any = None
        try:
            self._holder: Any = ray.get_actor(DATASET_PREFIX + source.name, namespace=NAMESPACE)
        except ValueError as error:
            raise _gone() from error

    def poll(self, max_rows: int) -> Polled[Any]:
        """The next rows.

        Raises:
            LostInputError: The block is lost, mostly because the program that made it has ended.
            ConnectorError: The block has other columns than the dataset, and Arrow batches were asked for.
        """
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
        """The blocks that are not read to their end."""
        return list(self._splits)

    def close(self) -> None:
        """Release the block."""
        self._table = self._call = self._reference = None

    def _fetch(self) -> bool:
        """Take the block if it has arrived; request it if that was not done."""
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
        "the blocks of the Ray dataset are gone with the program that made it: keep the program until the "
        "job has read them, or write the dataset to files and read those"
    )
