"""`BlockResults`: a sink whose committed rows stay in Ray's object store, for Spark or Ray Data.

A block is an Arrow IPC stream of at most 16 MiB, or of one larger row. An actor, the holder, stages the
blocks of subtasks, and commits them when their checkpoint completes. All calls are idempotent. So a reader
finds every row once, as in the files of a `FileSink`, without a file system.

Ray keeps an object until its owner or its node dies. The holder owns all blocks, because subtasks may die,
and the Spark session may be restarted. There are two ways to make the holder the owner of a block:

- A call's results belong to its caller. So the holder calls the subtask's actor for the block, and Ray stores
  the block once. It is not copied again, even when the subtask's process ends.
- The holder puts a block that it received as an argument, which copies it three more times. Only subtasks on
  other nodes send blocks in this way. So committed rows depend on no node but the holder's.

Nothing reads a block of a failed attempt, because only a commit makes it visible. Ray frees it when the
holder drops its reference. Ray spills blocks to disk when memory is short.
"""

from __future__ import annotations

import asyncio
import io
import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from types import TracebackType
from typing import Any, ClassVar, Final, Self, TypeAlias

import pyarrow as pa
import ray

from penstock.actors.client.cluster import connect
from penstock.actors.shared.actor_calls import ANSWER, RepeatedCall, while_unavailable
from penstock.actors.shared.node_processes import own_node
from penstock.actors.shared.registry import find_actor, start_actor
from penstock.bridge.arrow import ReadableBatches, cut_strictly, message_size, readable_schema
from penstock.runtime.errors import LostOutputError
from penstock.runtime.names import NearestNames
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.record.elements import Batch
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit

#: Job, operator, subtask, attempt, and number of the transaction in that attempt.
TransactionKey: TypeAlias = tuple[str, str, int, int, int]

HOLDER_PREFIX: Final = "blocks:"
#: Name of a holder in messages.
HOLDER: Final = "the holder of the job's results"
#: Seconds to wait for the bytes of a block.
FETCH: Final = 120.0

#: Blocks of this process that the holder has not taken yet, by transaction and position.
_offered: Final[dict[tuple[TransactionKey, int], bytes]] = {}


def _hand_over(actor: Any, key: TransactionKey, position: int) -> tuple[bytes, int]:
    """An offered block, and its size, which is small enough to be part of the answer; runs in a subtask."""
    data = _offered[key, position]
    return data, len(data)


@dataclass(frozen=True, slots=True)
class Block:
    """A block; `size` is in bytes, and its Arrow schema is serialised."""

    data: ray.ObjectRef[bytes]
    rows: int
    size: int
    schema: bytes


class BlockHolder:
    """The actor that owns the blocks until they are released; all methods run on its event loop."""

    def __init__(self) -> None:
        #: Schema of the rows by job and sink, `None` while unknown, in the order in which sinks started.
        self._sinks: dict[tuple[str, str], bytes | None] = {}
        self._staged: dict[TransactionKey, dict[int, Block]] = {}
        self._committed: set[TransactionKey] = set()
        #: Committed blocks by number; numbers are never reused.
        self._blocks: dict[int, tuple[TransactionKey, Block]] = {}
        self._numbers = count()

    def serve(self, job_id: str, operator: str, schema: bytes | None) -> str:
        """Note a sink and the schema of its rows; return the holder's node."""
        self._sinks[job_id, operator] = schema
        return own_node()

    def sinks(self, job_id: str) -> dict[str, bytes | None]:
        return {operator: schema for (job, operator), schema in self._sinks.items() if job == job_id}

    async def take(self, key: TransactionKey, position: int, actor: Any, rows: int, schema: bytes) -> None:
        """Stage a block that the actor of a subtask on this node offers."""
        if self._is_staged(key, position):
            return
        call = actor.__ray_call__.options(num_returns=2)
        data, size = call.remote(_hand_over, key, position)
        # With the size, the block is in the object store. A subtask that hangs may ask again.
        block = Block(data, rows, await asyncio.wait_for(size, ANSWER), schema)
        if not self._is_staged(key, position):
            self._staged.setdefault(key, {})[position] = block

    def stage(self, key: TransactionKey, position: int, data: bytes, rows: int, schema: bytes) -> None:
        """Keep a block at its position in a transaction; readers don't see it before the commit."""
        if not self._is_staged(key, position):
            self._staged.setdefault(key, {})[position] = Block(ray.put(data), rows, len(data), schema)

    def _is_staged(self, key: TransactionKey, position: int) -> bool:
        """Whether a call that stages this block is a repeated one."""
        return key in self._committed or position in self._staged.get(key, {})

    def commit(self, keys: list[TransactionKey]) -> list[TransactionKey]:
        """Make the blocks of transactions visible; return the transactions that the holder does not have."""
        missing = []
        for key in keys:
            if key in self._staged:
                self._committed.add(key)
                blocks = self._staged.pop(key)
                self._blocks |= {next(self._numbers): (key, blocks[position]) for position in sorted(blocks)}
            elif key not in self._committed:
                missing.append(key)
        return missing

    def drop_before(self, job_id: str, operator: str, attempt: int) -> int:
        """Drop the staged blocks of an operator's earlier attempts; return the number of transactions."""
        old = [key for key in self._staged if key[:2] == (job_id, operator) and key[3] < attempt]
        for key in old:
            del self._staged[key]
        return len(old)

    def blocks(self, job_id: str | None = None, operator: str | None = None) -> dict[int, Block]:
        """Committed blocks by number, in the order of commits; by default all of the newest job."""
        if job_id is None:
            job_id = next(reversed(self._sinks), ("", ""))[0]
        return {
            number: block
            for number, (key, block) in self._blocks.items()
            if key[0] == job_id and operator in (None, key[1])
        }

    def release(self, job_id: str, operator: str) -> bool:
        """Forget a sink and its committed blocks; return whether the holder has no other sink."""
        for number in self.blocks(job_id, operator):
            del self._blocks[number]
        self._sinks.pop((job_id, operator), None)
        return not self._sinks

    def reference(self, number: int) -> list[ray.ObjectRef[bytes]]:
        """The reference of a committed block, in a list; Ray would answer with the bytes otherwise."""
        return [self._blocks[number][1].data]


