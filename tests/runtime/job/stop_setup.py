"""A job that is stopped or rescaled: the real scheduler and storage, and a recorded cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from memory_storages import MemoryPlaces
from prompt_runner import PromptRunner
from small_graphs import read_and_count

from penstock.runtime.checkpoint.coordinator.requests import (
    CheckpointAnswer,
)
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.config.restart import FixedDelay, RestartConfig
from penstock.runtime.graph.execution_graph import CurrentGraph, ExecutionGraph
from penstock.runtime.graph.job_graph import (
    Partitioner,
    Partitioning,
)
from penstock.runtime.job.job_state import JobState, RescaleAnswer, StopRequest
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.record.elements import CheckpointBarrier
from penstock.runtime.snapshot.checkpoint_record import CheckpointMetrics
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

FIVE = FixedDelay(attempts=5, delay=0)
READ, COUNT = SubtaskId("read", 0), SubtaskId("count", 0)


def graph() -> ExecutionGraph:
    return read_and_count(1, 1, Partitioner(Partitioning.KEY_GROUP, len), keyed=True)


@dataclass
class Cluster:
    """Records the outgoing calls of the scheduler."""

    said: list[str] = field(default_factory=list)
    barriers: list[CheckpointBarrier] = field(default_factory=list)
    restored: list[CompletedCheckpoint | None] = field(default_factory=list)

    stops: list[Callable[[], None]] = field(default_factory=list)

    def deploy(
        self, attempt: int, subtasks: Collection[SubtaskId], restore: CompletedCheckpoint | None
    ) -> None:
        self.said.append(f"deploy {attempt}")
        self.restored.append(restore)

    def start(self, attempt: int, subtasks: Collection[SubtaskId]) -> None:
        self.said.append(f"start {attempt}")

    def stop(self, attempt: int, subtasks: Collection[SubtaskId], stopped: Callable[[], None]) -> None:
        self.said.append(f"stop {attempt}")
        self.stops.append(stopped)

    def stopped(self) -> None:
        """The oldest stop is over."""
        self.stops.pop(0)()

    def trigger_checkpoint(
        self, attempt: int, subtasks: Sequence[SubtaskId], barrier: CheckpointBarrier
    ) -> None:
        self.barriers.append(barrier)

    def notify_checkpoint_complete(
        self, attempt: int, subtasks: Sequence[SubtaskId], checkpoint_id: int
    ) -> None:
        self.said.append(f"complete {checkpoint_id}")

    def notify_checkpoint_aborted(
        self, attempt: int, subtasks: Sequence[SubtaskId], checkpoint_id: int
    ) -> None:
        self.said.append(f"aborted {checkpoint_id}")

    def send_operator_event(self, *given: Any) -> None:
        raise AssertionError(given)

    def job_ended(self, state: JobState, cause: str) -> None:
        self.said.append(f"ended {state.value}")

    def fenced(self) -> None:
        self.said.append("fenced")

    def take(self) -> list[str]:
        said, self.said = self.said, []
        return said


class Run:
    """One JobMaster's scheduler; several may share a storage."""

    def __init__(
        self,
        storage: MemoryStorage | None = None,
        places: MemoryPlaces | None = None,
        *,
        job_id: str = "job",
        restore_from: str | None = None,
        submitted: ExecutionGraph | None = None,
        restart: RestartConfig = FIVE,
        **checkpointing: Any,
    ) -> None:
        self.storage = storage or MemoryStorage()
        self.places = places or MemoryPlaces()
        self.clock = ManualClock()
        self.timers, self.runner = ManualTimers(self.clock), PromptRunner()
        self.cluster: Any = Cluster()
        started = submitted or graph()
        self.graph = CurrentGraph(replace(started, job=replace(started.job, restore_from=restore_from)))
        self.scheduler = JobScheduler(
            job_id,
            self.graph,
            JobConfig(checkpointing=Checkpointing(every=10, **checkpointing), restart=restart),
            self.cluster,
            self.storage,
            self.clock,
            self.timers,
            self.runner,
            open_location=self.places,
        )
        self.answers: list[CheckpointAnswer] = []
        self.rescaled: list[RescaleAnswer] = []

    @property
    def state(self) -> JobState:
        return self.scheduler.state

    def start(self) -> Run:
        self.scheduler.start()
        return self.come_up()

    def come_up(self) -> Run:
        self.runner.run_all()
        self.scheduler.on_deployed(self.scheduler.attempt)
        self.scheduler.on_started(self.scheduler.attempt)
        return self

    def acknowledge(self) -> int:
        """Everybody takes the newest checkpoint, and its record is written."""
        checkpoint_id = self.cluster.barriers[-1].checkpoint_id
        for subtask in self.graph.subtasks:
            self.scheduler.acknowledge(
                self.scheduler.attempt, subtask, checkpoint_id, SubtaskSnapshot(), CheckpointMetrics()
            )
        self.runner.run_all()
        return int(checkpoint_id)

    def stop(self, **request: Any) -> Run:
        self.scheduler.stop_with_savepoint(StopRequest(**request), self.answers.append)
        return self

    def rescale(self, **parallelism: int) -> Run:
        self.scheduler.rescale(parallelism, self.rescaled.append)
        return self

    def leave(self) -> None:
        for subtask in (READ, COUNT):
            self.scheduler.on_subtask_finished(self.scheduler.attempt, subtask)
        self.runner.run_all()

    def all_stopped(self) -> None:
        self.cluster.stopped()
        self.runner.run_all()

    def parallelism(self) -> dict[str, int]:
        return {v.id: v.parallelism for v in self.graph.job.vertices}
