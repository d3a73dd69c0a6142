"""Unaligned checkpoints of one subtask in the middle of a batch, a watermark or an end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from subtask_setup import SubtaskSetup, rows
from unaligned_setup import (
    ENDLESS,
    NOTHING,
    InFlight,
    MakeSubtask,
    again,
    as_it_is,
    config,
    in_flight,
    reading,
    savepoint,
    unaligned,
    working,
)

from penstock.runtime.errors import OperatorError
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.operators.operator import Operator, Output
from penstock.runtime.operators.source import Polled
from penstock.runtime.record.elements import (
    END_OF_TIME,
    ArrowBatch,
    Batch,
    EndOfData,
    RowBatch,
    StreamStatus,
    Watermark,
)
from penstock.runtime.testing.manual_time import ManualClock

# -- work that is half done ---------------------------------------------------------------------------------


def slow(clock: ManualClock, seconds: float) -> Callable[[Any], list[Any]]:
    def function(row: Any) -> list[Any]:
        clock.advance(seconds)
        return [row]

    return function


def half_done(make_subtask: MakeSubtask, channel: int = 0) -> SubtaskSetup:
    """A subtask in the middle of a batch of 300 rows from this channel, and of a slice of it."""
    clock = ManualClock()
    task = make_subtask(working(slow(clock, 0.005)), "work", config(credits=500), clock=clock)
    task.deliver(rows(*range(300)), channel=channel)
    task.subtask.step()
    assert 0 < len(task.rows()) < 300
    return task


def test_rest_of_a_batch_is_in_front_of_what_waits_in_its_channel(make_subtask: MakeSubtask) -> None:
    task = half_done(make_subtask)
    task.deliver(rows("next"), unaligned(1), channel=0)
    done = task.sent[0].index(unaligned(1))
    task.deliver(unaligned(1), channel=1)
    task.upload()
    assert task.rows() == list(range(done)), "the current slice was finished, and no other begun"
    assert in_flight(task, 1) == InFlight({0: [list(range(done, 300)), ["next"]]}, {})
    task.run_freely()
    assert task.rows() == [*range(300), "next"]


@pytest.mark.parametrize("channel", [0, 1])
def test_rest_belongs_to_the_channel_that_it_came_from(make_subtask: MakeSubtask, channel: int) -> None:
    task, other = half_done(make_subtask, channel), 1 - channel
    task.deliver(rows("other"), unaligned(1), channel=other)
    task.deliver(unaligned(1), channel=channel)
    task.upload()
    captured = in_flight(task, 1).inputs
    assert captured[other] == [["other"]]
    assert len(captured[channel]) == 1
    assert captured[channel][0][-1] == 299


def connected(clock: ManualClock) -> StreamEnvironment:
    """A job whose vertex `work` has one channel on each of two inputs."""

    def named(name: str) -> Callable[[Any], list[Any]]:
        return lambda row: [(name, value) for value in slow(clock, 0.005)(row)]

    env = StreamEnvironment("job", chaining=False, parallelism=1)
    left, right = (env.from_source(name, ENDLESS).rebalance() for name in ("left", "right"))
    worked = left.connect(right).co_flat_map(named("left"), named("right"), id="work")
    worked.rebalance().sink("sink", DiscardSink())
    return env


@pytest.mark.parametrize(("channel", "name"), [(0, "left"), (1, "right")])
def test_rest_of_a_batch_goes_to_the_input_of_its_channel_also_after_a_restore(
    make_subtask: MakeSubtask, channel: int, name: str
) -> None:
    clock = ManualClock()
    task = make_subtask(connected(clock), "work", config(credits=500), clock=clock)
    task.deliver(rows(*range(300)), channel=channel)
    task.subtask.step()
    task.deliver(rows("next"), unaligned(1), channel=1 - channel)
    task.deliver(unaligned(1), channel=channel)
    task.upload()
    done = task.sent[0].index(unaligned(1))
    assert 0 < done < 300
    restored = again(make_subtask, connected(clock), task, 1, config=config(credits=500), clock=clock)
    restored.run_freely()
    of = {each: [value for input_name, value in restored.rows() if input_name == each] for each in NAMES}
    other = NAMES[1 - channel]
    assert of == {name: list(range(done, 300)), other: ["next"]}


NAMES = "left", "right"


def test_subtask_whose_outputs_are_blocked_takes_its_checkpoint_and_loses_nothing(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(working(lambda n: range(n, n + 6)), "work", config())
    task.deliver(rows(0), rows(100), channel=0)
    task.run()
    assert task.rows() == [0, 1]
    task.deliver(unaligned(1), channel=0)
    task.deliver(unaligned(1), channel=1)
    assert task.sent[0][-1] == unaligned(1)
    task.upload()
    assert in_flight(task, 1) == InFlight({0: [[100]]}, {0: [[2], [3], [4], [5]]})
    task.run_freely()
    assert task.rows() == [*range(6), *range(100, 106)]


def test_checkpoints_that_follow_each_other_do_not_pile_data_up_while_outputs_are_blocked(
    make_subtask: MakeSubtask,
) -> None:
    clock = ManualClock()
    task = make_subtask(working(slow(clock, 0.02), senders=1), "work", config(), clock=clock)
    task.deliver(rows(*range(1000)))
    task.run()
    found = []
    for checkpoint_id in range(1, 6):
        task.deliver(unaligned(checkpoint_id))
        task.run()
        task.upload()
        found.append(in_flight(task, checkpoint_id))
    assert found == [found[0]] * 5
    assert sum(map(len, found[0].outputs[0])) + len(found[0].inputs[0][0]) + 2 == 1000


class Firing(Operator):
    """Emits three batches, one after the other, for each watermark and at the end."""

    def process(self, batch: Batch) -> Iterator[Output]:
        yield batch

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        yield from (rows(f"fired {n}") for n in range(3))

    def end_of_data(self) -> Iterator[Output]:
        yield from (rows(f"left {n}") for n in range(3))


def firing() -> StreamEnvironment:
    env = StreamEnvironment("job", chaining=False)
    stream = env.from_source("source", ENDLESS).rebalance().map(lambda n: n, id="work")
    object.__setattr__(stream._builder.graph.nodes[-1].operator, "factory", Firing)
    stream.rebalance().sink("sink", DiscardSink())
    return env


END = [Watermark(END_OF_TIME), "left 0", "left 1", "left 2", EndOfData(drain=True)]


@pytest.mark.parametrize(("event", "then"), [(Watermark(7), [Watermark(7)]), (EndOfData(drain=True), END)])
def test_watermark_or_end_that_is_half_done_is_brought_to_its_end_in_front_of_the_barrier(
    make_subtask: MakeSubtask, event: Watermark | EndOfData, then: list[Any]
) -> None:
    task = make_subtask(firing(), "work", config(credits=1))
    task.deliver(event, rows("next"))
    task.run()
    assert task.rows() == ["fired 0"]
    task.deliver(unaligned(1))
    task.upload()
    overtaken = [[e] if isinstance(e, str) else e for e in ("fired 1", "fired 2", *then)]
    assert in_flight(task, 1) == InFlight({0: [["next"]]}, {0: overtaken})
    task.answer()
    assert [list(e.rows) if isinstance(e, RowBatch) else e for e in task.sent[0][2:]] == overtaken


class Once:
    """A value that can be sent once and not again."""

    def __init__(self, fails: bool) -> None:
        self.fails = fails

    def __reduce__(self) -> Any:
        if self.fails:
            msg = "sent before"
            raise TypeError(msg)
        return Once, (True,)


def test_record_that_can_not_be_kept_a_second_time_fails_with_the_name_of_its_operator(
    make_subtask: MakeSubtask,
) -> None:
    clock = ManualClock()
    task = make_subtask(working(slow(clock, 0.005), senders=1), "work", config(credits=500), clock=clock)
    task.deliver(rows(*range(299), Once(fails=False)))
    task.subtask.step()
    with pytest.raises(
        OperatorError, match=r"operator 'work'(?s:.*)storing the rest of a batch(?s:.*)sent before"
    ):
        task.deliver(unaligned(1))


def test_rest_of_an_arrow_batch_stays_arrow(make_subtask: MakeSubtask) -> None:
    clock = ManualClock()

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        clock.advance(0.02 * batch.num_rows)
        return batch

    env = StreamEnvironment("job", chaining=False)
    spread = env.from_source("source", ENDLESS).rebalance()
    spread.map_batches(function, "arrow", id="work").rebalance().sink("sink", DiscardSink())
    task = make_subtask(env, "work", config(credits=1000, arrow_buffer_rows=1), clock=clock)
    task.deliver(ArrowBatch(pa.record_batch({"n": list(range(600))})))
    for _ in range(3):
        task.subtask.step()
    assert 0 < sum(map(len, task.sent[0])) < 600
    task.deliver(unaligned(1))  # the open buffer leaves in front of the barrier, as there is credit
    task.upload()
    (rest,) = in_flight(task, 1).inputs[0]
    sent = [
        n for batch in task.sent[0] if isinstance(batch, ArrowBatch) for n in batch.batch["n"].to_pylist()
    ]
    assert sent + rest.batch["n"].to_pylist() == list(range(600))
    restored = again(make_subtask, env, task, 1, config=config(credits=500), clock=clock)
    restored.run_freely()
    got = [n for batch in restored.sent[0] for n in batch.batch["n"].to_pylist()]  # type: ignore[union-attr]
    assert sent + got == list(range(600))


def test_timestamps_are_captured_with_the_data_and_a_restored_sender_is_active_until_it_says_otherwise(
    make_subtask: MakeSubtask,
) -> None:
    env = working(as_it_is, senders=1)
    task = make_subtask(env, "work", config())
    stamped = RowBatch([1, 2], [10, 20])
    task.deliver(stamped, StreamStatus.IDLE, rows(3), EndOfData(drain=False), unaligned(1))
    task.upload()
    (captured,) = in_flight(task, 1).inputs.values()
    assert captured == [stamped, StreamStatus.IDLE, [3], EndOfData(drain=False)]
    restored = again(make_subtask, env, task, 1)
    restored.run_freely()
    assert [b.timestamps for b in restored.sent[0] if isinstance(b, RowBatch)] == [[10], [20], None]
    assert restored.events() == [EndOfData(drain=False)]


def test_failure_of_users_code_while_a_barrier_arrives_names_the_operator(make_subtask: MakeSubtask) -> None:
    def fails(n: int) -> Any:
        yield from range(5000)
        msg = "no more"
        raise ValueError(msg)

    task = make_subtask(working(fails, senders=1), "work", config())
    task.deliver(rows(1))
    task.run()
    assert task.rows() == [0, 1]
    with pytest.raises(OperatorError, match=r"operator 'work'.*\n?.*no more"):
        task.deliver(unaligned(1))


# -- a source -----------------------------------------------------------------------------------------------


def test_source_with_blocked_outputs_works_its_batch_off_and_lets_the_barrier_overtake(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(
        reading([Polled(rows(0, 10, 20)), Polled(rows(99))], lambda n: [n, n + 1]), "source", config()
    )
    task.run()
    assert task.rows() == [0, 1]
    task.subtask.trigger_checkpoint(unaligned(1))
    task.subtask.step()
    assert task.sent[0][-1] == unaligned(1)
    task.upload()
    assert in_flight(task, 1) == InFlight({}, {0: [[10], [11], [20], [21]]})
    for checkpoint_id in (2, 3):
        task.subtask.trigger_checkpoint(unaligned(checkpoint_id))
        task.run()
        task.upload()
        assert in_flight(task, checkpoint_id) == in_flight(task, 1), "nothing more is read meanwhile"


def test_source_gives_no_rest_back_so_it_works_off_all_slices_of_its_batch(make_subtask: MakeSubtask) -> None:
    clock = ManualClock()
    script = [Polled(rows(*range(600))), Polled(rows("next"))]
    task = make_subtask(reading(script, slow(clock, 0.005)), "source", config(credits=1000), clock=clock)
    task.subtask.step()
    assert 0 < len(task.rows()) < 600
    task.subtask.trigger_checkpoint(unaligned(1))
    task.subtask.step()
    task.upload()
    before = task.sent[0][: task.sent[0].index(unaligned(1))]
    captured = in_flight(task, 1).outputs.get(0, [])
    assert [n for b in before for n in b.rows] + [n for c in captured for n in c] == list(range(600))  # type: ignore[union-attr]


def test_source_takes_a_savepoint_only_when_its_batch_is_done(make_subtask: MakeSubtask) -> None:
    task = make_subtask(reading([Polled(rows(0, 10))], lambda n: [n, n + 1]), "source", config())
    task.run()
    task.subtask.trigger_checkpoint(savepoint(1))
    task.run()
    task.upload()
    assert task.acknowledged == {}
    task.run_freely()
    task.upload()
    assert in_flight(task, 1) == NOTHING
    before = task.sent[0][: task.sent[0].index(savepoint(1))]
    assert [b.rows for b in before] == [[0], [1], [10], [11]]  # type: ignore[union-attr]
