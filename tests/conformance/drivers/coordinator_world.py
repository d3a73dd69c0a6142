"""The world in which a case of the coordinator plays: tasks, timers, hooks and storage that do as it says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from drivers.differences import Event
from manual_work import ManualAsyncRunner

from penstock.runtime.checkpoint.completed_store import CompletedCheckpointStore
from penstock.runtime.checkpoint.coordinator.completion import FinalizeOutcome, complete_checkpoint
from penstock.runtime.checkpoint.coordinator.coordinator import CheckpointCoordinator
from penstock.runtime.checkpoint.coordinator.failures import (
    COUNTED_IN_FLINK_1_11,
    CheckpointFailureManager,
)
from penstock.runtime.checkpoint.coordinator.files import CheckpointFiles
from penstock.runtime.checkpoint.coordinator.plan import (
    CheckpointPlan,
    CheckpointPlanner,
    NotAllRunning,
    SubtaskStatus,
)
from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.checkpoint.master_hooks import HookAnswer, MasterHooks
from penstock.runtime.checkpoint.operator_coordinators.operator_coordinators import OperatorCoordinators
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.errors import StorageError
from penstock.runtime.graph.execution_graph import CurrentGraph, build_execution_graph
from penstock.runtime.graph.job_graph import JobGraph, JobVertex, OperatorSpec
from penstock.runtime.ports import Cancellable
from penstock.runtime.record.elements import CheckpointBarrier
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.testing.manual_time import ManualClock, ManualTimer

ATTEMPT = 1


class GivenTasks(CheckpointPlanner):
    """Flink 1.11's way to say who takes part: three lists of tasks.

    Those that start a checkpoint must run, those that acknowledge it must be deployed.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self.roles = {role: tuple(map(task_id, config[role])) for role in ("trigger", "ack", "commit")}
        names = dict.fromkeys(name for role in ("trigger", "ack", "commit") for name in config[role])
        vertices = tuple(
            JobVertex(name, (OperatorSpec(name, name, None, source=object()),), 1)  # type: ignore[arg-type]
            for name in names
        )
        super().__init__(CurrentGraph(build_execution_graph(JobGraph("case", vertices, ()))))
        self.states = dict.fromkeys(names, "running")

    @property
    def status(self) -> Mapping[SubtaskId, SubtaskStatus]:
        gone = {"none": SubtaskStatus.FINISHED}
        return {task_id(name): gone.get(state, SubtaskStatus.RUNNING) for name, state in self.states.items()}

    def plan(self, *, is_last: bool = False) -> CheckpointPlan | NotAllRunning:
        idle = [task for task in self.roles["trigger"] if self.states[task.vertex] != "running"]
        lost = [task for task in self.roles["ack"] if self.states[task.vertex] == "none"]
        if idle or lost:
            return NotAllRunning((*idle, *lost))
        return CheckpointPlan(self.roles["trigger"], self.roles["ack"], self.roles["commit"])


class HandTimers:
    """Timers that fire only when a case says so."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.timers: list[ManualTimer] = []

    def call_later(self, delay: float, callback: Callable[[], None]) -> Cancellable:
        timer = ManualTimer(self.clock.monotonic() + delay, len(self.timers), callback)
        self.timers.append(timer)
        return timer

    def live(self, function: Any) -> list[ManualTimer]:
        """Those that would call a function."""
        return [t for t in self.timers if not t.cancelled and called_by(t.callback) == function]

    def fire(self, timer: ManualTimer) -> None:
        timer.cancelled = True
        timer.callback()


def called_by(callback: Any) -> Any:
    """The function behind a callback."""
    target = callback.func if isinstance(callback, partial) else callback
    return getattr(target, "__func__", target)


class CaseStorage(MemoryStorage):
    """Can fail once, and says which labelled files were deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.fails_once = False
        self.labels: dict[str, str] = {}
        self.deleted: list[str] = []

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        if self.fails_once:
            self.fails_once = False
            raise StorageError("the case says that it fails")
        super().put(path, data, create=create)

    def delete(self, paths: Iterable[str]) -> None:
        doomed = list(paths)
        super().delete(doomed)
        self.deleted += [self.labels[path] for path in doomed if path in self.labels]


class CaseHook:
    """A hook that is observed, and answers as its kind says."""

    def __init__(self, identifier: Any, kind: str, events: list[Event]) -> None:
        self.identifier = identifier
        self.kind = kind
        self.events = events
        self.open: HookAnswer | None = None

    def trigger_checkpoint(self, checkpoint_id: int, timestamp: float, answer: HookAnswer) -> None:
        self.events.append({"hook": self.identifier, "call": "trigger", "checkpoint": checkpoint_id})
        if self.kind == "manual":
            self.open = answer
        else:
            answer.complete(None if self.kind == "stateless" else f"state of {self.identifier}")

    def restore_checkpoint(self, checkpoint_id: int, state: Any | None) -> None:
        self.events.append(
            {"hook": self.identifier, "call": "restore", "checkpoint": checkpoint_id, "state": state}
        )

    def reset(self) -> None:
        self.events.append({"hook": self.identifier, "call": "reset"})

    def close(self) -> None:
        self.events.append({"hook": self.identifier, "call": "close"})


