"""`AsofJoin`: the rules that give a left row its partner by time, and say when the partner is decided.

A left row gets at most one partner: a right row with the same key. *Backward* takes the newest right row up
to the left row's timestamp. *Forward* takes the first right row at or after this timestamp. *Nearest* takes
the nearer row of these two, and the earlier row if both are equally near. Of right rows with the same
timestamp, only the last to arrive counts.

A row whose timestamp is not after the watermark is late and is not joined. So all rows up to the watermark
are known. A left row is *decided* as soon as later right rows can't change its partner:

| strategy | decided when the watermark reaches |
| --- | --- |
| backward | the left row |
| forward | the partner, or the end of the tolerance |
| nearest | a later right row, the end of the tolerance, or a time no nearer than the earlier right row |

A watermark at the end of time decides every row. An output row has the left row's timestamp. So the output's
watermark stays before the earliest undecided left row.

*State.* Rows after the watermark wait. Of the right rows up to the watermark, only the newest row of each key
can still become a partner, in joins that look back. This row is the key's *version*. With a tolerance, a
version is deleted when no left row can reach it any more.

A *temporal* join looks back. Its right rows may be deletes. A delete removes the version of its key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from penstock.runtime.operators.joins.interval_join import How
from penstock.runtime.record.elements import END_OF_TIME

Strategy: TypeAlias = Literal["backward", "forward", "nearest"]

#: Kinds of as-of joins. Only "left" emits left rows without a partner.
AsofHow: TypeAlias = Literal["left", "inner"]

#: Name of the table with the version of each key.
VERSIONS: Final = "join_versions"


@dataclass(frozen=True, slots=True)
class AsofJoin:
    """The rules of one as-of join.

    Attributes:
        tolerance: Maximum time between a left row and its partner, in microseconds; `None` for no limit.
        is_exact: Whether a right row with the left row's timestamp may be its partner; true for *nearest*.

    Example:
        >>> AsofJoin("nearest", 10).kept, AsofJoin("backward", 10).kept, AsofJoin("backward", None).kept
        (20, 10, None)
    """

    strategy: Strategy = "backward"
    tolerance: int | None = None
    is_exact: bool = True
    how: How = "left"

    def __str__(self) -> str:
        """The rules that decide which rows are in state."""
        seconds = None if self.tolerance is None else self.tolerance / 1_000_000
        return f"strategy={self.strategy!r}, tolerance={seconds}"

    @property
    def looks_back(self) -> bool:
        return self.strategy != "forward"

    @property
    def looks_ahead(self) -> bool:
        return self.strategy != "backward"

    @property
    def emits_alone(self) -> bool:
        """Whether left rows without a partner are emitted."""
        return self.how == "left"

    @property
    def furthest(self) -> int:
        """`tolerance`, or `END_OF_TIME` for no limit."""
        return END_OF_TIME if self.tolerance is None else self.tolerance

    @property
    def kept(self) -> int | None:
        """Microseconds from a version to the watermark at which no left row can reach it; `None` for never.

        With *nearest*, a left row waits for another tolerance after its own timestamp, and may then still
        get the version.
        """
        if self.tolerance is None:
            return None
        return 2 * self.tolerance if self.strategy == "nearest" else self.tolerance
