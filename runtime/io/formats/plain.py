"""Values that are kept as bytes, and values that are text."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.runtime.error_text import shown
from penstock.runtime.errors import BadRecordError, ConfigurationError
from penstock.runtime.io.formats.format import Decoded
from penstock.runtime.io.formats.parts import decoded_columns, decoded_rows
from penstock.runtime.io.formats.settings import checked_batch_format
from penstock.runtime.record.arrow_values import is_bytes, is_text
from penstock.runtime.record.elements import ArrowBatch, Batch, BatchFormat, RowBatch
from penstock.runtime.record.row_columns import values_of_column

#: The only column of an Arrow batch.
_COLUMN = "value"


@dataclass(frozen=True, slots=True)
class Raw:
    """Values as they are: a row is `bytes`, and columns are one binary column `value`.

    Example:
        >>> Raw().decoder("rows").decode([b"a", None]).batch.rows
        [b'a', None]
    """

    def decoder(self, batch_format: BatchFormat) -> RawDecoder:
        """Create a decoder whose batches are rows or Arrow columns."""
        return RawDecoder(checked_batch_format(batch_format))

    def encoder(self) -> RawEncoder:
        """Create an encoder, which takes rows and Arrow columns."""
        return RawEncoder()


class RawDecoder:
    def __init__(self, batch_format: BatchFormat) -> None:
        self._format = batch_format

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        if self._format == "rows":
            return Decoded(RowBatch(values))
        return Decoded(ArrowBatch(pa.record_batch({_COLUMN: pa.array(values, pa.binary())})))

    def close(self) -> None:
        pass


class RawEncoder:
    def encode(self, batch: Batch) -> list[bytes | None]:
        return [_as_bytes(value) for value in _values(batch, is_bytes, "Raw", "binary")]

    def close(self) -> None:
        pass


def _as_bytes(value: Any) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    msg = (
        f"the format Raw writes bytes, but a record is {shown(value)} ({type(value).__name__}). Convert the "
        "records with map, or use another format such as Text or Json"
    )
    raise BadRecordError(msg)


@dataclass(frozen=True, slots=True)
class Text:
    """Values that are text: a row is a `str`, and columns are one string column `value`.

    Args:
        encoding: An encoding of Python.

    Raises:
        ConfigurationError: Python does not know the encoding.

    Example:
        >>> Text().decoder("rows").decode([b"tea", bytes([255])]).batch.rows
        ['tea']
    """

    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        try:
            "a".encode(codecs.lookup(self.encoding).name)
        except (LookupError, UnicodeError) as error:
            msg = f"encoding={self.encoding!r} is not an encoding that Python knows, such as 'utf-8'"
            raise ConfigurationError(msg) from error

    def decoder(self, batch_format: BatchFormat) -> TextDecoder:
        """Create a decoder whose batches are rows or Arrow columns."""
        return TextDecoder(codecs.lookup(self.encoding).name, checked_batch_format(batch_format))

    def encoder(self) -> TextEncoder:
        """Create an encoder, which takes rows and Arrow columns."""
        return TextEncoder(codecs.lookup(self.encoding).name)


class TextDecoder:
    def __init__(self, encoding: str, batch_format: BatchFormat) -> None:
        self._encoding = encoding
        self._format = batch_format
        self._schema = pa.schema([(_COLUMN, pa.string())])

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        if self._format == "rows":
            return decoded_rows(values, self._rows, self._why)
        return decoded_columns(values, self._schema, self._columns, self._why)

    def close(self) -> None:
        pass

    def _rows(self, values: Sequence[bytes]) -> list[str] | None:
        encoding = self._encoding
        try:
            return [value.decode(encoding) for value in values]
        except UnicodeDecodeError:
            return None

    def _columns(self, values: Sequence[bytes]) -> pa.RecordBatch | None:
        try:
            if self._encoding == "utf-8":
                column = pa.array(values, pa.binary()).cast(pa.string())  # the cast checks the bytes
            else:
                column = pa.array([value.decode(self._encoding) for value in values], pa.string())
        except (pa.ArrowInvalid, UnicodeError):
            return None
        return pa.RecordBatch.from_arrays([column], schema=self._schema)

    def _why(self, value: bytes) -> str:
        try:
            value.decode(self._encoding).encode()
        except UnicodeError as error:
            return f"the value is not text in {self._encoding}: {error}"
        return f"the value is not text in {self._encoding}"


class TextEncoder:
    def __init__(self, encoding: str) -> None:
        self._encoding = encoding

    def encode(self, batch: Batch) -> list[bytes | None]:
        return [self._encoded(value) for value in _values(batch, is_text, "Text", "string")]

    def close(self) -> None:
        pass

    def _encoded(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, str):
            msg = (
                f"the format Text writes strings, but a record is {shown(value)} ({type(value).__name__}). "
                "Convert the records with map(str), or use another format such as Json"
            )
            raise BadRecordError(msg)
        try:
            return value.encode(self._encoding)
        except UnicodeEncodeError as error:
            msg = f"a record can't be written in {self._encoding}: {error}; the record is {shown(value)}"
            raise BadRecordError(msg) from error


def _values(batch: Batch, fits: Callable[[pa.DataType], bool], name: str, kind: str) -> Sequence[Any]:
    if isinstance(batch, RowBatch):
        return batch.rows
    schema = batch.batch.schema
    if len(schema) != 1 or not fits(schema.types[0]):
        msg = (
            f"the format {name} writes batches of one {kind} column, but a batch has the columns "
            f"{shown(schema.to_string())}. Select one column, or use another format such as Json"
        )
        raise BadRecordError(msg)
    return values_of_column(schema.names[0], batch.batch.column(0))
