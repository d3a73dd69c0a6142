"""A stream's records become batches that Spark reads correctly, with every value as it was."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.bridge.arrow import ReadableBatches
from penstock.bridge.spark_table import SparkTable
from penstock.runtime.errors import OperatorError
from penstock.runtime.io.connectors.errors import BadRecordError
from penstock.runtime.record.elements import ArrowBatch, RowBatch
from penstock.testing import OperatorHarness

WALL = datetime.fromisoformat("2024-05-06T07:08:09")


@pytest.mark.parametrize(
    ("first", "later", "told"),
    [
        (10, 10.9, r"'v' of type int64 can't hold 10\.9 of type float"),
        (1, Decimal("2.5"), r"'v' of type int64 can't hold Decimal\('2\.5'\) of type Decimal"),
        (1, True, "'v' of type int64 can't hold True of type bool"),
        (np.float32(1), 0.1, r"'v' of type float can't hold 0\.1 of type float"),
        (date(2024, 5, 6), WALL, r"'v' of type date32\[day\] can't hold datetime"),
        (timedelta(1), 5, r"'v' of type duration\[us\] can't hold 5 of type int"),
        (WALL, WALL.replace(tzinfo=UTC), r"'v' of type timestamp\[us\] can't hold datetime"),
        (WALL.replace(tzinfo=UTC), WALL, r"'v' of type timestamp\[us, tz=UTC\] can't hold datetime"),
        ({"x": 1}, {"x": 1, "y": 2}, "'v' of type struct<x: int64> has no field 'y'"),
        ({"x": 1}, {"z": 2}, "'v' of type struct<x: int64> has no field 'z'"),
        ([{"x": [1]}], [{"x": [2.5]}], r"'v\[\]\.x\[\]' of type int64 can't hold 2\.5 of type float"),
    ],
)
def test_a_later_value_that_the_first_type_would_change_is_refused(first: Any, later: Any, told: str) -> None:
    batches = ReadableBatches()
    assert batches.convert(RowBatch([{"v": first}, {"v": None}])).column(0).to_pylist() == [first, None]
    with pytest.raises(BadRecordError, match=f"column {told}.*must fit the schema 'v: .*: give schema=,"):
        batches.convert(RowBatch([{"v": first}, {"v": later}]))


def test_a_later_batch_of_another_type_is_refused_and_one_that_fits_is_cast() -> None:
    batches = ReadableBatches()
    batches.convert(ArrowBatch(pa.record_batch({"v": [{"x": 1}]})))
    wider = pa.record_batch({"v": pa.array([{"x": 2}], pa.struct({"x": pa.int8()}))})
    assert batches.convert(ArrowBatch(wider)).to_pylist() == [{"v": {"x": 2}}]
    with pytest.raises(BadRecordError, match=r"column 'v' .* has no field 'y'.*: give schema=, or map"):
        batches.convert(ArrowBatch(pa.record_batch({"v": [{"x": 1, "y": 2}]})))
    with pytest.raises(
        BadRecordError, match=r"column 'v\.x' of type double can't be cast to int64 unchanged"
    ):
        batches.convert(ArrowBatch(pa.record_batch({"v": [{"x": 1.5}]})))


@pytest.mark.parametrize(
    "schema", [None, pa.schema({"n": pa.int64(), "t": pa.string(), "l": pa.list_(pa.int8())})]
)
def test_an_arrow_batch_that_spark_reads_right_is_taken_without_a_copy(schema: pa.Schema | None) -> None:
    columns = {"n": [1, None, 3], "t": ["a", None, "c"], "l": pa.array([[1], None, []], pa.list_(pa.int8()))}
    whole = pa.record_batch(columns)
    batches = ReadableBatches(schema)
    for batch in (whole, whole.slice(1), whole.replace_schema_metadata({"from": "pandas"})):
        taken = batches.convert(ArrowBatch(batch))
        assert taken.equals(batch)
        assert [[b and b.address for b in column.buffers()] for column in taken.columns] == [
            [b and b.address for b in column.buffers()] for column in batch.columns
        ]


def test_a_schema_that_is_given_takes_nested_rows_in_all_their_forms() -> None:
    pair = pa.struct({"a": pa.int64(), "b": pa.float32()})
    schema = pa.schema(
        {
            "by": pa.map_(pa.string(), pair),
            "parts": pa.list_(pair),
            "d": pa.decimal128(9, 2),
            "f": pa.float64(),
        }
    )
    batches = ReadableBatches(schema)
    rows: list[dict[str, Any]] = [
        {"by": {"k": {"a": 1, "b": 0.1}}, "parts": [{"a": 1}], "d": 7, "f": 7},
        {"by": [("k", {"a": 1})], "parts": [], "d": Decimal("7.5"), "f": float("nan")},
        {"by": None, "parts": [None, {"a": 1, "b": 2.5}]},
        {},
    ]
    found = batches.convert(RowBatch(rows)).to_pylist()
    rounded = float(np.float32(0.1))
    assert found[0] == {
        "by": [("k", {"a": 1, "b": rounded})],
        "parts": [{"a": 1, "b": None}],
        "d": Decimal(7),
        "f": 7.0,
    }
    assert found[1]["by"] == [("k", {"a": 1, "b": None})]
    assert found[2]["parts"] == [None, {"a": 1, "b": 2.5}]
    assert set(found[3].values()) == {None}
    with pytest.raises(BadRecordError, match=r"column 'by\.value' .* has no field 'c'"):
        batches.convert(RowBatch([{"by": {"k": {"c": 1}}}]))
    with pytest.raises(BadRecordError, match=r"column 'by\.value\.a' of type int64 can't hold 1\.5 of"):
        batches.convert(RowBatch([{"by": {"k": {"a": 1.5}}}]))


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
    with pytest.raises(BadRecordError, match=r"'id'.* null.*Rows must fit the schema"):
        ReadableBatches(strict).convert(ArrowBatch(batch))
    assert ReadableBatches().convert(ArrowBatch(batch)).num_rows == 2


def test_a_batch_that_a_table_can_not_hold_fails_and_what_was_committed_stays(tmp_path: Path) -> None:
    with OperatorHarness.of(
        lambda rows: rows.sink("out", SparkTable(tmp_path, pa.schema({"id": pa.int64()})))
    ) as harness:
        harness.push([{"id": 1}])
        harness.complete_checkpoint(harness.snapshot())
        with pytest.raises(OperatorError, match="Rows must fit the schema"):
            harness.push([{"id": "one"}])
    assert len(list(tmp_path.glob("part-*"))) == 1
