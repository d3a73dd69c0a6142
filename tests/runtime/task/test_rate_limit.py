"""A subtask with a rate limit takes records at the rate, and everything else at once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from subtask_setup import ScriptedSource, SubtaskSetup, rows
from unaligned_setup import config, in_flight, unaligned
from work_graphs import MakeSubtask

from penstock import GraphError
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.operators.source import Polled
from penstock.runtime.record.elements import ArrowBatch, CheckpointBarrier, EndOfData, Watermark

#: Records that a subtask may send early: what it may catch up with, and a batch.
EARLY = 0.12


def limited(per_second: float, *, parallelism: int = 1) -> StreamEnvironment:
    """A job whose vertex `rate_limit-1` has channels on both sides."""
    env = StreamEnvironment("job", chaining=False)
    stream = env.from_source("source", GeneratorSource(lambda i: i), parallelism=1).rebalance()
    stream = stream.rate_limit(per_second, parallelism=parallelism)
    stream.rebalance().sink("sink", DiscardSink(), parallelism=1)
    return env


def limited_source(source: ScriptedSource, per_second: float) -> StreamEnvironment:
    env = StreamEnvironment("job")
    env.from_source("source", source).rate_limit(per_second).sink("sink", DiscardSink(), parallelism=2)
    return env


def sent(task: SubtaskSetup) -> int:
    return sum(len(batch.rows) for batch in task.sent[0] if hasattr(batch, "rows"))


@pytest.mark.parametrize("per_second", [100, 3_000, 0.5])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_records_leave_at_the_rate_and_in_their_order(
    make_subtask: MakeSubtask, per_second: float, parallelism: int
) -> None:
    task = make_subtask(limited(per_second, parallelism=parallelism), "rate_limit-1", config(credits=500))
    share = per_second / parallelism
    count = int(share * 10)
    task.deliver(rows(*range(count)))
    for second in range(1, 10):
        task.wait(1.0)
        assert share * second - 1 <= sent(task) <= share * (second + EARLY) + 1
    task.wait(2.0)
    assert task.rows() == list(range(count))


def test_columns_are_limited_as_rows_are(make_subtask: MakeSubtask) -> None:
    task = make_subtask(limited(100), "rate_limit-1", config(credits=500))
    task.deliver(ArrowBatch(pa.record_batch({"n": list(range(300))})))
    task.wait(1.0)
    found = sum(len(batch) for batch in task.sent[0] if isinstance(batch, ArrowBatch))
    assert 100 <= found <= 113


def test_a_limited_subtask_waits_for_the_clock_and_does_not_spin(make_subtask: MakeSubtask) -> None:
    task = make_subtask(limited(1), "rate_limit-1", config(credits=500, buffer_timeout=0.001))
    task.deliver(rows(*range(5)))
    task.run_freely()
    before = task.clock.monotonic()
    result = task.run(most_steps=5)
    assert result.wake_at is not None
    assert result.wake_at > before + 0.5


def test_unaligned_checkpoints_do_not_wait_for_the_rate_and_hold_the_rest(make_subtask: MakeSubtask) -> None:
    task = make_subtask(limited(10), "rate_limit-1", config(credits=500))
    task.deliver(rows(*range(40)), rows(*range(40, 60)))
    task.wait(1.0)
    passed = sent(task)
    assert 10 <= passed <= 12
    task.deliver(unaligned(1))
    task.run_freely()
    task.upload()
    held = in_flight(task, 1)
    assert held.inputs == {0: [list(range(passed, 40)), list(range(40, 60))]}


def test_barriers_and_watermarks_of_an_empty_channel_pass_while_records_are_not_due(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(limited(0.1), "rate_limit-1", config(credits=500))
    task.deliver(rows(1))
    task.run_freely()
    assert task.rows() == [1]
    task.deliver(Watermark(7), CheckpointBarrier(1, 0.0))
    task.run_freely()
    task.upload()
    assert Watermark(7) in task.events()
    assert 1 in task.acknowledged


def test_the_end_comes_behind_the_last_record(make_subtask: MakeSubtask) -> None:
    task = make_subtask(limited(10), "rate_limit-1", config(credits=500))
    task.deliver(rows(*range(15)), EndOfData())
    task.wait(0.5)
    assert task.ends == 0
    task.wait(1.5)
    assert task.rows() == list(range(15))
    assert task.ends == 1


def test_checkpoints_of_a_limited_source_are_taken_at_once_at_the_last_record(
    make_subtask: MakeSubtask,
) -> None:
    source = ScriptedSource([Polled(rows(number)) for number in range(50)])
    task = make_subtask(limited_source(source, 4), "source", config(credits=500))
    task.wait(2.0)
    passed = sum(len(task.rows(channel)) for channel in (0, 1))
    assert 4 <= passed < 10
    before = task.clock.monotonic()
    snapshot = task.checkpoint(1)
    assert task.clock.monotonic() - before < 0.1
    assert "source" in snapshot.operators
    assert sum(len(task.rows(channel)) for channel in (0, 1)) == passed


@pytest.mark.parametrize("per_second", [0, -1, float("inf"), float("nan"), 10**400, True, "7"])
def test_a_rate_that_is_none_is_refused(per_second: Any) -> None:
    stream = StreamEnvironment("job").from_source("source", GeneratorSource(lambda i: i))
    with pytest.raises(GraphError, match="rate_limit: per_second is a finite number greater than 0"):
        stream.rate_limit(per_second)
