"""The checkpoints that run: their start, their two ends, and what each end does to everybody else.

A checkpoint that ends well is written first and told afterwards. One that ends badly takes its files with
it, except after an error of the writer: then its record may stand in the log all the same, so nothing of it
may be deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from penstock.runtime.checkpoint.coordinator.checkpoint_history import CheckpointHistory
from penstock.runtime.checkpoint.coordinator.failure_manager import CheckpointFailureManager
from penstock.runtime.checkpoint.coordinator.files import CheckpointFiles
from penstock.runtime.checkpoint.coordinator.finaliser import CheckpointFinaliser
from penstock.runtime.checkpoint.coordinator.finalize import Fenced, Finalized
from penstock.runtime.checkpoint.coordinator.gateway import CoordinatorGateway
from penstock.runtime.checkpoint.coordinator.pending_checkpoint import PendingCheckpoint
from penstock.runtime.checkpoint.coordinator.pending_values import PendingState
from penstock.runtime.checkpoint.coordinator.plan import CheckpointPlanner, NotAllRunning
from penstock.runtime.checkpoint.coordinator.request_decider import CheckpointRequest
from penstock.runtime.checkpoint.coordinator.retention import CheckpointRetention
from penstock.runtime.checkpoint.coordinator.started_checkpoint import PendingEnds, StartedCheckpoint
from penstock.runtime.checkpoint.log.decision_log import OutcomeUnknownError
from penstock.runtime.checkpoint.store.completed_store import CompletedCheckpointStore
from penstock.runtime.config.checkpointing import Checkpointing, KeepAfter
from penstock.runtime.errors import CorruptSnapshotError, StorageError
from penstock.runtime.ports import AsyncRunner, Clock, TimerService
from penstock.runtime.record.elements import CheckpointBarrier, CheckpointOptions
from penstock.runtime.snapshot.checkpoint_record import CheckpointRecord, CheckpointStatus
from penstock.runtime.snapshot.completed_checkpoint import CarriedState, CompletedCheckpoint
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.handles import FileHandle
from penstock.runtime.snapshot.subtask_id import SubtaskId


class PendingCheckpoints:
    """Runs the checkpoints of the current attempt from start to end.

    Args:
        planner: Who takes part.
        gateway: Subtasks and job.
        files: Deletes what nobody needs.
        write: Writes the record of a complete checkpoint; blocks.
        failures: When failed checkpoints fail the job.
        history: What is remembered.
        config: How snapshots are taken, and when one that runs is given up.
        clock: Time.
        timers: For the timeouts.
        runner: Runs `write`.
        ends: Who is told of ends.
    """

    def __init__(
        self,
        planner: CheckpointPlanner,
        gateway: CoordinatorGateway,
        files: CheckpointFiles,
        write: Callable[[CompletedCheckpoint], Finalized | Fenced],
        failures: CheckpointFailureManager,
        history: CheckpointHistory,
        config: Checkpointing,
        *,
        clock: Clock,
        timers: TimerService,
        runner: AsyncRunner,
        ends: PendingEnds,
    ) -> None:
        self._planner = planner
        self._gateway = gateway
        self._files = files
        self._write = write
        self._failures = failures
        self._history = history
        self._options = config.options
        self._timeout = config.timeout_seconds
        self._clock = clock
        self._timers = timers
        self._ends = ends
        self._started: dict[int, StartedCheckpoint] = {}
        self._retention = CheckpointRetention(files)
        self._restored: CompletedCheckpoint | None = None
        self._attempt = 0
        self._next_id = 1
        self.finaliser: CheckpointFinaliser[Finalized | Fenced] = CheckpointFinaliser(runner)

    @property
    def running(self) -> tuple[StartedCheckpoint, ...]:
        """Those that run, oldest first."""
        return tuple(self._started.values())

    @property
    def next_id(self) -> int:
        """The id of the next checkpoint."""
        return self._next_id

    @property
    def latest(self) -> CompletedCheckpoint | None:
        """The newest completed checkpoint."""
        return self._retention.latest

    def begin_attempt(
        self,
        attempt: int,
        store: CompletedCheckpointStore,
        highest_id: int,
        restored: CompletedCheckpoint | None = None,
    ) -> None:
        """Run the checkpoints of a new attempt."""
        self._retention.begin_attempt(store)
        self._restored = restored
        self._go_on_with(attempt, highest_id)

    def begin_region(self, attempt: int, store: CompletedCheckpointStore, highest_id: int) -> None:
        """Go on with a new attempt of a part of the job; what the rest says late is still known as late."""
        self._retention.begin_region(store)
        self._go_on_with(attempt, highest_id)

    def _go_on_with(self, attempt: int, highest_id: int) -> None:
        self._attempt = attempt
        self._next_id = max(self._next_id, highest_id + 1)

    def end_job(self, job_state: str, keep_after: KeepAfter) -> tuple[str, ...]:
        """The job has ended: paths of what may be deleted of its completed checkpoints."""
        return self._retention.end_job(job_state, keep_after)

    def get(self, checkpoint_id: int) -> StartedCheckpoint | None:
        """The running checkpoint with this id."""
        return self._started.get(checkpoint_id)

    def start(
        self, request: CheckpointRequest, coordinators: Iterable[str] = (), masters: Iterable[str] = ()
    ) -> StartedCheckpoint | NotAllRunning:
        """Create a checkpoint, unless not everybody runs; no subtask is told of it yet.

        Args:
            request: Who asked for it.
            coordinators: Operators whose coordinators take part.
            masters: Master hooks that take part.
        """
        plan = self._planner.plan(is_last=request.urgent)
        if isinstance(plan, NotAllRunning):
            return plan
        checkpoint_id, now = self._next_id, self._clock.now()
        self._next_id += 1
        base = self._retention.base_id
        pending = PendingCheckpoint(
            checkpoint_id,
            request.kind,
            plan.acknowledge,
            triggered_at=now,
            base_id=base,
            forced=request.forced,
            coordinators=coordinators,
            masters=masters,
        )
        location = self._files.location(request.target, checkpoint_id, self._attempt)
        options = CheckpointOptions(request.kind) if request.aligned else self._options(request.kind)
        options = replace(options, drain=request.drain, location=location)
        barrier = CheckpointBarrier(checkpoint_id, now, options, base)
        started = StartedCheckpoint(pending, plan, request, barrier, self._clock.monotonic())
        self._started[checkpoint_id] = started
        pending.set_canceller(self._timers.call_later(self._timeout, partial(self._expire, started)))
        in_progress = CheckpointStatus.IN_PROGRESS
        self._history.started(
            CheckpointRecord(
                checkpoint_id, self._attempt, request.kind, in_progress, now, subtasks=len(plan.acknowledge)
            )
        )
        return started

    def trigger_sources(self, started: StartedCheckpoint) -> None:
        """Tell those who begin the checkpoint; the barriers do the rest."""
        self._gateway.trigger(started.tell(), started.barrier)

    def finalise_if_complete(self, started: StartedCheckpoint) -> None:
        """Write the record of a running checkpoint if nobody is missing any more."""
        pending = started.pending
        if pending.is_fully_acknowledged and pending.state is PendingState.COLLECTING:
            self.finalise(started)

    def data_ended(self, subtask: SubtaskId) -> None:
        """Let a subtask start the checkpoints that run by itself, if no barrier comes there any more."""
        for started in self.running:
            if started.data_ended(subtask):
                self._gateway.trigger((subtask,), started.barrier)

    def abort(self, started: StartedCheckpoint, reason: Reason, detail: str) -> None:
        """Give a checkpoint up; one that is being written goes on."""
        if started.pending.state is not PendingState.COLLECTING or started.id not in self._started:
            return
        self.finaliser.withdraw(started.id)
        self._retention.dead(started.id, started.pending.abort(reason), started.location)
        self._failed(started, reason, detail)

    def drop_all(self, reason: Reason) -> tuple[StartedCheckpoint, ...]:
        """Forget everything that runs and delete nothing: the files may be somebody else's by now."""
        dropped = self.running
        for started in dropped:
            self.finaliser.withdraw(started.id)
            started.pending.abort(reason)
        self._started.clear()
        return dropped

    def finalise(self, started: StartedCheckpoint) -> None:
        """All have acknowledged: write the record when its turn comes."""
        attempt = self._attempt

        def begin() -> Callable[[], Finalized | Fenced]:
            started.pending.begin_finalising()
            self._history.finalising(started.id)
            checkpoint = self._complete(started, attempt)
            return lambda: self._write(checkpoint)

        self.finaliser.submit(
            started.id, begin, lambda o: self._written(started, o), self._not_written(started)
        )

    def discard(self, checkpoint_id: int, files: Iterable[FileHandle]) -> None:
        """Of these files, delete those that were written for a checkpoint that is dead."""
        self._retention.discard(checkpoint_id, files)

    def discard_late(self, checkpoint_id: int, files: Iterable[FileHandle]) -> None:
        """Files came for a checkpoint that does not run: delete those that nothing can need."""
        self._retention.discard_late(checkpoint_id, files, was_started=checkpoint_id < self._next_id)

    def _complete(self, started: StartedCheckpoint, attempt: int) -> CompletedCheckpoint:
        acknowledged = started.pending.acknowledged
        parts = {subtask: part.snapshot for subtask, part in acknowledged.items()}
        previous = self.latest or self._restored
        states = {} if previous is None else previous.operators
        operators = self._planner.collect(parts, started.plan.finished, states)
        carried = self._planner.carried(started.plan.finished, states)
        operators = self._planner.with_coordinators(operators, started.pending.coordinator_states)
        return CompletedCheckpoint(
            started.id,
            attempt,
            started.pending.kind,
            operators,
            started.pending.triggered_at,
            self._clock.now(),
            location=started.location,
            master_states=started.pending.master_states,
            carried=CarriedState(carried, previous.location) if carried and previous is not None else None,
            statistics=self._history.completing(
                self._clock.monotonic() - started.started_at,
                {subtask: part.metrics for subtask, part in acknowledged.items()},
            ),
        )

    def _written(self, started: StartedCheckpoint, outcome: Finalized | Fenced) -> None:
        if isinstance(outcome, Fenced) or not self._retention.has_store:
            self._ends.fenced()
            return
        checkpoint = outcome.checkpoint
        started.pending.complete()
        del self._started[started.id]
        self._failures.succeeded(started.id)
        duration = self._clock.monotonic() - started.started_at
        self._history.completed(started.id, checkpoint.completed_at, duration, checkpoint.size)
        self._retention.completed(checkpoint, self._oldest_base())
        self._ends.completed(started, checkpoint)
        self._subsume_older_than(started.id)

    def _not_written(self, started: StartedCheckpoint) -> Callable[[BaseException], None]:
        def failed(error: BaseException) -> None:
            files = started.pending.abort(Reason.FINALIZE_CHECKPOINT_FAILURE)
            unsure = isinstance(error, (OutcomeUnknownError, CorruptSnapshotError))
            if isinstance(error, StorageError) and not unsure:
                self._retention.dead(started.id, files, started.location)
            detail = f"its record could not be written: {type(error).__name__}: {error}"
            self._failed(started, Reason.FINALIZE_CHECKPOINT_FAILURE, detail)

        return failed

    def _expire(self, started: StartedCheckpoint) -> None:
        missing = ", ".join(started.pending.missing_names()[:5]) or "its turn to be written"
        detail = f"not complete after {self._timeout:g} s; it waited for {missing}"
        self.abort(started, Reason.CHECKPOINT_EXPIRED, detail)

    def _subsume_older_than(self, checkpoint_id: int) -> None:
        for started in self.running:
            if started.id < checkpoint_id and started.pending.can_be_subsumed:
                self.abort(started, Reason.CHECKPOINT_SUBSUMED, f"checkpoint {checkpoint_id} completed first")

    def _failed(self, started: StartedCheckpoint, reason: Reason, detail: str) -> None:
        del self._started[started.id]
        self._history.failed(started.id, reason, detail, self._clock.monotonic() - started.started_at)
        self._retention.release(self._oldest_base())
        self._ends.failed(started, reason, detail)

    def _oldest_base(self) -> int | None:
        bases = [s.pending.base_id for s in self._started.values() if s.pending.base_id >= 0]
        return min(bases) if bases else None
