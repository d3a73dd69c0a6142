"""`RecordDeserializer`: makes the records of a batch of Kafka's messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa

from penstock.runtime.io.connectors.errors import BadRecords, OnError
from penstock.runtime.io.formats.format import Decoder
from penstock.runtime.operators.source import Polled
from penstock.runtime.record.elements import ArrowBatch, RowBatch

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
class RecordDeserializer:
    """Decodes values, adds fields of the message, and handles records that can't be decoded.

    Attributes:
        values: Decodes the values of messages.
        fields: Fields that are added to each record.
    """

    values: Decoder
    fields: Sequence[str]
    on_error: OnError

    def polled(self, messages: Sequence[Message]) -> Polled[Any]:
        """Make the records of one partition's messages.

        Raises:
            UnreadableInputError: A record can't be decoded, and `on_error` is `"fail"`.
        """
        if not messages:
            return Polled()
        decoded = self.values.decode([message.value() for message in messages])
        bad = BadRecords(self.on_error, advice="Leave")
        good = messages
        if decoded.bad:
            reasons = dict(decoded.bad)
            for index in sorted(reasons):
                bad.report(messages[index].value(), reasons[index], origin_of(messages[index]))
            good = [message for index, message in enumerate(messages) if index not in reasons]
        batch = decoded.batch
        if self.fields and good:
            batch = self._with_fields(batch, good)
        return bad.polled(batch)

    def _with_fields(
        self, batch: RowBatch | ArrowBatch, messages: Sequence[Message]
    ) -> RowBatch | ArrowBatch:
        columns = {name: [METADATA[name][0](message) for message in messages] for name in self.fields}
        if isinstance(batch, ArrowBatch):
            made = batch.batch
            for name, values in columns.items():
                column, at = pa.array(values, METADATA[name][1]), made.schema.get_field_index(name)
                made = made.append_column(name, column) if at < 0 else made.set_column(at, name, column)
            return ArrowBatch(made)
        names = list(columns)
        return RowBatch(
            [
                {**(row if type(row) is dict else {"value": row}), **dict(zip(names, added, strict=True))}
                for row, *added in zip(batch.rows, *columns.values(), strict=True)
            ]
        )

    def close(self) -> None:
        self.values.close()


def origin_of(message: Message) -> str:
    """The place of a message, for errors and dead letters: `topic[partition]@offset`."""
    return f"{message.topic()}[{message.partition()}]@{message.offset()}"
