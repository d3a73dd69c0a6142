"""The port of a subtask to the network and the JobMaster."""

from __future__ import annotations

from typing import Any, Protocol

from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.metrics import CheckpointMetrics


class SubtaskGateway(Protocol):
    """What a subtask sends. No call blocks; every call is made by the task thread."""

    def send(self, channel: OutputChannelSpec, first_sequence_number: int, elements: list[bytes]) -> None:
        """Deliver a frame.

        `Subtask.frame_consumed` is called when the receiver has consumed it, and `Subtask.receiver_gone` when
        the receiver is gone or has moved on.
        """
        ...

    def consumed(self, channel: int, next_sequence_number: int) -> None:
        """Everything below this number on an input channel is consumed: answer those deliveries."""
        ...

    def acknowledge(self, checkpoint_id: int, snapshot: SubtaskSnapshot, metrics: CheckpointMetrics) -> None:
        """This subtask's part of a checkpoint is durable."""
        ...

    def decline(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str) -> None:
        """This subtask can't take part in a checkpoint."""
        ...

    def operator_event(self, operator_id: str, event: Any) -> None:
        """Tell the operator's coordinator something."""
        ...

    def end_of_data(self) -> None:
        """This subtask has processed the end of all its inputs."""
        ...
