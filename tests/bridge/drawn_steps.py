"""Drawn rows, steps on columns and aggregations, for steps that run in Spark's workers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from penstock.aggregates import ApproxCountDistinct, ColumnAggregate, Count, Max, Mean, Min, StdDev, Sum

_NAN: Final = float("nan")

_MOMENTS: Final = [
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC),
    dt.datetime(2026, 3, 29, 1, 30, tzinfo=dt.UTC),  # the clock goes forward in Berlin
    dt.datetime(2026, 10, 25, 1, 30, tzinfo=dt.UTC),
]
SCHEMA: Final = pa.schema(
    {
        "int32": pa.int32(),
        "int64": pa.int64(),
        "float64": pa.float64(),
        "string": pa.string(),
        "time": pa.timestamp("us", "Europe/Berlin"),
    }
)
_VALUES: Final[dict[str, list[Any]]] = {
    "int32": [-7, 0, 1, 2**31 - 1],
    "int64": [-(2**40), -1, 0, 1, 4, 2**40],
    "float64": [_NAN, -1.5, -0.0, 0.0, 0.5, 1e9, float("inf")],
    "string": ["", "a", "A", "ä", "it's"],
    "time": _MOMENTS,
}
Step = Callable[[Any, str], Any]

_I, _J, _F, _S, _T = map(pc.field, SCHEMA.names)

_FILTERS: Final = [
    _J > 0,
    _J.is_null(),
    ~(_F > 0),
    _F.is_valid() & (_F <= 1e9),
    _S.isin(["a", "ä"]),
    (_S == "a") | (_I < 1),
    pa.scalar(_MOMENTS[0], pa.timestamp("us", "UTC")) < _T,
]
_COMPUTED: Final = [
    {"int64": _J + 1},
    {"float64": _F * 2.0, "int32": pc.negate(_I)},
    {"string": pc.utf8_upper(_S)},
    {"time": pc.floor_temporal(_T, unit="day")},
    {"int64": pc.coalesce(_J, _I.cast(pa.int64()))},
]


def batches_of(rows: Any, cut: int = 1 << 20) -> Iterator[pa.RecordBatch]:
    """The rows in batches of this many; a dict may lack columns, which are null."""
    if isinstance(rows, dict):
        count = len(next(iter(rows.values())))
        columns = [pa.array(rows.get(f.name, [None] * count), f.type) for f in SCHEMA]
        rows = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    for start in range(0, len(rows), cut):
        yield rows.slice(start, cut)


@st.composite
def drawn_rows(draw: st.DrawFn) -> pa.RecordBatch:
    """Up to thirty rows; each value may be null."""
    count = draw(st.integers(0, 30))
    columns = [
        pa.array(
            draw(st.lists(st.none() | st.sampled_from(_VALUES[f.name]), min_size=count, max_size=count)),
            f.type,
        )
        for f in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def drawn_steps() -> st.SearchStrategy[list[Step]]:
    """Up to four filters, selections and computed columns; all columns stay."""

    def filtered(wanted: pc.Expression) -> Step:
        return lambda stream, id: stream.filter(wanted, id=id)

    def computed(columns: dict[str, pc.Expression]) -> Step:
        return lambda stream, id: stream.with_columns(id=id, **columns)

    def selected(columns: dict[str, pc.Expression]) -> Step:
        kept = [name for name in SCHEMA.names if name not in columns]
        return lambda stream, id: stream.select(*kept, id=id, **columns)

    step = (
        st.sampled_from(_FILTERS).map(filtered)
        | st.sampled_from(_COMPUTED).map(computed)
        | st.sampled_from(_COMPUTED).map(selected)
    )
    return st.lists(step, max_size=4)


@st.composite
def drawn_aggregates(draw: st.DrawFn) -> tuple[list[str], dict[str, ColumnAggregate]]:
    """Columns of the key, and functions of other columns."""
    key = draw(
        st.lists(st.sampled_from(["int32", "string", "time", "float64"]), min_size=1, max_size=2, unique=True)
    )
    functions: dict[str, ColumnAggregate] = {"n": Count()}
    for number, kind in enumerate(
        draw(st.lists(st.sampled_from([Sum, Mean, Min, Max, StdDev, Count]), max_size=3))
    ):
        functions[f"r{number}"] = kind(draw(st.sampled_from(["int64", "float64"])))
    if draw(st.booleans()):
        functions["d"] = ApproxCountDistinct("string")
    return key, functions
