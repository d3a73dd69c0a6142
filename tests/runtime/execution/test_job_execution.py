"""Whatever processes answer, the scheduler gets one outcome: no missing answer leaves a job hanging."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest
from manual_work import ManualAsyncRunner
from scripted_processes import JOB, Call, ScriptedProcesses, timers
from small_graphs import read_and_count

from penstock.runtime.checkpoint.operator_coordinators.holder import EventCallbacks
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.errors import CorruptSnapshotError, OperatorLocation, StorageError
from penstock.runtime.execution.deployment import Deployer
from penstock.runtime.execution.fleet import Fleet
from penstock.runtime.execution.job_execution import JobExecution
from penstock.runtime.execution.processes import (
    Away,
    CallFailure,
    Died,
    Raised,
    SubtaskFailed,
    SubtaskFinished,
    SubtaskOutcome,
    SubtaskStopped,
)
from penstock.runtime.graph.execution_graph import CurrentGraph, ExecutionGraph
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.record.elements import CheckpointBarrier
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.descriptor import (
    EventForOperator,
    NotifyComplete,
    TaskDescriptor,
    TriggerCheckpoint,
)

READ, COUNT = SubtaskId("read", 0), SubtaskId("count", 0)
CONFIG = JobConfig(deployment_timeout=60.0, advanced=AdvancedConfig(cancellation_timeout=5.0))
BARRIER = CheckpointBarrier(1, 0)


class Heard:
    """The scheduler: notes its calls."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, Any]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda attempt, *more: self.told.append((name, attempt, more[-1] if more else None))

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.told]


class Job:
    """A job of two subtasks; the test plays their processes."""

    def __init__(self) -> None:
        graph = CurrentGraph(read_and_count(reads=1))
        self.clock, self.timers = timers()
        self.processes, self.runner, self.heard = ScriptedProcesses(), ManualAsyncRunner(), Heard()
        self.processes.answers |= {"stop": lambda call: None, "deploy": lambda call: None}
        tokens = iter("abcdefghijklmnop")
        self.fleet = Fleet(JOB, graph, CONFIG, self.processes, self.timers, lambda: next(tokens))
        self.describe_error: Exception | None = None
        self.described: list[tuple[int, bool]] = []
        deployer = Deployer(
            graph, CONFIG, self.fleet, self.processes, self.timers, self.runner, self._describe
        )
        self.execution = JobExecution(
            graph,
            self.fleet,
            deployer,
            self.processes,
            self.clock,
            self.timers,
            on_end=lambda state, cause: None,
            on_fenced=lambda: None,
        )
        self.execution.listener = self.heard

    def _describe(
        self,
        attempt: int,
        graph: ExecutionGraph,
        restore: CompletedCheckpoint | None,
        subtasks: Collection[SubtaskId],
        is_first: bool,
    ) -> Sequence[TaskDescriptor]:
        self.described.append((attempt, is_first))
        if self.describe_error is not None:
            raise self.describe_error
        return [TaskDescriptor(JOB, JOB, attempt, s, CONFIG) for s in graph.subtasks if s.id in subtasks]

    def settle(self) -> None:
        """Fire all timers and run all work that is due."""
        for _ in range(10):
            self.timers.advance(0)
            self.runner.run_all()

    def deploy(self, attempt: int) -> None:
        self.execution.deploy(attempt, (READ, COUNT), None)
        self.settle()

    def running(self, attempt: int = 1) -> Job:
        """Start the job, and forget all notifications so far."""
        self.deploy(attempt)
        assert self.heard.told == [("on_deployed", attempt, None)]
        self.execution.start(attempt, (READ, COUNT))
        self.settle()
        assert self.heard.names[-1] == "on_started"
        self.heard.told.clear()
        return self

    def stop(self, attempt: int) -> None:
        self.execution.stop(
            attempt, (READ, COUNT), lambda: self.heard.told.append(("stopped", attempt, None))
        )

    def run_of(self, subtask: SubtaskId) -> Call:
        return next(c for c in self.processes.waiting("run") if c.role.subtask == subtask)

    def end_run(self, subtask: SubtaskId, outcome: SubtaskOutcome | CallFailure) -> None:
        call = self.run_of(subtask)
        self.processes.calls.remove(call)
        call.reply(outcome)


# -- deploying ----------------------------------------------------------------------------------------------


def test_older_attempts_are_stopped_before_a_new_one_is_deployed() -> None:
    job = Job().running(2)
    job.deploy(3)
    assert [call.role.attempt for call in job.processes.called("stop")] == [2, 2]
    assert [call.role.attempt for call in job.processes.called("deploy")] == [2, 2, 3, 3]
    assert job.heard.told == [("on_deployed", 3, None)]
    assert len(job.processes.started) == 2, "the processes were kept"


