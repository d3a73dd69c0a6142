"""Protobuf messages of recursive types as rows, decoded by Python's library.

A recursive type has no Arrow schema, so ptars can't decode it. The rows have the same values as those of
ptars.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from penstock.runtime.io.formats.format import Decoded
from penstock.runtime.io.formats.parts import decoded_rows
from penstock.runtime.io.formats.settings import imported

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

#: Messages that hold one value; rows have the value instead of the message.
WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


class MessageRowDecoder:
    def __init__(self, name: str, message_class: Any) -> None:
        self._name = name
        self._parse = message_class.FromString
        self._failures = (
            imported("google.protobuf.message", "Protobuf", "protobuf").DecodeError,
            OverflowError,  # a time that Python can't represent
        )

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        return decoded_rows(values, self._rows, self._why)

    def close(self) -> None:
        pass

    def _rows(self, values: Sequence[bytes]) -> list[Any] | None:
        try:
            return [_row(self._parse(value)) for value in values]
        except self._failures:
            return None

    def _why(self, value: bytes) -> str:
        try:
            _row(self._parse(value))
        except self._failures as error:
            return f"the value is not a message {self._name}: {error}"
        return f"the value is not a message {self._name}"


def _row(message: Any) -> dict[str, Any]:
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Any, field: Any) -> Any:
    kind = field.message_type
    if field.is_repeated:
        found = getattr(message, field.name)
        if kind is None:
            return list(found)
        if not kind.GetOptions().map_entry:
            return [_message(one) for one in found]
        value_kind = kind.fields_by_name["value"].message_type
        return {key: found[key] if value_kind is None else _message(found[key]) for key in found}
    if field.has_presence and not message.HasField(field.name):
        return None
    found = getattr(message, field.name)
    return found if kind is None else _message(found)


def _message(message: Any) -> Any:
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        return _EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    if name == "google.protobuf.Duration":
        # Rounded towards zero, because the nanoseconds may be negative.
        return timedelta(seconds=message.seconds, microseconds=int(message.nanos / 1000))
    return message.value if name in WRAPPERS else _row(message)
