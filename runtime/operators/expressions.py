"""`pyarrow.compute` expressions over Arrow batches.

Arrow's own engine (Acero) computes them, with an overhead of tens of microseconds per batch.
`row_expressions` computes them over rows.

`fields_of` reads the fields of an expression from its serialized form, since an expression has no attributes
for them and its text is ambiguous. Arrow writes an expression as a schema whose metadata lists calls,
literals and references in order. A reference by name is an entry `field_ref`. A nested reference is an entry
`nested_field_ref` with the number of names, then these names. The metadata in pyarrow is a dict, which drops
repeated entries. So the entries are read from the Flatbuffers message itself (Arrow's `Schema.fbs` and
`Message.fbs`).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.user_code.failure import short_repr
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch

#: Names from a column down to a nested field.
FieldPath: TypeAlias = tuple[str, ...]

#: Number of bytes before the first message of Arrow's file format.
_MAGIC_BYTES: Final = 8
#: Positions of fields in Flatbuffers' tables.
_HEADER_OF_MESSAGE: Final = 2

_METADATA_OF_SCHEMA: Final = 2


#: Functions of expressions that expect null, so that the field may be optional.
_HANDLE_NULL: Final = frozenset(("is_null", "is_valid", "coalesce"))


def fields_of(expression: pc.Expression) -> tuple[FieldPath, ...] | None:
    """The fields of an expression, each once; `None` if it refers to a column by its position.

    Example:
        >>> fields_of((pc.field("width") > 2) & pc.field("at", "x").is_valid())
        (('width',), ('at', 'x'))
    """
    entries = entries_of(expression)
    return None if entries is None else tuple(dict.fromkeys(_fields_in(entries)))


def required_fields_of(expression: pc.Expression) -> tuple[FieldPath, ...]:
    """The fields that records should have: none if the expression handles null, or refers to positions.

    Example:
        >>> required_fields_of(pc.field("v") > 2), required_fields_of(pc.field("v").is_null())
        ((('v',),), ())
    """
    entries = entries_of(expression)
    if entries is None or any(key == "call" and value in _HANDLE_NULL for key, value in entries):
        return ()
    return tuple(dict.fromkeys(_fields_in(entries)))


def as_plain_field(expression: pc.Expression) -> FieldPath | None:
    """The field, if an expression is a plain reference to it; `None` for other expressions.

    Example:
        >>> as_plain_field(pc.field("v")), as_plain_field(pc.field("v") + 1)
        (('v',), None)
    """
    entries = entries_of(expression)
    if entries is None or any(key not in ("field_ref", "nested_field_ref") for key, _ in entries):
        return None
    (field,) = _fields_in(entries)
    return field


def _fields_in(entries: list[tuple[str, str]]) -> Iterator[FieldPath]:
    left = iter(entries)
    for key, value in left:
        if key == "field_ref":
            yield (value,)
        elif key == "nested_field_ref":
            yield tuple(next(left)[1] for _ in range(int(value)))


def serialized(expression: pc.Expression) -> pa.Buffer:
    """Arrow's serialized form; raises `pa.ArrowNotImplementedError` for a column by its position."""
    _, (data, *_) = expression.__reduce__()
    return data


def entries_of(expression: pc.Expression) -> list[tuple[str, str]] | None:
    """The entries of the serialized form; `None` if the expression refers to a column by its position."""
    try:
        data = serialized(expression)
    except pa.ArrowNotImplementedError:
        return None
    message = pa.ipc.read_message(pa.py_buffer(memoryview(data)[_MAGIC_BYTES:]))
    return list(_Flatbuffer(bytes(message.metadata)).metadata_of_schema())


class _Flatbuffer:
    """Reads the custom metadata of a message that holds a schema."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def metadata_of_schema(self) -> Iterator[tuple[str, str]]:
        schema = self._target(self._field(self._target(0), _HEADER_OF_MESSAGE))
        place = self._field(schema, _METADATA_OF_SCHEMA)
        if not place:
            return
        vector = self._target(place)
        for index in range(self._read("<I", vector)):
            pair = self._target(vector + 4 + 4 * index)
            yield self._text(self._field(pair, 0)), self._text(self._field(pair, 1))

    def _field(self, table: int, index: int) -> int:
        sizes = table - self._read("<i", table)
        slot = 4 + 2 * index
        offset = self._read("<H", sizes + slot) if slot < self._read("<H", sizes) else 0
        return table + offset if offset else 0

    def _text(self, place: int) -> str:
        if not place:
            return ""
        start = self._target(place)
        # Literals may hold any bytes; only names are read, and these are UTF-8.
        return self._data[start + 4 : start + 4 + self._read("<I", start)].decode(errors="replace")

    def _target(self, place: int) -> int:
        return place + self._read("<I", place)

    def _read(self, form: str, place: int) -> int:
        (number,) = struct.unpack_from(form, self._data, place)
        return int(number)


_MISSING: Final = re.compile(r"No match for FieldRef\.(?:Name|Nested|FieldPath)?\(?(.*?)\)? in ", re.DOTALL)

_NO_NAME: Final = "\0"


class ExpressionError(PenstockError):
    """An expression can't be computed on the given records, or its result is not a Boolean as required."""


