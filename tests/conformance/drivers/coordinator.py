"""Replays the suites of the checkpoint coordinator: the real one, with its store, log, files and hooks.

The world around it stands still: timers fire when a case says so, and what the coordinator puts into its
executor runs after each operation, unless the case holds it back. Two things are Flink 1.11's, as they are
for the cases of the smaller parts: which tasks start, acknowledge and hear of a checkpoint is given, and a
savepoint takes its place in the store like a checkpoint.

An error is a value here: what Flink throws is an outcome, a refusal, or a failure in the history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from drivers.differences import Event, different

from penstock.runtime.checkpoint.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.checkpoint.completed_store import CompletedCheckpointStore
from penstock.runtime.checkpoint.config import Checkpointing
from penstock.runtime.checkpoint.coordinator import CheckpointCoordinator, MessageOutcome
from penstock.runtime.checkpoint.coordinator_files import CheckpointFiles
from penstock.runtime.checkpoint.coordinator_parts import CoordinatorParts
from penstock.runtime.checkpoint.coordinator_plan import (
    CheckpointPlan,
    CheckpointPlanner,
    NotAllRunning,
    SubtaskStatus,
)
from penstock.runtime.checkpoint.coordinator_requests import (
    CheckpointAnswer,
    CheckpointCompleted,
    CheckpointRequests,
)
from penstock.runtime.checkpoint.decision_log import DecisionLog
from penstock.runtime.checkpoint.failure_manager import COUNTED_IN_FLINK_1_11, CheckpointFailureManager
from penstock.runtime.checkpoint.failure_reason import CheckpointFailureReason as Reason
from penstock.runtime.checkpoint.finalize import Fenced, Finalized, finalize
from penstock.runtime.checkpoint.master_hooks import HookAnswer, MasterHooks, UnmatchedMasterStateError
from penstock.runtime.checkpoint.memory_storage import MemoryStorage
from penstock.runtime.checkpoint.paths import SnapshotPaths
from penstock.runtime.checkpoint.request_decider import CheckpointRequest
from penstock.runtime.checkpoint.snapshot import (
    FileHandle,
    KeyedStateHandle,
    KeyGroupRange,
    MasterState,
    OperatorState,
    OperatorSubtaskState,
    SubtaskId,
    SubtaskSnapshot,
)
from penstock.runtime.errors import ConfigurationError, StorageError
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.graph.job_graph import JobGraph, JobVertex, OperatorSpec
from penstock.runtime.ports import Cancellable
from penstock.runtime.record.elements import CheckpointBarrier, SnapshotKind
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.testing.manual_time import ManualAsyncRunner, ManualClock, ManualTimer

SUITES = ("coordinator", "master_hooks")


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
        super().__init__(build_execution_graph(JobGraph("case", vertices, ())))
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


class CoordinatorRun:
    """One coordinator under test; it is the coordinator's gateway."""

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
            self.retained, may_delete=self.paths.may_delete, savepoints_count=True
        )
        self.hooks = MasterHooks()
        self.hook_by_id: dict[str, CaseHook] = {}
        self.id_fails_once = False
        self.coordinator = CheckpointCoordinator(
            CoordinatorParts(
                self.config,
                self.planner,
                self,
                CheckpointFiles(self.storage, self.paths, self.runner),
                self.write,
                clock=self.clock,
                timers=self.timers,
                runner=self.runner,
                failures=CheckpointFailureManager(config.get("tolerable_failures"), COUNTED_IN_FLINK_1_11),
                hooks=self.hooks,
                initialise=self.initialise,
                coalesce_periodic=False,
                end_starts=False,
            )
        )
        self.coordinator.begin_attempt(ATTEMPT, self.store, -1)

    # -- the coordinator's world ----------------------------------------------------------------------------

    def trigger(self, subtasks: Sequence[SubtaskId], barrier: CheckpointBarrier) -> None:
        options = barrier.options
        event = {"trigger": barrier.checkpoint_id, "tasks": names(subtasks), "type": options.kind.value}
        self.events.append(event | {"unaligned": options.unaligned})

    def notify_complete(self, subtasks: Sequence[SubtaskId], checkpoint_id: int) -> None:
        self.events.append({"notify_complete": checkpoint_id, "tasks": names(subtasks)})

    def notify_aborted(self, subtasks: Sequence[SubtaskId], checkpoint_id: int) -> None:
        self.events.append({"notify_aborted": checkpoint_id, "tasks": names(subtasks)})

    def fail_job(self, cause: str) -> None:
        self.events.append({"job_failed": True})

    def fenced(self) -> None:
        msg = "nobody else owns the log"
        raise AssertionError(msg)

    def initialise(self, request: CheckpointRequest, checkpoint_id: int) -> None:
        if self.id_fails_once:
            self.id_fails_once = False
            raise StorageError("the case says that there is no id")

    def write(self, checkpoint: CompletedCheckpoint) -> Finalized | Fenced:
        return finalize(self.storage, self.paths, self.log, checkpoint, retained=self.retained)

    # -- operations -----------------------------------------------------------------------------------------

    def observe(self, op: dict[str, Any]) -> dict[str, Any]:
        """Carry an operation out; its results, its events and the state behind it."""
        self.events.clear()
        self.storage.deleted.clear()
        periodic = self.timers.live(CheckpointRequests._tick)
        got = getattr(self, f"do_{op['op']}")(op) or {}
        if op.get("run", True):
            self.runner.run_all()
        got |= self.error_of_ack(op)
        if self.storage.deleted:
            self.events.append({"discard": sorted(self.storage.deleted)})
        if op["op"] != "start_scheduler":
            self.events += self.moved_timer(op, periodic)
        return got | {"events": list(self.events), "state": self.state()}

    def error_of_ack(self, op: dict[str, Any]) -> dict[str, Any]:
        """Flink throws out of the acknowledgement that completes a checkpoint that can't be stored."""
        records = [r for r in self.coordinator.history() if r.checkpoint_id == op.get("checkpoint")]
        if op["op"] == "ack" and any(r.failure is Reason.FINALIZE_CHECKPOINT_FAILURE for r in records):
            return {"error": Reason.FINALIZE_CHECKPOINT_FAILURE.value}
        return {}

    def moved_timer(self, op: dict[str, Any], before: list[ManualTimer]) -> list[Event]:
        """The periodic timer, if the decider has moved it; a tick by itself sets it to the interval."""
        now = self.timers.live(CheckpointRequests._tick)
        by_tick = 1 if op["op"] == "tick" and before else 0
        first = before[-1].number + 1 if before else 0
        made = [t for t in self.timers.timers[first:] if called_by(t.callback) == CheckpointRequests._tick]
        if not now or len(made) <= by_tick:
            return []
        return [{"next_periodic_in_ms": round((now[-1].due - self.clock.monotonic()) * 1000)}]

    def state(self) -> dict[str, Any]:
        return {
            "pending": list(self.coordinator.pending_ids),
            "completed": [c.checkpoint_id for c in self.store.all],
            "queued": self.coordinator.statistics().queued,
            "is_triggering": self.coordinator.is_triggering,
            "open_timeouts": len(self.open_timeouts()),
        }

    def open_timeouts(self) -> dict[int, ManualTimer]:
        return {
            timer.callback.args[0].id: timer
            for timer in self.timers.timers
            if not timer.cancelled and isinstance(timer.callback, partial)
        }

    def do_trigger(self, op: dict[str, Any]) -> None:
        self.clock.advance(1e-7)  # each request is later than the one before
        answer = partial(self.answered, op["as"])
        kind = SnapshotKind(op.get("type", "checkpoint"))
        self.coordinator.trigger(kind, periodic=op.get("periodic", False), on_answer=answer)

    def answered(self, name: str, answer: CheckpointAnswer) -> None:
        if isinstance(answer, CheckpointCompleted):
            self.events.append({"request": name, "completed": answer.checkpoint.checkpoint_id})
        else:
            self.events.append({"request": name, "failed": answer.reason.value})

    def do_ack(self, op: dict[str, Any]) -> dict[str, Any]:
        checkpoint_id, task = op["checkpoint"], task_id(op["task"])
        snapshot = self.snapshot(checkpoint_id, task, op["state"]) if "state" in op else None
        outcome = self.coordinator.acknowledge(attempt_of(op), task, checkpoint_id, snapshot)
        return {"known": outcome.is_known}

    def snapshot(self, checkpoint_id: int, task: SubtaskId, label: str) -> SubtaskSnapshot:
        path = self.paths.shared_file(
            checkpoint_id=checkpoint_id,
            attempt=ATTEMPT,
            operator_id=task.vertex,
            subtask=0,
            number=len(self.storage.labels),
        )
        self.storage.labels[path] = label
        handle = KeyedStateHandle(KeyGroupRange(0, 127), (FileHandle(path, 1, ""),))
        return SubtaskSnapshot({task.vertex: OperatorSubtaskState(keyed=(handle,))})

    def do_decline(self, op: dict[str, Any]) -> dict[str, Any]:
        given = op.get("reason", "checkpoint_declined")
        reason = Reason.JOB_FAILURE if given == "other" else Reason(given)
        outcome = self.coordinator.decline(attempt_of(op), task_id(op["task"]), op["checkpoint"], reason)
        is_other = "job" in op and outcome is MessageOutcome.STALE_ATTEMPT
        return {"error": "illegal_argument"} if is_other else {}

    def do_expire(self, op: dict[str, Any]) -> None:
        self.timers.fire(self.open_timeouts()[op["checkpoint"]])

    def do_start_scheduler(self, op: dict[str, Any]) -> None:
        self.coordinator.start_periodic()

    def do_stop_scheduler(self, op: dict[str, Any]) -> None:
        self.coordinator.stop_periodic()

    def do_tick(self, op: dict[str, Any]) -> None:
        self.clock.advance(1e-7)
        for timer in self.timers.live(CheckpointRequests._tick):
            self.timers.fire(timer)

    def do_shutdown(self, op: dict[str, Any]) -> None:
        status = {"canceled": "cancelled"}.get(op["job_status"], op["job_status"])
        self.coordinator.end_attempt(Reason.CHECKPOINT_COORDINATOR_SHUTDOWN, tell=True)
        self.storage.delete(self.coordinator.end_job(status))

    def do_abort_all(self, op: dict[str, Any]) -> None:
        self.coordinator.abort_all(Reason(op["reason"]), "the case says so")

    def do_task_failed(self, op: dict[str, Any]) -> None:
        self.coordinator.subtask_failed(task_id(op["task"]))

    def do_set_task(self, op: dict[str, Any]) -> None:
        self.planner.states[op["task"]] = op["state"]

    def do_advance_clock(self, op: dict[str, Any]) -> None:
        self.clock.advance(op["ms"] / 1000)

    def do_add_hook(self, op: dict[str, Any]) -> dict[str, Any]:
        identifier = op["id"]
        hook = None if identifier is None else CaseHook(identifier, op.get("kind", "stateful"), self.events)
        try:
            added = self.hooks.add(hook)  # type: ignore[arg-type]
        except TypeError:
            return {"error": "null"}
        except ValueError:
            return {"error": "illegal_argument"}
        if added and hook is not None:
            self.hook_by_id[identifier] = hook
        return {"added": added}

    def open_answer(self, op: dict[str, Any]) -> HookAnswer:
        answer = self.hook_by_id[op["id"]].open
        assert answer is not None, f"hook {op['id']} was not asked"
        return answer

    def do_complete_hook(self, op: dict[str, Any]) -> None:
        self.open_answer(op).complete(op.get("state", f"state of {op['id']}"))

    def do_fail_hook(self, op: dict[str, Any]) -> None:
        self.open_answer(op).fail(RuntimeError("the case says so"))

    def do_id_counter_fails_once(self, op: dict[str, Any]) -> None:
        self.id_fails_once = True

    def do_store_fails_once(self, op: dict[str, Any]) -> None:
        self.storage.fails_once = True

    def do_run(self, op: dict[str, Any]) -> None:
        """What waits runs after each operation."""

    def do_put_completed(self, op: dict[str, Any]) -> None:
        codec = ValueCodec()
        masters = tuple(MasterState(i, codec.dumps(s)) for i, s in op.get("master_states", {}).items())
        operators: dict[str, OperatorState] = {}
        checkpoint = CompletedCheckpoint(
            op["checkpoint"], ATTEMPT, SnapshotKind.CHECKPOINT, operators, 0.0, 0.0, master_states=masters
        )
        self.store.add(checkpoint)

    def do_restore(self, op: dict[str, Any]) -> dict[str, Any]:
        allowed = op.get("allow_non_restored", False)
        try:
            self.coordinator.restore(self.store.latest, allow_non_restored=allowed)
        except UnmatchedMasterStateError:
            return {"error": "illegal_state"}
        return {"restored": self.store.latest is not None}


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


