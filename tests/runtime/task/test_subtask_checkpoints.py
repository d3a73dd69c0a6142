"""Checkpoints of one subtask: when they are taken, and what is in them."""

from __future__ import annotations

import pytest
from checkpoint_graphs import MakeSubtask, barrier, counting, keyed, listed, reading, savepoint
from subtask_setup import ScriptedSource, rows

from penstock import WatermarkStrategy
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.operators.source import Polled
from penstock.runtime.record.elements import (
    CheckpointBarrier,
    CheckpointOptions,
    RowBatch,
    SnapshotKind,
    Watermark,
)
from penstock.runtime.snapshot import metadata
from penstock.runtime.testing.manual_time import ManualClock


def test_source_stores_the_position_behind_what_it_sent_in_front_of_the_barrier(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(
        reading([Polled(rows(1, 2)), Polled(rows(3)), Polled(ready_at=9.0)], lambda n: n), "source"
    )
    task.subtask.step()
    snapshot = task.checkpoint(1)
    assert listed(snapshot.operators["source"], "splits") == [1]
    assert task.sent[0] == [RowBatch([1]), barrier(1), RowBatch([3])]
    assert task.sent[1] == [RowBatch([2]), barrier(1)]


def test_checkpoint_is_taken_before_the_first_record_if_it_is_asked_for_then(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(reading([Polled(rows(1))], lambda n: n), "source")
    snapshot = task.checkpoint(1)
    assert listed(snapshot.operators["source"], "splits") == [0]
    assert task.sent[0][0] == barrier(1)


def test_checkpoint_that_is_asked_for_in_the_middle_of_a_batch_waits_for_its_end(
    make_subtask: MakeSubtask,
) -> None:
    clock = ManualClock()

    def slow(n: int) -> int:
        clock.advance(0.02)
        return n

    script = [Polled(rows(*range(300))), Polled(rows(*range(300, 600)))]
    task = make_subtask(reading(script, slow), "source", clock=clock)
    task.subtask.step()
    assert 0 < len(task.rows(0)) + len(task.rows(1)) < 300
    task.trigger(1)
    while not task.events():
        task.subtask.step()
        task.answer()
    assert len(task.rows(0)) + len(task.rows(1)) == 300
    task.upload()
    assert listed(task.acknowledged[1].operators["source"], "splits") == [1]


def test_the_watermark_of_a_batch_is_in_front_of_an_unaligned_barrier_as_the_batch_is(
    make_subtask: MakeSubtask,
) -> None:
    """The source would not give it again: after a restore event time would wait for the next mark."""
    clock = ManualClock()

    def slow(n: int) -> int:
        clock.advance(1.0)  # a slice ends behind each record
        return n

    env = StreamEnvironment("job")
    marked = WatermarkStrategy.for_punctuated(lambda n, timestamp: n).with_timestamp_assigner(lambda n: n)
    script = [Polled(rows(7)), Polled(ready_at=1e9)]
    stream = env.from_source("source", ScriptedSource(script), watermarks=marked).map(slow)
    stream.sink("sink", DiscardSink(), parallelism=2)
    task = make_subtask(env, "source", clock=clock)
    task.subtask.step()
    options = CheckpointOptions(SnapshotKind.CHECKPOINT, unaligned=True)
    task.subtask.trigger_checkpoint(CheckpointBarrier(1, clock.now(), options))
    task.run_freely()
    task.upload()
    assert listed(task.acknowledged[1].operators["source"], "splits") == [1]
    (place,) = (n for n, event in enumerate(task.events()) if isinstance(event, CheckpointBarrier))
    assert Watermark(7) in task.events()[:place]


def test_checkpoint_waits_in_the_middle_of_a_batch_that_has_no_credit(make_subtask: MakeSubtask) -> None:
    env = StreamEnvironment("job")
    source = env.from_source("source", ScriptedSource([Polled(rows(3 * 4096))]))
    source.flat_map(lambda n: range(n)).sink("sink", DiscardSink(), parallelism=2)
    config = JobConfig(
        checkpointing=Checkpointing(every=1), advanced=AdvancedConfig(credits=1, buffer_rows=512)
    )
    task = make_subtask(env, "source", config)
    task.run()
    task.trigger(1)
    task.run()
    assert task.events() == []
    task.run_freely()
    assert len(task.rows(0)) + len(task.rows(1)) == 3 * 4096
    for channel in (0, 1):
        (index,) = (i for i, e in enumerate(task.sent[channel]) if isinstance(e, CheckpointBarrier))
        assert all(not isinstance(e, RowBatch) for e in task.sent[channel][index:])


def test_blocked_subtask_takes_checkpoints_between_batches(make_subtask: MakeSubtask) -> None:
    config = JobConfig(
        checkpointing=Checkpointing(every=1), advanced=AdvancedConfig(credits=1), buffer_timeout=60.0
    )
    script = [Polled(rows(1, 2)), Polled(rows(3, 4)), Polled(ready_at=9.0)]
    task = make_subtask(reading(script, lambda n: n), "source", config)
    task.run()
    task.trigger(1)  # closes the open buffers, for which there is no credit
    task.trigger(2)
    task.run()
    task.upload()
    assert set(task.acknowledged) == {1, 2}
    assert task.events() == []
    task.run_freely()
    assert task.events(0) == task.events(1) == [barrier(1), barrier(2)]


def test_state_holds_what_came_before_the_barriers_and_nothing_behind_them(make_subtask: MakeSubtask) -> None:
    task = make_subtask(counting(), "count")
    task.deliver(rows("a", "b"), barrier(1), channel=0)
    task.deliver(rows("a"), channel=0)
    task.run_freely()
    assert task.taken == {0: 2}, "nothing behind a barrier is taken"
    task.deliver(rows("c"), barrier(1), rows("c"), channel=1)
    task.run_freely()
    task.upload()
    assert keyed(task, task.acknowledged[1]) == {"a": "a", "b": "b", "c": "c"}
    assert sorted(task.rows(0) + task.rows(1)) == ["a", "aa", "b", "c", "cc"]
    for channel in (0, 1):
        before = task.sent[channel][: task.sent[channel].index(barrier(1))]
        assert all(row in ("a", "b", "c") for b in before if isinstance(b, RowBatch) for row in b.rows)


def test_changes_after_the_synchronous_half_are_in_the_next_checkpoint(make_subtask: MakeSubtask) -> None:
    task = make_subtask(counting(1), "count")
    task.deliver(rows("a"), barrier(1), rows("a", "b"), barrier(2, confirmed_id=1))
    task.run_freely()
    task.upload()
    assert keyed(task, task.acknowledged[1]) == {"a": "a"}
    assert keyed(task, task.acknowledged[2]) == {"a": "aa", "b": "b"}


def test_checkpoint_names_the_files_of_the_completed_one_that_its_barrier_names(
    make_subtask: MakeSubtask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "INLINE_LIMIT", 0)
    task = make_subtask(counting(1), "count")
    for asked in (barrier(1), barrier(2, confirmed_id=1), barrier(3, confirmed_id=-1)):
        task.deliver(rows("abc"[asked.checkpoint_id - 1]), asked)
        task.run_freely()
        task.upload()
    files = {i: set(snapshot.files()) for i, snapshot in task.acknowledged.items()}
    assert files[1] < files[2], "one more file, with what has changed"
    assert not files[3] & (files[1] | files[2]), "nothing is confirmed: everything is written again"
    assert keyed(task, task.acknowledged[3]) == {"a": "a", "b": "b", "c": "c"}


def test_savepoint_has_its_files_in_its_own_folder_and_nothing_builds_on_it(
    make_subtask: MakeSubtask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "INLINE_LIMIT", 0)
    task = make_subtask(counting(1), "count")
    for asked in (barrier(1), savepoint(2, confirmed_id=1), barrier(3, confirmed_id=1)):
        task.deliver(rows("abc"[asked.checkpoint_id - 1]), asked)
        task.run_freely()
        task.upload()
    assert keyed(task, task.acknowledged[2]) == {"a": "a", "b": "b"}
    assert all(file.path.startswith("job/savepoint-2-1/") for file in task.acknowledged[2].files())
    assert keyed(task, task.acknowledged[3]) == {"a": "a", "b": "b", "c": "c"}
    assert all(file.path.startswith("job/shared/") for file in task.acknowledged[3].files())
