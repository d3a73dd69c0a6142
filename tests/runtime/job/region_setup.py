"""Two pipelines that nothing joins, run by a real scheduler on a recorded cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from memory_storages import RefusingStorage
from prompt_runner import PromptRunner

from penstock.runtime.checkpoint.coordinator.pending_checkpoint import MessageOutcome
from penstock.runtime.checkpoint.coordinator.requests import CheckpointSucceeded
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import Failover, JobConfig
from penstock.runtime.config.restart import FixedDelay, RestartConfig
from penstock.runtime.graph.execution_graph import CurrentGraph, ExecutionGraph, build_execution_graph
from penstock.runtime.graph.job_graph import (
    JobEdge,
    JobGraph,
    JobVertex,
    OperatorSpec,
    Partitioner,
    Partitioning,
)
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.record.elements import CheckpointBarrier
from penstock.runtime.snapshot.checkpoint_record import CheckpointMetrics
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

A_READ, A_WRITE = SubtaskId("a-read", 0), SubtaskId("a-write", 0)
B_READ, B_WRITE = SubtaskId("b-read", 0), SubtaskId("b-write", 0)
A, B = (A_READ, A_WRITE), (B_READ, B_WRITE)
ALL = (A_READ, B_READ, A_WRITE, B_WRITE)


def vertex(name: str, parallelism: int = 1) -> JobVertex:
    source: Any = object() if name.endswith("read") else None
    return JobVertex(name, (OperatorSpec(name, name, None, source=source, stateful=True),), parallelism)


def edge(sender: str, receiver: str, partitioning: Partitioning = Partitioning.REBALANCE) -> JobEdge:
    return JobEdge(sender, sender, None, receiver, 0, Partitioner(partitioning))


def two_pipelines() -> ExecutionGraph:
    vertices = tuple(vertex(subtask.vertex) for subtask in ALL)
    return build_execution_graph(
        JobGraph("two", vertices, (edge("a-read", "a-write"), edge("b-read", "b-write")))
    )


@dataclass
class Cluster:
    """Records the outgoing calls of the scheduler."""

    said: list[tuple[Any, ...]] = field(default_factory=list)
    barriers: list[int] = field(default_factory=list)
    stops: list[Callable[[], None]] = field(default_factory=list)

    def deploy(self, attempt: int, subtasks: Collection[Any], restore: CompletedCheckpoint | None) -> None:
        self._say("deploy", attempt, subtasks, None if restore is None else restore.checkpoint_id)

    def start(self, attempt: int, subtasks: Collection[Any]) -> None:
        self._say("start", attempt, subtasks)

    def stop(self, attempt: int, subtasks: Collection[Any], stopped: Callable[[], None]) -> None:
        self._say("stop", attempt, subtasks)
        self.stops.append(stopped)

    def stopped(self) -> None:
        """The oldest stop is over."""
        self.stops.pop(0)()

    def trigger_checkpoint(
        self, attempt: int, subtasks: Sequence[SubtaskId], barrier: CheckpointBarrier
    ) -> None:
        self.barriers.append(barrier.checkpoint_id)
        self._say("trigger", attempt, subtasks, barrier.checkpoint_id)

    def notify_checkpoint_complete(
        self, attempt: int, subtasks: Sequence[SubtaskId], checkpoint_id: int
    ) -> None:
        self._say("complete", attempt, subtasks, checkpoint_id)

    def notify_checkpoint_aborted(
        self, attempt: int, subtasks: Sequence[SubtaskId], checkpoint_id: int
    ) -> None:
        self._say("aborted", attempt, subtasks, checkpoint_id)

    def job_ended(self, state: JobState, cause: str) -> None:
        self.said.append(("ended", state, cause))

    def fenced(self) -> None:
        self.said.append(("fenced",))

    def take(self) -> list[tuple[Any, ...]]:
        said, self.said = self.said, []
        return said

    def _say(self, what: str, attempt: int, subtasks: Collection[Any], *more: Any) -> None:
        is_whole = what in ("deploy", "start", "stop") and len(subtasks) == len(ALL)
        who = "all" if is_whole else tuple(sorted(subtasks))
        self.said.append((what, attempt, who, *more))


class Run:
    """One JobMaster's scheduler over two pipelines."""

    def __init__(
        self,
        *,
        restart: RestartConfig | None = None,
        failover: Failover = "region",
        storage: RefusingStorage | None = None,
        checkpointing: Checkpointing | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.runner = PromptRunner()
        self.storage = storage or RefusingStorage()
        self.cluster = Cluster()
        config = JobConfig(
            checkpointing=checkpointing or Checkpointing(every=10),
            restart=restart or FixedDelay(3, 1),
            failover=failover,
        )
        self.scheduler = JobScheduler(
            "job",
            CurrentGraph(two_pipelines()),
            config,
            self.cluster,
            self.storage,
            self.clock,
            self.timers,
            self.runner,
        )

    @property
    def state(self) -> JobState:
        return self.scheduler.state

    def start(self) -> Run:
        self.scheduler.start()
        self.runner.run_all()
        self.come_up()
        return self

    def come_up(self) -> None:
        attempt = self.scheduler.attempt
        self.scheduler.on_deployed(attempt)
        self.scheduler.on_started(attempt)
        assert self.state is JobState.RUNNING
        self.cluster.take()

    def fail(self, subtask: SubtaskId = A_WRITE, *, recoverable: bool = True) -> None:
        cause = FailureCause("division by zero", recoverable=recoverable)
        self.scheduler.on_subtask_failed(self.scheduler.attempt_of(subtask), subtask, cause)

    def until_deployed(self) -> None:
        """The region is stopped, the delay is over, the record is written."""
        self.cluster.stopped()
        self.timers.advance(1)
        self.runner.run_all()

    def acknowledge(self, checkpoint_id: int, subtasks: Sequence[SubtaskId] = ALL) -> list[MessageOutcome]:
        return [
            self.scheduler.acknowledge(
                self.scheduler.attempt_of(s), s, checkpoint_id, SubtaskSnapshot(), CheckpointMetrics()
            )
            for s in subtasks
        ]

    def checkpoint(self) -> int:
        answers: list[Any] = []
        self.scheduler.trigger_checkpoint(on_answer=answers.append)
        self.acknowledge(self.cluster.barriers[-1])
        self.runner.run_all()
        assert isinstance(answers[0], CheckpointSucceeded)
        return answers[0].checkpoint.checkpoint_id

    def answers_of_trigger(self) -> list[Any]:
        answers: list[Any] = []
        self.scheduler.trigger_checkpoint(on_answer=answers.append)
        return answers
