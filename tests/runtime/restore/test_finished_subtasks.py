"""Who has finished for good, and what a checkpoint that says so allows."""

from __future__ import annotations

import pytest

from penstock.runtime.checkpoint.coordinator.operator_states import collect_states
from penstock.runtime.checkpoint.coordinator.plan import CheckpointPlan, CheckpointPlanner, NotAllRunning
from penstock.runtime.graph.execution_graph import CurrentGraph, ExecutionGraph, build_execution_graph
from penstock.runtime.graph.job_graph import (
    JobEdge,
    JobGraph,
    JobVertex,
    OperatorSpec,
    Partitioner,
    Partitioning,
)
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.restore import (
    StateMismatchError,
    assign_states,
    finished_in_checkpoint,
    finished_on_restore,
    kept_after_the_end,
)
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import (
    InlineHandle,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
    SubtaskSnapshot,
)
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.metadata import decode_metadata, encode_atoms, encode_metadata

SPLIT, UNION = RedistributionMode.SPLIT_DISTRIBUTE, RedistributionMode.UNION


def line(
    parallelism: int = 2,
    partitioning: Partitioning = Partitioning.FORWARD,
    *,
    behind: tuple[str, ...] = ("write",),
    others: int | None = None,
) -> ExecutionGraph:
    """A vertex `read` that sends to a vertex of the operators `behind`."""
    read = OperatorSpec("read", "read", None, source=object(), stateful=True)  # type: ignore[arg-type]
    writes = tuple(OperatorSpec(id, id, None, stateful=True, is_sink=id == "write") for id in behind)
    vertices = (JobVertex("read", (read,), parallelism), JobVertex(behind[0], writes, others or parallelism))
    edge = JobEdge("read", "read", None, behind[0], 0, Partitioner(partitioning))
    return build_execution_graph(JobGraph("line", vertices, (edge,)))


def subtasks(*names: str) -> frozenset[SubtaskId]:
    return frozenset(SubtaskId(name[:-1], int(name[-1])) for name in names)


def lists(**states: tuple[RedistributionMode, list[bytes]]) -> OperatorSubtaskState:
    return OperatorSubtaskState(
        (),
        tuple(
            OperatorStateHandle(name, mode, InlineHandle(encode_atoms(atoms)), len(atoms))
            for name, (mode, atoms) in states.items()
        ),
    )


def finished(
    operator: str, parallelism: int, *indices: int, **subtasks: OperatorSubtaskState
) -> OperatorState:
    by_index = {int(index[1:]): state for index, state in subtasks.items()}
    return OperatorState(operator, parallelism, 128, by_index, frozenset(indices))


def checkpoint(*states: OperatorState) -> CompletedCheckpoint:
    operators = {state.operator_id: state for state in states}
    return CompletedCheckpoint(7, 1, SnapshotKind.CHECKPOINT, operators, 0.0, 1.0)


def restore(graph: ExecutionGraph, *states: OperatorState) -> dict[str, tuple[bool, dict[str, list[bytes]]]]:
    """By subtask: whether it had finished, and the lists of all its operators."""

    def read(handle: object) -> bytes:
        assert isinstance(handle, InlineHandle)
        return handle.data

    return {
        f"{subtask.vertex}{subtask.index}": (
            task.finished,
            {name: list(atoms) for each in task.operators.values() for name, atoms in each.lists.items()},
        )
        for subtask, task in assign_states(graph, checkpoint(*states), read).items()
    }


def test_a_subtask_has_finished_when_it_and_all_its_senders_have_ended() -> None:
    graph = line(partitioning=Partitioning.REBALANCE)
    assert finished_in_checkpoint(graph, subtasks("read0", "write0", "write1")) == subtasks("read0")
    everybody = subtasks("read0", "read1", "write0", "write1")
    assert finished_in_checkpoint(graph, everybody) == everybody


def test_a_forward_edge_lets_each_line_finish_by_itself() -> None:
    assert finished_in_checkpoint(line(), subtasks("read1", "write1")) == subtasks("read1", "write1")


def test_metadata_keeps_who_has_finished() -> None:
    before = checkpoint(finished("read", 2, 1), finished("write", 2))
    after = decode_metadata(encode_metadata(before), "m")
    assert after.operators == before.operators
    assert after.operators["read"].finished == {1}
    assert not after.operators["read"].is_fully_finished


