"""`RecordDeserializer`: makes the records of a batch of Kafka's messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa

from penstock.runtime.io.connectors.errors import BadRecords, OnError
from penstock.runtime.io.formats.format import Decoded, Decoder
from penstock.runtime.operators.source import Polled
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch

if TYPE_CHECKING:
    from confluent_kafka import Message

#: What a record may have beside the fields of its value.
MetadataField: TypeAlias = Literal["topic", "partition", "offset", "timestamp", "headers", "key"]


def offset_of(message: Message) -> int:
    """The offset of a message that was fetched."""
    offset = message.offset()
    assert offset is not None
    return offset


def _timestamp(message: Message) -> int | None:
    kind, milliseconds = message.timestamp()
    return None if kind == 0 else milliseconds * 1000


def _headers(message: Message) -> list[dict[str, Any]]:
    headers: Any = message.headers()
    return [{"name": name, "value": value} for name, value in headers or ()]


_HEADER: Final = pa.struct([("name", pa.string()), ("value", pa.binary())])

#: Reads each field; its type in columns.
METADATA: Final[Mapping[str, tuple[Callable[[Message], Any], pa.DataType]]] = MappingProxyType(
    {
        "topic": (lambda message: message.topic(), pa.string()),
        "partition": (lambda message: message.partition(), pa.int32()),
        "offset": (lambda message: message.offset(), pa.int64()),
        "timestamp": (_timestamp, pa.timestamp("us", "UTC")),
        "headers": (_headers, pa.list_(_HEADER)),
        "key": (lambda message: message.key(), pa.binary()),
    }
)


@dataclass(frozen=True)
class KeyDecoder:
    """Decodes the keys of messages to the records of a field.

    Attributes:
        is_column: Whether a batch of keys is one column, and not a column for each field of a key.
    """

    decoder: Decoder
    field: str
    is_column: bool

    def decode(self, messages: Sequence[Message]) -> Decoded:
        return self.decoder.decode([message.key() for message in messages])

    def column(self, batch: Batch, messages: Sequence[Message]) -> pa.Array:
        """The keys as one column: structs, or the only column of a format without fields."""
        assert isinstance(batch, ArrowBatch), "keys are decoded as values are"
        if self.is_column:
            return batch.batch.column(0)
        absent = pa.array([message.key() is None for message in messages], pa.bool_())
        columns, fields = batch.batch.columns, list(batch.batch.schema)
        return pa.StructArray.from_arrays(columns, fields=fields, mask=absent)

    def close(self) -> None:
        self.decoder.close()


def _with_column(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    at = batch.schema.get_field_index(name)
    return batch.append_column(name, column) if at < 0 else batch.set_column(at, name, column)


@dataclass(frozen=True)
class RecordDeserializer:
    """Decodes values, adds fields of the message, and handles records that can't be decoded.

    Attributes:
        values: Decodes the values of messages.
        fields: Fields that are added to each record.
        keys: Decodes the keys of messages; `None` leaves them out, or adds their bytes as a field.
    """

    values: Decoder
    fields: Sequence[str]
    on_error: OnError
    keys: KeyDecoder | None = None

    def polled(self, messages: Sequence[Message]) -> Polled[Any]:
        """Make the records of one partition's messages.

        Raises:
            UnreadableInputError: A record can't be decoded, and `on_error` is `"fail"`.
        """
        if not messages:
            return Polled()
        decoded = self.values.decode([message.value() for message in messages])
        keys = None if self.keys is None else self.keys.decode(messages)
        bad = BadRecords(self.on_error, advice="Leave")
        reasons = {} if keys is None else {index: f"its key: {why}" for index, why in keys.bad}
        reasons |= dict(decoded.bad)
        if not reasons:
            return bad.polled(self._with_fields(decoded.batch, keys, messages))
        for index in sorted(reasons):
            bad.report(messages[index].value(), reasons[index], origin_of(messages[index]))
        good = [message for index, message in enumerate(messages) if index not in reasons]
        if not good:
            return bad.polled(None)
        if keys is not None:  # a value without its key, or a key without its value, was decoded
            keys = self._key_decoder.decode(good)
            decoded = self.values.decode([message.value() for message in good])
        return bad.polled(self._with_fields(decoded.batch, keys, good))

    def _with_fields(self, batch: Batch, keys: Decoded | None, messages: Sequence[Message]) -> Batch:
        """Add fields of the messages to the records of their values."""
        columns: dict[str, Any] = {
            name: [METADATA[name][0](message) for message in messages] for name in self.fields
        }
        if isinstance(batch, ArrowBatch):
            made = batch.batch
            for name, values in columns.items():
                made = _with_column(made, name, pa.array(values, METADATA[name][1]))
            if keys is not None:
                decoder = self._key_decoder
                made = _with_column(made, decoder.field, decoder.column(keys.batch, messages))
            return ArrowBatch(made)
        if keys is not None:
            assert isinstance(keys.batch, RowBatch), "keys are decoded as values are"
            columns[self._key_decoder.field] = keys.batch.rows
        if not columns:
            return batch
        names = list(columns)
        return RowBatch(
            [
                {**(row if type(row) is dict else {"value": row}), **dict(zip(names, added, strict=True))}
                for row, *added in zip(batch.rows, *columns.values(), strict=True)
            ]
        )

    @property
    def _key_decoder(self) -> KeyDecoder:
        assert self.keys is not None, "keys are decoded"
        return self.keys

    def close(self) -> None:
        self.values.close()
        if self.keys is not None:
            self.keys.close()


def origin_of(message: Message) -> str:
    """The place of a message, for errors and dead letters: `topic[partition]@offset`."""
    return f"{message.topic()}[{message.partition()}]@{message.offset()}"
