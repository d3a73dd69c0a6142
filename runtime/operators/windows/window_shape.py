"""What windows an operator has, as far as its state depends on it.

It is in snapshots. Windows that begin or end elsewhere are different windows. Taken for those of the program,
they would come out with only some of their records, or with a wrong start.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from penstock.runtime.errors import StateMismatchError
from penstock.runtime.operators.operator import SavedList
from penstock.runtime.snapshot.handles import RedistributionMode
from penstock.runtime.time.windows import WindowAssigner, slide_of


@dataclass(frozen=True, slots=True)
class WindowShape:
    """Length, beginnings and contents of windows.

    Attributes:
        size: Microseconds from start to end.
        keeps: What they keep, in words.
        slide: Microseconds from one start to the next; `None` where the assigner does not say.
        offset: The first start that is not before the epoch; `None` likewise.

    Example:
        >>> print(WindowShape(10_000_000, "all records", 5_000_000, 0))
        0:00:10 long, begin every 0:00:05 with offset 0:00:00 and keep all records
    """

    size: int
    keeps: str
    slide: int | None = None
    offset: int | None = None

    @classmethod
    def of(cls, assigner: WindowAssigner, keeps: str) -> WindowShape:
        """That of an assigner's windows."""
        slide, offset = slide_of(assigner), getattr(assigner, "offset", None)
        if slide is None or not isinstance(offset, int):
            return cls(assigner.size, keeps, slide)
        return cls(assigner.size, keeps, slide, offset % slide)

    @property
    def saved(self) -> tuple[Any, ...]:
        """What a snapshot keeps."""
        return self.size, self.keeps, self.slide, self.offset

    def state(self) -> SavedList:
        """What a snapshot keeps, as a list state that all subtasks get."""
        return SavedList([self.saved], RedistributionMode.BROADCAST)

    def check(self, restored: Iterable[tuple[Any, ...]]) -> None:
        """Refuse windows of another shape; what one of the two does not say is no difference.

        Args:
            restored: What snapshots kept; older ones only size and contents.

        Raises:
            StateMismatchError: They are others; names both.
        """
        for saved in restored:
            old = WindowShape(*saved)
            pairs = zip(old.saved, self.saved, strict=True)
            if any(was != now for was, now in pairs if None not in (was, now)):
                msg = (
                    f"the restored windows are {old}, those of this program are {self}. "
                    "Give the operator a new id, or leave the windows alone"
                )
                raise StateMismatchError(msg)

    def __str__(self) -> str:
        parts = [f"{timedelta(microseconds=self.size)} long"]
        if self.slide is not None:
            parts.append(f"begin every {timedelta(microseconds=self.slide)}")
        if self.offset is not None:
            parts[-1] += f" with offset {timedelta(microseconds=self.offset)}"
        return f"{', '.join(parts)} and keep {self.keeps}"
