"""`BlockResults`: a sink whose committed rows stay in Ray's object store, for Spark or Ray Data.

Rows become blocks of some megabytes. A checkpoint stages the blocks written so far with the actor that owns
them, and its completion commits them. A restored job repeats the commit, which does nothing. So a reader
finds every row once, as in the files of a `FileSink`, without a file system.
"""

from __future__ import annotations

import secrets
from types import TracebackType
from typing import Any, ClassVar, Final, Self

import pyarrow as pa
import ray

from penstock.actors.client.cluster import connect
from penstock.bridge.arrow.readable_batches import readable_schema
from penstock.bridge.blocks.block_holder import Block, ask_holder, find_holder, open_holder
from penstock.bridge.blocks.block_writer import BlockWriter
from penstock.runtime.errors import LostOutputError
from penstock.runtime.names import NearestNames
from penstock.runtime.operators.protocols import ConnectorContext

#: Results that a job writes or a DataFrame reads, by name; a holder ends with its entry.
_in_use: Final[dict[str, BlockResults]] = {}


class BlockResults(metaclass=NearestNames):
    """A sink that leaves rows in Ray's object store for another engine; see `SparkResults`.

    Args:
        schema: The rows' Arrow schema; without it the first rows decide.

    Raises:
        BadRecordError: The schema has a type that Spark does not read.
    """

    only_reads: ClassVar[bool] = True

    def __init__(self, schema: pa.Schema | None = None) -> None:
        self._schema = None if schema is None else readable_schema(schema)
        #: Schemas of the sink's streams, as far as they are known without a row.
        self._known: list[pa.Schema | None] = []
        connect()
        self._name = secrets.token_hex(8)
        self._holder: Any = open_holder(self._name)
        #: The job and the sink whose rows these are; `None` means the newest job that uses this object.
        self._sink: tuple[str, str] | None = None

    @classmethod
    def of_sink(cls, name: str, job_id: str, sink: str, schema: bytes | None) -> Self:
        """Return the rows that one sink of one job has left with the holder of this name."""
        results = cls.__new__(cls)
        results._schema = None if schema is None else pa.ipc.read_schema(pa.py_buffer(schema))
        results._known = []
        results._name, results._sink = name, (job_id, sink)
        results._holder = find_holder(name)
        return results

    def writer(self, context: ConnectorContext) -> BlockWriter:
        """Make the writer of one subtask.

        Raises:
            LostOutputError: The program that holds the blocks has ended, or has released them.
        """
        return BlockWriter(self._found(), self._schema, context, self.schema)

    def take_schema(self, arrow_schema: pa.Schema | None) -> None:
        """Take the schema of the sink's stream, which names the columns if there are no rows.

        Rows decide their columns themselves.
        """
        self._known.append(None if arrow_schema is None else readable_schema(arrow_schema))

    def blocks(self) -> dict[int, Block]:
        """The committed blocks of the newest job, by the numbers under which their holder has them.

        A sink that several jobs use, one after the other, gives the rows of the last one.

        Raises:
            PenstockError: The blocks have been released.
        """
        try:
            found: dict[int, Block] = ask_holder(self._found().blocks, *self._sink or ())
        except ray.exceptions.RayActorError as error:
            raise self._gone() from error
        return found

    @property
    def schema(self) -> pa.Schema | None:
        """The given Arrow schema of the rows, else that of the streams if all have the same."""
        if self._schema is not None or not self._known:
            return self._schema
        first, *others = self._known
        return first if all(other == first for other in others) else None

    def stay(self) -> None:
        """Keep the blocks until they are released, even when this object is collected."""
        if self._sink is None and self._holder is not None:
            _in_use[self._name] = self

    def let_go(self) -> None:
        """Release the blocks when this object is collected."""
        if self._sink is None:
            _in_use.pop(self._name, None)

    def unpersist(self) -> None:
        """Release the blocks; DataFrames of them can't be computed any more."""
        holder, self._holder = self._holder, None
        if holder is None:
            return
        if self._sink is not None:
            try:
                if not ask_holder(holder.release, *self._sink):
                    return
            except ray.exceptions.RayActorError:
                return  # released already, with everything else
        _in_use.pop(self._name, None)
        ray.kill(holder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unpersist()

    def __getstate__(self) -> dict[str, Any]:
        self.stay()  # for the job that is being submitted
        return {
            "_name": self._name,
            "_schema": self._schema,
            "_known": self._known,
            "_sink": self._sink,
            "_holder": None,
        }

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
