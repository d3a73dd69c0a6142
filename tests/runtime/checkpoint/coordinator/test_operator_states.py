"""State of finished subtasks in a complete checkpoint."""

import pytest
from coordinator_setup import COUNTS, READ, READS, Run, word_count

from penstock.runtime.checkpoint.coordinator.operator_states import collect_states
from penstock.runtime.snapshot.completed_checkpoint import CarriedState
from penstock.runtime.snapshot.handles import (
    InlineHandle,
    KeyedStateHandle,
    KeyGroupRange,
    OperatorState,
    OperatorSubtaskState,
)

STATE = OperatorSubtaskState((KeyedStateHandle(KeyGroupRange(0, 127), (InlineHandle(b"x"),)),))


def test_checkpoint_says_which_subtasks_have_finished_and_whose_state_it_carries():
    run = Run()
    for checkpoint_id in (1, 2):
        run.trigger()
        run.complete(checkpoint_id)
    run.coordinator.subtask_finished(READS[1])
    run.trigger()
    run.complete(3, subtasks=(READ, *COUNTS))
    carried = CarriedState({"read": (1,)}, None)
    assert [checkpoint.carried for checkpoint in run.written] == [None, None, carried]
    last = run.written[-1]
    assert last.operators["read"].finished == {1}
    assert last.operators["count"].finished == frozenset()


@pytest.mark.parametrize(("parallelism", "carried"), [(1, {}), (2, {1: STATE}), (3, {})])
def test_last_state_of_a_finished_subtask_is_carried_while_the_parallelism_is_the_same(parallelism, carried):
    before = {"read": OperatorState("read", parallelism, 128, {1: STATE})}
    states = collect_states(word_count(), {}, [READS[1]], before)
    assert states == {"read": OperatorState("read", 2, 128, carried, frozenset({1}))}


def test_finished_subtask_without_state_carries_nothing():
    for before in ({}, {"read": OperatorState("read", 2, 128, {0: STATE})}):
        states = collect_states(word_count(), {}, [READS[1]], before)
        assert states == {"read": OperatorState("read", 2, 128, {}, frozenset({1}))}
