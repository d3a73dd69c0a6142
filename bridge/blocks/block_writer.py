"""`BlockWriter`: writes the rows of one subtask into blocks, and commits them with its checkpoints.

Each block becomes a partition of Spark, which copies it into one Java array of at most two gigabytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import pyarrow as pa
import ray

from penstock.actors.shared.actor_calls import ANSWER, RepeatedCall, while_unavailable
from penstock.bridge.arrow.batch_pieces import cut_strictly, message_size
from penstock.bridge.arrow.readable_batches import ReadableBatches
from penstock.bridge.blocks.block_holder import HOLDER, TransactionKey, ask_holder
from penstock.runtime.errors import LostOutputError
from penstock.runtime.operators.protocols import ConnectorContext
from penstock.runtime.record.elements import Batch
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit

#: A block has this many bytes, or one row.
BLOCK_BYTES: Final = 16 * 1024 * 1024
#: Bytes after the rows of a block: the end of its last message, and of the stream.
_END_BYTES: Final = 64


class GatheredBlocks:
    """Gathers batches into blocks.

    Args:
        size: Bytes of a block. A larger row has a block of its own.

    Example:
        >>> blocks = GatheredBlocks(size=2_000)
        >>> full = list(blocks.add(pa.record_batch({"a": ["x" * 700] * 5})))
        >>> [block.rows for block in full], blocks.rest().rows
        ([2, 2], 1)
    """

    def __init__(self, size: int = BLOCK_BYTES) -> None:
        self._size = size - _END_BYTES
        self._open = OpenBlock()

    def add(self, batch: pa.RecordBatch) -> Iterator[OpenBlock]:
        """Add a batch; return the blocks that are full."""
        # Quarters leave little of a block empty.
        for piece in cut_strictly(batch, self._size // 4):
            if self._open.rows and self._open.size + message_size(piece) > self._size:
                yield self._begin()
            self._open.add(piece)

    def rest(self) -> OpenBlock | None:
        """Take the last block, which is not full."""
        return self._begin() if self._open.rows else None

    def _begin(self) -> OpenBlock:
        full, self._open = self._open, OpenBlock()
        return full


class OpenBlock:
    """An Arrow IPC stream that is being written.

    Example:
        >>> block = OpenBlock()
        >>> block.add(pa.record_batch({"a": [1, 2]}))
        >>> block.rows, pa.ipc.open_stream(block.close()).read_all()["a"].to_pylist()
        (2, [1, 2])
    """

    def __init__(self) -> None:
        #: Schema of its batches; empty before the first one.
        self.schema: pa.Schema = pa.schema([])
        self.rows = 0
        self._sink = pa.BufferOutputStream()
        self._stream: Any = None

    @property
    def size(self) -> int:
        return int(self._sink.tell())

    def add(self, batch: pa.RecordBatch) -> None:
        if self._stream is None:
            self.schema = batch.schema
            self._stream = pa.ipc.new_stream(self._sink, batch.schema)
        self._stream.write_batch(batch)
        self.rows += batch.num_rows

    def close(self) -> bytes:
        self._stream.close()
        data: bytes = self._sink.getvalue().to_pybytes()
        return data


#: Maximum number of a subtask's blocks in flight to the holder.
_OUTSTANDING: Final = 2


class BlockWriter:
    """Gathers the rows of one subtask into blocks.

    Args:
        schema: The rows' Arrow schema; without it the first rows decide.
        known: The schema to use if there are no rows.

    Raises:
        LostOutputError: The holder has ended.
    """

    def __init__(
        self,
        holder: Any,
        schema: pa.Schema | None,
        context: ConnectorContext,
        known: pa.Schema | None = None,
    ) -> None:
        self._holder = holder
        self._of = (context.job_id, context.operator_id, context.subtask, context.attempt)
        self._batches = ReadableBatches(schema)
        self._blocks = GatheredBlocks()
        #: Blocks in flight to the holder.
        self._calls: deque[RepeatedCall[None]] = deque()
        self._number = self._staged = 0
        named = schema if known is None else known
        serialised = None if named is None else named.serialize().to_pybytes()
        self._ask(holder.serve, context.job_id, context.operator_id, serialised)

    def write(self, batch: Batch) -> None:
        if not len(batch):
            return
        for block in self._blocks.add(self._batches.convert(batch)):
            self._stage(block)

    def prepare_commit(self) -> Sequence[TransactionKey]:
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
        # A restored key may be another kind of sequence than a tuple.
        missing = self._ask(self._holder.commit, [tuple(key) for key in committables])
        if missing:
            raise _blocks_lost()

    def remove_leftovers(self, permit: CommitPermit) -> None:
        """Drop what earlier attempts staged and no checkpoint covers."""
        job_id, operator, _, attempt = self._of
        self._ask(self._holder.drop_before, job_id, operator, attempt)

    def close(self) -> None:
        self._blocks = GatheredBlocks()
        self._calls.clear()

    def _stage(self, block: OpenBlock) -> None:
        self._settle(_OUTSTANDING - 1)
        schema: bytes = block.schema.serialize().to_pybytes()
        stage = partial(self._holder.stage.remote, self._key, self._staged, block.close(), block.rows, schema)
        self._calls.append(RepeatedCall(stage, HOLDER, while_unavailable(ANSWER)))
        self._staged += 1

    @property
    def _key(self) -> TransactionKey:
        return (*self._of, self._number)

    def _settle(self, left: int) -> None:
        """Wait until at most `left` calls that stage blocks are unanswered."""
        while len(self._calls) > left:
            with _losses_told():
                self._calls.popleft().answer(2 * ANSWER)

    def _ask(self, method: Any, *arguments: Any) -> Any:
        with _losses_told():
            return ask_holder(method, *arguments)


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
