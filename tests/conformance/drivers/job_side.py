"""Replays the suites of the job side's small parts: request decider, pending checkpoint, failure manager."""

from __future__ import annotations

from typing import Any

from penstock.runtime.checkpoint.coordinator.failures import (
    COUNTED_IN_FLINK_1_11,
    CheckpointFailureManager,
)
from penstock.runtime.checkpoint.coordinator.pending_checkpoint import (
    MessageOutcome,
    PendingCheckpoint,
    PendingState,
)
from penstock.runtime.checkpoint.coordinator.plan import CheckpointPlan
from penstock.runtime.checkpoint.coordinator.requests import (
    CheckpointRequest,
    CheckpointRequestDecider,
    RefusedRequest,
    Situation,
)
from penstock.runtime.record.elements import CheckpointBarrier, CheckpointOptions, SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason
from penstock.runtime.snapshot.handles import (
    FileHandle,
    MasterState,
    OperatorStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
    SubtaskSnapshot,
)
from penstock.runtime.snapshot.ids import SubtaskId

#: What an acknowledgement came to, in the words of the cases.
RESULTS = {
    MessageOutcome.ACCEPTED: "success",
    MessageOutcome.DUPLICATE: "duplicate",
    MessageOutcome.UNKNOWN_SENDER: "unknown",
    MessageOutcome.ENDED_CHECKPOINT: "discarded",
}

SUITES = ("request_decider", "pending_checkpoint", "failure_manager")


def replay(suite: str, case: dict[str, Any]) -> list[str]:
    return {
        "request_decider": replay_decider,
        "pending_checkpoint": replay_pending,
        "failure_manager": replay_failures,
    }[suite](case)


def replay_decider(case: dict[str, Any]) -> list[str]:
    """The decider counts in milliseconds here: it knows no unit."""
    config = case["config"]
    decider = CheckpointRequestDecider(
        max_concurrent=config["max_concurrent"],
        min_pause=config["min_pause_ms"],
        max_queued=config["max_queued"],
    )
    names = list(case["requests"])
    requests = {
        name: CheckpointRequest(
            number, SnapshotKind(r["type"]), r["periodic"], r["forced"], timestamp=r["timestamp"]
        )
        for number, (name, r) in enumerate(case["requests"].items())
    }
    differences = []
    for index, op in enumerate(case["ops"]):
        got: dict[str, Any] = {"execute": None}
        if op["op"] == "abort_all":
            refused = decider.abort_all(CheckpointFailureReason(op["reason"]))
            del got["execute"]
        else:
            situation = Situation(
                op.get("is_triggering", False),
                op.get("pending", 0),
                op["now_ms"],
                op.get("last_completion_ms", 0),
            )
            if op["op"] == "submit":
                decision = decider.submit(requests[op["request"]], situation)
            else:
                decision = decider.poll(situation)
            refused = decision.refused
            if decision.execute is not None:
                got["execute"] = names[decision.execute.number]
            if decision.next_periodic_in is not None:
                got["next_periodic_in_ms"] = decision.next_periodic_in
        got |= {"queued": len(decider.queued)} | refusals(names, refused)
        if got != op["expect"]:
            differences.append(f"op {index} ({op['op']}): expected {op['expect']}, got {got}")
    return differences


def refusals(names: list[str], refused: tuple[RefusedRequest, ...]) -> dict[str, Any]:
    failed = {names[r.request.number]: r.reason.value for r in refused}
    return {"failed": failed} if failed else {}


def replay_failures(case: dict[str, Any]) -> list[str]:
    manager = CheckpointFailureManager(case["config"]["tolerable_failures"], COUNTED_IN_FLINK_1_11)
    differences = []
    for index, op in enumerate(case["ops"]):
        if op["op"] == "fail":
            failed = manager.failed(CheckpointFailureReason(op["reason"]), op["checkpoint"])
        elif op["op"] == "success":
            manager.succeeded()
            failed = False
        else:
            reason = None if op["reason"] == "other" else CheckpointFailureReason(op["reason"])
            failed = manager.sync_savepoint_failed(reason)
        if failed != op["expect"]["job_failed"]:
            differences.append(f"op {index} ({op['op']}): expected {op['expect']}, job failed: {failed}")
    return differences


