"""`BlockWriter`: writes the rows of one subtask into blocks, and commits them with its checkpoints."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import pyarrow as pa
import ray

from penstock.actors.shared.answers import ANSWER
from penstock.actors.shared.repeated_call import RepeatedCall, while_unavailable
from penstock.bridge.arrow.readable_batches import ReadableBatches
from penstock.bridge.blocks.block_holder import HOLDER, TransactionKey, ask_holder
from penstock.bridge.blocks.open_block import GatheredBlocks, OpenBlock
from penstock.runtime.errors import LostOutputError
from penstock.runtime.operators.protocols import ConnectorContext
from penstock.runtime.record.elements import Batch
from penstock.runtime.snapshot.permit import CommitPermit

#: Maximum number of blocks of a subtask that are on their way to the holder.
_OUTSTANDING: Final = 2


class BlockWriter:
    """Gathers the rows of one subtask into blocks.

    Args:
        holder: The actor that holds the blocks.
        schema: The rows' Arrow schema; without it the first rows decide.
        known: Their schema if there are no rows.

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
        #: Blocks on their way to the holder.
        self._calls: deque[RepeatedCall[None]] = deque()
        self._number = self._staged = 0
        named = schema if known is None else known
        serialised = None if named is None else named.serialize().to_pybytes()
        self._ask(holder.serve, context.job_id, context.operator_id, serialised)

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
        """Commit transactions.

        Raises:
            LostOutputError: They are gone, with the actor that held them.
        """
        # A restored key may be another kind of sequence than a tuple.
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
        """Drop the rows that are not staged."""
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
        """Key of the open transaction."""
        return (*self._of, self._number)

    def _settle(self, left: int) -> None:
        """Wait until at most `left` blocks are on their way."""
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
