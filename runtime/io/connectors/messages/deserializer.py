"""`MessageDeserializer`: makes the records of a batch of messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import pyarrow as pa

from penstock.runtime.io.connectors.errors import BadRecords, OnError
from penstock.runtime.io.formats.format import Decoded, Decoder
from penstock.runtime.operators.source import Polled
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch

M = TypeVar("M")

#: A function that reads one field of a message, and the field's type in columns.
MessageField: TypeAlias = tuple[Callable[[M], Any], pa.DataType]


@dataclass(frozen=True)
class MessageParts(Generic[M]):
    """The parts of one kind of messages.

    Attributes:
        value: The bytes that a format decodes.
        origin: The place of a message, for errors and dead letters.
        fields: Fields that a record may have in addition to those of its value, by name.
    """

    value: Callable[[M], Any]
    origin: Callable[[M], str]
    fields: Mapping[str, MessageField[M]]


@dataclass(frozen=True)
class KeyDecoder(Generic[M]):
    """Decodes the keys of messages; each record gets its key as a field.

    Attributes:
        key: The bytes of a message's key; `None` if it has none.
        is_column: Whether a batch of keys is one column, instead of a column for each field of a key.
    """

    key: Callable[[M], Any]
    decoder: Decoder
    field: str
    is_column: bool

    def decode(self, messages: Sequence[M]) -> Decoded:
        return self.decoder.decode([self.key(message) for message in messages])

    def column(self, batch: Batch, messages: Sequence[M]) -> pa.Array:
        """The keys as one column: structs, or the only column of a format without fields."""
        assert isinstance(batch, ArrowBatch), "keys are decoded as values are"
        if self.is_column:
            return batch.batch.column(0)
        absent = pa.array([self.key(message) is None for message in messages], pa.bool_())
        columns, fields = batch.batch.columns, list(batch.batch.schema)
        return pa.StructArray.from_arrays(columns, fields=fields, mask=absent)

    def close(self) -> None:
        self.decoder.close()


def _with_column(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    at = batch.schema.get_field_index(name)
    return batch.append_column(name, column) if at < 0 else batch.set_column(at, name, column)


@dataclass(frozen=True)
class MessageDeserializer(Generic[M]):
    """Decodes values, adds fields of the message, and handles records that can't be decoded.

    Attributes:
        values: Decodes the values of messages.
        fields: Names of the fields that are added to each record.
        keys: Decodes the keys of messages; `None` if they are left out, or if `fields` adds their bytes.
    """

    parts: MessageParts[M]
    values: Decoder
    fields: Sequence[str]
    on_error: OnError
    keys: KeyDecoder[M] | None = None

    @property
    def reads_messages(self) -> bool:
        """Whether records have more than the values of their messages."""
        return bool(self.fields) or self.keys is not None

    def polled_values(self, values: Sequence[bytes | None], origin: Callable[[int], str]) -> Polled[Any]:
        """Make the records of one split's values; the same as `polled` unless `reads_messages`.

        Args:
            origin: Returns the place of a value's message, by the index of the value.

        Raises:
            UnreadableInputError: A record can't be decoded, and `on_error` is `"fail"`.
        """
        if not values:
            return Polled()
        decoded = self.values.decode(values)
        bad = BadRecords(self.on_error, advice="Leave")
        for index, reason in decoded.bad:
            bad.report(values[index], reason, origin(index))
        return bad.polled(None if len(decoded.bad) == len(values) else decoded.batch)

    def polled(self, messages: Sequence[M]) -> Polled[Any]:
        """Make the records of one split's messages.

        Raises:
            UnreadableInputError: A record can't be decoded, and `on_error` is `"fail"`.
        """
        if not messages:
            return Polled()
        value, origin = self.parts.value, self.parts.origin
        if not self.reads_messages:
            values = [value(message) for message in messages]
            return self.polled_values(values, lambda index: origin(messages[index]))
        decoded = self.values.decode([value(message) for message in messages])
        keys = None if self.keys is None else self.keys.decode(messages)
        bad = BadRecords(self.on_error, advice="Leave")
        reasons = {} if keys is None else {index: f"its key: {why}" for index, why in keys.bad}
        reasons |= dict(decoded.bad)
        if not reasons:
            return bad.polled(self._with_fields(decoded.batch, keys, messages))
        for index in sorted(reasons):
            bad.report(value(messages[index]), reasons[index], origin(messages[index]))
        good = [message for index, message in enumerate(messages) if index not in reasons]
        if not good:
            return bad.polled(None)
        if keys is not None:  # the decoded keys and values no longer correspond, so decode the good ones
            keys = self._key_decoder.decode(good)
            decoded = self.values.decode([value(message) for message in good])
        return bad.polled(self._with_fields(decoded.batch, keys, good))

    def _with_fields(self, batch: Batch, keys: Decoded | None, messages: Sequence[M]) -> Batch:
        """Add fields of the messages to the records of their values."""
        known = self.parts.fields
        columns: dict[str, Any] = {
            name: [known[name][0](message) for message in messages] for name in self.fields
        }
        if isinstance(batch, ArrowBatch):
            made = batch.batch
            for name, values in columns.items():
                made = _with_column(made, name, pa.array(values, known[name][1]))
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
    def _key_decoder(self) -> KeyDecoder[M]:
        assert self.keys is not None, "keys are decoded"
        return self.keys

    def close(self) -> None:
        self.values.close()
        if self.keys is not None:
            self.keys.close()
