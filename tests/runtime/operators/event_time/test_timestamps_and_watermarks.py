"""The beginning of event time: timestamps for records, and watermarks behind batches."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.errors import ConfigurationError, OperatorError
from penstock.runtime.operators.event_time import TimestampsAndWatermarksOperator
from penstock.runtime.record.elements import END_OF_TIME, ArrowBatch, RowBatch
from penstock.runtime.testing.harness import OperatorHarness
from penstock.runtime.time.watermarks import WatermarkStrategy

SECOND = 1_000_000


def at(row: dict[str, Any]) -> Any:
    return row["at"]


def identity(row: Any) -> Any:
    return row


def bounded(seconds: float, assigner: Any = identity) -> OperatorHarness:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(seconds)
    return OperatorHarness(TimestampsAndWatermarksOperator(strategy.with_timestamp_assigner(assigner)))


def test_records_get_timestamps_and_a_watermark_follows_the_batch() -> None:
    with bounded(0) as harness:
        assert harness.push([5, 3, 9]) == [5, 3, 9]
        assert harness.batches == (RowBatch([5, 3, 9], [5, 3, 9]),)
        assert harness.watermarks == (8,)


def test_a_watermark_leaves_room_for_records_out_of_order() -> None:
    with bounded(2) as harness:
        harness.push([10 * SECOND])
        assert harness.watermarks == (8 * SECOND - 1,)


def test_datetimes_with_a_time_zone_are_timestamps() -> None:
    with bounded(0, at) as harness:
        harness.push([{"at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}])
        assert [batch.timestamps for batch in harness.batches] == [[SECOND]]  # type: ignore[union-attr]


def test_event_time_never_goes_back_and_repeats_nothing() -> None:
    with bounded(0) as harness:
        harness.push([10])
        harness.push([4, 10])
        harness.push([])
        harness.push([11])
        assert harness.watermarks == (9, 10)


@given(batches=st.lists(st.lists(st.integers(-50, 50), max_size=5)), bound=st.integers(0, 20))
def test_a_watermark_is_below_whatever_comes_within_the_bound(batches: list[list[int]], bound: int) -> None:
    with bounded(bound / SECOND) as harness:
        newest = None
        for rows in batches:
            harness.push(rows)
            newest = max([*rows] if newest is None else [newest, *rows], default=None)
            expected = None if newest is None else newest - bound - 1
            assert (harness.watermarks[-1] if harness.watermarks else None) == expected
        assert sorted(set(harness.watermarks)) == list(harness.watermarks)


def test_watermarks_from_before_end_here_but_for_the_end_of_time() -> None:
    with bounded(0) as harness:
        harness.push_watermark(1000)
        harness.push([5])
        harness.push_watermark(2000)
        assert harness.watermarks == (4,)
        harness.push_watermark(END_OF_TIME)
        assert harness.watermarks == (4, END_OF_TIME)


def test_without_an_assigner_records_keep_their_timestamps() -> None:
    strategy: WatermarkStrategy[str] = WatermarkStrategy.for_monotonous_timestamps()
    with OperatorHarness(TimestampsAndWatermarksOperator(strategy)) as harness:
        harness.push(["a", "b"], [7, 8])
        assert harness.batches == (RowBatch(["a", "b"], [7, 8]),)
        assert harness.watermarks == (7,)
        with pytest.raises(OperatorError, match=r"no timestamps; give the strategy with_timestamp_assigner"):
            harness.push(["c"])


@pytest.mark.parametrize("stamp", [(1 << 63) - 1, -(1 << 63), 1 << 62, 1_700_000_000_000_000_000_000])
def test_a_records_own_timestamp_that_is_no_time_is_refused_with_the_record(stamp: int) -> None:
    strategy: WatermarkStrategy[str] = WatermarkStrategy.for_monotonous_timestamps()
    with OperatorHarness(TimestampsAndWatermarksOperator(strategy)) as harness:
        harness.push(["a", "b"], [1 - (1 << 62), (1 << 62) - 1])
        with pytest.raises(
            OperatorError, match=rf"timestamp {stamp}, which is too far from the epoch.*on record 'wrong'"
        ):
            harness.push(["fine", "wrong", "fine"], [7, stamp, 8])


def test_arrow_batches_become_rows_with_timestamps() -> None:
    with bounded(0, at) as harness:
        harness.push_batch(ArrowBatch(pa.RecordBatch.from_pydict({"at": [3, 1]})))
        assert harness.batches == (RowBatch([{"at": 3}, {"at": 1}], [3, 1]),)
        assert harness.watermarks == (2,)


def test_nothing_is_kept_over_a_restart() -> None:
    with bounded(0) as harness:
        harness.push([10])
        saved = harness.snapshot()
    assert saved.lists == {}


@pytest.mark.parametrize(
    ("moment", "message"),
    [
        (datetime(2024, 1, 1), "has no time zone"),  # noqa: DTZ001
        (1.5, r"a timestamp is a datetime with a time zone or an int .* not 1.5 of type float"),
        (1_700_000_000_000_000_000_000, "is it in nanoseconds"),
    ],
)
def test_what_is_no_timestamp_names_the_assigner_and_the_record(moment: object, message: str) -> None:
    rows = [{"at": 1, "name": "fine"}, {"at": moment, "name": "wrong"}]
    with (
        bounded(0, at) as harness,
        pytest.raises(
            OperatorError, match=rf"timestamp assigner at \(.*{message}.*on record .*'wrong'"
        ) as raised,
    ):
        harness.push(rows)
    assert raised.value.location.operator == "operator"


def test_an_assigner_that_raises_is_named_with_its_line() -> None:
    with (
        bounded(0, at) as harness,
        pytest.raises(OperatorError, match=r"timestamp assigner at .*KeyError: 'at'.*in at, on record {}"),
    ):
        harness.push([{}])


def test_an_assigner_that_yields_is_refused() -> None:
    def yields(row: int) -> Any:
        yield row

    with pytest.raises(OperatorError, match="which yields") as raised:
        bounded(0, yields)
    assert isinstance(raised.value.__cause__, ConfigurationError)


def test_records_are_counted() -> None:
    with bounded(0) as harness:
        harness.push([1, 2, 3])
        counted = harness.statistics()
    assert (counted.records_in, counted.records_out) == (3, 3)
