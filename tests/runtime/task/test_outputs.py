"""Routing of what a chain emits, and the timer of open buffers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.errors import OperatorError, OperatorLocation
from penstock.runtime.graph.execution_graph import OutputChannelSpec, ResultPartitionSpec
from penstock.runtime.graph.job_graph import Partitioner, Partitioning
from penstock.runtime.record.element_codec import BatchCodec, decode_element
from penstock.runtime.record.elements import Buffer, EndOfData, RowBatch
from penstock.runtime.snapshot.ids import EdgeId, SubtaskId
from penstock.runtime.task.outputs import SubtaskOutputs

LOCATIONS = {name: OperatorLocation(name, 0, 1) for name in ("a", "b")}


def edge(operator: str, tag: str | None, receiver: str, *, key: bool = False) -> ResultPartitionSpec:
    partitioner = Partitioner(Partitioning.FORWARD)
    if key:
        partitioner = Partitioner(Partitioning.KEY_GROUP, lambda row: row["id"])
    channels = (OutputChannelSpec(SubtaskId(receiver, 0), 0),)
    return ResultPartitionSpec(operator, tag, partitioner, 8, channels, EdgeId(operator, tag, receiver))


class Outputs:
    """Outputs with what they sent, by receiver."""

    def __init__(self, *edges: ResultPartitionSpec, timeout: float = 0.1, rows: int = 4) -> None:
        self.codec = BatchCodec()
        self.sent: dict[str, list[object]] = {}
        advanced = AdvancedConfig(credits=2, buffer_rows=rows, debloat_target=0)
        config = JobConfig(buffer_timeout=timeout, advanced=advanced)
        self.outputs = SubtaskOutputs(edges, 0, self.codec, self._send, config, LOCATIONS)

    def _send(self, channel: OutputChannelSpec, first: int, elements: list[bytes]) -> None:
        sent = self.sent.setdefault(channel.receiver.vertex, [])
        for element in map(decode_element, elements):
            batch = self.codec.decode(element) if isinstance(element, Buffer) else element
            sent += batch.rows if isinstance(batch, RowBatch) else [batch]

    def emit(self, *rows: object, operator: str = "a", tag: str | None = None) -> None:
        self.outputs.emit(operator, tag, RowBatch(list(rows)))


def flushed(outputs: Outputs) -> Mapping[str, list[object]]:
    outputs.outputs.flush()
    return outputs.sent


def test_output_goes_to_every_edge_that_begins_there_and_to_no_other() -> None:
    outputs = Outputs(edge("a", None, "x"), edge("a", None, "y"), edge("a", "bad", "z"), edge("b", None, "w"))
    outputs.emit(1)
    outputs.emit(2, tag="bad")
    outputs.emit(3, operator="b")
    assert flushed(outputs) == {"x": [1], "y": [1], "z": [2], "w": [3]}
    assert outputs.outputs.records == 3, "a record that two edges carry is one record"


def test_output_that_nobody_reads_is_dropped() -> None:
    outputs = Outputs(edge("a", None, "x"))
    outputs.emit(1, operator="b")
    outputs.emit(1, tag="bad")
    assert flushed(outputs) == {}
    assert outputs.outputs.records == 0


def test_without_edges_everything_is_available_and_drained() -> None:
    outputs = Outputs().outputs
    assert outputs.are_available
    assert outputs.are_drained
    assert outputs.flush_due(5.0) is None


def test_event_reaches_all_edges_in_one_step() -> None:
    outputs = Outputs(edge("a", None, "x"), edge("b", None, "y"))
    outputs.emit(1)
    outputs.outputs.broadcast_event(EndOfData())
    assert outputs.sent == {"x": [1, EndOfData()], "y": [EndOfData()]}


def test_timer_runs_from_the_first_record_that_waits_until_it_is_sent() -> None:
    outputs = Outputs(edge("a", None, "x"), timeout=1.0)
    outputs.emit(1)
    assert outputs.outputs.flush_due(10.0) is None, "an idle channel does not wait"
    outputs.emit(2)
    assert outputs.outputs.flush_due(10.5) == 11.5
    outputs.emit(3)
    assert outputs.outputs.flush_due(11.0) == 11.5
    assert outputs.outputs.flush_due(11.5) is None
    assert outputs.sent == {"x": [1, 2, 3]}
    outputs.emit(4)
    assert outputs.outputs.flush_due(20.0) == 21.0


def test_timer_stops_when_the_buffer_left_for_another_reason() -> None:
    outputs = Outputs(edge("a", None, "x"), timeout=1.0)
    outputs.emit(1)
    outputs.outputs.flush_due(10.0)
    outputs.emit(2)
    outputs.outputs.flush_due(10.5)
    outputs.emit(3, 4, 5)
    assert outputs.outputs.flush_due(10.6) is None
    outputs.emit(6)
    assert outputs.outputs.flush_due(12.0) == 13.0


def test_a_channel_that_rests_does_not_keep_another_one_waiting_beyond_the_buffer_timeout() -> None:
    outputs = Outputs(edge("a", None, "x"), edge("b", None, "y"), timeout=0.05)
    outputs.emit(1)
    outputs.outputs.flush_due(10.0)
    outputs.emit(2)  # waits for the answer
    assert outputs.outputs.flush_due(10.001) == pytest.approx(10.051)
    outputs.emit(3, operator="b")
    outputs.outputs.flush_due(10.048)
    outputs.outputs.frame_consumed(OutputChannelSpec(SubtaskId("y", 0), 0), 0, 10.049)
    outputs.emit(4, operator="b")  # waits until its channel has rested, at 10.053
    assert outputs.outputs.flush_due(10.05) == pytest.approx(10.051)


def test_answer_reaches_the_channel_that_it_is_for() -> None:
    outputs = Outputs(edge("a", None, "x"), edge("a", None, "y"), rows=1)
    outputs.emit(1, 2, 3)
    assert not outputs.outputs.are_available
    outputs.outputs.frame_consumed(OutputChannelSpec(SubtaskId("x", 0), 0), 0, 0.0)
    assert outputs.sent == {"x": [1, 2, 3], "y": [1, 2]}
    assert not outputs.outputs.are_available
    outputs.outputs.frame_consumed(OutputChannelSpec(SubtaskId("y", 0), 0), 0, 0.0)
    assert outputs.outputs.are_available


def test_outputs_are_available_when_all_channels_of_an_edge_are() -> None:
    partitioner, receivers = Partitioner(Partitioning.REBALANCE), (SubtaskId("x", 0), SubtaskId("x", 1))
    channels = tuple(OutputChannelSpec(receiver, 0) for receiver in receivers)
    spec = ResultPartitionSpec("a", None, partitioner, 8, channels, EdgeId("a", None, "x"))
    outputs = Outputs(spec, rows=1)
    outputs.emit(1, 2, 3, 4, 5, 6)
    for channel in channels:
        assert not outputs.outputs.are_available
        outputs.outputs.frame_consumed(channel, 0, 0.0)
    assert outputs.outputs.are_available


def test_record_without_a_key_is_the_fault_of_its_operator() -> None:
    outputs = Outputs(edge("b", None, "x", key=True))
    with pytest.raises(OperatorError, match=r"'b' \(subtask 1 of 1\).*sending its output.*KeyError"):
        outputs.emit({"name": 1}, operator="b")


def test_statistics_come_by_edge_and_channel() -> None:
    outputs = Outputs(edge("a", None, "x"), edge("b", None, "y"))
    outputs.emit(1, 2)
    flushed(outputs)
    assert [[s.buffers for s in of_edge] for of_edge in outputs.outputs.statistics()] == [[1], [0]]
