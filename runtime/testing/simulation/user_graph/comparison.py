"""Compares two outputs as multisets, and says what differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

#: Most rows of a difference that are shown.
_MOST_SHOWN: Final = 8

#: Most characters of a row that are shown.
_MOST_TEXT: Final = 120


@dataclass(frozen=True, slots=True)
class Difference:
    """What is different in an output.

    Attributes:
        missing: Rows that should be there; a row that is missing twice stands here twice.
        unexpected: Rows that should not be there, or not so often.
        detail: In words, where rows do not tell it.
    """

    missing: tuple[Any, ...] = ()
    unexpected: tuple[Any, ...] = ()
    detail: str = ""

    @property
    def is_loss(self) -> bool:
        """Whether something is missing, and not only there too often."""
        return bool(self.missing or self.detail)

    def lines(self) -> list[str]:
        """In words, a line for each kind of difference."""
        lines = [self.detail] if self.detail else []
        for what, rows in (("missing", self.missing), ("unexpected", self.unexpected)):
            if rows:
                more = f", and {len(rows) - _MOST_SHOWN} more" if len(rows) > _MOST_SHOWN else ""
                shown = ", ".join(_short(row) for row in rows[:_MOST_SHOWN])
                lines.append(f"{what}: {shown}{more}")
        return lines


def difference(expected: Any, actual: Any) -> Difference | None:
    """What differs between two outputs; `None` when nothing does.

    Lists, tuples and other collections are compared without regard to order; mappings and anything else as
    they are.

    Example:
        >>> difference([1, 2, 2], [2, 1, 3])
        Difference(missing=(2,), unexpected=(3,), detail='')
        >>> difference([{"a": 1}], [{"a": 1}]) is None
        True
    """
    if _has_rows(expected) and _has_rows(actual):
        return _rows_differ(expected, actual)
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        return _rows_differ(expected.items(), actual.items())
    if expected == actual:
        return None
    return Difference(detail=f"expected {_short(expected)}, got {_short(actual)}")


def _rows_differ(expected: Iterable[Any], actual: Iterable[Any]) -> Difference | None:
    wanted, found = list(expected), list(actual)
    missing, unexpected = _without(wanted, found), _without(found, wanted)
    return Difference(tuple(missing), tuple(unexpected)) if missing or unexpected else None


def _without(rows: list[Any], others: list[Any]) -> list[Any]:
    """The rows that are not among the others, as often as they are missing there."""
    left = Counter(map(_frozen, others))
    kept = []
    for row in rows:
        frozen = _frozen(row)
        if left[frozen]:
            left[frozen] -= 1
        else:
            kept.append(row)
    return kept


def _has_rows(output: Any) -> bool:
    return isinstance(output, Iterable) and not isinstance(output, str | bytes | Mapping)


def _frozen(value: Any) -> Hashable:
    """A value that is equal and hashable; what can't be hashed otherwise is its text."""
    if isinstance(value, Mapping):
        return "mapping", frozenset((_frozen(key), _frozen(each)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return type(value).__name__, tuple(map(_frozen, value))
    if isinstance(value, set | frozenset):
        return "set", frozenset(map(_frozen, value))
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return type(value).__name__, value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."
