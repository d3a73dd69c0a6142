"""The fields that a `pyarrow.compute` expression looks at, read from its serialized form.

An expression has no attributes for them, and its text does not tell a name from a part of another one. Arrow
writes an expression as a schema whose metadata lists calls, literals and references in order. A reference by
name is an entry `field_ref`. A nested one is `nested_field_ref` with the number of names, then these names.
The metadata in pyarrow is a dict, which drops repeated entries. So they are read from the Flatbuffers message
itself (Arrow's `Schema.fbs` and `Message.fbs`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

#: Names from a column down to a part of its values.
FieldPath: TypeAlias = tuple[str, ...]

#: In front of the first message of Arrow's file format.
_MAGIC_BYTES: Final = 8
#: Positions of fields in Flatbuffers' tables.
_HEADER_OF_MESSAGE: Final = 2
_METADATA_OF_SCHEMA: Final = 2


def fields_of(expression: pc.Expression) -> tuple[FieldPath, ...] | None:
    """The fields of an expression, each once; `None` if it refers to a column by its position.

    Example:
        >>> fields_of((pc.field("width") > 2) & pc.field("at", "x").is_valid())
        (('width',), ('at', 'x'))
    """
    entries = _entries_of(expression)
    return None if entries is None else tuple(dict.fromkeys(_fields_in(entries)))


def as_plain_field(expression: pc.Expression) -> FieldPath | None:
    """The field that an expression is, without a computation; `None` for other expressions.

    Example:
        >>> as_plain_field(pc.field("v")), as_plain_field(pc.field("v") + 1)
        (('v',), None)
    """
    entries = _entries_of(expression)
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


def _entries_of(expression: pc.Expression) -> list[tuple[str, str]] | None:
    try:
        _, (serialized, *_) = expression.__reduce__()
    except pa.ArrowNotImplementedError:
        return None
    message = pa.ipc.read_message(pa.py_buffer(memoryview(serialized)[_MAGIC_BYTES:]))
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
        """The place of a field of a table; 0 if it is not there."""
        sizes = table - self._read("<i", table)
        slot = 4 + 2 * index
        offset = self._read("<H", sizes + slot) if slot < self._read("<H", sizes) else 0
        return table + offset if offset else 0

    def _text(self, place: int) -> str:
        if not place:
            return ""
        start = self._target(place)
        # Literals may hold any bytes; only names are looked at, and these are UTF-8.
        return self._data[start + 4 : start + 4 + self._read("<I", start)].decode(errors="replace")

    def _target(self, place: int) -> int:
        return place + self._read("<I", place)

    def _read(self, form: str, place: int) -> int:
        (number,) = struct.unpack_from(form, self._data, place)
        return int(number)
