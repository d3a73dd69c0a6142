"""Events of coordinators keep their place relative to a subtask's checkpoints, taken or aborted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from checkpoint_graphs import ENDLESS, MakeSubtask, barrier, listed
from subtask_setup import ScriptedSource, SubtaskSetup, rows

from penstock import AdvancedConfig, Checkpointing, DiscardSink, JobConfig, StreamEnvironment
from penstock.operators import Operator, RowBatch
from penstock.runtime.operators.coordinator_host import EventOfCoordinator, EventOfSubtask
from penstock.runtime.operators.coordinators import OperatorCoordinator
from penstock.runtime.operators.source import Polled
from penstock.runtime.record.elements import (
    END_OF_TIME,
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
    EndOfData,
    SnapshotKind,
    Watermark,
)
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason

CODEC = ValueCodec()
UNALIGNED = JobConfig(
    checkpointing=Checkpointing(every=1, unaligned=True), advanced=AdvancedConfig(credits=1)
)


class Hears(Operator):
    """Keeps what it heard; reports every row; tells of both in front of a barrier."""

    def open(self, context: Any) -> None:
        self.context, self.heard = context, context.operator_list_state("heard")

    def process(self, batch: RowBatch) -> Iterator[RowBatch]:
        for row in batch.rows:
            self.context.send_event(row)
            yield RowBatch([row])

    def handle_event(self, event: Any) -> None:
        self.heard.add(event)

    def prepare_snapshot_pre_barrier(self) -> Iterator[RowBatch]:
        yield RowBatch([tuple(self.heard.get())])

    def coordinator(self, context: Any) -> OperatorCoordinator:
        return OperatorCoordinator()


def hearing() -> StreamEnvironment:
    env = StreamEnvironment("job")
    env.from_source("source", ENDLESS).rebalance().transform("hears", Hears()).rebalance().sink(
        "sink", DiscardSink()
    )
    return env


def forwarding() -> StreamEnvironment:
    env = StreamEnvironment("job")
    stream = env.from_source("source", ENDLESS).rebalance().transform("hears", Forwards())
    stream.rebalance().sink("sink", DiscardSink())
    return env


def stop_with(savepoint_id: int, drain: bool) -> CheckpointBarrier:
    options = CheckpointOptions(SnapshotKind.SYNC_SAVEPOINT, drain=drain)
    return CheckpointBarrier(savepoint_id, 1_000_000.0, options)


@pytest.fixture
def task(make_subtask: MakeSubtask) -> SubtaskSetup:
    return make_subtask(hearing(), "hears")


def say(task: SubtaskSetup, event: Any, after: int = -1) -> None:
    task.subtask.operator_event("hears", EventOfCoordinator(after, CODEC.dumps(event)))


def heard_in(task: SubtaskSetup, checkpoint_id: int) -> list[Any]:
    task.upload()
    return listed(task.acknowledged[checkpoint_id].operators["hears"], "heard")


def test_an_event_behind_a_checkpoint_waits_for_its_barrier_and_one_in_front_does_not(
    task: SubtaskSetup,
) -> None:
    say(task, "in front")
    say(task, "behind", after=1)
    task.deliver(barrier(1))
    task.run()
    task.deliver(barrier(2))
    task.run()
    assert heard_in(task, 1) == ["in front"]
    assert heard_in(task, 2) == ["in front", "behind"]
    assert task.rows() == [("in front",), ("in front", "behind")]


def test_an_event_behind_a_checkpoint_that_never_comes_is_in_front_of_the_next(task: SubtaskSetup) -> None:
    say(task, "behind", after=1)
    task.deliver(barrier(2))
    task.run()
    assert heard_in(task, 2) == ["behind"]


@pytest.mark.parametrize("how", ["told", "marker", "told before"])
def test_an_event_behind_an_aborted_checkpoint_waits_no_longer(task: SubtaskSetup, how: str) -> None:
    if how == "told before":
        task.subtask.notify_checkpoint_aborted(1)
    say(task, "behind", after=1)
    if how == "told":
        task.subtask.notify_checkpoint_aborted(1)
    if how == "marker":
        task.deliver(CancelCheckpointMarker(1))
    task.run()
    task.deliver(rows(7), barrier(2))
    task.run()
    assert task.rows()[-1] == ("behind",)
    assert heard_in(task, 2) == ["behind"]
    declined = [(1, CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER)]
    assert [each[:2] for each in task.declined] == (declined if how == "marker" else [])


def test_events_keep_their_order_behind_one_that_waits(task: SubtaskSetup) -> None:
    for event, after in [("a", -1), ("b", 1), ("c", 1), ("d", 2)]:
        say(task, event, after)
    task.deliver(barrier(1), barrier(2), barrier(3))
    task.run()
    task.upload()
    assert [heard_in(task, n) for n in (1, 2, 3)] == [["a"], ["a", "b", "c"], ["a", "b", "c", "d"]]


def test_an_event_waits_while_an_operator_is_in_the_middle_of_a_call(make_subtask: MakeSubtask) -> None:
    task = make_subtask(hearing(), "hears", config=UNALIGNED)
    task.deliver(rows(1, 2, 3, 4))
    task.run()
    say(task, "now")
    task.deliver(CheckpointBarrier(1, 1_000_000.0, CheckpointOptions(unaligned=True)))
    assert heard_in(task, 1) == ["now"]


class Forwards(Hears):
    """Emits what it heard in front of a barrier or at the end: it holds nothing whenever state is taken."""

    def prepare_snapshot_pre_barrier(self) -> Iterator[RowBatch]:
        heard = self.heard.get()
        self.heard.clear()
        yield RowBatch(heard)

    end_of_data = prepare_snapshot_pre_barrier


@pytest.mark.parametrize("drain", [True, False])
def test_an_event_in_front_of_the_savepoint_of_a_stop_is_handled_before_the_last_flush(
    make_subtask: MakeSubtask, drain: bool
) -> None:
    """Checkpoint 1 was aborted, and the notice of it has not come when the job is stopped."""
    task = make_subtask(forwarding(), "hears")
    stop = stop_with(3, drain)
    say(task, "in front", after=1)
    say(task, "behind", after=3)
    ends = [Watermark(END_OF_TIME)] if drain else []
    task.deliver(rows(7), *ends, EndOfData(drain, 3), stop)
    task.run()
    assert [e for e in task.sent[0] if e not in ends] == [
        RowBatch([7]),
        RowBatch(["in front"]),
        EndOfData(drain, 3),
        stop,
    ]
    assert heard_in(task, 3) == []


@pytest.mark.parametrize("drain", [True, False])
def test_a_source_in_the_same_chain_hands_events_over_before_its_end_too(
    make_subtask: MakeSubtask, drain: bool
) -> None:
    env = StreamEnvironment("job")
    source = env.from_source("source", ScriptedSource([Polled(RowBatch([7]))]))
    source.transform("hears", Forwards()).rebalance().sink("sink", DiscardSink())
    task = make_subtask(env, "source")
    task.subtask.step()
    say(task, "in front", after=1)
    task.subtask.trigger_checkpoint(stop_with(3, drain))
    task.run()
    assert task.rows() == [7, "in front"]
    assert EndOfData(drain, 3) in task.events()
    assert heard_in(task, 3) == []


def test_an_end_without_a_stop_hands_over_nothing_early(make_subtask: MakeSubtask) -> None:
    task = make_subtask(forwarding(), "hears")
    say(task, "behind", after=1)
    task.deliver(Watermark(END_OF_TIME), EndOfData(), barrier(1))
    task.run()
    assert heard_in(task, 1) == []
    assert task.rows() == []


def test_an_acknowledgement_counts_the_events_in_front_of_it(task: SubtaskSetup) -> None:
    task.deliver(rows("a", "b"), barrier(1), rows("c"), barrier(2))
    task.run()
    task.upload()
    assert task.events_sent == [
        ("hears", EventOfSubtask(number, CODEC.dumps(row))) for number, row in enumerate("abc", 1)
    ]
    assert [dict(task.acknowledged[n].events) for n in (1, 2)] == [{"hears": 2}, {"hears": 3}]


def test_an_event_for_an_operator_that_is_not_here_is_refused(task: SubtaskSetup) -> None:
    with pytest.raises(ValueError, match="not in"):
        task.subtask.operator_event("other", EventOfCoordinator(-1, CODEC.dumps(1)))


def test_a_closed_subtask_hands_nothing_over(task: SubtaskSetup) -> None:
    say(task, "behind", after=1)
    task.subtask.close()
    task.subtask.notify_checkpoint_aborted(1)
    assert task.acknowledged == {}
