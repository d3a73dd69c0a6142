"""Finds out whether functions of overlapping windows change records in place.

A record is in several such windows, and each of them keeps the very same object. The first calls of an
attempt are watched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.user_code.changes_in_place import (
    WATCHED_CALLS,
    WATCHED_RECORDS,
    is_changed,
    parts_of,
)
from penstock.runtime.operators.user_code.result_collector import iterator_of


class WatchedWindow:
    """Calls a function of the user's and looks whether records have changed.

    Example:
        >>> def doubles(record):
        ...     record["n"] *= 2
        >>> record = {"n": 1}
        >>> try:
        ...     WatchedWindow().returned([record], lambda: doubles(record))
        ... except PenstockError as error:
        ...     str(error)[:55]
        'it changed a record in place, which may also be in othe'
    """

    def __init__(self) -> None:
        self._watched = 0

    @property
    def is_enough(self) -> bool:
        """Whether so many calls were watched that the functions may be called as they are."""
        return self._watched >= WATCHED_CALLS

    def returned(self, records: Sequence[Any], call: Callable[[], Any]) -> Any:
        """What the call returns.

        Raises:
            PenstockError: A record has changed.
        """
        if self.is_enough:  # in the middle of a batch
            return call()
        check = self._check_after(records)
        result = call()
        check()
        return result

    def used_up(self, records: Sequence[Any], call: Callable[[], Iterable[Any] | None]) -> Iterator[Any]:
        """What the call gives, record by record: it may be a generator, which runs while it is used up.

        Raises:
            PenstockError: A record has changed in the end.
        """
        check = self._check_after(records, ", or what reads its results did")
        result = call()
        if result is not None:
            yield from iterator_of(result)
        check()

    def _check_after(self, records: Sequence[Any], or_else: str = "") -> Callable[[], None]:
        self._watched += 1
        before = [(record, parts_of(record)) for record in records[:WATCHED_RECORDS]]

        def check() -> None:
            if any(is_changed(record, parts) for record, parts in before):
                msg = (
                    f"it changed a record in place, which may also be in other windows{or_else}; "
                    "make a new record instead, for example {**record, ...}"
                )
                raise PenstockError(msg)

        return check
