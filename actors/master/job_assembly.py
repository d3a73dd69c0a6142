"""Assembles the scheduler of a job over its fleet of processes."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from penstock.actors.shared.job_report import JobReport
from penstock.actors.shared.system_ports import (
    BackgroundRunner,
    GuardedLoop,
    SystemClock,
    UserThreads,
)
from penstock.runtime.checkpoint.coordinator.requests import RequestNote
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.execution.deployment import Deployer
from penstock.runtime.execution.fleet import Fleet
from penstock.runtime.execution.job_execution import JobExecution
from penstock.runtime.execution.processes import Processes
from penstock.runtime.graph.execution_graph import CurrentGraph, ExecutionGraph
from penstock.runtime.io.storage import open_location
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.ports import SnapshotStorage, StorageOpener, TimerService
from penstock.runtime.snapshot.checkpoint_record import EarlierHistory
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.describe_tasks import describe_tasks
from penstock.runtime.task.descriptor import TaskDescriptor
from penstock.runtime.time.durations import as_seconds

logger = logging.getLogger(__name__)


def assemble_scheduler(
    job_id: str,
    graph: CurrentGraph,
    config: JobConfig,
    fleet: Fleet,
    processes: Processes,
    timers: TimerService,
    storage: SnapshotStorage,
    guarded: GuardedLoop,
    pool: ThreadPoolExecutor,
    *,
    earlier: JobReport | None,
    is_new: bool,
    submission: str,
    on_end: Callable[[JobState, str], None],
    on_fenced: Callable[[], None],
    warn: Callable[[str], None],
) -> JobScheduler:
    """Make the scheduler of a job, ready to start; call it in the JobMaster's event loop.

    Args:
        pool: Runs blocking work, except hooks and work of enumerators, which are users' code and may hang.
        earlier: Last report of an earlier JobMaster, for a job with a decision log.
        is_new: Whether the job was just submitted; its id must then have no log.
        submission: Token shared by all processes that are given the job.
        on_end: Called when the job has ended, with its last state and, if it has failed, the cause.
        on_fenced: Called when another JobMaster has taken the job over.
        warn: Called in the event loop with a warning for the user.
    """
    clock = SystemClock()

    place: StorageOpener = open_location
    if config.checkpointing is not None:
        place = partial(open_location, timeout=as_seconds(config.advanced.storage_timeout))

    def describe(
        attempt: int,
        graph: ExecutionGraph,
        restore: CompletedCheckpoint | None,
        subtasks: Collection[SubtaskId],
        is_first: bool,
    ) -> Sequence[TaskDescriptor]:
        return describe_tasks(
            job_id,
            attempt,
            graph,
            config,
            restore,
            storage,
            subtasks,
            place,
            is_first=is_first,
            warn=lambda warning: guarded.post(partial(warn, warning)),
        )

    runner = BackgroundRunner(pool, guarded.post)
    deployer = Deployer(graph, config, fleet, processes, timers, runner, describe)
    execution = JobExecution(
        graph,
        fleet,
        deployer,
        processes,
        clock,
        timers,
        on_end=on_end,
        on_fenced=on_fenced,
    )
    scheduler = JobScheduler(
        job_id,
        graph,
        config,
        execution,
        storage,
        clock,
        timers,
        runner,
        known_attempt=0 if earlier is None else earlier.statistics.attempt,
        open_location=place,
        user_runner=BackgroundRunner(UserThreads("user-code"), guarded.post),
        is_new=is_new,
        writer=secrets.token_hex(8),
        submission=submission,
        note_request=partial(_log_request, job_id),
        warn=warn,
    )
    if earlier is not None and earlier.checkpoints is not None:
        scheduler.recall(EarlierHistory(earlier.checkpoint_history, earlier.checkpoints))
    execution.listener = scheduler
    return scheduler


def _log_request(job_id: str, note: RequestNote) -> None:
    level = logging.DEBUG if note.is_routine else logging.INFO
    logger.log(logging.WARNING if note.is_warning else level, "job %s: %s", job_id, note.text)
