"""One checkpoint in a subtask: the steps, and everything that comes in between."""

from __future__ import annotations

import pytest
from subtask_coordinator_setup import REASON, Task, barrier

from penstock.runtime.checkpoint.channel_state_writer import AsyncChannelStateWriter, BarrierSender, InFlight
from penstock.runtime.checkpoint.operator_snapshot import SubtaskSnapshotTask
from penstock.runtime.checkpoint.subtask_checkpoint_coordinator import (
    MAX_RECORDED_ABORTED,
    SubtaskCheckpointCoordinator,
)
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.errors import CorruptSnapshotError, StorageError
from penstock.runtime.record.elements import (
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
    Watermark,
)
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason
from penstock.runtime.snapshot.handles import INLINE_LIMIT, SubtaskSnapshot
from penstock.runtime.snapshot.ids import ChannelId, EdgeId
from penstock.runtime.snapshot.metadata import StateFiles
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.testing.manual_time import ManualTimers


@pytest.fixture
def task() -> Task:
    return Task()


def test_barrier_goes_out_before_the_state_is_taken_and_the_acknowledgement_comes_when_it_is_durable(
    task: Task,
) -> None:
    assert task.coordinator.trigger(barrier(1))
    assert task.log == [("prepare", 1), barrier(1), ("sync", 1)]
    task.runner.do(0)
    assert task.log[3:] == []
    task.finish_background()
    assert task.log[3:] == [("acknowledge", 1)]
    assert task.storage.list("") == ["1/0"]


def test_metrics_say_how_long_each_part_took(task: Task) -> None:
    task.during_sync = lambda: task.clock.advance(2.0)
    task.coordinator.trigger(barrier(1), start_delay=0.5, alignment_duration=0.25)
    task.clock.advance(3.0)
    task.finish_background()
    metrics = task.metrics[1]
    assert (metrics.start_delay, metrics.alignment_duration) == (0.5, 0.25)
    assert (metrics.sync_duration, metrics.async_duration) == (2.0, 3.0)
    assert metrics.written_bytes == metrics.full_bytes > INLINE_LIMIT


def test_same_checkpoint_again_does_nothing(task: Task) -> None:
    task.coordinator.trigger(barrier(1))
    assert not task.coordinator.trigger(barrier(1))
    task.coordinator.trigger(barrier(2))
    task.finish_background()
    assert not task.coordinator.trigger(barrier(1))
    assert task.log.count(barrier(1)) == task.log.count(("acknowledge", 1)) == 1
    assert task.coordinator.statistics().declined == 0


def test_checkpoint_that_a_newer_one_overtook_is_declined_once(task: Task) -> None:
    task.coordinator.trigger(barrier(2))
    task.log.clear()
    assert not task.coordinator.trigger(barrier(1))
    assert not task.coordinator.trigger(barrier(1))
    reason = CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED
    assert task.log == [("decline", 1, reason, "checkpoint 2 overtook it")]


def test_checkpoint_that_was_aborted_before_its_barrier_is_cancelled_downstream(task: Task) -> None:
    task.coordinator.notify_checkpoint_aborted(1)
    assert not task.coordinator.trigger(barrier(1))
    assert task.log == [CancelCheckpointMarker(1)]
    assert task.coordinator.statistics().remembered_aborts == 0
    assert task.coordinator.trigger(barrier(2))


def test_abort_notice_of_an_older_checkpoint_does_not_concern_a_newer_one(task: Task) -> None:
    task.coordinator.notify_checkpoint_aborted(1)
    assert task.coordinator.trigger(barrier(2))
    assert task.coordinator.statistics().remembered_aborts == 1


def test_abort_notice_that_comes_too_late_is_not_remembered(task: Task) -> None:
    task.coordinator.trigger(barrier(3))
    task.finish_background()
    task.coordinator.notify_checkpoint_aborted(3)
    task.coordinator.notify_checkpoint_aborted(1)
    assert task.coordinator.statistics().remembered_aborts == 0
    assert task.storage.list("") == ["3/0"], "what was acknowledged belongs to the job"


