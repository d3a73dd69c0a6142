"""What Spark reads of Arrow's types, and what is refused by the name of its column."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.bridge.spark_schema import ReadableBatches, readable_schema
from penstock.bridge.spark_table import SparkTable
from penstock.runtime.errors import OperatorError
from penstock.runtime.io.connectors.errors import BadRecordError
from penstock.runtime.operators.sink import SinkOperator
from penstock.runtime.record.elements import ArrowBatch
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


def test_only_a_schema_that_is_given_makes_columns_without_nulls_and_none_in_others() -> None:
    inner = pa.struct([pa.field("b", pa.int8(), nullable=False)])
    map_type = pa.map_(inner, pa.field("value", pa.int8(), nullable=False))
    strict = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("parts", pa.list_(pa.field("element", inner, nullable=False))),
            pa.field("by", map_type),
        ]
    )
    batch = pa.RecordBatch.from_pylist([{"id": 1, "parts": [{"b": 2}], "by": [({"b": 3}, 4)]}], strict)
    found, declared = ReadableBatches(), ReadableBatches(strict)
    for batches in (found, declared):
        converted = batches.convert(ArrowBatch(batch))
        assert converted.to_pylist() == batch.to_pylist()
        assert is_nullable(converted.schema.field("parts").type)
        assert is_nullable(converted.schema.field("by").type)
    assert found.schema is not None
    assert found.schema.field("id").nullable
    assert declared.schema is not None
    assert not declared.schema.field("id").nullable


def is_nullable(kind: pa.DataType) -> bool:
    """All that is nested in a type may be null, but the keys of maps."""
    fields = [kind.field(i) for i in range(kind.num_fields)]
    if pa.types.is_map(kind):
        fields = [kind.item_field, *kind.key_type]
    return all(field.nullable and is_nullable(field.type) for field in fields)


@pytest.mark.parametrize("is_cast", [False, True])
def test_nulls_in_a_column_that_is_declared_to_have_none_are_refused(is_cast: bool) -> None:
    """Arrow lets such a batch pass."""
    strict = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    batch = pa.RecordBatch.from_pydict(
        {"id": [1, None]}, pa.schema({"id": pa.int64()}) if is_cast else strict
    )
    with pytest.raises(BadRecordError, match=r"'id'.* null.*does not fit the schema"):
        ReadableBatches(strict).convert(ArrowBatch(batch))
    assert ReadableBatches().convert(ArrowBatch(batch)).num_rows == 2


def test_a_batch_that_a_table_can_not_hold_fails_and_what_was_committed_stays(tmp_path: Path) -> None:
    with OperatorHarness(SinkOperator(SparkTable(tmp_path, pa.schema({"id": pa.int64()})))) as harness:
        harness.push([{"id": 1}])
        harness.complete_checkpoint(harness.snapshot())
        with pytest.raises(OperatorError, match="which does not fit the schema"):
            harness.push([{"id": "one"}])
    assert len(list(tmp_path.glob("part-*"))) == 1
