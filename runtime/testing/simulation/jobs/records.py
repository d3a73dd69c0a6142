"""The records of a simulated job: each one carries its origin and its route.

A record is `(origin, route)`. The origin is the source's operator, the split and the position in it. The
route has one step for each operator that it passed. A step has the operator, the subtask (the *lane*), and
the number of the copy if the operator emits several. After a keyed operator it also has the key, the record's
number among those of the key, and the key's digest after it. So the output of a job shows what every operator
has processed, in which order, and what its state must be.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeAlias

import xxhash

#: The source's operator, the split, the position in it.
Origin: TypeAlias = tuple[int, int, int]

#: Operator, subtask, copy; behind a keyed operator also key, number and digest.
Step: TypeAlias = tuple[Any, ...]
Route: TypeAlias = tuple[Step, ...]
Record: TypeAlias = tuple[Origin, Route]

#: Names a record whatever lanes it took: operator and copy of each step, and the lane after a broadcast.
Identity: TypeAlias = tuple[Origin, tuple[tuple[int, int, int], ...]]

Key: TypeAlias = int | str


class Copies(Enum):
    """How many records an operator makes of one."""

    ONE = "one"
    NONE_TO_TWO = "none to two"
    ONE_OR_TWO = "one or two"

    def of(self, origin: Origin) -> int:
        """How many it makes of this one.

        Example:
            >>> [Copies.NONE_TO_TWO.of((0, 0, i)) for i in range(4)]
            [0, 1, 2, 0]
        """
        _, split, index = origin
        if self is Copies.ONE:
            return 1
        return (split + index) % 3 if self is Copies.NONE_TO_TWO else 1 + (split + index) % 2


def key_of(origin: Origin, operator: int, keys: int, *, text: bool) -> Key:
    """The key of a record for one keyed operator.

    Example:
        >>> key_of((0, 1, 2), operator=3, keys=4, text=True)
        'key-0'
    """
    source, split, index = origin
    number = (source + 3 * split + index + operator) % keys
    return f"key-{number}" if text else number


def identity_of(origin: Origin, steps: Route, broadcast: frozenset[tuple[int, int]]) -> Identity:
    """What names a record after these steps; `broadcast` are the exchanges that give it to all subtasks."""
    way = zip((None, *(step[0] for step in steps)), steps, strict=False)
    return origin, tuple((s[0], s[2], s[1] if (before, s[0]) in broadcast else -1) for before, s in way)


def lanes_of(steps: Route) -> tuple[tuple[int, int], ...]:
    """The channels that a record took: operator and subtask of each step."""
    return tuple((step[0], step[1]) for step in steps)


def digest_after(before: int, origin: Origin, steps: Route) -> int:
    """The digest of a key's state after one more record with this way behind it."""
    way = [(step[0], step[2]) for step in steps]
    return xxhash.xxh3_64_intdigest(f"{before}|{origin}|{way}".encode()) >> 1
