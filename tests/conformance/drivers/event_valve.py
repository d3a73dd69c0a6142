"""Replays the suite of the operator event valve, alone and in the holder of an operator coordinator."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from manual_work import ManualAsyncRunner

from penstock.runtime.checkpoint.operator_coordinators.holder import (
    EventCallbacks,
    OperatorCoordinatorHolder,
    OperatorEventValve,
)
from penstock.runtime.operators.coordinators import (
    CoordinatorAnswer,
    EventAnswer,
    OperatorCoordinatorContext,
)

SUITES = ("event_valve",)

#: What must not happen unless a case says so.
UNLESS_SAID: dict[str, Any] = {"sent": [], "acked": [], "failed": [], "global_failure": False, "error": None}


class RecordingSender:
    """Sends at once, or fails at once."""

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails
        self.sent: list[tuple[str, int]] = []

    def send(self, subtask: int, event: Any, answer: EventAnswer) -> None:
        self.sent.append((event, subtask))
        if self.fails:
            answer.failed(RuntimeError("the sender fails"))
        else:
            answer.sent()


class ManualCoordinator:
    """Gives its snapshots when the case says so."""

    def __init__(self, context: OperatorCoordinatorContext) -> None:
        self.answers: dict[int, CoordinatorAnswer] = {}

    def start(self) -> None: ...

    def handle_event(self, subtask: int, event: Any) -> None: ...

    def checkpoint(self, checkpoint_id: int, answer: CoordinatorAnswer) -> None:
        self.answers[checkpoint_id] = answer

    def reset_to_checkpoint(self, checkpoint_id: int | None, state: bytes | None) -> None: ...

    def subtask_failed(self, subtask: int, reason: str) -> None: ...

    def subtask_reset(self, subtask: int, checkpoint_id: int | None) -> None: ...

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None: ...

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None: ...

    def close(self) -> None: ...


class ValveRun:
    """One valve, or one holder, under test."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.sender = RecordingSender(fails=config.get("sender_fails", False))
        self.acked: list[str] = []
        self.failed: list[str] = []

    def answer(self, event: str) -> EventCallbacks:
        return EventCallbacks(lambda: self.acked.append(event), lambda error: self.failed.append(event))

    def observe(self, op: dict[str, Any]) -> dict[str, Any]:
        """Carry an operation out; everything observable."""
        self.sender.sent, self.acked, self.failed = [], [], []
        got: dict[str, Any] = {"global_failure": False}
        try:
            got |= self.do(op)
        except RuntimeError:
            got["error"] = "illegal_state"
        except ValueError:
            got["error"] = "illegal_argument"
        return got | {"sent": self.sender.sent, "acked": set(self.acked), "failed": set(self.failed)}

    def do(self, op: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError


class BareValve(ValveRun):
    """The level `valve`."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.valve = OperatorEventValve(self.sender)

    def observe(self, op: dict[str, Any]) -> dict[str, Any]:
        return super().observe(op) | {"shut": self.valve.is_shut}

    def do(self, op: dict[str, Any]) -> dict[str, Any]:
        match op["op"]:
            case "mark":
                self.valve.mark_for_checkpoint(op["checkpoint"])
            case "shut":
                self.valve.shut(op["checkpoint"])
            case "open":
                self.valve.open_and_unmark()
            case "reset":
                self.valve.reset()
            case "reset_subtask":
                self.valve.reset_subtask(op["subtask"])
            case "send":
                self.valve.send(op["subtask"], op["event"], self.answer(op["event"]))
            case unknown:
                raise NotImplementedError(unknown)
        return {}


class Holder(ValveRun):
    """The level `holder`."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.failures: list[str] = []
        self.results: dict[int, str] = {}
        self.coordinator: ManualCoordinator | None = None
        self.holder = OperatorCoordinatorHolder(
            "operator", lambda: 1000, self.make, self.sender, ManualAsyncRunner(), self.failures.append
        )

    def make(self, context: OperatorCoordinatorContext) -> ManualCoordinator:
        self.coordinator = ManualCoordinator(context)
        return self.coordinator

    def observe(self, op: dict[str, Any]) -> dict[str, Any]:
        self.failures.clear()
        got = super().observe(op)
        newest = max(self.results, default=None)
        return got | {
            "global_failure": bool(self.failures),
            "shut": self.holder.is_shut,
            "result": self.results.get(op.get("checkpoint", newest)),
        }

    def do(self, op: dict[str, Any]) -> dict[str, Any]:
        assert self.coordinator is not None
        match op["op"]:
            case "checkpoint":
                self.take_checkpoint(op["checkpoint"])
            case "coordinator_done":
                self.coordinator.answers[op["checkpoint"]].complete(b"state")
            case "coordinator_failed":
                self.coordinator.answers[op["checkpoint"]].fail(RuntimeError("no snapshot"))
            case "barriers_injected":
                self.holder.after_barrier_injection(op["checkpoint"])
            case "abort_triggering":
                self.holder.abort_current_triggering()
            case "subtask_failed":
                self.holder.subtask_failed(op["subtask"], "the case says so")
            case "restore":
                self.holder.reset_to_checkpoint(op.get("checkpoint", 0), b"state")
            case "send":
                self.holder.send_event(op["subtask"], op["event"], self.answer(op["event"]))
            case unknown:
                raise NotImplementedError(unknown)
        return {}

    def take_checkpoint(self, checkpoint_id: int) -> None:
        self.results[checkpoint_id] = "pending"
        self.holder.checkpoint(
            checkpoint_id,
            lambda state: self.results.update({checkpoint_id: "done"}),
            lambda error: self.results.update({checkpoint_id: "failed"}),
        )


def by_subtask(sent: list[Any]) -> dict[int, list[str]]:
    """Events by subtask: only the order within one counts."""
    events: dict[int, list[str]] = defaultdict(list)
    for event, subtask in sent:
        events[subtask].append(event)
    return events


def replay(suite: str, case: dict[str, Any]) -> list[str]:
    config = case["config"]
    run = BareValve(config) if config["level"] == "valve" else Holder(config)
    differences = []
    for index, op in enumerate(case["ops"]):
        got = run.observe(op)
        expect = UNLESS_SAID | op["expect"]
        wrong = {
            key: got.get(key)
            for key, value in expect.items()
            if normal(key, got.get(key)) != normal(key, value)
        }
        if wrong:
            differences.append(f"op {index} ({op['op']}): expected {op['expect']}, got {wrong}")
    return differences


def normal(key: str, value: Any) -> Any:
    """A value in the form in which it is compared."""
    if key == "sent":
        return by_subtask(value)
    return set(value) if key in ("acked", "failed") else value
