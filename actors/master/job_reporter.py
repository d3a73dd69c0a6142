"""Builds a job's report from the scheduler's statistics, the processes and the subtasks' counters."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.actors.shared.job_report import (
    CHECKPOINTS_SHOWN,
    NO_CHECKPOINTS,
    HistoryEntry,
    JobMasterProcess,
    JobReport,
    SubtaskInfo,
    SubtaskProcess,
    Takeover,
    bounded,
)
from penstock.actors.shared.slow_checkpoint import (
    SlowCheckpoint,
    explain_completed,
    explain_running,
    takes_long,
)
from penstock.runtime.checkpoint.coordinator.history import newest_and_rare
from penstock.runtime.checkpoint.coordinator.plan import SubtaskStatus
from penstock.runtime.config.job_config import JobConfig, settings_as_text
from penstock.runtime.error_text import error_text
from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.execution.fleet import Fleet, Member
from penstock.runtime.execution.heartbeat import Silence
from penstock.runtime.execution.heartbeats import Watch
from penstock.runtime.execution.processes import Counters, LongCall
from penstock.runtime.graph.executor import JobStatistics, JobStatus
from penstock.runtime.graph.graph_info import GraphInfo, graph_info
from penstock.runtime.graph.job_graph import JobGraph
from penstock.runtime.job.failover import FailureCause, FailureRecord
from penstock.runtime.job.job_state import JobState, RescaleRecord, SchedulerStatistics
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.operators.metrics import OperatorStatistics
from penstock.runtime.redaction import redacted
from penstock.runtime.snapshot.checkpoint_record import CheckpointRecord, CoordinatorStatistics
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.statistics import RateWindow, SubtaskStatistics
from penstock.runtime.time.durations import as_seconds

logger = logging.getLogger(__name__)

#: Maximum numbers of older failed checkpoints and of older savepoints in a report.
_RARE_SHOWN = 5

#: Maximum number of failures in a report.
_FAILURES_SHOWN = 16

#: Maximum number of entries from the history of earlier JobMasters.
_EARLIER_HISTORY = 100

#: Maximum number of rescales in a report.
_RESCALES_SHOWN = 32

#: Maximum number of warnings in a report; the oldest are dropped.
_WARNINGS_KEPT = 16

_STATUS = {
    JobState.CREATED: JobStatus.CREATED,
    JobState.DEPLOYING: JobStatus.DEPLOYING,
    JobState.INITIALISING: JobStatus.DEPLOYING,
    JobState.RUNNING: JobStatus.RUNNING,
    JobState.RESCALING: JobStatus.RESTARTING,
    JobState.STOPPING: JobStatus.STOPPING,
    JobState.FAILING: JobStatus.FAILING,
    JobState.RESTARTING: JobStatus.RESTARTING,
    JobState.CANCELLING: JobStatus.CANCELLING,
    JobState.FINISHED: JobStatus.FINISHED,
    JobState.FAILED: JobStatus.FAILED,
    JobState.CANCELLED: JobStatus.CANCELLED,
}

#: Statuses of a failed attempt or job; a rescale also reports RESTARTING.
_TROUBLED = (JobStatus.FAILING, JobStatus.RESTARTING, JobStatus.FAILED)


def settings_of(job: JobGraph, config: JobConfig) -> dict[str, str]:
    """The settings of a job, and the snapshot that it was started from."""
    return {
        "restore_from": redacted(str(job.restore_from)),
        "allow_non_restored_state": str(job.allow_non_restored_state),
        **settings_as_text(config),
    }


@dataclass(slots=True)
class _Counted:
    """The last counters of a subtask; `at` is in wall-clock seconds."""

    statistics: SubtaskStatistics
    at: float
    window: RateWindow


class JobReporter:
    def __init__(
        self,
        job_id: str,
        name: str,
        submitted_at: float,
        process: JobMasterProcess,
        ray_submission: str = "",
    ) -> None:
        self._job_id = job_id
        self._ray_submission = ray_submission or None
        self._process = process
        self._name = name
        self._submitted_at = submitted_at
        self._graph = GraphInfo()
        self._described: JobGraph | None = None
        self._storage: str | None = None
        self._settings: dict[str, str] = {}
        self._scheduler: JobScheduler | None = None
        self._fleet: Fleet | None = None
        self._watch: Watch | None = None
        self._counted: dict[SubtaskId, _Counted] = {}
        self._long_calls: dict[SubtaskId, LongCall] = {}
        self._counted_attempt = 0
        #: Id of the checkpoint from which `_sizes` was read.
        self._measured_id = -1
        self._sizes: dict[SubtaskId, int] = {}
        self._slow: SlowCheckpoint | None = None
        #: Seconds between two checkpoints; `None` without checkpointing.
        self._every: float | None = None
        self._begin_failure: FailureRecord | None = None
        self._was_cancelled_before = False
        self._warnings: dict[str, None] = {}
        self._ended_at: float | None = None
        self._cause_of_end = ""
        self._earlier: JobReport | None = None
        self._taken_over_at = 0.0

    @property
    def graph(self) -> GraphInfo:
        """The graph in the last report."""
        return self._graph

    @property
    def has_storage(self) -> bool:
        return self._storage is not None

    def describe(self, job: JobGraph, config: JobConfig) -> None:
        self._describe_graph(job)
        storage = None if config.checkpointing is None else config.checkpointing.storage
        self._storage = None if storage is None else os.fspath(storage)
        self._settings = settings_of(job, config)
        self._every = None if config.checkpointing is None else as_seconds(config.checkpointing.every)
        if config.checkpointing is None:
            self.warn(NO_CHECKPOINTS)

    def _describe_graph(self, job: JobGraph) -> None:
        self._described = job
        self._graph = graph_info(job)

    def carry_on(self, earlier: JobReport) -> None:
        """Continue an earlier JobMaster's report; in the report of an ended job only `master` changes."""
        self._earlier = earlier
        self._taken_over_at = time.time()
        for warning in earlier.warnings:
            self.warn(warning)

    def fell_silent(self, member: Member, silence: Silence) -> None:
        where = f"pid {member.place.pid} on node {member.place.node_id[:8]}"
        logger.warning("job %s: %s (%s): %s", self._job_id, member.role.subtask, where, silence)

    def answers_again(self, member: Member) -> None:
        logger.warning("job %s: %s answers again", self._job_id, member.role.subtask)

    def observe(self, scheduler: JobScheduler, fleet: Fleet, watch: Watch) -> None:
        self._scheduler, self._fleet, self._watch = scheduler, fleet, watch

    def failed_to_begin(self, error: BaseException) -> None:
        cause = FailureCause(error_text(error), recoverable=False)
        self._begin_failure = bounded(FailureRecord(0, time.time(), cause))

    def cancelled_before_it_began(self, error: BaseException) -> None:
        """Report a cancelled job that could not be started: its log has no record of its end."""
        self._was_cancelled_before = True
        self.warn(f"its end could not be recorded: {error_text(error)}")

    def ended(self, cause: str) -> None:
        self._cause_of_end = cause
        self._ended_at = self._ended_at or time.time()

    def counted(self, subtask: SubtaskId, counters: Counters) -> None:
        if self._scheduler is None or counters.attempt != self._scheduler.attempt_of(subtask):
            return
        if self._scheduler.attempt != self._counted_attempt:
            self._counted.clear()
            self._long_calls.clear()
            self._counted_attempt = self._scheduler.attempt
        if counters.statistics is not None:
            known = self._counted.get(subtask)
            window = RateWindow() if known is None else known.window
            window.add(counters.statistics)
            self._counted[subtask] = _Counted(counters.statistics, time.time(), window)
        self._long_calls.pop(subtask, None)
        if counters.long_call is not None:
            self._long_calls[subtask] = counters.long_call

    def report(self) -> JobReport:
        if self._earlier is not None and self._earlier.status.is_terminal:
            return replace(self._earlier, master=self._process)
        if self._earlier is not None and self._scheduler is None and self._begin_failure is None:
            return self._without_scheduler(self._earlier)
        seen = self._seen()
        status, failure = self._standing(seen)
        if status.is_terminal and self._ended_at is None:
            self._ended_at = time.time()
        return JobReport(
            self._job_id,
            self._name,
            status,
            self._submitted_at,
            max(0.0, (self._ended_at or time.time()) - self._submitted_at),
            self._statistics(status),
            self._graph,
            failure,
            history=self._history(seen),
            failures=self._failures(seen),
            rescales=self._rescales(seen),
            subtasks=self._subtasks(seen),
            storage=self._storage,
            master=self._process,
            warnings=tuple(self._warnings),
            checkpoints=None if seen is None else seen.checkpoints,
            checkpoint_history=self._checkpoints(seen),
            savepoint=self._savepoint(seen),
            drained=self._is_drained(seen),
            settings=self._settings,
            ray_submission=self._ray_submission,
            slow_checkpoint=self._slow_checkpoint(seen),
        )

    def _seen(self) -> SchedulerStatistics | None:
        """Return the scheduler's statistics, and note the job's graph, warning and end.

        Returns `None` if the job has not begun.
        """
        if self._scheduler is None or self._begin_failure is not None:
            return None
        if self._scheduler.graph is not self._described:  # the job was rescaled
            self._describe_graph(self._scheduler.graph)
        seen = self._scheduler.statistics()
        if seen.warning is not None:
            self.warn(seen.warning)
        if seen.ended_at is not None:
            self._ended_at = seen.ended_at
        return seen

    def _standing(self, seen: SchedulerStatistics | None) -> tuple[JobStatus, FailureRecord | None]:
        if self._begin_failure is not None:
            return JobStatus.FAILED, self._begin_failure
        if self._was_cancelled_before:
            return JobStatus.CANCELLED, None
        status = JobStatus.CREATED if seen is None else _STATUS[seen.state]
        if seen is None or status not in _TROUBLED:
            return status, None
        if seen.failures:
            return status, bounded(seen.failures[-1])
        if not self._cause_of_end:  # the job is being rescaled
            return status, None
        # The job failed under an earlier JobMaster.
        at = self._ended_at or time.time()
        return status, bounded(FailureRecord(seen.attempt, at, FailureCause(self._cause_of_end)))

    def _failures(self, seen: SchedulerStatistics | None) -> tuple[FailureRecord, ...]:
        earlier = () if self._earlier is None else self._earlier.failures
        # The end record may name a failure that an earlier report describes in more detail.
        known = {failure.attempt for failure in earlier}
        own = () if seen is None else (f for f in seen.failures if f.attempt not in known)
        return (*earlier, *map(bounded, own))[-_FAILURES_SHOWN:]

    def _rescales(self, seen: SchedulerStatistics | None) -> tuple[RescaleRecord, ...]:
        earlier = () if self._earlier is None else self._earlier.rescales
        own = () if seen is None else seen.rescales
        return (*map(self._settled, earlier), *own)[-_RESCALES_SHOWN:]

    def _settled(self, rescale: RescaleRecord) -> RescaleRecord:
        """Return a rescale of an earlier JobMaster; a rescale that was still in progress counts as failed."""
        if rescale.ended_at is not None:
            return rescale
        died = "the JobMaster died meanwhile; the job continues at the parallelism in its log"
        return replace(rescale, ended_at=self._taken_over_at, failure=died)

    def _checkpoints(self, seen: SchedulerStatistics | None) -> tuple[CheckpointRecord, ...]:
        """Some older failed checkpoints and savepoints, then the newest checkpoints, of all JobMasters."""
        if seen is not None:
            return newest_and_rare(seen.checkpoint_history, CHECKPOINTS_SHOWN, _RARE_SHOWN)
        return () if self._earlier is None else self._earlier.checkpoint_history

    def _savepoint(self, seen: SchedulerStatistics | None) -> str | None:
        earlier = None if self._earlier is None else self._earlier.savepoint
        return (None if seen is None else seen.stopped_with) or earlier

    def _is_drained(self, seen: SchedulerStatistics | None) -> bool:
        earlier = self._earlier is not None and self._earlier.drained
        return earlier if seen is None or seen.stopped_with is None else seen.drained

    def _without_scheduler(self, earlier: JobReport) -> JobReport:
        """The report until the log has been read: the earlier JobMaster's, without processes."""
        status = JobStatus.RESTARTING
        if self._was_cancelled_before:
            status = JobStatus.CANCELLED
            self._ended_at = self._ended_at or time.time()
        return replace(
            earlier,
            status=status,
            duration=max(0.0, (self._ended_at or time.time()) - self._submitted_at),
            statistics=replace(earlier.statistics, status=status),
            subtasks=tuple(replace(subtask, process=None) for subtask in earlier.subtasks),
            master=self._process,
            warnings=tuple(self._warnings),
        )

    def _history(self, seen: SchedulerStatistics | None) -> tuple[HistoryEntry, ...]:
        own = () if seen is None else seen.transitions
        if self._earlier is None:
            return own
        earlier = self._earlier.history[-_EARLIER_HISTORY:]
        return (*earlier, Takeover(self._taken_over_at, self._process), *own)

    def warn(self, warning: str) -> None:
        """Show a warning in the report, and log it, once."""
        if warning not in self._warnings:
            self._warnings[warning] = None
            if len(self._warnings) > _WARNINGS_KEPT:
                del self._warnings[next(iter(self._warnings))]
            logger.warning("job %s: %s", self._job_id, warning)

    def _subtasks(self, seen: SchedulerStatistics | None) -> tuple[SubtaskInfo, ...]:
        scheduler = self._scheduler
        if scheduler is None or seen is None:
            return ()
        processes, sizes = self._processes(), self._state_sizes(seen)
        silent = {} if self._watch is None else self._watch.silent
        infos = []
        for subtask, status in sorted(seen.subtasks.items()):
            counted = self._of_attempt().get(subtask)
            infos.append(
                SubtaskInfo(
                    subtask,
                    scheduler.attempt_of(subtask),
                    status,
                    processes.get(subtask),
                    None if counted is None else counted.statistics,
                    silent.get(subtask),
                    None if status is SubtaskStatus.FINISHED else self._long_calls.get(subtask),
                    None if counted is None or status is not SubtaskStatus.RUNNING else counted.window.rates,
                    None if counted is None else counted.at,
                    sizes.get(subtask),
                )
            )
        return tuple(infos)

    def _state_sizes(self, seen: SchedulerStatistics) -> Mapping[SubtaskId, int]:
        """Bytes of each subtask's state in the newest checkpoint, if it was taken at this parallelism."""
        if self._scheduler is None or seen.checkpoints is None:
            return {}
        self._measure(self._scheduler, seen.checkpoints.latest_completed_id)
        then, now = (Counter(s.vertex for s in subtasks) for subtasks in (self._sizes, seen.subtasks))
        return {s: size for s, size in self._sizes.items() if then[s.vertex] == now[s.vertex]}

    def _measure(self, scheduler: JobScheduler, newest: int) -> None:
        """Read the metrics of the newest completed checkpoint, once."""
        if newest == self._measured_id:
            return
        self._measured_id = newest
        self._sizes, self._slow = {}, None
        try:
            details = scheduler.newest_checkpoint()
        except CorruptSnapshotError as error:
            self.warn(f"the metadata of checkpoint {newest} can't be read: {error}")
            return
        if details is not None:
            self._sizes = {s: measured.full_bytes for s, measured in details.subtasks.items()}
            if takes_long(details.record.duration or 0.0, self._every):
                self._slow = explain_completed(self._graph, details)

    def _slow_checkpoint(self, seen: SchedulerStatistics | None) -> SlowCheckpoint | None:
        """The newest completed checkpoint if it was slow, or a slow running one that has taken longer."""
        if self._scheduler is None or seen is None or seen.state is not JobState.RUNNING:
            return None
        awaited = self._scheduler.awaited_acknowledgements()
        if awaited is None or not takes_long(awaited.seconds, self._every):
            return self._slow
        if self._slow is not None and self._slow.duration > awaited.seconds:
            return self._slow
        return explain_running(self._graph, awaited.checkpoint_id, awaited.seconds, awaited.subtasks)

    def _processes(self) -> dict[SubtaskId, SubtaskProcess]:
        if self._fleet is None:
            return {}
        return {
            subtask: SubtaskProcess(subtask, member.place.pid, member.place.node_id)
            for subtask, member in self._fleet.members.items()
        }

    def _statistics(self, status: JobStatus) -> JobStatistics:
        earlier = JobStatistics(status) if self._earlier is None else self._earlier.statistics
        if self._scheduler is None:
            return replace(earlier, status=status)
        seen = self._scheduler.statistics()
        counted = seen.checkpoints or CoordinatorStatistics()
        newest = counted.latest_completed_id
        return JobStatistics(
            status,
            attempt=max(seen.attempt, earlier.attempt),
            restarts=max(seen.restarts, earlier.restarts),
            completed_checkpoints=counted.completed,
            failed_checkpoints=counted.failed,
            last_checkpoint_id=earlier.last_checkpoint_id if newest < 0 else newest,
            operators=self._operators(),
        )

    def _operators(self) -> dict[str, OperatorStatistics]:
        summed: dict[str, OperatorStatistics] = {}
        for counted in self._of_attempt().values():
            for operator, counters in counted.statistics.operators.items():
                summed[operator] = summed[operator].plus(counters) if operator in summed else counters
        return summed

    def _of_attempt(self) -> Mapping[SubtaskId, _Counted]:
        if self._scheduler is None or self._counted_attempt != self._scheduler.attempt:
            return {}
        return self._counted
