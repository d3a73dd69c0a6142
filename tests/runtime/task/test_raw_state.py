"""Raw state: bytes that an operator encodes itself, kept and redistributed without being looked into."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from checkpoint_graphs import barrier
from subtask_setup import SubtaskSetup, rows

from penstock.runtime.checkpoint.operator_snapshot import OperatorSnapshot, SubtaskSnapshotTask
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.errors import CorruptSnapshotError, StateMismatchError
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.graph.job_graph import JobGraph, JobVertex, OperatorSpec
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.operators.functions.function_operator import rows_of
from penstock.runtime.operators.operator import Operator, OperatorContext, Output
from penstock.runtime.operators.operator_state import RawState, read_raw_keyed
from penstock.runtime.record.elements import Batch, CheckpointBarrier, SnapshotKind
from penstock.runtime.restore import assign_states
from penstock.runtime.snapshot import metadata
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint, OperatorRestore, TaskRestore
from penstock.runtime.snapshot.handles import FileHandle, KeyedStateHandle, KeyGroupRange, OperatorState
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.metadata import StateFiles, decode_metadata, encode_metadata, read_state
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.state.key_groups import key_group_range

KEY_GROUPS = 8


def graph(parallelism: int, max_parallelism: int = KEY_GROUPS) -> ExecutionGraph:
    spec = OperatorSpec("index", "index", None, stateful=True)
    return build_execution_graph(
        JobGraph("job", (JobVertex("index", (spec,), parallelism, max_parallelism),))
    )


def snapshot_of(storage: MemoryStorage, *states: RawState) -> CompletedCheckpoint:
    """A checkpoint as its subtasks wrote it and its metadata file gives it back."""
    subtasks = {}
    for index, raw in enumerate(states):
        paths = iter(f"job/shared/1-3-index-{index}-{n}" for n in range(9))
        files = StateFiles(storage, lambda paths=paths: next(paths))  # type: ignore[misc]
        written = SubtaskSnapshotTask(3, {"index": OperatorSnapshot(raw=raw)}, {}, lambda _, f=files: f).run()  # type: ignore[misc]
        subtasks[index] = written.operators["index"]
    state = OperatorState("index", len(states), KEY_GROUPS, subtasks)
    kind = SnapshotKind.CHECKPOINT
    return decode_metadata(
        encode_metadata(CompletedCheckpoint(3, 1, kind, {"index": state}, 0.0, 1.0)), "chk/metadata"
    )


def dealt_out(storage: MemoryStorage, checkpoint: CompletedCheckpoint, parallelism: int) -> list[RawState]:
    restores = assign_states(graph(parallelism), checkpoint, lambda handle: read_state(storage, handle))
    files = StateFiles(storage, lambda: "nowhere")
    dealt = []
    for index in range(parallelism):
        restore = restores[SubtaskId("index", index)].operators["index"]
        own = key_group_range(index, parallelism, KEY_GROUPS)
        dealt.append(RawState(list(restore.raw_operator), read_raw_keyed(restore.raw_keyed, own, files)))
    return dealt


@pytest.mark.parametrize("parallelism", [1, 2, 3, 8])
@pytest.mark.parametrize("inline", [0, 1 << 20])
def test_every_key_group_goes_to_its_owner_and_every_piece_to_one_subtask(
    parallelism: int, inline: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "INLINE_LIMIT", inline)
    storage = MemoryStorage()
    old = [
        RawState([b"a", b"b"], {group: b"of %d" % group for group in range(4)}),
        RawState([b"c"], {group: b"of %d" % group for group in (4, 7)}),
    ]
    dealt = dealt_out(storage, snapshot_of(storage, *old), parallelism)
    assert sorted(piece for state in dealt for piece in state.operator) == [b"a", b"b", b"c"]
    for index, state in enumerate(dealt):
        own = key_group_range(index, parallelism, KEY_GROUPS)
        assert state.keyed == {g: b"of %d" % g for g in (0, 1, 2, 3, 4, 7) if g in own}
    if parallelism == 2:
        assert dealt == old


def test_another_number_of_key_groups_is_refused() -> None:
    storage = MemoryStorage()
    checkpoint = snapshot_of(storage, RawState(keyed={1: b"x"}))
    with pytest.raises(StateMismatchError, match="max_parallelism=8"):
        assign_states(graph(1, 16), checkpoint, lambda handle: read_state(storage, handle))


def test_an_operator_without_raw_state_writes_nothing() -> None:
    storage = MemoryStorage()
    state = snapshot_of(storage, RawState()).operators["index"].subtasks[0]
    assert state.is_empty
    assert storage.list("") == []


def test_damage_is_told_with_its_place() -> None:
    storage = MemoryStorage()
    storage.put("job/x", b"\xc1")
    handle = KeyedStateHandle(
        KeyGroupRange(0, 7), (FileHandle("job/x", 1, "e5bdfd5cc0a3ab32e6d3c9b1f0b8a9d3"),)
    )
    with pytest.raises(CorruptSnapshotError, match="job/x"):
        read_raw_keyed([handle], KeyGroupRange(0, 7), StateFiles(storage, lambda: "nowhere"))


def test_raw_state_over_its_limit_declines_the_checkpoint_and_the_subtask_goes_on(make_subtask) -> None:  # type: ignore[no-untyped-def]
    class Grows(Operator):
        def open(self, context: OperatorContext) -> None:
            self.pieces: list[bytes] = []

        def process(self, batch: Batch) -> Iterator[Output]:
            self.pieces += [bytes(row) for row in rows_of(batch).rows]
            yield batch

        def snapshot_raw(self, checkpoint_id: int) -> RawState:
            return RawState(self.pieces)

        def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
            self.pieces = []

    env = StreamEnvironment("job")
    env.from_collection("source", [1]).rebalance().transform("grows", Grows()).sink("sink", DiscardSink())
    config = JobConfig(checkpointing=Checkpointing(every=1), advanced=AdvancedConfig(max_raw_state_bytes=100))
    task = make_subtask(env, "grows", config=config)
    task.deliver(rows(60, 40), barrier(1), rows(1), barrier(2))
    task.run()
    task.upload()
    assert list(task.acknowledged) == [1]
    ((checkpoint_id, reason, detail),) = task.declined
    assert (checkpoint_id, reason) == (2, CheckpointFailureReason.CHECKPOINT_DECLINED)
    assert "the raw state of operator 'grows' has 101 bytes, more than the 100" in detail
    task.subtask.notify_checkpoint_aborted(2)
    task.deliver(barrier(3))
    task.run()
    task.upload()
    assert list(task.acknowledged) == [1, 3]


class Remembers(Operator):
    """Keeps what it got in its own format."""

    def open(self, context: OperatorContext) -> None:
        self.seen = b"".join(context.raw.operator)
        self.group = dict(context.raw.keyed)

    def process(self, batch: Batch) -> Iterator[Output]:
        for row in batch.rows:  # type: ignore[union-attr]
            self.seen += row.encode()
        yield rows(self.seen.decode(), self.group)

    def snapshot_raw(self, checkpoint_id: int) -> RawState:
        return RawState([self.seen], {0: self.seen.upper()})


def test_an_operator_gets_its_raw_state_back_when_it_opens() -> None:
    env = StreamEnvironment("job", chaining=False)
    stream = env.from_collection("source", ["x"]).rebalance().map(lambda row: row, id="keeps")
    object.__setattr__(stream._builder.graph.nodes[-1].operator, "factory", Remembers)
    stream.rebalance().sink("after", DiscardSink())
    first = SubtaskSetup(env, "keeps")
    first.deliver(rows("a", "b"), CheckpointBarrier(1, 0.0))
    first.run_freely()
    first.upload()
    state = first.acknowledged[1].operators["keeps"]
    pieces = tuple(read_state(first.storage, h.state) for h in state.raw_operator)
    assert len(pieces) == 1
    operators = {"keeps": OperatorRestore(raw_keyed=state.raw_keyed, raw_operator=(b"ab",))}
    again = SubtaskSetup(env, "keeps", restore=TaskRestore(1, 1, operators), storage=first.storage)
    again.deliver(rows("c"))
    again.run_freely()
    assert again.rows() == ["abc", {0: b"AB"}]
