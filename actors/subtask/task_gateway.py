"""Turns what one attempt of a subtask sends into actor calls."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from penstock.actors.subtask.master_link import MasterLink
from penstock.actors.subtask.remote_channels import RemoteChannels
from penstock.runtime.execution.messages import Acknowledged, Declined, EventForCoordinator, ReachedEndOfData
from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.metrics import CheckpointMetrics
from penstock.runtime.snapshot.subtask_id import SubtaskId

logger = logging.getLogger(__name__)

#: Reasons that lie in this process, so that its log is where people look.
_CAUSED_HERE: Final = frozenset(
    {
        CheckpointFailureReason.CHECKPOINT_DECLINED,
        CheckpointFailureReason.CHECKPOINT_DECLINED_ALIGNMENT_LIMIT_EXCEEDED,
        CheckpointFailureReason.CHECKPOINT_DECLINED_ALIGNMENT_NOT_STORED,
    }
)


class ActorGateway:
    """The `SubtaskGateway` of a subtask in an actor; called in the task thread.

    Args:
        subtask: The subtask that calls it.
        consumed: Called with a channel and the number up to which it was consumed.
        master: Sends reports.
    """

    def __init__(self, subtask: SubtaskId, consumed: Callable[[int, int], None], master: MasterLink) -> None:
        self._subtask = subtask
        self._consumed = consumed
        self._master = master
        self.channels: RemoteChannels | None = None

    def send(self, channel: OutputChannelSpec, first_sequence_number: int, elements: list[bytes]) -> None:
        """Deliver a frame.

        Raises:
            RuntimeError: The attempt has not been started, so the receivers are not known.
        """
        if self.channels is None:
            msg = f"{self._subtask} sent a frame before its attempt was started"
            raise RuntimeError(msg)
        self.channels.send(channel, first_sequence_number, elements)

    def consumed(self, channel: int, next_sequence_number: int) -> None:
        """Answer the deliver calls below this number."""
        self._consumed(channel, next_sequence_number)

    def acknowledge(self, checkpoint_id: int, snapshot: SubtaskSnapshot, metrics: CheckpointMetrics) -> None:
        """Tell the JobMaster that this subtask's part is durable."""
        self._master.report(Acknowledged(self._subtask, checkpoint_id, snapshot, metrics))

    def decline(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str) -> None:
        """Tell the JobMaster that this subtask can't take part; the log says so when it is the cause."""
        if reason in _CAUSED_HERE:
            logger.warning("%s gives checkpoint %d up: %s", self._subtask, checkpoint_id, detail)
        self._master.report(Declined(self._subtask, checkpoint_id, reason, detail))

    def operator_event(self, operator_id: str, event: Any) -> None:
        """Send an event to the operator's coordinator, which is in the JobMaster."""
        self._master.report(EventForCoordinator(self._subtask, operator_id, event))

    def end_of_data(self) -> None:
        """Tell the JobMaster that this subtask has processed the end of its input."""
        self._master.report(ReachedEndOfData(self._subtask))
