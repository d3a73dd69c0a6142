"""Processes that wait for a role: filled up, renewed, replaced, used, ended."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_processes import JOB, ScriptedProcesses, timers
from small_graphs import read_and_count

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.config.restart import ExponentialBackoff, NoRestart
from penstock.runtime.execution.fleet import Fleet, StandbyPool
from penstock.runtime.execution.processes import Away, CurrentRole, Died, Place, ProcessSpec, Raised
from penstock.runtime.execution.role import Role
from penstock.runtime.graph.execution_graph import CurrentGraph
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.snapshot.ids import SubtaskId

READ, COUNT = SubtaskId("read", 0), SubtaskId("count", 0)
NEEDS = ProcessSpec(0, 0, 64)
HERE = Place(7, "node-of-the-test")
FREE = CurrentRole(None, NEEDS, HERE)
#: A job that is restarted.
CONFIG = JobConfig(standby=1, checkpointing=Checkpointing(every=1.0))


def spares(wanted: int = 1) -> tuple[StandbyPool, ScriptedProcesses]:
    processes = ScriptedProcesses()
    return StandbyPool(wanted, processes), processes


def fleet(config: JobConfig, left: dict[str, CurrentRole] | None = None) -> tuple[Fleet, ScriptedProcesses]:
    processes = ScriptedProcesses(left)
    tokens = iter("abcdefghij")
    made = Fleet(
        JOB, CurrentGraph(read_and_count(reads=1)), config, processes, timers()[1], lambda: next(tokens)
    )
    return made, processes


def running(config: JobConfig = CONFIG) -> tuple[Fleet, ScriptedProcesses]:
    """A fleet whose subtasks have processes, and whose spare, `new-3`, is ready."""
    made, processes = fleet(config)
    made.ensure((READ, COUNT), lambda problem: None)
    made.look_after_spares()
    if processes.waiting("prepare"):
        processes.answer("prepare", None)
    return made, processes


def test_a_spare_takes_no_role_before_it_has_loaded_the_job() -> None:
    made, processes = spares()
    made.look(NEEDS)
    assert made.take(NEEDS) is None
    processes.answer("prepare", None)
    assert made.ready == 1
    assert made.take(NEEDS) == "new-1"
    assert made.take(NEEDS) is None


def test_a_warm_process_becomes_a_spare_before_one_is_started() -> None:
    made, processes = spares(wanted=2)
    processes.warm = ["warm"]
    made.look(NEEDS)
    assert [call.process for call in processes.waiting("prepare")] == ["warm", "new-1"]


def test_a_spare_that_is_used_is_replaced_in_the_next_round() -> None:
    made, processes = spares()
    made.look(NEEDS)
    processes.answer("prepare", None)
    made.take(NEEDS)
    made.look(NEEDS)
    made.look(NEEDS)
    assert [name for name, _ in processes.started] == ["new-1", "new-2"]


@pytest.mark.parametrize("answer", [Died("killed"), Away(), Raised(FailureCause("broken"))])
@pytest.mark.parametrize("call", ["prepare", "ask"])
def test_a_spare_that_dies_or_fails_is_ended_and_replaced(call: str, answer: Any) -> None:
    made, processes = spares()
    made.look(NEEDS)
    if call == "ask":
        processes.answer("prepare", None)
        made.look(NEEDS)
    processes.answer(call, answer)
    assert processes.ended == ["new-1"]
    assert made.ready == 0
    made.look(NEEDS)
    assert [name for name, _ in processes.started] == ["new-1", "new-2"]


def test_a_spare_that_is_silent_for_rounds_is_ended_and_one_that_answers_is_kept() -> None:
    made, processes = spares()
    made.look(NEEDS)
    processes.answer("prepare", None)
    for _ in range(10):
        made.look(NEEDS)
        processes.answer("ask", FREE)
    assert processes.ended == []
    for _ in range(6):
        made.look(NEEDS)
    assert processes.ended == ["new-1"]


def test_late_answers_of_a_spare_that_was_used_change_nothing() -> None:
    made, processes = spares()
    made.look(NEEDS)
    processes.answer("prepare", None)
    made.look(NEEDS)
    made.take(NEEDS)
    processes.answer("ask", CurrentRole(Role(JOB, READ, 1, "t"), NEEDS, HERE))
    assert processes.ended == []


def test_a_spare_serves_only_what_it_fits() -> None:
    made, processes = spares()
    made.look(NEEDS)
    processes.answer("prepare", None)
    assert made.take(ProcessSpec(0, 0, 65)) is None
    assert made.take(ProcessSpec(1, 0, 2)) is None


def test_a_fleet_starts_spares_only_when_every_subtask_has_a_process() -> None:
    made, processes = fleet(CONFIG)
    made.look_after_spares()
    made.ensure((READ,), lambda problem: None)
    made.look_after_spares()
    assert len(processes.started) == 1
    made.ensure((READ, COUNT), lambda problem: None)
    made.look_after_spares()
    assert len(processes.started) == 3


def test_the_role_of_a_dead_process_goes_to_the_spare() -> None:
    made, processes = running()
    made.lose(COUNT)
    told: list[str | None] = []
    made.ensure((READ, COUNT), told.append)
    assert told == [None]
    assert made.members[COUNT].process == "new-3"
    assert len(processes.started) == 3


def test_a_new_process_takes_the_role_when_the_spare_has_died_meanwhile() -> None:
    made, processes = running()
    made.lose(COUNT)
    told: list[str | None] = []
    takes = processes.answers["take"]
    processes.answers["take"] = lambda call: Died("killed") if call.process == "new-3" else takes(call)
    made.ensure((READ, COUNT), told.append)
    assert told == [None]
    assert made.members[COUNT].process == "new-4"


def test_no_spare_stays_behind_the_job_and_none_is_offered() -> None:
    made, processes = running()
    made.leave(lambda: None)
    assert processes.ended == ["new-3"]
    assert processes.offered == []


def test_a_job_master_that_comes_back_ends_the_spares_of_its_predecessor() -> None:
    made, processes = fleet(CONFIG, {"x": FREE})
    made.adopt(lambda: None)
    processes.answer("ask", FREE, "x")
    assert (processes.ended, processes.forgotten) == (["x"], [])


def test_a_job_that_is_not_restarted_keeps_no_spare() -> None:
    for config in (
        JobConfig(standby=1),
        JobConfig(standby=1, checkpointing=Checkpointing(every=1.0), restart=NoRestart()),
    ):
        _, processes = running(config)
        assert len(processes.started) == 2


def test_a_job_with_spares_restarts_sooner_unless_told_otherwise() -> None:
    assert CONFIG.restart_or_default == ExponentialBackoff(initial=0.1, attempts=13)
    without = JobConfig(checkpointing=Checkpointing(every=1.0))
    assert without.restart_or_default == ExponentialBackoff(attempts=10)
