"""Alignments that turn unaligned when they take too long."""

from __future__ import annotations

from subtask_setup import rows
from unaligned_setup import (
    NOTHING,
    PATIENCE,
    InFlight,
    MakeSubtask,
    as_it_is,
    config,
    in_flight,
    patient,
    reading,
    turned,
    working,
)

from penstock.runtime.operators.source import Polled

# -- patience -----------------------------------------------------------------------------------------------


def test_alignment_that_takes_too_long_turns_unaligned_at_the_time_that_the_step_named(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(working(as_it_is), "work", config(PATIENCE))
    task.deliver(patient(1), channel=0)
    task.deliver(rows("a"), channel=1)
    result = task.run_freely()
    assert result.wake_at == task.clock.monotonic() + PATIENCE
    assert task.rows() == ["a"]
    assert task.events() == []
    task.clock.advance(PATIENCE)
    task.deliver(rows("b"), channel=1)
    task.subtask.step()
    assert task.sent[0][1] == turned(1), "before anything that waits is taken"
    task.deliver(patient(1), channel=1)
    task.upload()
    assert in_flight(task, 1) == InFlight({1: [["b"]]}, {})


def test_alignment_that_is_quick_holds_nothing_in_flight_and_leaves_no_alarm(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(working(as_it_is), "work", config(PATIENCE))
    task.deliver(rows("a"), patient(1), channel=0)
    task.deliver(rows("b"), patient(1), channel=1)
    result = task.run_freely()
    task.upload()
    assert in_flight(task, 1) == NOTHING
    assert task.sent[0][-1] == patient(1)
    assert result.wake_at is None


def test_sender_that_lost_its_patience_turns_the_alignment_here(make_subtask: MakeSubtask) -> None:
    task = make_subtask(working(as_it_is), "work", config(PATIENCE))
    task.deliver(patient(1), channel=0)
    task.deliver(rows("a"), channel=1)
    task.deliver(turned(1), channel=1)
    assert task.sent[0] == [turned(1)]
    task.upload()
    assert in_flight(task, 1) == InFlight({1: [["a"]]}, {})


def test_barrier_that_waits_in_the_outputs_overtakes_when_its_patience_is_over(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(reading([Polled(rows(0, 10))], lambda n: [n, n + 1]), "source", config(PATIENCE))
    task.run()
    task.subtask.trigger_checkpoint(patient(1))
    result = task.run()
    task.upload()
    assert task.acknowledged == {}, "it may still grow"
    assert result.wake_at == task.clock.monotonic() + PATIENCE
    task.clock.advance(PATIENCE)
    task.subtask.step()
    task.upload()
    assert task.sent[0][-1] == turned(1)
    assert in_flight(task, 1) == InFlight({}, {0: [[10], [11]]})


def test_barrier_that_leaves_the_outputs_in_its_turn_ends_its_checkpoint_in_the_next_step(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(reading([Polled(rows(0, 10))], lambda n: [n, n + 1]), "source", config(PATIENCE))
    task.run()
    task.subtask.trigger_checkpoint(patient(1))
    task.run()
    task.upload()
    result = task.run_freely()
    task.upload()
    assert in_flight(task, 1) == NOTHING
    assert result.wake_at is None or result.wake_at < task.clock.monotonic() + PATIENCE
