"""A running job that tests press buttons of: it notes what it is asked, and answers as a test has said."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulated_jobs.scripted_job import ScriptedJob as SimulatedJob

from penstock import JobStatus
from penstock.actors.master.job_reporter import settings_of
from penstock.actors.shared.job_report import JobMasterProcess, JobReport, SubtaskInfo, SubtaskProcess
from penstock.actors.shared.snapshot_answers import SavepointTaken
from penstock.runtime.checkpoint.coordinator.plan import SubtaskStatus
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.execution.processes import LongCall
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.graph.executor import CheckpointResult, JobStatistics
from penstock.runtime.graph.job_graph import JobGraph
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectSink, InMemoryCollector
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.io.storage import open_location, open_storage
from penstock.runtime.job.failover import FailureCause, FailureRecord
from penstock.runtime.job.job_state import JobState, Transition
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import (
    CheckpointDetails,
    CheckpointFailureReason,
    CheckpointMetrics,
    CheckpointRecord,
    CheckpointStatus,
    CoordinatorStatistics,
)
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.statistics import SubtaskRates, SubtaskStatistics
from serving.reports import GRAPH
from serving.scripted import ScriptedJob

JOB = "words-1f2e"
#: Wall-clock seconds of the job's submission.
BEGAN = 1_700_000_000.0
#: The state of an operator in `leave_snapshot`: the largest of the numbers with this remainder.
KEYED = "largest"
#: Stacks of a subtask: 80 of 100 have the user's `parse`, 15 of them in `json`.
STACKS = (
    "run (threading.py:975);step (runtime/task/loop.py:33);parse (job.py:12) 50",
    "run (threading.py:975);step (runtime/task/loop.py:33);parse (job.py:12);clean (words/text.py:3) 15",
    "run (threading.py:975);step (runtime/task/loop.py:33);parse (job.py:12);loads (json/__init__.py:346) 15",
    "run (threading.py:975);send (runtime/network/channel.py:7) 20",
)


class ActingJob(ScriptedJob):
    """Stands for the handle of a running job.

    Attributes:
        asked: What it was asked, as `("stop", {"drain": True, ...})`.
        goes_on: Clear it, and what it is asked does not end.
        failure: Raised by what it is asked; `None` when that goes well.
        details: By checkpoint id what subtasks measured.
    """

    def __init__(self, report: JobReport) -> None:
        super().__init__(report)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.failure: BaseException | None = None
        self.details: dict[int, Mapping[SubtaskId, CheckpointMetrics]] = {}

    def checkpoint(self, *, full: bool = False) -> CheckpointResult:
        self._act("checkpoint", full=full)
        return CheckpointResult(7, f"/storage/{JOB}/chk-7-1", 4_096, 512, 0.25)

    def take_savepoint(self, savepoint: str | None = None) -> SavepointTaken:
        self._act("savepoint", savepoint=savepoint)
        needed = "disk full" if savepoint == "/needed" else ""
        return SavepointTaken(f"{savepoint or '/storage'}/savepoint-{JOB}-8-1", needed)

    def stop(self, savepoint: str | None = None, *, drain: bool = False) -> str:
        self._act("stop", savepoint=savepoint, drain=drain)
        return f"{savepoint or '/storage'}/savepoint-{JOB}-9-1"

    def cancel(self) -> None:
        self._act("cancel")

    def rescale(self, parallelism: Mapping[str, int]) -> None:
        self._act("rescale", parallelism=dict(parallelism))

    def checkpoints(self) -> tuple[CheckpointDetails, ...]:
        history = self.current.checkpoint_history
        return tuple(CheckpointDetails(each, self.details.get(each.checkpoint_id, {})) for each in history)

    def _act(self, name: str, **given: Any) -> None:
        self.asked.append((name, given))
        self.goes_on.wait()
        if self.failure is not None:
            raise self.failure


def acting_job(storage: str = "/storage") -> ActingJob:
    """A job with skewed subtasks and four checkpoints: completed, failed, a savepoint, and one that runs."""
    job = ActingJob(running_report(storage))
    delays = {1: 0.05, 3: 0.4}
    for checkpoint, delay in delays.items():
        job.details[checkpoint] = {each: measured(each, delay) for each in _all_subtasks()}
    return job


def running_report(storage: str) -> JobReport:
    settings = settings_of(
        JobGraph("words", ()),
        JobConfig(checkpointing=Checkpointing(every=10, storage=storage), advanced=AdvancedConfig(credits=4)),
    )
    cause = FailureCause("count[2]: ValueError: no number in 'seven'")
    states = (
        (JobState.CREATED, JobState.DEPLOYING, 0.0, ""),
        (JobState.DEPLOYING, JobState.INITIALISING, 0.4, ""),
        (JobState.INITIALISING, JobState.RUNNING, 0.9, ""),
        (JobState.RUNNING, JobState.FAILING, 60.9, cause.message),
        (JobState.FAILING, JobState.RESTARTING, 61.0, cause.message),
        (JobState.RESTARTING, JobState.DEPLOYING, 63.0, ""),
        (JobState.DEPLOYING, JobState.RUNNING, 63.5, ""),
    )
    return JobReport(
        JOB,
        "words",
        JobStatus.RUNNING,
        BEGAN,
        200.0,
        JobStatistics(JobStatus.RUNNING, attempt=2, restarts=1),
        GRAPH,
        history=tuple(Transition(source, to, BEGAN + at, why) for source, to, at, why in states),
        failures=(FailureRecord(1, BEGAN + 60.8, cause),),
        subtasks=tuple(running_subtask(each) for each in _all_subtasks()),
        storage=storage,
        master=JobMasterProcess(4_711, "0a1b2c3d4e5f"),
        checkpoints=CoordinatorStatistics(triggered=1_204, completed=1_202, failed=1),
        checkpoint_history=(
            taken(1),
            taken(
                2,
                status=CheckpointStatus.FAILED,
                duration=9.0,
                acknowledged=2,
                failure=CheckpointFailureReason.CHECKPOINT_EXPIRED,
                detail="count[3] has not acknowledged within 9 s",
            ),
            taken(3, kind=SnapshotKind.SAVEPOINT, duration=1.5),
            taken(4, status=CheckpointStatus.IN_PROGRESS, duration=None, acknowledged=1),
        ),
        settings=settings,
    )


def taken(
    number: int,
    kind: SnapshotKind = SnapshotKind.CHECKPOINT,
    status: CheckpointStatus = CheckpointStatus.COMPLETED,
    duration: float | None = 0.3,
    acknowledged: int = 6,
    **more: Any,
) -> CheckpointRecord:
    size = 1_000 * number if status is CheckpointStatus.COMPLETED else None
    at = BEGAN + 10 * number
    return CheckpointRecord(number, 2, kind, status, at, acknowledged, 6, duration, size, 100, **more)


def measured(subtask: SubtaskId, delay: float) -> CheckpointMetrics:
    """A barrier takes `delay` to a source, and twice that to all others."""
    first = delay * (1 if subtask.vertex == "lines" else 2)
    return CheckpointMetrics(first, delay / 4, 0.02, 0.1 + delay, 1_500, 4_000, 20)


def running_subtask(subtask: SubtaskId) -> SubtaskInfo:
    """`count[3]` gets most records, holds most state and is behind."""
    is_hot = subtask == SubtaskId("count", 3)
    share, records = (0.95, 4_000.0) if is_hot else (0.25, 200.0)
    watermark = int((BEGAN + (100 if is_hot else 190)) * 1e6)
    return SubtaskInfo(
        subtask,
        2,
        SubtaskStatus.RUNNING,
        SubtaskProcess(subtask, 123_456 + subtask.index, "0a1b2c3d4e5f"),
        SubtaskStatistics(9, 9, 9, 9, 1.0, 0.0, 0, 0, current_watermark=watermark),
        long_call=LongCall("map function parse (job.py:12)", 12.0) if is_hot else None,
        rates=SubtaskRates(10.0, share, 0.0, 1 - share, records, records, 30_000.0, 30_000.0),
        state_bytes=8_000_000 if is_hot else 300_000,
    )


def leave_snapshot(folder: Path) -> JobReport:
    """A real checkpoint in a storage, and a running job that has taken it; keys of `KEYED` are 0 to 299."""
    env = StreamEnvironment("count", parallelism=2)
    numbers = env.from_source("numbers", GeneratorSource(lambda i: i, count=1_000_000))
    numbers.key_by(lambda i: i % 300).reduce(KEYED, max).sink("out", CollectSink(InMemoryCollector()))
    simulated = SimulatedJob(
        build_execution_graph(env.build()),
        JobConfig(checkpointing=Checkpointing(every=1)),
        open_storage(str(folder)),
        job_id=JOB,
        open_location=open_location,
    )
    simulated.run(60)
    simulated.complete_checkpoint()
    return running_report(str(folder))


def _all_subtasks() -> tuple[SubtaskId, ...]:
    return tuple(SubtaskId(each.id, index) for each in GRAPH.vertices for index in range(each.parallelism))
