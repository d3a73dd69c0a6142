"""Master hooks and source coordinators in a job: the real scheduler; subtasks are moved by hand."""

from __future__ import annotations

import pytest

from penstock.runtime.checkpoint.config import Checkpointing
from penstock.runtime.checkpoint.coordinator_requests import CheckpointFailed
from penstock.runtime.checkpoint.memory_storage import MemoryStorage
from penstock.runtime.checkpoint.snapshot import CheckpointMetrics, SubtaskId, SubtaskSnapshot
from penstock.runtime.errors import ConfigurationError, DeploymentError
from penstock.runtime.graph.collection_source import CollectionSource
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.graph.job_config import JobConfig
from penstock.runtime.graph.job_graph import JobGraph, JobVertex, OperatorSpec
from penstock.runtime.job.failure import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.restart import FixedDelay
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.operators.on_request import OnRequest, OnRequestEnumerator
from penstock.runtime.operators.source_events import NoMoreSplits, SplitRequest, SplitsAssigned
from penstock.runtime.testing.manual_time import ManualAsyncRunner, ManualClock, ManualTimers

READ = SubtaskId("read", 0)


class Hook:
    def __init__(self, identifier="outside"):
        self.identifier, self.calls = identifier, []

    def trigger_checkpoint(self, checkpoint_id, timestamp):
        self.calls.append(("trigger", checkpoint_id))
        return {"offset": checkpoint_id}

    def restore_checkpoint(self, checkpoint_id, state):
        self.calls.append(("restore", checkpoint_id, state))

    def reset(self):
        self.calls.append(("reset",))

    def close(self):
        self.calls.append(("close",))


class Hooked(OnRequest):
    """A source with splits on request and a master hook."""

    def __init__(self, source, hook):
        super().__init__(source)
        self.hook = hook

    def master_hook(self):
        return self.hook


class Missing:
    """A source that is not there."""

    def splits(self, parallelism):
        raise FileNotFoundError("no such folder")

    def reader(self, context, splits):
        raise AssertionError("never deployed")


class Eager(OnRequest):
    """A source whose enumerator hands out everything before anybody asks."""

    def __init__(self, *splits):
        super().__init__(CollectionSource(()))
        self.eager, self.closed = splits, 0

    def enumerator(self, context, state):
        return EagerEnumerator(self, context, state)


class EagerEnumerator(OnRequestEnumerator):
    def __init__(self, source, context, state):
        super().__init__(source, context, state or (True, source.eager))
        self.source = source

    def start(self):
        while self._unassigned:
            self._context.assign(0, [self._unassigned.popleft()])

    def close(self):
        self.source.closed += 1


class Cluster:
    """The job's gateway; events arrive at once, unless they are to be lost, or held on their way."""

    def __init__(self):
        self.said = []
        self.loses_events = self.holds_events = False
        self.held = []

    def __getattr__(self, name):
        return lambda *args: self.said.append((name, *args))

    def send_operator_event(self, attempt, subtask, operator_id, event, answer):
        self.said.append((attempt, subtask, event))
        if self.holds_events:
            self.held.append(answer)
        elif self.loses_events:
            answer.failed(DeploymentError("nobody is there"))
        else:
            answer.sent()

    def take(self):
        said, self.said = self.said, []
        return said


