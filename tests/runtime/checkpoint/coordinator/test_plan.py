"""Who takes part in a checkpoint when some subtasks have left; see also the tests of `finished_subtasks`."""

import pytest
from coordinator_setup import ALL, COUNT, COUNTS, READ, READS, word_count

from penstock.runtime.checkpoint.coordinator.plan import CheckpointPlan, CheckpointPlanner, NotAllRunning
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.graph.execution_graph import CurrentGraph
from penstock.runtime.snapshot.handles import OperatorState
from penstock.runtime.snapshot.ids import SubtaskId


def test_a_subtask_that_has_left_takes_no_part_and_is_named():
    planner = CheckpointPlanner(CurrentGraph(word_count()))
    planner.started()
    planner.finished(READ)
    assert planner.plan() == CheckpointPlan(READS[1:], ALL[1:], ALL[1:], (READ,))


def test_a_subtask_without_senders_is_triggered_itself():
    planner = CheckpointPlanner(CurrentGraph(word_count()))
    planner.started()
    for read in READS:
        planner.finished(read)
    assert planner.plan() == CheckpointPlan(COUNTS, COUNTS, COUNTS, READS)


def test_where_checkpoints_stop_with_the_first_finished_subtask_the_last_one_is_taken_all_the_same():
    planner = CheckpointPlanner(CurrentGraph(word_count()), Semantics.flink_1_11())
    planner.started()
    assert isinstance(planner.plan(), CheckpointPlan)
    planner.finished(READ)
    assert planner.plan() == NotAllRunning(())
    assert planner.plan(is_last=True) == CheckpointPlan(READS[1:], ALL[1:], ALL[1:], (READ,))


def test_at_most_five_subtasks_that_do_not_run_yet_are_named():
    waiting = tuple(SubtaskId("read", index) for index in range(6))
    named = "subtasks that a checkpoint waits for: read[0], read[1], read[2], read[3], read[4]"
    assert str(NotAllRunning(waiting[:5])) == str(NotAllRunning(waiting)) == named
    assert str(NotAllRunning(waiting[:1])) == "subtasks that a checkpoint waits for: read[0]"
    none = "subtasks that a checkpoint waits for: none, but subtasks have finished"
    assert str(NotAllRunning(())) == none


EVERYBODY = CheckpointPlan(READS, ALL, ALL)
READ_HAD_FINISHED = {"read": OperatorState("read", 2, 128, {}, frozenset({0}))}


def running():
    planner = CheckpointPlanner(CurrentGraph(word_count()))
    planner.started()
    return planner


def test_each_subtask_finishes_once_and_an_unknown_one_never():
    planner = running()
    assert planner.unfinished_count == 4
    assert planner.finished(READ)
    assert not planner.finished(READ)
    assert not planner.finished(SubtaskId("nobody", 0))
    assert planner.unfinished_count == 3
    assert planner.unfinished == ALL[1:]


def test_new_attempt_begins_with_all_subtasks_and_runs_none():
    planner = running()
    planner.finished(READ)
    planner.data_ended(COUNT)
    planner.restored(READ_HAD_FINISHED)
    planner.begin_attempt(2)
    assert (planner.unfinished, planner.unfinished_count) == (ALL, 4)
    assert planner.plan() == NotAllRunning(ALL)
    planner.started()
    assert planner.plan() == EVERYBODY


def test_no_checkpoint_is_planned_until_subtasks_that_start_again_run():
    planner = running()
    planner.finished(READ)
    planner.data_ended(COUNT)
    planner.leave_out((READ, *COUNTS))
    assert planner.unfinished_count == 4
    assert planner.plan() == NotAllRunning((READ, *COUNTS))
    planner.started()
    assert planner.plan() == EVERYBODY


def test_subtask_that_had_finished_holds_checkpoints_up_until_it_leaves_or_starts_anew():
    for leaves in (CheckpointPlanner.finished, lambda planner, read: planner.leave_out((read,))):
        planner = running()
        planner.restored(READ_HAD_FINISHED)
        assert planner.plan() == NotAllRunning((READ,))
        leaves(planner, READ)
        planner.started()
        assert isinstance(planner.plan(), CheckpointPlan)


@pytest.mark.parametrize(
    ("region", "waits"), [(None, True), (frozenset({READ, COUNT}), True), (frozenset({COUNT}), False)]
)
def test_subtask_that_had_finished_leaves_only_where_it_starts(region, waits):
    planner = running()
    planner.restored(READ_HAD_FINISHED, region)
    assert planner.plan() == (NotAllRunning((READ,)) if waits else EVERYBODY)


def test_states_that_the_graph_does_not_fit_hold_no_checkpoint_up():
    planner = running()
    planner.restored({"count": OperatorState("count", 2, 128, {}, frozenset({0, 1}))})
    assert planner.plan() == EVERYBODY


def test_subtasks_of_other_regions_keep_their_attempt_until_the_whole_job_begins_anew():
    planner = running()
    planner.begin_attempt(1)
    planner.begin_region(2, frozenset({READ, COUNT}))
    assert planner.by_attempt(ALL) == [(2, (READ, COUNT)), (1, (READS[1], COUNTS[1]))]
    planner.begin_region(3, frozenset({COUNT}))
    assert [planner.attempt_of(subtask) for subtask in ALL] == [2, 1, 3, 1]
    planner.begin_attempt(4)
    assert planner.by_attempt(ALL) == [(4, ALL)]


def test_messages_go_to_no_finished_subtask():
    planner = running()
    planner.begin_attempt(1)
    planner.finished(READ)
    assert planner.by_attempt(ALL) == [(1, ALL[1:])]
