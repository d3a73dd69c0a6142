"""Penstock's additions to Flink's decider; Flink's own cases are in `tests/conformance`."""

import pytest

from penstock.runtime.checkpoint.coordinator.requests import (
    PAUSE_RESOLUTION,
    CheckpointRequest,
    CheckpointRequestDecider,
    RefusedRequest,
    Situation,
)
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason


def test_request_of_which_no_more_is_said_is_for_an_ordinary_checkpoint_by_hand():
    request = CheckpointRequest(1)
    assert request.kind is SnapshotKind.CHECKPOINT
    assert not any((request.periodic, request.forced, request.urgent))
    assert not any((request.aligned, request.full, request.drain))
    assert (request.timestamp, request.target) == (0.0, None)


def situation(now=100.0, *, pending=0, last=float("-inf"), triggering=False):
    return Situation(triggering, pending, now, last)


def test_a_request_by_hand_in_the_pause_says_when_to_ask_again():
    decider = CheckpointRequestDecider(min_pause=10)
    decision = decider.submit(CheckpointRequest(1), situation(100, last=94))
    assert (decision.execute, decision.ask_again_in, decision.next_periodic_in) == (None, 4, None)
    assert decider.poll(situation(104, last=94)).execute.number == 1


def test_an_urgent_request_ignores_the_pause_but_not_the_limit():
    decider = CheckpointRequestDecider(max_concurrent=1, min_pause=10)
    urgent = CheckpointRequest(1, urgent=True)
    assert decider.submit(urgent, situation(pending=1, last=99)).execute is None
    assert decider.poll(situation(last=99)).execute is urgent


def test_an_urgent_request_goes_before_others_by_hand_and_after_savepoints():
    decider = CheckpointRequestDecider()
    requests = [
        CheckpointRequest(1),
        CheckpointRequest(2, urgent=True),
        CheckpointRequest(3, SnapshotKind.SAVEPOINT),
        CheckpointRequest(4, periodic=True),
    ]
    for request in requests:
        decider.submit(request, situation(triggering=True))
    assert [request.number for request in decider.queued] == [3, 2, 1, 4]


def test_a_pause_that_is_over_but_for_a_rounding_error_is_over():
    decider = CheckpointRequestDecider(min_pause=0.1)
    decision = decider.submit(CheckpointRequest(1, periodic=True), situation(0.3, last=0.2 + 1e-15))
    assert decision.execute is not None


def test_a_pause_that_lasts_no_longer_than_clocks_can_tell_is_over():
    decider = CheckpointRequestDecider(min_pause=PAUSE_RESOLUTION)
    assert decider.submit(CheckpointRequest(1), situation(0.0, last=0.0)).execute is not None
    longer = CheckpointRequestDecider(min_pause=2 * PAUSE_RESOLUTION)
    assert longer.submit(CheckpointRequest(1), situation(0.0, last=0.0)).execute is None


def test_the_first_in_the_queue_decides_whether_the_limit_holds():
    decider = CheckpointRequestDecider(max_concurrent=1)
    forced = CheckpointRequest(1, SnapshotKind.SAVEPOINT, forced=True)
    for request in (forced, CheckpointRequest(2, periodic=True)):
        decider.submit(request, situation(triggering=True))
    assert decider.poll(situation(pending=1)).execute is forced
    assert decider.poll(situation(pending=1)).execute is None


def test_the_oldest_periodic_request_in_the_pause_is_refused_and_the_timer_waits_for_the_rest():
    decider = CheckpointRequestDecider(min_pause=10)
    older, newer = (CheckpointRequest(number, periodic=True) for number in (1, 2))
    for request in (older, newer):
        decider.submit(request, situation(triggering=True))
    decision = decider.poll(situation(100, last=94))
    assert decision.refused == (RefusedRequest(older, Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS),)
    assert (decision.execute, decision.next_periodic_in) == (None, 4)
    assert decider.queued == (newer,)


def test_by_default_one_checkpoint_runs_at_a_time_and_no_pause_follows_it():
    decider = CheckpointRequestDecider()
    assert decider.submit(CheckpointRequest(1), situation(100, pending=1)).execute is None
    assert decider.poll(situation(100, last=100)).execute.number == 1


def test_the_first_checkpoint_waits_for_nothing():
    decider = CheckpointRequestDecider(min_pause=1e9)
    assert decider.submit(CheckpointRequest(1, periodic=True), situation(0.0)).execute is not None


def test_nothing_waits_any_more_when_everything_was_refused():
    decider = CheckpointRequestDecider(min_pause=10)
    waiting = [CheckpointRequest(1), CheckpointRequest(2)]
    for request in waiting:
        decider.submit(request, situation(triggering=True))
    refused = decider.abort_all(Reason.JOB_FAILURE)
    assert refused == tuple(RefusedRequest(request, Reason.JOB_FAILURE) for request in waiting)
    assert decider.queued == ()


def full_queue(*, periodic: bool) -> CheckpointRequestDecider:
    """A decider as it comes; a thousand requests have come while a checkpoint was being started."""
    decider = CheckpointRequestDecider()
    for number in range(1000):
        request = CheckpointRequest(number, periodic=periodic)
        assert decider.submit(request, situation(triggering=True)).refused == ()
    assert [request.number for request in decider.queued] == list(range(1000))
    return decider


@pytest.mark.parametrize(
    "late",
    [CheckpointRequest(1000), CheckpointRequest(1000, SnapshotKind.SAVEPOINT, forced=True)],
    ids=["checkpoint", "forced savepoint"],
)
def test_a_thousand_requests_by_hand_wait_and_one_more_of_whatever_rank_is_refused(late):
    decider = full_queue(periodic=False)
    waiting = decider.queued
    decision = decider.submit(late, situation(triggering=True))
    assert decision.refused == (RefusedRequest(late, Reason.TOO_MANY_CHECKPOINT_REQUESTS),)
    assert decision.execute is None
    assert decider.queued == waiting
    assert decider.poll(situation()).execute is waiting[0]


def test_the_last_of_a_thousand_periodic_requests_makes_room_for_one_by_hand():
    decider = full_queue(periodic=True)
    *others, last = decider.queued
    by_hand = CheckpointRequest(1000)
    decision = decider.submit(by_hand, situation(triggering=True))
    assert decision.refused == (RefusedRequest(last, Reason.TOO_MANY_CHECKPOINT_REQUESTS),)
    assert decider.queued == (by_hand, *others)


def test_a_periodic_request_behind_a_thousand_others_is_refused_itself():
    decider = full_queue(periodic=True)
    waiting = decider.queued
    late = CheckpointRequest(1000, periodic=True)
    decision = decider.submit(late, situation(triggering=True))
    assert decision.refused == (RefusedRequest(late, Reason.TOO_MANY_CHECKPOINT_REQUESTS),)
    assert decider.queued == waiting
