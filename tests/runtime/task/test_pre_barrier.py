"""Output in front of a barrier: it is sent before the barrier and in front of every end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from checkpoint_graphs import ENDLESS, MakeSubtask, barrier, listed
from subtask_setup import SubtaskSetup, rows

from penstock import AdvancedConfig, Checkpointing, DiscardSink, JobConfig, StreamEnvironment
from penstock.operators import Operator, RowBatch
from penstock.runtime.errors import OperatorError
from penstock.runtime.record.elements import (
    END_OF_TIME,
    CheckpointBarrier,
    CheckpointOptions,
    EndOfData,
    SnapshotKind,
    Watermark,
)

UNALIGNED = JobConfig(
    checkpointing=Checkpointing(every=1, unaligned=True), advanced=AdvancedConfig(credits=1)
)


class Sums(Operator):
    """Adds up, and emits the sum in front of a barrier and at the end."""

    def open(self, context: Any) -> None:
        self.sum = 0
        self.left = context.operator_list_state("left")

    def process(self, batch: RowBatch) -> Iterator[RowBatch]:
        self.sum += sum(batch.rows)
        yield from ()

    def flush(self) -> Iterator[RowBatch]:
        sums, self.sum = self.sum, 0
        if sums:
            yield RowBatch([sums])

    prepare_snapshot_pre_barrier = end_of_data = flush

    def snapshot(self, checkpoint_id: int) -> None:
        self.left.update([self.sum])


def summing(*behind: Operator) -> StreamEnvironment:
    """A job whose vertex `sums` holds the operator and those behind it."""
    env = StreamEnvironment("job")
    stream = env.from_source("source", ENDLESS).rebalance().transform("sums", Sums())
    for number, operator in enumerate(behind):
        stream = stream.transform(f"behind-{number}", operator)
    stream.rebalance().sink("sink", DiscardSink())
    return env


def sent(task: SubtaskSetup) -> list[Any]:
    """Rows and events, in the order in which they left."""
    return [list(e.rows) if isinstance(e, RowBatch) else e for e in task.sent[0]]


def test_what_was_held_back_leaves_in_front_of_the_barrier_and_is_not_in_the_snapshot(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(summing(), "sums")
    task.deliver(rows(1, 2), rows(3), barrier(1), rows(4), barrier(2), barrier(3))
    task.run()
    task.upload()
    assert sent(task) == [[6], barrier(1), [4], barrier(2), barrier(3)]
    for checkpoint_id in (1, 2, 3):
        assert listed(task.acknowledged[checkpoint_id].operators["sums"], "left") == [0]


def test_the_operators_behind_get_it_before_they_are_asked_themselves(make_subtask: MakeSubtask) -> None:
    task = make_subtask(summing(Sums(), Sums()), "sums")
    task.deliver(rows(1, 2), barrier(1))
    task.run()
    assert sent(task) == [[3], barrier(1)]


def test_an_unaligned_barrier_overtakes_it_and_the_checkpoint_holds_it_as_data_in_flight(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(summing(), "sums", config=UNALIGNED)
    overtaking = CheckpointOptions(unaligned=True)
    first, second = (CheckpointBarrier(n, 1_000_000.0, overtaking) for n in (1, 2))
    task.deliver(rows(1, 2), rows(3))
    task.run()
    task.deliver(first, rows(4))
    task.run()
    task.deliver(second)
    task.upload()
    assert sent(task) == [[6], first, second], "the only credit is used up"
    taken = task.acknowledged[2].operators["sums"]
    assert listed(taken, "left") == [0]
    assert taken.channels is not None
    assert taken.channels.elements == 1
    task.answer()
    task.run()
    assert sent(task)[-1] == [4]


@pytest.mark.parametrize("drain", [True, False])
def test_nothing_is_emitted_behind_the_end_of_the_data(make_subtask: MakeSubtask, drain: bool) -> None:
    task = make_subtask(summing(), "sums")
    options = CheckpointOptions(SnapshotKind.SYNC_SAVEPOINT, drain=drain)
    stop = CheckpointBarrier(1, 1_000_000.0, options)
    task.deliver(rows(1, 2), *([Watermark(END_OF_TIME)] if drain else []), EndOfData(drain), stop)
    task.run()
    task.upload()
    ends = [Watermark(END_OF_TIME)] if drain else []
    assert [e for e in sent(task) if e not in ends] == [[3], EndOfData(drain), stop]
    assert listed(task.acknowledged[1].operators["sums"], "left") == [0]


def test_an_operator_that_fails_there_fails_the_subtask_and_is_named(make_subtask: MakeSubtask) -> None:
    class Fails(Sums):
        def prepare_snapshot_pre_barrier(self) -> Iterator[RowBatch]:  # type: ignore[override]
            raise OSError("no luck")

    task = make_subtask(summing(Fails()), "sums")
    task.deliver(barrier(1))
    with pytest.raises(OperatorError, match=r"'behind-0'.*Fails.prepare_snapshot_pre_barrier.*no luck"):
        task.run()
