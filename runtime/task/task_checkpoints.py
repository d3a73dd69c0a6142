"""`TaskCheckpoints`: where every checkpoint enters a subtask.

**The way of a barrier.** It goes one way; no object on it calls one in front of it.

1. `CheckpointedInputGate` takes a barrier out of a channel and hands it to the barrier handler.
2. The `CheckpointBarrierHandler` waits for what its kind waits for: all barriers, or the first one. It owns
   which channels are blocked and which barriers are missing. It asks `WorkInProgress.settle` whether the task
   can take a checkpoint, then notifies step 3. `RequestedCheckpoints` does so for a request of the JobMaster.
3. `TaskCheckpoints`, this object, passes it on and tells the end of the input that state was taken.
4. `SubtaskCheckpointCoordinator` decides whether the checkpoint is taken, and takes it step by step. It owns
   which checkpoints were dealt with, and which are being written.
5. `BarrierSender` sends the barrier through `SubtaskOutputs` and captures what it overtakes. `SubtaskState`
   gives the rest of a batch and the state of the operators. All of this is written beside the task.
6. `CheckpointResponder` takes the acknowledgement when state and in-flight data are durable, or the refusal.

The handler itself captures what waits in the input channels, when step 3 has returned. So the rest of a
batch, which step 5 captures, stands in front of it in its channel.

Completion and abortion come from the JobMaster and take the same way from step 3 on.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.runtime.barrier.handler import ALIGNMENT_ABORTED
from penstock.runtime.checkpoint.subtask.statistics import SubtaskCheckpointStatistics
from penstock.runtime.checkpoint.subtask.subtask_checkpoint_coordinator import SubtaskCheckpointCoordinator
from penstock.runtime.record.elements import CheckpointBarrier
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason
from penstock.runtime.snapshot.metrics import StoredBytes
from penstock.runtime.task.end_of_input import EndOfInput


class TaskCheckpoints:
    """The `CheckpointListener` of the input; driven by the task thread alone.

    Args:
        coordinator: Takes, declines, commits and gives up.
        end: Waits for the completion of a checkpoint that was taken after the end of the data.
        stored: What the input has stored because of the alignment that ends now.
    """

    def __init__(
        self,
        coordinator: SubtaskCheckpointCoordinator,
        end: EndOfInput,
        stored: Callable[[], StoredBytes] = StoredBytes,
    ) -> None:
        self._coordinator = coordinator
        self._end = end
        self._stored = stored
        self._completed_id = -1

    def trigger(self, barrier: CheckpointBarrier, start_delay: float, alignment_duration: float) -> None:
        """The input says that this checkpoint is due.

        Raises:
            OperatorError: An operator failed.
        """
        stored = self._stored()
        if self._coordinator.checkpoint_state(barrier, start_delay, alignment_duration, stored=stored):
            self._end.checkpoint_taken(barrier.checkpoint_id)

    def abort(
        self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str = ALIGNMENT_ABORTED
    ) -> None:
        """The input has given a checkpoint up."""
        self._coordinator.abort_on_barrier(checkpoint_id, reason, detail)

    def take_requested(self, barrier: CheckpointBarrier) -> None:
        """Take a checkpoint that the JobMaster asked for: no channel holds anything of it.

        Raises:
            OperatorError: An operator failed.
        """
        if self._coordinator.checkpoint_state(barrier, is_input_empty=True):
            self._end.checkpoint_taken(barrier.checkpoint_id)

    def has_dealt_with(self, checkpoint_id: int) -> bool:
        """Whether this checkpoint was taken, refused or aborted here."""
        return self._coordinator.has_dealt_with(checkpoint_id)

    def is_past(self, checkpoint_id: int) -> bool:
        """Whether this checkpoint was taken here, or never will be."""
        return self._coordinator.is_past(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """A checkpoint is complete: commit what it covers, and leave if it covers the end.

        A notice that is not newer than the last one does nothing.

        Raises:
            OperatorError: A commit failed.
        """
        if checkpoint_id <= self._completed_id:
            return
        self._completed_id = checkpoint_id
        self._coordinator.notify_checkpoint_complete(checkpoint_id, is_running=not self._end.is_leaving)
        self._end.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """A checkpoint was aborted by the job.

        Raises:
            OperatorError: An operator failed.
        """
        self._coordinator.notify_checkpoint_aborted(checkpoint_id)

    def outputs_progressed(self) -> None:
        """Something may have left the outputs."""
        self._coordinator.outputs_progressed()

    def statistics(self) -> SubtaskCheckpointStatistics:
        """Counters."""
        return self._coordinator.statistics()

    def close(self) -> None:
        """Give up everything that runs beside the task."""
        self._coordinator.close()
