"""The effect of a JobMaster's message on a subtask, once or twice."""

from __future__ import annotations

from checkpoint_graphs import MakeSubtask, barrier, listed, sinking
from subtask_setup import Log, rows
from test_coordinator_mail import CODEC, hearing

from penstock.runtime.operators.coordinator_host import EventOfCoordinator
from penstock.runtime.record.elements import CancelCheckpointMarker, EndOfPartition
from penstock.runtime.task.descriptor import (
    EventForOperator,
    NotifyAborted,
    NotifyComplete,
    TriggerCheckpoint,
)


def test_a_trigger_takes_a_checkpoint_once(make_subtask: MakeSubtask, log: Log) -> None:
    task = make_subtask(sinking(log), "sink")
    task.deliver(EndOfPartition())
    for _ in range(2):
        task.subtask.control(TriggerCheckpoint(barrier(1)))
        task.run()
    task.upload()
    assert list(task.acknowledged) == [1]


def test_a_completed_checkpoint_is_committed_once(make_subtask: MakeSubtask, log: Log) -> None:
    task = make_subtask(sinking(log), "sink")
    task.deliver(rows("a"), barrier(1))
    task.run()
    task.upload()
    for _ in range(2):
        task.subtask.control(NotifyComplete(1))
    assert [call for call in log.calls if call[0] == "commit"] == [("commit", [["a"]], 1)]


def test_a_checkpoint_that_was_aborted_is_not_taken(make_subtask: MakeSubtask) -> None:
    task = make_subtask(hearing(), "hears")
    for _ in range(2):
        task.subtask.control(NotifyAborted(1))
    task.deliver(barrier(1))
    task.run()
    task.upload()
    assert task.acknowledged == {}
    assert CancelCheckpointMarker(1) in task.events()


def test_an_event_that_comes_twice_or_late_is_taken_once(make_subtask: MakeSubtask) -> None:
    task = make_subtask(hearing(), "hears")
    for number in (1, 2, 2, 1, 3):
        event = EventOfCoordinator(-1, CODEC.dumps(number))
        task.subtask.control(EventForOperator("hears", number, event))
    task.deliver(barrier(1))
    task.run()
    task.upload()
    assert listed(task.acknowledged[1].operators["hears"], "heard") == [1, 2, 3]
