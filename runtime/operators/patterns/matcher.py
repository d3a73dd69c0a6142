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

A decision depends on the record and on the *state* of a partial match. The state is the newest step, counts
and targets, and whether `not_next` applies to the record. Only a condition that takes the match needs more.
So partial matches in the same state share a decision.

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

from collections.abc import Callable, Collection, Iterable, Sequence
from math import inf
from typing import Any, Final, NamedTuple

from penstock.runtime.operators.patterns.key_matches import KeyMatches, PartialMatch, State
from penstock.runtime.operators.patterns.pattern import Pattern, SkipKind, takes_match
from penstock.runtime.operators.patterns.step import Contiguity, Step
from penstock.runtime.operators.patterns.transitions import TransitionGraph

#: A match: lists of its records, by the names of the positive steps.
Match = dict[str, list[Any]]


class Outcome(NamedTuple):
    """Matches that are complete, and partial matches that have timed out."""

    matches: list[Match]
    timed_out: list[Match]


#: The outcome without matches; never changed.
_NOTHING: Final = Outcome([], [])


class _Condition:
    """A user's condition of one step, and the function that is called instead of it."""

    __slots__ = ("call", "running", "takes_match")

    def __init__(self, step: str, function: Callable[..., object], call: Callable[..., object]) -> None:
        self.running, self.call = (step, function), call
        self.takes_match = takes_match(function)


class _Leaf(NamedTuple):
    """A positive step with its conditions, and the negative steps after it."""

    step: Step
    where: _Condition
    until: _Condition | None
    not_next: tuple[_Condition, ...]
    not_followed_by: tuple[_Condition, ...]


class _Decision(NamedTuple):
    """A record's effect on a partial match.

    Attributes:
        left: Transitions that wait for another record.
        taken: Transitions that take the record, or that complete the match without it.
        is_discarded: Whether only a match that the record completes is left.
    """

    left: tuple[int, ...]
    taken: tuple[int, ...]
    is_discarded: bool = False


#: The decision for a record that leaves a partial match unchanged.
_UNCHANGED: Final = _Decision((), ())

#: The decision for a record that ends a partial match.
_DISCARDED: Final = _Decision((), (), is_discarded=True)


class _Arrival(NamedTuple):
    """The new state of a partial match after a transition took a record, without the records."""

    leaf: int
    counts: tuple[int, ...]
    targets: tuple[int, ...]
    is_complete: bool
    is_fresh: bool


class _Way(NamedTuple):
    """A target of a partial match, with the decisions that depend on the pattern alone.

    Attributes:
        number: Index of the transition.
        where: Condition of the leaf; `None` for the end of the pattern.
        blocked_by: Greedy leaves in runs; if one of them takes the record, this target ends.
        blocks: The leaf in its run if it is greedy.
        is_inner: Whether `until` ends the target.
        waits: Whether the target may wait for a later record.
        waits_always: Whether it waits even if its leaf takes the record.
    """

    number: int
    where: _Condition | None
    until: _Condition | None
    blocked_by: frozenset[tuple[int, int, bool]]
    blocks: tuple[int, int, bool] | None
    is_inner: bool
    waits: bool
    waits_always: bool


class _Plan(NamedTuple):
    """The conditions on which a decision depends, for all partial matches in one state.

    Attributes:
        not_next: Conditions that discard the partial match.
        not_followed_by: Conditions after which only a match that the record completes is left.
        ways: Targets in their order.
        may_wait: Whether the partial match has records.
        is_fresh: Whether the partial match changes with any record.
    """

    not_next: tuple[_Condition, ...]
    not_followed_by: tuple[_Condition, ...]
    ways: tuple[_Way, ...]
    may_wait: bool
    is_fresh: bool