class Run:
    def __init__(self, *sources, parallelism=1, config=None, opened=None, hooks_hang=False):
        vertices = tuple(
            JobVertex(name, (OperatorSpec(name, name, None, source=source, stateful=True),), parallelism)
            for name, source in zip(("read", "other"), sources, strict=False)
        )
        clock = ManualClock()
        self.timers, self.runner = ManualTimers(clock), ManualAsyncRunner()
        self.user_runner = ManualAsyncRunner() if hooks_hang else self.runner
        self.cluster, self.storage = Cluster(), MemoryStorage()
        self.subtasks = [SubtaskId(v.id, i) for v in vertices for i in range(parallelism)]
        self.scheduler = JobScheduler(
            "job",
            build_execution_graph(JobGraph("job", vertices, ())),
            config
            or JobConfig(checkpointing=Checkpointing(every=10), restart=FixedDelay(3, 1), failover="region"),
            self.cluster,
            None if config is not None else self.storage,
            clock,
            self.timers,
            self.runner,
            open_location=lambda url, create=False: opened,
            user_runner=self.user_runner,
        )

    def begin(self):
        self.scheduler.start()
        self.runner.run_all()
        self.run_attempt()
        return self

    def run_attempt(self):
        attempt = self.scheduler.attempt
        self.scheduler.on_deployed(attempt)
        self.scheduler.on_started(attempt)

    def checkpoint(self):
        answers = []
        self.scheduler.trigger_checkpoint(on_answer=answers.append)
        self.runner.run_all()
        checkpoint_id = self.scheduler.statistics().checkpoints.triggered
        for subtask in self.subtasks:
            attempt = self.scheduler.attempt_of(subtask)
            snapshot = SubtaskSnapshot()
            self.scheduler.acknowledge(attempt, subtask, checkpoint_id, snapshot, CheckpointMetrics())
        self.runner.run_all()
        return answers[0].checkpoint

    def fail(self, subtask):
        self.scheduler.on_subtask_failed(self.scheduler.attempt, subtask, FailureCause("killed", subtask))
        self.scheduler.on_all_stopped(self.scheduler.attempt)
        self.scheduler.on_region_stopped(self.scheduler.attempt)
        self.runner.run_all()
        self.timers.advance(2)
        self.runner.run_all()

    def ask(self, subtask, number):
        attempt = self.scheduler.attempt_of(subtask)
        self.cluster.take()
        self.scheduler.on_operator_event(attempt, subtask, subtask.vertex, SplitRequest(number))
        return self.events()

    def events(self):
        """Events of coordinators that were sent since, each with the attempt that it is for."""
        return [said for said in self.cluster.take() if isinstance(said[0], int)]


def test_hooks_and_coordinators_are_in_the_checkpoint_and_come_back_before_the_deployment():
    hook = Hook()
    run = Run(Hooked(CollectionSource(range(4)), hook)).begin()
    assert run.ask(READ, 1) == [(1, READ, SplitsAssigned(((0, 4),)))]
    checkpoint = run.checkpoint()
    assert [state.identifier for state in checkpoint.master_states] == ["outside"]
    assert checkpoint.operators["read"].coordinator is not None
    run.fail(READ)
    assert run.scheduler.state is JobState.DEPLOYING
    assert hook.calls == [("reset",), ("trigger", 1), ("restore", 1, {"offset": 1})]
    run.run_attempt()
    assert run.ask(READ, 1) == [(2, READ, NoMoreSplits())]


def test_an_event_of_an_older_attempt_is_ignored():
    run = Run(OnRequest(CollectionSource(range(4)))).begin()
    run.cluster.take()
    run.scheduler.on_operator_event(7, READ, "read", SplitRequest(1))
    assert run.cluster.take() == []
    assert run.scheduler.statistics().stale_events == 1


def test_a_region_that_failed_gives_its_splits_back_and_the_other_source_goes_on():
    run = Run(OnRequest(CollectionSource(range(4))), OnRequest(CollectionSource(range(9)))).begin()
    other = SubtaskId("other", 0)
    run.checkpoint()
    assert run.ask(READ, 1) == [(1, READ, SplitsAssigned(((0, 4),)))]
    assert run.ask(other, 1) == [(1, other, SplitsAssigned(((0, 9),)))]
    run.fail(READ)
    run.run_attempt()
    assert run.ask(READ, 1) == [(2, READ, SplitsAssigned(((0, 4),)))]
    assert run.ask(READ, 2) == [(2, READ, NoMoreSplits())]
    assert run.ask(other, 2) == [(1, other, NoMoreSplits())]


def test_a_source_that_is_not_there_fails_the_job_at_once():
    run = Run(OnRequest(Missing())).begin()
    run.scheduler.on_all_stopped(1)
    run.runner.run_all()
    assert run.scheduler.state is JobState.FAILED
    failure = run.scheduler.statistics().failures[0].root
    assert "operator 'read'" in failure.message
    assert "no such folder" in failure.message


