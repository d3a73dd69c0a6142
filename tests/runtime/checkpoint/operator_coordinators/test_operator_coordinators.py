"""Operator coordinators around a checkpoint; Flink's own cases of the valve are in `tests/conformance`."""

from __future__ import annotations

import pytest
from manual_work import ManualAsyncRunner

from penstock.runtime.checkpoint.operator_coordinators.holder import (
    EventDiscardedError,
    OperatorCoordinatorHolder,
)
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers


class SlowSender:
    """Sends when told to."""

    def __init__(self):
        self.under_way = []

    def send(self, subtask, event, answer):
        self.under_way.append((subtask, event, answer))

    def arrive(self):
        subtask, event, answer = self.under_way.pop(0)
        answer.sent()
        return subtask, event


class Coordinator:
    """Remembers its calls; gives its snapshot on request."""

    def __init__(self, context):
        self.context = context
        self.told = []
        self.answer = None

    def __getattr__(self, name):
        return lambda *args: self.told.append((name, *args))

    def checkpoint(self, checkpoint_id, answer):
        self.answer = answer

    def handle_event(self, subtask, event):
        raise ValueError(f"what is {event}?")


class Run:
    def __init__(self, parallelism=2):
        self.sender, self.runner, self.failures = SlowSender(), ManualAsyncRunner(), []
        self.results = []
        self.holder = OperatorCoordinatorHolder(
            "read", lambda: parallelism, self.make, self.sender, self.runner, self.failures.append
        )

    def make(self, context):
        self.coordinator = Coordinator(context)
        return self.coordinator

    def checkpoint(self, checkpoint_id):
        self.holder.checkpoint(checkpoint_id, self.results.append, self.results.append)


def test_a_snapshot_counts_only_when_every_event_before_it_has_arrived():
    run = Run()
    run.holder.send_event(0, "a")
    run.holder.send_event(1, "b")
    run.checkpoint(1)
    run.coordinator.answer.complete(b"state")
    assert run.results == []
    assert run.sender.arrive() == (0, "a")
    assert run.results == []
    assert run.sender.arrive() == (1, "b")
    assert run.results == [b"state"]


def test_events_behind_the_snapshot_do_not_hold_it_up_and_go_out_behind_the_barriers():
    run = Run()
    run.checkpoint(1)
    run.coordinator.answer.complete(b"state")
    run.holder.send_event(0, "later")
    assert run.results == [b"state"]
    assert run.sender.under_way == []
    run.holder.after_barrier_injection(1)
    assert run.sender.arrive() == (0, "later")


def test_a_snapshot_that_comes_after_its_start_was_given_up_fails_and_shuts_nothing():
    run = Run()
    run.checkpoint(1)
    run.holder.abort_current_triggering()
    run.coordinator.answer.complete(b"state")
    [error] = run.results
    assert "marked for nothing" in str(error)
    assert not run.holder.is_shut


def test_only_the_first_answer_of_a_coordinator_counts():
    run = Run()
    run.checkpoint(1)
    run.coordinator.answer.complete(b"state")
    run.coordinator.answer.fail(RuntimeError("changed its mind"))
    assert run.results == [b"state"]


def test_after_a_restore_nobody_hears_of_events_and_work_from_before():
    run, heard = Run(), []
    run.checkpoint(1)
    run.holder.send_event(0, "a")
    run.holder.run_in_background(lambda: "listing", heard.append, heard.append)
    run.coordinator.answer.complete(b"state")
    run.holder.reset_to_checkpoint(None, None)
    run.sender.arrive()
    run.runner.run_all()
    assert run.results == []
    assert heard == []
    assert run.coordinator.told == [("reset_to_checkpoint", None, None)]


def test_a_failed_subtask_loses_what_waits_for_it_and_the_others_do_not():
    class Answer:
        error = None

        def sent(self):
            raise AssertionError("it was dropped")

        def failed(self, error):
            self.error = error

    run, answer = Run(), Answer()
    run.checkpoint(1)
    run.coordinator.answer.complete(None)
    run.holder.send_event(0, "lost", answer)
    run.holder.send_event(1, "kept")
    run.holder.subtask_failed(0, "killed")
    assert isinstance(answer.error, EventDiscardedError)
    run.holder.after_barrier_injection(1)
    assert run.sender.arrive() == (1, "kept")
    assert run.sender.under_way == []


def test_a_snapshot_does_not_wait_for_events_to_a_subtask_that_is_gone():
    run = Run()
    run.holder.send_event(0, "given back")
    run.holder.send_event(1, "b")
    run.holder.subtask_failed(0, "killed")
    run.checkpoint(1)
    run.coordinator.answer.complete(b"state")
    assert run.sender.under_way.pop(0)[:2] == (0, "given back")
    assert run.results == []
    assert run.sender.arrive() == (1, "b")
    assert run.results == [b"state"]


def test_a_coordinator_that_fails_over_an_event_fails_the_job_and_is_named():
    run = Run()
    run.holder.handle_event(0, "gibberish")
    assert run.failures == ["the coordinator of operator 'read': ValueError: what is gibberish?"]


def test_there_is_no_subtask_beyond_the_parallelism():
    with pytest.raises(ValueError, match="has no subtask 2: its parallelism is 2"):
        Run().holder.send_event(2, "a")


@pytest.mark.parametrize("outcome", ["result", "error"])
def test_a_callback_of_background_work_that_raises_fails_the_job_by_the_coordinators_name(outcome):
    def work():
        if outcome == "error":
            raise OSError("no answer")

    def callback(_):
        raise RuntimeError("a bug in the callback")

    run = Run()
    run.holder.run_in_background(work, callback, callback)
    run.runner.run_all()
    assert run.failures == ["the coordinator of operator 'read': RuntimeError: a bug in the callback"]


def test_a_coordinator_whose_close_raises_fails_the_job_by_its_name():
    class Unclosable(Coordinator):
        def close(self):
            raise OSError("still open")

    failures = []
    holder = OperatorCoordinatorHolder(
        "read", lambda: 1, Unclosable, SlowSender(), ManualAsyncRunner(), failures.append
    )
    holder.close()
    assert failures == ["the coordinator of operator 'read': OSError: still open"]


def test_a_call_that_is_due_after_a_reset_is_dropped():
    called, timers = [], ManualTimers(ManualClock())
    holder = OperatorCoordinatorHolder(
        "read", lambda: 1, Coordinator, SlowSender(), ManualAsyncRunner(), called.append, timers
    )
    holder.call_later(5, lambda: called.append("before"))
    timers.advance(5)
    holder.call_later(5, lambda: called.append("after"))
    holder.reset_to_checkpoint(None, None)
    timers.advance(5)
    assert called == ["before"]
