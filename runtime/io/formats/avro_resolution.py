"""Resolution of an Avro writer's schema against a reader's schema, in columns.

A field of the reader is found by its name, then by its aliases. A field that the writer lacks has its
default. Numbers are widened, and a type may become nullable. fastavro resolves everything else, value by
value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.runtime.io.formats.avro_schema import WIDER, columns_of

#: Makes a column of the reader's batch from a writer's batch; `None` if a value does not fit.
_Column = Callable[[pa.RecordBatch], pa.Array | None]


class Projection:
    """Turns batches of the writer's columns into batches of the reader's columns."""

    def __init__(self, columns: Sequence[_Column], schema: pa.Schema) -> None:
        self._columns = columns
        self._schema = schema

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        found = [make(batch) for make in self._columns]
        if any(column is None for column in found):
            return None
        return pa.RecordBatch.from_arrays(found, schema=self._schema)


def projection(writer: Mapping[str, Any], reader: Mapping[str, Any]) -> Projection | None:
    """The projection from a writer's to a reader's parsed schema; `None` if fastavro must resolve them."""
    names = {_unqualified(name) for name in (reader["name"], *reader.get("aliases", ()))}
    if _unqualified(writer["name"]) not in names:
        return None
    written = {field["name"]: (at, field["type"]) for at, field in enumerate(writer["fields"])}
    schema = columns_of(reader)
    columns: list[_Column] = []
    for field, kind in zip(reader["fields"], schema.types, strict=True):
        name = next((n for n in (field["name"], *field.get("aliases", ())) if n in written), None)
        column = _constant(field, kind) if name is None else _resolved(*written[name], field["type"], kind)
        if column is None:
            return None
        columns.append(column)
    return Projection(columns, schema)


def _constant(field: Mapping[str, Any], kind: pa.DataType) -> _Column | None:
    if "default" not in field or pa.types.is_nested(kind):
        return None
    value = field["default"]
    if value is not None and not (pa.types.is_primitive(kind) or pa.types.is_string(kind)):
        return None
    if pa.types.is_temporal(kind) and value is not None:
        return None
    constant = pa.scalar(value, kind)
    return lambda batch: pa.repeat(constant, batch.num_rows)


def _resolved(at: int, written: Any, wanted: Any, kind: pa.DataType) -> _Column | None:
    may_be_null, plain = _of_union(written)
    takes_null, wanted_plain = _of_union(wanted)
    if plain is None or wanted_plain is None:
        return None
    if not (_same(plain, wanted_plain) or (isinstance(plain, str) and wanted_plain in WIDER.get(plain, ()))):
        return None

    def column(batch: pa.RecordBatch) -> pa.Array | None:
        found = batch.column(at)
        if may_be_null and not takes_null and found.null_count:
            return None
        # As in Python, a wide integer is rounded to the nearest float.
        return found if found.type == kind else found.cast(kind, safe=False)

    return column


def _of_union(schema: Any) -> tuple[bool, Any]:
    """Whether a type may be null, and the type without null; `None` for a union of several types."""
    if not isinstance(schema, list):
        return False, schema
    inner = [part for part in schema if part != "null"]
    return "null" in schema, inner[0] if len(inner) == 1 else None


def _same(one: Any, other: Any) -> bool:
    return bool(_essence(one) == _essence(other))


def _essence(schema: Any) -> Any:
    """A type without `doc`, which does not change its values; a default or an alias inside counts."""
    if isinstance(schema, list):
        return [_essence(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: _essence(value) for name, value in schema.items() if name != "doc"}


def _unqualified(name: str) -> str:
    return name.rpartition(".")[2]
