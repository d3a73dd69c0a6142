"""Laws of a job of two independent regions: each subtask is always asked what its own attempt can answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st
from manual_work import ManualAsyncRunner

from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.config.restart import FixedDelay
from penstock.runtime.graph.execution_graph import CurrentGraph, build_execution_graph
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
from penstock.runtime.snapshot.checkpoint_record import CheckpointMetrics
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

NAMES = ("a-read", "b-read", "a-write", "b-write")
SUBTASKS = tuple(SubtaskId(name, 0) for name in NAMES)
RESTARTS = 4

EVENTS = st.one_of(
    st.tuples(
        st.sampled_from(["fail", "fail", "finish", "end_of_data", "acknowledge"]), st.sampled_from(SUBTASKS)
    ),
    st.tuples(st.sampled_from(["answer", "answer", "work", "checkpoint", "everything", "whole_checkpoint"])),
    st.tuples(st.sampled_from(["everything", "delay", "cancel", "deployment_failed"])),
)


class World:
    """A scheduler, the processes that it deployed, and what waits to be answered."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.runner = ManualAsyncRunner()
        self.storage = MemoryStorage()
        config = JobConfig(checkpointing=Checkpointing(every=500), restart=FixedDelay(RESTARTS, 1))
        self.scheduler = JobScheduler(
            "job",
            CurrentGraph(two_pipelines()),
            config,
            self,
            self.storage,
            self.clock,
            self.timers,
            self.runner,
        )
        #: By subtask: the attempt that its process runs.
        self.live: dict[SubtaskId, int] = {}
        self.pending: list[tuple[str, int, Callable[[], None]]] = []
        self.told: dict[SubtaskId, int] = {}
        self.running_ids: list[int] = []
        self.ended: list[JobState] = []
        self.answers: list[Any] = []
        self.asked = self.regions = 0

    # -- the gateway ----------------------------------------------------------------------------------------

    def deploy(self, attempt: int, subtasks: Collection[SubtaskId], restore: Any) -> None:
        assert not self.ended
        assert not self.live.keys() & set(subtasks), "what is deployed was stopped before"
        assert all(attempt > self.told.get(subtask, 0) for subtask in subtasks), "numbers grow"
        self.told.update(dict.fromkeys(subtasks, attempt))
        self.live.update(dict.fromkeys(subtasks, attempt))
        self.pending.append(("deployed", attempt, lambda: self.scheduler.on_deployed(attempt)))

    def start(self, attempt: int, subtasks: Collection[SubtaskId]) -> None:
        assert all(self.live.get(subtask) == attempt for subtask in subtasks)
        self.pending.append(("started", attempt, lambda: self.scheduler.on_started(attempt)))

    def stop(self, attempt: int, subtasks: Collection[SubtaskId], stopped: Callable[[], None]) -> None:
        if len(subtasks) == len(SUBTASKS):
            assert all(own <= attempt for own in self.live.values()), "a stop covers all older attempts"
        else:
            self.regions += 1
            assert len(subtasks) == 2

        def answer() -> None:
            for subtask in subtasks:
                if self.live.get(subtask, attempt + 1) <= attempt:
                    del self.live[subtask]
            stopped()

        self.pending.append(("stopped", attempt, answer))

    def trigger_checkpoint(self, attempt: int, subtasks: Iterable[SubtaskId], barrier: Any) -> None:
        assert self.scheduler.state is JobState.RUNNING
        self._check(attempt, subtasks)
        if barrier.checkpoint_id not in self.running_ids:
            self.running_ids.append(barrier.checkpoint_id)

    def notify_checkpoint_complete(
        self, attempt: int, subtasks: Iterable[SubtaskId], checkpoint_id: int
    ) -> None:
        view = DecisionLog(self.storage, SnapshotPaths("job")).replay()
        assert view.highest_checkpoint_id >= checkpoint_id, "told only after the record"
        assert all(self.told[subtask] == attempt for subtask in subtasks)

    def notify_checkpoint_aborted(
        self, attempt: int, subtasks: Iterable[SubtaskId], checkpoint_id: int
    ) -> None:
        assert all(self.told[subtask] == attempt for subtask in subtasks)

    def job_ended(self, state: JobState, cause: str) -> None:
        assert not self.live, "nothing runs when a job has ended"
        self.ended.append(state)

    def fenced(self) -> None:
        raise AssertionError("there is no other JobMaster")

    # -- what happens ---------------------------------------------------------------------------------------

    def do(self, what: str, *subtask: SubtaskId) -> None:
        scheduler = self.scheduler
        match what, subtask:
            case "fail", (who,) if who in self.live:
                scheduler.on_subtask_failed(self.live[who], who, FailureCause("it broke"))
            case "finish", (who,) if who in self.live and scheduler.state is JobState.RUNNING:
                scheduler.on_subtask_finished(self.live.pop(who), who)
            case "end_of_data", (who,) if who in self.live:
                scheduler.on_end_of_data(self.live[who], who)
            case "acknowledge", (who,) if self.running_ids and who in self.live:
                self._acknowledge(who)
            case "answer", ():
                self.answer()
            case "work", ():
                self.runner.run_all()
            case "delay", ():
                self.timers.advance(1)
            case "everything", ():
                for _ in range(4):
                    self.answer()
                    self.runner.run_all()
                    self.timers.advance(1)
            case "checkpoint", ():
                self.asked += 1
                scheduler.trigger_checkpoint(on_answer=self.answers.append)
            case "whole_checkpoint", ():
                self.do("checkpoint")
                for who in SUBTASKS if self.running_ids else ():
                    self.do("acknowledge", who)
                self.runner.run_all()
            case "cancel", ():
                scheduler.cancel()
            case "deployment_failed", () if self.pending and self.pending[0][0] == "deployed":
                _, attempt, _ = self.pending.pop(0)
                scheduler.on_deployment_failed(attempt, FailureCause("no room"))

    def answer(self) -> None:
        """The oldest thing that was asked for has been done."""
        if not self.pending:
            return
        _, _, answer = self.pending.pop(0)
        answer()

    def settle(self) -> None:
        """Cancel, let everything answer, and move until nothing is left to do."""
        self.scheduler.cancel()
        for _ in range(1000):
            while self.pending:
                self.answer()
            if not self.runner.run_all() and not self.pending and not self.timers.fire_next():
                return
        raise AssertionError("it never comes to rest")

    def _acknowledge(self, who: SubtaskId) -> None:
        self.scheduler.acknowledge(
            self.live[who], who, self.running_ids[-1], SubtaskSnapshot(), CheckpointMetrics()
        )

    def _check(self, attempt: int, subtasks: Iterable[SubtaskId]) -> None:
        for subtask in subtasks:
            assert self.live.get(subtask) == attempt, f"{subtask} runs another attempt"


