"""What a subtask does with one checkpoint (Flink's `SubtaskCheckpointCoordinatorImpl`).

The steps, in this order and for these reasons:

0. An id that is not newer than the last one is out of order and is not taken. If it was never dealt with
   (messages to sources may overtake each other) it is declined, for nobody else would end it before its time.
1. An id that was aborted before its barrier came is not taken: a cancellation marker goes downstream so that
   nobody waits for a barrier that will not come.
2. Work that must be done in front of the barrier is done (it may still emit).
3. The barrier goes out on all channels in one step, before the state is taken: downstream can align
   meanwhile.
4. The state is taken: a short synchronous half here, the rest beside the task.
5. The coordinator is told: acknowledged, or declined with the reason.

It must never acknowledge what is not durable, never take one id twice, and never leave a receiver waiting.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.runtime.checkpoint.failure_reason import CheckpointFailureReason
from penstock.runtime.checkpoint.operator_snapshot import SubtaskSnapshotTask
from penstock.runtime.checkpoint.snapshot import CheckpointMetrics, SubtaskSnapshot
from penstock.runtime.ports import AsyncRunner, Cancellable, Clock
from penstock.runtime.record.elements import CancelCheckpointMarker, CheckpointBarrier, Event

#: How many abort notices of checkpoints that have not come yet are remembered.
MAX_RECORDED_ABORTED = 128


class CheckpointedTask(Protocol):
    """What the coordinator needs of its subtask."""

    def prepare_barrier(self, checkpoint_id: int) -> None:
        """Do what must happen in front of the barrier."""
        ...

    def broadcast_event(self, event: Event) -> None:
        """Put an event on all outputs in one step."""
        ...

    def snapshot_state(self, barrier: CheckpointBarrier) -> SubtaskSnapshotTask:
        """The synchronous half."""
        ...


class CheckpointResponder(Protocol):
    """Where acknowledgements go."""

    def acknowledge(self, checkpoint_id: int, snapshot: SubtaskSnapshot, metrics: CheckpointMetrics) -> None:
        """The subtask's part is durable."""
        ...

    def decline(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str) -> None:
        """The subtask can't take part."""
        ...


@dataclass(frozen=True, slots=True)
class SubtaskCheckpointStatistics:
    """Counters of a subtask's checkpoints.

    Attributes:
        taken: Checkpoints of which the synchronous half was done.
        acknowledged: Checkpoints that were acknowledged.
        declined: Checkpoints that were declined.
        running: Asynchronous halves that run now.
        remembered_aborts: Abort notices of checkpoints that have not come yet.
    """

    taken: int
    acknowledged: int
    declined: int
    running: int
    remembered_aborts: int


@dataclass(slots=True)
class _Running:
    task: SubtaskSnapshotTask
    work: Cancellable | None = None


