"""`IntervalJoin`: decides which rows of two streams match by time, and how long each is kept.

A left and a right row match if their keys are equal and `left + lower <= right <= left + upper`, both ends
included. A row whose timestamp is not after the watermark is late and is not joined. So a left row can match
new right rows only while `left + upper` is after the watermark. A right row can match new left rows only
while `right - lower` is after the watermark. After that the row *expires*: it is deleted. An outer or anti
join then emits it alone if it had no partner.

A pair has the later timestamp of its two rows, as in Flink. One of the rows has just arrived and is not late,
so this timestamp is after the watermark. A row that is emitted alone has its own timestamp. This timestamp
may be older than the watermark, by at most the time for which the row was kept. So the output's watermark
stays that far behind.

| how | pairs | rows alone |
| --- | --- | --- |
| inner | all | none |
| left, right, full | all | rows of the left, right or both sides without a partner, when they expire |
| semi | none | left rows, at their first partner |
| anti | none | left rows without a partner, when they expire |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock.runtime.errors import PenstockError
from penstock.runtime.record.elements import END_OF_TIME, Watermark

_MOMENTS: Final = np.iinfo(np.int64)

#: Kinds of joins.
How: TypeAlias = Literal["inner", "left", "right", "full", "semi", "anti"]

#: Number of an input.
Side: TypeAlias = Literal[0, 1]

LEFT: Final[Side] = 0
RIGHT: Final[Side] = 1

#: Names of the sides, for tags and counters.
SIDES: Final = "left", "right"

#: Name of the list state with the reached watermark.
REACHED: Final = "reached"

#: Sides whose rows are emitted alone when they expire without a partner.
_ALONE: Final[dict[How, tuple[Side, ...]]] = {
    "inner": (),
    "left": (LEFT,),
    "right": (RIGHT,),
    "full": (LEFT, RIGHT),
    "semi": (),
    "anti": (LEFT,),
}


@dataclass(frozen=True, slots=True)
class IntervalJoin:
    """The kind of join, and the bounds of the right timestamp minus the left one, in microseconds.

    Example:
        >>> join = IntervalJoin(-5, 10, "left")
        >>> join.distances(0), join.distances(1)
        ((-5, 10), (-10, 5))
        >>> join.expired(0, 110), join.expired(1, 105), join.output_watermark(Watermark(50))
        (100, 100, Watermark(timestamp=40))
    """

    lower: int
    upper: int
    how: How = "inner"

    def __str__(self) -> str:
        lower, upper = (bound / 1_000_000 for bound in (self.lower, self.upper))
        return f"how={self.how!r}, within=({lower}, {upper})"

    def distances(self, side: Side) -> tuple[int, int]:
        """Microseconds from a row of this side to its earliest and its latest possible partner."""
        return (self.lower, self.upper) if side == LEFT else (-self.upper, -self.lower)

    def kept(self, side: Side) -> int:
        """Microseconds from a row's timestamp to the watermark at which it expires; may be negative."""
        return self.upper if side == LEFT else -self.lower

    def expired(self, side: Side, watermark: int) -> int:
        """The latest timestamp of the rows that have expired at a watermark."""
        if watermark == END_OF_TIME:
            return watermark
        return min(max(watermark - self.kept(side), -END_OF_TIME), END_OF_TIME)

    def comes_alone(self, side: Side) -> bool:
        """Whether a row of this side is emitted when it expires without a partner."""
        return side in _ALONE[self.how]

    @property
    def emits_pairs(self) -> bool:
        return self.how not in ("semi", "anti")

    @property
    def marks(self) -> tuple[Side, ...]:
        """Sides whose rows in state are marked when they get a partner."""
        return (LEFT,) if self.how == "semi" else _ALONE[self.how]

    @property
    def delay(self) -> int:
        """Microseconds by which the output's watermark stays behind the input's."""
        return max((0, *(self.kept(side) for side in self.marks)))

    def output_watermark(self, watermark: Watermark) -> Watermark:
        end = watermark.timestamp == END_OF_TIME
        return watermark if end else Watermark(max(watermark.timestamp - self.delay, -END_OF_TIME))


def other_side(side: Side) -> Side:
    return RIGHT if side == LEFT else LEFT


def no_timestamps(side: Side) -> PenstockError:
    return PenstockError(
        f"the {SIDES[side]} records have no timestamps, but a join compares timestamps; call "
        "assign_timestamps_and_watermarks(...) on both streams before join"
    )


def has_null(key: object) -> bool:
    """Whether a key is `None` or has a part that is `None`; such a key matches nothing."""
    return key is None or (type(key) is tuple and None in key)


def moved(times: NDArray[np.int64], by: int) -> NDArray[np.int64]:
    """Shift times; results stay within the range of int64."""
    if by < 0:
        return np.maximum(times, _MOMENTS.min - by) + by
    return np.minimum(times, _MOMENTS.max - by) + by
