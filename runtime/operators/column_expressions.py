"""`ColumnExpressions`: expressions over Arrow batches that format repeated times once.

Arrow's `strftime` takes a microsecond a row. The rows of a batch come from a short time, so their texts
hardly differ. For example, a format without seconds gives all times of a minute one text. Of each distinct
minute (or day) one row is formatted, by the same expression. Its text is then taken for the other rows.

Arrow writes fractions of a second with `%S` and `%T`. Formats with these, or with any directive that is not
listed here, are computed row by row. So are columns with nulls. A time zone may change its offset within a
minute, so times with a zone are compared by their seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from penstock.runtime.operators.expression_tree import Call, Field, tree_of
from penstock.runtime.operators.expressions import compute

_DIRECTIVE: Final = re.compile("%(.)", re.DOTALL)
_OF_DAY: Final = frozenset("YyCmdejaAbBhuwUWVGgDFnt%")
_OF_MINUTE: Final = _OF_DAY | frozenset("HIMpR")

_DAY: Final = 86_400
_MINUTE: Final = 60

#: Ticks of a second.
_TICKS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

#: Minimum rows of a batch for which looking for repeated times is worthwhile.
_FEWEST: Final = 256


class _TimeText(NamedTuple):
    """A `strftime` of a plain column; times of the same period have the same text."""

    column: str
    seconds: int


class ColumnExpressions:
    """Expressions by name.

    Example:
        >>> days = ColumnExpressions({"day": pc.strftime(pc.field("at"), "%d")})
        >>> days.compute(pa.record_batch({"at": pa.array([0, 90_000], pa.timestamp("s"))}))[0].to_pylist()
        ['01', '02']
    """

    def __init__(self, expressions: Mapping[str, pc.Expression]) -> None:
        self._expressions = dict(expressions)
        found = {name: _time_text(expression) for name, expression in expressions.items()}
        self._texts = {name: text for name, text in found.items() if text is not None}

    def compute(self, columns: pa.RecordBatch) -> list[pa.Array]:
        """Return the value of each expression for every row, in the order of the mapping."""
        if not self._expressions:
            return []
        found = {name: self._text(name, text, columns) for name, text in self._texts.items()}
        others = {name: each for name, each in self._expressions.items() if found.get(name) is None}
        computed = dict(zip(others, compute(others, columns), strict=True)) if others else {}
        return [computed[name] if name in computed else found[name] for name in self._expressions]

    def _text(self, name: str, text: _TimeText, columns: pa.RecordBatch) -> pa.Array | None:
        """The formatted column; `None` if it must be computed row by row."""
        places = columns.schema.get_all_field_indices(text.column)
        if len(places) != 1 or columns.num_rows < _FEWEST:
            return None
        column = columns.column(places[0])
        if not kinds.is_timestamp(column.type) or column.null_count:
            return None
        seconds = text.seconds if column.type.tz is None else 1
        periods = column.view(pa.int64()).to_numpy() // (seconds * _TICKS[column.type.unit])
        encoded = pa.array(periods).dictionary_encode()
        count, codes = len(encoded.dictionary), encoded.indices.to_numpy()
        if 2 * count > len(codes):
            return None
        rows = np.empty(count, np.int64)
        rows[codes] = np.arange(len(codes))
        some = pa.record_batch({text.column: column.take(pa.array(rows))})
        (texts,) = compute({name: self._expressions[name]}, some)
        return texts.take(encoded.indices)


def _time_text(expression: pc.Expression) -> _TimeText | None:
    match tree_of(expression):
        case Call("strftime", (Field((column,)),), options) if "format" in options:
            directives = _DIRECTIVE.findall(options["format"].as_py())
            if _OF_DAY.issuperset(directives):
                return _TimeText(column, _DAY)
            if _OF_MINUTE.issuperset(directives):
                return _TimeText(column, _MINUTE)
    return None
