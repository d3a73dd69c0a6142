"""Steps of a subtask whose outputs are full, and when records leave it."""

from __future__ import annotations

import pytest
from subtask_setup import ScriptedSource, rows
from work_graphs import MakeSubtask, mapping, reading, small

from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.operators.source import Polled

# -- back pressure ------------------------------------------------------------------------------------------


def test_no_input_is_taken_while_an_output_has_no_credit(make_subtask: MakeSubtask) -> None:
    task = make_subtask(mapping(lambda n: n), "map-1", small())
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


def test_blocked_subtask_is_woken_by_a_credit_and_not_by_the_clock(make_subtask: MakeSubtask) -> None:
    task = make_subtask(mapping(lambda n: n), "map-1", small())
    task.deliver(rows(*range(6)))
    assert task.run().wake_at is None


def test_source_that_waits_for_its_time_does_not_spin_while_an_output_has_no_credit(
    make_subtask: MakeSubtask,
) -> None:
    source = ScriptedSource([Polled(rows(1, 2)), Polled(rows(3, 4)), Polled(ready_at=3.0)])
    task = make_subtask(reading(source), "source", small(credits=1, buffer_rows=4, buffer_timeout=60.0))
    assert task.run().wake_at == 3.0
    task.trigger(1)  # closes the open buffers, for which there is no credit
    task.clock.advance(3.0)
    result = task.run()
    assert task.events() == []
    assert result.wake_at is None or result.wake_at > 3.0


def test_time_without_credit_is_counted_as_back_pressure(make_subtask: MakeSubtask) -> None:
    task = make_subtask(mapping(lambda n: n), "map-1", small())
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


def test_a_wait_that_goes_on_is_counted_too(make_subtask: MakeSubtask) -> None:
    task = make_subtask(mapping(lambda n: n), "map-1", small())
    task.deliver(rows(*range(6)))
    task.run()
    task.clock.advance(7.0)
    assert task.subtask.statistics().backpressured_seconds == pytest.approx(7.0)
    assert task.subtask.statistics().at == task.clock.monotonic()


def test_a_call_that_goes_on_counts_as_work(make_subtask: MakeSubtask) -> None:
    seen = []

    def call(n: int) -> int:
        task.clock.advance(5.0)
        seen.append(task.subtask.statistics().busy_seconds)
        return n

    task = make_subtask(mapping(call), "map-1")
    task.deliver(rows(1))
    task.run_freely()
    assert seen == [pytest.approx(5.0)]
    assert task.subtask.statistics().busy_seconds == pytest.approx(5.0)


def test_the_fill_of_a_channel_is_what_its_receiver_has_not_consumed(make_subtask: MakeSubtask) -> None:
    task = make_subtask(mapping(lambda n: n), "map-1", small())
    task.deliver(rows(*range(6)))
    task.run()
    (edge,) = task.subtask.statistics().outputs
    assert (edge.operator, edge.credits, edge.first_receiver) == ("map-1", 2, 0)
    assert (edge.outstanding, edge.queued, edge.fill) == ((2,), (1,), 1.0)
    task.answer()
    task.run_freely()
    task.answer()
    (edge,) = task.subtask.statistics().outputs
    assert (edge.outstanding, edge.queued, edge.fill) == ((0,), (0,), 0.0)


def test_output_of_another_edge_blocks_too(make_subtask: MakeSubtask) -> None:
    env = StreamEnvironment("job", chaining=False)
    stream = env.from_source("source", GeneratorSource(lambda i: i)).map(lambda n: n)
    stream.sink("fast", DiscardSink())
    stream.sink("slow", DiscardSink())
    task = make_subtask(env, "map-1", small())
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


# -- flushing -----------------------------------------------------------------------------------------------


def test_records_leave_at_once_when_the_channel_is_idle(make_subtask: MakeSubtask) -> None:
    task = make_subtask(mapping(lambda n: n), "map-1", small(buffer_rows=100))
    task.deliver(rows(1))
    task.subtask.step()
    assert task.rows() == [1]


def test_records_behind_others_leave_when_the_buffer_timeout_is_over(make_subtask: MakeSubtask) -> None:
    task = make_subtask(mapping(lambda n: n), "map-1", small(buffer_rows=100, buffer_timeout=0.5))
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


def test_records_behind_others_leave_when_those_are_consumed(make_subtask: MakeSubtask) -> None:
    task = make_subtask(mapping(lambda n: n), "map-1", small(buffer_rows=100, buffer_timeout=1.0))
    task.deliver(rows(1), rows(2))
    task.run()
    task.clock.advance(0.2)
    task.answer(1)
    assert task.rows() == [1, 2], "at once, and not behind the next piece of work"
    assert task.run().wake_at is None


def test_an_idle_channel_rests_a_tenth_of_the_buffer_timeout_after_it_has_sent(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(mapping(lambda n: n), "map-1", small(buffer_rows=100, buffer_timeout=0.08))
    task.deliver(rows(1), rows(2))
    task.run()
    task.answer(1)
    assert task.run().wake_at == 0.008
    task.clock.advance(0.004)
    task.deliver(rows(3))
    assert task.run().wake_at == 0.008
    assert task.rows() == [1]
    task.clock.advance(0.004)
    assert task.run().wake_at is None
    assert task.rows() == [1, 2, 3]


def test_buffer_timeout_of_nothing_lets_nothing_wait(make_subtask: MakeSubtask) -> None:
    task = make_subtask(mapping(lambda n: n), "map-1", small(buffer_rows=100, buffer_timeout=0.0, credits=9))
    for n in range(5):
        task.deliver(rows(n))
    task.run()
    task.subtask.step()
    assert task.rows() == [0, 1, 2, 3, 4]
