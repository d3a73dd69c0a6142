"""`ColumnNames`: finds names of columns that records do not have.

A name that a dict lacks is null, since fields of records may be optional. So a misspelt name would silently
give nulls. A name that no record of a whole batch has is probably misspelt.

Only the first batch of an operator is checked, so later batches cost nothing. A job that is restored has run
before, and an optional field may be missing from its first batch. There the check only logs a warning,
because an error would repeat at each restart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from penstock.runtime.errors import PenstockError
from penstock.runtime.names import nearest_name
from penstock.runtime.record.column_key import ColumnKey

logger = logging.getLogger(__name__)

#: Maximum number of names in a message.
_MOST_SHOWN: Final = 20

_ADVICE: Final = "For an optional field, set it to None with map before, or use a function"


class ColumnNames:
    """The columns that an operator reads from records that are dicts.

    Args:
        call: Name of the operator in messages.
        names: Columns that the records must have.
        advice: Sentence for users with an optional field.

    Example:
        >>> ColumnNames("filter", ["prise"]).check([{"price": 5}])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        penstock.runtime.errors.PenstockError: filter: no record of a batch has a column 'prise'...
    """

    def __init__(self, call: str, names: Iterable[str], advice: str = _ADVICE) -> None:
        self._call = call
        self._advice = advice
        self._names = tuple(dict.fromkeys(names))
        self._is_checked = not self._names
        self._only_warns = False

    @classmethod
    def of_key(cls, key_selector: Callable[[Any], Any] | None) -> ColumnNames:
        """The columns of a key; none if the key is a function."""
        return cls("key_by", key_selector.names if isinstance(key_selector, ColumnKey) else ())

    def only_warn(self) -> None:
        """Log a warning instead of raising an error, in an operator that was restored."""
        self._only_warns = True

    def check(self, rows: Sequence[Any]) -> None:
        """Check the operator's first batch; records that are not dicts are left to the operator's own check.

        Raises:
            PenstockError: No record has one of the columns; the message suggests the nearest existing name.
        """
        if self._is_checked or not rows:
            return
        self._is_checked = True
        if not all(isinstance(row, dict) for row in rows):
            return
        for name in self._names:
            if not any(name in row for row in rows):
                problem = self._problem(name, rows)
                if not self._only_warns:
                    raise PenstockError(problem)
                logger.warning("%s", problem)

    def _problem(self, name: str, rows: Sequence[dict[Any, Any]]) -> str:
        known = list(dict.fromkeys(str(other) for row in rows for other in row))
        shown = ", ".join(map(repr, known[:_MOST_SHOWN])) or "no columns"
        more = ", ..." if len(known) > _MOST_SHOWN else ""
        hint = nearest_name(name, known) or "."
        return (
            f"{self._call}: no record of a batch has a column {name!r}: they have {shown}{more}{hint} "
            f"{self._advice}"
        )
