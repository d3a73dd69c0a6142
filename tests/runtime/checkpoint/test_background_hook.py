"""A user's hook is called in the background, and never twice at a time, whatever is asked meanwhile."""

from __future__ import annotations

import pytest
from manual_work import ManualAsyncRunner

from penstock.runtime.checkpoint.master_hooks import BackgroundHook, HookOvertakenError


class Hook:
    identifier = "outside"

    def __init__(self):
        self.calls, self.error = [], None

    def trigger_checkpoint(self, checkpoint_id, timestamp):
        self.calls.append(("trigger", checkpoint_id))
        return f"state of {checkpoint_id}"

    def restore_checkpoint(self, checkpoint_id, state):
        self.calls.append(("restore", checkpoint_id, state))
        if self.error is not None:
            raise self.error

    def reset(self):
        self.calls.append(("reset",))

    def close(self):
        self.calls.append(("close",))


class Answer:
    state = error = None

    def complete(self, state):
        self.state = state

    def fail(self, error):
        self.error = error


class Run:
    def __init__(self):
        self.user, self.runner = Hook(), ManualAsyncRunner()
        self.hook = BackgroundHook(self.user, self.runner)

    def trigger(self, checkpoint_id):
        answer = Answer()
        self.hook.trigger_checkpoint(checkpoint_id, 0.0, answer)
        return answer


def test_a_call_waits_until_the_one_before_it_has_come_back():
    run = Run()
    first = run.trigger(1)
    run.hook.restore_checkpoint(1, "state of 1")
    assert run.runner.waiting == 1
    run.runner.run_next()
    assert (run.user.calls, first.state) == ([("trigger", 1)], "state of 1")
    assert run.runner.waiting == 1
    run.runner.run_next()
    assert run.user.calls[1:] == [("restore", 1, "state of 1")]
    run.hook.close()
    run.runner.run_all()
    assert run.user.calls[2:] == [("close",)]


def test_of_the_calls_behind_one_that_hangs_only_the_newest_is_made():
    run = Run()
    hanging, overtaken, newest = (run.trigger(i) for i in (1, 2, 3))
    assert isinstance(overtaken.error, HookOvertakenError)
    assert "an earlier call of the master hook 'outside' has not returned" in str(overtaken.error)
    run.runner.run_all()
    assert run.user.calls == [("trigger", 1), ("trigger", 3)]
    assert (hanging.state, newest.state) == ("state of 1", "state of 3")


def test_it_is_told_when_a_restore_is_over_and_what_it_failed_with():
    run, told = Run(), []
    run.user.error = OSError("no answer")
    run.hook.when_restored(told.append)
    assert told == [None], "nothing was to be restored"
    run.hook.restore_checkpoint(1, None)
    run.hook.when_restored(told.append)
    assert told == [None]
    assert not run.hook.is_restored
    run.runner.run_all()
    assert told == [None, run.user.error]
    run.hook.reset()
    run.runner.run_all()
    run.hook.when_restored(told.append)
    assert told[2:] == [None]


def test_a_close_that_fails_is_told_to_whoever_waits_and_raises_nothing():
    class Broken(Hook):
        def close(self):
            raise OSError("the connection is gone")

    runner, told = ManualAsyncRunner(), []
    hook = BackgroundHook(Broken(), runner)
    hook.when_closed(told.append)
    hook.close()
    assert told == []
    runner.run_all()
    [error] = told
    assert str(error) == "the connection is gone"


def test_a_hook_without_a_method_fails_over_the_call_of_it():
    class Nameless:
        identifier = "half a hook"

    runner, told = ManualAsyncRunner(), []
    hook = BackgroundHook(Nameless(), runner)
    hook.reset()
    hook.when_restored(told.append)
    runner.run_all()
    hook.close()
    hook.when_closed(told.append)
    runner.run_all()
    assert [type(error) for error in told] == [AttributeError, AttributeError]


@pytest.mark.parametrize(
    ("name", "call", "outcome"),
    [
        ("restore_checkpoint", lambda hook: hook.restore_checkpoint(1, None), BackgroundHook.when_restored),
        ("reset", BackgroundHook.reset, BackgroundHook.when_restored),
        ("close", BackgroundHook.close, BackgroundHook.when_closed),
    ],
)
def test_a_method_that_is_a_coroutine_fails_because_it_never_runs(name, call, outcome):
    async def never_runs(*arguments):
        raise AssertionError

    run, errors = Run(), []
    setattr(run.user, name, never_runs)
    call(run.hook)
    outcome(run.hook, errors.append)
    run.runner.run_all()
    [error] = errors
    assert str(error) == f"{name} is declared `async def`, so it never runs: declare it `def`"


def test_a_trigger_that_yields_declines_the_checkpoint():
    def yields(checkpoint_id, timestamp):
        yield

    run = Run()
    run.user.trigger_checkpoint = yields
    answer = run.trigger(1)
    run.runner.run_all()
    assert "trigger_checkpoint yields, so it never runs" in str(answer.error)