def test_every_call_carries_the_role_of_its_receiver_and_senders_are_told_those_of_theirs() -> None:
    job = Job().running(4)
    run = job.run_of(READ)
    assert run.role == job.fleet.members[READ].role.at(4)
    (peer,) = run.arguments[1].values()
    assert peer.role == job.fleet.members[COUNT].role.at(4)
    assert peer.process == job.fleet.members[COUNT].process


def test_a_stop_calls_a_deployment_off() -> None:
    job = Job()
    del job.processes.answers["take"]
    job.execution.deploy(3, (READ, COUNT), None)
    job.settle()
    job.stop(3)
    job.settle()
    assert job.heard.names == ["stopped"]
    assert job.processes.called("deploy") == []
    assert job.processes.ended == ["new-1", "new-2"]


def test_a_deployment_that_takes_too_long_fails_and_is_heard_of_once() -> None:
    job = Job()
    del job.processes.answers["deploy"]
    job.deploy(1)
    job.timers.advance(59)
    assert job.heard.told == []
    job.timers.advance(2)
    assert job.heard.names == ["on_deployment_failed"]
    assert "within 60 s" in job.heard.told[0][2].message
    for process, _ in job.processes.started:
        job.processes.answer("deploy", None, process)
    job.timers.advance(1_000)
    assert len(job.heard.told) == 1


@pytest.mark.parametrize(
    ("answer", "text", "is_lost"),
    [
        (Died("killed"), "its process died while it was deployed", True),
        (Away(), "could not be reached while it was deployed", True),
        (Raised(FailureCause("no such class")), "no such class", False),
        (SubtaskFailed("state is gone", "trace"), "state is gone", False),
    ],
)
def test_a_process_that_can_not_be_deployed_fails_the_attempt(
    answer: SubtaskFailed | CallFailure, text: str, is_lost: bool
) -> None:
    job = Job()
    job.processes.answers["deploy"] = lambda call: answer if call.role.subtask == COUNT else None
    job.deploy(2)
    ((name, attempt, cause),) = job.heard.told
    assert (name, attempt) == ("on_deployment_failed", 2)
    assert text in cause.message
    assert cause.recoverable
    assert (COUNT not in job.fleet.members) == is_lost


def test_an_operator_that_can_not_be_opened_in_the_first_attempt_is_the_users_to_mend() -> None:
    location = OperatorLocation("count", 0, 1)
    for attempt, recoverable in ((1, False), (2, True)):
        job = Job()
        job.processes.answers["deploy"] = lambda call: SubtaskFailed("no model", "", location)
        job.deploy(attempt)
        assert job.heard.told[0][2].recoverable is recoverable


def test_an_attempt_counts_as_the_first_until_the_tasks_of_one_are_described() -> None:
    """An attempt that fails before, such as at a storage that is away, has checked nothing."""
    job = Job()
    job.describe_error = StorageError("no answer")
    job.deploy(1)
    job.describe_error = None
    for attempt in (2, 3):
        job.deploy(attempt)
    assert job.described == [(1, True), (2, True), (3, False)]


def test_a_damaged_checkpoint_fails_the_deployment_for_good() -> None:
    job = Job()
    job.describe_error = CorruptSnapshotError("chk-1/metadata is damaged")
    job.deploy(2)
    ((name, _, cause),) = job.heard.told
    assert name == "on_deployment_failed"
    assert not cause.recoverable


# -- running ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (Raised(FailureCause("RuntimeError: no such metric")), "no such metric"),
        (SubtaskStopped(), "stopped although the job is running"),
        (SubtaskFailed("division by zero", "trace"), "division by zero"),
        (Died("killed"), "its process died (pid 7 on node node-of-"),
        (Away(), "can't be reached any more"),
    ],
)
def test_an_end_of_a_run_that_nobody_asked_for_fails_the_attempt(
    outcome: SubtaskOutcome | CallFailure, text: str
) -> None:
    job = Job().running(4)
    job.end_run(COUNT, outcome)
    ((name, attempt, cause),) = job.heard.told
    assert (name, attempt) == ("on_subtask_failed", 4)
    assert cause.subtask in (COUNT, None)
    assert text in cause.message


def test_a_dead_process_is_replaced_in_the_next_attempt_and_the_living_ones_are_kept() -> None:
    job = Job().running()
    job.end_run(COUNT, Died("killed"))
    job.deploy(2)
    assert [process for process, _ in job.processes.started] == ["new-1", "new-2", "new-3"]
    assert job.fleet.members[COUNT].process == "new-3"


def test_a_run_that_ends_as_it_should_is_no_failure() -> None:
    job = Job().running()
    job.end_run(COUNT, SubtaskFinished(None))
    assert job.heard.told == [("on_subtask_finished", 1, COUNT)]
    job.stop(1)
    job.end_run(READ, SubtaskStopped())
    job.settle()
    assert job.heard.names == ["on_subtask_finished", "stopped"]


