"""`JobRunner`: a job from its first attempt to its end, in the process of its JobMaster (`MasterProcess`).

Ray restarts that process whenever it dies. The checkpoint storage holds everything that it must not forget.
The new process reads the decision log there, begins a new attempt, which fences the old one, and takes over
the subtasks' processes that live.

A job without checkpoints has nothing in storage. What it has done is then unknown, and so is the attempt that
its subtasks run. A restarted JobMaster fails such a job, instead of starting it again over its own output.

Its event loop is the only thread that touches the scheduler. Blocking work runs in a small pool of threads,
and calls of the cluster's key-value store run in `ClusterCalls`. Users' code (master hooks, the work of
enumerators) may hang, so it runs in threads of its own.

A cancellation is accepted at any moment, also when the storage does not let the job start. Then the job ends
without a record in its log. The cluster's store remembers the cancellation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final

from ray.exceptions import RayError

from penstock.actors.master.cluster_calls import ClusterCall, ClusterCalls, ClusterTimeoutError
from penstock.actors.master.guarded_loop import GuardedLoop, happened
from penstock.actors.master.job_assembly import RayFleet, assemble_fleet, assemble_scheduler
from penstock.actors.master.job_reporter import JobReporter
from penstock.actors.master.job_requests import JobRequests
from penstock.actors.master.job_telemetry import JobMetrics, traces_of
from penstock.actors.shared.archive import (
    is_to_be_cancelled,
    keep_beside_checkpoints,
    load_from_cluster,
    open_proven,
    remember_cancellation,
    save_to_cluster,
)
from penstock.actors.shared.graph_shipping import unpack_job
from penstock.actors.shared.job_report import JobMasterProcess, JobReport
from penstock.actors.shared.node_processes import own_place
from penstock.actors.shared.output_capture import capture_job_master
from penstock.actors.shared.registry import SubmittedJob
from penstock.actors.shared.system_ports import SystemClock
from penstock.runtime.checkpoint.log.slots import Fenced
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import (
    CorruptSnapshotError,
    DeploymentError,
    JobIdTakenError,
    StorageError,
    StorageTimeoutError,
)
from penstock.runtime.execution.heartbeats import Watch
from penstock.runtime.execution.role import Role
from penstock.runtime.graph.execution_graph import CurrentGraph, build_execution_graph
from penstock.runtime.graph.executor import JobStatus
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.messages import SubtaskReport
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.snapshot.checkpoint_record import CheckpointDetails
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.time.durations import as_seconds

logger = logging.getLogger(__name__)

#: Number of newest checkpoints that include all that completed since the last round, two seconds ago.
_PUBLISHED: Final = 100
#: Seconds that `wait_end` waits for the report of an ended job to be kept.
_KEEPING: Final = 10.0
#: Seconds that a JobMaster waits for the cluster's records of its job.
_LOOKING_UP: Final = 30.0
#: Seconds that a cancelling client waits for the cluster to note it.
_NOTING: Final = 10.0
#: Seconds for work that still runs in threads when a job has ended.
_LAST_WORK: Final = 2.0
#: Seconds between the tries of a restarted JobMaster that can't read its storage; ten minutes together.
_STORAGE_RETRIES: Final = (1.0, 2.0, 5.0, 10.0, *(30.0,) * 19)
#: Number of tries for a cancelled job: eight seconds together.
_TRIES_OF_CANCELLED: Final = 4
#: The failure of a job without a log whose JobMaster has died.
_NOTHING_KNOWN: Final = (
    "the process of its JobMaster died, and the job takes no checkpoints, so what it has done is not known. "
    "Look at what its sinks have written, then submit it again; with JobConfig(checkpointing=...) it would "
    "have gone on"
)


class JobRunner:
    """Runs one job from its first attempt to its end; to be made in the actor's event loop.

    Args:
        came_back: Whether Ray has restarted the process that ran it.
        log_key: The key of the job's lines; without it the output of this process is not kept.
        on_over: Called when the job has ended and its report is kept. The argument says whether this job
            lets the process run another one. The call must not wait for ever.
        on_fenced: Called when another process has begun an attempt of the job.
    """

    def __init__(
        self,
        job: SubmittedJob,
        came_back: bool,
        cluster: ClusterCalls,
        log_key: bytes | None = None,
        *,
        on_over: Callable[[JobRunner, bool], Awaitable[None]],
        on_fenced: Callable[[str], None],
    ) -> None:
        job_id = job.job_id
        self._came_back = came_back
        self._cluster = cluster
        self._on_over = on_over
        self._on_fenced = on_fenced
        self._is_over = False
        #: Whether the storage holds another job's files under this job's id.
        self._is_taken = False
        self._reuse_processes = False
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="job-master")
        self._ended = asyncio.Event()
        self._prepared = asyncio.Event()
        self._to_be_cancelled = asyncio.Event()
        self._guarded = GuardedLoop(self._loop, job_id)
        place = own_place()
        process = JobMasterProcess(place.pid, place.node_id, place.started)
        self._reporter = JobReporter(job_id, job.name, job.submitted_at, process)
        self.requests = JobRequests(self._guarded.guard, self._prepared, self._ended, self._reporter.report)
        self._job_id = job_id
        self._output = capture_job_master(job_id, log_key)
        self._processes: RayFleet | None = None
        self._watch: Watch | None = None
        self._scheduler: JobScheduler | None = None
        self._metrics = JobMetrics(job_id, job.name)
        self._traces = traces_of(job_id, job.name, self._reporter.warn)
        self._storage: SnapshotStorage = MemoryStorage()
        self._submission = job.submission
        self._guarded.spawn(self._begin(job.chunks))

    @property
    def job_id(self) -> str:
        return self._job_id

    # -- calls of clients -----------------------------------------------------------------------------------

    async def ready(self) -> None:
        """Return when the scheduler of the job has started, or could not be made."""
        await self._prepared.wait()

    async def status(self, fresh: bool) -> JobReport:
        """The job's report; without `fresh` its counters are those of the last round, at most 2 s old."""
        if fresh:
            await self._look()
        return self._reporter.report()

    async def wait_end(self, seconds: float) -> JobReport:
        """Wait at most `seconds` for the job to end; returns its report.

        A report of an ended job has been kept, unless the storage does not answer: the program may end next,
        and its cluster with it.
        """
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), seconds)
        await self._look()
        report = self._reporter.report()
        if report.status.is_terminal:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), _KEEPING)
        return report

    async def cancel(self) -> None:
        """Cancel the job; does nothing when it has ended. A cancellation outlives this process.

        Raises:
            ClusterTimeoutError: The cluster could not note the cancellation. The job is being cancelled
                anyway.
        """
        self._to_be_cancelled.set()
        scheduler = self._scheduler
        if scheduler is not None:
            scheduler.cancel()
        if self._has_no_future():
            return
        note = partial(remember_cancellation, self._job_id)
        noted = self._cluster.begin(f"note that job {self._job_id} is to be cancelled", note)
        try:
            await noted.answered(_NOTING)
        except ClusterTimeoutError:
            if not self._has_no_future():
                raise

    def _has_no_future(self) -> bool:
        if self._scheduler is None:
            return self._prepared.is_set()
        return self._scheduler.state.is_terminal

    async def checkpoints(self, checkpoint_id: int | None) -> tuple[CheckpointDetails, ...]:
        """The last checkpoints with what each subtask measured, oldest first; with an id, those with it."""
        await self._prepared.wait()
        return () if self._scheduler is None else self._scheduler.checkpoints(checkpoint_id=checkpoint_id)

    # -- calls of subtasks ----------------------------------------------------------------------------------

    def report(self, role: Role, report: SubtaskReport) -> None:
        """Take a subtask's report; the scheduler ignores those of old attempts."""
        scheduler = self._scheduler
        if scheduler is None or role.job_id != self._job_id:
            return
        with self._guarded.guard():
            scheduler.report(role.attempt, report)

    # -- the job's life -------------------------------------------------------------------------------------

    async def _begin(self, chunks: tuple[bytes, ...]) -> None:
        try:
            await self._prepare_patiently(chunks)
        except (Exception, KeyboardInterrupt, SystemExit) as error:  # users' modules are imported here
            logger.exception("job %s can't be started", self._job_id)
            if self._came_back and self._to_be_cancelled.is_set():
                self._reporter.cancelled_before_it_began(error)
                await self._take_over_to_end(chunks)
            else:
                self._is_taken = isinstance(error, JobIdTakenError)
                self._reporter.failed_to_begin(error)
            await self._end()
        finally:
            self._prepared.set()

    async def _prepare_patiently(self, chunks: tuple[bytes, ...]) -> None:
        """Start the scheduler; a restarted process waits a while for an unreachable storage."""
        for tried, delay in enumerate(_STORAGE_RETRIES if self._came_back else (), start=1):
            try:
                await self._prepare(chunks)
            except (StorageError, ClusterTimeoutError, RayError) as error:
                # The hanging storage was already waited for.
                is_enough = tried >= _TRIES_OF_CANCELLED or isinstance(error, StorageTimeoutError)
                if self._to_be_cancelled.is_set() and is_enough:
                    raise
                logger.warning("job %s can't be started yet: %s", self._job_id, error)
                await self._pause(delay)
            else:
                return
        await self._prepare(chunks)

    async def _pause(self, seconds: float) -> None:
        """Wait before the next try; a cancellation ends the wait."""
        if self._to_be_cancelled.is_set():
            await asyncio.sleep(seconds)
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._to_be_cancelled.wait(), seconds)

    async def _prepare(self, chunks: tuple[bytes, ...]) -> None:
        earlier = await self._look_up()
        graph, config = await self._unpack(chunks)
        if self._came_back and earlier is not None and earlier.status.is_terminal:
            # Its process died before it left. A log whose storage did not answer has no record of the end.
            await self._take_over(graph, config, chunks)
            if config.checkpointing is not None:
                await self._keep_again(config, earlier)
            await self._end_again()
            return
        if config.checkpointing is not None:
            await self._open_storage(config)
        processes = await self._take_over(graph, config, chunks)
        has_log = self._reporter.has_storage
        if not has_log and not self._to_be_cancelled.is_set() and self._came_back:
            raise DeploymentError(_NOTHING_KNOWN)
        self._scheduler = scheduler = assemble_scheduler(
            self._job_id,
            graph,
            config,
            processes,
            self._storage,
            self._guarded,
            self._pool,
            earlier=earlier if has_log else None,
            is_new=not self._came_back,
            submission=self._submission,
            on_end=self._on_end,
            on_fenced=self._fenced,
            warn=self._reporter.warn,
        )
        self._serve(scheduler, processes, config)
        scheduler.start()
        if self._to_be_cancelled.is_set():
            scheduler.cancel()

    async def _look_up(self) -> JobReport | None:
        """Return the cluster's last report of the job; notes whether the job is to be cancelled."""

        def look() -> tuple[JobReport | None, bool]:
            return load_from_cluster(self._job_id), is_to_be_cancelled(self._job_id)

        call = self._cluster.begin(f"look up what is known of job {self._job_id}", look)
        earlier, is_cancelled = await call.answered(_LOOKING_UP)
        if is_cancelled:
            self._to_be_cancelled.set()
        if earlier is not None:
            self._reporter.carry_on(earlier)
        return earlier

    async def _unpack(self, chunks: tuple[bytes, ...]) -> tuple[CurrentGraph, JobConfig]:
        job, config = await self._loop.run_in_executor(self._pool, unpack_job, chunks)
        graph = CurrentGraph(build_execution_graph(job))
        self._reporter.describe(job, config)
        self._reuse_processes = config.reuse_processes
        return graph, config

    async def _open_storage(self, config: JobConfig) -> None:
        storage_url = None if config.checkpointing is None else config.checkpointing.storage
        if storage_url is None:
            return
        opened = partial(
            open_proven,
            storage_url,
            self._job_id,
            is_new=not self._came_back,
            submission=self._submission,
            timeout=as_seconds(config.advanced.storage_timeout),
        )
        storage = await self._loop.run_in_executor(self._pool, opened)
        if isinstance(storage, Fenced):
            self._fenced()
            await asyncio.Event().wait()  # until this process ends, so that no client considers it ready
        else:
            self._storage = storage

    async def _take_over(self, graph: CurrentGraph, config: JobConfig, chunks: tuple[bytes, ...]) -> RayFleet:
        processes = assemble_fleet(self._job_id, graph, config, self._guarded, self._cluster, chunks)
        await processes.processes.find_left_behind()
        self._processes = processes
        await happened(processes.fleet.adopt)
        return processes

    async def _take_over_to_end(self, chunks: tuple[bytes, ...]) -> None:
        """Like `_take_over`, for a cancelled job; processes that can't be found end by their leases."""
        if self._processes is not None:
            return
        try:
            graph, config = await self._unpack(chunks)
            await self._take_over(graph, config, chunks)
        except Exception:  # the job ends after any error
            logger.exception("the processes of job %s end by themselves", self._job_id)

    def _serve(self, scheduler: JobScheduler, processes: RayFleet, config: JobConfig) -> None:
        """Take clients' requests from now on, and watch the subtasks."""
        fleet = processes.fleet
        self._reporter.observe(scheduler, fleet)
        self.requests.serve(scheduler, self._storage.url)
        reporter = self._reporter
        self._watch = Watch(
            fleet,
            processes.processes,
            SystemClock(),
            processes.timers,
            config,
            reporter.counted,
            listener=reporter,
        )
        reporter.watched_by(self._watch)
        # An error in it is logged: leases are renewed all the same.
        self._watch.begin(lambda: self._guarded.spawn(self._publish()))

    async def _publish(self) -> None:
        report = self._reporter.report()
        self._publish_metrics(report)
        self._save(report)

    def _save(self, report: JobReport) -> ClusterCall[None]:
        return self._cluster.begin_newest(
            f"keep the report of job {self._job_id}", partial(save_to_cluster, report)
        )

    def _publish_metrics(self, report: JobReport) -> None:
        scheduler = self._scheduler

        def checkpoints() -> tuple[CheckpointDetails, ...]:
            try:
                return () if scheduler is None else scheduler.checkpoints(newest=_PUBLISHED)
            except CorruptSnapshotError as error:
                self._reporter.warn(f"what older checkpoints have measured can't be read: {error}")
                return ()

        self._metrics.publish(report, checkpoints)
        if self._traces is not None:
            self._traces.publish(report, checkpoints)

    async def _end_again(self) -> None:
        """Answer clients of a job that had ended before the JobMaster restarted; repeats no work."""
        if self._processes is not None:
            await happened(self._processes.fleet.leave)
        await self._over(False)

    async def _over(self, may_stay: bool) -> None:
        self._is_over = True
        try:
            await self._on_over(self, may_stay)
        finally:
            self._ended.set()

    def _fenced(self) -> None:
        if not self._is_over:
            self._on_fenced(self._job_id)

    def _on_end(self, state: JobState, cause: str) -> None:
        self._reporter.ended(cause)
        self._guarded.spawn(self._end())

    async def _look(self) -> None:
        if self._watch is not None and not self._is_over:
            await happened(self._watch.look)

    async def _end(self) -> None:
        """End the subtasks and keep the report; calls that wait for the end return in any case."""
        may_stay = False
        try:
            await self._look()
            if self._watch is not None:
                self._watch.end()
            if self._processes is not None:
                await happened(self._processes.fleet.leave)
            await self._keep_report()
            await self._end_traces()
            may_stay = self._reuse_processes and self._ended_well()
            if may_stay:
                # Deletions that still run; a process with one that takes longer serves no other job.
                with suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.to_thread(self._pool.shutdown), _LAST_WORK)
        finally:
            await self._over(may_stay)

    def _ended_well(self) -> bool:
        return self._reporter.report().status in {JobStatus.FINISHED, JobStatus.CANCELLED}

    async def _keep_report(self) -> None:
        report = self._reporter.report()
        self._publish_metrics(report)
        saved = self._save(report)
        try:
            await saved.answered(_KEEPING)
        except ClusterTimeoutError as error:
            # The call keeps its place, and the process waits for it once more before it leaves.
            logger.warning("job %s ends all the same: %s", self._job_id, error)
        finally:
            scheduler = self._scheduler
            is_fenced = scheduler is not None and scheduler.statistics().is_fenced
            if self._reporter.has_storage and not (self._is_taken or is_fenced):
                # A hanging storage delays no end; the cluster has the report.
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._keep_beside_checkpoints(report), _KEEPING)

    async def _keep_again(self, config: JobConfig, report: JobReport) -> None:
        """Keep the last report of a job that had ended: its process may have died before it could."""

        async def keep() -> None:
            await self._open_storage(config)
            await self._keep_beside_checkpoints(report)

        try:
            await asyncio.wait_for(keep(), _KEEPING)
        except (StorageError, TimeoutError) as error:
            logger.warning("the report of job %s is kept in the cluster alone: %s", self._job_id, error)

    async def _keep_beside_checkpoints(self, report: JobReport) -> None:
        keep = partial(keep_beside_checkpoints, self._storage, report)
        await self._loop.run_in_executor(self._pool, keep)

    async def _end_traces(self) -> None:
        if self._traces is not None:
            # A hanging collector delays no end.
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.to_thread(self._traces.close), _LAST_WORK)

    def retire(self) -> None:
        """Prevent events of the ended job from ending the process."""
        self._guarded.retire()

    def release_output(self) -> None:
        """Let the process write the output of another job."""
        if self._output is not None:
            self._output.release()
            self._output = None
