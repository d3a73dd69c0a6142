"""`StepTask`: one subtask with what an actor has around it, standing still until it is moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.ports import Clock, SnapshotStorage, StorageOpener
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.metrics import CheckpointMetrics
from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.task.build import build_subtask
from penstock.runtime.task.descriptor import TaskDescriptor
from penstock.runtime.task.subtask import StepResult
from penstock.runtime.testing.step_network import StepNetwork
from penstock.runtime.testing.two_step_runner import TwoStepRunner

T = TypeVar("T")


class StepMaster(Protocol):
    """What subtasks report to."""

    def acknowledge(self, subtask: SubtaskId, checkpoint_id: int, snapshot: SubtaskSnapshot) -> None:
        """A subtask's part of a checkpoint is durable."""
        ...

    def decline(self, subtask: SubtaskId, checkpoint_id: int, reason: CheckpointFailureReason) -> None:
        """A subtask can't take part."""
        ...


class StepEvents(Protocol):
    """Where the events of subtasks for coordinators go."""

    def event_of(self, subtask: SubtaskId, operator_id: str, event: Any) -> None:
        """A subtask sends something."""
        ...


class StepTask:
    """Builds and steps one subtask; it is the subtask's gateway.

    Args:
        descriptor: What to run.
        network: Where frames go.
        master: Where reports go.
        clock: Time.
        storage: The checkpoint storage.
        open_location: Opens places of snapshots that are not in `storage`.
        events: Where events for coordinators go.

    Raises:
        OperatorError: The subtask could not be built.

    Attributes:
        id: The subtask.
        subtask: The subtask itself.
        runner: Its asynchronous work.
        mail: Messages of the job that are on their way to it.
        has_ended: Whether it has reported the end of its data.
        is_finished: Whether it has left.
    """

    def __init__(
        self,
        descriptor: TaskDescriptor,
        network: StepNetwork,
        master: StepMaster,
        clock: Clock,
        storage: SnapshotStorage | None,
        open_location: StorageOpener | None = None,
        events: StepEvents | None = None,
    ) -> None:
        self.id = descriptor.id
        self._events = events
        self._network = network
        self._master = master
        self._clock = clock
        self.runner = TwoStepRunner()
        self.mail: list[Callable[[], None]] = []
        self.has_ended = False
        self.is_finished = False
        self._woken = True
        self._result = StepResult(more=True)
        self.subtask = build_subtask(descriptor, self, self.runner, clock, storage, open_location)

    @property
    def wake_at(self) -> float | None:
        """When it wants to be stepped although nothing happens."""
        return self._result.wake_at

    @property
    def is_due(self) -> bool:
        """Whether an actor would step it now: more to do, something happened, or its time has come."""
        wake_at = self._result.wake_at
        due = wake_at is not None and wake_at <= self._clock.monotonic()
        return not self.is_finished and (self._woken or self._result.more or due)

    def step(self) -> None:
        """Do one step.

        Raises:
            OperatorError: An operator failed.
        """
        self._woken = False
        self._result = self.subtask.step()
        if self._result.finished:
            self.is_finished = True
            self.mail.clear()
            self.subtask.close()

    def receive(self, something: Callable[[], None]) -> None:
        """Something from outside reaches the subtask, unless it has left."""
        if not self.is_finished:
            self._woken = True
            something()

    def do_work(self, index: int) -> None:
        """Do one of the runner's waiting pieces of work."""
        self.runner.do(index)

    def tell_outcome(self, index: int) -> None:
        """Tell the subtask the outcome of work that is done."""
        self.receive(self.runner.done.pop(index).tell)

    # -- the gateway --------------------------------------------------------------------------------------

    def send(self, channel: OutputChannelSpec, first_sequence_number: int, elements: list[bytes]) -> None:
        """Put a frame on its way."""
        self._network.send(self.id, channel, first_sequence_number, elements)

    def consumed(self, channel: int, next_sequence_number: int) -> None:
        """Answer frames."""
        self._network.consumed(self.id, channel, next_sequence_number)

    def acknowledge(self, checkpoint_id: int, snapshot: SubtaskSnapshot, metrics: CheckpointMetrics) -> None:
        """Report."""
        self._master.acknowledge(self.id, checkpoint_id, snapshot)

    def decline(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str) -> None:
        """Report."""
        self._master.decline(self.id, checkpoint_id, reason)

    def operator_event(self, operator_id: str, event: Any) -> None:
        """Put an event on its way."""
        assert self._events is not None, f"{self.id} has no coordinator to talk with"
        self._events.event_of(self.id, operator_id, event)

    def end_of_data(self) -> None:
        """Remember."""
        self.has_ended = True
