"""The receivers of an unaligned checkpoint's in-flight data, in a job of the same or another shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from penstock.runtime.barrier.factory import BarrierSettings, create_input_gate
from penstock.runtime.checkpoint.channel_state_writer import ChannelState, encode_channel_state
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import CorruptSnapshotError, OperatorLocation, StateMismatchError
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.graph.job_graph import (
    JobEdge,
    JobGraph,
    JobVertex,
    OperatorSpec,
    Partitioner,
    Partitioning,
)
from penstock.runtime.network.channel_state import is_captured
from penstock.runtime.network.input_gate import InputGate
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.element_codec import BatchCodec, encode_element
from penstock.runtime.record.elements import (
    ArrowBatch,
    Buffer,
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
    EndOfData,
    EndOfPartition,
    RowBatch,
    SnapshotKind,
    StreamElement,
    StreamStatus,
    Watermark,
)
from penstock.runtime.restore import assign_channel_states
from penstock.runtime.snapshot.completed_checkpoint import ChannelRestore, CompletedCheckpoint
from penstock.runtime.snapshot.handles import (
    ChannelStateHandle,
    InlineHandle,
    OperatorState,
    OperatorSubtaskState,
)
from penstock.runtime.snapshot.ids import ChannelId, EdgeId, SubtaskId
from penstock.runtime.snapshot.metadata import write_state_file
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.state.key_groups import key_group_of, subtask_of_key_group
from penstock.runtime.task.channel_restore import restore_channels
from penstock.runtime.task.outputs import SubtaskOutputs
from penstock.runtime.task.task_input import NetworkInput
from penstock.runtime.testing.manual_time import ManualClock

CODEC = BatchCodec()
EDGE = EdgeId("map", None, "count")
KEY_GROUPS = 16


def graph(
    senders: int,
    receivers: int,
    kind: Partitioning = Partitioning.KEY_GROUP,
    key: Callable[[Any], Any] = lambda row: row[0],
) -> ExecutionGraph:
    partitioner = Partitioner(kind, key if kind is Partitioning.KEY_GROUP else None)
    vertices = tuple(
        JobVertex(name, (OperatorSpec(name, name, None),), parallelism, KEY_GROUPS)
        for name, parallelism in (("map", senders), ("count", receivers))
    )
    return build_execution_graph(
        JobGraph("job", vertices, (JobEdge("map", "map", None, "count", 0, partitioner),))
    )


def rows(*values: Any) -> bytes:
    return encode_element(CODEC.encode(RowBatch(list(values))))


def channel(sender: int, receiver: int) -> ChannelId:
    return ChannelId(EDGE, sender, receiver)


def handle_of(state: ChannelState) -> ChannelStateHandle:
    return ChannelStateHandle(InlineHandle(encode_channel_state(state)), state.elements, state.edges)


def checkpoint(
    parallelism: Mapping[str, int], states: Mapping[SubtaskId, ChannelState]
) -> CompletedCheckpoint:
    operators = {
        name: OperatorState(
            name,
            subtasks,
            KEY_GROUPS,
            {
                index: OperatorSubtaskState(
                    channels=handle_of(states[SubtaskId(name, index)])
                    if SubtaskId(name, index) in states
                    else None
                )
                for index in range(subtasks)
            },
        )
        for name, subtasks in parallelism.items()
    }
    return CompletedCheckpoint(3, 1, SnapshotKind.CHECKPOINT, operators, 0.0, 1.0)


class Restored:
    """One subtask's channels after the restore."""

    def __init__(self, graph: ExecutionGraph, subtask: SubtaskId, restore: ChannelRestore) -> None:
        spec = graph.subtask(subtask)
        clock = ManualClock()
        self.gate = InputGate.of_specs(spec.inputs, clock) if spec.inputs else None
        network = None
        if self.gate is not None:
            checkpointed = create_input_gate(BarrierSettings(), self.gate, clock)
            network = NetworkInput(checkpointed, [0] * len(spec.inputs), CODEC)
        self.sent: list[tuple[int, bytes]] = []
        outputs = SubtaskOutputs(
            spec.outputs,
            subtask.index,
            CODEC,
            lambda to, first, elements: self.sent.extend((to.receiver.index, e) for e in elements),
            JobConfig(),
            {"map": OperatorLocation("map")},
        )
        restore_channels(restore, spec, MemoryStorage(), CODEC, network, outputs)
        self.sent_before_it_ran = list(self.sent)
        outputs.flush()

    def taken(self) -> list[tuple[int, list[Any]]]:
        """Channel and rows of every buffer, as the task consumes them."""
        assert self.gate is not None
        taken = []
        while (polled := self.gate.poll()) is not None:
            index, element = polled
            assert isinstance(element, Buffer)
            batch = CODEC.decode(element)
            assert isinstance(batch, RowBatch)
            taken.append((index, list(batch.rows)))
        return taken


