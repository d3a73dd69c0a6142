"""`CheckpointCoordinator`: starts checkpoints, collects acknowledgements, completes them (Flink's class).

*A trigger.* `try_target` first tries the folder that a user names for a savepoint; no other request waits for
it. A request waits in `CheckpointRequests` until it may start. `CheckpointStarts` prepares its location,
takes the snapshots of operator coordinators and master hooks, and triggers the sources.

*An acknowledgement* is noted in its `PendingCheckpoint`. After the last one, `CheckpointCompletions` has the
record written into the decision log. From then on the checkpoint exists. `CheckpointFiles` drops older
checkpoints. Subtasks and operator coordinators are notified, so sinks commit. Then the request is answered.

*An abort* (`CheckpointAborts`) follows a decline, a timeout, a failed start, or a failed or finished subtask.
A newer completed checkpoint and the end of the attempt abort checkpoints, too.

The coordinator calls starts, completions and aborts, and completions call aborts. `StartCallbacks` and
`AbortCallbacks` list all other calls between these three parts
(docs/decisions/0044-coordinator-with-parts-for-each-flow.md).

Each fact has one owner. This class: the running checkpoints. `ServedAttempt`: the attempt, and the next id.
`CheckpointFinalizer`: the record that is being written. `CheckpointPlanner`: the running subtasks.
`CheckpointFailureManager`: the number of failures in a row.

Why it is right. A subtask commits only output that a written record covers. A late or repeated message, or
one of another attempt, changes no checkpoint. A barrier names the newest completed checkpoint, whose files
stay until the new checkpoint has ended.

What it must never do:

* notify a subtask that a checkpoint is complete before its record is written,
* delete a file that a completed checkpoint names,
* leave a checkpoint pending that can't complete,
* answer a request twice, or start two checkpoints at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from penstock.runtime.checkpoint.completed_store import CompletedCheckpointStore
from penstock.runtime.checkpoint.coordinator.aborts import (
    AbortCallbacks,
    CheckpointAborts,
)
from penstock.runtime.checkpoint.coordinator.completion import (
    CheckpointCompletions,
    CheckpointFinalizer,
    Finalize,
)
from penstock.runtime.checkpoint.coordinator.failures import CheckpointFailureManager
from penstock.runtime.checkpoint.coordinator.files import CheckpointFiles
from penstock.runtime.checkpoint.coordinator.history import CheckpointHistory
from penstock.runtime.checkpoint.coordinator.location import SavepointTargets, WriteProbe
from penstock.runtime.checkpoint.coordinator.parts import CoordinatorGateway, CoordinatorParts, ServedAttempt
from penstock.runtime.checkpoint.coordinator.pending_checkpoint import (
    AwaitedAcknowledgements,
    MessageOutcome,
    PendingCheckpoint,
    PendingState,
)
from penstock.runtime.checkpoint.coordinator.plan import CheckpointPlanner
from penstock.runtime.checkpoint.coordinator.requests import (
    CheckpointFailed,
    CheckpointRequest,
    CheckpointRequests,
    OnAnswer,
    RequestNote,
)
from penstock.runtime.checkpoint.coordinator.starts import (
    CheckpointStarts,
    InitializeLocation,
    StartCallbacks,
)
from penstock.runtime.checkpoint.master_hooks import MasterHooks
from penstock.runtime.checkpoint.operator_coordinators.operator_coordinators import OperatorCoordinators
from penstock.runtime.config.checkpointing import Checkpointing, KeepAfter
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.ports import AsyncRunner, Clock, TimerService
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.checkpoint_record import (
    CheckpointMetrics,
    CoordinatorStatistics,
)
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.time.durations import as_seconds


class CheckpointCoordinator:
    """Takes the checkpoints of one job across all its attempts, in one thread; no call blocks.

    Args:
        finalize: Writes the record of a checkpoint; blocks, and runs in `runner`.
        fail_job: Called with the cause when a failed checkpoint fails the job; may end the attempt at once.
        fenced: Called when another attempt owns the log.
        targets: Tries folders of savepoints outside the job's storage.
        note_request: Called with notes for the job's log about requests that wait, start or are refused.
    """

    def __init__(
        self,
        config: Checkpointing,
        planner: CheckpointPlanner,
        gateway: CoordinatorGateway,
        files: CheckpointFiles,
        finalize: Finalize,
        *,
        fail_job: Callable[[str], object],
        fenced: Callable[[], None],
        clock: Clock,
        timers: TimerService,
        runner: AsyncRunner,
        failures: CheckpointFailureManager | None = None,
        hooks: MasterHooks | None = None,
        coordinators: OperatorCoordinators | None = None,
        initialize_location: InitializeLocation | None = None,
        targets: SavepointTargets | None = None,
        note_request: Callable[[RequestNote], None] = lambda _: None,
        semantics: Semantics = Semantics.current(),
    ) -> None:
        self._config = config
        self._planner = planner
        self._files = files
        self._timers = timers
        self._failures = failures or CheckpointFailureManager(config.tolerable_failures)
        self._hooks = hooks or MasterHooks()
        self._coordinators = coordinators or OperatorCoordinators()
        self._targets = targets
        self._place = WriteProbe(runner, timers, as_seconds(config.timeout))
        self._semantics = semantics
        self._coordinators.when_event_came(self._event_came)
        self.history = CheckpointHistory()
        self._finalizer = CheckpointFinalizer(finalize, runner)
        self._pending: dict[int, PendingCheckpoint] = {}
        self._clock = clock
        self._served = ServedAttempt()
        self._requests = CheckpointRequests(
            config,
            clock,
            timers,
            lambda request: self._starts.start(request),
            self._pending,
            semantics=semantics,
            given_up=lambda request, answer: self._aborts.given_up(request, answer),
            note=note_request,
        )
        parts = CoordinatorParts(
            config,
            self._pending,
            self._served,
            self._requests,
            planner,
            gateway,
            files,
            self.history,
            self._failures,
            self._coordinators,
            clock,
            semantics,
            fail_job,
        )
        self._aborts = CheckpointAborts(
            parts,
            AbortCallbacks(
                self._finalizer.withdraw,
                lambda request: self._starts.stop_masters_of(request),
                lambda request: self._starts.ended(request),
                fenced,
            ),
        )
        self._completions = CheckpointCompletions(parts, self._finalizer, self._aborts)
        self._starts = CheckpointStarts(
            parts,
            self._hooks,
            self._place,
            initialize_location,
            StartCallbacks(
                self._collect,
                self._completions.finalize_if_complete,
                self._aborts.abort,
                self._aborts.fenced,
            ),
        )
        self._stale_messages = self._late_messages = 0

    # -- attempts of the job --------------------------------------------------------------------------------

    def begin_attempt(
        self,
        attempt: int,
        store: CompletedCheckpointStore,
        highest_id: int,
        orphans: Iterable[str] = (),
        restored: CompletedCheckpoint | None = None,
        assigned_id: int = -1,
    ) -> None:
        """Serve a new attempt; checkpoints begin after `started`.

        Args:
            orphans: Files of earlier attempts to delete.
            assigned_id: The highest id that was ever given to a checkpoint.
            restored: The snapshot that the attempt started from; the first checkpoint takes over its state of
                finished subtasks.
        """
        self._files.delete(orphans)
        self._starts.end(Reason.JOB_FAILURE, "the job restarted meanwhile")
        self._planner.begin_attempt(attempt)
        self.history.recover(store.all, highest_id)
        self._files.begin_attempt(store)
        self._completions.restored = restored
        self._served.begin(attempt, max(highest_id, assigned_id))

    def begin_region(self, attempt: int, store: CompletedCheckpointStore, highest_id: int) -> None:
        """Serve a region's new attempt, while older attempts run in other regions."""
        self._files.begin_region(store)
        self._served.begin(attempt, highest_id)

    def started(self) -> None:
        self._planner.started()
        self._requests.poll()

    def start_periodic(self) -> None:
        self._requests.start_periodic()

    def stop_periodic(self) -> None:
        """Stop periodic checkpoints; abort running ones and refuse waiting requests."""
        self._requests.stop_periodic()
        self._end_all(Reason.CHECKPOINT_COORDINATOR_SUSPEND, "checkpointing was stopped")

    def end_attempt(
        self, reason: Reason = Reason.JOB_FAILURE, detail: str = "", *, tell: bool = False
    ) -> None:
        """End the attempt: abort all checkpoints, except one whose record is being written.

        After `CHECKPOINT_COORDINATOR_SHUTDOWN`, later requests are refused with this reason and `detail`.
        With `tell`, subtasks are notified.
        """
        if reason is Reason.CHECKPOINT_COORDINATOR_SHUTDOWN:
            self._served.refusal = CheckpointFailed(reason, detail)
        self._requests.stop_periodic()
        running = self._running()
        self._served.number = None
        self._end_all(reason, detail)
        if tell:
            for pending in running:
                if pending.failure is reason:
                    self._aborts.notify(pending)

    def end_job(self, job_state: str) -> tuple[str, ...]:
        """End the job as `finished`, `failed` or `cancelled`; return paths of files that may be deleted."""
        self._hooks.close()
        return self._files.end_job(job_state, KeepAfter(self._config.keep_after))

    def abort_all(self, reason: Reason, detail: str = "") -> None:
        """Abort every running checkpoint; the periodic timer and waiting requests stay."""
        for pending in self._running():
            self._aborts.abort(pending, reason, detail)

    def when_no_place_is_awaited(self, callback: Callable[[], None]) -> None:
        """Call back when no location is being prepared, or its preparation has timed out."""
        self._place.when_over(callback)

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back when no record is waiting or being written."""
        self._finalizer.when_idle(callback)

    # -- ends of subtasks --------------------------------------------------------------------------------

    def subtask_finished(self, subtask: SubtaskId) -> None:
        """Note a finished subtask; abort checkpoints that still wait for it, and retry them later."""
        if not self._planner.finished(subtask):
            return
        for pending in self._running():
            if pending.waits_for(subtask):
                self._requests.retry_later(pending.request, pending.checkpoint_id)
                detail = f"{subtask} finished before it took this checkpoint"
                self._aborts.abort(pending, Reason.CHECKPOINT_DECLINED_TASK_CLOSING, detail)

    def data_ended(self, subtask: SubtaskId) -> None:
        """Note the end of a subtask's data; trigger checkpoints there, since barriers may never reach it."""
        self._planner.data_ended(subtask)
        for pending in self._running():
            if pending.data_ended(subtask):
                self._starts.trigger((subtask,), pending.barrier)

    def subtask_failed(self, subtask: SubtaskId, detail: str = "") -> None:
        """Abort every checkpoint that still waits for a failed subtask, while other regions continue."""
        for pending in self._running():
            if pending.waits_for(subtask):
                self._aborts.abort(pending, Reason.TASK_FAILURE, f"{subtask} failed: {detail}")

    # -- triggers ----------------------------------------------------------------------------------------

    def trigger(
        self,
        kind: SnapshotKind = SnapshotKind.CHECKPOINT,
        *,
        periodic: bool = False,
        forced: bool | None = None,
        urgent: bool = False,
        aligned: bool = False,
        full: bool = False,
        drain: bool = False,
        target: str | None = None,
        on_answer: OnAnswer | None = None,
    ) -> None:
        """Request a checkpoint; the arguments are those of `CheckpointRequest`.

        Savepoints are `forced` by default, unless checkpoints are unaligned: a savepoint's barriers would
        abort a running unaligned checkpoint. A `target` needs `try_target` first.
        """
        if drain and kind is not SnapshotKind.SYNC_SAVEPOINT:
            msg = f"a {kind.value} can't advance the watermark to the end of time, because the job continues"
            raise ValueError(msg)
        if forced is None:
            forced = kind.is_savepoint and not self._config.unaligned
        request = CheckpointRequest(
            kind=kind,
            periodic=periodic,
            forced=forced,
            urgent=urgent,
            aligned=aligned,
            full=full,
            drain=drain,
            target=target,
        )
        self._requests.submit(request, on_answer)

    def try_target(
        self, kind: SnapshotKind, target: str, then: Callable[[], None], on_answer: OnAnswer
    ) -> None:
        """Try the folder of a savepoint, then call `then`; no other request waits for it."""
        if self._targets is None:
            then()
            return

        def refuse(answer: CheckpointFailed) -> None:
            self._requests.refused += 1
            on_answer(answer)

        self._targets.request(
            target,
            then,
            lambda cause: refuse(self._starts.without_place(kind, cause)),
            lambda reason, detail: refuse(CheckpointFailed(reason, detail)),
        )

    def _collect(self, pending: PendingCheckpoint) -> None:
        self._pending[pending.checkpoint_id] = pending
        timeout = as_seconds(self._config.timeout)
        pending.set_timeout(self._timers.call_later(timeout, partial(self._aborts.expire, pending)))
        self.history.started(pending)

    # -- acknowledgements --------------------------------------------------------------------------------

    def acknowledge(
        self,
        attempt: int,
        subtask: SubtaskId,
        checkpoint_id: int,
        snapshot: SubtaskSnapshot | None = None,
        metrics: CheckpointMetrics | None = None,
    ) -> MessageOutcome:
        """Note that a subtask's part of a checkpoint is durable.

        Only the first acknowledgement in time counts. Files of other acknowledgements are deleted if no
        checkpoint can need them; files of other attempts may be in use and stay.
        """
        if attempt != self._served.number:
            self._stale_messages += 1
            return MessageOutcome.STALE_ATTEMPT
        pending = self._pending.get(checkpoint_id)
        if pending is None:
            self._late_messages += 1
            if snapshot is not None:
                was_started = self._served.has_begun(checkpoint_id)
                self._files.discard_late(checkpoint_id, snapshot.files(), was_started=was_started)
            return self._ended_or_unknown(checkpoint_id)
        outcome = pending.acknowledge(subtask, snapshot, metrics)
        if outcome is MessageOutcome.ACCEPTED:
            events = {} if snapshot is None else snapshot.events
            self._coordinators.subtask_acknowledged(checkpoint_id, subtask.index, events)
            if pending.is_a_step_further:
                self.history.progress(pending)
            self._completions.finalize_if_complete(pending)
        elif outcome is not MessageOutcome.DUPLICATE and snapshot is not None:
            self._files.discard(checkpoint_id, snapshot.files())
        return outcome

    def _ended_or_unknown(self, checkpoint_id: int) -> MessageOutcome:
        was_started = self._served.has_begun(checkpoint_id)
        return MessageOutcome.ENDED_CHECKPOINT if was_started else MessageOutcome.UNKNOWN_CHECKPOINT

    def _event_came(self) -> None:
        for pending in self._running():
            self._completions.finalize_if_complete(pending)

    # -- aborts ------------------------------------------------------------------------------------------

    def decline(
        self,
        attempt: int,
        subtask: SubtaskId,
        checkpoint_id: int,
        reason: Reason = Reason.CHECKPOINT_DECLINED,
        detail: str = "",
    ) -> MessageOutcome:
        """Abort a checkpoint that a subtask can't take; as in Flink, unknown subtasks may decline, too."""
        if attempt != self._served.number:
            self._stale_messages += 1
            return MessageOutcome.STALE_ATTEMPT
        pending = self._pending.get(checkpoint_id)
        if pending is None:
            return self._ended_or_unknown(checkpoint_id)
        if pending.state is not PendingState.COLLECTING:
            return MessageOutcome.DUPLICATE
        self._aborts.abort(pending, reason, f"{subtask}: {detail}" if detail else f"{subtask} declined it")
        return MessageOutcome.ACCEPTED

    def _end_all(self, reason: Reason, detail: str) -> None:
        """Refuse waiting requests and abort running checkpoints."""
        if self._targets is not None:
            self._targets.withdraw_all(reason, detail)
        self._requests.abort_waiting(reason, detail)
        self.abort_all(reason, detail)
        if self._semantics.abort_ends_start and self._place.is_running:
            self._starts.end(reason, detail)

    # -- views -------------------------------------------------------------------------------------------

    @property
    def is_triggering(self) -> bool:
        return self._requests.starting is not None

    @property
    def pending_ids(self) -> tuple[int, ...]:
        return tuple(self._pending)

    @property
    def latest_completed(self) -> CompletedCheckpoint | None:
        return self._files.latest

    def statistics(self) -> CoordinatorStatistics:
        return replace(
            self.history.counters(),
            refused=self._requests.refused,
            pending=len(self._pending),
            queued=self._requests.queued,
            failures_in_a_row=self._failures.in_a_row,
            stale_messages=self._stale_messages,
            late_messages=self._late_messages,
            deleted_files=self._files.deleted,
            failed_deletions=self._files.failed_deletions,
        )

    def awaited_acknowledgements(self) -> AwaitedAcknowledgements | None:
        """The subtasks that the oldest running checkpoint waits for; `None` unless it waits only for them."""
        pending = next(iter(self._pending.values()), None)
        if pending is None or pending.missing_coordinators or pending.missing_masters or not pending.missing:
            return None
        seconds = self._clock.monotonic() - pending.started_at
        return AwaitedAcknowledgements(pending.checkpoint_id, seconds, pending.missing)

    def _running(self) -> tuple[PendingCheckpoint, ...]:
        """A copy of the running checkpoints, oldest first; aborts don't change the copy."""
        return tuple(self._pending.values())
