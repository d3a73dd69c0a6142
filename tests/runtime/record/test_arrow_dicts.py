from __future__ import annotations

import random
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from penstock.runtime.record.row_columns import NoPythonValueError, dicts_of_arrow

COLUMNS = {
    "int": pa.array([1, None, -(2**63)]),
    "small": pa.array([1, None, 3], pa.uint8()),
    "float": pa.array([0.1, None, float("inf")]),
    "truth": pa.array([True, None, False]),
    "text": pa.array(["é", None, ""]),
    "bytes": pa.array([b"a", None, b""]),
    "category": pa.array(["a", None, "a"]).dictionary_encode(),
    "day": pa.array([date(2024, 2, 29), None, date(1, 1, 1)]),
    "hour": pa.array([time(1, 2, 3, 4), None, time()]),
    "span": pa.array([timedelta(microseconds=-1), None, timedelta()]),
    "decimal": pa.array([Decimal("1.50"), None, Decimal("-0.01")]),
    "list": pa.array([[1, None], None, []]),
    "struct": pa.array([{"a": 1}, None, {"a": None}]),
    "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "nothing": pa.nulls(3),
}

TIMES = [
    (pa.timestamp("us"), None),
    (pa.timestamp("ms"), None),
    (pa.timestamp("s"), None),
    (pa.timestamp("us", "UTC"), ZoneInfo("UTC")),
    (pa.timestamp("ms", "UTC"), ZoneInfo("UTC")),
    (pa.timestamp("us", "-03:30"), timezone(-timedelta(hours=3, minutes=30))),
    (pa.timestamp("us", "Europe/Berlin"), ZoneInfo("Europe/Berlin")),
]


def test_rows_have_the_values_that_arrow_gives():
    batch = pa.record_batch(COLUMNS)
    rows = dicts_of_arrow(batch)
    assert rows == batch.to_pylist()
    assert [list(row) for row in rows] == [list(COLUMNS)] * 3
    assert [{name: type(v) for name, v in row.items()} for row in rows] == [
        {name: type(v) for name, v in row.items()} for row in batch.to_pylist()
    ]


def test_a_slice_gives_its_own_rows():
    batch = pa.record_batch(COLUMNS)
    assert dicts_of_arrow(batch.slice(1, 1)) == batch.to_pylist()[1:2]
    assert dicts_of_arrow(batch.slice(3)) == []


@pytest.mark.parametrize(("kind", "zone"), TIMES)
@pytest.mark.parametrize("nulls", [False, True])
def test_times_are_equal_and_in_their_zone(kind, zone, nulls):
    chosen = random.Random(7)
    second = {"s": 1, "ms": 10**3, "us": 10**6}[kind.unit]
    numbers = [chosen.randrange(-62_000_000_000, 253_000_000_000) * second for _ in range(500)]
    numbers += [-1, 0, 1, 1_711_846_800 * second, 1_729_990_800 * second]  # Berlin changes its clocks
    column = pa.array([None, *numbers] if nulls else [0, *numbers]).cast(kind)
    found = [row["at"] for row in dicts_of_arrow(pa.record_batch({"at": column}))]
    assert found == column.to_pylist()
    for value, number in zip(found[1:], numbers, strict=True):
        assert value.tzinfo == zone
        absolute = value.replace(tzinfo=UTC) if zone is None else value
        assert (absolute - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) == (
            number * 10**6 // second
        )
    part = pa.record_batch({"at": column.slice(3, 2)})
    assert [row["at"] for row in dicts_of_arrow(part)] == found[3:5]


@pytest.mark.parametrize("zone", [None, "UTC", "-03:30"])
@pytest.mark.parametrize("number", [-62_135_596_801, 253_402_300_800])
def test_a_time_outside_of_the_years_1_to_9999_is_refused_by_its_column(zone, number):
    column = pa.array([0, number]).cast(pa.timestamp("s", zone))
    with pytest.raises(NoPythonValueError, match=r"column 'at' of type timestamp\[s.* years 1 to 9999"):
        dicts_of_arrow(pa.record_batch({"n": [1, 2], "at": column}))


def test_names_of_columns_are_never_executed():
    names = ["a'b", '"', "\\", "{x}", "\n", "", "'}: __import__('os')", "é"]
    batch = pa.RecordBatch.from_arrays([pa.array([i]) for i in range(len(names))], names)
    assert dicts_of_arrow(batch) == [dict(zip(names, range(len(names)), strict=True))]


def test_very_wide_batches_and_batches_without_columns_have_rows():
    wide = pa.record_batch({f"c{i}": [i, -i] for i in range(600)})
    assert dicts_of_arrow(wide) == wide.to_pylist()
    bare = pa.record_batch({"a": [1, 2]}).select([])
    assert dicts_of_arrow(bare) == [{}, {}]


def test_columns_with_one_name_are_refused_by_name_and_none_is_lost() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(NoPythonValueError, match="two columns have the name 'a'"):
        dicts_of_arrow(batch)
