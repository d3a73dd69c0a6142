"""Master hooks and source coordinators over the life of a job."""

from __future__ import annotations

import pytest
from operators_setup import READ, Eager, Hook, Hooked, Missing, Run

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.config.restart import FixedDelay
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.graph.collection_source import CollectionSource
from penstock.runtime.job.job_state import JobState
from penstock.runtime.operators.on_request import OnRequest
from penstock.runtime.operators.source_events import NoMoreSplits, SplitRequest, SplitsAssigned
from penstock.runtime.snapshot.subtask_id import SubtaskId


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
