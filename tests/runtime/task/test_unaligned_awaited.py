"""Calls that emit so much that a checkpoint awaits their end instead of bringing them to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from subtask_setup import SubtaskSetup, rows
from unaligned_setup import (
    MakeSubtask,
    config,
    in_flight,
    reading,
    unaligned,
    working,
)

from penstock.runtime.operators.source import Polled
from penstock.runtime.record.elements import (
    CancelCheckpointMarker,
    CheckpointBarrier,
)
from penstock.runtime.task import work_in_progress
from penstock.runtime.testing.manual_time import ManualClock

# -- work that emits very much ------------------------------------------------------------------------------


def pouring(clock: ManualClock, pulled: list[int], rows_each: int) -> Callable[[int], Iterator[int]]:
    """A function that pours out so many rows for each record, slowly, so that batches of them are small."""

    def function(n: int) -> Iterator[int]:
        for i in range(n, n + rows_each):
            clock.advance(0.02)
            pulled.append(i)
            yield i

    return function


@pytest.fixture
def _little_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_in_progress, "MOST_SETTLED", 128)


def answer_until(task: SubtaskSetup, barrier: CheckpointBarrier) -> None:
    """Give credits one by one until this barrier has been sent."""
    while barrier not in task.sent[0][-8:]:
        task.answer(1)
        task.subtask.step()


@pytest.mark.usefixtures("_little_is_settled")
def test_call_that_emits_very_much_is_not_brought_to_its_end_but_awaited(make_subtask: MakeSubtask) -> None:
    clock, pulled = ManualClock(), []
    task = make_subtask(working(pouring(clock, pulled, 600), senders=1), "work", config(), clock=clock)
    task.deliver(rows(0), rows(5000))
    task.run()
    before = len(pulled)
    task.deliver(unaligned(1))
    settled = len(pulled)
    assert before < settled < before + 400, "some of it is"
    task.run()
    task.deliver(unaligned(2))
    task.run()
    assert len(pulled) == settled, "no more without credits, however many checkpoints come"
    answer_until(task, unaligned(2))
    task.upload()
    assert len(pulled) == 600, "the call ended, and no other was begun"
    captured = in_flight(task, 2)
    assert captured.inputs == {0: [[5000]]}
    assert [*task.rows(), *(n for (n,) in captured.outputs.get(0, []))] == list(range(600))
    task.run_freely()
    assert task.rows() == [*range(600), *range(5000, 5600)]


@pytest.mark.usefixtures("_little_is_settled")
def test_awaited_call_is_followed_by_the_checkpoint_and_not_by_the_next_slice(
    make_subtask: MakeSubtask,
) -> None:
    clock, pulled = ManualClock(), []
    env, settings = working(pouring(clock, pulled, 10), senders=1), config(credits=100_000)
    task = make_subtask(env, "work", settings, clock=clock)
    task.deliver(rows(*range(0, 3000, 10)))
    task.subtask.step()
    task.deliver(unaligned(1))
    assert task.events() == []
    while not task.events():
        task.subtask.step()
    task.upload()
    (rest,) = in_flight(task, 1).inputs[0]
    assert rest == list(range(2560, 3000, 10)), "the first slice has 256 rows"


@pytest.mark.usefixtures("_little_is_settled")
def test_source_whose_batch_emits_very_much_takes_its_checkpoint_behind_it(make_subtask: MakeSubtask) -> None:
    clock, pulled = ManualClock(), []
    env = reading([Polled(rows(0, 5000)), Polled(rows(9000))], pouring(clock, pulled, 600))
    task = make_subtask(env, "source", config(), clock=clock)
    task.run()
    before = len(pulled)
    for checkpoint_id in (1, 2):
        task.subtask.trigger_checkpoint(unaligned(checkpoint_id))
        task.run()
    assert before < len(pulled) < before + 400
    assert task.events() == []
    answer_until(task, unaligned(2))
    task.upload()
    assert len(pulled) == 1200
    assert list(task.acknowledged) == [1, 2]
    assert in_flight(task, 1) == in_flight(task, 2)
    sent = [*task.rows(), *(n for (n,) in in_flight(task, 1).outputs.get(0, []))]
    assert sent == [*range(600), *range(5000, 5600)]


@pytest.mark.usefixtures("_little_is_settled")
def test_awaited_checkpoint_that_is_given_up_holds_nothing_up(make_subtask: MakeSubtask) -> None:
    clock, pulled = ManualClock(), []
    task = make_subtask(working(pouring(clock, pulled, 600), senders=1), "work", config(), clock=clock)
    task.deliver(rows(0), rows(5000))
    task.run()
    task.deliver(unaligned(1))
    task.subtask.notify_checkpoint_aborted(1)
    while len(task.rows()) < 1200:
        task.answer(1)
        task.subtask.step()
    task.upload()
    assert task.rows() == [*range(600), *range(5000, 5600)]
    assert task.events() == [CancelCheckpointMarker(1)]
    assert task.acknowledged == {}
