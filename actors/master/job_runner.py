"""`JobRunner`: a job from its first attempt to its end, in the process of its JobMaster (`MasterProcess`).

`JobLifecycle` decides the steps; `JobRunner` carries them out on Ray, and answers clients. Its event loop is
the only thread that touches the scheduler. Blocking work runs in a small pool of threads, and calls to the
cluster's key-value store run in `ClusterCalls`. Hooks and the work of enumerators are users' code that may
hang, so they run in threads of their own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

import ray
from ray.exceptions import RayError

from penstock.actors.master.cluster_calls import ClusterCall, ClusterCalls, ClusterTimeoutError
from penstock.actors.master.job_assembly import assemble_scheduler
from penstock.actors.master.job_reporter import JobReporter
from penstock.actors.master.job_requests import JobRequests
from penstock.actors.master.job_telemetry import JobMetrics, traces_of
from penstock.actors.master.program_keeper import keep
from penstock.actors.master.ray_processes import RayProcesses
from penstock.actors.shared.archive import (
    is_to_be_cancelled,
    keep_beside_checkpoints,
    load_from_cluster,
    may_have_jobs,
    open_proven,
    remember_cancellation,
    save_to_cluster,
)
from penstock.actors.shared.edge_records import EdgeRecord, merged, output_edge
from penstock.actors.shared.graph_shipping import unpack_job
from penstock.actors.shared.job_report import JobMasterProcess, JobReport
from penstock.actors.shared.node_processes import own_place
from penstock.actors.shared.output_capture import JOB_MASTER, capture_output
from penstock.actors.shared.registry import SubmittedJob
from penstock.actors.shared.system_ports import GuardedLoop, LoopTimers, SystemClock, answered, spawn
from penstock.runtime.checkpoint.log.slots import Fenced
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import CorruptSnapshotError, StorageError
from penstock.runtime.execution.fleet import Fleet
from penstock.runtime.execution.heartbeats import Watch
from penstock.runtime.execution.job_lifecycle import JobLifecycle, JobLookup, StartedJob, StartFailure, Then
from penstock.runtime.graph.execution_graph import CurrentGraph, build_execution_graph
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.snapshot.checkpoint_record import CheckpointDetails
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.time.durations import as_seconds

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Number of newest checkpoints to publish: all that can complete in a round of two seconds.
_PUBLISHED: Final = 100
#: Seconds for the report of an ended job to be stored, in the cluster and next to the checkpoints.
_KEEPING: Final = 10.0
#: Seconds that a JobMaster waits for the cluster's records of its job.
_LOOKING_UP: Final = 30.0
#: Seconds that a client waits for the cluster to record a cancellation.
_NOTING: Final = 10.0
#: Maximum seconds of a sample.
_SAMPLED: Final = 30.0
#: Maximum number of subtasks that are asked for records of an edge.
_SENDERS: Final = 8
#: Errors of users' code, which may also call `sys.exit`.
_USERS_ERRORS: Final = (Exception, KeyboardInterrupt, SystemExit)
#: Seconds for work that still runs in threads when a job has ended.
_LAST_WORK: Final = 2.0


class JobRunner:
    """Runs one job; must be made in the actor's event loop.

    Args:
        is_restart: Whether Ray has restarted the process that ran the job.
        log_key: Key that signs the job's log lines; without it the output of this process is not kept.
        on_over: Called when the report of the ended job is stored, or could not be stored in time. Receives
            whether another job may follow, and a callback that answers the waiting clients.
        on_fenced: Called when another process has begun an attempt of the job.
    """

    def __init__(
        self,
        job: SubmittedJob,
        is_restart: bool,
        cluster: ClusterCalls,
        log_key: bytes | None = None,
        *,
        on_over: Callable[[bool, Then], None],
        on_fenced: Then,
    ) -> None:
        job_id = job.job_id
        self._job = job
        self._is_restart = is_restart
        self._cluster = cluster
        self._on_over = on_over
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="job-master")
        self._ended = asyncio.Event()
        self._prepared = asyncio.Event()
        self._guarded = GuardedLoop(self._loop, job_id)
        self.guard = self._guarded.guard
        place = own_place()
        process = JobMasterProcess(place.pid, place.node_id, place.started)
        self._reporter = JobReporter(job_id, job.name, job.submitted_at, process, job.ray_submission)
        self.requests = JobRequests(self._guarded.guard, self._prepared, self._ended, self._reporter.report)
        self._output = capture_output(job_id, JOB_MASTER, None, log_key)
        self._graph: CurrentGraph | None = None
        self._config = JobConfig()
        self._earlier: JobReport | None = None
        self._processes: RayProcesses | None = None
        self._fleet: Fleet | None = None
        self._metrics = JobMetrics(job_id, job.name)
        self._traces = traces_of(job_id, job.name, self._reporter.warn)
        self._storage: SnapshotStorage = MemoryStorage()
        self._timers = LoopTimers(self._loop, self._guarded.run)
        self._life = JobLifecycle(
            self, self._timers, is_restart=is_restart, on_over=self._over, on_fenced=on_fenced
        )
        self._loop.call_soon(self._guarded.run, self._life.start)

    @property
    def job_id(self) -> str:
        return self._job.job_id

    @property
    def scheduler(self) -> JobScheduler | None:
        """The job's scheduler; `None` until the job has started. Call it within `guard`."""
        return self._life.scheduler

    # -- calls of clients -----------------------------------------------------------------------------------

    async def ready(self) -> None:
        await self._prepared.wait()

    async def status(self, fresh: bool) -> JobReport:
        """The job's report; without `fresh`, its counters are those of the last regular round."""
        if fresh:
            await answered(self._life.look)
        return self._reporter.report()

    async def wait_end(self, seconds: float) -> JobReport:
        """Wait at most `seconds` for the job to end; return its report.

        The report of an ended job is stored by then, unless the storage does not answer. So the program may
        end, and its cluster with it.
        """
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), seconds)
        report = await self.status(fresh=True)
        if report.status.is_terminal:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), _KEEPING)
        return report

    async def cancel(self) -> None:
        """Cancel the job; does nothing when it has ended. A cancellation outlives this process.

        Raises:
            ClusterTimeoutError: The cluster did not record the cancellation in time; the job is cancelled
                anyway.
        """
        with self.guard():
            if not self._life.cancel():
                return
        note = partial(remember_cancellation, self.job_id)
        noted = self._cluster.begin(f"record the cancellation of job {self.job_id}", note)
        try:
            await noted.answered(_NOTING)
        except ClusterTimeoutError:
            if self._life.may_run:
                raise

    async def checkpoints(self, checkpoint_id: int | None) -> tuple[CheckpointDetails, ...]:
        await self._prepared.wait()
        scheduler = self._life.scheduler
        return () if scheduler is None else scheduler.checkpoints(checkpoint_id=checkpoint_id)

    async def keep_program(self, master: type) -> None:
        await keep(master, self._job).ready.remote()

    async def sample_edge(self, place: int, most: int, seconds: float) -> list[EdgeRecord]:
        """Records that flow now on an edge of the graph, from up to eight of its senders."""
        await self._prepared.wait()
        edges = self._reporter.graph.edges
        if self._fleet is None or self._processes is None or not 0 <= place < len(edges):
            return []
        members = self._fleet.members
        senders = sorted(subtask for subtask in members if subtask.vertex == edges[place].source)[:_SENDERS]
        sample, edge = self._processes.sample, output_edge(edges, place)
        seconds = min(seconds, _SAMPLED)
        found = await asyncio.gather(
            *(sample(members[s].process, members[s].role, edge, most, seconds) for s in senders)
        )
        return merged({s.index: records for s, records in zip(senders, found, strict=True)}, most)

    # -- JobHost: the start ---------------------------------------------------------------------------------

    def look_up(self, answer: Callable[[JobLookup | StartFailure], None]) -> None:
        self._answer(self._look_up(), answer)

    async def _look_up(self) -> JobLookup:
        program = self._job.ray_submission

        def look() -> tuple[JobReport | None, bool, bool]:
            return load_from_cluster(self.job_id), is_to_be_cancelled(self.job_id), may_have_jobs(program)

        call = self._cluster.begin(f"look up the records of job {self.job_id}", look)
        self._earlier, is_cancelled, may_run = await call.answered(_LOOKING_UP)
        if not may_run:
            self._reporter.warn(f"the job was cancelled, because an upgrade has ended its program {program}")
        if is_cancelled or not may_run:
            self._life.cancel()  # before `_unpack`, which may fail
        if self._earlier is not None:
            self._reporter.carry_on(self._earlier)
        await self._unpack()
        return JobLookup(
            has_log=self._reporter.has_storage,
            has_ended=self._earlier is not None and self._earlier.status.is_terminal,
            reuses_processes=self._config.reuse_processes,
        )

    async def _unpack(self) -> CurrentGraph:
        job, self._config = await self._loop.run_in_executor(self._pool, unpack_job, self._job.chunks)
        if self._job.restore_from:
            job = replace(job, restore_from=self._job.restore_from)
        self._graph = CurrentGraph(build_execution_graph(job))
        self._reporter.describe(job, self._config)
        return self._graph

    def open_storage(self, answer: Callable[[Fenced | StartFailure | None], None]) -> None:
        self._answer(self._open_storage(), answer)

    async def _open_storage(self) -> Fenced | None:
        config = self._config
        if config.checkpointing is None or config.checkpointing.storage is None:
            return None
        opened = partial(
            open_proven,
            os.fspath(config.checkpointing.storage),
            self.job_id,
            is_new=not self._is_restart,
            submission=self._job.submission,
            timeout=as_seconds(config.advanced.storage_timeout),
        )
        storage = await self._loop.run_in_executor(self._pool, opened)
        if isinstance(storage, Fenced):
            return storage
        self._storage = storage
        return None

    def adopt(self, answer: Callable[[Fleet | StartFailure], None]) -> None:
        self._answer(self._adopt(), answer)

    async def _adopt(self) -> Fleet:
        graph, config = self._graph or await self._unpack(), self._config
        master = ray.get_runtime_context().current_actor
        chunks = self._job.chunks
        processes = RayProcesses(self.job_id, config, master, self._guarded, self._cluster, chunks)
        await processes.find_left_behind()
        new_token = partial(secrets.token_hex, 8)
        fleet = Fleet(self.job_id, graph, config, processes, self._timers, new_token=new_token)
        self._processes, self._fleet = processes, fleet
        await answered(fleet.adopt)
        return fleet

    def start_scheduler(self, *, is_restart: bool) -> StartedJob | StartFailure:
        graph, processes, fleet = self._graph, self._processes, self._fleet
        assert graph is not None, "the job is loaded first"
        assert processes is not None, "its processes are taken over first"
        assert fleet is not None, "its fleet is made with its processes"
        try:
            scheduler = assemble_scheduler(
                self.job_id,
                graph,
                self._config,
                fleet,
                processes,
                self._timers,
                self._storage,
                self._guarded,
                self._pool,
                earlier=self._earlier if self._reporter.has_storage else None,
                is_new=not is_restart,
                submission=self._job.submission,
                on_end=self._on_end,
                on_fenced=self._life.fenced,
                warn=self._reporter.warn,
            )
            watch = self._serve(scheduler, fleet, processes)
            scheduler.start()
        except _USERS_ERRORS as error:  # users' classes are used here
            return StartFailure(error)
        return StartedJob(scheduler, watch)

    def _serve(self, scheduler: JobScheduler, fleet: Fleet, processes: RayProcesses) -> Watch:
        """Begin to accept clients' requests, and to watch the subtasks."""
        reporter, clock = self._reporter, SystemClock()
        self.requests.serve(scheduler, self._storage.url)
        watch = Watch(
            fleet, processes, clock, self._timers, self._config, reporter.counted, listener=reporter
        )
        reporter.observe(scheduler, fleet, watch)
        # An error of `_publish` is only logged, so leases are still renewed.
        watch.begin(lambda: spawn(self._loop, self._publish()))
        return watch

    def note(self, what: str, error: BaseException) -> None:
        logger.warning("job %s: %s: %s", self.job_id, what, error)

    def not_started(self, error: BaseException, *, is_cancelled: bool) -> None:
        logger.error("job %s can't be started", self.job_id, exc_info=error)
        if is_cancelled:
            self._reporter.cancelled_before_it_began(error)
        else:
            self._reporter.failed_to_begin(error)

    def started(self) -> None:
        self._prepared.set()

    def _answer(self, step: Coroutine[Any, Any, T], answer: Callable[[T | StartFailure], None]) -> None:
        async def carry_out() -> None:
            outcome: T | StartFailure
            try:
                outcome = await step
            except (StorageError, ClusterTimeoutError, RayError) as error:
                outcome = StartFailure(error, may_pass=True)
            except _USERS_ERRORS as error:  # users' modules are imported here
                outcome = StartFailure(error)
            self._guarded.run(partial(answer, outcome))

        spawn(self._loop, carry_out())

    # -- while it runs --------------------------------------------------------------------------------------

    async def _publish(self) -> None:
        report = self._reporter.report()
        self._publish_metrics(report)
        self._save(report)

    def _save(self, report: JobReport) -> ClusterCall[None]:
        return self._cluster.begin_newest(
            f"keep the report of job {self.job_id}", partial(save_to_cluster, report)
        )

    def _publish_metrics(self, report: JobReport) -> None:
        scheduler = self._life.scheduler

        def checkpoints() -> tuple[CheckpointDetails, ...]:
            try:
                return () if scheduler is None else scheduler.checkpoints(newest=_PUBLISHED)
            except CorruptSnapshotError as error:
                self._reporter.warn(f"the measurements of older checkpoints can't be read: {error}")
                return ()

        self._metrics.publish(report, checkpoints)
        if self._traces is not None:
            self._traces.publish(report, checkpoints)

    # -- JobHost: the end -----------------------------------------------------------------------------------

    def _on_end(self, state: JobState, cause: str) -> None:
        self._reporter.ended(cause)
        self._life.job_ended()

    def keep_last_report(self, then: Then) -> None:
        async def keep() -> None:
            assert self._earlier is not None, "it was looked up"
            await self._open_storage()
            await self._keep_beside_checkpoints(self._earlier)

        async def keep_in_time() -> None:
            try:
                await asyncio.wait_for(keep(), _KEEPING)
            except (StorageError, TimeoutError) as error:
                logger.warning("the report of job %s is kept only in the cluster: %s", self.job_id, error)
            then()

        spawn(self._loop, keep_in_time())

    def close(self, *, in_storage: bool, stays: bool, then: Callable[[bool], None]) -> None:
        async def close() -> None:
            is_closed = False
            try:
                await self._keep_report(in_storage)
                if self._traces is not None:
                    # A hanging collector must not delay the end.
                    with suppress(TimeoutError):
                        await asyncio.wait_for(asyncio.to_thread(self._traces.close), _LAST_WORK)
                if stays:
                    # Wait for deletions. A slow one keeps its thread, so the process serves no other job.
                    with suppress(TimeoutError):
                        await asyncio.wait_for(asyncio.to_thread(self._pool.shutdown), _LAST_WORK)
                is_closed = True
            finally:
                then(stays and is_closed)

        spawn(self._loop, close())

    async def _keep_report(self, in_storage: bool) -> None:
        report = self._reporter.report()
        self._publish_metrics(report)
        saved = self._save(report)
        try:
            await saved.answered(_KEEPING)
        except ClusterTimeoutError as error:
            # The call stays queued, and the process waits for it once more before it leaves.
            logger.warning("job %s ends; the cluster may lack its last report: %s", self.job_id, error)
        finally:
            if in_storage:
                # A hanging storage must not delay the end; the cluster has the report.
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._keep_beside_checkpoints(report), _KEEPING)

    async def _keep_beside_checkpoints(self, report: JobReport) -> None:
        keep = partial(keep_beside_checkpoints, self._storage, report)
        await self._loop.run_in_executor(self._pool, keep)

    def _over(self, stays: bool, then: Then) -> None:
        # Events of the ended job must not end a process that serves another one.
        self._guarded.retire()
        self._on_over(stays, then)

    def ended(self) -> None:
        self._ended.set()
        self._prepared.set()

    def release_output(self) -> None:
        """Stop capturing the output of this process; the next job captures it again."""
        if self._output is not None:
            self._output.release()
            self._output = None
