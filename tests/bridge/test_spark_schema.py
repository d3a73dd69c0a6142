"""What Spark reads of Arrow's types, and what is refused by the name of its column."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.bridge.spark_schema import readable_schema
from penstock.bridge.spark_table import SparkTable
from penstock.runtime.errors import OperatorError
from penstock.runtime.io.connectors.errors import BadRecordError
from penstock.runtime.operators.sink import SinkOperator
from penstock.runtime.testing.harness import OperatorHarness


@pytest.mark.parametrize(
    ("given", "path"),
    [
        (pa.time64("us"), "'a' has type time64"),
        (pa.list_(pa.time32("s")), r"'a\[\]' has type time32"),
        (pa.struct([("b", pa.month_day_nano_interval())]), r"'a\.b' has type month_day_nano_interval"),
        (pa.map_(pa.string(), pa.decimal256(60, 2)), r"'a\.value' has type decimal256\(60, 2\)"),
        (pa.decimal128(5, -2), r"'a' has type decimal128\(5, -2\)"),
        (pa.null(), "'a' holds nothing but nulls"),
    ],
)
def test_what_spark_can_not_read_is_refused_by_the_path_of_its_column(given: pa.DataType, path: str) -> None:
    with pytest.raises(BadRecordError, match=f"column {path}.*cast it, or give schema="):
        readable_schema(pa.schema([("fine", pa.int64()), ("a", given)]))


def test_what_it_would_misread_becomes_what_it_reads() -> None:
    given = {"text": pa.large_string(), "when": pa.timestamp("ns", "UTC"), "parts": pa.list_(pa.uint64())}
    assert readable_schema(pa.schema(given)) == pa.schema(
        {"text": pa.string(), "when": pa.timestamp("us", "UTC"), "parts": pa.list_(pa.decimal128(20, 0))}
    )


def test_a_batch_that_a_table_can_not_hold_fails_and_what_was_committed_stays(tmp_path: Path) -> None:
    with OperatorHarness(SinkOperator(SparkTable(tmp_path, pa.schema({"id": pa.int64()})))) as harness:
        harness.push([{"id": 1}])
        harness.complete_checkpoint(harness.snapshot())
        with pytest.raises(OperatorError, match="which does not fit the schema"):
            harness.push([{"id": "one"}])
    assert len(list(tmp_path.glob("part-*"))) == 1