class CoordinatorWorld:
    """One coordinator under test, and its gateway, which writes its calls down."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.events: list[Event] = []
        self.config = checkpointing(config)
        self.clock = ManualClock()
        self.timers = HandTimers(self.clock)
        self.runner = ManualAsyncRunner()
        self.storage, self.paths = CaseStorage(), SnapshotPaths("case")
        self.log = DecisionLog(self.storage, self.paths)
        self.log.begin_attempt(0.0)
        self.planner = GivenTasks(config)
        self.retained = config.get("retained", 1)
        self.store = CompletedCheckpointStore(
            self.retained, may_delete=self.paths.may_delete, semantics=Semantics.flink_1_11()
        )
        self.hooks = MasterHooks()
        self.operator_coordinators = OperatorCoordinators()
        self.hook_by_id: dict[str, CaseHook] = {}
        self.id_fails_once = False
        self.coordinator = CheckpointCoordinator(
            self.config,
            self.planner,
            self,
            CheckpointFiles(self.storage, self.paths, self.runner),
            self.write,
            fail_job=self.fail_job,
            fenced=self.fenced,
            clock=self.clock,
            timers=self.timers,
            runner=self.runner,
            failures=CheckpointFailureManager(config.get("tolerable_failures"), COUNTED_IN_FLINK_1_11),
            hooks=self.hooks,
            coordinators=self.operator_coordinators,
            initialize_location=self.initialize_location,
            semantics=Semantics.flink_1_11(),
        )
        self.coordinator.begin_attempt(ATTEMPT, self.store, -1)

    # -- the coordinator's world ----------------------------------------------------------------------------

    def trigger_checkpoint(
        self, attempt: int, subtasks: Sequence[SubtaskId], barrier: CheckpointBarrier
    ) -> None:
        options = barrier.options
        event = {"trigger": barrier.checkpoint_id, "tasks": names(subtasks), "type": options.kind.value}
        self.events.append(event | {"unaligned": options.unaligned})

    def notify_checkpoint_complete(
        self, attempt: int, subtasks: Sequence[SubtaskId], checkpoint_id: int
    ) -> None:
        self.notified("notify_complete", subtasks, checkpoint_id)

    def notify_checkpoint_aborted(
        self, attempt: int, subtasks: Sequence[SubtaskId], checkpoint_id: int
    ) -> None:
        self.notified("notify_aborted", subtasks, checkpoint_id)

    def notified(self, notice: str, subtasks: Sequence[SubtaskId], checkpoint_id: int) -> None:
        """A notice without recipients is no event."""
        if subtasks:
            self.events.append({notice: checkpoint_id, "tasks": names(subtasks)})

    def fail_job(self, cause: str) -> None:
        self.events.append({"job_failed": True})

    def fenced(self) -> None:
        msg = "nobody else owns the log"
        raise AssertionError(msg)

    def initialize_location(self, checkpoint_id: int, attempt: int) -> int:
        if self.id_fails_once:
            self.id_fails_once = False
            raise StorageError("the case says that there is no id")
        return checkpoint_id

    def write(self, checkpoint: CompletedCheckpoint) -> FinalizeOutcome:
        return complete_checkpoint(self.storage, self.paths, self.log, checkpoint, retained=self.retained)


def checkpointing(config: dict[str, Any]) -> Checkpointing:
    """The settings of a case; a case without an interval never lets the periodic timer fire by itself."""
    return Checkpointing(
        every=config.get("interval_ms", 600000) / 1000,
        timeout=config.get("timeout_ms", 600000) / 1000,
        min_pause=config.get("min_pause_ms", 0) / 1000,
        max_concurrent=config.get("max_concurrent", 1),
        retain=config.get("retained", 1),
        keep_after="never",
        tolerable_failures=config.get("tolerable_failures"),
        unaligned=config.get("unaligned", False),
    )


def task_id(name: str) -> SubtaskId:
    return SubtaskId(name, 0)


def names(subtasks: Iterable[SubtaskId]) -> list[str]:
    return sorted(subtask.vertex for subtask in subtasks)


def attempt_of(op: dict[str, Any]) -> int:
    """A message of another job is to this one what a message of another attempt is."""
    return ATTEMPT + 1 if op.get("job") == "other" else ATTEMPT
