"""The Arrow type of each Spark type; every type has an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.bridge.arrow import UnsupportedTypeError, arrow_schema, arrow_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType
else:
    pytest.importorskip("pyspark", reason="needs pip install 'penstock[spark]'")

ZONE = "America/St_Johns"


def carried() -> dict[DataType, pa.DataType]:
    from pyspark.sql import types as t

    pair = t.StructType([t.StructField("a", t.TimestampType()), t.StructField("b", t.ByteType(), False)])
    arrow_pair = pa.struct([("a", pa.timestamp("us", ZONE)), pa.field("b", pa.int8(), nullable=False)])
    return {
        t.NullType(): pa.null(),
        t.BooleanType(): pa.bool_(),
        t.ByteType(): pa.int8(),
        t.ShortType(): pa.int16(),
        t.IntegerType(): pa.int32(),
        t.LongType(): pa.int64(),
        t.FloatType(): pa.float32(),
        t.DoubleType(): pa.float64(),
        t.DecimalType(38, 38): pa.decimal128(38, 38),
        t.StringType(): pa.string(),
        t.CharType(3): pa.string(),
        t.VarcharType(3): pa.string(),
        t.BinaryType(): pa.binary(),
        t.DateType(): pa.date32(),
        t.TimestampType(): pa.timestamp("us", ZONE),
        t.TimestampNTZType(): pa.timestamp("us"),
        t.DayTimeIntervalType(): pa.duration("us"),
        t.DayTimeIntervalType(0, 0): pa.duration("us"),
        t.ArrayType(t.TimestampNTZType(), containsNull=False): pa.list_(
            pa.field("element", pa.timestamp("us"), nullable=False)
        ),
        pair: arrow_pair,
        t.MapType(pair, t.LongType(), valueContainsNull=False): pa.map_(
            arrow_pair, pa.field("value", pa.int64(), nullable=False)
        ),
    }


def refused() -> list[Any]:
    from pyspark.sql import types as t

    no_columns = [
        t.DataType(),
        t.AtomicType(),
        t.NumericType(),
        t.IntegralType(),
        t.FractionalType(),
        t.AnsiIntervalType(),
        t.StructField("f", t.ByteType()),
        t.UserDefinedType(),
    ]
    return [*no_columns, t.YearMonthIntervalType(), t.YearMonthIntervalType(0, 0)]


def test_every_class_of_sparks_types_is_carried_or_refused() -> None:
    """A class that a newer Spark adds fails here, until it is in one of the two groups."""
    decided = {type(kind) for kind in [*carried(), *refused()]}
    undecided = set(_classes_of_types()) - decided
    assert not undecided


def _classes_of_types() -> Iterator[type]:
    from pyspark.sql import types

    for found in vars(types).values():
        if isinstance(found, type) and issubclass(found, types.DataType):
            yield found


@pytest.mark.parametrize(
    ("kind", "arrow"), [pytest.param(k, a, id=k.simpleString()) for k, a in carried().items()]
)
def test_a_type_that_is_carried_has_one_arrow_type_plain_and_nested(kind: DataType, arrow: Any) -> None:
    from pyspark.sql import types as t

    schema = t.StructType(
        [t.StructField("plain", kind), t.StructField("list", t.ArrayType(kind), nullable=False)]
    )
    if not isinstance(kind, t.NullType | t.MapType):  # Spark has no such keys
        schema.add("key", t.MapType(kind, kind))
    found = arrow_schema(schema, ZONE)
    assert found.field("plain").equals(pa.field("plain", arrow))
    in_a_list = pa.list_(pa.field("element", arrow))
    assert found.field("list").equals(pa.field("list", in_a_list, nullable=False))
    assert "key" not in found.names or found.field("key").type == pa.map_(arrow, arrow)


@pytest.mark.parametrize("kind", refused(), ids=lambda kind: type(kind).__name__)
def test_a_type_that_is_refused_is_so_by_the_path_of_its_column_wherever_it_stands(kind: Any) -> None:
    from pyspark.sql import types as t

    inner = t.StructType([t.StructField("part", kind)])
    places = {
        "c": kind,
        r"c\.part": inner,
        r"c\[\]": t.ArrayType(kind, containsNull=True),
        r"c\.key\.part": t.MapType(inner, t.ByteType()),
        r"c\.value\[\]": t.MapType(t.ByteType(), t.ArrayType(kind)),
    }
    for path, column in places.items():
        with pytest.raises(UnsupportedTypeError, match=f"column '{path}' has type .*, which Arrow can't"):
            arrow_schema(
                t.StructType([t.StructField("fine", t.ByteType()), t.StructField("c", column)]), ZONE
            )


def test_empty_arrays_and_maps_have_parts_without_a_type_and_those_of_maps_are_refused() -> None:
    """Spark says of `array()` and `map()` that they hold no nulls; Arrow has only nulls without a type."""
    from pyspark.sql import types as t

    nothing = t.ArrayType(t.NullType(), containsNull=False)
    schema = t.StructType([t.StructField("c", nothing)])
    assert arrow_schema(schema, ZONE).field("c").type == pa.list_(pa.field("element", pa.null()))
    schema.add("m", t.MapType(t.NullType(), t.NullType(), valueContainsNull=False))
    with pytest.raises(UnsupportedTypeError, match=r"column 'm' has type map<void,void>, .*keys have a type"):
        arrow_schema(schema, ZONE)


def test_a_type_of_an_unknown_name_is_refused() -> None:
    """As those of a newer Spark are here, `variant` and strings with a collation for example."""
    from pyspark.sql.types import StringType

    class Collated(StringType):
        def simpleString(self) -> str:
            return "string collate UNICODE"

    with pytest.raises(UnsupportedTypeError, match="column 'c' has type string collate UNICODE, which"):
        arrow_type(Collated(), "c", ZONE)


def test_times_in_a_zone_that_python_does_not_know_are_refused() -> None:
    from pyspark.sql import types as t

    times = t.StructType([t.StructField("at", t.ArrayType(t.TimestampType()))])
    with pytest.raises(UnsupportedTypeError, match=r"column 'at\[\]' holds times, .*zone '\+05:30:15': set"):
        arrow_schema(times, "+05:30:15")
    without = t.StructType([t.StructField("at", t.TimestampNTZType())])
    assert arrow_schema(without, "+05:30:15").field("at").type == pa.timestamp("us")
