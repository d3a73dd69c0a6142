"""`RequestedCheckpoints`: checkpoints that the JobMaster requests of a subtask.

**The way of a barrier.** Calls go in one direction; no step calls an earlier one.

1. `CheckpointedInputGate` takes a barrier out of a channel and hands it to the barrier handler.
2. The `CheckpointBarrierHandler` waits for all barriers, or for the first one, by its kind. It keeps the
   blocked channels and the missing barriers. It asks `WorkInProgress.settle` whether the task can take a
   checkpoint, then notifies step 3. `RequestedCheckpoints` does so for a request of the JobMaster.
3. `SubtaskCheckpointCoordinator` decides whether the checkpoint is taken, and takes it step by step. It keeps
   the handled checkpoints, and those that are being written.
4. `BarrierSender` sends the barrier through `SubtaskOutputs` and captures what it overtakes. `SubtaskState`
   provides the rest of a batch and the state of the operators. All of this is written beside the task.
5. `CheckpointResponder` takes the acknowledgement when state and in-flight data are durable, or the refusal.

The handler itself captures the data in the input channels, after step 3 has returned. So the rest of a batch,
which step 4 captures, precedes that data in its channel.

Completion and abortion come from the JobMaster and take the same way from step 3 on.

**Requests** go only to subtasks that receive no barriers: sources, and subtasks all of whose senders have
left. A request waits here until its checkpoint can be taken:

* A source takes the checkpoint between two batches. If its barrier may overtake, the rest of a batch is
  processed first.
* A source whose reader decides the moment of a checkpoint (by a *mark* in its data) waits for that mark. The
  mark of a checkpoint that was aborted or has ended stops no reader, whether the reader meets it before the
  notice or after. Neither does the mark of a checkpoint from before a restart, which a reader may meet again.
  A reader with an awaited mark reads up to it, even if it is far ahead of its alignment group.
* A subtask with channels waits until they have ended. If the barrier comes after all, the request is dropped.
* A stop with a savepoint waits for the end of the data, so that nothing follows the barrier.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from penstock.runtime.checkpoint.subtask_checkpoint_coordinator import (
    MAX_RECORDED_ABORTED,
    SubtaskCheckpointCoordinator,
)
from penstock.runtime.operators.sources.source import SourceOperator
from penstock.runtime.record.elements import CheckpointBarrier, SnapshotKind
from penstock.runtime.task.end_of_input import EndOfInput
from penstock.runtime.task.task_input import NetworkInput
from penstock.runtime.task.work_in_progress import WorkInProgress


class RequestedCheckpoints:
    """Requests that have not been handled yet; driven by the task thread alone.

    Args:
        given_id: Highest checkpoint id assigned before this attempt.
    """

    def __init__(
        self,
        checkpoints: SubtaskCheckpointCoordinator,
        work: WorkInProgress,
        end: EndOfInput,
        source: SourceOperator | None,
        network: NetworkInput | None,
        given_id: int = -1,
    ) -> None:
        self._checkpoints = checkpoints
        self._given_id = given_id
        self._work = work
        self._end = end
        self._source = source
        self._network = network
        self._waiting: deque[CheckpointBarrier] = deque()
        #: Aborted checkpoints whose marks may still come.
        self._aborted: deque[int] = deque(maxlen=MAX_RECORDED_ABORTED)

    @property
    def waiting(self) -> Sequence[CheckpointBarrier]:
        """Requests that have not been handled yet, oldest first; always the same object."""
        return self._waiting

    def add(self, barrier: CheckpointBarrier) -> None:
        """Add a request of the JobMaster, which `take_due` handles.

        A repeated request counts once. It may arrive late, after the request for a newer checkpoint.
        """
        checkpoint_id = barrier.checkpoint_id
        is_past = checkpoint_id in self._aborted or self._checkpoints.has_dealt_with(checkpoint_id)
        if barrier not in self._waiting and not is_past:
            self._waiting.append(barrier)

    def forget_past(self) -> None:
        if not self._waiting:
            return
        for barrier in [b for b in self._waiting if self._checkpoints.has_dealt_with(b.checkpoint_id)]:
            self._waiting.remove(barrier)

    def forget_aborted(self, checkpoint_id: int) -> None:
        """Forget an aborted checkpoint, so that a reader that waits at its mark continues.

        Any other request stays: taking it sends its cancellation downstream.
        """
        if self._is_induced:
            self._aborted.append(checkpoint_id)
            self._forget(checkpoint_id)

    def take_due(self) -> bool:
        """Handle the oldest request that can be handled now; return whether there was one."""
        self.forget_past()
        self._pass_over_past_mark()
        if self._source is not None:
            self._source.await_mark(is_awaited=self._is_induced and bool(self._waiting))
        if not self._waiting:
            return False
        if self._is_induced:
            return self._take_marked()
        oldest = self._waiting[0]
        if self._network is None:
            if not (self._work.is_idle or oldest.options.may_overtake):
                return False
            if self._ends_first(oldest):
                return True
        elif not self._network.is_exhausted:
            return False
        if not self._work.settle():
            return False
        self._checkpoints.trigger(self._waiting.popleft(), is_input_empty=True)
        return True

    @property
    def _is_induced(self) -> bool:
        """Whether the reader decides the moment of a checkpoint, which it does until the end of its data."""
        return self._source is not None and self._source.is_externally_induced and self._end.is_running

    def _take_marked(self) -> bool:
        source = self._source
        assert source is not None, "only a source has marks"
        if source.mark is None or not self._work.is_idle:
            return False
        marked = next((b for b in self._waiting if b.checkpoint_id == source.mark), None)
        if marked is None:
            if any(b.checkpoint_id > source.mark for b in self._waiting):
                source.mark = None  # the mark of a checkpoint that has ended
            return False
        if self._ends_first(marked):
            return True
        self._forget(marked.checkpoint_id)
        self._checkpoints.trigger(marked, is_input_empty=True)
        return True

    def _pass_over_past_mark(self) -> None:
        """Clear a mark whose checkpoint has ended, so that it does not stop the reader."""
        source = self._source
        if source is None or source.mark is None:
            return
        is_past = source.mark <= self._given_id or source.mark in self._aborted
        if is_past or self._checkpoints.has_dealt_with(source.mark):
            source.mark = None

    def _ends_first(self, barrier: CheckpointBarrier) -> bool:
        """Begin the end of the data if this savepoint stops the job and the data has not ended yet."""
        if barrier.options.kind is not SnapshotKind.SYNC_SAVEPOINT or not self._end.is_running:
            return False
        self._work.then(self._end.finish(barrier.options.drain))
        return True

    def _forget(self, checkpoint_id: int) -> None:
        for barrier in [b for b in self._waiting if b.checkpoint_id == checkpoint_id]:
            self._waiting.remove(barrier)
        if self._source is not None and self._source.mark == checkpoint_id:
            self._source.mark = None