def replay(suite: str, case: dict[str, Any]) -> list[str]:
    """What differs from what the case expects."""
    try:
        run = CoordinatorRun(case["config"])
    except ConfigurationError as error:
        return [] if "create_error" in case else [f"the configuration is refused: {error}"]
    if "create_error" in case:
        return [f"the configuration should be refused ({case['create_error']})"]
    state: dict[str, Any] = {}
    differences = []
    for index, op in enumerate(case["ops"]):
        expect = dict(op["expect"])
        state |= expect.pop("state", {})
        got = run.observe(op)
        where = f"op {index} ({op['op']})"
        seen = [e for e in got.pop("events") if next(iter(e)) not in op.get("ignore", ())]
        reached = got.pop("state")
        if not same_events(expect.pop("events", []), seen):
            differences.append(f"{where}: expected {op['expect']['events']}, observed {seen}")
        if "error" in expect:
            got = {key: value for key, value in got.items() if key == "error"}
        if got != expect:
            differences.append(f"{where}: expected {expect}, got {got}")
        differences += different(where, state, reached)
    return differences


def same_events(expected: list[Event], observed: list[Event]) -> bool:
    """Whether both are the same multiset; an optional event may be missing."""
    left = [normal(event) for event in observed]
    for event in expected:
        plain = normal({key: value for key, value in event.items() if key != "optional"})
        if plain in left:
            left.remove(plain)
        elif not event.get("optional"):
            return False
    return not left


def normal(event: Event) -> Event:
    """An event with its lists sorted: they are sets."""
    return {key: sorted(value) if isinstance(value, list) else value for key, value in event.items()}
