"""Finds out whether a reduce function changes its arguments in place.

They are also something else: what was emitted before, or records that are in other windows, too. So a change
in place makes other results wrong, and nobody would see it. The first calls of an attempt are watched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.user_code.changes_in_place import WATCHED_CALLS, Parts, is_changed, parts_of


class WatchedReduce:
    """A reduce function whose first calls are watched.

    Args:
        function: From the value so far and a record to the new value.
        also_is: What else the arguments are, for the error.
        both: Whether that is so for the record, too, not for the value so far alone.

    Example:
        >>> def appends(a, b):
        ...     a.append(b)
        ...     return a
        >>> try:
        ...     WatchedReduce(appends, "a record").to_call([1], 2)
        ... except PenstockError as error:
        ...     str(error)[:63]
        'it changed its first argument in place, which is also a record;'
    """

    def __init__(self, function: Callable[[Any, Any], Any], also_is: str, *, both: bool = False) -> None:
        self._function = function
        self._also_is = also_is
        self._both = both
        self._watched = 0

    @property
    def to_call(self) -> Callable[[Any, Any], Any]:
        """What to call for the next batch: the function itself once it has been watched enough."""
        return self._function if self._watched >= WATCHED_CALLS else self._watch

    def _watch(self, value: Any, row: Any) -> Any:
        """Call the user's function and see whether it changes its arguments in place."""
        if self._watched >= WATCHED_CALLS:  # in the middle of a batch
            return self._function(value, row)
        self._watched += 1
        first, second = parts_of(value), parts_of(row) if self._both else None
        result = self._function(value, row)
        self._check("first", value, first)
        if second is not None:
            self._check("second", row, second)
        return result

    def _check(self, which: str, argument: Any, before: Parts) -> None:
        if is_changed(argument, before):
            msg = (
                f"it changed its {which} argument in place, which is also {self._also_is}; "
                "return a new value instead, for example {**a, ...}"
            )
            raise PenstockError(msg)
