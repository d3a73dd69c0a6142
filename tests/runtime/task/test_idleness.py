"""A subtask whose input is quiet says so, and one whose records only wait does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from subtask_setup import ScriptedSource, SubtaskSetup, rows
from work_graphs import MakeSubtask, small

from penstock import DiscardSink, GeneratorSource, StreamEnvironment, WatermarkStrategy
from penstock.connectors import Polled
from penstock.runtime.record.elements import END_OF_TIME, EndOfData, RowBatch, StreamStatus, Watermark

IDLE, ACTIVE = StreamStatus.IDLE, StreamStatus.ACTIVE
STRATEGY = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(abs).with_idleness(5)


def timed(
    before: Callable[[int], bool] = lambda n: True,
    behind: Callable[[int], Any] = lambda n: n,
    senders: int = 1,
) -> StreamEnvironment:
    """A job whose vertex `before` has channels on both sides and makes watermarks."""
    env = StreamEnvironment("job")
    numbers = env.from_source("source", GeneratorSource(lambda i: i), parallelism=senders).rebalance()
    numbers = numbers.filter(before, id="before").assign_timestamps_and_watermarks(STRATEGY)
    numbers.map(behind).rebalance().sink("sink", DiscardSink())
    return env


def sent(task: SubtaskSetup) -> list[Any]:
    return [list(e.rows) if isinstance(e, RowBatch) else e for e in task.sent[0]]


def test_idle_is_sent_when_the_time_is_over_and_active_in_front_of_the_next_records(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(timed(), "before")
    task.deliver(rows(7))
    task.wait(4.9)
    assert sent(task) == [[7], Watermark(6)]
    task.wait(0.2)
    assert sent(task)[2:] == [IDLE]
    task.wait(100)
    task.deliver(rows(8))
    task.run_freely()
    assert sent(task)[3:] == [ACTIVE, [8], Watermark(7)]


def test_an_idle_subtask_asks_for_no_alarm(make_subtask: MakeSubtask) -> None:
    task = make_subtask(timed(), "before")
    task.wait(6)
    assert sent(task) == [IDLE]
    assert task.run_freely().wake_at is None


def test_records_that_wait_when_the_subtask_wakes_up_late_are_no_idleness(make_subtask: MakeSubtask) -> None:
    task = make_subtask(timed(), "before")
    task.run_freely()
    task.clock.advance(1_000)
    task.deliver(rows(7))
    task.run_freely()
    assert sent(task) == [[7], Watermark(6)]


def test_time_without_a_credit_is_no_idleness(make_subtask: MakeSubtask) -> None:
    task = make_subtask(timed(), "before", small(buffer_rows=1, credits=1))
    task.deliver(rows(1, 2))
    task.run()
    task.clock.advance(1_000)
    task.run()
    assert task.subtask.statistics().backpressured_seconds == 1_000
    assert sent(task) == [[1]]
    task.wait(4.8)
    assert sent(task) == [[1], [2], Watermark(1)]
    task.wait(0.3)
    assert sent(task)[3:] == [IDLE]


def test_a_slow_function_is_no_idleness(make_subtask: MakeSubtask) -> None:
    tasks: list[SubtaskSetup] = []

    def slow(n: int) -> int:
        tasks[0].clock.advance(1_000)
        return n

    tasks.append(make_subtask(timed(behind=slow), "before"))
    tasks[0].deliver(rows(1), rows(2), rows(3))
    tasks[0].run_freely()
    assert IDLE not in tasks[0].events()


def test_records_that_do_not_reach_the_strategy_are_no_activity(make_subtask: MakeSubtask) -> None:
    task = make_subtask(timed(before=lambda n: n > 0), "before")
    for _ in range(12):
        task.deliver(rows(0))
        task.wait(0.5)
    assert sent(task) == [IDLE]


def test_statuses_of_the_senders_end_where_event_time_begins(make_subtask: MakeSubtask) -> None:
    task = make_subtask(timed(), "before")
    task.deliver(IDLE, ACTIVE, IDLE)
    task.run_freely()
    assert sent(task) == []


def test_an_idle_subtask_ends_like_any_other(make_subtask: MakeSubtask) -> None:
    task = make_subtask(timed(), "before")
    task.deliver(rows(7))
    task.wait(6)
    task.deliver(Watermark(END_OF_TIME), EndOfData())
    task.run_freely()
    assert sent(task)[2:] == [IDLE, Watermark(END_OF_TIME), EndOfData()]
    assert task.run_freely().wake_at is None, "no time is measured behind the end"


def test_behind_an_ended_sender_the_input_is_as_idle_as_the_others(make_subtask: MakeSubtask) -> None:
    env = StreamEnvironment("job", chaining=False)
    numbers = env.from_source("source", GeneratorSource(lambda i: i), parallelism=2)
    numbers.map(abs, parallelism=1).sink("sink", DiscardSink(), parallelism=1)
    task = make_subtask(env, "map-1")
    task.deliver(Watermark(5), IDLE, channel=0)
    task.deliver(Watermark(3), Watermark(END_OF_TIME), EndOfData(), channel=1)
    task.run_freely()
    assert sent(task) == [Watermark(3), Watermark(5), IDLE]
    task.deliver(ACTIVE, Watermark(9), channel=0)
    task.run_freely()
    assert sent(task)[3:] == [ACTIVE, Watermark(9)]


@pytest.mark.parametrize("drain", [True, False])
def test_a_job_that_is_stopped_fires_nothing_because_a_sender_has_ended(
    make_subtask: MakeSubtask, drain: bool
) -> None:
    env = StreamEnvironment("job", chaining=False)
    numbers = env.from_source("source", GeneratorSource(lambda i: i), parallelism=2)
    numbers.map(abs, parallelism=1).sink("sink", DiscardSink(), parallelism=1)
    task = make_subtask(env, "map-1")
    task.deliver(Watermark(5), IDLE, channel=0)
    task.deliver(Watermark(3), *([Watermark(END_OF_TIME)] if drain else []), EndOfData(drain, 1), channel=1)
    task.run_freely()
    assert sent(task) == [Watermark(3), *([Watermark(5), IDLE] if drain else [])]


# -- event time of sources ----------------------------------------------------------------------------------


def source_of(*script: Polled[Any]) -> StreamEnvironment:
    env = StreamEnvironment("job")
    stream = env.from_source("source", ScriptedSource(script), watermarks=STRATEGY)
    stream.rebalance().sink("sink", DiscardSink())
    return env


def test_a_source_says_that_it_is_active_in_front_of_its_records_and_how_far_it_is_behind(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(source_of(Polled(ready_at=10.0)), "source")
    task.wait(9)
    assert sent(task) == [IDLE]
    task = make_subtask(source_of(Polled(rows(7)), Polled(ready_at=20.0)), "source")
    task.wait(9)
    assert sent(task) == [[7], Watermark(6), IDLE]


def test_a_quiet_source_becomes_active_with_its_next_records(make_subtask: MakeSubtask) -> None:
    env = StreamEnvironment("job")
    # A record every ten seconds; the source counts as idle after five.
    numbers = env.from_source("source", GeneratorSource(lambda i: i, rate=0.1), watermarks=STRATEGY)
    numbers.rebalance().sink("sink", DiscardSink())
    task = make_subtask(env, "source", splits=GeneratorSource(lambda i: i).splits(1))
    task.wait(24)
    assert sent(task) == [
        [0],
        Watermark(-1),
        IDLE,
        ACTIVE,
        [1],
        Watermark(0),
        IDLE,
        ACTIVE,
        [2],
        Watermark(1),
    ]


def test_the_end_of_an_idle_source_is_the_end_of_event_time(make_subtask: MakeSubtask) -> None:
    script = [Polled(rows(7)), Polled(rows(8), finished=True)]
    task = make_subtask(source_of(*script), "source")
    task.run_freely()
    assert sent(task) == [[7], Watermark(6), [8], Watermark(END_OF_TIME), EndOfData()]


def test_the_statistics_show_the_watermark_and_the_status(make_subtask: MakeSubtask) -> None:
    task = make_subtask(source_of(Polled(rows(7)), Polled(ready_at=100.0)), "source")
    statistics = task.subtask.statistics()
    assert (statistics.current_watermark, statistics.is_idle) == (None, False)
    task.wait(9)
    statistics = task.subtask.statistics()
    assert (statistics.current_watermark, statistics.is_idle) == (6, True)
