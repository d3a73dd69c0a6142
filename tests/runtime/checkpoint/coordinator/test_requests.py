"""`CheckpointRequests` by itself: what a request asks for when nothing is said."""

from __future__ import annotations

from penstock.runtime.checkpoint.coordinator.request_decider import CheckpointRequest
from penstock.runtime.checkpoint.coordinator.requests import CheckpointRequests
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers


class Starts:
    """Requests whose starts never end."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.begun: list[CheckpointRequest] = []
        self.requests = CheckpointRequests(
            Checkpointing(every=10), self.clock, self.timers, self.begun.append, ()
        )


def test_request_of_which_nothing_is_said_is_for_a_checkpoint_by_hand_and_starts_at_once() -> None:
    starts = Starts()
    starts.requests.submit()
    assert starts.begun == [CheckpointRequest(1, SnapshotKind.CHECKPOINT)]
    assert starts.requests.refused == 0


def test_periodic_request_leaves_alignment_to_the_jobs_setting_and_drains_nothing() -> None:
    starts = Starts()
    starts.requests.start_periodic()
    starts.timers.advance(10)
    assert starts.begun == [CheckpointRequest(1, periodic=True, timestamp=10.0)]


def test_one_periodic_request_waits_however_long_a_start_takes() -> None:
    starts = Starts()
    starts.requests.start_periodic()
    starts.timers.advance(95)
    assert len(starts.begun) == 1
    assert starts.requests.queued == 1
