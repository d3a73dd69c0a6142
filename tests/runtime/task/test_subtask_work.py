"""Steps of a subtask: batches, sources, event time and failures."""

from __future__ import annotations

from typing import Any

import pytest
from subtask_setup import Log, LoggingSink, ScriptedSource, rows
from work_graphs import MakeSubtask, mapping, reading, small

from penstock.runtime.errors import OperatorError, StreamCorruptError
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.network.input_channel import MissingElementsError
from penstock.runtime.operators.source import DeadLetter, Polled
from penstock.runtime.record.elements import (
    CheckpointBarrier,
    RowBatch,
    StreamStatus,
    Watermark,
)


def test_batch_goes_through_the_operators_to_the_outputs(make_subtask: MakeSubtask) -> None:
    task = make_subtask(mapping(lambda n: n * 10), "map-1")
    task.deliver(rows(1, 2), rows(3))
    task.run_freely()
    assert task.rows() == [10, 20, 30]
    assert task.taken == {0: 2}
    statistics = task.subtask.statistics()
    assert (statistics.records_in, statistics.records_out) == (3, 3)
    assert statistics.operators["map-1"].records_in == 3
    assert statistics.bytes_out > 0
    assert statistics.bytes_in > 0


def test_nothing_to_do_means_no_more_and_no_alarm(make_subtask: MakeSubtask) -> None:
    task = make_subtask(mapping(lambda n: n), "map-1")
    result = task.subtask.step()
    assert (result.more, result.wake_at, result.finished) == (False, None, False)


def test_frames_for_a_source_are_a_bug(make_subtask: MakeSubtask) -> None:
    task = make_subtask(reading(ScriptedSource([])), "source")
    with pytest.raises(ValueError, match=r"'source' \(subtask 1 of 1\).*has no input channels"):
        task.subtask.deliver(0, 0, [])


def test_frame_for_a_channel_that_does_not_exist_is_corrupt(make_subtask: MakeSubtask) -> None:
    task = make_subtask(mapping(lambda n: n), "map-1")
    task.run()
    with pytest.raises(StreamCorruptError, match="no input channel 1"):
        task.subtask.deliver(1, 0, [])


# -- sources ------------------------------------------------------------------------------------------------


def test_source_says_when_it_wants_to_be_asked_again(make_subtask: MakeSubtask) -> None:
    source = ScriptedSource([Polled(rows(1)), Polled(ready_at=9.0)])
    task = make_subtask(reading(source), "source")
    assert task.run_freely().wake_at == 9.0


def test_source_that_does_not_say_when_is_asked_again_soon(make_subtask: MakeSubtask) -> None:
    task = make_subtask(reading(ScriptedSource([Polled()])), "source")
    wake_at = task.run().wake_at
    assert wake_at is not None
    assert 0 < wake_at <= 0.1


def test_records_that_could_not_be_read_go_to_the_side_output(make_subtask: MakeSubtask) -> None:
    letter = DeadLetter("?", "not a number", "file:1")
    source = ScriptedSource([Polled(rows(1), [letter]), Polled(dead_letters=[letter])])
    env = StreamEnvironment("job")
    stream = env.from_source("source", source)
    stream.dead_letters().sink("bad", DiscardSink(), parallelism=2)
    stream.map(lambda n: n, parallelism=2).sink("good", DiscardSink())
    task = make_subtask(env, "source")
    task.run_freely()
    sent = [row for channel in range(4) for row in task.rows(channel)]
    assert sorted(map(str, sent)) == sorted(map(str, [letter, letter, 1]))


def test_side_output_that_nobody_reads_is_dropped(make_subtask: MakeSubtask) -> None:
    task = make_subtask(reading(ScriptedSource([Polled(rows(1), [DeadLetter("?", "", "")])])), "source")
    task.run_freely()
    assert task.rows(0) + task.rows(1) == [1]


# -- event time ---------------------------------------------------------------------------------------------


def test_watermark_goes_on_when_all_channels_have_reached_it(make_subtask: MakeSubtask) -> None:
    task = make_subtask(mapping(lambda n: n, senders=2), "map-1")
    task.deliver(rows(1), Watermark(10), channel=0)
    task.run_freely()
    assert task.events() == []
    task.deliver(Watermark(7), rows(2), channel=1)
    task.run_freely()
    assert task.events() == [Watermark(7)]
    assert task.taken == {0: 2, 1: 2}