def owner(key: Any, parallelism: int) -> int:
    return subtask_of_key_group(key_group_of(key, KEY_GROUPS), parallelism, KEY_GROUPS)


def restored_everywhere(graph: ExecutionGraph, taken_from: CompletedCheckpoint) -> dict[int, Restored]:
    restores = assign_channel_states(graph, taken_from)
    return {
        subtask.index: Restored(graph, subtask, restore)
        for subtask, restore in restores.items()
        if subtask.vertex == "count"
    }


def test_in_a_job_of_the_same_shape_everybody_gets_their_own_back() -> None:
    now = graph(2, 2)
    own = {
        SubtaskId("map", 0): ChannelState({}, {channel(0, 1): [rows(("waited", 1))]}),
        SubtaskId("count", 1): ChannelState({channel(1, 1): [rows(("received", 1))]}),
    }
    restores = assign_channel_states(now, checkpoint({"map": 2, "count": 2}, own))
    assert set(restores) == set(own)
    sender = Restored(now, SubtaskId("map", 0), restores[SubtaskId("map", 0)])
    assert sender.sent_before_it_ran == [], "nothing may be sent while the other subtasks are being built"
    assert sender.sent == [(1, rows(("waited", 1)))]
    receiver = Restored(now, SubtaskId("count", 1), restores[SubtaskId("count", 1)])
    assert receiver.taken() == [(1, [("received", 1)])]


@pytest.mark.parametrize(("senders", "receivers"), [(1, 1), (2, 1), (2, 3), (5, 7), (1, 3), (3, 2)])
def test_every_record_has_one_receiver_at_another_parallelism_and_keeps_its_place(
    senders: int, receivers: int
) -> None:
    """Elements of one sender and key stay in order: the received part first, then the waiting one."""
    old_senders, old_receivers = 2, 2
    states: dict[SubtaskId, ChannelState] = {}
    expected: dict[tuple[int, str], list[int]] = {}
    keys = [f"key {i}" for i in range(12)]
    for r in range(old_receivers):
        received = {}
        for s in range(old_senders):
            mine = [key for key in keys if owner(key, old_receivers) == r]
            received[channel(s, r)] = [rows(*[((key), s, n) for key in mine]) for n in (0, 1)]
        states[SubtaskId("count", r)] = ChannelState(received)
    for s in range(old_senders):
        waited = {}
        for r in range(old_receivers):
            mine = [key for key in keys if owner(key, old_receivers) == r]
            waited[channel(s, r)] = [rows(*[(key, s, 2) for key in mine])]
        states[SubtaskId("map", s)] = ChannelState({}, waited)
    for key in keys:
        for s in range(old_senders):
            expected[s, key] = [0, 1, 2]

    now = graph(senders, receivers)
    everywhere = restored_everywhere(now, checkpoint({"map": old_senders, "count": old_receivers}, states))

    seen: dict[tuple[int, str], list[int]] = {}
    for index, restored in everywhere.items():
        for _, batch in restored.taken():
            for key, s, n in batch:
                assert owner(key, receivers) == index
                seen.setdefault((s, key), []).append(n)
    assert seen == expected


