"""The request decider against a plain list of what waits: order, limits, pauses, and one answer a request."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cmp_to_key

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.runtime.checkpoint.coordinator.requests import (
    CheckpointRequest,
    CheckpointRequestDecider,
    Decision,
    Situation,
)
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason

LIMIT, PAUSE, ROOM = 2, 5.0, 4


def in_order(requests: Iterable[CheckpointRequest]) -> list[CheckpointRequest]:
    """Savepoints, then what is forced, by hand and urgent, then what was asked for first."""
    return sorted(requests, key=cmp_to_key(who_goes_first))


def who_goes_first(one: CheckpointRequest, other: CheckpointRequest) -> int:
    if one.kind.is_savepoint != other.kind.is_savepoint:
        return -1 if one.kind.is_savepoint else 1
    if one.forced != other.forced:
        return -1 if one.forced else 1
    if one.periodic != other.periodic:
        return 1 if one.periodic else -1
    if one.urgent != other.urgent:
        return -1 if one.urgent else 1
    if one.timestamp != other.timestamp:
        return -1 if one.timestamp < other.timestamp else 1
    return one.number - other.number


class DeciderMachine(RuleBasedStateMachine):
    """A coordinator around the decider: it receives the outcomes of its decisions."""

    def __init__(self) -> None:
        super().__init__()
        self.decider = CheckpointRequestDecider(max_concurrent=LIMIT, min_pause=PAUSE, max_queued=ROOM)
        self.waiting: dict[int, CheckpointRequest] = {}
        self.answered: dict[int, str] = {}
        self.running: list[CheckpointRequest] = []
        self.starting: CheckpointRequest | None = None
        self.now, self.completed_at, self.numbers = 0.0, float("-inf"), 0

    def situation(self) -> Situation:
        return Situation(self.starting is not None, len(self.running), self.now, self.completed_at)

    def follow(self, decision: Decision) -> None:
        for refused in decision.refused:
            if refused.reason is Reason.TOO_MANY_CHECKPOINT_REQUESTS:
                assert refused.request == self.who_has_no_room()
            request = self.waiting.pop(refused.request.number)
            assert request.number not in self.answered
            self.answered[request.number] = refused.reason.value
            if refused.reason is Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS:
                assert request.periodic
                assert not request.forced
                assert decision.next_periodic_in == self.completed_at + PAUSE - self.now > 0
        request = decision.execute
        if request is None:
            return
        assert request == in_order(self.waiting.values())[0], (
            "the first in the queue is served, and nobody else"
        )
        assert self.starting is None
        assert request.forced or len(self.running) < LIMIT
        assert request.forced or request.urgent or self.now >= self.completed_at + PAUSE
        del self.waiting[request.number]
        self.starting = request

    def who_has_no_room(self) -> CheckpointRequest:
        """The last one makes room for the new one, but none that was asked for by hand ever does."""
        new = self.waiting[self.numbers]
        older = in_order(request for request in self.waiting.values() if request != new)
        assert len(older) == ROOM
        return in_order([*older, new])[-1] if older[-1].periodic else new

    @rule(
        kind=st.sampled_from(SnapshotKind),
        periodic=st.booleans(),
        forced=st.booleans(),
        urgent=st.booleans(),
        age=st.sampled_from([0.0, 0.0, 1.0, 2.0]),
    )
    def submit(self, kind: SnapshotKind, periodic: bool, forced: bool, urgent: bool, age: float) -> None:
        self.numbers += 1
        request = CheckpointRequest(self.numbers, kind, periodic, forced, urgent, self.now - age)
        self.waiting[request.number] = request
        self.follow(self.decider.submit(request, self.situation()))

    @rule()
    def poll(self) -> None:
        self.follow(self.decider.poll(self.situation()))

    @precondition(lambda self: self.starting is not None)
    @rule(works=st.booleans())
    def started(self, works: bool) -> None:
        assert self.starting is not None
        if works:
            self.running.append(self.starting)
        self.answered[self.starting.number] = "started"
        self.starting = None

    @precondition(lambda self: self.running)
    @rule(index=st.integers(0, 9), completes=st.booleans())
    def end(self, index: int, completes: bool) -> None:
        self.running.pop(index % len(self.running))
        if completes:
            self.completed_at = self.now

    @rule(eighths=st.integers(0, 56))
    def time_passes(self, eighths: int) -> None:
        self.now += eighths / 8  # sums and differences of these are exact

    @rule()
    def abort_all(self) -> None:
        refused = self.decider.abort_all(Reason.CHECKPOINT_COORDINATOR_SUSPEND)
        assert {r.request.number for r in refused} == set(self.waiting)
        for number in self.waiting:
            self.answered[number] = "aborted"
        self.waiting.clear()

    @invariant()
    def nothing_is_lost(self) -> None:
        queued = self.decider.queued
        assert list(queued) == in_order(self.waiting.values())
        assert len(queued) <= ROOM
        under_way = 0 if self.starting is None else 1
        assert len(self.answered) + len(queued) + under_way == self.numbers


TestDecider = DeciderMachine.TestCase
TestDecider.settings = settings(deadline=None, max_examples=40, stateful_step_count=40)
