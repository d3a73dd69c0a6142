"""The parts of Kafka's messages: values, places, and the fields that a record may have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import methodcaller
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa

from penstock.runtime.io.connectors.messages.deserializer import MessageParts

if TYPE_CHECKING:
    from confluent_kafka import Message

#: Fields of a message that a record may have in addition to those of its value.
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

#: For each field, a function that reads it from a message, and its type in columns.
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


def origin_of(message: Message) -> str:
    """The place of a message, for errors and dead letters: `topic[partition]@offset`."""
    return f"{message.topic()}[{message.partition()}]@{message.offset()}"


#: How `MessageDeserializer` reads Kafka's messages.
KAFKA: Final[MessageParts[Message]] = MessageParts(methodcaller("value"), origin_of, METADATA)
