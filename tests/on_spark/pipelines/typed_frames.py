"""Frames with columns of all of Spark's types, plain and nested, and what makes their rows comparable."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from hypothesis import strategies as st

from penstock.bridge.arrow import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Kind: TypeAlias = "tuple[Any, list[Any], st.SearchStrategy[Any]]"

MICRO = timedelta(microseconds=1)


def leaf_kinds(local_times: bool) -> list[Kind]:
    """Spark's types, each with values at its edges and with all that it can have.

    Args:
        local_times: Instants are to have a local time in every zone.
    """
    from pyspark.sql import types as t

    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
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
        (t.BinaryType(), [b"", b"\0"], st.binary(max_size=6)),
        *times(local_times),
        *(decimals(*digits) for digits in [(38, 18), (5, 0), (38, 0), (38, 38)]),
    ]


def whole(bits: int) -> tuple[list[int], st.SearchStrategy[int]]:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return [least, most], st.integers(least, most)


def decimals(precision: int, scale: int) -> Kind:
    from pyspark.sql.types import DecimalType

    def of(digits: int) -> Decimal:
        return Decimal((digits < 0, tuple(map(int, str(abs(digits)))), -scale))

    most = 10**precision - 1
    return DecimalType(precision, scale), [of(-most), of(1)], st.integers(-most, most).map(of)


def times(local: bool) -> list[Kind]:
    """Dates, times and durations; once a year a zone's clock shows an hour twice."""
    from pyspark.sql import types as t

    first, last = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001
    day = timedelta(1) if local else timedelta(0)
    begin, end = first + day, last - day
    instants = st.datetimes(begin, end) | st.datetimes(datetime(1880, 1, 1), datetime(2040, 1, 1))  # noqa: DTZ001
    old = datetime(1883, 11, 18, 12, 3, 58)  # noqa: DTZ001
    twice = [datetime(2023, 11, 5, hour, 30) for hour in (3, 4, 5)]  # noqa: DTZ001
    longest = timedelta(106_751_991)  # Python's values of the last hours more do not become Arrow's
    return [
        (t.DateType(), [first.date(), last.date()], st.dates(date.min, date.max)),
        (
            t.TimestampType(),
            [at.replace(tzinfo=UTC) for at in (begin, end, old, *twice)],
            instants.map(lambda at: at.replace(tzinfo=UTC)),
        ),
        (t.TimestampNTZType(), [first, last, old], st.datetimes(first, last)),
        (t.DayTimeIntervalType(), [-longest, longest, -MICRO], st.timedeltas(-longest, longest)),
        (t.DayTimeIntervalType(0, 0), [timedelta(-1)], st.integers(-(10**6), 10**6).map(timedelta)),
        (t.DayTimeIntervalType(1, 3), [timedelta(hours=25)], st.timedeltas(-longest, longest)),
    ]


