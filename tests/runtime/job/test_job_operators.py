"""Master hooks and source coordinators over the life of a job."""

from __future__ import annotations

import pytest
from operators_setup import READ, Eager, Hook, Hooked, Missing, Run, request

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.config.restart import FixedDelay
from penstock.runtime.errors import ConfigurationError, StorageError
from penstock.runtime.graph.collection_source import CollectionSource
from penstock.runtime.job.end_of_job import CLOSE_TIMEOUT, RETRIES
from penstock.runtime.job.job_state import JobState
from penstock.runtime.operators.source_coordinator import (
    NO_MORE_SPLITS,
    OnRequest,
    OnRequestEnumerator,
)
from penstock.runtime.snapshot.ids import SubtaskId


def test_hooks_and_coordinators_are_in_the_checkpoint_and_come_back_before_the_deployment():
    hook = Hook()
    run = Run(Hooked(CollectionSource(range(4)), hook)).begin()
    assert run.ask(READ, 1) == [(1, READ, ((0, 4),))]
    checkpoint = run.checkpoint()
    assert [state.identifier for state in checkpoint.master_states] == ["outside"]
    assert checkpoint.operators["read"].coordinator is not None
    run.fail(READ)
    assert run.scheduler.state is JobState.DEPLOYING
    assert hook.calls == [("reset",), ("trigger", 1), ("restore", 1, {"offset": 1})]
    run.run_attempt()
    assert run.ask(READ, 1) == [(2, READ, NO_MORE_SPLITS)]


def test_an_event_of_an_older_attempt_is_ignored():
    run = Run(OnRequest(CollectionSource(range(4)))).begin()
    run.cluster.take()
    run.scheduler.on_operator_event(7, READ, "read", request(1))
    assert run.cluster.take() == []


def test_a_region_that_failed_gives_its_splits_back_and_the_other_source_goes_on():
    run = Run(OnRequest(CollectionSource(range(4))), OnRequest(CollectionSource(range(9)))).begin()
    other = SubtaskId("other", 0)
    run.checkpoint()
    assert run.ask(READ, 1) == [(1, READ, ((0, 4),))]
    assert run.ask(other, 1) == [(1, other, ((0, 9),))]
    run.fail(READ)
    run.run_attempt()
    assert run.ask(READ, 1) == [(2, READ, ((0, 4),))]
    assert run.ask(READ, 2) == [(2, READ, NO_MORE_SPLITS)]
    assert run.ask(other, 2) == [(1, other, NO_MORE_SPLITS)]


def test_a_source_that_is_not_there_fails_the_job_at_once():
    run = Run(OnRequest(Missing())).begin()
    run.cluster.stopped()
    run.runner.run_all()
    assert run.scheduler.state is JobState.FAILED
    failure = run.scheduler.statistics().failures[0].root
    assert "operator 'read'" in failure.message
    assert "no such folder" in failure.message


def test_the_end_of_the_job_closes_its_hooks():
    hook = Hook()
    run = Run(Hooked(CollectionSource(range(4)), hook)).begin()
    run.scheduler.cancel()
    run.cluster.stopped()
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
    assert run.cluster.take()[-1] == ("deploy", 2, (READ,), None)


def test_a_hook_that_does_not_come_back_fails_the_start_of_an_attempt():
    run = Run(Hooked(CollectionSource(range(4)), Hook()), hooks_hang=True)
    run.scheduler.start()
    run.runner.run_all()
    run.timers.advance(300)
    assert run.scheduler.state is JobState.FAILING
    message = run.scheduler.statistics().failures[0].root.message
    assert "did not return within 300 s (deployment_timeout), so they are not restored: 'outside'" in message
    run.cluster.stopped()
    run.timers.advance(1)
    run.user_runner.run_all()
    run.runner.run_all()
    run.user_runner.run_all()
    assert run.cluster.take()[-1] == ("deploy", 2, (READ,), None)


class Broken(Hook):
    def reset(self):
        raise OSError("nobody there")


@pytest.mark.parametrize("kinds", [(Broken, Hook), (Hook, Broken), (Broken, Broken)])
def test_a_restore_has_one_outcome_although_several_hooks_end(kinds):
    hooks = [kind(name) for kind, name in zip(kinds, ("first", "second"), strict=True)]
    run = Run(*(Hooked(CollectionSource(range(4)), hook) for hook in hooks)).begin()
    outcomes = []
    run.scheduler._operators.restore(None, outcomes.append)
    run.runner.run_all()
    assert [outcome is not None and "nobody there" in outcome.message for outcome in outcomes] == [True]


def test_a_hook_that_can_not_restore_fails_the_attempt():
    run = Run(Hooked(CollectionSource(range(4)), Broken())).begin()
    message = run.scheduler.statistics().failures[0].root.message
    assert message.startswith(
        "hooks or coordinators could not be restored: "
        "operator 'read': master hook 'outside': reset failed: OSError: nobody there, at "
    )
    assert run.scheduler.statistics().failures[0].root.recoverable, "the outside may come back"


def test_a_job_without_checkpoints_gives_hooks_and_enumerators_back_what_it_is_started_from():
    first = Run(Hooked(CollectionSource("abc"), Hook())).begin()
    first.ask(READ, 1)
    first.checkpoint()

    hook = Hook()
    config = JobConfig(restart=FixedDelay(3, 1), failover="full")
    source = Hooked(CollectionSource("abc"), hook)
    run = Run(source, config=config, opened=first.storage, restore_from="/jobs/job").begin()
    assert run.ask(READ, 1) == [(1, READ, NO_MORE_SPLITS)], "the only split is in the reader's state"
    assert hook.calls == [("restore", 1, {"offset": 1})]
    run.fail(READ)
    run.run_attempt()
    assert run.ask(READ, 1) == [(2, READ, NO_MORE_SPLITS)]
    run.scheduler.cancel()
    run.cluster.stopped()
    run.runner.run_all()
    assert hook.calls == [("restore", 1, {"offset": 1})] * 2 + [("close",)]