def test_a_checkpoint_says_who_had_ended_and_carries_what_the_gone_had_acknowledged() -> None:
    ended = SubtaskSnapshot({"write": lists(committables=(SPLIT, [b"t"]))}, ended=True)
    running = SubtaskSnapshot({"read": lists(splits=(SPLIT, [b"s"]))})
    last = lists(splits=(SPLIT, []))
    operators = collect_states(
        line(),
        {SubtaskId("write", 0): ended, SubtaskId("read", 1): running},
        subtasks("read0"),
        {"read": finished("read", 2, _0=last)},
    )
    assert operators["read"].finished == {0}
    assert operators["read"].subtasks[0] == last
    assert operators["write"].finished == {0}
    assert operators["write"].subtasks[0].operator[0].name == "committables"


def test_no_checkpoint_is_taken_until_those_that_had_finished_have_left_again() -> None:
    planner = CheckpointPlanner(CurrentGraph(line()))
    planner.restored({"read": finished("read", 2, 0), "write": finished("write", 2, 0)})
    planner.started()
    assert planner.plan() == NotAllRunning((SubtaskId("read", 0), SubtaskId("write", 0)))
    planner.finished(SubtaskId("read", 0))
    planner.finished(SubtaskId("write", 0))
    plan = planner.plan()
    assert isinstance(plan, CheckpointPlan)
    assert plan.trigger == (SubtaskId("read", 1),)
    planner.begin_attempt(2)
    planner.started()
    assert isinstance(planner.plan(), CheckpointPlan)


def test_fully_finished_operators_are_finished_at_any_parallelism() -> None:
    states = finished("read", 2, 0, 1), finished("write", 2, 0, 1)
    assert finished_on_restore(line(3), {s.operator_id: s for s in states}) == subtasks(
        "read0", "read1", "read2", "write0", "write1", "write2"
    )


def test_a_partly_finished_operator_runs_where_it_had_not_finished() -> None:
    read = finished("read", 2, 0, _0=lists(splits=(SPLIT, [])), _1=lists(splits=(SPLIT, [b"rest"])))
    write = finished("write", 2, 0, _0=lists(committables=(SPLIT, [b"t"])))
    restored = restore(line(), read, write)
    assert {name: done for name, (done, _) in restored.items()} == {
        "read0": True,
        "read1": False,
        "write0": True,
        "write1": False,
    }
    assert restored["write0"][1] == {"committables": [b"t"]}, "it still has to be committed"
    assert restored["read1"][1] == {"splits": [b"rest"]}


def test_a_partly_finished_operator_runs_everywhere_at_another_parallelism() -> None:
    read = finished("read", 2, 0, _1=lists(splits=(SPLIT, [b"a", b"b", b"c"])))
    write = finished("write", 2, 0, _0=lists(committables=(SPLIT, [b"t"])))
    restored = restore(line(3), read, write)
    assert not any(done for done, _ in restored.values())
    assert [restored[f"read{i}"][1]["splits"] for i in range(3)] == [[b"a"], [b"b"], [b"c"]]
    assert [t for i in range(3) for t in restored[f"write{i}"][1]["committables"]] == [b"t"]


def test_what_a_finished_subtask_has_emitted_is_not_shared_out_again() -> None:
    had = lists(sums=(SPLIT, [b"emitted"]), seen=(UNION, [b"u"]))
    graph = line(3, behind=("sum",))
    restored = restore(graph, finished("read", 2, 0), finished("sum", 2, 0, _0=had))
    for i in range(3):
        assert restored[f"sum{i}"][1] == {"seen": [b"u"]}, "union list state stays known to everybody"


def test_raw_state_of_a_finished_subtask_is_kept_by_the_same_rule() -> None:
    handles = lists(pieces=(SPLIT, [b"p"]), seen=(UNION, [b"u"])).operator
    state = OperatorSubtaskState(raw_operator=handles)
    assert kept_after_the_end(state, is_sink=True) == state
    assert [handle.name for handle in kept_after_the_end(state, is_sink=False).raw_operator] == ["seen"]


def test_a_new_operator_in_a_finished_chain_is_refused() -> None:
    graph = line(behind=("write", "new"))
    with pytest.raises(StateMismatchError, match=r"'write' had finished .* but 'new' in the same chain"):
        restore(graph, finished("read", 2, 0, 1), finished("write", 2, 0, 1))


def test_a_running_sender_of_a_finished_operator_is_refused() -> None:
    with pytest.raises(StateMismatchError, match=r"'write' had finished .* that run: read\[0\], read\[1\]"):
        restore(line(), finished("read", 2), finished("write", 2, 0, 1))


def test_a_partly_finished_operator_whose_senders_run_again_runs_again() -> None:
    graph = line(3, Partitioning.REBALANCE, others=2)
    restored = restore(graph, finished("read", 2, 0), finished("write", 2, 0))
    assert not any(done for done, _ in restored.values())
