"""What the steps behind a source need of its records, for sources that can leave out the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from penstock.runtime.operators.protocols import Source


@dataclass(frozen=True, eq=False)
class NeededColumns:
    """What is needed of the records of one source; all that is not needed may be there, too.

    Attributes:
        names: Columns that are needed by name; `None` when all are.
        expressions: The columns that these look at are needed, too.
        wanted: Only rows for which this is true are needed; `None` for all rows. Whoever drops the others
            still does so.
    """

    names: tuple[str, ...] | None = None
    expressions: tuple[pc.Expression, ...] = ()
    wanted: pc.Expression | None = None

    @property
    def is_all(self) -> bool:
        """Whether nothing may be left out."""
        return self.names is None and self.wanted is None


@runtime_checkable
class ReadsInPart(Protocol):
    """Optional for a source: it leaves out columns and records that no step needs."""

    def reading(self, needed: NeededColumns) -> Source[Any]:
        """A source of the same records with at least what is needed.

        The splits must be the same ones: a job that is started from a savepoint may need other columns.
        """
        ...
