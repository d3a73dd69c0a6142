"""Errors of the built-in connectors."""

from __future__ import annotations

from typing import Any, Final

from penstock.runtime.errors import BadInputError, PenstockError

#: How much of a bad record a message shows, in characters.
SHOWN_CHARACTERS: Final = 200


class ConnectorError(PenstockError):
    """A source or sink can't go on; the message names the place, the record, and the way out."""


class BadRecordError(ConnectorError):
    """A record can't be read or written, and the connector was told to fail on that."""


class UnreadableInputError(BadRecordError, BadInputError):
    """Content of a file can't be read; the message names the file and the place."""


def shown(record: Any) -> str:
    """Show a record in a message, cut to a bounded length.

    Example:
        >>> shown("abc")
        "'abc'"
        >>> shown("x" * 500)[-35:]
        'xxxxxxxx... (500 characters in all)'
    """
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
