"""`MessageDeserializer`: makes the records of a batch of messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import pyarrow as pa

from penstock.runtime.io.connectors.errors import BadRecords, OnError
from penstock.runtime.io.formats.format import Decoder
from penstock.runtime.operators.source import Polled
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch

M = TypeVar("M")

#: Reads one field of a message; the field's type in columns.
MessageField: TypeAlias = tuple[Callable[[M], Any], pa.DataType]


@dataclass(frozen=True)
class MessageParts(Generic[M]):
    """The parts of one kind of messages.

    Attributes:
        value: The bytes that a format decodes.
        origin: The place of a message, for errors and dead letters.
        fields: Fields that a record may have beside those of its value, by name.
    """

    value: Callable[[M], Any]
    origin: Callable[[M], str]
    fields: Mapping[str, MessageField[M]]


@dataclass(frozen=True)
class MessageDeserializer(Generic[M]):
    """Decodes values, adds fields of the message, and handles records that can't be decoded.

    Attributes:
        values: Decodes the values of messages.
        fields: Names of the fields that are added to each record.
    """

    parts: MessageParts[M]
    values: Decoder
    fields: Sequence[str]
    on_error: OnError

    def polled(self, messages: Sequence[M]) -> Polled[Any]:
        """Make the records of one split's messages.

        Raises:
            UnreadableInputError: A record can't be decoded, and `on_error` is `"fail"`.
        """
        if not messages:
            return Polled()
        value, origin = self.parts.value, self.parts.origin
        decoded = self.values.decode([value(message) for message in messages])
        bad = BadRecords(self.on_error, advice="Leave")
        good = messages
        if decoded.bad:
            reasons = dict(decoded.bad)
            for index in sorted(reasons):
                bad.report(value(messages[index]), reasons[index], origin(messages[index]))
            good = [message for index, message in enumerate(messages) if index not in reasons]
        batch = decoded.batch
        if self.fields and good:
            batch = self._with_fields(batch, good)
        return bad.polled(batch)

    def _with_fields(self, batch: Batch, messages: Sequence[M]) -> Batch:
        known = self.parts.fields
        columns = {name: [known[name][0](message) for message in messages] for name in self.fields}
        if isinstance(batch, ArrowBatch):
            made = batch.batch
            for name, values in columns.items():
                column, at = pa.array(values, known[name][1]), made.schema.get_field_index(name)
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
