"""Errors of the built-in connectors, and the handling of unreadable records by a source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from penstock.runtime.error_text import shown as shown
from penstock.runtime.errors import (
    BadInputError,
    ConfigurationError,
    ConnectorError,
    SuppressRestartsError,
)
from penstock.runtime.errors import BadRecordError as BadRecordError
from penstock.runtime.operators.source import DeadLetter, Polled
from penstock.runtime.record.elements import Batch


class UnreadableInputError(BadRecordError, BadInputError):
    """The content of a file or a message can't be read; the error names the place of the record."""


class RefusedRecordError(BadRecordError, SuppressRestartsError):
    """A receiver refuses a record, and would refuse it again; the message shows the record."""


class OutputExistsError(ConnectorError, SuppressRestartsError):
    """A sink's destination has committed output of another job; the message names the place and a remedy."""


OnError: TypeAlias = Literal["fail", "skip", "dead_letter"]


def checked_setting(name: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    """Return `value` if it is allowed; raise a `ConfigurationError` otherwise."""
    if value not in allowed:
        msg = f"{name}={value!r} is not allowed: use one of {', '.join(map(repr, allowed))}"
        raise ConfigurationError(msg)
    return value


class BadRecords:
    """Skips or collects the bad records of one poll, or fails."""

    def __init__(self, on_error: OnError, advice: str = "Repair the file, or leave") -> None:
        self._on_error = on_error
        self._advice = advice
        self._skipped = 0
        self._letters: list[DeadLetter] = []

    def report(
        self, record: Any, error: str, origin: str, line: Callable[[], int | None] = lambda: None
    ) -> None:
        """Take one bad record; raises `UnreadableInputError` with `on_error="fail"`.

        Args:
            origin: Place of the record, such as `file:offset`.
            line: Returns the number of its line in the file, counted from 1; `None` if it is unknown.
        """
        if self._on_error == "fail":
            number = line()
            if number is not None:
                path, _, offset = origin.rpartition(":")
                origin = f"{path}, line {number} (byte {offset})"
            msg = (
                f"{origin}: {error}; the record is {shown(record)}. {self._advice} such records "
                'out with on_error="skip" or on_error="dead_letter"'
            )
            raise UnreadableInputError(msg)
        if self._on_error == "skip":
            self._skipped += 1
        else:
            self._letters.append(DeadLetter(record, error, origin))

    def polled(self, good: Batch | None) -> Polled[Any]:
        return Polled(good if good else None, tuple(self._letters), self._skipped)
