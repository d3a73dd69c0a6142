"""All operator coordinators of a job: each hears what is meant for it, and all hear what is meant for all."""

from __future__ import annotations

import pytest
from manual_work import ManualAsyncRunner

from penstock.runtime.checkpoint.operator_coordinators.holder import OperatorCoordinatorHolder
from penstock.runtime.checkpoint.operator_coordinators.operator_coordinators import (
    OperatorCoordinators,
    UnmatchedCoordinatorStateError,
)
from penstock.runtime.errors import StorageError
from penstock.runtime.operators.coordinators import MissingEvents
from penstock.runtime.snapshot.handles import FileHandle, InlineHandle, OperatorState


class Coordinator:
    """Remembers its calls."""

    def __init__(self, context):
        self.context, self.told = context, []

    def checkpoint(self, checkpoint_id, answer):
        answer.complete(b"now")

    def __getattr__(self, name):
        if name in ("missing_events", "recorded_state"):  # it records no events
            raise AttributeError(name)
        return lambda *args: self.told.append((name, *args))


class World:
    """Two operators with coordinators, `a` and `b`."""

    def __init__(self):
        self.known, self.parallelism = {}, 2
        self.holders = OperatorCoordinators(
            OperatorCoordinatorHolder(
                name, lambda: self.parallelism, self.maker(name), self, ManualAsyncRunner(), self.fail
            )
            for name in ("a", "b")
        )

    def maker(self, name):
        def make(context):
            self.known[name] = Coordinator(context)
            return self.known[name]

        return make

    def send(self, subtask, event, answer):
        answer.sent()

    def fail(self, cause):
        raise AssertionError(cause)

    def take(self, name):
        told = list(self.known[name].told)
        self.known[name].told.clear()
        return told


def state_of(handle):
    return OperatorState("an operator", 2, 128, coordinator=handle)


def test_what_concerns_one_operator_reaches_its_coordinator_alone():
    world, came = World(), []
    world.holders.when_event_came(lambda: came.append("an event"))
    assert world.holders.handle_event("a", 1, "hello")
    assert not world.holders.handle_event("stateless", 1, "hello")
    assert came == ["an event"]
    world.holders.subtask_failed("a", 1, "it died")
    world.holders.subtask_reset("a", 1, 3)
    world.holders.subtask_failed("stateless", 1, "it died")
    world.holders.subtask_reset("stateless", 1, 3)
    assert world.take("a") == [
        ("handle_event", 1, "hello"),
        ("subtask_failed", 1, "it died"),
        ("subtask_reset", 1, 3),
    ]
    world.parallelism = 5
    assert [each.context.parallelism for each in world.known.values()] == [5, 5]
    world.holders.reset_operator("b", 3, {"b": state_of(InlineHandle(b"kept"))})
    assert world.take("b") == [("reset_to_checkpoint", 3, b"kept"), ("start",)]
    assert world.take("a") == []


def test_events_that_a_checkpoint_waits_for_are_named():
    world = World()
    assert world.holders.have_all_events(4)
    world.known["b"].missing_events = lambda checkpoint_id: (MissingEvents(1, checkpoint_id, 7),)
    world.known["b"].recorded_state = lambda checkpoint_id: None
    assert not world.holders.have_all_events(4)
    assert world.holders.missing_events(4) == ("events of b[1] for its coordinator (4 of 7 have arrived)",)


def test_all_start_hear_of_checkpoints_and_are_closed_once():
    world = World()
    world.holders.start()
    world.holders.notify_checkpoint_complete(4)
    world.holders.notify_checkpoint_aborted(5)
    world.holders.close()
    world.holders.close()
    expected = [("start",), ("notify_checkpoint_complete", 4), ("notify_checkpoint_aborted", 5), ("close",)]
    assert world.take("a") == world.take("b") == expected
    assert world.holders.operator_ids == ()


def test_each_is_reset_to_its_own_state_or_to_nothing():
    world = World()
    states = {"a": state_of(InlineHandle(b"kept")), "other": state_of(None)}
    world.holders.reset_to_checkpoint(7, states)
    assert world.take("a") == [("reset_to_checkpoint", 7, b"kept")]
    assert world.take("b") == [("reset_to_checkpoint", None, None)], "the checkpoint does not know it"
    world.holders.reset_to_checkpoint(7, {"a": state_of(None)})
    assert world.take("a") == [("reset_to_checkpoint", 7, None)]


def test_state_without_a_coordinator_is_refused_before_anything_is_reset():
    world = World()
    states = {"gone": state_of(InlineHandle(b"kept")), "a": state_of(InlineHandle(b"kept"))}
    with pytest.raises(UnmatchedCoordinatorStateError, match=r"7 holds coordinators' .*: gone\."):
        world.holders.reset_to_checkpoint(7, states)
    assert world.take("a") == []
    world.holders.reset_to_checkpoint(7, states, allow_non_restored=True)
    assert world.take("a") == [("reset_to_checkpoint", 7, b"kept")]


def test_state_that_is_not_in_the_metadata_is_refused():
    world = World()
    with pytest.raises(StorageError, match="coordinator of 'a' is not in the checkpoint's metadata"):
        world.holders.reset_to_checkpoint(7, {"a": state_of(FileHandle("chk-7/a", 1, ""))})


def test_valves_of_all_are_shut_from_the_answer_to_the_barriers():
    world, states = World(), []
    for name in ("a", "b"):
        world.holders.checkpoint(name, 1, states.append, world.fail)
    assert states == [InlineHandle(b"now")] * 2
    sent = []
    for each in world.known.values():
        each.context.send_event(0, "later", Answer(sent))
    assert sent == []
    world.holders.after_barrier_injection(1)
    assert sent == ["sent"] * 2
    for name in ("a", "b"):
        world.holders.checkpoint(name, 2, states.append, world.fail)
        world.known[name].context.send_event(1, "later", Answer(sent))
    world.holders.abort_current_triggering()
    assert sent == ["sent"] * 4


class Answer:
    def __init__(self, said):
        self.said = said

    def sent(self):
        self.said.append("sent")

    def failed(self, error):
        self.said.append(error)