def find_holder(name: str) -> Any:
    """The holder of this name; raises `ValueError` if it has ended."""
    return find_actor(HOLDER_PREFIX + name)


def ask_holder(method: Any, *arguments: Any) -> Any:
    """Call a holder; the call must be idempotent, since it may be repeated."""
    call = partial(method.remote, *arguments)
    return RepeatedCall[Any](call, HOLDER, while_unavailable(ANSWER)).answer(2 * ANSWER)


#: Maximum bytes of a block with several rows. Spark copies a block, as a partition, into one Java array of at
#: most two gigabytes.
BLOCK_BYTES: Final = 16 * 1024 * 1024
#: Bytes after the rows of a block: the end of its last message, and of the stream.
_END_BYTES: Final = 64


class GatheredBlocks:
    """Collects batches into blocks of at most `size` bytes; a larger row has a block of its own.

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
        """Add a batch; yield the blocks that are full."""
        # Pieces of at most a quarter of a block leave little of it empty.
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
    """An Arrow IPC stream that is being written."""

    def __init__(self) -> None:
        #: Schema of its batches; empty before the first one.
        self.schema: pa.Schema = pa.schema([])
        self.rows = 0
        self._sink = io.BytesIO()  # gives its bytes away without a copy
        self._stream: Any = None

    @property
    def size(self) -> int:
        return self._sink.tell()

    def add(self, batch: pa.RecordBatch) -> None:
        if self._stream is None:
            self.schema = batch.schema
            self._stream = pa.ipc.new_stream(self._sink, batch.schema)
        self._stream.write_batch(batch)
        self.rows += batch.num_rows

    def close(self) -> bytes:
        self._stream.close()
        return self._sink.getvalue()


#: Maximum number of a subtask's blocks in flight to the holder.
_OUTSTANDING: Final = 2


class BlockWriter:
    """Writes the rows of one subtask into blocks, and commits them with its checkpoints.

    Args:
        schema: The rows' Arrow schema; by default the schema of the first rows.
        known: The schema to use if there are no rows.
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
        #: Blocks in flight to the holder, with their transactions and positions.
        self._calls: deque[tuple[TransactionKey, int, RepeatedCall[None]]] = deque()
        self._number = self._staged = 0
        named = schema if known is None else known
        serialised = None if named is None else named.serialize().to_pybytes()
        node = self._ask(holder.serve, context.job_id, context.operator_id, serialised)
        #: The actor from which the holder takes blocks; `None` if it would store them on another node.
        self._actor: Any = _own_actor() if node == own_node() else None

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
        # A restored key may be a list.
        missing = self._ask(self._holder.commit, [tuple(key) for key in committables])
        if missing:
            raise _blocks_lost()

    def remove_leftovers(self, permit: CommitPermit) -> None:
        """Drop blocks that earlier attempts staged and no checkpoint covers."""
        job_id, operator, _, attempt = self._of
        self._ask(self._holder.drop_before, job_id, operator, attempt)

    def close(self) -> None:
        self._blocks = GatheredBlocks()
        while self._calls:
            key, position, _ = self._calls.popleft()
            _offered.pop((key, position), None)

    def _stage(self, block: OpenBlock) -> None:
        self._settle(_OUTSTANDING - 1)
        key, position, data = self._key, self._staged, block.close()
        schema: bytes = block.schema.serialize().to_pybytes()
        if self._actor is None:
            method, source = self._holder.stage, data
        else:
            method, source = self._holder.take, self._actor
            _offered[key, position] = data
        stage = partial(method.remote, key, position, source, block.rows, schema)
        self._calls.append((key, position, RepeatedCall(stage, HOLDER, while_unavailable(ANSWER))))
        self._staged += 1

    @property
    def _key(self) -> TransactionKey:
        return (*self._of, self._number)

    def _settle(self, left: int) -> None:
        """Wait until at most `left` calls that stage blocks are unanswered."""
        while len(self._calls) > left:
            key, position, call = self._calls[0]
            with _losses_explained():
                call.answer(2 * ANSWER)
            self._calls.popleft()
            _offered.pop((key, position), None)

    def _ask(self, method: Any, *arguments: Any) -> Any:
        with _losses_explained():
            return ask_holder(method, *arguments)


