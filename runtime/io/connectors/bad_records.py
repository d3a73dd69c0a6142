"""How a source handles records that it can't read: fail, skip, or send to the dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.errors import UnreadableInputError, shown
from penstock.runtime.operators.protocols import DeadLetter, Polled
from penstock.runtime.record.elements import RowBatch

OnError: TypeAlias = Literal["fail", "skip", "dead_letter"]

_ALLOWED: Final = get_args(OnError)


def checked_on_error(value: str) -> OnError:
    """Return `value` when it is one of the allowed settings.

    Raises:
        ConfigurationError: It is not.

    Example:
        >>> checked_on_error("skip")
        'skip'
    """
    for allowed in _ALLOWED:
        if value == allowed:
            return allowed  # type: ignore[no-any-return]
    msg = f"on_error={value!r} is not a setting: use one of {', '.join(map(repr, _ALLOWED))}"
    raise ConfigurationError(msg)


class BadRecords:
    """Takes the bad records of one poll.

    Args:
        on_error: What to do with them.
    """

    def __init__(self, on_error: OnError) -> None:
        self._on_error = on_error
        self._skipped = 0
        self._letters: list[DeadLetter] = []

    def report(self, record: Any, error: str, origin: str) -> None:
        """Take one bad record.

        Raises:
            UnreadableInputError: With `on_error="fail"`.
        """
        if self._on_error == "fail":
            msg = (
                f"{origin}: {error}; the record is {shown(record)}. Repair the file, or read on past such "
                'records with on_error="skip" or on_error="dead_letter"'
            )
            raise UnreadableInputError(msg)
        if self._on_error == "skip":
            self._skipped += 1
        else:
            self._letters.append(DeadLetter(record, error, origin))

    def polled(self, rows: Sequence[Any]) -> Polled[Any]:
        """The outcome of the poll: its good rows and what was taken here."""
        return Polled(RowBatch(rows) if rows else None, tuple(self._letters), self._skipped)
