"""Timestamps that are numbers of another unit than microseconds."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pyarrow as pa
import pytest

from penstock.runtime.errors import OperatorError, PenstockError
from penstock.runtime.operators.event_time import TimestampsAndWatermarksOperator, micros_of_column
from penstock.runtime.operators.source import Polled
from penstock.runtime.operators.source_watermarks import SourceWatermarks
from penstock.runtime.record.elements import ArrowBatch, RowBatch
from penstock.runtime.testing.harness import OperatorHarness
from penstock.runtime.time.time_units import TimeUnit
from penstock.runtime.time.watermarks import WatermarkStrategy

PLAIN = WatermarkStrategy.for_monotonous_timestamps()
SECONDS = 1_700_000_000
MICROS = SECONDS * 10**6


def in_seconds(row: dict[str, int]) -> int:
    return row["at"]


def stamps_of(strategy: WatermarkStrategy[object], *batches: RowBatch | ArrowBatch) -> list[int]:
    with OperatorHarness(TimestampsAndWatermarksOperator(strategy)) as harness:
        for batch in batches:
            harness.push_batch(batch)
        return [stamp for batch in harness.batches for stamp in _stamps(batch)]


def _stamps(batch: object) -> Sequence[int]:
    assert isinstance(batch, RowBatch | ArrowBatch)
    assert batch.timestamps is not None
    return [int(stamp) for stamp in pa.array(batch.timestamps).to_pylist()]


@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_rows_and_columns_are_read_in_the_unit(unit: TimeUnit, per_second: int) -> None:
    strategy = PLAIN.with_timestamp_column("at", unit=unit)
    moments = [SECONDS * per_second, (SECONDS + 1) * per_second]
    rows = RowBatch([{"at": moment} for moment in moments])
    columns = ArrowBatch(pa.record_batch({"at": moments}))
    assert stamps_of(strategy, rows) == stamps_of(strategy, columns) == [MICROS, MICROS + 10**6]
    assigner = PLAIN.with_timestamp_assigner(in_seconds, unit=unit)
    assert stamps_of(assigner, rows) == [MICROS, MICROS + 10**6]


def test_float_seconds_are_rounded_down_in_rows_and_columns() -> None:
    strategy = PLAIN.with_timestamp_column("at", unit="s")
    rows = RowBatch([{"at": 0.5}, {"at": 2.0**-21}, {"at": -(2.0**-21)}])
    columns = ArrowBatch(pa.record_batch({"at": [0.5, 2.0**-21, -(2.0**-21)]}))
    assert stamps_of(strategy, rows) == stamps_of(strategy, columns) == [500_000, 0, -1]


def test_a_column_of_timestamps_keeps_its_own_unit() -> None:
    batch = pa.record_batch({"at": pa.array([5_000], pa.timestamp("ms", "UTC"))})
    assert micros_of_column(batch, "at", "s").to_pylist() == [5_000_000]


@pytest.mark.parametrize("moment", [float("nan"), float("inf"), 1e300, 1 << 60])
def test_a_number_that_is_no_moment_in_the_unit_is_refused(moment: float) -> None:
    batch = pa.record_batch({"at": [moment]})
    with pytest.raises(PenstockError, match=r"'at' of type .* too far from the epoch"):
        micros_of_column(batch, "at", "s")


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize(
    "batch", [RowBatch([{"at": SECONDS}]), ArrowBatch(pa.record_batch({"at": [SECONDS]}))]
)
def test_seconds_without_a_unit_are_warned_of_once(
    batch: RowBatch | ArrowBatch, caplog: pytest.LogCaptureFixture
) -> None:
    stamps_of(PLAIN.with_timestamp_column("at"), batch, batch)
    (warning,) = warnings_of(caplog)
    assert warning.startswith(f"timestamp column 'at': the timestamp {SECONDS} lies in 1970")
    assert warning.endswith('give unit="s"')


def test_the_warning_names_the_assigner_and_its_line(caplog: pytest.LogCaptureFixture) -> None:
    stamps_of(PLAIN.with_timestamp_assigner(in_seconds), RowBatch([{"at": SECONDS}]))
    (warning,) = warnings_of(caplog)
    assert warning.startswith("timestamp assigner in_seconds (")
    assert f"test_timestamp_units.py:{in_seconds.__code__.co_firstlineno}): the timestamp" in warning


def test_a_later_batch_is_warned_of_too(caplog: pytest.LogCaptureFixture) -> None:
    good, zero = RowBatch([{"at": MICROS}]), RowBatch([{"at": MICROS}, {"at": 0}])
    stamps_of(PLAIN.with_timestamp_column("at"), good, zero)
    (warning,) = warnings_of(caplog)
    assert "the timestamp 0 lies in 1970" in warning


def test_a_source_with_a_strategy_warns_too(caplog: pytest.LogCaptureFixture) -> None:
    watermarks = SourceWatermarks(PLAIN.with_timestamp_column("at"))
    watermarks.open(None)
    watermarks.polled(Polled(RowBatch([{"at": SECONDS}])), None)
    assert len(warnings_of(caplog)) == 1


def test_right_units_and_timestamps_of_the_source_are_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    stamps_of(PLAIN.with_timestamp_column("at", unit="s"), RowBatch([{"at": SECONDS}]))
    stamps_of(PLAIN, RowBatch([{"at": SECONDS}], [SECONDS]))
    assert warnings_of(caplog) == []


def test_float_microseconds_of_a_column_fail_with_the_unit_that_takes_floats() -> None:
    with pytest.raises(OperatorError, match=r'float seconds with unit="s"'):
        stamps_of(PLAIN.with_timestamp_column("at"), RowBatch([{"at": 0.5}]))
