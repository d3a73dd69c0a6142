"""Users' operators with two inputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from penstock import DataStream, GraphError, OperatorError, StreamEnvironment, ValueState
from penstock.operators import ArrowBatch, Operator, RowBatch, TwoInputOperator, Watermark
from penstock.testing import OperatorHarness


class Latest(TwoInputOperator):
    """Keeps the newest value of the second input by key, and emits it for each record of the first."""

    newest = ValueState(int)

    def open(self, context: Any) -> None:
        self.context = context

    def process_element1(self, batch: Any) -> Iterator[RowBatch]:
        yield RowBatch([(key, self.newest.value()) for key, _ in self.context.by_key(batch)])

    def process_element2(self, batch: Any) -> None:
        for _, row in self.context.by_key(batch):
            self.newest.update(row["value"])

    def process_watermark(self, watermark: Watermark) -> Iterator[RowBatch]:
        yield RowBatch([watermark.timestamp])


def latest(names: DataStream[str], rows: DataStream[Any]) -> DataStream[Any]:
    return names.key_by(str.lower).connect(rows.key_by("name")).transform("latest", Latest())


def test_by_key_takes_the_key_function_of_the_input() -> None:
    with OperatorHarness.of(latest) as harness:
        harness.push([{"name": "a", "value": 3}], input_index=1)
        assert harness.push(["A", "B"]) == [("a", 3), ("b", None)]
        snapshot = harness.snapshot()
    with OperatorHarness.of(latest, restored=[snapshot]) as harness:
        assert harness.push(["A"]) == [("a", 3)]


def test_watermark_is_the_lower_one_of_both_inputs() -> None:
    with OperatorHarness.of(latest) as harness:
        assert harness.push_watermark(5, input_index=1) == []
        assert harness.push_watermark(3, input_index=0) == [3]


def test_keys_that_can_never_be_equal_are_refused() -> None:
    with OperatorHarness.of(latest) as harness:
        harness.push(["A"])
        with pytest.raises(OperatorError, match="the keys of the inputs can never be equal"):
            harness.push([{"name": 1, "value": 3}], input_index=1)


class ByKeyInBetween(Latest):
    def process_watermark(self, watermark: Watermark) -> Iterator[RowBatch]:
        yield RowBatch(list(self.context.by_key(RowBatch(["A"]))))


def test_by_key_outside_of_an_input_says_where_it_belongs() -> None:
    def build(names: DataStream[str], rows: DataStream[Any]) -> DataStream[Any]:
        return names.key_by(str.lower).connect(rows.key_by("name")).transform("latest", ByKeyInBetween())

    with OperatorHarness.of(build) as harness:
        harness.push(["A"])
        with pytest.raises(OperatorError, match="by_key in process_watermark: only methods that process"):
            harness.push_watermark(5)


class Sizes(TwoInputOperator):
    batch_format = "arrow"

    def process_element1(self, batch: ArrowBatch) -> Iterator[ArrowBatch]:
        yield batch

    def process_element2(self, batch: ArrowBatch) -> Iterator[RowBatch]:
        yield RowBatch([batch.batch.num_rows])


def test_both_inputs_get_batches_of_the_declared_format() -> None:
    def sizes(left: DataStream[Any], right: DataStream[Any]) -> DataStream[Any]:
        return left.connect(right).transform("sizes", Sizes())

    with OperatorHarness.of(sizes) as harness:
        harness.push([{"v": 1}])
        harness.push_batch(ArrowBatch(pa.record_batch({"v": [1, 2]})), input_index=1)
        first, second = harness.batches
    assert isinstance(first, ArrowBatch)
    assert second == RowBatch([2])


class OneInput(Operator):
    def process(self, batch: Any) -> Iterator[Any]:
        yield batch


class WithoutSecond(TwoInputOperator):
    def process_element1(self, batch: Any) -> Iterator[Any]:
        yield batch


def test_number_of_inputs_must_be_that_of_the_streams() -> None:
    env = StreamEnvironment("job")
    left, right = env.from_collection("left", [1]), env.from_collection("right", [2])
    with pytest.raises(GraphError, match=r"Sizes has two inputs: call connect\(other\) before transform"):
        left.transform("sizes", Sizes())
    with pytest.raises(GraphError, match="is not a TwoInputOperator"):
        left.connect(right).transform("one", OneInput())  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r"WithoutSecond has no method process_element2\(batch\)"):
        left.connect(right).transform("without", WithoutSecond())


class Times(TwoInputOperator):
    """Emits the event time of both inputs."""

    def open(self, context: Any) -> None:
        self.time = context.input_watermark

    def process_element1(self, batch: Any) -> Iterator[RowBatch]:
        yield RowBatch([(self.time(0), self.time(1))])

    def process_element2(self, batch: Any) -> Iterator[RowBatch]:
        return self.process_element1(batch)


def times(left: DataStream[Any], right: DataStream[Any]) -> DataStream[Any]:
    return left.connect(right).transform("times", Times())


def test_operator_sees_the_event_time_of_each_input() -> None:
    with OperatorHarness.of(times) as harness:
        assert harness.push([1]) == [(None, None)]
        harness.push_watermark(9, input_index=0)
        assert harness.push([1]) == [(9, None)]
        harness.push_watermark(4, input_index=1)
        assert harness.push([1], input_index=1) == [(9, 4)]


def test_event_time_of_an_idle_input_is_that_of_the_operator() -> None:
    with OperatorHarness.of(times) as harness:
        harness.push_watermark(4, input_index=1)
        harness.push_watermark(9, input_index=0)
        harness.push_status(idle=True, input_index=1)
        assert harness.push([1]) == [(9, 9)]
