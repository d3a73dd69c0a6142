"""Functions of two connected streams, in one subtask."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    DataStream,
    FunctionContext,
    ListState,
    OperatorError,
    OutputTag,
    RuntimeContext,
    ValueState,
)
from penstock.connected import CoProcessFunction, KeyedCoProcessFunction
from penstock.operators import ArrowBatch
from penstock.state import OperatorListState
from penstock.testing import OperatorHarness

Row = tuple[str, int]


class Joined(KeyedCoProcessFunction[str, Row, Row, tuple[str, int, int]]):
    """Emits each pair of records with the same key once."""

    left = ListState(int)
    right = ListState(int)

    def process_element1(self, value: Row, ctx: RuntimeContext) -> Iterator[tuple[str, int, int]]:
        self.left.add(value[1])
        for other in self.right.get():
            yield ctx.current_key, value[1], other

    def process_element2(self, value: Row, ctx: RuntimeContext) -> Iterator[tuple[str, int, int]]:
        self.right.add(value[1])
        for other in self.left.get():
            yield ctx.current_key, other, value[1]


def key(row: Row) -> str:
    return row[0]


def joined(left: DataStream[Row], right: DataStream[Row]) -> DataStream[Any]:
    return left.key_by(key).connect(right.key_by(key)).process("joined", Joined())


ROWS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=4)
STEPS = st.lists(st.one_of(st.tuples(st.integers(0, 1), ROWS), st.just("restore")), max_size=12)


@given(STEPS, st.sampled_from([1, 2]))
def test_both_inputs_share_state_by_key_in_any_order_and_after_a_restore(
    steps: list[Any], parallelism: int
) -> None:
    subtasks = [
        OperatorHarness.of(joined, subtask=i, parallelism=parallelism, max_parallelism=8)
        for i in range(parallelism)
    ]
    seen: tuple[dict[str, list[int]], ...] = defaultdict(list), defaultdict(list)
    for number, step in enumerate(steps, 1):
        if step == "restore":
            snapshots = [each.snapshot(number) for each in subtasks]
            parallelism = 3 - parallelism
            subtasks = [
                OperatorHarness.of(
                    joined, subtask=i, parallelism=parallelism, max_parallelism=8, restored=snapshots
                )
                for i in range(parallelism)
            ]
            continue
        side, rows = step
        out: list[tuple[str, int, int]] = []
        for each in subtasks:
            out += each.push([row for row in rows if each.owns(row[0])], input_index=side)
        wanted = []
        for name, number in rows:
            seen[side][name].append(number)
            others = seen[1 - side][name]
            wanted += [(name, number, other) if side == 0 else (name, other, number) for other in others]
        assert sorted(out) == sorted(wanted)


class Waiting(KeyedCoProcessFunction[str, Row, Row, str]):
    """Sets a timer for a record of the first stream; one of the second stream deletes it."""

    at = ValueState(int)

    def process_element1(self, value: Row, ctx: RuntimeContext) -> None:
        self.at.update(value[1])
        ctx.timer_service.register_event_time_timer(value[1])

    def process_element2(self, value: Row, ctx: RuntimeContext) -> None:
        at = self.at.value()
        if at is not None:
            ctx.timer_service.delete_event_time_timer(at)

    def on_timer(self, at: int, ctx: RuntimeContext) -> Iterator[str]:
        yield f"{ctx.current_key} waited until {at}"


def waiting(left: DataStream[Row], right: DataStream[Row]) -> DataStream[str]:
    return left.key_by(key).connect(right.key_by(key)).process("waiting", Waiting())


def test_timer_set_by_one_input_is_deleted_by_the_other() -> None:
    with OperatorHarness.of(waiting) as harness:
        harness.push([("a", 5), ("b", 6)])
        harness.push([("a", 1)], input_index=1)
        assert harness.push_watermark(10) == ["b waited until 6"]


def test_event_time_is_the_lower_one_of_both_inputs() -> None:
    with OperatorHarness.of(waiting) as harness:
        harness.push([("a", 5), ("b", 15)])
        assert harness.push_watermark(20, input_index=0) == []
        assert harness.watermarks == ()
        assert harness.push_watermark(10, input_index=1) == ["a waited until 5"]
        assert harness.watermarks == (10,)


def test_idle_input_holds_back_no_timer() -> None:
    with OperatorHarness.of(waiting) as harness:
        harness.push([("a", 5)])
        assert harness.push_watermark(20, input_index=0) == []
        assert harness.push_status(idle=True, input_index=1) == ["a waited until 5"]
        assert not harness.is_idle
        harness.push_status(idle=True, input_index=0)
        assert harness.is_idle


class Tagged(CoProcessFunction[int, str, tuple[str, Any]]):
    odd = OutputTag[int]()
    seen = OperatorListState(int)

    def open(self, ctx: FunctionContext) -> None:
        self.count = sum(self.seen.get())

    def process_element1(self, value: int, ctx: FunctionContext) -> Iterator[tuple[str, Any]]:
        self.count += 1
        if value % 2:
            ctx.output(self.odd, value)
        yield "number", value

    def process_element2(self, value: str, ctx: FunctionContext) -> Iterator[tuple[str, Any]]:
        self.count += 1
        yield "text", value

    def snapshot(self, checkpoint_id: int) -> None:
        self.seen.update([self.count])


def tagged(numbers: DataStream[int], texts: DataStream[str]) -> DataStream[tuple[str, Any]]:
    return numbers.connect(texts).process("tagged", Tagged())


def test_function_without_keys_has_side_outputs_and_lists_for_both_inputs() -> None:
    with OperatorHarness.of(tagged) as harness:
        assert harness.push([1, 2]) == [("number", 1), ("number", 2)]
        assert harness.push(["x"], input_index=1) == [("text", "x")]
        assert harness.side_output("odd") == [1]
        snapshot = harness.snapshot()
    with OperatorHarness.of(tagged, restored=[snapshot]) as harness:
        harness.push(["y"], input_index=1)
        again = harness.snapshot()
    with OperatorHarness.of(tagged, restored=[again]) as harness:
        (function,) = {harness._operator._user}  # type: ignore[attr-defined]
        assert function.count == 4


def test_arrow_batches_of_either_input_become_dicts_with_their_timestamps() -> None:
    batch = ArrowBatch(pa.record_batch({"k": ["a"], "v": [1]}), pa.array([7]))

    def named(left: DataStream[Any], right: DataStream[Any]) -> DataStream[Any]:
        return left.connect(right).co_map(lambda row: ("left", row), lambda row: ("right", row))

    with OperatorHarness.of(named) as harness:
        assert harness.push_batch(batch) == [("left", {"k": "a", "v": 1})]
        assert harness.push_batch(batch, input_index=1) == [("right", {"k": "a", "v": 1})]
        assert [b.timestamps for b in harness.batches] == [[7], [7]]


def test_co_flat_map_emits_all_results_of_the_function_of_the_input() -> None:
    def both(left: DataStream[int], right: DataStream[str]) -> DataStream[Any]:
        return left.connect(right).co_flat_map(range, lambda text: None if text == "none" else list(text))

    with OperatorHarness.of(both) as harness:
        assert harness.push([2, 0, 1]) == [0, 1, 0]
        assert harness.push(["ab", "none"], input_index=1) == ["a", "b"]


@pytest.mark.parametrize("input_index", [0, 1])
def test_error_names_the_function_of_the_input_and_the_record(input_index: int) -> None:
    def broken(left: DataStream[Any], right: DataStream[Any]) -> DataStream[Any]:
        return left.connect(right).co_map(first_fails, second_fails, id="broken")

    def first_fails(row: Any) -> Any:
        return row.first

    def second_fails(row: Any) -> Any:
        return row.second

    with OperatorHarness.of(broken) as harness, pytest.raises(OperatorError) as caught:
        harness.push([7], input_index=input_index)
    name = ("first_fails", "second_fails")[input_index]
    assert f"map function {name}" in str(caught.value)
    assert "on record 7" in str(caught.value)


@pytest.mark.parametrize("input_index", [0, 1])
def test_error_of_a_process_function_names_the_method_of_the_input(input_index: int) -> None:
    with OperatorHarness.of(joined) as harness, pytest.raises(OperatorError) as caught:
        harness.push([("a", "no number")], input_index=input_index)
    assert f"Joined.process_element{input_index + 1}" in str(caught.value)


NAIVE = datetime(2024, 1, 1)  # noqa: DTZ001 (a time without a zone)

PAIRS = [
    (1, "1"),
    ("a", b"a"),
    (("a", 1), ("a", "1")),
    (("a", 1), ("a", 1, 2)),
    (1, (1,)),
    (date(2024, 1, 1), NAIVE),
    (NAIVE, datetime(2024, 1, 1, tzinfo=UTC)),
]


@pytest.mark.parametrize(("left", "right"), PAIRS + [(right, left) for left, right in PAIRS])
def test_keys_of_the_inputs_that_can_never_be_equal_are_refused(left: Any, right: Any) -> None:
    with OperatorHarness.of(joined) as harness:
        harness.push([(left, 1)])
        with pytest.raises(OperatorError, match="the keys of the inputs can never be equal") as caught:
            harness.push([(right, 2)], input_index=1)
    assert repr(left)[:40] in str(caught.value)
    assert "key_by function key" in str(caught.value)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, 1.0),
        (True, Decimal(1)),
        (("a", 1), ("a", 1.0)),
        (None, "a"),
        (("a", None), (None, 1)),
        (2, 3),
    ],
)
def test_keys_of_the_inputs_that_can_be_equal_are_accepted(left: Any, right: Any) -> None:
    with OperatorHarness.of(joined) as harness:
        harness.push([(left, 1)])
        assert harness.push([(right, 2)], input_index=1) == ([(right, 1, 2)] if left == right else [])


def test_harness_refuses_an_input_that_the_operator_does_not_have() -> None:
    with OperatorHarness.of(joined) as harness, pytest.raises(ValueError, match="has two inputs, 0 and 1"):
        harness.push([("a", 1)], input_index=2)
    with (
        OperatorHarness.of(lambda rows: rows.map(str)) as harness,
        pytest.raises(ValueError, match="has one input, 0"),
    ):
        harness.push_watermark(1, input_index=1)


def test_records_are_counted_by_input() -> None:
    with OperatorHarness.of(joined) as harness:
        harness.push([("a", 1), ("b", 2)])
        harness.push([("a", 3)], input_index=1)
        statistics = harness.statistics()
    assert (statistics.records_in, statistics.records_out) == (3, 1)
    assert (statistics.extra["records_in_1"], statistics.extra["records_in_2"]) == (2, 1)
    assert statistics.counters == {}, "they are no metrics of the user's"
