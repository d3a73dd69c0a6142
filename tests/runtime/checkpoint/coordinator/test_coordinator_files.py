"""Files and checkpoints that are deleted, and those that stay, as others complete."""

import pytest
from coordinator_setup import ALL, COUNT, COUNTS, READ, READS, Run

from penstock.runtime.checkpoint.coordinator.requests import CheckpointFailed
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.handles import (
    InlineHandle,
    OperatorStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
    SubtaskSnapshot,
)
from penstock.runtime.snapshot.ids import SubtaskId


def test_a_completed_checkpoint_subsumes_older_ones_but_no_savepoint():
    run = Run(max_concurrent=5)
    run.trigger()
    run.trigger(SnapshotKind.SAVEPOINT)
    run.trigger()
    run.acknowledge(1, READS)
    run.gateway.take()
    run.complete(3)
    assert run.gateway.take() == [("complete", 3, ALL), ("aborted", 1, ALL)]
    assert run.coordinator.pending_ids == (2,)
    assert [a.reason for a in run.answers if isinstance(a, CheckpointFailed)] == [Reason.CHECKPOINT_SUBSUMED]
    run.complete(2)
    assert run.coordinator.latest_completed.checkpoint_id == 3
    assert run.log.replay().newest.checkpoint_id == 3


def test_the_files_of_a_base_stay_until_the_checkpoint_that_builds_on_it_has_ended():
    run = Run(max_concurrent=2)
    run.trigger()
    run.complete(1)
    run.trigger(SnapshotKind.SAVEPOINT)
    run.trigger()
    assert [b.confirmed_id for b in run.gateway.barriers] == [-1, 1, 1]
    run.complete(3)
    assert len([f for f in run.state_files() if f.startswith("1-1-")]) == 4
    run.coordinator.decline(1, READ, 2)
    assert [f for f in run.state_files() if f.startswith("1-1-")] == []
    assert len(run.state_files()) == 4


def test_checkpoint_that_builds_on_none_keeps_no_files_of_others():
    run = Run(max_concurrent=2)
    run.trigger(SnapshotKind.SAVEPOINT)
    for checkpoint_id in (2, 3):
        run.trigger()
        run.complete(checkpoint_id)
    assert run.coordinator.pending_ids == (1,)
    assert all(path.startswith("1-3-") for path in run.state_files())


def test_files_of_replaced_checkpoints_go_and_those_that_are_named_again_stay():
    run = Run()
    run.trigger()
    run.complete(1)
    [base] = run.coordinator.latest_completed.operators["count"].subtasks[0].files()
    run.trigger()
    run.acknowledge(2, [COUNT], older=(base,))
    run.complete(2, subtasks=(SubtaskId("count", 1), *READS))
    assert run.state_files() == [
        "1-1-count-0-0",
        "1-2-count-0-0",
        "1-2-count-1-0",
        "1-2-read-0-0",
        "1-2-read-1-0",
    ]


def test_in_flight_data_goes_with_its_checkpoint():
    run = Run(unaligned=True)
    for checkpoint_id in (1, 2):
        run.trigger()
        assert run.gateway.barriers[-1].options.unaligned
        run.complete(checkpoint_id, in_flight=True)
        folder = f"chk-{checkpoint_id}-1"
        assert run.channel_files() == [
            f"{folder}/channels-{vertex}-{index}" for vertex in ("count", "read") for index in (0, 1)
        ]
    run.trigger()
    run.acknowledge(3, [READ, COUNT], in_flight=True)
    assert "chk-3-1/channels-read-0" in run.channel_files()
    run.coordinator.decline(1, READS[1], 3, Reason.CHECKPOINT_DECLINED, "disk full")
    run.acknowledge(3, [SubtaskId("count", 1)], in_flight=True)
    assert all(path.startswith("chk-2-1/") for path in run.channel_files()), "late ones go, too"
    assert len(run.channel_files()) == 4


def test_savepoints_of_a_job_with_unaligned_checkpoints_are_aligned():
    run = Run(unaligned=True)
    run.trigger(SnapshotKind.SAVEPOINT)
    assert not run.gateway.barriers[-1].options.may_overtake


def test_what_was_in_flight_in_a_finished_subtask_has_been_consumed_and_is_not_carried_on():
    run = Run(unaligned=True)
    run.trigger()
    run.complete(1, in_flight=True)
    before = run.coordinator.latest_completed.operators["read"].subtasks[1]
    run.coordinator.subtask_finished(READS[1])
    run.trigger()
    run.complete(2, subtasks=(READ, *COUNTS), in_flight=True)
    reads = run.coordinator.latest_completed.operators["read"].subtasks
    assert reads[1].keyed == before.keyed
    assert (reads[0].channels is None, reads[1].channels) == (False, None)
    assert "chk-1-1/channels-read-1" not in run.channel_files()


@pytest.mark.parametrize("state", ["finished", "cancelled"])
def test_the_end_of_the_job_names_the_files_that_are_not_kept(state):
    run = Run()
    run.trigger()
    run.complete(1)
    assert len(run.coordinator.end_job(state)) == 5
    assert run.coordinator.latest_completed is None


def test_after_a_failure_checkpoints_stay_by_default():
    run = Run()
    run.trigger()
    run.complete(1)
    assert run.coordinator.end_job("failed") == ()


def test_list_state_of_a_subtask_without_files_is_kept_too():
    run = Run()
    run.trigger()
    handle = OperatorStateHandle("splits", RedistributionMode.SPLIT_DISTRIBUTE, InlineHandle(b""), 0)
    state = OperatorSubtaskState(operator=(handle,))
    run.coordinator.acknowledge(1, READ, 1, SubtaskSnapshot({"read": state}))
    run.complete(1, subtasks=(READS[1], *COUNTS))
    assert run.coordinator.latest_completed.operators["read"].subtasks[0] == state
