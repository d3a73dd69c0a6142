"""A coordinator whose hooks and operator coordinators answer when a test says so."""

from __future__ import annotations

from manual_work import ManualAsyncRunner

from penstock.runtime.checkpoint.completed_store import CompletedCheckpointStore
from penstock.runtime.checkpoint.coordinator.completion import complete_checkpoint
from penstock.runtime.checkpoint.coordinator.coordinator import CheckpointCoordinator
from penstock.runtime.checkpoint.coordinator.files import CheckpointFiles
from penstock.runtime.checkpoint.coordinator.plan import CheckpointPlanner
from penstock.runtime.checkpoint.coordinator.starts import restore_masters
from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.checkpoint.master_hooks import BackgroundHook, MasterHooks
from penstock.runtime.checkpoint.operator_coordinators.holder import OperatorCoordinatorHolder
from penstock.runtime.checkpoint.operator_coordinators.operator_coordinators import OperatorCoordinators
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.graph.execution_graph import CurrentGraph, build_execution_graph
from penstock.runtime.graph.job_graph import (
    JobGraph,
    JobVertex,
    OperatorSpec,
)
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

A, B = SubtaskId("a", 0), SubtaskId("b", 0)


class Hook:
    """A blocking hook."""

    def __init__(self, world, identifier, state=None, error=None):
        self.world, self.identifier, self.state, self.error = world, identifier, state, error
        self.restored = []

    def trigger_checkpoint(self, checkpoint_id, timestamp):
        self.world.said.append((f"hook {self.identifier}", checkpoint_id))
        if self.error is not None:
            raise self.error
        return self.state

    def restore_checkpoint(self, checkpoint_id, state):
        self.restored.append((checkpoint_id, state))

    def reset(self):
        self.restored.append("reset")

    def close(self):
        self.world.said.append((f"close {self.identifier}",))


class Coordinator:
    """An operator coordinator that says what it is asked."""

    def __init__(self, world, operator):
        self.world, self.operator = world, operator
        self.error, self.is_slow = None, False
        self.open = []
        self.restored = []

    def checkpoint(self, checkpoint_id, answer):
        self.world.said.append((f"coordinator {self.operator}", checkpoint_id))
        self.open.append(answer)
        if not self.is_slow:
            self.answer()

    def answer(self):
        answer = self.open.pop(0)
        if self.error is None:
            answer.complete(f"state of {self.operator}".encode())
        else:
            answer.fail(self.error)

    def reset_to_checkpoint(self, checkpoint_id, state):
        self.open.clear()
        self.restored.append((checkpoint_id, state))

    def notify_checkpoint_complete(self, checkpoint_id):
        self.world.said.append((f"complete {self.operator}", checkpoint_id))

    def notify_checkpoint_aborted(self, checkpoint_id):
        self.world.said.append((f"aborted {self.operator}", checkpoint_id))


class World:
    """Two sources with coordinators, and hooks; says what happens in which order."""

    def __init__(self, hooks=(), edges=(), *, semantics=None, **settings):
        self.said, self.answers, self.told = [], [], []
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.runner = ManualAsyncRunner()
        self.storage, self.paths = MemoryStorage(), SnapshotPaths("job")
        self.log = DecisionLog(self.storage, self.paths)
        self.log.begin_attempt(0.0)
        self.hooks = MasterHooks()
        for identifier, what in dict(hooks).items():
            self.hooks.add(BackgroundHook(Hook(self, identifier, **what), self.runner))
        self.coordinators = {name: Coordinator(self, name) for name in ("a", "b")}
        self.holders = [
            OperatorCoordinatorHolder(n, lambda: 1, lambda _, c=c: c, self, self.runner, self.fail_job)
            for n, c in self.coordinators.items()
        ]
        self.operator_coordinators = OperatorCoordinators(self.holders)
        vertices = tuple(
            JobVertex(name, (OperatorSpec(name, name, None, source=object()),), 1) for name in ("a", "b")
        )
        self.coordinator = CheckpointCoordinator(
            Checkpointing(**{"every": 10, "max_concurrent": 3, **settings}),
            CheckpointPlanner(CurrentGraph(build_execution_graph(JobGraph("job", vertices, edges)))),
            self,
            CheckpointFiles(self.storage, self.paths, self.runner),
            lambda c: complete_checkpoint(self.storage, self.paths, self.log, c, retained=1),
            fail_job=self.fail_job,
            fenced=self.fenced,
            clock=self.clock,
            timers=self.timers,
            runner=self.runner,
            hooks=self.hooks,
            coordinators=self.operator_coordinators,
            semantics=semantics or Semantics.current(),
        )
        self.store = CompletedCheckpointStore(1, may_delete=self.paths.may_delete)
        self.coordinator.begin_attempt(1, self.store, -1)
        self.coordinator.started()

    def restore(self, checkpoint):
        restore_masters(self.hooks, self.operator_coordinators, checkpoint)

    def trigger_checkpoint(self, attempt, subtasks, barrier):
        shut = [holder.operator_id for holder in self.holders if holder.is_shut]
        assert shut == ["a", "b"], "every valve is shut until the sources have their barriers"
        self.said.append(("trigger", barrier.checkpoint_id))
        self.told.append(tuple(subtasks))

    def notify_checkpoint_complete(self, attempt, subtasks, checkpoint_id):
        self.said.append(("complete", checkpoint_id))

    def notify_checkpoint_aborted(self, attempt, subtasks, checkpoint_id):
        self.said.append(("aborted", checkpoint_id))

    def fenced(self):
        msg = "nobody else owns the log"
        raise AssertionError(msg)

    def fail_job(self, cause):
        self.said.append(("fail_job", cause))

    def ask(self, **how):
        self.coordinator.trigger(on_answer=self.answers.append, **how)
        self.runner.run_all()

    def acknowledge(self, checkpoint_id):
        for subtask in (A, B):
            self.coordinator.acknowledge(1, subtask, checkpoint_id)
        self.runner.run_all()

    def take(self):
        said = list(self.said)
        self.said.clear()
        return said

    def open_valves(self):
        return not any(holder.is_shut for holder in self.holders)
