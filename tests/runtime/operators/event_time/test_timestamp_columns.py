"""Event time from a column."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from penstock.runtime.errors import ConfigurationError, OperatorError, PenstockError
from penstock.runtime.operators.event_time import TimestampsAndWatermarksOperator, micros_of_column
from penstock.runtime.record.elements import ArrowBatch, RowBatch
from penstock.runtime.testing.harness import OperatorHarness
from penstock.runtime.time.watermarks import WatermarkStrategy

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def by_column(name: str | None = "at", seconds: float = 0) -> OperatorHarness:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(seconds)
    if name is not None:
        strategy = strategy.with_timestamp_column(name)
    return OperatorHarness(TimestampsAndWatermarksOperator(strategy))


def test_a_batch_gets_its_timestamps_and_a_watermark_behind_its_newest() -> None:
    batch = pa.record_batch({"at": [5_000_000, 9_000_000, 7_000_000], "n": ["a", "b", "c"]})
    with by_column(seconds=2) as harness:
        harness.push_batch(ArrowBatch(batch))
        assert harness.batches == (ArrowBatch(batch, batch["at"]),)
        assert harness.watermarks == (6_999_999,)


def test_rows_get_the_same_timestamps_and_watermarks_as_columns() -> None:
    rows = [{"at": EPOCH + timedelta(seconds=n)} for n in (3, 1, 8)]
    with by_column() as of_rows, by_column() as of_columns:
        of_rows.push(rows)
        of_columns.push_batch(ArrowBatch(pa.RecordBatch.from_pylist(rows)))
        (batch,), (stamped,) = of_rows.batches, of_columns.batches
        assert isinstance(stamped, ArrowBatch)
        assert stamped.timestamps is not None
        assert batch.timestamps == stamped.timestamps.to_pylist() == [3_000_000, 1_000_000, 8_000_000]
        assert of_rows.watermarks == of_columns.watermarks == (7_999_999,)


def test_event_time_does_not_go_back_with_an_older_batch() -> None:
    with by_column() as harness:
        for moment in (10, 5, 11):
            harness.push_batch(ArrowBatch(pa.record_batch({"at": [moment]})))
        assert harness.watermarks == (9, 10)


def test_timestamps_that_a_batch_has_are_kept_when_the_strategy_says_nothing_else() -> None:
    batch = ArrowBatch(pa.record_batch({"n": [1, 2]}), pa.array([20, 10]))
    with by_column(None) as harness:
        harness.push_batch(batch)
        assert harness.batches == (batch,)
        assert harness.watermarks == (19,)


@pytest.mark.parametrize(
    ("column", "micros"),
    [
        (pa.array([1, 2], pa.timestamp("s", "UTC")), [1_000_000, 2_000_000]),
        (pa.array([1, -2], pa.timestamp("ms", "Europe/Berlin")), [1_000, -2_000]),
        (pa.array([1, 2], pa.timestamp("us", "+01:00")), [1, 2]),
        (pa.array([1_999, -1], pa.timestamp("ns", "UTC")), [1, -1]),
        (pa.array([1, 2], pa.int32()), [1, 2]),
        (pa.array([1, 2], pa.uint64()), [1, 2]),
        (pa.array([7, 7]).dictionary_encode(), [7, 7]),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_moments_and_whole_numbers_become_microseconds(column: pa.Array, micros: list[int]) -> None:
    found = micros_of_column(pa.record_batch({"at": column}), "at")
    assert found.type == pa.int64()
    assert found.to_pylist() == micros


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1], pa.timestamp("us")), r"'at' of type timestamp\[us\] has no time zone"),
        (pa.array([1.5]), "'at' of type double holds no timestamps.*unit=\"s\""),
        (pa.array(["2024"]), "'at' of type string holds no timestamps"),
        (pa.array([1, None], pa.timestamp("us", "UTC")), "'at' is null in row 1"),
        (pa.array([1 << 60], pa.timestamp("s", "UTC")), "too far"),
        (pa.array([(1 << 64) - 1], pa.uint64()), "too far"),
    ],
    ids=["naive", "float", "text", "null", "overflow", "unsigned"],
)
def test_a_column_that_has_no_moments_is_refused_by_name(column: pa.Array, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        micros_of_column(pa.record_batch({"at": column}), "at")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (ArrowBatch(pa.record_batch({"n": [1]})), "no column 'at' for timestamps: it has 'n'"),
        (ArrowBatch(pa.record_batch({"att": [1]})), "it has 'att'; did you mean 'att'"),
        (ArrowBatch(pa.record_batch({"at": [1 << 62]})), "too far from the epoch for microseconds"),
        (RowBatch([{"n": 1}]), r"timestamp column 'at': the record \{'n': 1\} has no such field"),
        (RowBatch([(1, 2)]), r"timestamp column 'at': the record \(1, 2\) is not a dict"),
        (RowBatch([{"at": None}]), "a timestamp is a datetime with a time zone or an int"),
    ],
    ids=["no column", "nearest column", "nanoseconds", "no name", "tuple", "none"],
)
def test_a_batch_without_moments_is_an_error_that_names_the_column(given: Any, message: str) -> None:
    with by_column() as harness, pytest.raises(OperatorError, match=message):
        harness.push_batch(given)


def test_a_batch_without_timestamps_is_refused_with_what_to_do() -> None:
    with by_column(None) as harness, pytest.raises(OperatorError, match="with_timestamp_column"):
        harness.push_batch(ArrowBatch(pa.record_batch({"n": [1]})))


def test_the_last_of_assigner_and_column_counts() -> None:
    strategy: Any = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(int)
    named = strategy.with_timestamp_column("at")
    assert (named.timestamp_assigner, named.timestamp_column) == (None, "at")
    assert named.with_timestamp_assigner(int).timestamp_column is None
    with pytest.raises(ConfigurationError, match="needs the name of a column, not 5"):
        strategy.with_timestamp_column(5)


def test_a_misspelt_field_of_rows_is_refused_with_the_nearest_name() -> None:
    with by_column("moment") as harness, pytest.raises(OperatorError, match="did you mean 'moments'"):
        harness.push([{"moments": 5}])
