"""Puts the scheduler of a job together with what acts for it on Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import ray

from penstock.actors.master.deployment import Deployment
from penstock.actors.master.guarded_loop import GuardedLoop
from penstock.actors.master.loop_timers import LoopTimers
from penstock.actors.master.ray_execution import RayExecution
from penstock.actors.master.subtask_fleet import SubtaskFleet
from penstock.actors.master.user_threads import UserThreads
from penstock.actors.shared.background import BackgroundRunner
from penstock.actors.shared.job_report import JobReport
from penstock.actors.shared.system_clock import SystemClock
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.io.storage import open_location
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.snapshot.checkpoint_record import EarlierHistory


def assemble_scheduler(
    job_id: str,
    graph: ExecutionGraph,
    config: JobConfig,
    fleet: SubtaskFleet,
    storage: SnapshotStorage,
    guarded: GuardedLoop,
    pool: ThreadPoolExecutor,
    *,
    earlier: JobReport | None,
    on_end: Callable[[str], None],
    on_fenced: Callable[[], None],
) -> JobScheduler:
    """The scheduler of a job, ready to start; to be called in the JobMaster's event loop.

    Args:
        job_id: The job.
        graph: Its subtasks.
        config: Its settings.
        fleet: The actors of its subtasks.
        storage: Where its checkpoints are.
        guarded: Runs what touches the scheduler.
        pool: Runs what blocks, but no hooks and no work of enumerators: these are the user's and may hang.
        earlier: The last report of an earlier JobMaster of a job that has a log; `None` for none.
        on_end: Told when the job has ended, and why if it has failed.
        on_fenced: Told when another JobMaster has taken the job over.
    """
    me = ray.get_runtime_context().current_actor
    deployment = Deployment(job_id, graph, config, storage, fleet, me, pool)
    execution = RayExecution(job_id, graph, fleet, deployment, on_end=on_end, on_fenced=on_fenced)
    execution.scheduler = JobScheduler(
        job_id,
        graph,
        config,
        execution,
        storage,
        SystemClock(),
        LoopTimers(asyncio.get_running_loop(), guarded.guard),
        BackgroundRunner(pool, guarded.post),
        known_attempt=0 if earlier is None else earlier.statistics.attempt,
        open_location=open_location,
        user_runner=BackgroundRunner(UserThreads("user-code"), guarded.post),
    )
    if earlier is not None and earlier.checkpoints is not None:
        execution.scheduler.recall(EarlierHistory(earlier.checkpoint_history, earlier.checkpoints))
    return execution.scheduler
