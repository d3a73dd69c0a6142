"""Master hooks and source coordinators in a job: the real scheduler; subtasks are moved by hand."""

from __future__ import annotations

import pytest

from penstock.runtime.checkpoint.config import Checkpointing
from penstock.runtime.checkpoint.memory_storage import MemoryStorage
from penstock.runtime.checkpoint.snapshot import CheckpointMetrics, SubtaskId, SubtaskSnapshot
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.graph.collection_source import CollectionSource
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.graph.job_config import JobConfig
from penstock.runtime.graph.job_graph import JobGraph, JobVertex, OperatorSpec
from penstock.runtime.job.failure import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.restart import FixedDelay
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.operators.on_request import OnRequest
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


class Cluster:
    """The job's gateway; events arrive at once."""

    def __init__(self):
        self.said = []

    def __getattr__(self, name):
        return lambda *args: self.said.append((name, *args))

    def send_operator_event(self, attempt, subtask, operator_id, event, answer):
        self.said.append((attempt, subtask, event))
        answer.sent()

    def take(self):
        said, self.said = self.said, []
        return said


class Run:
    def __init__(self, *sources, parallelism=1):
        vertices = tuple(
            JobVertex(name, (OperatorSpec(name, name, None, source=source, stateful=True),), parallelism)
            for name, source in zip(("read", "other"), sources, strict=False)
        )
        clock = ManualClock()
        self.timers, self.runner = ManualTimers(clock), ManualAsyncRunner()
        self.cluster, self.storage = Cluster(), MemoryStorage()
        self.subtasks = [SubtaskId(v.id, i) for v in vertices for i in range(parallelism)]
        self.scheduler = JobScheduler(
            "job",
            build_execution_graph(JobGraph("job", vertices, ())),
            JobConfig(checkpointing=Checkpointing(every=10), restart=FixedDelay(3, 1), failover="region"),
            self.cluster,
            self.storage,
            clock,
            self.timers,
            self.runner,
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
