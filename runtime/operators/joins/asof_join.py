"""`AsofJoin`: the right row of a key that belongs to a left row by time, and when that is known.

A left row gets at most one right row of its key. *Backward* takes the newest one up to its time. *Forward*
takes the first one from its time on. *Nearest* takes the nearer one of both, and the earlier one if both are
equally near. Of right rows with one timestamp, the one that came last counts.

A row at or before the watermark is late and takes no part. So everything at or before the watermark is known,
and a left row is *decided* as soon as later right rows can't change its partner:

| strategy | decided when the watermark reaches |
| --- | --- |
| backward | the left row |
| forward | the partner, or the end of the tolerance |
| nearest | the partner, or the moment that is as far ahead as the earlier partner is behind |

The end of time decides every row. The output has the left row's timestamp. So the output's watermark stays
before the earliest left row that is not decided.

*State.* Rows after the watermark wait. Of the right rows up to the watermark, only the newest one of each key
can still be a partner. Only left rows that look back take it. So each key has one *version*. With a tolerance
the version leaves when no left row can reach it any more.

A *temporal* join looks back, and a right row may be a delete. From then on its key has no version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from penstock.runtime.operators.joins.interval_join import How
from penstock.runtime.record.elements import END_OF_TIME

Strategy: TypeAlias = Literal["backward", "forward", "nearest"]

#: Kinds of as-of joins: whether left rows without a partner are emitted.
AsofHow: TypeAlias = Literal["left", "inner"]

#: Name of the table with the version of each key.
VERSIONS: Final = "join_versions"


@dataclass(frozen=True, slots=True)
class AsofJoin:
    """The rules of one as-of join.

    Attributes:
        tolerance: Greatest distance of a partner in microseconds; `None` for any.
        is_exact: Whether a right row with the left row's timestamp may be its partner; always with *nearest*.

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
        """Greatest distance of a partner in microseconds."""
        return END_OF_TIME if self.tolerance is None else self.tolerance

    @property
    def kept(self) -> int | None:
        """Microseconds from a version to the watermark at which no left row can reach it; `None` for never.

        A left row that looks both ways waits for another tolerance after its own time, and may then still
        choose the version.
        """
        if self.tolerance is None:
            return None
        return 2 * self.tolerance if self.strategy == "nearest" else self.tolerance
