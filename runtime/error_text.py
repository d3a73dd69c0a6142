"""Texts of errors that users' code has raised: always present, bounded, and safe for every output.

An exception is a user's object. Its `__str__` may raise. Its message may have 50 MB, lone surrogates, which
JSON can't hold, or control sequences of terminals. Its chain of causes may be a cycle. The failure must be
reported anyway. So no function here raises, and every text has a limit.
"""

from __future__ import annotations

import re
import traceback
from types import TracebackType
from typing import Any, Final

from penstock.runtime.errors import PenstockError
from penstock.runtime.redaction import redacted

#: Longest message of one error, in characters.
LONGEST_MESSAGE: Final = 4_000
#: Longest traceback, in characters.
LONGEST_TRACEBACK: Final = 6_000
#: Maximum length of a bad record in a message, in characters.
SHOWN_CHARACTERS: Final = 200
#: Ratio of the text that is searched for secrets to the text that is shown.
_SEEN_FOR_SECRETS: Final = 4
#: Maximum number of a group's errors in its text.
_OF_GROUP: Final = 3

#: Characters that control a terminal, can't be in JSON, or reorder the text around them. Tab and line feed
#: are allowed.
_UNFIT: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")

#: Characters that a terminal obeys or can't encode: control characters except tab and line feed, marks of the
#: writing direction, lone surrogates.
_OBEYED: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def error_text(error: BaseException, most: int = LONGEST_MESSAGE) -> str:
    """An error in one paragraph: its class and its message; for a group, also its first errors.

    Example:
        >>> error_text(ValueError("no number")), error_text(KeyError())
        ('ValueError: no number', 'KeyError')
    """
    text = message_of(error, most)
    name = _class_name(error)
    text = f"{name}: {text}" if text else name
    if isinstance(error, BaseExceptionGroup):
        text += f": {_errors_of(error, most)}"
    return shortened(text, most)


def cause_text(error: BaseException) -> str:
    """Like `error_text`, but an error of Penstock gives only its message."""
    return message_of(error) if isinstance(error, PenstockError) else error_text(error)


def _errors_of(group: BaseExceptionGroup[Any], most: int) -> str:
    try:
        errors = tuple(group.exceptions)
    except BaseException as other:
        return f"(its errors are not available: reading them raised {_class_name(other)})"
    texts = []
    for error in errors[:_OF_GROUP]:
        name, text = _class_name(error), message_of(error, most // (2 * _OF_GROUP))
        texts.append(f"{name}: {text}" if text else name)
    return "; ".join([*texts, "..."] if len(errors) > _OF_GROUP else texts)


def message_of(error: BaseException, most: int = LONGEST_MESSAGE) -> str:
    """The message of an error, or the reason why its message is not available."""
    try:
        text = str(error)
    except BaseException as other:
        return f"(its text is not available: str() raised {_class_name(other)})"
    return fit_text(text, most)


def traceback_text(error: BaseException, trace: TracebackType | None = None) -> str:
    """The traceback as Python prints it, with all causes; `trace` replaces the error's own traceback."""
    try:
        lines = traceback.format_exception(type(error), error, trace or error.__traceback__)
    except BaseException as other:  # attributes of the user's exception may raise
        frames = traceback.format_tb(trace or error.__traceback__)
        why = f"(its causes are not available: reading them raised {_class_name(other)})"
        lines = ["Traceback (most recent call last):\n", *frames, f"{error_text(error)}\n{why}\n"]
    return fit_text("".join(lines), LONGEST_TRACEBACK)


def fit_text(text: str, most: int) -> str:
    """A text of at most `most` characters that fits every output, without secrets or control characters."""
    # Half a secret can't be recognised, so the first cut lies far from the text that stays.
    text = shortened(redacted(shortened(text, _SEEN_FOR_SECRETS * most)), most)
    if text.isprintable():
        return text
    return shortened(escaped(text, _UNFIT), most)


def escaped(text: str, unfit: re.Pattern[str] = _OBEYED) -> str:
    """Escape the characters that a terminal obeys instead of showing."""
    return unfit.sub(lambda found: ascii(found[0])[1:-1], text)


def shortened(text: str, most: int) -> str:
    """Cut the middle out of a text of more than `most` characters; `most` must be at least a few dozen.

    The beginning of a traceback shows the call, and its end shows the error.
    """
    if len(text) <= most:
        return text
    note = f"\n... ({len(text):,} characters left out) ...\n"
    kept = max(most - len(note), 0)
    head = kept // 4 if kept > 8 else kept
    tail = kept - head
    note = f"\n... ({len(text) - kept:,} characters left out) ...\n"
    return f"{text[:head]}{note}{text[len(text) - tail :]}"


def _class_name(error: BaseException) -> str:
    return fit_text(type(error).__name__, 200)


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
