"""`pyarrow.compute` expressions over rows that are dicts.

The result of an expression for a row depends on this row alone. So rows are grouped by the types of their
values (`record/row_columns.py`), and Acero computes each group. A null has no type. If an expression needs a
type, the null gets the first type with which the expression can be computed.

Only fields of the expression are read. A name that a dict lacks is null, even in a nested dict. An expression
that is a plain field returns the row's value unchanged, whatever its type. A field given by position refers
to the row's own order of names.

If a row fails, the first failing row determines the error, with its own types and values. So the error does
not depend on the batch either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import product
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from penstock.runtime.operators.expressions import (
    ExpressionError,
    FieldPath,
    as_mask,
    as_plain_field,
    batch_of,
    compute,
    fields_of,
    shown,
)
from penstock.runtime.operators.user_code.failure import no_dict, short_repr
from penstock.runtime.record.arrow_types import NoColumnTypeError
from penstock.runtime.record.arrow_values import from_arrow
from penstock.runtime.record.row_columns import Places, RowColumn, uniform_rows, values_of_column

#: Types tried, in this order, for nulls of an expression that rejects untyped nulls.
_TYPES_OF_NULLS: Final = (
    pa.null(),
    pa.string(),
    pa.int64(),
    pa.float64(),
    pa.bool_(),
    pa.timestamp("us", "UTC"),
    pa.timestamp("us"),
    pa.date32(),
    pa.binary(),
    pa.duration("us"),
    pa.time64("us"),
    pa.decimal128(38, 9),
    pa.list_(pa.null()),
)
#: Maximum number of null columns whose types are tried independently of each other.
_MOST_NULLS: Final = 2
#: Maximum number of schemas for which the types of nulls are remembered.
_MOST_KNOWN: Final = 1_000

_T = TypeVar("_T")

#: Needed parts of a value by name; `None` for a part that is needed as a whole.
_Parts: TypeAlias = "dict[str, _Parts | None]"


class _Answer(NamedTuple):
    places: Places | None
    values: pa.Array


class RowExpressions:
    """Expressions that are computed over rows.

    Example:
        >>> expressions = RowExpressions({"half": pc.field("v") / 2, "v": pc.field("v")})
        >>> expressions.values([{"v": 3.0}, {"v": 3}, {}], "select")
        {'half': [1.5, 1, None], 'v': [3.0, 3, None]}
    """

    def __init__(self, expressions: Mapping[str, pc.Expression]) -> None:
        self._expressions = dict(expressions)
        self._plain = {name: as_plain_field(expression) for name, expression in expressions.items()}
        self._fields = {name: fields_of(expression) for name, expression in expressions.items()}
        #: Types that suit nulls, by expression and columns.
        self._types_of_nulls: dict[tuple[str, tuple[str, ...]], list[pa.DataType]] = {}

    def values(self, rows: Sequence[Any], kind: str) -> dict[str, list[Any]]:
        _refuse_others(rows, kind)
        return self._explained(rows, self._values)

    def masks(self, rows: Sequence[Any], kind: str) -> dict[str, pa.BooleanArray]:
        _refuse_others(rows, kind)
        return self._explained(rows, lambda some: self._masks(some, kind))

    def _values(self, rows: Sequence[Any]) -> dict[str, list[Any]]:
        computed = self._computed(rows, [name for name, path in self._plain.items() if path is None])
        found: dict[str, list[Any]] = {}
        for name, path in self._plain.items():
            if path is None:
                found[name] = _as_list(name, computed[name], len(rows))
            else:
                found[name] = [_at(row, path) for row in rows]
        return found

    def _masks(self, rows: Sequence[Any], kind: str) -> dict[str, pa.BooleanArray]:
        masks = {}
        for name, answers in self._computed(rows, list(self._expressions)).items():
            parts = [as_mask(values, kind) for _, values in answers]
            places = [places for places, _ in answers if places is not None]
            if places:
                order = np.argsort(np.concatenate(places))
                masks[name] = pa.concat_arrays(parts).take(pa.array(order))
            else:
                (masks[name],) = parts
        return masks

    def _computed(self, rows: Sequence[Any], names: Sequence[str]) -> dict[str, list[_Answer]]:
        if not names:
            return {}
        paths = {name: self._fields[name] for name in names}
        known = [path for some in paths.values() for path in some or ()]
        columns = _columns_of(rows, list(dict.fromkeys(known)))
        if None not in paths.values() and all(column.codes is None for column in columns.values()):
            batch = batch_of({name: column.array_of(None) for name, column in columns.items()}, len(rows))
            if not any(map(_has_null_type, batch.schema.types)):
                wanted = {name: self._expressions[name] for name in names}
                arrays = compute(wanted, batch)
                return {name: [_Answer(None, array)] for name, array in zip(names, arrays, strict=True)}
        return {
            name: self._by_place(name, rows)
            if own is None
            else self._by_type(name, {path[0]: columns[path[0]] for path in own}, len(rows))
            for name, own in paths.items()
        }

    def _by_type(self, name: str, columns: Mapping[str, RowColumn], rows: int) -> list[_Answer]:
        return [
            _Answer(places, self._on(name, batch_of(arrays, rows if places is None else len(places))))
            for places, arrays in uniform_rows(columns, rows)
        ]

    def _by_place(self, name: str, rows: Sequence[Any]) -> list[_Answer]:
        """Compute an expression that refers to fields by position, once for all rows with the same names."""
        alike: dict[tuple[Any, ...], list[int]] = {}
        for place, row in enumerate(rows):
            alike.setdefault(tuple(row), []).append(place)
        answers = []
        for names, some in alike.items():
            columns = _columns_of([rows[place] for place in some], [(field,) for field in names])
            own = np.array(some)
            answers += [
                _Answer(own if places is None else own[places], array)
                for places, array in self._by_type(name, columns, len(some))
            ]
        return answers

    def _on(self, name: str, columns: pa.RecordBatch) -> pa.Array:
        wanted = {name: self._expressions[name]}
        nulls = [place for place, kind in enumerate(columns.schema.types) if _has_null_type(kind)]
        if not nulls:
            return compute(wanted, columns)[0]
        schema = (name, tuple(str(field) for field in columns.schema))
        known = self._types_of_nulls.get(schema)
        first: ExpressionError | None = None
        for types in [known] if known is not None else _types_to_try(len(nulls)):
            try:
                (array,) = compute(wanted, _with_types(columns, dict(zip(nulls, types, strict=True))))
            except ExpressionError as error:
                first = first or error
                continue
            if len(self._types_of_nulls) < _MOST_KNOWN:
                self._types_of_nulls[schema] = types
            return array
        assert first is not None, "at least one type was tried"
        raise first

    def _explained(self, rows: Sequence[Any], attempt: Callable[[Sequence[Any]], _T]) -> _T:
        """Return the result of `attempt` for all rows; raise the error of the first row that fails."""
        try:
            return attempt(rows)
        except (ExpressionError, NoColumnTypeError) as error:
            row = rows[_first_failing(rows, attempt)]
            found = _failure([row], attempt) or error
            where = f", in {shown(self._expressions)}" if isinstance(found, NoColumnTypeError) else ""
            msg = f"{found}{where}; the record is {short_repr(row)}"
            raise ExpressionError(msg) from error


def _first_failing(rows: Sequence[Any], attempt: Callable[[Sequence[Any]], Any]) -> int:
    passing, failing = 0, len(rows)
    while failing - passing > 1:
        middle = (passing + failing) // 2
        if _failure(rows[passing:middle], attempt) is None:
            passing = middle
        else:
            failing = middle
    return passing


def _failure(rows: Sequence[Any], attempt: Callable[[Sequence[Any]], Any]) -> Exception | None:
    try:
        attempt(rows)
    except (ExpressionError, NoColumnTypeError) as error:
        return error
    return None


def _columns_of(rows: Sequence[Any], paths: Sequence[FieldPath]) -> dict[str, RowColumn]:
    columns = {}
    for name, parts in _tree_of(paths).items():
        values = [row.get(name) for row in rows]
        if parts is not None:
            values = [_only(value, parts) for value in values]
        try:
            columns[name] = RowColumn.of(values, convert=_as_struct, nulls_apart=True)
        except NoColumnTypeError as error:
            msg = f"the field {name!r}: {error}"
            raise NoColumnTypeError(msg) from error
    return columns


def _tree_of(paths: Sequence[FieldPath]) -> dict[str, _Parts | None]:
    """The needed parts by name; `None` where the whole value is needed.

    Example:
        >>> _tree_of([("a", "x"), ("a", "y"), ("b",), ("b", "z")])
        {'a': {'x': None, 'y': None}, 'b': None}
    """
    tree: dict[str, _Parts | None] = {}
    for path in paths:
        level: dict[str, _Parts | None] | None = tree
        for name in path[:-1]:
            assert level is not None, "the loop has ended at a level that is needed as a whole"
            level = level.setdefault(name, {})
            if level is None:
                break
        else:
            assert level is not None, "the loop has ended at a level that is needed as a whole"
            level[path[-1]] = None
    return tree


def _only(value: Any, parts: _Parts) -> Any:
    if value is None:
        return {name: None if some is None else _only(None, some) for name, some in parts.items()}
    value = _as_struct(value)
    if not isinstance(value, dict):
        msg = f"{short_repr(value)} does not contain {', '.join(map(repr, parts))}"
        raise NoColumnTypeError(msg)
    return {
        name: value.get(name) if some is None else _only(value.get(name), some)
        for name, some in parts.items()
    }


def _as_struct(value: Any) -> Any:
    """Convert tuples and dataclasses in a value to dicts; a tuple has fields `_1`, `_2`."""
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None) or [f"_{i}" for i in range(1, len(value) + 1)]
        return {name: _as_struct(item) for name, item in zip(names, value, strict=True)}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _as_struct(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, list):
        return list(map(_as_struct, value))
    return value


def _at(row: Any, path: FieldPath) -> Any:
    value = row.get(path[0])
    for name in path[1:]:
        value = _only(value, {name: None})[name]
    return value


def _has_null_type(kind: pa.DataType) -> bool:
    if kinds.is_struct(kind):
        return any(_has_null_type(field.type) for field in kind)
    return bool(kinds.is_null(kind))


def _types_to_try(count: int) -> Iterator[list[pa.DataType]]:
    if count <= _MOST_NULLS:
        yield from map(list, product(_TYPES_OF_NULLS, repeat=count))
    else:
        yield from ([kind] * count for kind in _TYPES_OF_NULLS)


def _with_types(columns: pa.RecordBatch, types: Mapping[int, pa.DataType]) -> pa.RecordBatch:
    arrays = list(columns.columns)
    for place, kind in types.items():
        arrays[place] = arrays[place].cast(_retyped(arrays[place].type, kind))
    return pa.RecordBatch.from_arrays(arrays, names=columns.schema.names)


def _retyped(kind: pa.DataType, nulls: pa.DataType) -> pa.DataType:
    if kinds.is_struct(kind):
        return pa.struct([field.with_type(_retyped(field.type, nulls)) for field in kind])
    return nulls if kinds.is_null(kind) else kind


def _as_list(name: str, answers: Sequence[_Answer], rows: int) -> list[Any]:
    values: list[Any] = [None] * rows
    for places, array in answers:
        nested = kinds.is_nested(array.type)
        part = from_arrow(array) if nested else values_of_column(name, array)
        if places is None:
            return part
        for place, value in zip(places.tolist(), part, strict=True):
            values[place] = value
    return values


def _refuse_others(rows: Sequence[Any], kind: str) -> None:
    for row in rows:
        if not isinstance(row, dict):
            raise ExpressionError(no_dict(kind, row, "use a function, or convert it with a map first"))