def two_pipelines() -> Any:
    def vertex(name: str) -> JobVertex:
        source: Any = object() if name.endswith("read") else None
        return JobVertex(name, (OperatorSpec(name, name, None, source=source),), 1)

    def edge(region: str) -> JobEdge:
        read, write = f"{region}-read", f"{region}-write"
        return JobEdge(read, read, None, write, 0, Partitioner(Partitioning.REBALANCE))

    return build_execution_graph(JobGraph("two", tuple(map(vertex, NAMES)), (edge("a"), edge("b"))))


@settings(deadline=None)
@given(st.lists(EVENTS, min_size=10, max_size=60))
def test_laws_hold_under_any_events(events: list[tuple[Any, ...]]) -> None:
    world = World()
    world.scheduler.start()
    world.do("everything")
    for happening in events:
        world.do(*happening)
        assert len(world.ended) == world.scheduler.state.is_terminal
    world.settle()
    event(f"{world.regions} regions restarted")
    event(f"{sum(type(answer).__name__ == 'CheckpointSucceeded' for answer in world.answers)} checkpoints")
    status = world.scheduler.statistics()
    assert [status.state] == world.ended, "every job comes to an end, once"
    assert status.restarts <= RESTARTS, "no crash loop is longer than allowed"
    assert len(world.answers) == world.asked, "every request is answered"
