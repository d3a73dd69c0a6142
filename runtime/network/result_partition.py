"""The output of a subtask on one edge: a channel selector over one subpartition per receiver.

Selectors choose the channels of records, a batch at a time (Flink's `StreamPartitioner`s). An Arrow batch is
split by key without a Python object for any row. The keys' hashes give key groups, and a table gives the
channel of each group. The rows of a channel keep their order: records of a key must not overtake each other.
With few channels, the rows of each channel are searched for and taken separately. With more, a stable sort of
the channel numbers brings the rows of each channel together; all rows are taken once and sliced by channel.
The numbers are small, and numpy has a radix sort for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NoReturn, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.errors import KeyTypeError, PenstockError
from penstock.runtime.graph.execution_graph import OutputChannelSpec, ResultPartitionSpec
from penstock.runtime.graph.job_graph import Partitioner, Partitioning
from penstock.runtime.network.result_subpartition import (
    BatchEncoder,
    OpenArrowBuffer,
    ResultSubpartition,
    SubpartitionStatistics,
)
from penstock.runtime.network.send_queue import BufferBudget, BufferDebloater
from penstock.runtime.operators.functions.function_operator import rows_of
from penstock.runtime.operators.functions.record_functions import arrow_parts
from penstock.runtime.operators.user_code.failure import short_repr
from penstock.runtime.operators.user_code.only_reads import only_reads
from penstock.runtime.operators.user_code.result_collector import reading
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import (
    ArrowBatch,
    Batch,
    BatchFormat,
    CheckpointBarrier,
    Event,
    RowBatch,
)
from penstock.runtime.state.key_groups import (
    KeyToSubtask,
    check_parallelism,
    key_group_of,
    subtask_of_key_group,
)
from penstock.runtime.state.own_copy import own_copies
from penstock.runtime.state.stable_hash import HashArray
from penstock.runtime.state.stable_hash_arrays import key_hashes
from penstock.runtime.time.durations import as_seconds
from penstock.runtime.user_location import function_location

#: Maximum number of channels for which searching each one's rows is faster than a sort.
_FEW: Final = 4


class ArrowSplitter:
    """Finds the channel of each row by the key group of its key."""

    def __init__(self, key: ColumnKey, channels: int, max_parallelism: int) -> None:
        check_parallelism(channels, max_parallelism)
        self._key = key
        self._channels = channels
        self._max_parallelism = max_parallelism
        owners = [subtask_of_key_group(group, channels, max_parallelism) for group in range(max_parallelism)]
        self._owners: NDArray[Any] = np.array(owners, np.uint8 if channels <= 256 else np.uint16)
        self._checked: pa.Schema | None = None

    def split(self, batch: ArrowBatch) -> Sequence[tuple[int, ArrowBatch]]:
        """Pairs of a channel and its rows, in the batch's order; omits channels without rows."""
        if not len(batch):
            return []
        if self._channels == 1:
            self._check(batch.batch)
            return [(0, batch)]
        targets = self._targets(key_hashes(self._key.columns(batch.batch)))
        return _split_arrow(batch, targets, self._channels)

    def _targets(self, hashes: HashArray) -> NDArray[Any]:
        count = self._max_parallelism
        groups: NDArray[Any]
        if count & (count - 1):
            groups = (hashes % np.uint64(count)).astype(np.uint16)
        else:  # the remainder is the low bits, so the low bytes suffice
            groups = hashes.astype(np.uint8 if count <= 256 else np.uint16)
            groups &= count - 1
        targets: NDArray[Any] = self._owners.take(groups)
        return targets

    def _check(self, batch: pa.RecordBatch) -> None:
        """Refuse keys that have no hash, even where no hash is needed."""
        if batch.schema is not self._checked and batch.schema != self._checked:
            self._key.columns(batch.slice(0, 0))
        self._checked = batch.schema


def _rows(batch: ArrowBatch, places: NDArray[np.intp]) -> ArrowBatch:
    return batch.take(pa.array(places))


