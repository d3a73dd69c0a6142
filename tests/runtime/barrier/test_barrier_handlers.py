"""The barrier handlers by themselves: ends, times, late and corrupt events (more in tests/conformance)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.runtime.barrier.aligner import CheckpointBarrierAligner, SingleChannelBarrierHandler
from penstock.runtime.barrier.factory import create_barrier_handler
from penstock.runtime.barrier.handler import (
    BarrierHandlerStatistics,
    CheckpointBarrierHandler,
)
from penstock.runtime.barrier.tracker import MAX_PENDING, CheckpointBarrierTracker
from penstock.runtime.config.checkpointing import CheckpointingMode
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.errors import StreamCorruptError
from penstock.runtime.record.elements import CancelCheckpointMarker, CheckpointBarrier
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason
from penstock.runtime.testing.manual_time import ManualClock

EXACTLY_ONCE, AT_LEAST_ONCE = CheckpointingMode.EXACTLY_ONCE, CheckpointingMode.AT_LEAST_ONCE
COUNTS, ABORTS = Semantics.current(), Semantics.flink_1_11()


class RecordingTask:
    """A handler, with a task and an input that write down their calls."""

    def __init__(
        self,
        mode: CheckpointingMode,
        channels: int,
        semantics: Semantics = COUNTS,
        clock: ManualClock | None = None,
    ) -> None:
        self.clock = clock or ManualClock(start=1000.0)
        self.blocked: set[int] = set()
        self.triggered: list[int] = []
        self.aborted: list[int] = []
        self.times: list[tuple[float, float]] = []
        self.handler: CheckpointBarrierHandler = create_barrier_handler(
            mode, channels, self, self.clock, semantics
        )
        self.handler.set_listener(self)

    def block(self, channel: int) -> None:
        self.blocked.add(channel)

    def unblock(self, channel: int) -> None:
        self.blocked.remove(channel)

    def trigger(self, barrier: CheckpointBarrier, start_delay: float, alignment_duration: float) -> None:
        self.triggered.append(barrier.checkpoint_id)
        self.times.append((start_delay, alignment_duration))

    def abort(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str = "") -> None:
        self.aborted.append(checkpoint_id)

    def barrier(self, channel: int, checkpoint_id: int, timestamp: float = 1000.0) -> None:
        self.handler.process_barrier(channel, CheckpointBarrier(checkpoint_id, timestamp))

    def cancel(self, channel: int, checkpoint_id: int) -> None:
        self.handler.process_cancellation(channel, CancelCheckpointMarker(checkpoint_id))

    def end(self, channel: int) -> None:
        self.handler.process_end_of_partition(channel)


@pytest.mark.parametrize(
    ("mode", "channels", "kind"),
    [
        (EXACTLY_ONCE, 2, CheckpointBarrierAligner),
        (AT_LEAST_ONCE, 2, CheckpointBarrierTracker),
        (EXACTLY_ONCE, 1, SingleChannelBarrierHandler),
        (AT_LEAST_ONCE, 1, SingleChannelBarrierHandler),
    ],
)
def test_mode_and_channels_select_the_handler(mode: CheckpointingMode, channels: int, kind: type) -> None:
    assert type(RecordingTask(mode, channels).handler) is kind


@pytest.mark.parametrize("mode", CheckpointingMode)
def test_input_without_channels_has_no_handler(mode: CheckpointingMode) -> None:
    with pytest.raises(ValueError, match="at least one channel"):
        RecordingTask(mode, 0)


# -- ends ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", CheckpointingMode)
def test_end_of_the_last_missing_channel_triggers_when_ends_count(mode: CheckpointingMode) -> None:
    task = RecordingTask(mode, 3)
    task.barrier(0, 1)
    task.end(1)
    assert task.triggered == []
    task.end(2)
    assert (task.triggered, task.aborted, task.blocked) == ([1], [], set())


@pytest.mark.parametrize("mode", CheckpointingMode)
def test_ended_channel_owes_no_later_barrier_when_ends_count(mode: CheckpointingMode) -> None:
    task = RecordingTask(mode, 2)
    task.end(1)
    task.barrier(0, 1)
    task.barrier(0, 2)
    assert (task.triggered, task.blocked) == ([1, 2], set())


def test_channel_that_ends_behind_its_barrier_leaves_the_others_to_come() -> None:
    task = RecordingTask(AT_LEAST_ONCE, 3)
    task.barrier(0, 1)
    task.end(0)
    task.barrier(1, 1)
    assert task.triggered == []
    task.barrier(2, 1)
    assert task.triggered == [1]
    assert task.handler.statistics().ignored == 0


def test_end_that_completes_several_pending_checkpoints_triggers_all_in_order() -> None:
    task = RecordingTask(AT_LEAST_ONCE, 2)
    for checkpoint_id in (1, 2, 4):
        task.barrier(0, checkpoint_id)
    task.end(1)
    assert (task.triggered, task.aborted, task.handler.pending) == ([1, 2, 4], [], ())


def test_end_does_not_bring_a_cancelled_checkpoint_back() -> None:
    task = RecordingTask(AT_LEAST_ONCE, 2)
    task.barrier(0, 1)
    task.cancel(0, 2)
    task.end(1)
    assert (task.triggered, task.aborted) == ([], [1, 2])


@pytest.mark.parametrize("mode", CheckpointingMode)
def test_end_aborts_each_pending_checkpoint_once_when_ends_abort(mode: CheckpointingMode) -> None:
    task = RecordingTask(mode, 3, ABORTS)
    task.barrier(0, 1)
    task.end(1)
    task.end(2)
    assert (task.triggered, task.aborted, task.blocked) == ([], [1], set())


def test_tracker_waits_for_ended_channels_when_ends_abort() -> None:
    task = RecordingTask(AT_LEAST_ONCE, 2, ABORTS)
    task.end(1)
    task.barrier(0, 1)
    assert task.triggered == []


@pytest.mark.parametrize("semantics", [COUNTS, ABORTS])
@pytest.mark.parametrize("mode", CheckpointingMode)
@pytest.mark.parametrize("channels", [1, 2])
def test_event_on_an_ended_channel_is_corrupt(
    mode: CheckpointingMode, semantics: Semantics, channels: int
) -> None:
    task = RecordingTask(mode, channels, semantics)
    task.end(0)
    late: list[Callable[[], None]] = [
        lambda: task.barrier(0, 1),
        lambda: task.cancel(0, 1),
        lambda: task.end(0),
    ]
    for event in late:
        with pytest.raises(StreamCorruptError, match="channel 0, which has ended"):
            event()
    with pytest.raises(StreamCorruptError, match="channel 7, which does not exist"):
        task.barrier(7, 1)


# -- late, repeated and backward ids ------------------------------------------------------------------------


def test_barrier_that_is_repeated_during_its_alignment_is_corrupt() -> None:
    task = RecordingTask(EXACTLY_ONCE, 2)
    task.barrier(0, 1)
    with pytest.raises(StreamCorruptError, match="channel 0 delivered the barrier of checkpoint 1 twice"):
        task.barrier(0, 1)


def test_repeated_barrier_does_not_stand_for_another_channel_in_the_tracker() -> None:
    task = RecordingTask(AT_LEAST_ONCE, 2)
    task.barrier(0, 1)
    task.barrier(0, 1)
    assert task.triggered == []
    assert task.handler.statistics().ignored == 1


@pytest.mark.parametrize("mode", CheckpointingMode)
def test_ids_that_go_backwards_on_a_channel_are_ignored_and_counted(mode: CheckpointingMode) -> None:
    task = RecordingTask(mode, 2)
    task.barrier(0, 5)
    task.barrier(1, 5)
    task.barrier(0, 3)
    task.cancel(1, 4)
    assert (task.triggered, task.aborted, task.blocked) == ([5], [], set())
    assert task.handler.statistics().ignored == 2
    assert task.handler.latest_checkpoint_id == 5


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", CheckpointingMode)
def test_marker_of_an_unknown_newer_checkpoint_aborts_it(mode: CheckpointingMode, channels: int) -> None:
    task = RecordingTask(mode, channels)
    task.cancel(0, 7)
    assert (task.aborted, task.handler.latest_checkpoint_id) == ([7], 7)


def test_checkpoint_that_was_pushed_out_of_the_tracker_is_forgotten_without_a_word() -> None:
    task = RecordingTask(AT_LEAST_ONCE, 2)
    for checkpoint_id in range(MAX_PENDING + 1):
        task.barrier(0, checkpoint_id)
    assert len(task.handler.pending) == MAX_PENDING
    task.barrier(1, 0)
    assert task.triggered == []
    task.barrier(1, 1)
    assert (task.triggered, task.aborted) == ([1], [])


# -- what handlers tell about themselves ------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "alignment"), [(EXACTLY_ONCE, 2.0), (AT_LEAST_ONCE, 0.0)])
def test_delay_ends_with_the_first_barrier_and_only_an_alignment_lasts_to_the_last(
    mode: CheckpointingMode, alignment: float
) -> None:
    task = RecordingTask(mode, 2)
    task.clock.advance(3)
    task.barrier(0, 1, timestamp=1000.0)
    task.clock.advance(2)
    task.barrier(1, 1, timestamp=1000.0)
    assert task.times == [(3.0, alignment)]
    statistics = task.handler.statistics()
    assert (statistics.start_delay, statistics.alignment_duration) == (3.0, alignment)


def test_at_least_once_holds_no_channel_back_whatever_waits() -> None:
    task = RecordingTask(AT_LEAST_ONCE, 3)
    task.clock.advance(5)
    for checkpoint_id in (1, 2):
        task.barrier(0, checkpoint_id)
        task.clock.advance(5)
        task.barrier(1, checkpoint_id)
    task.end(2)
    assert (task.triggered, task.blocked, task.handler.blocked) == ([1, 2], set(), 0)
    assert [alignment for _, alignment in task.times] == [0.0, 0.0]
    task.barrier(0, 3)
    task.cancel(1, 3)
    assert task.handler.statistics().cancelled_alignments == 0


class RunningClock(ManualClock):
    """A real clock: each look at it shows a later time."""

    def monotonic(self) -> float:
        self.advance(1e-6)
        return super().monotonic()


@pytest.mark.parametrize(("mode", "channels"), [(EXACTLY_ONCE, 1), (AT_LEAST_ONCE, 1), (AT_LEAST_ONCE, 2)])
def test_no_alignment_is_reported_where_no_channel_is_held_back_however_finely_time_is_measured(
    mode: CheckpointingMode, channels: int
) -> None:
    task = RecordingTask(mode, channels, clock=RunningClock(start=1000.0))
    for channel in range(channels):
        task.barrier(channel, 1)
    assert task.times == [(pytest.approx(0.0, abs=1e-3), 0.0)]
    assert task.handler.alignment_duration == 0.0


def test_alignments_that_a_cancellation_ends_are_counted() -> None:
    task = RecordingTask(EXACTLY_ONCE, 3)
    task.barrier(0, 1)
    task.barrier(1, 1)
    assert task.handler.statistics().blocked == 2
    task.cancel(2, 1)
    statistics = task.handler.statistics()
    assert (task.blocked, statistics.blocked, statistics.cancelled_alignments) == (set(), 0, 1)
    task.cancel(0, 2)
    assert task.handler.statistics().cancelled_alignments == 1, "nothing was held back"
    task.barrier(0, 3)
    task.cancel(1, 4)
    assert (task.blocked, task.handler.statistics().cancelled_alignments) == (set(), 2)
    task.barrier(0, 5)
    task.barrier(1, 6)
    assert task.handler.statistics().cancelled_alignments == 2, "a newer checkpoint is no cancellation"


def test_running_alignment_says_how_long_it_has_lasted() -> None:
    task = RecordingTask(EXACTLY_ONCE, 2)
    task.clock.advance(100)
    task.barrier(0, 1)
    task.clock.advance(4)
    assert task.handler.alignment_duration == 4.0
    task.cancel(1, 1)
    task.clock.advance(4)
    assert task.handler.alignment_duration == 4.0


@pytest.mark.parametrize("channels", [1, 2])
def test_barrier_from_a_clock_that_is_ahead_has_no_negative_delay(channels: int) -> None:
    task = RecordingTask(EXACTLY_ONCE, channels)
    for channel in range(channels):
        task.barrier(channel, 1, timestamp=2000.0)
    assert task.times == [(0.0, 0.0)]


@pytest.mark.parametrize("mode", CheckpointingMode)
def test_checkpoint_is_pending_until_its_last_barrier_or_its_cancellation(mode: CheckpointingMode) -> None:
    task = RecordingTask(mode, 2)
    assert task.handler.pending == ()
    task.barrier(0, 1)
    assert task.handler.pending == (1,)
    task.barrier(1, 1)
    assert task.handler.pending == ()
    task.barrier(0, 2)
    task.cancel(1, 2)
    assert task.handler.pending == ()


@pytest.mark.parametrize("mode", CheckpointingMode)
def test_nothing_is_pending_on_a_single_channel(mode: CheckpointingMode) -> None:
    task = RecordingTask(mode, 1)
    task.barrier(0, 1)
    assert task.handler.pending == ()


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("mode", CheckpointingMode)
def test_statistics_count_outcomes(mode: CheckpointingMode, channels: int) -> None:
    task = RecordingTask(mode, channels)
    for channel in range(channels):
        task.barrier(channel, 1)
    task.cancel(0, 2)
    statistics = task.handler.statistics()
    assert (statistics.triggered, statistics.aborted, statistics.pending) == (1, 1, 0)
    assert statistics.latest_checkpoint_id == 2


def test_statistics_of_a_handler_that_has_seen_nothing() -> None:
    statistics = RecordingTask(EXACTLY_ONCE, 2).handler.statistics()
    assert statistics == BarrierHandlerStatistics(
        latest_checkpoint_id=-1,
        triggered=0,
        aborted=0,
        ignored=0,
        pending=0,
        start_delay=0.0,
        alignment_duration=0.0,
    )


@pytest.mark.parametrize("mode", CheckpointingMode)
def test_handler_that_acts_on_consumption_does_not_watch_arrivals(mode: CheckpointingMode) -> None:
    assert RecordingTask(mode, 2).handler.watches_arrivals is False


@pytest.mark.parametrize(
    ("channel", "why"), [(0, "has ended"), (-1, "does not exist"), (2, "does not exist"), (1, "has ended")]
)
def test_element_on_a_closed_channel_says_whether_it_has_ended_or_is_not_there(
    channel: int, why: str
) -> None:
    task = RecordingTask(EXACTLY_ONCE, 2)
    task.end(0)
    task.end(1)
    with pytest.raises(StreamCorruptError, match=why):
        task.barrier(channel, 1)


def test_tracker_forgets_a_cancelled_checkpoint_when_every_channel_has_cancelled_it() -> None:
    task = RecordingTask(AT_LEAST_ONCE, 2)
    task.cancel(0, 1)
    task.cancel(1, 1)
    assert (task.aborted, task.handler.statistics().ignored) == ([1], 0)
    task.cancel(0, 1)
    assert (task.aborted, task.handler.statistics().ignored) == ([1], 1)


def test_tracker_does_not_begin_a_complete_checkpoint_anew() -> None:
    task = RecordingTask(AT_LEAST_ONCE, 2)
    for channel in (0, 1, 0):
        task.barrier(channel, 1)
    assert (task.triggered, task.handler.pending) == ([1], ())
    assert task.handler.statistics().ignored == 1


def test_tracker_counts_the_barriers_of_a_cancelled_checkpoint_on() -> None:
    task = RecordingTask(AT_LEAST_ONCE, 3)
    task.barrier(0, 1)
    task.cancel(1, 1)
    task.barrier(2, 1)
    assert (task.triggered, task.aborted, task.handler.statistics().ignored) == ([], [1], 0)


def test_tracker_ignores_barriers_that_are_older_than_a_cancelled_checkpoint() -> None:
    task = RecordingTask(AT_LEAST_ONCE, 2)
    task.barrier(0, 1)
    task.cancel(0, 2)
    task.barrier(1, 1)
    assert (task.aborted, task.handler.statistics().ignored) == ([1, 2], 1)


def test_tracker_remembers_as_many_checkpoints_as_flink() -> None:
    assert MAX_PENDING == 50


def test_single_channel_counts_what_comes_late_and_has_no_other_channel() -> None:
    task = RecordingTask(EXACTLY_ONCE, 1)
    task.barrier(0, 2)
    task.barrier(0, 2)
    task.cancel(0, 1)
    assert (task.triggered, task.aborted, task.handler.statistics().ignored) == ([2], [], 2)
    with pytest.raises(StreamCorruptError, match="channel 1, which does not exist"):
        task.end(1)


def test_handler_without_a_listener_says_what_is_missing() -> None:
    handler = SingleChannelBarrierHandler(ManualClock(), ignores_old=True)
    with pytest.raises(RuntimeError, match="call set_listener before the first element"):
        handler.process_barrier(0, CheckpointBarrier(1, 0.0))
