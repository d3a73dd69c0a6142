"""Laws of a job's states: whatever happens in whatever order, the world is asked for sensible things only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from manual_work import ManualAsyncRunner
from memory_storages import RefusingStorage
from small_graphs import read_and_count

from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.config.restart import FixedDelay
from penstock.runtime.graph.execution_graph import CurrentGraph
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.checkpoint_record import CheckpointMetrics
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

SUBTASKS = (SubtaskId("read", 0), SubtaskId("count", 0))
RESTARTS = 3

EVENTS = st.one_of(
    st.tuples(st.sampled_from(["come_up", "stopped", "checkpoint", "storage", "go_on"])),
    st.tuples(st.sampled_from(["failed", "deployment_failed"]), st.integers(0, 1)),
    st.tuples(st.sampled_from(["end_of_data", "finished", "decline", "acknowledge"]), st.integers(0, 1)),
    st.tuples(st.sampled_from(["acknowledge_all", "whole_checkpoint", "whole_restart", "go_on"])),
    st.tuples(st.sampled_from(["whole_restart", "go_on", "start", "cancel"])),
    st.tuples(st.just("advance"), st.sampled_from([0.1, 1, 10])),
    st.tuples(st.just("work"), st.integers(0, 1)),
    st.tuples(st.just("work"), st.integers(0, 1)),
)


class World:
    """A scheduler and what it asked for."""

    def __init__(self) -> None:
        graph = read_and_count(reads=1)
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.runner = ManualAsyncRunner()
        self.storage = RefusingStorage()
        config = JobConfig(
            checkpointing=Checkpointing(every=5, tolerable_failures=1), restart=FixedDelay(RESTARTS, 1)
        )
        self.scheduler = JobScheduler(
            "job", CurrentGraph(graph), config, self, self.storage, self.clock, self.timers, self.runner
        )
        self.deployed: list[int] = []
        self.stopping: Callable[[], None] | None = None
        self.live: int | None = None
        self.ended: list[JobState] = []
        self.answers: list[Any] = []
        self.asked = 0
        self.running: list[int] = []

    def deploy(self, attempt: int, subtasks: Any, restore: Any) -> None:
        assert not self.ended
        assert self.live is None, "an attempt is deployed only when the one before is gone"
        assert attempt > max(self.deployed, default=0)
        self.deployed.append(attempt)
        self.live = attempt

    def start(self, attempt: int, subtasks: Any) -> None:
        assert attempt == self.live

    def stop(self, attempt: int, subtasks: Any, stopped: Callable[[], None]) -> None:
        assert attempt == self.live, "only what was deployed is stopped"
        assert self.stopping is None, "an attempt is stopped once"
        self.stopping = stopped

    def trigger_checkpoint(self, attempt: int, subtasks: Any, barrier: Any) -> None:
        assert self.scheduler.state is JobState.RUNNING
        assert attempt == self.live
        self.running.append(barrier.checkpoint_id)

    def notify_checkpoint_complete(self, attempt: int, subtasks: Any, checkpoint_id: int) -> None:
        assert self.scheduler.state is JobState.RUNNING
        assert DecisionLog(self.storage, SnapshotPaths("job")).replay().highest_checkpoint_id >= checkpoint_id

    def notify_checkpoint_aborted(self, attempt: int, subtasks: Any, checkpoint_id: int) -> None:
        assert attempt == self.live

    def job_ended(self, state: JobState, cause: str) -> None:
        assert self.live is None or state is JobState.FINISHED, "nothing runs when a job has ended"
        self.ended.append(state)

    def fenced(self) -> None:
        raise AssertionError("there is no other JobMaster")

    def do(self, event: tuple[Any, ...]) -> None:
        scheduler, attempt = self.scheduler, self.scheduler.attempt
        match event:
            case ("start",):
                scheduler.start()
            case ("cancel",):
                scheduler.cancel()
            case ("come_up",):
                self.runner.run_all()
                scheduler.on_deployed(scheduler.attempt)
                scheduler.on_started(scheduler.attempt)
            case ("go_on",):
                self.storage.refuses = False
                self.do(("stopped",))
                self.runner.run_all()
                self.timers.advance(1)
                self.do(("come_up",))
            case ("whole_restart",):
                self.do(("failed", 0))
                self.do(("go_on",))
            case ("whole_checkpoint",):
                self.do(("checkpoint",))
                if self.running:
                    self.do(("acknowledge_all",))
                    self.runner.run_all()
            case ("stopped",):
                if self.stopping is not None:
                    stopped, self.live, self.stopping = self.stopping, None, None
                    stopped()
            case ("checkpoint",):
                self.asked += 1
                scheduler.trigger_checkpoint(on_answer=self.answers.append)
            case ("storage",):
                self.storage.refuses = not self.storage.refuses
            case ("failed", subtask):
                scheduler.on_subtask_failed(attempt, SUBTASKS[subtask], FailureCause("it broke"))
            case ("deployment_failed", back):
                scheduler.on_deployment_failed(attempt - back, FailureCause("no room"))
            case ("end_of_data", subtask):
                scheduler.on_end_of_data(attempt, SUBTASKS[subtask])
            case ("finished", subtask):
                scheduler.on_subtask_finished(attempt, SUBTASKS[subtask])
            case ("decline", subtask) if self.running:
                scheduler.decline(attempt, SUBTASKS[subtask], self.running[-1], Reason.CHECKPOINT_DECLINED)
            case ("acknowledge", subtask) if self.running:
                self.acknowledge(SUBTASKS[subtask])
            case ("acknowledge_all",) if self.running:
                for subtask in SUBTASKS:
                    self.acknowledge(subtask)
            case ("advance", seconds):
                self.timers.advance(seconds)
            case ("work", index):
                self.runner.run_next(index)

    def acknowledge(self, subtask: SubtaskId) -> None:
        attempt, checkpoint = self.scheduler.attempt, self.running[-1]
        self.scheduler.acknowledge(attempt, subtask, checkpoint, SubtaskSnapshot(), CheckpointMetrics())

    def settle(self) -> None:
        """Cancel, let everything answer, and move until nothing is left to do."""
        self.storage.refuses = False
        self.scheduler.start()
        self.scheduler.cancel()
        for _ in range(1000):
            self.do(("stopped",))
            if not self.runner.run_all() and self.stopping is None and not self.timers.fire_next():
                return
        raise AssertionError("it never comes to rest")


@settings(deadline=None)
@given(st.lists(EVENTS, min_size=10, max_size=60))
def test_laws_hold_under_any_events(events: list[Any]) -> None:
    world = World()
    world.scheduler.start()
    for event in events:
        world.do(event)
        status = world.scheduler.statistics()
        assert len(world.ended) == status.state.is_terminal
        assert all(
            earlier.target is later.source
            for earlier, later in zip(status.transitions, status.transitions[1:], strict=False)
        )
    world.settle()
    status = world.scheduler.statistics()
    assert [status.state] == world.ended, "every job comes to an end, once"
    assert len(world.deployed) <= RESTARTS + 1, "no crash loop is longer than allowed"
    assert len(world.answers) == world.asked, "every request is answered"
    assert DecisionLog(world.storage, SnapshotPaths("job")).replay().ended is not None
