"""The schema of JSON objects, learned from a sample of them.

A source learns it once, when the job starts without a snapshot. Each split contains the schema, so all
subtasks and every restored job have the same columns. Integers and floats together become floats. A field
that is null in all objects becomes a string, and strings that look like times stay strings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pyarrow as pa

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.formats.format import Decoded, Decoder
from penstock.runtime.io.formats.json_columns import parse_objects
from penstock.runtime.record.own_types import common_fields
from penstock.runtime.trust.data import read_schema


def learned_schema(objects: Sequence[bytes], *, skips_bad: bool) -> pa.Schema:
    """The columns of some objects; the reader reports those that don't fit as bad records.

    Args:
        skips_bad: Whether an object that can't be read with the others is left out.

    Raises:
        pa.ArrowException: The objects can't be read as columns, or not with the same columns.
    """
    schema = _schema_of(objects, skips_bad=skips_bad)
    return pa.schema([(field.name, _as_read(field.type)) for field in schema])


def _schema_of(objects: Sequence[bytes], *, skips_bad: bool) -> pa.Schema:
    try:
        return parse_objects(b"\n".join(objects), None).schema
    except pa.ArrowException:
        good = list(filter(_is_readable, objects))
        try:
            if len(good) in (0, len(objects)):
                raise
            return parse_objects(b"\n".join(good), None).schema
        except pa.ArrowException:
            if not skips_bad:
                raise
    fields: list[pa.Field] = []
    for one in good:
        common = common_fields(fields, list(parse_objects(one, None).schema), numbers=True)
        fields = fields if common is None else common
    return pa.schema(fields)


def schema_of_values(values: Sequence[bytes | None]) -> bytes:
    """The columns of a sample of values, serialized; values that are not objects are left out.

    Raises:
        ConnectorError: No value is an object.
    """
    objects = [value for value in values if value is not None and _is_object(value)]
    if not objects:
        msg = (
            f"the schema of JSON can't be learned: none of the first {len(values)} values is an object. Give "
            "Json a schema="
        )
        raise ConnectorError(msg)
    return bytes(learned_schema(objects, skips_bad=True).serialize().to_pybytes())


def _is_object(value: bytes) -> bool:
    try:
        return isinstance(json.loads(value), dict)
    except (ValueError, RecursionError):
        return False  # the reader reports this value


def _is_readable(one: bytes) -> bool:
    try:
        parse_objects(one, None)
    except pa.ArrowException:
        return False
    return True


def _as_read(kind: pa.DataType) -> pa.DataType:
    """Return a column's type as in rows: strings that look like times, and columns of nulls, are strings."""
    if pa.types.is_timestamp(kind) or pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_as_read(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _as_read(field.type)) for field in kind])
    return kind


class LearnedDecoder:
    """Decodes values with a schema that the splits of its reader contain.

    Args:
        of_schema: Creates the decoder.
    """

    def __init__(self, of_schema: Callable[[pa.Schema], Decoder]) -> None:
        self._of_schema = of_schema
        self._decoder: Decoder | None = None

    def use(self, schema: bytes) -> None:
        """Take the schema of a split; all splits of a job have the same one.

        Raises:
            ConnectorError: The split has no schema.
        """
        if not schema:
            msg = (
                "the snapshot has no learned schema, because the job read another format then. Give Json "
                "a schema=, or start without the snapshot"
            )
            raise ConnectorError(msg)
        if self._decoder is None:
            self._decoder = self._of_schema(read_schema(schema))

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        if self._decoder is None:
            msg = "this source does not learn schemas: give Json a schema="
            raise ConnectorError(msg)
        return self._decoder.decode(values)

    def close(self) -> None:
        if self._decoder is not None:
            self._decoder.close()
