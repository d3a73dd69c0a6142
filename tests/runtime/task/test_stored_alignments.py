"""A subtask whose alignments store: credits, order, what it reports, and what is left."""

from __future__ import annotations

from typing import Any

import pytest
from subtask_setup import SubtaskSetup, rows
from unaligned_setup import MakeSubtask, as_it_is, working

from penstock.runtime.barrier.checkpointed_input_gate import MOST_STORED_AT_ONCE
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import ALIGNMENT_MEMORY, AdvancedConfig, JobConfig
from penstock.runtime.record.elements import CancelCheckpointMarker, CheckpointBarrier
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason
from penstock.runtime.testing.simulation.world.disks import SpillDisk


def barrier(checkpoint_id: int) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, 1_000_000.0)


def config(*, alignment_memory: int = ALIGNMENT_MEMORY, **checkpointing: Any) -> JobConfig:
    storing = Checkpointing(every=1, alignment="store", **checkpointing)
    advanced = AdvancedConfig(buffer_rows=1, alignment_memory=alignment_memory)
    return JobConfig(checkpointing=storing, advanced=advanced)


def storing(make_subtask: MakeSubtask, *, has_room: bool = True, **checkpointing: Any) -> SubtaskSetup:
    disk = SpillDisk(lambda: has_room)
    return make_subtask(working(as_it_is), "work", config(**checkpointing), open_spill_file=disk)


def blocked(task: SubtaskSetup, *values: str) -> None:
    """The first barrier comes, and then these."""
    task.deliver(barrier(1), *(rows(value) for value in values))
    task.run_freely()


def test_credits_of_a_blocked_channel_go_back_although_nothing_of_it_is_processed(
    make_subtask: MakeSubtask,
) -> None:
    task = storing(make_subtask)
    blocked(task, "a", "b")
    assert task.taken[0] == 3
    assert task.rows() == []
    assert task.subtask.stored_bytes > 0
    task.deliver(rows("other"), channel=1)
    task.run_freely()
    assert task.rows() == ["other"]


def test_stored_records_come_behind_the_barrier_and_before_new_ones(make_subtask: MakeSubtask) -> None:
    task = storing(make_subtask, alignment_memory=0)
    blocked(task, "a", "b")
    task.deliver(barrier(1), channel=1)
    task.deliver(rows("c"))
    task.run_freely()
    assert task.sent[0] == [barrier(1), rows("a"), rows("b"), rows("c")]
    assert task.subtask.stored_bytes == 0


@pytest.mark.parametrize("memory", [0, 1_000_000])
def test_acknowledgement_says_what_was_stored_and_spilled(make_subtask: MakeSubtask, memory: int) -> None:
    task = storing(make_subtask, alignment_memory=memory)
    blocked(task, "a", "b")
    stored = task.subtask.stored_bytes
    task.deliver(barrier(1), channel=1)
    task.run_freely()
    task.upload()
    metrics = task.metrics[1]
    assert (metrics.stored_bytes, metrics.spilled_bytes) == (stored, 0 if memory else stored)
    counted = task.subtask.statistics().stored
    assert counted is not None
    assert (counted.bytes, counted.spilled_bytes, counted.pending_bytes) == (stored, metrics.spilled_bytes, 0)


def test_limit_declines_the_checkpoint_cancels_it_downstream_and_loses_nothing(
    make_subtask: MakeSubtask,
) -> None:
    task = storing(make_subtask, max_alignment_bytes=0)
    blocked(task, "a", "b")
    (declined,) = task.declined
    assert declined[:2] == (1, CheckpointFailureReason.CHECKPOINT_DECLINED_ALIGNMENT_LIMIT_EXCEEDED)
    assert "more than max_alignment_bytes=0" in declined[2]
    assert task.events() == [CancelCheckpointMarker(1)]
    assert task.rows() == ["a", "b"]
    task.deliver(barrier(1), rows("c"), channel=1)
    task.run_freely()
    assert task.rows() == ["a", "b", "c"]
    assert len(task.declined) == 1


def test_disk_without_room_declines_the_checkpoint_and_the_next_one_is_taken(
    make_subtask: MakeSubtask,
) -> None:
    task = storing(make_subtask, has_room=False, alignment_memory=0)
    blocked(task, "a", "b")
    task.deliver(barrier(1), channel=1)
    task.run_freely()
    reason = CheckpointFailureReason.CHECKPOINT_DECLINED_ALIGNMENT_NOT_STORED
    assert task.declined == [(1, reason, "no room on the simulated disk")]
    assert task.rows() == ["a", "b"]
    task.deliver(barrier(2))
    task.deliver(barrier(2), channel=1)
    task.run_freely()
    task.upload()
    assert list(task.acknowledged) == [2]


def test_more_elements_than_are_stored_in_one_step_are_stored_without_a_wake_up(
    make_subtask: MakeSubtask,
) -> None:
    """The subtask sleeps when a step leaves nothing to do: then no credit may be owed."""
    count = 3 * MOST_STORED_AT_ONCE
    task = storing(make_subtask)
    task.deliver(barrier(1), *(rows("a") for _ in range(count)))
    task.run()
    assert task.taken[0] == 1 + count
    task.deliver(barrier(2), rows("b"))
    task.deliver(barrier(1), channel=1)
    task.run_freely()
    assert task.rows() == ["a"] * count, "stored again behind the next barrier"
    task.deliver(barrier(2), channel=1)
    task.run_freely()
    assert task.rows() == [*["a"] * count, "b"]


@pytest.mark.parametrize("blocked_again", [False, True])
def test_closed_subtask_gives_the_files_of_its_alignments_back(
    make_subtask: MakeSubtask, blocked_again: bool
) -> None:
    disk = SpillDisk(lambda: True)
    task = make_subtask(working(as_it_is), "work", config(alignment_memory=0), open_spill_file=disk)
    task.deliver(barrier(1), rows("a"), barrier(2), *(rows("b") for _ in range(MOST_STORED_AT_ONCE)))
    task.run_freely()
    if blocked_again:
        task.deliver(barrier(1), channel=1)
        task.subtask.step()
        assert disk.open_files > 0
    assert disk.open_files > 0
    task.subtask.close()
    assert disk.open_files == 0


def test_subtask_whose_alignments_hold_has_no_counters_of_storing(make_subtask: MakeSubtask) -> None:
    task = make_subtask(working(as_it_is), "work")
    blocked(task, "a")
    assert task.taken[0] == 1
    assert task.subtask.stored_bytes == 0
    assert task.subtask.statistics().stored is None


def test_subtask_that_stores_is_not_built_without_files(make_subtask: MakeSubtask) -> None:
    with pytest.raises(ValueError, match="storage is needed"):
        make_subtask(working(as_it_is), "work", config())
