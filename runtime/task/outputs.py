"""All result partitions of a subtask, and the timer that flushes open buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import OperatorLocation
from penstock.runtime.graph.execution_graph import OutputChannelSpec, ResultPartitionSpec
from penstock.runtime.network.result_partition import Overtaken, ResultPartition
from penstock.runtime.network.result_subpartition import ResultSubpartition, SubpartitionStatistics
from penstock.runtime.operators.user_code.failure import OPERATOR_ERRORS, error_at
from penstock.runtime.record.element_codec import BatchCodec
from penstock.runtime.record.elements import (
    Batch,
    Buffer,
    CancelCheckpointMarker,
    CheckpointBarrier,
    EndOfPartition,
    Event,
    StreamStatus,
    Watermark,
)
from penstock.runtime.task.output_samples import Emits, OutputEdge, OutputSample, SampledPartition
from penstock.runtime.task.statistics import OutputFill
from penstock.runtime.time.durations import as_seconds


class SubtaskOutputs:
    """Routes the output of a chain to its result partitions.

    Attributes:
        records: Records handed to channels so far; a record that goes to several edges counts once.
        have_ended: Whether EndOfPartition was sent. For receivers it stands for all later barriers, so
            later barriers and cancellation markers are dropped.
        watermark: The last watermark that was sent, in microseconds; also set if there are no outputs.
        is_idle: Whether the last status that was sent is idle.
    """

    def __init__(
        self,
        specs: Sequence[ResultPartitionSpec],
        subtask: int,
        codec: BatchCodec,
        send: Callable[[OutputChannelSpec, int, list[bytes]], None],
        config: JobConfig,
        locations: Mapping[str, OperatorLocation],
    ) -> None:
        self._locations = locations
        self._timeout = as_seconds(config.buffer_timeout)
        self._credits = config.advanced.credits
        self._flush_at: float | None = None
        self.partitions: list[ResultPartition] = []
        self._routes: dict[tuple[str, str | None], list[Emits]] = {}
        self._by_channel: dict[OutputChannelSpec, ResultSubpartition] = {}
        self.records = 0
        self.have_ended = False
        self.watermark: int | None = None
        self.is_idle = False
        for spec in specs:
            encoder = _Encoder(codec, locations[spec.operator])
            partition = ResultPartition(spec, subtask, encoder, send, config)
            self.partitions.append(partition)
            self._routes.setdefault((spec.operator, spec.tag), []).append(partition)
            self._by_channel.update(zip(spec.channels, partition.subpartitions, strict=True))
        #: Channels of all edges in one list, because every step checks them.
        self._subpartitions = [s for partition in self.partitions for s in partition.subpartitions]
        self._queues = [s.queue for s in self._subpartitions]

    @property
    def are_available(self) -> bool:
        """Whether all outputs accept more; a subtask takes no input while this is false."""
        # Avoids generators and properties, because every step checks this several times.
        for queue in self._queues:  # noqa: SIM110
            if queue.buffers:
                return False
        return True

    @property
    def are_drained(self) -> bool:
        """Whether every receiver has consumed everything or has ended."""
        return all(s.is_drained for s in self._subpartitions)

    def emit(self, operator: str, tag: str | None, batch: Batch) -> None:
        """Send a batch on every edge of this output; without an edge the batch is dropped."""
        partitions = self._routes.get((operator, tag))
        if partitions is None:
            return
        self.records += len(batch)
        for partition in partitions:
            try:
                partition.emit(batch)
            except OPERATOR_ERRORS:
                raise
            except BaseException as error:  # the user's key function, or a value's own methods
                raise error_at(self._locations[operator], "sending its output", error) from error

    def sample(self, edge: OutputEdge, sample: OutputSample) -> Callable[[], None]:
        """Let a sample see the next records of an edge; return the function that ends it.

        Does nothing if this subtask has no such edge.
        """
        found = [partition for partition in self.partitions if OutputEdge.of(partition.spec) == edge]
        if not found:
            return lambda: None
        (partition,) = found
        route = self._routes[edge.operator, edge.side_output]
        sampled = next(
            (r for r in route if isinstance(r, SampledPartition) and r.partition is partition), None
        )
        if sampled is None:
            place = route.index(partition)
            sampled = SampledPartition(partition, lambda: route.__setitem__(place, partition))
            route[place] = sampled
        sampled.add(sample)
        return partial(sampled.end, sample)

    def broadcast_event(self, event: Event) -> None:
        if self.have_ended and isinstance(event, CheckpointBarrier | CancelCheckpointMarker):
            return
        for partition in self.partitions:
            partition.broadcast_event(event)
        if isinstance(event, Watermark):
            self.watermark = event.timestamp
        elif isinstance(event, StreamStatus):
            self.is_idle = event is StreamStatus.IDLE
        self.have_ended = self.have_ended or isinstance(event, EndOfPartition)

    def broadcast_barrier(self, barrier: CheckpointBarrier) -> list[Overtaken]:
        if self.have_ended:
            return []
        return [overtaken for p in self.partitions for overtaken in p.broadcast_barrier(barrier)]

    def is_barrier_waiting(self, checkpoint_id: int) -> bool:
        return any(p.is_barrier_waiting(checkpoint_id) for p in self.partitions)

    def turn_unaligned(self, checkpoint_id: int) -> list[Overtaken]:
        return [overtaken for p in self.partitions for overtaken in p.turn_unaligned(checkpoint_id)]

    def restore(self, channel: OutputChannelSpec, elements: Sequence[bytes]) -> None:
        """Queue elements that the restored checkpoint's barrier had overtaken; `flush` sends them."""
        self._by_channel[channel].restore(elements)

    def frame_consumed(self, channel: OutputChannelSpec, first_sequence_number: int, now: float) -> None:
        self._by_channel[channel].consumed(first_sequence_number, now)

    def receiver_gone(self, channel: OutputChannelSpec) -> None:
        self._by_channel[channel].give_up()

    def flush(self) -> None:
        """Send open buffers, however small."""
        for subpartition in self._subpartitions:
            subpartition.flush()
        self._flush_at = None

    def flush_due(self, now: float) -> float | None:
        """Send the open buffers of idle channels, and all open buffers once the timeout has passed.

        Returns the time of the next check; `None` if no open buffer is left.
        """
        waiting = [s for s in self._subpartitions if s.has_open_rows]
        if not waiting:
            self._flush_at = None
            return None
        rested_at = [at for s in waiting if (at := s.flush_if_idle(now)) is not None]
        if not any(s.has_open_rows for s in waiting):
            self._flush_at = None
            return None
        if self._flush_at is None:
            self._flush_at = now + self._timeout
        elif now >= self._flush_at:
            self.flush()
            return None
        return min([self._flush_at, *rested_at])

    def statistics(self) -> tuple[tuple[SubpartitionStatistics, ...], ...]:
        return tuple(p.statistics() for p in self.partitions)

    def fills(self, edges: Sequence[Sequence[SubpartitionStatistics]]) -> tuple[OutputFill, ...]:
        return tuple(
            OutputFill(
                partition.spec.channels[0].receiver.vertex,
                partition.spec.operator,
                partition.spec.tag,
                partition.spec.edge.input_index,
                partition.spec.edge.copy,
                self._credits,
                partition.spec.channels[0].receiver.index,
                tuple(channel.outstanding for channel in channels),
                tuple(channel.queued for channel in channels),
            )
            for partition, channels in zip(self.partitions, edges, strict=True)
        )


class _Encoder:
    """Encodes the records of one operator. Errors name the operator, because any call may encode a buffer."""

    def __init__(self, codec: BatchCodec, location: OperatorLocation) -> None:
        self._codec = codec
        self._location = location

    def encode(self, batch: Batch) -> Buffer:
        try:
            return self._codec.encode(batch)
        except OPERATOR_ERRORS:
            raise
        except BaseException as error:  # a value's own methods
            raise error_at(self._location, "sending its output", error) from error
