"""Replays the suites of the checkpoint coordinator: the real one, with its store, log, files and hooks.

Its surroundings stand still: timers fire when a case says so. Background work of the coordinator runs after
each operation, unless the case holds it back. Two things follow Flink 1.11, as in the cases of the smaller
parts. Each case lists the tasks to trigger, to wait for and to notify. And a savepoint takes a place in the
store like a checkpoint.

An error is a value here: what Flink throws is an outcome, a refusal, or a failure in the history.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from drivers.coordinator_world import (
    ATTEMPT,
    CaseHook,
    CoordinatorWorld,
    attempt_of,
    called_by,
    task_id,
)
from drivers.differences import Event, different

from penstock.runtime.checkpoint.coordinator.pending_checkpoint import MessageOutcome
from penstock.runtime.checkpoint.coordinator.requests import (
    CheckpointAnswer,
    CheckpointRequests,
    CheckpointSucceeded,
)
from penstock.runtime.checkpoint.coordinator.starts import restore_masters
from penstock.runtime.checkpoint.master_hooks import HookAnswer, UnmatchedMasterStateError
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import (
    FileHandle,
    KeyedStateHandle,
    KeyGroupRange,
    MasterState,
    OperatorState,
    OperatorSubtaskState,
    SubtaskSnapshot,
)
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.testing.manual_time import ManualTimer

SUITES = ("coordinator", "master_hooks")


class CoordinatorRun(CoordinatorWorld):
    """Carries the operations of a case out."""

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
        records = [r for r in self.coordinator.history.records() if r.checkpoint_id == op.get("checkpoint")]
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
            timer.callback.args[0].checkpoint_id: timer
            for timer in self.timers.timers
            if not timer.cancelled and isinstance(timer.callback, partial)
        }

    def do_trigger(self, op: dict[str, Any]) -> None:
        self.clock.advance(1e-7)  # each request is later than the one before
        answer = partial(self.answered, op["as"])
        kind = SnapshotKind(op.get("type", "checkpoint"))
        self.coordinator.trigger(kind, periodic=op.get("periodic", False), on_answer=answer)

    def answered(self, name: str, answer: CheckpointAnswer) -> None:
        if isinstance(answer, CheckpointSucceeded):
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
        """The open call of a hook; it can be answered once."""
        hook = self.hook_by_id[op["id"]]
        answer, hook.open = hook.open, None
        assert answer is not None, f"hook {op['id']} has no open call"
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
        """Queued work runs after each operation."""

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
            restore_masters(
                self.hooks, self.operator_coordinators, self.store.latest, allow_non_restored=allowed
            )
        except UnmatchedMasterStateError:
            return {"error": "illegal_state"}
        return {"restored": self.store.latest is not None}


def replay(suite: str, case: dict[str, Any]) -> list[str]:
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
