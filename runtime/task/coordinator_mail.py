"""Events between the operators of a subtask and their coordinators, in order with its checkpoints.

A coordinator takes its part of a checkpoint before the barrier reaches the subtask. An event that it sends
afterwards names the checkpoint that it follows. The event waits here until the subtask has taken its part of
that checkpoint, or will never take it. Right before the subtask takes its part of a newer checkpoint, it
handles all older events, because the coordinator sent them before that checkpoint.

Events are handed over while no operator is in the middle of a call. This holds for sources, too: a source
takes a checkpoint at the next batch boundary, not at the request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from penstock.runtime.errors import CodecError
from penstock.runtime.operators.coordinator_host import EventOfCoordinator, EventOfSubtask
from penstock.runtime.record.value_codec import ValueCodec


class SentEvents:
    """Counter of the events that the operators of a subtask send to their coordinators."""

    def __init__(self, send: Callable[[str, Any], None], codec: ValueCodec) -> None:
        self._send = send
        self._codec = codec
        self._sent: dict[str, int] = {}

    def sender_of(self, operator_id: str, *, is_counted: bool = True) -> Callable[[Any], None]:
        """Return the function that sends an operator's events; the operator has a coordinator.

        Args:
            is_counted: Whether checkpoints hold its events that are in flight. They need no requests of a
                reader, because a restored reader asks again.
        """
        sent = 0
        if is_counted:
            self._sent[operator_id] = 0

        def send(event: Any) -> None:
            nonlocal sent
            try:
                data = self._codec.dumps(event)
            except CodecError as error:
                msg = f"an event can't be sent to the coordinator: {error}"
                raise CodecError(msg) from error
            sent += 1
            if is_counted:
                self._sent[operator_id] = sent
            self._send(operator_id, EventOfSubtask(sent, data))

        return send

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of sent events that checkpoints hold, by operator id."""
        return dict(self._sent)


class CoordinatorMail:
    """Holds events of coordinators until their turn; driven by the task thread alone.

    Attributes:
        waiting: Events whose turn has not come, by operator id; no entry is empty.
    """

    def __init__(self, deliver: Callable[[str, Any], None], codec: ValueCodec) -> None:
        self._deliver = deliver
        self._codec = codec
        self.waiting: dict[str, deque[EventOfCoordinator]] = {}

    def receive(self, operator_id: str, event: EventOfCoordinator) -> None:
        self.waiting.setdefault(operator_id, deque()).append(event)

    def deliver_due(self, is_past: Callable[[int], bool]) -> bool:
        """Hand over events that wait for no checkpoint; return whether there were any.

        Args:
            is_past: Returns whether a checkpoint was taken here or never will be.

        Raises:
            CodecError: An event can't be decoded.
        """
        return self._deliver_where(lambda event: event.after < 0 or is_past(event.after))

    def deliver_before(self, checkpoint_id: int) -> None:
        """Hand over the events that were sent before a checkpoint, right before it is taken.

        Raises:
            CodecError: An event can't be decoded.
        """
        self._deliver_where(lambda event: event.after < checkpoint_id)

    def close(self) -> None:
        self.waiting.clear()

    def _deliver_where(self, is_due: Callable[[EventOfCoordinator], bool]) -> bool:
        found = False
        for operator_id, events in list(self.waiting.items()):
            while events and is_due(events[0]):
                found = True
                self._deliver(operator_id, self._decoded(operator_id, events.popleft()))
            if not events:
                self.waiting.pop(operator_id, None)
        return found

    def _decoded(self, operator_id: str, event: EventOfCoordinator) -> Any:
        try:
            return self._codec.loads(event.data)
        except CodecError as error:
            msg = (
                f"an event of the coordinator of operator {operator_id!r} can't be read: {error}. Send plain "
                "values, or objects of classes that every node can import"
            )
            raise CodecError(msg) from error
