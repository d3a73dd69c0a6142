"""Ids of operators: what a checkpoint files state under.

The user gives an operator with state its id. Only a name that survives changes of the program lets a new
version of a job find its state again. Operators without state get an id made from their kind and their place
among operators of that kind. It never collides with an id that the user chose.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence, Set
from typing import Final

_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,99}")


def problem_with_id(operator_id: object) -> str | None:
    """Why this can't be an operator's id; `None` when it can.

    Example:
        >>> problem_with_id("count-words"), problem_with_id("")
        (None, 'an operator id must not be empty')
    """
    if not isinstance(operator_id, str):
        return f"an operator id must be a string, not {type(operator_id).__name__} ({operator_id!r:.60})"
    if not operator_id:
        return "an operator id must not be empty"
    if not _ID.fullmatch(operator_id):
        return (
            f"operator id {operator_id!r:.120} must be at most 100 letters (a to z), digits, '_', '-' and "
            "'.', and begin with a letter, a digit or '_': it is part of file names and of paths in the REST "
            f"interface; for example {_fitting(operator_id)!r}"
        )
    return None


def _fitting(text: str) -> str:
    """An id that is as near to this text as one can be."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
    return re.sub(r"[^A-Za-z0-9_.]+", "-", plain).strip("-.")[:100] or "my-operator"


def fill_in_ids(kinds: Sequence[str], chosen: Sequence[str | None]) -> list[str]:
    """Give an id to every operator that has none.

    Args:
        kinds: What each operator does: `map`, `filter`.
        chosen: The user's id for each, or `None`.

    Example:
        >>> fill_in_ids(["map", "map", "filter"], [None, "map-1", None])
        ['map-2', 'map-1', 'filter-1']
    """
    taken = {operator_id for operator_id in chosen if operator_id is not None}
    fresh = {kind: _numbered(kind, taken) for kind in set(kinds)}
    return [next(fresh[kind]) if own is None else own for kind, own in zip(kinds, chosen, strict=True)]


def _numbered(kind: str, taken: Set[str]) -> Iterator[str]:
    """`map-1`, `map-2`, ... without those that are taken."""
    names = (f"{kind}-{number}" for number in itertools.count(1))
    return (name for name in names if name not in taken)
