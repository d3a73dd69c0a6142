"""`JobScheduler`: one job from its start to its end (Flink's scheduler and its job states).

The scheduler reacts to events and never waits. Answers of subtasks and deployments carry their attempt, and
those of an older attempt are dropped. Timers and storage call back the part that waits for them, and the
answer to a stop goes to the `AttemptStop` that requested it.

Reports about checkpoints go to the checkpoint coordinator, and operators' events to `JobOperators`. The job's
state decides the meaning of every other event; each state is a class in `states/`.

A restarted JobMaster makes a new scheduler and calls `start`. The decision log determines the number of the
next attempt, the checkpoint to restore, and whether the job has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from penstock.runtime.checkpoint.coordinator.coordinator import CheckpointCoordinator
from penstock.runtime.checkpoint.coordinator.files import CheckpointFiles
from penstock.runtime.checkpoint.coordinator.location import SavepointTargets, SnapshotLocation
from penstock.runtime.checkpoint.coordinator.pending_checkpoint import AwaitedAcknowledgements, MessageOutcome
from penstock.runtime.checkpoint.coordinator.plan import CheckpointPlanner
from penstock.runtime.checkpoint.coordinator.requests import (
    CheckpointAnswer,
    CheckpointFailed,
    OnAnswer,
    RequestNote,
)
from penstock.runtime.checkpoint.log.decision_log import COMPACT_EVERY
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.graph.execution_graph import CurrentGraph
from penstock.runtime.graph.job_graph import JobGraph, parallelism_of_vertices
from penstock.runtime.job.automatic_checkpoints import SavepointFollowUp
from penstock.runtime.job.context import ExecutionGateway, JobContext
from penstock.runtime.job.end_of_job import UncoveredOutput
from penstock.runtime.job.failover import FailureCause, regions_of, restart_strategy
from penstock.runtime.job.job_ledger import JobLedger
from penstock.runtime.job.job_operators import JobOperators
from penstock.runtime.job.job_state import (
    Acknowledged,
    Declined,
    EventForCoordinator,
    JobState,
    OnRescaled,
    ReachedEndOfData,
    RescaleRefused,
    RescaleRequest,
    SchedulerStatistics,
    StopRequest,
    SubtaskReport,
    Warned,
)
from penstock.runtime.job.states.deploying import Beginning, Created
from penstock.runtime.job.states.running import Running
from penstock.runtime.ports import AsyncRunner, Clock, SnapshotStorage, StorageOpener, TimerService
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.checkpoint_record import (
    CheckpointDetails,
    CheckpointFailureReason,
    CheckpointMetrics,
    EarlierHistory,
)
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint, snapshot_url
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.time.durations import as_seconds


class JobScheduler:
    """Runs one job.

    Args:
        job_id: Lower-case letters, digits and `-`.
        graph: The job's graph. Only the scheduler rescales it; the gateway has the same object.
        storage: Storage of checkpoints and the decision log. Without checkpointing it may be `None`: the log
            is kept in memory.
        known_attempt: An attempt that another JobMaster has begun, 0 for none. If the log lacks it, the log
            was deleted, and the job fails.
        open_location: Opens storages of snapshots that are not in `storage`.
        user_runner: Runs users' blocking code, which may never return; by default `runner`.
        is_new: Whether the job was only just submitted. A log of another submission under its id then belongs
            to another job: this job fails and writes nothing there.
        writer: A token that only this JobMaster's process has. It identifies this process's records, even if
            the storage did not answer the write.
        submission: A token of the job's submission, which all its JobMasters have. A JobMaster that was
            suspended for long notices by this token that another has taken its place.
        compact_every: Number of records after which the decision log is compacted; at least 2.
        note_request: Takes notes about waiting checkpoint requests, for the job's log.
        warn: Shows the first warning of each operator to the user.

    Raises:
        ConfigurationError: `config` asks for checkpoints, and `storage` is `None`.
    """

    def __init__(
        self,
        job_id: str,
        graph: CurrentGraph,
        config: JobConfig,
        gateway: ExecutionGateway,
        storage: SnapshotStorage | None,
        clock: Clock,
        timers: TimerService,
        runner: AsyncRunner,
        known_attempt: int = 0,
        open_location: StorageOpener | None = None,
        user_runner: AsyncRunner | None = None,
        *,
        is_new: bool = False,
        writer: str = "",
        submission: str = "",
        compact_every: int = COMPACT_EVERY,
        note_request: Callable[[RequestNote], None] = lambda _: None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        if config.checkpointing is not None and storage is None:
            msg = "checkpointing needs a storage: give Checkpointing(storage='...') the URL of a folder"
            raise ConfigurationError(msg)
        self._job_id = job_id
        self._warn = warn
        #: Operators that have warned; their subtasks would repeat the warning.
        self._warned: set[str] = set()
        self._storage = storage if storage is not None else MemoryStorage()
        restart = restart_strategy(config.restart_or_default, job_id)
        self._restarts_by_default = config.restart is None
        ledger = JobLedger(
            job_id,
            self._storage,
            config.checkpointing,
            known_attempt,
            open_location,
            graph.job.restore_from,
            is_new=is_new,
            monotonic=clock.monotonic,
            after_death=restart.after_death,
            writer=writer,
            submission=submission,
            compact_every=compact_every,
            storage_timeout=as_seconds(config.advanced.storage_timeout),
        )
        self._job = job = JobContext(
            graph=graph,
            gateway=gateway,
            ledger=ledger,
            planner=CheckpointPlanner(graph),
            regions_of=regions_of if config.failover == "region" else lambda _: {},
            restart=restart,
            clock=clock,
            timers=timers,
            runner=runner,
            user_runner=user_runner or runner,
            deployment_timeout=as_seconds(config.deployment_timeout),
            created=Created,
            beginning=Beginning,
            running=Running,
        )
        codec = ValueCodec(config.pickles_state, graph.job.classes)
        allow_non_restored = graph.job.allow_non_restored_state
        self._operators = job.operators = JobOperators(job, codec, allow_non_restored=allow_non_restored)
        job.uncovered = UncoveredOutput(job_id, graph.job, codec, self._storage, open_location)
        if config.checkpointing is not None:
            location = SnapshotLocation(self._storage, ledger.paths, ledger.newer_attempt, open_location)
            job.coordinator = CheckpointCoordinator(
                config.checkpointing,
                job.planner,
                gateway,
                CheckpointFiles(self._storage, ledger.paths, runner, open_location),
                ledger.complete_checkpoint,
                fail_job=lambda cause: job.state.failed(FailureCause(cause)),
                fenced=job.fence,
                clock=clock,
                timers=timers,
                runner=runner,
                hooks=self._operators.hooks,
                coordinators=self._operators.coordinators,
                initialize_location=location.prepare,
                # A user's folder may hang for ever, so it must not block threads that the job needs.
                targets=SavepointTargets(
                    location.try_target, job.user_runner, timers, as_seconds(config.checkpointing.timeout)
                ),
                note_request=note_request,
            )

    def recall(self, earlier: EarlierHistory) -> None:
        """Continue the checkpoint history of an earlier JobMaster; call it before `start`."""
        if self._job.coordinator is not None:
            self._job.coordinator.history.recall(earlier)

    def start(self) -> None:
        """Begin the job, or continue it after a restart of the JobMaster; an ended job stays ended."""
        self._deliver(self._job.attempt, self._job.state.start)

    def cancel(self) -> None:
        """Cancel the job; does nothing when it has ended or its end is being recorded."""
        self._deliver(self._job.attempt, self._job.state.cancel)

    def trigger_checkpoint(
        self,
        kind: SnapshotKind = SnapshotKind.CHECKPOINT,
        on_answer: OnAnswer | None = None,
        *,
        target: str | None = None,
        full: bool = False,
    ) -> None:
        """Take a checkpoint or savepoint now; only a running job takes one.

        While a job is being stopped, its sources have ended for the savepoint. A later checkpoint would
        record that they had read everything.

        Args:
            on_answer: Called once with the outcome.
            target: URL of the parent of the savepoint's folder; `None` for the checkpoint storage.
            full: Whether all state is written again, without references to files of earlier checkpoints. Only
                the state of finished subtasks stays in its files.
        """
        coordinator, answer = self._job.coordinator, on_answer or _ignore

        def trigger() -> None:
            state = self._job.state.name
            if coordinator is not None and state is JobState.RUNNING:
                coordinator.trigger(kind, target=target, full=full, on_answer=answer)
                return
            why = f"the job is {state.value}"
            if coordinator is None:
                why = "the job takes no checkpoints: it has no Checkpointing(...)"
            answer(CheckpointFailed(CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING, why))

        self._with_target(kind, target, trigger, answer)

    def take_savepoint(self, target: str | None, on_answer: OnAnswer) -> None:
        """Take a savepoint, then a checkpoint.

        `on_answer` is called once: when the savepoint has failed, a newer checkpoint has completed, the job
        ends, or no checkpoint could be taken.

        Args:
            target: URL of the parent of the savepoint's folder; `None` for the checkpoint storage.
        """
        coordinator = self._job.coordinator
        follow_up = None if coordinator is None else SavepointFollowUp(self._job, coordinator, on_answer)
        answered = on_answer if follow_up is None else follow_up.savepoint_ended
        self.trigger_checkpoint(SnapshotKind.SAVEPOINT, answered, target=target)

    def stop_with_savepoint(self, request: StopRequest, on_answer: OnAnswer) -> None:
        """Take a last savepoint and end the job.

        The job continues until the target is known to be writable. `on_answer` is called once with the
        outcome of the savepoint; after a success, the job ends a little later.
        """

        def stop() -> None:
            job, state = self._job, self._job.state
            if job.is_fenced or not state.stop(request, on_answer):
                reason = CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING
                why = "it takes no checkpoints" if job.coordinator is None else f"it is {state.name.value}"
                on_answer(CheckpointFailed(reason, f"the job can't be stopped with a savepoint: {why}"))

        self._with_target(SnapshotKind.SYNC_SAVEPOINT, request.target, stop, on_answer)

    def rescale(self, parallelism: Mapping[str, int], on_answer: OnRescaled) -> None:
        """Change the parallelism of operators: save the state, redeploy, continue.

        `on_answer` is called once: when the new deployment begins, or with the reason why it does not.
        """
        job = self._job
        try:
            vertices = parallelism_of_vertices(job.graph.job, parallelism)
        except ConfigurationError as error:
            on_answer(RescaleRefused(str(error)))
            return
        if job.is_fenced or not job.state.rescale(RescaleRequest(vertices, on_answer)):
            why = "it takes no checkpoints" if job.coordinator is None else f"it is {job.state.name.value}"
            on_answer(RescaleRefused(f"the job can't be rescaled now: {why}"))

    def on_deployed(self, attempt: int) -> None:
        self._deliver(attempt, self._job.state.deployed)

    def on_deployment_failed(self, attempt: int, cause: FailureCause) -> None:
        self._deliver(attempt, lambda: self._job.state.failed(cause))

    def on_started(self, attempt: int) -> None:
        self._deliver(attempt, self._job.state.started)

    def on_subtask_finished(self, attempt: int, subtask: SubtaskId) -> None:
        self._deliver(attempt, lambda: self._job.state.subtask_finished(subtask), subtask)

    @property
    def _fails_fast(self) -> bool:
        """Whether the job has the default restart strategy and has never completed a checkpoint."""
        coordinator = self._job.coordinator
        completed = 0 if coordinator is None else coordinator.history.counters().completed
        return self._restarts_by_default and completed == 0

    def on_subtask_failed(self, attempt: int, subtask: SubtaskId, cause: FailureCause) -> None:
        if cause.subtask is None:
            cause = replace(cause, subtask=subtask)
        known = self._job.failures.known(attempt, cause, fails_fast=self._fails_fast)
        self._deliver(attempt, lambda: self._job.state.failed(known), subtask)

    def report(self, attempt: int, report: SubtaskReport) -> None:
        """Handle a report of a subtask in this attempt; of old attempts only warnings count."""
        match report:
            case Acknowledged(subtask, checkpoint_id, snapshot, metrics):
                self.acknowledge(attempt, subtask, checkpoint_id, snapshot, metrics)
            case Declined(subtask, checkpoint_id, reason, detail):
                self.decline(attempt, subtask, checkpoint_id, reason, detail)
            case EventForCoordinator(subtask, operator_id, event):
                self.on_operator_event(attempt, subtask, operator_id, event)
            case ReachedEndOfData(subtask):
                self.on_end_of_data(attempt, subtask)
            case Warned(_, operator_id, text):
                if operator_id not in self._warned:
                    self._warned.add(operator_id)
                    self._warn(f"operator '{operator_id}': {text}")

    def on_end_of_data(self, attempt: int, subtask: SubtaskId) -> None:
        self._deliver(attempt, lambda: self._job.state.end_of_data(subtask), subtask)

    def on_operator_event(self, attempt: int, subtask: SubtaskId, operator_id: str, event: Any) -> None:
        self._deliver(attempt, lambda: self._operators.handle_event(subtask, operator_id, event), subtask)

    def acknowledge(
        self,
        attempt: int,
        subtask: SubtaskId,
        checkpoint_id: int,
        snapshot: SubtaskSnapshot,
        metrics: CheckpointMetrics,
    ) -> MessageOutcome:
        coordinator = self._job.coordinator
        if coordinator is None or not self._is_current(attempt, subtask):
            return MessageOutcome.STALE_ATTEMPT
        return coordinator.acknowledge(self._job.attempt, subtask, checkpoint_id, snapshot, metrics)

    def decline(
        self,
        attempt: int,
        subtask: SubtaskId,
        checkpoint_id: int,
        reason: CheckpointFailureReason,
        detail: str = "",
    ) -> MessageOutcome:
        coordinator = self._job.coordinator
        if coordinator is None or not self._is_current(attempt, subtask):
            return MessageOutcome.STALE_ATTEMPT
        return coordinator.decline(self._job.attempt, subtask, checkpoint_id, reason, detail)

    @property
    def state(self) -> JobState:
        return self._job.state.name

    def checkpoints(
        self, *, newest: int | None = None, checkpoint_id: int | None = None
    ) -> tuple[CheckpointDetails, ...]:
        """Return the last checkpoints, or one by its id, with each subtask's metrics; oldest first."""
        coordinator = self._job.coordinator
        if coordinator is None:
            return ()
        return coordinator.history.details(newest=newest, checkpoint_id=checkpoint_id)

    def newest_checkpoint(self) -> CheckpointDetails | None:
        """Return the newest completed checkpoint with each subtask's metrics; raises if these are damaged."""
        return None if self._job.coordinator is None else self._job.coordinator.history.newest_completed()

    def awaited_acknowledgements(self) -> AwaitedAcknowledgements | None:
        """Return the subtasks that the oldest checkpoint awaits; `None` unless only subtasks are missing."""
        return None if self._job.coordinator is None else self._job.coordinator.awaited_acknowledgements()

    @property
    def graph(self) -> JobGraph:
        return self._job.graph.job

    @property
    def attempt(self) -> int:
        return self._job.attempt

    def attempt_of(self, subtask: SubtaskId) -> int:
        """Return the attempt of a subtask; older than the job's if only another region has restarted."""
        return self._job.planner.attempt_of(subtask)

    @property
    def latest_completed(self) -> CompletedCheckpoint | None:
        return None if self._job.coordinator is None else self._job.coordinator.latest_completed

    def statistics(self) -> SchedulerStatistics:
        job, coordinator, ended = self._job, self._job.coordinator, self._job.ended
        failures, stopped = job.failures.records(), job.stopped_with
        savepoint = None if stopped is None else snapshot_url(stopped, self._storage.url)
        drained = stopped is not None and stopped.drained
        checkpoints = None if coordinator is None else coordinator.statistics()
        if ended is not None:
            savepoint, drained = ended.savepoint, ended.drained
            failures = failures if ended.failure is None else (*failures, ended.failure)
            if checkpoints is not None:
                checkpoints = replace(checkpoints, latest_completed_id=ended.newest_checkpoint)
        return SchedulerStatistics(
            job_id=self._job_id,
            name=self._job.graph.job.name,
            state=job.state.name,
            attempt=job.attempt,
            restarts=job.restarts,
            restored_checkpoint=job.restored_id,
            warning=job.warning,
            is_fenced=job.is_fenced,
            failures=failures,
            transitions=tuple(job.transitions),
            rescales=job.rescales.records(),
            subtasks=dict(job.planner.status),
            checkpoints=checkpoints,
            checkpoint_history=() if coordinator is None else coordinator.history.records(),
            stopped_with=savepoint,
            drained=drained,
            ended_at=None if ended is None else ended.at,
        )

    def _with_target(
        self, kind: SnapshotKind, target: str | None, then: Callable[[], None], on_answer: OnAnswer
    ) -> None:
        """Call `then` when the target of a savepoint is known to be writable."""
        coordinator, state = self._job.coordinator, self._job.state.name
        if target is None or coordinator is None or state is not JobState.RUNNING:
            then()
        else:
            coordinator.try_target(kind, target, then, on_answer)

    def _is_current(self, attempt: int, subtask: SubtaskId | None = None) -> bool:
        current = self._job.attempt if subtask is None else self._job.planner.attempt_of(subtask)
        return attempt == current and not self._job.is_fenced

    def _deliver(self, attempt: int, event: Callable[[], None], subtask: SubtaskId | None = None) -> None:
        if self._is_current(attempt, subtask):
            event()


def _ignore(answer: CheckpointAnswer) -> None: ...
