from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.runtime.errors import KeyGroupError, OperatorError
from penstock.runtime.operators.functions.keyed_folds import KeyedReduceOperator
from penstock.runtime.operators.functions.record_functions import MapOperator
from penstock.runtime.operators.operator import Operator, Output, Tagged
from penstock.runtime.record.elements import Batch, RowBatch, Watermark
from penstock.runtime.testing.harness import OperatorHarness
from penstock.runtime.testing.manual_time import ManualClock


def counting() -> KeyedReduceOperator:
    return KeyedReduceOperator(lambda pair: pair[0], lambda a, b: (a[0], a[1] + b[1]))


class Windowed(Operator):
    """Holds rows until the watermark; late ones go aside."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.watermark = -1

    def process(self, batch: Batch) -> Iterator[Output]:
        assert isinstance(batch, RowBatch)
        late = [row for row in batch.rows if row <= self.watermark]
        self.rows += [row for row in batch.rows if row > self.watermark]
        if late:
            yield Tagged("late", RowBatch(late))

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        self.watermark = watermark.timestamp
        due, self.rows = (
            [row for row in self.rows if row <= self.watermark],
            [row for row in self.rows if row > self.watermark],
        )
        yield RowBatch(due)

    def end_of_data(self) -> Iterator[Output]:
        yield RowBatch(self.rows)


def test_it_collects_main_and_side_outputs_watermarks_and_the_end():
    with OperatorHarness(Windowed()) as harness:
        assert harness.push([1, 5, 9]) == []
        assert harness.push_watermark(5) == [1, 5]
        assert harness.push([2, 7]) == []
        assert harness.side_output("late") == [2]
        assert harness.side_output("unknown") == []
        assert harness.end_of_data() == [9, 7]
        assert harness.outputs == [1, 5, 9, 7]


def test_state_is_restored_over_another_parallelism_key_by_key():
    keys = [f"key-{i}" for i in range(200)]
    snapshots = []
    for subtask in range(3):
        with OperatorHarness(counting(), subtask=subtask, parallelism=3) as harness:
            own = [key for key in keys if harness.owns(key)]
            harness.push([(key, 1) for key in own])
            harness.push([(key, 1) for key in own[::2]])
            snapshots.append(harness.snapshot())
    restored: dict[str, tuple[str, int]] = {}
    for subtask in range(2):
        with OperatorHarness(counting(), subtask=subtask, parallelism=2, restored=snapshots) as harness:
            state = harness.state("reduce")
            assert all(map(harness.owns, state))
            assert not restored.keys() & state.keys()
            restored.update(state)
    assert sorted(restored) == sorted(keys)
    assert {value for _, value in restored.values()} == {1, 2}


def test_a_chain_of_incremental_snapshots_restores_the_newest_state():
    with OperatorHarness(counting()) as harness:
        for round_number in range(5):
            harness.push([("all", 1), (f"only-{round_number}", 1)])
            snapshot = harness.snapshot()
            if round_number % 2:
                harness.complete_checkpoint(snapshot)
            else:
                harness.abort_checkpoint(snapshot)
    with OperatorHarness(counting(), restored=[snapshot]) as harness:
        assert harness.state("reduce")["all"] == ("all", 5)
        assert len(harness.state("reduce")) == 6
        harness.push([("all", 1)])
        again = harness.snapshot()
    with OperatorHarness(counting(), restored=[again]) as harness:
        assert harness.state("reduce")["all"] == ("all", 6)


def test_a_key_of_another_subtask_can_not_be_snapshotted():
    with OperatorHarness(counting(), parallelism=2) as harness:
        foreign = next(key for key in map(str, range(100)) if not harness.owns(key))
        harness.push([(foreign, 1)])
        with pytest.raises(KeyGroupError, match="outside of this subtask's"):
            harness.snapshot()


def test_it_closes_the_operator_also_when_the_test_fails():
    closed = []

    class Closing(MapOperator):
        def close(self) -> None:
            closed.append(True)

    with pytest.raises(OperatorError), OperatorHarness(Closing(lambda n: 1 // n)) as harness:
        harness.push([0])
    assert closed == [True]


def test_operators_see_the_clock_that_the_test_moves():
    clock = ManualClock(start=50.0)
    seen = []

    class Looking(Operator):
        def open(self, context):
            self.clock = context.connector.clock

        def process(self, batch):
            seen.append(self.clock.now())
            return iter(())

    with OperatorHarness(Looking(), clock=clock) as harness:
        harness.push([1])
        harness.clock.advance(10)
        harness.push([1])
    assert seen == [50.0, 60.0]
