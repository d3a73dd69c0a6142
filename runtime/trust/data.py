"""Data that may run code when it is read, or make a reader read out of bounds.

Reading a pickle can run any code, so a codec with `allow_pickle=False` neither writes nor reads one. Such a
codec also refuses four other kinds of data that could run any code:

- The data names a class in a module that is not loaded. The module is not imported.
- The data has a record whose class has a `__del__`.
- A record has an attribute that hides a method. Python, pickle and copy call some methods by themselves.
- A schema has an Arrow extension type. Arrow calls the type's class when it reads the schema, and when values
  are taken out. Ray has an extension type whose values are pickles. So the bytes of a schema are searched for
  the mark of such types before Arrow sees them. A few of Arrow's own types run no code. To learn the types'
  names, the schema is first read with the mark replaced, so that every column has a plain type.

Arrow reads the bounds of a column from the data. `validate` of a batch checks the lengths of its buffers.
With `full=True` it also checks every offset, index and text. Only the full check keeps a reader inside the
buffers.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partialmethod, singledispatchmethod
from io import BytesIO
from typing import Final

import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.error_text import error_text
from penstock.runtime.errors import CodecError

#: Descriptors of methods. Access through an instance or a class makes a callable of them.
_METHODS: Final = (classmethod, staticmethod, partialmethod, singledispatchmethod)


class PicklePolicy:
    """The setting `allow_pickle` of a codec, with the checks that depend on it."""

    __slots__ = ("allowed",)

    def __init__(self, allowed: bool) -> None:
        self.allowed = allowed

    def may_import(self, module: str) -> bool:
        return self.allowed and all(map(str.isidentifier, module.split(".")))

    def check_writing(self, type_name: str) -> None:
        if not self.allowed:
            msg = (
                f"a value of type {type_name} can only be pickled, but pickle is not allowed here "
                "(allow_pickle=False). Turn it into a dataclass, a named tuple or plain values, or allow it"
            )
            raise CodecError(msg)

    def check_reading(self) -> None:
        if not self.allowed:
            msg = (
                "the data holds a pickled value, and pickle is not allowed here (allow_pickle=False). "
                "If you trust its author, read it with pickle allowed"
            )
            raise CodecError(msg)

    def check_class(self, cls: type, type_name: str) -> None:
        if hasattr(cls, "__del__") and not self.allowed:
            msg = (
                f"the data holds a record of {type_name}, whose `__del__` would run, and pickle "
                "is not allowed here (allow_pickle=False). Allow it, or remove the method"
            )
            raise CodecError(msg)

    def check_hidden(self, method: str | None, type_name: str) -> None:
        """Refuse an attribute of a record that hides a method, as `hidden_method` found it."""
        if method is not None and not self.allowed:
            msg = (
                f"the data gives a {type_name} the attribute {method!r:.80}, which hides a "
                "method, and pickle is not allowed here (allow_pickle=False)"
            )
            raise CodecError(msg)


def hidden_method(cls: type, fields: Collection[str], attributes: Iterable[str]) -> str | None:
    """The first of an instance's attributes, fields aside, that would hide a method."""
    for name in attributes:
        reserved = name.startswith("__") and name.endswith("__")
        if name not in fields and (reserved or _is_called(cls, name)):
            return name
    return None


def _is_called(cls: type, name: str) -> bool:
    """Whether a class has an attribute of this name that is called, perhaps by mere access.

    Plain values of the class are not called, nor are properties that are computed once.
    """
    found = inspect.getattr_static(cls, name, None)
    return callable(found) or isinstance(found, _METHODS) or hasattr(type(found), "__set__")


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


def write_batch(batch: pa.RecordBatch, *, any_type: bool = True) -> bytes:
    """Encode a batch as an Arrow IPC stream; without `any_type` refuse types that may run code."""
    return BatchStream(batch, any_type=any_type).to_bytes()


class BatchStream:
    """A batch that becomes an Arrow IPC stream when it is written; its length is known before.

    Args:
        before: Bytes before the stream.
        any_type: Whether types that may run code are allowed.
    """

    def __init__(self, batch: pa.RecordBatch, *before: bytes | pa.Buffer, any_type: bool = True) -> None:
        if not any_type:
            check_types(batch.schema.serialize().to_pybytes())
        self._batch = batch
        self._before = before
        counted = pa.MockOutputStream()
        _write_stream(counted, batch, before)
        self._size: int = counted.size()

    def __len__(self) -> int:
        return self._size

    def write_to(self, memory: memoryview) -> None:
        """Write the stream into memory of its length."""
        with pa.FixedSizeBufferWriter(pa.py_buffer(memory)) as sink:
            _write_stream(sink, self._batch, self._before)

    def to_bytes(self) -> bytes:
        return filled(self._size, self.write_to)


def filled(size: int, fill: Callable[[memoryview], None]) -> bytes:
    """Make bytes that a function fills; they are never copied."""
    content = BytesIO(bytes(size))  # takes over these bytes, and `getvalue` returns them
    with content.getbuffer() as memory:
        fill(memory)
    return content.getvalue()


def _write_stream(sink: pa.NativeFile, batch: pa.RecordBatch, before: Iterable[bytes | pa.Buffer]) -> None:
    for piece in before:
        sink.write(piece)
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)


def read_batch(
    data: bytes, start: int = 0, *, any_type: bool = False, thorough: bool = True
) -> pa.RecordBatch:
    """Read the first batch of an Arrow IPC stream, as views into the data; raises only `CodecError`."""
    try:
        if not any_type:
            check_types(data, start)
        with pa.ipc.open_stream(pa.py_buffer(data).slice(start)) as reader:
            batch = reader.read_next_batch()
        batch.validate(full=thorough)
        if thorough:
            _check_rows(batch, len(data))
    except Exception as error:  # any error: the bytes are not trusted
        why = str(error) if isinstance(error, CodecError) else error_text(error)
        msg = f"an Arrow batch of length {len(data)} can't be decoded: {why}"
        raise CodecError(msg) from error
    return batch


def read_schema(data: bytes) -> pa.Schema:
    """Read a schema that was serialized on its own; refuse extension types that may run code."""
    try:
        check_types(data)
        return pa.ipc.read_schema(pa.py_buffer(data))
    except CodecError:
        raise
    except Exception as error:  # any error: the bytes are not trusted
        msg = f"a schema of length {len(data)} is damaged: {error_text(error)}"
        raise CodecError(msg) from error


def check_types(data: bytes, start: int = 0) -> None:
    first = start + _HEAD
    end = first + int.from_bytes(data[start + len(_CONTINUED) : first], "little")
    if data[start : start + len(_CONTINUED)] != _CONTINUED or end > len(data):
        msg = f"data of length {len(data) - start} has no Arrow schema at its beginning: it is damaged"
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
                    f"column {column.name!r} has the Arrow extension type {name!r}, which may run code when "
                    "it is read, and pickle is not allowed here (allow_pickle=False). Take its storage "
                    "(`column.storage`) first, or allow pickle"
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
    """Check that no column, and no part of a column, is longer than the data allows."""
    most = max(_MOST_EMPTY_ROWS, 8 * size)
    arrays: list[pa.Array] = list(batch.columns)
    rows = batch.num_rows
    while rows <= most and arrays:
        array = arrays.pop()
        arrays += _inside(array)
        rows = len(array)
    if rows > most:
        msg = f"data of {size} B holds {rows} values, more than one for each bit: it is damaged"
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