def nested(
    inner: st.SearchStrategy[tuple[Any, Any]], keys: st.SearchStrategy[tuple[Any, Any]]
) -> st.SearchStrategy[tuple[Any, Any]]:
    from pyspark.sql import types as t

    def struct(parts: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        kind = t.StructType([t.StructField(f"f{i}", part) for i, (part, _) in enumerate(parts)])
        return kind, st.tuples(*(st.none() | values for _, values in parts))

    arrays = inner.map(lambda e: (t.ArrayType(e[0]), st.lists(st.none() | e[1], max_size=3)))
    structs = st.lists(inner, min_size=1, max_size=3).map(struct)

    def mapping(parts: tuple[tuple[Any, Any], tuple[Any, Any]]) -> tuple[Any, Any]:
        (key, found), (value, values) = parts
        # Several NaN may be keys in Python, one in Java.
        unique = found.filter(lambda k: k == k)
        return t.MapType(key, value), st.dictionaries(unique, st.none() | values, max_size=3)

    return arrays | structs | st.tuples(keys, inner).map(mapping)


def every_column(kind: Any, values: list[Any]) -> list[tuple[Any, list[Any]]]:
    """Columns in which a type stands plain, and in everything that can hold it, with and without nulls."""
    from pyspark.sql import types as t

    def struct(inner: Any, nullable: bool = True) -> Any:
        return t.StructType([t.StructField("f", inner, nullable), t.StructField("g", t.ByteType())])

    # PySpark makes lists of the elements that it converts, and a list is no key in Python. PySpark 4
    # also converts texts.
    key, keys = (
        (struct(kind, False), [(value, 1) for value in values])
        if kind.needConversion() or isinstance(kind, t.StringType)
        else (t.ArrayType(kind, False), [(value, value) for value in values])
    )
    keyed = t.MapType(key, kind, False)
    return [
        (kind, values),
        (t.ArrayType(kind), [[value, None, value] for value in values]),
        (struct(kind), [(value, 1) for value in values]),
        (t.MapType(kind, kind), [{}, *({value: value} for value in values), {values[0]: None}]),
        (
            t.ArrayType(struct(keyed, False), False),
            [[({key: value}, None)] for key, value in zip(keys, values, strict=True)],
        ),
    ]


@st.composite
def frames(draw: st.DrawFn, local_times: bool) -> tuple[Any, list[tuple[Any, ...]]]:
    """A schema with every type, plain and nested, and some that are nested at random; and rows for it."""
    from pyspark.sql import types as t

    kinds = leaf_kinds(local_times)
    # A run with one example would try the simplest one, in which nothing is nested at random.
    leaves = st.sampled_from([(kind, values) for kind, _, values in kinds])
    deep = st.recursive(leaves, lambda inner: nested(inner, leaves), max_leaves=4)
    more = draw(st.lists(deep, max_size=5).filter(lambda found: any(is_nested(kind) for kind, _ in found)))
    schema = t.StructType([t.StructField("row", t.LongType(), nullable=False)])
    columns: list[list[Any]] = []
    for kind, edges, values in kinds:
        cells = [*edges, *draw(st.lists(values, min_size=1, max_size=3))]
        for column, found in every_column(kind, cells):
            schema.add(f"c{len(columns)}", column)
            columns.append(found)
    for kind, values in more:
        schema.add(f"c{len(columns)}", kind)
        columns.append(draw(st.lists(values, min_size=1, max_size=3)))
    # The last row holds nothing but nulls; a shorter column begins again.
    longest = max(map(len, columns))
    rows = [(i, *(cells[i % len(cells)] for cells in columns)) for i in range(longest)]
    return schema, [*rows, (longest, *(None for _ in columns))]


def schema_that_comes_back(schema: Any, columns_keep_not_null: bool) -> Any:
    """The schema of a frame that was in a job; everything nested may be null."""
    from pyspark.sql import types as t

    return t.StructType(
        [
            t.StructField(f.name, nullable_kind(f.dataType), f.nullable or not columns_keep_not_null)
            for f in schema
        ]
    )


def is_nested(kind: Any) -> bool:
    from pyspark.sql import types as t

    return isinstance(kind, t.ArrayType | t.MapType | t.StructType)


def nullable_kind(kind: Any) -> Any:
    from pyspark.sql import types as t

    match kind:
        case t.ArrayType():
            return t.ArrayType(nullable_kind(kind.elementType))
        case t.MapType():
            return t.MapType(nullable_kind(kind.keyType), nullable_kind(kind.valueType))
        case t.StructType():
            return schema_that_comes_back(kind, columns_keep_not_null=False)
        case t.DayTimeIntervalType():
            return t.DayTimeIntervalType()
    return kind


def columns_of(rows: list[tuple[Any, ...]], schema: Any) -> dict[str, list[Any]]:
    """The values of a frame of these rows, column by column; Spark has no part in it."""
    kinds = arrow_schema(schema, "UTC")
    columns = [pa.array(list(cells), f.type) for f, cells in zip(kinds, zip(*rows, strict=True), strict=True)]
    return comparable_columns(pa.Table.from_arrays(columns, kinds.names))


def columns_in(df: DataFrame) -> dict[str, list[Any]]:
    """The values of a frame, as Spark writes it in Arrow.

    `collect` gives times of this machine's zone: an hour comes twice in some, and the year 1 not at all.
    """
    found: Any = df
    in_utc = arrow_schema(df.schema, "UTC")
    table = pa.Table.from_batches(found._collect_as_arrow()).cast(in_utc)
    return comparable_columns(table.take(pa.compute.sort_indices(table["row"])))


def comparable_columns(table: pa.Table) -> dict[str, list[Any]]:
    return {name: [comparable(cell) for cell in table[name].to_pylist()] for name in table.column_names}


def comparable(value: Any) -> Any:
    """A value that equals another one of the same content: NaN equals NaN here, and 0.0 is not -0.0."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (value, math.copysign(1.0, value))
    if isinstance(value, dict):
        return {name: comparable(part) for name, part in value.items()}
    if isinstance(value, list):
        parts = [comparable(part) for part in value]
        # The entries of a map, which have no order.
        return sorted(parts, key=repr) if value and isinstance(value[0], tuple) else parts
    if isinstance(value, tuple):
        return tuple(comparable(part) for part in value)
    return value
