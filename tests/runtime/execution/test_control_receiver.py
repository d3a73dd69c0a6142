"""What a message of the JobMaster does to a subtask, once or twice."""

from __future__ import annotations

from typing import Any

from penstock.runtime.execution.deliveries import ControlReceiver
from penstock.runtime.execution.messages import (
    EventForOperator,
    NotifyAborted,
    NotifyComplete,
    SubtaskControl,
    TriggerCheckpoint,
)
from penstock.runtime.record.elements import CheckpointBarrier


class Noting:
    """A subtask that notes what is done to it."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append((name, *arguments))


def after(*messages: SubtaskControl) -> list[tuple[Any, ...]]:
    subtask: Any = Noting()
    receiver = ControlReceiver(lambda act: act(subtask))
    for message in messages:
        receiver.receive(message)
    return list(subtask.calls)


def test_each_message_reaches_the_part_of_the_subtask_that_it_is_for() -> None:
    barrier = CheckpointBarrier(1, 0)
    assert after(
        TriggerCheckpoint(barrier), NotifyComplete(1), NotifyAborted(2), EventForOperator("read", 1, "split")
    ) == [
        ("trigger_checkpoint", barrier),
        ("notify_checkpoint_complete", 1),
        ("notify_checkpoint_aborted", 2),
        ("operator_event", "read", "split"),
    ]


def test_an_event_that_comes_twice_or_late_is_taken_once() -> None:
    events = [EventForOperator("read", number, number) for number in (1, 2, 2, 1, 3)]
    assert [call[-1] for call in after(*events)] == [1, 2, 3]
