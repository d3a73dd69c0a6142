"""Columns that are cast hold what they held, and the others are refused by name."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.runtime.record.arrow_values import MisfitError, exact_batch, exact_cast

WALL = datetime.fromisoformat("2024-05-06T07:08:09")
NOT_A_NUMBER = float("nan")


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([1, None], pa.int8()), pa.int64()),
        (pa.array([1, None]), pa.int8()),
        (pa.array([1, 2**53]), pa.float64()),
        (pa.array([1, None]), pa.decimal128(5, 2)),
        (pa.array([2**64 - 1], pa.uint64()), pa.decimal128(20, 0)),
        (pa.array([0.5, None], pa.float32()), pa.float64()),
        (pa.array([0.5, None]), pa.float32()),
        (pa.array([Decimal("1.50")]), pa.decimal128(4, 1)),
        (pa.array(["a", None]).dictionary_encode(), pa.string()),
        (pa.array(["a"], pa.large_string()), pa.string()),
        (pa.array([b"ab"], pa.binary(2)), pa.binary()),
        (pa.array([date(2024, 5, 6)], pa.date64()), pa.date32()),
        (pa.array([WALL], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([None, None]), pa.struct({"x": pa.int64()})),
        (pa.array([[], None]), pa.list_(pa.int64())),
        (pa.array([{"x": 1}, None]), pa.struct({"x": pa.float64()})),
        (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())), pa.map_(pa.string(), pa.int64())),
    ],
)
def test_a_cast_that_changes_nothing_is_made(column: pa.Array, kind: pa.DataType) -> None:
    cast = exact_cast(column, kind, "c")
    assert cast.type == kind
    assert cast.to_pylist() == column.to_pylist()


def test_another_zone_shows_the_same_instants_and_no_number_stays_one() -> None:
    instants = pa.array([WALL.replace(tzinfo=UTC)], pa.timestamp("us", "UTC"))
    assert exact_cast(instants, pa.timestamp("us", "Asia/Kolkata"), "c").to_pylist() == instants.to_pylist()
    assert str(exact_cast(pa.array([NOT_A_NUMBER, None]), pa.float32(), "c").to_pylist()) == "[nan, None]"


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([1.0]), pa.int64()),
        (pa.array([Decimal("2.0")]), pa.int64()),
        (pa.array([Decimal("2.5")]), pa.float64()),
        (pa.array([0.1]), pa.float32()),
        (pa.array([2**53 + 1]), pa.float64()),
        (pa.array([300]), pa.int8()),
        (pa.array([1000]), pa.decimal128(3, 1)),
        (pa.array([True]), pa.int64()),
        (pa.array(["1"]), pa.int64()),
        (pa.array([1]), pa.string()),
        (pa.array(["a"]), pa.binary()),
        (pa.array([b"a"]), pa.string()),
        (pa.array([WALL]), pa.date32()),
        (pa.array([date(2024, 5, 6)]), pa.timestamp("us")),
        (pa.array([WALL]), pa.timestamp("us", "UTC")),
        (pa.array([WALL], pa.timestamp("us", "UTC")), pa.timestamp("us")),
        (pa.array([1], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([5]), pa.duration("us")),
    ],
)
def test_a_cast_that_changes_values_is_refused_wherever_they_stand(
    column: pa.Array, kind: pa.DataType
) -> None:
    source, keys = column.type, pa.array(["k"])
    places: list[tuple[Any, Any]] = [
        (column, kind),
        (pa.StructArray.from_arrays([column], ["a"]), pa.struct({"a": kind})),
        (pa.ListArray.from_arrays([0, 1], column), pa.list_(kind)),
        (pa.MapArray.from_arrays([0, 1], keys, column), pa.map_(pa.string(), kind)),
    ]
    for given, wanted in places:
        with pytest.raises(
            MisfitError, match=r"column 'c.* of type .* can't be cast to .* unchanged"
        ) as told:
            exact_cast(given, wanted, "c")
        assert str(source) in str(told.value)


def test_fields_that_a_struct_does_not_have_are_refused_by_name() -> None:
    kind = pa.list_(pa.struct({"x": pa.int64()}))
    with pytest.raises(MisfitError, match=r"column 'c\[\]' of type struct<x: int64> has no field 'y'"):
        exact_cast(pa.array([[{"x": 1, "y": 2}]]), kind, "c")


def test_a_batch_gets_the_order_of_its_schema_and_no_nulls_where_that_has_none() -> None:
    schema = pa.schema([pa.field("b", pa.int64(), nullable=False), ("a", pa.string())])
    batch = pa.record_batch({"a": ["x"], "b": pa.array([1], pa.int8())})
    assert exact_batch(batch, schema).schema == schema
    with pytest.raises(MisfitError, match="column 'b' is 'not null' but holds nulls"):
        exact_batch(pa.record_batch({"a": ["x"], "b": pa.array([None], pa.int64())}), schema)
