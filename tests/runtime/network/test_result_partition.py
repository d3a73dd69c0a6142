"""One edge of a subtask: which records get to which channel, and in what pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.graph.execution_graph import OutputChannelSpec, ResultPartitionSpec
from penstock.runtime.graph.job_graph import Partitioner, Partitioning
from penstock.runtime.network.result_partition import ResultPartition
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.element_codec import BatchCodec, decode_element
from penstock.runtime.record.elements import ArrowBatch, Batch, Buffer, EndOfData, RowBatch, StreamElement
from penstock.runtime.snapshot.ids import EdgeId, SubtaskId

CONFIG = AdvancedConfig(credits=3, buffer_rows=4, arrow_buffer_rows=5, debloat_target=0)


class Edge:
    """A result partition with what it sent, by channel."""

    def __init__(
        self,
        kind: Partitioning,
        channels: int,
        key: Callable[[Any], Any] | None = None,
        subtask: int = 0,
        config: AdvancedConfig = CONFIG,
        timeout: float = 0.1,
    ) -> None:
        specs = tuple(OutputChannelSpec(SubtaskId("receiver", i), 0) for i in range(channels))
        spec = ResultPartitionSpec(
            "op", None, Partitioner(kind, key), 16, specs, EdgeId("op", None, "receiver")
        )
        self.codec = BatchCodec()
        self.sent: list[list[StreamElement | Batch]] = [[] for _ in specs]
        job = JobConfig(buffer_timeout=timeout, advanced=config)
        self.partition = ResultPartition(spec, subtask, self.codec, self._send, job)

    def _send(self, channel: OutputChannelSpec, first: int, elements: list[bytes]) -> None:
        sent = self.sent[channel.receiver.index]
        assert first == len(sent)
        for element in map(decode_element, elements):
            sent.append(self.codec.decode(element) if isinstance(element, Buffer) else element)

    def flush(self) -> None:
        for subpartition in self.partition.subpartitions:
            subpartition.flush()

    def consumed(self, channel: int, first_sequence_number: int, now: float) -> None:
        self.partition.subpartitions[channel].consumed(first_sequence_number, now)

    def rows(self, channel: int) -> list[Any]:
        return [row for batch in self.sent[channel] if isinstance(batch, RowBatch) for row in batch.rows]


def arrow(rows: int) -> ArrowBatch:
    return ArrowBatch(pa.RecordBatch.from_pydict({"n": list(range(rows))}))


def test_every_record_gets_to_one_channel() -> None:
    edge = Edge(Partitioning.KEY_GROUP, 3, lambda row: row)
    edge.partition.emit(RowBatch(list(range(50))))
    edge.flush()
    for channel in range(3):
        for number in range(20):
            edge.consumed(channel, number, 0.0)
    assert sorted(edge.rows(0) + edge.rows(1) + edge.rows(2)) == list(range(50))


def test_broadcast_sends_every_record_to_every_channel_in_buffers_of_the_usual_size() -> None:
    edge = Edge(Partitioning.BROADCAST, 2)
    edge.partition.emit(RowBatch(list(range(10))))
    assert edge.sent[0] == [RowBatch([0, 1, 2, 3]), RowBatch([4, 5, 6, 7]), RowBatch([8, 9])]
    assert edge.sent[1] == edge.sent[0]


def test_the_slowest_receiver_decides_on_the_buffers_of_a_broadcast() -> None:
    edge = Edge(
        Partitioning.BROADCAST, 2, config=AdvancedConfig(credits=2, buffer_rows=8, debloat_target=1.0)
    )
    edge.partition.emit(RowBatch(list(range(16))))
    edge.consumed(0, 0, now=0.0)
    edge.consumed(0, 1, now=8.0)
    edge.partition.emit(RowBatch(list(range(8))))
    for channel in range(2):
        edge.consumed(channel, 0, now=9.0)
        edge.consumed(channel, 1, now=9.0)
    assert [len(batch) for batch in edge.sent[1] if isinstance(batch, RowBatch)] == [8, 8, 4, 4]


def test_arrow_batch_on_a_single_channel_leaves_as_it_is_in_pieces_that_are_not_too_long() -> None:
    edge = Edge(Partitioning.FORWARD, 1)
    edge.partition.emit(arrow(12))
    edge.flush()
    assert [len(batch) for batch in edge.sent[0] if isinstance(batch, ArrowBatch)] == [5, 5, 2]


def test_arrow_batch_is_broadcast_in_pieces_that_are_not_too_long() -> None:
    edge = Edge(Partitioning.BROADCAST, 2)
    edge.partition.emit(arrow(7))
    assert edge.sent[0] == edge.sent[1] == [arrow(5), ArrowBatch(arrow(7).batch.slice(5))]


def test_arrow_batch_is_broadcast_in_pieces_that_keep_to_the_bytes_of_a_buffer() -> None:
    config = AdvancedConfig(credits=100, arrow_buffer_bytes=800)
    edge = Edge(Partitioning.BROADCAST, 2, config=config)
    edge.partition.emit(arrow(250))
    assert [len(batch) for batch in edge.sent[1] if isinstance(batch, ArrowBatch)] == [100, 100, 50]


def columns(batches: list[StreamElement | Batch]) -> list[tuple[int, int]]:
    """Number and timestamp of each row of the Arrow batches among what was sent."""
    rows: list[tuple[int, int]] = []
    for batch in batches:
        if isinstance(batch, ArrowBatch):
            assert batch.timestamps is not None
            rows += zip(batch.batch["n"].to_pylist(), batch.timestamps.to_pylist(), strict=True)
    return rows


@pytest.mark.parametrize("kind", [Partitioning.KEY_GROUP, Partitioning.REBALANCE])
@pytest.mark.parametrize("channels", [2, 5])
def test_arrow_batch_stays_one_where_it_is_split_and_its_rows_keep_order_and_timestamps(
    kind: Partitioning, channels: int
) -> None:
    edge = Edge(kind, channels, ColumnKey(("n",)) if kind is Partitioning.KEY_GROUP else None)
    stamps = pa.array([10 * n for n in range(40)])
    for start in (0, 25):
        edge.partition.emit(ArrowBatch(arrow(40).batch, stamps).slice(start, 25))
    edge.flush()
    for channel in range(channels):
        for number in range(20):
            edge.consumed(channel, number, 0.0)
    parts = [columns(sent) for sent in edge.sent]
    assert sorted(row for part in parts for row in part) == [(n, 10 * n) for n in range(40)]
    assert all(part == sorted(part) for part in parts)
    assert all(parts)


def test_arrow_batch_becomes_rows_where_a_function_splits_it() -> None:
    edge = Edge(Partitioning.KEY_GROUP, 2, lambda row: row["n"])
    edge.partition.emit(arrow(20))
    edge.flush()
    assert sorted(row["n"] for row in edge.rows(0) + edge.rows(1)) == list(range(20))


@pytest.mark.parametrize("kind", [Partitioning.FORWARD, Partitioning.REBALANCE, Partitioning.BROADCAST])
@pytest.mark.parametrize("batch", [RowBatch([]), RowBatch([], []), arrow(0)], ids=["rows", "stamps", "arrow"])
def test_empty_batch_sends_nothing_and_is_nobodys_turn(kind: Partitioning, batch: Batch) -> None:
    edge = Edge(kind, 1 if kind is Partitioning.FORWARD else 2)
    edge.partition.emit(batch)
    edge.partition.emit(RowBatch(["first"]))
    edge.flush()
    assert edge.sent[0] == [RowBatch(["first"])]


def test_event_reaches_every_channel_behind_its_rows() -> None:
    edge = Edge(Partitioning.REBALANCE, 2)
    edge.partition.emit(RowBatch(["a"]))
    edge.partition.broadcast_event(EndOfData())
    assert edge.sent == [[RowBatch(["a"]), EndOfData()], [EndOfData()]]


@pytest.mark.parametrize("timeout", [0.1, 1.0])
def test_idle_channels_are_flushed_one_by_one_and_rest_for_a_tenth_of_the_timeout(timeout: float) -> None:
    edge = Edge(Partitioning.REBALANCE, 2, timeout=timeout)
    first, second = edge.partition.subpartitions
    edge.partition.emit(RowBatch(["a"]))
    assert (first.flush_if_idle(1.0), second.flush_if_idle(1.0)) == (None, None)
    edge.partition.emit(RowBatch(["b", "c"]))
    assert (first.flush_if_idle(1.1), second.flush_if_idle(1.1)) == (None, None)
    assert edge.rows(0) == ["a"]
    assert edge.rows(1) == ["b"]
    assert (first.has_open_rows, second.has_open_rows) == (True, False)
    edge.consumed(0, 0, 0.0)
    rested_at = first.flush_if_idle(1.0)
    assert rested_at is not None
    assert rested_at == pytest.approx(1.0 + timeout / 10), "the first one has sent then"
    assert edge.rows(0) == ["a"]
    assert first.flush_if_idle(rested_at) is None
    assert edge.rows(0) == ["a", "c"]
    assert not first.has_open_rows
    assert not first.is_drained


def test_statistics_have_one_entry_a_channel() -> None:
    edge = Edge(Partitioning.REBALANCE, 2)
    edge.partition.emit(RowBatch(["a"]))
    edge.flush()
    assert [s.buffers for s in edge.partition.statistics()] == [1, 0]
