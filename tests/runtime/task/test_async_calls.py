"""A subtask whose records wait for answers: full queues, barriers, watermarks, ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from subtask_setup import SubtaskSetup, rows
from unaligned_setup import ENDLESS, InFlight, MakeSubtask, config, in_flight, savepoint, unaligned

from penstock.operators import Operator, RowBatch
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.record.elements import (
    END_OF_TIME,
    CheckpointBarrier,
    EndOfData,
    StreamStatus,
    Watermark,
)


async def after(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


def calling(capacity: int = 2, **settings: Any) -> StreamEnvironment:
    """A job whose vertex `calls` has channels on both sides."""
    env = StreamEnvironment("job", chaining=False)
    spread = env.from_source("source", ENDLESS, parallelism=1).rebalance()
    called = spread.map_async(after, id="calls", capacity=capacity, parallelism=1, **settings)
    called.rebalance().sink("sink", DiscardSink(), parallelism=1)
    return env


@pytest.fixture
def task(make_subtask: MakeSubtask) -> SubtaskSetup:
    return make_subtask(calling(), "calls", config(credits=500))


def answer_within(task: SubtaskSetup, seconds: float) -> None:
    """Let time pass, with all answers that come meanwhile."""
    until = task.clock.monotonic() + seconds
    while True:
        task.run_freely()
        while any(loop.loop.is_ready for loop in task.loops):
            task.run_coroutines()
            task.run_freely()
        due = [at for loop in task.loops if (at := loop.loop.next_at) is not None and at <= until]
        if not due:
            break
        task.clock.advance_to(min(due))
    task.clock.advance_to(until)
    task.run_freely()


def test_full_queue_takes_no_more_records_and_the_sender_gets_no_credit(task: SubtaskSetup) -> None:
    task.deliver(rows(1, 1, 1, 1, 1), rows(2))
    answer_within(task, 0)
    assert task.rows() == []
    assert task.subtask.statistics().operators["calls"].extra["async_in_flight"] == 2
    assert task.taken == {0: 1}, "the first buffer was taken, the second one waits"
    answer_within(task, 10)
    assert task.rows() == [1, 1, 1, 1, 1, 2]


def test_aligned_barrier_behind_a_full_queue_is_taken_at_once(task: SubtaskSetup) -> None:
    task.deliver(rows(5, 5), CheckpointBarrier(1, task.clock.now()))
    answer_within(task, 0)
    task.upload()
    assert list(task.acknowledged) == [1]
    assert task.rows() == []


def test_aligned_barrier_behind_a_full_queue_and_one_waiting_is_taken_when_that_is_called(
    task: SubtaskSetup,
) -> None:
    task.deliver(rows(5, 7, 7), CheckpointBarrier(1, task.clock.now()))
    answer_within(task, 4.5)
    task.upload()
    assert task.acknowledged == {}
    answer_within(task, 1.5)
    task.upload()
    assert list(task.acknowledged) == [1]
    assert task.rows() == [5]


def test_unaligned_barrier_captures_what_waits_in_front_of_a_full_queue(task: SubtaskSetup) -> None:
    task.deliver(rows(5, 5, 6, 6), rows(7))
    answer_within(task, 0)
    task.deliver(unaligned(1))
    task.upload()
    assert list(task.acknowledged) == [1], "no answer was needed"
    assert in_flight(task, 1) == InFlight({0: [[6, 6], [7]]}, {})
    answer_within(task, 30)
    assert task.rows() == [5, 5, 6, 6, 7], "and nothing is lost here"


def test_watermark_and_status_wait_and_the_end_of_time_does_too(task: SubtaskSetup) -> None:
    task.deliver(rows(2), Watermark(10), StreamStatus.IDLE, StreamStatus.ACTIVE, Watermark(END_OF_TIME))
    answer_within(task, 1.5)
    assert task.events() == []
    answer_within(task, 1.5)
    assert task.rows() == [2]
    assert task.events() == [Watermark(10), StreamStatus.IDLE, StreamStatus.ACTIVE, Watermark(END_OF_TIME)]


def test_end_of_the_data_waits_for_the_answers(task: SubtaskSetup) -> None:
    task.deliver(rows(2), EndOfData(drain=True))
    answer_within(task, 1.5)
    assert task.ends == 0
    answer_within(task, 1.5)
    assert task.ends == 1
    assert task.rows() == [2]


@pytest.mark.parametrize("end", [[], [Watermark(END_OF_TIME)]], ids=["end", "end of time"])
def test_incomplete_batch_does_not_linger_at_the_end(make_subtask: MakeSubtask, end: list[Any]) -> None:
    async def together(numbers: list[int]) -> list[int]:
        return [10 * number for number in numbers]

    env = StreamEnvironment("job", chaining=False)
    spread = env.from_source("source", ENDLESS, parallelism=1).rebalance()
    called = spread.map_async(together, id="calls", batch=5, linger=3600, parallelism=1)
    called.rebalance().sink("sink", DiscardSink(), parallelism=1)
    task = make_subtask(env, "calls", config(credits=500))
    task.deliver(rows(1, 2))
    answer_within(task, 1)
    assert task.rows() == []
    task.deliver(*end, EndOfData(drain=True))
    answer_within(task, 1)
    assert (task.rows(), task.ends) == ([10, 20], 1)


def test_unaligned_checkpoint_can_be_taken_while_the_end_waits(task: SubtaskSetup) -> None:
    task.deliver(rows(2), EndOfData(drain=True))
    answer_within(task, 1.5)
    task.deliver(unaligned(1))
    task.upload()
    assert list(task.acknowledged) == [1]
    assert task.ends == 0
    answer_within(task, 1.5)
    assert task.ends == 1


class WithLast(Operator):
    """Passes records on, and emits one more at the end."""

    def process(self, batch: RowBatch) -> Iterator[RowBatch]:
        yield batch

    def end_of_data(self) -> Iterator[RowBatch]:
        yield RowBatch([3])


def test_no_checkpoint_is_taken_while_the_last_record_of_an_ended_operator_is_called(
    make_subtask: MakeSubtask,
) -> None:
    """After a restore from it the operator would end again, and emit that record twice."""
    env = StreamEnvironment("job")
    spread = env.from_source("source", ENDLESS, parallelism=1).rebalance()
    called = spread.transform("last", WithLast(), parallelism=1).map_async(after, id="calls", parallelism=1)
    called.rebalance().sink("sink", DiscardSink(), parallelism=1)
    task = make_subtask(env, "last", config(credits=500))
    task.deliver(rows(2), EndOfData(drain=True))
    answer_within(task, 4)
    task.deliver(unaligned(1))
    answer_within(task, 0.5)
    task.upload()
    assert (task.rows(), task.ends, task.acknowledged) == ([2], 0, {})
    answer_within(task, 1)
    task.upload()
    assert (task.rows(), task.ends, list(task.acknowledged)) == ([2, 3], 1, [1])


def test_stop_without_a_drain_does_not_wait_and_emits_nothing_more(task: SubtaskSetup) -> None:
    task.deliver(rows(2), EndOfData(drain=False, savepoint_id=1), savepoint(1))
    answer_within(task, 0)
    task.upload()
    assert list(task.acknowledged) == [1]
    answer_within(task, 10)
    assert task.rows() == []


def test_barrier_of_a_stop_waits_with_a_drain_for_the_answers(task: SubtaskSetup) -> None:
    task.deliver(rows(2), EndOfData(drain=True, savepoint_id=1), savepoint(1))
    answer_within(task, 1.5)
    task.upload()
    assert task.acknowledged == {}
    answer_within(task, 1.5)
    task.upload()
    assert list(task.acknowledged) == [1]
    assert task.rows() == [2]


def test_slices_in_front_of_calls_have_the_size_of_the_room(make_subtask: MakeSubtask) -> None:
    task = make_subtask(calling(capacity=3, ordered=False), "calls", config(credits=500))
    task.deliver(rows(*([1] * 10)))
    seen = []
    for _ in range(20):
        answer_within(task, 0.25)
        seen.append(task.subtask.statistics().operators["calls"].extra["async_in_flight"])
    assert max(seen) == 3
    assert task.rows() == [1] * 10
