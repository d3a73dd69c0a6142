"""`SavedRanking`: the arguments on which the state of a ranking depends.

A `top_n` of two records can't use the state of a `top_n` of three. Ranks of one column can't be compared with
ranks of another column. So each snapshot has the arguments, and a restore with other arguments is refused.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.runtime.errors import StateMismatchError
from penstock.runtime.operators.operator import OperatorContext, SavedList
from penstock.runtime.snapshot.handles import RedistributionMode

#: Name of the list state with the arguments.
RANKING: Final = "ranking"


class SavedRanking:
    """Arguments of a call, as names and values.

    Args:
        call: Name of the stream's method, for error messages.
        arguments: The arguments on which the state depends, and the format of the state.
    """

    def __init__(self, call: str, **arguments: str | int | bool | None) -> None:
        self._call = call
        self._arguments = arguments

    def check(self, context: OperatorContext) -> None:
        """Raise `StateMismatchError` if the restored state belongs to other arguments."""
        for saved in context.restored.get(RANKING, ()):
            before: dict[str, Any] = dict(saved)
            if before != self._arguments:
                names = [*before, *(name for name in self._arguments if name not in before)]
                differ = [name for name in names if before.get(name) != self._arguments.get(name)]
                was, now = (
                    ", ".join(f"{name}={of.get(name)!r}" for name in differ)
                    for of in (before, self._arguments)
                )
                msg = (
                    f"{self._call}: the restored state belongs to {was}. This program has {now}. Give the "
                    "operator a new id, or change the arguments back"
                )
                raise StateMismatchError(msg)

    def saved(self) -> SavedList:
        return SavedList([tuple(self._arguments.items())], RedistributionMode.BROADCAST)