def test_only_so_many_abort_notices_are_remembered_and_the_oldest_go(task: Task) -> None:
    for checkpoint_id in range(1, MAX_RECORDED_ABORTED + 11):
        task.coordinator.notify_checkpoint_aborted(checkpoint_id)
    assert task.coordinator.statistics().remembered_aborts == MAX_RECORDED_ABORTED
    assert task.coordinator.trigger(barrier(1))
    assert not task.coordinator.trigger(barrier(MAX_RECORDED_ABORTED))


def test_input_that_gives_a_checkpoint_up_declines_it_and_cancels_it_downstream(task: Task) -> None:
    task.coordinator.notify_checkpoint_aborted(1)
    task.coordinator.notify_checkpoint_aborted(2)
    task.coordinator.abort(2, REASON)
    assert task.log == [("decline", 2, REASON, "the alignment was aborted"), CancelCheckpointMarker(2)]
    assert task.coordinator.statistics().remembered_aborts == 1
    task.log.clear()
    assert not task.coordinator.trigger(barrier(2))
    assert task.log == []


def test_abort_on_barrier_does_not_open_the_way_for_an_older_checkpoint(task: Task) -> None:
    task.coordinator.trigger(barrier(5))
    task.coordinator.abort(4, REASON)
    assert not task.coordinator.trigger(barrier(4))
    assert task.coordinator.trigger(barrier(6))


def test_storage_failure_declines_the_checkpoint_and_leaves_no_file(task: Task) -> None:
    def fail(path: str, data: bytes, *, create: bool = False) -> None:
        MemoryStorage.put(task.storage, path, data, create=create)
        msg = "no space left"
        raise StorageError(msg)

    task.storage.put = fail  # type: ignore[method-assign]
    task.coordinator.trigger(barrier(1))
    task.finish_background()
    reason = CheckpointFailureReason.CHECKPOINT_DECLINED
    assert task.log[-1] == ("decline", 1, reason, "StorageError: no space left")
    assert task.storage.list("") == []
    assert task.coordinator.statistics().running == 0


def test_failure_of_the_synchronous_half_fails_the_task(task: Task) -> None:
    def fail() -> None:
        msg = "the user's snapshot failed"
        raise ValueError(msg)

    task.during_sync = fail
    with pytest.raises(ValueError, match="the user's snapshot"):
        task.coordinator.trigger(barrier(1))
    assert task.runner.waiting == []


@pytest.mark.parametrize("moment", ["before the upload", "after the upload"])
def test_abort_during_the_upload_silences_it_and_removes_its_files(task: Task, moment: str) -> None:
    task.coordinator.trigger(barrier(1))
    if moment == "after the upload":
        task.runner.do(0)
    task.coordinator.notify_checkpoint_aborted(1)
    task.finish_background()
    assert ("acknowledge", 1) not in task.log
    assert task.storage.list("") == []
    assert task.coordinator.statistics().running == 0


def test_abort_of_one_upload_leaves_the_others_alone(task: Task) -> None:
    task.coordinator.trigger(barrier(1))
    task.coordinator.trigger(barrier(2))
    task.coordinator.notify_checkpoint_aborted(1)
    task.finish_background()
    assert task.storage.list("") == ["2/0"]
    assert task.log[-1] == ("acknowledge", 2)


def test_uploads_may_end_in_another_order(task: Task) -> None:
    task.coordinator.trigger(barrier(1))
    task.coordinator.trigger(barrier(2))
    task.runner.do(1)
    task.runner.done.pop().tell()
    task.finish_background()
    assert task.log[-2:] == [("acknowledge", 2), ("acknowledge", 1)]


def test_close_gives_up_what_runs(task: Task) -> None:
    task.coordinator.trigger(barrier(1))
    task.coordinator.trigger(barrier(2))
    task.runner.do(0)
    task.coordinator.close()
    task.finish_background()
    assert task.coordinator.statistics().acknowledged == 0
    assert task.storage.list("") == []


def test_statistics_count_outcomes(task: Task) -> None:
    task.coordinator.trigger(barrier(1))
    task.finish_background()
    task.coordinator.trigger(barrier(2))
    task.coordinator.abort(3, REASON)
    task.coordinator.notify_checkpoint_aborted(9)
    statistics = task.coordinator.statistics()
    assert (statistics.taken, statistics.acknowledged, statistics.declined) == (2, 1, 1)
    assert (statistics.running, statistics.remembered_aborts) == (1, 1)


