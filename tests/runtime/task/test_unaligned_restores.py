"""Unaligned checkpoints of one subtask that starts from what was in flight."""

from __future__ import annotations

from subtask_setup import rows
from unaligned_setup import (
    NOTHING,
    InFlight,
    MakeSubtask,
    again,
    as_it_is,
    config,
    in_flight,
    unaligned,
    working,
)

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.record.elements import (
    CheckpointBarrier,
    Watermark,
)

# -- restore ------------------------------------------------------------------------------------------------


def test_restored_data_comes_first_receivers_part_before_new_data_and_senders_part_before_all(
    make_subtask: MakeSubtask,
) -> None:
    env = working(lambda n: range(n, n + 4))
    task = make_subtask(env, "work", config())
    task.deliver(rows(0), rows(100), channel=0)
    task.run()
    task.deliver(unaligned(1), channel=0)
    task.deliver(unaligned(1), channel=1)
    task.upload()
    assert in_flight(task, 1) == InFlight({0: [[100]]}, {0: [[2], [3]]})
    restored = again(make_subtask, env, task, 1)
    restored.deliver(rows(200), channel=0)
    assert restored.sent[0] == []
    restored.subtask.step()
    assert restored.rows() == [2, 3]
    restored.run_freely()
    assert restored.rows() == [2, 3, *range(100, 104), *range(200, 204)]
    assert restored.taken[0] == 1, "what was restored has no numbers"


def test_restored_data_is_captured_again_by_a_barrier_that_comes_before_the_first_step(
    make_subtask: MakeSubtask,
) -> None:
    env = working(lambda n: range(n, n + 6))
    task = make_subtask(env, "work", config())
    task.deliver(rows(0), rows(100), Watermark(3), channel=0)
    task.run()
    task.deliver(unaligned(1), channel=0)
    task.deliver(unaligned(1), channel=1)
    task.upload()
    restored = again(make_subtask, env, task, 1)
    restored.deliver(rows(200), unaligned(2), channel=0)
    restored.deliver(unaligned(2), channel=1)
    restored.upload()
    assert restored.sent[0] == [rows(2), rows(3), unaligned(2)], "as far as the credits reach"
    assert in_flight(restored, 2) == InFlight({0: [[100], Watermark(3), [200]]}, {0: [[4], [5]]})


def test_job_that_aligns_its_checkpoints_starts_from_an_unaligned_one(make_subtask: MakeSubtask) -> None:
    env = working(as_it_is)
    task = make_subtask(env, "work", config())
    task.deliver(rows(1), unaligned(1), channel=0)
    task.deliver(rows(2), unaligned(1), channel=1)
    task.upload()
    aligned = JobConfig(checkpointing=Checkpointing(every=1))
    restored = again(make_subtask, env, task, 1, config=aligned)
    for channel in (0, 1):
        restored.deliver(CheckpointBarrier(2, 0.0), channel=channel)
    restored.run_freely()
    restored.upload()
    assert sorted(restored.rows()) == [1, 2]
    assert restored.sent[0][-1] == CheckpointBarrier(2, 0.0), "what was in flight is in front of it"
    assert in_flight(restored, 2) == NOTHING
