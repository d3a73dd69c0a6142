"""Frames with columns of all of Spark's types, plain and nested, and what makes their rows comparable."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

from hypothesis import strategies as st

Kind: TypeAlias = "tuple[Any, list[Any], st.SearchStrategy[Any]]"


def leaf_kinds() -> list[Kind]:
    """Spark's types, each with values at its edges and with all that it can have."""
    from pyspark.sql import types as t

    first, last = datetime.fromisoformat("1971-01-01"), datetime.fromisoformat("2200-01-01")
    micro = timedelta(microseconds=1)
    instants = st.datetimes(first, last)
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
    many = Decimal(10**19)

    def whole(bits: int) -> tuple[list[int], st.SearchStrategy[int]]:
        least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        return [least, most], st.integers(least, most)

    floats = [math.nan, -0.0, math.inf]
    return [
        (t.BooleanType(), [True, False], st.booleans()),
        (t.ByteType(), *whole(8)),
        (t.ShortType(), *whole(16)),
        (t.IntegerType(), *whole(32)),
        (t.LongType(), *whole(64)),
        (t.FloatType(), floats, st.floats(width=32)),
        (t.DoubleType(), [*floats, 5e-324], st.floats()),
        (t.StringType(), ["", "\0", "\U0001f600"], text),
        (t.BinaryType(), [bytearray(), bytearray(b"\0")], st.binary(max_size=6).map(bytearray)),
        (t.DateType(), [date(1, 1, 1), date(9999, 12, 31)], st.dates(date(1, 1, 1), date(9999, 12, 31))),
        (t.TimestampType(), [first, last - micro], instants),
        (t.TimestampNTZType(), [first, last - micro], instants),
        (
            t.DayTimeIntervalType(),
            [timedelta(-9_000), micro],
            st.timedeltas(timedelta(-9_000), timedelta(9_000)),
        ),
        (t.DecimalType(38, 18), [-many, Decimal("1e-18")], st.decimals(-many, many, places=18)),
        (t.DecimalType(5, 0), [Decimal(-99_999), Decimal(0)], st.integers(-99_999, 99_999).map(Decimal)),
    ]


def leaf_types() -> st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]]:
    """One of them."""
    return st.sampled_from([(kind, values) for kind, _, values in leaf_kinds()])


def nested(inner: st.SearchStrategy[tuple[Any, Any]]) -> st.SearchStrategy[tuple[Any, Any]]:
    from pyspark.sql import types as t

    def struct(parts: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        kind = t.StructType([t.StructField(f"f{i}", part) for i, (part, _) in enumerate(parts)])
        return kind, st.tuples(*(st.none() | values for _, values in parts))

    arrays = inner.map(lambda e: (t.ArrayType(e[0]), st.lists(st.none() | e[1], max_size=3)))
    structs = st.lists(inner, min_size=1, max_size=3).map(struct)
    keys = st.text("abc", max_size=3)
    maps = inner.map(
        lambda e: (t.MapType(t.StringType(), e[0]), st.dictionaries(keys, st.none() | e[1], max_size=3))
    )
    return arrays | structs | maps


def every_column(kind: Any, values: list[Any]) -> list[tuple[Any, list[Any]]]:
    """Columns in which a type stands plain, and in everything that can hold it."""
    from pyspark.sql import types as t

    def struct(inner: Any) -> Any:
        return t.StructType([t.StructField("f", inner), t.StructField("g", t.ByteType())])

    deep = t.ArrayType(struct(t.MapType(t.StringType(), kind)))
    columns = [
        (kind, values),
        (t.ArrayType(kind), [[value, None, value] for value in values]),
        (struct(kind), [(value, 1) for value in values]),
        (t.MapType(t.StringType(), kind), [{"k": value, "": None} for value in values]),
        (deep, [[({"k": value}, None), None] for value in values]),
    ]
    if isinstance(kind, t.LongType | t.StringType | t.DateType | t.DecimalType):
        columns.append((t.MapType(kind, t.ByteType()), [{value: 1} for value in values]))
    return columns


@st.composite
def frames(draw: st.DrawFn) -> tuple[Any, list[tuple[Any, ...]]]:
    """A schema with every type, plain and nested, and some that are nested at random; and rows for it."""
    from pyspark.sql import types as t

    schema = t.StructType([t.StructField("row", t.LongType(), nullable=False)])
    columns: list[list[Any]] = []
    for kind, edges, values in leaf_kinds():
        cells = [*edges, *draw(st.lists(values, min_size=1, max_size=3))]
        for column, found in every_column(kind, cells):
            schema.add(f"c{len(columns)}", column)
            columns.append(found)
    for kind, values in draw(st.lists(st.recursive(leaf_types(), nested, max_leaves=4), max_size=5)):
        schema.add(f"c{len(columns)}", kind)
        columns.append(draw(st.lists(values, min_size=1, max_size=3)))
    # The last row holds nothing but nulls; a shorter column begins again.
    longest = max(map(len, columns))
    rows = [(i, *(cells[i % len(cells)] for cells in columns)) for i in range(longest)]
    return schema, [*rows, (longest, *(None for _ in columns))]


def comparable(value: Any) -> Any:
    """A value that equals another one of the same content: NaN equals NaN here, and 0.0 is not -0.0."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (value, math.copysign(1.0, value))
    if isinstance(value, dict):
        return sorted((key, comparable(item)) for key, item in value.items())
    if isinstance(value, tuple | list):
        return [comparable(item) for item in value]
    return value
