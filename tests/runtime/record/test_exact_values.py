"""Values that get into a column are there unchanged, and the others are refused by name."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.runtime.record.arrow_types import NoArrowTypeError
from penstock.runtime.record.arrow_values import MisfitError, exact_column, to_arrow

WALL = datetime.fromisoformat("2024-05-06T07:08:09")
NUMBERS = pa.map_(pa.string(), pa.int64())
PAIR = pa.struct({"x": pa.int64(), "y": pa.string()})


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.bool_(), [True, None]),
        (pa.int8(), [1, np.int64(2), None]),
        (pa.float64(), [1.5, 2, np.float32(0.5), None]),
        (pa.float32(), [1.5, 2, np.float32(0.1)]),
        (pa.decimal128(10, 2), [Decimal("1.25"), 3, Decimal(-7), None]),
        (pa.string(), ["a", "", None]),
        (pa.binary(), [b"a", bytearray(b"b"), None]),
        (pa.date32(), [date(2024, 5, 6), None]),
        (pa.timestamp("us"), [WALL, None]),
        (pa.timestamp("s"), [WALL]),
        (pa.timestamp("us", "America/St_Johns"), [WALL.replace(tzinfo=UTC), None]),
        (pa.duration("us"), [timedelta(1, 2, 3), None]),
        (pa.time64("us"), [time(1, 2, 3, 4), None]),
        (pa.list_(pa.int64()), [[1, None], [], (2,), np.array([3]), None]),
        (pa.dictionary(pa.int32(), pa.string()), ["a", "a", None]),
        (PAIR, [{"x": 1, "y": "a"}, {"y": None}, {}, None]),
        (PAIR, [(1, "a"), None]),
        (NUMBERS, [{"a": 1}, {}, None]),
        (NUMBERS, [[("a", 1), ("b", None)], [], None]),
        (pa.map_(PAIR, pa.list_(PAIR)), [[({"x": 1}, [{"y": "a"}, None])]]),
    ],
)
def test_values_that_fit_are_had_unchanged(kind: pa.DataType, values: list[Any]) -> None:
    assert exact_column(values, kind, "c").equals(pa.array(values, kind))
    assert exact_column([], kind, "c").type == kind
    assert exact_column([None], kind, "c").null_count == 1


def test_a_number_that_is_none_stays_one() -> None:
    assert str(exact_column([float("nan"), None], None, "c").to_pylist()) == "[nan, None]"
    assert str(exact_column([float("nan")], pa.float32(), "c").to_pylist()) == "[nan]"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), 10.9),
        (pa.int64(), 10.0),
        (pa.int64(), np.float64(1.5)),
        (pa.int64(), Decimal("2.5")),
        (pa.int64(), True),
        (pa.float64(), True),
        (pa.float64(), Decimal("2.5")),
        (pa.float32(), 0.1),
        (pa.string(), b"a"),
        (pa.binary(), "a"),
        (pa.date32(), WALL),
        (pa.date32(), 5),
        (pa.timestamp("us"), date(2024, 5, 6)),
        (pa.timestamp("us"), WALL.replace(tzinfo=UTC)),
        (pa.timestamp("us", "UTC"), WALL),
        (pa.timestamp("s"), WALL.replace(microsecond=1)),
        (pa.duration("us"), 5),
        (pa.duration("ms"), timedelta(microseconds=5)),
        (pa.time64("us"), time(1, tzinfo=UTC)),
    ],
)
def test_a_value_that_would_change_is_refused_wherever_it_stands(kind: pa.DataType, value: Any) -> None:
    places = {
        "c": (kind, value),
        r"c\.a": (pa.struct({"a": kind}), {"a": value}),
        r"c\[\]": (pa.list_(kind), [None, value]),
        r"c\.value": (pa.map_(pa.string(), kind), {"k": value}),
        r"c\.key": (pa.map_(kind, pa.string()), [(value, "v")]),
    }
    for path, (whole, given) in places.items():
        with pytest.raises(
            MisfitError, match=f"column '{path}' .*can't hold .*of type {type(value).__name__} "
        ):
            exact_column([None, given], whole, "c")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int8(), 300),
        (pa.float64(), 2**53 + 1),
        (pa.decimal128(3, 1), Decimal("1.25")),
        (pa.decimal128(3, 1), 1000),
        (pa.list_(pa.int64()), 5),
        (pa.list_(pa.string()), "text"),
        (PAIR, 5),
        (NUMBERS, 5),
        (NUMBERS, ["text"]),
    ],
)
def test_what_arrow_refuses_is_an_error_with_the_name_of_the_column(kind: pa.DataType, value: Any) -> None:
    with pytest.raises(MisfitError, match=r"column 'c' of type .* can't"):
        exact_column([None, value], kind, "c")


def test_the_error_names_the_part_of_the_column_the_value_and_both_types() -> None:
    kind = pa.struct({"a": pa.list_(pa.int64())})
    with pytest.raises(
        MisfitError, match=r"column 'c\.a\[\]' of type int64 can't hold 10\.9 of type float unchanged"
    ):
        exact_column([{"a": [1]}, {"a": [10.9]}], kind, "c")


def test_a_field_that_a_struct_does_not_have_is_refused_by_its_name() -> None:
    for given in ({"x": 1, "z": 2}, [("z", 2)]):
        with pytest.raises(MisfitError, match=r"column 'c\[\]' of type struct<.*> has no field 'z'"):
            exact_column([[given]], pa.list_(PAIR), "c")


def test_types_that_arrow_finds_are_not_trusted_where_it_drops_something() -> None:
    aware = WALL.replace(tzinfo=UTC)
    for mixed in ([date(2024, 5, 6), WALL], [WALL, aware], [timedelta(1), 5], [b"a", "b"]):
        with pytest.raises(MisfitError, match=r"column 'c'.* can't hold .* of type"):
            exact_column(mixed, None, "c")
    assert exact_column([1, 2.5], None, "c").to_pylist() == [1.0, 2.5]
    assert exact_column([1, Decimal("2.5")], None, "c").to_pylist() == [1, Decimal("2.5")]


def test_columns_of_state_take_a_type_that_is_given_by_the_same_rule() -> None:
    assert (
        to_arrow([(1, 2), None], "value", pa.struct({"_1": pa.int64(), "_2": pa.float64()})).null_count == 1
    )
    with pytest.raises(NoArrowTypeError, match=r"column 'value' .* can't hold 10\.9 of type float unchanged"):
        to_arrow([10, 10.9], "value", pa.int64())


def test_floats_are_rounded_only_where_that_is_wanted_and_never_become_infinite() -> None:
    assert exact_column([0.1], pa.float32(), "c", rounds=True).to_pylist() == [float(np.float32(0.1))]
    assert exact_column([float("inf")], pa.float32(), "c").to_pylist() == [float("inf")]
    with pytest.raises(MisfitError, match=r"can't hold 1e\+300 of type float"):
        exact_column([1e300], pa.float32(), "c", rounds=True)


def test_nanoseconds_of_pandas_are_not_dropped() -> None:
    pandas = pytest.importorskip("pandas")
    for value, kind in [(pandas.Timestamp(1001), None), (pandas.Timedelta(1001), pa.duration("us"))]:
        with pytest.raises(MisfitError, match="can't hold"):
            exact_column([value], kind, "c")
    assert exact_column([pandas.Timestamp(1000)], None, "c").to_pylist() == [
        datetime.fromisoformat("1970-01-01T00:00:00.000001")
    ]