def test_the_end_of_the_job_closes_its_hooks():
    hook = Hook()
    run = Run(Hooked(CollectionSource(range(4)), hook)).begin()
    run.scheduler.cancel()
    run.scheduler.on_all_stopped(1)
    run.runner.run_all()
    assert run.scheduler.state is JobState.CANCELLED
    assert hook.calls == [("reset",), ("close",)]


def test_two_hooks_of_one_name_are_refused_and_the_source_is_named():
    source = CollectionSource(range(4))
    with pytest.raises(ConfigurationError, match=r"operator 'other'.*identifier 'outside'"):
        Run(Hooked(source, Hook()), Hooked(source, Hook()))


def test_what_is_assigned_before_the_readers_are_deployed_waits_for_them():
    run = Run(Eager("a", "b"))
    run.scheduler.start()
    run.runner.run_all()
    assert run.events() == []
    run.scheduler.on_deployed(1)
    assert run.events() == [(1, READ, SplitsAssigned(("a",))), (1, READ, SplitsAssigned(("b",)))]


def test_what_waited_for_an_attempt_that_is_never_deployed_goes_to_the_next_one_once():
    run = Run(Eager("a"))
    run.scheduler.start()
    run.runner.run_all()
    run.scheduler.on_deployment_failed(1, FailureCause("no room"))
    run.scheduler.on_all_stopped(1)
    run.timers.advance(2)
    run.runner.run_all()
    run.run_attempt()
    assert run.events() == [(2, READ, SplitsAssigned(("a",)))]


def test_nothing_goes_to_a_region_that_restarts_before_it_is_deployed():
    run = Run(OnRequest(CollectionSource("a")), OnRequest(CollectionSource("xy")))
    run.scheduler.start()
    run.runner.run_next()
    run.run_attempt()
    assert run.ask(READ, 1) == [], "its splits are being listed"
    run.scheduler.on_subtask_failed(1, READ, FailureCause("killed", READ))
    assert run.ask(READ, 2) == [], "the old reader is being stopped"
    run.scheduler.on_region_stopped(1)
    run.timers.advance(2)
    listed, _, begun = range(3)
    run.runner.run_next(begun)
    run.runner.run_next(listed)
    assert run.events() == []
    run.run_attempt()
    assert run.events() == [], "the new reader has not asked"
    assert run.ask(READ, 1) == [(2, READ, SplitsAssigned(((0, 1),)))]


def test_a_split_that_is_lost_on_its_way_fails_the_region_which_gets_it_again():
    run = Run(OnRequest(CollectionSource("a")), OnRequest(CollectionSource("xy"))).begin()
    run.cluster.loses_events = True
    assert run.ask(READ, 1) == [(1, READ, SplitsAssigned(((0, 1),)))]
    assert run.scheduler.state is JobState.RESTARTING
    failure = run.scheduler.statistics().failures[0].root
    assert failure.subtask == READ
    assert "(SplitsAssigned) did not reach it: nobody is there" in failure.message
    run.cluster.loses_events = False
    run.scheduler.on_region_stopped(1)
    run.timers.advance(2)
    run.runner.run_all()
    run.run_attempt()
    assert run.ask(READ, 1) == [(2, READ, SplitsAssigned(((0, 1),)))]


def test_no_checkpoint_counts_without_a_split_that_is_lost():
    run, answers = Run(OnRequest(CollectionSource("a"))).begin(), []
    run.cluster.holds_events = True
    run.ask(READ, 1)
    run.scheduler.trigger_checkpoint(on_answer=answers.append)
    run.cluster.take()
    run.cluster.held.pop().failed(DeploymentError("nobody is there"))
    assert isinstance(answers[0], CheckpointFailed)
    assert not any(said[0] == "trigger_checkpoint" for said in run.cluster.take())
    assert run.scheduler.state is JobState.FAILING


