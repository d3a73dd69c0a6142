"""Barriers that overtake elements at the sender, and their share of the checkpoint."""

from __future__ import annotations

import pytest

from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.errors import OperatorLocation
from penstock.runtime.graph.execution_graph import OutputChannelSpec, ResultPartitionSpec
from penstock.runtime.graph.job_graph import Partitioner, Partitioning
from penstock.runtime.record.element_codec import BatchCodec, decode_element
from penstock.runtime.record.elements import (
    Buffer,
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
    RowBatch,
    StreamElement,
    Watermark,
)
from penstock.runtime.snapshot.ids import EdgeId, SubtaskId
from penstock.runtime.task.outputs import SubtaskOutputs

UNALIGNED = CheckpointBarrier(1, 0.0, CheckpointOptions(unaligned=True))
EDGE = EdgeId("map", None, "count")
ONE_CREDIT = JobConfig(advanced=AdvancedConfig(credits=1, debloat_target=0))
WHERE = {"map": OperatorLocation("map")}
PATIENT = CheckpointBarrier(1, 0.0, CheckpointOptions(aligned_timeout=5.0))


class Outputs:
    """One edge to one receiver that has one credit; the first record has used it."""

    def __init__(self, partitioning: Partitioning = Partitioning.REBALANCE) -> None:
        self.to = OutputChannelSpec(SubtaskId("count", 0), 4)
        spec = ResultPartitionSpec("map", None, Partitioner(partitioning), 128, (self.to,), EDGE)
        self.codec = BatchCodec()
        self.sent: list[StreamElement] = []
        self.outputs = SubtaskOutputs([spec], 0, self.codec, self.send, ONE_CREDIT, WHERE)
        self.emit("first")
        self.outputs.flush()
        assert self.take() == ["first"]

    def send(self, channel: OutputChannelSpec, first: int, elements: list[bytes]) -> None:
        self.sent += map(decode_element, elements)

    def emit(self, record: str) -> None:
        self.outputs.emit("map", None, RowBatch([record]))

    def take(self) -> list[object]:
        sent, self.sent = self.sent, []
        return self.readable(sent)

    def readable(self, elements: list[StreamElement]) -> list[object]:
        found: list[object] = []
        for element in elements:
            batch = self.codec.decode(element) if isinstance(element, Buffer) else None
            found += [element] if batch is None else list(batch.rows)  # type: ignore[union-attr]
        return found

    def captured(self, overtaken: list[tuple[OutputChannelSpec, list[bytes]]]) -> list[object]:
        return [
            item for _, elements in overtaken for item in self.readable(list(map(decode_element, elements)))
        ]


def test_unaligned_barrier_leaves_at_once_and_what_waits_is_captured_and_sent_later() -> None:
    fed = Outputs()
    fed.emit("a")
    fed.outputs.broadcast_event(Watermark(5))
    fed.outputs.broadcast_event(CancelCheckpointMarker(0))
    fed.emit("open")
    assert fed.captured(fed.outputs.broadcast_barrier(UNALIGNED)) == ["a", Watermark(5), "open"]
    assert fed.take() == [UNALIGNED]
    for number in range(5):
        fed.outputs.frame_consumed(fed.to, number, 0.0)
    assert fed.take() == ["a", Watermark(5), CancelCheckpointMarker(0), "open"]


@pytest.mark.parametrize("partitioning", [Partitioning.BROADCAST, Partitioning.FORWARD, Partitioning.GLOBAL])
def test_barrier_stays_behind_on_edges_that_cannot_be_dealt_out_anew(partitioning: Partitioning) -> None:
    fed = Outputs(partitioning)
    fed.emit("a")
    assert fed.outputs.broadcast_barrier(UNALIGNED) == []
    assert not fed.outputs.is_barrier_waiting(1)
    assert fed.outputs.turn_unaligned(1) == []
    assert fed.take() == []
    fed.outputs.frame_consumed(fed.to, 0, 0.0)
    assert fed.take() == ["a", UNALIGNED]


def test_waiting_barrier_turns_unaligned_and_what_is_behind_it_is_not_captured() -> None:
    fed = Outputs()
    fed.emit("a")
    assert fed.outputs.broadcast_barrier(PATIENT) == []
    fed.emit("b")
    assert fed.outputs.is_barrier_waiting(1)
    assert fed.captured(fed.outputs.turn_unaligned(1)) == ["a"]
    assert not fed.outputs.is_barrier_waiting(1)
    assert fed.take() == [CheckpointBarrier(1, 0.0, CheckpointOptions(unaligned=True, aligned_timeout=5.0))]
    assert fed.outputs.turn_unaligned(1) == []


def test_restored_elements_are_sent_first_and_only_once() -> None:
    waiting = Outputs()
    waiting.emit("a")
    waiting.emit("b")
    ((spec, elements),) = waiting.outputs.broadcast_barrier(UNALIGNED)
    restored = Outputs.__new__(Outputs)
    restored.to, restored.codec, restored.sent = waiting.to, waiting.codec, []
    partition = ResultPartitionSpec(
        "map", None, Partitioner(Partitioning.REBALANCE), 128, (waiting.to,), EDGE
    )
    restored.outputs = SubtaskOutputs([partition], 0, waiting.codec, restored.send, ONE_CREDIT, WHERE)
    restored.outputs.restore(spec, elements)
    restored.emit("c")
    restored.outputs.flush()
    for number in range(4):
        restored.outputs.frame_consumed(spec, number, 0.0)
    assert restored.take() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="before anything is sent"):
        restored.outputs.restore(spec, elements)
