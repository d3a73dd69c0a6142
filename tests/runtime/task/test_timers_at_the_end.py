"""Timers of processing time when the input has ended: they stay in the snapshot, and none fires any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from subtask_setup import CHECKPOINTING, SubtaskSetup, rows

from penstock import KeyedProcessFunction, RuntimeContext
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.record.elements import END_OF_TIME, CheckpointBarrier, EndOfData, Watermark

SECOND = 1_000_000


class Echo(KeyedProcessFunction[int, int, str]):
    """Names each record again after a second."""

    def process(self, value: int, ctx: RuntimeContext) -> None:
        timers = ctx.timer_service
        timers.register_processing_time_timer(timers.current_processing_time + SECOND)

    def on_timer(self, at: int, ctx: RuntimeContext) -> Iterator[str]:
        yield f"timer of {ctx.current_key}"


def echoing(make_subtask: Callable[..., SubtaskSetup], config: JobConfig) -> SubtaskSetup:
    """A subtask with a timer that is due in a second."""
    env = StreamEnvironment("job", chaining=False)
    source = env.from_source("source", GeneratorSource(lambda i: i), parallelism=1)
    source.key_by(lambda n: n).process("echo", Echo(), parallelism=1).sink("sink", DiscardSink())
    task = make_subtask(env, "echo", config)
    task.deliver(rows(7))
    task.run_freely()
    return task


@pytest.mark.parametrize("config", [CHECKPOINTING, JobConfig()], ids=["checkpoints", "no checkpoints"])
@pytest.mark.parametrize("drain", [True, False])
def test_timer_does_not_fire_behind_the_end_of_the_data(
    make_subtask: Callable[..., SubtaskSetup], drain: bool, config: JobConfig
) -> None:
    task = echoing(make_subtask, config)
    time = [Watermark(END_OF_TIME)] if drain else []
    task.deliver(*time, EndOfData(drain))
    task.run_freely()
    sent = task.events()
    task.clock.advance(2)
    result = task.run()
    task.run_freely()
    assert (task.rows(), task.events()) == ([], sent)
    assert result.wake_at is None, "it waits for nothing"


def test_timer_that_was_due_before_the_savepoint_is_in_it(make_subtask: Callable[..., SubtaskSetup]) -> None:
    task = echoing(make_subtask, CHECKPOINTING)
    task.deliver(EndOfData(drain=False))
    task.run_freely()
    task.clock.advance(2)
    task.run_freely()
    task.deliver(CheckpointBarrier(1, 1_000_000.0))
    task.run_freely()
    task.upload()
    assert task.rows() == []
    (state,) = task.acknowledged[1].operators.values()
    assert state.keyed is not None
