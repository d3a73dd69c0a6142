"""A key named by columns is the same key in a dict and in an Arrow batch."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.operators.functions.function_operator import rows_of
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch
from penstock.runtime.state.stable_hash import stable_hash
from penstock.runtime.state.stable_hash_arrays import key_hashes

whole = st.integers(-(1 << 62), 1 << 62)
floats = st.floats() | st.sampled_from([0.0, -0.0, math.nan, math.inf, 1e19, -1e300, 2.0**63, 0.1])
texts = st.text(st.characters(codec="utf-8"), max_size=30)
binary = st.binary(max_size=200)
moments = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1))  # noqa: DTZ001
spans = st.timedeltas(timedelta(days=-10_000), timedelta(days=10_000))
decimals = st.decimals(-(10**20), 10**20, places=3)
#: Types of key columns, with values that they hold.
KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), whole),
    (pa.int8(), st.integers(-128, 127)),
    (pa.uint64(), st.integers(0, (1 << 64) - 1)),
    (pa.float64(), floats),
    (pa.float32(), st.floats(width=32) | st.just(-0.0)),
    (pa.bool_(), st.booleans()),
    (pa.string(), texts),
    (pa.large_string(), texts),
    (pa.binary(), binary),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.dictionary(pa.int32(), pa.string()), texts),
    (pa.dictionary(pa.int8(), pa.float64()), st.sampled_from([0.0, -0.0, math.nan, 2.5])),
    (pa.decimal128(30, 3), decimals),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), moments),
    (pa.timestamp("ms"), moments.map(lambda moment: moment.replace(microsecond=5000))),
    (pa.timestamp("us", "Europe/Berlin"), moments.map(lambda moment: moment.replace(tzinfo=UTC))),
    (pa.time64("us"), st.times()),
    (pa.duration("us"), spans),
    (pa.null(), st.none()),
]


@st.composite
def columns(draw: st.DrawFn, rows: int) -> pa.Array:
    kind, values = draw(st.sampled_from(KINDS))
    some = st.lists(st.none() | values, min_size=rows + 2, max_size=rows + 2)
    return pa.array(draw(some), kind, from_pandas=False)[1 : rows + 1]


@given(st.integers(0, 20).flatmap(lambda rows: st.lists(columns(rows), min_size=1, max_size=4)))
def test_a_key_has_the_same_hash_in_a_row_and_in_a_batch(arrays: list[pa.Array]) -> None:
    names = tuple(f"c{number}" for number in range(len(arrays)))
    batch = pa.record_batch(arrays, names=list(names))
    key = ColumnKey(names)
    rows = rows_of(ArrowBatch(batch)).rows
    assert key_hashes(key.columns(batch)).tolist() == [stable_hash(key(row)) for row in rows]


@given(st.lists(floats), st.integers(0, 5))
def test_equal_keys_of_a_column_are_one_key_of_a_dict(values: list[float], others: int) -> None:
    batch = pa.record_batch({"k": pa.array([*values, *values[:others]], pa.float64(), from_pandas=False)})
    key = ColumnKey(("k",))
    (column,) = key.columns(batch)
    counted = dict.fromkeys(map(key, rows_of(ArrowBatch(batch)).rows))
    assert len(counted) == len(set(key_hashes([column]).tolist())) == len(column.unique())


@given(st.lists(decimals | whole | st.booleans() | st.integers()))
def test_equal_numbers_of_several_types_have_one_hash_in_columns(numbers: list[Any]) -> None:
    for number in numbers:
        spelt = [kind for kind in (pa.int64(), pa.float64(), pa.decimal128(38, 3)) if _holds(kind, number)]
        hashes = {key_hashes(ColumnKey(("k",)).columns(_one(kind, number)))[0] for kind in spelt}
        assert len(hashes) <= 1


def _one(kind: pa.DataType, number: Any) -> pa.RecordBatch:
    value: Any = Decimal(number) if pa.types.is_decimal(kind) else number
    value = float(number) if pa.types.is_floating(kind) else value
    value = int(number) if pa.types.is_integer(kind) else value
    return pa.record_batch({"k": pa.array([value], kind)})


def _holds(kind: pa.DataType, number: Any) -> bool:
    try:
        return bool(_one(kind, number)["k"][0].as_py() == number)
    except (pa.ArrowException, OverflowError, ValueError):
        return False


def test_dates_and_times_are_no_numbers() -> None:
    day, moment = date(1970, 1, 2), datetime(1970, 1, 2)  # noqa: DTZ001
    values = [day, moment, moment.replace(tzinfo=UTC), time(0), timedelta(days=1), 1]
    hashes = {int(key_hashes(ColumnKey(("k",)).columns(pa.record_batch({"k": [v]})))[0]) for v in values}
    assert len(hashes) == len(values)