def test_every_attempt_closes_the_enumerator_of_the_one_before():
    source = Eager("a")
    run = Run(source, config=JobConfig(restart=FixedDelay(3, 1), failover="full")).begin()
    assert source.closed == 0
    run.fail(READ)
    assert source.closed == 1


def checkpointed_then_cancelled(run):
    """The job has taken a checkpoint, is cancelled, and everything is done that can be."""
    run.checkpoint()
    assert run.files() != [], "nothing to delete: the test proves nothing"
    run.scheduler.cancel()
    run.cluster.stopped()
    run.runner.run_all()
    return run


class Unclosable(Hook):
    def close(self):
        raise OSError("the connection is gone")


def test_a_hook_whose_close_raises_is_named_and_the_checkpoints_are_deleted_all_the_same():
    closed = Hook("closed")
    sources = [Hooked(CollectionSource("abc"), hook) for hook in (Unclosable(), closed)]
    run = checkpointed_then_cancelled(Run(*sources).begin())
    assert run.scheduler.state is JobState.CANCELLED
    assert run.files() == []
    assert closed.calls[-1] == ("close",), "a hook is closed although another one can't be"
    seen = run.scheduler.statistics()
    problem = "operator 'read': master hook 'outside': close failed: OSError: the connection is gone, at "
    assert seen.warning.startswith(problem)
    assert seen.transitions[-1].cause == seen.warning


def test_an_enumerator_whose_close_raises_is_named_and_the_checkpoints_are_deleted_all_the_same():
    class UnclosableEnumerator(OnRequestEnumerator):
        def close(self):
            raise OSError("the listing goes on")

    class Source(OnRequest):
        def enumerator(self, context, state):
            return UnclosableEnumerator(CollectionSource("abc"), context, state)

    run = checkpointed_then_cancelled(Run(Source(CollectionSource("abc"))).begin())
    assert run.scheduler.state is JobState.CANCELLED
    assert run.files() == []
    assert "operator 'read': source Source: close failed: OSError: the listing goes on" in (
        run.scheduler.statistics().warning
    )


def test_a_hook_that_hangs_delays_the_end_for_a_while_but_not_the_deletions():
    run = Run(Hooked(CollectionSource("abc"), Hook()), hooks_hang=True)
    run.scheduler.start()
    run.runner.run_all()
    run.user_runner.run_all()
    run.run_attempt()
    run.scheduler.trigger_checkpoint()
    run.runner.run_all()
    run.user_runner.run_all()
    run.acknowledge(1)
    assert run.files() != [], "nothing to delete: the test proves nothing"
    run.scheduler.cancel()
    run.cluster.stopped()
    run.runner.run_all()
    assert (run.files(), run.scheduler.state) == ([], JobState.CANCELLING)
    run.timers.advance(CLOSE_TIMEOUT)
    assert run.scheduler.state is JobState.CANCELLED
    assert run.scheduler.statistics().warning == (
        "operator 'read': master hook 'outside' was not closed within 5 s: one of its calls has not returned"
    )
    run.user_runner.run_all()
    assert run.scheduler.state is JobState.CANCELLED, "its late answer changes nothing"


def test_hooks_are_closed_although_the_end_of_the_job_can_not_be_recorded():
    hook = Hook()
    run = Run(Hooked(CollectionSource("abc"), hook)).begin()
    run.storage.put = refuse
    run.scheduler.cancel()
    run.cluster.stopped()
    for _ in RETRIES:
        run.runner.run_all()
        run.timers.advance(max(RETRIES))
    run.runner.run_all()
    assert run.scheduler.state is JobState.CANCELLED
    assert "its end could not be recorded" in run.scheduler.statistics().transitions[-1].cause
    assert hook.calls[-1] == ("close",)


def refuse(*args, **kwargs):
    raise StorageError("the disk is full")


@pytest.mark.parametrize("identifier", ["", " ", "a\n", "x" * 201, None, 7])
def test_a_hook_without_a_name_is_refused_and_the_source_is_named(identifier):
    with pytest.raises(ConfigurationError, match=r"operator 'read': .*has the identifier .*: a name "):
        Run(Hooked(CollectionSource("abc"), Hook(identifier)))


def test_a_source_whose_hook_can_not_be_made_is_named():
    class Source(Hooked):
        def master_hook(self):
            raise ConnectionError("nobody listens")

    with pytest.raises(ConfigurationError, match=r"operator 'read': master_hook\(\) of source Source failed"):
        Run(Source(CollectionSource("abc"), None))
    with pytest.raises(ConfigurationError, match="object has no attribute 'identifier'"):
        Run(Hooked(CollectionSource("abc"), object()))


def test_a_state_that_can_not_be_encoded_gives_the_checkpoint_up_and_the_hook_is_named():
    class Unpicklable:
        def __reduce__(self):
            raise RuntimeError("not this one")

    class Odd(Hook):
        def trigger_checkpoint(self, checkpoint_id, timestamp):
            return Unpicklable()

    run, answers = Run(Hooked(CollectionSource("abc"), Odd())).begin(), []
    run.scheduler.trigger_checkpoint(on_answer=answers.append)
    run.runner.run_all()
    assert "the master hook 'outside' failed: CodecError" in answers[0].detail
    assert "not this one" in answers[0].detail
    assert run.scheduler.state is JobState.RUNNING
