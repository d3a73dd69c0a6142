"""`CheckpointCoordinator`: starts checkpoints, collects them, makes them count (Flink's class of that name).

A checkpoint goes through four steps. A request is let through by the decider; it is started (in five steps of
its own, see `coordinator_trigger`), and barriers do the rest; every subtask acknowledges with handles of its
state; when the last one has, the record of the checkpoint is written into the log of decisions. From that
moment it exists: the job would restart from it, and only then the subtasks are told, so that sinks commit.

Why it is right. A subtask commits only what a written record covers. A checkpoint fails as a whole: one
decline, a timeout, a subtask that leaves in its midst, and all that came in is thrown away. Everything that
arrives late, twice or from another attempt changes nothing. A barrier names the newest completed checkpoint,
and the files of that one stay until the checkpoint that builds on it has ended.

What it must never do: tell a subtask that a checkpoint is complete before its record is written; delete a
file that a completed checkpoint names; leave a checkpoint pending that can't complete; answer a request
twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from penstock.runtime.checkpoint.coordinator.messages import MessageOutcome
from penstock.runtime.checkpoint.coordinator.parts import CoordinatorParts
from penstock.runtime.checkpoint.coordinator.requests import OnAnswer
from penstock.runtime.checkpoint.coordinator.restore_masters import restore_masters
from penstock.runtime.checkpoint.coordinator.trigger import Refusal
from penstock.runtime.checkpoint.store.completed_store import CompletedCheckpointStore
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import (
    CheckpointDetails,
    CheckpointRecord,
    CoordinatorStatistics,
    EarlierHistory,
)
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.metrics import CheckpointMetrics
from penstock.runtime.snapshot.subtask_id import SubtaskId


class CheckpointCoordinator:
    """Takes the checkpoints of one job, over all its attempts.

    Args:
        parts: What it is made of.
    """

    def __init__(self, parts: CoordinatorParts) -> None:
        self._may_force = parts.may_force
        self._keep_after = parts.keep_after
        self._planner = parts.planner
        self._files = parts.files
        self._failures = parts.failures
        self._history = parts.history
        self._hooks = parts.hooks
        self._coordinators = parts.coordinators
        self._requests = parts.requests
        self._outcomes = parts.outcomes
        self._pending = parts.pending
        self._trigger = parts.trigger
        self._messages = parts.messages

    def recall(self, earlier: EarlierHistory) -> None:
        """Go on with the history of an earlier JobMaster; to be told before the first attempt begins."""
        self._history.recall(earlier)

    def begin_attempt(
        self,
        attempt: int,
        store: CompletedCheckpointStore,
        highest_id: int,
        orphans: Iterable[str] = (),
        restored: CompletedCheckpoint | None = None,
    ) -> None:
        """Serve a new attempt; nothing is triggered before `started`.

        Args:
            attempt: Its number.
            store: The completed checkpoints, as recovered.
            highest_id: The highest checkpoint id in the log.
            orphans: Files that earlier attempts have left behind; they are deleted.
            restored: What it starts from. What subtasks that had finished kept in it is carried into the
                first checkpoint of a job that was started from a snapshot of another.
        """
        self._files.delete(orphans)
        self._trigger.forget()
        self._outcomes.attempt = attempt
        self._planner.reset()
        self._history.recover(store.all, highest_id)
        self._pending.begin_attempt(attempt, store, highest_id, restored)

    def begin_region(self, attempt: int, store: CompletedCheckpointStore, highest_id: int) -> None:
        """A part of the job begins a new attempt. Nothing is swept: older attempts still run elsewhere."""
        self._outcomes.attempt = attempt
        self._pending.begin_region(attempt, store, highest_id)

    def restore(self, checkpoint: CompletedCheckpoint | None, *, allow_non_restored: bool = False) -> None:
        """Give master hooks and operator coordinators back what they gave for a checkpoint.

        Args:
            checkpoint: What the job starts from; `None` when it starts from nothing.
            allow_non_restored: Whether state of a hook or coordinator that is gone may be left behind.

        Raises:
            UnmatchedMasterStateError: There is such state and that is not allowed; nothing was restored.
            UnmatchedCoordinatorStateError: The same for an operator coordinator.
        """
        restore_masters(self._hooks, self._coordinators, checkpoint, allow_non_restored=allow_non_restored)

    def started(self) -> None:
        """All subtasks run: checkpoints may be taken."""
        self._planner.started()
        self._requests.poll()

    def start_periodic(self) -> None:
        """Take a checkpoint every interval from now on."""
        self._requests.start_periodic()

    def stop_periodic(self) -> None:
        """Take no periodic checkpoints any more; give up all that run or wait."""
        self._requests.stop_periodic()
        self._end_all(Reason.CHECKPOINT_COORDINATOR_SUSPEND, "checkpointing was stopped")

    def end_attempt(
        self, reason: Reason = Reason.JOB_FAILURE, detail: str = "", *, tell: bool = False
    ) -> None:
        """The attempt is over: give everything up; a record that is being written is still finished.

        Args:
            reason: Why.
            detail: More about it.
            tell: Tell subtasks of the checkpoints that are given up; not when they are being stopped anyway.
        """
        if reason is Reason.CHECKPOINT_COORDINATOR_SHUTDOWN:
            self._outcomes.ended = Refusal(reason, detail)
        self._requests.stop_periodic()
        running = self._pending.running
        self._outcomes.attempt = None
        self._end_all(reason, detail)
        if tell:
            for started in running:
                if started.pending.failure is reason:
                    self._outcomes.tell_aborted(started)

    def end_job(self, job_state: str) -> tuple[str, ...]:
        """The job has ended (`finished`, `failed`, `cancelled`): which files may be deleted now."""
        self._hooks.close()
        return self._pending.end_job(job_state, self._keep_after)

    def abort_all(self, reason: Reason, detail: str = "") -> None:
        """Give up every checkpoint that runs; the periodic timer and waiting requests go on."""
        for started in self._pending.running:
            self._pending.abort(started, reason, detail)

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back once no record is being written, so that what stands in the log is known."""
        self._pending.finaliser.when_idle(callback)

    def subtask_finished(self, subtask: SubtaskId) -> None:
        """A subtask has left; a checkpoint that still waits for it is given up and tried again later."""
        if not self._planner.finished(subtask):
            return
        for started in self._pending.running:
            if started.pending.waits_for(subtask):
                self._requests.retry_later(started.request)
                detail = f"{subtask} finished before it took this checkpoint"
                self._pending.abort(started, Reason.CHECKPOINT_DECLINED_TASK_CLOSING, detail)

    def data_ended(self, subtask: SubtaskId) -> None:
        """A subtask has processed the end of all its inputs; soon no barrier may reach it any more."""
        self._planner.data_ended(subtask)
        self._pending.data_ended(subtask)

    def subtask_failed(self, subtask: SubtaskId, detail: str = "") -> None:
        """A subtask has failed while others go on: give up every checkpoint that still waits for it."""
        for started in self._pending.running:
            if started.pending.waits_for(subtask):
                self._pending.abort(started, Reason.TASK_FAILURE, f"{subtask} failed: {detail}")

    def trigger(
        self,
        kind: SnapshotKind = SnapshotKind.CHECKPOINT,
        *,
        periodic: bool = False,
        forced: bool | None = None,
        urgent: bool = False,
        aligned: bool = False,
        drain: bool = False,
        target: str | None = None,
        on_answer: OnAnswer | None = None,
    ) -> None:
        """Ask for a checkpoint.

        Args:
            kind: Checkpoint or savepoint.
            periodic: Ask as the periodic timer does.
            forced: Ignore limit and pause; by default savepoints do, unless checkpoints are unaligned:
                barriers of both kinds at a time would give the checkpoint up.
            urgent: Ignore the pause but not the limit.
            aligned: Let no barrier overtake data, whatever the job's setting is.
            drain: With a synchronous savepoint: sources advance event time to its end first (Flink's
                `advanceToEndOfEventTime`).
            target: URL of the folder in which a savepoint gets a folder of its own; by default it is in the
                job's checkpoint storage.
            on_answer: Told once how it went.

        Raises:
            ValueError: Only a job that ends may drain: `advance_to_end_of_time` goes with a synchronous
                savepoint.
        """
        if drain and kind is not SnapshotKind.SYNC_SAVEPOINT:
            msg = f"a {kind.value} can't advance the watermark to the end of time: the job goes on after it"
            raise ValueError(msg)
        self._requests.submit(
            kind,
            periodic=periodic,
            forced=kind.is_savepoint and self._may_force if forced is None else forced,
            urgent=urgent,
            aligned=aligned,
            drain=drain,
            target=target,
            on_answer=on_answer,
        )

    def acknowledge(
        self,
        attempt: int,
        subtask: SubtaskId,
        checkpoint_id: int,
        snapshot: SubtaskSnapshot | None = None,
        metrics: CheckpointMetrics | None = None,
    ) -> MessageOutcome:
        """A subtask's part of a checkpoint is durable."""
        if attempt != self._outcomes.attempt:
            return self._messages.stale()
        return self._messages.acknowledge(subtask, checkpoint_id, snapshot, metrics)

    def decline(
        self,
        attempt: int,
        subtask: SubtaskId,
        checkpoint_id: int,
        reason: Reason = Reason.CHECKPOINT_DECLINED,
        detail: str = "",
    ) -> MessageOutcome:
        """A subtask can't take part: the checkpoint is given up."""
        if attempt != self._outcomes.attempt:
            return self._messages.stale()
        return self._messages.decline(subtask, checkpoint_id, reason, detail)

    @property
    def is_triggering(self) -> bool:
        """Whether a checkpoint is being started."""
        return self._requests.is_triggering

    @property
    def pending_ids(self) -> tuple[int, ...]:
        """Checkpoints that run, oldest first."""
        return tuple(started.id for started in self._pending.running)

    @property
    def latest_completed(self) -> CompletedCheckpoint | None:
        """The newest completed checkpoint."""
        return self._pending.latest

    def details(self) -> tuple[CheckpointDetails, ...]:
        """The last checkpoints with what each subtask measured, oldest first."""
        return self._history.details()

    def history(self) -> tuple[CheckpointRecord, ...]:
        """The last checkpoints, oldest first."""
        return self._history.records()

    def statistics(self) -> CoordinatorStatistics:
        """Counters over all attempts."""
        deletions = self._files.statistics()
        return replace(
            self._history.counters(),
            refused=self._requests.refused,
            pending=len(self._pending.running),
            queued=self._requests.queued,
            failures_in_a_row=self._failures.statistics().in_a_row,
            stale_messages=self._messages.stale_count,
            late_messages=self._messages.late_count,
            deleted_files=deletions.deleted,
            failed_deletions=deletions.failed,
        )

    def _end_all(self, reason: Reason, detail: str) -> None:
        self._requests.abort_waiting(reason, detail)
        self.abort_all(reason, detail)