class ChannelSelector(Protocol):
    def select(self, batch: Batch) -> Sequence[tuple[int, Batch]]:
        """Pairs of a channel and its rows, each in the batch's order; omits channels without rows."""
        ...


class SingleChannelSelector:
    """Sends everything to channel 0: for forward and global edges, and a rebalance to a single subtask."""

    def select(self, batch: Batch) -> Sequence[tuple[int, Batch]]:
        return [(0, batch)]


class RebalanceSelector:
    """Spreads each batch evenly in contiguous pieces, beginning after the last channel that got a piece."""

    def __init__(self, channels: int, first: int) -> None:
        self._channels = channels
        self._next = first % channels

    def select(self, batch: Batch) -> Sequence[tuple[int, Batch]]:
        """Return at most one piece per channel; the pieces of an Arrow batch are views."""
        piece = max(1, -(-len(batch) // self._channels))
        selected: list[tuple[int, Batch]] = []
        for part in batch.slices(piece):
            selected.append((self._next, part))
            self._next = (self._next + 1) % self._channels
        return selected


class KeyGroupSelector:
    """Sends each record to the subtask that owns the key group of its key.

    The subtask of a key is looked up in a bounded cache. So a record costs one call of the key selector, one
    dictionary look-up and one append. An Arrow batch stays an Arrow batch if the key is given by columns, or
    if there is only one channel. Otherwise it becomes rows, because a key function takes rows.
    """

    def __init__(self, key_selector: Callable[[Any], Any], channels: int, max_parallelism: int) -> None:
        self._key_selector = reading(key_selector)
        self._channels = channels
        self._max_parallelism = max_parallelism
        self._subtask_of = KeyToSubtask(channels, max_parallelism)
        self._splitter: ArrowSplitter | None = None
        if isinstance(key_selector, ColumnKey):
            self._splitter = ArrowSplitter(key_selector, channels, max_parallelism)

    def select(self, batch: Batch) -> Sequence[tuple[int, Batch]]:
        if isinstance(batch, ArrowBatch):
            if self._splitter is not None:
                return self._splitter.split(batch)
            if self._channels == 1:
                return self._unsplit(batch)
        return self._select_rows(rows_of(batch))

    def _unsplit(self, batch: ArrowBatch) -> Sequence[tuple[int, Batch]]:
        """Return all rows for the only channel, after a check of one key."""
        return [(0, batch)] if self._select_rows(rows_of(batch.slice(0, 1))) else []

    def _select_rows(self, batch: RowBatch) -> Sequence[tuple[int, Batch]]:
        rows = batch.rows
        if not rows:
            return []
        select = self._key_selector
        try:
            if self._channels == 1:
                key_group_of(select(rows[0]), self._max_parallelism)
                return [(0, batch)]
            targets = self._subtask_of.subtasks_of([select(row) for row in rows])
        except KeyTypeError as error:
            if isinstance(select, ColumnKey):
                msg = f"{select.__name__}: {error}"
                raise KeyTypeError(msg) from error
            raise
        return _split_rows(batch, targets, self._channels)


def _split_rows(batch: RowBatch, targets: Sequence[int], channels: int) -> Sequence[tuple[int, Batch]]:
    split: list[list[Any]] = [[] for _ in range(channels)]
    for target, row in zip(targets, batch.rows, strict=True):
        split[target].append(row)
    if batch.timestamps is None:
        return [(channel, RowBatch(part)) for channel, part in enumerate(split) if part]
    stamps: list[list[int]] = [[] for _ in range(channels)]
    for target, stamp in zip(targets, batch.timestamps, strict=True):
        stamps[target].append(stamp)
    return [(channel, RowBatch(part, stamps[channel])) for channel, part in enumerate(split) if part]


def _split_arrow(batch: ArrowBatch, targets: NDArray[Any], channels: int) -> Sequence[tuple[int, ArrowBatch]]:
    counts = np.bincount(targets, minlength=channels)
    used = np.flatnonzero(counts)
    if len(used) == 1:
        return [(int(used[0]), batch)]
    if channels <= _FEW:
        return [(int(channel), _rows(batch, np.flatnonzero(targets == channel))) for channel in used]
    together = _rows(batch, np.argsort(targets, kind="stable"))
    ends = np.cumsum(counts)
    return [(int(c), together.slice(int(ends[c] - counts[c]), int(counts[c]))) for c in used]


class CustomSelector:
    """Sends each record to the channel that the user's function returns; keeps the format of batches.

    Args:
        function: Takes a record and the number of channels, and returns the index of a channel. With
            `batch_format="arrow"` it takes an Arrow batch, and returns an index for each row.
    """

    def __init__(
        self, function: Callable[[Any, int], Any], channels: int, batch_format: BatchFormat = "rows"
    ) -> None:
        self._function = function
        self._only_reads = only_reads(function)
        self._channels = channels
        self._batch_format = batch_format

    def select(self, batch: Batch) -> Sequence[tuple[int, Batch]]:
        if not len(batch):
            return []
        targets = self._of_batch(batch) if self._batch_format == "arrow" else self._of_rows(rows_of(batch))
        if isinstance(batch, ArrowBatch):
            # A stable sort of numbers of two bytes is a radix sort.
            return _split_arrow(batch, np.asarray(targets, np.uint16), self._channels)
        return _split_rows(batch, targets, self._channels)

    def _of_rows(self, batch: RowBatch) -> list[int]:
        function, channels = self._function, self._channels
        rows = batch.rows if self._only_reads else own_copies(batch.rows)
        targets = [function(row, channels) for row in rows]
        for row, target in zip(batch.rows, targets, strict=True):
            if not isinstance(target, int | np.integer) or not 0 <= target < channels:
                self._refuse(target, f" for the record {short_repr(row)}")
        return targets

    def _of_batch(self, batch: Batch) -> list[int]:
        targets: list[int] = []
        for part in arrow_parts(batch, instead='batch_format="rows"'):
            found = self._function(part.batch, self._channels)
            if isinstance(found, pa.ChunkedArray | pa.Array):
                found = found.to_numpy(zero_copy_only=False)
            array = np.asarray(found)
            if array.shape != (len(part),) or array.dtype.kind not in "iu":
                what = f"{array.dtype} of shape {array.shape}"
                self._refuse(what, f"; give one whole number for each row (rows: {len(part)})")
            wrong = np.flatnonzero((array < 0) | (array >= self._channels))
            if len(wrong):
                self._refuse(array[wrong[0]].item(), f" for row {int(wrong[0])} of a batch")
            targets += array.tolist()
        return targets

    def _refuse(self, found: Any, why: str) -> NoReturn:
        msg = (
            f"partition_custom: {function_location(self._function)} returned {short_repr(found)}{why}; the "
            f"receiving operator's parallelism is {self._channels}, so indexes are from 0 to "
            f"{self._channels - 1}"
        )
        raise PenstockError(msg)


def channel_selector(
    partitioner: Partitioner, channels: int, max_parallelism: int, subtask: int
) -> ChannelSelector | None:
    """The selector of an edge; `None` for a broadcast, where every channel gets everything.

    `subtask` is the sender's index: senders begin their rounds at different channels.
    """
    kind = partitioner.partitioning
    if kind is Partitioning.BROADCAST:
        return None
    if kind is Partitioning.KEY_GROUP:
        if partitioner.key_selector is None:
            msg = "a key group partitioner needs a key selector"
            raise ValueError(msg)
        return KeyGroupSelector(partitioner.key_selector, channels, max_parallelism)
    if kind is Partitioning.CUSTOM:
        assert partitioner.key_selector is not None, "a custom partitioner has a function"
        return CustomSelector(partitioner.key_selector, channels, partitioner.batch_format)
    if kind is Partitioning.REBALANCE and channels > 1:
        return RebalanceSelector(channels, subtask)
    return SingleChannelSelector()


#: Encoded elements that a barrier has overtaken on a channel, oldest first.
Overtaken: TypeAlias = tuple[OutputChannelSpec, list[bytes]]


#: A channel that has sent a frame rests for the buffer timeout divided by this number.
_RESTS: Final = 10


class ResultPartition:
    """The output of one operator on one edge (Flink's `RecordWriter` and `ResultPartition` in one).

    Args:
        send: Sends a frame; takes the channel, the first sequence number and the elements.
    """

    def __init__(
        self,
        spec: ResultPartitionSpec,
        subtask: int,
        codec: BatchEncoder,
        send: Callable[[OutputChannelSpec, int, list[bytes]], None],
        config: JobConfig,
    ) -> None:
        self.spec = spec
        self._lets_overtake = spec.supports_unaligned
        self._codec = codec
        advanced, rest = config.advanced, as_seconds(config.buffer_timeout) / _RESTS
        self._arrow_buffer = OpenArrowBuffer(advanced.arrow_buffer_rows, advanced.arrow_buffer_bytes)
        self._selector = channel_selector(spec.partitioner, len(spec.channels), spec.max_parallelism, subtask)
        self.subpartitions = [
            ResultSubpartition(
                codec,
                partial(send, channel),
                advanced.credits,
                _budget(advanced),
                rest,
                OpenArrowBuffer(advanced.arrow_buffer_rows, advanced.arrow_buffer_bytes),
            )
            for channel in spec.channels
        ]

    def emit(self, batch: Batch) -> None:
        if not len(batch):
            return
        if self._selector is None:
            self._broadcast(batch)
            return
        for channel, part in self._selector.select(batch):
            if isinstance(part, ArrowBatch):
                self.subpartitions[channel].add_arrow(part)
            else:
                self.subpartitions[channel].add_rows(part.rows, part.timestamps)

    def _broadcast(self, batch: Batch) -> None:
        """Encode once, send to all channels; the slowest receiver limits the rows of a buffer of rows."""
        parts: Iterator[Batch] = (
            batch.slices(min(s.buffer_rows for s in self.subpartitions))
            if isinstance(batch, RowBatch)
            else batch.slices(self._arrow_buffer.rows_of(batch))
        )
        for part in parts:
            buffer = self._codec.encode(part)
            for subpartition in self.subpartitions:
                subpartition.add_buffer(buffer)

    def broadcast_event(self, event: Event) -> None:
        for subpartition in self.subpartitions:
            subpartition.add_event(event)

    def broadcast_barrier(self, barrier: CheckpointBarrier) -> list[Overtaken]:
        """Put a barrier on every channel: ahead of waiting elements if it is unaligned, else behind them.

        On an edge without support for unaligned checkpoints every barrier stays behind. Returns the
        overtaken elements, by channel.
        """
        if not (barrier.options.unaligned and self._lets_overtake):
            self.broadcast_event(barrier)
            return []
        overtaken = [(spec, subpartition.overtake(barrier)) for spec, subpartition in self._by_spec()]
        return [(spec, elements) for spec, elements in overtaken if elements]

    def is_barrier_waiting(self, checkpoint_id: int) -> bool:
        return self._lets_overtake and any(s.is_barrier_waiting(checkpoint_id) for s in self.subpartitions)

    def turn_unaligned(self, checkpoint_id: int) -> list[Overtaken]:
        if not self._lets_overtake:
            return []
        overtaken = [(s, subpartition.turn_unaligned(checkpoint_id)) for s, subpartition in self._by_spec()]
        return [(spec, elements) for spec, elements in overtaken if elements]

    def _by_spec(self) -> Iterable[tuple[OutputChannelSpec, ResultSubpartition]]:
        return zip(self.spec.channels, self.subpartitions, strict=True)

    def statistics(self) -> tuple[SubpartitionStatistics, ...]:
        return tuple(s.statistics() for s in self.subpartitions)


def _budget(config: AdvancedConfig) -> BufferBudget:
    target, rows = as_seconds(config.debloat_target), config.buffer_rows
    debloater = BufferDebloater(rows, config.credits, target) if target > 0 else None
    return BufferBudget(rows, config.buffer_bytes, debloater)
