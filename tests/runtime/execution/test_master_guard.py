"""A JobMaster that hangs is ended by its guards; one that is busy, back or elsewhere is not."""

from __future__ import annotations

from collections.abc import Callable

from penstock.runtime.execution.deadlines import Lease
from penstock.runtime.execution.fleet import Member
from penstock.runtime.execution.heartbeat import GUARDS, HeartbeatLimits, MasterGuard, Silence, choose_guards
from penstock.runtime.execution.processes import Away, CallFailure, Place, ProcessSpec, Reply
from penstock.runtime.execution.role import Role
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

FIRST, SECOND = Place(1, "node", 5), Place(2, "node", 6)


class Guarding:
    def __init__(self, used: Callable[[float], float]) -> None:
        self.clock = ManualClock()
        self.time = ManualTimers(self.clock)
        self.used = used
        self.asked: list[Reply[None]] = []
        self.ended: list[tuple[float, Place]] = []
        self.said: list[tuple[float, str]] = []
        limits = HeartbeatLimits.of(8.0, overdue_after=54.0)
        self.guard = MasterGuard(limits, self.clock, self.time, self, self.fell_silent)

    def ask_master(self, reply: Reply[None]) -> None:
        self.asked.append(reply)

    def processor_time_of_master(self, place: Place, reply: Reply[float]) -> None:
        used = self.used(self.clock.monotonic())
        self.time.call_later(0.0, lambda: reply(used))

    def end_master(self, place: Place, why: str) -> None:
        self.ended.append((self.clock.monotonic(), place))

    def fell_silent(self, place: Place, silence: Silence) -> None:
        self.said.append((self.clock.monotonic(), str(silence)))

    def answer(self, answer: CallFailure | None) -> None:
        self.asked.pop(0)(answer)


def test_a_job_master_that_stands_still_is_named_and_killed() -> None:
    guarding = Guarding(lambda now: 3.0)
    guarding.guard.renewed(FIRST)
    guarding.time.advance(8.0)
    assert guarding.ended == [(8.0, FIRST)]
    assert guarding.said == [(4.0, "no answer for 4 s; its processor time is unknown")]


def test_a_job_master_that_renews_leases_is_not_looked_at_more_closely() -> None:
    guarding = Guarding(lambda now: 3.0)
    for _ in range(50):
        guarding.guard.renewed(FIRST)
        guarding.time.advance(2.0)
    assert (guarding.asked, guarding.ended) == ([], [])


def test_a_job_master_that_answers_a_guard_is_not_killed_though_it_renews_nothing() -> None:
    guarding = Guarding(lambda now: 3.0)
    guarding.guard.renewed(FIRST)
    for _ in range(30):
        guarding.time.advance(3.5)
        guarding.answer(None)
    assert guarding.ended == []


def test_a_job_master_that_can_not_be_reached_is_asked_again() -> None:
    guarding = Guarding(lambda now: now)
    guarding.guard.renewed(FIRST)
    guarding.time.advance(3.0)
    guarding.answer(Away())
    guarding.time.advance(0.5)
    assert len(guarding.asked) == 1


def test_a_busy_job_master_is_killed_before_the_leases_of_its_subtasks_end() -> None:
    guarding = Guarding(lambda now: now)
    guarding.guard.renewed(FIRST)
    guarding.time.advance(53.5)
    assert guarding.ended == []
    guarding.time.advance(0.5)
    assert guarding.ended == [(54.0, FIRST)]
    for first_look in range(1, 16):  # a process looks at its lease every 15 s, whenever it was renewed
        lease = Lease(timeout=60.0, now=first_look - 15.0)
        lease.renew(0.0)
        assert not any(lease.is_over(first_look + look) for look in (0.0, 15.0, 30.0, 45.0)), first_look


def test_a_kill_that_failed_is_tried_again() -> None:
    guarding = Guarding(lambda now: 3.0)
    guarding.guard.renewed(FIRST)
    guarding.time.advance(16.0)
    assert guarding.ended == [(8.0, FIRST), (16.0, FIRST)]


def test_the_successor_of_a_job_master_is_guarded_instead_of_it() -> None:
    guarding = Guarding(lambda now: 3.0)
    guarding.guard.renewed(FIRST)
    guarding.time.advance(7.5)
    guarding.guard.renewed(SECOND)
    guarding.time.advance(7.5)
    assert guarding.ended == []
    guarding.time.advance(0.5)
    assert guarding.ended == [(15.5, SECOND)]


def test_a_process_that_is_relieved_or_has_another_role_guards_nobody() -> None:
    relieved, ended = Guarding(lambda now: 3.0), Guarding(lambda now: 3.0)
    for guarding in (relieved, ended):
        guarding.guard.renewed(FIRST)
        guarding.time.advance(7.5)
    relieved.guard.renewed(None)
    ended.guard.end()
    for guarding in (relieved, ended):
        guarding.time.advance(100.0)
        assert guarding.ended == []


def test_an_answer_to_a_question_about_another_job_master_says_nothing() -> None:
    guarding = Guarding(lambda now: 3.0)
    guarding.guard.renewed(FIRST)
    guarding.time.advance(4.0)
    guarding.guard.renewed(SECOND)
    guarding.time.advance(4.0)
    guarding.answer(None)  # the first one, late
    guarding.time.advance(4.0)
    assert guarding.ended == [(12.0, SECOND)]


def member(vertex: str, index: int, node: str) -> Member:
    role = Role("words-1", SubtaskId(vertex, index), 1, f"{vertex}{index}")
    return Member(f"{vertex}{index}", role, ProcessSpec(0, 0, 64), Place(1, node))


def test_guards_are_few_and_on_as_many_nodes_as_possible() -> None:
    alone = [member("map", n, "a") for n in range(1_000)]
    assert len(choose_guards(alone)) == GUARDS
    spread = [*alone, member("read", 0, "b"), member("write", 0, "c")]
    assert choose_guards(spread) == {SubtaskId("map", 0), SubtaskId("read", 0), SubtaskId("write", 0)}
    assert choose_guards([member("map", 0, "a")]) == {SubtaskId("map", 0)}
    assert choose_guards([]) == frozenset()