class _Decisions:
    """Decides on each partial match of a key for one record; one object serves all records.

    Conditions that take only the record are called once for each record. A decision that depends on such
    conditions alone holds for all partial matches in the same state.
    """

    __slots__ = ("_by_condition", "_by_state", "_is_shared", "_match", "_matcher", "_of_key", "_record")

    _of_key: KeyMatches
    _match: PartialMatch

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._record: Any = None
        self._by_condition: dict[_Condition, bool] = {}
        self._by_state: dict[State, _Decision] = {}
        self._is_shared = True

    def begin(self, of_key: KeyMatches, record: Any) -> None:
        """Begin with another record."""
        self._of_key, self._record = of_key, record
        self._by_condition.clear()
        self._by_state.clear()

    def of(self, match: PartialMatch) -> _Decision:
        state = match[3:]
        decision = self._by_state.get(state)
        if decision is None:
            self._match, self._is_shared = match, True
            decision = self._decide(self._matcher.plan(state))
            if self._is_shared:
                self._by_state[state] = decision
        return decision

    def effects(self) -> list[tuple[int, PartialMatch, _Decision]]:
        """Return the partial matches that the record changes in their order, with the decisions."""
        of_key = self._of_key
        partial, of = of_key.partial, self.of
        of_key.index()
        if of_key.ids is None:
            return [
                (match_id, match, decision)
                for match_id, match in partial.items()
                if (decision := of(match)) is not _UNCHANGED
            ]
        ids: list[int] = []
        for of_state in of_key.ids.values():
            if of(partial[next(iter(of_state))]) is not _UNCHANGED or not self._is_shared:
                ids += of_state
        ids.sort()
        return [
            (match_id, match, decision)
            for match_id in ids
            if (decision := of(match := partial[match_id])) is not _UNCHANGED
        ]

    def _decide(self, plan: _Plan) -> _Decision:
        """Decide for each target of a partial match whether it takes the record, waits or ends."""
        holds = self._holds
        not_next, not_followed_by, ways, may_wait, is_fresh = plan
        for condition in not_next:
            if holds(condition):
                return _DISCARDED
        is_discarded = False
        for condition in not_followed_by:
            if holds(condition):
                is_discarded = True
                break
        left: list[int] = []
        taken: list[int] = []
        blocked: list[tuple[int, int, bool]] = []
        for number, where, until, blocked_by, blocks, is_inner, waits, waits_always in ways:
            if blocked and not blocked_by.isdisjoint(blocked):
                continue
            if where is None:
                # If the pattern ends with `not_next`, a record that does not match it completes the match.
                if waits:
                    left.append(number)
                elif may_wait and not is_discarded:
                    taken.append(number)
                continue
            if until is not None and holds(until):
                if is_inner:
                    continue
                matches, takes = holds(where), False
            else:
                matches = takes = holds(where)
            if takes:
                taken.append(number)
                if blocks is not None:
                    blocked.append(blocks)
            if waits and (waits_always or not matches):
                left.append(number)
        if is_discarded or not may_wait:
            left = []
        if not taken and not is_fresh and len(left) == len(ways):
            return _UNCHANGED
        return _Decision(tuple(left), tuple(taken), is_discarded)

    def _holds(self, condition: _Condition) -> bool:
        if condition.takes_match:
            self._is_shared = False
            matcher = self._matcher
            matcher.running = condition.running
            return bool(condition.call(self._record, matcher.records_of(self._of_key, self._match)))
        held = self._by_condition.get(condition)
        if held is None:
            self._matcher.running = condition.running
            held = self._by_condition[condition] = bool(condition.call(self._record))
        return held


