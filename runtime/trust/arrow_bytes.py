"""Arrow bytes that a stranger may have written: read without running code, and checked in full.

A column may be of an extension type. Its class is called when a schema is read, and when values are taken
out. Ray has one whose values are pickles. So where pickle is refused, such types are refused before Arrow
sees them: the bytes of the schema are searched for their mark. A few types of Arrow itself run no code. To
learn the names, the schema is read with another mark, which makes every column a plain one.

Arrow reads the bounds of a column from the data. `validate` of a batch looks at the lengths of its buffers,
and in full also at every offset, index and text. Only the latter keeps a reader inside of the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.error_text import error_text
from penstock.runtime.errors import CodecError

#: Extension types of Arrow whose values are plain Python values.
_HARMLESS: Final = frozenset(
    {"arrow.bool8", "arrow.fixed_shape_tensor", "arrow.json", "arrow.opaque", "arrow.uuid"}
)

_MARK: Final = b"ARROW:extension:name"

_OTHER_MARK: Final = b"Arrow-extension-name"

_CONTINUED: Final = b"\xff\xff\xff\xff"

_HEAD: Final = len(_CONTINUED) + 4
#: Maximum number of rows that take no bytes, as nulls without a type do.
_MOST_EMPTY_ROWS: Final = 1 << 20


def read_batch(
    data: bytes, start: int = 0, *, any_type: bool = False, thorough: bool = True
) -> pa.RecordBatch:
    """The first batch of an Arrow IPC stream, as views into the data; damage raises any exception."""
    if not any_type:
        check_types(data, start)
    with pa.ipc.open_stream(pa.py_buffer(data).slice(start)) as reader:
        batch = reader.read_next_batch()
    batch.validate(full=thorough)
    if thorough:
        _check_rows(batch, len(data))
    return batch


def read_schema(data: bytes) -> pa.Schema:
    """A schema that was serialized alone; none with an extension type that may run code."""
    try:
        check_types(data)
        return pa.ipc.read_schema(pa.py_buffer(data))
    except CodecError:
        raise
    except Exception as error:  # anything: the bytes decide what goes wrong
        msg = f"a schema of {len(data)} bytes is damaged: {error_text(error)}"
        raise CodecError(msg) from error


def check_types(data: bytes, start: int = 0) -> None:
    first = start + _HEAD
    end = first + int.from_bytes(data[start + len(_CONTINUED) : first], "little")
    if data[start : start + len(_CONTINUED)] != _CONTINUED or end > len(data):
        msg = f"{len(data) - start} bytes don't begin with the schema of an Arrow stream: they are damaged"
        raise CodecError(msg)
    if data.find(_MARK, first, end) < 0:
        return
    if data.find(_OTHER_MARK, first, end) >= 0:
        msg = f"a schema has the metadata {_OTHER_MARK!r}, which no writer gives it: it is damaged"
        raise CodecError(msg)
    plain = pa.py_buffer(data[start:first] + data[first:end].replace(_MARK, _OTHER_MARK))
    _check_names(pa.ipc.read_schema(plain))
    _check_names(pa.ipc.read_schema(pa.py_buffer(data[start:end])))


def _check_names(schema: pa.Schema) -> None:
    for column in schema:
        for name in _names_in(column):
            if name not in _HARMLESS:
                msg = (
                    f"column {column.name!r} has the Arrow extension type {name!r}, which may run code where "
                    "it is read, and pickle is not allowed here (allow_pickle=False). Take its storage "
                    "(`column.storage`) before, or allow it"
                )
                raise CodecError(msg)


def _names_in(field: pa.Field) -> Iterator[str]:
    kind, metadata = field.type, field.metadata or {}
    for mark in (_MARK, _OTHER_MARK):
        if mark in metadata:
            yield metadata[mark].decode(errors="replace")
    if isinstance(kind, pa.BaseExtensionType):
        yield kind.extension_name
        if isinstance(kind, pa.FixedShapeTensorType) and kind.storage_type.list_size != math.prod(kind.shape):
            yield f"{kind.extension_name} of another size"
        kind = kind.storage_type
    if kinds.is_dictionary(kind):
        yield from _names_in(pa.field("", kind.value_type))
        return
    for number in range(kind.num_fields):
        yield from _names_in(kind.field(number))


def _check_rows(batch: pa.RecordBatch, size: int) -> None:
    """Check that no column, nor a part of one, is longer than the data could make it."""
    most = max(_MOST_EMPTY_ROWS, 8 * size)
    arrays: list[pa.Array] = list(batch.columns)
    rows = batch.num_rows
    while rows <= most and arrays:
        array = arrays.pop()
        arrays += _inside(array)
        rows = len(array)
    if rows > most:
        msg = f"{size} bytes hold {rows} values, more than one for each bit: they are damaged"
        raise CodecError(msg)


def _inside(array: pa.Array) -> list[pa.Array]:
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return [array.storage]
    if kinds.is_dictionary(kind):
        return [array.dictionary]
    if kinds.is_struct(kind) or kinds.is_union(kind):
        return [array.field(number) for number in range(kind.num_fields)]
    return [array.values] if kinds.is_nested(kind) or kinds.is_run_end_encoded(kind) else []
