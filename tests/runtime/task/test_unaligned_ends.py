"""Unaligned checkpoints of one subtask that complete or are aborted, also after the end of data."""

from __future__ import annotations

from typing import Any

import pytest
from subtask_setup import Log, LoggingSink, SubtaskSetup, rows
from unaligned_setup import (
    ENDLESS,
    NOTHING,
    PATIENCE,
    InFlight,
    MakeSubtask,
    as_it_is,
    config,
    in_flight,
    patient,
    reading,
    unaligned,
    working,
)

from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.operators.source import Polled
from penstock.runtime.record.elements import (
    CancelCheckpointMarker,
    EndOfData,
    EndOfPartition,
)
from penstock.runtime.snapshot import metadata
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason
from penstock.runtime.task.end_of_input import Phase

# -- checkpoints that are aborted --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "moment", ["begun", "state written", "all arrived", "all written", "all written and told"]
)
@pytest.mark.parametrize("end", ["abort", "close"])
def test_checkpoint_that_is_given_up_leaves_nothing_behind(
    make_subtask: MakeSubtask, monkeypatch: pytest.MonkeyPatch, moment: str, end: str
) -> None:
    monkeypatch.setattr(metadata, "INLINE_LIMIT", 0)
    env = StreamEnvironment("job", chaining=False, max_parallelism=8)
    spread = env.from_source("source", ENDLESS, parallelism=2).key_by(lambda row: row)
    spread.reduce("work", lambda a, b: b, parallelism=1).rebalance().sink("sink", DiscardSink())
    task = make_subtask(env, "work", config())
    task.deliver(rows("x"), channel=0)
    task.run_freely()
    task.deliver(rows("y"), unaligned(1), channel=0)
    if moment == "state written":
        task.upload()
    if moment.startswith("all"):
        task.deliver(unaligned(1), channel=1)
    if moment in ("all written", "all written and told"):
        while task.runner.waiting:
            task.runner.do(0)
    if moment == "all written and told":
        task.runner.done.pop().tell()
    task.subtask.notify_checkpoint_aborted(1) if end == "abort" else task.subtask.close()
    while task.runner.waiting:
        task.runner.do(0)
    if end == "abort":
        if not moment.startswith("all"):
            task.deliver(unaligned(1), channel=1)
        task.upload()
        assert task.subtask.statistics().checkpoints.running == 0
    assert task.acknowledged == {}
    assert task.declined == []
    assert task.storage.list("") == []


