"""Coordinators of users' operators in a job of two regions, of which one fails while the other continues."""

from operators_setup import Run

from penstock.runtime.graph.job_graph import JobVertex, OperatorSpec
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.operators.coordinator_host import CoordinatorHost, EventOfSubtask
from penstock.runtime.operators.coordinators import OperatorCoordinator
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason, CheckpointMetrics
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.ids import SubtaskId

A, B = SubtaskId("a", 0), SubtaskId("b", 0)
CODEC = ValueCodec()


class Spoilt:
    """Can be saved, and not be read any more once the class has changed."""

    has_changed = False

    def __reduce__(self):
        return spoilt, ()


def spoilt():
    if Spoilt.has_changed:
        raise RuntimeError("the class has changed")
    return Spoilt()


class Answers(OperatorCoordinator):
    """Adds events up, answers each with the sum, and says goodbye to a subtask that fails."""

    def __init__(self, owner, context):
        self.owner, self.context, self.sum = owner, context, 0

    def handle_event(self, subtask, event):
        self.sum += event
        self.context.send_event(subtask, self.sum)

    def subtask_failed(self, subtask, reason):
        self.owner.calls.append(("failed", subtask, reason))
        self.context.send_event(subtask, "goodbye")

    def checkpoint(self, checkpoint_id, answer):
        answer.complete((self.sum, self.owner.state))

    def reset_to_checkpoint(self, checkpoint_id, state):
        self.owner.calls.append(("reset", checkpoint_id))
        self.sum = 0 if state is None else state[0]


class Owner:
    """An operator with a coordinator."""

    def __init__(self, state=None):
        self.state, self.calls = state, []

    def coordinator(self, context):
        return Answers(self, context)

    def take(self):
        calls, self.calls = self.calls, []
        return calls


def two_regions(state=None):
    """Two vertices that nothing joins, each a source with an operator of the user's behind it."""
    owners = Owner(state), Owner()
    vertices = tuple(
        JobVertex(
            name,
            (
                OperatorSpec(f"{name}-read", f"{name}-read", None, source=object(), stateful=True),
                OperatorSpec(f"{name}-own", f"{name}-own", None, coordinator=owner, stateful=True),
            ),
            1,
        )
        for name, owner in zip("ab", owners, strict=True)
    )
    run = Run(vertices=vertices).begin()
    for owner in owners:
        owner.take()
    return run, *owners


def tell(run, subtask, number, event):
    """An event of a subtask; returns what its coordinator sends, each with the attempt that it is for."""
    run.cluster.take()
    sent = EventOfSubtask(number, CODEC.dumps(event))
    run.scheduler.on_operator_event(run.scheduler.attempt_of(subtask), subtask, f"{subtask.vertex}-own", sent)
    return sent_events(run)


def sent_events(run):
    return run.events()


def test_the_coordinator_of_the_failed_region_alone_goes_back():
    run, a, b = two_regions()
    assert tell(run, A, 1, 3) == [(1, A, 3)]
    assert tell(run, B, 1, 5) == [(1, B, 5)]
    assert run.checkpoint().checkpoint_id == 1
    assert tell(run, A, 2, 4) == [(1, A, 7)]
    assert tell(run, B, 2, 6) == [(1, B, 11)]
    run.fail(A)
    run.run_attempt()
    assert tell(run, A, 1, 10) == [(2, A, 13)], "it goes on from 3, as its subtask does"
    assert tell(run, B, 3, 10) == [(1, B, 21)], "it has forgotten nothing"
    assert ("reset", 1) in a.take()
    assert b.take() == []


def test_a_coordinator_is_told_of_a_subtask_that_failed_and_reaches_it_no_more():
    run, a, b = two_regions()
    run.checkpoint()
    run.cluster.take()
    run.fail(A)
    assert a.take() == [("failed", 0, "a[0]: killed"), ("reset", 1)]
    assert b.take() == []
    assert sent_events(run) == [], "the goodbye goes to nobody"
    run.run_attempt()
    assert sent_events(run) == [], "nor does the next attempt get it"