def test_idleness_goes_on_when_all_channels_are_idle(make_subtask: MakeSubtask) -> None:
    task = make_subtask(mapping(lambda n: n, senders=2), "map-1")
    task.deliver(Watermark(5), channel=1)
    task.deliver(StreamStatus.IDLE, channel=0)
    task.run_freely()
    task.deliver(StreamStatus.IDLE, channel=1)
    task.deliver(StreamStatus.ACTIVE, channel=0)
    task.run_freely()
    assert task.events() == [Watermark(5), StreamStatus.IDLE, StreamStatus.ACTIVE]


# -- what fails ---------------------------------------------------------------------------------------------


def test_failing_function_fails_the_step_and_names_the_operator(make_subtask: MakeSubtask) -> None:
    task = make_subtask(mapping(lambda n: 1 // n), "map-1")
    task.deliver(rows(1, 0))
    with pytest.raises(OperatorError, match=r"'map-1' \(subtask 1 of 1\).*ZeroDivisionError.*record 0"):
        task.run()


def test_missing_frame_is_waited_for_and_then_fails_the_step(make_subtask: MakeSubtask) -> None:
    task = make_subtask(mapping(lambda n: n), "map-1", small(gap_timeout=20.0))
    task.subtask.deliver(0, 5, [b""])
    assert task.run().wake_at == 20.0
    task.clock.advance(20.0)
    with pytest.raises(MissingElementsError, match="element 0 has not arrived"):
        task.subtask.step()


def test_frame_that_comes_twice_is_answered_twice_and_processed_once(make_subtask: MakeSubtask) -> None:
    task = make_subtask(mapping(lambda n: n), "map-1")
    task.deliver(rows(1))
    task.run_freely()
    task.taken.clear()
    task.subtask.deliver(0, 0, [b"the same again"])
    assert task.taken == {0: 1}
    task.run_freely()
    assert task.rows() == [1]


@pytest.mark.parametrize("record", [lambda: 0, object()], ids=["function", "object"])
def test_record_that_can_not_be_sent_is_the_fault_of_the_source_that_made_it(
    make_subtask: MakeSubtask, record: Any
) -> None:
    config = small(allow_pickle=False, buffer_rows=1)
    task = make_subtask(reading(ScriptedSource([Polled(rows(record))])), "source", config)
    with pytest.raises(OperatorError, match=r"'source' \(subtask 1 of 1\).*sending its output"):
        task.run_freely()


def test_record_that_can_not_be_sent_is_the_fault_of_its_operator_also_when_the_buffer_is_closed_later(
    make_subtask: MakeSubtask,
) -> None:
    config = small(allow_pickle=False, buffer_rows=100, buffer_timeout=1.0)
    script = [Polled(rows(1, 2)), Polled(rows(object(), object())), Polled(ready_at=9.0)]
    source = ScriptedSource(script)
    task = make_subtask(reading(source), "source", config)
    task.run()
    task.clock.advance(1.0)
    with pytest.raises(OperatorError, match=r"'source' \(subtask 1 of 1\).*sending its output"):
        task.run()


def test_failing_key_function_behind_a_source_names_the_source(make_subtask: MakeSubtask) -> None:
    env = StreamEnvironment("job", parallelism=2)
    stream = env.from_source("source", ScriptedSource([Polled(rows("a", "b"))]))
    stream.key_by(lambda row: row["id"]).reduce("r", lambda a, b: a).sink("sink", DiscardSink())
    task = make_subtask(env, "source")
    with pytest.raises(OperatorError, match=r"'source' \(subtask 1 of 2\).*TypeError.*test_subtask_work"):
        task.run()


def test_barrier_in_front_of_a_batch_is_taken_first_although_that_takes_the_last_credit(
    make_subtask: MakeSubtask, log: Log
) -> None:
    config = small(buffer_rows=3, credits=1, buffer_timeout=60.0)
    task = make_subtask(mapping(lambda n: n), "map-1", config)
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


def test_sink_takes_everything_as_it_has_no_outputs(make_subtask: MakeSubtask, log: Log) -> None:
    env = StreamEnvironment("job", chaining=False)
    env.from_source("source", GeneratorSource(lambda i: i)).sink("sink", LoggingSink(log))
    task = make_subtask(env, "sink")
    for n in range(100):
        task.deliver(rows(n))
    task.run()
    assert task.subtask.statistics().operators["sink"].records_in == 100
