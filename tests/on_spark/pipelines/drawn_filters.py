"""Drawn rows of all types that a filter in Spark may read, and drawn filters of them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

#: Values at the edges of each type. Rows and literals are drawn from the same ones, so that they meet.
VALUES: Final[dict[pa.DataType, list[Any]]] = {
    pa.int8(): [-128, -1, 0, 1, 7, 127],
    pa.int32(): [-(2**31), -1, 0, 1, 7, 2**31 - 1],
    pa.int64(): [-(2**63), -(2**53) - 1, -1, 0, 1, 7, 2**53, 2**53 + 1, 2**63 - 1],
    pa.bool_(): [False, True],
    # The order of UTF-8 differs from that of UTF-16 for the last two.
    pa.string(): ["", " ", "a", "A", "ab", "a ", "b", "ä", "a\0", "it's \\ \"", "\uffff", "\U0001f600"],
    pa.date32(): [
        dt.date(1, 1, 1),
        dt.date(1582, 10, 4),
        dt.date(1582, 10, 15),
        dt.date(1970, 1, 1),
        dt.date(2026, 3, 29),
        dt.date(9999, 12, 31),
    ],
    pa.timestamp("us", "UTC"): [
        dt.datetime(1, 1, 1, tzinfo=dt.UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC),
        dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
        dt.datetime(2026, 3, 29, 1, 30, tzinfo=dt.UTC),
        dt.datetime(2026, 3, 29, 1, 30, 0, 1, dt.UTC),
    ],
    pa.float32(): [float("nan"), float("-inf"), -1.5, -0.0, 0.0, 1e-45, 0.5, 1.0, float("inf")],
    pa.float64(): [float("nan"), float("-inf"), -1.5, -0.0, 0.0, 5e-324, 0.1, 1.0, 2.0**53, float("inf")],
}
#: A column for each type, and one that no filter in Spark may read.
SCHEMA: Final = pa.schema([*((str(kind), kind) for kind in VALUES), ("decimal", pa.decimal128(5, 2))])

_FEW: Final = 12


def batches() -> st.SearchStrategy[pa.RecordBatch]:
    """Some rows; each value may be null."""
    columns = [
        st.lists(st.none() | st.sampled_from(VALUES[kind]), min_size=_FEW, max_size=_FEW) for kind in VALUES
    ]
    return st.tuples(*columns).map(
        lambda drawn: pa.RecordBatch.from_arrays(
            [
                *(pa.array(values, kind) for values, kind in zip(drawn, VALUES, strict=True)),
                pa.array(range(_FEW), pa.decimal128(5, 2)),
            ],
            schema=SCHEMA,
        )
    )


@st.composite
def filters(draw: st.DrawFn, depth: int = 2) -> pc.Expression:
    """A filter: comparisons, null tests and `isin`, joined by `and`, `or` and `not`."""
    how = draw(st.sampled_from(["one", "one", "not", "and", "or"])) if depth else "one"
    if how == "one":
        return draw(_comparisons())
    one = draw(filters(depth - 1))
    if how == "not":
        return ~one
    other = draw(filters(depth - 1))
    return one & other if how == "and" else one | other


@st.composite
def _comparisons(draw: st.DrawFn) -> pc.Expression:
    kind = draw(st.sampled_from(list(VALUES)))
    column = pc.field(str(kind))
    literals = st.sampled_from(VALUES[kind])
    match draw(st.sampled_from(["compare", "compare", "compare", "null", "isin", "left"])):
        case "null":
            return (
                column.is_null(nan_is_null=draw(st.booleans())) if draw(st.booleans()) else column.is_valid()
            )
        case "isin":
            values = draw(st.lists(st.none() | literals, min_size=1, max_size=3))
            return column.isin(pa.array(values, kind))
        case "left":
            return draw(
                st.sampled_from(
                    [pc.field("decimal") > Decimal("3.00"), pc.utf8_length(pc.field("string")) > 1]
                )
            )
    if kind == pa.bool_() and draw(st.booleans()):
        return column
    literal = draw(literals)
    if pa.types.is_integer(kind):
        # Arrow fails where it would round an integer for a comparison with a float.
        literal = draw(st.sampled_from([literal, 300, 2**40, *([0.5] if kind == pa.int8() else [])]))
    given = pc.scalar(pa.scalar(literal) if not isinstance(literal, float) else literal)
    name = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]))
    one, other = (column, given) if draw(st.booleans()) else (given, column)
    return {
        "==": one == other,
        "!=": one != other,
        "<": one < other,
        "<=": one <= other,
        ">": one > other,
        ">=": one >= other,
    }[name]