class Flowing(Task):
    """A subtask whose checkpoints capture one element in flight in its input."""

    def __init__(self, semantics: Semantics = Semantics.current()) -> None:
        super().__init__()
        timers = ManualTimers(self.clock)
        files = StateFiles(self.storage, lambda: "channels")
        input_id = ChannelId(EdgeId("read", None, "op"), 0, 0)
        self.writer = writer = AsyncChannelStateWriter(
            [input_id], {}, lambda checkpoint_id: files, self.runner
        )
        in_flight = InFlight(BarrierSender(self, writer, timers), writer)
        self.coordinator = SubtaskCheckpointCoordinator(
            self, self, self, self.runner, self.clock, in_flight, semantics=semantics
        )

    def capture_rest(self, checkpoint_id: int) -> None:
        self.writer.add_input(checkpoint_id, 0, [Watermark(1)])


def test_checkpoint_that_is_asked_for_twice_keeps_its_in_flight_data() -> None:
    """The JobMaster asks a subtask at the end of its data, and a barrier may have come there as well."""
    task = Flowing()
    unaligned = CheckpointBarrier(1, 0.0, CheckpointOptions(unaligned=True))
    task.coordinator.trigger(unaligned)
    assert not task.coordinator.trigger(unaligned, is_input_empty=True)
    task.writer.finish_input(1)
    task.finish_background()
    assert task.log[-1] == ("acknowledge", 1)
    assert task.metrics[1].in_flight_bytes > 0
    assert task.coordinator.statistics().declined == 0


@pytest.mark.parametrize("semantics", [Semantics.current(), Semantics.flink_1_11()])
def test_overtaken_checkpoint_leaves_no_in_flight_data_whether_it_is_declined_or_dropped(
    semantics: Semantics,
) -> None:
    task = Flowing(semantics)
    task.writer.start(1)
    task.capture_rest(1)
    task.coordinator.trigger(barrier(2))
    assert not task.coordinator.trigger(barrier(1))
    assert task.writer.running == 0
    assert task.coordinator.statistics().declined == semantics.declines_overtaken


def test_a_checkpoint_is_past_when_it_was_taken_overtaken_or_aborted(task: Task) -> None:
    assert not task.coordinator.is_past(1)
    task.coordinator.trigger(barrier(3))
    task.coordinator.notify_checkpoint_aborted(5)
    assert [task.coordinator.is_past(i) for i in (1, 2, 3, 4, 5, 6)] == [True, True, True, False, True, False]


def test_a_subtask_whose_operators_are_closed_declines_and_keeps_nothing_in_flight() -> None:
    task = Flowing()
    task.is_closed = True
    task.writer.start(1)
    task.capture_rest(1)
    assert not task.coordinator.trigger(barrier(1))
    task.finish_background()
    assert task.log[-1][:2] == ("decline", 1)
    assert "closed" in task.log[-1][3]
    assert (task.writer.running, task.storage.list("")) == (0, [])


def test_an_abort_before_the_barrier_leaves_nothing_in_flight() -> None:
    task = Flowing()
    task.coordinator.notify_checkpoint_aborted(1)
    task.writer.start(1)
    task.capture_rest(1)
    assert not task.coordinator.trigger(barrier(1))
    assert task.writer.running == 0


@pytest.mark.parametrize("gives_up", ["the input", "the job", "its end"])
def test_in_flight_data_goes_with_a_checkpoint_that_is_given_up(gives_up: str) -> None:
    task = Flowing()
    task.coordinator.trigger(CheckpointBarrier(1, 0.0, CheckpointOptions(unaligned=True)))
    if gives_up == "the input":
        task.coordinator.abort(1, REASON)
    elif gives_up == "the job":
        task.coordinator.notify_checkpoint_aborted(1)
    else:
        task.coordinator.close()
    task.finish_background()
    assert task.writer.running == 0
    assert (task.coordinator.statistics().running, task.coordinator.statistics().acknowledged) == (0, 0)
    assert task.storage.list("") == []


