"""Whatever order calls come in, a process takes only those for the role that it holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.runtime.execution.role import CallFit, Role, RoleHolder
from penstock.runtime.snapshot.ids import SubtaskId

COUNT = SubtaskId("count", 0)
ROLE = Role("words-1", COUNT, 0, "first")
SAME_SUBTASK_AGAIN = Role("words-1", COUNT, 0, "second")
OTHER_JOB = Role("words-2", COUNT, 0, "third")


def holder(attempt: int = 0) -> RoleHolder:
    made = RoleHolder()
    assert made.take(ROLE)
    if attempt:
        assert made.deploy(ROLE.at(attempt))
        made.begin(ROLE.at(attempt))
    return made


@pytest.mark.parametrize("other", [SAME_SUBTASK_AGAIN, OTHER_JOB])
def test_a_process_holds_one_role_until_it_gives_that_back(other: Role) -> None:
    held = holder(3)
    assert held.take(ROLE), "a repeated call changes nothing"
    assert held.role == ROLE.at(3)
    assert not held.take(other)
    assert not held.give_back(other)
    assert held.give_back(ROLE)
    assert held.role is None
    assert held.take(other)


@pytest.mark.parametrize("other", [SAME_SUBTASK_AGAIN, OTHER_JOB])
def test_calls_for_a_role_that_was_given_back_are_stale_in_the_next_one(other: Role) -> None:
    held = holder(1)
    held.give_back(ROLE)
    assert held.fit(ROLE.token, 1) is CallFit.STALE
    held.take(other)
    held.deploy(other.at(1))
    held.begin(other.at(1))
    assert held.fit(ROLE.token, 1) is CallFit.STALE, "it is attempt 1, of something else"
    assert held.fit(other.token, 1) is CallFit.CURRENT
    assert not held.deploy(ROLE.at(2))
    assert not held.stop(ROLE.at(9))
    assert held.deploy(other.at(2)), "the stop was for another role"


def test_attempts_that_a_former_role_had_do_not_count_for_the_next_one() -> None:
    held = holder(7)
    held.stop(ROLE.at(7))
    held.give_back(ROLE)
    held.take(OTHER_JOB)
    assert held.deploy(OTHER_JOB.at(1))


@pytest.mark.parametrize(("attempt", "fit"), [(2, CallFit.STALE), (3, CallFit.CURRENT), (4, CallFit.NOT_YET)])
def test_calls_are_told_apart_by_their_attempt(attempt: int, fit: CallFit) -> None:
    assert holder(3).fit(ROLE.token, attempt) is fit


def test_a_deployment_that_a_stop_or_a_newer_one_has_overtaken_is_refused() -> None:
    held = holder()
    held.stop(ROLE.at(2))
    assert not held.deploy(ROLE.at(2))
    assert held.deploy(ROLE.at(5))
    assert not held.deploy(ROLE.at(4))
    assert held.deploy(ROLE.at(6))
    assert not held.may_deploy(ROLE.at(5)), "it waited for an older attempt to stop, and was overtaken"


def test_a_stop_covers_older_attempts_and_no_newer_one() -> None:
    held = holder(3)
    assert not held.stop(ROLE.at(2))
    assert held.stop(ROLE.at(3))
    assert held.stop(ROLE.at(4))


class AnyOrderOfCalls(RuleBasedStateMachine):
    """Calls for several roles in any order: the attempt never becomes older, and a stop is never undone."""

    def __init__(self) -> None:
        super().__init__()
        self.holder = RoleHolder()
        self.stopped: dict[str, int] = {}
        self.ran: dict[str, int] = {}

    roles = st.sampled_from([ROLE, SAME_SUBTASK_AGAIN, OTHER_JOB])
    attempts = st.integers(1, 6)

    @rule(role=roles)
    def take(self, role: Role) -> None:
        free = self.holder.role is None
        taken = self.holder.take(role)
        assert taken == (free or self.holder.holds(role))
        if taken and free:
            self.stopped[role.token] = self.ran[role.token] = 0

    @rule(role=roles)
    def give_back(self, role: Role) -> None:
        self.holder.give_back(role)

    @rule(role=roles, attempt=attempts)
    def deploy(self, role: Role, attempt: int) -> None:
        if self.holder.deploy(role.at(attempt)):
            assert self.holder.holds(role)
            assert attempt > self.stopped[role.token]
            assert attempt >= self.ran[role.token]
            self.holder.begin(role.at(attempt))
            self.ran[role.token] = attempt

    @rule(role=roles, attempt=attempts)
    def stop(self, role: Role, attempt: int) -> None:
        if self.holder.holds(role):
            self.stopped[role.token] = max(self.stopped[role.token], attempt)
        self.holder.stop(role.at(attempt))

    @invariant()
    def only_calls_for_what_it_holds_are_current(self) -> None:
        for role in (ROLE, SAME_SUBTASK_AGAIN, OTHER_JOB):
            for attempt in range(8):
                is_current = self.holder.fit(role.token, attempt) is CallFit.CURRENT
                assert is_current == (self.holder.role == role.at(attempt))


TestAnyOrderOfCalls = AnyOrderOfCalls.TestCase


@given(st.integers(0, 9), st.integers(0, 9))
def test_a_role_is_the_same_taking_in_every_attempt(first: int, second: int) -> None:
    assert ROLE.at(first).is_same_taking(ROLE.at(second))
    assert not ROLE.at(first).is_same_taking(SAME_SUBTASK_AGAIN.at(second))