def compute(expressions: Mapping[str, pc.Expression], columns: pa.RecordBatch) -> list[pa.Array]:
    """Return the value of each expression for every row, in the order of the mapping.

    Example:
        >>> compute({"double": pc.field("v") * 2}, pa.record_batch({"v": [1, 2]}))[0].to_pylist()
        [2, 4]
    """
    # This import loads `pyarrow.dataset`, and that loads pandas if installed: half a second in every process.
    from pyarrow import acero

    # A table without columns would lose its number of rows.
    rows = columns if columns.num_columns else pa.record_batch([pa.nulls(columns.num_rows)], names=[_NO_NAME])
    plan = acero.Declaration.from_sequence(
        [
            acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([rows]))),
            acero.Declaration("project", acero.ProjectNodeOptions(list(expressions.values()))),
        ]
    )
    try:
        table = plan.to_table(use_threads=False)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise ExpressionError(_explained(expressions, columns.schema, error)) from error
    return [c.chunk(0) if c.num_chunks == 1 else c.combine_chunks() for c in table.columns]


def columns_of_expression(expression: pc.Expression, schema: pa.Schema) -> tuple[str, ...] | None:
    """The columns that an expression reads.

    `None` if it can't be computed with this schema, or refers to a column by its position.

    Example:
        >>> schema = pa.schema({"a": pa.int64(), "b": pa.int64(), "c": pa.int64()})
        >>> columns_of_expression(pc.field("c") > pc.field("a"), schema)
        ('a', 'c')
    """
    fields = fields_of(expression)
    if fields is None:
        return None
    try:
        compute({"": expression}, pa.RecordBatch.from_pylist([], schema))
    except ExpressionError:
        return None
    used = {path[0] for path in fields}
    return tuple(name for name in dict.fromkeys(schema.names) if name in used)


def shown(expressions: Mapping[str, pc.Expression]) -> str:
    """Text of expressions for names of operators and messages.

    Example:
        >>> shown({"double": pc.field("v") * 2})
        'multiply_checked(v, 2)'
    """
    return ", ".join(short_repr(str(expression))[1:-1] for expression in expressions.values())


def _explained(expressions: Mapping[str, pc.Expression], schema: pa.Schema, error: BaseException) -> str:
    missing = _MISSING.search(str(error))
    if missing is not None:
        return (
            f"the expression {shown(expressions)} names the column {missing[1]!r}, which a batch does not "
            f"have: it has {', '.join(map(repr, schema.names))}"
        )
    types = ", ".join(f"{field.name}: {field.type}" for field in schema)
    return f"the expression {shown(expressions)} can't be computed: {error}; the columns are {types}"


def batch_of(columns: Mapping[str, pa.Array], rows: int, schema: pa.Schema | None = None) -> pa.RecordBatch:
    """A batch of columns; `rows` is its length if there are no columns."""
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    names = list(columns) if schema is None else None
    return pa.RecordBatch.from_arrays(list(columns.values()), names=names, schema=schema)


def as_mask(result: pa.Array, kind: str) -> pa.BooleanArray:
    """The result of a Boolean expression as one Boolean per row; null counts as false.

    Example:
        >>> as_mask(pa.array([True, None]), "filter").to_pylist()
        [True, False]
    """
    if kinds.is_null(result.type):
        result = result.cast(pa.bool_())
    if not kinds.is_boolean(result.type):
        msg = f"the expression is of type {result.type}; {kind} needs a Boolean"
        raise ExpressionError(msg)
    return result.fill_null(False) if result.null_count else result


def rows_where(batch: Batch, mask: pa.BooleanArray) -> Batch:
    """The rows of a batch for which a mask is true, with their timestamps.

    Example:
        >>> rows_where(RowBatch(["a", "b"], [1, 2]), pa.array([False, True]))
        RowBatch(rows=['b'], timestamps=[2])
    """
    if isinstance(batch, ArrowBatch):
        return batch.filter(mask)
    places = pc.indices_nonzero(mask).to_pylist()
    rows, stamps = batch.rows, batch.timestamps
    kept = [rows[place] for place in places]
    return RowBatch(kept, None if stamps is None else [stamps[place] for place in places])