class Matcher:
    """Finds the matches of a pattern in the records of a key; one object serves all keys.

    Args:
        wrap: Wraps a condition so that the condition can't change records.

    Attributes:
        running: The name of a step and its condition, while the condition is called; `None` while no record
            is processed.

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
        self._wrap = wrap
        self._skip = pattern.skip
        self._limit = pattern.limit
        graph = self._graph = TransitionGraph(pattern.steps)
        self._leaves = [self._leaf(*both) for both in zip(graph.leaves, graph.negative, strict=True)]
        self._names = [leaf.name for leaf in graph.leaves]
        negative = graph.negative[-1]
        self._has_end = bool(negative)
        #: Whether time completes a match that has the end as a target; otherwise the next record does.
        self._ends_by_time = bool(negative) and negative[-1].contiguity is not Contiguity.STRICT
        gaps = [leaf.gap for leaf in graph.leaves]
        gaps.append(min((step.gap for step in negative if step.gap is not None), default=None))
        #: Maximum time between two records, by transition.
        self._gaps = [gaps[way.target] for way in graph.transitions]
        self._has_gaps = any(gap is not None for gap in gaps)
        self._has_limits = self._has_gaps or self._limit is not None
        self._to_end = frozenset(i for i, way in enumerate(graph.transitions) if way.target == graph.end)
        skipped = None if self._skip.step is None else self._names.index(self._skip.step)
        self._skipped_to: Final = skipped
        self._arrivals: dict[tuple[tuple[int, ...], int], _Arrival] = {}
        self._ways = [self._way(index) for index in range(len(graph.transitions))]
        self._plans: dict[State, _Plan] = {}
        self._decisions = _Decisions(self)
        #: The beginning of each match, without its times.
        self._empty = PartialMatch(((),) * len(self._leaves), 0, 0, -1, (), graph.begin, is_fresh=False)
        self.running: tuple[str, Callable[..., object]] | None = None

    def _leaf(self, step: Step, negative: Sequence[Step]) -> _Leaf:
        return _Leaf(
            step,
            self._condition(step, step.where),
            None if step.until is None else self._condition(step, step.until),
            tuple(self._condition(n, n.where) for n in negative if n.contiguity is Contiguity.STRICT),
            tuple(self._condition(n, n.where) for n in negative if n.contiguity is not Contiguity.STRICT),
        )

    def _condition(self, step: Step, function: Callable[..., object]) -> _Condition:
        return _Condition(step.name, function, self._wrap(function))

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
        deadline = self.deadline(of_key)
        if deadline is None or deadline > at:
            return Outcome([], [])
        for number, match in list(of_key.partial.items()):
            left = tuple(t for t in match.targets if self._expires_at(match, t) > at)
            if len(left) == len(match.targets):
                continue
            if self._ends_by_time and not self._to_end.isdisjoint(set(match.targets).difference(left)):
                complete.append(match)
            elif not left:
                timed_out.append(self.records_of(of_key, match))
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
        begun = decisions.of(self._empty).taken
        self.running = None
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
            self._grow(self._empty, at, _Decision((), begun), number, at, grown, complete)
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
        decision: _Decision,
        number: int,
        at: int,
        grown: list[PartialMatch],
        complete: list[PartialMatch],
    ) -> None:
        """Append the matches into which a partial match grows to `grown` and `complete`."""
        before, counts = match.taken, match.counts
        for index in decision.taken:
            if index in self._to_end:
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
        on = targets if self._has_end else tuple(t for t in targets if t not in self._to_end)
        leaf = self._graph.transitions[index].target
        arrival = _Arrival(leaf, reached, on, len(on) < len(targets), bool(self._leaves[leaf].not_next))
        self._arrivals[counts, index] = arrival
        return arrival

    def plan(self, state: State) -> _Plan:
        """Return the conditions on which decisions on partial matches in a state depend."""
        plan = self._plans.get(state)
        if plan is None:
            plan = self._plans[state] = self._planned(*state)
        return plan

    def _planned(self, leaf: int, counts: tuple[int, ...], targets: tuple[int, ...], is_fresh: bool) -> _Plan:
        ways = tuple(self._ways[target] for target in targets)
        if leaf < 0:
            return _Plan((), (), ways, False, is_fresh)
        current = self._leaves[leaf]
        may_end = counts[-1] >= current.step.at_least
        return _Plan(
            current.not_next if is_fresh and may_end else (), current.not_followed_by, ways, True, is_fresh
        )

    def _way(self, index: int) -> _Way:
        way = self._graph.transitions[index]
        if index in self._to_end:
            return _Way(index, None, None, way.passed, None, False, self._ends_by_time, False)
        leaf = self._leaves[way.target]
        return _Way(
            index,
            leaf.where,
            leaf.until,
            way.passed,
            way.leaf_in_run if leaf.step.is_greedy else None,
            way.is_inner,
            way.contiguity is not Contiguity.STRICT,
            way.contiguity is Contiguity.ANY,
        )

    def records_of(self, of_key: KeyMatches, match: PartialMatch) -> Match:
        """Return the records of a match as lists by the names of steps."""
        records, found = of_key.records, {}
        for name, numbers in zip(self._names, match.taken, strict=True):
            found[name] = [records[number][1] for number in numbers] if numbers else []
        return found

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
            matches = [self.records_of(of_key, match) for match in sorted(complete, key=lambda m: m.first)]
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
            yield self.records_of(of_key, match)
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
