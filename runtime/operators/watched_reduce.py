"""Finds out whether a reduce function changes its first argument in place.

That argument is also something else: what was emitted before, or a record that is in other windows, too. So a
change in place makes other results wrong, and nobody would see it. The first calls of an attempt are watched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from operator import is_not
from typing import Any, Final

from penstock.runtime.errors import PenstockError

#: How many calls of the function in each attempt are watched for changes in place.
WATCHED_CALLS: Final = 100


class WatchedReduce:
    """A reduce function whose first calls are watched.

    Args:
        function: From the value so far and a record to the new value.
        also_is: What else the first argument is, for the error.

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

    def __init__(self, function: Callable[[Any, Any], Any], also_is: str) -> None:
        self._function = function
        self._also_is = also_is
        self._watched = 0

    @property
    def to_call(self) -> Callable[[Any, Any], Any]:
        """What to call for the next batch: the function itself once it has been watched enough."""
        return self._function if self._watched >= WATCHED_CALLS else self._watch

    def _watch(self, value: Any, row: Any) -> Any:
        """Call the user's function and see whether it changes the value in place."""
        self._watched += 1
        before = _parts(value)
        result = self._function(value, row)
        after = _parts(value)
        if len(before) != len(after) or any(map(is_not, before, after)):
            msg = (
                f"it changed its first argument in place, which is also {self._also_is}; "
                "return a new value instead, for example {**a, ...}"
            )
            raise PenstockError(msg)
        return result


def _parts(value: Any) -> list[Any]:
    """What a mutable value consists of, one level deep; nothing for all that can't be looked into."""
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, list | set | bytearray):
        return list(value)
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, f.name, None) for f in fields(value)]
    return []
