"""Who takes part in a checkpoint when some subtasks have left; see also the tests of `finished_subtasks`."""

from coordinator_setup import ALL, COUNTS, READ, READS, word_count

from penstock.runtime.checkpoint.coordinator.plan import CheckpointPlan, CheckpointPlanner, NotAllRunning
from penstock.runtime.snapshot.subtask_id import SubtaskId


def test_a_subtask_that_has_left_takes_no_part_and_is_named():
    planner = CheckpointPlanner(word_count())
    planner.started()
    planner.finished(READ)
    assert planner.plan() == CheckpointPlan(READS[1:], ALL[1:], ALL[1:], (READ,))


def test_a_subtask_without_senders_is_triggered_itself():
    planner = CheckpointPlanner(word_count())
    planner.started()
    for read in READS:
        planner.finished(read)
    assert planner.plan() == CheckpointPlan(COUNTS, COUNTS, COUNTS, READS)


def test_where_checkpoints_stop_with_the_first_finished_subtask_the_last_one_is_taken_all_the_same():
    planner = CheckpointPlanner(word_count(), checkpoints_after_tasks_finish=False)
    planner.started()
    assert isinstance(planner.plan(), CheckpointPlan)
    planner.finished(READ)
    assert planner.plan() == NotAllRunning(())
    assert planner.plan(is_last=True) == CheckpointPlan(READS[1:], ALL[1:], ALL[1:], (READ,))


def test_at_most_five_subtasks_that_do_not_run_yet_are_named():
    waiting = tuple(SubtaskId("read", index) for index in range(6))
    named = "subtasks that don't run yet: read[0], read[1], read[2], read[3], read[4]"
    assert str(NotAllRunning(waiting[:5])) == str(NotAllRunning(waiting)) == named
    assert str(NotAllRunning(waiting[:1])) == "subtasks that don't run yet: read[0]"
    assert str(NotAllRunning(())) == "subtasks that don't run yet: none; they have finished"