class SubtaskCheckpointCoordinator:
    """Takes the checkpoints of one subtask; driven by the task thread alone.

    Args:
        task: The subtask.
        responder: Where acknowledgements and refusals go.
        runner: Runs the asynchronous half; its callbacks come back in the task thread.
        clock: For durations.
    """

    def __init__(
        self, task: CheckpointedTask, responder: CheckpointResponder, runner: AsyncRunner, clock: Clock
    ) -> None:
        self._task = task
        self._responder = responder
        self._runner = runner
        self._clock = clock
        self._last_id = -1
        self._aborted: OrderedDict[int, None] = OrderedDict()
        self._running: dict[int, _Running] = {}
        self._dealt_with: deque[int] = deque(maxlen=MAX_RECORDED_ABORTED)
        self._taken = self._acknowledged = self._declined = 0

    def checkpoint_state(
        self, barrier: CheckpointBarrier, start_delay: float = 0.0, alignment_duration: float = 0.0
    ) -> bool:
        """Take a checkpoint; whether it was taken (not old, not aborted)."""
        checkpoint_id = barrier.checkpoint_id
        if checkpoint_id <= self._last_id:
            self._refuse_overtaken(checkpoint_id)
            return False
        self._last_id = checkpoint_id
        self._dealt_with.append(checkpoint_id)
        was_aborted = checkpoint_id in self._aborted
        self._forget_aborted()
        if was_aborted:
            self._task.broadcast_event(CancelCheckpointMarker(checkpoint_id))
            return False
        self._task.prepare_barrier(checkpoint_id)
        self._task.broadcast_event(barrier)
        begun = self._clock.monotonic()
        snapshot = self._task.snapshot_state(barrier)
        sync_duration = self._clock.monotonic() - begun
        self._taken += 1
        metrics = CheckpointMetrics(start_delay, alignment_duration, sync_duration)
        self._finish_beside_the_task(snapshot, metrics)
        return True

    def abort_on_barrier(self, checkpoint_id: int, reason: CheckpointFailureReason) -> None:
        """The input gave a checkpoint up: decline it and let nobody downstream wait for it."""
        self._dealt_with.append(checkpoint_id)
        self._last_id = max(self._last_id, checkpoint_id)
        self._forget_aborted()
        self._decline(checkpoint_id, reason, "the alignment was given up")
        self._task.broadcast_event(CancelCheckpointMarker(checkpoint_id))

    def notify_aborted(self, checkpoint_id: int) -> None:
        """The job gave a checkpoint up: stop its asynchronous half, or remember not to take it."""
        running = self._running.pop(checkpoint_id, None)
        if running is not None:
            self._abandon(running)
        elif checkpoint_id > self._last_id:
            self._aborted[checkpoint_id] = None
            while len(self._aborted) > MAX_RECORDED_ABORTED:
                self._aborted.popitem(last=False)

    def close(self) -> None:
        """Give up everything that runs beside the task."""
        for running in self._running.values():
            self._abandon(running)
        self._running.clear()

    def statistics(self) -> SubtaskCheckpointStatistics:
        """Counters."""
        return SubtaskCheckpointStatistics(
            self._taken, self._acknowledged, self._declined, len(self._running), len(self._aborted)
        )

    def _finish_beside_the_task(self, snapshot: SubtaskSnapshotTask, metrics: CheckpointMetrics) -> None:
        running = self._running[snapshot.checkpoint_id] = _Running(snapshot)
        begun = self._clock.monotonic()

        def failed(error: BaseException) -> None:
            if self._running.pop(snapshot.checkpoint_id, None) is not None:
                reason = CheckpointFailureReason.CHECKPOINT_DECLINED
                self._decline(snapshot.checkpoint_id, reason, f"{type(error).__name__}: {error}")

        running.work = self._runner.run(snapshot.run, self._finished(snapshot, metrics, begun), failed)

    def _finished(
        self, task: SubtaskSnapshotTask, metrics: CheckpointMetrics, begun: float
    ) -> Callable[[SubtaskSnapshot], None]:
        def finished(snapshot: SubtaskSnapshot) -> None:
            if self._running.pop(task.checkpoint_id, None) is None:
                return
            task.apply(snapshot)
            self._acknowledged += 1
            full = sum(h.size for s in snapshot.operators.values() for h in s.handles())
            measured = CheckpointMetrics(
                metrics.start_delay,
                metrics.alignment_duration,
                metrics.sync_duration,
                self._clock.monotonic() - begun,
                task.written_bytes,
                full,
            )
            self._responder.acknowledge(task.checkpoint_id, snapshot, measured)

        return finished

    def _decline(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str) -> None:
        self._declined += 1
        self._responder.decline(checkpoint_id, reason, detail)

    def _abandon(self, running: _Running) -> None:
        must_remove = running.task.abandon()
        if running.work is not None:
            running.work.cancel()
        if must_remove:
            # Written, but the callback that says so has not come yet, and now never will.
            self._runner.run(running.task.remove, _nobody_waits, _nobody_waits)

    def _refuse_overtaken(self, checkpoint_id: int) -> None:
        if checkpoint_id in self._dealt_with:
            return
        self._dealt_with.append(checkpoint_id)
        detail = f"checkpoint {self._last_id} overtook it"
        self._decline(checkpoint_id, CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED, detail)

    def _forget_aborted(self) -> None:
        """Drop abort notices of checkpoints that can't come any more."""
        for known in [i for i in self._aborted if i <= self._last_id]:
            del self._aborted[known]


def _nobody_waits(_: object) -> None:
    """The outcome of a removal changes nothing."""
