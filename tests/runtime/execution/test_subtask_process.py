"""The process of a subtask runs one attempt at a time, and answers every call once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.execution import subtask_process
from penstock.runtime.execution.heartbeat import HeartbeatLimits
from penstock.runtime.execution.processes import (
    Counters,
    CurrentRole,
    DeliveryAnswer,
    Place,
    ProcessSpec,
    Stale,
    SubtaskFailed,
    SubtaskFinished,
    SubtaskOutcome,
    SubtaskStopped,
)
from penstock.runtime.execution.role import Role
from penstock.runtime.execution.subtask_process import (
    WARM,
    AttemptEvents,
    OnBuilt,
    ProcessEnds,
    SubtaskRunner,
)
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.descriptor import NotifyComplete, TaskDescriptor
from penstock.runtime.testing.manual_time import ManualClock

LEASE, HEARTBEAT = 8.0, 8.0
ROLE = Role("words-1", SubtaskId("count", 0), 0, "7f3a")
OTHER = Role("words-2", SubtaskId("count", 1), 0, "9c04")
TASK = cast("TaskDescriptor", None)
FAILED = SubtaskFailed("a bug of the user", "")


class PlayedAttempt:
    """An attempt that the test builds and closes."""

    def __init__(self, role: Role, events: AttemptEvents) -> None:
        self.role = role
        self.happened: list[Any] = []
        self.is_stopping = False
        self.has_ended = False
        self._events = events
        self._on_built: OnBuilt | None = None

    def build(self, on_built: OnBuilt) -> None:
        self._on_built = on_built

    def built(self, failed: SubtaskFailed | None = None) -> None:
        assert self._on_built is not None
        on_built, self._on_built = self._on_built, None
        self.has_ended = failed is not None
        on_built(failed)

    @property
    def is_building(self) -> bool:
        return self._on_built is not None

    def end(self, outcome: SubtaskOutcome) -> None:
        self.has_ended = True
        self._events.ended(outcome)

    def go_on(self) -> None:
        """Complete the build, or the close after a stop."""
        if self.is_building:
            self.built()
        if self.is_stopping and not self.has_ended:
            self.end(SubtaskStopped())

    def start(self, peers: str) -> None:
        self.happened.append(peers)

    def stop(self) -> None:
        self.is_stopping = True

    def deliver(self, channel: int, first: int, elements: list[bytes]) -> None:
        self.happened.append((channel, first, elements))

    def consumed(self, channel: int, next_sequence_number: int) -> None:
        self._events.consumed(channel, next_sequence_number)

    def control(self, message: Any) -> None:
        self.happened.append(message)

    def counters(self) -> Counters:
        return Counters(self.role.attempt, None)

    def end_reports(self) -> None:
        self.happened.append("no reports")


class PlayedGuard:
    """Records the place of the guarded JobMaster."""

    def __init__(self) -> None:
        self.guarded: list[Place | None] = []
        self.has_ended = False

    def renewed(self, guarded: Place | None) -> None:
        self.guarded.append(guarded)

    def end(self) -> None:
        self.has_ended = True


class Machine:
    """The `ProcessHost` of a test."""

    place = Place(7, "node-of-the-test")

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.attempts: list[PlayedAttempt] = []
        self.guards: list[tuple[HeartbeatLimits, PlayedGuard]] = []
        self.roles: list[Role | None] = []
        self.notes: list[str] = []
        self.exits: list[tuple[str, bool]] = []
        self.offers: list[Callable[[bool], None]] = []
        self.why_refused: str | None = None
        self.left: str | None = None

    def new_attempt(
        self, role: Role, descriptor: TaskDescriptor, master: str, events: AttemptEvents
    ) -> PlayedAttempt:
        self.attempts.append(PlayedAttempt(role, events))
        return self.attempts[-1]

    def new_guard(self, limits: HeartbeatLimits) -> Any:
        self.guards.append((limits, PlayedGuard()))
        return self.guards[-1][1]

    def refuses(self) -> str | None:
        return self.why_refused

    def role_taken(self, role: Role, *, is_prepared: bool) -> None:
        self.roles.append(role)

    def role_given_back(self) -> None:
        self.roles.append(None)

    def residue(self) -> str | None:
        return self.left

    def note(self, what: str) -> None:
        self.notes.append(what)

    def exit(self, why: str, *, is_failure: bool) -> None:
        self.exits.append((why, is_failure))

    def withdraw_offer(self, answer: Callable[[bool], None]) -> None:
        self.offers.append(answer)


Process = SubtaskRunner[str, str]


def a_process(spec: ProcessSpec | None = None) -> tuple[Process, Machine]:
    """A process that holds `ROLE`."""
    machine = Machine()
    process = Process(spec or ProcessSpec(0.0, 0.0, 64), machine)
    assert process.take_role(ROLE, LEASE, HEARTBEAT) == machine.place
    return process, machine


def deployed(process: Process, machine: Machine, attempt: int) -> PlayedAttempt:
    process.deploy_attempt(ROLE.at(attempt), TASK, "master", lambda failed: None)
    machine.attempts[-1].built()
    return machine.attempts[-1]


def test_an_attempt_begins_when_the_one_before_is_closed() -> None:
    process, machine = a_process()
    first, built = deployed(process, machine, 1), list[SubtaskFailed | None]()
    process.deploy_attempt(ROLE.at(2), TASK, "master", built.append)
    assert first.is_stopping
    assert machine.attempts == [first]
    first.end(SubtaskStopped())
    second = machine.attempts[-1]
    assert (second.role, built) == (ROLE.at(2), [])
    second.built()
    assert built == [None]


@pytest.mark.parametrize("meanwhile", ["a stop", "a newer deployment", "the role is given back"])
def test_a_deployment_that_has_waited_asks_again_whether_it_may_begin(meanwhile: str) -> None:
    process, machine = a_process()
    first, built = deployed(process, machine, 1), list[SubtaskFailed | None]()
    process.deploy_attempt(ROLE.at(2), TASK, "master", built.append)
    match meanwhile:
        case "a stop":
            process.stop_attempt(ROLE.at(2), lambda: None)
        case "a newer deployment":
            process.deploy_attempt(ROLE.at(3), TASK, "master", lambda failed: None)
        case _:
            process.give_back(ROLE, lambda given: None)
    first.end(SubtaskStopped())
    if meanwhile == "the role is given back":  # this request came last, and stops the attempt that has begun
        assert machine.attempts[-1].is_stopping
        assert process.role == ROLE.at(2)
        machine.attempts[-1].go_on()
        assert process.role is None
    else:
        assert [failed.error for failed in built if failed is not None] == [
            f"{ROLE.at(2)} was replaced by a newer one"
        ]
        assert all(attempt.role != ROLE.at(2) for attempt in machine.attempts)


def test_one_deployment_that_comes_twice_runs_one_attempt_at_a_time() -> None:
    process, machine = a_process()
    first = deployed(process, machine, 1)
    for _ in range(2):
        process.deploy_attempt(ROLE.at(2), TASK, "master", lambda failed: None)
    first.end(SubtaskStopped())
    assert len(machine.attempts) == 2
    assert machine.attempts[1].is_stopping
    machine.attempts[1].go_on()
    assert len(machine.attempts) == 3
    assert not machine.attempts[2].is_stopping


def test_a_run_of_a_role_that_is_past_says_that_it_was_stopped() -> None:
    process, machine = a_process()
    running = deployed(process, machine, 2)
    outcomes: list[SubtaskOutcome] = []
    for past in (ROLE.at(1), OTHER.at(2)):
        process.run_attempt(past, "peers", outcomes.append)
    assert outcomes == [SubtaskStopped()] * 2
    assert running.happened == []


def test_a_run_that_comes_twice_starts_once_and_both_calls_hear_of_the_end() -> None:
    process, machine = a_process()
    running, outcomes = deployed(process, machine, 1), list[SubtaskOutcome]()
    for _ in range(2):
        process.run_attempt(ROLE.at(1), "peers", outcomes.append)
    assert running.happened == ["peers"]
    running.end(SubtaskFinished(None))
    assert outcomes == [SubtaskFinished(None)] * 2
    process.run_attempt(ROLE.at(1), "peers", outcomes.append)
    assert outcomes == [SubtaskFinished(None)] * 3
    assert running.happened == ["peers"]


@pytest.mark.parametrize(
    ("outcome", "answer"),
    [
        (SubtaskFinished(None), DeliveryAnswer.CONSUMED),
        (SubtaskStopped(), DeliveryAnswer.STALE),
        (FAILED, DeliveryAnswer.STALE),
    ],
)
def test_frames_are_answered_when_they_are_consumed_and_at_the_end(
    outcome: SubtaskOutcome, answer: DeliveryAnswer
) -> None:
    process, machine = a_process()
    answers: list[DeliveryAnswer] = []
    process.take_frame(ROLE.token, 1, 0, 0, [b"early"], answers.append)
    assert answers == [DeliveryAnswer.NOT_YET]
    running = deployed(process, machine, 1)
    for token, attempt in ((OTHER.token, 1), (ROLE.token, 0)):
        process.take_frame(token, attempt, 0, 0, [b"of another"], answers.append)
    assert answers[1:] == [DeliveryAnswer.STALE] * 2
    process.take_frame(ROLE.token, 2, 0, 0, [b"of the next attempt"], answers.append)
    assert answers.pop() is DeliveryAnswer.NOT_YET
    process.take_frame(ROLE.token, 1, 3, 0, [b"one", b"two"], answers.append)
    running.consumed(3, 1)
    assert len(answers) == 3
    running.consumed(3, 2)
    assert answers[3:] == [DeliveryAnswer.CONSUMED]
    process.take_frame(ROLE.token, 1, 3, 1, [b"two"], answers.append)
    assert answers[4:] == [DeliveryAnswer.CONSUMED]
    process.take_frame(ROLE.token, 1, 3, 2, [b"three"], answers.append)
    assert running.happened == [(3, 0, [b"one", b"two"]), (3, 2, [b"three"])]
    running.end(outcome)
    process.take_frame(ROLE.token, 1, 4, 0, [b"late"], answers.append)
    assert answers[5:] == [answer] * 2
    assert ("no reports" in running.happened) is not isinstance(outcome, SubtaskFinished)


def test_reports_of_a_finished_attempt_end_when_the_role_is_given_back() -> None:
    process, machine = a_process()
    running = deployed(process, machine, 1)
    running.end(SubtaskFinished(None))
    assert not process.control(ROLE.at(1), NotifyComplete(1))
    process.give_back(ROLE, lambda given: None)
    assert running.happened == ["no reports"]
    assert machine.roles == [ROLE, None]
    assert machine.guards[0][1].has_ended
    assert process.attempt is None


@pytest.mark.parametrize(
    ("stays", "spec", "failed", "left", "why"),
    [
        (True, ProcessSpec(0.0, 0.0, 64), False, None, None),
        (False, ProcessSpec(0.0, 0.0, 64), False, None, "the job does not allow it"),
        (True, ProcessSpec(1.0, 0.0, 64), False, None, "it occupies resources"),
        (True, ProcessSpec(0.0, 0.0, 64), True, None, "users' code has failed here"),
        (True, ProcessSpec(0.0, 0.0, 64), False, "a thread still runs", "a thread still runs"),
    ],
)
def test_a_process_stays_only_where_the_next_job_finds_it_as_if_it_were_new(
    stays: bool, spec: ProcessSpec, failed: bool, left: str | None, why: str | None
) -> None:
    process, machine = a_process(spec)
    machine.left = left
    deployed(process, machine, 1).end(FAILED if failed else SubtaskFinished(None))
    answers: list[bool | ProcessEnds] = []
    process.leave_role(OTHER, stays, answers.append)
    process.leave_role(ROLE, stays, answers.append)
    assert answers == [False, True if why is None else ProcessEnds(why)]
    assert machine.notes == ([] if why is None else [f"this process takes no other role: {why}"])


def test_a_process_ends_after_so_many_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subtask_process, "_MOST_ROLES", 2)
    process, _ = a_process()
    answers: list[bool | ProcessEnds] = []
    process.leave_role(ROLE, True, answers.append)
    assert process.take_role(OTHER, LEASE, HEARTBEAT) != Stale()
    process.leave_role(OTHER, True, answers.append)
    assert answers == [True, ProcessEnds("it has taken 2 roles")]


def test_an_attempt_that_can_not_be_built_is_a_failure_in_the_process() -> None:
    process, machine = a_process()
    built, stops = list[SubtaskFailed | None](), list[str]()
    process.deploy_attempt(ROLE.at(1), TASK, "master", built.append)
    process.stop_attempt(ROLE.at(1), partial(stops.append, "stopped"))
    assert stops == []
    machine.attempts[0].built(FAILED)
    assert (built, stops) == ([FAILED], ["stopped"])
    answers: list[bool | ProcessEnds] = []
    process.leave_role(ROLE, True, answers.append)
    assert answers == [ProcessEnds("users' code has failed here")]


def test_a_process_that_can_not_serve_again_takes_no_role() -> None:
    machine = Machine()
    process = Process(ProcessSpec(0.0, 0.0, 64), machine)
    machine.why_refused = "job.py has changed"
    assert process.take_role(ROLE, LEASE, HEARTBEAT) == Stale()
    assert machine.notes == ["this process takes no other role: job.py has changed"]
    assert process.role is None
    machine.why_refused = None
    assert process.take_role(ROLE, LEASE, HEARTBEAT) == machine.place
    machine.why_refused = "job.py has changed"
    assert process.take_role(ROLE, LEASE, HEARTBEAT) == machine.place, "it serves this role already"
    assert len(machine.guards) == 1


def silent_for(process: Process, machine: Machine, seconds: float) -> None:
    """Check the lease as often as the process asks, without a call of a JobMaster."""
    until = machine.clock.monotonic() + seconds
    while machine.clock.monotonic() < until and not machine.exits:
        machine.clock.advance(process.next_look)
        process.look_at_lease()


def test_a_process_ends_itself_by_the_lease_of_its_role() -> None:
    process, machine = a_process()
    silent_for(process, machine, LEASE)
    assert machine.exits == []
    assert process.renew(ROLE, machine.place) == Counters(0, None)
    assert machine.guards[0][1].guarded == [machine.place]
    silent_for(process, machine, LEASE)
    assert process.renew(OTHER, None) == Stale()
    silent_for(process, machine, LEASE / 2)
    assert machine.exits == [(f"{ROLE} heard from no JobMaster for 10 s", True)]


@pytest.mark.parametrize("call", ["deploy", "control", "stop", "renew", "of another role"])
def test_a_call_for_its_role_keeps_a_process(call: str) -> None:
    process, machine = a_process()
    deployed(process, machine, 1)
    silent_for(process, machine, LEASE)
    role = OTHER if call == "of another role" else ROLE
    if call in ("renew", "of another role"):
        process.renew(role, None)
    if call in ("deploy", "of another role"):
        process.deploy_attempt(role.at(2), TASK, "master", lambda failed: None)
    if call in ("control", "of another role"):
        process.control(role.at(1), NotifyComplete(1))
    if call in ("stop", "of another role"):
        process.stop_attempt(role.at(1), lambda: None)
    silent_for(process, machine, LEASE)
    assert bool(machine.exits) is (call == "of another role")


def test_messages_reach_the_attempt_that_they_are_for_and_no_other_one() -> None:
    process, machine = a_process()
    assert not process.control(ROLE.at(1), NotifyComplete(1))
    running = deployed(process, machine, 2)
    assert process.control(ROLE.at(2), NotifyComplete(3))
    for past in (ROLE.at(1), ROLE.at(3), OTHER.at(2)):
        assert not process.control(past, NotifyComplete(4))
    assert running.happened == [NotifyComplete(3)]
    assert process.attempt is running
    assert process.renew(ROLE, None) == Counters(2, None)


def test_a_process_says_what_it_holds_and_whether_it_has_loaded_the_code_of_a_job() -> None:
    machine, spec = Machine(), ProcessSpec(0.0, 0.0, 64)
    process = Process(spec, machine)
    assert process.ask() == CurrentRole(None, spec, machine.place, is_prepared=False)
    process.prepared()
    assert process.ask() == CurrentRole(None, spec, machine.place, is_prepared=True)
    process.take_role(ROLE, LEASE, HEARTBEAT)
    assert process.take_role(OTHER, LEASE, HEARTBEAT) == Stale()
    assert process.ask() == CurrentRole(ROLE, spec, machine.place, is_prepared=False)


def test_a_job_master_that_asks_keeps_no_process_that_holds_a_role() -> None:
    process, machine = a_process()
    for _ in range(10):
        machine.clock.advance(process.next_look)
        process.ask()
        process.look_at_lease()
    assert len(machine.exits) > 0


def test_a_process_that_gets_no_role_ends_itself_unless_somebody_asks_it() -> None:
    machine = Machine()
    process = Process(ProcessSpec(0.0, 0.0, 64), machine)
    silent_for(process, machine, WARM)
    process.ask()
    silent_for(process, machine, WARM)
    assert machine.exits == []
    silent_for(process, machine, WARM / 4)
    assert machine.exits == [("no JobMaster gave this process a role", False)]


@pytest.mark.parametrize("is_claimed", [False, True])
def test_a_warm_process_withdraws_its_offer_before_it_ends(is_claimed: bool) -> None:
    process, machine = a_process()
    process.leave_role(ROLE, True, lambda left: None)
    silent_for(process, machine, WARM * 1.25)
    assert machine.exits == []
    [answer] = machine.offers
    answer(not is_claimed)
    if not is_claimed:
        assert machine.exits == [("no job has used this process again", False)]
        return
    assert machine.exits == []
    silent_for(process, machine, WARM)
    assert machine.exits == [], "its JobMaster has one more lease to give it a role"
    silent_for(process, machine, WARM / 4)
    assert machine.exits == [("no JobMaster gave this process a role", False)]
    assert len(machine.offers) == 1


def test_a_process_that_takes_a_role_while_its_offer_is_withdrawn_lives_on() -> None:
    process, machine = a_process()
    process.leave_role(ROLE, True, lambda left: None)
    silent_for(process, machine, WARM * 1.25)
    assert process.take_role(OTHER, LEASE, HEARTBEAT) == machine.place
    machine.offers[0](True)
    assert machine.exits == []


ATTEMPTS = st.integers(1, 4)
CALLS = st.one_of(
    st.tuples(st.just("take"), st.sampled_from([ROLE, OTHER])),
    st.tuples(st.sampled_from(["deploy", "run", "stop"]), st.sampled_from([ROLE, OTHER]), ATTEMPTS),
    st.tuples(st.just("give_back"), st.sampled_from([ROLE, OTHER])),
    st.tuples(st.just("go on")),
    st.tuples(st.just("fail to build")),
    st.tuples(st.just("end"), st.sampled_from([SubtaskFinished(None), FAILED])),
)


@given(st.lists(CALLS, max_size=30))
def test_whatever_calls_come_one_attempt_runs_at_a_time_and_every_call_is_answered_once(
    calls: list[tuple[Any, ...]],
) -> None:
    machine = Machine()
    process = Process(ProcessSpec(0.0, 0.0, 64), machine)
    answers: dict[int, list[Any]] = {}
    runs: set[int] = set()

    def newest() -> PlayedAttempt | None:
        return machine.attempts[-1] if machine.attempts else None

    for number, (name, *arguments) in enumerate(calls):
        heard = answers.setdefault(number, [])
        current = newest()
        match name:
            case "take":
                heard.append(process.take_role(arguments[0], LEASE, HEARTBEAT))
            case "deploy":
                process.deploy_attempt(arguments[0].at(arguments[1]), TASK, "master", heard.append)
            case "run":
                runs.add(number)
                process.run_attempt(arguments[0].at(arguments[1]), "peers", heard.append)
            case "stop":
                process.stop_attempt(arguments[0].at(arguments[1]), partial(heard.append, None))
            case "give_back":
                process.give_back(arguments[0], heard.append)
            case _:
                heard.append(None)
                if current is not None and name == "go on":
                    current.go_on()
                elif current is not None and name == "fail to build" and current.is_building:
                    current.built(FAILED)
                elif current is not None and name == "end" and not (current.is_building or current.has_ended):
                    current.end(arguments[0])
        assert sum(not attempt.has_ended for attempt in machine.attempts) <= 1
        if process.role is None:
            assert all(attempt.has_ended for attempt in machine.attempts)
        assert all(len(heard) <= 1 for heard in answers.values())

    while (current := newest()) is not None and (
        current.is_building or (current.is_stopping and not current.has_ended)
    ):
        current.go_on()
    still_runs = current is not None and not current.has_ended
    for number, heard in answers.items():
        assert len(heard) == 1 or (number in runs and still_runs), calls[number]