class Timeout:
    """The handle of a timeout."""

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class PendingRun:
    """One pending checkpoint under test."""

    def __init__(self, config: dict[str, Any]) -> None:
        tasks = tuple(SubtaskId(task, 0) for task in config["tasks"])
        self.pending = PendingCheckpoint(
            CheckpointBarrier(1, 0.0, CheckpointOptions(SnapshotKind(config["type"])), -1),
            CheckpointPlan((), tasks, tasks),
            CheckpointRequest(1, forced=config["forced"]),
            attempt=1,
            started_at=0.0,
            coordinators=config["operator_coordinators"],
            masters=config["master_states"],
        )
        self.timeout: Timeout | None = None

    def do(self, op: dict[str, Any]) -> dict[str, Any]:
        """Carry an operation out; what was observable."""
        match op["op"]:
            case "ack_task":
                task = SubtaskId(op["task"], 0)
                return {"result": RESULTS[self.pending.acknowledge(task, snapshot_of(op))]}
            case "ack_coordinator":
                state = FileHandle(op["state"], 1, "") if "state" in op else None
                return {"result": RESULTS[self.pending.acknowledge_coordinator(op["operator"], state)]}
            case "ack_master":
                master = MasterState(op["id"], op["state"].encode()) if "state" in op else None
                self.pending.acknowledge_master(op["id"], master)
                return {}
            case "abort":
                files = self.pending.abort(CheckpointFailureReason(op["reason"]))
                labels = sorted(file.path for file in files)
                return {"discard": labels} if labels else {}
            case "finalize":
                self.pending.complete()
                return {}
            case "set_canceller":
                self.timeout = Timeout()
                return {"result_bool": self.pending.set_timeout(self.timeout)}
        msg = f"unknown operation {op['op']}"
        raise ValueError(msg)

    def state(self) -> dict[str, Any]:
        pending = self.pending
        ends = {PendingState.COMPLETED: "completed", PendingState.ABORTED: "failed"}
        future = ends.get(pending.state, "pending")
        if pending.failure is not None:
            future += f":{pending.failure.value}"
        state: dict[str, Any] = {
            "discarded": pending.is_disposed,
            "can_be_subsumed": pending.can_be_subsumed,
            "future": future,
        }
        if self.timeout is not None:
            state["timeout_cancelled"] = self.timeout.cancelled
        if pending.is_disposed:
            return state
        coordinators = pending.coordinator_states.keys()
        entries = [s.operators for s in pending.snapshots.values() if s is not None]
        return state | {
            "acknowledged_tasks": len(pending.snapshots),
            "missing_tasks": len(pending.missing),
            "missing_coordinators": len(pending.missing_coordinators),
            "tasks_fully": not pending.missing,
            "coordinators_fully": not pending.missing_coordinators,
            "masters_fully": not pending.missing_masters,
            "fully": pending.is_fully_acknowledged,
            "operator_states": sorted({o for operators in entries for o in operators} | coordinators),
            "master_states": sorted(state.identifier for state in pending.master_states),
        }


def snapshot_of(op: dict[str, Any]) -> SubtaskSnapshot | None:
    if op.get("empty_state"):
        return SubtaskSnapshot({op["task"]: OperatorSubtaskState()})
    if "state" not in op:
        return None
    handle = OperatorStateHandle("state", RedistributionMode.UNION, FileHandle(op["state"], 1, ""), 1)
    return SubtaskSnapshot({op["task"]: OperatorSubtaskState(operator=(handle,))})


def replay_pending(case: dict[str, Any]) -> list[str]:
    run = PendingRun(case["config"])
    expected: dict[str, Any] = {}
    differences = []
    for index, op in enumerate(case["ops"]):
        expect = dict(op["expect"])
        expected |= expect.pop("state", {})
        try:
            got = run.do(op)
        except RuntimeError:
            got = {"error": "illegal_state"}
        if "discard" in expect:
            expect["discard"] = sorted(expect["discard"])
        if got != expect:
            differences.append(f"op {index} ({op['op']}): expected {expect}, got {got}")
        state = run.state()
        wrong = {key: state[key] for key in state if state[key] != expected.get(key)}
        if wrong:
            differences.append(f"op {index} ({op['op']}): state {wrong}, expected {expected}")
    return differences
