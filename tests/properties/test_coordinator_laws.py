"""Laws of the coordinator under random events (Flink's own, and that no file is deleted that is needed)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from manual_work import ManualAsyncRunner
from small_graphs import read_and_count

from penstock.runtime.checkpoint.completed_store import CompletedCheckpointStore
from penstock.runtime.checkpoint.coordinator.completion import complete_checkpoint
from penstock.runtime.checkpoint.coordinator.coordinator import CheckpointCoordinator
from penstock.runtime.checkpoint.coordinator.files import CheckpointFiles
from penstock.runtime.checkpoint.coordinator.plan import CheckpointPlanner, SubtaskStatus
from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.graph.execution_graph import CurrentGraph
from penstock.runtime.record.elements import CheckpointBarrier, SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.handles import (
    KeyedStateHandle,
    KeyGroupRange,
    OperatorSubtaskState,
    SubtaskSnapshot,
)
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.metadata import write_state_file
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

SUBTASKS = (SubtaskId("read", 0), SubtaskId("read", 1), SubtaskId("count", 0))

EVENTS = st.one_of(
    st.tuples(st.just("whole"), st.booleans()),
    st.tuples(st.just("trigger"), st.booleans()),
    st.tuples(st.just("acknowledge"), st.integers(0, 2), st.integers(0, 3)),
    st.tuples(st.just("acknowledge_all"), st.integers(0, 3)),
    st.tuples(st.just("decline"), st.integers(0, 2), st.integers(0, 3)),
    st.tuples(st.just("advance"), st.integers(1, 12)),
    st.tuples(st.just("work"), st.integers(0, 2)),
    st.tuples(st.just("finish"), st.integers(0, 2)),
)


class World:
    """A coordinator, its storage, and subtasks that build on what their barriers confirm."""

    def __init__(self, max_concurrent: int, retained: int) -> None:
        graph = read_and_count()
        self.config = Checkpointing(
            every=5, timeout=20, min_pause=1, max_concurrent=max_concurrent, retain=retained
        )
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.runner = ManualAsyncRunner()
        self.storage, self.paths = MemoryStorage(), SnapshotPaths("job")
        self.log = DecisionLog(self.storage, self.paths)
        self.log.begin_attempt(0.0)
        self.planner = CheckpointPlanner(CurrentGraph(graph))
        self.coordinator = CheckpointCoordinator(
            self.config,
            self.planner,
            self,
            CheckpointFiles(self.storage, self.paths, self.runner),
            lambda c: complete_checkpoint(self.storage, self.paths, self.log, c, retained=retained),
            fail_job=self.fail_job,
            fenced=self.fenced,
            clock=self.clock,
            timers=self.timers,
            runner=self.runner,
        )
        self.store = CompletedCheckpointStore(retained, may_delete=self.paths.may_delete)
        self.barriers: dict[int, CheckpointBarrier] = {}
        self.ends: dict[int, list[str]] = {}
        self.ran: set[int] = set()
        self.unheard: set[int] = set()
        self.snapshots: dict[tuple[int, SubtaskId], SubtaskSnapshot] = {}
        self.acknowledged: Counter[int] = Counter()
        self.asked = 0
        self.answered: list[Any] = []
        self.coordinator.begin_attempt(1, self.store, -1)
        self.coordinator.started()
        self.coordinator.start_periodic()

    def trigger_checkpoint(self, attempt: int, subtasks: Any, barrier: CheckpointBarrier) -> None:
        assert barrier.checkpoint_id > max(self.barriers, default=0), "C2: ids grow"
        assert subtasks
        self.barriers[barrier.checkpoint_id] = barrier
        self.ends[barrier.checkpoint_id] = []
        if not barrier.options.kind.is_savepoint:
            assert len(self.coordinator.pending_ids) <= self.config.max_concurrent, "C9"

    def notify_checkpoint_complete(self, attempt: int, subtasks: Any, checkpoint_id: int) -> None:
        assert any(c.checkpoint_id == checkpoint_id for c in self.log.replay().completed), "record first"
        self.ends[checkpoint_id].append("complete")

    def notify_checkpoint_aborted(self, attempt: int, subtasks: Any, checkpoint_id: int) -> None:
        self.ends[checkpoint_id].append("aborted")

    def fail_job(self, cause: str) -> None:
        pass

    def fenced(self) -> None:
        raise AssertionError("nobody else owns the log")

    def snapshot(self, checkpoint_id: int, subtask: SubtaskId) -> SubtaskSnapshot:
        """The same answer whenever it is asked: a new file, behind those of the confirmed checkpoint."""
        key = (checkpoint_id, subtask)
        if key not in self.snapshots:
            base = self.snapshots.get((self.barriers[checkpoint_id].confirmed_id, subtask))
            older = [] if base is None else list(base.files())[-2:]
            path = self.paths.shared_file(
                checkpoint_id=checkpoint_id,
                attempt=1,
                operator_id=subtask.vertex,
                subtask=subtask.index,
                number=0,
            )
            new = write_state_file(self.storage, path, str(key).encode())
            state = KeyedStateHandle(KeyGroupRange(0, 127), (*older, new), 1)
            self.snapshots[key] = SubtaskSnapshot({subtask.vertex: OperatorSubtaskState(keyed=(state,))})
        return self.snapshots[key]

    def acknowledge(self, subtask: SubtaskId, back: int) -> None:
        finished = self.planner.status[subtask] is SubtaskStatus.FINISHED
        if back < len(self.barriers) and not finished:
            checkpoint_id = sorted(self.barriers)[-1 - back]
            snapshot = self.snapshot(checkpoint_id, subtask)
            self.coordinator.acknowledge(1, subtask, checkpoint_id, snapshot)

    def do(self, event: tuple[Any, ...]) -> None:
        match event:
            case ("trigger", savepoint):
                self.asked += 1
                kind = SnapshotKind.SAVEPOINT if savepoint else SnapshotKind.CHECKPOINT
                self.coordinator.trigger(kind, on_answer=self.answered.append)
            case ("whole", savepoint):
                self.do(("trigger", savepoint))
                self.do(("acknowledge_all", 0))
                self.runner.run_all()
            case ("acknowledge", subtask, back):
                self.acknowledge(SUBTASKS[subtask], back)
            case ("acknowledge_all", back):
                for subtask in SUBTASKS:
                    self.acknowledge(subtask, back)
            case ("decline", subtask, back):
                if back < len(self.barriers):
                    checkpoint_id = sorted(self.barriers)[-1 - back]
                    self.coordinator.decline(1, SUBTASKS[subtask], checkpoint_id)
            case ("advance", seconds):
                self.timers.advance(seconds)
            case ("work", index):
                self.runner.run_next(index)
            case ("finish", subtask):
                if self.coordinator.latest_completed is not None:
                    self.coordinator.subtask_finished(SUBTASKS[subtask])

    def check(self) -> None:
        pending = set(self.coordinator.pending_ids)
        if not self.planner.unfinished:  # no subtask is left to be notified
            self.unheard |= self.ran - pending
        self.ran = pending
        for checkpoint_id, ends in self.ends.items():
            assert len(ends) <= 1, f"C3: {checkpoint_id} ended as {ends}"
            assert (checkpoint_id in pending) != (bool(ends) or checkpoint_id in self.unheard)
        completed = [c for c in self.store.all if not c.is_savepoint]
        assert len(completed) <= self.config.retain, "C6"
        for checkpoint in self.store.all:
            for file in checkpoint.files():
                assert self.storage.get(file.path), "a needed file is there"

    def check_base_files(self) -> None:
        """Files that a running checkpoint may name again are still there."""
        for checkpoint_id in self.coordinator.pending_ids:
            base = self.barriers[checkpoint_id].confirmed_id
            for subtask in SUBTASKS:
                if (base, subtask) in self.snapshots and self.is_complete(base):
                    for file in self.snapshots[base, subtask].files():
                        assert self.storage.get(file.path)

    def is_complete(self, checkpoint_id: int) -> bool:
        return "complete" in self.ends.get(checkpoint_id, ())


@settings(deadline=None)
@given(
    max_concurrent=st.integers(1, 3),
    retained=st.integers(1, 2),
    events=st.lists(EVENTS, min_size=10, max_size=60),
)
def test_laws_hold_under_any_events(max_concurrent: int, retained: int, events: list[Any]) -> None:
    world = World(max_concurrent, retained)
    for event in events:
        world.do(event)
        world.check()
        world.check_base_files()
    world.coordinator.end_attempt(Reason.JOB_FAILURE)
    world.runner.run_all()
    assert len(world.answered) == world.asked, "C1: each request is answered once"
    assert world.coordinator.pending_ids == ()
    assert world.timers.pending == (), "C7: no timer is left"
    named = {file.path for c in world.store.all for file in c.files()}
    assert all(world.storage.get(path) for path in named)
