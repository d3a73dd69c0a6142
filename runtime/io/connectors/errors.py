"""Errors of the built-in connectors, and the handling of unreadable records by a source."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from penstock.runtime.errors import BadInputError, ConfigurationError, ConnectorError
from penstock.runtime.operators.source import DeadLetter, Polled
from penstock.runtime.record.elements import Batch

#: Maximum length of a bad record in a message, in characters.
SHOWN_CHARACTERS: Final = 200


class BadRecordError(ConnectorError):
    """A record can't be read or written, and the connector is set to fail on bad records."""


class UnreadableInputError(BadRecordError, BadInputError):
    """Content of a file can't be read; the message names the file and the position."""


def shown(record: Any) -> str:
    """Format a record for a message, cut to a bounded length."""
    if isinstance(record, (str, bytes)):
        text = repr(record[:SHOWN_CHARACTERS])
        if len(record) > SHOWN_CHARACTERS:
            unit = "characters" if isinstance(record, str) else "bytes"
            return f"{text[:-1]}... ({len(record)} {unit} in all)"
        return text
    text = repr(record)
    if len(text) > SHOWN_CHARACTERS:
        return f"{text[:SHOWN_CHARACTERS]}... ({len(text)} characters in all)"
    return text


OnError: TypeAlias = Literal["fail", "skip", "dead_letter"]


def checked_setting(name: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    """Return `value` if it is allowed; raise a `ConfigurationError` otherwise."""
    if value not in allowed:
        msg = f"{name}={value!r} is not allowed: use one of {', '.join(map(repr, allowed))}"
        raise ConfigurationError(msg)
    return value


class BadRecords:
    """Skips or collects the bad records of one poll, or fails."""

    def __init__(self, on_error: OnError) -> None:
        self._on_error = on_error
        self._skipped = 0
        self._letters: list[DeadLetter] = []

    def report(self, record: Any, error: str, origin: str) -> None:
        """Take one bad record; raises `UnreadableInputError` with `on_error="fail"`."""
        if self._on_error == "fail":
            msg = (
                f"{origin}: {error}; the record is {shown(record)}. Repair the file, or leave such records "
                'out with on_error="skip" or on_error="dead_letter"'
            )
            raise UnreadableInputError(msg)
        if self._on_error == "skip":
            self._skipped += 1
        else:
            self._letters.append(DeadLetter(record, error, origin))

    def polled(self, good: Batch | None) -> Polled[Any]:
        return Polled(good if good else None, tuple(self._letters), self._skipped)
