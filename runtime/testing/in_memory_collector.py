"""`InMemoryCollector`: keeps the rows that a `CollectSink` commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn


class InMemoryCollector:
    """A collector for a `CollectSink` whose subtasks run in this process: in a simulation or a harness.

    A job on a cluster would fill copies of it that nobody sees, so it can't be pickled; such a job needs a
    `penstock.actors.RayCollector`.

    Example:
        >>> collector = InMemoryCollector()
        >>> collector.add(("job-1", "out", 0, 1, 0), ["a"])
        >>> collector.add(("job-1", "out", 0, 1, 0), ["a"])
        >>> collector.rows()
        ['a']
    """

    def __init__(self) -> None:
        self._by_key: dict[tuple[Any, ...], list[Any]] = {}

    def add(self, key: tuple[Any, ...], rows: Sequence[Any]) -> None:
        """Take the rows of one transaction; a key that came before is ignored."""
        self._by_key.setdefault(key, list(rows))

    def rows(self) -> list[Any]:
        """All rows, transaction by transaction in the order of their commits."""
        return [row for rows in self._by_key.values() for row in rows]

    def __reduce__(self) -> NoReturn:
        msg = (
            "an InMemoryCollector stays in its process; collect the rows of a job on a cluster with "
            "CollectSink(penstock.actors.RayCollector())"
        )
        raise TypeError(msg)
