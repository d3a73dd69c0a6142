"""The output of a subtask on one edge: a partitioner over one subpartition per receiver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from penstock.runtime.graph.execution_graph import OutputChannelSpec, ResultPartitionSpec
from penstock.runtime.network.partitioners import channel_selector
from penstock.runtime.network.result_subpartition import (
    BatchEncoder,
    OpenArrowBuffer,
    ResultSubpartition,
    SubpartitionStatistics,
)
from penstock.runtime.network.send_queue import BufferBudget, BufferDebloater
from penstock.runtime.record.elements import ArrowBatch, Batch, CheckpointBarrier, Event, RowBatch

#: Encoded elements that a barrier has overtaken on a channel, first one first.
Overtaken: TypeAlias = tuple[OutputChannelSpec, list[bytes]]


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """Sizes of the data plane: those of buffers are limits in rows, and intended limits in bytes.

    Attributes:
        buffer_timeout: Seconds after which an open buffer is sent whatever it holds.
        debloat_target: Seconds that a receiver is meant to need for all outstanding buffers of a channel; 0
            leaves them as large as they may be. Arrow batches have no such target.
    """

    credits: int = 8
    buffer_rows: int = 16_384
    buffer_bytes: int = 256 * 1024
    buffer_timeout: float = 0.1
    arrow_buffer_rows: int = 256 * 1024
    arrow_buffer_bytes: int = 4 * 1024 * 1024
    debloat_target: float = 0.0

    @property
    def idle_rest(self) -> float:
        """Seconds between two buffers that leave a channel because nothing is outstanding on it."""
        return self.buffer_timeout / 10


class ResultPartition:
    """The output of one operator on one edge (Flink's `RecordWriter` and `ResultPartition` in one).

    Args:
        send: Hands a frame over: position of the channel in `spec.channels`, first number, elements.
    """

    def __init__(
        self,
        spec: ResultPartitionSpec,
        subtask: int,
        codec: BatchEncoder,
        send: Callable[[int, int, list[bytes]], None],
        config: NetworkConfig,
    ) -> None:
        self.spec = spec
        self._lets_overtake = spec.supports_unaligned
        self._codec = codec
        self._arrow_buffer = OpenArrowBuffer(config.arrow_buffer_rows, config.arrow_buffer_bytes)
        self._selector = channel_selector(spec.partitioner, len(spec.channels), spec.max_parallelism, subtask)
        self.subpartitions = [
            ResultSubpartition(
                codec,
                _bind(send, index),
                config.credits,
                _budget(config),
                config.idle_rest,
                OpenArrowBuffer(config.arrow_buffer_rows, config.arrow_buffer_bytes),
            )
            for index in range(len(spec.channels))
        ]

    @property
    def is_drained(self) -> bool:
        return all(s.is_drained for s in self.subpartitions)

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
        """Encode once, send everywhere; the slowest receiver decides how many rows a buffer has."""
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
        """Put a barrier on every channel: ahead of what waits if it is unaligned, else behind it.

        It stays behind on an edge that does not support unaligned checkpoints. Returns what it has overtaken,
        by channel.
        """
        if not (barrier.options.unaligned and self._lets_overtake):
            self.broadcast_event(barrier)
            return []
        overtaken = [(s, subpartition.overtake(barrier)) for s, subpartition in self._by_spec()]
        return [(spec, elements) for spec, elements in overtaken if elements]

    def is_barrier_waiting(self, checkpoint_id: int) -> bool:
        return self._lets_overtake and any(s.is_barrier_waiting(checkpoint_id) for s in self.subpartitions)

    def turn_unaligned(self, checkpoint_id: int) -> list[Overtaken]:
        if not self._lets_overtake:
            return []
        overtaken = [(s, subpartition.turn_unaligned(checkpoint_id)) for s, subpartition in self._by_spec()]
        return [(spec, elements) for spec, elements in overtaken if elements]

    def restore(self, channel: int, elements: Sequence[bytes]) -> None:
        """Queue elements on a channel that were overtaken in the restored checkpoint; `flush` sends them."""
        self.subpartitions[channel].restore(elements)

    def _by_spec(self) -> Iterable[tuple[OutputChannelSpec, ResultSubpartition]]:
        return zip(self.spec.channels, self.subpartitions, strict=True)

    def flush(self) -> None:
        for subpartition in self.subpartitions:
            subpartition.flush()

    def consumed(self, channel: int, first_sequence_number: int, now: float) -> None:
        self.subpartitions[channel].consumed(first_sequence_number, now)

    def give_up(self, channel: int) -> None:
        self.subpartitions[channel].give_up()

    def statistics(self) -> tuple[SubpartitionStatistics, ...]:
        return tuple(s.statistics() for s in self.subpartitions)


def _budget(config: NetworkConfig) -> BufferBudget:
    target, rows = config.debloat_target, config.buffer_rows
    debloater = BufferDebloater(rows, config.credits, target) if target > 0 else None
    return BufferBudget(rows, config.buffer_bytes, debloater)


def _bind(send: Callable[[int, int, list[bytes]], None], index: int) -> Callable[[int, list[bytes]], None]:
    def send_frame(first_sequence_number: int, elements: list[bytes]) -> None:
        send(index, first_sequence_number, elements)

    return send_frame
