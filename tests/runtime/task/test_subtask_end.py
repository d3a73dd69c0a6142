"""The end of a subtask: of its data, the checkpoint that covers it, and its leaving."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from subtask_setup import Log, LoggingSink, ScriptedSource, SubtaskSetup, rows

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.operators.source import Polled
from penstock.runtime.record.elements import (
    END_OF_TIME,
    CancelCheckpointMarker,
    CheckpointBarrier,
    EndOfData,
    EndOfPartition,
    StreamStatus,
    Watermark,
)
from penstock.runtime.task.end_of_input import Phase

MakeSubtask = Callable[..., SubtaskSetup]
END = [Watermark(END_OF_TIME), EndOfData()]
NO_CHECKPOINTS = JobConfig()
AT_LEAST_ONCE = JobConfig(checkpointing=Checkpointing(every=1, mode="at_least_once"))


def barrier(checkpoint_id: int) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, 1_000_000.0)


def reading(*script: Polled[Any]) -> StreamEnvironment:
    """A job whose vertex `source` has one channel behind it."""
    env = StreamEnvironment("job", chaining=False)
    env.from_source("source", ScriptedSource(script)).sink("sink", DiscardSink())
    return env


def mapping(senders: int = 2) -> StreamEnvironment:
    """A job whose vertex `map-1` has channels on both sides."""
    env = StreamEnvironment("job", chaining=False)
    stream = env.from_source("source", GeneratorSource(lambda i: i), parallelism=senders)
    stream.map(lambda n: n, parallelism=1).sink("sink", DiscardSink(), parallelism=1)
    return env


def sinking(log: Log) -> StreamEnvironment:
    env = StreamEnvironment("job", chaining=False)
    env.from_source("source", GeneratorSource(lambda i: i)).sink("sink", LoggingSink(log))
    return env


@pytest.mark.parametrize(
    "script", [[Polled(rows(1)), Polled(finished=True)], [Polled(rows(1), finished=True)]]
)
def test_source_without_checkpoints_ends_and_leaves_at_once(
    make_subtask: MakeSubtask, script: list[Polled[Any]]
) -> None:
    task = make_subtask(reading(*script), "source", NO_CHECKPOINTS)
    assert not task.run().finished
    assert task.sent[0] == [rows(1), *END, EndOfPartition()]
    assert task.subtask.phase is Phase.LEAVING
    task.answer()
    assert task.run().finished
    assert task.subtask.step().finished
    assert task.ends == 1


def test_transactions_of_a_job_without_checkpoints_are_committed_at_the_end(
    make_subtask: MakeSubtask, log: Log
) -> None:
    task = make_subtask(sinking(log), "sink", NO_CHECKPOINTS)
    task.deliver(rows(1), *END, EndOfPartition())
    assert task.run().finished
    assert log.calls == [("commit", [[1]], None)]


def test_source_waits_for_the_completion_of_a_checkpoint_that_began_after_its_end(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(reading(Polled(rows(1)), Polled(finished=True)), "source")
    task.subtask.step()
    task.trigger(1)
    task.run()
    task.upload()
    assert task.events() == [barrier(1), *END]
    task.subtask.notify_checkpoint_complete(1)
    assert not task.run().more
    assert task.subtask.phase is Phase.ENDED, "checkpoint 1 began before the end"
    task.trigger(2)
    task.run()
    task.upload()
    assert task.subtask.phase is Phase.ENDED
    task.subtask.notify_checkpoint_complete(2)
    assert task.events()[-2:] == [barrier(2), EndOfPartition()]
    task.answer()
    assert task.run().finished


def test_when_the_last_checkpoint_is_given_up_the_next_one_will_do(
    make_subtask: MakeSubtask, log: Log
) -> None:
    task = make_subtask(sinking(log), "sink")
    task.deliver(rows(1), *END, barrier(1))
    task.run()
    task.subtask.notify_checkpoint_aborted(1)
    assert not task.run().finished
    task.deliver(barrier(2), barrier(3))
    task.run()
    task.upload()
    task.subtask.notify_checkpoint_aborted(2)
    assert not task.run().finished
    task.subtask.notify_checkpoint_complete(3)
    assert log.calls == [("commit", [[1]], 3)]
    assert not task.run().finished, "its sender has not left"
    task.deliver(EndOfPartition())
    assert task.run().finished


def test_completion_of_any_checkpoint_after_the_first_one_behind_the_end_is_enough(
    make_subtask: MakeSubtask, log: Log
) -> None:
    task = make_subtask(sinking(log), "sink")
    task.deliver(rows(1), barrier(1), *END, barrier(2), barrier(3))
    task.run()
    task.upload()
    task.subtask.notify_checkpoint_complete(3)
    task.subtask.notify_checkpoint_complete(1)
    assert task.subtask.phase is Phase.LEAVING
    assert log.calls == [("commit", [[1]], 3)]


def test_data_ends_when_it_has_ended_on_all_channels(make_subtask: MakeSubtask) -> None:
    task = make_subtask(mapping(), "map-1")
    task.deliver(rows(1), *END, channel=0)
    task.run_freely()
    assert task.events() == []
    assert task.ends == 0
    task.deliver(rows(2), *END, channel=1)
    task.run_freely()
    assert task.sent[0] == [rows(1), rows(2), *END]
    assert task.ends == 1


def test_end_of_time_comes_once_and_in_front_of_the_end_of_data(make_subtask: MakeSubtask) -> None:
    task = make_subtask(mapping(), "map-1", NO_CHECKPOINTS)
    for channel in (0, 1):
        task.deliver(*END, EndOfPartition(), channel=channel)
    assert task.run_freely().finished
    assert task.events() == [*END, EndOfPartition()]


def test_end_of_time_comes_although_a_channel_was_idle(make_subtask: MakeSubtask) -> None:
    task = make_subtask(mapping(), "map-1", NO_CHECKPOINTS)
    for channel in (0, 1):
        task.deliver(StreamStatus.IDLE, *END, EndOfPartition(), channel=channel)
    task.run_freely()
    assert task.events() == [StreamStatus.IDLE, *END, EndOfPartition()]


def test_time_does_not_go_to_its_end_when_a_channel_ends_without_draining(make_subtask: MakeSubtask) -> None:
    task = make_subtask(mapping(), "map-1")
    task.deliver(Watermark(5), *END, channel=0)
    task.deliver(Watermark(3), EndOfData(drain=False), channel=1)
    task.run_freely()
    assert task.events() == [Watermark(3), EndOfData(drain=False)]


def test_channel_that_ends_without_end_of_data_has_no_more_data_either(make_subtask: MakeSubtask) -> None:
    task = make_subtask(mapping(), "map-1", NO_CHECKPOINTS)
    for channel in (0, 1):
        task.deliver(rows(channel), EndOfPartition(), channel=channel)
    assert task.run_freely().finished
    assert sorted(task.rows()) == [0, 1]
    assert task.events() == [*END, EndOfPartition()]


def test_subtask_leaves_only_when_its_receivers_have_consumed_everything(make_subtask: MakeSubtask) -> None:
    task = make_subtask(reading(Polled(rows(1)), Polled(finished=True)), "source", NO_CHECKPOINTS)
    task.run()
    while len(task.frames) > 1:
        task.answer(1)
        assert not task.run().finished
    task.answer(1)
    assert task.run().finished


def test_subtask_that_leaves_does_not_wait_for_a_receiver_that_is_gone(make_subtask: MakeSubtask) -> None:
    task = make_subtask(reading(Polled(rows(1)), Polled(finished=True)), "source", NO_CHECKPOINTS)
    task.run()
    assert task.subtask.phase is Phase.LEAVING
    channel, _ = task.frames[-1]
    task.subtask.receiver_gone(channel)
    assert task.run().finished


def test_subtask_whose_receiver_is_gone_does_not_leave_before_its_end_is_covered(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(reading(Polled(rows(1)), Polled(finished=True)), "source")
    task.run()
    channel, _ = task.frames[-1]
    task.subtask.receiver_gone(channel)
    assert not task.run().finished
    assert task.subtask.phase is Phase.ENDED
    task.trigger(1)
    task.run()
    task.upload()
    task.subtask.notify_checkpoint_complete(1)
    assert task.run().finished


def test_subtask_leaves_only_when_all_its_senders_have_left(make_subtask: MakeSubtask) -> None:
    task = make_subtask(mapping(), "map-1")
    for channel in (0, 1):
        task.deliver(*END, barrier(1), channel=channel)
    task.run_freely()
    task.upload()
    task.subtask.notify_checkpoint_complete(1)
    task.deliver(EndOfPartition(), channel=0)
    assert not task.run_freely().finished
    task.deliver(EndOfPartition(), channel=1)
    assert task.run_freely().finished
    assert task.taken == {0: 4, 1: 4}, "every delivery is answered"


def test_end_of_a_channel_stands_for_its_barrier(make_subtask: MakeSubtask) -> None:
    task = make_subtask(mapping(), "map-1")
    task.deliver(rows(1), barrier(2), channel=0)
    task.deliver(*END, EndOfPartition(), channel=1)
    task.run_freely()
    task.upload()
    assert set(task.acknowledged) == {2}


def test_subtask_whose_senders_have_all_left_is_asked_for_checkpoints_like_a_source(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(mapping(), "map-1")
    for channel in (0, 1):
        task.deliver(*END, EndOfPartition(), channel=channel)
    task.run_freely()
    assert task.subtask.phase is Phase.ENDED
    task.trigger(4)
    task.run_freely()
    task.upload()
    task.subtask.notify_checkpoint_complete(4)
    assert task.run_freely().finished
    assert task.events() == [*END, barrier(4), EndOfPartition()]


def leaving(make_subtask: MakeSubtask, config: JobConfig = AT_LEAST_ONCE) -> SubtaskSetup:
    """A subtask that is leaving, while its second sender has not left."""
    task = make_subtask(mapping(), "map-1", config)
    for channel in (0, 1):
        task.deliver(*END, barrier(1), channel=channel)
    task.run_freely()
    task.upload()
    task.subtask.notify_checkpoint_complete(1)
    task.deliver(EndOfPartition(), channel=0)
    task.run_freely()
    assert task.subtask.phase is Phase.LEAVING
    return task


@pytest.mark.parametrize("config", [AT_LEAST_ONCE, JobConfig(checkpointing=Checkpointing(every=1))])
def test_leaving_subtask_takes_part_in_checkpoints_without_a_word_downstream(
    make_subtask: MakeSubtask, config: JobConfig
) -> None:
    task = leaving(make_subtask, config)
    sent = list(task.sent[0])
    task.deliver(barrier(2), channel=1)
    task.run_freely()
    task.upload()
    assert 2 in task.acknowledged
    assert task.sent[0] == sent
    task.subtask.notify_checkpoint_complete(2)
    task.deliver(EndOfPartition(), channel=1)
    assert task.run_freely().finished


def test_leaving_subtask_passes_no_cancellation_on(make_subtask: MakeSubtask) -> None:
    task = leaving(make_subtask)
    task.deliver(CancelCheckpointMarker(2), EndOfPartition(), channel=1)
    assert task.run_freely().finished
    assert task.events()[-1] == EndOfPartition()


def test_leaving_source_takes_part_in_checkpoints_until_it_is_gone(make_subtask: MakeSubtask) -> None:
    task = make_subtask(reading(Polled(finished=True)), "source")
    task.run_freely()
    task.checkpoint(1)
    task.subtask.notify_checkpoint_complete(1)
    task.trigger(2)
    task.run()
    task.upload()
    assert 2 in task.acknowledged
    assert task.run_freely().finished
    assert task.events() == [*END, barrier(1), EndOfPartition()]


def test_late_messages_of_the_job_do_not_disturb_a_subtask_that_is_gone(
    make_subtask: MakeSubtask, log: Log
) -> None:
    task = make_subtask(sinking(log), "sink")
    task.deliver(rows(1), *END, barrier(1), EndOfPartition())
    task.run()
    task.upload()
    task.subtask.notify_checkpoint_complete(1)
    assert task.run().finished
    task.subtask.notify_checkpoint_complete(1)
    task.subtask.notify_checkpoint_complete(2)
    task.subtask.notify_checkpoint_aborted(3)
    task.trigger(4)
    assert task.subtask.step().finished
    assert log.calls == [("commit", [[1]], 1)]


def test_source_without_splits_ends_at_once(make_subtask: MakeSubtask) -> None:
    task = make_subtask(reading(Polled(rows(1))), "source", splits=())
    task.run_freely()
    assert task.events() == END
    assert task.rows() == []
