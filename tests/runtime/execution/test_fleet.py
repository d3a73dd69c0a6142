"""Processes and their roles: found again, started, reused, ended."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_processes import JOB, ScriptedProcesses, timers
from small_graphs import read_and_count

from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.execution.fleet import LEAVE_TIMEOUT, TAKE_OVER_TIMEOUT, WARM_TIMEOUT, Fleet
from penstock.runtime.execution.processes import (
    Away,
    CurrentRole,
    Died,
    Place,
    ProcessSpec,
    Raised,
    Room,
    Stale,
)
from penstock.runtime.execution.role import Role
from penstock.runtime.graph.execution_graph import CurrentGraph
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.testing.manual_time import ManualTimers

READ, COUNT = SubtaskId("read", 0), SubtaskId("count", 0)
GRAPH = read_and_count(reads=1)
NEEDS = {subtask.id: ProcessSpec.of(subtask) for subtask in GRAPH.subtasks}
HERE = Place(7, "node-of-the-test")


def fleet(
    processes: ScriptedProcesses, graph: CurrentGraph | None = None, config: JobConfig | None = None
) -> tuple[Fleet, ManualTimers]:
    clock_and_timers = timers()
    tokens = iter("abcdefghij")
    made = Fleet(
        JOB,
        graph or CurrentGraph(GRAPH),
        config or JobConfig(),
        processes,
        clock_and_timers[1],
        lambda: next(tokens),
    )
    return made, clock_and_timers[1]


def held(subtask: SubtaskId, attempt: int, token: str, job: str = JOB) -> CurrentRole:
    return CurrentRole(Role(job, subtask, attempt, token), NEEDS[subtask], HERE)


def adopted(left: dict[str, CurrentRole | Died | Away | None]) -> tuple[Fleet, ScriptedProcesses]:
    """A fleet that has adopted the remaining processes; `None` is a process that does not answer."""
    processes = ScriptedProcesses(dict.fromkeys(left))  # type: ignore[arg-type]
    made, time = fleet(processes)
    done: list[bool] = []
    made.adopt(lambda: done.append(True))
    for process, answer in left.items():
        if answer is not None:
            processes.answer("ask", answer, process)
    assert bool(done) == (None not in left.values())
    time.advance(TAKE_OVER_TIMEOUT)
    assert done == [True]
    return made, processes


def ensured(made: Fleet, *subtasks: SubtaskId) -> list[str | None]:
    told: list[str | None] = []
    made.ensure(subtasks, told.append)
    return told


def test_a_job_master_that_comes_back_finds_processes_by_their_roles() -> None:
    made, processes = adopted({"x": held(READ, 2, "t1"), "y": held(COUNT, 2, "t2")})
    assert {s: m.process for s, m in made.members.items()} == {READ: "x", COUNT: "y"}
    assert made.members[READ].role.token == "t1", "calls of others go on to fit"
    assert processes.ended == []
    assert ensured(made, READ, COUNT) == []
    assert processes.started == []


def test_of_two_processes_with_one_subtask_that_of_the_newer_attempt_stays() -> None:
    for order in (("old", "new"), ("new", "old")):
        answers = {"old": held(READ, 2, "t1"), "new": held(READ, 3, "t2")}
        made, processes = adopted({name: answers[name] for name in order})
        assert made.members[READ].process == "new"
        assert processes.ended == ["old"]


@pytest.mark.parametrize("answer", [None, Died("killed"), Away()])
def test_a_process_that_is_silent_or_gone_is_ended(answer: Died | Away | None) -> None:
    made, processes = adopted({"x": answer, "y": held(COUNT, 1, "t")})
    assert list(made.members) == [COUNT]
    assert (processes.ended, processes.forgotten) == (["x"], [])


def test_several_processes_that_hang_hold_a_take_over_up_no_longer_than_one() -> None:
    processes = ScriptedProcesses(dict.fromkeys(("a", "b", "c", "d")))  # type: ignore[arg-type]
    made, time = fleet(processes, config=JobConfig(advanced=AdvancedConfig(heartbeat_timeout=3.0)))
    done: list[bool] = []
    made.adopt(lambda: done.append(True))
    assert len(processes.waiting("ask")) == 4
    processes.answer("ask", held(READ, 1, "x"), "b")
    time.advance(3.0)
    assert done == [True]
    assert processes.ended == ["a", "c", "d"]
    assert list(made.members) == [READ]


@pytest.mark.parametrize("answer", [CurrentRole(None, NEEDS[READ], HERE), held(READ, 1, "t", "another-job")])
def test_a_process_that_serves_another_job_or_none_lives_on(answer: CurrentRole) -> None:
    made, processes = adopted({"x": answer, "y": held(COUNT, 1, "t")})
    assert list(made.members) == [COUNT]
    assert (processes.ended, processes.forgotten) == ([], ["x"])


def test_a_warm_process_is_claimed_before_one_is_started() -> None:
    processes = ScriptedProcesses()
    processes.warm = ["warm"]
    made, _ = fleet(processes)
    assert ensured(made, READ, COUNT) == [None]
    assert [made.members[READ].process, made.members[COUNT].process] == ["warm", "new-1"]
    assert processes.ended == []


@pytest.mark.parametrize("answer", [Died("killed"), Away(), Stale(), Raised(FailureCause("broken"))])
def test_a_new_process_takes_the_role_that_a_warm_one_does_not_take(answer: Any) -> None:
    processes = ScriptedProcesses()
    processes.warm = ["warm"]
    takes = processes.answers.pop("take")
    made, _ = fleet(processes)
    told = ensured(made, READ)
    processes.answers["take"] = takes
    processes.answer("take", answer, "warm")
    assert told == [None]
    assert made.members[READ].process == "new-1"
    assert processes.ended == ["warm"]


def test_a_warm_process_that_is_silent_is_replaced_and_its_late_answer_ignored() -> None:
    processes = ScriptedProcesses()
    processes.warm = ["warm"]
    del processes.answers["take"]
    made, time = fleet(processes)
    told = ensured(made, READ)
    time.advance(WARM_TIMEOUT + 0.1)
    assert processes.ended == ["warm"]
    processes.answer("take", HERE, "warm")
    assert told == [], "the new one has not answered yet"
    processes.answer("take", HERE, "new-1")
    assert told == [None]
    assert made.members[READ].process == "new-1"


def test_a_warm_process_that_has_taken_its_role_stays_while_others_are_still_awaited() -> None:
    processes = ScriptedProcesses()
    processes.warm = ["warm"]
    del processes.answers["take"]
    made, time = fleet(processes)
    told = ensured(made, READ, COUNT)
    processes.answer("take", HERE, "warm")
    time.advance(WARM_TIMEOUT + 0.1)
    assert [process for process, _ in processes.started] == ["new-1"]
    processes.answer("take", HERE, "new-1")
    assert told == [None]
    assert [made.members[READ].process, made.members[COUNT].process] == ["warm", "new-1"]
    assert processes.ended == []


def test_a_placement_that_is_called_off_when_it_is_done_ends_nothing() -> None:
    processes = ScriptedProcesses()
    made, _ = fleet(processes)
    made.ensure([READ, COUNT], lambda problem: None).cancel()
    assert list(made.members) == [READ, COUNT]
    assert processes.ended == []


def test_two_processes_that_are_tried_for_one_subtask_have_tokens_of_their_own() -> None:
    processes = ScriptedProcesses()
    processes.warm = ["warm"]
    del processes.answers["take"]
    made, _ = fleet(processes)
    ensured(made, READ)
    refused = processes.answer("take", Stale(), "warm").role
    started = processes.waiting("take")[0].role
    assert refused.subtask == started.subtask
    assert not refused.is_same_taking(started)


def test_every_taking_of_a_role_has_a_token_of_its_own() -> None:
    processes = ScriptedProcesses()
    made, _ = fleet(processes)
    ensured(made, READ, COUNT)
    first = {member.role.token for member in made.members.values()}
    made.lose(READ)
    ensured(made, READ, COUNT)
    assert len(first | {made.members[READ].role.token}) == 3
    assert processes.ended == ["new-1"]


def test_only_subtasks_without_a_process_get_one() -> None:
    processes = ScriptedProcesses()
    made, _ = fleet(processes)
    ensured(made, READ)
    ensured(made, READ, COUNT)
    assert [spec for _, spec in processes.started] == [NEEDS[READ], NEEDS[COUNT]]


def test_a_process_that_finds_no_room_in_time_is_ended_and_the_message_says_what_is_missing() -> None:
    processes = ScriptedProcesses()
    del processes.answers["take"]
    made, time = fleet(processes, config=JobConfig(deployment_timeout=5.0))
    told = ensured(made, READ, COUNT)
    processes.answer("take", HERE, "new-1")
    time.advance(4.9)
    assert told == []
    time.advance(0.2)
    (problem,) = told
    assert problem is not None
    assert problem.startswith("count[0] could not be placed within 5 s")
    assert "4 CPU (1 free)" in problem
    assert (list(made.members), processes.ended) == ([READ], ["new-2"])


def test_a_cluster_that_does_not_answer_is_not_said_to_have_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = ScriptedProcesses()
    monkeypatch.setattr(processes, "room", lambda: Room({}, {}))
    del processes.answers["take"]
    made, time = fleet(processes, config=JobConfig(deployment_timeout=5.0))
    told = ensured(made, READ)
    time.advance(5.1)
    assert "the cluster has not reported its resources" in str(told)


@pytest.mark.parametrize("answer", [Died("out of memory"), Away(), Stale()])
def test_a_process_that_does_not_take_its_role_is_ended_and_named(answer: Died | Away | Stale) -> None:
    processes = ScriptedProcesses()
    processes.answers["take"] = lambda call: answer
    made, _ = fleet(processes)
    (problem,) = ensured(made, READ)
    assert "read[0]" in str(problem)
    assert (made.members, processes.ended) == ({}, ["new-1"])


def test_a_placement_that_is_called_off_ends_what_it_has_started() -> None:
    processes = ScriptedProcesses()
    del processes.answers["take"]
    made, time = fleet(processes)
    told: list[str | None] = []
    made.ensure([READ, COUNT], told.append).cancel()
    for process, _ in processes.started:
        processes.answer("take", HERE, process)
    time.advance(1_000)
    assert (told, made.members, processes.ended) == ([], {}, ["new-1", "new-2"])


def test_a_rescaled_job_keeps_the_processes_that_still_fit() -> None:
    processes = ScriptedProcesses()
    graph = CurrentGraph(read_and_count(reads=1))
    made, _ = fleet(processes, graph)
    ensured(made, READ, COUNT)
    graph.rescale({"read": 2})
    ensured(made, READ, COUNT)
    assert processes.ended == [], "every process has room for more inputs"
    ensured(made, SubtaskId("read", 1))
    graph.rescale({"read": 1})
    ensured(made, READ, COUNT)
    assert list(made.members) == [READ, COUNT], "the second reader is gone"
    assert processes.ended == ["new-3"]
    graph.rescale({"read": 200})
    ensured(made, READ)
    assert list(made.members) == [READ], "count has two hundred inputs now"
    assert processes.ended == ["new-3", "new-2"]


@pytest.mark.parametrize(
    ("answer", "ended", "forgotten", "offered"),
    [
        (True, ["new-2"], [], ["new-1"]),
        (False, ["new-2"], ["new-1"], []),
        (Died("killed"), ["new-1", "new-2"], [], []),
        (Away(), ["new-1", "new-2"], [], []),
    ],
)
def test_at_the_end_every_process_gives_its_role_back_and_those_that_stay_warm_are_offered(
    answer: Any, ended: list[str], forgotten: list[str], offered: list[str]
) -> None:
    processes = ScriptedProcesses()
    made, time = fleet(processes)
    ensured(made, READ, COUNT)
    done: list[bool] = []
    made.leave(lambda: done.append(True))
    processes.answer("leave", answer, "new-1")
    assert done == []
    time.advance(60)
    assert done == [True]
    assert (made.members, processes.ended) == ({}, ended)
    assert (processes.forgotten, processes.offered) == (forgotten, offered)


def test_a_process_that_gives_its_role_back_too_late_is_ended_and_never_offered() -> None:
    processes = ScriptedProcesses()
    made, time = fleet(processes)
    ensured(made, READ)
    made.leave(lambda: None)
    time.advance(LEAVE_TIMEOUT + 0.1)
    assert (processes.ended, processes.offered) == (["new-1"], [])
    processes.answer("leave", True, "new-1")
    assert processes.offered == [], "another job could claim it just before it is killed"


def test_a_member_that_was_replaced_is_not_lost_in_place_of_its_successor() -> None:
    processes = ScriptedProcesses()
    made, _ = fleet(processes)
    ensured(made, READ)
    first = made.members[READ]
    made.lose_member(first)
    ensured(made, READ)
    made.lose_member(first)
    made.forget(first)
    assert made.members[READ].process == "new-2"
    assert processes.ended == ["new-1"]
