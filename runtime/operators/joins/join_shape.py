"""`JoinShape`: the settings of a join on which the rows in its state depend.

A join refuses restored rows of a join with other settings. With a wider interval, rows that have already
expired would be missing. Another kind of join would not know which rows had a partner. Keys from other
columns have nothing in common with the keys of new rows, even if they are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from penstock.runtime.errors import StateMismatchError
from penstock.runtime.operators.operator import SavedList
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.snapshot.handles import RedistributionMode

#: Name of the list state with the shape.
SHAPE: Final = "join"


class JoinShape(NamedTuple):
    """The rules and the keys of a join; snapshots hold it.

    Attributes:
        rules: The rules that decide which rows are in state, as text.
        left: The columns of the left key; `None` for a key function.
        right: The columns of the right key; `None` for a key function.

    Example:
        >>> print(JoinShape.of("how='left'", (ColumnKey(("k",)), len)))
        how='left' on 'k' = a function
    """

    rules: str
    left: tuple[str, ...] | None
    right: tuple[str, ...] | None

    @classmethod
    def of(cls, rules: object, keys: Iterable[Callable[[Any], Any]]) -> JoinShape:
        left, right = (key.names if isinstance(key, ColumnKey) else None for key in keys)
        return cls(str(rules), left, right)

    def state(self) -> SavedList:
        return SavedList([tuple(self)], RedistributionMode.BROADCAST)

    def check(self, restored: Iterable[tuple[Any, ...]]) -> None:
        """Refuse restored rows of another join; a key function can't be compared."""
        for saved in restored:
            old = JoinShape(*saved)
            if any(was != now for was, now in zip(old, self, strict=True) if None not in (was, now)):
                msg = (
                    f"the restored rows belong to a join with {old}, but this program's join has {self}. "
                    "Give the operator a new id, or change the join back"
                )
                raise StateMismatchError(msg)

    def __str__(self) -> str:
        sides = (self.left, self.right)
        keys = ("a function" if names is None else ", ".join(map(repr, names)) for names in sides)
        return f"{self.rules} on {' = '.join(keys)}"