def test_a_subtask_whose_process_was_lost_before_the_start_fails() -> None:
    job = Job()
    job.deploy(1)
    job.fleet.lose(COUNT)
    job.execution.start(1, (READ, COUNT))
    assert job.heard.names == ["on_deployed"], "nothing is heard from inside of the call"
    job.settle()
    assert job.heard.names == ["on_deployed", "on_subtask_failed", "on_started"]


def test_the_late_end_of_an_old_run_takes_no_process_from_the_new_attempt() -> None:
    job = Job().running(1)
    old = job.run_of(COUNT)
    job.processes.calls.remove(old)
    job.fleet.lose(COUNT)
    job.deploy(2)
    replaced = job.fleet.members[COUNT]
    old.reply(Died("killed"))
    assert job.fleet.members[COUNT] is replaced


# -- stopping -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer", [Died("killed"), Away(), Raised(FailureCause("no way to stop")), "silence"]
)
def test_what_can_not_be_stopped_is_ended_and_counts_as_stopped(answer: CallFailure | str) -> None:
    job = Job().running()
    del job.processes.answers["stop"]
    job.stop(1)
    job.processes.answer("stop", None, job.fleet.members[READ].process)
    lost = job.fleet.members[COUNT].process
    if answer != "silence":
        job.processes.answer("stop", answer, lost)
    else:
        job.timers.advance(4)
        assert job.heard.told == []
        job.timers.advance(2)
    assert job.heard.told == [("stopped", 1, None)]
    assert list(job.fleet.members) == [READ]
    assert job.processes.ended == [lost]
    (warning,) = job.processes.warnings
    assert ("count[0]" in warning) == (not isinstance(answer, Died)), "a death is no news here"
    reasons = {Away: "its process could not be reached", Raised: "no way to stop"}
    assert warning.endswith(reasons.get(type(answer), "")), "a reason is a sentence"


def test_a_stop_without_any_process_is_answered_later_and_not_from_inside_of_the_call() -> None:
    job = Job()
    job.stop(1)
    assert job.heard.told == []
    job.settle()
    assert job.heard.names == ["stopped"]


# -- messages -----------------------------------------------------------------------------------------------


def send_event(job: Job, attempt: int = 1) -> list[str]:
    heard: list[str] = []
    answer = EventCallbacks(
        lambda: heard.append("arrived"), lambda error: heard.extend([*job.heard.names, str(error)])
    )
    job.execution.send_operator_event(attempt, READ, "read", "an event", answer)
    return heard


def test_triggers_and_events_wait_for_the_message_before_them() -> None:
    job = Job().running()
    job.execution.trigger_checkpoint(1, [READ], BARRIER)
    heard = send_event(job)
    (first,) = job.processes.waiting("control")
    assert first.arguments[1] == TriggerCheckpoint(BARRIER)
    job.processes.answer("control", True)
    (second,) = job.processes.waiting("control")
    assert second.arguments[1] == EventForOperator("read", 1, "an event")
    assert heard == []
    job.processes.answer("control", True)
    assert heard == ["arrived"]


def test_notifications_wait_for_nobody() -> None:
    job = Job().running()
    job.execution.trigger_checkpoint(1, [READ], BARRIER)
    job.execution.notify_checkpoint_complete(1, [READ, COUNT], 7)
    assert [c.arguments[1] for c in job.processes.waiting("control")][1:] == [NotifyComplete(7)] * 2


def test_a_message_is_sent_again_while_its_process_can_not_be_reached() -> None:
    job = Job().running()
    heard = send_event(job)
    for _ in range(3):
        job.processes.answer("control", Away())
        assert job.processes.waiting("control") == []
        job.timers.advance(1)
    job.processes.answer("control", True)
    assert heard == ["arrived"]


@pytest.mark.parametrize("answer", [False, Died("killed")])
def test_an_event_that_its_process_does_not_take_is_lost_behind_the_end_of_the_run(
    answer: bool | Died,
) -> None:
    job = Job().running()
    heard = send_event(job)
    job.processes.answer("control", answer)
    assert heard == [], "the scheduler hears first why the run has ended"
    job.end_run(READ, Died("killed"))
    assert heard == ["on_subtask_failed", "read[0] no longer runs in attempt 1"]


def test_no_message_goes_to_an_attempt_that_has_not_been_started() -> None:
    job = Job().running(4)
    job.deploy(5)
    assert send_event(job, attempt=5) == []
    heard = send_event(job, attempt=4)
    job.settle()
    assert heard[-1] == "read[0] no longer runs in attempt 4"
    assert job.processes.waiting("control") == []


def test_the_lane_goes_on_behind_a_message_that_was_lost() -> None:
    job = Job().running()
    first, second = send_event(job), send_event(job)
    job.processes.answer("control", Away())
    job.deploy(2)
    job.timers.advance(1)
    job.settle()
    assert len(first) == len(second) == 2
    assert job.processes.waiting("control") == []
