"""`CheckpointRequests` by itself: what a request asks for when nothing is said."""

from __future__ import annotations

from penstock.runtime.checkpoint.coordinator.requests import (
    CheckpointAnswer,
    CheckpointFailed,
    CheckpointRequest,
    CheckpointRequests,
    RequestNote,
)
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
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


def test_only_the_request_that_is_tried_again_waits_for_its_answer() -> None:
    starts, answers = Starts(), list[CheckpointAnswer]()
    for _ in range(2):
        starts.requests.submit(on_answer=answers.append)
        starts.requests.start_ended()
    older, newer = starts.begun
    starts.requests.retry_later(newer, 2)
    failed = CheckpointFailed(Reason.CHECKPOINT_EXPIRED)
    starts.requests.answer(newer, failed)
    assert answers == []
    starts.requests.answer(older, failed)
    assert answers == [failed]


def test_requests_that_are_tried_again_together_are_answered_each_for_itself() -> None:
    starts, answers = Starts(), dict[str, CheckpointAnswer]()
    for name in ("older", "newer"):
        starts.requests.submit(on_answer=lambda answer, name=name: answers.update({name: answer}))
        starts.requests.start_ended()
    for checkpoint_id, request in enumerate(starts.begun, 1):
        starts.requests.retry_later(request, checkpoint_id)
    starts.requests.submit(on_answer=lambda answer: answers.update({"third": answer}))
    starts.timers.advance(1)
    for _ in range(2):
        starts.requests.start_ended()
    _, _, *again = starts.begun
    expected = {}
    for name, request in zip(("third", "older", "newer"), again, strict=True):
        expected[name] = CheckpointFailed(Reason.CHECKPOINT_EXPIRED, name)
        starts.requests.answer(request, expected[name])
    assert answers == expected


class Notes(Starts):
    """The same, with a log, and with checkpoints that run."""

    def __init__(self, *, min_pause: float = 0.0) -> None:
        super().__init__()
        self.notes: list[RequestNote] = []
        self.pending: list[int] = []
        self.requests = CheckpointRequests(
            Checkpointing(every=10, timeout=60, min_pause=min_pause),
            self.clock,
            self.timers,
            self.begun.append,
            self.pending,
            note=self.notes.append,
        )

    @property
    def texts(self) -> list[str]:
        return [note.text for note in self.notes]


def test_a_request_that_starts_at_once_leaves_no_note() -> None:
    log = Notes()
    log.requests.submit()
    log.requests.start_ended()
    assert log.texts == []


def test_a_request_behind_a_start_is_noted_with_the_time_that_the_start_may_take() -> None:
    log = Notes(min_pause=3)
    log.requests.submit()
    log.requests.submit(CheckpointRequest(kind=SnapshotKind.SYNC_SAVEPOINT))
    assert log.notes == [
        RequestNote(
            "request 2 for a sync savepoint waits: another checkpoint is being started. "
            "It waits for at most 123.0 s, unless others overtake it"
        )
    ]


def test_a_request_over_the_limit_is_noted_when_it_waits_and_when_it_starts() -> None:
    log = Notes(min_pause=3)
    log.pending.append(1)
    log.requests.submit()
    log.requests.submit()
    log.timers.advance(1.256)
    log.pending.clear()
    log.requests.poll()
    assert log.texts == [
        "request 1 for a checkpoint waits: running checkpoints: 1 (max_concurrent=1). "
        "It waits for at most 63.0 s, unless others overtake it",
        "request 2 for a checkpoint waits: running checkpoints: 1 (max_concurrent=1); requests ahead: 1. "
        "It waits for at most 186.0 s, unless others overtake it",
        "request 1 for a checkpoint starts; it has waited for 1.26 s",
    ]


def test_a_request_behind_more_than_the_limit_is_noted_with_their_number() -> None:
    log = Notes()
    log.pending += [1, 2]
    log.requests.submit()
    assert "waits: running checkpoints: 2 (max_concurrent=1)." in log.texts[0]


def test_a_request_in_the_pause_is_noted_with_what_is_left_of_the_pause() -> None:
    log = Notes(min_pause=3)
    log.requests.begin_pause()
    log.timers.advance(1.234)
    log.requests.submit()
    log.timers.advance(1.766)
    assert log.texts == [
        "request 1 for a checkpoint waits: the pause after the last checkpoint (min_pause=3 s) is not over. "
        "It waits for at most 1.77 s, unless others overtake it",
        "request 1 for a checkpoint starts; it has waited for 1.77 s",
    ]


def test_a_periodic_request_that_the_pause_moves_is_noted() -> None:
    log = Notes(min_pause=3)
    log.requests.start_periodic()
    log.timers.advance(8.766)
    log.requests.begin_pause()
    log.timers.advance(1.234)
    assert log.notes == [
        RequestNote(
            "request 1 for a periodic checkpoint is postponed: the pause after the last checkpoint "
            "(min_pause=3 s) is not over. The next follows in 1.77 s",
            is_routine=True,
        )
    ]
    log.timers.advance(2)
    assert [request.number for request in log.begun] == [2]


def test_the_waits_of_periodic_requests_are_routine_and_those_of_others_are_not() -> None:
    log = Notes()
    log.pending.append(1)
    log.requests.start_periodic()
    log.timers.advance(10)
    log.requests.submit()
    log.pending.clear()
    log.requests.poll()
    log.requests.start_ended()
    log.requests.poll()
    routine = [note.text.partition(";")[0].partition(":")[0] for note in log.notes if note.is_routine]
    assert routine == [f"request 1 for a periodic checkpoint {what}" for what in ("waits", "starts")]
    others = [note.text for note in log.notes if not note.is_routine]
    assert [text.split(" ")[1] for text in others] == ["2", "2"]


def test_a_request_that_the_full_queue_drops_is_a_warning() -> None:
    log = Notes()
    log.pending.append(1)
    for _ in range(1001):
        log.requests.submit()
    assert log.notes[-1] == RequestNote(
        "request 1001 for a checkpoint was dropped: 1000 requests are waiting, which is the limit "
        "(too_many_checkpoint_requests)",
        is_warning=True,
    )
    assert not any(note.is_warning for note in log.notes[:-1])


def test_a_periodic_request_that_gives_way_in_the_full_queue_is_a_warning() -> None:
    log = Notes()
    log.pending.append(1)
    log.requests.start_periodic()
    log.timers.advance(10)
    for _ in range(1000):
        log.requests.submit()
    [warning] = [note.text for note in log.notes if note.is_warning]
    assert warning.startswith("request 1 for a periodic checkpoint was dropped: 1000 requests are waiting")


def test_waiting_requests_that_end_with_their_attempt_are_one_note() -> None:
    log = Notes()
    log.requests.abort_waiting(Reason.JOB_FAILURE)
    assert log.texts == [], "none waits"
    log.pending.append(1)
    log.requests.submit()
    log.requests.submit()
    log.requests.abort_waiting(Reason.JOB_FAILURE, "killed")
    log.requests.abort_waiting(Reason.JOB_FAILURE, "killed")
    assert log.texts[2:] == ["waiting checkpoint requests were refused (2): job_failure: killed"]


def test_requests_that_wait_for_the_end_of_the_pause_share_a_timer_and_leave_none_when_they_are_refused() -> (
    None
):
    log = Notes(min_pause=3)
    log.requests.begin_pause()
    for _ in range(2):
        log.requests.submit()
    assert [timer.due for timer in log.timers.pending] == [3.0]
    log.requests.abort_waiting(Reason.JOB_FAILURE)
    assert log.timers.pending == ()
