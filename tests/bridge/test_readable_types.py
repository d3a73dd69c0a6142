"""Arrow types that Spark reads, and those that are refused by the name of their column."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.bridge.arrow import readable_schema
from penstock.runtime.io.connectors.errors import BadRecordError


@pytest.mark.parametrize(
    ("given", "path"),
    [
        (pa.time64("us"), "'a' has type time64"),
        (pa.list_(pa.time32("s")), r"'a\[\]' has type time32"),
        (pa.struct([("b", pa.month_day_nano_interval())]), r"'a\.b' has type month_day_nano_interval"),
        (pa.map_(pa.string(), pa.decimal256(60, 2)), r"'a\.value' has type decimal256\(60, 2\)"),
        (pa.decimal128(5, -2), r"'a' has type decimal128\(5, -2\)"),
        (pa.null(), "'a' holds only nulls"),
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


def test_names_that_differ_only_in_case_are_refused_also_in_structs() -> None:
    """Spark reads neither: for it they are one."""
    twins = [("a", pa.int64()), ("A", pa.int64())]
    with pytest.raises(BadRecordError, match="columns are called 'a' and 'A', one name for Spark"):
        readable_schema(pa.schema(twins))
    with pytest.raises(BadRecordError, match="columns are called 'a' and 'a', one name for Spark"):
        readable_schema(pa.schema([twins[0], twins[0]]))
    nested = pa.list_(pa.struct(twins))
    with pytest.raises(BadRecordError, match=r"fields of column 'c\[\]' are called 'a' and 'A'"):
        readable_schema(pa.schema([("c", nested)]))
