"""Only the failed region of a job is restarted: real states, coordinator, log and storage; no processes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.runtime.checkpoint.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.checkpoint.config import Checkpointing
from penstock.runtime.checkpoint.coordinator_messages import MessageOutcome
from penstock.runtime.checkpoint.coordinator_requests import CheckpointCompleted, CheckpointFailed
from penstock.runtime.checkpoint.decision_log import DecisionLog
from penstock.runtime.checkpoint.failure_reason import CheckpointFailureReason as Reason
from penstock.runtime.checkpoint.paths import SnapshotPaths
from penstock.runtime.checkpoint.snapshot import CheckpointMetrics, SubtaskId, SubtaskSnapshot
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.graph.job_config import Failover, JobConfig
from penstock.runtime.graph.job_graph import (
    JobEdge,
    JobGraph,
    JobVertex,
    OperatorSpec,
    Partitioner,
    Partitioning,
)
from penstock.runtime.job.failure import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.regions import regions_of
from penstock.runtime.job.restart import FixedDelay, NoRestart, RestartConfig
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.record.elements import CheckpointBarrier, SnapshotKind
from penstock.runtime.testing.manual_time import ManualAsyncRunner, ManualClock, ManualTimers
from penstock.runtime.testing.step_world import RefusingStorage

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
    """Records what the scheduler asks of the world."""

    said: list[tuple[Any, ...]] = field(default_factory=list)
    barriers: list[int] = field(default_factory=list)

    def deploy(self, attempt: int, restore: CompletedCheckpoint | None) -> None:
        self.deploy_region(attempt, "all", restore)

    def start(self, attempt: int) -> None:
        self.start_region(attempt, "all")

    def deploy_region(
        self, attempt: int, subtasks: Collection[Any], restore: CompletedCheckpoint | None
    ) -> None:
        self._say("deploy", attempt, subtasks, None if restore is None else restore.checkpoint_id)

    def start_region(self, attempt: int, subtasks: Collection[Any]) -> None:
        self._say("start", attempt, subtasks)

    def stop_all(self, attempt: int) -> None:
        self._say("stop", attempt, "all")

    def stop_region(self, attempt: int, subtasks: Collection[Any]) -> None:
        self._say("stop", attempt, subtasks)

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
        who = subtasks if isinstance(subtasks, str) else tuple(sorted(subtasks))
        self.said.append((what, attempt, who, *more))


class Run:
    """One JobMaster's scheduler over two pipelines."""

    def __init__(
        self,
        *,
        restart: RestartConfig | None = None,
        failover: Failover = "region",
        storage: RefusingStorage | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.runner = ManualAsyncRunner()
        self.storage = storage or RefusingStorage()
        self.cluster = Cluster()
        config = JobConfig(
            checkpointing=Checkpointing(every=10), restart=restart or FixedDelay(3, 1), failover=failover
        )
        self.scheduler = JobScheduler(
            "job", two_pipelines(), config, self.cluster, self.storage, self.clock, self.timers, self.runner
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
        self.scheduler.on_region_stopped(self.scheduler.attempt)
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
        assert isinstance(answers[0], CheckpointCompleted)
        return answers[0].checkpoint.checkpoint_id

    def answers_of_trigger(self) -> list[Any]:
        answers: list[Any] = []
        self.scheduler.trigger_checkpoint(on_answer=answers.append)
        return answers


# -- what a region is ---------------------------------------------------------------------------------------


def test_pipelines_that_nothing_joins_are_regions_of_their_own() -> None:
    regions = regions_of(two_pipelines())
    assert regions[A_READ] == regions[A_WRITE] == frozenset(A)
    assert regions[B_READ] == regions[B_WRITE] == frozenset(B)


def test_everything_that_a_union_joins_is_one_region() -> None:
    vertices = (vertex("a-read", 2), vertex("b-read"), vertex("write", 3))
    graph = build_execution_graph(
        JobGraph("union", vertices, (edge("a-read", "write"), edge("b-read", "write")))
    )
    assert set(regions_of(graph).values()) == {frozenset(s.id for s in graph.subtasks)}


def test_subtasks_of_one_vertex_are_one_region_although_no_channel_joins_them() -> None:
    vertices = (vertex("a-read", 2), vertex("a-write", 2))
    graph = build_execution_graph(
        JobGraph("lanes", vertices, (edge("a-read", "a-write", Partitioning.FORWARD),))
    )
    assert set(regions_of(graph).values()) == {frozenset(s.id for s in graph.subtasks)}


# -- the way of a failure -----------------------------------------------------------------------------------


def test_the_failed_region_alone_is_stopped_and_started_again() -> None:
    run = Run().start()
    checkpoint_id = run.checkpoint()
    run.cluster.take()
    run.fail()
    assert (run.state, run.cluster.take()) == (JobState.RESTARTING, [("stop", 1, A)])
    run.until_deployed()
    assert run.cluster.take() == [
        ("complete", 1, B, checkpoint_id),
        ("deploy", 2, A, checkpoint_id),
    ]
    run.scheduler.on_deployed(2)
    assert run.cluster.take() == [("start", 2, A)]
    run.scheduler.on_started(2)
    assert run.state is JobState.RUNNING
    status = run.scheduler.statistics()
    assert (status.restarts, status.restored_checkpoint) == (1, checkpoint_id)
    assert [str(f.root) for f in status.failures] == ["a-write[0]: division by zero"]


def test_a_region_without_a_checkpoint_begins_from_nothing() -> None:
    run = Run().start()
    run.fail()
    run.until_deployed()
    assert run.cluster.take()[-1] == ("deploy", 2, A, None)


def test_messages_carry_the_attempt_of_the_subtask_that_they_concern() -> None:
    run = Run().start()
    run.fail()
    run.until_deployed()
    run.come_up()
    assert [run.scheduler.attempt_of(s) for s in ALL] == [2, 1, 2, 1]
    checkpoint_id = run.checkpoint()
    said = run.cluster.take()
    assert said == [
        ("trigger", 2, (A_READ,), checkpoint_id),
        ("trigger", 1, (B_READ,), checkpoint_id),
        ("complete", 2, A, checkpoint_id),
        ("complete", 1, B, checkpoint_id),
    ]
    assert run.scheduler.latest_completed is not None
    assert run.scheduler.latest_completed.attempt == 2


def test_what_the_stopped_attempt_of_the_region_still_says_is_stale() -> None:
    run = Run().start()
    run.fail()
    run.until_deployed()
    run.come_up()
    run.scheduler.trigger_checkpoint()
    late = run.scheduler.acknowledge(
        1, A_READ, run.cluster.barriers[-1], SubtaskSnapshot(), CheckpointMetrics()
    )
    assert late is MessageOutcome.STALE_ATTEMPT
    run.scheduler.on_subtask_failed(1, A_READ, FailureCause("late"))
    run.scheduler.on_subtask_finished(1, A_READ)
    assert run.state is JobState.RUNNING
    assert run.scheduler.statistics().stale_events == 3


def test_checkpoints_that_run_are_given_up_and_none_begins_before_the_region_runs() -> None:
    run = Run().start()
    answers = run.answers_of_trigger()
    run.acknowledge(1, B)
    run.fail()
    assert isinstance(answers[0], CheckpointFailed)
    assert answers[0].reason is Reason.JOB_FAILOVER_REGION
    refused = run.answers_of_trigger()
    assert refused[0].reason is Reason.NOT_ALL_REQUIRED_TASKS_RUNNING
    run.until_deployed()
    run.come_up()
    assert run.checkpoint() == 2
    assert run.scheduler.statistics().checkpoints is not None
    assert run.acknowledge(1, B) == [MessageOutcome.ENDED_CHECKPOINT] * 2


def test_a_record_that_is_being_written_is_awaited_and_restored() -> None:
    run = Run().start()
    run.scheduler.trigger_checkpoint()
    run.acknowledge(1)
    run.fail()
    run.scheduler.on_region_stopped(1)
    run.timers.advance(1)
    assert DecisionLog(run.storage, SnapshotPaths("job")).replay().last_attempt == 1
    run.runner.run_all()
    run.timers.advance(1)
    run.runner.run_all()
    said = run.cluster.take()
    assert ("complete", 1, (*A, *B), 1) in said
    assert said[-1] == ("deploy", 2, A, 1)


def test_others_may_finish_while_the_region_restarts() -> None:
    run = Run().start()
    for subtask in B:
        run.scheduler.on_end_of_data(1, subtask)
    run.checkpoint()
    run.fail()
    for subtask in B:
        run.scheduler.on_subtask_finished(1, subtask)
    run.until_deployed()
    run.come_up()
    assert run.checkpoint() == 2
    assert run.cluster.take()[0] == ("trigger", 2, (A_READ,), 2)


def test_reports_of_the_end_still_hold_for_those_that_went_on() -> None:
    run = Run().start()
    for subtask in ALL:
        run.scheduler.on_end_of_data(1, subtask)
    run.fail()
    run.until_deployed()
    run.come_up()
    assert run.cluster.take() == []
    for subtask in A:
        run.scheduler.on_end_of_data(2, subtask)
    assert [said[0] for said in run.cluster.take()] == ["trigger", "trigger"], "the last checkpoint"


def test_a_subtask_that_had_finished_when_its_region_failed_is_started_again() -> None:
    run = Run().start()
    run.checkpoint()
    run.scheduler.on_subtask_finished(1, A_READ)
    run.fail(A_WRITE)
    run.until_deployed()
    run.come_up()
    run.checkpoint()
    assert ("trigger", 2, (A_READ,), 2) in run.cluster.take()


# -- when more goes wrong -----------------------------------------------------------------------------------


def test_what_fails_in_the_region_meanwhile_is_secondary() -> None:
    run = Run().start()
    run.fail(A_WRITE)
    run.fail(A_READ)
    assert run.state is JobState.RESTARTING
    (failure,) = run.scheduler.statistics().failures
    assert [cause.subtask for cause in failure.secondary] == [A_READ]


@pytest.mark.parametrize("when", ["stopping", "waiting", "writing", "deploying", "starting"])
def test_a_failure_elsewhere_meanwhile_restarts_everything(when: str) -> None:
    run = Run().start()
    checkpoint_id = run.checkpoint()
    run.fail(A_WRITE)
    advance_to(run, when)
    run.fail(B_WRITE)
    run.runner.run_all()
    attempt = run.scheduler.attempt
    assert run.state is JobState.FAILING
    assert run.cluster.take()[-1] == ("stop", attempt, "all")
    run.scheduler.on_region_stopped(attempt)
    assert run.state is JobState.FAILING, "that the region is stopped says nothing about the others"
    run.scheduler.on_all_stopped(attempt)
    run.timers.advance(1)
    run.runner.run_all()
    assert run.cluster.take() == [("deploy", attempt + 1, "all", checkpoint_id)]
    assert {run.scheduler.attempt_of(s) for s in ALL} == {attempt + 1}
    assert len(run.scheduler.statistics().failures) == 2


@pytest.mark.parametrize("when", ["stopping", "waiting", "writing", "deploying", "starting"])
def test_a_cancel_meanwhile_stops_everything(when: str) -> None:
    run = Run().start()
    run.fail(A_WRITE)
    advance_to(run, when)
    run.scheduler.cancel()
    run.runner.run_all()
    assert run.state is JobState.CANCELLING
    assert run.cluster.take()[-1] == ("stop", run.scheduler.attempt, "all")
    run.scheduler.on_all_stopped(run.scheduler.attempt)
    run.runner.run_all()
    assert run.state is JobState.CANCELLED


def advance_to(run: Run, when: str) -> None:
    if when == "stopping":
        return
    run.scheduler.on_region_stopped(1)
    steps: list[tuple[str, Callable[[], object]]] = [
        ("waiting", lambda: None),
        ("writing", lambda: run.timers.advance(1)),
        ("deploying", run.runner.run_all),
        ("starting", lambda: run.scheduler.on_deployed(2)),
    ]
    for name, step in steps:
        step()
        if name == when:
            return


def test_a_region_that_can_not_be_deployed_fails_the_attempt() -> None:
    run = Run().start()
    run.fail()
    run.until_deployed()
    run.scheduler.on_deployment_failed(2, FailureCause("no room", A_READ))
    assert run.state is JobState.FAILING


def test_a_storage_that_is_away_fails_the_attempt_which_then_goes_on_when_it_is_back() -> None:
    run = Run().start()
    checkpoint_id = run.checkpoint()
    run.fail()
    run.storage.refuses = True
    run.until_deployed()
    assert run.state is JobState.FAILING
    run.storage.refuses = False
    run.scheduler.on_all_stopped(1)
    run.timers.advance(1)
    run.runner.run_all()
    assert run.cluster.take()[-1][::3] == ("deploy", checkpoint_id)


def test_a_job_that_may_not_restart_fails_with_the_cause_told_once() -> None:
    run = Run(restart=NoRestart()).start()
    run.fail()
    run.scheduler.on_region_stopped(1)
    assert run.cluster.take()[-1] == ("stop", 1, "all")
    run.scheduler.on_all_stopped(1)
    run.runner.run_all()
    assert run.state is JobState.FAILED
    assert [str(f.root) for f in run.scheduler.statistics().failures] == ["a-write[0]: division by zero"]
    assert run.cluster.take()[-1] == ("ended", JobState.FAILED, "a-write[0]: division by zero")


def test_restarts_of_regions_count_as_restarts() -> None:
    run = Run(restart=FixedDelay(2, 1)).start()
    for subtask in (A_WRITE, B_WRITE):
        run.fail(subtask)
        run.until_deployed()
        run.come_up()
    run.fail(A_WRITE)
    run.scheduler.on_region_stopped(run.scheduler.attempt)
    assert run.state is JobState.FAILING


def test_what_no_restart_mends_fails_the_whole_job() -> None:
    run = Run().start()
    run.fail(recoverable=False)
    assert (run.state, run.cluster.take()) == (JobState.FAILING, [("stop", 1, "all")])


def test_everything_restarts_where_that_is_asked_for() -> None:
    run = Run(failover="full").start()
    run.fail()
    assert (run.state, run.cluster.take()) == (JobState.FAILING, [("stop", 1, "all")])


def test_a_savepoint_that_was_to_stop_the_job_fails_it() -> None:
    run = Run().start()
    run.scheduler.trigger_checkpoint(SnapshotKind.SYNC_SAVEPOINT)
    run.fail()
    assert run.state is JobState.FAILING
    assert run.cluster.take()[-1] == ("stop", 1, "all")


def test_another_job_master_is_found_out_by_the_record_of_the_region() -> None:
    first = Run().start()
    first.checkpoint()
    second = Run(storage=first.storage).start()
    first.fail()
    first.until_deployed()
    assert first.cluster.take()[-1] == ("fenced",)
    assert second.checkpoint() == 2
    assert second.scheduler.attempt == 2


def test_a_job_master_that_comes_back_takes_a_number_behind_those_of_regions() -> None:
    first = Run().start()
    first.fail()
    first.until_deployed()
    first.come_up()
    second = Run(storage=first.storage)
    second.scheduler.start()
    second.runner.run_all()
    assert second.scheduler.attempt == 3, "attempt 2 was the region's"
