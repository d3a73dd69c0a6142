"""Events between source coordinators and readers that are not there, fail or restart."""

from __future__ import annotations

from operators_setup import READ, Eager, Run

from penstock.runtime.checkpoint.coordinator.requests import CheckpointFailed
from penstock.runtime.errors import DeploymentError
from penstock.runtime.graph.collection_source import CollectionSource
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.operators.source_coordinator import NO_MORE_SPLITS, OnRequest


def test_what_is_assigned_before_the_readers_are_deployed_waits_for_them():
    run = Run(Eager("a", "b"))
    run.scheduler.start()
    run.runner.run_all()
    assert run.events() == []
    run.scheduler.on_deployed(1)
    assert run.events() == [(1, READ, ("a",)), (1, READ, ("b",))]


def test_what_waited_for_an_attempt_that_is_never_deployed_goes_to_the_next_one_once():
    run = Run(Eager("a"))
    run.scheduler.start()
    run.runner.run_all()
    run.scheduler.on_deployment_failed(1, FailureCause("no room"))
    run.cluster.stopped()
    run.timers.advance(2)
    run.runner.run_all()
    run.run_attempt()
    assert run.events() == [(2, READ, ("a",))]


def test_what_a_reader_asked_for_while_it_was_stopped_does_not_go_to_the_next_attempt():
    run = Run(OnRequest(CollectionSource(""))).begin()
    run.scheduler.on_subtask_failed(1, READ, FailureCause("killed", READ))
    assert run.ask(READ, 1) == []
    run.cluster.stopped()
    run.runner.run_all()
    run.timers.advance(2)
    run.runner.run_all()
    run.run_attempt()
    assert run.events() == []
    assert run.ask(READ, 1) == [(2, READ, NO_MORE_SPLITS)]


def test_nothing_goes_to_a_region_that_restarts_before_it_is_deployed():
    run = Run(OnRequest(CollectionSource("a")), OnRequest(CollectionSource("xy")))
    run.scheduler.start()
    run.runner.run_next()
    run.run_attempt()
    assert run.ask(READ, 1) == [], "its splits are being listed"
    run.scheduler.on_subtask_failed(1, READ, FailureCause("killed", READ))
    assert run.ask(READ, 2) == [], "the old reader is being stopped"
    run.cluster.stopped()
    run.timers.advance(2)
    listed, _, begun = range(3)
    run.runner.run_next(begun)
    run.runner.run_next(listed)
    assert run.events() == []
    run.run_attempt()
    assert run.events() == [], "the new reader has not asked"
    assert run.ask(READ, 1) == [(2, READ, ((0, 1),))]


def test_a_split_that_is_lost_on_its_way_fails_the_region_which_gets_it_again():
    run = Run(OnRequest(CollectionSource("a")), OnRequest(CollectionSource("xy"))).begin()
    run.cluster.loses_events = True
    assert run.ask(READ, 1) == [(1, READ, ((0, 1),))]
    assert run.scheduler.state is JobState.RESTARTING
    failure = run.scheduler.statistics().failures[0].root
    assert failure.subtask == READ
    lost = "an event from its operator's coordinator did not reach the subtask: nobody is there"
    assert lost in failure.message
    run.cluster.loses_events = False
    run.cluster.stopped()
    run.timers.advance(2)
    run.runner.run_all()
    run.run_attempt()
    assert run.ask(READ, 1) == [(2, READ, ((0, 1),))]


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
    assert run.ask(READ, 1) == [(1, READ, NO_MORE_SPLITS)]
    run.scheduler.on_subtask_finished(1, READ)
    run.cluster.held.pop().failed(DeploymentError("it has left"))
    assert run.scheduler.state is JobState.RUNNING
