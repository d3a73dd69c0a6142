"""Records wait until a watermark reaches them, and leave in the order of their timestamps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import DataStream, OperatorError, OutputTag
from penstock.operators import ArrowBatch, RowBatch
from penstock.runtime.errors import GraphError
from penstock.runtime.operators.functions.event_time_operator import LATE_RECORDS
from penstock.runtime.operators.functions.time_order import WAITING_RECORDS
from penstock.runtime.record.elements import END_OF_TIME
from penstock.testing import OperatorHarness

pytestmark = pytest.mark.usefixtures("either_backend")

#: Key, name, second order.
Record = tuple[str, str, int]


def by_key(record: Record) -> str:
    return record[0]


def second_order(record: Record) -> int:
    return record[2]


def in_order(stream: DataStream[Record]) -> DataStream[Record]:
    return stream.key_by(by_key).sorted_by_time("sorted")


def in_second_order(stream: DataStream[Record]) -> DataStream[Record]:
    return stream.key_by(by_key).sorted_by_time("sorted", second_order)


def pushed(harness: OperatorHarness, *records: tuple[str, str, int]) -> list[Any]:
    """Push records of key, name and timestamp."""
    return harness.push([(key, name, 0) for key, name, _ in records], [stamp for *_, stamp in records])


def names(records: list[Record]) -> list[str]:
    return [name for _, name, _ in records]


def test_records_wait_for_the_watermark_and_leave_in_the_order_of_their_timestamps() -> None:
    with OperatorHarness.of(in_order) as harness:
        assert pushed(harness, ("a", "late", 30), ("a", "second", 20), ("a", "first", 10)) == []
        assert names(harness.push_watermark(20)) == ["first", "second"]
        assert names(harness.push_watermark(30)) == ["late"]


def test_released_records_keep_their_timestamps_and_come_before_the_watermark() -> None:
    with OperatorHarness.of(in_order) as harness:
        pushed(harness, ("a", "y", 20), ("b", "x", 10))
        harness.push_watermark(25)
        assert harness.batches == (RowBatch([("b", "x", 0), ("a", "y", 0)], [10, 20]),)
        assert harness.watermarks == (25,)


def test_equal_timestamps_keep_the_order_of_arrival() -> None:
    with OperatorHarness.of(in_order) as harness:
        pushed(harness, ("a", "x", 10), ("a", "z", 10))
        pushed(harness, ("a", "y", 10))
        assert names(harness.push_watermark(10)) == ["x", "z", "y"]


def test_equal_timestamps_follow_the_second_order_and_then_arrival() -> None:
    with OperatorHarness.of(in_second_order) as harness:
        harness.push([("a", "x", 2), ("a", "y", 1), ("a", "z", 2), ("a", "first", 9)], [10, 10, 10, 5])
        assert names(harness.push_watermark(10)) == ["first", "y", "x", "z"]


def test_a_record_that_the_watermark_has_reached_is_late_goes_to_the_side_and_is_counted() -> None:
    with OperatorHarness.of(in_order) as harness:
        harness.push_watermark(10)
        pushed(harness, ("a", "x", 10), ("a", "y", 11), ("b", "z", 3))
        assert names(harness.side_output(LATE_RECORDS)) == ["x", "z"]
        assert harness.statistics().extra == {LATE_RECORDS: 2, WAITING_RECORDS: 1}
        assert names(harness.push_watermark(11)) == ["y"]


def test_a_lower_watermark_makes_no_record_timely() -> None:
    with OperatorHarness.of(in_order) as harness:
        harness.push_watermark(10)
        harness.push_watermark(5)
        pushed(harness, ("a", "x", 7))
        assert names(harness.side_output(LATE_RECORDS)) == ["x"]


def test_late_records_may_have_a_tag_of_their_own() -> None:
    tag = OutputTag[Record]("too late")
    with OperatorHarness.of(lambda s: s.key_by(by_key).sorted_by_time("sorted", late_tag=tag)) as harness:
        harness.push_watermark(10)
        pushed(harness, ("a", "x", 1))
        assert names(harness.side_output("too late")) == ["x"]


def test_the_end_of_the_input_releases_everything() -> None:
    with OperatorHarness.of(in_order) as harness:
        pushed(harness, ("a", "y", 20), ("a", "x", 10))
        assert names(harness.push_watermark(END_OF_TIME)) == ["x", "y"]


def test_a_key_leaves_the_state_with_its_last_record() -> None:
    with OperatorHarness.of(in_order) as harness:
        pushed(harness, ("a", "x", 10), ("b", "y", 20))
        harness.push_watermark(10)
        assert list(harness.state(WAITING_RECORDS)) == ["b"]
        harness.push_watermark(20)
        assert harness.state(WAITING_RECORDS) == {}


def test_many_records_of_a_key_and_moment_leave_the_state_together() -> None:
    with OperatorHarness.of(in_order) as harness:
        pushed(harness, *((str(n % 10), str(n), 10) for n in range(1000)))
        assert len(harness.push_watermark(10)) == 1000
        assert harness.state(WAITING_RECORDS) == {}
        snapshot = harness.snapshot()
    with OperatorHarness.of(in_order, restored=[snapshot]) as harness:
        assert harness.state(WAITING_RECORDS) == {}


def test_many_records_leave_in_portions_and_the_watermark_waits_for_the_last() -> None:
    with OperatorHarness.of(in_order) as harness:
        harness.push([("a", str(n), 0) for n in range(3000)], list(range(3000)))
        first = harness.push_watermark(5000)
        assert len(first) == 1024
        assert harness.watermarks == ()
        snapshot = harness.snapshot()
    with OperatorHarness.of(in_order, restored=[snapshot]) as harness:
        rest = [*harness.flush(), *harness.flush(), *harness.flush()]
    assert names(first + rest) == [str(n) for n in range(3000)]


def test_records_may_be_dicts_and_arrow_batches() -> None:
    batch = pa.record_batch({"k": [1, 1], "v": [2, 3]})
    with OperatorHarness.of(lambda s: s.key_by("k").sorted_by_time("sorted")) as harness:
        harness.push_batch(ArrowBatch(batch, pa.array([20, 10])))
        assert harness.push_watermark(20) == [{"k": 1, "v": 3}, {"k": 1, "v": 2}]


def test_an_order_that_changes_a_record_changes_a_copy() -> None:
    def careless(record: dict[str, Any]) -> int:
        return int(record.pop("n"))

    with OperatorHarness.of(lambda s: s.key_by("k").sorted_by_time("sorted", careless)) as harness:
        harness.push([{"k": 1, "n": 2}, {"k": 1, "n": 1}], [10, 10])
        assert harness.push_watermark(10) == [{"k": 1, "n": 1}, {"k": 1, "n": 2}]


def test_records_without_timestamps_are_refused() -> None:
    with (
        OperatorHarness.of(in_order) as harness,
        pytest.raises(OperatorError, match="no timestamps, so they can't be ordered by time"),
    ):
        harness.push([("a", "x", 0)])


def test_an_error_of_the_order_names_it_and_the_record() -> None:
    def broken(record: Record) -> int:
        return 1 // record[2]

    with OperatorHarness.of(lambda s: s.key_by(by_key).sorted_by_time("sorted", broken)) as harness:
        harness.push([("a", "x", 1), ("a", "y", 0)], [10, 10])
        with pytest.raises(OperatorError) as caught:
            harness.push_watermark(10)
    assert "sorted_by_time: order function broken (" in str(caught.value)
    assert "test_sorted_by_time.py:" in str(caught.value)
    assert "on record ('a', 'y', 0)" in str(caught.value)


def test_a_key_that_is_not_a_number_is_refused_after_valid_keys_of_its_type() -> None:
    with OperatorHarness.of(lambda s: s.key_by(lambda record: record[0]).sorted_by_time("sorted")) as harness:
        harness.push([(1.5, "a")], timestamps=[1])
        with pytest.raises(OperatorError, match="key_by function"):
            harness.push([(2.5, "b"), (float("nan"), "c")], timestamps=[2, 3])


def test_a_key_that_has_no_hash_is_named() -> None:
    with (
        OperatorHarness.of(lambda s: s.key_by(lambda record: [record]).sorted_by_time("sorted")) as harness,
        pytest.raises(OperatorError, match="key_by function"),
    ):
        pushed(harness, ("a", "x", 1))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.sorted_by_time(), "the id comes first"),
        (lambda s: s.sorted_by_time("sorted", 3), "sorted_by_time: order needs a function, not 3"),
        (lambda s: s.sorted_by_time("sorted", late_tag="late"), r'late_tag needs an OutputTag\("name"\)'),
        (lambda s: s.sorted_by_time("sorted", ordr=None), "did you mean 'order'"),
    ],
)
def test_wrong_calls_are_refused(build: Callable[[Any], object], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        OperatorHarness.of(lambda s: build(s.key_by(by_key)))


STEPS = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 30)), max_size=6)
    | st.integers(0, 30)
    | st.just("restore"),
    max_size=20,
)


@given(steps=STEPS)
def test_each_key_has_its_records_in_order_whatever_happens(steps: list[Any]) -> None:
    reached, number, arrived, late = -1, 0, [], []
    harness = OperatorHarness.of(in_second_order)
    out: list[Any] = []
    aside: list[Any] = []
    for step in [*steps, END_OF_TIME]:
        if isinstance(step, int):
            reached = max(reached, step)
            out += harness.push_watermark(step)
        elif isinstance(step, str):
            aside += harness.side_output(LATE_RECORDS)
            snapshot = harness.snapshot()
            harness.close()
            harness = OperatorHarness.of(in_second_order, restored=[snapshot])
        else:
            rows = []
            for key, order, stamp in step:
                rows.append((key, f"{number}", order))
                (late if stamp <= reached else arrived).append((stamp, order, number, rows[-1]))
                number += 1
            harness.push(rows, [stamp for *_, stamp in step])
    aside += harness.side_output(LATE_RECORDS)
    assert harness.state(WAITING_RECORDS) == {}
    harness.close()
    assert aside == [row for *_, row in late]
    for key in "abc":
        expected = [row for *_, row in sorted(arrived) if row[0] == key]
        assert [row for row in out if row[0] == key] == expected


def test_records_whose_second_order_is_nan_come_last_and_leave_the_others_in_order() -> None:
    def ordered(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by(lambda value: 0).sorted_by_time("sorted", order=lambda value: value)

    with OperatorHarness.of(ordered) as harness:
        harness.push([2.0, float("nan"), 3.0, 1.0], [1, 1, 1, 1])
        assert harness.push_watermark(1)[:3] == [1.0, 2.0, 3.0]