@pytest.mark.parametrize(("senders", "receivers"), [(1, 1), (2, 3), (3, 7)])
def test_arrow_batches_in_flight_are_split_as_batches_at_another_parallelism(
    senders: int, receivers: int
) -> None:
    by_name = ColumnKey(("k",))
    states: dict[SubtaskId, ChannelState] = {}
    for r in range(2):
        keys = [f"key {i}" for i in range(20) if owner(f"key {i}", 2) == r]
        batch = pa.record_batch({"k": keys, "sender": [r] * len(keys), "list": [[key] for key in keys]})
        received = encode_element(CODEC.encode(ArrowBatch(batch, pa.array(range(len(keys)), pa.int64()))))
        states[SubtaskId("count", r)] = ChannelState({channel(0, r): [received]})
    now = graph(senders, receivers, key=by_name)
    everywhere = restored_everywhere(now, checkpoint({"map": 1, "count": 2}, states))
    seen = []
    for index, restored in everywhere.items():
        assert restored.gate is not None
        while (polled := restored.gate.poll()) is not None:
            assert isinstance(polled[1], Buffer)
            batch = CODEC.decode(polled[1])
            assert isinstance(batch, ArrowBatch)
            assert batch.timestamps is not None
            assert {owner(key, receivers) for key in batch.batch["k"].to_pylist()} == {index}
            assert batch.batch["list"].to_pylist() == [[key] for key in batch.batch["k"].to_pylist()]
            seen += zip(batch.batch["k"].to_pylist(), batch.timestamps.to_pylist(), strict=True)
    expected = [
        (key, place)
        for r in range(2)
        for place, key in enumerate(f"key {i}" for i in range(20) if owner(f"key {i}", 2) == r)
    ]
    assert sorted(seen) == sorted(expected)


def test_channels_of_a_rebalance_go_as_a_whole_to_the_receiver_of_their_number() -> None:
    states = {SubtaskId("count", r): ChannelState({channel(0, r): [rows(r), rows(r + 10)]}) for r in range(3)}
    now = graph(1, 2, Partitioning.REBALANCE)
    everywhere = restored_everywhere(now, checkpoint({"map": 1, "count": 3}, states))
    assert {index: [batch for _, batch in r.taken()] for index, r in everywhere.items()} == {
        0: [[0], [10], [2], [12]],
        1: [[1], [11]],
    }


def test_watermarks_and_ends_of_data_are_not_dealt_out_because_a_restored_sender_says_them_again() -> None:
    events = [encode_element(Watermark(5)), rows(("a", 1)), encode_element(EndOfData(True))]
    states = {SubtaskId("count", 0): ChannelState({channel(0, 0): events})}
    everywhere = restored_everywhere(graph(1, 2), checkpoint({"map": 1, "count": 1}, states))
    assert [batch for r in everywhere.values() for _, batch in r.taken()] == [[("a", 1)]]


def test_restored_elements_come_before_new_ones_on_every_channel() -> None:
    now = graph(2, 1)
    states = {SubtaskId("map", 2): ChannelState({}, {channel(2, 0): [rows(("a", "old"))]})}
    restored = restored_everywhere(now, checkpoint({"map": 3, "count": 1}, states))[0]
    assert restored.gate is not None
    restored.gate.receive(1, 0, [rows(("a", "new"))])
    assert [batch for _, batch in restored.taken()] == [[("a", "old")], [("a", "new")]]


def test_records_in_flight_on_an_exchange_that_is_gone_are_not_dropped_in_silence() -> None:
    gone = ChannelId(EdgeId("map", None, "sum"), 0, 0)
    states = {SubtaskId("map", 0): ChannelState({}, {gone: [rows(1)]})}
    with pytest.raises(StateMismatchError, match="between 'map' and 'sum'; the job has no such exchange now"):
        assign_channel_states(graph(1, 1), checkpoint({"map": 1, "count": 1}, states))


def test_an_exchange_that_can_not_deal_out_records_takes_none_over() -> None:
    states = {SubtaskId("map", 0): ChannelState({}, {channel(0, 0): [rows(1)]})}
    with pytest.raises(StateMismatchError, match="now has a 'forward' exchange there"):
        assign_channel_states(graph(1, 1, Partitioning.FORWARD), checkpoint({"map": 1, "count": 1}, states))