def test_a_snapshot_that_can_not_be_taken_leaves_nothing_in_flight() -> None:
    task = Flowing()

    def fail() -> None:
        raise ValueError("a bug of the user")

    task.during_sync = fail
    with pytest.raises(ValueError, match="a bug of the user"):
        task.coordinator.trigger(CheckpointBarrier(1, 0.0, CheckpointOptions(unaligned=True)))
    assert task.writer.running == 0


def test_bytes_in_flight_are_among_those_written() -> None:
    task = Flowing()
    task.coordinator.trigger(
        CheckpointBarrier(1, 0.0, CheckpointOptions(unaligned=True)), is_input_empty=True
    )
    task.finish_background()
    metrics = task.metrics[1]
    assert metrics.in_flight_bytes > 0
    assert metrics.written_bytes == metrics.full_bytes
    assert metrics.written_bytes > INLINE_LIMIT + metrics.in_flight_bytes


def test_notices_are_forgotten_one_by_one_when_they_are_past(task: Task) -> None:
    for noticed in (1, 5):
        task.coordinator.notify_checkpoint_aborted(noticed)
    task.coordinator.trigger(barrier(2))
    assert not task.coordinator.trigger(barrier(1))
    assert task.coordinator.statistics().remembered_aborts == 1
    task.coordinator.abort(3, REASON)
    assert task.coordinator.statistics().remembered_aborts == 1, "that of a newer one stays"
    assert not task.coordinator.trigger(barrier(5))


def test_a_part_of_a_checkpoint_lasts_as_long_at_any_time(task: Task) -> None:
    task.clock.advance(1_000.0)
    task.during_sync = lambda: task.clock.advance(2.0)
    task.coordinator.trigger(barrier(1))
    task.finish_background()
    metrics = task.metrics[1]
    assert metrics.sync_duration == 2.0
    assert (metrics.start_delay, metrics.alignment_duration) == (0.0, 0.0), "a source aligns nothing"


def test_who_closes_a_subtask_gives_up_what_captures_its_data() -> None:
    """Also of a checkpoint that has only begun to come in."""
    task = Flowing()
    task.writer.start(4)
    task.capture_rest(4)
    task.coordinator.close()
    assert task.writer.running == 0


@pytest.mark.parametrize("waits", [True, False])
def test_a_barrier_that_waits_in_the_outputs_is_looked_after_when_something_has_left(waits: bool) -> None:
    task = Flowing()
    asked: list[int] = []

    def is_waiting(checkpoint_id: int) -> bool:
        asked.append(checkpoint_id)
        return waits

    task.is_barrier_waiting = is_waiting  # type: ignore[method-assign]
    task.coordinator.trigger(
        CheckpointBarrier(1, 0.0, CheckpointOptions(unaligned=False, aligned_timeout=30.0))
    )
    asked.clear()
    task.coordinator.outputs_progressed()
    assert asked == ([1] if waits else [])
    task.coordinator.close()
    asked.clear()
    task.coordinator.outputs_progressed()
    assert asked == [], "nothing waits behind the end"


@pytest.mark.parametrize("is_damaged", [False, True])
def test_keyed_state_is_told_what_was_written_or_why_it_was_not(
    task: Task, monkeypatch: pytest.MonkeyPatch, is_damaged: bool
) -> None:
    """The next snapshot builds on it, or writes everything anew."""
    told: list[str] = []
    monkeypatch.setattr(SubtaskSnapshotTask, "apply", lambda *_: told.append("written"))
    monkeypatch.setattr(SubtaskSnapshotTask, "failed", lambda *_: told.append("failed"))
    if is_damaged:

        def run(_: SubtaskSnapshotTask) -> SubtaskSnapshot:
            raise CorruptSnapshotError("damaged")

        monkeypatch.setattr(SubtaskSnapshotTask, "run", run)
    task.coordinator.trigger(barrier(1))
    task.finish_background()
    assert told == ["failed" if is_damaged else "written"]
    assert task.log[-1][0] == ("decline" if is_damaged else "acknowledge")
