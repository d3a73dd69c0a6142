"""A pending checkpoint under any order of answers and ends: each file has one owner, one end happens."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.runtime.checkpoint.coordinator.pending_checkpoint import (
    MessageOutcome,
    PendingCheckpoint,
    PendingState,
)
from penstock.runtime.checkpoint.coordinator.plan import CheckpointPlan
from penstock.runtime.checkpoint.coordinator.requests import CheckpointRequest
from penstock.runtime.record.elements import CheckpointBarrier, CheckpointOptions, SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.handles import (
    FileHandle,
    InlineHandle,
    KeyedStateHandle,
    KeyGroupRange,
    MasterState,
    OperatorSubtaskState,
    SubtaskSnapshot,
)
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

TASKS = (SubtaskId("a", 0), SubtaskId("a", 1), SubtaskId("b", 0))
OPERATORS, HOOKS = ["x", "y"], ["h"]
SUCCESS, DUPLICATE = MessageOutcome.ACCEPTED, MessageOutcome.DUPLICATE
UNKNOWN, DISCARDED = MessageOutcome.UNKNOWN_SENDER, MessageOutcome.ENDED_CHECKPOINT


class PendingMachine(RuleBasedStateMachine):
    """Messages and ends in any order, against sets of who has answered."""

    @initialize(kind=st.sampled_from(SnapshotKind), forced=st.booleans())
    def begin(self, kind: SnapshotKind, forced: bool) -> None:
        self.timers = ManualTimers(ManualClock())
        self.pending = PendingCheckpoint(
            CheckpointBarrier(7, 0.0, CheckpointOptions(kind), -1),
            CheckpointPlan((), TASKS, TASKS),
            CheckpointRequest(1, kind, forced=forced),
            attempt=1,
            started_at=0.0,
            coordinators=OPERATORS,
            masters=HOOKS,
        )
        self.had_timeout = self.pending.set_timeout(self.timers.call_later(9, lambda: None))
        self.tasks: set[SubtaskId] = set()
        self.with_state: set[str] = set()
        self.coordinators: set[str] = set()
        self.masters: dict[str, bool] = {}
        self.files: set[str] = set()
        self.number = 0

    @property
    def is_over(self) -> bool:
        return self.pending.state in (PendingState.COMPLETED, PendingState.ABORTED)

    @property
    def is_full(self) -> bool:
        return (len(self.tasks), len(self.coordinators), len(self.masters)) == (3, 2, 1)

    def file(self) -> FileHandle:
        self.number += 1
        return FileHandle(f"job/shared/1-7-a-0-{self.number}", 1, "")

    @rule(task=st.sampled_from([*TASKS, SubtaskId("nobody", 0)]), has_state=st.booleans())
    def acknowledge(self, task: SubtaskId, has_state: bool) -> None:
        file = self.file()
        keyed = KeyedStateHandle(KeyGroupRange(0, 9), (file,))
        snapshot = SubtaskSnapshot({task.vertex: OperatorSubtaskState(keyed=(keyed,))}) if has_state else None
        result = self.pending.acknowledge(task, snapshot)
        if self.is_over:
            assert result is DISCARDED
        elif task not in TASKS:
            assert result is UNKNOWN
        else:
            assert result is (DUPLICATE if task in self.tasks else SUCCESS)
        if result is SUCCESS:
            self.tasks.add(task)
            self.files |= {file.path} if has_state else set()

    @rule(operator=st.sampled_from([*OPERATORS, "z"]), how=st.sampled_from(["file", "inline", "none"]))
    def acknowledge_coordinator(self, operator: str, how: str) -> None:
        file = self.file()
        state = {"file": file, "inline": InlineHandle(b"x"), "none": None}[how]
        result = self.pending.acknowledge_coordinator(operator, state)
        if self.is_over:
            assert result is DISCARDED
        elif operator in self.coordinators or operator not in OPERATORS:
            assert result is (DUPLICATE if operator in self.with_state else UNKNOWN)
        else:
            assert result is SUCCESS
            self.coordinators.add(operator)
            self.with_state |= {operator} if state is not None else set()
            self.files |= {file.path} if how == "file" else set()

    @rule(hook=st.sampled_from([*HOOKS, "nobody"]), has_state=st.booleans())
    def acknowledge_master(self, hook: str, has_state: bool) -> None:
        result = self.pending.acknowledge_master(hook, MasterState(hook, b"s") if has_state else None)
        if self.is_over:
            assert result is DISCARDED
        elif hook in HOOKS and hook not in self.masters:
            assert result is SUCCESS
            self.masters[hook] = has_state
        else:
            assert result is (DUPLICATE if self.masters.get(hook) else UNKNOWN)

    @rule(reason=st.sampled_from([Reason.CHECKPOINT_EXPIRED, Reason.CHECKPOINT_SUBSUMED]))
    def abort(self, reason: Reason) -> None:
        subsumed_in_vain = reason is Reason.CHECKPOINT_SUBSUMED and not self.pending.can_be_subsumed
        if self.is_over or subsumed_in_vain:
            with pytest.raises(RuntimeError):
                self.pending.abort(reason)
            return
        assert {file.path for file in self.pending.abort(reason)} == self.files
        assert self.pending.failure is reason

    @rule()
    def begin_finalizing(self) -> None:
        if self.is_over or not self.is_full:
            with pytest.raises(RuntimeError):
                self.pending.begin_finalizing()
        else:
            self.pending.begin_finalizing()
            assert self.timers.pending == ()

    @rule()
    def complete(self) -> None:
        if self.is_over or not self.is_full:
            with pytest.raises(RuntimeError):
                self.pending.complete()
        else:
            self.pending.complete()

    @invariant()
    def it_knows_who_is_missing(self) -> None:
        assert self.pending.is_fully_acknowledged == self.is_full
        assert len(self.pending.missing_names()) == 6 - len(self.tasks) - len(self.coordinators) - len(
            self.masters
        )
        assert bool(self.timers.pending) == (self.pending.state is PendingState.COLLECTING)
        states = [state.identifier for state in self.pending.master_states]
        assert states == [hook for hook, has_state in self.masters.items() if has_state]


TestPending = PendingMachine.TestCase
TestPending.settings = settings(deadline=None, max_examples=40, stateful_step_count=40)
