"""The steps in which a checkpoint starts; Flink's own cases are in `tests/conformance`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from masters_setup import A, B, World

from penstock.runtime.checkpoint.coordinator.requests import CheckpointSucceeded
from penstock.runtime.checkpoint.master_hooks import UnmatchedMasterStateError
from penstock.runtime.checkpoint.operator_coordinators.operator_coordinators import (
    UnmatchedCoordinatorStateError,
)
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.graph.job_graph import (
    JobEdge,
    Partitioner,
    Partitioning,
)
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.handles import InlineHandle
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.metadata import read_metadata


def test_coordinators_come_first_then_hooks_then_the_sources_and_the_valves_open():
    world = World(hooks={"outside": {}})
    world.ask()
    assert world.take() == [("coordinator a", 1), ("coordinator b", 1), ("hook outside", 1), ("trigger", 1)]
    assert world.open_valves()
    world.acknowledge(1)
    assert world.take() == [("complete", 1), ("complete a", 1), ("complete b", 1)]


def test_states_of_hooks_and_coordinators_are_in_the_metadata_and_come_back():
    world = World(hooks={"outside": {"state": ("file", 7)}, "stateless": {}})
    world.ask()
    world.acknowledge(1)
    stored = read_metadata(world.storage, world.store.latest.metadata)
    assert stored.operators["a"].coordinator == InlineHandle(b"state of a")
    assert [state.identifier for state in stored.master_states] == ["outside"]
    assert stored.size == sum(len(s) for s in (b"state of a", b"state of b", stored.master_states[0].data))
    again = World(hooks={"outside": {}, "new": {}})
    again.restore(stored)
    again.runner.run_all()
    assert again.hooks._hooks["outside"]._hook.restored == [(1, ("file", 7))]
    assert again.hooks._hooks["new"]._hook.restored == [(1, None)]
    assert again.coordinators["b"].restored == [(1, b"state of b")]
    with pytest.raises(UnmatchedMasterStateError, match="hooks that the job no longer has: outside"):
        World().restore(stored)


def test_no_hook_is_restored_when_the_state_of_a_coordinator_does_not_fit():
    world = World(hooks={"outside": {"state": 1}})
    world.ask()
    world.acknowledge(1)
    stored = read_metadata(world.storage, world.store.latest.metadata)
    again = World(hooks={"outside": {}})
    stored = replace(stored, operators={**stored.operators, "gone": stored.operators["a"]})
    with pytest.raises(UnmatchedCoordinatorStateError, match="without a coordinator in this job: gone"):
        again.restore(stored)
    again.runner.run_all()
    assert again.hooks._hooks["outside"]._hook.restored == []


@pytest.mark.parametrize("state", [0, "", {}, False, b""], ids=repr)
def test_a_falsy_state_of_a_hook_is_in_the_metadata_and_comes_back(state):
    world = World(hooks={"outside": {"state": state}})
    world.ask()
    world.acknowledge(1)
    stored = read_metadata(world.storage, world.store.latest.metadata)
    again = World(hooks={"outside": {}})
    again.restore(stored)
    again.runner.run_all()
    [(_, restored)] = again.hooks._hooks["outside"]._hook.restored
    assert (restored, type(restored)) == (state, type(state))
    with pytest.raises(UnmatchedMasterStateError):
        World().restore(stored)


def test_whoever_reaches_the_end_of_its_data_during_the_start_is_told_with_the_sources():
    forward = JobEdge("a", "a", None, "b", 0, Partitioner(Partitioning.FORWARD))
    world = World(hooks={"outside": {}}, edges=(forward,))
    world.coordinator.trigger()
    world.coordinator.data_ended(B)
    assert world.told == [], "the hook has not done its part"
    world.runner.run_all()
    assert world.told == [(A, B)]


def test_checkpoint_that_every_subtask_began_by_itself_completes_with_the_start():
    world = World(hooks={"outside": {}})
    world.coordinator.trigger(on_answer=world.answers.append)
    for subtask in (A, B):
        world.coordinator.acknowledge(1, subtask, 1)
    assert world.answers == [], "the hook has not done its part"
    world.runner.run_all()
    assert isinstance(world.answers[0], CheckpointSucceeded)


@pytest.mark.parametrize("failing", ["a", "b", "outside"])
def test_a_start_that_fails_is_given_up_and_leaves_no_valve_shut(failing):
    world = World(hooks={"outside": {"error": OSError("no answer")} if failing == "outside" else {}})
    if failing != "outside":
        world.coordinators[failing].error = OSError("no answer")
    world.ask()
    [answer] = world.answers
    assert answer.reason is Reason.TRIGGER_CHECKPOINT_FAILURE
    assert failing in answer.detail
    assert "OSError: no answer" in answer.detail
    said = world.take()
    assert ("trigger", 1) not in said
    assert ("aborted", 1) in said
    assert world.open_valves()
    assert not world.coordinator.is_triggering
    for coordinator in world.coordinators.values():
        coordinator.error = None
    world.coordinators["a"].is_slow = False
    world.hooks._hooks["outside"]._hook.error = None
    world.ask()
    world.acknowledge(2)
    assert isinstance(world.answers[-1], CheckpointSucceeded)


def test_a_request_waits_while_another_one_is_being_started():
    world = World()
    world.coordinators["b"].is_slow = True
    world.ask()
    world.ask()
    assert world.coordinator.is_triggering
    assert world.coordinator.statistics().queued == 1
    world.coordinators["b"].answer()
    assert world.take()[-3:] == [("trigger", 1), ("coordinator a", 2), ("coordinator b", 2)]


def test_a_checkpoint_that_expires_in_its_start_never_reaches_a_subtask():
    world = World(timeout=5)
    world.coordinators["a"].is_slow = True
    world.ask()
    world.timers.advance(5)
    assert "it waited for the coordinator of a, a[0], b[0]" in world.answers[0].detail
    assert world.open_valves()
    assert not world.coordinator.is_triggering
    world.take()
    world.coordinators["a"].answer()
    assert world.take() == []
    assert world.open_valves()


def test_expired_checkpoint_names_five_of_those_that_it_waited_for_and_first_who_kept_the_others_waiting():
    world = World(hooks={"north": {}, "south": {}}, timeout=5)
    for coordinator in world.coordinators.values():
        coordinator.is_slow = True
    world.ask()
    world.timers.advance(5)
    assert world.answers[0].detail.endswith(
        "it waited for the coordinator of a, the coordinator of b, "
        "the master hook north, the master hook south, a[0] and 1 more"
    )


def test_expired_checkpoint_that_waited_for_five_names_them_all():
    world = World(hooks={"north": {}}, timeout=5)
    for coordinator in world.coordinators.values():
        coordinator.is_slow = True
    world.ask()
    world.timers.advance(5)
    assert world.answers[0].detail.endswith("the master hook north, a[0], b[0]")


def test_where_an_abort_does_not_end_a_start_the_next_answer_does():
    world = World(timeout=5, semantics=Semantics(abort_ends_start=False))
    world.coordinators["a"].is_slow = True
    world.ask()
    world.timers.advance(5)
    assert world.coordinator.is_triggering
    assert not world.open_valves()
    world.coordinators["a"].answer()
    assert not world.coordinator.is_triggering
    assert world.open_valves()


def test_where_an_abort_does_not_end_a_start_a_new_attempt_does():
    world = World(semantics=Semantics(abort_ends_start=False))
    world.coordinators["a"].is_slow = True
    world.ask()
    world.coordinator.end_attempt()
    assert world.coordinator.is_triggering
    world.coordinator.begin_attempt(2, world.store, -1)
    assert not world.coordinator.is_triggering
    assert world.open_valves()
    assert [answer.reason for answer in world.answers] == [Reason.JOB_FAILURE]
    assert world.coordinator.statistics().refused == 0, "it became a checkpoint"


def test_coordinators_are_notified_of_a_checkpoint_that_was_aborted():
    world = World()
    world.ask()
    world.take()
    world.coordinator.decline(1, A, 1)
    assert world.take() == [("aborted", 1), ("aborted a", 1), ("aborted b", 1)]


def test_a_hook_that_never_answers_costs_its_checkpoints_and_holds_nothing_back():
    world = World(hooks={"outside": {}}, timeout=5, tolerable_failures=1)
    for _ in range(2):
        world.coordinator.trigger(on_answer=world.answers.append)
    assert world.coordinator.statistics().queued == 1
    world.timers.advance(5)
    [answer] = world.answers
    assert answer.reason is Reason.CHECKPOINT_EXPIRED
    assert "the master hook outside" in answer.detail
    assert world.coordinator.pending_ids == (2,), "the queue goes on"
    assert world.coordinator.statistics().failures_in_a_row == 1
    world.timers.advance(5)
    assert world.open_valves()
    assert not world.coordinator.is_triggering
    [failed] = [said for said in world.take() if said[0] == "fail_job"]
    assert "checkpoint 2 failed (checkpoint_expired)" in failed[1]


def test_an_answer_of_a_hook_that_comes_too_late_does_not_count_for_the_next_checkpoint():
    world = World(hooks={"outside": {}}, timeout=5, tolerable_failures=1)
    world.coordinator.trigger(on_answer=world.answers.append)
    world.timers.advance(5)
    world.coordinator.trigger(on_answer=world.answers.append)
    world.take()
    world.runner.run_next()
    assert world.take() == [("hook outside", 1)], "the second call waits for the first"
    world.runner.run_next()
    assert world.take() == [("hook outside", 2), ("trigger", 2)]
    world.acknowledge(2)
    assert isinstance(world.answers[-1], CheckpointSucceeded)


def test_a_new_attempt_forgets_what_was_being_started():
    world = World()
    world.coordinators["a"].is_slow = True
    world.ask()
    late = world.coordinators["a"].open[0]
    world.coordinator.end_attempt(Reason.JOB_FAILURE, "b[0] failed")
    world.coordinator.begin_attempt(2, world.store, -1)
    world.restore(None)
    assert not world.coordinator.is_triggering
    world.coordinators["a"].is_slow = False
    world.coordinator.started()
    world.take()
    world.ask()
    late.complete(b"of the last attempt")
    assert world.take() == [("coordinator a", 2), ("coordinator b", 2), ("trigger", 2)]
    assert [answer.reason for answer in world.answers] == [Reason.JOB_FAILURE]


def test_a_decline_gives_the_checkpoint_up_whoever_says_so():
    world = World()
    world.ask()
    world.coordinator.decline(1, SubtaskId("nobody", 0), 1)
    assert world.coordinator.pending_ids == ()


def test_only_a_failed_subtask_that_is_still_missing_gives_a_checkpoint_up():
    world = World()
    world.ask()
    world.ask()
    world.coordinator.acknowledge(1, A, 1)
    world.coordinator.subtask_failed(A, "killed")
    assert world.coordinator.pending_ids == (1,)
    assert world.answers[0].reason is Reason.TASK_FAILURE


@pytest.mark.parametrize("kind", [SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT])
def test_only_a_synchronous_savepoint_may_advance_to_the_end_of_time(kind):
    with pytest.raises(ValueError, match=f"a {kind.value} can't advance the watermark to the end of time"):
        World().ask(kind=kind, drain=True)
    World().ask(kind=SnapshotKind.SYNC_SAVEPOINT, drain=True)


def test_the_end_of_the_job_closes_hooks_once():
    world = World(hooks={"outside": {}})
    world.coordinator.end_attempt()
    world.coordinator.end_job("finished")
    world.coordinator.end_job("finished")
    world.runner.run_all()
    assert world.take() == [("close outside",)]


@given(
    st.lists(
        st.sampled_from(
            ["ask", "answer a", "answer b", "fail a", "work", "expire", "decline", "stop", "end", "ack"]
        ),
        max_size=40,
    )
)
def test_no_valve_stays_shut_and_every_request_is_answered_once(steps):
    world, asked = World(hooks={"outside": {}}, timeout=5), 0
    for coordinator in world.coordinators.values():
        coordinator.is_slow = True
    for step in steps:
        match step.split():
            case ["ask"]:
                asked += 1
                world.coordinator.trigger(on_answer=world.answers.append)
            case ["answer" | "fail" as how, name]:
                coordinator = world.coordinators[name]
                coordinator.error = OSError("no") if how == "fail" else None
                if coordinator.open:
                    coordinator.answer()
            case ["work"]:
                world.runner.run_next()
            case ["expire"]:
                world.timers.advance(5)
            case ["decline"]:
                for checkpoint_id in world.coordinator.pending_ids[:1]:
                    world.coordinator.decline(1, A, checkpoint_id)
            case ["stop"]:
                world.coordinator.stop_periodic()
            case ["ack"]:
                for checkpoint_id in world.coordinator.pending_ids[:1]:
                    world.acknowledge(checkpoint_id)
            case ["end"]:
                world.coordinator.end_attempt()
        if not world.coordinator.is_triggering:
            assert world.open_valves()
    world.coordinator.end_attempt()
    for _ in range(2 * asked + 2):
        for coordinator in world.coordinators.values():
            coordinator.error = None
            while coordinator.open:
                coordinator.answer()
        world.runner.run_all()
    assert world.open_valves()
    assert not world.coordinator.is_triggering
    assert len(world.answers) == asked
