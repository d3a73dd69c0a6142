"""Steps of a subtask that end in time although a function does not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyarrow as pa
import pytest
from subtask_setup import ScriptedSource, rows
from work_graphs import MakeSubtask, flattening, mapping, small

from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.testing.manual_time import ManualClock

# -- endless and slow functions -----------------------------------------------------------------------------


def test_function_without_end_is_left_when_there_is_no_credit_and_goes_on_with_one(
    make_subtask: MakeSubtask,
) -> None:
    config = small(buffer_rows=4096, debloat_target=0.0)
    task = make_subtask(flattening(lambda _: itertools.count()), "flat_map-1", config)
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


def test_step_ends_in_time_although_the_function_does_not(make_subtask: MakeSubtask) -> None:
    clock = ManualClock()

    def endless(_: str) -> Iterator[int]:
        for number in itertools.count():
            clock.advance(0.004)
            yield number

    task = make_subtask(flattening(endless), "flat_map-1", clock=clock)
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
def test_slices_get_as_long_as_the_configuration_says(make_subtask: MakeSubtask, duration: float) -> None:
    clock = ManualClock()

    def slow(n: int) -> int:
        clock.advance(0.001)
        return n

    task = make_subtask(
        mapping(slow),
        "map-1",
        JobConfig(advanced=AdvancedConfig(slice_duration=duration, credits=1000)),
        clock=clock,
    )
    task.deliver(rows(*range(1000)))
    times = []
    while task.subtask.step().more:
        times.append(clock.monotonic())
        task.answer()
    assert task.rows() == list(range(1000))
    steady = [after - before for before, after in itertools.pairwise(times[1:-2])]
    assert all(0.9 * duration <= step <= 2.1 * duration for step in steady)


def test_call_that_takes_far_too_long_is_counted(make_subtask: MakeSubtask) -> None:
    clock = ManualClock()
    task = make_subtask(mapping(lambda n: clock.advance(n)), "map-1", clock=clock)
    task.deliver(rows(0.05, 0.05), rows(0.2))
    task.run_freely()
    assert task.subtask.statistics().slice_overruns == 1
    assert task.subtask.statistics().busy_seconds == pytest.approx(0.3)


def test_time_in_which_a_function_was_left_alone_is_not_its_time(make_subtask: MakeSubtask) -> None:
    clock = ManualClock()
    config = small(buffer_rows=4096, credits=1)
    task = make_subtask(flattening(lambda n: range(n)), "flat_map-1", config, clock=clock)
    task.deliver(rows(4096 * 3))
    task.run()
    clock.advance(60.0)
    task.run_freely()
    assert len(task.rows()) == 4096 * 3
    assert task.subtask.statistics().slice_overruns == 0


def test_arrow_batches_are_processed_in_slices(make_subtask: MakeSubtask) -> None:
    clock = ManualClock()
    env = StreamEnvironment("job", chaining=False)
    seen: list[int] = []

    def look(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch.num_rows)
        clock.advance(0.02)
        return batch

    stream = env.from_source("source", ScriptedSource([]))
    stream.map_batches(look, batch_format="arrow").sink("sink", DiscardSink())
    task = make_subtask(env, "map_batches-1", clock=clock)
    task.deliver(rows(*({"n": n} for n in range(1000))))
    task.run_freely()
    assert sum(seen) == 1000
    assert len(seen) > 3
