"""Stops with savepoints and rescaling: real states, coordinator, log and storage; no processes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.runtime.checkpoint.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.checkpoint.config import Checkpointing
from penstock.runtime.checkpoint.coordinator_requests import (
    CheckpointAnswer,
    CheckpointCompleted,
    CheckpointFailed,
)
from penstock.runtime.checkpoint.decision_log import DecisionLog
from penstock.runtime.checkpoint.failure_reason import CheckpointFailureReason as Reason
from penstock.runtime.checkpoint.memory_storage import MemoryStorage
from penstock.runtime.checkpoint.metadata import read_state, write_state_file
from penstock.runtime.checkpoint.opened_snapshot import open_snapshot
from penstock.runtime.checkpoint.paths import SnapshotPaths
from penstock.runtime.checkpoint.snapshot import (
    CheckpointMetrics,
    OperatorStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
    SubtaskId,
    SubtaskSnapshot,
)
from penstock.runtime.errors import RestoreError
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.graph.job_config import JobConfig
from penstock.runtime.graph.job_graph import (
    Partitioner,
    Partitioning,
)
from penstock.runtime.job.failure import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.rescale_request import RescaleAnswer, RescaleRefused, RescaleStarted
from penstock.runtime.job.restart import FixedDelay
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.job.stop_request import StopRequest
from penstock.runtime.record.elements import CheckpointBarrier, SnapshotKind
from penstock.runtime.testing.manual_time import ManualAsyncRunner, ManualClock, ManualTimers
from penstock.runtime.testing.small_graphs import read_and_count
from penstock.runtime.testing.step_savepoints import MemoryPlaces

READ, COUNT = SubtaskId("read", 0), SubtaskId("count", 0)


def graph() -> ExecutionGraph:
    return read_and_count(1, 1, Partitioner(Partitioning.KEY_GROUP, len), keyed=True)


@dataclass
class Cluster:
    """Records what the scheduler asks of the world."""

    said: list[str] = field(default_factory=list)
    barriers: list[CheckpointBarrier] = field(default_factory=list)
    restored: list[CompletedCheckpoint | None] = field(default_factory=list)
    graph: ExecutionGraph = field(default_factory=graph)

    def deploy(self, attempt: int, restore: CompletedCheckpoint | None) -> None:
        self.said.append(f"deploy {attempt}")
        self.restored.append(restore)

    def deploy_region(
        self, attempt: int, subtasks: Collection[SubtaskId], restore: CompletedCheckpoint | None
    ) -> None:
        self.deploy(attempt, restore)

    def change_graph(self, graph: ExecutionGraph) -> None:
        self.graph = graph

    def start(self, attempt: int) -> None:
        self.said.append(f"start {attempt}")

    def start_region(self, attempt: int, subtasks: Collection[SubtaskId]) -> None:
        self.start(attempt)

    def stop_all(self, attempt: int) -> None:
        self.said.append(f"stop {attempt}")

    def stop_region(self, attempt: int, subtasks: Collection[SubtaskId]) -> None:
        self.stop_all(attempt)

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
        **checkpointing: Any,
    ) -> None:
        self.storage = storage or MemoryStorage()
        self.places = places or MemoryPlaces()
        self.clock = ManualClock()
        self.timers, self.runner = ManualTimers(self.clock), ManualAsyncRunner()
        self.cluster: Any = Cluster()
        self.scheduler = JobScheduler(
            job_id,
            graph(),
            JobConfig(
                checkpointing=Checkpointing(every=10, **checkpointing),
                restart=FixedDelay(attempts=5, delay=0),
                restore_from=restore_from,
            ),
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
        for subtask in [s.id for s in self.cluster.graph.subtasks]:
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
        self.scheduler.on_all_stopped(self.scheduler.attempt)
        self.runner.run_all()

    def parallelism(self) -> dict[str, int]:
        return {v.id: v.parallelism for v in self.cluster.graph.job.vertices}


def test_a_job_is_stopped_with_a_savepoint_and_is_finished_when_everybody_has_left() -> None:
    run = Run().start().stop(drain=True)
    assert run.state is JobState.STOPPING
    barrier = run.cluster.barriers[-1]
    assert (barrier.options.kind, barrier.options.drain) == (SnapshotKind.SYNC_SAVEPOINT, True)
    run.timers.advance(30)
    assert len(run.cluster.barriers) == 1  # no periodic checkpoint any more
    run.acknowledge()
    assert isinstance(run.answers[0], CheckpointCompleted)
    assert run.state is JobState.STOPPING
    run.leave()
    assert run.state is JobState.FINISHED
    assert run.scheduler.status().stopped_with == "memory:/job/savepoint-1-1"


def test_a_checkpoint_that_runs_gives_way_to_the_savepoint_of_a_stop() -> None:
    run = Run().start()
    run.timers.advance(10)
    run.stop()
    assert run.cluster.take()[-1:] == ["aborted 1"]
    assert run.acknowledge() == 2
    run.leave()
    assert run.state is JobState.FINISHED


def test_a_stop_whose_savepoint_fails_restarts_the_job_from_its_last_checkpoint() -> None:
    run = Run().start()
    run.timers.advance(10)
    first = run.acknowledge()
    run.stop(drain=True)
    run.scheduler.decline(1, COUNT, 2, Reason.CHECKPOINT_DECLINED, "disk full")
    assert isinstance(run.answers[0], CheckpointFailed)
    assert "disk full" in run.answers[0].detail
    assert run.state is JobState.FAILING
    run.all_stopped()
    run.timers.advance(0)
    run.come_up()
    assert run.state is JobState.RUNNING
    assert run.cluster.restored[-1].checkpoint_id == first
    assert run.scheduler.status().stopped_with is None


def test_a_savepoint_that_a_leaving_subtask_breaks_is_taken_again() -> None:
    run = Run().start().stop()
    run.scheduler.on_subtask_finished(1, READ)
    assert (run.state, run.answers) == (JobState.STOPPING, [])
    run.timers.advance(1)
    assert [b.checkpoint_id for b in run.cluster.barriers] == [1, 2]
    run.scheduler.acknowledge(1, COUNT, 2, SubtaskSnapshot(), CheckpointMetrics())
    run.runner.run_all()
    run.leave()
    assert run.state is JobState.FINISHED


@pytest.mark.parametrize("who", ["a subtask", "the JobMaster"])
def test_a_job_whose_savepoint_is_complete_never_reads_again(who: str) -> None:
    """What comes back opens everything, so that sinks commit, starts nothing, and ends."""
    run = Run().start().stop()
    run.acknowledge()
    if who == "a subtask":
        run.scheduler.on_subtask_failed(1, COUNT, FailureCause("killed before its commit"))
        run.all_stopped()
        run.timers.advance(0)
        again = run
    else:
        again = Run(run.storage, run.places)
        again.scheduler.start()
    again.cluster.take()
    again.runner.run_all()
    assert again.cluster.take() == ["deploy 2"]
    assert again.cluster.restored[-1].kind is SnapshotKind.SYNC_SAVEPOINT
    again.scheduler.on_deployed(2)
    assert (again.state, again.cluster.take()) == (JobState.STOPPING, ["stop 2"])
    again.all_stopped()
    assert again.state is JobState.FINISHED
    assert again.scheduler.status().stopped_with == "memory:/job/savepoint-1-1"


def test_a_job_that_starts_from_the_savepoint_of_a_stop_runs() -> None:
    run = Run().start().stop(target="/saved")
    location = run.cluster.barriers[-1].options.location
    assert location == "/saved/savepoint-job-1-1"
    run.places(location, create=True)
    run.acknowledge()
    run.leave()
    assert open_snapshot(location, run.places).checkpoint.kind is SnapshotKind.SYNC_SAVEPOINT
    again = Run(MemoryStorage(), run.places, job_id="again", restore_from=location).start()
    assert again.state is JobState.RUNNING
    assert again.cluster.restored[0].location == location
    again.timers.advance(10)
    assert again.acknowledge() == 2  # ids go on behind the savepoint's
    again.scheduler.on_subtask_failed(1, READ, FailureCause("out of memory"))
    again.all_stopped()
    again.timers.advance(0)
    again.come_up()
    assert again.cluster.restored[-1].location is None  # now it has a checkpoint of its own


def test_the_first_checkpoint_of_a_job_that_starts_from_a_savepoint_keeps_what_finished_subtasks_kept() -> (
    None
):
    """In files of its own: the savepoint may be deleted then."""
    first = Run().start()
    first.scheduler.take_savepoint("/saved", first.answers.append)
    location = first.cluster.barriers[-1].options.location
    file = write_state_file(first.places(location, create=True), "read-0-0", b"kept")
    kept = OperatorSubtaskState(operator=(OperatorStateHandle("all", RedistributionMode.UNION, file, 1),))
    first.scheduler.acknowledge(1, READ, 1, SubtaskSnapshot({"read": kept}, ended=True), CheckpointMetrics())
    first.scheduler.acknowledge(1, COUNT, 1, SubtaskSnapshot(), CheckpointMetrics())
    first.runner.run_all()

    second = Run(MemoryStorage(), first.places, job_id="again", restore_from=location).start()
    second.scheduler.on_subtask_finished(1, READ)
    second.timers.advance(10)
    second.scheduler.acknowledge(1, COUNT, 2, SubtaskSnapshot(), CheckpointMetrics())
    second.runner.run_all()
    del first.places.storages[location]

    third = Run(second.storage, first.places, job_id="again", restore_from=location).start()
    restored = third.cluster.restored[-1].operators["read"]
    (state,) = restored.subtasks[0].operator
    assert (restored.finished, read_state(third.storage, state.state)) == ({0}, b"kept")


def test_a_snapshot_that_is_not_there_fails_the_job_at_once() -> None:
    places = MemoryPlaces()
    places("/data/x", create=True)
    places("/data", create=True)
    run = Run(places=places, restore_from="/data/x")
    run.scheduler.start()
    run.runner.run_all()
    assert run.state is JobState.FAILED
    assert "there is no snapshot at /data/x" in run.scheduler.status().cause
    with pytest.raises(RestoreError):
        open_snapshot("/data/x", places)


def test_the_newest_checkpoint_of_a_job_is_found_by_its_folder() -> None:
    storage, places = MemoryStorage("/data"), MemoryPlaces()
    places.storages["/data"] = storage
    places("/data/job", create=True)
    run = Run(storage, places).start()
    run.timers.advance(10)
    run.acknowledge()
    found = open_snapshot("/data/job", places).checkpoint
    assert (found.checkpoint_id, found.location) == (1, "/data")
    assert open_snapshot("/data/job/chk-1-1/metadata", places).checkpoint == found


def test_a_savepoint_is_followed_by_a_checkpoint_before_it_is_answered() -> None:
    run = Run().start()
    run.scheduler.take_savepoint(None, run.answers.append)
    run.acknowledge()
    assert run.answers == []
    assert [b.options.kind for b in run.cluster.barriers] == [SnapshotKind.SAVEPOINT, SnapshotKind.CHECKPOINT]
    run.acknowledge()
    assert isinstance(run.answers[0], CheckpointCompleted)
    assert run.answers[0].checkpoint.checkpoint_id == 1


def savepoint_complete(**checkpointing: Any) -> Run:
    """The savepoint is complete, and the checkpoint behind it runs."""
    run = Run(**checkpointing).start()
    run.scheduler.take_savepoint(None, run.answers.append)
    run.acknowledge()
    assert (run.cluster.barriers[-1].checkpoint_id, run.answers) == (2, [])
    return run


def still_needed(run: Run) -> str:
    """What the answer says, which must be that the savepoint is complete."""
    (answer,) = run.answers
    assert isinstance(answer, CheckpointCompleted)
    assert answer.checkpoint.checkpoint_id == 1
    return answer.still_needed


def test_a_savepoint_is_not_answered_before_a_checkpoint_behind_it_is_complete() -> None:
    run = savepoint_complete(tolerable_failures=9)
    run.scheduler.decline(1, COUNT, 2, Reason.CHECKPOINT_DECLINED, "disk full")
    assert run.answers == []
    run.timers.advance(1)
    assert run.acknowledge() == 3
    assert still_needed(run) == ""
    assert run.scheduler.latest_completed.kind is SnapshotKind.CHECKPOINT


def test_a_savepoint_behind_which_no_checkpoint_completes_is_complete_and_still_needed() -> None:
    run = savepoint_complete(tolerable_failures=9)
    for checkpoint_id in range(2, 6):
        assert run.answers == []
        run.scheduler.decline(1, COUNT, checkpoint_id, Reason.CHECKPOINT_DECLINED, "disk full")
        run.timers.advance(1)
    assert (
        still_needed(run)
        == "no checkpoint could be taken behind it: count[0]: disk full (checkpoint_declined)"
    )
    assert run.scheduler.latest_completed.kind is SnapshotKind.SAVEPOINT
    assert len(run.cluster.barriers) == 5


def test_a_savepoint_is_answered_when_the_job_has_restarted_from_it_and_has_a_checkpoint_again() -> None:
    run = savepoint_complete()
    run.scheduler.on_subtask_failed(1, READ, FailureCause("out of memory"))
    run.timers.advance(1)  # it does not run: nothing can be asked for
    run.all_stopped()
    run.timers.advance(0)
    run.come_up()
    assert (run.answers, run.cluster.restored[-1].checkpoint_id) == ([], 1)
    run.timers.advance(1)
    run.acknowledge()
    assert still_needed(run) == ""


def test_a_savepoint_is_answered_when_its_job_ends_meanwhile() -> None:
    run = savepoint_complete()
    run.scheduler.cancel()
    run.all_stopped()
    run.timers.advance(1)
    assert run.state is JobState.CANCELLED
    assert still_needed(run) == ""


def test_a_savepoint_asks_for_no_checkpoint_while_the_job_is_rescaled() -> None:
    run = savepoint_complete(max_concurrent=3).rescale(count=3)
    barriers = len(run.cluster.barriers)
    run.timers.advance(1)
    assert len(run.cluster.barriers) == barriers
    run.acknowledge()
    run.timers.advance(1)
    assert still_needed(run) == ""


def test_savepoints_that_take_too_long_do_not_fail_the_job() -> None:
    run = Run(tolerable_failures=0, timeout=3).start()
    for _ in range(2):
        run.scheduler.take_savepoint(None, run.answers.append)
        run.timers.advance(4)
    assert len(run.answers) == 2
    assert all(isinstance(answer, CheckpointFailed) for answer in run.answers)
    assert run.state is JobState.RUNNING


def test_a_job_is_rescaled_and_comes_back_so_also_with_another_job_master() -> None:
    run = Run().start().rescale(count=3)
    assert (run.state, run.rescaled) == (JobState.RESCALING, [])
    run.acknowledge()
    assert run.cluster.take()[-1:] == ["stop 1"]
    run.all_stopped()
    assert run.rescaled == [RescaleStarted(1)]
    assert run.parallelism() == {"read": 1, "count": 3}
    run.come_up()
    assert run.state is JobState.RUNNING
    assert run.cluster.restored[-1].checkpoint_id == 1
    assert len(run.scheduler.status().subtasks) == 4
    again = Run(run.storage, run.places).start()
    assert again.parallelism() == {"read": 1, "count": 3}
    assert not again.scheduler.status().failures
    log = DecisionLog(run.storage, SnapshotPaths("job"), compact_every=2)
    log.begin_attempt(0.0)
    log.drop((99,), 0.0)
    assert log.replay().parallelism == (("count", 3),)


def test_a_job_goes_on_as_it_was_when_its_checkpoint_for_rescaling_fails() -> None:
    run = Run().start().rescale(count=3)
    run.scheduler.decline(1, COUNT, 1, Reason.CHECKPOINT_DECLINED, "no room")
    assert isinstance(run.rescaled[0], RescaleRefused)
    assert "no room" in run.rescaled[0].why
    assert run.state is JobState.RUNNING
    run.timers.advance(10)
    run.acknowledge()
    assert run.scheduler.latest_completed is not None


def test_a_job_that_fails_while_it_is_rescaled_restarts_as_it_was() -> None:
    run = Run().start().rescale(count=3)
    run.scheduler.on_subtask_failed(1, READ, FailureCause("out of memory"))
    assert isinstance(run.rescaled[0], RescaleRefused)
    run.all_stopped()
    run.timers.advance(0)
    run.come_up()
    assert (run.state, run.parallelism()) == (JobState.RUNNING, {"read": 1, "count": 1})


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"cuont": 2}, "no operator 'cuont'"),
        ({"count": 0}, "at least 1, not 0"),
        ({"count": 1000}, "max_parallelism 128"),
        ({}, "nothing to rescale"),
    ],
)
def test_a_parallelism_that_can_not_be_is_refused(wanted: dict[str, int], why: str) -> None:
    run = Run().start().rescale(**wanted)
    assert isinstance(run.rescaled[0], RescaleRefused)
    assert why in run.rescaled[0].why
    assert run.state is JobState.RUNNING


def test_a_job_that_does_not_run_is_neither_stopped_nor_rescaled() -> None:
    run = Run()
    run.scheduler.start()
    run.stop().rescale(count=2)
    assert isinstance(run.answers[0], CheckpointFailed)
    assert isinstance(run.rescaled[0], RescaleRefused)
    assert "it is deploying" in run.answers[0].detail
    assert "it is deploying" in run.rescaled[0].why
