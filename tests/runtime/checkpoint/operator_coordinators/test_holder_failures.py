"""A coordinator that fails, answers twice or late, and what is on its way when its attempt ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manual_work import ManualAsyncRunner

from penstock.runtime.checkpoint.operator_coordinators.holder import OperatorCoordinatorHolder
from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.coordinators import MissingEvents


class Coordinator:
    """Records events (`RecordsEvents`); answers when told to, or raises."""

    def __init__(self):
        self.error, self.answers, self.told = None, [], []

    def checkpoint(self, checkpoint_id, answer):
        if self.error is not None:
            raise self.error
        self.answers.append(answer)

    def subtask_acknowledged(self, checkpoint_id, subtask, events):
        self.told.append((checkpoint_id, subtask, events))

    def missing_events(self, checkpoint_id):
        return (MissingEvents(1, 1, 2),)

    def recorded_state(self, checkpoint_id):
        return b"recorded"

    def handle_event(self, subtask, event):
        pass

    def reset_to_checkpoint(self, checkpoint_id, state):
        pass

    def subtask_failed(self, subtask, reason):
        pass

    def notify_checkpoint_complete(self, checkpoint_id):
        pass

    def notify_checkpoint_aborted(self, checkpoint_id):
        pass

    def close(self):
        pass


class World:
    def __init__(self, parallelism=3):
        self.coordinator, self.runner = Coordinator(), ManualAsyncRunner()
        self.on_way, self.said, self.failures = [], [], []
        self.holder = OperatorCoordinatorHolder(
            "read", lambda: parallelism, lambda _: self.coordinator, self, self.runner, self.failures.append
        )

    def send(self, subtask, event, answer):
        self.on_way.append((subtask, event, answer))

    def checkpoint(self, checkpoint_id):
        self.holder.checkpoint(checkpoint_id, self.said.append, self.said.append)


@pytest.mark.parametrize("error", [ValueError("a bug of the user"), PenstockError("it says where it was")])
def test_a_coordinator_that_raises_fails_its_checkpoint_and_the_job(error):
    world = World()
    world.coordinator.error = error
    world.checkpoint(1)
    assert world.said == [error]
    [failure] = world.failures
    if isinstance(error, PenstockError):
        assert failure is error
    else:
        assert failure == "the coordinator of operator 'read': checkpoint 1: ValueError: a bug of the user"
    world.coordinator.error = None
    world.holder.abort_current_triggering()
    world.checkpoint(2)
    world.coordinator.answers[0].complete(b"state")
    assert world.said[1:] == [b"state"], "the next one has its turn"


def test_only_the_first_answer_of_a_coordinator_counts():
    for first, second in (("complete", "fail"), ("fail", "complete")):
        world, late = World(), {"complete": b"late", "fail": OSError("late")}
        world.checkpoint(1)
        [answer] = world.coordinator.answers
        values = {"complete": b"first", "fail": OSError("first")}
        getattr(answer, first)(values[first])
        getattr(answer, second)(late[second])
        getattr(answer, first)(late[first])
        assert world.said == [values[first]]


def test_a_failed_snapshot_is_not_finished_when_events_arrive():
    world = World()
    world.holder.send_event(0, "before")
    world.checkpoint(1)
    world.coordinator.answers[0].fail(OSError("no state"))
    world.holder.abort_current_triggering()
    world.on_way[0][2].sent()
    assert [type(each) for each in world.said] == [OSError]


def test_a_snapshot_is_not_finished_before_its_coordinator_has_given_it():
    world = World()
    world.holder.send_event(0, "before")
    world.checkpoint(1)
    world.on_way[0][2].sent()
    assert world.said == [], "the coordinator has given no state"
    world.coordinator.answers[0].complete(b"state")
    assert world.said == [b"state"]


@pytest.mark.parametrize("ends", ["a reset", "an abort", "a close"])
def test_a_snapshot_that_waits_for_events_is_over_with_its_start(ends):
    world = World()
    world.holder.send_event(0, "before")
    world.checkpoint(1)
    world.coordinator.answers[0].complete(b"state")
    assert world.said == [], "an event is on its way"
    if ends == "a reset":
        world.holder.reset_to_checkpoint(None, None)
    elif ends == "an abort":
        world.holder.abort_current_triggering()
    else:
        world.holder.close()
    world.on_way[0][2].sent()
    assert world.said == []
    assert not world.holder.is_shut


@given(st.integers(0, 2), st.lists(st.integers(0, 2), max_size=5))
def test_a_snapshot_waits_for_the_events_of_living_subtasks_alone(gone, sent):
    world = World()
    for subtask in sent:
        world.holder.send_event(subtask, "before")
    world.holder.subtask_failed(gone, "it died")
    world.checkpoint(1)
    world.coordinator.answers[0].complete(b"state")
    living = [answer for subtask, _, answer in world.on_way if subtask != gone]
    for answer in living:
        assert world.said == []
        answer.sent()
    assert world.said == [b"state"]


@pytest.mark.parametrize("subtask", [-1, 3, 4])
def test_there_is_no_subtask_beyond_the_parallelism(subtask):
    with pytest.raises(ValueError, match=f"has no subtask {subtask}: its parallelism is 3"):
        World().holder.send_event(subtask, "hello")


@pytest.mark.parametrize("resets", [0, 1, 2])
def test_background_work_of_an_earlier_attempt_is_not_heard_of(resets):
    world, heard = World(), []

    def fail():
        raise OSError("no answer")

    for _ in range(2):
        world.holder.reset_to_checkpoint(None, None)
    world.holder.run_in_background(lambda: "done", heard.append, heard.append)
    world.holder.run_in_background(fail, heard.append, lambda error: heard.append(str(error)))
    for _ in range(resets):
        world.holder.reset_to_checkpoint(None, None)
    world.runner.run_all()
    assert heard == ([] if resets else ["done", "no answer"])


def test_missing_events_and_their_record_come_from_the_coordinator():
    world = World()
    world.holder.subtask_acknowledged(4, 1, 2)
    assert world.coordinator.told == [(4, 1, 2)]
    assert world.holder.missing_events(4) == (MissingEvents(1, 1, 2),)
    assert world.holder.recorded_state(4) == b"recorded"


def test_a_valve_is_marked_in_order():
    world = World()
    for event in ("one", "two"):
        world.holder.send_event(0, event)
    world.checkpoint(5)
    for later in (4, 6):
        world.checkpoint(later)
        assert "marked for checkpoint 5 and can't be marked for" in str(world.said[-1])


@pytest.mark.parametrize("how", ["complete", "fail"])
def test_a_late_answer_for_a_start_that_was_given_up_leaves_the_next_one_alone(how):
    world = World()
    world.checkpoint(1)
    world.holder.abort_current_triggering()
    world.checkpoint(2)
    late, answer = world.coordinator.answers
    getattr(late, how)(b"late" if how == "complete" else OSError("late"))
    assert [str(each) for each in world.said] == [
        "the valve can't be shut for checkpoint 1: it is marked for checkpoint 2"
        if how == "complete"
        else "late"
    ]
    answer.complete(b"state")
    assert world.said[1:] == [b"state"]


def test_a_start_beside_another_one_is_refused_and_leaves_that_one_alone():
    world = World()
    world.checkpoint(5)
    world.checkpoint(6)
    world.coordinator.answers[0].complete(b"state")
    assert [type(each) for each in world.said] == [RuntimeError, bytes]


def test_a_finished_snapshot_is_told_once_whatever_arrives_later():
    world = World()
    world.checkpoint(1)
    answer = world.coordinator.answers[0]
    answer.complete(b"state")
    world.holder.after_barrier_injection(1)
    world.holder.send_event(0, "behind")
    world.on_way[0][2].sent()
    assert world.said == [b"state"]


def test_a_coordinator_that_fails_twice_is_heard_once():
    world = World()
    world.checkpoint(1)
    for error in ("first", "late"):
        world.coordinator.answers[0].fail(OSError(error))
    assert [str(each) for each in world.said] == ["first"]


def test_nothing_of_an_earlier_attempt_holds_up_the_next_checkpoint():
    world = World()
    world.holder.send_event(0, "lost with its subtask")
    world.checkpoint(1)
    world.coordinator.answers[0].complete(b"old")
    world.holder.reset_to_checkpoint(None, None)
    world.holder.send_event(0, "new")
    world.on_way[1][2].sent()
    assert world.said == [], "the old snapshot is nobody's"
    world.checkpoint(2)
    world.coordinator.answers[1].complete(b"new")
    assert world.said == [b"new"]