def test_a_coordinator_whose_state_can_not_be_read_fails_the_job_by_its_name(monkeypatch):
    run, _, _ = two_regions(Spoilt())
    run.checkpoint()
    monkeypatch.setattr(Spoilt, "has_changed", True)
    run.cluster.take()
    run.fail(A)
    failure = run.scheduler.statistics().failures[-1].root
    assert failure.message.startswith("operator 'a-own': the state of its coordinator can't be read: ")
    assert "the class has changed" in failure.message
    assert not failure.recoverable
    assert ("stop", 2) in run.cluster.take()
    run.cluster.stopped()
    run.runner.run_all()
    assert run.scheduler.state is JobState.FAILED


def test_a_coordinator_that_raises_when_it_goes_back_fails_the_attempt_by_its_name(monkeypatch):
    run, a, _ = two_regions()
    run.checkpoint()

    def broken(self, checkpoint_id, state):
        raise KeyError("limit")

    with monkeypatch.context() as planted:
        planted.setattr(CoordinatorHost, "reset_to_checkpoint", broken)
        run.fail(A)
    failure = run.scheduler.statistics().failures[-1].root
    assert failure.message.startswith(
        "operator 'a-own': the reset of its coordinator to checkpoint 1 failed: KeyError: 'limit'"
    )
    assert failure.traceback
    assert run.scheduler.state is JobState.FAILING
    run.cluster.stopped()
    run.runner.run_all()
    run.timers.advance(2)
    run.runner.run_all()
    run.run_attempt()
    assert run.scheduler.attempt == 3
    assert ("reset", 1) in a.take()


def test_a_cancel_goes_before_a_coordinator_that_can_not_go_back(monkeypatch):
    run, _, _ = two_regions(Spoilt())
    run.checkpoint()
    monkeypatch.setattr(Spoilt, "has_changed", True)
    run.scheduler.on_subtask_failed(1, A, FailureCause("killed", A))
    run.cluster.stopped()
    run.timers.advance(2)
    run.scheduler.cancel()
    run.runner.run_all()
    assert run.scheduler.state is JobState.CANCELLING


def test_a_checkpoint_that_expires_names_the_subtask_whose_events_have_not_come():
    run, _, _ = two_regions()
    run.runner.run_all()
    for number in (1, 2, 4):
        tell(run, A, number, 1)
    run.scheduler.trigger_checkpoint()
    run.runner.run_all()
    for subtask, sent in ((A, 4), (B, 0)):
        snapshot = SubtaskSnapshot(events={f"{subtask.vertex}-own": sent})
        run.scheduler.acknowledge(1, subtask, 1, snapshot, CheckpointMetrics())
    run.timers.advance(600)
    failed = run.scheduler.statistics().checkpoint_history[0]
    assert failed.failure is CheckpointFailureReason.CHECKPOINT_EXPIRED
    assert failed.detail == (
        "not complete after 600 s; it waited for events of a-own[0] for its coordinator (3 of 4 have arrived)"
    )


def test_events_of_a_subtask_that_came_back_are_counted_from_the_first():
    run, _, _ = two_regions()
    run.checkpoint()
    for number in (1, 2):
        tell(run, A, number, 1)
    run.fail(A)
    run.run_attempt()
    tell(run, A, 1, 1)
    run.scheduler.trigger_checkpoint()
    run.runner.run_all()
    for subtask, sent in ((A, 2), (B, 0)):
        snapshot = SubtaskSnapshot(events={f"{subtask.vertex}-own": sent})
        run.scheduler.acknowledge(
            run.scheduler.attempt_of(subtask), subtask, 2, snapshot, CheckpointMetrics()
        )
    run.timers.advance(600)
    failed = run.scheduler.statistics().checkpoint_history[1]
    assert "events of a-own[0] for its coordinator (1 of 2 have arrived)" in failed.detail
