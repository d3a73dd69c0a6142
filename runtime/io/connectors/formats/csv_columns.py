"""What becomes of a CSV row: which of its fields are wanted, under which names, as which types."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from penstock.runtime.io.connectors.errors import UnreadableInputError, shown

_INTEGER: Final = re.compile(r"[ \t]*-?[0-9]+[ \t]*")
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


def to_int(text: str) -> int:
    """Read an integer of 64 bits as a column of Arrow does; Python's `int` also takes `1_000` and `+5`.

    Raises:
        ValueError: It is none.

    Example:
        >>> to_int(" -7")
        -7
    """
    value = int(text)
    if not (_INTEGER.fullmatch(text) and -(1 << 63) <= value < 1 << 63):
        msg = f"{text!r} is no integer of 64 bits"
        raise ValueError(msg)
    return value


def to_float(text: str) -> float:
    """Read a float as a column of Arrow reads it; Python's `float` also takes `1_000`.

    Raises:
        ValueError: It is none.
    """
    if "_" in text or not text.isascii():
        msg = f"{text!r} is no number"
        raise ValueError(msg)
    return float(text)


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
        nulls: Texts that are `None` in each of them.
    """

    width: int
    names: tuple[str, ...]
    fields: tuple[int, ...] | None
    converters: tuple[Callable[[str], Any] | None, ...]
    nulls: tuple[frozenset[str], ...]

    @staticmethod
    def without_header(
        names: Sequence[str], types: Mapping[str, Callable[[str], Any]], null_values: Iterable[str] = ()
    ) -> ColumnPlan:
        """The plan of files whose columns are named by the source."""
        return ColumnPlan(len(names), tuple(names), None, *_converted(names, types, null_values))

    @staticmethod
    def of_header(
        path: str,
        header: Sequence[str],
        wanted: Sequence[str] | None,
        types: Mapping[str, Callable[[str], Any]],
        null_values: Iterable[str] = (),
    ) -> ColumnPlan:
        """The plan of a file that names its columns itself.

        Raises:
            UnreadableInputError: A wanted column is not in the header, or there twice.
        """
        places = {name: at for at, name in reversed(list(enumerate(header)))}
        missing = [name for name in (*(wanted or ()), *types) if name not in places]
        if missing:
            msg = f"{path}: the header has no column {missing}; it has {shown(list(header))}"
            raise UnreadableInputError(msg)
        counts = Counter(header) if len(places) < len(header) else {}
        twice = sorted({name for name in (header if wanted is None else wanted) if counts.get(name, 1) > 1})
        if twice:
            msg = (
                f"{path}: the header has {twice} more than once. Name the columns that you want with "
                "columns=[...] without these, or name all of them yourself with skip_rows=1, header=False "
                "and columns=[...]"
            )
            raise UnreadableInputError(msg)
        if wanted is None:
            return ColumnPlan(len(header), tuple(header), None, *_converted(header, types, null_values))
        fields = tuple(places[name] for name in wanted)
        return ColumnPlan(len(header), tuple(wanted), fields, *_converted(wanted, types, null_values))

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
        if self.fields is None and not any(self.converters) and not any(self.nulls):
            return [dict(zip(names, row, strict=False)) for row in rows]
        columns: list[Sequence[Any]] = list(zip(*rows, strict=False))
        if self.fields is not None:
            columns = [columns[field] for field in self.fields]
        try:
            columns = [
                _values(column, convert, nulls)
                for column, convert, nulls in zip(columns, self.converters, self.nulls, strict=True)
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
        for name, text, convert, nulls in zip(self.names, texts, self.converters, self.nulls, strict=True):
            try:
                (out[name],) = _values((text,), convert, nulls)
            except Exception as error:
                msg = f"column {name!r} can't be converted from {shown(text)}: {error}"
                raise BadRowError(msg) from error
        return out


def _values(
    texts: Sequence[str], convert: Callable[[str], Any] | None, nulls: frozenset[str]
) -> Sequence[Any]:
    if convert is not None:
        return [None if text in nulls else convert(text) for text in texts]
    return [None if text in nulls else text for text in texts] if nulls else texts


def _converted(
    names: Sequence[str], types: Mapping[str, Callable[[str], Any]], null_values: Iterable[str]
) -> tuple[tuple[Callable[[str], Any] | None, ...], tuple[frozenset[str], ...]]:
    """The converters of columns, and what is null in each; an empty field is, unless it is text."""
    converters, nulls = _converters(names, types), frozenset(null_values)
    return converters, tuple(nulls if convert is None else nulls | {""} for convert in converters)


def _converters(
    names: Sequence[str], types: Mapping[str, Callable[[str], Any]]
) -> tuple[Callable[[str], Any] | None, ...]:
    if not types:
        return (None,) * len(names)
    special: dict[Any, Callable[[str], Any] | None] = {
        None: None,
        str: None,
        bool: to_bool,
        int: to_int,
        float: to_float,
    }
    chosen = (types.get(name) for name in names)
    return tuple(special.get(each, each) for each in chosen)
