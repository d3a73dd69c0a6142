"""Unaligned checkpoints of one subtask: how they begin and end, what they hold and what a restore does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from subtask_bench import CODEC, Bench, Log, LoggingSink, ScriptedSource, rows

from penstock.runtime.checkpoint import state_files
from penstock.runtime.checkpoint.channel_state_file import read_channel_state
from penstock.runtime.checkpoint.config import Checkpointing
from penstock.runtime.checkpoint.failure_reason import CheckpointFailureReason
from penstock.runtime.checkpoint.snapshot import ChannelStateHandle, FileHandle
from penstock.runtime.errors import OperatorError
from penstock.runtime.graph.job_config import JobConfig
from penstock.runtime.graph.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.discard_sink import DiscardSink
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.operators.operator import Operator, Output
from penstock.runtime.operators.protocols import Polled
from penstock.runtime.record.element_codec import decode_element
from penstock.runtime.record.elements import (
    ArrowBatch,
    Batch,
    Buffer,
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
    EndOfData,
    EndOfPartition,
    RowBatch,
    SnapshotKind,
    StreamStatus,
    Watermark,
)
from penstock.runtime.task.descriptor import TaskRestore
from penstock.runtime.task.end_of_input import Phase
from penstock.runtime.testing.manual_time import ManualClock

MakeBench = Callable[..., Bench]
ENDLESS = GeneratorSource(lambda i: i)
PATIENCE = 5.0


def unaligned(checkpoint_id: int) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, 1_000_000.0, CheckpointOptions(unaligned=True))


def patient(checkpoint_id: int) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, 1_000_000.0, CheckpointOptions(aligned_timeout=PATIENCE))


def turned(checkpoint_id: int) -> CheckpointBarrier:
    options = CheckpointOptions(unaligned=True, aligned_timeout=PATIENCE)
    return CheckpointBarrier(checkpoint_id, 1_000_000.0, options)


def savepoint(checkpoint_id: int) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, 1_000_000.0, CheckpointOptions(SnapshotKind.SAVEPOINT))


def config(aligned_timeout: float | None = None, **more: Any) -> JobConfig:
    """Small credits, so that outputs block after two buffers of one row."""
    checkpointing = Checkpointing(every=1, unaligned=True, aligned_timeout=aligned_timeout)
    return JobConfig(checkpointing=checkpointing, **{"credits": 2, "buffer_rows": 1, **more})


def working(function: Callable[[Any], Any], senders: int = 2, receivers: int = 1) -> StreamEnvironment:
    """A job whose vertex `work` has channels on both sides that barriers may overtake in."""
    env = StreamEnvironment("job", chaining=False)
    spread = env.from_source("source", ENDLESS, parallelism=senders).rebalance()
    worked = spread.flat_map(function, id="work", parallelism=1)
    worked.rebalance().sink("sink", DiscardSink(), parallelism=receivers)
    return env


def as_it_is(row: Any) -> list[Any]:
    return [row]


def plain(encoded: bytes) -> Any:
    element = decode_element(encoded)
    if not isinstance(element, Buffer):
        return element
    batch = CODEC.decode(element)
    return batch if isinstance(batch, ArrowBatch) or batch.timestamps else list(batch.rows)


@dataclass(frozen=True)
class InFlight:
    """What was in flight in a subtask, by number of the input channel and by position of the output."""

    inputs: dict[int, list[Any]]
    outputs: dict[int, list[Any]]


NOTHING = InFlight({}, {})


def handle_of(task: Bench, checkpoint_id: int) -> ChannelStateHandle | None:
    return next(iter(task.acknowledged[checkpoint_id].operators.values())).channels


def in_flight(task: Bench, checkpoint_id: int) -> InFlight:
    handle = handle_of(task, checkpoint_id)
    if handle is None:
        return NOTHING
    state, _ = read_channel_state(task.storage, handle)
    channels = [channel for edge in task.spec.outputs for channel in edge.channels]
    return InFlight(
        {channel: list(map(plain, elements)) for channel, elements in state.inputs.items()},
        {channels.index(spec): list(map(plain, elements)) for spec, elements in state.outputs.items()},
    )


def again(bench: MakeBench, env: StreamEnvironment, task: Bench, checkpoint_id: int, **more: Any) -> Bench:
    """The subtask of a new attempt that starts from a checkpoint of `task`."""
    restore = TaskRestore(checkpoint_id, 1, {}, channels=handle_of(task, checkpoint_id))
    return bench(
        env, task.spec.vertex.id, **{"config": config(), **more}, restore=restore, storage=task.storage
    )


# -- when it begins -----------------------------------------------------------------------------------------


def test_barrier_that_arrives_is_sent_on_before_what_waits_in_front_of_it(bench: MakeBench) -> None:
    task = bench(working(as_it_is, senders=1), "work", config())
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
    bench: MakeBench,
) -> None:
    task = bench(working(as_it_is, senders=1), "work", config())
    task.skip(1)
    task.deliver(unaligned(1))
    assert task.sent[0] == [unaligned(1)]
    task.upload()
    assert task.acknowledged == {}
    task.fill(0, rows("late"))
    task.upload()
    assert in_flight(task, 1) == InFlight({0: [["late"]]}, {})


def test_checkpoint_is_acknowledged_when_every_barrier_has_arrived_with_all_in_front_and_nothing_behind(
    bench: MakeBench,
) -> None:
    task = bench(working(as_it_is), "work", config())
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


def test_savepoint_waits_for_its_alignment_and_holds_nothing_in_flight(bench: MakeBench) -> None:
    task = bench(working(as_it_is), "work", config())
    task.deliver(rows("a"), savepoint(1), channel=0)
    task.run_freely()
    assert savepoint(1) not in task.sent[0]
    task.deliver(rows("b"), savepoint(1), channel=1)
    task.run_freely()
    task.upload()
    assert task.rows() == ["a", "b"]
    assert in_flight(task, 1) == NOTHING


def test_in_flight_data_lies_in_the_folder_of_its_checkpoint_and_is_counted(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_files, "INLINE_LIMIT", 0)
    task = bench(working(as_it_is, senders=1), "work", config())
    task.deliver(rows(1), rows(2), unaligned(1))
    task.upload()
    handle = handle_of(task, 1)
    assert handle is not None
    assert handle.elements == 2
    assert isinstance(handle.state, FileHandle)
    assert task.storage.list("") == [handle.state.path] == ["job/chk-1-1/channels-work-0"]
    metrics = task.metrics[1]
    assert metrics.in_flight_bytes == metrics.written_bytes == metrics.full_bytes == handle.state.size > 0


# -- work that is half done ---------------------------------------------------------------------------------


def slow(clock: ManualClock, seconds: float) -> Callable[[Any], list[Any]]:
    def function(row: Any) -> list[Any]:
        clock.advance(seconds)
        return [row]

    return function


def half_done(bench: MakeBench) -> Bench:
    """A subtask in the middle of a batch of 300 rows, and of a slice of it."""
    clock = ManualClock()
    task = bench(working(slow(clock, 0.005)), "work", config(credits=500), clock=clock)
    task.deliver(rows(*range(300)), channel=0)
    task.subtask.step()
    assert 0 < len(task.rows()) < 300
    return task


def test_rest_of_a_batch_is_in_front_of_what_waits_in_its_channel(bench: MakeBench) -> None:
    task = half_done(bench)
    task.deliver(rows("next"), unaligned(1), channel=0)
    done = task.sent[0].index(unaligned(1))
    task.deliver(unaligned(1), channel=1)
    task.upload()
    assert task.rows() == list(range(done)), "the slice under way was brought to its end, and no other begun"
    assert in_flight(task, 1) == InFlight({0: [list(range(done, 300)), ["next"]]}, {})
    task.run_freely()
    assert task.rows() == [*range(300), "next"]


def test_rest_belongs_to_the_channel_that_it_came_from(bench: MakeBench) -> None:
    task = half_done(bench)
    task.deliver(rows("other"), unaligned(1), channel=1)
    task.deliver(unaligned(1), channel=0)
    task.upload()
    captured = in_flight(task, 1).inputs
    assert captured[1] == [["other"]]
    assert captured[0][0][-1] == 299
    assert len(captured[0]) == 1


def test_subtask_whose_outputs_are_blocked_takes_its_checkpoint_and_loses_nothing(bench: MakeBench) -> None:
    task = bench(working(lambda n: range(n, n + 6)), "work", config())
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
    bench: MakeBench,
) -> None:
    clock = ManualClock()
    task = bench(working(slow(clock, 0.02), senders=1), "work", config(), clock=clock)
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
    object.__setattr__(stream._builder.graph.nodes[-1], "factory", Firing)
    stream.rebalance().sink("sink", DiscardSink())
    return env


@pytest.mark.parametrize("event", [Watermark(7), EndOfData(drain=False)])
def test_watermark_or_end_that_is_half_done_is_brought_to_its_end_in_front_of_the_barrier(
    bench: MakeBench, event: Watermark | EndOfData
) -> None:
    task = bench(firing(), "work", config(credits=1))
    task.deliver(event, rows("next"))
    task.run()
    name = "fired" if isinstance(event, Watermark) else "left"
    assert task.rows() == [f"{name} 0"]
    task.deliver(unaligned(1))
    task.upload()
    overtaken = [[f"{name} 1"], [f"{name} 2"], event]
    assert in_flight(task, 1) == InFlight({0: [["next"]]}, {0: overtaken})
    task.answer()
    assert [list(e.rows) if isinstance(e, RowBatch) else e for e in task.sent[0][2:]] == overtaken


def test_rest_of_an_arrow_batch_stays_arrow(bench: MakeBench) -> None:
    clock = ManualClock()

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        clock.advance(0.02 * batch.num_rows)
        return batch

    env = StreamEnvironment("job", chaining=False)
    spread = env.from_source("source", ENDLESS).rebalance()
    spread.map_batches(function, "arrow", id="work").rebalance().sink("sink", DiscardSink())
    task = bench(env, "work", config(credits=500), clock=clock)
    task.deliver(ArrowBatch(pa.record_batch({"n": list(range(600))})))
    for _ in range(3):
        task.subtask.step()
    sent = [n for batch in task.sent[0] for n in batch.batch["n"].to_pylist()]  # type: ignore[union-attr]
    assert 0 < len(sent) < 600
    task.deliver(unaligned(1))
    task.upload()
    (rest,) = in_flight(task, 1).inputs[0]
    assert sent + rest.batch["n"].to_pylist() == list(range(600))
    restored = again(bench, env, task, 1, config=config(credits=500), clock=clock)
    restored.run_freely()
    got = [n for batch in restored.sent[0] for n in batch.batch["n"].to_pylist()]  # type: ignore[union-attr]
    assert sent + got == list(range(600))


def test_timestamps_and_status_are_captured_with_the_data(bench: MakeBench) -> None:
    env = working(as_it_is, senders=1)
    task = bench(env, "work", config())
    stamped = RowBatch([1, 2], [10, 20])
    task.deliver(stamped, StreamStatus.IDLE, rows(3), EndOfData(drain=False), unaligned(1))
    task.upload()
    (captured,) = in_flight(task, 1).inputs.values()
    assert captured == [stamped, StreamStatus.IDLE, [3], EndOfData(drain=False)]
    restored = again(bench, env, task, 1)
    restored.run_freely()
    assert [b.timestamps for b in restored.sent[0] if isinstance(b, RowBatch)] == [[10], [20], None]
    assert restored.events() == [StreamStatus.IDLE, EndOfData(drain=False)]


def test_failure_of_users_code_while_a_barrier_arrives_names_the_operator(bench: MakeBench) -> None:
    def fails(n: int) -> Any:
        yield from range(5000)
        msg = "no more"
        raise ValueError(msg)

    task = bench(working(fails, senders=1), "work", config())
    task.deliver(rows(1))
    task.run()
    assert task.rows() == [0, 1]
    with pytest.raises(OperatorError, match=r"operator 'work'.*\n?.*no more"):
        task.deliver(unaligned(1))


# -- a source -----------------------------------------------------------------------------------------------


def reading(script: list[Any], function: Callable[[Any], Any]) -> StreamEnvironment:
    env = StreamEnvironment("job")
    stream = env.from_source("source", ScriptedSource(script)).flat_map(function)
    stream.rebalance().sink("sink", DiscardSink())
    return env


def test_source_with_blocked_outputs_works_its_batch_off_and_lets_the_barrier_overtake(
    bench: MakeBench,
) -> None:
    task = bench(
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


def test_source_takes_a_savepoint_only_when_its_batch_is_done(bench: MakeBench) -> None:
    task = bench(reading([Polled(rows(0, 10))], lambda n: [n, n + 1]), "source", config())
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


# -- patience -----------------------------------------------------------------------------------------------


def test_alignment_that_takes_too_long_turns_unaligned_at_the_time_that_the_step_named(
    bench: MakeBench,
) -> None:
    task = bench(working(as_it_is), "work", config(PATIENCE))
    task.deliver(patient(1), channel=0)
    task.deliver(rows("a"), channel=1)
    result = task.run_freely()
    assert result.wake_at == task.clock.monotonic() + PATIENCE
    assert task.rows() == ["a"]
    assert task.events() == []
    task.clock.advance(PATIENCE)
    task.deliver(rows("b"), channel=1)
    task.subtask.step()
    assert task.sent[0][1] == turned(1), "before anything that waits is taken"
    task.deliver(patient(1), channel=1)
    task.upload()
    assert in_flight(task, 1) == InFlight({1: [["b"]]}, {})


def test_alignment_that_is_quick_holds_nothing_in_flight_and_leaves_no_alarm(bench: MakeBench) -> None:
    task = bench(working(as_it_is), "work", config(PATIENCE))
    task.deliver(rows("a"), patient(1), channel=0)
    task.deliver(rows("b"), patient(1), channel=1)
    result = task.run_freely()
    task.upload()
    assert in_flight(task, 1) == NOTHING
    assert task.sent[0][-1] == patient(1)
    assert result.wake_at is None


def test_sender_that_lost_its_patience_turns_the_alignment_here(bench: MakeBench) -> None:
    task = bench(working(as_it_is), "work", config(PATIENCE))
    task.deliver(patient(1), channel=0)
    task.deliver(rows("a"), channel=1)
    task.deliver(turned(1), channel=1)
    assert task.sent[0] == [turned(1)]
    task.upload()
    assert in_flight(task, 1) == InFlight({1: [["a"]]}, {})


def test_barrier_that_waits_in_the_outputs_overtakes_when_its_patience_is_over(bench: MakeBench) -> None:
    task = bench(reading([Polled(rows(0, 10))], lambda n: [n, n + 1]), "source", config(PATIENCE))
    task.run()
    task.subtask.trigger_checkpoint(patient(1))
    result = task.run()
    task.upload()
    assert task.acknowledged == {}, "it may still grow"
    assert result.wake_at == task.clock.monotonic() + PATIENCE
    task.clock.advance(PATIENCE)
    task.subtask.step()
    task.upload()
    assert task.sent[0][-1] == turned(1)
    assert in_flight(task, 1) == InFlight({}, {0: [[10], [11]]})


def test_barrier_that_leaves_the_outputs_in_its_turn_ends_its_checkpoint_in_the_next_step(
    bench: MakeBench,
) -> None:
    task = bench(reading([Polled(rows(0, 10))], lambda n: [n, n + 1]), "source", config(PATIENCE))
    task.run()
    task.subtask.trigger_checkpoint(patient(1))
    task.run()
    task.upload()
    result = task.run_freely()
    task.upload()
    assert in_flight(task, 1) == NOTHING
    assert result.wake_at is None or result.wake_at < task.clock.monotonic() + PATIENCE


# -- edges that are aligned ---------------------------------------------------------------------------------


def mixed() -> StreamEnvironment:
    """Channel 0 of `work` is forward, channel 1 is spread; it sends forward and spread."""
    env = StreamEnvironment("job", chaining=False)
    stream = env.from_source("source", ENDLESS)
    worked = stream.union(stream.rebalance()).flat_map(as_it_is, id="work")
    worked.sink("forward", DiscardSink())
    worked.rebalance().sink("spread", DiscardSink())
    return env


def test_forward_channel_is_aligned_and_the_other_one_waits_behind_its_barrier(bench: MakeBench) -> None:
    task = bench(mixed(), "work", config(credits=50))
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


def test_barrier_overtakes_in_the_spread_output_and_not_in_the_forward_one(bench: MakeBench) -> None:
    task = bench(mixed(), "work", config(credits=1))
    task.deliver(rows("a", "b"), unaligned(1), channel=0)
    task.deliver(unaligned(1), channel=1)
    task.run()
    assert task.rows(0) == task.rows(1) == ["a"]
    task.run_freely()
    task.upload()
    assert [e for e in task.sent[0] if e == unaligned(1)] == [unaligned(1)]
    before = task.sent[0][: task.sent[0].index(unaligned(1))]
    assert before == [rows("a"), rows("b")]


# -- restore ------------------------------------------------------------------------------------------------


def test_restored_data_comes_first_receivers_part_before_new_data_and_senders_part_before_all(
    bench: MakeBench,
) -> None:
    env = working(lambda n: range(n, n + 4))
    task = bench(env, "work", config())
    task.deliver(rows(0), rows(100), channel=0)
    task.run()
    task.deliver(unaligned(1), channel=0)
    task.deliver(unaligned(1), channel=1)
    task.upload()
    assert in_flight(task, 1) == InFlight({0: [[100]]}, {0: [[2], [3]]})
    restored = again(bench, env, task, 1)
    restored.deliver(rows(200), channel=0)
    assert restored.sent[0] == []
    restored.subtask.step()
    assert restored.rows() == [2, 3]
    restored.run_freely()
    assert restored.rows() == [2, 3, *range(100, 104), *range(200, 204)]
    assert restored.taken[0] == 1, "what was restored has no numbers"


def test_restored_data_is_captured_again_by_a_barrier_that_comes_before_the_first_step(
    bench: MakeBench,
) -> None:
    env = working(lambda n: range(n, n + 6))
    task = bench(env, "work", config())
    task.deliver(rows(0), rows(100), Watermark(3), channel=0)
    task.run()
    task.deliver(unaligned(1), channel=0)
    task.deliver(unaligned(1), channel=1)
    task.upload()
    restored = again(bench, env, task, 1)
    restored.deliver(rows(200), unaligned(2), channel=0)
    restored.deliver(unaligned(2), channel=1)
    restored.upload()
    assert restored.sent[0] == [rows(2), rows(3), unaligned(2)], "as far as the credits reach"
    assert in_flight(restored, 2) == InFlight({0: [[100], Watermark(3), [200]]}, {0: [[4], [5]]})


def test_job_that_aligns_its_checkpoints_starts_from_an_unaligned_one(bench: MakeBench) -> None:
    env = working(as_it_is)
    task = bench(env, "work", config())
    task.deliver(rows(1), unaligned(1), channel=0)
    task.deliver(rows(2), unaligned(1), channel=1)
    task.upload()
    aligned = JobConfig(checkpointing=Checkpointing(every=1))
    restored = again(bench, env, task, 1, config=aligned)
    for channel in (0, 1):
        restored.deliver(CheckpointBarrier(2, 0.0), channel=channel)
    restored.run_freely()
    restored.upload()
    assert sorted(restored.rows()) == [1, 2]
    assert restored.sent[0][-1] == CheckpointBarrier(2, 0.0), "what was in flight is in front of it"
    assert in_flight(restored, 2) == NOTHING


# -- checkpoints that are given up --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "moment", ["begun", "state written", "all arrived", "all written", "all written and told"]
)
@pytest.mark.parametrize("end", ["abort", "close"])
def test_checkpoint_that_is_given_up_leaves_nothing_behind(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch, moment: str, end: str
) -> None:
    monkeypatch.setattr(state_files, "INLINE_LIMIT", 0)
    env = StreamEnvironment("job", chaining=False, max_parallelism=8)
    spread = env.from_source("source", ENDLESS, parallelism=2).key_by(lambda row: row)
    spread.reduce("work", lambda a, b: b, parallelism=1).rebalance().sink("sink", DiscardSink())
    task = bench(env, "work", config())
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
    task.subtask.notify_aborted(1) if end == "abort" else task.subtask.close()
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
    bench: MakeBench,
) -> None:
    task = bench(working(as_it_is), "work", config())
    task.subtask.notify_aborted(1)
    task.deliver(rows("a"), unaligned(1), channel=0)
    task.deliver(unaligned(1), channel=1)
    task.run_freely()
    task.upload()
    assert task.events() == [CancelCheckpointMarker(1)]
    assert task.acknowledged == {}
    task.deliver(rows("b"), unaligned(2), channel=0)
    task.deliver(unaligned(2), channel=1)
    task.upload()
    assert in_flight(task, 2) == InFlight({0: [["b"]]}, {})


def test_notice_of_a_newer_checkpoints_end_does_not_end_the_one_that_is_still_to_come(
    bench: MakeBench,
) -> None:
    task = bench(working(as_it_is, senders=1), "work", config())
    task.subtask.notify_aborted(2)  # a savepoint that was forced, and given up at once
    task.deliver(rows("a"), unaligned(1))
    task.upload()
    assert in_flight(task, 1) == InFlight({0: [["a"]]}, {})
    assert task.declined == []


def test_newer_barrier_replaces_a_checkpoint_that_is_not_complete(bench: MakeBench) -> None:
    task = bench(working(as_it_is), "work", config())
    task.deliver(rows("a"), unaligned(1), rows("b"), unaligned(2), channel=0)
    task.deliver(unaligned(2), channel=1)
    task.upload()
    reason = CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED
    assert [(declined[0], declined[1]) for declined in task.declined] == [(1, reason)]
    assert list(task.acknowledged) == [2]
    assert in_flight(task, 2) == InFlight({0: [["a"], ["b"]]}, {})


def test_barrier_that_waits_in_the_outputs_goes_in_its_turn_when_its_checkpoint_is_given_up(
    bench: MakeBench,
) -> None:
    task = bench(reading([Polled(rows(0, 10))], lambda n: [n, n + 1]), "source", config(PATIENCE))
    task.run()
    task.subtask.trigger_checkpoint(patient(1))
    task.run()
    task.upload()
    task.subtask.notify_aborted(1)
    assert task.run().wake_at is None
    task.clock.advance(PATIENCE)
    task.run_freely()
    task.upload()
    assert task.sent[0][:5] == [rows(0), rows(1), rows(10), rows(11), patient(1)]
    assert task.acknowledged == {}
    assert task.declined == []


# -- the end ------------------------------------------------------------------------------------------------


def ended(bench: MakeBench, **more: Any) -> Bench:
    """A subtask of two channels that waits for the checkpoint of its end."""
    task = bench(working(as_it_is), "work", config(**more))
    for channel in (0, 1):
        task.deliver(EndOfData(), channel=channel)
    task.run_freely()
    assert task.subtask.phase is Phase.ENDED
    return task


def test_subtask_whose_senders_have_left_takes_a_checkpoint_that_it_is_asked_for(bench: MakeBench) -> None:
    task = ended(bench)
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
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_files, "INLINE_LIMIT", 0)
    task = ended(bench, credits=1)
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
    bench: MakeBench,
) -> None:
    task = ended(bench)
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


def test_end_of_a_channel_completes_what_is_captured_on_it(bench: MakeBench) -> None:
    task = bench(working(as_it_is), "work", config())
    task.deliver(unaligned(1), channel=0)
    task.deliver(rows("a"), EndOfData(drain=False), channel=1)
    task.upload()
    assert task.acknowledged == {}
    task.deliver(EndOfPartition(), channel=1)
    task.upload()
    assert in_flight(task, 1) == InFlight({1: [["a"], EndOfData(drain=False)]}, {})


def test_end_of_a_channel_gives_the_checkpoint_up_where_it_aborts(bench: MakeBench) -> None:
    task = bench(working(as_it_is), "work", config(end_of_partition="aborts"))
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
    bench: MakeBench,
) -> None:
    task = ended(bench, credits=1)
    for channel in (0, 1):
        task.deliver(unaligned(1), channel=channel)
    task.run_freely()
    task.upload()
    task.subtask.notify_complete(1)
    assert task.subtask.phase is Phase.LEAVING
    sent = len(task.sent[0])
    for channel in (0, 1):
        task.deliver(unaligned(2), channel=channel)
    task.run()
    task.upload()
    assert in_flight(task, 2) == NOTHING
    assert unaligned(2) not in task.sent[0][sent - 1 :]
    assert task.sent[0][-1] == EndOfPartition()


def test_sink_commits_nothing_that_was_in_flight(bench: MakeBench, log: Log) -> None:
    env = StreamEnvironment("job", chaining=False)
    env.from_source("source", ENDLESS).rebalance().sink("sink", LoggingSink(log))
    task = bench(env, "sink", config())
    task.deliver(rows("a"))
    task.run()
    task.deliver(rows("b"), unaligned(1))
    task.run()
    task.upload()
    task.subtask.notify_complete(1)
    assert ("commit", [["a"]], 1) in log.calls
    assert in_flight(task, 1) == InFlight({0: [["b"]]}, {})
