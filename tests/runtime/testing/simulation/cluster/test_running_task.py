"""Errors that a simulated task did not get from the simulation end the run."""

from __future__ import annotations

import pytest

from penstock import Checkpointing, CollectSink, StreamEnvironment
from penstock.runtime.errors import ConnectorError, StorageError
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.runtime.task.subtask import Subtask
from penstock.runtime.testing.simulation.cluster.running_task import RunningTask, TaskState
from penstock.runtime.testing.simulation.run.user_run import Course, UserSimulation
from penstock.runtime.testing.simulation.world.agenda import Draws, draw_conditions
from penstock.runtime.testing.simulation.world.faults import FaultKind
from penstock.runtime.testing.simulation.world.world import SimulatedUserError, World


def build() -> tuple[StreamEnvironment, InMemoryCollector]:
    results = InMemoryCollector()
    env = StreamEnvironment("numbers", checkpointing=Checkpointing(every=10))
    env.from_collection("numbers", range(20)).map(abs).sink("out", CollectSink(results))
    return env, results


def test_a_bug_in_close_does_not_hide_behind_an_injected_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    close, end = Subtask.close, RunningTask._end
    failed: list[Subtask] = []

    def close_after_failure(subtask: Subtask) -> None:
        close(subtask)
        if subtask in failed:
            raise RuntimeError("close is broken")

    def noted_end(task: RunningTask, state: TaskState, failure: BaseException | None) -> None:
        if state is TaskState.FAILED:
            failed.append(task.subtask)
        end(task, state, failure)

    monkeypatch.setattr(Subtask, "close", close_after_failure)
    monkeypatch.setattr(RunningTask, "_end", noted_end)
    runs = [
        UserSimulation(build, lambda results: results.rows(), Course(seed, with_failures=True)).run()
        for seed in range(20)
    ]
    struck = [run for run in runs if FaultKind.USER_ERROR in run.happened]
    assert struck
    assert all("close is broken" in run.problem for run in struck)


def task_in_a_world() -> RunningTask:
    task = RunningTask.__new__(RunningTask)
    task._world, task._external_faults = World(0, draw_conditions(Draws(0)), None), 0
    return task


@pytest.mark.parametrize("injected", [SimulatedUserError("simulated"), StorageError("no answer")])
def test_an_error_of_a_handler_of_an_injected_error_is_a_bug(injected: Exception) -> None:
    task = task_in_a_world()
    wrapped, bug = ValueError("wrapped"), AttributeError("a bug in a handler")
    wrapped.__cause__ = injected
    task._require_wanted(wrapped)
    bug.__context__ = injected
    with pytest.raises(AttributeError):
        task._require_wanted(bug)


def test_an_error_after_a_fault_of_the_external_world_is_no_bug() -> None:
    task, error = task_in_a_world(), ConnectionResetError("no answer")
    with pytest.raises(ConnectionResetError):
        task._require_wanted(error)
    task._world.external_faults += 1
    task._require_wanted(error)


@pytest.mark.parametrize("kind", [AssertionError, AttributeError, KeyError, NameError, TypeError])
def test_a_mistake_in_a_program_is_a_bug_also_after_a_fault_of_the_external_world(
    kind: type[Exception],
) -> None:
    task, mistake, wrapped = task_in_a_world(), kind("a mistake"), ConnectorError("map fails")
    wrapped.__cause__ = mistake
    task._world.external_faults += 1
    for error in (mistake, wrapped):
        with pytest.raises(type(error)):
            task._require_wanted(error)


def test_an_error_that_names_a_loss_of_the_external_world_is_no_bug() -> None:
    task = task_in_a_world()
    task._world.external_explains = lambda cause: "record 7" in cause
    task._require_wanted(LookupError("record 7 is gone"))
    with pytest.raises(LookupError):
        task._require_wanted(LookupError("record 8 is gone"))
