"""States that a job's hooks give for a checkpoint, and those that they get back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.checkpoint.master_hooks import MasterHooks, UnmatchedMasterStateError
from penstock.runtime.errors import CodecError
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import MasterState


class Hook:
    """Gives the states that it was made with, one after the other."""

    def __init__(self, identifier, *states):
        self.identifier, self.states, self.calls = identifier, list(states), []

    def trigger_checkpoint(self, checkpoint_id, timestamp, answer):
        self.calls.append(("trigger", checkpoint_id, timestamp))
        for state in self.states:
            if isinstance(state, Exception):
                answer.fail(state)
            else:
                answer.complete(state)

    def restore_checkpoint(self, checkpoint_id, state):
        self.calls.append(("restore", checkpoint_id, state))

    def reset(self):
        self.calls.append(("reset",))

    def close(self):
        self.calls.append(("close",))


class Unwilling(Hook):
    def trigger_checkpoint(self, checkpoint_id, timestamp, answer):
        raise OSError("no way out")


def hooks_of(*hooks, codec=None):
    added = MasterHooks(codec)
    assert [added.add(hook) for hook in hooks] == [True] * len(hooks)
    return added


def answers(hooks, identifier, checkpoint_id=3):
    """A hook's answers for a checkpoint: states and errors, in their order."""
    said = []
    hooks.trigger(identifier, checkpoint_id, 7.5, said.append, said.append)
    return said


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
FALSY = (0, 0.0, False, "", b"", (), [], {}, set(), frozenset())


def given_and_restored(state):
    (kept,) = answers(hooks_of(Hook("outside", state)), "outside")
    again = Hook("outside")
    hooks_of(again).restore(3, [] if kept is None else [kept])
    [(_, checkpoint_id, restored)] = again.calls
    assert checkpoint_id == 3
    return kept, restored


@pytest.mark.parametrize("state", FALSY, ids=repr)
def test_a_state_that_is_falsy_is_a_state(state):
    kept, restored = given_and_restored(state)
    assert kept is not None, "it stands in the metadata, so a job without the hook is refused"
    assert (restored, type(restored)) == (state, type(state))


@given(VALUES)
def test_a_hook_gets_back_what_it_gave(state):
    _, restored = given_and_restored(state)
    assert (restored, type(restored)) == (state, type(state))


def test_none_is_no_state():
    assert given_and_restored(None) == (None, None)


def test_only_the_first_answer_counts():
    first = MasterState("outside", ValueCodec().dumps("first"))
    assert answers(hooks_of(Hook("outside", "first", "second", OSError("late"))), "outside") == [first]
    error = OSError("no answer")
    assert answers(hooks_of(Hook("outside", error, "late")), "outside") == [error]


def test_a_hook_is_triggered_with_the_checkpoint_and_its_time():
    hook, other = Hook("outside"), Hook("other")
    answers(hooks_of(hook, other), "outside", 12)
    assert (hook.calls, other.calls) == ([("trigger", 12, 7.5)], [])


def test_a_hook_that_raises_or_gives_what_no_codec_knows_fails_its_part():
    [error] = answers(hooks_of(Unwilling("outside")), "outside")
    assert str(error) == "no way out"
    refusing = hooks_of(Hook("outside", object()), codec=ValueCodec(allow_pickle=False))
    [error] = answers(refusing, "outside")
    assert isinstance(error, CodecError)


@pytest.mark.parametrize("identifier", ["", "  ", None, 7])
def test_an_identifier_is_a_name_that_is_not_blank(identifier):
    with pytest.raises(ValueError, match="a master hook has the identifier"):
        MasterHooks().add(Hook(identifier))


def test_hooks_are_known_by_their_identifiers_in_their_order():
    hooks = hooks_of(Hook("b"), Hook("a"))
    assert not hooks.add(Hook("b")), "one of its name is there"
    assert hooks.identifiers == ("b", "a")
    with pytest.raises(TypeError, match="there is no hook to add"):
        hooks.add(None)


def test_state_without_a_hook_is_refused_before_any_hook_is_called():
    hook = Hook("here")
    states = [MasterState(name, ValueCodec().dumps(name)) for name in ("gone", "here", "also gone")]
    with pytest.raises(UnmatchedMasterStateError, match="hooks that the job no longer has: also gone, gone"):
        hooks_of(hook).restore(4, states)
    assert hook.calls == []
    hooks_of(hook).restore(4, states, allow_non_restored=True)
    assert hook.calls == [("restore", 4, "here")]


def test_state_that_can_not_be_decoded_is_named_before_any_hook_is_called():
    first, second = Hook("first"), Hook("second")
    states = [MasterState("first", ValueCodec().dumps(1)), MasterState("second", b"\xc1")]
    with pytest.raises(CodecError, match="state of the master hook 'second' in checkpoint 4"):
        hooks_of(first, second).restore(4, states)
    assert first.calls == second.calls == []


def test_every_hook_is_reset_and_closed_once():
    first, second = Hook("first"), Hook("second")
    hooks = hooks_of(first, second)
    hooks.reset()
    hooks.close()
    hooks.close()
    assert first.calls == second.calls == [("reset",), ("close",)]
    assert hooks.identifiers == ()
