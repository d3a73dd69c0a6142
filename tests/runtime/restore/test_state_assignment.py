"""Who gets which state of a completed checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.graph.job_graph import JobGraph, JobVertex, OperatorSpec
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.restore import StateMismatchError, assign_states
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import (
    FileHandle,
    InlineHandle,
    KeyedStateHandle,
    KeyGroupRange,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
    StateHandle,
)
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.metadata import encode_atoms
from penstock.runtime.state.key_groups import key_group_range

MAX = 8


def graph_of(*operators: str, parallelism: int = 2, max_parallelism: int = MAX) -> ExecutionGraph:
    specs = tuple(OperatorSpec(name, name, None, stateful=True, keyed=True) for name in operators)
    vertex = JobVertex(operators[0], specs, parallelism, max_parallelism)
    return build_execution_graph(JobGraph("job", (vertex,)))


def listed(mode: RedistributionMode, *atoms: bytes, name: str = "list") -> OperatorSubtaskState:
    handle = OperatorStateHandle(name, mode, InlineHandle(encode_atoms(atoms)), len(atoms))
    return OperatorSubtaskState((), (handle,))


def keyed(index: int, parallelism: int) -> OperatorSubtaskState:
    key_groups = key_group_range(index, parallelism, MAX)
    return OperatorSubtaskState((KeyedStateHandle(key_groups, (InlineHandle(b"%d" % index),), 1),))


def checkpoint_of(
    operators: Mapping[str, Sequence[OperatorSubtaskState | None]],
    kind: SnapshotKind = SnapshotKind.CHECKPOINT,
    max_parallelism: int = MAX,
) -> CompletedCheckpoint:
    states = {
        name: OperatorState(
            name, len(parts), max_parallelism, {i: p for i, p in enumerate(parts) if p is not None}
        )
        for name, parts in operators.items()
    }
    return CompletedCheckpoint(7, 3, kind, states, 0.0, 1.0)


def read(handle: StateHandle) -> bytes:
    assert isinstance(handle, InlineHandle)
    return handle.data


SPLIT, UNION = RedistributionMode.SPLIT_DISTRIBUTE, RedistributionMode.UNION


def test_at_the_same_parallelism_everybody_gets_their_own_back() -> None:
    checkpoint = checkpoint_of({"a": [listed(SPLIT, b"1", b"2"), listed(SPLIT, b"3")]})
    restores = assign_states(graph_of("a"), checkpoint, read)
    assert [restores[SubtaskId("a", i)].operators["a"].lists for i in range(2)] == [
        {"list": [b"1", b"2"]},
        {"list": [b"3"]},
    ]
    assert {(r.checkpoint_id, r.attempt, r.is_savepoint) for r in restores.values()} == {(7, 3, False)}


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
def test_list_states_are_shared_out_over_another_parallelism(parallelism: int) -> None:
    checkpoint = checkpoint_of({"a": [listed(SPLIT, b"1", b"2"), listed(SPLIT, b"3")]})
    restores = assign_states(graph_of("a", parallelism=parallelism), checkpoint, read)
    values = [atom for r in restores.values() for atom in r.operators["a"].lists["list"]]
    assert sorted(values) == [b"1", b"2", b"3"]
    assert len(restores) == parallelism


def test_union_state_goes_to_everybody() -> None:
    checkpoint = checkpoint_of({"a": [listed(UNION, b"1"), listed(UNION, b"2")]})
    restores = assign_states(graph_of("a", parallelism=3), checkpoint, read)
    assert [sorted(r.operators["a"].lists["list"]) for r in restores.values()] == [[b"1", b"2"]] * 3


@pytest.mark.parametrize("parallelism", [1, 2, 3, 8])
def test_keyed_state_goes_to_whoever_owns_some_of_its_key_groups(parallelism: int) -> None:
    checkpoint = checkpoint_of({"a": [keyed(i, 3) for i in range(3)]})
    restores = assign_states(graph_of("a", parallelism=parallelism), checkpoint, read)
    for index in range(parallelism):
        own = key_group_range(index, parallelism, MAX)
        handles = restores[SubtaskId("a", index)].operators["a"].keyed
        assert all(len(handle.key_groups.intersection(own)) for handle in handles)
        covered = {group for handle in handles for group in range(MAX) if group in handle.key_groups}
        assert set(range(own.first, own.last + 1)) <= covered


@pytest.mark.parametrize(
    ("mode", "parallelism", "parts"),
    [
        (UNION, 2, [[b"1"], [b"2"]]),
        (UNION, 1, [[b"1", b"2"]]),
        (UNION, 3, [[b"1"], [b"2"], []]),
        (SPLIT, 1, [[b"1", b"2"]]),
        (RedistributionMode.BROADCAST, 3, [[b"1"], [b"2"], [b"1"]]),
    ],
)
def test_a_subtask_learns_its_own_part_of_each_list_for_as_long_as_nobody_asks_for_it(
    mode: RedistributionMode, parallelism: int, parts: list[list[bytes]]
) -> None:
    checkpoint = checkpoint_of({"a": [listed(mode, b"1"), listed(mode, b"2")]})
    restores = assign_states(graph_of("a", parallelism=parallelism), checkpoint, read)
    unasked = [restores[SubtaskId("a", i)].operators["a"].unasked["list"] for i in range(parallelism)]
    assert [mode for mode, _ in unasked] == [mode] * parallelism
    assert sorted([*part] for _, part in unasked) == sorted(parts)


def test_every_operator_of_a_chain_gets_its_own_state() -> None:
    checkpoint = checkpoint_of({"a": [listed(SPLIT, b"1"), None], "b": [None, listed(SPLIT, b"2")]})
    restores = assign_states(graph_of("a", "b"), checkpoint, read)
    first, second = restores[SubtaskId("a", 0)].operators, restores[SubtaskId("a", 1)].operators
    assert (first["a"].lists, first["b"].lists) == ({"list": [b"1"]}, {"list": []})
    assert (second["a"].lists, second["b"].lists) == ({"list": []}, {"list": [b"2"]})


def test_operator_that_the_checkpoint_does_not_know_begins_fresh() -> None:
    checkpoint = checkpoint_of({"a": [listed(SPLIT, b"1")]})
    restores = assign_states(graph_of("a", "new", parallelism=1), checkpoint, read)
    assert set(restores[SubtaskId("a", 0)].operators) == {"a"}


def test_state_that_no_operator_would_get_is_an_error() -> None:
    checkpoint = checkpoint_of({"old": [listed(SPLIT, b"1")], "older": [listed(SPLIT, b"1")]})
    with pytest.raises(StateMismatchError, match=r"checkpoint 7 holds state of 'old', 'older'.*old ids"):
        assign_states(graph_of("a"), checkpoint, read)


def test_operator_that_is_gone_but_kept_nothing_is_no_error() -> None:
    checkpoint = checkpoint_of({"old": [OperatorSubtaskState(), None]})
    assert set(assign_states(graph_of("a"), checkpoint, read)) == {SubtaskId("a", 0), SubtaskId("a", 1)}


def test_another_number_of_key_groups_is_an_error_for_keyed_state_only() -> None:
    with pytest.raises(StateMismatchError, match=r"'a' was saved with max_parallelism=8.*with 16"):
        assign_states(graph_of("a", max_parallelism=16), checkpoint_of({"a": [keyed(0, 1)]}), read)
    restores = assign_states(
        graph_of("a", max_parallelism=16), checkpoint_of({"a": [listed(SPLIT, b"1")]}), read
    )
    assert sum(len(r.operators["a"].lists["list"]) for r in restores.values()) == 1


def test_damaged_list_state_is_told_with_its_file() -> None:
    handle = OperatorStateHandle("list", SPLIT, FileHandle("job/shared/1-7-a-0-0", 3, ""), 1)
    checkpoint = checkpoint_of({"a": [OperatorSubtaskState((), (handle,))]})
    with pytest.raises(CorruptSnapshotError, match="job/shared/1-7-a-0-0"):
        assign_states(graph_of("a"), checkpoint, lambda _: b"\xc1")


def test_subtasks_learn_that_they_start_from_a_savepoint() -> None:
    checkpoint = checkpoint_of({"a": [listed(SPLIT, b"1")]}, SnapshotKind.SAVEPOINT)
    assert all(r.is_savepoint for r in assign_states(graph_of("a"), checkpoint, read).values())


def test_empty_key_group_range_gets_no_handles() -> None:
    state = OperatorSubtaskState((KeyedStateHandle(KeyGroupRange(0, 3), (InlineHandle(b""),), 0),))
    restores = assign_states(graph_of("a"), checkpoint_of({"a": [state]}), read)
    assert [len(r.operators["a"].keyed) for r in restores.values()] == [1, 0]
