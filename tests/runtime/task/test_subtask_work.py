"""Steps of a subtask: batches, slices, back pressure, flushing and waiting."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from subtask_bench import Bench, Log, LoggingSink, ScriptedSource, rows

from penstock.runtime.checkpoint.config import Checkpointing
from penstock.runtime.errors import OperatorError, StreamCorruptError
from penstock.runtime.graph.job_config import JobConfig
from penstock.runtime.graph.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.discard_sink import DiscardSink
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.network.input_channel import MissingElementsError
from penstock.runtime.operators.protocols import DeadLetter, Polled
from penstock.runtime.record.elements import (
    CheckpointBarrier,
    RowBatch,
    StreamStatus,
    Watermark,
)
from penstock.runtime.testing.manual_time import ManualClock

MakeBench = Callable[..., Bench]


def small(**more: Any) -> JobConfig:
    return JobConfig(**{"checkpointing": Checkpointing(every=1), "buffer_rows": 2, "credits": 2, **more})


def mapping(function: Callable[[Any], Any], *, senders: int = 1) -> StreamEnvironment:
    """A job whose vertex `map-1` has channels on both sides."""
    env = StreamEnvironment("job", chaining=False)
    stream = env.from_source("source", GeneratorSource(lambda i: i), parallelism=senders)
    stream.map(function, parallelism=1).sink("sink", DiscardSink(), parallelism=1)
    return env


def flattening(function: Callable[[Any], Any]) -> StreamEnvironment:
    """The same with `flat_map-1`."""
    env = StreamEnvironment("job", chaining=False)
    stream = env.from_source("source", GeneratorSource(lambda i: i))
    stream.flat_map(function).sink("sink", DiscardSink())
    return env


def reading(source: ScriptedSource, *, function: Callable[[Any], Any] | None = None) -> StreamEnvironment:
    """A job whose vertex `source` has a channel behind it."""
    env = StreamEnvironment("job")
    stream = env.from_source("source", source)
    if function is not None:
        stream = stream.map(function)
    stream.sink("sink", DiscardSink(), parallelism=2)
    return env


def test_batch_goes_through_the_operators_to_the_outputs(bench: MakeBench) -> None:
    task = bench(mapping(lambda n: n * 10), "map-1")
    task.deliver(rows(1, 2), rows(3))
    task.run_freely()
    assert task.rows() == [10, 20, 30]
    assert task.taken == {0: 2}
    statistics = task.subtask.statistics()
    assert (statistics.records_in, statistics.records_out) == (3, 3)
    assert statistics.operators["map-1"].records_in == 3
    assert statistics.bytes_out > 0


def test_nothing_to_do_means_no_more_and_no_alarm(bench: MakeBench) -> None:
    task = bench(mapping(lambda n: n), "map-1")
    result = task.subtask.step()
    assert (result.more, result.wake_at, result.finished) == (False, None, False)


def test_frames_for_a_source_are_a_bug(bench: MakeBench) -> None:
    task = bench(reading(ScriptedSource([])), "source")
    with pytest.raises(ValueError, match=r"'source' \(subtask 1 of 1\).*has no input channels"):
        task.subtask.deliver(0, 0, [])


def test_frame_for_a_channel_that_does_not_exist_is_corrupt(bench: MakeBench) -> None:
    task = bench(mapping(lambda n: n), "map-1")
    task.run()
    with pytest.raises(StreamCorruptError, match="no input channel 1"):
        task.subtask.deliver(1, 0, [])


# -- back pressure ------------------------------------------------------------------------------------------


def test_no_input_is_taken_while_an_output_has_no_credit(bench: MakeBench) -> None:
    task = bench(mapping(lambda n: n), "map-1", small())
    task.deliver(rows(*range(6)))
    task.deliver(rows(*range(6, 12)))
    task.run()
    assert task.rows() == [0, 1, 2, 3]
    assert task.taken == {0: 1}
    assert not task.subtask.step().more
    task.answer(1)
    task.run()
    assert task.rows() == list(range(8))
    assert task.taken == {0: 2}
    task.run_freely()
    assert task.rows() == list(range(12))


def test_blocked_subtask_is_woken_by_a_credit_and_not_by_the_clock(bench: MakeBench) -> None:
    task = bench(mapping(lambda n: n), "map-1", small())
    task.deliver(rows(*range(6)))
    assert task.run().wake_at is None


def test_source_that_waits_for_its_time_does_not_spin_while_an_output_has_no_credit(bench: MakeBench) -> None:
    source = ScriptedSource([Polled(rows(1, 2)), Polled(rows(3, 4)), Polled(ready_at=3.0)])
    task = bench(reading(source), "source", small(credits=1, buffer_rows=4, buffer_timeout=60.0))
    assert task.run().wake_at == 3.0
    task.trigger(1)  # closes the open buffers, for which there is no credit
    task.clock.advance(3.0)
    result = task.run()
    assert task.events() == []
    assert result.wake_at is None or result.wake_at > 3.0


def test_time_without_credit_is_counted_as_back_pressure(bench: MakeBench) -> None:
    task = bench(mapping(lambda n: n), "map-1", small())
    task.deliver(rows(*range(6)))
    task.run()
    task.clock.advance(7.0)
    task.subtask.step()
    task.answer()
    task.clock.advance(1.0)
    task.run_freely()
    task.clock.advance(100.0)
    task.subtask.step()
    assert task.subtask.statistics().backpressured_seconds == pytest.approx(8.0)


def test_output_of_another_edge_blocks_too(bench: MakeBench) -> None:
    env = StreamEnvironment("job", chaining=False)
    stream = env.from_source("source", GeneratorSource(lambda i: i)).map(lambda n: n)
    stream.sink("fast", DiscardSink())
    stream.sink("slow", DiscardSink())
    task = bench(env, "map-1", small())
    for first in range(0, 12, 2):
        task.deliver(rows(first, first + 1))
    task.run()
    fast = task.spec.outputs[0].channels[0]
    for channel, first in list(task.frames):
        if channel == fast:
            task.subtask.frame_consumed(channel, first)
    task.run()
    assert (task.rows(0), task.rows(1)) == ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3])
    assert task.taken == {0: 3}


# -- endless and slow functions -----------------------------------------------------------------------------


def test_function_without_end_is_left_when_there_is_no_credit_and_goes_on_with_one(bench: MakeBench) -> None:
    task = bench(flattening(lambda _: itertools.count()), "flat_map-1", small(buffer_rows=4096))
    task.deliver(rows("begin"))
    task.deliver(rows("never reached"))
    for expected in (3, 4, 5):
        task.run()
        assert not task.subtask.step().more
        task.answer(1)
        task.run()
        assert len(task.rows()) == expected * 4096
    assert task.rows() == list(range(5 * 4096))
    assert task.taken == {0: 1}


def test_step_ends_in_time_although_the_function_does_not(bench: MakeBench) -> None:
    clock = ManualClock()

    def endless(_: str) -> Iterator[int]:
        for number in itertools.count():
            clock.advance(0.004)
            yield number

    task = bench(flattening(endless), "flat_map-1", clock=clock)
    task.deliver(rows("begin"))
    longest = 0.0
    for _ in range(20):
        begun = clock.monotonic()
        assert task.subtask.step().more
        longest = max(longest, clock.monotonic() - begun)
        task.answer()
    assert longest <= 0.3  # the first chunk is 64 rows; they get smaller from there
    begun = clock.monotonic()
    task.subtask.step()
    assert clock.monotonic() - begun <= 0.03


@pytest.mark.parametrize("duration", [0.01, 0.05])
def test_slices_get_as_long_as_the_configuration_says(bench: MakeBench, duration: float) -> None:
    clock = ManualClock()

    def slow(n: int) -> int:
        clock.advance(0.001)
        return n

    task = bench(mapping(slow), "map-1", JobConfig(slice_duration=duration, credits=1000), clock=clock)
    task.deliver(rows(*range(1000)))
    times = []
    while task.subtask.step().more:
        times.append(clock.monotonic())
        task.answer()
    assert task.rows() == list(range(1000))
    steady = [after - before for before, after in itertools.pairwise(times[1:-2])]
    assert all(0.9 * duration <= step <= 2.1 * duration for step in steady)


def test_call_that_takes_far_too_long_is_counted(bench: MakeBench) -> None:
    clock = ManualClock()
    task = bench(mapping(lambda n: clock.advance(n)), "map-1", clock=clock)
    task.deliver(rows(0.05, 0.05), rows(0.2))
    task.run_freely()
    assert task.subtask.statistics().slice_overruns == 1
    assert task.subtask.statistics().busy_seconds == pytest.approx(0.3)


def test_time_in_which_a_function_was_left_alone_is_not_its_time(bench: MakeBench) -> None:
    clock = ManualClock()
    config = small(buffer_rows=4096, credits=1)
    task = bench(flattening(lambda n: range(n)), "flat_map-1", config, clock=clock)
    task.deliver(rows(4096 * 3))
    task.run()
    clock.advance(60.0)
    task.run_freely()
    assert len(task.rows()) == 4096 * 3
    assert task.subtask.statistics().slice_overruns == 0


def test_arrow_batches_are_processed_in_slices(bench: MakeBench) -> None:
    clock = ManualClock()
    env = StreamEnvironment("job", chaining=False)
    seen: list[int] = []

    def look(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch.num_rows)
        clock.advance(0.02)
        return batch

    stream = env.from_source("source", ScriptedSource([]))
    stream.map_batches(look, batch_format="arrow").sink("sink", DiscardSink())
    task = bench(env, "map_batches-1", clock=clock)
    task.deliver(rows(*({"n": n} for n in range(1000))))
    task.run_freely()
    assert sum(seen) == 1000
    assert len(seen) > 3


# -- flushing -----------------------------------------------------------------------------------------------


def test_records_leave_at_once_when_the_channel_is_idle(bench: MakeBench) -> None:
    task = bench(mapping(lambda n: n), "map-1", small(buffer_rows=100))
    task.deliver(rows(1))
    task.subtask.step()
    assert task.rows() == [1]


def test_records_behind_others_leave_when_the_buffer_timeout_is_over(bench: MakeBench) -> None:
    task = bench(mapping(lambda n: n), "map-1", small(buffer_rows=100, buffer_timeout=0.5))
    task.deliver(rows(1))
    task.run()
    task.clock.advance(1.0)
    task.deliver(rows(2))
    assert task.run().wake_at == 1.5
    task.clock.advance(0.4)
    task.deliver(rows(3))
    assert task.run().wake_at == 1.5
    assert task.rows() == [1]
    task.clock.advance(0.1)
    assert task.run().wake_at is None
    assert task.rows() == [1, 2, 3]


def test_records_behind_others_leave_when_those_are_consumed(bench: MakeBench) -> None:
    task = bench(mapping(lambda n: n), "map-1", small(buffer_rows=100))
    task.deliver(rows(1), rows(2))
    task.run()
    task.answer(1)
    assert task.rows() == [1, 2]
    assert task.run().wake_at is None


def test_buffer_timeout_of_nothing_lets_nothing_wait(bench: MakeBench) -> None:
    task = bench(mapping(lambda n: n), "map-1", small(buffer_rows=100, buffer_timeout=0.0, credits=9))
    for n in range(5):
        task.deliver(rows(n))
    task.run()
    task.subtask.step()
    assert task.rows() == [0, 1, 2, 3, 4]


# -- sources ------------------------------------------------------------------------------------------------


def test_source_says_when_it_wants_to_be_asked_again(bench: MakeBench) -> None:
    source = ScriptedSource([Polled(rows(1)), Polled(ready_at=9.0)])
    task = bench(reading(source), "source")
    assert task.run_freely().wake_at == 9.0


def test_source_that_does_not_say_when_is_asked_again_soon(bench: MakeBench) -> None:
    task = bench(reading(ScriptedSource([Polled()])), "source")
    wake_at = task.run().wake_at
    assert wake_at is not None
    assert 0 < wake_at <= 0.1


def test_records_that_could_not_be_read_go_to_the_side_output(bench: MakeBench) -> None:
    letter = DeadLetter("?", "not a number", "file:1")
    source = ScriptedSource([Polled(rows(1), [letter]), Polled(dead_letters=[letter])])
    env = StreamEnvironment("job")
    stream = env.from_source("source", source)
    stream.dead_letters().sink("bad", DiscardSink(), parallelism=2)
    stream.map(lambda n: n, parallelism=2).sink("good", DiscardSink())
    task = bench(env, "source")
    task.run_freely()
    sent = [row for channel in range(4) for row in task.rows(channel)]
    assert sorted(map(str, sent)) == sorted(map(str, [letter, letter, 1]))


def test_side_output_that_nobody_reads_is_dropped(bench: MakeBench) -> None:
    task = bench(reading(ScriptedSource([Polled(rows(1), [DeadLetter("?", "", "")])])), "source")
    task.run_freely()
    assert task.rows(0) + task.rows(1) == [1]


# -- event time ---------------------------------------------------------------------------------------------


def test_watermark_goes_on_when_all_channels_have_reached_it(bench: MakeBench) -> None:
    task = bench(mapping(lambda n: n, senders=2), "map-1")
    task.deliver(rows(1), Watermark(10), channel=0)
    task.run_freely()
    assert task.events() == []
    task.deliver(Watermark(7), rows(2), channel=1)
    task.run_freely()
    assert task.events() == [Watermark(7)]
    assert task.taken == {0: 2, 1: 2}


def test_idleness_goes_on_when_all_channels_are_idle(bench: MakeBench) -> None:
    task = bench(mapping(lambda n: n, senders=2), "map-1")
    task.deliver(Watermark(5), channel=1)
    task.deliver(StreamStatus.IDLE, channel=0)
    task.run_freely()
    task.deliver(StreamStatus.IDLE, channel=1)
    task.deliver(StreamStatus.ACTIVE, channel=0)
    task.run_freely()
    assert task.events() == [Watermark(5), StreamStatus.IDLE, StreamStatus.ACTIVE]


# -- what fails ---------------------------------------------------------------------------------------------


def test_failing_function_fails_the_step_and_names_the_operator(bench: MakeBench) -> None:
    task = bench(mapping(lambda n: 1 // n), "map-1")
    task.deliver(rows(1, 0))
    with pytest.raises(OperatorError, match=r"'map-1' \(subtask 1 of 1\).*ZeroDivisionError.*record 0"):
        task.run()


def test_missing_frame_is_waited_for_and_then_fails_the_step(bench: MakeBench) -> None:
    task = bench(mapping(lambda n: n), "map-1", small(gap_timeout=20.0))
    task.subtask.deliver(0, 5, [b""])
    assert task.run().wake_at == 20.0
    task.clock.advance(20.0)
    with pytest.raises(MissingElementsError, match="element 0 has not arrived"):
        task.subtask.step()


def test_frame_that_comes_twice_is_answered_twice_and_processed_once(bench: MakeBench) -> None:
    task = bench(mapping(lambda n: n), "map-1")
    task.deliver(rows(1))
    task.run_freely()
    task.taken.clear()
    task.subtask.deliver(0, 0, [b"the same again"])
    assert task.taken == {0: 1}
    task.run_freely()
    assert task.rows() == [1]


@pytest.mark.parametrize("record", [lambda: 0, object()], ids=["function", "object"])
def test_record_that_can_not_be_sent_is_the_fault_of_the_source_that_made_it(
    bench: MakeBench, record: Any
) -> None:
    config = small(allow_pickle=False, buffer_rows=1)
    task = bench(reading(ScriptedSource([Polled(rows(record))])), "source", config)
    with pytest.raises(OperatorError, match=r"'source' \(subtask 1 of 1\).*sending its output"):
        task.run_freely()


def test_record_that_can_not_be_sent_is_the_fault_of_its_operator_also_when_the_buffer_is_closed_later(
    bench: MakeBench,
) -> None:
    config = small(allow_pickle=False, buffer_rows=100, buffer_timeout=1.0)
    script = [Polled(rows(1, 2)), Polled(rows(object(), object())), Polled(ready_at=9.0)]
    source = ScriptedSource(script)
    task = bench(reading(source), "source", config)
    task.run()
    task.clock.advance(1.0)
    with pytest.raises(OperatorError, match=r"'source' \(subtask 1 of 1\).*sending its output"):
        task.run()


def test_failing_key_function_behind_a_source_names_the_source(bench: MakeBench) -> None:
    env = StreamEnvironment("job", parallelism=2)
    stream = env.from_source("source", ScriptedSource([Polled(rows("a", "b"))]))
    stream.key_by(lambda row: row["id"]).reduce("r", lambda a, b: a).sink("sink", DiscardSink())
    task = bench(env, "source")
    with pytest.raises(OperatorError, match=r"'source' \(subtask 1 of 2\).*TypeError.*test_subtask_work"):
        task.run()


def test_barrier_in_front_of_a_batch_is_taken_first_although_that_takes_the_last_credit(
    bench: MakeBench, log: Log
) -> None:
    config = small(buffer_rows=3, credits=1, buffer_timeout=60.0)
    task = bench(mapping(lambda n: n), "map-1", config)
    task.deliver(rows(1))  # leaves at once and takes the credit
    task.deliver(rows(2))  # waits in the open buffer
    task.run()
    barrier = CheckpointBarrier(1, 0.0)
    task.deliver(barrier, rows(*range(3, 9)), rows(9))
    task.run()
    assert task.rows() == [1]
    assert task.taken == {0: 4}, "one batch was taken with the barrier, the next one waits"
    task.run_freely()
    assert task.sent[0][:3] == [RowBatch([1]), RowBatch([2]), barrier]
    assert task.rows() == list(range(1, 10))


def test_sink_takes_everything_as_it_has_no_outputs(bench: MakeBench, log: Log) -> None:
    env = StreamEnvironment("job", chaining=False)
    env.from_source("source", GeneratorSource(lambda i: i)).sink("sink", LoggingSink(log))
    task = bench(env, "sink")
    for n in range(100):
        task.deliver(rows(n))
    task.run()
    assert task.subtask.statistics().operators["sink"].records_in == 100
