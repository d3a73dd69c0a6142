"""Makes the parts of a job from its settings, and joins the checkpoint coordinator to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.runtime.checkpoint.coordinator.completion import CheckpointFiles
from penstock.runtime.checkpoint.coordinator.coordinator import CheckpointCoordinator
from penstock.runtime.checkpoint.coordinator.location import SavepointTargets, SnapshotLocation
from penstock.runtime.checkpoint.coordinator.plan import CheckpointPlanner
from penstock.runtime.checkpoint.coordinator.requests import RequestNote
from penstock.runtime.checkpoint.log.decision_log import COMPACT_EVERY
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.execution_graph import CurrentGraph
from penstock.runtime.job.context import ExecutionGateway, JobContext
from penstock.runtime.job.end_of_job import UncoveredOutput
from penstock.runtime.job.failover import regions_of, restart_strategy
from penstock.runtime.job.failure import FailureCause
from penstock.runtime.job.job_ledger import JobLedger
from penstock.runtime.job.job_operators import JobOperators
from penstock.runtime.job.states.deploying import Beginning, Created
from penstock.runtime.job.states.running import Running
from penstock.runtime.ports import AsyncRunner, Clock, SnapshotStorage, StorageOpener, TimerService
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.time.durations import as_seconds


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings of a job.

    Attributes:
        clock: Wall-clock and monotonic seconds.
        user_runner: Runs what may hang for ever: users' code in hooks and enumerators, and users' folders.
        open_location: Opens storages of snapshots that are not in `storage`.
        is_new: Whether the job was only just submitted, so that its id must have no log.
        writer: A token of this JobMaster's process, which no other one has.
        submission: A token of the job's submission, which all its JobMasters have.
        compact_every: Number of records after which the decision log is compacted.
        note_request: Takes notes for the job's log about checkpoint requests that wait.
    """

    gateway: ExecutionGateway
    storage: SnapshotStorage
    clock: Clock
    timers: TimerService
    runner: AsyncRunner
    user_runner: AsyncRunner
    open_location: StorageOpener | None
    is_new: bool = False
    writer: str = ""
    submission: str = ""
    compact_every: int = COMPACT_EVERY
    note_request: Callable[[RequestNote], None] = lambda _: None


def assemble(
    job_id: str, graph: CurrentGraph, config: JobConfig, known_attempt: int, around: Surroundings
) -> tuple[JobContext, JobOperators]:
    restart = restart_strategy(config.restart_or_default, job_id)
    ledger = JobLedger(
        job_id,
        around.storage,
        config.checkpointing,
        known_attempt,
        around.open_location,
        graph.job.restore_from,
        is_new=around.is_new,
        monotonic=around.clock.monotonic,
        after_death=restart.after_death,
        writer=around.writer,
        submission=around.submission,
        compact_every=around.compact_every,
        storage_timeout=as_seconds(config.advanced.storage_timeout),
    )
    job = JobContext(
        graph=graph,
        gateway=around.gateway,
        ledger=ledger,
        planner=CheckpointPlanner(graph),
        regions_of=regions_of if config.failover == "region" else lambda _: {},
        restart=restart,
        clock=around.clock,
        timers=around.timers,
        runner=around.runner,
        user_runner=around.user_runner,
        deployment_timeout=as_seconds(config.deployment_timeout),
        created=Created,
        beginning=Beginning,
        running=Running,
    )
    codec = ValueCodec(config.pickles_state, graph.job.classes)
    operators = job.operators = JobOperators(
        job, codec, allow_non_restored=graph.job.allow_non_restored_state
    )
    job.uncovered = UncoveredOutput(job_id, graph.job, codec, around.storage, around.open_location)
    if config.checkpointing is not None:
        job.coordinator = _coordinator(config.checkpointing, job, operators, ledger, around)
    return job, operators


def _coordinator(
    checkpointing: Checkpointing,
    job: JobContext,
    operators: JobOperators,
    ledger: JobLedger,
    around: Surroundings,
) -> CheckpointCoordinator:
    place = SnapshotLocation(around.storage, ledger.paths, ledger.newer_attempt, around.open_location)
    # Folders of users may hang for ever. Threads that the job needs must not hang with them.
    targets = SavepointTargets(
        place.try_target, around.user_runner, around.timers, as_seconds(checkpointing.timeout)
    )
    return CheckpointCoordinator(
        checkpointing,
        job.planner,
        around.gateway,
        CheckpointFiles(around.storage, ledger.paths, around.runner, around.open_location),
        ledger.complete_checkpoint,
        fail_job=lambda cause: job.state.failed(FailureCause(cause)),
        fenced=job.fence,
        clock=around.clock,
        timers=around.timers,
        runner=around.runner,
        hooks=operators.hooks,
        coordinators=operators.coordinators,
        initialize_location=place.prepare,
        targets=targets,
        note_request=around.note_request,
    )
