"""`KeyMatches`: the partial matches of one key and their records, as the matcher and the state hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

#: Numbers of the records that each leaf has taken.
Taken = tuple[tuple[int, ...], ...]

#: A match: lists of its records, by the names of the positive steps.
Match = dict[str, list[Any]]


class PartialMatch(NamedTuple):
    """A partial match, or a complete match that is held and has no targets.

    Attributes:
        taken: Numbers of the records of each leaf.
        first_at: Timestamp of the first record, in microseconds.
        last_at: Timestamp of the newest record, in microseconds.
        leaf: Index of the leaf of the newest record.
        counts: Counts of the loops around the newest record; see `TransitionGraph`.
        targets: Indexes of the transitions that may take the next record.
        is_fresh: Whether no record has arrived since the newest one; kept only where `not_next` follows the
            leaf.
    """

    taken: Taken
    first_at: int
    last_at: int
    leaf: int
    counts: tuple[int, ...]
    targets: tuple[int, ...]
    is_fresh: bool

    @property
    def state(self) -> State:
        return self[3:]

    @property
    def first(self) -> int:
        """Number of the first record."""
        first = -1
        for numbers in self.taken:
            if numbers and (first < 0 or numbers[0] < first):
                first = numbers[0]
        return first

    @property
    def last(self) -> int:
        """Number of the newest record."""
        return self.taken[self.leaf][-1]


#: The fields of a partial match without its records and times.
State = tuple[Any, ...]

#: Number of partial matches from which on they are indexed by state.
MANY: Final = 16


class KeyMatches:
    """The partial matches of one key, and their records with timestamps by number.

    Attributes:
        partial: Partial matches by id, in the order in which they were made.
        held: Complete matches by id that wait for partial matches that began earlier.
        ids: Ids of the partial matches in each state; `None` while there have been fewer than `MANY`.
        deadline: The moment at which the first target of a partial match expires, in microseconds. It is
            infinite if none does, and `None` if it has to be computed.
        changed: Ids of the partial and held matches that were added, changed or removed.
        added: Numbers of new records.
        deleted: Numbers of deleted records that were not new; a new record may reuse such a number.
    """

    __slots__ = ("added", "changed", "deadline", "deleted", "held", "ids", "partial", "records")

    def __init__(self) -> None:
        self.partial: dict[int, PartialMatch] = {}
        self.held: dict[int, PartialMatch] = {}
        self.ids: dict[State, set[int]] | None = None
        self.deadline: float | None = None
        self.records: dict[int, tuple[int, Any]] = {}
        self.changed: set[int] = set()
        self.added: set[int] = set()
        self.deleted: set[int] = set()

    @classmethod
    def of(cls, saved: Mapping[int, Sequence[Any]], records: dict[int, tuple[int, Any]]) -> KeyMatches:
        """Make the matches from saved partial matches: the fields of `PartialMatch` by id.

        The matches change the dict `records` itself; a copy for each new record would cost too much.
        """
        of_key = cls()
        of_key.records = records
        make, partial = PartialMatch._make, of_key.partial
        for match_id in sorted(saved) if len(saved) > 1 else saved:
            match = make(saved[match_id])
            if match.targets:
                partial[match_id] = match
            else:
                of_key.held[match_id] = match
        of_key.index()
        return of_key

    def index(self) -> None:
        """Index the partial matches by state if there are many."""
        if self.ids is None and len(self.partial) >= MANY:
            self.ids = {}
            for match_id, match in self.partial.items():
                self.ids.setdefault(match.state, set()).add(match_id)

    def forget_changes(self) -> None:
        self.changed.clear()
        self.added.clear()
        self.deleted.clear()

    def put(self, match_id: int, match: PartialMatch) -> None:
        """Add or replace a partial or held match."""
        self.changed.add(match_id)
        self.deadline = None
        if not match.targets:
            self.held[match_id] = match
            return
        if self.ids is not None:
            before = self.partial.get(match_id)
            if before is not None:
                self._forget_state(self.ids, match_id, before)
            self.ids.setdefault(match.state, set()).add(match_id)
        self.partial[match_id] = match

    def remove(self, match_id: int) -> PartialMatch:
        self.changed.add(match_id)
        self.deadline = None
        if match_id in self.held:
            return self.held.pop(match_id)
        match = self.partial.pop(match_id)
        if self.ids is not None:
            self._forget_state(self.ids, match_id, match)
        return match

    def _forget_state(self, ids_of: dict[State, set[int]], match_id: int, match: PartialMatch) -> None:
        state = match.state
        ids = ids_of[state]
        ids.remove(match_id)
        if not ids:
            del ids_of[state]

    def add_record(self, at: int, record: Any) -> int:
        """Add a record, and return its number.

        The number is above those of all stored records. Each of these records belongs to a match. Of all
        partial matches, the newest has the newest record.
        """
        newest = -1
        if self.partial:
            newest = self.partial[next(reversed(self.partial))].last
        for match in self.held.values():
            newest = max(newest, match.last)
        number = newest + 1
        self.records[number] = at, record
        self.added.add(number)
        return number

    def records_of(self, match: PartialMatch, names: Sequence[str]) -> Match:
        """Return the records of a match as lists by the names of the leaves."""
        records, found = self.records, {}
        for name, numbers in zip(names, match.taken, strict=True):
            found[name] = [records[number][1] for number in numbers] if numbers else []
        return found

    def delete_record(self, number: int) -> None:
        del self.records[number]
        if number in self.added:
            self.added.remove(number)
        else:
            self.deleted.add(number)

    @property
    def next_id(self) -> int:
        """An id above those of all partial and held matches."""
        newest = next(reversed(self.partial), -1)
        return 1 + (max(newest, *self.held) if self.held else newest)
