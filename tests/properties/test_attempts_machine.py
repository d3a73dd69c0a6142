"""Completed checkpoints of several concurrent attempts, with crashes between any two storage calls.

Each attempt has a real coordinator, store and ledger over one storage, and does not know of the others. The
process may die before or after any storage call, also while its attempt begins. During the write of a record,
a newer attempt may begin and even complete its own checkpoints. Then only records of the newest attempt may
count. Its successor must find every checkpoint whose completion was announced, with all its files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from log_order import check_order, records_in
from manual_work import ManualAsyncRunner

from penstock.runtime.checkpoint.coordinator.coordinator import CheckpointCoordinator
from penstock.runtime.checkpoint.coordinator.files import CheckpointFiles
from penstock.runtime.checkpoint.coordinator.plan import CheckpointPlanner
from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.restart import RestartMemory
from penstock.runtime.graph.execution_graph import CurrentGraph, build_execution_graph
from penstock.runtime.graph.job_graph import JobGraph, JobVertex, OperatorSpec
from penstock.runtime.job.job_ledger import AttemptStart, JobLedger
from penstock.runtime.record.elements import CheckpointBarrier, SnapshotKind
from penstock.runtime.snapshot.handles import (
    KeyedStateHandle,
    KeyGroupRange,
    OperatorSubtaskState,
    SubtaskSnapshot,
)
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.metadata import read_metadata, write_state_file
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

READ = SubtaskId("read", 0)
CONFIG = Checkpointing(every=10, retain=2, max_concurrent=3)


#: Which attempt: mostly the newest, for which 0 stands.
WHICH = st.sampled_from([0, 0, 0, 1, 2])
SAVEPOINT = st.sampled_from([False, False, True])


class Death(BaseException):
    """The process is gone."""


def die() -> None:
    raise Death


class InterruptedStorage(MemoryStorage):
    """Does something else before or after the n-th call from now."""

    def __init__(self) -> None:
        super().__init__()
        self.countdown = -1
        self.interrupt: Callable[[], None] = lambda: None

    def arm(self, calls: int, interrupt: Callable[[], None]) -> None:
        self.countdown, self.interrupt = calls, interrupt

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        self.tick()
        super().put(path, data, create=create)
        self.tick()

    def delete(self, paths: Iterable[str]) -> None:
        for path in list(paths):
            self.tick()
            super().delete([path])

    def tick(self) -> None:
        self.countdown -= 1
        if self.countdown == -1:
            self.interrupt()


class Attempt:
    """One JobMaster with its coordinator; its subtask builds on what barriers confirm."""

    def __init__(self, storage: InterruptedStorage, told: dict[int, int]) -> None:
        clock = ManualClock()
        self.storage, self.told = storage, told
        self.ledger = JobLedger("job", storage, CONFIG)
        self.runner = ManualAsyncRunner()
        spec = OperatorSpec("read", "read", None, source=object())  # type: ignore[arg-type]
        graph = build_execution_graph(JobGraph("job", (JobVertex("read", (spec,), 1),), ()))
        self.coordinator = CheckpointCoordinator(
            CONFIG,
            CheckpointPlanner(CurrentGraph(graph)),
            self,
            CheckpointFiles(storage, self.ledger.paths, self.runner),
            self.ledger.complete_checkpoint,
            fail_job=self.fail_job,
            fenced=self.fenced,
            clock=clock,
            timers=ManualTimers(clock),
            runner=self.runner,
        )
        self.barriers: dict[int, CheckpointBarrier] = {}
        self.snapshots: dict[int, SubtaskSnapshot] = {}
        self.is_fenced = False
        start = self.ledger.begin_attempt(0.0, RestartMemory())
        assert isinstance(start, AttemptStart)
        self.number = start.attempt
        self.restored = None if start.restore is None else start.restore.checkpoint_id
        if start.restore is not None:
            state = start.restore.operators["read"].subtasks[0]
            self.snapshots[start.restore.checkpoint_id] = SubtaskSnapshot({"read": state})
        self.coordinator.begin_attempt(start.attempt, start.store, start.highest_id, start.orphans)
        self.coordinator.started()

    def trigger_checkpoint(
        self, attempt: int, subtasks: Sequence[SubtaskId], barrier: CheckpointBarrier
    ) -> None:
        self.barriers[barrier.checkpoint_id] = barrier

    def notify_checkpoint_complete(
        self, attempt: int, subtasks: Sequence[SubtaskId], checkpoint_id: int
    ) -> None:
        assert not self.is_fenced
        known = DecisionLog(self.storage, self.ledger.paths).replay().completed
        assert (checkpoint_id, self.number) in {(c.checkpoint_id, c.attempt) for c in known}, "record first"
        assert checkpoint_id not in self.told, "no checkpoint is complete twice under one id"
        self.told[checkpoint_id] = self.number

    def notify_checkpoint_aborted(
        self, attempt: int, subtasks: Sequence[SubtaskId], checkpoint_id: int
    ) -> None:
        assert checkpoint_id not in self.told or self.told[checkpoint_id] != self.number

    def fail_job(self, cause: str) -> None:
        """The job would restart; here it continues."""

    def fenced(self) -> None:
        self.is_fenced = True

    def acknowledge_one(self, index: int) -> None:
        """Acknowledge one of the checkpoints that run; -1 for the newest."""
        running = [i for i in self.coordinator.pending_ids if i not in self.snapshots]
        if running:
            self.acknowledge(running[index % len(running)])

    def acknowledge(self, checkpoint_id: int) -> None:
        barrier = self.barriers[checkpoint_id]
        base = self.snapshots.get(barrier.confirmed_id)
        older = [] if base is None or barrier.options.kind.is_savepoint else list(base.files())[-2:]
        place = {
            "checkpoint_id": checkpoint_id,
            "attempt": self.number,
            "operator_id": "read",
            "subtask": 0,
            "number": 0,
        }
        paths = self.ledger.paths
        path = paths.savepoint_file if barrier.options.kind.is_savepoint else paths.shared_file
        new = write_state_file(self.storage, path(**place), b"state")  # type: ignore[arg-type]
        keyed = KeyedStateHandle(KeyGroupRange(0, 127), (*older, new), 1)
        self.snapshots[checkpoint_id] = SubtaskSnapshot({"read": OperatorSubtaskState(keyed=(keyed,))})
        self.coordinator.acknowledge(self.number, READ, checkpoint_id, self.snapshots[checkpoint_id])


class AttemptsMachine(RuleBasedStateMachine):
    """Attempts that begin, take checkpoints, linger and die."""

    @initialize()
    def begin(self) -> None:
        self.storage = InterruptedStorage()
        self.told: dict[int, int] = {}
        self.alive: list[Attempt] = [Attempt(self.storage, self.told)]
        self.newest = self.alive[0].number

    @precondition(lambda self: len(self.alive) < 3)
    @rule()
    def another_attempt_begins(self) -> None:
        self.alive = [*self.alive[-2:], Attempt(self.storage, self.told)]
        assert self.alive[-1].number > self.newest
        self.newest = self.alive[-1].number
        newest_told = max(self.told, default=None)
        restored = self.alive[-1].restored
        assert newest_told is None or (restored is not None and restored >= newest_told)

    @rule(has_begun=st.booleans())
    def another_attempt_dies_as_it_begins(self, has_begun: bool) -> None:
        """A death just before or just after the write that begins an attempt: older ones may live on."""
        self.storage.arm(1 if has_begun else 0, die)
        with pytest.raises(Death):
            Attempt(self.storage, self.told)
        self.newest += has_begun

    def one(self, which: int) -> Attempt:
        """One of those that live; 0 for the newest."""
        return self.alive[-1 - which % len(self.alive)]

    @rule(which=WHICH, savepoint=SAVEPOINT)
    def trigger(self, which: int, savepoint: bool) -> None:
        kind = SnapshotKind.SAVEPOINT if savepoint else SnapshotKind.CHECKPOINT
        self.one(which).coordinator.trigger(kind)

    @rule(which=WHICH, index=st.integers(0, 3))
    def acknowledge(self, which: int, index: int) -> None:
        self.one(which).acknowledge_one(index)

    @rule(which=WHICH, savepoint=SAVEPOINT)
    def take_a_whole_checkpoint(self, which: int, savepoint: bool) -> None:
        self.trigger(which, savepoint)
        self.one(which).acknowledge_one(-1)
        self.one(which).runner.run_all()

    @rule(which=WHICH, index=st.integers(0, 3))
    def decline(self, which: int, index: int) -> None:
        attempt = self.one(which)
        for checkpoint_id in attempt.coordinator.pending_ids[index : index + 1]:
            attempt.coordinator.decline(attempt.number, READ, checkpoint_id)

    @rule(which=WHICH)
    def work(self, which: int) -> None:
        self.one(which).runner.run_all()

    @rule(which=WHICH, calls=st.integers(0, 5))
    def dies_at_work(self, which: int, calls: int) -> None:
        """A death between any two storage calls of a record that is written or of files that are deleted."""
        attempt = self.one(which)
        attempt.coordinator.trigger()
        attempt.acknowledge_one(-1)

        self.storage.arm(calls, die)
        try:
            attempt.runner.run_all()
        except Death:
            self.alive.remove(attempt)
        finally:
            self.storage.arm(-1, lambda: None)
        if not self.alive:
            self.another_attempt_begins()

    @rule(which=WHICH, calls=st.integers(0, 5), completes=st.booleans())
    def is_overtaken_at_work(self, which: int, calls: int, completes: bool) -> None:
        """A newer attempt begins, and may complete a checkpoint, between two storage calls of this one."""
        attempt = self.one(which)
        attempt.coordinator.trigger()
        attempt.acknowledge_one(-1)

        def overtake() -> None:
            self.another_attempt_begins()
            if completes:
                newer = self.alive[-1]
                newer.coordinator.trigger()
                newer.acknowledge_one(-1)
                newer.runner.run_all()
                assert newer.coordinator.latest_completed is not None

        self.storage.arm(calls, overtake)
        attempt.runner.run_all()
        self.storage.arm(-1, lambda: None)

    @invariant()
    def the_log_names_nothing_that_is_not_there(self) -> None:
        view = DecisionLog(self.storage, self.alive[-1].ledger.paths).replay()
        assert view.last_attempt == self.newest
        for record in view.completed:
            for file in read_metadata(self.storage, record.metadata).files():
                assert self.storage.get(file.path), f"{file.path} of checkpoint {record.checkpoint_id}"
        if self.told:
            assert view.highest_checkpoint_id >= max(self.told)

    @invariant()
    def only_the_newest_attempt_writes_into_the_log(self) -> None:
        check_order(records_in(self.storage, self.alive[-1].ledger.paths))


TestAttempts = AttemptsMachine.TestCase
TestAttempts.settings = settings(deadline=None, max_examples=25, stateful_step_count=30)
