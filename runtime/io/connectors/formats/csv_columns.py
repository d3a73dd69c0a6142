"""What becomes of a CSV row: which of its fields are wanted, under which names, as which types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.runtime.io.connectors.errors import ConnectorError, shown

_TRUTH = {"true": True, "1": True, "false": False, "0": False}


class BadRowError(ValueError):
    """A row that can't be converted; the message says why."""


def to_bool(text: str) -> bool:
    """Read `true`, `false`, `1` or `0`, in any case (`bool("false")` would be true).

    Raises:
        ValueError: It is none of them.

    Example:
        >>> to_bool("False"), to_bool("1")
        (False, True)
    """
    value = _TRUTH.get(text.strip().lower())
    if value is None:
        msg = f"{text!r} is neither true nor false"
        raise ValueError(msg)
    return value


class RowPlan(Protocol):
    """Converts the rows of one file."""

    def convert(self, rows: Sequence[Sequence[str]]) -> list[Any] | None:
        """Convert rows at once, leaving out blank ones; `None` if any of them is bad."""
        ...

    def convert_row(self, row: Sequence[str]) -> Any:
        """Convert one row.

        Raises:
            BadRowError: It has too many or too few fields, or a field can't be converted.
        """
        ...


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """How the rows of one file become dicts.

    Attributes:
        width: How many fields a row has.
        names: Names of the wanted columns.
        fields: Their indices in a row; `None` when all are wanted as they stand.
        converters: For each wanted column what makes a value of its text; `None` for text.
    """

    width: int
    names: tuple[str, ...]
    fields: tuple[int, ...] | None
    converters: tuple[Callable[[str], Any] | None, ...]

    @staticmethod
    def without_header(names: Sequence[str], types: Mapping[str, Callable[[str], Any]]) -> ColumnPlan:
        """The plan of files whose columns are named by the source."""
        return ColumnPlan(len(names), tuple(names), None, _converters(names, types))

    @staticmethod
    def of_header(
        path: str,
        header: Sequence[str],
        wanted: Sequence[str] | None,
        types: Mapping[str, Callable[[str], Any]],
    ) -> ColumnPlan:
        """The plan of a file that names its columns itself.

        Raises:
            ConnectorError: A name stands twice in the header, or a wanted or typed column is not in it.
        """
        if len(set(header)) < len(header):
            twice = sorted({name for name in header if header.count(name) > 1})
            msg = f"{path}: the header has {twice} twice: rename, or say header=False with columns=[...]"
            raise ConnectorError(msg)
        missing = [name for name in (*(wanted or ()), *types) if name not in header]
        if missing:
            msg = f"{path}: the header has no column {missing}; it has {shown(list(header))}"
            raise ConnectorError(msg)
        if wanted is None:
            return ColumnPlan(len(header), tuple(header), None, _converters(header, types))
        fields = tuple(header.index(name) for name in wanted)
        return ColumnPlan(len(header), tuple(wanted), fields, _converters(wanted, types))

    def convert(self, rows: Sequence[Sequence[str]]) -> list[dict[str, Any]] | None:
        """Convert rows at once, leaving out blank ones; `None` if any of them is bad."""
        lengths = set(map(len, rows))
        if 0 in lengths:
            lengths.discard(0)
            rows = [row for row in rows if row]
        if not rows:
            return []
        if lengths != {self.width}:
            return None
        names = self.names
        if self.fields is None and not any(self.converters):
            return [dict(zip(names, row, strict=False)) for row in rows]
        columns: list[Sequence[Any]] = list(zip(*rows, strict=False))
        if self.fields is not None:
            columns = [columns[field] for field in self.fields]
        try:
            columns = [
                column if convert is None else [convert(text) if text else None for text in column]
                for column, convert in zip(columns, self.converters, strict=True)
            ]
        except Exception:
            # Whatever a user's converter raises makes the row bad; convert_row says which one it is.
            return None
        return [dict(zip(names, values, strict=False)) for values in zip(*columns, strict=True)]

    def convert_row(self, row: Sequence[str]) -> dict[str, Any]:
        """Convert one row.

        Raises:
            BadRowError: It has too many or too few fields, or a field can't be converted.
        """
        if len(row) != self.width:
            msg = f"the row has {len(row)} fields, the file has {self.width} columns"
            raise BadRowError(msg)
        texts = row if self.fields is None else [row[field] for field in self.fields]
        out: dict[str, Any] = {}
        for name, text, convert in zip(self.names, texts, self.converters, strict=True):
            try:
                out[name] = text if convert is None else (convert(text) if text else None)
            except Exception as error:
                msg = f"column {name!r} can't be converted from {shown(text)}: {error}"
                raise BadRowError(msg) from error
        return out


def _converters(
    names: Sequence[str], types: Mapping[str, Callable[[str], Any]]
) -> tuple[Callable[[str], Any] | None, ...]:
    special: dict[Any, Callable[[str], Any] | None] = {None: None, str: None, bool: to_bool}
    chosen = (types.get(name) for name in names)
    return tuple(special.get(each, each) for each in chosen)