def test_checkpoint_that_was_given_up_before_its_barrier_came_is_cancelled_downstream(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(working(as_it_is), "work", config())
    task.subtask.notify_checkpoint_aborted(1)
    task.deliver(rows("a"), unaligned(1), channel=0)
    task.deliver(unaligned(1), channel=1)
    task.run_freely()
    task.upload()
    assert task.events() == [CancelCheckpointMarker(1)]
    assert task.acknowledged == {}
    kept = task.subtask._parts.in_flight
    assert kept is not None
    assert kept.writer.running == 0, "nothing is collected for it"
    task.deliver(rows("b"), unaligned(2), channel=0)
    task.deliver(unaligned(2), channel=1)
    task.upload()
    assert in_flight(task, 2) == InFlight({0: [["b"]]}, {})


def test_notice_of_a_newer_checkpoints_end_does_not_end_the_one_that_is_still_to_come(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(working(as_it_is, senders=1), "work", config())
    task.subtask.notify_checkpoint_aborted(2)  # a savepoint that was forced, and aborted at once
    task.deliver(rows("a"), unaligned(1))
    task.upload()
    assert in_flight(task, 1) == InFlight({0: [["a"]]}, {})
    assert task.declined == []


def test_newer_barrier_replaces_a_checkpoint_that_is_not_complete(make_subtask: MakeSubtask) -> None:
    task = make_subtask(working(as_it_is), "work", config())
    task.deliver(rows("a"), unaligned(1), rows("b"), unaligned(2), channel=0)
    task.deliver(unaligned(2), channel=1)
    task.upload()
    reason = CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED
    assert [(declined[0], declined[1]) for declined in task.declined] == [(1, reason)]
    assert list(task.acknowledged) == [2]
    assert in_flight(task, 2) == InFlight({0: [["a"], ["b"]]}, {})


def test_barrier_that_waits_in_the_outputs_goes_in_its_turn_when_its_checkpoint_is_given_up(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(reading([Polled(rows(0, 10))], lambda n: [n, n + 1]), "source", config(PATIENCE))
    task.run()
    task.subtask.trigger_checkpoint(patient(1))
    task.run()
    task.upload()
    task.subtask.notify_checkpoint_aborted(1)
    assert task.run().wake_at is None
    task.clock.advance(PATIENCE)
    task.run_freely()
    task.upload()
    assert task.sent[0][:5] == [rows(0), rows(1), rows(10), rows(11), patient(1)]
    assert task.acknowledged == {}
    assert task.declined == []


# -- the end ------------------------------------------------------------------------------------------------


def ended(make_subtask: MakeSubtask, **more: Any) -> SubtaskSetup:
    """A subtask with two channels whose data has ended, and that waits for its last checkpoint."""
    task = make_subtask(working(as_it_is), "work", config(**more))
    for channel in (0, 1):
        task.deliver(EndOfData(), channel=channel)
    task.run_freely()
    assert task.subtask.phase is Phase.ENDED
    return task


def test_subtask_whose_senders_have_left_takes_a_checkpoint_that_it_is_asked_for(
    make_subtask: MakeSubtask,
) -> None:
    task = ended(make_subtask)
    task.subtask.trigger_checkpoint(unaligned(1))
    task.deliver(EndOfPartition(), channel=0)
    task.run_freely()
    task.upload()
    assert task.acknowledged == {}, "a barrier may still come on channel 1"
    task.deliver(EndOfPartition(), channel=1)
    task.run_freely()
    task.upload()
    assert in_flight(task, 1) == NOTHING
    assert unaligned(1) in task.sent[0]


def test_request_that_comes_after_the_barrier_does_not_disturb_the_checkpoint(
    make_subtask: MakeSubtask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "INLINE_LIMIT", 0)
    task = ended(make_subtask, credits=1)
    for channel in (0, 1):
        task.deliver(unaligned(1), channel=channel)
    for channel in (0, 1):
        task.deliver(EndOfPartition(), channel=channel)
    task.run_freely()
    task.subtask.trigger_checkpoint(unaligned(1))
    task.run_freely()
    task.upload()
    assert list(task.acknowledged) == [1]
    assert task.declined == []
    assert task.events().count(unaligned(1)) == 1


def test_requests_whose_barriers_came_are_forgotten_whatever_stands_in_front_of_them(
    make_subtask: MakeSubtask,
) -> None:
    task = ended(make_subtask)
    task.subtask.trigger_checkpoint(unaligned(1))  # the barrier of this one never comes
    for checkpoint_id in (2, 3):
        task.subtask.trigger_checkpoint(unaligned(checkpoint_id))
        for channel in (0, 1):
            task.deliver(unaligned(checkpoint_id), channel=channel)
        task.run_freely()
    task.upload()
    assert list(task.acknowledged) == [2, 3]
    for channel in (0, 1):
        task.deliver(EndOfPartition(), channel=channel)
    task.run_freely()
    task.upload()
    assert list(task.acknowledged) == [2, 3]
    assert [declined[0] for declined in task.declined] == [1]


def test_end_of_a_channel_completes_what_is_captured_on_it(make_subtask: MakeSubtask) -> None:
    task = make_subtask(working(as_it_is), "work", config())
    task.deliver(unaligned(1), channel=0)
    task.deliver(rows("a"), EndOfData(drain=False), channel=1)
    task.upload()
    assert task.acknowledged == {}
    task.deliver(EndOfPartition(), channel=1)
    task.upload()
    assert in_flight(task, 1) == InFlight({1: [["a"], EndOfData(drain=False)]}, {})


def test_end_of_a_channel_gives_the_checkpoint_up_where_it_aborts(make_subtask: MakeSubtask) -> None:
    task = make_subtask(working(as_it_is), "work", config(end_of_partition="aborts"))
    task.deliver(unaligned(1), channel=0)
    task.deliver(rows("a"), EndOfData(drain=False), EndOfPartition(), channel=1)
    task.upload()
    assert task.acknowledged == {}
    task.run_freely()
    task.upload()
    reason = CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM
    assert [(declined[0], declined[1]) for declined in task.declined] == [(1, reason)]
    assert task.acknowledged == {}
    assert task.events()[-1] == CancelCheckpointMarker(1)
    assert task.storage.list("") == []
    task.deliver(rows("b"), unaligned(2), channel=0)
    task.upload()
    assert in_flight(task, 2) == InFlight({0: [["b"]]}, {})


def test_leaving_subtask_takes_part_in_silence_and_its_receivers_capture_what_it_still_sends(
    make_subtask: MakeSubtask,
) -> None:
    task = ended(make_subtask, credits=1)
    for channel in (0, 1):
        task.deliver(unaligned(1), channel=channel)
    task.run_freely()
    task.upload()
    task.subtask.notify_checkpoint_complete(1)
    assert task.subtask.phase is Phase.LEAVING
    sent = len(task.sent[0])
    for channel in (0, 1):
        task.deliver(unaligned(2), channel=channel)
    task.run()
    task.upload()
    assert in_flight(task, 2) == NOTHING
    assert unaligned(2) not in task.sent[0][sent - 1 :]
    assert task.sent[0][-1] == EndOfPartition()


def test_sink_commits_nothing_that_was_in_flight(make_subtask: MakeSubtask, log: Log) -> None:
    env = StreamEnvironment("job", chaining=False)
    env.from_source("source", ENDLESS).rebalance().sink("sink", LoggingSink(log))
    task = make_subtask(env, "sink", config())
    task.deliver(rows("a"))
    task.run()
    task.deliver(rows("b"), unaligned(1))
    task.run()
    task.upload()
    task.subtask.notify_checkpoint_complete(1)
    assert ("commit", [["a"]], 1) in log.calls
    assert in_flight(task, 1) == InFlight({0: [["b"]]}, {})
