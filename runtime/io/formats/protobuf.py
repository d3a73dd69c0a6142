"""Protobuf messages as rows and columns.

ptars decodes messages to columns; rows are made from these columns, in a fifth of the time that Python's
messages take. An unset field without presence has its default; any other unset field is null. Enums are
numbers, because a message may hold a number that the reader's enum lacks. Unknown fields are ignored, so a
reader accepts messages of newer and older schemas.

With a registry the indexes of the message in its file are between the header and the message, as zigzag
varints: their count, then each. For the first message of a file they are the single byte 0.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.runtime.error_text import shown
from penstock.runtime.errors import BadRecordError, ConfigurationError
from penstock.runtime.io.formats.format import Decoded, Decoder, Encoder
from penstock.runtime.io.formats.parts import decoded_columns, decoded_rows
from penstock.runtime.io.formats.protobuf_rows import WRAPPERS, MessageRowDecoder
from penstock.runtime.io.formats.registered import (
    RegistryDecoder,
    RegistryEncoder,
    checked_subject,
    topic_subject,
)
from penstock.runtime.io.formats.registry import RegisteredSchema, RegistryClient, SchemaRegistry
from penstock.runtime.io.formats.rows import records_of
from penstock.runtime.io.formats.settings import checked_batch_format, imported, without_panic
from penstock.runtime.io.formats.varints import zigzag_varint
from penstock.runtime.record.arrow_types import NoArrowTypeError
from penstock.runtime.record.arrow_values import MisfitError, exact_batch
from penstock.runtime.record.elements import ArrowBatch, Batch, BatchFormat
from penstock.runtime.record.row_columns import NoPythonValueError


@dataclass(frozen=True, slots=True)
class Protobuf:
    """Protobuf: each value is one message; a row is a dict.

    Args:
        message: The message's generated class; or a serialised `FileDescriptorSet` with the message's file
            and all files that it imports, as `protoc --include_imports --descriptor_set_out` writes it.
        name: Full name of the message, such as `shop.Order`; a class has its own name.
        registry: A schema registry. Each value then begins with the id of its schema and the indexes of the
            message (Confluent's format).
        subject: The subject in the registry. Connectors with topics set `topic-value` or `topic-key` by
            `for_topic`.
        register: Whether to register the schema when it is not in the registry.

    Raises:
        ConfigurationError: The message is not in the descriptors, or a library is missing.
    """

    message: Any
    name: str | None = None
    registry: SchemaRegistry | None = None
    subject: str | None = None
    register: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.message, bytes):
            descriptor = getattr(self.message, "DESCRIPTOR", None)
            if descriptor is None:
                msg = (
                    f"message={self.message!r} is neither a class that protoc generates nor a "
                    "FileDescriptorSet as bytes"
                )
                raise ConfigurationError(msg)
            # The descriptors are pickled instead of the class, so that no process must import its module.
            object.__setattr__(self, "message", _descriptors_of(descriptor.file))
            object.__setattr__(self, "name", descriptor.full_name)
        _Message(self.message, self.name)

    def for_topic(self, topic: str, *, is_key: bool = False) -> Protobuf:
        """The format for a topic: a format without a subject gets the subject of the topic."""
        return replace(self, subject=self.subject or topic_subject(topic, is_key=is_key))

    def decoder(self, batch_format: BatchFormat) -> Decoder:
        """Create a decoder whose batches are rows or Arrow columns."""
        batch_format = checked_batch_format(batch_format)
        message = _Message(self.message, self.name)
        decoder: ProtobufDecoder | MessageRowDecoder
        if batch_format == "rows" and message.itself is not None:
            decoder = MessageRowDecoder(message.name, message.message_class)
        else:
            decoder = ProtobufDecoder(message, batch_format)
        if self.registry is None:
            return decoder

        def of_schema(found: RegisteredSchema) -> Decoder:
            found.text_as("PROTOBUF")  # refuses a schema of another type
            return _IndexedDecoder(decoder, message)

        columns = (
            decoder.columns if batch_format == "arrow" and isinstance(decoder, ProtobufDecoder) else None
        )
        return RegistryDecoder(self.registry.client(), of_schema, columns)

    def encoder(self) -> Encoder:
        """Create an encoder; with a registry it looks up the id of the schema."""
        message = _Message(self.message, self.name)
        encoder = ProtobufEncoder(message)
        if self.registry is None:
            return encoder
        subject = checked_subject(self.subject, "Protobuf")
        client = self.registry.client()
        try:
            found = message.registered(client, subject, register=self.register)
        finally:
            client.close()
        return RegistryEncoder(encoder, found.prefix + message.index_bytes)


def _descriptors_of(file: Any) -> bytes:
    """A file and its imports as a serialised set; each file follows those that it imports."""
    pb2 = imported("google.protobuf.descriptor_pb2", "Protobuf", "protobuf")
    files: dict[str, Any] = {}

    def add(one: Any) -> None:
        if one.name not in files:
            for imported_file in one.dependencies:
                add(imported_file)
            files[one.name] = one

    add(file)
    found = pb2.FileDescriptorSet()
    for one in files.values():
        one.CopyToProto(found.file.add())
    return bytes(found.SerializeToString(deterministic=True))


class _Message:
    """The descriptor of a message, in a pool of its own."""

    def __init__(self, descriptors: bytes, name: str | None) -> None:
        pb2 = imported("google.protobuf.descriptor_pb2", "Protobuf", "protobuf")
        pools = imported("google.protobuf.descriptor_pool", "Protobuf", "protobuf")
        self._pool = pools.DescriptorPool()
        try:
            for file in pb2.FileDescriptorSet.FromString(descriptors).file:
                self._pool.Add(file)
            self.descriptor = self._pool.FindMessageTypeByName(name or "")
        except KeyError as error:
            msg = (
                f"name={name!r} is not a message of the descriptors: give its full name, such as 'shop.Order'"
            )
            raise ConfigurationError(msg) from error
        except Exception as error:  # also an error of the library that is not a public class
            msg = f"the descriptors of {name!r} can't be used: {type(error).__name__}: {error}"
            raise ConfigurationError(msg) from error
        self.name: str = self.descriptor.full_name

    @cached_property
    def itself(self) -> str | None:
        """The name of a recursive message in this one, which then has no columns; `None` without one."""
        pending: list[tuple[Any, tuple[str, ...]]] = [(self.descriptor, ())]
        while pending:
            kind, outer = pending.pop()
            if kind.full_name in outer:
                return str(kind.full_name)
            inside = (*outer, kind.full_name)
            pending += [(field.message_type, inside) for field in kind.fields if field.message_type]
        return None

    @property
    def message_class(self) -> Any:
        return imported("google.protobuf.message_factory", "Protobuf", "protobuf").GetMessageClass(
            self.descriptor
        )

    @cached_property
    def handler(self) -> Any:
        """The handler of ptars; times are in microseconds, as in Python."""
        if self.itself is not None:
            msg = f"the message {self.itself} is recursive, so it has no columns: decode to rows instead"
            raise ConfigurationError(msg)
        ptars = imported("ptars", "Protobuf", "protobuf")
        config = ptars.PtarsConfig(timestamp_unit="us", time_unit="us", duration_unit="us")
        return ptars.HandlerPool([self.descriptor.file], config).get_for_message(self.descriptor)

    def _file(self) -> Any:
        pb2 = imported("google.protobuf.descriptor_pb2", "Protobuf", "protobuf")
        file = pb2.FileDescriptorProto()
        self.descriptor.file.CopyToProto(file)
        return file

    @cached_property
    def index_bytes(self) -> bytes:
        path: list[int] = []
        siblings = self._file().message_type
        for name in self.name.removeprefix(f"{self.descriptor.file.package}.").split("."):
            path.append(next(at for at, one in enumerate(siblings) if one.name == name))
            siblings = siblings[path[-1]].nested_type
        if path == [0]:
            return b"\0"
        return b"".join(zigzag_varint(number) for number in (len(path), *path))

    def registered(self, client: RegistryClient, subject: str, *, register: bool) -> RegisteredSchema:
        """Find the message's file in the registry, after the files that it imports, each under its own name.

        Confluent's serialisers use the same subjects. The registry knows the files of `google/protobuf`.
        """
        versions: dict[str, int] = {}

        def found(file: Any, subject: str) -> RegisteredSchema:
            own = [one for one in file.dependencies if not one.name.startswith("google/protobuf/")]
            for one in own:
                if one.name not in versions:
                    found(one, one.name)
            references = [
                {"name": one.name, "subject": one.name, "version": versions[one.name]} for one in own
            ]
            text = _registered_text(file)
            schema = client.id_of(subject, "PROTOBUF", text, register=register, references=references)
            if file is not self.descriptor.file:
                versions[file.name] = client.version_of(subject, "PROTOBUF", text, references)
            return schema

        return found(self.descriptor.file, subject)


def _registered_text(file: Any) -> str:
    """A file in a form that the registry accepts besides text: base64 of its serialised descriptor."""
    described = imported("google.protobuf.descriptor_pb2", "Protobuf", "protobuf").FileDescriptorProto()
    file.CopyToProto(described)
    return base64.b64encode(described.SerializeToString(deterministic=True)).decode()


class ProtobufDecoder:
    def __init__(self, message: _Message, batch_format: BatchFormat) -> None:
        self._name = message.name
        self._format = batch_format
        self._convert = message.handler.list_to_record_batch
        schema: pa.Schema = message.handler.schema()
        self.columns: pa.Schema = pa.schema([field.with_nullable(True) for field in schema])

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        if self._format == "rows":
            return decoded_rows(values, self._rows, self._why)
        return decoded_columns(values, self.columns, self._columns, self._why)

    def close(self) -> None:
        pass

    def _columns(self, values: Sequence[bytes]) -> pa.RecordBatch | None:
        try:
            return self._converted(values)
        except ValueError:
            return None

    def _rows(self, values: Sequence[bytes]) -> Sequence[Any] | None:
        try:
            return records_of(ArrowBatch(self._converted(values)))
        except (ValueError, NoPythonValueError, NoArrowTypeError, BadRecordError):
            return None

    def _converted(self, values: Sequence[bytes]) -> pa.RecordBatch:
        batch = without_panic(self._convert, values if type(values) is list else list(values))
        return pa.RecordBatch.from_arrays(batch.columns, schema=self.columns)

    def _why(self, value: bytes) -> str:
        try:
            records_of(ArrowBatch(self._converted([value])))
        except (ValueError, NoPythonValueError, NoArrowTypeError, BadRecordError) as error:
            return f"the value is not a message {self._name}: {error}"
        return f"the value is not a message {self._name}"


class _IndexedDecoder:
    """Decodes values that begin with the indexes of their message."""

    def __init__(self, decoder: Decoder, message: _Message) -> None:
        self._decoder = decoder
        self._name = message.name
        #: Writers may also write the indexes of the first message in full.
        self._prefixes = [message.index_bytes, *([b"\x02\0"] if message.index_bytes == b"\0" else [])]

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        prefix = self._prefixes[0]
        size = len(prefix)
        if all(value is not None and value.startswith(prefix) for value in values):
            return self._decoder.decode([value[size:] for value in values if value is not None])
        places: list[int] = []
        bodies: list[bytes] = []
        bad: list[tuple[int, str]] = []
        for index, value in enumerate(values):
            assert value is not None, "tombstones have no header"
            used = next((one for one in self._prefixes if value.startswith(one)), None)
            if used is None:
                bad.append(
                    (index, f"the value is not a message {self._name}: its indexes begin {value[:4]!r}")
                )
            else:
                places.append(index)
                bodies.append(value[len(used) :])
        found = self._decoder.decode(bodies)
        return Decoded(found.batch, sorted([*bad, *((places[at], why) for at, why in found.bad)]))

    def close(self) -> None:
        self._decoder.close()


class ProtobufEncoder:
    def __init__(self, message: _Message) -> None:
        self._name = message.name
        self._class = message.message_class
        self._descriptor = message.descriptor
        self._encode_error = imported("google.protobuf.message", "Protobuf", "protobuf").EncodeError
        self._has_messages = any(field.message_type for field in message.descriptor.fields)
        self._is_flat = False
        if message.itself is None:
            self._handler = message.handler
            self._schema: pa.Schema = self._handler.schema()
            self._is_flat = not any(pa.types.is_nested(kind) for kind in self._schema.types)

    def encode(self, batch: Batch) -> list[bytes | None]:
        if isinstance(batch, ArrowBatch) and self._is_flat:
            found = self._of_columns(batch.batch)
            if found is not None:
                return found
        return [None if row is None else self._encoded(row) for row in records_of(batch)]

    def close(self) -> None:
        pass

    def _of_columns(self, batch: pa.RecordBatch) -> list[bytes | None] | None:
        if set(batch.schema.names) != set(self._schema.names) or not batch.num_rows:
            return None
        try:
            exact = exact_batch(batch, self._schema)
        except MisfitError:
            return None
        if any(map(_has_negative_zero, exact.columns)):
            return None  # ptars writes it as zero
        found: list[bytes | None] = self._handler.record_batch_to_array(exact).to_pylist()
        return found

    def _encoded(self, row: Any) -> bytes:
        try:
            if type(row) is not dict and not isinstance(row, Mapping):
                msg = f"it is a {type(row).__name__}, and not a dict"
                raise TypeError(msg)
            if self._has_messages or None in row.values():
                row = _settable(row, self._descriptor)
            return bytes(self._class(**row).SerializeToString())
        except (TypeError, ValueError, AttributeError, self._encode_error) as error:
            msg = (
                f"a record can't be written as a message {self._name}: {error}; the record is {shown(row)}. "
                "Map the records to dicts that fit the message"
            )
            raise BadRecordError(msg) from error


def _has_negative_zero(column: pa.Array) -> bool:
    if not pa.types.is_floating(column.type):
        return False
    numbers = column.to_numpy(zero_copy_only=False)
    return bool(np.any(np.signbit(numbers) & (numbers == 0)))


def _settable(row: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    """A row for the constructor of its message: without nulls, and with messages for wrapped values."""
    fields = kind.fields_by_name
    return {
        name: _value(value, fields[name].message_type if name in fields else None)
        for name, value in row.items()
        if value is not None
    }


def _value(value: Any, kind: Any) -> Any:
    if kind is None or kind.GetOptions().map_entry:
        return value
    if isinstance(value, list):
        return [_value(one, kind) for one in value]
    if isinstance(value, Mapping):
        return _settable(value, kind)
    return {"value": value} if kind.full_name in WRAPPERS else value
