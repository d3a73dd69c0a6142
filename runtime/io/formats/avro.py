"""Avro records as rows and columns.

pyruhvro decodes most schemas to columns; rows are made from these columns, in a third of the time that
fastavro takes. Other schemas are decoded by fastavro, and columns are made from its rows. So rows and columns
have equal values for every schema. Both libraries ignore bytes after a record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import pairwise
from typing import Any

import pyarrow as pa

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.formats.avro_encoder import AvroEncoder
from penstock.runtime.io.formats.avro_resolution import projection
from penstock.runtime.io.formats.avro_schema import columns_of, fast_schema, parsed_schema
from penstock.runtime.io.formats.format import Decoded, Decoder, Encoder
from penstock.runtime.io.formats.parts import decoded_columns, decoded_rows
from penstock.runtime.io.formats.registered import (
    RegistryDecoder,
    RegistryEncoder,
    checked_subject,
    topic_subject,
)
from penstock.runtime.io.formats.registry import RegisteredSchema, SchemaRegistry
from penstock.runtime.io.formats.settings import checked_batch_format, imported, without_panic
from penstock.runtime.io.formats.varints import zigzag_varint
from penstock.runtime.record.arrow_types import has_leaf
from penstock.runtime.record.arrow_values import is_text
from penstock.runtime.record.elements import ArrowBatch, BatchFormat, RowBatch
from penstock.runtime.record.row_columns import NoPythonValueError, dicts_of_arrow

#: A schema as JSON text, or as the parsed JSON.
AvroSchema = str | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Avro:
    """Avro: each value is one record, without a header; a row is a dict.

    Args:
        schema: Schema of the written values. With a registry it is the schema of the encoder. It is then also
            the schema of the rows and columns that are read, unless there is a `reader_schema`. Each
            container file has its own schema.
        reader_schema: Schema of the rows and columns that are read. Avro's rules of schema resolution apply.
        registry: A schema registry. Each value then begins with the id of its schema (Confluent's format).
        subject: The subject of `schema` in the registry. Connectors with topics set `topic-value` or
            `topic-key` by `for_topic`.
        register: Whether to register `schema` when it is not in the registry.

    Raises:
        ConfigurationError: A schema is invalid, or a library is missing.

    Example:
        >>> order = Avro({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
        >>> found = order.decoder("rows").decode([bytes([84]), b""])
        >>> found.batch.rows, [index for index, why in found.bad]
        ([{'id': 42}], [1])
    """

    schema: AvroSchema | None = None
    reader_schema: AvroSchema | None = None
    registry: SchemaRegistry | None = None
    subject: str | None = None
    register: bool = False

    def __post_init__(self) -> None:
        for schema in (self.schema, self.reader_schema):
            if schema is not None:
                parsed_schema(schema)

    def for_topic(self, topic: str, *, is_key: bool = False) -> Avro:
        """The format for a topic: a format without a subject gets the subject of the topic.

        Example:
            >>> Avro(registry=SchemaRegistry("http://localhost:8081")).for_topic("orders").subject
            'orders-value'
        """
        return replace(self, subject=self.subject or topic_subject(topic, is_key=is_key))

    @property
    def read_schema(self) -> AvroSchema | None:
        """The schema of the rows and columns that are read; `None` if it is the schema of the values."""
        return self.schema if self.reader_schema is None else self.reader_schema

    def decoder(self, batch_format: BatchFormat) -> Decoder:
        """Create a decoder.

        Columns need a schema. With a registry and no schema, they have the newest schema of the subject.
        """
        batch_format = checked_batch_format(batch_format)
        reader = self.read_schema
        if self.registry is None:
            writer = self._own_schema()
            return AvroDecoder(writer, writer if reader is None else parsed_schema(reader), batch_format)
        client = self.registry.client()
        wanted: dict[str, Any] | None
        if reader is None and batch_format == "arrow":
            wanted = _registered(client.latest(checked_subject(self.subject, "Avro")))
        else:
            wanted = None if reader is None else parsed_schema(reader)

        def of_schema(found: RegisteredSchema) -> Decoder:
            writer = _registered(found)
            return AvroDecoder(writer, writer if wanted is None else wanted, batch_format)

        return RegistryDecoder(
            client, of_schema, columns_of(wanted) if wanted and batch_format == "arrow" else None
        )

    def encoder(self) -> Encoder:
        """Create an encoder; with a registry it looks up the id of the schema."""
        if self.registry is None:
            return AvroEncoder(self._own_schema())
        subject = checked_subject(self.subject, "Avro")
        client = self.registry.client()
        try:
            if self.schema is None:
                found = client.latest(subject)
            else:
                found = client.id_of(subject, "AVRO", schema_text(self.schema), register=self.register)
        finally:
            client.close()
        return RegistryEncoder(AvroEncoder(_registered(found)), found.prefix)

    def _own_schema(self) -> dict[str, Any]:
        if self.schema is None:
            msg = "Avro needs schema=, or registry= with the schemas of the values; only files have their own"
            raise ConfigurationError(msg)
        return parsed_schema(self.schema)


def _registered(found: RegisteredSchema) -> dict[str, Any]:
    return parsed_schema(found.text_as("AVRO"), [text for _, text in found.parts])


def schema_text(schema: AvroSchema) -> str:
    return schema if isinstance(schema, str) else json.dumps(schema)


class AvroDecoder:
    """Decodes values of one writer's schema."""

    def __init__(
        self, writer: Mapping[str, Any], reader: Mapping[str, Any], batch_format: BatchFormat
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._format = batch_format
        self._read = imported("fastavro", "Avro", "avro").schemaless_reader
        self._schema = columns_of(reader) if batch_format == "arrow" else None
        self._columns = _column_decoder(writer, reader)

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        if self._schema is not None:
            return decoded_columns(values, self._schema, self._columns or self._slow_columns, self._why)
        return decoded_rows(values, self._rows if self._columns else self._slow_rows, self._why)

    def decode_block(self, data: bytes, count: int) -> Decoded:
        """Decode a block of a container file: consecutive records.

        Raises:
            ValueError: The block does not have this number of the writer's records.
        """
        found = self._block_rows(data, count) if self._schema is None else self._block_columns(data, count)
        # Record by record, to find those that don't fit the reader's schema.
        return self.decode(self.values_of(data, count)) if found is None else Decoded(found)

    def close(self) -> None:
        pass

    def _block_columns(self, data: bytes, count: int) -> ArrowBatch | None:
        if self._columns is not None:
            batch = self._columns.of_block(data, count)
        else:
            rows = self._block_rows(data, count)
            batch = None if rows is None else self._as_columns(rows.rows)
        return None if batch is None else ArrowBatch(batch)

    def _block_rows(self, data: bytes, count: int) -> RowBatch | None:
        if self._columns is not None:
            batch = self._columns.of_block(data, count)
            try:
                return None if batch is None else RowBatch(dicts_of_arrow(batch))
            except NoPythonValueError:
                return None
        stream = BytesIO(data)
        reader = None if self._reader is self._writer else self._reader
        try:
            rows = [self._read(stream, self._writer, reader) for _ in range(count)]
        except Exception:  # damaged bytes may raise any error; `values_of` finds them
            return None
        return RowBatch(rows) if stream.tell() == len(data) else None

    def values_of(self, data: bytes, count: int) -> list[bytes]:
        """Cut a block into its records."""
        stream, ends = BytesIO(data), [0]
        try:
            for _ in range(count):
                self._read(stream, self._writer, None)
                ends.append(stream.tell())
        except Exception as error:  # damaged bytes may raise any error
            msg = f"its record {len(ends)} of {count} can't be read: {type(error).__name__}: {error}"
            raise ValueError(msg) from error
        if ends[-1] != len(data):
            msg = f"{len(data) - ends[-1]} bytes follow its {count} records"
            raise ValueError(msg)
        return [data[start:end] for start, end in pairwise(ends)]

    def _rows(self, values: Sequence[bytes]) -> Sequence[Any] | None:
        assert self._columns is not None
        batch = self._columns(values)
        try:
            return None if batch is None else dicts_of_arrow(batch)
        except NoPythonValueError:
            return None

    def _slow_rows(self, values: Sequence[bytes]) -> Sequence[Any] | None:
        try:
            return [self._read_one(value) for value in values]
        except Exception:  # damaged bytes may raise any error; `_why` finds the error
            return None

    def _slow_columns(self, values: Sequence[bytes]) -> pa.RecordBatch | None:
        rows = self._slow_rows(values)
        if rows is None:
            return None
        return self._as_columns(rows)

    def _as_columns(self, rows: Sequence[Any]) -> pa.RecordBatch | None:
        assert self._schema is not None
        try:
            columns = [pa.array([row[field.name] for row in rows], field.type) for field in self._schema]
        except (pa.ArrowException, OverflowError):
            return None
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _read_one(self, value: bytes) -> Any:
        reader = None if self._reader is self._writer else self._reader
        return self._read(BytesIO(value), self._writer, reader)

    def _why(self, value: bytes) -> str:
        error: Exception | None = None
        try:
            if self._columns is not None:
                batch = self._columns.decode([value])
                if batch is not None:
                    dicts_of_arrow(batch)
            self._read_one(value)
        except Exception as found:  # any error is the reason
            error = found
        what = "it does not fit the schema" if error is None else f"{type(error).__name__}: {error}"
        name = self._misfit(value)
        if name is not None:
            return f"field {name!r} does not fit the reader's schema: {what}"
        return f"the value is not an Avro record: {what}"

    def _misfit(self, value: bytes) -> str | None:
        """The first field of the reader's schema that a record does not fit; `None` for other bad values."""
        if self._reader is self._writer:
            return None
        try:
            self._read(BytesIO(value), self._writer, None)
        except Exception:  # damaged bytes may raise any error
            return None
        for field in self._reader["fields"]:
            try:
                self._read(BytesIO(value), self._writer, {**self._reader, "fields": [field]})
            except Exception:  # whatever it is, it is about this field
                return str(field["name"])
        return None


class _ColumnDecoder:
    """Decodes values to columns with pyruhvro."""

    def __init__(
        self, text: str, columns: pa.Schema, project: Callable[[pa.RecordBatch], pa.RecordBatch | None] | None
    ) -> None:
        self._text = text
        items = {"name": "items", "type": {"type": "array", "items": json.loads(text)}}
        self._array_text = json.dumps({"type": "record", "name": "Block", "fields": [items]})
        self._columns = columns
        self._project = project
        self._deserialize = imported("pyruhvro", "Avro", "avro").deserialize_array

    def __call__(self, values: Sequence[bytes]) -> pa.RecordBatch | None:
        try:
            return self.decode(values)
        except ValueError:  # including `pa.ArrowInvalid`
            return None

    def decode(self, values: Sequence[bytes]) -> pa.RecordBatch | None:
        """Decode values; return `None` if a value does not fit the reader's schema.

        Raises:
            ValueError: A value is not a record of the writer's schema.
        """
        given = values if type(values) is list else list(values)
        return self._checked(without_panic(self._deserialize, given, self._text))

    def of_block(self, data: bytes, count: int) -> pa.RecordBatch | None:
        """Decode consecutive records; `None` if they must be read one by one.

        Preceded by their number, such records are Avro's encoding of an array, which the library reads as one
        value.
        """
        if count > len(data):
            return None  # a record has at least a byte, and the library would reserve memory for `count`
        array = b"".join((zigzag_varint(count), data, b"\0"))
        try:
            (column,) = without_panic(self._deserialize, [array], self._array_text).columns
            items = column.flatten()
            return self._checked(pa.RecordBatch.from_struct_array(items)) if len(items) == count else None
        except ValueError:  # including `pa.ArrowInvalid`
            return None

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        for column in batch.columns:
            if has_leaf(column.type, is_text):
                column.validate(full=True)  # pyruhvro lets through some bytes that are not UTF-8
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(batch.columns, self._columns, strict=True)
        ]
        found = pa.RecordBatch.from_arrays(columns, schema=self._columns)
        return found if self._project is None else self._project(found)


def _column_decoder(writer: Mapping[str, Any], reader: Mapping[str, Any]) -> _ColumnDecoder | None:
    fast = fast_schema(writer)
    if fast is None or fast_schema(reader) is None:
        return None
    if writer == reader:
        return _ColumnDecoder(fast.text, fast.columns, None)
    project = projection(writer, reader)
    return None if project is None else _ColumnDecoder(fast.text, fast.columns, project)
