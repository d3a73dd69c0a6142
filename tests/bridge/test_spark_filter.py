"""Filters that Spark may compute, and those that stay in the job."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.bridge.spark_filter import Compared, Condition, IsIn, IsNull, Joined, conditions_of

SCHEMA = pa.schema(
    {
        "i": pa.int32(),
        "b": pa.bool_(),
        "s": pa.string(),
        "d": pa.date32(),
        "t": pa.timestamp("us", "Europe/Berlin"),
        "n": pa.timestamp("us"),
        "f": pa.float32(),
        "g": pa.float64(),
        "c": pa.decimal128(9, 2),
        "r": pa.struct({"i": pa.int32()}),
    }
)
i, b, s, d, t, n, f, g, c = (pc.field(name) for name in "ibsdtnfgc")
DAY, AT = dt.date(1970, 1, 3), dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (i > 3, Compared(0, "integer", ">", 3)),
        (pc.scalar(3) > i, Compared(0, "integer", "<", 3)),
        (~(i <= 3), Compared(0, "integer", ">", 3)),
        (b, Compared(1, "boolean", "=", True)),
        (~b, Compared(1, "boolean", "!=", True)),
        (s == "x", Compared(2, "string", "=", "x")),
        (d >= DAY, Compared(3, "date", ">=", 2)),
        (t < AT, Compared(4, "timestamp", "<", 1_000_000)),
        (g > 3, Compared(7, "float", ">", 3.0)),
        (~(g > 3), Compared(7, "float", "<=", 3.0, with_nan=True)),
        (g != 3, Compared(7, "float", "!=", 3.0, with_nan=True)),
        (~(g != 3), Compared(7, "float", "=", 3.0)),
        (f == 0.5, Compared(6, "float", "=", 0.5)),
        (c.is_null(), IsNull(8, negated=False)),
        (c.is_valid(), IsNull(8, negated=True)),
        (i.isin([1, None]), IsIn(0, "integer", (1,), with_null=True, negated=False)),
        (~s.isin(["x"]), IsIn(2, "string", ("x",), with_null=False, negated=True)),
        ((i > 3) | b, Joined(False, (Compared(0, "integer", ">", 3), Compared(1, "boolean", "=", True)))),
        (~((i > 3) | b), Joined(True, (Compared(0, "integer", "<=", 3), Compared(1, "boolean", "!=", True)))),
    ],
)
def test_comparisons_that_mean_the_same_go_to_spark(wanted: pc.Expression, expected: Condition) -> None:
    assert conditions_of(wanted, SCHEMA) == ((expected,), True)


def fits_no_type() -> Any:
    return pc.field("i") == "x"


@pytest.mark.parametrize(
    "wanted",
    [
        i > 3.5,
        i + 1 > 3,
        i > pc.field("i"),
        i == pc.scalar(pa.scalar(None, pa.int32())),
        pc.field("r", "i") > 3,
        b < True,
        n < dt.datetime(1970, 1, 1),  # noqa: DTZ001 # as a column without a zone
        f == 0.1,
        g == float("nan"),
        g.isin([1.0]),
        g.is_null(nan_is_null=True),
        c > Decimal("1.00"),
        pc.is_in(i, value_set=pa.array([1]), skip_nulls=True),
        i.isin([]),
        i.isin(list(range(1_001))),
        pc.and_(i > 3, b),
        (i > 3) | (c > Decimal("1.00")),
        fits_no_type(),
        pc.field(0) > 3,
        pc.field("gone") > 3,
        (i > 3) & fits_no_type(),
    ],
)
def test_all_others_stay_in_the_job(wanted: pc.Expression) -> None:
    assert conditions_of(wanted, SCHEMA) == ((), False)


def test_what_is_joined_by_and_goes_alone() -> None:
    parts = (Compared(0, "integer", ">", 3), Compared(1, "boolean", "=", True))
    assert conditions_of((i > 3) & (c > Decimal("1.00")) & b, SCHEMA) == (parts, False)


def test_a_deep_filter_is_translated_without_recursion() -> None:
    wanted = i > 0
    for number in range(1, 300):
        wanted &= i != -number
    conditions, are_all = conditions_of(wanted, SCHEMA)
    assert (len(conditions), are_all) == (300, True)
