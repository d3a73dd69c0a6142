"""A growing column gives back what was put into it, with its type and its nulls."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.runtime.errors import StateMismatchError
from penstock.runtime.state.typed_columns import GrowingColumn

SLOTS = np.array([3, 0, 2])

KINDS: list[tuple[pa.DataType, Any, Any]] = [
    (pa.int8(), 1, -2),
    (pa.uint64(), 1, 2**64 - 1),
    (pa.float32(), 0.5, float("inf")),
    (pa.float64(), 0.1, -0.0),
    (pa.bool_(), True, False),
    (pa.string(), "a", ""),
    (pa.large_string(), "ä", "b"),
    (pa.binary(), b"\0", b""),
    (pa.decimal128(20, 2), Decimal("1.50"), Decimal("-99999999.99")),
    (pa.date32(), date(2020, 1, 1), date(1, 1, 1)),
    (pa.date64(), date(2020, 1, 1), date(1970, 1, 1)),
    (pa.time32("s"), time(1, 2, 3), time(0)),
    (pa.time64("us"), time(1, 2, 3, 4), time(0)),
    (pa.timestamp("us"), datetime(2020, 1, 1), datetime(1, 1, 1)),  # noqa: DTZ001
    (pa.timestamp("ms", "UTC"), datetime(2020, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)),
    (pa.duration("us"), timedelta(microseconds=1), timedelta(days=-1)),
    (pa.list_(pa.int64()), [1, 2], []),
]


@pytest.mark.parametrize(("kind", "one", "other"), KINDS, ids=lambda value: str(value)[:20])
def test_values_of_every_type_come_back(kind: pa.DataType, one: Any, other: Any) -> None:
    column = GrowingColumn("c", kind)
    column.reserve(4)
    column.put(SLOTS, pa.array([one, None, other], kind))
    taken = column.take(np.arange(4))
    assert taken.type == kind
    assert taken.to_pylist() == pa.array([None, None, other, one], kind).to_pylist()
    if not pa.types.is_list(kind):
        same = column.equals(np.arange(4), pa.array([None, None, other, other], kind))
        assert same.tolist() == [True, True, True, False]


def test_a_column_of_nulls_takes_the_first_type_that_comes() -> None:
    column = GrowingColumn("c", pa.null())
    column.reserve(2)
    column.put(np.array([0, 1]), pa.nulls(2))
    assert column.take(np.array([0, 1])).to_pylist() == [None, None]
    column.put(np.array([1]), pa.array([7]))
    assert column.take(np.array([0, 1])).to_pylist() == [None, 7]
    column.put(np.array([1]), pa.nulls(1))
    assert column.take(np.array([0, 1])).equals(pa.array([None, None], pa.int64()))


def test_values_of_another_type_are_refused_by_name() -> None:
    column = GrowingColumn("amount", pa.int64())
    column.reserve(1)
    with pytest.raises(StateMismatchError, match="'amount' is of type double here and of type int64"):
        column.put(np.array([0]), pa.array([1.5]))


def test_growing_keeps_what_is_there_and_begins_with_nulls() -> None:
    for kind in (pa.int64(), pa.string()):
        column = GrowingColumn("c", kind)
        column.reserve(1)
        value = pa.array([5]).cast(kind)
        column.put(np.array([0]), value)
        column.reserve(1000)
        assert column.take(np.array([0, 999])).to_pylist() == [value[0].as_py(), None]


def test_nan_equals_nan() -> None:
    column = GrowingColumn("c", pa.float64())
    column.reserve(1)
    column.put(np.array([0]), pa.array([float("nan")]))
    assert column.equals(np.array([0]), pa.array([float("nan")])).tolist() == [True]