def _own_actor() -> Any:
    """The handle of the actor in whose process this runs; `None` in a program."""
    context = ray.get_runtime_context()
    return None if context.get_actor_id() is None else context.current_actor


@contextmanager
def _losses_explained() -> Iterator[None]:
    try:
        yield
    except ray.exceptions.RayActorError as error:
        raise _blocks_lost() from error


def _blocks_lost() -> LostOutputError:
    return LostOutputError(
        "the actor that holds the job's results has ended, so committed rows are lost: the program that "
        "made the sink must run until all results are read. Start the job again, or write to a SparkTable"
    )


#: Results that a job writes or a DataFrame reads, by name. An entry keeps the handle of its holder alive. Ray
#: ends a holder when the last handle is collected.
_in_use: Final[dict[str, BlockResults]] = {}


class BlockResults(metaclass=NearestNames):
    """A sink that leaves rows in Ray's object store for another engine; see `SparkResults`."""

    only_reads: ClassVar[bool] = True

    def __init__(self, schema: pa.Schema | None = None) -> None:
        self._schema = None if schema is None else readable_schema(schema)
        #: Schemas of the sink's streams; `None` for an unknown schema.
        self._known: list[pa.Schema | None] = []
        connect()
        self._name = secrets.token_hex(8)
        self._holder: Any = start_actor(BlockHolder, HOLDER_PREFIX + self._name, num_cpus=0)
        #: The job and the sink whose rows these are; `None` means the newest job that uses this object.
        self._sink: tuple[str, str] | None = None

    @classmethod
    def of_sink(cls, name: str, job_id: str, sink: str, schema: bytes | None) -> Self:
        """The rows that one sink of one job has left with the holder of this name."""
        results = cls.__new__(cls)
        results._schema = None if schema is None else pa.ipc.read_schema(pa.py_buffer(schema))
        results._known = []
        results._name, results._sink = name, (job_id, sink)
        results._holder = find_holder(name)
        return results

    def writer(self, context: ConnectorContext) -> BlockWriter:
        """Make the writer of one subtask."""
        return BlockWriter(self._found(), self._schema, context, self.schema)

    def take_schema(self, arrow_schema: pa.Schema | None) -> None:
        """Add the schema of one of the sink's streams; it is used only if there are no rows."""
        self._known.append(None if arrow_schema is None else readable_schema(arrow_schema))

    def blocks(self) -> dict[int, Block]:
        """The committed blocks of the sink given to `of_sink`, else of the newest job, by number."""
        try:
            found: dict[int, Block] = ask_holder(self._found().blocks, *self._sink or ())
        except ray.exceptions.RayActorError as error:
            raise self._gone() from error
        return found

    @property
    def schema(self) -> pa.Schema | None:
        """The given Arrow schema of the rows, else the common schema of the streams, if any."""
        if self._schema is not None or not self._known:
            return self._schema
        first, *others = self._known
        return first if all(other == first for other in others) else None

    def stay(self) -> None:
        """Keep the blocks until they are released, even when this object is collected."""
        if self._sink is None and self._holder is not None:
            _in_use[self._name] = self

    def let_go(self) -> None:
        """Let the blocks be released when this object is collected."""
        if self._sink is None:
            _in_use.pop(self._name, None)

    def unpersist(self) -> None:
        """Release the blocks; their DataFrames can't be computed any more."""
        holder, self._holder = self._holder, None
        if holder is None:
            return
        if self._sink is not None:
            try:
                if not ask_holder(holder.release, *self._sink):
                    return
            except ray.exceptions.RayActorError:
                return  # the holder has ended, and released all its blocks
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
            "Keep it running until the job has ended and Spark has read them, or write to a SparkTable"
        )
