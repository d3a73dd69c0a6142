"""`Matcher`: finds the matches of a pattern in the records of one key, which arrive in time order.

Matches follow the rules of Flink's CEP; `docs/patterns.md` lists the differences.

**Partial matches.** A partial match has the records that each step has taken, and *targets*: the transitions
to the steps that may take the next record. `transitions.py` makes them from the pattern. A step that has
taken a record and has room is a target. Once it has enough records, the next step is a target, too. A further
step is a target as well if all steps in between are optional. The end of the pattern is a target if the
pattern ends with a negative step. In other patterns a match is complete as soon as the last step has enough
records.

**Records.** A record is tested at each target of each partial match. If it meets the target's condition, a
new partial match takes it. The old partial match keeps only the targets that may wait. A strict target never
waits, because no record may come in between. A relaxed target waits if the record does not match. Any other
target always waits. A partial match without targets is deleted. So no two partial matches are equal. No match
is found twice, unless its records can be divided into the runs of a group in two ways.

`decisions.py` decides this for all partial matches before any of them changes.

- If a greedy step can take a record, all targets that leave this step or pass over it end. In a group that
  repeats, this holds for the run of the group to which the greedy step belongs.
- A record that matches `until` ends the target of its step.
- A record that matches `not_next` directly after the step before it discards the partial match.
- A record that matches `not_followed_by` discards the partial match and all that grow out of it with this
  record. `not_followed_by` applies from the first record of the step before it. It does not prevent a match
  that the record itself completes, because this record does not lie before the end of the match.
- Each record may also begin new partial matches.

**Time.** A target expires `gap` after the newest record of its partial match, and every target expires
`limit` after the first record. `expire` removes these targets. It is called at each such moment, before the
records of the moment. A partial match that loses its last target times out. If the end after
`not_followed_by` is one of the expired targets, the match is complete instead.

**Skipping.** With a skip strategy, a complete match is held until no partial match is left that began
earlier. Then it is emitted, and other matches are discarded. So a timeout may also emit matches.

**Numbers.** Records are numbered in order. A partial match refers to records by number, so each record is
stored once. A record to which no partial or held match refers is deleted at once.

The matcher must find the same matches if partial matches are saved and restored after any record. So all its
data about a key are in `KeyMatches`, which holds only plain values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from math import inf
from typing import Any, Final, NamedTuple

from penstock.runtime.operators.patterns.decisions import MatchDecision, MatchDecisions
from penstock.runtime.operators.patterns.key_matches import KeyMatches, Match, PartialMatch
from penstock.runtime.operators.patterns.pattern import Pattern, SkipKind
from penstock.runtime.operators.patterns.transitions import TransitionGraph


class Outcome(NamedTuple):
    """Matches that are complete, and partial matches that have timed out."""

    matches: list[Match]
    timed_out: list[Match]


#: The outcome without matches; never changed.
_NOTHING: Final = Outcome([], [])


class _Arrival(NamedTuple):
    """The new state of a partial match after a transition took a record, without the records."""

    leaf: int
    counts: tuple[int, ...]
    targets: tuple[int, ...]
    is_complete: bool
    is_fresh: bool


class Matcher:
    """Finds the matches of a pattern in the records of a key; one object serves all keys.

    Args:
        wrap: Wraps a condition so that the condition can't change records.

    Example:
        >>> pattern = Pattern.begin("a", where=str.islower).followed_by("b", where=str.isupper)
        >>> matcher, of_key = Matcher(pattern), KeyMatches()
        >>> for at, letter in enumerate("xyZ"):
        ...     outcome = matcher.advance(of_key, at, letter)
        >>> outcome.matches, of_key.records
        ([{'a': ['x'], 'b': ['Z']}, {'a': ['y'], 'b': ['Z']}], {})
    """

    def __init__(
        self,
        pattern: Pattern[Any],
        wrap: Callable[[Callable[..., object]], Callable[..., object]] = lambda function: function,
    ) -> None:
        self._skip = pattern.skip
        self._limit = pattern.limit
        graph = self._graph = TransitionGraph(pattern.steps)
        self._names = [leaf.name for leaf in graph.leaves]
        gaps = [leaf.gap for leaf in graph.leaves]
        gaps.append(min((step.gap for step in graph.negative[-1] if step.gap is not None), default=None))
        #: Maximum time between two records, by transition.
        self._gaps = [gaps[way.target] for way in graph.transitions]
        self._has_gaps = any(gap is not None for gap in gaps)
        self._has_limits = self._has_gaps or self._limit is not None
        skipped = None if self._skip.step is None else self._names.index(self._skip.step)
        self._skipped_to: Final = skipped
        self._arrivals: dict[tuple[tuple[int, ...], int], _Arrival] = {}
        #: The beginning of each match, without its times.
        self._empty = PartialMatch(((),) * len(self._names), 0, 0, -1, (), graph.begin, is_fresh=False)
        self._decisions = MatchDecisions(graph, self._empty, wrap)

    @property
    def running(self) -> tuple[str, Callable[..., object]] | None:
        """The name of a step and its condition, while the condition is called.

        It is `None` while no record is processed.
        """
        return self._decisions.running

    # -- time ---------------------------------------------------------------------------------------------

    def deadline(self, of_key: KeyMatches) -> int | None:
        """The earliest moment at which a target expires."""
        if not self._has_limits:
            return None
        if of_key.deadline is None:
            of_key.deadline = self._earliest(of_key.partial.values())
        return None if of_key.deadline == inf else int(of_key.deadline)

    def _earliest(self, matches: Collection[PartialMatch]) -> float:
        if self._has_gaps:
            return min((self._expires_at(match, t) for match in matches for t in match.targets), default=inf)
        if self._limit is None or not matches:
            return inf
        return min(match.first_at for match in matches) + self._limit

    def _expires_at(self, match: PartialMatch, target: int) -> float:
        gap = self._gaps[target]
        by_gap = inf if gap is None else match.last_at + gap
        return by_gap if self._limit is None else min(by_gap, match.first_at + self._limit)

    def expire(self, of_key: KeyMatches, at: int) -> Outcome:
        """Advance time to a moment; the records of this moment must not have been processed yet."""
        complete: list[PartialMatch] = []
        timed_out: list[Match] = []
        gone: list[PartialMatch] = []
        graph = self._graph
        deadline = self.deadline(of_key)
        if deadline is None or deadline > at:
            return Outcome([], [])
        for number, match in list(of_key.partial.items()):
            left = tuple(t for t in match.targets if self._expires_at(match, t) > at)
            if len(left) == len(match.targets):
                continue
            expired = set(match.targets).difference(left)
            if graph.ends_by_time and not graph.to_end.isdisjoint(expired):
                complete.append(match)
            elif not left:
                timed_out.append(of_key.records_of(match, self._names))
            if left:
                of_key.put(number, match._replace(targets=left))
            else:
                gone.append(of_key.remove(number))
        return Outcome(self._emitted(of_key, complete, gone), timed_out)

    # -- records ------------------------------------------------------------------------------------------

    def advance(self, of_key: KeyMatches, at: int, record: Any) -> Outcome:
        """Process the next record; `expire` must have been called for its moment."""
        decisions = self._decisions
        decisions.begin(of_key, record)
        effects = decisions.effects() if of_key.partial else ()
        begun = decisions.begun()
        decisions.end()
        if not effects and not begun:
            return _NOTHING
        number = of_key.add_record(at, record)
        complete: list[PartialMatch] = []
        gone: list[PartialMatch] = []
        grown: list[PartialMatch] = []
        for match_id, match, decision in effects:
            has_grown = len(grown)
            if decision.taken:
                self._grow(match, match.first_at, decision, number, at, grown, complete)
            if decision.left:
                of_key.put(match_id, match._replace(targets=decision.left, is_fresh=False))
            else:
                of_key.remove(match_id)
                if len(grown) == has_grown:  # else a partial match that grew out of it has its records, too
                    gone.append(match)
        if begun:
            self._grow(self._empty, at, MatchDecision((), begun), number, at, grown, complete)
        if grown:
            for match_id, match in enumerate(grown, of_key.next_id):
                of_key.put(match_id, match)
        elif not complete:
            of_key.delete_record(number)
        if not complete and not gone:
            return _NOTHING
        return Outcome(self._emitted(of_key, complete, gone, number if complete else None), [])

    def _grow(
        self,
        match: PartialMatch,
        first_at: int,
        decision: MatchDecision,
        number: int,
        at: int,
        grown: list[PartialMatch],
        complete: list[PartialMatch],
    ) -> None:
        """Append the matches into which a partial match grows to `grown` and `complete`."""
        before, counts = match.taken, match.counts
        for index in decision.taken:
            if index in self._graph.to_end:
                complete.append(match)
                continue
            arrival = self._arrivals.get((counts, index)) or self._arrive(counts, index)
            leaf, counts_after, targets, is_complete, is_fresh = arrival
            taken = (*before[:leaf], (*before[leaf], number), *before[leaf + 1 :])
            new = PartialMatch(taken, first_at, at, leaf, counts_after, targets, is_fresh)
            if is_complete:
                complete.append(new)
            if targets and not decision.is_discarded:
                grown.append(new)

    def _arrive(self, counts: tuple[int, ...], index: int) -> _Arrival:
        reached, targets = self._graph.reached(counts, index)
        on = targets if self._graph.negative[-1] else tuple(t for t in targets if t not in self._graph.to_end)
        leaf = self._graph.transitions[index].target
        arrival = _Arrival(leaf, reached, on, len(on) < len(targets), self._graph.has_not_next(leaf))
        self._arrivals[counts, index] = arrival
        return arrival

    # -- complete matches ---------------------------------------------------------------------------------

    def _emitted(
        self,
        of_key: KeyMatches,
        complete: list[PartialMatch],
        gone: list[PartialMatch],
        newest: int | None = None,
    ) -> list[Match]:
        """Return the matches that the skip strategy emits, and delete records that are no longer needed."""
        if not complete and not gone:
            return []
        if self._skip.kind is SkipKind.NO_SKIP:
            matches = [
                of_key.records_of(match, self._names) for match in sorted(complete, key=lambda m: m.first)
            ]
            released = [*gone, *complete]
        else:
            released = gone
            matches = list(self._skipping(of_key, complete, released)) if complete or of_key.held else []
        self._delete_records(of_key, released, newest)
        return matches

    def _skipping(
        self, of_key: KeyMatches, complete: list[PartialMatch], released: list[PartialMatch]
    ) -> Iterable[Match]:
        for match_id, match in enumerate(complete, of_key.next_id):
            of_key.put(match_id, match._replace(targets=()))
        waiting = sorted(of_key.held, key=lambda match_id: of_key.held[match_id].first)
        for match_id in waiting:
            if match_id not in of_key.held:  # an emitted match has discarded it
                continue
            match = of_key.held[match_id]
            if any(partial.first < match.first for partial in of_key.partial.values()):
                break
            yield of_key.records_of(match, self._names)
            released.append(of_key.remove(match_id))
            bound = self._discards_below(match)
            for others in (of_key.partial, of_key.held):
                for other_id in [other_id for other_id, other in others.items() if other.first < bound]:
                    released.append(of_key.remove(other_id))

    def _discards_below(self, match: PartialMatch) -> float:
        """Return a record number; `match` discards the matches whose first record has a lower number."""
        kind = self._skip.kind
        if kind is SkipKind.TO_NEXT:
            return match.first + 1
        if kind is SkipKind.PAST_LAST_EVENT:
            return match.last + 1
        assert self._skipped_to is not None, "these strategies name a step"
        numbers = match.taken[self._skipped_to]
        if not numbers:
            return -inf
        return numbers[0] if kind is SkipKind.TO_FIRST else numbers[-1]

    def _delete_records(self, of_key: KeyMatches, released: list[PartialMatch], newest: int | None) -> None:
        """Delete records to which no match refers any more, and the newest record if no match took it."""
        left_over = {number for match in released for numbers in match.taken for number in numbers}
        if newest is not None:
            left_over.add(newest)
        if not left_over:
            return
        youngest = max(left_over)
        for match in (*of_key.partial.values(), *of_key.held.values()):
            if match.first <= youngest:
                left_over.difference_update(*match.taken)
                if not left_over:
                    return
        for number in left_over:
            of_key.delete_record(number)