def test_a_damaged_file_is_named() -> None:
    storage = MemoryStorage()
    whole = encode_channel_state(ChannelState({channel(0, 0): [rows(1)]}))
    file = write_state_file(storage, "job/chk-3-1/channels-count-0", whole)
    storage.put(file.path, whole[:-1] + b"?")
    spec = graph(1, 1).subtask(SubtaskId("count", 0))
    restore = ChannelRestore((ChannelStateHandle(file, 1, (EDGE,)),))
    outputs = SubtaskOutputs(spec.outputs, 0, CODEC, lambda *_: None, JobConfig(), {})
    with pytest.raises(CorruptSnapshotError, match="channels-count-0"):
        restore_channels(restore, spec, storage, CODEC, None, outputs)


@pytest.mark.parametrize("elements", [[b"\xff not an element"], [b""]])
def test_an_element_of_an_unknown_kind_is_refused_with_its_file(elements: Sequence[bytes]) -> None:
    states = {SubtaskId("count", 0): ChannelState({channel(0, 0): elements})}
    for receivers in (1, 2):
        with pytest.raises(CorruptSnapshotError, match="the in-flight data of count"):
            restored_everywhere(graph(1, receivers), checkpoint({"map": 1, "count": 1}, states))


SAVEPOINT = CheckpointOptions(SnapshotKind.SAVEPOINT, location="file:///of/others")
#: One element of each kind.
EVERY_KIND: tuple[StreamElement, ...] = (
    CODEC.encode(RowBatch([("a", 1)])),
    Watermark(5),
    StreamStatus.IDLE,
    EndOfData(),
    CheckpointBarrier(1_000_000, 0.0, SAVEPOINT),
    CancelCheckpointMarker(1_000_000),
    EndOfPartition(),
)
STRANGERS = [element for element in EVERY_KIND if not is_captured(element)]


@pytest.mark.parametrize("receivers", [1, 2])
@pytest.mark.parametrize("strange", STRANGERS, ids=lambda element: type(element).__name__)
def test_an_element_that_no_checkpoint_stores_is_refused_with_its_file(
    strange: StreamElement, receivers: int
) -> None:
    """A restored barrier would take a savepoint into the folder that it names."""
    elements = [rows(("a", 1)), encode_element(strange), rows(("a", 2))]
    waited = {SubtaskId("map", 0): ChannelState({}, {channel(0, 0): elements})}
    received = {SubtaskId("count", 0): ChannelState({channel(0, 0): elements})}
    now = graph(1, receivers)
    for states in (waited, received):
        restores = assign_channel_states(now, checkpoint({"map": 1, "count": 1}, states))
        assert restores
        for subtask, restore in restores.items():
            with pytest.raises(
                CorruptSnapshotError, match=r"in the checkpoint's metadata .* which no checkpoint stores"
            ):
                Restored(now, subtask, restore)


def test_all_that_a_checkpoint_stores_is_restored() -> None:
    elements = [encode_element(element) for element in EVERY_KIND if is_captured(element)]
    now = graph(1, 1)
    waited = {SubtaskId("map", 0): ChannelState({}, {channel(0, 0): elements})}
    received = {SubtaskId("count", 0): ChannelState({channel(0, 0): elements})}
    [restore] = assign_channel_states(now, checkpoint({"map": 1, "count": 1}, waited)).values()
    kept = [data for data in elements if data != encode_element(StreamStatus.IDLE)]
    assert [data for _, data in Restored(now, SubtaskId("map", 0), restore).sent] == kept
    [restore] = assign_channel_states(now, checkpoint({"map": 1, "count": 1}, received)).values()
    gate = Restored(now, SubtaskId("count", 0), restore).gate
    assert gate is not None
    taken = []
    while (polled := gate.poll()) is not None:
        taken.append(encode_element(polled[1]))
    assert taken == kept
