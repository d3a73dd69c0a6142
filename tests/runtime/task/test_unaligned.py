"""Unaligned checkpoints of one subtask: how they begin and what they hold."""

from __future__ import annotations

import pytest
from subtask_setup import rows
from unaligned_setup import (
    ENDLESS,
    NOTHING,
    InFlight,
    MakeSubtask,
    as_it_is,
    config,
    handle_of,
    in_flight,
    savepoint,
    unaligned,
    working,
)

from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.record.elements import (
    Watermark,
)
from penstock.runtime.snapshot import metadata
from penstock.runtime.snapshot.handles import FileHandle

# -- when it begins -----------------------------------------------------------------------------------------


def test_barrier_that_arrives_is_sent_on_before_what_waits_in_front_of_it(make_subtask: MakeSubtask) -> None:
    task = make_subtask(working(as_it_is, senders=1), "work", config())
    task.deliver(rows(1), rows(2))
    task.deliver(unaligned(1))
    assert task.sent[0] == [unaligned(1)], "there was no step yet"
    task.upload()
    assert in_flight(task, 1) == InFlight({0: [[1], [2]]}, {})
    task.run_freely()
    assert task.rows() == [1, 2], "what was captured is processed all the same"
    task.upload()
    assert list(task.acknowledged) == [1]


def test_barrier_that_arrives_before_what_stands_in_front_of_it_begins_the_checkpoint(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(working(as_it_is, senders=1), "work", config())
    task.skip(1)
    task.deliver(unaligned(1))
    assert task.sent[0] == [unaligned(1)]
    task.upload()
    assert task.acknowledged == {}
    task.fill(0, rows("late"))
    task.upload()
    assert in_flight(task, 1) == InFlight({0: [["late"]]}, {})


def test_checkpoint_is_acknowledged_when_every_barrier_has_arrived_with_all_in_front_and_nothing_behind(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(working(as_it_is), "work", config())
    task.deliver(rows("a"), channel=1)
    task.deliver(unaligned(1), rows("behind"), channel=0)
    task.deliver(rows("b"), channel=1)
    task.run_freely()
    task.deliver(rows("c"), Watermark(5), channel=1)
    task.upload()
    assert task.acknowledged == {}, "channel 1 owes its barrier"
    task.deliver(unaligned(1), rows("behind"), channel=1)
    task.upload()
    assert in_flight(task, 1) == InFlight({1: [["a"], ["b"], ["c"], Watermark(5)]}, {})


def test_savepoint_waits_for_its_alignment_and_holds_nothing_in_flight(make_subtask: MakeSubtask) -> None:
    task = make_subtask(working(as_it_is), "work", config())
    task.deliver(rows("a"), savepoint(1), channel=0)
    task.run_freely()
    assert savepoint(1) not in task.sent[0]
    task.deliver(rows("b"), savepoint(1), channel=1)
    task.run_freely()
    task.upload()
    assert task.rows() == ["a", "b"]
    assert in_flight(task, 1) == NOTHING


def test_in_flight_data_lies_in_the_folder_of_its_checkpoint_and_is_counted(
    make_subtask: MakeSubtask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "INLINE_LIMIT", 0)
    task = make_subtask(working(as_it_is, senders=1), "work", config())
    task.deliver(rows(1), rows(2), unaligned(1))
    task.upload()
    handle = handle_of(task, 1)
    assert handle is not None
    assert handle.elements == 2
    assert isinstance(handle.state, FileHandle)
    assert task.storage.list("") == [handle.state.path] == ["job/chk-1-1/channels-work-0"]
    metrics = task.metrics[1]
    assert metrics.in_flight_bytes == metrics.written_bytes == metrics.full_bytes == handle.state.size > 0


# -- edges that are aligned ---------------------------------------------------------------------------------


def mixed() -> StreamEnvironment:
    """Channel 0 of `work` is forward, channel 1 is spread; it sends forward and spread."""
    env = StreamEnvironment("job", chaining=False)
    stream = env.from_source("source", ENDLESS)
    worked = stream.union(stream.rebalance()).flat_map(as_it_is, id="work")
    worked.sink("forward", DiscardSink())
    worked.rebalance().sink("spread", DiscardSink())
    return env


def test_forward_channel_is_aligned_and_the_other_one_waits_behind_its_barrier(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(mixed(), "work", config(credits=50))
    task.deliver(rows("spread"), channel=1)
    task.deliver(unaligned(1), rows("behind"), channel=1)
    task.run_freely()
    assert task.rows() == ["spread"], "nothing behind a barrier is taken before the snapshot"
    assert task.events() == []
    task.deliver(rows("forward"), unaligned(1), channel=0)
    task.run_freely()
    task.upload()
    assert in_flight(task, 1) == NOTHING
    for channel in (0, 1):
        assert task.sent[channel][:3] == [rows("spread"), rows("forward"), unaligned(1)]


def test_barrier_overtakes_in_the_spread_output_and_not_in_the_forward_one(make_subtask: MakeSubtask) -> None:
    task = make_subtask(mixed(), "work", config(credits=1))
    task.deliver(rows("a", "b"), unaligned(1), channel=0)
    task.deliver(unaligned(1), channel=1)
    task.run()
    assert task.rows(0) == task.rows(1) == ["a"]
    task.run_freely()
    task.upload()
    assert [e for e in task.sent[0] if e == unaligned(1)] == [unaligned(1)]
    before = task.sent[0][: task.sent[0].index(unaligned(1))]
    assert before == [rows("a"), rows("b")]