def test_what_becomes_of_an_event_of_an_older_attempt_is_of_no_interest():
    run = Run(OnRequest(CollectionSource("a"))).begin()
    run.cluster.holds_events = True
    run.ask(READ, 1)
    run.fail(READ)
    run.run_attempt()
    run.cluster.held.pop().failed(DeploymentError("nobody is there"))
    assert run.scheduler.state is JobState.RUNNING


def test_a_reader_that_has_finished_misses_nothing_when_it_is_told_that_there_is_no_more():
    run = Run(OnRequest(CollectionSource("")), OnRequest(CollectionSource("xy"))).begin()
    run.cluster.holds_events = True
    assert run.ask(READ, 1) == [(1, READ, NoMoreSplits())]
    run.scheduler.on_subtask_finished(1, READ)
    run.cluster.held.pop().failed(DeploymentError("it has left"))
    assert run.scheduler.state is JobState.RUNNING


def test_no_attempt_is_deployed_before_an_earlier_call_of_its_hook_has_come_back():
    hook = Hook()
    run = Run(Hooked(CollectionSource(range(4)), hook), hooks_hang=True)
    run.scheduler.start()
    run.runner.run_all()
    run.user_runner.run_all()
    run.run_attempt()
    run.scheduler.trigger_checkpoint()
    run.fail(READ)
    assert hook.calls == [("reset",)]
    assert run.scheduler.state is JobState.DEPLOYING
    assert not any(said[:2] == ("deploy", 2) for said in run.cluster.take())
    run.user_runner.run_all()
    assert hook.calls == [("reset",), ("trigger", 1), ("reset",)]
    assert run.cluster.take()[-1] == ("deploy", 2, None)


def test_a_hook_that_does_not_come_back_fails_the_start_of_an_attempt():
    run = Run(Hooked(CollectionSource(range(4)), Hook()), hooks_hang=True)
    run.scheduler.start()
    run.runner.run_all()
    run.timers.advance(60)
    assert run.scheduler.state is JobState.FAILING
    message = run.scheduler.statistics().failures[0].root.message
    assert (
        "did not come back within 60 s (deployment_timeout), so they are not restored: 'outside'" in message
    )
    run.scheduler.on_all_stopped(1)
    run.timers.advance(1)
    run.user_runner.run_all()
    run.runner.run_all()
    run.user_runner.run_all()
    assert run.cluster.take()[-1] == ("deploy", 2, None)


def test_a_hook_that_can_not_restore_fails_the_attempt():
    class Broken(Hook):
        def reset(self):
            raise OSError("nobody there")

    run = Run(Hooked(CollectionSource(range(4)), Broken())).begin()
    message = run.scheduler.statistics().failures[0].root.message
    assert message == "what runs in the JobMaster could not be restored: nobody there"


def test_a_job_without_checkpoints_gives_hooks_and_enumerators_back_what_it_is_started_from():
    first = Run(Hooked(CollectionSource("abc"), Hook())).begin()
    first.ask(READ, 1)
    first.checkpoint()

    hook = Hook()
    config = JobConfig(restore_from="/jobs/job", restart=FixedDelay(3, 1), failover="full")
    run = Run(Hooked(CollectionSource("abc"), hook), config=config, opened=first.storage).begin()
    assert run.ask(READ, 1) == [(1, READ, NoMoreSplits())], "the only split is in the reader's state"
    assert hook.calls == [("restore", 1, {"offset": 1})]
    run.fail(READ)
    run.run_attempt()
    assert run.ask(READ, 1) == [(2, READ, NoMoreSplits())]
    run.scheduler.cancel()
    run.scheduler.on_all_stopped(2)
    run.runner.run_all()
    assert hook.calls == [("restore", 1, {"offset": 1})] * 2 + [("close",)]


def test_every_attempt_closes_the_enumerator_of_the_one_before():
    source = Eager("a")
    run = Run(source, config=JobConfig(restart=FixedDelay(3, 1), failover="full")).begin()
    assert source.closed == 0
    run.fail(READ)
    assert source.closed == 1
